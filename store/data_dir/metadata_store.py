"""The metadata that survives a restart: vhosts, exchanges, queues, bindings and what operators set, in an LMDB
environment.

It alone decides which queues exist (queue-and-store section 11.3). Its tables:

    meta        'format'                   ->  u32 big-endian
    all others  16-byte digest of the key  ->  u8 row version | u32 CRC-32 of the rest | the rest: msgpack [key, fields]

The others are vhosts, exchanges, queues, bindings, users, permissions, topic_permissions, parameters,
global_parameters, policies, nodes, cluster and features. The tables nodes and cluster have no rows on a node without a
cluster.

On a node of a cluster the environment also has the log of consensus (`log_tables.py`), and its format is 2: a version
of warren without the log must not open it, because it would change rows without an entry in the log.

A row has a **key**, a tuple of str and bytes that identifies it, and **fields**, a dict of everything else. The caller
decides what they contain. The key is hashed because LMDB keys have 511 bytes at most, and the names in one binding may
be longer. Each row has a checksum because LMDB has none. A field may be added without a new row version: older rows
lack it.

Durability: every commit is synced, data and meta page. When `apply` returns, its changes are on the disk; after an
error either all of them are or none. A commit costs a dozen page writes and two syncs, whether it has one change or
hundreds, so callers gather changes while the previous commit runs.

The environment is made under another name and renamed, so a directory at `path` is whole or damaged, never half made.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

import lmdb
import msgpack  # type: ignore[import-untyped]

from ...heap import outside_heap
from ..disk.lmdb_check import DamagedFile, check_file
from ..disk.real_disk import RealDisk
from .log_tables import DamagedLog, LogFound, LogTables, LogWrite

#: The highest format that is read. An environment without a log has format 1.
FORMAT = 2
ROW_VERSION = 1
TABLES = (
    "vhosts",
    "exchanges",
    "queues",
    "bindings",
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "nodes",
    "cluster",
    "features",
)
#: Bytes of address space that LMDB gets at first. When they are full they are doubled. A queue with two bindings takes
#: two kilobytes at most.
MAP_SIZE = 256 << 20
_MAX_TABLES = 64
_FORMAT_KEY = b"format"
_FORMAT = Struct(">I")
_ROW_HEAD = Struct(">BI")
_OPTIONS: dict[str, Any] = {"max_dbs": _MAX_TABLES, "readahead": False, "mode": 0o640}


class MetadataError(Exception):
    """The metadata is damaged or cannot be read. The text names the directory, the reason and the way out."""


class MetadataWriteError(Exception):
    """A batch could not be written; the text is the reason.

    The batch may be on the disk all the same, but only as a whole. The caller may `apply` it again.
    """


class Row(NamedTuple):
    """A row of a table."""

    key: tuple[Any, ...]
    fields: dict[str, Any]


class Change(NamedTuple):
    """Put a row, or delete it if `fields` is None. Deleting a row that does not exist is no error."""

    table: str
    key: tuple[Any, ...]
    fields: dict[str, Any] | None


class MetadataStore:
    """The environment in the directory `path` of the operating system, which is made if it is missing.

    `load` and `apply` are called one at a time, from any thread. `close` may be called at any time from any thread, and
    does not wait. The constructor raises MetadataError.

    is_read_only    lock, make and write nothing; the environment exists and no other process has it open
    """

    def __init__(self, path: str, map_size: int = MAP_SIZE, is_read_only: bool = False) -> None:
        self._path = path
        self._map_size = map_size
        self._is_read_only = is_read_only
        self._is_in_doubt = False
        #: Guards `_is_busy` and `_is_closed`, because `close` comes from any thread.
        self._closing = threading.Lock()
        self._is_busy = False
        self._is_closed = False
        try:
            if not is_read_only and not os.path.isdir(path):
                _create(path)
            check_file(f"{path}/data.mdb")
            self._open()
        except FileNotFoundError as error:
            raise _damaged(path, f"{os.path.basename(error.filename)} is missing") from error
        except DamagedFile as error:
            raise _damaged(path, str(error)) from error
        except (lmdb.Error, OSError) as error:
            raise _unreadable(path, error) from error
        with self._env.begin() as transaction:
            found = transaction.get(_FORMAT_KEY, db=self._meta)
        if found is None or len(found) != _FORMAT.size:
            self._env.close()
            raise _damaged(path, "it has no format number")
        (number,) = _FORMAT.unpack(found)
        if number > FORMAT:
            self._env.close()
            raise MetadataError(
                f"the metadata in '{path}' was written by a newer warren: it has format {number}, and this one reads "
                f"up to {FORMAT}. Run that version"
            )

    def _open(self) -> None:
        options = {**_OPTIONS, "readonly": True, "lock": False} if self._is_read_only else _OPTIONS
        with outside_heap():
            self._env = lmdb.open(self._path, map_size=self._map_size, create=False, **options)
        try:
            self._map_size = self._env.info()["map_size"]
            self._meta = self._env.open_db(b"meta", create=not self._is_read_only)
            self._tables = {}
            for name in TABLES:
                # Older versions had fewer tables. The others are created, or count as empty if `_is_read_only`.
                with suppress(lmdb.NotFoundError):
                    self._tables[name] = self._env.open_db(name.encode(), create=not self._is_read_only)
        except BaseException:
            self._env.close()
            raise
        self._log = LogTables(self._env)

    def load_log(self) -> LogFound | None:
        """The log of consensus; None if this node has never written one. Waits for the disk. Raises MetadataError."""
        try:
            if not self._log.open(create=False):
                return None
            with self._env.begin() as transaction:
                return self._log.read(transaction)
        except DamagedLog as error:
            raise _damaged(self._path, str(error)) from None
        except lmdb.Error as error:
            raise _unreadable(self._path, error) from error

    def load(self) -> dict[str, list[Row]]:
        """Every row of every table. Waits for the disk. Raises MetadataError if a row is damaged."""
        found: dict[str, list[Row]] = {}
        try:
            for name in TABLES:
                rows = found[name] = []
                for row in self.read(name):
                    if isinstance(row, MetadataError):
                        raise row
                    rows.append(row)
        except lmdb.Error as error:
            raise _unreadable(self._path, error) from error
        return found

    def read(self, table: str) -> Iterator[Row | MetadataError]:
        """Each row of a table, or the error that makes it unreadable. Waits for the disk."""
        last = b""
        with self._env.begin() as transaction:
            for digest, value in self._cursor(transaction, table):
                try:
                    if digest <= last:
                        raise _damaged(self._path, f"row {digest.hex()} of {table} is out of order")
                    last = digest
                    yield self._row(table, digest, value)
                except MetadataError as error:
                    yield error
                except Exception as error:
                    # msgpack raises half a dozen types for bytes that are not msgpack.
                    yield _damaged(self._path, f"row {digest.hex()} of {table} cannot be decoded: {error}")

    def _cursor(self, transaction: lmdb.Transaction, table: str) -> Iterable[Any]:
        found = self._tables.get(table)
        return () if found is None else transaction.cursor(found)

    def _row(self, table: str, digest: bytes, value: bytes) -> Row:
        if len(value) < _ROW_HEAD.size:
            raise _damaged(self._path, f"row {digest.hex()} of {table} is cut off")
        version, checksum = _ROW_HEAD.unpack_from(value)
        packed = value[_ROW_HEAD.size :]
        if zlib.crc32(packed) != checksum:
            raise _damaged(self._path, f"row {digest.hex()} of {table} has a wrong checksum")
        if version > ROW_VERSION:
            raise MetadataError(
                f"the metadata in '{self._path}' was written by a newer warren: {table} has rows of version {version}. "
                "Run that version"
            )
        key, fields = msgpack.unpackb(packed, use_list=False, unicode_errors="surrogateescape")
        if _digest(key) != digest:
            raise _damaged(self._path, f"row {digest.hex()} of {table} has the key of another row")
        return Row(key, fields)

    def apply(self, changes: Sequence[Change], log: LogWrite | None = None) -> None:
        """Write changes in order in one transaction; durable when it returns. Waits for the disk.

        log   what the same transaction changes in the log of consensus. If it restores a snapshot, the tables have the
              rows of `changes` and no others.

        Raises MetadataWriteError.
        """
        rows = [
            (change.table, _digest(change.key), None if change.fields is None else _packed(change))
            for change in changes
        ]
        with self._closing:
            if self._is_closed:
                raise MetadataWriteError("the metadata store is closed")
            assert not self._is_busy, "one commit at a time"
            self._is_busy = True
        try:
            self._commit(rows, log)
        except (lmdb.Error, OSError, MemoryError) as error:
            self._is_in_doubt = True
            raise MetadataWriteError(_reason(error)) from error
        finally:
            with self._closing:
                self._is_busy = False
                if self._is_closed:
                    self._env.close()

    def _commit(self, rows: Iterable[tuple[str, bytes, bytes | None]], log: LogWrite | None) -> None:
        if self._is_in_doubt:
            # A failed commit may have left the environment unusable ("update of meta page failed"). Opening it again
            # finds what is on the disk.
            self._env.close()
            self._open()
            self._is_in_doubt = False
        if log is not None:
            self._log.open(create=True)
        while True:
            try:
                with self._env.begin(write=True) as transaction:
                    if log is not None:
                        self._write_log(transaction, log)
                    for table, digest, value in rows:
                        if value is None:
                            transaction.delete(digest, db=self._tables[table])
                        else:
                            transaction.put(digest, value, db=self._tables[table])
                return
            except lmdb.MapFullError:
                self._map_size *= 2
                self._env.set_mapsize(self._map_size)

    def _write_log(self, transaction: lmdb.Transaction, log: LogWrite) -> None:
        transaction.put(_FORMAT_KEY, _FORMAT.pack(2), db=self._meta)
        if log.restored is not None:
            for table in self._tables.values():
                transaction.drop(table, delete=False)
        self._log.write(transaction, log)

    def close(self) -> None:
        """Close the files, or have the commit under way close them when it ends. Idempotent."""
        with self._closing:
            if not self._is_closed and not self._is_busy:
                self._env.close()
            self._is_closed = True


def _create(path: str) -> None:
    disk = RealDisk(os.path.dirname(path))
    name = os.path.basename(path)
    making = f"{name}.new"
    if disk.exists(making):  # a crash interrupted an earlier start
        disk.remove_dir(making)
    disk.make_dir(making)
    with outside_heap():
        opened = lmdb.open(f"{path}.new", **_OPTIONS)
    with opened as environment:
        # One transaction, because each waits for the disk.
        with environment.begin(write=True) as transaction:
            meta = environment.open_db(b"meta", transaction)
            for table in TABLES:
                environment.open_db(table.encode(), transaction)
            transaction.put(_FORMAT_KEY, _FORMAT.pack(1), db=meta)
    disk.sync_dir(making)
    disk.rename(making, name)
    disk.sync_dir("")


def _digest(key: tuple[Any, ...]) -> bytes:
    return blake2b(msgpack.packb(key, unicode_errors="surrogateescape"), digest_size=16).digest()


def _packed(change: Change) -> bytes:
    packed: bytes = msgpack.packb([change.key, change.fields], unicode_errors="surrogateescape")
    return _ROW_HEAD.pack(ROW_VERSION, zlib.crc32(packed)) + packed


def _reason(error: BaseException) -> str:
    # LMDB's texts are `path: reason` or `function: reason`; only the reason helps the operator.
    return str(getattr(error, "strerror", None) or error).rpartition(": ")[2] or type(error).__name__


def _damaged(path: str, what: str) -> MetadataError:
    return MetadataError(
        f"the metadata in '{path}' is damaged: {what}. Restore that directory from a backup, or start with another "
        "data_dir"
    )


def _unreadable(path: str, error: Exception) -> MetadataError:
    if isinstance(error, OSError) or isinstance(error, (lmdb.DiskError, lmdb.ReadonlyError)):
        return MetadataError(
            f"the metadata in '{path}' cannot be opened: {_reason(error)}. "
            "Check the free space and the permissions of that directory"
        )
    return _damaged(path, _reason(error))
