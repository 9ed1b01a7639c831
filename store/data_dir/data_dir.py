"""A broker's data directory: what is where, who may use it.

    format                        'warren data directory' and 'format <n>', a line each
    lock                          locked (flock) while a broker uses the directory; says which one
    metadata/                     LMDB: vhosts, exchanges, queues, bindings (`metadata_store`)
    vhosts/<id>/                  id: 32 hex digits of the name's BLAKE2 digest, so any name is a file name
        name                      the vhost's name in UTF-8, for people
        ...                       its messages (`vhost_dir`)

`claim` is the only way in. It refuses, with a `DataDirError` that says what, why and the way out: a directory in use, one of a newer format, one that is not warren's,
one that cannot be written, one that has lost its metadata. The lock is the kernel's and ends with the process, however that ends; what is written in `lock` only names
the holder. A directory becomes warren's by its `format` file, which is written last and whole: a crash before that leaves only names that `claim` knows.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from ..disk.damage_log import say_foreign
from ..disk.disk import RealDisk

FORMAT = 2
"""The format written, and the newest one that can be read. In format 1 every message had its queue's own id (`message_ids`): it is read, and claiming it makes it format 2."""

_TITLE = "warren data directory"
_FORMAT_NAME, _FORMAT_TEMPORARY, _LOCK_NAME = "format", "format.new", "lock"
_UNFINISHED = {_LOCK_NAME, _FORMAT_TEMPORARY}
_HARMLESS = {"lost+found"}  # a file system of its own has one at its root
_SHOWN_MOST = 3


class DataDirError(Exception):
    """The directory cannot be used; the text says what, why and the way out."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths of a data directory. Makes and checks nothing."""

    path: str

    @property
    def metadata(self) -> str:
        return f"{self.path}/metadata"

    @property
    def vhosts(self) -> str:
        return f"{self.path}/vhosts"

    def vhost(self, name: str) -> str:
        """The directory of the virtual host, the same after every restart."""
        return f"{self.vhosts}/{vhost_id(name)}"

    def make_vhost(self, name: str) -> str:
        """That directory, there and durably so when this returns; one that exists stays as it is. Raises OSError."""
        path = self.vhost(name)
        RealDisk(self.path).make_dir(f"vhosts/{vhost_id(name)}")
        if not os.path.exists(f"{path}/name"):
            _write_whole(path, "name.new", "name", name.encode("utf-8", "surrogateescape"))
        return path

    def remove_vhost(self, name: str) -> None:
        """Remove that directory, all or nothing. Raises OSError."""
        RealDisk(self.path).delete_tree(f"vhosts/{vhost_id(name)}")

    def sweep_vhosts(self, names: Iterable[str]) -> None:
        """Remove the directories of virtual hosts that are not among `names`: they were deleted, and a crash came before their files were. Foreign names are left alone."""
        disk = RealDisk(self.path)
        disk.sweep_tombstones("vhosts")
        here = disk.list("vhosts")
        say_foreign(disk, "vhosts", (name for name in here if not is_vhost_id(name)), "a directory of a virtual host")
        for left in set(filter(is_vhost_id, here)) - {vhost_id(name) for name in names}:
            disk.delete_tree(f"vhosts/{left}")


def vhost_id(name: str) -> str:
    """What the vhost's directory is called."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def is_vhost_id(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def queue_number(queue_id: str) -> int:
    """The number by which journal, recovery terms and directories know a queue: the first 56 of the 128 random bits of its id, in hex digits.

    56, because eight more tell the levels of a priority queue apart (`vhost_dir`).
    """
    return int(queue_id[:14], 16)


class Claim:
    """The right to use a directory, held until `release` or the end of the process."""

    def __init__(self, directory: DataDir, lock: int) -> None:
        self.directory = directory
        self._lock = lock

    def release(self) -> None:
        """Let others have it; nothing of the directory may be open any more. Idempotent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.ftruncate(lock, 0)
            os.close(lock)


