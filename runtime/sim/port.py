"""`SimPort`: how a scenario sends to processes and asks them. The world runs while the scenario waits for an answer."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from thespian.actors import ActorAddress
from thespian.system import isInternalActorSystemMessage

from ..contract import Address, Answer, C, ProcessMessage
from ..errors import ProcessDown, ProcessTimeout
from ..exit_reason import ExitKind, ExitReason
from ..system.address import LoopAddress

if TYPE_CHECKING:
    from .sim_base import SimBase

#: Virtual seconds that a request may take.
WAIT = 60.0

#: The exit reason of all processes of a simulated machine that crashes.
MACHINE_CRASHED = ExitReason(ExitKind.KILLED, "the machine crashed")


class SimAnswer(Generic[Answer]):
    """The answer to one ask, once `is_here`."""

    __slots__ = ("_ok", "_value", "is_here")

    def __init__(self) -> None:
        self.is_here = False
        self._ok = False
        self._value: Any = None

    def settle(self, ok: bool, value: Any) -> None:
        if not self.is_here:
            self.is_here, self._ok, self._value = True, ok, value

    @property
    def error(self) -> BaseException | None:
        """The error that the ask was answered with, if it was."""
        return None if self._ok else self._value

    def value(self) -> Answer:
        """The answer. Raises the error that the ask was answered with, or ProcessTimeout if there is no answer yet."""
        if not self.is_here:
            raise ProcessTimeout("no answer yet")
        if self._ok:
            answer: Answer = self._value
            return answer
        raise self._value


class SimPort:
    """A mailbox outside the system of actors; also the base behind Thespian's `ActorSystem.private()`."""

    #: Keeps senders from putting the port on a run queue (see `address`).
    is_idle = False

    def __init__(self, base: SimBase, kind: str = "port") -> None:
        self.base = base
        self.ready = base.ready
        self.queue = self
        base.ports += 1
        self.address = LoopAddress(f"{base.name}/{kind}-{base.ports}")
        self.address._cell = self  # type: ignore[assignment]
        base.cells[self.address._aaddr] = self
        self._arrived: deque[Any] = deque()
        self._answers: dict[int, SimAnswer[Any]] = {}
        self._last_ref = 0

    def append(self, envelope: tuple[ActorAddress, Any]) -> None:
        """Take a message that an actor sent."""
        message = envelope[1]
        if type(message) is tuple and message[:1] == ("$answer",):
            answer = self._answers.pop(message[1], None)
            if answer is not None:
                answer.settle(*message[2:])
        elif not isInternalActorSystemMessage(message):
            self._arrived.append(message)

    def tell(self, address: Address[C], message: ProcessMessage[C, Any] | tuple[Any, ...]) -> None:
        """Send `message` to the actor at `address`; Thespian's name for it."""
        self.base.enqueue(self.address, address, message)

    def begin(self, address: Address[C], message: ProcessMessage[C, Answer]) -> SimAnswer[Answer]:
        """Ask the process at `address` without waiting for the answer."""
        self._last_ref += 1
        answer: SimAnswer[Answer] = SimAnswer()
        if self.base.is_alive:
            self._answers[self._last_ref] = answer
            self.base.enqueue(self.address, address, ("ask", self._last_ref, message))
        else:
            answer.settle(False, ProcessDown(MACHINE_CRASHED))
        return answer

    def request(self, address: Address[C], message: ProcessMessage[C, Answer], timeout: float = WAIT) -> Answer:
        """Ask the process at `address` and run the world until it answers.

        Raises the error that it answered with, ProcessDown if the process or its machine ends, or ProcessTimeout after
        `timeout` virtual seconds or when nothing is left to happen.
        """
        answer = self.begin(address, message)
        self.base.world.run_until(lambda: answer.is_here, timeout)
        return answer.value()

    def listen(self, timeout: timedelta | float | None = WAIT) -> Any:
        """Run the world until a message comes that is no answer, and return it.

        None after `timeout` virtual seconds or when nothing is left to happen.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        self.base.world.run_until(lambda: bool(self._arrived), seconds)
        return self._arrived.popleft() if self._arrived else None

    def fail(self, reason: ExitReason) -> None:
        """Answer all open asks with ProcessDown, because the system has ended for `reason`."""
        for answer in self._answers.values():
            answer.settle(False, ProcessDown(reason))
        self._answers.clear()

    # -- as a base, for ActorSystem.private() ------------------------------------------------------

    def ask(self, address: ActorAddress, message: Any, timeout: timedelta | float | None) -> Any:
        self.tell(address, message)
        return self.listen(timeout)

    def newPrimaryActor(self, *args: Any) -> ActorAddress:
        return self.base.newPrimaryActor(*args)

    def exit_context(self) -> None:
        if self.base.cells.pop(self.address._aaddr, None) is not None:
            del self.address._cell
