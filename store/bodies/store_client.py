"""The queue's end of a message store: it gathers writes and removes until the queue process sends them to the store.

The store answers every write with a report (QS-30), but a queue's confirms wait for **positions**, as they do with
the journal. So the client numbers its writes: the store has answered all writes up to position `durable`, because the
messages are on disk or were removed before.

A remove cancels a write that was not sent yet (queue-and-store section 6.10): neither is sent, and the write counts
as answered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from ...seams import seam


class Sent(NamedTuple):
    """What a queue sends to the store, which carries it out in this order."""

    writes: list[tuple[bytes, bytes]]
    removes: list[bytes]
    #: Whether messages of the queue wait until a write is on the disk, so that the store must not delay it.
    is_urgent: bool
    #: First and last id of the messages to remove, and the ids between them to keep.
    ranges: list[tuple[bytes, bytes, Container[bytes]]]


class NotLoaded(Exception):
    """A queue needs a body at once that only the store has: the queue should have read it before."""


class Gathered:
    """What is gathered for the store between two calls of `take`; the attributes are those of `Sent`."""

    __slots__ = ("is_urgent", "ranges", "removes", "writes")

    def __init__(self) -> None:
        self.writes: dict[bytes, bytes] = {}
        self.removes: list[bytes] = []
        self.is_urgent = False
        self.ranges: list[tuple[bytes, bytes, Container[bytes]]] = []


class StoreClient:
    """See the module. It implements `placement.Bodies`."""

    __slots__ = ("_position", "_unanswered", "gathered")

    def __init__(self) -> None:
        self._position = 0
        # Position of each write without an answer, in the order of the writes.
        self._unanswered: dict[bytes, int] = {}
        #: What `take` returns. None while there is nothing, because queues with small bodies never use their stores.
        self.gathered: Gathered | None = None

    def _gather(self) -> Gathered:
        if self.gathered is None:
            self.gathered = Gathered()
        return self.gathered

    def write_at_once(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """As `write`, and urgent: the queue's messages wait until it is on the disk."""
        self._gather().is_urgent = True
        return self.write(messages)

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """Write each (id, content). Returns the position at which they are durable."""
        self._position += 1
        writes = dict(messages)
        self._gather().writes |= writes
        self._unanswered.update(dict.fromkeys(writes, self._position))
        return self._position

    @seam("which references a queue removes")
    def remove(self, message_ids: Iterable[bytes]) -> None:
        """Remove one reference to each; the store ignores ids that it does not have."""
        gathered = self._gather()
        writes, removes = gathered.writes, gathered.removes
        if not writes:
            removes.extend(message_ids)
            return
        for message_id in message_ids:
            if writes.pop(message_id, None) is None:
                removes.append(message_id)
            else:
                del self._unanswered[message_id]

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """Remove one reference to each id from `first` to `last` except those in `keep`.

        The store determines which of them exist.
        """
        gathered = self._gather()
        self.remove(
            [message_id for message_id in gathered.writes if first <= message_id <= last and message_id not in keep]
        )
        gathered.ranges.append((first, last, keep))

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]:
        """Messages that were written and not sent yet; NotLoaded for all others."""
        writes = {} if self.gathered is None else self.gathered.writes
        try:
            return [writes[message_id] for message_id in message_ids]
        except KeyError as error:
            raise NotLoaded(error.args[0].hex()) from None

    def answered(self, message_ids: Iterable[bytes]) -> None:
        """Note that the store has reported these as written or ignored."""
        for message_id in message_ids:
            self._unanswered.pop(message_id, None)

    @property
    def durable(self) -> int:
        """The position up to which every write is on disk, or was removed before."""
        return next(iter(self._unanswered.values())) - 1 if self._unanswered else self._position

    def take(self) -> Sent | None:
        """What has gathered since the last call; None if nothing has."""
        gathered, self.gathered = self.gathered, None
        if gathered is None or not (gathered.writes or gathered.removes or gathered.ranges):
            return None
        return Sent(list(gathered.writes.items()), gathered.removes, gathered.is_urgent, gathered.ranges)
