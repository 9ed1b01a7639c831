"""The jobs that collect the garbage of a message store in another thread (queue-and-store section 6.7, 6.9).

A body is **wanted** while any queue refers to it. A file without wanted bodies is deleted; two neighbouring files
whose wanted bodies fit into one are combined. `garbage_collection` takes both through the same stations:

| station    | where  | state |
|------------|--------|-------|
| planned    | owner  | The files are locked. An unwanted body in them stays so: a write of it appends a new copy. |
| ready      |        | An index commit holds every change up to the lock, and the intent to combine or delete. |
| running    | thread | See the jobs below. |
| applied    | owner  | Each body that has not moved meanwhile has its new place, or is dropped. No file is locked. |
| unlinkable |        | One index commit holds all new places, and no intent. |
| running    | thread | `UnlinkJob` deletes the files that the index no longer names. |

`CombineJob` copies the wanted records of both files to `<older>.rdt`, syncs it, and renames it over `<older>.rdq`;
the younger file is unlinked later. `DeleteJob` reads from the index which bodies it still locates in the files.

No body is lost (QS-31): a record that is wanted when the new places are applied was wanted all the time since the
lock, so each state that the index committed in between shows it, so it was copied. A kill before the rename leaves
both files as they were, and an `.rdt` that the next start deletes. After a kill between rename and commit, the intent
makes the start drop all places in both files and scan them. After the commit the younger file has copies only.

Removals need not wait for a locked file: a body that becomes unwanted meanwhile is copied, and is garbage in the new
file. Reads need not wait either: the owner keeps the file that it reads from open, and a replaced or deleted file
stays readable through that descriptor with the same bytes (QS-28).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...seams import seam
from ..disk.disk import Disk, File
from .location_index import Located, LocationIndex
from .owner_lock import OwnerLock
from .rdq_file import ASIDE_SUFFIX, DamagedRecord, file_name, parse_record

#: Neighbouring records are copied together, up to about this many bytes.
COPY_BLOCK = 1 << 20


class StoreBroken(Exception):
    """It is unknown which bytes reached the disk. The store must not write any more; the next start recovers it."""


class Move(NamedTuple):
    """A body that was `located` in a file; its record is now at `offset` of the combined file, or dropped (None)."""

    located: Located
    offset: int | None


class CombineJob:
    """Writes the combined file and renames it over the older one. Afterwards `moves`, `file_size` and `damaged` are
    its result.

    `run` raises OSError if the files are unchanged, StoreBroken if it is unknown whether the rename is durable.
    """

    def __init__(
        self, owner_lock: OwnerLock, disk: Disk, directory: str, index: LocationIndex, older: int, younger: int
    ) -> None:
        self.files = older, younger
        self.file_size = 0
        self.moves: list[Move] = []
        #: Ids of wanted records that could not be read back; the combined file lacks them.
        self.damaged: list[bytes] = []
        self._owner_lock = owner_lock
        self._disk = disk
        self._directory = directory
        self._index = index

    def run(self) -> None:
        with self._owner_lock.work():
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
                    self.moves.append(Move(wanted, self._next_offset()))
                    self.file_size += len(piece)
            aside.append([data] if len(whole) == len(run) else whole)

    @seam("where a moved body is")
    def _next_offset(self) -> int:
        """Where in the combined file the next record begins."""
        return self.file_size


def _neighbours(located: Sequence[Located]) -> Iterator[list[Located]]:
    """Groups of records without a gap between them."""
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
    """Reads which bodies the index still locates in files without wanted bodies. Afterwards `moves` is its result."""

    def __init__(self, owner_lock: OwnerLock, index: LocationIndex, files: Sequence[int]) -> None:
        self.files = tuple(files)
        self.moves: list[Move] = []
        self._owner_lock = owner_lock
        self._index = index

    def run(self) -> None:
        with self._owner_lock.work():
            self.moves = [Move(located, None) for number in self.files for located in self._index.located_in(number)]


class UnlinkJob:
    """Deletes files that the index no longer names. May be run again after an OSError."""

    def __init__(self, owner_lock: OwnerLock, disk: Disk, directory: str, files: Sequence[int]) -> None:
        self.files = tuple(files)
        self._owner_lock = owner_lock
        self._disk = disk
        self._directory = directory

    def run(self) -> None:
        with self._owner_lock.work():
            for number in self.files:
                path = f"{self._directory}/{file_name(number)}"
                if self._disk.exists(path):
                    self._disk.delete(path)
            self._disk.sync_dir(self._directory)
