"""Checking that an LMDB data file is whole, page by page and without LMDB.

LMDB has no checksums and trusts the file it maps: a number that leads outside a page or the file kills the process
(SIGSEGV, SIGBUS) instead of raising. So a file is checked before LMDB opens it. No other process may have it open
meanwhile. The check takes about 0.2 s for 100,000 rows, 0.01 s if they are all of one size, and changes nothing.

The file, as LMDB 0.9 writes it on 64-bit machines, with numbers in the machine's byte order:

    page          u64 number | u16 - | u16 flags | u16 lower | u16 upper | ...
                  an overflow page has u32 pages instead of lower and upper
    pages 0, 1    head | u32 magic | u32 version | u64 - | u64 map size | db free | db main | u64 last page
                  | u64 transaction; the page with the higher transaction counts
    db            u32 (free: page size) | u16 flags | u16 depth | u64 branch, leaf, overflow pages, entries | u64 root,
                  all ones: empty
    node          u16, u16 low and high half of the data's size | u16 flags | u16 key size | key | data
                  their offsets are u16s from 16 to `lower`; in a branch the first three u16s are the child's page
                  number; flags of a leaf: 1 the data is the u64 page number of an overflow run, 2 the data is a db
    free db       transaction -> u64 count | u64 page numbers that may be overwritten

Checked: every reachable page lies in the file, has its own number, is of the kind that its place needs, and is reached
once. Nodes lie in their page. Trees have the depth and the entries that their db states. Tables are plain ones. No
reachable page is free, and no page is free twice. The owner of the rows checks their content.
"""

from __future__ import annotations

import mmap
from array import array
from struct import Struct
from struct import error as StructError

MAGIC = 0xBEEFC0DE
#: The version of the data file that is checked; a file of another version is left to LMDB.
VERSION = 1

_PAGE = Struct("=QHHHH")
_META = Struct("=IIQQ48s48sQQ")
_DB = Struct("=IHHQQQQQ")
_NODE = Struct("=HHHH")
_NUMBER = Struct("=Q")
_OFFSET = Struct("=H")
_RUN = Struct("=I")
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_BIG_DATA, _SUB_DB = 1, 2
#: A leaf with fewer entries is checked entry by entry, which is as fast.
_MIN_UNIFORM = 8
_INTEGER_KEYS = 8
_EMPTY = (1 << 64) - 1
_PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)


class DamagedFile(Exception):
    """The file is damaged. The text is the damage and its place."""


