"""`spark.read` on the data directory of a stopped broker: finds what it contains, and plans which task reads what.

The planner and each task hold the directory's lock shared while they read, so that no broker starts on it. They write
nothing. They find what the next start of the broker would find, by the rules of recovery.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import lmdb
from pyspark.sql.datasource import InputPartition

from ...store.data_dir.recovery_terms import DamagedTerms, read_terms
from ...store.data_dir.vhost_dir import LEVEL_BITS, QUEUES, RECOVERY, queue_directory, queue_numbers
from ...store.disk.lmdb_check import DamagedFile, check_file
from ...store.disk.read_only_disk import ReadOnlyDisk, file_size
from ...store.index.queue_index import SEGMENT_ENTRIES
from ...store.index.segment_file import cut, segment_number, segment_path
from ...store.journal.replay import Replayed
from ...store.verify.verify import CannotVerify, HasNoMetadata, InUse, opened
from ..errors import directory_in_use, unusable_directory, unusable_metadata
from ..options import DirectoryOptions
from .offline_journal import replay
from .offline_names import OfflineVhost, offline_vhosts

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

    @property
    def size(self) -> int:
        """The bytes of its file."""
        path = segment_path(queue_directory(self.level.number), self.segment)
        return file_size(ReadOnlyDisk(self.directory), path)


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
def locked(path: str, needs_metadata: bool = True) -> Iterator[str]:
    """Hold the directory's lock shared; yields its absolute path. Raises SparkSourceError E11."""
    try:
        with opened(path, needs_metadata) as held:
            yield held
    except InUse as error:
        raise directory_in_use(str(error).partition(". ")[0] + ".") from error
    except HasNoMetadata as error:
        raise unusable_metadata(str(error)) from error
    except CannotVerify as error:
        raise unusable_directory(str(error)) from error


def require_directory(path: str) -> None:
    """Raise SparkSourceError E11 unless the directory can be read now."""
    with locked(path):
        pass


def plan(options: DirectoryOptions) -> list[DirectoryPartition]:
    """The partitions of the views `messages` and `history`."""
    with locked(options.path, options.needs_metadata) as path:
        segments: list[tuple[int, SegmentPart]] = []
        journals: list[JournalPart] = []
        for vhost in offline_vhosts(path, options):
            _plan_vhost(vhost, options.view == "history", segments, journals)
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


@dataclass(frozen=True)
class VhostContent:
    """What a virtual host's directory has of its queues, as the next start would find it.

    levels      of the queues that have files or records in the journal, by number
    indexed     the numbers of those that have a directory
    replayed    what the journal has, by number
    terms       the recovery terms by queue; none after an unclean end
    """

    levels: Mapping[int, Level]
    indexed: Set[int]
    replayed: Mapping[int, Replayed]
    terms: Mapping[int, Mapping[str, Any]]

    @classmethod
    def of(cls, vhost: OfflineVhost) -> VhostContent:
        """The content of this virtual host; empty if its directory does not exist."""
        directory = vhost.directory
        if not os.path.isdir(directory):
            return cls({}, set(), {}, {})
        disk = ReadOnlyDisk(directory)
        replayed = replay(directory).queues
        terms = _terms(directory, disk)
        entries = segment_entries(disk)
        here = queue_numbers(disk) if QUEUES in disk.list("") else set()
        if any(not each.is_empty for each in replayed.values()) or not {n >> LEVEL_BITS for n in here} <= terms.keys():
            terms = {}
        levels = {}
        for number in sorted(here | replayed.keys()):
            queue = vhost.queues.get(number >> LEVEL_BITS)
            if queue is not None:
                known = terms.get(number >> LEVEL_BITS)
                watermark = None if known is None else known.get("next_deliver_seq_id", 0)
                levels[number] = Level(directory, vhost.name, queue.name, queue.id, number, entries, watermark)
        return cls(levels, here, replayed, terms)

    def segments(self, level: Level) -> list[SegmentPart]:
        """The segments of a level, ascending."""
        if level.number not in self.indexed:
            return []
        acked = self.replayed[level.number].acked if level.number in self.replayed else []
        found = []
        for segment in segments_of(ReadOnlyDisk(level.directory), level.number):
            base = segment * level.entries
            inside = [part for span in acked if (part := cut(span, base, base + level.entries))]
            found.append(SegmentPart(level, segment, inside))
        return found


def _plan_vhost(
    vhost: OfflineVhost, has_acked: bool, segments: list[tuple[int, SegmentPart]], journals: list[JournalPart]
) -> None:
    content = VhostContent.of(vhost)
    for level in content.levels.values():
        for part in content.segments(level):
            segments.append((part.size, part))
    with_messages = [
        level
        for number, level in content.levels.items()
        if number in content.replayed
        and (has_acked or content.replayed[number].embedded.count or content.replayed[number].stored.count)
    ]
    if with_messages:
        journals.append(JournalPart(vhost.directory, tuple(with_messages)))


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
