"""`HashFiles`: the entries of the message index in RocketMQ's index files (engine B, QP-5 to QP-11, QP-45).

Each file has a header, a table of slots and entries; all integers are big-endian and signed:

    0                header: i64 begin time | i64 end time | i64 begin position | i64 end position
                     | i32 slots in use | i32 number of the next entry
    40               i32 for each slot: the newest entry of its chain, 0 if there is none
    40 + 4 · slots   entries of 20 bytes: i32 hash | i64 position | i32 seconds after the begin time
                     | i32 the entry before it in the chain, 0 if there is none

Entries are numbered from 1; number 0 is never used, because it means none. The slot of a hash is the hash modulo the
number of slots. Times are in ms since the epoch. A file has its full length from the beginning, and is sparse.

The string that is hashed is `<queue>#<key>`. Its hash is a non-negative i32: RocketMQ's `java` hash, or `crc32`, the
CRC-32 of the UTF-8 without the highest bit, which takes a hundredth of the time. Beside each file lies `<name>.meta`,
JSON with the hash's name and the sizes; a file without one is RocketMQ's own, with its sizes.

A chain may have entries that do not belong to a search: several keys have one hash, times are in seconds, and entries
of messages that have left the index stay in their file. So a search compares each entry with the table `places` of the
index (QP-46). Three of RocketMQ's rules are followed in a way that is safe when the disk is full or power fails:

- A file is written by positioned writes, never through a mapping: a write to a mapped hole of a full disk kills the
  process. Entries come first, then the header, then the slots. A crash in between leaves entries that no slot leads to;
  with the slots before the header, as in RocketMQ, a chain would end at an entry that does not count.
- The time of an entry is at least that of the one before it in the file, so a chain may be left at the first entry that
  is too old.
- A file is removed when the index has no message from its first position to its last, whatever older files have.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import Struct
from zlib import crc32

HEADER = Struct(">qqqqii")
ENTRY = Struct(">iqii")
SLOT = Struct(">i")

#: The sizes of RocketMQ's files.
ROCKETMQ_SLOTS, ROCKETMQ_ENTRIES = 5_000_000, 20_000_000

#: The version in `<name>.meta`.
FORMAT = 1

_NAME = re.compile("[0-9]{17}")
_I32 = (1 << 31) - 1


def java_hash(text: str) -> int:
    """The hash of RocketMQ: that of Java's strings, over UTF-16 code units, made non-negative (QP-8)."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (found * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    if found > _I32:
        found -= 1 << 32
    return abs(found) if found > -(1 << 31) else 0


def crc_hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogateescape")) & _I32


HASHES: dict[str, Callable[[str], int]] = {"java": java_hash, "crc32": crc_hash}


class DamagedIndexFile(ValueError):
    """A file with an impossible size or header. The text names the file and what is wrong."""


