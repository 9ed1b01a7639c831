"""A broker's data directory: its layout, its format version, and the lock that gives it to one broker.

    format                        two lines, 'warren data directory' and 'format <n>'
    reserve                       space that a start on a full disk uses (`reserve`)
    lock                          locked while a broker uses the directory; its text names that broker
    cluster.json                  the node's identity as a member of a cluster
    reset                         exists if the next start is to empty the directory (`reset`)
    metadata/                     LMDB: vhosts, exchanges, queues, bindings (`metadata_store`)
    vhosts/<id>/                  id: 32 hex digits of the name's BLAKE2 digest, so any name is a file name
        name                      the vhost's name in UTF-8, for people
        ...                       its messages (`vhost_dir`)

A broker uses a directory only after `claim`, which raises `DataDirError` for a directory that is in use, has a newer
format, belongs to another program, cannot be written, or has lost its metadata. The operating system releases the lock
when the process ends in any way; the text in `lock` only names the holder. `claim` writes the `format` file last and
atomically: a crash before that leaves only names that `claim` accepts in an unused directory.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from ..disk.damage_log import log_foreign
from ..disk.real_disk import RealDisk
from ..disk.system.file_lock import locks
from . import reserve, reset
from .whole_file import write_whole

#: The format that this version writes, and the newest one that it reads. In format 1 the queues of a vhost shared no
#: message ids (see `message_ids`). In format 2 each run repeated the properties of its messages, and all its messages
#: had one origin (see `messages/records.py`). In format 3 the journal had no dead letters in transit (see
#: `journal/in_transit.py`). In format 4 the journal did not record how often messages were returned. In format 5 it did
#: not record the lives of queues (see `messages/lives.py`), and runs had no time of arrival. In format 6 there were no
#: digests of published messages (see `deduplication`). In format 7 all messages of a run had one expiry. `claim`
#: turns a directory of any of these formats into format 8.
FORMAT = 8

_TITLE = "warren data directory"
_FORMAT_NAME, _FORMAT_TEMPORARY, _LOCK_NAME = "format", "format.new", "lock"
_UNFINISHED = {_LOCK_NAME, _FORMAT_TEMPORARY}
#: Names that a file system puts into its root.
_HARMLESS = {"lost+found"}
_MAX_SHOWN = 3


class DataDirError(Exception):
    """The directory cannot be used. The text names the directory, the reason and the way out."""


class LostMetadata(DataDirError):
    """The directory has messages, and no metadata any more."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths of a data directory. Constructing one makes and checks nothing."""

    path: str

    @property
    def metadata(self) -> str:
        """The LMDB environment of the metadata."""
        return f"{self.path}/metadata"

    @property
    def vhosts(self) -> str:
        """The directory of all virtual hosts."""
        return f"{self.path}/vhosts"

    def vhost(self, name: str) -> str:
        """The directory of a virtual host, the same after every restart."""
        return f"{self.vhosts}/{vhost_id(name)}"

    def make_vhost(self, name: str) -> str:
        """Make the directory of a virtual host, durably, and return its path; an existing one stays as it is.

        Raises OSError.
        """
        path = self.vhost(name)
        RealDisk(self.path).make_dir(f"vhosts/{vhost_id(name)}")
        if not os.path.exists(f"{path}/name"):
            write_whole(path, "name.new", "name", name.encode("utf-8", "surrogateescape"))
        return path

    def remove_vhost(self, name: str) -> None:
        """Remove the directory of a virtual host, all or nothing. Raises OSError."""
        RealDisk(self.path).delete_tree(f"vhosts/{vhost_id(name)}")

    def sweep_vhosts(self, names: Iterable[str]) -> None:
        """Remove the directories of virtual hosts that are not among `names`.

        Such a vhost was deleted from the metadata, and a crash came before its files were. Files with other names are
        left alone.
        """
        disk = RealDisk(self.path)
        disk.sweep_tombstones("vhosts")
        found = disk.list("vhosts")
        log_foreign(disk, "vhosts", (name for name in found if not is_vhost_id(name)), "a directory of a virtual host")
        for deleted in set(filter(is_vhost_id, found)) - {vhost_id(name) for name in names}:
            disk.delete_tree(f"vhosts/{deleted}")


def vhost_id(name: str) -> str:
    """The name of the vhost's directory."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def is_vhost_id(name: str) -> bool:
    """Whether a directory of this name may be a vhost's."""
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def queue_number(queue_id: str) -> int:
    """The number of a queue in journal, recovery terms and directories.

    It is the first 56 of the 128 random bits of the queue's id, which is written in hex digits. The other 8 bits of a
    u64 distinguish the levels of a priority queue (`vhost_dir`).
    """
    return int(queue_id[:14], 16)


