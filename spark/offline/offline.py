"""How a task reads a data directory: the messages that recovery would keep, or the findings of the offline check."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import lmdb
import numpy as np

from ...amqp.constants import CLASS_BASIC, FRAME_HEADER
from ...amqp.frames import CONTENT_HEAD, END
from ...amqp.properties import NO_PROPERTIES
from ...store.bodies.location_index import LocationIndex
from ...store.bodies.rdq_file import DamagedRecord, FoundRecord, file_name, file_number, read_message
from ...store.bodies.store_recovery import read_state
from ...store.bodies.walk_records import walk_records
from ...store.data_dir.vhost_dir import PERSISTENT, queue_directory
from ...store.disk.disk import File
from ...store.disk.lmdb_check import DamagedFile, check_file
from ...store.disk.read_only_disk import ReadOnlyDisk
from ...store.disk.walk_frames import DamagedPart, walk_frames
from ...store.index.segment_file import BLOCK, mark, segment_path
from ...store.journal.replay import Replayed
from ...store.messages.arrivals import stretches
from ...store.messages.message import body_size
from ...store.messages.records import Kind, decode_runs, decode_spans, stub_id
from ...store.messages.run import Run
from ..options import DirectoryOptions
from ..rows.columns import RowPlan
from ..rows.messages import Messages, RunDescription, from_contents
from .offline_journal import replay
from .offline_plan import JournalPart, Level, SegmentPart, locked, segments_of

log = logging.getLogger("warren.spark")

AnyPart = TypeVar("AnyPart", SegmentPart, JournalPart, SegmentPart | JournalPart)

#: How many files of a message store a task keeps open: a store may have more files than a process may have open.
OPEN_FILES = 64
#: After this many messages a `Messages` is complete.
GROUP = 4096


def message_batches(
    options: DirectoryOptions, rows: RowPlan, parts: Sequence[SegmentPart | JournalPart]
) -> Iterator[Any]:
    """The record batches of one task of the view `messages`."""
    with locked(options.path, options.needs_metadata):
        for part, bodies in with_bodies(parts):
            if isinstance(part, JournalPart):
                yield from _of_journal(options, rows, part, bodies)
            else:
                kept = OfflineSegment(part.level, part.segment, part.acked).kept()
                yield from _batches(options, rows, part.level, kept, bodies)


def with_bodies(parts: Iterable[AnyPart]) -> Iterator[tuple[AnyPart, OfflineBodies]]:
    """Each part with the message store of its virtual host.

    A store is opened once for all parts that follow each other, because opening may mean reading all of its files.
    """
    for directory, some in itertools.groupby(parts, key=lambda part: part.directory):
        bodies = OfflineBodies(directory)
        try:
            for part in some:
                yield part, bodies
        finally:
            bodies.close()


def _of_journal(options: DirectoryOptions, rows: RowPlan, part: JournalPart, bodies: OfflineBodies) -> Iterator[Any]:
    replayed = replay(part.directory).queues
    for level in part.levels:
        yield from _batches(options, rows, level, kept_of_journal(level, replayed.pop(level.number)), bodies)


#: A run, whether its bodies are in the message store, and the slots of the messages that are kept; None for all.
Kept = tuple[Run, bool, Any]


def kept_of_journal(level: Level, left: Replayed) -> list[Kept]:
    """Return the messages of a level that only the journal has, and remove from `left` those that a segment has."""
    disk = ReadOnlyDisk(level.directory)
    numbers = [run.first // level.entries for run in (*left.embedded.runs, *left.stored.runs)]
    has_directory = os.path.isdir(f"{level.directory}/{queue_directory(level.number)}")
    here = set(segments_of(disk, level.number)) if has_directory else set()
    spanned = range(min(numbers, default=0), max(numbers, default=-1) + 2)
    for segment in sorted(here.intersection(spanned)):
        for span in OfflineSegment(level, segment, ()).published():
            left.embedded.discard(span)
            left.stored.discard(span)
    kept: list[Kept] = [
        (piece, is_stored, None)
        for runs, is_stored in ((left.embedded, False), (left.stored, True))
        for run in runs.runs
        for piece in run.without_holes()
    ]
    return sorted(kept, key=lambda each: each[0].first)


class OfflineSegment:
    """A segment, read whole, to find which of its messages recovery would keep."""

    def __init__(self, level: Level, segment: int, acked: Sequence[range]) -> None:
        self._base = segment * level.entries
        self._acked = bytearray(level.entries)
        self._runs: list[tuple[Run, bool]] = []
        #: Whole frames, and damaged parts.
        self.frames = self.damaged = 0
        file = ReadOnlyDisk(level.directory).open(segment_path(queue_directory(level.number), segment))
        try:
            for part in walk_frames(file):
                if isinstance(part, DamagedPart):
                    self.damaged += 1
                    continue
                self.frames += 1
                if part.kind == Kind.ENTRIES:
                    self._runs += decode_runs(part.payload[BLOCK.size :])
                else:
                    mark(self._acked, decode_spans(part.payload), self._base)
        finally:
            file.close()
        mark(self._acked, acked, self._base)

    def published(self) -> Iterator[range]:
        """The numbers of all entries."""
        return (range(run.first, run.end) for run, _ in self._runs)

    def entries(self) -> Iterator[tuple[Run, bool, Any, Any]]:
        """Each run, whether its bodies are in the message store, which of its slots are the first with their number,
        and which are acknowledged.
        """
        seen = bytearray(len(self._acked))
        for run, is_stored in self._runs:
            low, high = run.first - self._base, run.end - self._base
            is_first = np.frombuffer(seen, np.uint8)[low:high] == 0
            seen[low:high] = b"\1" * (high - low)
            yield run, is_stored, is_first, np.frombuffer(self._acked, np.uint8)[low:high] != 0

    def kept(self) -> list[Kept]:
        """The persistent messages without an acknowledgement. Of two entries with one number the first counts."""
        found: list[Kept] = []
        for run, is_stored, is_first, is_acked in self.entries():
            places = np.flatnonzero(is_first & ~is_acked)
            if run.origin.persistent and len(places):
                found.append((run, is_stored, None if len(places) == len(run.contents) else places))
        return sorted(found, key=lambda each: each[0].first)


def _batches(
    options: DirectoryOptions, rows: RowPlan, level: Level, kept: Sequence[Kept], bodies: OfflineBodies
) -> Iterator[Any]:
    lacking: list[tuple[Run, int]] = []
    parts = messages_of(options, level, kept, bodies, lacking)
    yield from rows.batches(level.queue, level.queue_id, parts, level.vhost)
    if lacking:
        log.warning("queue '%s': %d messages have no body in the message store", level.queue, len(lacking))


def messages_of(
    options: DirectoryOptions,
    level: Level,
    kept: Sequence[Kept],
    bodies: OfflineBodies,
    lacking: list[tuple[Run, int]],
) -> Iterator[Messages]:
    """The kept messages that have their bodies; runs and slots of the others are put into `lacking`."""
    has_bodies = options.bodies == "all"
    for run, is_stored, places in kept:
        indices: Sequence[int] = range(len(run.contents)) if places is None else places.tolist()
        for start in range(0, len(indices), GROUP):
            group = indices[start : start + GROUP]
            contents = [run.contents[index] for index in group]
            if is_stored:
                found = [bodies.get(stub_id(stub)) if has_bodies else without_body(stub) for stub in contents]
                lacking += [(run, index) for index, content in zip(group, found) if content is None]
                group = [index for index, content in zip(group, found) if content is not None]
                contents = [content for content in found if content is not None]
            if contents:
                numbers = [run.first + index for index in group]
                part = from_contents(numbers[0], numbers[-1] + 1, numbers, contents, descriptions(level, run, group))
                part.headers_only = is_stored and not has_bodies
                yield part


def bodiless(level: Level, lacking: Sequence[tuple[Run, int]]) -> Iterator[Messages]:
    """Messages of these runs and slots without their bodies and properties, which are in the message store too."""
    for run, group in itertools.groupby(lacking, key=lambda each: each[0]):
        slots = [slot for _, slot in group]
        numbers = [run.first + slot for slot in slots]
        contents = [without_body(run.contents[slot]) for slot in slots]
        part = from_contents(numbers[0], numbers[-1] + 1, numbers, contents, descriptions(level, run, slots))
        part.headers_only = True
        yield part


def descriptions(level: Level, run: Run, indices: Sequence[int]) -> list[RunDescription]:
    """Origins, times and flags of the messages in these slots of a run; equal neighbours share a `RunDescription`."""
    found: list[RunDescription] = []
    watermark = run.end if level.watermark is None or run.redelivered else level.watermark
    if not isinstance(run.origins, list) and not isinstance(run.expiries, list) and isinstance(run.arrived, int):
        before = sum(run.first + index < watermark for index in indices)
        sizes = (before, True), (len(indices) - before, False)
        origin, arrived, expires = run.origin, run.arrived or -1, _expires(run.expiries)
        return [
            RunDescription(size, origin.exchange, origin.routing_keys, was, arrived, expires)
            for size, was in sizes
            if size
        ]
    times = stretches(run.arrived, run.first, run.end)
    stop = arrived = 0
    for index in indices:
        number, origin, expires = run.first + index, run.origin_at(index), _expires(run.expiry_at(index))
        while number >= stop:
            _, stop, arrived = next(times)
        each = RunDescription(1, origin.exchange, origin.routing_keys, number < watermark, arrived or -1, expires)
        if found and found[-1][1:] == each[1:]:
            found[-1] = found[-1]._replace(size=found[-1].size + 1)
        else:
            found.append(each)
    return found


def _expires(expiry: int | None) -> int:
    return -1 if expiry is None else expiry


def without_body(stub: bytes) -> bytes:
    """A content of the size that a stub states, without properties: those are in the message store too."""
    return CONTENT_HEAD.pack(FRAME_HEADER, 1, 14, CLASS_BASIC, 0, body_size(stub)) + NO_PROPERTIES + END


class OfflineBodies:
    """The persistent message store of a virtual host, opened when the first body is needed.

    A store that was closed cleanly has an index of where each body is. Otherwise all its files are scanned, as recovery
    does where it cannot trust the index.
    """

    def __init__(self, directory: str) -> None:
        self._disk = ReadOnlyDisk(directory)
        self._index_path = f"{directory}/{PERSISTENT}/index"
        self._index: LocationIndex | None = None
        self._scanned: dict[bytes, tuple[int, int, int]] | None = None
        #: The ids in damaged records that a scan has found.
        self._damaged: set[bytes] = set()
        self._files: dict[int, File] = {}
        self._is_open = False

    def get(self, message_id: bytes) -> bytes | None:
        """The content of a message; None if no file has it whole."""
        if not self._is_open:
            self._open()
        place = self._place(message_id)
        if place is None:
            return None
        number, offset, size = place
        try:
            return read_message(self._file(number), offset, size, message_id)
        except (DamagedRecord, FileNotFoundError):
            return None

    def has(self, message_id: bytes) -> bool:
        """Whether a file has a record of the message, although it may be damaged. Call it after `get`."""
        return message_id in self._damaged or self._place(message_id) is not None

    def _open(self) -> None:
        self._is_open = True
        state = read_state(self._disk, PERSISTENT)
        if state is not None and state.is_clean:
            try:
                check_file(f"{self._index_path}/data.mdb")
                index = LocationIndex(self._index_path, is_read_only=True)
                if index.saved().generation == state.generation:
                    self._index = index
                    return
                index.close()
            except (OSError, DamagedFile, lmdb.Error):
                pass
        self._scanned = {}
        numbers = sorted(n for name in self._disk.list(PERSISTENT) if (n := file_number(name)) is not None)
        for number in numbers:
            for record in walk_records(self._file(number)):
                if isinstance(record, FoundRecord):
                    # If a crash lost the journal's record of an id, the id was given again: the last body counts.
                    self._scanned[record.message_id] = number, record.offset, record.total_size
                else:
                    self._damaged.add(record.message_id)

    def _place(self, message_id: bytes) -> tuple[int, int, int] | None:
        if self._scanned is not None:
            return self._scanned.get(message_id)
        assert self._index is not None
        entry = self._index.get(message_id)
        return None if entry is None else (entry.file, entry.offset, entry.total_size)

    def _file(self, number: int) -> File:
        file = self._files.pop(number, None)
        if file is None:
            file = self._disk.open(f"{PERSISTENT}/{file_name(number)}")
            if len(self._files) >= OPEN_FILES:
                self._files.pop(next(iter(self._files))).close()
        # The file that was used last is the last one.
        self._files[number] = file
        return file

    def close(self) -> None:
        """Close index and files."""
        if self._index is not None:
            self._index.close()
        for file in self._files.values():
            file.close()