def check_file(path: str) -> None:
    """Check the file at `path`. Waits for the disk. Raises DamagedFile, or OSError if the file cannot be read."""
    with open(path, "rb") as file:
        file.seek(0, 2)
        if not file.tell():
            raise DamagedFile("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                _Walk(data).check()
            except (StructError, IndexError):
                raise DamagedFile(f"the file ends early: it has {len(data)} bytes") from None


class _Walk:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._seen: set[int] = set()
        self._free: set[int] = set()
        #: The transaction of the free list's record that was checked last.
        self._freed_last = 0

    def check(self) -> None:
        found = self._newest_meta()
        if found is None:
            return
        free, main, self._last, self._transaction = found
        self._tree(free, "the free list", is_free_list=True)
        self._tree(main, "the root", has_dbs=True)
        if self._seen & self._free:
            raise DamagedFile(f"page {min(self._seen & self._free)} is in use and free")

    def _newest_meta(self) -> tuple[bytes, bytes, int, int] | None:
        """The newest commit: its two dbs, its last page and its number; None for another version."""
        _, _, _, _, free, main, last, newest = self._meta(_PAGE.size)
        self._page_size = _DB.unpack(free)[0]
        if self._page_size not in _PAGE_SIZES:
            raise DamagedFile(f"the page size is {self._page_size} bytes, which LMDB never uses")
        other = self._meta(self._page_size + _PAGE.size)
        if other[7] > newest:
            free, main, last, newest = other[4:8]
        if {self._meta(_PAGE.size)[1], other[1]} != {VERSION}:
            return None
        return free, main, last, newest

    def _meta(self, offset: int) -> tuple[int, int, int, int, bytes, bytes, int, int]:
        meta = _META.unpack_from(self._data, offset)
        flags = _PAGE.unpack_from(self._data, offset - _PAGE.size)[2]
        if meta[0] != MAGIC or not flags & _META_PAGE:
            raise DamagedFile("it is not an LMDB file")
        return meta

    def _tree(self, db: bytes, name: str, has_dbs: bool = False, is_free_list: bool = False) -> None:
        _, flags, depth, _, _, _, entries, root = _DB.unpack(db)
        if flags != (_INTEGER_KEYS if is_free_list else 0):
            raise DamagedFile(f"{name} is of a kind that warren never makes")
        if root == _EMPTY:
            if entries:
                raise DamagedFile(f"{name} is empty, and should have {entries} entries")
            return
        leaves = [root]
        for _ in range(depth - 1):
            leaves = [child for page in leaves for child in self._children(page)]
        found = 0
        for page in leaves:
            uniform = 0 if is_free_list else self._uniform(page)
            if uniform:
                found += uniform
                continue
            for node_flags, key, start, size in self._leaf(page):
                found += 1
                if node_flags & _SUB_DB and has_dbs:
                    self._tree(self._data[start : start + _DB.size], f"table {key.decode('ascii', 'replace')}")
                elif is_free_list:
                    self._free_pages(key, start, size)
        if found != entries:
            raise DamagedFile(f"{name} has {found} entries and should have {entries}")

    def _uniform(self, page: int) -> int:
        """The number of entries of a whole leaf whose data is plain and of one size; 0 for any other leaf.

        An index of millions has such leaves. The check compares columns of bytes instead of entries, which takes a
        twentieth of the time; `_leaf` checks the other leaves.
        """
        size = self._page_size
        if page in self._seen or not 2 <= page <= self._last or (page + 1) * size > len(self._data):
            return 0
        data = self._data[page * size : (page + 1) * size]
        number, _, flags, lower, upper = _PAGE.unpack_from(data)
        count = (lower - _PAGE.size) // 2
        if number != page or flags != _LEAF or count < _MIN_UNIFORM or not lower <= upper <= size - _NODE.size:
            return 0
        low, high, node_flags, key_size = _NODE.unpack_from(data, upper)
        step = _NODE.size + key_size + low
        step += step & 1  # nodes are aligned to two bytes
        if node_flags or high or upper + count * step != size:
            return 0
        head = data[upper : upper + _NODE.size]
        if any(data[upper + column : size : step] != head[column : column + 1] * count for column in range(_NODE.size)):
            return 0
        offsets = array("H", data[_PAGE.size : lower])
        if sorted(offsets) != list(range(upper, size, step)):
            return 0
        self._seen.add(page)
        return count

    def _nodes(self, page: int, kind: int) -> list[tuple[int, tuple[int, int, int, int]]]:
        """The offset and the head of each node of a page, which must be of this kind."""
        base = self._reach(page)
        number, _, flags, lower, upper = _PAGE.unpack_from(self._data, base)
        if number != page or flags != kind:
            raise DamagedFile(f"page {page} is not of the kind that its place in the tree needs")
        if not _PAGE.size < lower <= upper <= self._page_size or lower % 2:
            raise DamagedFile(f"page {page} has wrong bounds")
        found = []
        for position in range(_PAGE.size, lower, 2):
            (offset,) = _OFFSET.unpack_from(self._data, base + position)
            if not upper <= offset <= self._page_size - _NODE.size:
                raise DamagedFile(f"page {page} has a node outside itself")
            node = _NODE.unpack_from(self._data, base + offset)
            if offset + _NODE.size + node[3] > self._page_size:
                raise DamagedFile(f"page {page} has a key outside itself")
            found.append((base + offset, node))
        return found

    def _children(self, page: int) -> list[int]:
        return [low | high << 16 | flags << 32 for _, (low, high, flags, _) in self._nodes(page, _BRANCH)]

    def _leaf(self, page: int) -> list[tuple[int, bytes, int, int]]:
        """Each entry of a leaf: flags, key, offset of the data, size of the data."""
        end = (page + 1) * self._page_size
        found = []
        for offset, (low, high, flags, key_size) in self._nodes(page, _LEAF):
            key_at = offset + _NODE.size
            start, size = key_at + key_size, low | high << 16
            is_big = flags & _BIG_DATA
            if start + (_NUMBER.size if is_big else size) > end or flags & _SUB_DB and size != _DB.size:
                raise DamagedFile(f"page {page} has data outside itself")
            if is_big:
                start = self._overflow(_NUMBER.unpack_from(self._data, start)[0], size)
            found.append((flags, self._data[key_at : key_at + key_size], start, size))
        return found

    def _overflow(self, page: int, size: int) -> int:
        """The offset of the data of an overflow run of `size` bytes."""
        base = self._reach(page)
        number, _, flags, _, _ = _PAGE.unpack_from(self._data, base)
        (pages,) = _RUN.unpack_from(self._data, base + 12)
        if (
            number != page
            or flags != _OVERFLOW
            or pages * self._page_size < _PAGE.size + size
            or page + pages - 1 > self._last
        ):
            raise DamagedFile(f"page {page} is not the overflow run it should be")
        if base + _PAGE.size + size > len(self._data):
            raise DamagedFile(f"page {page} lies behind the end of the file")
        self._seen.update(range(page + 1, page + pages))
        return base + _PAGE.size

    def _free_pages(self, key: bytes, start: int, size: int) -> None:
        """Check the pages that one transaction freed: LMDB sorts them from the highest down."""
        (count,) = _NUMBER.unpack_from(self._data, start)
        if size != (count + 1) * _NUMBER.size:
            # LMDB takes the length of some of these records from their size and of others from their count. If the two
            # differ, it fails at a later commit.
            raise DamagedFile(f"a record of the free list has {size} bytes for {count} pages")
        if len(key) != _NUMBER.size or not 0 < (transaction := _NUMBER.unpack(key)[0]) <= self._transaction:
            raise DamagedFile("the free list names a transaction that never was")
        if transaction <= self._freed_last:
            raise DamagedFile("the free list has its transactions out of order")
        self._freed_last = transaction
        pages = [
            page
            for (page,) in _NUMBER.iter_unpack(self._data[start + _NUMBER.size : start + (count + 1) * _NUMBER.size])
        ]
        if any(lower >= page for page, lower in zip(pages, pages[1:], strict=False)):
            raise DamagedFile("the free list is out of order")
        if not all(2 <= page <= self._last for page in pages):
            raise DamagedFile("the free list names a page outside the file")
        if not self._free.isdisjoint(pages):
            raise DamagedFile("the free list has a page twice")
        self._free.update(pages)

    def _reach(self, page: int) -> int:
        """The offset of a page that a db, a node or a free list refers to; it must be reached only once."""
        if page in self._seen:
            raise DamagedFile(f"page {page} is referred to twice")
        if not 2 <= page <= self._last or (page + 1) * self._page_size > len(self._data):
            raise DamagedFile(f"page {page} lies outside the file")
        self._seen.add(page)
        return page * self._page_size
