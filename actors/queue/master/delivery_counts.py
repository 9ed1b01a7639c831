"""`DeliveryCounts`: how often each message of a quorum queue was returned to it (AB-91).

A message that a consumer returns, or that returns because its channel ends, is delivered again with the header
`x-delivery-count`, the number of its returns. One that is returned more often than the queue's delivery limit makes its
consumers fail again and again; it dies with the reason `delivery_limit` instead.

The backing queue keeps the counts with the messages, so they go on after a crash. What the journal has not synced by
then is lost, and then a message may be returned more often than the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....amqp.added_header import HeaderAdder
from ....seams import seam
from ....store.queue.range_read import SupportsRangeRead

HEADER = "x-delivery-count"

#: At this many counts, the counts of messages that have left the queue are looked for and dropped.
PRUNED_AFTER = 1024


class DeliveryCounts:
    """The counts of one quorum queue, for messages that were returned at least once."""

    __slots__ = ("backing", "_header", "_pruned_after", "limit")

    def __init__(self, backing: SupportsRangeRead) -> None:
        self.backing = backing
        self._header = HeaderAdder(HEADER)
        self._pruned_after = PRUNED_AFTER
        #: How often a message may be returned; None: any number of times.
        self.limit: int | None = None

    @seam("which returned messages are given up")
    def returned(self, tags: Sequence[int]) -> tuple[Sequence[int], list[int]]:
        """Count a return of each of these messages. Returns those that may be delivered again, and those that exceed
        the limit.
        """
        # By ack tag, which is the number of the message.
        counts, limit = self.backing.returns, self.limit
        exceeding: list[int] = []
        for tag in tags:
            count = counts[tag] = counts.get(tag, 0) + 1
            if limit is not None and count > limit:
                exceeding.append(tag)
                del counts[tag]
        if len(counts) > self._pruned_after:
            self._prune()
        if exceeding:
            gone = set(exceeding)
            tags = [tag for tag in tags if tag not in gone]
        if tags:
            self.backing.record_returns(tags)
        return tags, exceeding

    def left(self, tags: Iterable[int]) -> None:
        """Forget messages that have left the queue."""
        counts = self.backing.returns
        if counts:
            for tag in tags:
                counts.pop(tag, None)

    def _prune(self) -> None:
        """Forget messages that have left from the head, because they expired or a limit or a purge dropped them."""
        counts, lowest = self.backing.returns, self.backing.numbers().start
        for tag in [tag for tag in counts if tag < lowest]:
            del counts[tag]
        self._pruned_after = max(PRUNED_AFTER, 2 * len(counts))

    def stamped(self, tags: Sequence[int], contents: Sequence[bytes]) -> list[bytes]:
        """The contents of redelivered messages with their counts in the header; those never returned stay as they are.

        A message is redelivered without a count if its channel was lost in a crash of the broker or of the queue.
        """
        counts, add = self.backing.returns, self._header.add
        return [add(content, counts[tag]) if tag in counts else content for tag, content in zip(tags, contents)]

    def with_count(self, tag: int, content: bytes) -> bytes:
        """The content as basic.get returns it, which in RabbitMQ has the header even if the count is 0."""
        return self._header.add(content, self.backing.returns.get(tag, 0))
