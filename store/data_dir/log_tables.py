"""The log of consensus on the disk: two tables in the environment of the metadata.

    consensus_log     index u64 big-endian  ->  u8 row version | u32 CRC-32 of the rest | msgpack [term, kind, data]
    consensus         'ballot'              ->  the same head | msgpack [term, voted for]
                      'start'               ->  the same head | msgpack [index, term, members]
                      'applied'             ->  the same head | msgpack index

The log begins behind `start`, has no gaps, and ends at the last index. The other tables of the environment always have
the changes of all entries up to `applied`, because one transaction writes these changes and `applied` (cluster section
1.2). What entries and members mean is the caller's business.

A node that has never written a log has neither table, and costs nothing for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

import lmdb
import msgpack  # type: ignore[import-untyped]

LOG_TABLE = "consensus_log"
STATE_TABLE = "consensus"
ROW_VERSION = 1
_INDEX = Struct(">Q")
_HEAD = Struct(">BI")

#: Index, term, kind and data of an entry.
LoggedEntry = tuple[int, int, int, bytes]


class LogStart(NamedTuple):
    """The position behind which the log begins; `members` in the form that the caller chose."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    members: bytes


class LogWrite(NamedTuple):
    """What one commit changes, in this order.

    restored   the log is emptied and begins here, because the rows of the same commit are those of a snapshot
    ballot     term and vote
    entries    replace all entries from the first one's index on
    applied    the last entry whose changes are in the tables with this commit
    start      the entries up to here are no longer needed, and are deleted
    """

    restored: LogStart | None = None
    ballot: tuple[int, str | None] | None = None
    entries: Sequence[LoggedEntry] = ()
    applied: int | None = None
    start: LogStart | None = None


class LogFound(NamedTuple):
    """What the disk has. `start` is None if no log was ever begun or restored."""

    ballot: tuple[int, str | None]
    start: LogStart | None
    entries: list[LoggedEntry]
    applied: int


class DamagedLog(Exception):
    """The text is the damage and its place."""


class LogTables:
    """The two tables in an open environment; they are made by the first write."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        self._log: Any = None
        self._state: Any = None

    def open(self, create: bool) -> bool:
        """Open the tables, while no transaction is open; return whether they exist."""
        if self._log is None:
            try:
                # The log is opened last: after a crash that left only the table of the state, `_log` stays None, and
                # the tables count as missing.
                self._state = self._environment.open_db(STATE_TABLE.encode(), create=create)
                self._log = self._environment.open_db(LOG_TABLE.encode(), create=create)
            except lmdb.NotFoundError:
                return False
        return True

    def write(self, transaction: lmdb.Transaction, write: LogWrite) -> None:
        """Make these changes within the transaction. The tables are open."""
        if write.restored is not None:
            transaction.drop(self._log, delete=False)
            self._put(transaction, b"start", list(write.restored))
        if write.ballot is not None:
            self._put(transaction, b"ballot", list(write.ballot))
        if write.entries:
            self._delete_from(transaction, write.entries[0][0])
            for index, *rest in write.entries:
                transaction.put(_INDEX.pack(index), _packed(rest), db=self._log, append=True)
        if write.applied is not None:
            self._put(transaction, b"applied", write.applied)
        if write.start is not None:
            self._delete_to(transaction, write.start.index)
            self._put(transaction, b"start", list(write.start))

    def _put(self, transaction: lmdb.Transaction, key: bytes, value: Any) -> None:
        transaction.put(key, _packed(value), db=self._state)

    def _delete_from(self, transaction: lmdb.Transaction, index: int) -> None:
        with transaction.cursor(self._log) as cursor:
            while cursor.set_range(_INDEX.pack(index)):
                cursor.delete()

    def _delete_to(self, transaction: lmdb.Transaction, index: int) -> None:
        with transaction.cursor(self._log) as cursor:
            while cursor.first() and _INDEX.unpack(cursor.key())[0] <= index:
                cursor.delete()

    def read(self, transaction: lmdb.Transaction) -> LogFound:
        """What the tables have. Raises DamagedLog."""
        term, voted_for = self._get(transaction, b"ballot") or (0, None)
        start = self._get(transaction, b"start")
        found = LogFound(
            (term, voted_for), None if start is None else LogStart(*start), [], self._get(transaction, b"applied") or 0
        )
        expected = 1 if found.start is None else found.start.index + 1
        for key, value in transaction.cursor(self._log):
            if key != _INDEX.pack(expected):
                raise DamagedLog(f"entry {expected} of the log is missing")
            found.entries.append((expected, *_unpacked(bytes(value), f"entry {expected} of the log")))
            expected += 1
        if not expected - 1 - len(found.entries) <= found.applied < expected:
            raise DamagedLog(f"its rows have entry {found.applied} applied, and the log ends at {expected - 1}")
        return found

    def _get(self, transaction: lmdb.Transaction, key: bytes) -> Any:
        value = transaction.get(key, db=self._state)
        return None if value is None else _unpacked(bytes(value), f"'{key.decode()}' of the log")


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return _HEAD.pack(ROW_VERSION, zlib.crc32(packed)) + packed


def _unpacked(value: bytes, place: str) -> Any:
    if len(value) < _HEAD.size:
        raise DamagedLog(f"{place} is cut off")
    version, checksum = _HEAD.unpack_from(value)
    if zlib.crc32(value[_HEAD.size :]) != checksum:
        raise DamagedLog(f"{place} has a wrong checksum")
    if version > ROW_VERSION:
        raise DamagedLog(f"{place} was written by a newer warren, which can still read it")
    return msgpack.unpackb(value[_HEAD.size :])
