"""`WaitingBodies`: the messages of a message store that wait for a sync. Those removed meanwhile are never written.

A **mark** divides them: `take_marked` takes those that came before the last mark, and leaves the later ones.
"""

from __future__ import annotations


class WaitingMessage:
    """A message that waits. `since` is the number of marks before it came."""

    __slots__ = ("message", "ref_count", "since")

    def __init__(self, message: bytes, since: int) -> None:
        self.ref_count = 1
        self.message = message
        self.since = since


class WaitingBodies:
    """See the module."""

    __slots__ = ("_marks", "messages", "size", "spared", "spared_share")

    def __init__(self) -> None:
        #: By id, in the order in which they came.
        self.messages: dict[bytes, WaitingMessage] = {}
        self._marks = 0
        #: Bytes of all of them.
        self.size = 0
        #: How many were removed since some were taken last.
        self.spared = 0
        #: The share of recent messages that were removed while they waited (smoothed, 0 to 1).
        self.spared_share = 0.0

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message_id: bytes, message: bytes) -> None:
        """Have a message wait, with one reference."""
        self.messages[message_id] = WaitingMessage(message, self._marks)
        self.size += len(message)

    def spare(self, message_id: bytes) -> None:
        """Remove a message, which needs no place on the disk."""
        self.size -= len(self.messages.pop(message_id).message)
        self.spared += 1

    def between(self, first: bytes, last: bytes) -> list[bytes]:
        """The ids of the waiting messages from `first` to `last`."""
        return [message_id for message_id in self.messages if first <= message_id <= last]

    def mark(self) -> None:
        """Divide the messages that wait now from later ones."""
        self._marks += 1

    @property
    def has_marked(self) -> bool:
        """Whether any has waited since before the last mark."""
        oldest = next(iter(self.messages.values()), None)
        return oldest is not None and oldest.since < self._marks

    def take_all(self) -> dict[bytes, WaitingMessage]:
        """Remove all."""
        taken, self.messages = self.messages, {}
        self._took(taken)
        return taken

    def take_marked(self) -> dict[bytes, WaitingMessage]:
        """Remove those that have waited since before the last mark."""
        marks, messages = self._marks, self.messages
        taken = {message_id: waiting for message_id, waiting in messages.items() if waiting.since < marks}
        self.messages = {message_id: waiting for message_id, waiting in messages.items() if waiting.since == marks}
        self._took(taken)
        return taken

    def _took(self, taken: dict[bytes, WaitingMessage]) -> None:
        self.size -= sum([len(waiting.message) for waiting in taken.values()])
        total = self.spared + len(taken)
        if total:
            self.spared_share = (self.spared_share + self.spared / total) / 2
            self.spared = 0
