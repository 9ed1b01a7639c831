"""`KeyEngine`: where the message index finds the positions of messages with a key (QP-47), and its two kinds.

The tables `places` and `ids` of the index are the same with both. `KeyTable` is a table beside them (engine A),
`KeyFiles` are the index files of RocketMQ (engine B). A place has a **pair** of numbers for each key: the hash by which
the engine finds the key, and a second hash, which tells keys with the same hash apart.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import NamedTuple, Protocol

import lmdb

from .hash_files import HASHES, DamagedIndexFile, HashFiles

log = logging.getLogger("warren.index")

U64 = Struct(">Q")
PAIR = Struct(">QQ")
PLACE = Struct(">QQQQBB")
HASH_BYTES = 16
MOST = (1 << 64) - 1
_KEY = Struct(">QQQQ")

#: The engines: the name of the setting, and the hash of its files.
ENGINES = {"lmdb": "", "hash": "crc32", "hash-java": "java"}

#: The name of an empty file that lies beside the engine's own files while a repair writes them.
UNFINISHED = "unfinished"

#: Entries that a repair puts in one step.
REPAIR_STEP = 100_000


class KeyRow(NamedTuple):
    """A key of a message: its pair, and where the message is."""

    queue: int
    first: int
    second: int
    stored_at: int
    position: int
    number: int


class Candidate(NamedTuple):
    """What a search visits. The message has the key if `second` is the key's second hash. `NOTHING` is no message, and
    only counts as a visit.
    """

    position: int
    second: int
    number: int


NOTHING = Candidate(0, -1, 0)


class KeyEngine(Protocol):
    """What both engines do. Methods with a transaction are called within one of the index's environment."""

    @property
    def table(self) -> lmdb._Database | None:
        """The table of the environment that has the keys; None if they are in files of the engine's own."""

    @property
    def end(self) -> int:
        """The highest position in the engine's own files, outside the environment; 0 if it has no such files."""

    def pair(self, queue: str, key: bytes, secret: bytes) -> bytes:
        """The pair of a key of this queue, as a place has it."""

    def put(self, transaction: lmdb.Transaction[bytes], rows: list[KeyRow]) -> None:
        """Add keys, ascending by position. They are on the disk when the transaction is committed, at the latest."""

    def newest_first(
        self, transaction: lmdb.Transaction[bytes], queue: int, first: int, begin: int, end: int
    ) -> Iterator[Candidate]:
        """The messages of a queue that were stored from `begin` to `end`, ms since the epoch, and may have the key."""

    def remove(self, transaction: lmdb.Transaction[bytes], queue: int, first: int, at: int, position: int) -> None:
        """Remove a key of a message that leaves the index."""

    def prune(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Give back the space of what was removed."""


class KeyTable:
    """Engine A: the table `keys`, queue | hash | ~stored at | ~position -> second hash | number."""

    end = 0

    def __init__(self, environment: lmdb.Environment) -> None:
        self.table: lmdb._Database = environment.open_db(b"keys")

    def pair(self, queue: str, key: bytes, secret: bytes) -> bytes:
        return blake2b(key, digest_size=HASH_BYTES, key=secret).digest()

    def put(self, transaction: lmdb.Transaction[bytes], rows: list[KeyRow]) -> None:
        packed = [
            (
                _KEY.pack(row.queue, row.first, MOST - row.stored_at, MOST - row.position),
                PAIR.pack(row.second, row.number),
            )
            for row in rows
        ]
        packed.sort()
        transaction.cursor(self.table).putmulti(packed)

    def newest_first(
        self, transaction: lmdb.Transaction[bytes], queue: int, first: int, begin: int, end: int
    ) -> Iterator[Candidate]:
        cursor = transaction.cursor(self.table)
        if not cursor.set_range(_KEY.pack(queue, first, MOST - end, 0)):
            return
        last = _KEY.pack(queue, first, MOST - begin, MOST)
        for key, value in cursor:
            if key > last:
                return
            _, _, _, position = _KEY.unpack(key)
            yield Candidate(MOST - position, *PAIR.unpack(value))

    def remove(self, transaction: lmdb.Transaction[bytes], queue: int, first: int, at: int, position: int) -> None:
        transaction.delete(_KEY.pack(queue, first, MOST - at, MOST - position), db=self.table)

    def prune(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Do nothing: LMDB uses the pages of removed rows again."""


class KeyFiles:
    """Engine B: the files of `HashFiles` in `path`. Files that are damaged or lost are made anew from `places`.

    While they are made anew, the file `UNFINISHED` lies beside them, so that a start after a crash begins again.
    """

    table = None

    def __init__(
        self,
        path: str,
        hash_name: str,
        slots: int,
        entries: int,
        places: lmdb._Database,
        ids: lmdb._Database,
    ) -> None:
        self._hash = HASHES[hash_name]
        self._places, self._ids = places, ids
        self._unfinished = f"{path}/{UNFINISHED}"
        if os.path.exists(self._unfinished):
            shutil.rmtree(path)
        try:
            self._files = HashFiles(path, hash_name, slots, entries)
        except DamagedIndexFile as error:
            log.warning("an index file is damaged: %s. All are made anew from the table of messages", error)
            shutil.rmtree(path)
            self._files = HashFiles(path, hash_name, slots, entries)

    @property
    def end(self) -> int:
        return self._files.end

    def pair(self, queue: str, key: bytes, secret: bytes) -> bytes:
        text = f"{queue}#{key.decode('utf-8', 'surrogateescape')}"
        return U64.pack(self._hash(text)) + blake2b(key, digest_size=U64.size, key=secret).digest()

    def put(self, transaction: lmdb.Transaction[bytes], rows: list[KeyRow]) -> None:
        self._files.put([(row.first, row.position, row.stored_at) for row in rows])
        self._files.sync()

    def newest_first(
        self, transaction: lmdb.Transaction[bytes], queue: int, first: int, begin: int, end: int
    ) -> Iterator[Candidate]:
        before = None
        for position in self._files.newest_first(first, begin):
            # A message with two keys of one hash has two entries, one after the other.
            if position is None or position == before:
                yield NOTHING
                continue
            before = position
            yield from self._candidates(transaction, queue, first, position, begin, end)

    def _candidates(
        self, transaction: lmdb.Transaction[bytes], queue: int, first: int, position: int, begin: int, end: int
    ) -> Iterator[Candidate]:
        place = transaction.get(U64.pack(position), db=self._ids)
        value = None if place is None else transaction.get(place, db=self._places)
        if place is None or value is None:
            yield NOTHING  # it has left the index
            return
        of, number = PAIR.unpack(place)
        _, stored_at, _, _, _, keys = PLACE.unpack_from(value)
        if of != queue or not begin <= stored_at <= end:
            yield NOTHING
            return
        for at in range(keys):
            own, second = PAIR.unpack_from(value, PLACE.size + at * HASH_BYTES)
            if own == first:
                yield Candidate(position, second, number)

    def remove(self, transaction: lmdb.Transaction[bytes], queue: int, first: int, at: int, position: int) -> None:
        """Do nothing: the entry leads to no place any more."""

    def prune(self, transaction: lmdb.Transaction[bytes]) -> None:
        cursor = transaction.cursor(self._ids)

        def is_dead(begin: int, end: int) -> bool:
            return not cursor.set_range(U64.pack(begin)) or U64.unpack(cursor.key())[0] > end

        self._files.remove_dead(is_dead)

    def repair(self, transaction: lmdb.Transaction[bytes]) -> None:
        """If all files were lost, write the keys again from the table of messages."""
        if self._files.end:
            return
        rows = self._rows(transaction)
        if not (some := list(islice(rows, REPAIR_STEP))):
            return
        with open(self._unfinished, "xb"):
            pass
        while some:
            self._files.put(some)
            some = list(islice(rows, REPAIR_STEP))
        self._files.sync()
        os.unlink(self._unfinished)

    def _rows(self, transaction: lmdb.Transaction[bytes]) -> Iterator[tuple[int, int, int]]:
        for position, place in transaction.cursor(self._ids):
            value = transaction.get(place, db=self._places)
            assert value is not None, "all tables have the same messages"
            _, stored_at, _, _, _, keys = PLACE.unpack_from(value)
            for at in range(keys):
                first, _ = PAIR.unpack_from(value, PLACE.size + at * HASH_BYTES)
                yield first, U64.unpack(position)[0], stored_at
