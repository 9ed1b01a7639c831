"""Where each message of a message store is, and how many queues want it: an LMDB environment, and what has changed since its last
commit.

It must not live in memory: ten million entries are several gigabytes of Python objects. Tables, numbers big-endian:

    locations   message id                ->  u32 reference count | u32 file | u64 offset | u64 total size
    places      u32 file | u64 offset     ->  message id
    files       u32 file                  ->  u64 valid total size | u64 file size
    counts      message id                ->  u32                   only while references are recounted
    meta        generation, checkpoint, intents                     msgpack

`places` is `locations` in the order of the disk, so that combining and deleting a file need not read it to know what is in it. A
place whose message has since been located elsewhere is stale; it goes with its file.

How it is kept
--------------
The owner's changes gather in a dict that every look-up asks first. A commit is in three steps, so that the owner never waits for
it:

    changes = index.freeze(...)    what has gathered; look-ups go on seeing it
    index.commit(changes)          in another thread, in one transaction; may be repeated
    index.committed()              back at the owner: look-ups see the environment instead

Commits are not synced. After the process was killed the environment is as of the last commit; after a power cut it may be
anything, so it is thrown away and made anew from the data files (section 11.4); `saved` is what tells one from the other. A clean
stop syncs (`close`).

The owner looks up in one read transaction, which ends with each commit: a reader pins pages, so it never spans more than one. Most ids that are looked up are new, and
those of a queue ascend: of each **source**, what the first eight octets of an id name, the highest id in the environment is remembered, and what is beyond it is not looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import lmdb
import msgpack  # type: ignore[import-untyped]

MAP_SIZE = 64 << 30
"""Address space, not memory: the file is sparse and as large as what is in it."""
COMMIT_LEAST = 4000
"""The owner commits when so many changes have gathered, and recovery works in transactions of so many."""
FORMAT = 1
SOURCE_SIZE = 8
SOURCES_MOST = 10_000
"""Sources whose highest id is remembered; when there are more, all are found again as they are needed."""

_LOCATION = Struct(">IIQQ")
_PLACE = Struct(">IQ")
_FILE = Struct(">I")
_ROW = Struct(">QQ")
_COUNT = Struct(">I")


class Entry(NamedTuple):
    """Of a message. With a reference count of 0 it is garbage that may still be called back while its file is not locked (QS-29)."""

    ref_count: int
    file: int
    offset: int
    total_size: int


class Checkpoint(NamedTuple):
    """Everything before this place is in the index."""

    file: int
    offset: int


class Saved(NamedTuple):
    """What the environment says of itself. Without a `generation` it says nothing that may be believed."""

    generation: int | None
    checkpoint: Checkpoint
    intents: list[tuple[int, ...]]
    """Groups of files that were about to be combined or deleted."""
    rows: dict[int, tuple[int, int]]
    """file -> (valid total size, file size)"""


class Changes(NamedTuple):
    """One commit's worth."""

    entries: dict[bytes, Entry | None]
    places: list[tuple[int, int, bytes]]
    emptied: list[int]
    """Files whose places so far are void."""
    rows: Mapping[int, tuple[int, int] | None]
    intents: list[tuple[int, ...]]
    checkpoint: Checkpoint


class Located(NamedTuple):
    """A message that the index locates in a file."""

    message_id: bytes
    entry: Entry


