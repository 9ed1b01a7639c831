"""Runs in ascending order, in blocks, so that each is found, inserted and removed in O(log n) wherever it stands.

A consumer may requeue or acknowledge its messages in any order, and each of them may split a run or make one. A plain
list moves everything behind the place of a change, so a hundred thousand changes cost a hundred thousand such moves.
Here a change moves at most one **block**, a list of up to `2 * BLOCK_RUNS` runs; the block is found by bisection. In
the usual case, where runs come at the tail and go at the head, there is one short block, and `blocks[0]` and
`blocks[-1]` are used as a plain list would be.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

#: Runs in a block that was filled at the tail; insertions may make it twice as long.
BLOCK_RUNS = 256


class Numbered(Protocol):
    """Something with the numbers `first` to before `end`."""

    first: int

    @property
    def end(self) -> int: ...


R = TypeVar("R", bound=Numbered)

#: The key that runs are sorted by.
by_first = attrgetter("first")


#: The blocks of all instances that have had no run since they were made or cleared. A queue has nine instances, and two
#: empty lists each would cost an idle queue 1 KB. A tuple, so that nothing can be added to the block that they share.
_NO_BLOCKS: Any = ((),)


def _by_first_run(block: list[R]) -> int:
    """The key that blocks are sorted by."""
    return block[0].first


class AscendingRuns(Generic[R]):
    """Runs whose numbers ascend and do not overlap.

    `blocks` has at least one block, and no empty block beside others. Callers may take from the ends of `blocks[0]` and
    `blocks[-1]` themselves; the code that empties a block calls `drop_empty`. No other code adds to an empty block,
    because it may be shared (`_NO_BLOCKS`). A run may change its numbers as long as it stays between its neighbours.
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: list[list[R]] = _NO_BLOCKS

    def __bool__(self) -> bool:
        return bool(self.blocks[0])

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self.blocks)

    def __reversed__(self) -> Iterator[R]:
        return chain.from_iterable(map(reversed, reversed(self.blocks)))

    # -- the ends

    @property
    def head(self) -> R:
        return self.blocks[0][0]

    @property
    def tail(self) -> R:
        return self.blocks[-1][-1]

    def append(self, run: R) -> None:
        """Add a run above all others."""
        if self.blocks is _NO_BLOCKS:
            self.blocks = [[run]]
            return
        block = self.blocks[-1]
        if len(block) < BLOCK_RUNS:
            block.append(run)
        else:
            self.blocks.append([run])

    def extend_head(self, runs: Sequence[R]) -> None:
        """Add ascending runs below all others."""
        if self.blocks is _NO_BLOCKS:
            self.blocks = [[]]
        if len(runs) + len(self.blocks[0]) <= BLOCK_RUNS:
            self.blocks[0][:0] = runs
        else:
            self.blocks[:0] = [list(runs[at : at + BLOCK_RUNS]) for at in range(0, len(runs), BLOCK_RUNS)]
            self.drop_empty()

    def drop_empty(self) -> None:
        """Restore the blocks after a caller has emptied the first or the last one."""
        blocks = self.blocks
        if len(blocks) > 1:
            if not blocks[0]:
                del blocks[0]
            if not blocks[-1]:
                del blocks[-1]

    def clear(self) -> None:
        """Remove everything."""
        self.blocks = _NO_BLOCKS

    def detach(self) -> AscendingRuns[R]:
        """Remove everything, and return it."""
        detached: AscendingRuns[R] = AscendingRuns()
        detached.blocks, self.blocks = self.blocks, _NO_BLOCKS
        return detached

    # -- by number

    def _position(self, number: int) -> tuple[int, int]:
        """The block and the index in it of the first run that ends above `number`, or would stand there."""
        blocks = self.blocks
        at = 0 if len(blocks) == 1 else max(0, bisect_right(blocks, number, key=_by_first_run) - 1)
        block = blocks[at]
        index = bisect_right(block, number, key=by_first)
        if index and block[index - 1].end > number:
            index -= 1
        return at, index

    def overlapping(self, first: int, last: int) -> list[R]:
        """The runs that have numbers of `first` to `last`, ascending."""
        blocks = self.blocks
        block = blocks[0]
        if not block:
            return []
        run = block[0]
        end = run.end
        if first < end:
            # Acknowledgements mostly settle the oldest run.
            if last < end:
                return [run] if last >= run.first else []
            at = index = 0
        else:
            at, index = self._position(first)
        found: list[R] = []
        while at < len(blocks):
            block = blocks[at]
            stop = bisect_right(block, last, lo=index, key=by_first)
            found += block[index:stop]
            if stop < len(block):
                break
            at += 1
            index = 0
        return found

    def find(self, number: int) -> R | None:
        """The run that has `number`; None if there is none."""
        block = self.blocks[0]
        if block and block[0].first <= number < block[0].end:
            return block[0]
        found = self.overlapping(number, number)
        return found[0] if found else None

    def neighbours(self, number: int) -> tuple[R | None, R | None]:
        """The last run that begins at or below `number`, and the first one that begins above it."""
        blocks = self.blocks
        at = 0 if len(blocks) == 1 else max(0, bisect_right(blocks, number, key=_by_first_run) - 1)
        block = blocks[at]
        index = bisect_right(block, number, key=by_first)
        below = block[index - 1] if index else None
        if index < len(block):
            return below, block[index]
        return below, blocks[at + 1][0] if at + 1 < len(blocks) else None

    def from_number(self, number: int) -> Iterator[R]:
        """The runs that end above `number`. No run may be added or removed while the iteration goes on."""
        at, index = self._position(number)
        blocks = self.blocks
        yield from blocks[at][index:]
        for position in range(at + 1, len(blocks)):
            yield from blocks[position]

    def insert(self, run: R) -> None:
        """Add a run where its numbers belong; no other run has any of them."""
        if self.blocks is _NO_BLOCKS:
            self.blocks = [[run]]
            return
        at, index = self._position(run.first)
        self._splice(at, index, index, [run])

    def replace(self, run: R, parts: Sequence[R]) -> None:
        """Put `parts`, which lie within the numbers of `run`, in its place."""
        blocks = self.blocks
        first = run.first
        at = 0 if len(blocks) == 1 else max(0, bisect_right(blocks, first, key=_by_first_run) - 1)
        block = blocks[at]
        index = bisect_left(block, first, key=by_first)
        assert block[index] is run, "a run is replaced that is not here"
        self._splice(at, index, index + 1, parts)

    def remove(self, run: R) -> None:
        """Remove a run."""
        block = self.blocks[0]
        if block[0] is run:
            del block[0]
            if not block and len(self.blocks) > 1:
                self.drop_empty()
        else:
            self.replace(run, ())

    def _splice(self, at: int, start: int, stop: int, runs: Sequence[R]) -> None:
        blocks = self.blocks
        block = blocks[at]
        block[start:stop] = runs
        if len(block) > 2 * BLOCK_RUNS:
            blocks[at : at + 1] = [block[low : low + BLOCK_RUNS] for low in range(0, len(block), BLOCK_RUNS)]
        elif not block and len(blocks) > 1:
            del blocks[at]
