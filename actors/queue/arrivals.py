"""Publishes of one wake-up, joined into runs before the queue works on them.

Many publishers that each send a few like messages would cost a queue one pass over its consumers for each of them. What has the same origin and came one after the other
is therefore joined, whoever sent it; `parts` remembers who wants which confirm.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...store.messages.message import Origin
from .consumers import ChannelRecord

#: Of some messages in a row: their channel (None: nobody's, a dead letter), the publish number of the first (0: no confirm wanted), how many.
Part = tuple[ChannelRecord | None, int, int]


@dataclass(slots=True)
class Arrival:
    """A run of messages, and whose they are; `shared` is the id of the first if other queues have them too, else 0."""

    origin: Origin
    contents: list[bytes]
    body_bytes: int
    parts: list[Part]
    shared: int = 0
    joined: bool = False

    def joins(self, origin: Origin, contents: list[bytes], body_bytes: int, part: Part, shared: int) -> bool:
        """Adds a later run if it is of the same origin, and its ids go on."""
        if self.origin is not origin and self.origin != origin:
            return False
        if (shared or self.shared) and shared != self.shared + len(self.contents):
            return False
        if not self.joined:
            # The list belongs to the message that brought it.
            self.contents = list(self.contents)
            self.joined = True
        self.contents += contents
        self.body_bytes += body_bytes
        self.parts.append(part)
        return True


def split_parts(parts: list[Part], count: int) -> tuple[list[Part], list[Part]]:
    """The parts of the first `count` messages, and those of the rest."""
    head: list[Part] = []
    for at, (record, first, size) in enumerate(parts):
        if size > count:
            head.append((record, first, count))
            return head, [(record, first and first + count, size - count), *parts[at + 1 :]]
        head.append((record, first, size))
        count -= size
        if not count:
            return head, parts[at + 1 :]
    return head, []
