"""A disk in memory that keeps the promises of `disk.Disk` and no more, for tests and the simulation.

`crash(random)` is a power cut. `random` decides what happens to each piece that was not synced:

- an append survives, is lost, is torn (a prefix survives), or leaves zeros (its size reached the disk, its data did
  not). A later append may survive behind one that left zeros;
- a change of a directory (create, rename, delete) is kept or undone.

After a sync that failed with an OSError, the bytes that it should have written never reach the disk, as with the page
cache of Linux: later syncs succeed without them. They can be read until the power cut, which leaves zeros.

`kill()` ends the process alone: everything written survives. Both make open files unusable.

`fail_after(operations, error)` makes one operation raise: the next one if `operations` is 1, the one after it if it is
2, and so on. `EROFS` lasts: all operations after it raise as well, until `heal`. With `Crash` as the error the program
stops there, as at a power cut. `limit` bounds the bytes in all files (ENOSPC).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from random import Random

from .disk import Disk, File


class Crash(BaseException):
    """The machine stops here. It derives from BaseException, so that no engine catches it."""


class _Content:
    """The content of a file: `data` as the process sees it, `durable` as of the last sync, `tail` the appends since."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.tail: list[bytes] = []
        self.was_cut = False
        #: Parts of `data` that a failed sync has lost, from the first offset to before the second.
        self.lost: list[tuple[int, int]] = []

    def sync(self) -> None:
        self.durable = self._written()
        self.tail = []
        self.was_cut = False

    def lose(self) -> None:
        """Note that a sync failed: what is not on the disk never gets there."""
        same = len(os.path.commonprefix([self.durable, bytes(self.data)]))
        self.lost.append((same, len(self.data)))
        self.tail = [bytes(len(piece)) for piece in self.tail]

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.data += bytes(size - len(self.data))
        self.was_cut = True
        self.lost = [(start, min(end, size)) for start, end in self.lost if start < size]

    def _written(self) -> bytes:
        """What a sync that succeeds leaves on the disk."""
        written = bytearray(self.data)
        for start, end in self.lost:
            written[start:end] = bytes(end - start)
        return bytes(written)

    def after_crash(self, random: Random) -> bytes:
        if self.was_cut and random.random() < 0.5:
            return self._written()  # the truncation, and everything after it, reached the disk
        kept = bytearray(self.durable)
        for piece in self.tail if not self.was_cut else ():
            fate = random.choice(("kept", "kept", "lost", "torn", "zeros"))
            if fate == "kept":
                kept += piece
            elif fate == "torn":
                kept += piece[: random.randint(0, len(piece))]
                break
            elif fate == "zeros":
                kept += bytes(len(piece))
            else:
                break
        return bytes(kept)


