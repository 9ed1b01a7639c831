"""Giving back the garbage of a message store: the work that runs beside its owner (sections 6.7 and 6.9).

A file without wanted bytes is deleted; two neighbours whose wanted bytes fit into one file are combined. `garbage_collection` takes
either through the same stations:

| station | where | what has happened |
|---|---|---|
| planned | owner | the files are locked: from now on no message there that nobody wants is called back, a write of it appends a new copy |
| ready | – | an index commit holds every change up to the lock, and the intent |
| running | thread | `CombineJob`: the wanted records of both are in `<older>.rdt`, synced, and renamed over `<older>.rdq`. `DeleteJob`: the index was asked what is there |
| applied | owner | every message that is still where it was is moved, or dropped if unwanted; the younger file has no row; nothing is locked |
| unlinkable | – | one index commit holds all moves, and no intent |
| running | thread | `UnlinkJob`: the file that nothing leads to any more is deleted |

Why nothing is lost (QS-31): a record that is wanted when the moves are applied was wanted all the time since the lock, so any
committed state in between shows it, so it was copied. A kill before the rename leaves both files as they were, and an `.rdt` that
the next start deletes. Between rename and commit the intent makes the start forget where the messages of both files were, and
scan both. After the commit the younger file holds copies only.

Removals need not wait for a locked file: what becomes unwanted meanwhile is copied, and is garbage in the new place. Reads need
not either: the owner keeps the file it read from open, and a replaced or deleted file stays readable for who has it open (QS-28:
no byte of it changes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..disk.disk import Disk, File
from .lease import Lease
from .location_index import Located, LocationIndex
from .rdq_file import ASIDE_SUFFIX, DamagedRecord, file_name, parse_record

COPY_BLOCK = 1 << 20
"""Neighbouring records are read and written together, up to about so many bytes."""


class StoreBroken(Exception):
    """What reached the disk is unknown. Nothing more may be written; start again and recover."""


class Move(NamedTuple):
    """What became of a message: it was `located`, and its record now is at `offset` of the combined file, or nowhere (None)."""

    located: Located
    offset: int | None


class CombineJob:
    """Builds the combined file and puts it in the older one's place. Once run, `moves`, `file_size` and `damaged` tell the result.

    `run` raises OSError if nothing has happened to the files, StoreBroken if the rename may or may not be durable.
    """

    def __init__(
        self, lease: Lease, disk: Disk, directory: str, index: LocationIndex, older: int, younger: int
    ) -> None:
        self.files = older, younger
        self.file_size = 0
        self.moves: list[Move] = []
        self.damaged: list[bytes] = []
        """Ids of records that were wanted and could not be read back; they are left out."""
        self._lease = lease
        self._disk = disk
        self._directory = directory
        self._index = index

    def run(self) -> None:
        with self._lease.work():
            self._combine()

    def _combine(self) -> None:
        older, _ = self.files
        path = f"{self._directory}/{older}{ASIDE_SUFFIX}"
        aside = self._disk.open(path, create=True)
        try:
            aside.truncate(0)
            self.file_size = 0
            self.moves, self.damaged = [], []
            for number in self.files:
                file = self._disk.open(f"{self._directory}/{file_name(number)}")
                try:
                    self._copy(file, self._index.located_in(number), aside)
                finally:
                    file.close()
            aside.sync()
        finally:
            aside.close()
        self._disk.sync_dir(self._directory)
        self._disk.rename(path, f"{self._directory}/{file_name(older)}")
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:
            raise StoreBroken(f"combining {self.files} in {self._directory}: {error}") from error

    def _copy(self, file: File, located: Sequence[Located], aside: File) -> None:
        self.moves += (Move(dead, None) for dead in located if not dead.entry.ref_count)
        for run in _neighbours([wanted for wanted in located if wanted.entry.ref_count]):
            first = run[0].entry.offset
            data = file.read(first, run[-1].entry.offset + run[-1].entry.total_size - first)
            whole = []
            for wanted in run:
                start = wanted.entry.offset - first
                piece = data[start : start + wanted.entry.total_size]
                try:
                    parse_record(piece, wanted.message_id)
                except DamagedRecord:
                    self.damaged.append(wanted.message_id)
                    self.moves.append(Move(wanted, None))
                else:
                    whole.append(piece)
                    self.moves.append(Move(wanted, self.file_size))
                    self.file_size += len(piece)
            aside.append([data] if len(whole) == len(run) else whole)


def _neighbours(located: Sequence[Located]) -> Iterator[list[Located]]:
    """Runs of records without a gap between them."""
    run: list[Located] = []
    end = size = 0
    for one in located:
        if run and (one.entry.offset != end or size >= COPY_BLOCK):
            yield run
            run, size = [], 0
        run.append(one)
        end = one.entry.offset + one.entry.total_size
        size += one.entry.total_size
    if run:
        yield run


class DeleteJob:
    """Finds out which messages the index still locates in files of which nothing is wanted; `moves` tells them."""

    def __init__(self, lease: Lease, index: LocationIndex, files: Sequence[int]) -> None:
        self.files = tuple(files)
        self.moves: list[Move] = []
        self._lease = lease
        self._index = index

    def run(self) -> None:
        with self._lease.work():
            self.moves = [Move(located, None) for number in self.files for located in self._index.located_in(number)]


class UnlinkJob:
    """Deletes files that the index knows nothing of. May be run again after an OSError."""

    def __init__(self, lease: Lease, disk: Disk, directory: str, files: Sequence[int]) -> None:
        self.files = tuple(files)
        self._lease = lease
        self._disk = disk
        self._directory = directory

    def run(self) -> None:
        with self._lease.work():
            for number in self.files:
                path = f"{self._directory}/{file_name(number)}"
                if self._disk.exists(path):
                    self._disk.delete(path)
            self._disk.sync_dir(self._directory)
