"""A run of messages inside a queue: consecutive numbers, one origin, one expiry.

`RunQueue` holds ready runs, `PendingRuns` those handed out and not yet acknowledged. Both cost a list slice per message
(5 to 20 ns) as long as runs are taken and acknowledged in pieces; they work message by message otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .message import Delivery, Origin, QueuedMessage, Sizes, body_sizes

COALESCE_BELOW = 256
"""A run shorter than this takes in its successor, so that single publishes do not cost a run each."""


class Run:
    """Messages `first .. first + len - 1`. A slot of `contents` may be None in `PendingRuns` only: settled there.

    Invariant: `body_bytes` is the sum of the sizes of the slots that are not None. `kind` and `id_base` belong to the
    owner (see `placement`); runs in which they differ are never joined.
    """

    __slots__ = (
        "first",
        "contents",
        "origin",
        "expiry",
        "redelivered",
        "body_bytes",
        "sizes",
        "live",
        "kind",
        "id_base",
    )

    def __init__(
        self,
        first: int,
        contents: list[Any],
        origin: Origin,
        expiry: int | None,
        redelivered: bool,
        body_bytes: int,
        sizes: Sizes | None = None,
        kind: int = 0,
        id_base: int = 0,
    ) -> None:
        self.first = first
        self.contents = contents
        self.origin = origin
        self.expiry = expiry
        self.redelivered = redelivered
        self.body_bytes = body_bytes
        self.sizes = sizes
        self.live = len(contents)
        self.kind = kind
        self.id_base = id_base

    @property
    def end(self) -> int:
        return self.first + len(self.contents)

    def measured(self) -> Sizes:
        """The sizes, computed when first wanted: a run that is taken whole never needs them."""
        if self.sizes is None:
            self.sizes = body_sizes(self.contents)
        return self.sizes

    def size_of(self, piece: slice, count: int) -> int:
        sizes = self.measured()
        return sizes * count if isinstance(sizes, int) else sum(sizes[piece])

    def size_at(self, index: int) -> int:
        sizes = self.measured()
        return sizes if isinstance(sizes, int) else sizes[index]

    def accepts(
        self, first: int, origin: Origin, expiry: int | None, redelivered: bool, kind: int = 0, id_base: int = 0
    ) -> bool:
        contents = self.contents
        return (
            len(contents) < COALESCE_BELOW
            and self.first + len(contents) == first
            and self.expiry == expiry
            and self.redelivered == redelivered
            and self.kind == kind
            and self.id_base == id_base
            and (self.origin is origin or self.origin == origin)
        )

    def extend(self, contents: Sequence[bytes], body_bytes: int) -> None:
        if self.sizes is not None:
            # Measured before: measure the new part only, or a fetch after each publish would measure everything again.
            added = body_sizes(contents)
            if added != self.sizes or not isinstance(added, int):
                self.sizes = _spread(self.sizes, len(self.contents)) + _spread(added, len(contents))
        self.contents += contents
        self.live += len(contents)
        self.body_bytes += body_bytes

    def take(self, count: int) -> Run:
        """Cut off the first `count` messages, fewer than there are, as a run of their own."""
        taken = self.contents[:count]
        taken_bytes = self.size_of(slice(0, count), count)
        sizes = self.measured()
        if isinstance(sizes, int):
            head = Run(
                self.first,
                taken,
                self.origin,
                self.expiry,
                self.redelivered,
                taken_bytes,
                sizes,
                self.kind,
                self.id_base,
            )
        else:
            head = Run(
                self.first,
                taken,
                self.origin,
                self.expiry,
                self.redelivered,
                taken_bytes,
                sizes[:count],
                self.kind,
                self.id_base,
            )
            self.sizes = sizes[count:]
        # Deleting, rather than keeping an offset, lets go of bodies that may be large.
        del self.contents[:count]
        self.first += count
        self.live -= count
        self.body_bytes -= taken_bytes
        return head

    def part(self, start: int, stop: int) -> Run:
        """A copy of the slots `start` to `stop`, which have no holes."""
        if start == 0 and stop == len(self.contents):
            return Run(
                self.first,
                self.contents[:],
                self.origin,
                self.expiry,
                self.redelivered,
                self.body_bytes,
                self.sizes,
                self.kind,
                self.id_base,
            )
        sizes = self.measured()
        return Run(
            self.first + start,
            self.contents[start:stop],
            self.origin,
            self.expiry,
            self.redelivered,
            self.size_of(slice(start, stop), stop - start),
            sizes if isinstance(sizes, int) else sizes[start:stop],
            self.kind,
            self.id_base,
        )

    def without_holes(self) -> list[Run]:
        """This run, or copies of the pieces between its settled slots."""
        if self.live == len(self.contents):
            return [self]
        return [
            self.part(piece.start, piece.stop)
            for piece in _consecutive([index for index, content in enumerate(self.contents) if content is not None])
        ]

    def delivery(self) -> Delivery:
        return Delivery(
            self.origin, self.redelivered, range(self.first, self.first + len(self.contents)), self.contents[:]
        )

    def slot(self, index: int) -> Run:
        """One slot by itself; its size is not told."""
        return Run(
            self.first + index, [self.contents[index]], self.origin, self.expiry, self.redelivered, 0, 0, self.kind
        )

    def message(self, index: int) -> QueuedMessage:
        return QueuedMessage(self.first + index, self.contents[index], self.origin, self.expiry, self.redelivered)

    def messages(self, first: int = 0, last: int | None = None) -> Iterator[QueuedMessage]:
        """Those numbered `first` to `last` that are not settled."""
        start = max(0, first - self.first)
        stop = len(self.contents) if last is None else min(len(self.contents), last + 1 - self.first)
        for index in range(start, stop):
            if self.contents[index] is not None:
                yield self.message(index)


def _spread(sizes: Sizes, count: int) -> tuple[int, ...]:
    return (sizes,) * count if isinstance(sizes, int) else sizes


class RunQueue:
    """Ready runs in the order of their numbers. Runs never overlap."""

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self.count = 0
        self.body_bytes = 0

    def append(
        self,
        first: int,
        contents: Sequence[bytes],
        origin: Origin,
        expiry: int | None,
        redelivered: bool,
        body_bytes: int,
    ) -> None:
        """Messages above all that are here. The list is copied: several queues may have been given the same one."""
        runs = self.runs
        self.count += len(contents)
        self.body_bytes += body_bytes
        if runs and runs[-1].accepts(first, origin, expiry, redelivered):
            runs[-1].extend(contents, body_bytes)
        else:
            runs.append(Run(first, list(contents), origin, expiry, redelivered, body_bytes))

    def push(self, run: Run) -> None:
        """A run above all that are here; its list belongs to this object from now on."""
        runs = self.runs
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if runs and runs[-1].accepts(run.first, run.origin, run.expiry, run.redelivered, run.kind, run.id_base):
            runs[-1].extend(run.contents, run.body_bytes)
        else:
            runs.append(run)

    def take_last(self, count: int) -> list[Run]:
        """Up to `count` messages from the tail, in order."""
        taken = []
        runs = self.runs
        while count > 0 and runs:
            run = runs.pop()
            size = len(run.contents)
            if size > count:
                runs.append(run.take(size - count))
                size = count
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            count -= size
        taken.reverse()
        return taken

    def take(self, count: int) -> list[Run]:
        """Up to `count` messages from the head."""
        taken = []
        runs = self.runs
        while count > 0 and runs:
            run = runs[0]
            size = len(run.contents)
            if size > count:
                run = run.take(count)
                size = count
            else:
                runs.popleft()
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            count -= size
        return taken

    def insert(self, returned: list[Run]) -> None:
        """Put runs, in order, where their numbers belong. Mostly that is before everything else."""
        runs = self.runs
        for run in returned:
            self.count += len(run.contents)
            self.body_bytes += run.body_bytes
        passed = []
        while runs and runs[0].first < returned[-1].first:
            passed.append(runs.popleft())
        if passed:
            returned = sorted(passed + returned, key=_by_first)
        runs.extendleft(reversed(returned))

    def clear(self) -> None:
        self.runs.clear()
        self.count = self.body_bytes = 0


def _by_first(run: Run) -> int:
    return run.first


class PendingRuns:
    """Runs waiting for acknowledgement, in the order of their numbers. Settled slots inside a run become None.

    Acknowledging a piece of any stride is two slice operations: round robin over k consumers makes stride k.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.count = 0
        self.body_bytes = 0

    @property
    def lowest(self) -> int | None:
        """The lowest number here."""
        if not self.runs:
            return None
        run = self.runs[0]
        return (
            run.first
            if run.live == len(run.contents)
            else next(run.first + index for index, content in enumerate(run.contents) if content is not None)
        )

    def add(self, run: Run) -> None:
        """Take over a run whose numbers are not pending. Its list belongs to this object from now on."""
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
                last.extend(run.contents, run.body_bytes)
            else:
                runs.append(run)
        else:
            runs.insert(bisect_right(runs, run.first, key=_by_first), run)

    def discard(self, tags: Sequence[int]) -> int:
        """Settle `tags`; returns how many were known."""
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
            # Acks mostly come in order: cutting keeps the run free of holes.
            del contents[piece]
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
        """Settle `tags` and return their messages, redelivered, as runs in the order of their numbers."""
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
                    and last.origin is part.origin
                    and last.expiry == part.expiry
                    and last.kind == part.kind
                    and last.id_base == part.id_base
                ):
                    last.extend(part.contents, part.body_bytes)
                else:
                    taken.append(part)
            known += self._discard_span(span)
            if touched:
                self._split(min(touched), span[-1])
        self.count -= known
        taken.sort(key=_by_first)
        return taken

    def _split(self, first: int, last: int) -> None:
        """Cut runs at their holes: the numbers in them will be pending again, and then in runs of their own."""
        start = self._index(first)
        stop = bisect_right(self.runs, last, key=_by_first)
        self.runs[start:stop] = [part for run in self.runs[start:stop] for part in run.without_holes()]

    def find(self, tags: Sequence[int]) -> Iterator[tuple[Run, int]]:
        """The messages of those `tags` that are known, as (run, index in it)."""
        return (found for span in spans(tags) for found in self._slots(span))

    def survey(self, span: range) -> tuple[int, set[tuple[bool, int]]]:
        """How many of `span` are pending here, and the (persistent, kind) of the runs they are in."""
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
        """The parts of `span` that are not pending here."""
        known = [run.first + index for run, index in self._slots(span)]
        if not known:
            return [span]
        if len(known) == len(span):
            return []
        here = set(known)
        return _consecutive([number for number in span if number not in here])

    def _slots(self, span: range) -> Iterator[tuple[Run, int]]:
        return ((run, index) for run, piece in self._pieces(span) for index in piece)

    def _pieces(self, span: range) -> Iterator[tuple[Run, range]]:
        """The pending messages of `span` as (run, consecutive slots of it)."""
        for position in range(self._index(span[0]), len(self.runs)):
            run = self.runs[position]
            if run.first > span[-1]:
                return
            piece, count = _piece(span, run)
            indices = range(piece.start, piece.stop, piece.step)
            if count and span.step == 1 and run.live == len(run.contents):
                yield run, indices
            elif count and (pending := [index for index in indices if run.contents[index] is not None]):
                for slots in _consecutive(pending):
                    yield run, slots

    def slots(self) -> Iterator[tuple[Run, int]]:
        """Every pending message as (run, index in it)."""
        return (found for run in self.runs for found in self._slots(range(run.first, run.end)))

    def count_in(self, span: range) -> int:
        """How many of `span` are pending here."""
        return self.survey(span)[0]

    def between(self, start: int, stop: int) -> list[Run]:
        """Copies of what is pending in `[start, stop)`, as runs without holes."""
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
        """Index of the run that holds `number`, or of the first above it."""
        runs = self.runs
        if runs and number < runs[0].end:
            return 0  # acks mostly concern the oldest
        index = bisect_right(runs, number, key=_by_first)
        return index - 1 if index and runs[index - 1].end > number else index

    def clear(self) -> None:
        self.runs.clear()
        self.count = self.body_bytes = 0


def _piece(span: range, run: Run) -> tuple[slice, int]:
    """The slots of `run` that `span` names, and how many."""
    step = span.step
    start = span.start - run.first
    if start < 0:
        start %= step
    stop = min(span[-1] + 1 - run.first, len(run.contents))
    return slice(start, stop, step), len(range(start, stop, step))


def spans(tags: Sequence[int]) -> list[range]:
    """Tags as ascending ranges of positive step, without empty ones; duplicates in a list collapse."""
    if not tags:
        return []
    if isinstance(tags, range):
        return [tags if tags.step > 0 else tags[::-1]]
    if len(tags) == 1:
        return [range(tags[0], tags[0] + 1)]
    step = tags[1] - tags[0]
    if step > 0:
        guess = range(tags[0], tags[-1] + 1, step)
        if len(guess) == len(tags) and list(guess) == tags:
            return [guess]
    return _consecutive(sorted(set(tags)))


def _consecutive(ordered: Sequence[int]) -> list[range]:
    found = []
    first = previous = ordered[0]
    for tag in ordered[1:]:
        if tag != previous + 1:
            found.append(range(first, previous + 1))
            first = tag
        previous = tag
    found.append(range(first, previous + 1))
    return found
