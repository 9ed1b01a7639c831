"""`Confirms`: which publishes of a channel wait for which queues, and what to send the client (AB-110 to AB-113).

Publish numbers are kept in closed ranges `(first, last)`, because queues confirm long prefixes: a run of 400 publishes
to one queue costs one entry here, not 400. `FanOutCounts` counts the queues of a run that went to several.

A number leaves `Confirms` once: as an ack when every queue it went to has confirmed, or as a nack as soon as one of
them refuses.

Every publish of a channel has a number, also before the channel awaits confirms: with the channel's id it is the
identity of the publish. The client's delivery tags count from confirm.select on.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....seams import seam
from .fan_out_counts import FanOutCounts
from .range_set import Range, RangeSet


class Confirms:
    """The unconfirmed publishes of one channel. It sends nothing itself: `flush` returns what to send."""

    __slots__ = (
        "_acked",
        "_by_queue",
        "_fan_out",
        "_nacked",
        "_uncounted",
        "_waiting",
        "confirmed",
        "has_settled",
        "next_number",
    )

    def __init__(self) -> None:
        #: The publish number of the next message. The publisher itself advances it for messages that await no confirm.
        self.next_number = 1
        #: Publishes before confirm.select, which delivery tags do not count.
        self._uncounted = 0
        #: Numbers without an outcome.
        self._waiting = RangeSet()
        #: The numbers that each queue has not confirmed or refused yet, by queue id.
        self._by_queue: dict[str, RangeSet] = {}
        #: How many queues have not confirmed a number yet; only numbers that went to several queues.
        self._fan_out = FanOutCounts()
        #: Numbers with an outcome that `flush` has not returned yet.
        self._acked = RangeSet()
        self._nacked = RangeSet()
        #: Whether a flush would return anything.
        self.has_settled = False
        #: How many publishes the last flush confirmed.
        self.confirmed = 0

    def __len__(self) -> int:
        """How many publishes have no outcome yet."""
        return len(self._waiting)

    def begin(self) -> None:
        """Begin to count delivery tags, because the client has selected confirms and counts its publishes from now."""
        self._uncounted = self.next_number - 1

    def publish(self, count: int, queue_ids: Iterable[str], more: int = 0) -> int:
        """Number `count` publishes that went to `queue_ids`, and return the first number.

        `more` is how many further queues will get them, which later calls of `owe` name. Publishes without any queue
        are acked at once.
        """
        first = self.next_number
        last = first + count - 1
        self.next_number = last + 1
        queues = more + self.owe(queue_ids, first, last)
        if not queues:
            self._acked.add(first, last)
            self.has_settled = True
            return first
        self._waiting.add(first, last)
        if queues > 1:
            self._fan_out.add(first, last, queues)
        return first

    def publish_to_one(self, count: int, queue_id: str) -> int:
        """`publish` for a run that went to one queue: the usual case, at half the cost."""
        first = self.next_number
        self.next_number = first + count
        last = first + count - 1
        ranges = self._by_queue.get(queue_id)
        if ranges is None:
            self._by_queue[queue_id] = RangeSet((first, last))
        else:
            ranges.add(first, last)
        self._waiting.add(first, last)
        return first

    def owe(self, queue_ids: Iterable[str], first: int, last: int) -> int:
        """Wait for these queues to confirm the publishes from `first` to `last`. Return how many queues they are."""
        queues = 0
        for queue_id in queue_ids:
            queues += 1
            ranges = self._by_queue.get(queue_id)
            if ranges is None:
                self._by_queue[queue_id] = RangeSet((first, last))
            else:
                ranges.add(first, last)
        return queues

    def confirm(self, queue_id: str, ranges: Iterable[Range]) -> None:
        """Note that the queue has confirmed these numbers. Those that it does not owe, or nacked ones, are ignored."""
        owed = self._by_queue.get(queue_id)
        if owed is None:
            return
        if ranges == owed._ranges == self._waiting._ranges and not self._fan_out.stretches:
            # A fast path: the queue confirms all that the channel waits for, as a queue that gets all publishes does.
            del self._by_queue[queue_id]
            self._waiting.clear()
            for first, last in ranges:
                self._acked.add(first, last)
            self.has_settled = True
            return
        for first, last in ranges:
            for piece in owed.discard(first, last):
                self._confirmed(*piece)
        if not owed:
            del self._by_queue[queue_id]

    def _confirmed(self, first: int, last: int) -> None:
        confirmed = self._fan_out.count_down(first, last) if self._fan_out else ((first, last),)
        for low, high in confirmed:
            for piece in self._waiting.discard(low, high):
                self._acked.add(*piece)
                self.has_settled = True

    def refuse(self, queue_id: str, ranges: Iterable[Range]) -> None:
        """Nack these numbers, which the queue has refused, whether other queues confirm them or not (AB-111)."""
        owed = self._by_queue.get(queue_id)
        if owed is None:
            return
        for first, last in ranges:
            for low, high in owed.discard(first, last):
                for piece in self._waiting.discard(low, high):
                    self._nacked.add(*piece)
                    self.has_settled = True
                if self._fan_out:
                    # The numbers have left `_waiting`, so confirms of their other queues only reduce this count.
                    self._fan_out.count_down(low, high)
        if not owed:
            del self._by_queue[queue_id]

    def owed_by(self, queue_id: str) -> list[Range]:
        """The numbers that a queue has not confirmed or refused yet."""
        return list(self._by_queue.get(queue_id, ()))

    def floor_of(self, queue_id: str) -> int:
        """The smallest number that a queue has not confirmed or refused yet; the next number if there is none."""
        owed = self._by_queue.get(queue_id)
        smallest = None if owed is None else owed.smallest
        return self.next_number if smallest is None else smallest

    @seam("cluster: what becomes of publishes to a queue that has gone")
    def queue_gone(self, queue_id: str, is_crashed: bool) -> None:
        """Settle what a queue that has ended still owed: nack it if the queue crashed, else confirm it (AB-111)."""
        owed = self._by_queue.get(queue_id)
        if owed is not None:
            (self.refuse if is_crashed else self.confirm)(queue_id, list(owed))

    @seam("which confirms are sent")
    def flush(self) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        """Return the acks and the nacks to send now, each `(delivery_tag, multiple)`, and forget them (AB-113)."""
        acked, nacked, uncounted = self._acked, self._nacked, self._uncounted
        self.has_settled = False
        settled, waiting = acked._ranges, self._waiting._ranges
        floor = waiting[0][0] if waiting else self.next_number
        if len(settled) == 1 and settled[0][1] < floor and not nacked._ranges:
            first, last = settled.pop()
            self.confirmed = last + 1 - first
            return [(last - uncounted, last > first)], []
        self.confirmed = len(acked)
        first_ack, first_nack = acked.smallest, nacked.smallest
        acks = _grouped(acked, floor if first_nack is None else min(floor, first_nack))
        nacks = _grouped(nacked, floor if first_ack is None else min(floor, first_ack))
        acked.clear()
        nacked.clear()
        if uncounted:
            acks = [(number - uncounted, is_multiple) for number, is_multiple in acks]
            nacks = [(number - uncounted, is_multiple) for number, is_multiple in nacks]
        return acks, nacks


def _grouped(numbers: RangeSet, cut: int) -> list[tuple[int, bool]]:
    """Numbers below `cut` as one multiple, the others one by one; a number alone is never a multiple."""
    below, count = 0, 0
    singles: list[int] = []
    for first, last in numbers:
        if first < cut:
            high = min(last, cut - 1)
            below = high
            count += high - first + 1
            first = high + 1
        singles.extend(range(first, last + 1))
    if not below:
        return [(number, False) for number in singles]
    return [(below, count > 1 or bool(singles))] + [(number, False) for number in singles]
