"""The message index of a virtual host: finds messages by key and time, and what became of them.

It is an LMDB environment that may be lost: queues fill a new one with the messages that they have. Its tables, numbers
u64 big-endian unless said otherwise, times in ms since the epoch:

    queues   queue                       ->  msgpack: name, next number, retention, time of its deletion
    places   queue | number              ->  position | stored at | gone at | expires at | u8 reason | u8 keys
                                             | for each key: hash, second hash | detail of the reason in UTF-8
    ids      position                    ->  queue | number
    keys     queue | hash | ~stored at | ~position  ->  second hash | number; not with the engine `hash`
    gone     expires at | queue | number ->  nothing
    meta     `position`, the last one that was given; `secret`, the 16 bytes that key the hashes; `format`; `engine`

A **number** is that of the message in its queue, its ack tag. A **position** is given to each message that enters an
indexed queue, in order and never twice. A new index begins at the time of its creation in µs, so that it gives other
positions than one that was lost, unless that one got a million messages a second for all its life.

`~` is the complement, by which a range of `keys` has the newest message first. A key is found by one half of its
128-bit BLAKE2b and compared by the other; the hash is keyed, so that nobody can choose keys that collide. With the
engine `hash` the keys are in files beside the environment instead (`key_engine`, `hash_files`).

Size and age are bounded. The place of a message that has left its queue expires after the retention of the queue. When
the tables have `max_bytes`, the oldest messages leave the index, gone or not (QP-48). Both happen in `prune`, some at a
time.

One thread writes; `find` and `at_position` read in any other. Every commit is synced but for its last page, so that a
power cut undoes at most the last commit. The next number of a queue is in the same commit as its places; thus the queue
can see from where on it has to repeat its report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

import lmdb
import msgpack  # type: ignore[import-untyped]

from ...heap import outside_heap
from .key_engine import ENGINES, HASH_BYTES, PAIR, PLACE, U64, KeyEngine, KeyFiles, KeyRow, KeyTable
from .steps import LOST, REASONS, Gone, Put, Rest, Step

FORMAT = 1
#: Entries that one `prune` visits at most.
PRUNE_STEP = 10_000
#: Messages that `prune` removes before it looks again whether the index is still too large.
REMOVED_AT_ONCE = 100
#: Keys that one search visits in one queue at most. Only colliding hashes or very many hits get there.
VISITS_MOST = 10_000
#: The address space of the environment in multiples of `max_bytes`, or of the file's size if that is larger, because
#: `max_bytes` was: a commit writes new pages before it frees old ones, also one that makes the index smaller.
_MAP_FACTOR = 2
_MAP_LEAST = 64 << 20

_GONE = Struct(">QQQ")
_REASON_NUMBERS = {reason: number for number, reason in enumerate(REASONS, 1)}


class OtherEngineError(ValueError):
    """The index was made by another engine, which the text names."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine finds keys, one of `ENGINES`, and how many slots and entries each of its files has."""

    name: str = "lmdb"
    slots: int = 0
    entries: int = 0


class Hit(NamedTuple):
    """A message in the index. `reason` is empty while the message is in its queue."""

    queue: int
    number: int
    position: int
    stored_at: int
    gone_at: int
    reason: str
    detail: str


class SearchResult(NamedTuple):
    """The newest hits first. `is_truncated`: there are more, or the search was given up."""

    hits: list[Hit]
    is_truncated: bool


@dataclass(slots=True)
class IndexedQueue:
    """A queue that reports to the index."""

    name: str
    #: Every message with a lower number was reported.
    next_number: int
    #: How long the place of a message that has left is kept, in ms.
    retention: int
    #: When the queue was deleted; 0: it exists.
    deleted_at: int = 0
    #: Whether the policy no longer has it indexed. The index then removes its entries, a part at a time.
    is_forgotten: bool = False
    #: Sweeps that are to be done: the step, the last position that it applies to, and the number to go on with.
    sweeps: list[tuple[Rest, int, int]] = field(default_factory=list)
    #: Every message with a lower number is marked as gone.
    swept: int = 0


