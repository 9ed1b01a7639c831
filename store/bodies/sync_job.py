"""What a message store gathered, on its way to the disk in another thread: bytes first, then the sync, then the index that tells
where they are (section 11.2)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

import lmdb

from ..disk.disk import Disk, SyncFailed
from .combine import StoreBroken
from .lease import Lease
from .location_index import Changes, LocationIndex
from .rdq_file import file_name, record

RESERVED = 16 << 20
"""What a file will mostly hold."""


class FileAppend(NamedTuple):
    """Messages that go to the end of one file, which is `offset` bytes long by then; 0 begins the file."""

    file: int
    offset: int
    messages: list[tuple[bytes, bytes]]
    """(message id, message)"""


class SyncJob:
    """One write, one sync, one index commit. `run` may be called again after an OSError; not after StoreBroken.

    is_synced    False for a store whose content need not survive
    """

    def __init__(
        self,
        lease: Lease,
        disk: Disk,
        directory: str,
        index: LocationIndex,
        parts: Sequence[FileAppend],
        changes: Changes,
        is_synced: bool,
    ) -> None:
        self.parts = parts
        self._lease = lease
        self._disk = disk
        self._directory = directory
        self._index = index
        self._changes = changes
        self._is_synced = is_synced
        self._is_written = False

    def run(self) -> None:
        with self._lease.work():
            self._sync()

    def _sync(self) -> None:
        if not self._is_written:
            for part in self.parts:
                self._write(part)
            if self._is_synced and any(not part.offset for part in self.parts):
                try:
                    self._disk.sync_dir(self._directory)
                except OSError as error:
                    raise StoreBroken(f"message store {self._directory}: {error}") from error
            self._is_written = True
        try:
            self._index.commit(self._changes)
        except lmdb.Error as error:
            raise OSError(errno.EIO, f"index of message store {self._directory}: {error}") from error

    def _write(self, part: FileAppend) -> None:
        file = self._disk.open(f"{self._directory}/{file_name(part.file)}", create=not part.offset)
        try:
            if file.size() != part.offset:
                file.truncate(part.offset)  # what an attempt that failed has left
            if not part.offset:
                file.reserve(RESERVED)
            buffers = [buffer for message_id, message in part.messages for buffer in record(message_id, message)]
            if not self._is_synced:
                file.append(buffers)
                return
            try:
                file.append_synced(buffers)
            except SyncFailed as error:
                # The kernel may have dropped the pages: a second sync that succeeds would prove nothing.
                raise StoreBroken(f"message store {self._directory}, file {part.file}: {error}") from error
        finally:
            file.close()
