"""What the journal of a virtual host contains, found by the code of recovery without changing a file."""

from __future__ import annotations

from ...store.data_dir.vhost_dir import JOURNAL
from ...store.disk.disk import File
from ...store.disk.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from ...store.journal.journal_file import file_number
from ...store.journal.replay import ReplayedFiles, replay_files


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
