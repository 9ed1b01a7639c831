"""The message store: bodies too large for the queue index, one store for all queues of a vhost, counted by reference.

How it works
------------
`write` gathers; a body that is removed before a batch takes it never reaches the disk (section 6.5). Like the journal, the store
writes in three steps, `take_batch`, `commit` in another thread, `committed`, and speaks of durability in positions: `write`
returns one, and everything up to `durable` is on disk.

Bodies are appended to the current file (`store_files`); their places and reference counts are in LMDB (`store_index`). A message
whose last reference goes leaves the index at once; its bytes are garbage until its file is deleted or combined. (RabbitMQ keeps
the entry, to use the bytes again for a later write of the same id, QS-29; here that write appends a new copy.)

Garbage (section 6.7): a file without live bytes is deleted. When more than half of all bytes are garbage, two neighbours whose
live bytes fit one file are **combined**: the live records of both are written to `<older>.rdt`, synced, renamed over the older
file, and the index is moved in one transaction (section 6.9). Meanwhile both are locked: removals wait, so what was copied is
exact. At every instant each live message stands whole in a `.rdq` file that a scan reads (QS-31).

Start: after a clean stop the index is believed. Else it is made again by scanning all files, and references are counted from the
queue indexes: `count` for each queue's ids, then `finish_count`. No file is deleted before that (QS-43).

Errors: as the journal's. A body that is damaged reads as None and is reported in `damaged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .disk import Disk
from .records import Damaged
from .store_files import FILE_LIMIT, OVERHEAD, Found, StoreFiles, encode
from .store_index import Location, StoreIndex

GARBAGE_FRACTION = 0.5
CLEAN_MARKER = 'clean'


class StoreBroken(Exception):
    """What reached the disk is unknown. Nothing more is written; start again and recover."""


@dataclass
class _Summary:
    """Of a file: bytes of live records, and all."""

    valid: int
    size: int


class Batch(NamedTuple):
    """`pieces` are (file, offset at which it must end now, buffers)."""

    pieces: list[tuple[int, int, list[bytes]]]
    places: dict[bytes, Location]
    position: int


class Collection(NamedTuple):
    """Garbage to be collected: `source` is deleted, after its live records were moved to `destination` if there is one."""

    source: int
    destination: int | None


class Move(NamedTuple):
    """A live record in its new place."""

    message_id: bytes
    old: Location
    offset: int


class MessageStore:
    """See the module. `index_path` is a directory of the operating system. A store that `is_durable` not is erased at start and never synced."""

    def __init__(self, disk: Disk, directory: str, index_path: str, is_durable: bool = True, file_limit: int = FILE_LIMIT) -> None:
        self._files = StoreFiles(disk, directory)
        self._disk = disk
        self._directory = directory
        self._is_durable = is_durable
        self._file_limit = file_limit
        self._index = StoreIndex(index_path)
        self._summaries: dict[int, _Summary] = {}
        self._gathered: dict[bytes, bytes] = {}
        self._references: dict[bytes, int] = {}  # of what is gathered or in flight
        self._flying: dict[bytes, bytes] = {}
        self._locked: frozenset[int] = frozenset()
        self._deferred: list[bytes] = []
        self._current = 1
        self._in_flight = False
        self._broken = False
        self.position = 0
        self.durable = 0
        self.damaged: list[bytes] = []
        """Ids whose bodies could not be read back; whoever reports them clears the list."""

    # -- start and stop

    def recover(self, may_trust: bool = True) -> bool:
        """True if the index can be believed: nothing more to do. False: `count` for each queue, then `finish_count`.

        It is not believed if a queue did not end cleanly (`may_trust`): the references of what that queue lost would stay for ever.
        """
        marker = f'{self._directory}/{CLEAN_MARKER}'
        is_clean = self._disk.exists(marker) and self._is_durable
        if is_clean:
            # Gone for good before anything changes.
            self._disk.delete(marker)
            self._disk.sync_dir(self._directory)
        left_aside = self._files.remove_aside()
        numbers = self._files.numbers()
        if not self._is_durable:
            for number in numbers:
                self._files.delete(number)
            numbers = []
        self._current = max(numbers, default=0) + 1  # never append to a file of an earlier life
        self._summaries = {number: _Summary(0, self._files.open(number).size()) for number in numbers}
        if is_clean and may_trust and not left_aside and self._is_plausible():
            return True
        self._index.clear()
        for number in numbers:
            for found in self._files.scan(number):
                if self._index.get(found.message_id) is None:  # of several copies one counts
                    self._index.put(found.message_id, Location(number, found.offset, found.total_size, 1))
            # A killed process leaves bytes that nobody synced; the queues are about to rely on them.
            self._files.open(number).sync()
        if not self._is_durable:
            return True
        self._disk.sync_dir(self._directory)
        return False

    def _is_plausible(self) -> bool:
        for _, location in self._index.items():
            summary = self._summaries.get(location.file)
            if summary is None or location.offset + location.total_size > summary.size:
                for known in self._summaries.values():
                    known.valid = 0
                return False
            summary.valid += location.total_size
        return True

    def count(self, message_ids: Iterable[bytes]) -> None:
        """References of one queue, after an unclean start."""
        self._index.count(message_ids)

    def finish_count(self) -> None:
        """What nobody refers to is garbage."""
        self._index.settle_counts()
        for _, location in self._index.items():
            self._summaries[location.file].valid += location.total_size

    def terminate(self) -> None:
        """Write everything, and say last of all that the index can be believed."""
        self.write_all()
        self._index.close()
        self._files.close_all()
        if self._is_durable and not self._locked:
            self._disk.open(f'{self._directory}/{CLEAN_MARKER}', create=True).close()
            self._disk.sync_dir(self._directory)

    # -- clients

    def write(self, message_id: bytes, content: bytes) -> int:
        """One reference more to a message; returns the position at which it is durable."""
        if self._broken:
            raise StoreBroken('a sync of the message store has failed')
        self.position += 1
        if message_id in self._references:
            self._references[message_id] += 1
        elif location := self._index.get(message_id):
            self._index.put(message_id, location._replace(references=location.references + 1))
        else:
            self._gathered[message_id] = content
            self._references[message_id] = 1
        return self.position

    def remove(self, message_ids: Iterable[bytes]) -> None:
        """One reference less to each; unknown ids are ignored."""
        for message_id in message_ids:
            references = self._references.get(message_id)
            if references is not None:
                if references > 1:
                    self._references[message_id] = references - 1
                elif message_id in self._gathered:
                    del self._gathered[message_id], self._references[message_id]
                else:
                    self._references[message_id] = 0  # in flight: garbage as soon as it is written
                continue
            location = self._index.get(message_id)
            if location is None:
                continue
            if location.file in self._locked:
                self._deferred.append(message_id)
            elif location.references > 1:
                self._index.put(message_id, location._replace(references=location.references - 1))
            else:
                self._index.put(message_id, None)
                self._summaries[location.file].valid -= location.total_size

    def contains(self, message_id: bytes) -> bool:
        return self._references.get(message_id, 0) > 0 or self._index.get(message_id) is not None

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]:
        """Contents; None for what is unknown or damaged."""
        contents: list[bytes | None] = []
        for message_id in message_ids:
            content = self._gathered.get(message_id) or self._flying.get(message_id)
            location = None if content is not None else self._index.get(message_id)
            if location is not None:
                try:
                    content = self._files.read(location.file, location.offset, location.total_size, message_id)
                except Damaged:
                    self.damaged.append(message_id)
            contents.append(content)
        return contents

    # -- writing

    def take_batch(self) -> Batch | None:
        """All that has gathered; None if nothing moved since the last. The one before must be committed."""
        assert not self._in_flight, 'one batch at a time'
        if self.position == self.durable:
            return None
        pieces: list[tuple[int, int, list[bytes]]] = []
        places = {}
        for message_id, content in self._gathered.items():
            summary = self._summaries.get(self._current)
            if summary is not None and summary.size >= self._file_limit:
                self._current += 1
                summary = None
            if summary is None:
                summary = self._summaries[self._current] = _Summary(0, 0)
            if not pieces or pieces[-1][0] != self._current:
                pieces.append((self._current, summary.size, []))
            total_size = len(content) + OVERHEAD
            places[message_id] = Location(self._current, summary.size, total_size, 1)
            pieces[-1][2].extend(encode(message_id, content))
            summary.size += total_size
            summary.valid += total_size
        self._flying, self._gathered = self._gathered, {}
        self._in_flight = True
        return Batch(pieces, places, self.position)

    def commit(self, batch: Batch) -> None:
        """Write and sync; may run in another thread. After an OSError the same batch may be committed again."""
        if self._broken:
            raise StoreBroken('a sync of the message store has failed')
        opened = []
        try:
            for number, offset, buffers in batch.pieces:
                file = self._disk.open(f'{self._directory}/{number}.rdq', create=not offset)
                opened.append(file)
                if file.size() != offset:
                    file.truncate(offset)  # what an attempt that failed has left
                file.append(buffers)
            if self._is_durable and opened:
                try:
                    for file in opened:
                        file.sync()
                    if any(not offset for _, offset, _ in batch.pieces):
                        self._disk.sync_dir(self._directory)
                except OSError as error:
                    self._broken = True
                    raise StoreBroken(f'message store {self._directory}: {error}') from error
        finally:
            for file in opened:
                file.close()

    def committed(self, batch: Batch) -> int:
        """The batch is durable; returns the position up to which everything is."""
        for message_id, location in batch.places.items():
            references = self._references.pop(message_id)
            if references:
                self._index.put(message_id, location._replace(references=references))
            else:
                self._summaries[location.file].valid -= location.total_size
        self._flying = {}
        self._in_flight = False
        self.durable = batch.position
        return self.durable

    def write_all(self) -> int:
        """Take, commit and note a batch here and now."""
        batch = self.take_batch()
        if batch is not None:
            self.commit(batch)
            self.committed(batch)
        return self.durable

    # -- garbage

    @property
    def file_bytes(self) -> int:
        """Bytes in all files."""
        return sum(summary.size for summary in self._summaries.values())

    @property
    def live_bytes(self) -> int:
        """Bytes of records that are referred to, written or about to be."""
        return sum(summary.valid for summary in self._summaries.values())

    def take_collection(self) -> Collection | None:
        """What is worth collecting; None if nothing is, or while a collection or the first batch of a file is under way."""
        if self._locked or self._in_flight:
            return None
        closed = [number for number in sorted(self._summaries) if number != self._current]
        chosen = next((Collection(number, None) for number in closed if not self._summaries[number].valid), None)
        if chosen is None:
            file_bytes = self.file_bytes
            if file_bytes <= 2 * self._file_limit or (file_bytes - self.live_bytes) / file_bytes <= GARBAGE_FRACTION:
                return None
            chosen = next((Collection(source, destination) for destination, source in zip(closed, closed[1:], strict=False)
                           if self._summaries[destination].valid + self._summaries[source].valid <= self._file_limit), None)
            if chosen is None:
                return None
        self._index.write()  # the other thread sees committed entries only
        self._locked = frozenset(number for number in chosen if number is not None)
        return chosen

    def collect(self, collection: Collection) -> list[Move]:
        """Build the combined file beside the old ones and make it durable; may run in another thread."""
        if collection.destination is None:
            return []
        moves: list[Move] = []
        pieces = []
        offset = 0
        for number in (collection.destination, collection.source):
            scanned = list(self._files.scan(number))
            wanted: list[Found] = []
            for found, location in zip(scanned, self._index.written([found.message_id for found in scanned]), strict=True):
                if location is not None and (location.file, location.offset) == (number, found.offset):
                    wanted.append(found)
                    moves.append(Move(found.message_id, location, offset))
                    offset += found.total_size
            pieces.append((number, wanted))
        size = self._files.build_aside(collection.destination, pieces)
        assert size == offset
        return moves

    def collected(self, collection: Collection, moves: list[Move]) -> None:
        """Put the combined file in place, move the index, and let go of the source."""
        source, destination = collection
        if destination is not None:
            self._files.replace_by_aside(destination)
            for message_id, old, offset in moves:
                location = self._index.get(message_id)
                # References may have been added meanwhile, never taken away: removals of locked files wait.
                assert location is not None and (location.file, location.offset) == (old.file, old.offset)
                self._index.put(message_id, location._replace(file=destination, offset=offset))
            size = sum(move.old.total_size for move in moves)
            self._summaries[destination] = _Summary(size, size)
        del self._summaries[source]
        self._files.delete(source)
        self._disk.sync_dir(self._directory)
        self._locked = frozenset()
        deferred, self._deferred = self._deferred, []
        self.remove(deferred)

    def collect_all(self) -> int:
        """Collect here and now until nothing is worth it; returns the number of files given back."""
        given_back = 0
        while (collection := self.take_collection()) is not None:
            self.collected(collection, self.collect(collection))
            given_back += 1
        return given_back

    # -- for whoever checks the invariants

    def check(self, expected: Callable[[bytes], int] | None = None) -> None:
        """QS-26: the summaries agree with the index, and with the references `expected`."""
        valid = dict.fromkeys(self._summaries, 0)
        for message_id, location in self._index.items():
            assert location.references > 0
            assert expected is None or location.references == expected(message_id)
            valid[location.file] += location.total_size
        assert valid == {number: summary.valid for number, summary in self._summaries.items()}
