"""The view `history`: every message in the segments and the journal of a data directory, those that have left their
queue included. The column `state` is one of these:

    ready           the next start of the broker would find the message
    acked           the message has left its queue; its body is there as long as a file has it
    transient       the message was not persistent, so the next start drops it
    no_body         it would be ready, but no file of the message store has its body
    damaged_body    it would be ready, but its body is damaged

A message that is in the journal and in a segment has one row, that of the segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...store.data_dir.vhost_dir import JOURNAL, queue_directory
from ...store.disk.read_only_disk import ReadOnlyDisk
from ...store.disk.walk_frames import DamagedPart, walk_frames
from ...store.index.segment_file import segment_path
from ...store.journal.journal_file import file_name, file_number
from ...store.messages.records import Type, decode_runs, records, stub_id
from ...store.messages.run import Run
from ..options import DirectoryOptions
from ..rows.columns import RowPlan
from .offline import Kept, OfflineBodies, OfflineSegment, bodiless, messages_of, with_bodies
from .offline_journal import replay
from .offline_plan import JournalPart, Level, SegmentPart, locked, segments_of

READY, ACKED, TRANSIENT, NO_BODY, DAMAGED = "ready", "acked", "transient", "no_body", "damaged_body"

#: By state: runs with the slots whose messages have it.
ByState = dict[str, list[Kept]]


def history_batches(
    options: DirectoryOptions, rows: RowPlan, parts: Sequence[SegmentPart | JournalPart]
) -> Iterator[Any]:
    """The record batches of one task."""
    with locked(options.path, options.needs_metadata) as path:
        for part, bodies in with_bodies(parts):
            for level, name, found in journal_states(part) if isinstance(part, JournalPart) else _of_segment(part):
                place = os.path.relpath(f"{part.directory}/{name}", path)
                yield from _batches(options, rows, level, place, found, bodies)


def _of_segment(part: SegmentPart) -> Iterator[tuple[Level, str, ByState]]:
    found: ByState = {}
    for run, is_stored, is_first, is_acked in OfflineSegment(part.level, part.segment, part.acked).entries():
        left = READY if run.origin.persistent else TRANSIENT
        _add(found, ACKED, run, is_stored, is_first & is_acked)
        _add(found, left, run, is_stored, is_first & ~is_acked)
    yield part.level, segment_path(queue_directory(part.level.number), part.segment), found


def journal_states(part: JournalPart) -> Iterator[tuple[Level, str, ByState]]:
    """The messages of these queues that are in no segment, file by file."""
    disk = ReadOnlyDisk(part.directory)
    left = replay(part.directory).queues
    levels = {level.number: level for level in part.levels}
    seen, ready = {}, {}
    for number, level in levels.items():
        seen[number], ready[number] = _Numbers(level.entries, _in_segments(disk, level)), _Numbers(level.entries)
        for runs in (left[number].embedded.runs, left[number].stored.runs):
            for piece in (piece for run in runs for piece in run.without_holes()):
                ready[number].add(range(piece.first, piece.end))
    for file in sorted(found for name in disk.list(JOURNAL) if (found := file_number(name)) is not None):
        by_level: dict[int, ByState] = {}
        for queue, run, is_stored in _published(disk, file):
            if queue in levels:
                span = range(run.first, run.end)
                is_new, is_ready = ~seen[queue].of(span), ready[queue].of(span)
                seen[queue].add(span)
                states = by_level.setdefault(queue, {})
                _add(states, ACKED, run, is_stored, is_new & ~is_ready)
                _add(states, READY, run, is_stored, is_new & is_ready)
        for queue, states in by_level.items():
            yield levels[queue], f"{JOURNAL}/{file_name(file)}", states


def _in_segments(disk: ReadOnlyDisk, level: Level) -> Callable[[int], Iterable[range]]:
    """A function that reads one segment of a queue, and returns the numbers of its entries."""
    has_directory = os.path.isdir(f"{level.directory}/{queue_directory(level.number)}")
    there = set(segments_of(disk, level.number)) if has_directory else set()
    return lambda segment: OfflineSegment(level, segment, ()).published() if segment in there else ()


def _published(disk: ReadOnlyDisk, number: int) -> Iterator[tuple[int, Run, bool]]:
    """The runs that were published in a file of the journal, each with its queue."""
    file = disk.open(f"{JOURNAL}/{file_name(number)}")
    try:
        for part in walk_frames(file):
            if not isinstance(part, DamagedPart):
                for record in records(part.payload):
                    if record.type is Type.PUBLISH:
                        yield from ((record.queue, run, is_stored) for run, is_stored in decode_runs(record.body))
    finally:
        file.close()


def _add(found: ByState, state: str, run: Run, is_stored: bool, mask: Any) -> None:
    places = np.flatnonzero(mask)
    if len(places):
        found.setdefault(state, []).append((run, is_stored, places))


def _batches(
    options: DirectoryOptions, rows: RowPlan, level: Level, place: str, found: ByState, bodies: OfflineBodies
) -> Iterator[Any]:
    """The rows of one file; those without a body come behind the others."""
    for state, kept in found.items():
        lacking: list[tuple[Run, int]] = []
        parts = messages_of(options, level, kept, bodies, lacking)
        yield from rows.batches(level.queue, level.queue_id, parts, level.vhost, state=state, file=place)
        without: dict[str, list[tuple[Run, int]]] = {}
        for run, slot in lacking:
            why = state
            if state == READY:
                why = DAMAGED if bodies.has(stub_id(run.contents[slot])) else NO_BODY
            without.setdefault(why, []).append((run, slot))
        for why, some in without.items():
            parts = bodiless(level, some)
            yield from rows.batches(level.queue, level.queue_id, parts, level.vhost, state=why, file=place)


class _Numbers:
    """A set of a queue's numbers, a byte for each number of the pages that were used.

    A page is as long as a segment. `begun_with` gives the numbers that a page has at its first use.
    """

    def __init__(self, page: int, begun_with: Callable[[int], Iterable[range]] = lambda page: ()) -> None:
        self._page = page
        self._begun_with = begun_with
        self._pages: dict[int, Any] = {}

    def add(self, span: range) -> None:
        for page, low, high in self._parts(span):
            self._at(page)[low:high] = True

    def of(self, span: range) -> Any:
        """Which numbers of the span are in the set."""
        return np.concatenate([self._at(page)[low:high] for page, low, high in self._parts(span)])

    def _at(self, page: int) -> Any:
        if page not in self._pages:
            found = self._pages[page] = np.zeros(self._page, bool)
            base = page * self._page
            for span in self._begun_with(page):
                found[max(span.start - base, 0) : max(span.stop - base, 0)] = True
        return self._pages[page]

    def _parts(self, span: range) -> Iterator[tuple[int, int, int]]:
        for page in range(span.start // self._page, (span.stop - 1) // self._page + 1):
            base = page * self._page
            yield page, max(span.start - base, 0), min(span.stop - base, self._page)
