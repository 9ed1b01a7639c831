"""`Held`: which messages a replica has in a part of its numbers, so that two replicas can compare them (CL-86).

Numbers are never given twice, and contents never change. So replicas that have the same numbers have the same messages.
The digest of the body sizes is a cheap check of that: it differs if damage on a disk has changed the size of a body.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...seams import seam
from ...store.messages.spans import consecutive
from ...store.queue.range_read import RunBatch, SupportsRangeRead, window_from

if TYPE_CHECKING:
    from ...actors.queue.disk.disk_loader import DiskLoader
    from ...store.messages.run import Run

#: Bytes of a digest.
DIGEST_BYTES = 16


class Held:
    """Messages, in the order of their numbers: ranges of numbers, and the size of each body."""

    __slots__ = ("_sizes", "spans")

    def __init__(self) -> None:
        #: The numbers, as ascending ranges. Between two of them at least one number is missing.
        self.spans: list[range] = []
        self._sizes = array("Q")

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, runs: Iterable[Run], base: int) -> None:
        """Add runs without holes whose numbers are higher than all before. `base` is added to their numbers:
        it is the number of their level, shifted by `LEVEL_SHIFT`.
        """
        for run in runs:
            sizes, count, first = run.measured(), len(run.contents), base + run.first
            self._sizes.extend([sizes] * count if isinstance(sizes, int) else sizes)
            if self.spans and self.spans[-1].stop == first:
                self.spans[-1] = range(self.spans[-1].start, first + count)
            else:
                self.spans.append(range(first, first + count))

    def digest(self) -> bytes:
        """A digest of the body sizes."""
        sizes = self._sizes
        if sys.byteorder == "big":
            sizes = sizes[:]
            sizes.byteswap()
        return hashlib.blake2b(sizes.tobytes(), digest_size=DIGEST_BYTES).digest()

    @seam("replica: which of its own messages a learner keeps")
    def only(self, wanted: list[range]) -> tuple[Held, list[range], int]:
        """The messages here that are in `wanted`; the numbers of the others here; and how many messages of `wanted` are
        missing here.
        """
        if self.spans == wanted:
            return self, [], 0
        numbers = {number for span in wanted for number in span}
        kept, surplus = Held(), []
        for number, size in zip(self._numbers(), self._sizes):
            if number not in numbers:
                surplus.append(number)
                continue
            kept._sizes.append(size)
            if kept.spans and kept.spans[-1].stop == number:
                kept.spans[-1] = range(kept.spans[-1].start, number + 1)
            else:
                kept.spans.append(range(number, number + 1))
        return kept, consecutive(surplus), len(numbers) - len(kept)

    def _numbers(self) -> Iterator[int]:
        return (number for span in self.spans for number in span)


async def read_window(
    level: SupportsRangeRead, loader: DiskLoader | None, first: int, stop: int, most_bytes: int = sys.maxsize
) -> RunBatch:
    """The messages from the number `first` to before `stop`, or to the end of what one read of the index gets."""
    window, last = window_from(first), stop - 1
    job = level.prepare_range(first, last, window)
    while job is not None:
        assert loader is not None, "a queue in memory reads no segments"
        await loader.segments(job)
        job = level.range_prepared(job, first, last, window)
    return level.take_runs(first, last, window, most_bytes)
