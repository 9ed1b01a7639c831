"""The job that writes what a message store has gathered, in another thread (queue-and-store section 11.2).

It appends the records, syncs the files, and commits the index that locates the records, in this order: a committed
place always leads to a record that is on disk.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

import lmdb

from ..disk.disk import Disk, File, SyncFailed
from .combine import StoreBroken
from .location_index import Changes, LocationIndex
from .owner_lock import OwnerLock
from .rdq_file import file_name, record

#: Bytes of disk space reserved for a new file, which is about what it will hold.
RESERVED = 16 << 20


class FileAppend(NamedTuple):
    """The (message id, message) pairs to append to one file, at `offset`. An offset of 0 creates the file."""

    file: int
    offset: int
    messages: list[tuple[bytes, bytes]]


class CurrentFile:
    """The file to which the last job has appended. It stays open for the next one: to open it, look at its size and
    close it has the thread of a job wait for the interpreter three times more. One job at a time uses it.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self._number = 0
        self._file: File | None = None

    def opened(self, part: FileAppend) -> File:
        """The file of `part`, which has `part.offset` bytes."""
        if self._file is None or self._number != part.file:
            self.close()
            self._file = file = self.disk.open(f"{self.directory}/{file_name(part.file)}", create=not part.offset)
            self._number = part.file
            if file.size() != part.offset:
                file.truncate(part.offset)  # cut off the bytes of an attempt that failed
            if not part.offset:
                file.reserve(RESERVED)
        return self._file

    def close(self) -> None:
        """Close the file, if one is open. The next job opens it again, and looks at its size."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class SyncJob:
    """One write, one sync, one index commit. `run` may be called again after an OSError, not after StoreBroken.

    is_synced    False for a store whose content does not outlive the node
    """

    def __init__(
        self,
        owner_lock: OwnerLock,
        current: CurrentFile,
        index: LocationIndex,
        parts: Sequence[FileAppend],
        changes: Changes,
        is_synced: bool,
    ) -> None:
        self.parts = parts
        self._owner_lock = owner_lock
        self._current = current
        self._index = index
        self._changes = changes
        self._is_synced = is_synced
        self._is_written = False

    def run(self) -> None:
        with self._owner_lock.work():
            self._sync()

    def _sync(self) -> None:
        if not self._is_written:
            for part in self.parts:
                self._write(part)
            if self._is_synced and any(not part.offset for part in self.parts):
                try:
                    self._current.disk.sync_dir(self._current.directory)
                except OSError as error:
                    raise StoreBroken(f"message store {self._current.directory}: {error}") from error
            self._is_written = True
        try:
            self._index.commit(self._changes)
        except lmdb.Error as error:
            raise OSError(errno.EIO, f"index of message store {self._current.directory}: {error}") from error

    def _write(self, part: FileAppend) -> None:
        buffers = [buffer for message_id, message in part.messages for buffer in record(message_id, message)]
        try:
            file = self._current.opened(part)
            if self._is_synced:
                file.append_synced(buffers)
            else:
                file.append(buffers)
        except SyncFailed as error:
            # The kernel may have dropped the pages, so a second sync that succeeds would prove nothing.
            raise StoreBroken(f"message store {self._current.directory}, file {part.file}: {error}") from error
        except BaseException:
            self._current.close()
            raise
