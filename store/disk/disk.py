"""Files as the engines of this room want them: appended to, read at an offset, synced when it matters.

Nothing here caches or orders: whoever needs an order syncs in between. What is promised:

- `File.append` and `File.sync` act at the file's end; after `sync` returned, everything appended before survives a power cut,
  *if the file's name does*: a new, renamed or deleted name is durable after `sync_dir` of its directory.
- Errors are the operating system's own (`OSError`: ENOSPC, EIO, EROFS …). After a failed `sync`, or `SyncFailed`, nothing may be assumed
  about what was not synced before; the kernel may have dropped it.

`faulty_disk.FaultyDisk` keeps exactly these promises and no more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import lmdb

REFUSALS = (OSError, lmdb.Error)
"""What a disk says that is full, read-only or broken, to files and to LMDB."""

WRITEV_MOST = 1024
"""IOV_MAX of Linux."""


class SyncFailed(OSError):
    """What was appended may be in the file, and it could not be synced; or which of the two failed cannot be told."""


class File(ABC):
    """An open file; one writer at a time, reads at any time and from any thread."""

    @abstractmethod
    def append(self, buffers: Sequence[bytes]) -> None:
        """Write `buffers` one after the other at the end. After an error the tail is undefined: `truncate`."""

    def append_synced(self, buffers: Sequence[bytes]) -> None:
        """`append` and `sync`, which may be one call. After an error that is not SyncFailed it may be cut off and written again."""
        self.append(buffers)
        self._sync_appended()

    def _sync_appended(self) -> None:
        try:
            self.sync()
        except OSError as error:
            raise SyncFailed(*error.args) from error

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def size(self) -> int:
        """Bytes in the file, synced or not."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""

    def reserve(self, size: int) -> None:  # noqa: B027 a disk that has no use for the hint need not say so
        """The file is going to be so large: a hint, which nobody can see but in the time that later syncs take. Never raises."""

    @abstractmethod
    def sync(self) -> None:
        """Make what was appended or cut durable (fdatasync)."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file. Does not sync."""


class Disk(ABC):
    """A tree of files. Paths are relative, with `/`."""

    @abstractmethod
    def open(self, path: str, create: bool = False) -> File:
        """Open for appending and reading. Without `create` a missing file raises FileNotFoundError."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory has that name."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces a file of the new name."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; a missing one raises FileNotFoundError."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if there is none."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Create a directory and those above it; durable when it returns."""

    @abstractmethod
    def remove_dir(self, path: str) -> None:
        """Remove a directory with all in it; not atomic, so rename it to a tombstone before (QS-23)."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and deleted in a directory durable."""

    def full_path(self, path: str) -> str:
        """The path as people are told it."""
        return path

    @abstractmethod
    def free_space(self) -> int:
        """Bytes that may still be written."""

    def delete_tree(self, path: str) -> None:
        """Remove a directory all or nothing (QS-23); a no-op when there is none."""
        if not self.exists(path):
            return
        parent = os.path.dirname(path)
        tombstone = path + TOMBSTONE
        if self.exists(tombstone):
            self.remove_dir(tombstone)
        self.rename(path, tombstone)
        self.sync_dir(parent)
        self.remove_dir(tombstone)

    def sweep_tombstones(self, path: str) -> None:
        """At start: finish the deletions that a crash interrupted."""
        for name in self.list(path):
            if name.endswith(TOMBSTONE):
                self.remove_dir(f"{path}/{name}")


TOMBSTONE = ".deleted"


_KEEP_SIZE = 1


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's fallocate, which the standard library has without its modes; None where there is none."""
    try:
        function = ctypes.CDLL(None).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Callable[[int, int, int, int], int] = function
    return found


_fallocate = _find_fallocate()

_FUSE = 0x65735546


def _is_in_userspace(path: str) -> bool:
    """Whether a program serves the file system (FUSE): it may take a synced write for any other, and hear of `fdatasync` alone."""
    found = ctypes.create_string_buffer(256)
    return ctypes.CDLL(None).statfs(os.fsencode(path), found) == 0 and ctypes.c_long.from_buffer(found).value == _FUSE


_DSYNC = getattr(os, "RWF_DSYNC", 0)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class RealFile(File):
    """A file of the operating system. `has_synced_writes`: a write may be told to sync what it wrote."""

    def __init__(self, path: str, create: bool, has_synced_writes: bool = False) -> None:
        self._has_synced_writes = has_synced_writes
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_APPEND | (os.O_CREAT if create else 0), 0o640)

    def append(self, buffers: Sequence[bytes]) -> None:
        for start in range(0, len(buffers), WRITEV_MOST):
            pieces = buffers[start : start + WRITEV_MOST]
            self._append_rest(pieces, os.writev(self._fd, pieces))

    def _append_rest(self, pieces: Sequence[bytes], written: int) -> None:
        if written < sum(map(len, pieces)):
            # A short write happens at the edge of a full disk or with more than 2 GiB; the rest raises or fits.
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def append_synced(self, buffers: Sequence[bytes]) -> None:
        if not self._has_synced_writes or len(buffers) > WRITEV_MOST:
            super().append_synced(buffers)
            return
        # One call instead of two: between them the thread would wait for the interpreter, which the event loop has. W4 gains a seventh.
        try:
            written = os.pwritev(self._fd, buffers, 0, _DSYNC)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            if error.errno not in _NO_SUCH_FLAG:
                raise SyncFailed(*error.args) from error
            self._has_synced_writes = False  # an old kernel, or a sandbox
            super().append_synced(buffers)
            return
        if written < sum(map(len, buffers)):
            self._append_rest(buffers, written)
            self._sync_appended()

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) < size:
            pieces = [data]
            while data:
                offset += len(data)
                size -= len(data)
                data = os.pread(self._fd, size, offset) if size else b""
                pieces.append(data)
            return b"".join(pieces)
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        # Blocks beyond the end are found and charged to the file now, not within every sync: 1 MB written and synced took 0.65 ms instead of 3 ms (ext4).
        if _fallocate is None:
            return
        space, here = os.fstatvfs(self._fd), os.fstat(self._fd)
        # Where there is not so much room the attempt would, until it fails, take what there is from whoever writes meanwhile.
        if space.f_bavail * space.f_frsize >= size - here.st_blocks * 512:
            _fallocate(self._fd, _KEEP_SIZE, 0, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class RealDisk(Disk):
    """The directory `root` and what is beneath."""

    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, exist_ok=True)
        self._has_synced_writes = bool(_DSYNC) and not _is_in_userspace(root)

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path)

    def full_path(self, path: str) -> str:
        return self._path(path)

    def open(self, path: str, create: bool = False) -> File:
        return RealFile(self._path(path), create, self._has_synced_writes)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._path(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

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
        fd = os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_space(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize
