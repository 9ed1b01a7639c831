"""What a message store knows of its files without reading them: how large they are, and how much of that is still wanted.

Invariants, which `check` asserts: the sums are those of the rows (QS-26); left and right neighbours form one chain in the order
of the numbers, whose last file, the **current** one, is never locked (QS-27). Files are not numbered without gaps: combined and
deleted ones leave some.
"""

from __future__ import annotations

from dataclasses import dataclass

GARBAGE_FRACTION = 0.5


@dataclass
class FileRow:
    """Sizes in bytes. `locked`: it is being combined or deleted."""

    valid_total_size: int = 0
    file_size: int = 0
    left: int | None = None
    right: int | None = None
    locked: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing in it is wanted, and it may be deleted."""
        return not self.valid_total_size and not self.locked and self.right is not None


class FileSummary:
    """See the module. `changed` are the files whose rows differ from what was last committed."""

    def __init__(self, file_limit: int) -> None:
        self._file_limit = file_limit
        self.rows: dict[int, FileRow] = {}
        self.current = 0
        """Number of the file that is appended to; 0 before the first."""
        self.sum_valid_data = 0
        self.sum_file_size = 0
        self.changed: set[int] = set()
        self.emptied: set[int] = set()
        """Files that were found empty; whoever deletes them looks again."""

    def add(self, file: int, valid_total_size: int = 0, file_size: int = 0) -> None:
        """A file with a higher number than all others: the current one from now on."""
        assert file > self.current
        self.rows[file] = FileRow(valid_total_size, file_size, self.current or None)
        if self.current:
            left = self.rows[self.current]
            left.right = file
            self._note_empty(self.current, left)
        self.current = file
        self.sum_valid_data += valid_total_size
        self.sum_file_size += file_size
        self.changed.add(file)

    def appended(self, total_size: int) -> int:
        """A wanted record of that size goes to the end of the current file; returns its offset."""
        row = self.rows[self.current]
        offset = row.file_size
        row.file_size += total_size
        row.valid_total_size += total_size
        self.sum_file_size += total_size
        self.sum_valid_data += total_size
        self.changed.add(self.current)
        return offset

    def wanted(self, file: int, total_size: int) -> None:
        """A record of the file is wanted again."""
        self.rows[file].valid_total_size += total_size
        self.sum_valid_data += total_size
        self.changed.add(file)

    def unwanted(self, file: int, total_size: int) -> None:
        """A record of the file has become garbage."""
        row = self.rows[file]
        row.valid_total_size -= total_size
        self.sum_valid_data -= total_size
        self.changed.add(file)
        self._note_empty(file, row)

    def _note_empty(self, file: int, row: FileRow) -> None:
        if row.is_empty:
            self.emptied.add(file)

    def unlock(self, file: int) -> None:
        row = self.rows[file]
        row.locked = False
        self._note_empty(file, row)

    def resize(self, file: int, valid_total_size: int, file_size: int) -> None:
        """The file was written anew."""
        row = self.rows[file]
        self.sum_valid_data += valid_total_size - row.valid_total_size
        self.sum_file_size += file_size - row.file_size
        row.valid_total_size, row.file_size = valid_total_size, file_size
        self.changed.add(file)

    def remove(self, file: int) -> None:
        """The file is no more."""
        assert file != self.current
        self.resize(file, 0, 0)
        row = self.rows.pop(file)
        if row.left is not None:
            self.rows[row.left].right = row.right
        if row.right is not None:
            self.rows[row.right].left = row.left

    def take_emptied(self) -> list[int]:
        """Files to be deleted, in order."""
        emptied = sorted(file for file in self.emptied if file in self.rows and self.rows[file].is_empty)
        self.emptied.clear()
        return emptied

    def take_changed(self) -> dict[int, tuple[int, int] | None]:
        """file -> (valid total size, file size), None if it is gone, for each that changed since the last call."""
        changed = {
            file: (row.valid_total_size, row.file_size) if (row := self.rows.get(file)) else None
            for file in sorted(self.changed)
        }
        self.changed.clear()
        return changed

    def combinable(self) -> tuple[int, int] | None:
        """The oldest two neighbours worth combining into the older, section 6.7; None if there is too little garbage, or no such pair."""
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

    def check(self) -> None:
        """Assert QS-26 and QS-27, as far as files alone go."""
        assert self.sum_valid_data == sum(row.valid_total_size for row in self.rows.values())
        assert self.sum_file_size == sum(row.file_size for row in self.rows.values())
        assert all(0 <= row.valid_total_size <= row.file_size for row in self.rows.values())
        chain = [None, *sorted(self.rows), None]
        assert [(row.left, row.right) for _, row in sorted(self.rows.items())] == list(zip(chain, chain[2:]))
        assert not self.rows or self.current == max(self.rows) and not self.rows[self.current].locked
