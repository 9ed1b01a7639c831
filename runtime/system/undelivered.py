"""`Undelivered`: the messages of a system whose receiver has ended or never existed.

An ask is answered with ProcessDown, and a monitor with `$down`. Work that the system has divided into turns of the
receiver is done at once. Other messages of the runtime are dropped, because they concern only the receiver. Everything
else is counted, and sent to the actor that has asked for it with `handleDeadLetters`, if there is one. Thespian calls
such messages dead letters; in warren these are AMQP's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ActorSystemMessage, DeadEnvelope, PoisonMessage

from ..errors import ProcessDown
from ..exit_reason import NOPROC, ExitReason
from .cell import Cell

if TYPE_CHECKING:
    from .actor_base import ActorBase


class Undelivered:
    """See the module."""

    def __init__(self, base: ActorBase) -> None:
        self._base = base
        #: How many there were.
        self.count = 0
        #: The actor that gets them.
        self.handler: Cell | None = None

    def take(self, sender: ActorAddress, target: ActorAddress, message: Any, reason: ExitReason = NOPROC) -> None:
        """Answer, drop or count a message whose receiver has ended for `reason`."""
        base = self._base
        if type(message) is tuple and message:
            if message[0] == "ask" and len(message) == 3:
                base.enqueue(target, sender, ("$answer", message[1], False, ProcessDown(reason)))
                return
            if message[0] == "$monitor":
                base.enqueue(target, sender, ("$down", message[1], reason))
                return
            if message[0] == "$work":
                message[1]()  # work that another process left to the receiver, so it must be done all the same
                return
            if type(message[0]) is str and message[0].startswith("$"):
                return
        if isinstance(message, ActorSystemMessage) and not isinstance(message, PoisonMessage):
            return
        self.count += 1
        handler = self.handler
        if handler is not None:
            handler.queue.append((sender, DeadEnvelope(target, message)))
            base.schedule(handler)

    def register(self, address: ActorAddress, enable: bool) -> None:
        """Send undelivered messages to the actor at `address` from now on, or no longer.

        At most one actor gets them. A later registration replaces an earlier one, which does not come back.
        """
        cell = self._base.cells.get(address.addressDetails)
        if enable:
            self.handler = cell
        elif self.handler is cell:
            self.handler = None