class HashFile:
    """One file, and its header. One thread writes, any may read; every method waits for the disk."""

    def __init__(self, path: str, slots: int, entries: int, is_new: bool) -> None:
        self.path = path
        self.sizes = slots, entries
        self._slots, self._most = slots, entries
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self._fd = os.open(path, flags, 0o600)
        size = HEADER.size + SLOT.size * slots + ENTRY.size * entries
        if is_new:
            os.ftruncate(self._fd, size)
            self.begin_time = self.end_time = self.begin = self.end = self.slots_used = 0
            self.next = 1
            return
        if os.fstat(self._fd).st_size != size:
            raise DamagedIndexFile(f"'{path}' has {os.fstat(self._fd).st_size} bytes and not {size}")
        found = HEADER.unpack(os.pread(self._fd, HEADER.size, 0))
        self.begin_time, self.end_time, self.begin, self.end, self.slots_used, self.next = found
        if not any(found):
            self.next = 1  # RocketMQ writes the first header with the first entry
        if min(found) < 0 or not 0 < self.next <= entries or self.begin > self.end or self.begin_time > self.end_time:
            raise DamagedIndexFile(f"'{path}' has an impossible header: {found}")

    def __del__(self) -> None:
        # A search in another thread may still read a file that was removed.
        if hasattr(self, "_fd"):
            os.close(self._fd)

    @property
    def room(self) -> int:
        """How many more entries fit into the file. Number 0 is not used."""
        return self._most - self.next

    def put(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Write entries of (hash, position, time in ms), ascending by position, no more than there is `room` for."""
        first, heads = self.next, dict[int, int]()
        begin_time, end_time, begin, end, used = self.begin_time, self.end_time, self.begin, self.end, self.slots_used
        parts = []
        for number, (key_hash, position, stored_at) in enumerate(rows, first):
            if number == 1:
                begin_time, begin = stored_at, position
            end_time, end = max(end_time, stored_at), position
            slot = key_hash % self._slots
            head = heads.get(slot)
            if head is None:
                head = self._head(slot)
                used += not head
            seconds = min(max(0, (end_time - begin_time) // 1000), _I32)
            parts.append(ENTRY.pack(key_hash, position, seconds, head))
            heads[slot] = number
        if not parts:
            return
        assert len(parts) <= self.room, "the caller passes no more entries than fit into the file"
        _write(self._fd, b"".join(parts), self._entry_offset(first))
        next_number = first + len(parts)
        _write(self._fd, HEADER.pack(begin_time, end_time, begin, end, used, next_number), 0)
        self.begin_time, self.end_time, self.begin, self.end = begin_time, end_time, begin, end
        self.slots_used, self.next = used, next_number
        for slot, number in sorted(heads.items()):
            _write(self._fd, SLOT.pack(number), HEADER.size + SLOT.size * slot)

    def chain(self, key_hash: int, begin: int) -> Iterator[int | None]:
        """The positions of the entries with this hash, the newest first, from the time `begin` on or a little before.

        None stands for an entry with another hash, so that the caller can count what was visited.
        """
        if self.end_time < begin:
            return
        least = (begin - self.begin_time) // 1000
        number, last = self._head(key_hash % self._slots), self.next
        while 0 < number < last:
            data = os.pread(self._fd, ENTRY.size, self._entry_offset(number))
            found, position, seconds, before = ENTRY.unpack(data)
            if seconds < least:
                return
            yield position if found == key_hash else None
            if before >= number:  # only in a damaged file; chains lead to lower numbers
                return
            number = before

    def sync(self) -> None:
        os.fsync(self._fd)

    def header_sum(self) -> int:
        return crc32(os.pread(self._fd, HEADER.size, 0))

    def _head(self, slot: int) -> int:
        """The newest entry of a slot; 0 if it has none, or a number that no entry of this file has (QP-9)."""
        found: int = SLOT.unpack(os.pread(self._fd, SLOT.size, HEADER.size + SLOT.size * slot))[0]
        return found if 0 < found < self.next else 0

    def _entry_offset(self, number: int) -> int:
        return HEADER.size + SLOT.size * self._slots + ENTRY.size * number


class HashFiles:
    """The files in the directory `path`, the newest last. New ones get these sizes and this hash.

    Raises DamagedIndexFile. `clock` gives seconds since the epoch.
    """

    def __init__(
        self, path: str, hash_name: str, slots: int, entries: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self.hash_name = hash_name
        self._sizes = slots, entries
        self._clock = clock
        os.makedirs(path, exist_ok=True)
        names = sorted(name for name in os.listdir(path) if _NAME.fullmatch(name))
        self._files = [self._open(name) for name in names]
        #: The files that were written to since the last `sync`.
        self._unsynced: list[HashFile] = []

    def _open(self, name: str) -> HashFile:
        path = f"{self._path}/{name}"
        slots, entries, hash_name = ROCKETMQ_SLOTS, ROCKETMQ_ENTRIES, "java"
        try:
            with open(f"{path}.meta", encoding="utf-8") as file:
                meta = json.load(file)
            slots, entries, hash_name = int(meta["slots"]), int(meta["entries"]), str(meta["hash"])
            expected = meta.get("header")
        except FileNotFoundError:
            expected = None
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedIndexFile(f"'{path}.meta' cannot be read: {error}") from None
        if hash_name != self.hash_name:
            raise DamagedIndexFile(f"'{path}' has the hash '{hash_name}' and not '{self.hash_name}'")
        found = HashFile(path, slots, entries, is_new=False)
        if expected is not None and expected != found.header_sum():
            raise DamagedIndexFile(f"'{path}' has a different header than when it was finished")
        return found

    @property
    def end(self) -> int:
        """The highest position that any entry has."""
        return max((file.end for file in self._files), default=0)

    def put(self, rows: list[tuple[int, int, int]]) -> None:
        """Add entries of (hash, position, time in ms), ascending by position."""
        while rows:
            file = self._files[-1] if self._files else None
            if file is None or not file.room:
                file = self._next(file)
            fitting, rows = rows[: file.room], rows[file.room :]
            if not self._unsynced or self._unsynced[-1] is not file:
                self._unsynced.append(file)
            file.put(fitting)

    def _next(self, full: HashFile | None) -> HashFile:
        if full is not None:
            self._write_meta(full.path, full.sizes, full.header_sum())
        newest = 0 if full is None else int(os.path.basename(full.path))
        path = f"{self._path}/{max(_named(self._clock()), newest + 1):017}"
        try:
            # The meta comes first, because a file without one counts as RocketMQ's own.
            self._write_meta(path, self._sizes, None)
            file = HashFile(path, *self._sizes, is_new=True)
        except OSError:
            # The next attempt makes a file of another name.
            for name in (path, f"{path}.meta", f"{path}.meta.new"):
                with suppress(FileNotFoundError):
                    os.unlink(name)
            raise
        self._files = [*self._files, file]  # a new list, because a search in another thread may go through the old one
        return file

    def _write_meta(self, path: str, sizes: tuple[int, int], header: int | None) -> None:
        slots, entries = sizes
        meta = {"format": FORMAT, "hash": self.hash_name, "slots": slots, "entries": entries, "header": header}
        with open(f"{path}.meta.new", "w", encoding="utf-8") as new:
            json.dump(meta, new)
        os.replace(f"{path}.meta.new", f"{path}.meta")

    def newest_first(self, key_hash: int, begin: int) -> Iterator[int | None]:
        """The positions that may have this hash, as `HashFile.chain` yields them; older files come later."""
        for file in reversed(self._files):
            yield from file.chain(key_hash, begin)

    def sync(self) -> None:
        """Return when everything that was put is on the disk."""
        for file in self._unsynced:
            file.sync()
        self._unsynced = []

    def remove_dead(self, is_dead: Callable[[int, int], bool]) -> int:
        """Remove files without a message from their first position to their last, never the newest one. Returns how
        many were removed.
        """
        dead = [file for file in self._files[:-1] if is_dead(file.begin, file.end)]
        self._files = [file for file in self._files if file not in dead]
        for file in dead:
            os.unlink(file.path)
            os.unlink(f"{file.path}.meta")
        return len(dead)


def _named(seconds: float) -> int:
    """The name of a file that is made then, as a number: `yyyyMMddHHmmssSSS` (QP-13)."""
    return int(time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))) * 1000 + int(seconds * 1000) % 1000


def _write(fd: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
