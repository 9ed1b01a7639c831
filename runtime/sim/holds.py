"""`Holds`: messages and blocking calls that a scenario keeps back until it releases them.

A scheduler may keep a message waiting for as long as it likes, but must keep the order between two processes. So when a
message is held, everything that its sender sends to the same process afterwards is held as well. Held messages stay in
the mailbox of their receiver, where they count as unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from thespian.actors import ActorAddress

#: (address of the sender, address of the receiver, message) -> whether to hold this message, and all that follow it.
Match = Callable[[str, str, Any], bool]


class Hold:
    """Messages that are held: the first for which `match` returns True, and all that follow from the same sender.

    has_held   whether there was such a message
    """

    def __init__(self, match: Match) -> None:
        self._match = match
        #: The pairs (sender, receiver) of addresses between which every further message is held.
        self._pairs: set[tuple[str, str]] = set()

    @property
    def has_held(self) -> bool:
        return bool(self._pairs)

    def holds(self, sender: str, receiver: str, message: Any) -> bool:
        if (sender, receiver) in self._pairs:
            return True
        if not self._match(sender, receiver, message):
            return False
        self._pairs.add((sender, receiver))
        return True


class HeldCalls:
    """Blocking calls that are held: those of the processes for whose address `match` returns True.

    has_held   whether there was such a call
    """

    def __init__(self, match: Callable[[str], bool]) -> None:
        self._match = match
        self.has_held = False

    def holds(self, address: str) -> bool:
        is_held = self._match(address)
        self.has_held |= is_held
        return is_held


class Holds:
    """What is held in one system of actors."""

    def __init__(self) -> None:
        self.messages: list[Hold] = []
        self.calls: list[HeldCalls] = []

    def bring_forward(self, receiver: str, queue: deque[tuple[ActorAddress, Any]]) -> int:
        """Move the held messages of a mailbox behind the others. Returns how many others there are."""
        if not self.messages:
            return len(queue)
        free: list[tuple[ActorAddress, Any]] = []
        held: list[tuple[ActorAddress, Any]] = []
        for envelope in queue:
            is_held = any([hold.holds(envelope[0]._aaddr, receiver, envelope[1]) for hold in self.messages])
            (held if is_held else free).append(envelope)
        if held:
            queue.clear()
            queue.extend(free)
            queue.extend(held)
        return len(free)

    def hold_call(self, address: str) -> bool:
        """Whether to hold a blocking call of this process."""
        return any([hold.holds(address) for hold in self.calls])