class MessageIndex:
    """The environment in the directory `path`. Raises lmdb.Error; every method but `queues` waits for the disk.

    created_at   the time in µs, with which the positions of a new index begin

    Raises OtherEngineError for an index that another engine has made.
    """

    def __init__(self, path: str, max_bytes: int, created_at: int, secret: bytes, engine: Engine = Engine()) -> None:
        self.max_bytes = max_bytes
        size = max(_MAP_LEAST, _MAP_FACTOR * max(max_bytes, _file_size(path)))
        with outside_heap():
            self._env = lmdb.open(path, map_size=size, max_dbs=6, metasync=False, max_spare_txns=8)
        try:
            names = (b"queues", b"places", b"ids", b"gone", b"meta")
            with self._env.begin(write=True) as transaction:
                self._tables = [self._env.open_db(name, transaction) for name in names]
            self._queue_table, self.places, self.ids, self.gone, self._meta = self._tables
            self._check_engine(engine.name)
            self.keys = self._open_engine(path, engine)
            with self._env.begin(write=True) as transaction:
                if transaction.get(b"format", db=self._meta) is None:
                    transaction.put(b"format", bytes([FORMAT]), db=self._meta)
                    transaction.put(b"secret", secret, db=self._meta)
                    transaction.put(b"position", U64.pack(created_at), db=self._meta)
                self._secret = bytes(transaction.get(b"secret", db=self._meta) or b"")
                transaction.put(b"engine", engine.name.encode(), db=self._meta)
                position: int = U64.unpack(transaction.get(b"position", db=self._meta) or bytes(8))[0]
                # A crash may have undone a transaction whose keys are in files already. Go on behind their positions,
                # because none is given twice.
                self._position = max(position, self.keys.end)
                #: The queues that report, by number.
                self.queues = dict(_queue_rows(transaction.cursor(self._queue_table)))
        except BaseException:
            self._env.close()
            raise

    def _check_engine(self, name: str) -> None:
        with self._env.begin() as transaction:
            known = transaction.get(b"engine", db=self._meta)
            if known is None and transaction.get(b"format", db=self._meta) is not None:
                known = b"lmdb"
        if known not in (None, name.encode()):
            raise OtherEngineError(f"the engine '{known.decode()}' has made it, not '{name}'")

    def _open_engine(self, path: str, engine: Engine) -> KeyEngine:
        hash_name = ENGINES[engine.name]
        if not hash_name:
            table = KeyTable(self._env)
            self._tables.append(table.table)
            return table
        files = KeyFiles(f"{path}/keys", hash_name, engine.slots, engine.entries, self.places, self.ids)
        with self._env.begin() as transaction:
            files.repair(transaction)
        return files

    def close(self) -> None:
        self._env.sync(True)
        self._env.close()

    # -- writing

    def write(self, batch: Iterable[tuple[int, Sequence[Step]]]) -> None:
        """Write what queues have reported, in one transaction. A report may be repeated: that changes nothing."""
        # A transaction that failed may have put keys into files. Their positions are not given again.
        position = max(self._position, self.keys.end)
        added: list[tuple[IndexedQueue, Rest, int]] = []
        with self._env.begin(write=True) as transaction:
            writing = _Writing(self, transaction, position)
            for number, steps in batch:
                queue = self.queues.get(number)
                if queue is None or queue.is_forgotten:
                    continue
                next_number = queue.next_number
                for step in steps:
                    if isinstance(step, Put):
                        next_number = writing.put(number, next_number, step)
                    elif isinstance(step, Gone):
                        writing.leave(number, queue.retention, step)
                    else:
                        added.append((queue, step, writing.position))
                writing.next_numbers[number] = next_number
            writing.finish()
            for number, next_number in writing.next_numbers.items():
                self._put_queue(transaction, number, self.queues[number], next_number)
            transaction.put(b"position", U64.pack(writing.position), db=self._meta)
        # The transaction is committed.
        self._position = writing.position
        for number, next_number in writing.next_numbers.items():
            self.queues[number].next_number = next_number
        for queue, rest, last in added:
            queue.sweeps.append((rest, last, queue.swept))

    def put_queue(self, number: int) -> None:
        """Write the row of a queue that was changed in `queues`, if the queue is still there."""
        with self._env.begin(write=True) as transaction:
            queue = self.queues.get(number)
            if queue is not None:  # otherwise `prune` has just removed the queue, in another thread
                self._put_queue(transaction, number, queue, queue.next_number)

    def _put_queue(self, transaction: lmdb.Transaction[bytes], number: int, queue: IndexedQueue, next_: int) -> None:
        row = (queue.name.encode("utf-8", "surrogateescape"), next_, queue.retention, queue.deleted_at)
        transaction.put(U64.pack(number), msgpack.packb((*row, queue.is_forgotten)), db=self._queue_table)

    @property
    def position(self) -> int:
        """The position that was given last."""
        return self._position

    def pair(self, queue: IndexedQueue, key: bytes) -> bytes:
        """The hash of a key of this queue and its second hash."""
        return self.keys.pair(queue.name, key, self._secret)

    # -- reading

    def find(self, numbers: Iterable[int], key: bytes, begin: int, end: int, most: int) -> SearchResult:
        """The messages of these queues with this key that were stored from `begin` to `end`, up to `most`."""
        hits: list[Hit] = []
        is_truncated = False
        with self._env.begin() as transaction:
            for number in numbers:
                queue = self.queues.get(number)  # `prune` removes queues in another thread
                if queue is None:
                    continue
                first, second = PAIR.unpack(self.pair(queue, key))
                found = 0
                for visited, (position, their_second, message) in enumerate(
                    self.keys.newest_first(transaction, number, first, begin, end)
                ):
                    if visited >= VISITS_MOST or found > most:
                        is_truncated = True
                        break
                    if their_second == second:
                        hit = self._hit(transaction, number, message)
                        # The place belongs to another message if the queue gave the number again.
                        if hit is not None and hit.position == position:
                            found += 1
                            hits.append(hit)
        hits.sort(key=lambda hit: (hit.stored_at, hit.position), reverse=True)
        return SearchResult(hits[:most], is_truncated or len(hits) > most)

    def at_position(self, position: int) -> Hit | None:
        """The message at a position; None if the index does not have it, or no longer."""
        with self._env.begin() as transaction:
            found = transaction.get(U64.pack(position), db=self.ids)
            return None if found is None else self._hit(transaction, *PAIR.unpack(found))

    def _hit(self, transaction: lmdb.Transaction[bytes], queue: int, number: int) -> Hit | None:
        value = transaction.get(PAIR.pack(queue, number), db=self.places)
        if value is None:
            return None
        position, stored_at, gone_at, _, reason, keys = PLACE.unpack_from(value)
        detail = value[PLACE.size + keys * HASH_BYTES :].decode("utf-8", "replace")
        return Hit(queue, number, position, stored_at, gone_at, REASONS[reason - 1] if reason else "", detail)

    # -- removing

    def prune(self, now: int) -> bool:
        """Remove places that have expired, and the oldest messages if the tables are too large, in one transaction.

        Returns whether there is more to do.

        `now` is in ms since the epoch.
        """
        left = PRUNE_STEP
        ended: list[int] = []
        sweeps: dict[int, tuple[int, list[tuple[Rest, int, int]]]] = {}
        with self._env.begin(write=True) as transaction:
            for number, queue in list(self.queues.items()):
                if left > 0 and _is_over(queue, now):
                    left -= self._remove_queue(transaction, number, left)
                    if left > 0:
                        transaction.delete(U64.pack(number), db=self._queue_table)
                        ended.append(number)
                elif left > 0 and queue.sweeps:
                    left, sweeps[number] = self._sweep(transaction, number, queue, left)
            while left > 0 and (place := self._next_expired(transaction, now)) is not None:
                self.remove(transaction, place)
                left -= 1
            while left > 0 and self._used(transaction) > self.max_bytes:
                left -= self._remove_oldest(transaction)
            self.keys.prune(transaction)
        for number, (swept, rest) in sweeps.items():
            self.queues[number].swept, self.queues[number].sweeps = swept, rest
        for number in ended:
            del self.queues[number]
        return left <= 0

    def _remove_queue(self, transaction: lmdb.Transaction[bytes], number: int, limit: int) -> int:
        prefix = U64.pack(number)
        removed = 0
        cursor = transaction.cursor(self.places)
        while removed < limit and cursor.set_range(prefix) and cursor.key().startswith(prefix):
            self.remove(transaction, cursor.key())
            removed += 1
        return removed

    def _sweep(
        self, transaction: lmdb.Transaction[bytes], number: int, queue: IndexedQueue, left: int
    ) -> tuple[int, tuple[int, list[tuple[Rest, int, int]]]]:
        """Mark messages as gone. Returns how many more may be visited, and how far the sweeps of the queue are."""
        swept = queue.swept
        for done, (rest, last, start) in enumerate(queue.sweeps):
            cursor = transaction.cursor(self.places)
            is_found = cursor.set_range(PAIR.pack(number, start))
            while is_found:
                of, message = PAIR.unpack(cursor.key())
                if of != number or message >= rest.stop:
                    break
                if left <= 0:
                    return 0, (swept, [(rest, last, message), *queue.sweeps[done + 1 :]])
                left -= 1
                value = cursor.value()
                position, stored_at, _, _, reason, keys = PLACE.unpack_from(value)
                if not reason and position <= last and message not in rest.kept:
                    expires = rest.at + queue.retention
                    head = PLACE.pack(position, stored_at, rest.at, expires, _REASON_NUMBERS[rest.reason], keys)
                    cursor.put(cursor.key(), head + value[PLACE.size :])
                    transaction.put(_GONE.pack(expires, number, message), b"", db=self.gone)
                is_found = cursor.next()
            if not rest.kept and rest.reason == LOST:
                swept = max(swept, min(rest.stop, queue.next_number))
        return left, (swept, [])

    def _next_expired(self, transaction: lmdb.Transaction[bytes], now: int) -> bytes | None:
        cursor = transaction.cursor(self.gone)
        if not cursor.first() or U64.unpack_from(cursor.key())[0] > now:
            return None
        return cursor.key()[U64.size :]

    def _used(self, transaction: lmdb.Transaction[bytes]) -> int:
        """Bytes of the pages of all tables."""
        pages = 0
        page_size = 0
        for table in self._tables:
            stat = transaction.stat(table)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            page_size = stat["psize"]
        return pages * page_size

    def _remove_oldest(self, transaction: lmdb.Transaction[bytes]) -> int:
        """Remove the messages with the lowest positions. Returns at least 1."""
        removed = 0
        cursor = transaction.cursor(self.ids)
        while removed < REMOVED_AT_ONCE and cursor.first():
            self.remove(transaction, cursor.value())
            removed += 1
        return removed or PRUNE_STEP

    def remove(self, transaction: lmdb.Transaction[bytes], place: bytes) -> None:
        """Remove a message from all tables. `place` is its key in `places`."""
        value = transaction.get(place, db=self.places)
        assert value is not None, "all tables have the same messages"
        queue, _ = PAIR.unpack(place)
        position, stored_at, _, expires, reason, keys = PLACE.unpack_from(value)
        for at in range(keys):
            first, _ = PAIR.unpack_from(value, PLACE.size + at * HASH_BYTES)
            self.keys.remove(transaction, queue, first, stored_at, position)
        transaction.delete(U64.pack(position), db=self.ids)
        if reason:
            transaction.delete(U64.pack(expires) + place, db=self.gone)
        transaction.delete(place, db=self.places)


