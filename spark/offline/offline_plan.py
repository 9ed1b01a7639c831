"""`spark.read` on the data directory of a stopped broker: finds what it contains, and plans which task reads what.

The planner and each task hold the directory's lock shared while they read, so that no broker starts on it. They write
nothing. They find what the next start of the broker would find, by the rules of recovery.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import lmdb
from pyspark.sql.datasource import InputPartition

from ...store.data_dir.data_dir import DataDir, queue_number
from ...store.data_dir.metadata_store import MetadataError, MetadataStore
from ...store.data_dir.recovery_terms import DamagedTerms, read_terms
from ...store.data_dir.vhost_dir import JOURNAL, LEVEL_BITS, RECOVERY, queue_directory, queue_numbers
from ...store.disk.disk import File
from ...store.disk.lmdb_check import DamagedFile, check_file
from ...store.disk.read_only_disk import ReadOnlyDisk, ReadOnlyFile, file_size
from ...store.index.queue_index import SEGMENT_ENTRIES
from ...store.index.segment_file import cut, segment_number, segment_path
from ...store.journal.journal_file import file_number
from ...store.journal.replay import ReplayedFiles, replay_files
from ...store.verify.verify import CannotVerify, InUse, opened
from ..errors import directory_in_use, unusable_directory, wrong_options
from ..options import DirectoryOptions

#: Bytes of segments that one task reads.
GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Level:
    """One numbering of a queue in a virtual host: the queue itself, or one priority of it.

    directory    of the virtual host
    number       see `vhost_dir`
    watermark    messages below this number were at the head before, as the recovery terms say; None after an unclean
                 end
    """

    directory: str
    vhost: str
    queue: str
    queue_id: str
    number: int
    entries: int
    watermark: int | None


@dataclass(frozen=True)
class SegmentPart:
    """A segment of a level's index, and the numbers in it that the journal acknowledges."""

    level: Level
    segment: int
    acked: Sequence[range]

    @property
    def directory(self) -> str:
        """The directory of the virtual host."""
        return self.level.directory


@dataclass(frozen=True)
class JournalPart:
    """The messages that only the journal of a virtual host has, of these queues."""

    directory: str
    levels: Sequence[Level] = field(default_factory=tuple)


class DirectoryPartition(InputPartition):
    """What one task reads: segments, or a journal, or one of the other views."""

    def __init__(self, parts: Sequence[SegmentPart | JournalPart]) -> None:
        super().__init__(None)
        self.parts = list(parts)


@contextmanager
def locked(path: str) -> Iterator[str]:
    """Hold the directory's lock shared; yields its absolute path. Raises SparkSourceError E11."""
    try:
        with opened(path) as held:
            yield held
    except InUse as error:
        raise directory_in_use(str(error).partition(". ")[0] + ".") from error
    except CannotVerify as error:
        raise unusable_directory(str(error)) from error


def plan(options: DirectoryOptions) -> list[DirectoryPartition]:
    """The partitions of the views `messages` and `history`."""
    with locked(options.path) as path:
        segments: list[tuple[int, SegmentPart]] = []
        journals: list[JournalPart] = []
        for vhost in vhosts(path, options):
            named = queues(path, vhost, options.queue)
            _plan_vhost(path, vhost, named, options.view == "history", segments, journals)
    partitions = [DirectoryPartition([journal]) for journal in journals]
    group: list[SegmentPart] = []
    size = 0
    for bytes_there, part in segments:
        if group and size + bytes_there > GROUP_BYTES:
            partitions.append(DirectoryPartition(group))
            group, size = [], 0
        group.append(part)
        size += bytes_there
    return [*partitions, DirectoryPartition(group)] if group else partitions


def tables(path: str) -> dict[str, Any]:
    """The metadata, which lists the queues. Raises SparkSourceError E11 if it is damaged."""
    try:
        store = MetadataStore(DataDir(path).metadata, is_read_only=True)
        try:
            return store.load()
        finally:
            store.close()
    except MetadataError as error:
        raise unusable_directory(str(error)) from error


def vhosts(path: str, options: DirectoryOptions) -> list[str]:
    """The virtual hosts that are read."""
    if not os.path.isdir(DataDir(path).metadata):
        return []
    names = sorted(str(row.key[0]) for row in tables(path)["vhosts"])
    if options.vhost is not None and options.vhost not in names:
        raise wrong_options(f"there is no virtual host '{options.vhost}' in '{path}'; it has {', '.join(names)}")
    return [name for name in names if options.vhost in (None, name)]


