"""The disk of a node: files of the operating system below one directory. `system/` has what differs between systems."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter
from weakref import WeakValueDictionary

from .disk import Disk, File, SyncFailed
from .job_guards import JobGuards
from .operations import file_operations
from .system.directory_sync import sync_directory
from .system.file_sync import sync_file
from .system.positioned_access import BINARY, MAX_WRITEV_BUFFERS, Access
from .system.preallocation import allocate_blocks, reserve_blocks
from .system.synced_write import DISK_FULL, UNSUPPORTED, has_synced_writes, write_synced

#: By directory: the guards of its jobs. A virtual host that starts again has another `RealDisk` of the same directory.
_GUARDS: WeakValueDictionary[str, JobGuards] = WeakValueDictionary()


class RealFile(File):
    """A file of the operating system. `has_synced_writes`: one call may append and sync (see `synced_write`).

    It is closed when nothing refers to it any more, if not before. A process that crashes, or ends with its virtual
    host, cannot close its file itself: a job in another thread may still use the descriptor.
    """

    _fd = -1

    def __init__(self, path: str, create: bool, has_synced_writes: bool = False) -> None:
        self._has_synced_writes = has_synced_writes
        self._is_index = path.endswith(".idx")
        self._open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))

    def _open(self, path: str, flags: int) -> None:
        self._fd = os.open(path, flags | BINARY, 0o640)
        self._access = Access(self._fd)

    def append(self, buffers: Sequence[bytes]) -> None:
        began = perf_counter()
        self._access.append(buffers)
        file_operations.count_write(began, self._is_index)

    def append_synced(self, buffers: Sequence[bytes]) -> None:
        if not self._has_synced_writes or len(buffers) > MAX_WRITEV_BUFFERS:
            super().append_synced(buffers)
            return
        began = perf_counter()
        try:
            written = write_synced(self._fd, buffers)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise
            if error.errno not in UNSUPPORTED:
                raise SyncFailed(*error.args) from error
            self._has_synced_writes = False
            super().append_synced(buffers)
            return
        file_operations.count_write(began, self._is_index)
        if written < sum(map(len, buffers)):
            self._access.append_rest(buffers, written)
            self._sync_appended()

    def read(self, offset: int, size: int) -> bytes:
        began = perf_counter()
        data = self._access.read(offset, size)
        file_operations.count_read(began, self._is_index)
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        reserve_blocks(self._fd, size)

    def allocate(self, size: int) -> None:
        allocate_blocks(self._fd, size)

    def sync(self) -> None:
        sync_file(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class RealDisk(Disk):
    """The directory `root`, which is made if it is missing, and everything below it."""

    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, exist_ok=True)
        self._has_synced_writes = has_synced_writes(root)

    @cached_property
    def guards(self) -> JobGuards:
        return _GUARDS.setdefault(self._root, JobGuards())

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path)

    def full_path(self, path: str) -> str:
        return self._path(path)

    def open(self, path: str, create: bool = False) -> File:
        return RealFile(self._path(path), create, self._has_synced_writes)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._path(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def delete(self, path: str) -> None:
        os.unlink(self._path(path))

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except FileNotFoundError:
            return []

    def make_dir(self, path: str) -> None:
        made = ""
        for name in path.split("/"):
            parent, made = made, f"{made}/{name}" if made else name
            if not os.path.isdir(self._path(made)):
                os.mkdir(self._path(made), 0o750)
                self.sync_dir(parent)

    def remove_dir(self, path: str) -> None:
        shutil.rmtree(self._path(path))

    def sync_dir(self, path: str) -> None:
        sync_directory(self._path(path))

    def free_space(self) -> int:
        return shutil.disk_usage(self._root).free
