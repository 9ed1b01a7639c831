"""Runs that were delivered and are not yet acknowledged.

Settling costs 5 to 20 ns a message as long as consumers acknowledge many at once, which takes list slices only. Single
acknowledgements cost more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...seams import seam
from .arrivals import part_of
from .ascending_runs import AscendingRuns, by_first
from .run import ABSENT, TO_STORE, Run, insert_joined
from .spans import consecutive, spans

#: Slots of a run, and how many they are.
Piece = tuple[Run, slice, int]
#: A run with more slots than this for each pending message is cut into the messages that it has, so that the memory of
#: pending messages does not depend on how many others they were delivered with.
SLOTS_A_MESSAGE = 32


class PendingRuns:
    """Runs waiting for acknowledgement, ascending. They have `count` messages with `body_bytes` bytes of bodies.

    `absent` of these messages have their bodies, `absent_bytes` in all, in a message store only. `movable` others have
    bodies in memory that may be moved to a message store. `persistent` of the messages are persistent ones, with
    `persistent_bytes` bytes of bodies.

    A settled message inside a run leaves a hole: its slot becomes None. Acknowledging a span of any step is two slice
    operations; round robin over k consumers makes step k. A run is cut at a hole when a requeued message that was there
    becomes pending again.
    """

    __slots__ = (
        "absent",
        "absent_bytes",
        "body_bytes",
        "count",
        "movable",
        "persistent",
        "persistent_bytes",
        "runs",
    )

    def __init__(self) -> None:
        self.runs: AscendingRuns[Run] = AscendingRuns()
        self._nothing()

    def _nothing(self) -> None:
        self.count = self.body_bytes = self.movable = 0
        self.absent = self.absent_bytes = 0
        self.persistent = self.persistent_bytes = 0

    @property
    def lowest(self) -> int | None:
        """The lowest pending number; None if nothing is pending."""
        if not self.runs:
            return None
        run = self.runs.head
        return (
            run.first
            if run.live == len(run.contents)
            else next(run.first + index for index, content in enumerate(run.contents) if content is not None)
        )

    def add(self, run: Run) -> None:
        """Add a run whose numbers are not pending, and take over its list."""
        block = self.runs.blocks[-1]
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if run.origin.persistent:
            self.persistent += len(run.contents)
            self.persistent_bytes += run.body_bytes
        if run.kind & TO_STORE:
            self._count_large(run, len(run.contents), run.body_bytes)
        if not block:
            self.runs.blocks = [[run]]
            return
        last = block[-1]
        end = last.first + len(last.contents)
        if (
            run.first > end
            or run.first == end
            and not (
                last.live == len(last.contents)
                and last.accepts(run.first, run.origin, run.expiries, run.redelivered, run.kind, run.id_base)
            )
        ):
            last.complete()
            self.runs.append(run)
        elif run.first == end:
            last.extend(run.contents, run.origins, run.expiries, run.body_bytes, run.arrived)
        else:
            for other in self.runs.overlapping(run.first, run.end - 1):
                self.runs.replace(other, other.around(run.first, run.end))
            insert_joined(self.runs, run)

    def _count(self, run: Run, count: int, body_bytes: int) -> None:
        """Count `count` messages of this run as pending; a negative count takes them away."""
        self.count += count
        self.body_bytes += body_bytes
        if run.origin.persistent:
            self.persistent += count
            self.persistent_bytes += body_bytes
        if run.kind & TO_STORE:
            self._count_large(run, count, body_bytes)

    def _count_large(self, run: Run, count: int, body_bytes: int) -> None:
        """`_count` for a run whose bodies belong in a message store."""
        if run.kind & ABSENT:
            self.absent += count
            self.absent_bytes += body_bytes
        else:
            self.movable += count

    def trimmed(self, run: Run) -> None:
        """Note that the bodies of a pending run have left memory: it was `movable`, and is `ABSENT` now."""
        self.movable -= run.live
        self.absent += run.live
        self.absent_bytes += run.body_bytes

    def discard(self, tags: Sequence[int]) -> int:
        """Settle `tags`; returns how many of them were pending."""
        oldest = self.oldest(tags)
        if oldest is not None:
            return self.discard_oldest(oldest, len(tags))
        known = 0
        for span in spans(tags):
            known += self.discard_pieces(self.pieces(span))
        return known

    def oldest(self, tags: Sequence[int]) -> Run | None:
        """The oldest run if `tags` are its first messages in order, which is how consumers mostly settle."""
        block = self.runs.blocks[0]
        if block and type(tags) is range and tags and tags.step == 1:
            run = block[0]
            if run.first == tags.start and len(tags) <= run.live == len(run.contents):
                return run
        return None

    def discard_oldest(self, run: Run, count: int) -> int:
        """Settle the first `count` messages of the oldest run, which has no holes; returns `count`."""
        if count < run.live:
            self._settle(run, slice(0, count, 1), count)
        else:
            # As `_count`, without the call; likewise in `discard_pieces` and `_settle`.
            self.count -= count
            self.body_bytes -= run.body_bytes
            if run.origin.persistent:
                self.persistent -= count
                self.persistent_bytes -= run.body_bytes
            if run.kind & TO_STORE:
                self._count_large(run, -count, -run.body_bytes)
            self.runs.remove(run)
        return count

    def pieces(self, span: range) -> list[Piece]:
        """The slots of runs whose numbers are in `span`, ascending. Some of them may be holes."""
        first, step = span.start, span.step
        stop = span[-1] + 1
        found = []
        for run in self.runs.overlapping(first, stop - 1):
            start = first - run.first
            if start < 0:
                start %= step
            end = len(run.contents)
            if stop - run.first < end:
                end = stop - run.first
            if start < end:
                found.append((run, slice(start, end, step), (end - start - 1) // step + 1))
        return found

    def discard_pieces(self, pieces: Sequence[Piece]) -> int:
        """Settle these slots; returns how many of them were pending."""
        runs = self.runs
        known = 0
        for run, piece, count in pieces:
            if count == run.live == len(run.contents):
                known += count
                self.count -= count
                self.body_bytes -= run.body_bytes
                if run.origin.persistent:
                    self.persistent -= count
                    self.persistent_bytes -= run.body_bytes
                if run.kind & TO_STORE:
                    self._count_large(run, -count, -run.body_bytes)
                runs.remove(run)
                continue
            known += self._settle(run, piece, count)
            if not run.live:
                runs.remove(run)
            elif run.live * SLOTS_A_MESSAGE < len(run.contents):
                runs.replace(run, run.without_holes())
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
            if isinstance(run.expiries, list):
                del run.expiries[piece]
            run.first += count
            if not isinstance(sizes, int):
                run.sizes = sizes[count:]
            if not isinstance(run.arrived, int):
                run.arrived = part_of(run.arrived, run.first, run.end)
        else:
            contents[piece] = [None] * count
        settled = count - gone
        run.live -= settled
        run.body_bytes -= settled_bytes
        self.count -= settled
        self.body_bytes -= settled_bytes
        if run.origin.persistent:
            self.persistent -= settled
            self.persistent_bytes -= settled_bytes
        if run.kind & TO_STORE:
            self._count_large(run, -settled, -settled_bytes)
        return settled

    def take(self, tags: Sequence[int]) -> list[Run]:
        """Settle `tags`; returns their messages as ascending runs, flagged redelivered."""
        taken: list[Run] = []
        for span in spans(tags):
            pieces = self.pieces(span)
            for run, piece in _pending_slots(pieces, span.step):
                part = run.part(piece.start, piece.stop)
                part.redelivered = True
                last = taken[-1] if taken else None
                if last is not None and last.accepts(
                    part.first, part.origin, part.expiries, True, part.kind, part.id_base
                ):
                    last.join(part)
                else:
                    taken.append(part)
            self.discard_pieces(pieces)
        taken.sort(key=by_first)
        return taken

    def find(self, tags: Sequence[int]) -> Iterator[tuple[Run, int]]:
        """The pending messages of `tags`, as (run, index of its slot)."""
        return (found for span in spans(tags) for found in self._slots(span))

    def slot(self, number: int) -> tuple[Run, int] | None:
        """The pending message of this number, as (run, index of its slot); None if it is not pending."""
        run = self.runs.find(number)
        if run is None or run.contents[number - run.first] is None:
            return None
        return run, number - run.first

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
        return ((run, index) for run, slots in _pending_slots(self.pieces(span), span.step) for index in slots)

    def slots(self) -> Iterator[tuple[Run, int]]:
        """Every pending message, as (run, index of its slot)."""
        return (found for run in self.runs for found in self._slots(range(run.first, run.end)))

    def count_in(self, span: range) -> int:
        """How many numbers of `span` are pending."""
        return count_in(self.pieces(span))

    def between(self, start: int, stop: int) -> list[Run]:
        """Copies of the pending messages in `[start, stop)`, as ascending runs without holes."""
        found = []
        for run in self.runs.overlapping(start, stop - 1):
            for piece in run.without_holes():
                low, high = max(start, piece.first), min(stop, piece.end)
                if low < high:
                    found.append(piece.part(low - piece.first, high - piece.first))
        return found

    def numbers(self) -> Iterator[int]:
        """The pending numbers, ascending."""
        for run in self.runs:
            if run.live == len(run.contents):
                yield from range(run.first, run.end)
            else:
                for index, content in enumerate(run.contents):
                    if content is not None:
                        yield run.first + index

    def numbers_in(self, span: range) -> list[int]:
        """The pending numbers of `span`, ascending."""
        return [run.first + index for run, index in self._slots(span)] if span else []

    def take_oldest(self, most: int, most_bytes: int, most_messages: int) -> PendingRuns:
        """Remove and return the runs with the lowest numbers: at most `most`, and no further run once they have
        `most_messages` messages or bodies of `most_bytes` bytes.
        """
        taken = PendingRuns()
        blocks = self.runs.blocks
        is_full = False
        while len(taken.runs) < most and not is_full and blocks[0]:
            block = blocks[0]
            count = 0
            for run in block[: most - len(taken.runs)]:
                count += 1
                taken.runs.append(run)
                taken._count(run, run.live, run.body_bytes)
                self._count(run, -run.live, -run.body_bytes)
                is_full = taken.body_bytes >= most_bytes or taken.count >= most_messages
                if is_full:
                    break
            del block[:count]
            self.runs.drop_empty()
        return taken

    def clear(self) -> None:
        """Remove everything."""
        self.detach()

    def detach(self) -> AscendingRuns[Run]:
        """Remove everything, and return it to be freed in steps."""
        self._nothing()
        return self.runs.detach()


def _pending_slots(pieces: Sequence[Piece], step: int) -> Iterator[tuple[Run, range]]:
    """The pending messages of pieces with this step, as (run, consecutive slots of it)."""
    for run, piece, _ in pieces:
        indices = range(piece.start, piece.stop, piece.step)
        if step == 1 and run.live == len(run.contents):
            yield run, indices
        elif pending := [index for index in indices if run.contents[index] is not None]:
            for slots in consecutive(pending):
                yield run, slots


def count_in(pieces: Sequence[Piece]) -> int:
    """How many messages of these pieces are pending."""
    count = 0
    for run, piece, size in pieces:
        count += size if run.live == len(run.contents) else size - run.contents[piece].count(None)
    return count