class _OpenFile(File):
    def __init__(self, disk: FaultyDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._life = disk.life

    def _use(self) -> _Content:
        assert self._life == self._disk.life, "the process that opened this file was killed"
        return self._content

    def append(self, buffers: Sequence[bytes]) -> None:
        content = self._use()
        data = b"".join(buffers)
        room = self._disk.free_space()
        try:
            self._disk.step("append")
        except OSError:
            room = min(room, len(data) // 2)  # an append that fails has written a part
            content.data += data[:room]
            content.tail.append(data[:room])
            raise
        content.data += data[:room]
        content.tail.append(data[:room])
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._use().data[offset : offset + size])

    def size(self) -> int:
        return len(self._use().data)

    def truncate(self, size: int) -> None:
        content = self._use()
        self._disk.step("truncate")
        if size != len(content.data):
            content.cut(size)

    def sync(self) -> None:
        content = self._use()
        try:
            self._disk.step("sync")
        except OSError:
            content.lose()
            raise
        content.sync()
        self._disk.syncs += 1

    def close(self) -> None:
        self._use()


class FaultyDisk(Disk):
    """`syncs` counts syncs of files, `operations` every operation that can fail, `life` how often it was killed."""

    def __init__(self, limit: int | None = None) -> None:
        self.life = 0
        self.operations = 0
        self.syncs = 0
        self.limit = limit
        self._names: dict[str, _Content] = {}
        self._durable_names: dict[str, _Content] = {}
        self._changes: list[tuple[str, str, Callable[[dict[str, _Content]], None]]] = []
        self._dirs: set[str] = {""}
        self._fail_at: int | None = None
        self._error: BaseException | None = None
        #: Held while names change, because the threads of a node that is not simulated share the disk.
        self._lock = threading.Lock()

    # -- faults ---

    def fail_after(self, operations: int, error: BaseException) -> None:
        """Have the operation number `operations` from now on, counted from 1, raise `error`. Only `EROFS` lasts, until
        `heal`.
        """
        self._fail_at = self.operations + operations
        self._error = error

    def heal(self) -> None:
        """Have all operations succeed again."""
        self._fail_at = self._error = None

    def step(self, kind: str) -> None:
        """Count an operation, and raise if it is the one to fail. `kind` is for subclasses that stop or fail operations
        of one kind, such as `append` or `sync`; all kinds count alike here.
        """
        self.operations += 1
        if self._fail_at is None or self.operations < self._fail_at or self._error is None:
            return
        if not (isinstance(self._error, OSError) and self._error.errno == errno.EROFS):
            self._fail_at = None
        raise self._error

    def kill(self) -> None:
        """End the process, while the machine goes on, so that whatever was written stays."""
        self.life += 1
        self.heal()

    def crash(self, random: Random) -> None:
        """Cut the power."""
        self.kill()
        names = dict(self._durable_names)
        for _, _, change in self._changes:
            if random.random() < 0.6:
                change(names)
        survivors: dict[int, _Content] = {}
        for content in names.values():
            if id(content) not in survivors:
                survivors[id(content)] = _Content(content.after_crash(random))
        self._names = {name: survivors[id(content)] for name, content in names.items()}
        self._durable_names = dict(self._names)
        self._changes = []
        self._dirs.update(name[:at] for name in names for at, letter in enumerate(name) if letter == "/")

    # -- the interface ---

    def open(self, path: str, create: bool = False) -> File:
        content = self._names.get(path)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._check_dir(path)
            self.step("create")
            content = _Content()
            made = content
            self._change(os.path.dirname(path), "", lambda names: names.__setitem__(path, made))
        return _OpenFile(self, content)

    def _check_dir(self, path: str) -> None:
        if os.path.dirname(path) not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _change(self, directory: str, other: str, change: Callable[[dict[str, _Content]], None]) -> None:
        with self._lock:
            change(self._names)
            self._changes.append((directory, other, change))

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._dirs

    def rename(self, old: str, new: str) -> None:
        if not self.exists(old):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.step("rename")
        is_dir = old in self._dirs
        if is_dir:
            moved = {name for name in self._dirs if name == old or name.startswith(old + "/")}
            self._dirs |= {new + name[len(old) :] for name in moved}

        def change(names: dict[str, _Content]) -> None:
            for name in [n for n in names if n == old or is_dir and n.startswith(old + "/")]:
                names[new + name[len(old) :]] = names.pop(name)

        self._change(os.path.dirname(old), os.path.dirname(new), change)
        if is_dir:
            # A crash does not bring back the old directory, which is empty: nothing depends on it.
            self._dirs -= moved

    def delete(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.step("delete")

        def change(names: dict[str, _Content]) -> None:
            names.pop(path, None)

        self._change(os.path.dirname(path), "", change)

    def list(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        found = [*self._names, *self._dirs]
        return sorted(
            {name[len(prefix) :].split("/")[0] for name in found if name.startswith(prefix) and name != path} - {""}
        )

    def make_dir(self, path: str) -> None:
        parts = path.split("/")
        self._dirs.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))

    def remove_dir(self, path: str) -> None:
        for name in [name for name in self._names if name.startswith(path + "/")]:
            self.delete(name)
        self._dirs = {name for name in self._dirs if name != path and not name.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        self.step("sync_dir")
        left = []
        with self._lock:
            for entry in self._changes:
                if path in entry[:2]:
                    entry[2](self._durable_names)
                else:
                    left.append(entry)
            self._changes = left

    def free_space(self) -> int:
        if self.limit is None:
            return 1 << 62
        return max(0, self.limit - self.held)

    @property
    def held(self) -> int:
        """Bytes in all files."""
        return sum(len(content.data) for content in self._names.values())
