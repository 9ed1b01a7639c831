"""The table of a message store's files: how large each is, and how many of its bytes queues still refer to.

`check` asserts the invariants. `sum_valid_data` and `sum_file_size` are the sums over all rows (QS-26). Left and right
neighbours form one chain in the order of the file numbers; its last file, the **current** one, is never locked (QS-27).
The numbers have gaps where files were combined or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .location_index import BodyLocation

#: Share of garbage in all files above which files are combined.
GARBAGE_FRACTION = 0.5


@dataclass
class FileSummaryRow:
    """Sizes are in bytes; a locked file is being combined or deleted."""

    valid_total_size: int = 0
    file_size: int = 0
    left: int | None = None
    right: int | None = None
    locked: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the file has no wanted body and may be deleted."""
        return not self.valid_total_size and not self.locked and self.right is not None


class FileSummary:
    """See the module. `changed` are the files whose rows differ from the last commit."""

    def __init__(self, file_limit: int) -> None:
        self._file_limit = file_limit
        self.rows: dict[int, FileSummaryRow] = {}
        #: Number of the file to which records are appended; 0 before the first.
        self.current = 0
        self.sum_valid_data = 0
        self.sum_file_size = 0
        self.changed: set[int] = set()
        #: Files that became empty. A queue may have written a body in one of them again since, so that the body is
        #: wanted: `take_emptied` tests these files once more.
        self.emptied: set[int] = set()

    def add(self, file: int, valid_total_size: int = 0, file_size: int = 0) -> None:
        """Add a file with a higher number than all others. It becomes the current one."""
        assert file > self.current
        self.rows[file] = FileSummaryRow(valid_total_size, file_size, self.current or None)
        if self.current:
            left = self.rows[self.current]
            left.right = file
            self._note_empty(self.current, left)
        self.current = file
        self.sum_valid_data += valid_total_size
        self.sum_file_size += file_size
        self.changed.add(file)

    def appended(self, total_size: int) -> int:
        """Count a wanted record of that size at the end of the current file. Returns its offset."""
        row = self.rows[self.current]
        offset = row.file_size
        row.file_size += total_size
        row.valid_total_size += total_size
        self.sum_file_size += total_size
        self.sum_valid_data += total_size
        self.changed.add(self.current)
        return offset

    def wanted(self, file: int, total_size: int) -> None:
        """Count a record of the file as wanted again."""
        self.rows[file].valid_total_size += total_size
        self.sum_valid_data += total_size
        self.changed.add(file)

    def unwanted(self, file: int, total_size: int) -> None:
        """Count a record of the file as garbage."""
        row = self.rows[file]
        row.valid_total_size -= total_size
        self.sum_valid_data -= total_size
        self.changed.add(file)
        self._note_empty(file, row)

    def _note_empty(self, file: int, row: FileSummaryRow) -> None:
        if row.is_empty:
            self.emptied.add(file)

    def unlock(self, file: int) -> None:
        row = self.rows[file]
        row.locked = False
        self._note_empty(file, row)

    def resize(self, file: int, valid_total_size: int, file_size: int) -> None:
        """Set the sizes of a file that was replaced."""
        row = self.rows[file]
        self.sum_valid_data += valid_total_size - row.valid_total_size
        self.sum_file_size += file_size - row.file_size
        row.valid_total_size, row.file_size = valid_total_size, file_size
        self.changed.add(file)

    def remove(self, file: int) -> None:
        """Remove a file that is deleted or was combined into another."""
        assert file != self.current
        self.resize(file, 0, 0)
        row = self.rows.pop(file)
        if row.left is not None:
            self.rows[row.left].right = row.right
        if row.right is not None:
            self.rows[row.right].left = row.left

    def take_emptied(self) -> list[int]:
        """The files to delete, in order."""
        emptied = sorted(file for file in self.emptied if file in self.rows and self.rows[file].is_empty)
        self.emptied.clear()
        return emptied

    def take_changed(self) -> dict[int, tuple[int, int] | None]:
        """The files that changed since the last call: number -> (valid total size, file size), None for a removed
        file.
        """
        changed = {
            file: (row.valid_total_size, row.file_size) if (row := self.rows.get(file)) else None
            for file in sorted(self.changed)
        }
        self.changed.clear()
        return changed

    def combinable(self) -> tuple[int, int] | None:
        """The oldest neighbours to combine (queue-and-store section 6.7).

        None if there is too little garbage or no such pair.
        """
        garbage = self.sum_file_size - self.sum_valid_data
        if self.sum_file_size <= 2 * self._file_limit or garbage <= GARBAGE_FRACTION * self.sum_file_size:
            return None
        file: int | None = min(self.rows)
        while file is not None and (right := self.rows[file].right) is not None and right != self.current:
            older, younger = self.rows[file], self.rows[right]
            if (
                not older.locked
                and not younger.locked
                and older.valid_total_size
                and younger.valid_total_size
                and older.valid_total_size + younger.valid_total_size <= self._file_limit
            ):
                return file, right
            file = right
        return None

    def check(self, entries: Iterable[BodyLocation]) -> None:
        """Assert QS-26, QS-27 and QS-29: sums, chain, and that every entry leads into a file."""
        assert self.sum_valid_data == sum(row.valid_total_size for row in self.rows.values())
        assert self.sum_file_size == sum(row.file_size for row in self.rows.values())
        assert all(0 <= row.valid_total_size <= row.file_size for row in self.rows.values())
        chain = [None, *sorted(self.rows), None]
        assert [(row.left, row.right) for _, row in sorted(self.rows.items())] == list(zip(chain, chain[2:]))
        assert not self.rows or self.current == max(self.rows) and not self.rows[self.current].locked
        valid = dict.fromkeys(self.rows, 0)
        for entry in entries:
            assert entry.offset + entry.total_size <= self.rows[entry.file].file_size
            if entry.ref_count:
                valid[entry.file] += entry.total_size
        assert valid == {file: row.valid_total_size for file, row in self.rows.items()}