def claim(path: str, node_name: str) -> Claim:
    """Lock the directory for the node of that name; make it, with those above it, if there is none. Raises DataDirError."""
    path = os.path.abspath(path)
    try:
        _make(path)
        # Before the lock is made, so that nothing is left behind in a directory that is not warren's.
        _check_format(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise DataDirError(_unusable(path, "it cannot be written"))
        lock = os.open(f"{path}/{_LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            _lock(path, lock, node_name)
            if _check_format(path) != FORMAT:
                _write_whole(path, _FORMAT_TEMPORARY, _FORMAT_NAME, f"{_TITLE}\nformat {FORMAT}\n".encode())
            directory = DataDir(path)
            _check_metadata(directory)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise DataDirError(_unusable(path, error.strerror or str(error), error.errno)) from error
    return Claim(directory, lock)


def examine(path: str) -> int | None:
    """The directory's format; None if no broker has used it yet. Changes nothing. Raises DataDirError if it is not warren's, or cannot be used; OSError."""
    number = _check_format(path)
    _check_metadata(DataDir(path))
    return number


def _make(path: str) -> None:
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        where = "it" if above == path else f"'{above}'"
        raise DataDirError(
            f"data directory '{path}' cannot be used: {where} is not a directory. Move that file away, or choose another data_dir"
        )
    RealDisk("/").make_dir(path[1:])


def _check_format(path: str) -> int | None:
    """The directory's format; None if it is empty as yet."""
    names = sorted(set(os.listdir(path)) - _HARMLESS - _UNFINISHED)
    if _FORMAT_NAME not in names:
        if names:
            shown = ", ".join(names[:_SHOWN_MOST]) + (
                f" and {len(names) - _SHOWN_MOST} more" if len(names) > _SHOWN_MOST else ""
            )
            raise DataDirError(
                f"'{path}' is not a data directory of warren: it holds {shown}. Choose an empty directory, or one that does not exist yet"
            )
        return None
    with open(f"{path}/{_FORMAT_NAME}", "rb") as file:
        text = file.read(200)
    title, _, rest = text.partition(b"\n")
    number = rest.removeprefix(b"format ").strip()
    if title != _TITLE.encode() or not rest.startswith(b"format ") or not number.isdigit():
        raise DataDirError(
            f"'{path}' is not a data directory of warren: its file '{_FORMAT_NAME}' says {text[:40]!r}. Choose another data_dir, or restore this one from a backup"
        )
    version = int(number)
    if version > FORMAT:
        raise DataDirError(
            f"data directory '{path}' was written by a newer warren: it has format {version}, and this one reads up to {FORMAT}. "
            "Run that version, or choose another data_dir; nothing was changed"
        )
    return version


def _lock(path: str, lock: int, node_name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 1000, 0).decode("utf-8", "replace").strip() or "another process"
        raise DataDirError(
            f"data directory '{path}' is in use by {holder}. Stop that broker, or choose another data_dir for this one"
        ) from None
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    os.ftruncate(lock, 0)
    os.pwrite(
        lock,
        f"{node_name} (process {os.getpid()} on {socket.gethostname()}, since {since})\n".encode("utf-8", "replace"),
        0,
    )


def _check_metadata(directory: DataDir) -> None:
    # Starting all the same would take the messages of every vhost for those of deleted queues.
    if not os.path.isdir(directory.metadata) and os.path.isdir(directory.vhosts) and os.listdir(directory.vhosts):
        raise DataDirError(
            f"data directory '{directory.path}' has lost its metadata: '{directory.vhosts}' holds messages, but '{directory.metadata}' is missing. "
            "Restore it from a backup, or choose another data_dir"
        )


def _unusable(path: str, reason: str, number: int | None = None) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        way_out = "Make room on that file system"
    else:
        way_out = f"Make it writable for user {os.geteuid()} (owner, mode, read-only mount?)"
    return f"data directory '{path}' cannot be used: {reason}. {way_out}, or choose another data_dir"


def _write_whole(directory: str, temporary: str, name: str, data: bytes) -> None:
    """A file that is there with all its content, durably, or not at all."""
    with open(f"{directory}/{temporary}", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    disk = RealDisk(directory)
    disk.rename(temporary, name)
    disk.sync_dir("")
