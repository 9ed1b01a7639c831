"""The interface between the engines of the store and the files they write: append, read at an offset, sync.

Nothing here caches or orders writes: an engine that needs an order syncs in between. An implementation promises:

- `File.append` writes at the file's end. When `File.sync` returns, everything appended before survives a power cut
  *if the file's name does*: a new, renamed or deleted name is durable after `sync_dir` of its directory.
- Errors are the operating system's own (`OSError`: ENOSPC, EIO, EROFS …). After a failed `sync`, or `SyncFailed`,
  nothing is known about bytes that were not synced before: the kernel may have dropped them.

`real_disk.RealDisk` is the disk of a node. `faulty_disk.FaultyDisk` keeps exactly these promises and no more.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import lmdb

from .job_guards import JobGuards

#: What files and LMDB raise when a disk is full, read-only or broken.
REFUSALS = (OSError, lmdb.Error)

#: Ending of a directory's name while the directory is being deleted.
TOMBSTONE = ".deleted"


class SyncFailed(OSError):
    """The appended bytes may be in the file but are not synced, or it is unknown whether write or sync failed."""


class File(ABC):
    """An open file: one writer at a time, reads at any time and from any thread."""

    @abstractmethod
    def append(self, buffers: Sequence[bytes]) -> None:
        """Write `buffers` one after the other at the end. After an error the tail is undefined: `truncate` it."""

    def append_synced(self, buffers: Sequence[bytes]) -> None:
        """`append` and `sync`, in one system call where there is one.

        After an error other than SyncFailed the caller may cut the file to its former size and write again.
        """
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

    def reserve(self, size: int) -> None:  # noqa: B027 a disk without preallocation ignores the hint
        """Hint that the file will grow to `size` bytes, so that later syncs are faster. Never raises."""

    def allocate(self, size: int) -> None:
        """Make an empty file `size` bytes long, with disk space for all of them. Raises OSError if there is none."""
        self.append([bytes(size)])

    @abstractmethod
    def sync(self) -> None:
        """Make appended bytes and cuts durable."""

    @abstractmethod
    def close(self) -> None:
        """Close the file without syncing it."""


class Disk(ABC):
    """A tree of files. Paths are relative to its root and use `/`."""

    @abstractmethod
    def open(self, path: str, create: bool = False) -> File:
        """Open for appending and reading. Without `create` a missing file raises FileNotFoundError."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory has that name."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces a file of the new name."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; a missing one raises FileNotFoundError."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if the directory does not exist."""

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Create a directory and its missing parents, durably."""

    @abstractmethod
    def remove_dir(self, path: str) -> None:
        """Remove a directory and everything in it. Not atomic: `delete_tree` is (QS-23)."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and deleted in a directory durable."""

    @cached_property
    def guards(self) -> JobGuards:
        """The guards of the jobs that write files for processes."""
        return JobGuards()

    def full_path(self, path: str) -> str:
        """The path as log lines and error texts show it."""
        return path

    @abstractmethod
    def free_space(self) -> int:
        """Bytes of free space."""

    def delete_tree(self, path: str) -> None:
        """Remove a directory all or nothing (QS-23); a no-op when it does not exist.

        The directory is first renamed to a tombstone, which the next start removes if a crash comes in between.
        """
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
        """At start, finish the deletions in a directory that a crash interrupted."""
        for name in self.list(path):
            if name.endswith(TOMBSTONE):
                self.remove_dir(f"{path}/{name}")
