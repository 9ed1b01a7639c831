"""The index of a message store: where each body is, and how many references queues have to it.

It is an LMDB environment, together with the changes since its last commit. It cannot be in memory, where ten million
entries would be several gigabytes of Python objects. Its tables, numbers big-endian:

    locations   message id                ->  u32 reference count | u32 file | u64 offset | u64 total size
    places      u32 file | u64 offset     ->  message id
    files       u32 file                  ->  u64 valid total size | u64 file size
    counts      message id                ->  u32                   only while references are recounted
    meta        generation, checkpoint, intents                     msgpack

`places` has the same bodies in the order of the disk, so that a file can be combined or deleted without reading it to
find out what is in it. A place whose body has moved since is stale; it is deleted with its file.

How it is kept
--------------
The owner's changes gather in a dict, which every look-up reads first. A commit has three steps, so that the owner
never waits:

    changes = index.freeze(...)    # what has gathered; look-ups still see it
    index.commit(changes)          # in another thread, one transaction; may be repeated after an error
    index.committed()              # look-ups read the environment instead

Commits are not synced. After a kill the environment is as of the last commit. After a power cut it may be damaged, so
it is deleted and rebuilt from the data files (queue-and-store section 11.4); `saved` tells the two cases apart. A
clean stop syncs (`close`).

The owner looks ids up in one read transaction. It ends with each commit, because LMDB reuses no page that an open
transaction may still read. Most ids that are looked up are new, and the ids of a queue ascend. So for each **source**
(the first eight bytes of an id) the highest id in the environment is remembered, and higher ids are not looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import lmdb
import msgpack  # type: ignore[import-untyped]

from ...heap import outside_heap

#: Bytes of address space, not of memory: the file grows with its content.
MAP_SIZE = 64 << 30
#: The owner commits when this many changes have gathered; recovery uses transactions of this size.
COMMIT_LEAST = 4000
FORMAT = 1
SOURCE_SIZE = 8
#: How many sources have their highest id remembered. Beyond this all are forgotten, and read again when needed.
SOURCES_MOST = 10_000

_LOCATION = Struct(">IIQQ")
_PLACE = Struct(">IQ")
_FILE = Struct(">I")
_ROW = Struct(">QQ")
_COUNT = Struct(">I")


class BodyLocation(NamedTuple):
    """The references to a body, and its place.

    With a reference count of 0 it is garbage, which a write may reuse while its file is not locked (QS-29).
    """

    ref_count: int
    file: int
    offset: int
    total_size: int


class Checkpoint(NamedTuple):
    """A place in the data files. The index has every record before it."""

    file: int
    offset: int


class Saved(NamedTuple):
    """What the environment stores about itself. It must not be trusted if it has no `generation`."""

    generation: int | None
    checkpoint: Checkpoint
    #: Groups of files that were about to be combined or deleted.
    intents: list[tuple[int, ...]]
    #: File number -> (valid total size, file size).
    rows: dict[int, tuple[int, int]]


class Changes(NamedTuple):
    """The changes of one commit."""

    entries: dict[bytes, BodyLocation | None]
    places: list[tuple[int, int, bytes]]
    #: Files of which the commit deletes all earlier places before it adds `places`.
    emptied: list[int]
    rows: Mapping[int, tuple[int, int] | None]
    intents: list[tuple[int, ...]]
    checkpoint: Checkpoint


class Located(NamedTuple):
    """A body that the index locates in a file."""

    message_id: bytes
    entry: BodyLocation


class LocationIndex:
    """See the module. `path` is a directory of the operating system for this environment alone. Raises lmdb.Error if
    damaged.

    is_read_only    locks and writes nothing; the environment exists, and no other process has it open
    """

    def __init__(self, path: str, is_read_only: bool = False) -> None:
        options: dict[str, Any] = (
            {"readonly": True, "lock": False, "create": False} if is_read_only else {"sync": False, "metasync": False}
        )
        with outside_heap():
            self._env = lmdb.open(path, map_size=MAP_SIZE, max_dbs=5, max_spare_txns=4, readahead=False, **options)
        try:
            self._locations, self._places, self._files, self._counts, self._meta = (
                self._env.open_db(name, create=not is_read_only)
                for name in (b"locations", b"places", b"files", b"counts", b"meta")
            )
        except BaseException:
            self._env.close()
            raise
        self._reader: lmdb.Transaction[bytes] | None = None
        self._entries: dict[bytes, BodyLocation | None] = {}
        self._new_places: list[tuple[int, int, bytes]] = []
        self._emptied: list[int] = []
        self._frozen: dict[bytes, BodyLocation | None] = {}
        self._is_frozen = False
        # By source: the highest of its ids that is committed or frozen. If there is none, the source itself, which is
        # below each of its ids.
        self._highest: dict[bytes, bytes] = {}

    # -- the owner's view

    def get(self, message_id: bytes) -> BodyLocation | None:
        """The entry of a body, with the changes that are not committed; None if there is none."""
        for entries in (self._entries, self._frozen):
            if message_id in entries:
                return entries[message_id]
        source = message_id[:SOURCE_SIZE]
        if message_id > (self._highest.get(source) or self._find_highest(source)):
            return None
        value = self._begin_reading().get(message_id)
        return None if value is None else BodyLocation._make(_LOCATION.unpack(value))

    def _find_highest(self, source: bytes) -> bytes:
        if len(self._highest) >= SOURCES_MOST:
            self._highest.clear()
        cursor = self._begin_reading().cursor()
        # An id is at most twice as long as its source, so this key is beyond every id of the source.
        is_found = cursor.prev() if cursor.set_range(source + b"\xff" * (SOURCE_SIZE + 1)) else cursor.last()
        known = [cursor.key()] if is_found and cursor.key().startswith(source) else []
        highest = max(
            [message_id for message_id in self._frozen if message_id.startswith(source)] + known, default=source
        )
        self._highest[source] = highest
        return highest

    def count(self, message_id: bytes, entry: BodyLocation) -> None:
        """Change the reference count of a body that stays in its place."""
        self._entries[message_id] = entry

    def place(self, message_id: bytes, entry: BodyLocation) -> None:
        """Give a body a new place."""
        self._entries[message_id] = entry
        self._new_places.append((entry.file, entry.offset, message_id))

    def drop(self, message_id: bytes) -> None:
        """Remove a body from the index."""
        self._entries[message_id] = None

    def empty(self, file: int) -> None:
        """Delete all places in `file`. Each body there was dropped, or gets a new place after this."""
        self._emptied.append(file)

    @property
    def changes(self) -> int:
        """How many entries the next commit writes."""
        return len(self._entries)

    @property
    def is_changed(self) -> bool:
        return bool(self._entries or self._emptied)

    # -- committing

    def freeze(
        self, rows: Mapping[int, tuple[int, int] | None], intents: list[tuple[int, ...]], checkpoint: Checkpoint
    ) -> Changes:
        """The changes that have gathered, with the changed rows of the files (None for a removed file)."""
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
        """Write the changes in one transaction. Waits for the disk; may be repeated after a failure.

        Raises lmdb.Error.
        """
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
        """Forget the frozen changes, because the environment has them."""
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
        """The bodies that the last commit places in `file`, in the order of their offsets.

        May be called in any thread.
        """
        found = []
        with self._env.begin() as transaction:
            cursor = transaction.cursor(self._places)
            prefix = _FILE.pack(file)
            more = cursor.set_range(prefix)
            while more and bytes(cursor.key()).startswith(prefix):
                message_id = cursor.value()
                value = transaction.get(message_id, db=self._locations)
                if value is not None:
                    entry = BodyLocation._make(_LOCATION.unpack(value))
                    if _PLACE.pack(entry.file, entry.offset) == cursor.key():
                        found.append(Located(message_id, entry))
                more = cursor.next()
        return found

    def between(self, first: bytes, last: bytes, limit: int) -> tuple[list[bytes], bytes | None]:
        """About `limit` ids that have an entry, from `first` to `last`, ascending; and the id after which there may be
        more, None at the end.
        """
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
        """Close the environment. If `is_clean`, everything committed is durable when this returns."""
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
        """Recovery sets None before its first change and a new generation after its last, so a half-done recovery is
        never trusted.
        """
        with self._env.begin(write=True) as transaction:
            self._put_meta(transaction, "generation", generation)
            self._put_meta(transaction, "format", FORMAT)

    def drop_located_in(self, file: int) -> None:
        """Remove a file and every body located in it."""
        located = self.located_in(file)
        with self._env.begin(write=True) as transaction:
            for message_id, _ in located:
                transaction.delete(message_id, db=self._locations)
            _delete_range(transaction.cursor(self._places), _FILE.pack(file))

    def fill(self, file: int, found: Sequence[tuple[bytes, int, int]]) -> None:
        """Add bodies (id, offset, total size) of a file. Of the bodies with one id, the last one in the order of the
        files counts, which is the one that was written last.

        After a crash that kept a body but lost the journal's record of it, the queue gives the message's number, and so
        the id, to a later message. The earlier body of the id is then garbage. The index may have the later body
        already, because a start scans only those files again whose collection was interrupted.
        """
        with self._env.begin(write=True) as transaction:
            for message_id, offset, total_size in found:
                location = _LOCATION.pack(0, file, offset, total_size)
                if not transaction.put(message_id, location, db=self._locations, overwrite=False):
                    known: bytes = transaction.get(message_id, db=self._locations)  # type: ignore[assignment]
                    _, old_file, old_offset, _ = _LOCATION.unpack(known)
                    if (old_file, old_offset) > (file, offset):
                        continue
                    transaction.put(message_id, location, db=self._locations)
                    transaction.delete(_PLACE.pack(old_file, old_offset), db=self._places)
                transaction.put(_PLACE.pack(file, offset), message_id, db=self._places)

    def add_references(self, message_ids: Iterable[bytes]) -> None:
        """Recounting: add a reference for each occurrence of an id. At most COMMIT_LEAST ids at a time."""
        with self._env.begin(self._counts, write=True) as transaction:
            for message_id in message_ids:
                counted = _COUNT.unpack(transaction.get(message_id, bytes(4)))[0]
                transaction.put(message_id, _COUNT.pack(counted + 1))

    def forget_references(self) -> None:
        """Recounting: delete the counts of a recount that a crash interrupted."""
        with self._env.begin(write=True) as transaction:
            transaction.drop(self._counts, delete=False)

    def settle(self) -> Iterator[Located]:
        """Recounting: set the counted references of every entry and delete entries without any. Yields the others."""
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
        """Up to COMMIT_LEAST entries from a key on, with their new counts, and the key of the next chunk."""
        chunk: list[Located] = []
        with self._env.begin() as transaction:
            cursor = transaction.cursor(self._locations)
            more = cursor.set_range(start)
            while more:
                if len(chunk) == COMMIT_LEAST:
                    return chunk, cursor.key()
                message_id, value = cursor.item()
                counted = _COUNT.unpack(transaction.get(message_id, bytes(4), db=self._counts))[0]
                chunk.append(
                    Located(message_id, BodyLocation._make(_LOCATION.unpack(value))._replace(ref_count=counted))
                )
                more = cursor.next()
        return chunk, None

    def put_rows(self, rows: Mapping[int, tuple[int, int]], checkpoint: Checkpoint) -> None:
        """Replace the rows of all files. No intent is left."""
        with self._env.begin(write=True) as transaction:
            transaction.drop(self._files, delete=False)
            for file, row in rows.items():
                transaction.put(_FILE.pack(file), _ROW.pack(*row), db=self._files)
            self._put_meta(transaction, "checkpoint", checkpoint)
            self._put_meta(transaction, "intents", [])

    def all_located(self) -> Iterator[Located]:
        """Every committed entry, for checks."""
        with self._env.begin(self._locations) as transaction:
            for message_id, value in transaction.cursor():
                yield Located(message_id, BodyLocation._make(_LOCATION.unpack(value)))

    def changed_entries(self) -> dict[bytes, BodyLocation]:
        """Every entry that is not committed, for checks."""
        return {
            message_id: entry for message_id, entry in {**self._frozen, **self._entries}.items() if entry is not None
        }

    def _put_meta(self, transaction: lmdb.Transaction, key: str, value: Any) -> None:
        transaction.put(key.encode(), msgpack.packb(value), db=self._meta)


def _delete_range(cursor: lmdb.Cursor, prefix: bytes) -> None:
    more = cursor.set_range(prefix)
    while more and bytes(cursor.key()).startswith(prefix):
        more = cursor.delete()  # leaves the cursor at the next entry