class _Writing:
    """One transaction of `write`. Rows gather here and are written sorted, in a third of the time for unsorted ones."""

    def __init__(self, index: MessageIndex, transaction: lmdb.Transaction[bytes], position: int) -> None:
        self._index = index
        self._transaction = transaction
        self.position = position
        #: The next number of each queue that has reported.
        self.next_numbers: dict[int, int] = {}
        #: New rows of `places`.
        self._new: dict[bytes, bytes] = {}
        self._ids: list[tuple[bytes, bytes]] = []
        self._keys: list[KeyRow] = []
        self._gone: list[tuple[bytes, bytes]] = []

    def put(self, queue: int, next_number: int, step: Put) -> int:
        """Add messages. Returns the number after the highest one that was reported."""
        index, position, stored_at = self._index, self.position, step.stored_at
        indexed, number = index.queues[queue], step.first
        for keys in step.keys:
            place = PAIR.pack(queue, number)
            hashes = b"".join([index.pair(indexed, key) for key in keys])
            if number < next_number and not self._is_free(place, hashes):
                number += 1
                continue
            position += 1
            self._new[place] = PLACE.pack(position, stored_at, 0, 0, 0, len(keys)) + hashes
            self._ids.append((U64.pack(position), place))
            for at in range(0, len(hashes), HASH_BYTES):
                first, second = PAIR.unpack_from(hashes, at)
                self._keys.append(KeyRow(queue, first, second, stored_at, position, number))
            number += 1
        self.position = position
        return max(next_number, number)

    def _is_free(self, place: bytes, hashes: bytes) -> bool:
        """Whether a number below the next one has no message in the index.

        A queue that is not read by number may give a number again after a crash; its former message is removed.
        """
        if place in self._new:
            return False
        value = self._transaction.get(place, db=self._index.places)
        if value is None:
            return True
        if value[PLACE.size :][: len(hashes)] == hashes and value[PLACE.size - 1] * HASH_BYTES == len(hashes):
            return False
        self._index.remove(self._transaction, place)
        return True

    def leave(self, queue: int, retention: int, step: Gone) -> None:
        """Mark messages as gone."""
        expires = step.at + retention
        reason, detail = _REASON_NUMBERS[step.reason], step.detail.encode("utf-8", "surrogateescape")
        for number in step.numbers:
            place = PAIR.pack(queue, number)
            value = self._new.get(place) or self._transaction.get(place, db=self._index.places)
            if value is None:
                continue  # it was not indexed, or was removed because the index is full
            position, stored_at, gone_at, _, _, keys = PLACE.unpack_from(value)
            if gone_at:
                continue
            head = PLACE.pack(position, stored_at, step.at, expires, reason, keys)
            self._new[place] = head + value[PLACE.size :] + detail
            self._gone.append((U64.pack(expires) + place, b""))

    def finish(self) -> None:
        index = self._index
        for table, rows in (
            (index.places, list(self._new.items())),
            (index.ids, self._ids),
            (index.gone, self._gone),
        ):
            rows.sort()
            self._transaction.cursor(table).putmulti(rows)
        if self._keys:
            index.keys.put(self._transaction, self._keys)


def _file_size(path: str) -> int:
    """Bytes of the environment's file; 0 if there is none."""
    file = f"{path}/data.mdb"
    return os.path.getsize(file) if os.path.exists(file) else 0


def _is_over(queue: IndexedQueue, now: int) -> bool:
    """Whether everything about the queue is to be removed."""
    return queue.is_forgotten or bool(queue.deleted_at) and queue.deleted_at + queue.retention <= now


def _queue_rows(cursor: lmdb.Cursor[bytes]) -> Iterator[tuple[int, IndexedQueue]]:
    for key, value in cursor:
        name, next_number, retention, deleted_at, is_forgotten = msgpack.unpackb(value)
        yield (
            U64.unpack(key)[0],
            IndexedQueue(name.decode("utf-8", "surrogateescape"), next_number, retention, deleted_at, is_forgotten),
        )
