"""`Unflushed`: the entries of a queue's index that are in no segment yet.

They are *embedded* if they have their contents here, and *stored* if their bodies are in a message store. A flush takes
them out; until it has been run, they are the entries under way.

An entry whose journal record must be on the disk before it is written to a segment is **held** (`hold`). A message that
another queue has handed over is one: if its entry were on the disk without the record that it was taken, a crash would
leave it both in this queue and in transit (`journal.in_transit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from ..messages.arrivals import part_of
from ..messages.message import expiries_of, slice_of
from ..messages.pending_runs import PendingRuns, Piece, count_in
from ..messages.run import Run
from .segment_file import Entries


class DurablePosition(Protocol):
    """What `Unflushed` uses of the journal: the position up to which records are synced, so that entries with such
    records are no longer held.
    """

    @property
    def durable(self) -> int: ...


class Unflushed:
    """See the module."""

    __slots__ = ("_held", "_log", "embedded", "stored", "under_way")

    def __init__(self, log: DurablePosition) -> None:
        self._log = log
        self.embedded = PendingRuns()
        self.stored = PendingRuns()
        #: Embedded and stored entries that the flush under way writes; empty while there is none.
        self.under_way: tuple[PendingRuns, PendingRuns] | tuple[()] = ()
        #: Numbers of entries that no flush writes before the journal has synced up to the position beside them. None
        #: while there are none, because an empty deque takes 760 bytes.
        self._held: deque[tuple[int, range]] | None = None

    def add(self, run: Run, is_stored: bool) -> None:
        """Add a copy of this run."""
        (self.stored if is_stored else self.embedded).add(
            Run(
                run.first,
                run.contents[:],
                slice_of(run.origins, slice(None)),
                expiries_of(run.expiries, slice(None)),
                run.redelivered,
                run.body_bytes,
                run.sizes,
                arrived=part_of(run.arrived, run.first, run.end),
            )
        )

    def ack(self, span: range) -> Sequence[range]:
        """Forget these entries. Returns the parts of the span that are in segments, or about to be."""
        found: list[tuple[PendingRuns, list[Piece]]] = []
        count = 0
        for unflushed in (self.embedded, self.stored):
            if unflushed.count and count < len(span):
                oldest = unflushed.oldest(span)
                if oldest is not None:
                    unflushed.discard_oldest(oldest, len(span))
                    return ()
                pieces = unflushed.pieces(span)
                if here := count_in(pieces):
                    found.append((unflushed, pieces))
                    count += here
        if found:
            # The span may have both embedded and stored entries, as the acks of one of five consumers often do. If that
            # is all of it, nothing else must be searched.
            if count == len(span):
                for unflushed, pieces in found:
                    unflushed.discard_pieces(pieces)
                return ()
            unflushed, pieces = found[0]
            missing = unflushed.missing(span)
            unflushed.discard_pieces(pieces)
            return [left for part in missing for left in self.ack(part)]
        for flushing in self.under_way:
            if flushing.count:
                flushing.discard(span)  # the flush under way writes these entries, so a later flush writes their acks
        return (span,)

    @property
    def runs(self) -> int:
        """How many runs of entries a flush would write."""
        return len(self.embedded.runs) + len(self.stored.runs)

    @property
    def count(self) -> int:
        """How many entries a flush would write."""
        return self.embedded.count + self.stored.count

    def has_any(self, span: range) -> bool:
        """Whether any of these entries is here and not under way."""
        return bool(self.embedded.count_in(span) or self.stored.count_in(span))

    def discard(self, span: range) -> None:
        """Forget these entries, those under way too."""
        for unflushed in (self.embedded, self.stored, *self.under_way):
            unflushed.discard(span)

    def between(self, start: int, stop: int) -> Iterator[Entries]:
        """The entries from `start` on and below `stop`, those under way too."""
        for each in ((self.embedded, self.stored), self.under_way):
            for unflushed, is_stored in zip(each, (False, True)):
                for piece in unflushed.between(start, stop):
                    yield Entries(piece, is_stored)

    def clear(self) -> None:
        """Forget all entries but those under way."""
        self.embedded.clear()
        self.stored.clear()
        self._held = None

    # -- holding entries back ---

    def hold(self, numbers: range, position: int) -> None:
        """Let no flush but the last one write these entries before the journal has synced up to `position`.

        The journal never deletes a file with their records before that, because only files whose records are all on the
        disk are given up.
        """
        # Between two flushes, which may be long apart, entries that the journal has synced would gather here.
        held = self._still_held() or deque()
        held.append((position, numbers))
        self._held = held

    @property
    def is_holding(self) -> bool:
        """Whether entries wait for the journal before a flush may write them."""
        return self._still_held() is not None

    def _still_held(self) -> deque[tuple[int, range]] | None:
        """What is held, after those entries are left out whose records the journal has synced."""
        held = self._held
        while held and held[0][0] <= self._log.durable:
            held.popleft()
        if not held:
            self._held = held = None
        return held

    def hold_nothing(self) -> None:
        """Have the last flush write everything, even what the journal has not synced, because no flush follows it."""
        self._held = None

    # -- for a flush ---

    def take(self, most: tuple[int, int, int] | None) -> tuple[PendingRuns, PendingRuns]:
        """Take out the embedded and the stored entries that a flush is to write: all that are not held.

        `most` are numbers of runs, bytes and messages, for each of the two kinds: no further run of a kind is taken
        when this many runs, or runs with this many messages or whose bodies have this many bytes, are taken.
        """
        held = self._take_held()
        if most is None:
            taken = self.embedded, self.stored
            self.embedded, self.stored = held
            return taken
        part = self.embedded.take_oldest(*most), self.stored.take_oldest(*most)
        for unflushed, kept in zip((self.embedded, self.stored), held, strict=True):
            for run in kept.runs:
                unflushed.add(run)
        return part

    def _take_held(self) -> tuple[PendingRuns, PendingRuns]:
        """Take out the held entries; return those that are embedded and those that are stored."""
        held = PendingRuns(), PendingRuns()
        if self.is_holding:
            for unflushed, taken in zip((self.embedded, self.stored), held, strict=True):
                for _, numbers in self._held or ():
                    for run in unflushed.between(numbers.start, numbers.stop) if unflushed.count else ():
                        unflushed.discard(range(run.first, run.end))
                        taken.add(run)
        return held

    def flushed(self) -> None:
        """Note that the flush under way has ended: forget its entries, which are in segments now."""
        self.under_way = ()