def queues(path: str, vhost: str, only: str | None) -> dict[int, tuple[str, str]]:
    """Name and id of each durable queue of a virtual host, by its number."""
    found = {}
    for row in tables(path)["queues"]:
        if row.key[0] == vhost and only in (None, row.key[1]):
            found[queue_number(row.fields["queue_id"])] = str(row.key[1]), str(row.fields["queue_id"])
    return found


def _plan_vhost(
    path: str,
    vhost: str,
    named: dict[int, tuple[str, str]],
    has_acked: bool,
    segments: list[tuple[int, SegmentPart]],
    journals: list[JournalPart],
) -> None:
    directory = DataDir(path).vhost(vhost)
    if not os.path.isdir(directory):
        return
    disk = ReadOnlyDisk(directory)
    replayed = replay(directory).queues
    terms = _terms(directory, disk)
    entries = segment_entries(disk)
    here = queue_numbers(disk) if "queues" in disk.list("") else set()
    levels = []
    is_clean = all(each.is_empty for each in replayed.values()) and {n >> LEVEL_BITS for n in here} <= terms.keys()
    for number in sorted(here | replayed.keys()):
        queue = named.get(number >> LEVEL_BITS)
        if queue is None:
            continue
        known = terms.get(number >> LEVEL_BITS) if is_clean else None
        watermark = None if known is None else known.get("next_deliver_seq_id", 0)
        levels.append(Level(directory, vhost, *queue, number, entries, watermark))
    for level in levels:
        if level.number not in here:
            continue
        acked = replayed[level.number].acked if level.number in replayed else []
        for segment in segments_of(disk, level.number):
            base = segment * entries
            inside = [part for span in acked if (part := cut(span, base, base + entries))]
            size = file_size(disk, segment_path(queue_directory(level.number), segment))
            segments.append((size, SegmentPart(level, segment, inside)))
    with_messages = [
        level
        for level in levels
        if level.number in replayed
        and (has_acked or replayed[level.number].embedded.count or replayed[level.number].stored.count)
    ]
    if with_messages:
        journals.append(JournalPart(directory, tuple(with_messages)))


def segments_of(disk: ReadOnlyDisk, number: int) -> list[int]:
    """The segments of a level, ascending."""
    names = disk.list(queue_directory(number))
    return sorted(found for name in names if (found := segment_number(name)) is not None)


def segment_entries(disk: ReadOnlyDisk) -> int:
    """How many messages a segment has, from the file `config`; SEGMENT_ENTRIES without a valid one, as in recovery."""
    try:
        file = disk.open("config")
    except FileNotFoundError:
        return SEGMENT_ENTRIES
    try:
        data = file.read(0, 3)
    finally:
        file.close()
    entries = int.from_bytes(data, "big")
    return entries if len(data) == 2 and 1 <= entries <= SEGMENT_ENTRIES else SEGMENT_ENTRIES


def _terms(directory: str, disk: ReadOnlyDisk) -> dict[int, dict[str, Any]]:
    """The recovery terms by queue; none if they are missing or damaged, which counts as an unclean end."""
    place = f"{directory}/{RECOVERY}"
    if RECOVERY not in disk.list(""):
        return {}
    try:
        check_file(f"{place}/data.mdb")
        return read_terms(place)
    except (OSError, DamagedFile, DamagedTerms, lmdb.Error):
        return {}


class _UncutFile(ReadOnlyFile):
    """A journal file for the code of recovery, which truncates a torn tail and syncs the file. Here both do nothing."""

    def truncate(self, size: int) -> None:
        pass

    def sync(self) -> None:
        pass


class _UncutDisk(ReadOnlyDisk):
    def open(self, path: str, create: bool = False) -> File:
        return _UncutFile(self._path(path))


def replay(directory: str) -> ReplayedFiles:
    """What the journal of a virtual host contains for its queues, as recovery finds it."""
    disk = _UncutDisk(directory)
    if JOURNAL not in disk.list(""):
        return ReplayedFiles()
    numbers = sorted(number for name in disk.list(JOURNAL) if (number := file_number(name)) is not None)
    found = replay_files(disk, JOURNAL, numbers)
    if any(number < found.retired for number in numbers):
        # The broker crashed after it had retired these files and before it deleted them: their records do not count.
        found = replay_files(disk, JOURNAL, [number for number in numbers if number >= found.retired])
    return found
