"""A message store as the queues of one process see it: they write and remove at once, and what they say is gathered until it is sent.

The store answers every write by a report (QS-30); a queue's confirms wait for **positions**, as they do for the journal. Here the one is made of the other: a write
has the next position, and everything up to `durable` has been answered, be it that it is on disk or that it was removed before it came there.

A remove whose write has not been sent yet cancels it (section 6.10): neither is sent, and the write counts as answered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple


class Sent(NamedTuple):
    """What the store is to do, in this order."""

    writes: list[tuple[bytes, bytes]]
    removes: list[bytes]
    ranges: list[tuple[bytes, bytes, Container[bytes]]]
    """First and last id of messages to be removed, and those of them to keep."""


class NotLoaded(Exception):
    """A body was wanted at once that only the store has."""


class StoreClient:
    """See the module; it is the `placement.Bodies` of its queues."""

    __slots__ = ("_position", "_ranges", "_removes", "_unanswered", "_writes", "has_gathered")

    def __init__(self) -> None:
        self.has_gathered = False
        """There may be something to take."""
        self._position = 0
        self._unanswered: dict[bytes, int] = {}
        """Position of each write that no report has answered, in their order."""
        self._writes: dict[bytes, bytes] = {}
        self._removes: list[bytes] = []
        self._ranges: list[tuple[bytes, bytes, Container[bytes]]] = []

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """Each (id, content); returns the position at which they are durable."""
        self.has_gathered = True
        self._position += 1
        writes = dict(messages)
        self._writes.update(writes)
        self._unanswered.update(dict.fromkeys(writes, self._position))
        return self._position

    def remove(self, message_ids: Iterable[bytes]) -> None:
        """The store knows which of them it has."""
        self.has_gathered = True
        writes, removes = self._writes, self._removes
        if not writes:
            removes.extend(message_ids)
            return
        for message_id in message_ids:
            if writes.pop(message_id, None) is None:
                removes.append(message_id)
            else:
                del self._unanswered[message_id]

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """Every message with an id from `first` to `last` but those to `keep`; the store finds out which there are."""
        self.remove(
            [message_id for message_id in self._writes if first <= message_id <= last and message_id not in keep]
        )
        self._ranges.append((first, last, keep))

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]:
        """Only of what was written and not sent yet."""
        try:
            return [self._writes[message_id] for message_id in message_ids]
        except KeyError as error:
            raise NotLoaded(error.args[0].hex()) from None

    def contains(self, message_id: bytes) -> bool:
        """Only of what was written and not sent yet; what else there is, the store says when it is asked."""
        return message_id in self._writes

    def answered(self, message_ids: Iterable[bytes]) -> None:
        """The store reported these written or ignored."""
        for message_id in message_ids:
            self._unanswered.pop(message_id, None)

    @property
    def durable(self) -> int:
        """Everything up to here is durable, or was removed."""
        return next(iter(self._unanswered.values())) - 1 if self._unanswered else self._position

    def take(self) -> Sent | None:
        """What has gathered since the last call; None if nothing has."""
        self.has_gathered = False
        if not self._writes and not self._removes and not self._ranges:
            return None
        sent = Sent(list(self._writes.items()), self._removes, self._ranges)
        self._writes, self._removes, self._ranges = {}, [], []
        return sent
