"""A disk that cannot be changed: `warren store verify` reads a data directory through it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NoReturn

from .disk import Disk, File
from .real_disk import RealDisk, RealFile


class ReadOnlyFile(RealFile):
    """A file opened for reading only, so that the kernel refuses writes too and read-only file systems can be read."""

    def __init__(self, path: str) -> None:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._is_index = False
        self._open(path, os.O_RDONLY)

    def append(self, buffers: Sequence[bytes]) -> None:
        _refuse("append")

    def append_synced(self, buffers: Sequence[bytes]) -> None:
        _refuse("append")

    def truncate(self, size: int) -> None:
        _refuse("truncate")

    def sync(self) -> None:
        _refuse("sync")


class ReadOnlyDisk(RealDisk):
    """The existing directory `root` and everything below it. Whatever would change something raises OSError (EROFS)."""

    def __init__(self, root: str) -> None:
        self._root = root

    def open(self, path: str, create: bool = False) -> File:
        if create:
            _refuse(path)
        return ReadOnlyFile(self._path(path))

    def rename(self, old: str, new: str) -> None:
        _refuse(old)

    def delete(self, path: str) -> None:
        _refuse(path)

    def make_dir(self, path: str) -> None:
        _refuse(path)

    def remove_dir(self, path: str) -> None:
        _refuse(path)

    def sync_dir(self, path: str) -> None:
        _refuse(path)


def _refuse(what: str) -> NoReturn:
    raise OSError(errno.EROFS, "the disk was opened for reading only", what)


def file_size(disk: Disk, path: str) -> int:
    """Bytes in the file at `path`."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
