"""Where a message store's bodies are: an LMDB environment, so that ten million entries do not live in memory.

    locations   id 16           ->  u32 file | u64 offset | u64 total size | u32 references
    counted     id 16           ->  u32 references                           (only while references are counted at start)

The environment is a **cache** of the data files and queue indexes (section 11.3). It is written without syncing and believed only after a clean stop; otherwise it is thrown
away and made again (QS-42). Changes gather in a dict that every lookup asks first, and are written 4000 at a time at the latest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

import lmdb

MAP_SIZE = 64 << 30
CHANGES_MOST = 4000
_LOCATION = Struct('>IQQI')


class Location(NamedTuple):
    file: int
    offset: int
    total_size: int
    references: int


class StoreIndex:
    """See the module. `path` is a directory of the operating system, this environment's alone; None entries of the overlay are deletions."""

    def __init__(self, path: str, map_size: int = MAP_SIZE) -> None:
        self._path = path
        self._map_size = map_size
        self._overlay: dict[bytes, Location | None] = {}
        self._open()

    def _open(self) -> None:
        self._env = lmdb.open(self._path, map_size=self._map_size, max_dbs=3, max_readers=512, sync=False, metasync=False,
                              subdir=True, lock=True)
        self._locations = self._env.open_db(b'locations')

    def clear(self) -> None:
        """Throw the environment away, whatever state it is in."""
        self._env.close()
        shutil.rmtree(self._path)
        self._overlay = {}
        self._open()

    def get(self, message_id: bytes) -> Location | None:
        if message_id in self._overlay:
            return self._overlay[message_id]
        with self._env.begin(self._locations) as transaction:
            value = transaction.get(message_id)
        return None if value is None else Location(*_LOCATION.unpack(value))

    def put(self, message_id: bytes, location: Location | None) -> None:
        self._overlay[message_id] = location
        if len(self._overlay) >= CHANGES_MOST:
            self.write()

    def write(self) -> None:
        """Put the gathered changes into the environment; other threads see them from now on."""
        if not self._overlay:
            return
        with self._env.begin(self._locations, write=True) as transaction:
            for message_id, location in sorted(self._overlay.items()):
                if location is None:
                    transaction.delete(message_id)
                else:
                    transaction.put(message_id, _LOCATION.pack(*location))
        self._overlay = {}

    def written(self, message_ids: Iterable[bytes]) -> list[Location | None]:
        """Locations as of the last `write`; may be called from another thread."""
        with self._env.begin(self._locations) as transaction:
            values = [transaction.get(message_id) for message_id in message_ids]
        return [None if value is None else Location(*_LOCATION.unpack(value)) for value in values]

    def items(self) -> Iterator[tuple[bytes, Location]]:
        self.write()
        with self._env.begin(self._locations) as transaction:
            for message_id, value in transaction.cursor():
                yield message_id, Location(*_LOCATION.unpack(value))

    # -- counting references at an unclean start, without holding them in memory

    def count(self, message_ids: Iterable[bytes]) -> None:
        """One reference more for each."""
        counted = self._env.open_db(b'counted')
        with self._env.begin(counted, write=True) as transaction:
            for message_id in message_ids:
                known = int.from_bytes(transaction.get(message_id, b''), 'big')
                transaction.put(message_id, (known + 1).to_bytes(4, 'big'))

    def settle_counts(self) -> None:
        """Give every location its counted references; without any it goes."""
        self.write()
        counted = self._env.open_db(b'counted')
        with self._env.begin(write=True) as transaction:
            cursor = transaction.cursor(self._locations)
            more = cursor.first()
            while more:
                message_id, value = cursor.item()
                location = Location(*_LOCATION.unpack(value))
                references = int.from_bytes(transaction.get(message_id, b'', db=counted), 'big')
                if references:
                    cursor.put(message_id, _LOCATION.pack(*location._replace(references=references)))
                    more = cursor.next()
                else:
                    cursor.delete()  # moves on to the next, whose key is empty at the end
                    more = bool(cursor.key())
            transaction.drop(counted, delete=False)

    def close(self) -> None:
        self.write()
        self._env.sync(True)
        self._env.close()
