"""Runs that were delivered and are not yet acknowledged.

A message costs a list slice (5 to 20 ns) as long as pieces are acknowledged, and more when single messages are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ...seams import seam
from .message import have_same_fate
from .run import Run
from .spans import consecutive, spans


def by_first(run: Run) -> int:
    """The key that runs are sorted by."""
    return run.first


class PendingRuns:
    """Runs waiting for acknowledgement, ascending. `count` messages with `body_bytes` are in them.

    A settled message inside a run leaves a hole: its slot becomes None. Acknowledging a span of any step is two slice
    operations; round robin over k consumers makes step k.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.count = 0
        self.body_bytes = 0

    @property
    def lowest(self) -> int | None:
        """The lowest pending number; None if nothing is pending."""
        if not self.runs:
            return None
        run = self.runs[0]
        return (
            run.first
            if run.live == len(run.contents)
            else next(run.first + index for index, content in enumerate(run.contents) if content is not None)
        )

    def add(self, run: Run) -> None:
        """Add a run whose numbers are not pending, and take over its list."""
        runs = self.runs
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if not runs or runs[-1].first < run.first:
            last = runs[-1] if runs else None
            if (
                last is not None
                and last.live == len(last.contents)
                and last.accepts(run.first, run.origin, run.expiry, run.redelivered, run.kind, run.id_base)
            ):
                last.extend(run.contents, run.origins, run.body_bytes)
            else:
                runs.append(run)
        else:
            runs.insert(bisect_right(runs, run.first, key=by_first), run)

    def discard(self, tags: Sequence[int]) -> int:
        """Settle `tags`; returns how many of them were pending."""
        known = 0
        for span in spans(tags):
            known += self._discard_span(span)
        self.count -= known
        return known

    def _discard_span(self, span: range) -> int:
        runs = self.runs
        index = self._index(span[0])
        known = 0
        while index < len(runs) and runs[index].first <= span[-1]:
            run = runs[index]
            piece, count = _piece(span, run)
            if count == run.live == len(run.contents):
                known += count
                self.body_bytes -= run.body_bytes
                del runs[index]
                continue
            if count:
                known += self._settle(run, piece, count)
                if not run.live:
                    del runs[index]
                    continue
            index += 1
        return known

    @seam("how many bytes an acknowledgement frees")
    def _settle(self, run: Run, piece: slice, count: int) -> int:
        contents = run.contents
        sizes = run.measured() if run.live == len(contents) else run.sizes
        assert sizes is not None
        gone = contents[piece].count(None) if run.live < len(contents) else 0
        if not gone:
            settled_bytes = run.size_of(piece, count)
        else:
            indices = range(*piece.indices(len(contents)))
            settled_bytes = sum(run.size_at(i) for i in indices if contents[i] is not None)
        if piece.start == 0 and piece.step == 1:
            # Acks mostly come in order. Cutting keeps the run free of holes.
            del contents[piece]
            if isinstance(run.origins, list):
                del run.origins[piece]
            run.first += count
            if not isinstance(sizes, int):
                run.sizes = sizes[count:]
        else:
            contents[piece] = [None] * count
        run.live -= count - gone
        run.body_bytes -= settled_bytes
        self.body_bytes -= settled_bytes
        return count - gone

    def take(self, tags: Sequence[int]) -> list[Run]:
        """Settle `tags`; returns their messages as ascending runs, flagged redelivered."""
        taken: list[Run] = []
        known = 0
        for span in spans(tags):
            touched = []
            for run, piece in self._pieces(span):
                touched.append(run.first)
                part = run.part(piece.start, piece.stop)
                part.redelivered = True
                last = taken[-1] if taken else None
                if (
                    last is not None
                    and last.end == part.first
                    and have_same_fate(last.origin, part.origin)
                    and last.expiry == part.expiry
                    and last.kind == part.kind
                    and last.id_base == part.id_base
                ):
                    last.extend(part.contents, part.origins, part.body_bytes)
                else:
                    taken.append(part)
            known += self._discard_span(span)
            if touched:
                self._split(min(touched), span[-1])
        self.count -= known
        taken.sort(key=by_first)
        return taken

    def _split(self, first: int, last: int) -> None:
        """Cut runs at their holes, because the numbers there may become pending again, in other runs."""
        start = self._index(first)
        stop = bisect_right(self.runs, last, key=by_first)
        self.runs[start:stop] = [part for run in self.runs[start:stop] for part in run.without_holes()]

    def find(self, tags: Sequence[int]) -> Iterator[tuple[Run, int]]:
        """The pending messages of `tags`, as (run, index of its slot)."""
        return (found for span in spans(tags) for found in self._slots(span))

    def survey(self, span: range) -> tuple[int, set[tuple[bool, int]]]:
        """How many numbers of `span` are pending, and the (persistent, kind) of the runs that they are in."""
        count = 0
        kinds = set()
        for position in range(self._index(span[0]), len(self.runs)):
            run = self.runs[position]
            if run.first > span[-1]:
                break
            piece, size = _piece(span, run)
            if size:
                count += size if run.live == len(run.contents) else size - run.contents[piece].count(None)
                kinds.add((run.origin.persistent, run.kind))
        return count, kinds

    def missing(self, span: range) -> list[range]:
        """The parts of `span` that are not pending."""
        known = [run.first + index for run, index in self._slots(span)]
        if not known:
            return [span]
        if len(known) == len(span):
            return []
        here = set(known)
        return consecutive([number for number in span if number not in here])

    def _slots(self, span: range) -> Iterator[tuple[Run, int]]:
        return ((run, index) for run, piece in self._pieces(span) for index in piece)

    def _pieces(self, span: range) -> Iterator[tuple[Run, range]]:
        """The pending messages of `span`, as (run, consecutive slots of it)."""
        for position in range(self._index(span[0]), len(self.runs)):
            run = self.runs[position]
            if run.first > span[-1]:
                return
            piece, count = _piece(span, run)
            indices = range(piece.start, piece.stop, piece.step)
            if count and span.step == 1 and run.live == len(run.contents):
                yield run, indices
            elif count and (pending := [index for index in indices if run.contents[index] is not None]):
                for slots in consecutive(pending):
                    yield run, slots

    def slots(self) -> Iterator[tuple[Run, int]]:
        """Every pending message, as (run, index of its slot)."""
        return (found for run in self.runs for found in self._slots(range(run.first, run.end)))

    def count_in(self, span: range) -> int:
        """How many numbers of `span` are pending."""
        return self.survey(span)[0]

    def between(self, start: int, stop: int) -> list[Run]:
        """Copies of the pending messages in `[start, stop)`, as ascending runs without holes."""
        found = []
        for position in range(self._index(start), len(self.runs)):
            run = self.runs[position]
            if run.first >= stop:
                break
            for piece in run.without_holes():
                low, high = max(start, piece.first), min(stop, piece.end)
                if low < high:
                    found.append(piece.part(low - piece.first, high - piece.first))
        return found

    def _index(self, number: int) -> int:
        """Index of the run with `number`, or of the first run above it."""
        runs = self.runs
        if runs and number < runs[0].end:
            return 0  # acks mostly settle the oldest run
        index = bisect_right(runs, number, key=by_first)
        return index - 1 if index and runs[index - 1].end > number else index

    def clear(self) -> None:
        """Remove everything."""
        self.runs.clear()
        self.count = self.body_bytes = 0


def _piece(span: range, run: Run) -> tuple[slice, int]:
    """The slots of `run` whose numbers are in `span`, and how many."""
    step = span.step
    start = span.start - run.first
    if start < 0:
        start %= step
    stop = min(span[-1] + 1 - run.first, len(run.contents))
    return slice(start, stop, step), len(range(start, stop, step))