class Claim:
    """The right to use a directory, held until `release` or the end of the process."""

    def __init__(self, directory: DataDir, lock: int) -> None:
        self.directory = directory
        self._lock = lock

    def descriptors(self) -> Iterable[int]:
        """The descriptor of the lock, which is held as long as any process has it."""
        return (self._lock,) if self._lock >= 0 else ()

    def release(self) -> None:
        """Unlock the directory. The caller has closed all files in it. Idempotent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.ftruncate(lock, 0)
            locks.unlock(lock)
            os.close(lock)


def claim(path: str, node_name: str) -> Claim:
    """Lock the directory for the node of that name; make it and its missing parents. Raises DataDirError."""
    path = os.path.abspath(path)
    try:
        _make(path)
        # Check before the lock file is made, so that a directory of another program stays untouched.
        _check_format(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise DataDirError(_unusable(path, "it cannot be written"))
        lock = os.open(f"{path}/{_LOCK_NAME}", os.O_RDWR | os.O_CREAT, 0o640)
        try:
            _lock(path, lock, node_name)
            if _check_format(path) != FORMAT:
                write_whole(path, _FORMAT_TEMPORARY, _FORMAT_NAME, f"{_TITLE}\nformat {FORMAT}\n".encode())
            reset.perform(path)
            directory = DataDir(path)
            _check_metadata(directory)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise DataDirError(_unusable(path, error.strerror or str(error), error.errno)) from error
    return Claim(directory, lock)


def examine(path: str, needs_metadata: bool = True) -> int | None:
    """The directory's format; None if no broker has used it yet. Changes nothing.

    Raises DataDirError if the directory is another program's or cannot be used, LostMetadata, and OSError if it cannot
    be read.
    """
    number = _check_format(path)
    if needs_metadata:
        _check_metadata(DataDir(path))
    return number


def _make(path: str) -> None:
    existing = path
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        where = "it" if existing == path else f"'{existing}'"
        raise DataDirError(
            f"data directory '{path}' cannot be used: {where} is not a directory. "
            "Move that file away, or choose another data_dir"
        )
    drive, below = os.path.splitdrive(path)
    RealDisk(drive + "/").make_dir(below.replace(os.sep, "/").strip("/"))


def _check_format(path: str) -> int | None:
    """The directory's format; None if it is still empty."""
    names = sorted(set(os.listdir(path)) - _HARMLESS - _UNFINISHED)
    if _FORMAT_NAME not in names:
        if names:
            shown = ", ".join(names[:_MAX_SHOWN])
            more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
            raise DataDirError(
                f"'{path}' is not a data directory of warren: it holds {shown}{more}. "
                "Choose an empty directory, or one that does not exist yet"
            )
        return None
    with open(f"{path}/{_FORMAT_NAME}", "rb") as file:
        text = file.read(200)
    title, _, rest = text.partition(b"\n")
    number = rest.removeprefix(b"format ").strip()
    if title != _TITLE.encode() or not rest.startswith(b"format ") or not number.isdigit():
        raise DataDirError(
            f"'{path}' is not a data directory of warren: its file '{_FORMAT_NAME}' contains {text[:40]!r}. "
            "Choose another data_dir, or restore this one from a backup"
        )
    version = int(number)
    if version > FORMAT:
        raise DataDirError(
            f"data directory '{path}' was written by a newer warren: it has format {version}, and this one reads "
            f"up to {FORMAT}. Run that version, or choose another data_dir; nothing was changed"
        )
    return version


def _lock(path: str, lock: int, node_name: str) -> None:
    if not locks.try_lock(lock, is_shared=False):
        raise DataDirError(
            f"data directory '{path}' is in use by {lock_holder(lock)}. "
            "Stop that broker, or choose another data_dir for this one"
        )
    reserve.give_back(path)  # before the start writes anything, which may need this space on a full disk
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    holder = f"{node_name} (process {os.getpid()} on {socket.gethostname()}, since {since})\n"
    os.ftruncate(lock, 0)
    os.lseek(lock, 0, os.SEEK_SET)
    os.write(lock, holder.encode("utf-8", "replace"))


def lock_holder(lock: int) -> str:
    """The broker that the text of an open lock file names."""
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 1000).decode("utf-8", "replace").strip() or "another process"


def _check_metadata(directory: DataDir) -> None:
    # A start without the metadata would take all queues for deleted, and delete the messages of every vhost.
    if not os.path.isdir(directory.metadata) and os.path.isdir(directory.vhosts) and os.listdir(directory.vhosts):
        raise LostMetadata(
            f"data directory '{directory.path}' has lost its metadata: '{directory.vhosts}' holds messages, but "
            f"'{directory.metadata}' is missing. Restore it from a backup, or choose another data_dir"
        )


def _unusable(path: str, reason: str, number: int | None = None) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        way_out = "Free space on that file system"
    else:
        user = f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
        way_out = f"Make it writable for {user} (owner, mode, read-only mount?)"
    return f"data directory '{path}' cannot be used: {reason}. {way_out}, or choose another data_dir"
