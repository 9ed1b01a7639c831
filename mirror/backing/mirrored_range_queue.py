"""`MirroredRangeQueue`: a `MirroredQueue` around a queue that can be read by number.

The master sends the mirrors how often its messages were returned, so that the next master goes on counting, and which
numbers it and the masters before it have left out, so that readers by number do not take them for lost messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...store.index.segment_jobs import SegmentReadJob
from ...store.messages.lives import Lives
from ...store.messages.message import Origin
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.range_read import RANGE_BATCH_BYTES, RANGE_BATCH_MESSAGES, RangeBatch, RunBatch, SupportsRangeRead
from .. import instructions
from .mirrored_queue import MirroredQueue

#: How many messages one RETURNED instruction covers.
RETURNS_AT_ONCE = 4096


class MirroredRangeQueue(MirroredQueue, SupportsRangeRead):
    """See the module."""

    def __init__(self, inner: BackingQueue, is_durable: bool) -> None:
        super().__init__(inner, is_durable)
        assert isinstance(inner, SupportsRangeRead)
        self._by_number: SupportsRangeRead = inner
        self.returns = inner.returns

    @property
    def lives(self) -> Lives:  # type: ignore[override]  # the queue inside sets it
        return self._by_number.lives

    @property
    def arrived(self) -> int:  # type: ignore[override]  # as for `lives`
        return self._by_number.arrived

    def pass_over(self, count: int) -> range:
        return self._by_number.pass_over(count)

    def _pass_over(self, origin: Origin, count: int) -> range:
        return self._by_number.pass_over(count)

    def note_lives(self, lives: Lives) -> None:
        self._by_number.note_lives(lives)

    def tell_lives(self) -> None:
        if self.is_followed and self.lives.life:
            self.out.append(instructions.lives(self.lives))

    def stamp(self, now: int) -> None:
        self._by_number.stamp(now)

    def record_returns(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        self._by_number.record_returns(numbers)
        self._tell_returns({number: self.returns[number] for number in numbers})

    def tell_returns(self) -> None:
        numbers = list(self.returns)
        for start in range(0, len(numbers), RETURNS_AT_ONCE):
            self._tell_returns({number: self.returns[number] for number in numbers[start : start + RETURNS_AT_ONCE]})

    def _tell_returns(self, returns: dict[int, int]) -> None:
        if self.is_followed:
            self.out.append(instructions.returned(returns))

    def returned(self, returns: dict[int, int]) -> None:
        self.returns.update(returns)
        self._by_number.record_returns(returns)

    def keep_only(self, kept: Sequence[range]) -> None:
        super().keep_only(kept)
        stays = {number for span in kept for number in span}
        for number in [number for number in self.returns if number not in stays]:
            del self.returns[number]

    def _forget_returns(self, leaving: Iterable[range]) -> None:
        returns = self.returns
        for span in leaving if returns else ():
            for number in span if len(span) < len(returns) else [each for each in returns if each in span]:
                returns.pop(number, None)

    def numbers(self) -> range:
        return self._by_number.numbers()

    def kept_numbers(self) -> range:
        return self._by_number.kept_numbers()

    def prepare_range(self, first: int, last: int, window: int = RANGE_BATCH_MESSAGES) -> SegmentReadJob | None:
        return self._by_number.prepare_range(first, last, window)

    def range_prepared(
        self, job: SegmentReadJob, first: int, last: int, window: int = RANGE_BATCH_MESSAGES
    ) -> SegmentReadJob | None:
        return self._by_number.range_prepared(job, first, last, window)

    def take_range(
        self, first: int, last: int, most: int = RANGE_BATCH_MESSAGES, most_bytes: int = RANGE_BATCH_BYTES
    ) -> RangeBatch:
        return self._by_number.take_range(first, last, most, most_bytes)

    def take_runs(self, first: int, last: int, window: int, most_bytes: int) -> RunBatch:
        return self._by_number.take_runs(first, last, window, most_bytes)

    def drop_to(self, last: int, limit: int) -> int:
        dropped = 0
        while dropped < limit and (head := self.inner.head()) is not None and head.tag <= last:
            count = self._gone(self.inner.fetch(min(limit - dropped, last + 1 - head.tag), True))
            if not count:
                break
            dropped += count
        return dropped