class LocationIndex:
    """See the module. `path` is a directory of the operating system for this environment alone; raises lmdb.Error if it is damaged.

    is_read_only    nothing is locked or written; the environment exists, and nobody else has it open
    """

    def __init__(self, path: str, map_size: int = MAP_SIZE, is_read_only: bool = False) -> None:
        options: dict[str, Any] = (
            {"readonly": True, "lock": False, "create": False} if is_read_only else {"sync": False, "metasync": False}
        )
        self._env = lmdb.open(path, map_size=map_size, max_dbs=5, max_spare_txns=4, readahead=False, **options)
        try:
            self._locations, self._places, self._files, self._counts, self._meta = (
                self._env.open_db(name, create=not is_read_only)
                for name in (b"locations", b"places", b"files", b"counts", b"meta")
            )
        except BaseException:
            self._env.close()
            raise
        self._reader: lmdb.Transaction[bytes] | None = None
        self._entries: dict[bytes, Entry | None] = {}
        self._new_places: list[tuple[int, int, bytes]] = []
        self._emptied: list[int] = []
        self._frozen: dict[bytes, Entry | None] = {}
        self._is_frozen = False
        self._highest: dict[
            bytes, bytes
        ] = {}  # of a source, the highest id in the environment or on its way there; less than any of its ids if there is none

    # -- the owner's view

    def get(self, message_id: bytes) -> Entry | None:
        """What is known of a message, changes of this moment included."""
        for entries in (self._entries, self._frozen):
            if message_id in entries:
                return entries[message_id]
        source = message_id[:SOURCE_SIZE]
        if message_id > (self._highest.get(source) or self._find_highest(source)):
            return None
        value = self._begin_reading().get(message_id)
        return None if value is None else Entry._make(_LOCATION.unpack(value))

    def _find_highest(self, source: bytes) -> bytes:
        if len(self._highest) >= SOURCES_MOST:
            self._highest.clear()
        cursor = self._begin_reading().cursor()
        # No id is longer than twice as long as its source, so this is beyond all of this one's.
        is_found = cursor.prev() if cursor.set_range(source + b"\xff" * (SOURCE_SIZE + 1)) else cursor.last()
        known = [cursor.key()] if is_found and cursor.key().startswith(source) else []
        highest = max(
            [message_id for message_id in self._frozen if message_id.startswith(source)] + known, default=source
        )
        self._highest[source] = highest
        return highest

    def count(self, message_id: bytes, entry: Entry) -> None:
        """`entry` has another reference count than before, and the same place."""
        self._entries[message_id] = entry

    def place(self, message_id: bytes, entry: Entry) -> None:
        """The message is at a place where it was not before."""
        self._entries[message_id] = entry
        self._new_places.append((entry.file, entry.offset, message_id))

    def drop(self, message_id: bytes) -> None:
        """Nothing is to be known of it any more."""
        self._entries[message_id] = None

    def empty(self, file: int) -> None:
        """Nothing is where it was in `file`; every message there has been dropped, or is placed anew after this."""
        self._emptied.append(file)

    @property
    def changes(self) -> int:
        """Entries that the next commit will write."""
        return len(self._entries)

    @property
    def is_changed(self) -> bool:
        return bool(self._entries or self._emptied)

    # -- committing

    def freeze(
        self, rows: Mapping[int, tuple[int, int] | None], intents: list[tuple[int, ...]], checkpoint: Checkpoint
    ) -> Changes:
        """All that has gathered, to be committed with the rows that changed (None: the file is gone)."""
        assert not self._is_frozen, "one commit at a time"
        changes = Changes(self._entries, self._new_places, self._emptied, rows, intents, checkpoint)
        self._frozen, self._is_frozen = self._entries, True
        self._entries, self._new_places, self._emptied = {}, [], []
        highest = self._highest
        for message_id in changes.entries:
            known = highest.get(message_id[:SOURCE_SIZE])
            if known is not None and message_id > known:
                highest[message_id[:SOURCE_SIZE]] = message_id
        return changes

    def commit(self, changes: Changes) -> None:
        """Write them in one transaction; may run in another thread, and again if it failed. Raises lmdb.Error."""
        gone = [message_id for message_id, entry in changes.entries.items() if entry is None]
        known = sorted(
            (message_id, _LOCATION.pack(*entry)) for message_id, entry in changes.entries.items() if entry is not None
        )
        with self._env.begin(write=True) as transaction:
            for file in changes.emptied:
                _delete_range(transaction.cursor(self._places), _FILE.pack(file))
            transaction.cursor(self._places).putmulti(
                [(_PLACE.pack(file, offset), message_id) for file, offset, message_id in sorted(changes.places)]
            )
            for message_id in gone:
                transaction.delete(message_id, db=self._locations)
            transaction.cursor(self._locations).putmulti(known)
            for file, row in changes.rows.items():
                if row is None:
                    transaction.delete(_FILE.pack(file), db=self._files)
                else:
                    transaction.put(_FILE.pack(file), _ROW.pack(*row), db=self._files)
            self._put_meta(transaction, "checkpoint", changes.checkpoint)
            self._put_meta(transaction, "intents", changes.intents)

    def committed(self) -> None:
        """What was frozen is in the environment."""
        self._frozen, self._is_frozen = {}, False
        self._stop_reading()

    def _begin_reading(self) -> lmdb.Transaction[bytes]:
        if self._reader is None:
            self._reader = self._env.begin(self._locations)
        return self._reader

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def located_in(self, file: int) -> list[Located]:
        """The messages whose place is in `file`, in its order, as committed; from any thread."""
        found = []
        with self._env.begin() as transaction:
            cursor = transaction.cursor(self._places)
            prefix = _FILE.pack(file)
            more = cursor.set_range(prefix)
            while more and bytes(cursor.key()).startswith(prefix):
                message_id = cursor.value()
                value = transaction.get(message_id, db=self._locations)
                if value is not None:
                    entry = Entry._make(_LOCATION.unpack(value))
                    if _PLACE.pack(entry.file, entry.offset) == cursor.key():
                        found.append(Located(message_id, entry))
                more = cursor.next()
        return found

    def between(self, first: bytes, last: bytes, limit: int) -> tuple[list[bytes], bytes | None]:
        """Up to about `limit` ids that are known from `first` to `last`, ascending, changes of this moment included; and the id after which there may be more."""
        committed: list[bytes] = []
        cursor = self._begin_reading().cursor()
        more = cursor.set_range(first)
        while more and cursor.key() <= last and len(committed) < limit:
            committed.append(cursor.key())
            more = cursor.next()
        end = committed[-1] if len(committed) == limit else last
        changed = {**self._frozen, **self._entries}
        found = {message_id for message_id in committed if changed.get(message_id, True) is not None}
        found.update(
            message_id for message_id, entry in changed.items() if first <= message_id <= end and entry is not None
        )
        return sorted(found), end if len(committed) == limit else None

    def close(self, is_clean: bool = False) -> None:
        """Let go of the environment; if clean, what was committed is durable when this returns."""
        self._stop_reading()
        if is_clean:
            self._env.sync(True)
        self._env.close()

    # -- recovery (`store_recovery` decides what to do when)

    def saved(self) -> Saved:
        with self._env.begin() as transaction:
            meta = {key.decode(): msgpack.unpackb(value) for key, value in transaction.cursor(self._meta)}
            rows = {_FILE.unpack(key)[0]: _ROW.unpack(value) for key, value in transaction.cursor(self._files)}
        generation = meta.get("generation")
        if meta.get("format") != FORMAT:
            generation = None
        return Saved(
            generation,
            Checkpoint(*meta.get("checkpoint", (0, 0))),
            [tuple(files) for files in meta.get("intents", ())],
            rows,
        )

    def set_generation(self, generation: int | None) -> None:
        """None before anything is mended, the new one when all is: a crash between leaves what nobody believes."""
        with self._env.begin(write=True) as transaction:
            self._put_meta(transaction, "generation", generation)
            self._put_meta(transaction, "format", FORMAT)

    def drop_located_in(self, file: int) -> None:
        """Forget a file, and everything located in it."""
        located = self.located_in(file)
        with self._env.begin(write=True) as transaction:
            for message_id, _ in located:
                transaction.delete(message_id, db=self._locations)
            _delete_range(transaction.cursor(self._places), _FILE.pack(file))

    def fill(self, file: int, found: Sequence[tuple[bytes, int, int]]) -> None:
        """Locate messages (id, offset, total size) that have no location; of several copies the first found counts."""
        with self._env.begin(write=True) as transaction:
            for message_id, offset, total_size in found:
                if transaction.put(
                    message_id, _LOCATION.pack(0, file, offset, total_size), db=self._locations, overwrite=False
                ):
                    transaction.put(_PLACE.pack(file, offset), message_id, db=self._places)

    def add_references(self, message_ids: Iterable[bytes]) -> None:
        """Recounting: one more for each id, as often as it occurs; up to COMMIT_LEAST at a time."""
        with self._env.begin(self._counts, write=True) as transaction:
            for message_id in message_ids:
                counted = _COUNT.unpack(transaction.get(message_id, bytes(4)))[0]
                transaction.put(message_id, _COUNT.pack(counted + 1))

    def forget_references(self) -> None:
        """Recounting begins: a count that a crash interrupted is void."""
        with self._env.begin(write=True) as transaction:
            transaction.drop(self._counts, delete=False)

    def settle(self) -> Iterator[Located]:
        """Recounting: give every entry what was counted, delete those without any; yields what is left."""
        start: bytes | None = b""
        while start is not None:
            chunk, start = self._chunk(start)
            with self._env.begin(write=True) as transaction:
                for message_id, entry in chunk:
                    if entry.ref_count:
                        transaction.put(message_id, _LOCATION.pack(*entry), db=self._locations)
                    else:
                        transaction.delete(message_id, db=self._locations)
                        transaction.delete(_PLACE.pack(entry.file, entry.offset), db=self._places)
            yield from (located for located in chunk if located.entry.ref_count)
        self.forget_references()

    def _chunk(self, start: bytes) -> tuple[list[Located], bytes | None]:
        """Up to COMMIT_LEAST entries from a key on, with the counts they are to have, and where the next chunk starts."""
        chunk: list[Located] = []
        with self._env.begin() as transaction:
            cursor = transaction.cursor(self._locations)
            more = cursor.set_range(start)
            while more:
                if len(chunk) == COMMIT_LEAST:
                    return chunk, cursor.key()
                message_id, value = cursor.item()
                counted = _COUNT.unpack(transaction.get(message_id, bytes(4), db=self._counts))[0]
                chunk.append(Located(message_id, Entry._make(_LOCATION.unpack(value))._replace(ref_count=counted)))
                more = cursor.next()
        return chunk, None

    def put_rows(self, rows: Mapping[int, tuple[int, int]], checkpoint: Checkpoint) -> None:
        """Recovery knows all files: these, and no intent is left."""
        with self._env.begin(write=True) as transaction:
            transaction.drop(self._files, delete=False)
            for file, row in rows.items():
                transaction.put(_FILE.pack(file), _ROW.pack(*row), db=self._files)
            self._put_meta(transaction, "checkpoint", checkpoint)
            self._put_meta(transaction, "intents", [])

    def all_located(self) -> Iterator[Located]:
        """Every entry that is committed; for whoever checks."""
        with self._env.begin(self._locations) as transaction:
            for message_id, value in transaction.cursor():
                yield Located(message_id, Entry._make(_LOCATION.unpack(value)))

    def changed_entries(self) -> dict[bytes, Entry]:
        """Every entry that is not in the environment yet; for whoever checks."""
        return {
            message_id: entry for message_id, entry in {**self._frozen, **self._entries}.items() if entry is not None
        }

    def _put_meta(self, transaction: lmdb.Transaction, key: str, value: Any) -> None:
        transaction.put(key.encode(), msgpack.packb(value), db=self._meta)


def _delete_range(cursor: lmdb.Cursor, prefix: bytes) -> None:
    more = cursor.set_range(prefix)
    while more and bytes(cursor.key()).startswith(prefix):
        more = cursor.delete()  # moves on to the next
