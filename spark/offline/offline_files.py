"""The view `files`: a row for each file of a data directory, and how much of it is garbage.

`used_bytes` counts the bytes of messages that the next start needs, and `garbage_bytes` those that it does not. In a
journal and in segments the rest of the file is the heads of frames and records; in a file of bodies both are the whole
file. Other files have neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...store.bodies.rdq_file import FoundRecord
from ...store.bodies.walk_records import walk_records
from ...store.data_dir.vhost_dir import (
    INDEX,
    JOURNAL,
    LEVEL_BITS,
    PERSISTENT,
    QUEUES,
    RECOVERY,
    TRANSIENT,
    directory_number,
)
from ...store.disk.read_only_disk import ReadOnlyDisk
from ...store.disk.walk_frames import DamagedPart, walk_frames
from ...store.index.segment_file import segment_number
from ...store.journal.journal_file import file_number
from ...store.messages.records import Type, decode_runs, records
from ...store.verify.verify_report import DataFileReport, VerifyReport
from ..options import DirectoryOptions
from .offline import Kept, OfflineSegment
from .offline_history import READY, journal_states
from .offline_journal import replay
from .offline_names import OfflineQueue, OfflineVhost
from .offline_plan import JournalPart, Level, segment_entries

#: Folders of a virtual host whose files are databases that speed up the next start.
_INDEXES = {INDEX, RECOVERY}


class FileRow(NamedTuple):
    """A row. `kind` is `journal`, `segment`, `bodies`, `index`, `metadata` or `other`."""

    vhost: str | None
    kind: str
    path: str
    bytes: int
    used_bytes: int | None = None
    garbage_bytes: int | None = None
    frames: int | None = None
    messages: int | None = None
    damaged_parts: int | None = None


def file_rows(
    options: DirectoryOptions, path: str, vhosts: Iterable[OfflineVhost], report: VerifyReport
) -> Iterator[FileRow]:
    """The files of these virtual hosts. If the options name none, then those that belong to no virtual host as well."""
    for vhost in vhosts:
        checked = {file.name: file for each in report.vhosts if each.name == vhost.name for file in each.files}
        yield from _VhostFiles(path, vhost, checked).rows()
    if options.vhost is None:
        for folder, name in _walk(path):
            place = os.path.relpath(os.path.join(folder, name), path)
            if not place.startswith("vhosts" + os.sep):
                kind = "metadata" if place.startswith("metadata" + os.sep) else "other"
                yield FileRow(None, kind, place, os.path.getsize(os.path.join(folder, name)))


def _walk(path: str) -> Iterator[tuple[str, str]]:
    """Folder and name of each regular file below a path, in order."""
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if os.path.isfile(os.path.join(folder, name)):
                yield folder, name


class _VhostFiles:
    """The files of one virtual host."""

    def __init__(self, path: str, vhost: OfflineVhost, checked: dict[str, DataFileReport]) -> None:
        self._path, self._vhost, self._directory, self._checked = path, vhost.name, vhost.directory, checked
        self._named = vhost.queues
        self._disk = ReadOnlyDisk(vhost.directory)
        self._entries = segment_entries(self._disk) if os.path.isdir(vhost.directory) else 0

    def rows(self) -> Iterator[FileRow]:
        if not self._entries:
            return
        replayed = replay(self._directory).queues
        self._acked = {number: each.acked for number, each in replayed.items()}
        levels = [self._level(number) for number in sorted(replayed) if number >> LEVEL_BITS in self._named]
        used: dict[str, int] = {}
        for _, name, found in journal_states(JournalPart(self._directory, tuple(levels))):
            used[name] = used.get(name, 0) + sum(map(_size, found.get(READY, ())))
        for folder, name in _walk(self._directory):
            place = os.path.relpath(os.path.join(folder, name), self._directory)
            yield self._row(place, used)

    def _level(self, number: int) -> Level:
        queue = self._named.get(number >> LEVEL_BITS, OfflineQueue(""))
        return Level(self._directory, self._vhost, queue.name, queue.id, number, self._entries, None)

    def _row(self, place: str, used: dict[str, int]) -> FileRow:
        first, *rest = place.split(os.sep)
        size = os.path.getsize(f"{self._directory}/{place}")
        row = FileRow(self._vhost, "other", os.path.relpath(f"{self._directory}/{place}", self._path), size)
        if first == JOURNAL and file_number(rest[-1]) is not None:
            return self._journal(row, place, used.get(place, 0))
        if first == QUEUES and len(rest) == 2 and (segment := segment_number(rest[1])) is not None:
            number = directory_number(rest[0])
            if number is not None:
                return self._segment(row, number, segment)
        if first in (PERSISTENT, TRANSIENT) and rest[-1].endswith(".rdq"):
            return self._bodies(row, place, self._checked.get(rest[-1]) if first == PERSISTENT else None)
        if first in _INDEXES or first in (PERSISTENT, TRANSIENT) and rest[0] == "index":
            return row._replace(kind="index")
        return row

    def _journal(self, row: FileRow, place: str, used: int) -> FileRow:
        frames = damaged = messages = size = 0
        file = self._disk.open(place)
        try:
            for part in walk_frames(file):
                if isinstance(part, DamagedPart):
                    damaged += 1
                    continue
                frames += 1
                for record in records(part.payload):
                    if record.type is Type.PUBLISH:
                        for run, _ in decode_runs(record.body):
                            messages += len(run.contents)
                            size += sum(map(len, run.contents))
        finally:
            file.close()
        return row._replace(
            kind="journal",
            used_bytes=used,
            garbage_bytes=size - used,
            frames=frames,
            messages=messages,
            damaged_parts=damaged,
        )

    def _segment(self, row: FileRow, number: int, segment: int) -> FileRow:
        found = OfflineSegment(self._level(number), segment, self._acked.get(number, ()))
        runs = [(run, is_stored, None) for run, is_stored, _, _ in found.entries()]
        used = sum(map(_size, found.kept())) if number >> LEVEL_BITS in self._named else 0
        return row._replace(
            kind="segment",
            used_bytes=used,
            garbage_bytes=sum(map(_size, runs)) - used,
            frames=found.frames,
            messages=sum(len(run.contents) for run, _, _ in runs),
            damaged_parts=found.damaged,
        )

    def _bodies(self, row: FileRow, place: str, checked: DataFileReport | None) -> FileRow:
        """A file of bodies; those of the transient store are garbage for the next start."""
        messages = 0
        damaged = 0
        file = self._disk.open(place)
        try:
            for record in walk_records(file):
                if isinstance(record, FoundRecord):
                    messages += 1
                else:
                    damaged += 1
        finally:
            file.close()
        used = 0 if checked is None else checked.live
        return row._replace(
            kind="bodies", used_bytes=used, garbage_bytes=row.bytes - used, messages=messages, damaged_parts=damaged
        )


def _size(kept: Kept) -> int:
    """The bytes of the contents of a run in these slots."""
    run, _, places = kept
    return sum(map(len, run.contents)) if places is None else sum(len(run.contents[place]) for place in places)
