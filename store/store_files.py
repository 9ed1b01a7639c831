"""The data files of a message store: `<n>.rdq`, about 16 MiB each, appended to and never changed in place (QS-28).

A file is a sequence of records:

    u64 size | id 16 | body | u8 0xFF          size counts id and body; total size = size + 9
    body:  u8 version 1 | u32 CRC-32 of the content | content

A scan ends at a zero size or an incomplete tail; a record whose marker or checksum is wrong is passed over by its size (section 6.1, D-19).
`<n>.rdt` is a file being built beside another by `combine`; one found at start is deleted, the files it was made of are whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from .disk import Disk, File
from .records import Damaged

FILE_LIMIT = 16 << 20
SUFFIX = '.rdq'
ASIDE = '.rdt'
OPEN_MOST = 16
SCAN_BLOCK = 4 << 20

_HEAD = Struct('>Q16sBI')
_VERSION = 1
_MARKER = b'\xff'
OVERHEAD = _HEAD.size + 1
"""Bytes of a record that are not content."""


class Found(NamedTuple):
    """A whole record of a scan."""

    message_id: bytes
    offset: int
    total_size: int


def encode(message_id: bytes, content: bytes) -> list[bytes]:
    """A record as buffers."""
    return [_HEAD.pack(21 + len(content), message_id, _VERSION, crc32(content)), content, _MARKER]


def decode(data: bytes, message_id: bytes) -> bytes:
    """The content of a record; raises Damaged if it is not a whole record of that id."""
    size, found, version, checksum = _HEAD.unpack_from(data)
    if size + 9 != len(data) or found != message_id or version != _VERSION or data[-1:] != _MARKER:
        raise Damaged('not the record that the index names')
    content = data[_HEAD.size:-1]
    if crc32(content) != checksum:
        raise Damaged('checksum of a body')
    return content


class StoreFiles:
    """Opens, reads, scans and removes the files of one directory; at most 16 are open at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        disk.make_dir(directory)
        self._open: OrderedDict[int, File] = OrderedDict()

    def numbers(self) -> list[int]:
        return sorted(int(name[:-len(SUFFIX)]) for name in self.disk.list(self.directory) if name.endswith(SUFFIX))

    def remove_aside(self) -> bool:
        """Delete what an interrupted combination left; True if there was anything."""
        left = [name for name in self.disk.list(self.directory) if name.endswith(ASIDE)]
        for name in left:
            self.disk.delete(f'{self.directory}/{name}')
        return bool(left)

    def open(self, number: int, create: bool = False) -> File:
        file = self._open.get(number)
        if file is None:
            file = self._open[number] = self.disk.open(self._path(number, SUFFIX), create)
            if len(self._open) > OPEN_MOST:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(number)
        return file

    def read(self, number: int, offset: int, total_size: int, message_id: bytes) -> bytes:
        """The content at a place; raises Damaged."""
        data = self.open(number).read(offset, total_size)
        if len(data) < total_size:
            raise Damaged('a record reaches beyond its file')
        return decode(data, message_id)

    def scan(self, number: int) -> Iterator[Found]:
        """Every whole record, in the order of the file. Uses a handle of its own, so that another thread may scan."""
        file = self.disk.open(self._path(number, SUFFIX))
        try:
            end = file.size()
            offset = base = 0
            block = b''
            while offset + OVERHEAD <= end:
                if offset + _HEAD.size > base + len(block):
                    base, block = offset, file.read(offset, SCAN_BLOCK)
                size, message_id, version, checksum = _HEAD.unpack_from(block, offset - base)
                total_size = size + 9
                if not size or offset + total_size > end:
                    return
                if offset + total_size > base + len(block):
                    base, block = offset, file.read(offset, max(SCAN_BLOCK, total_size))
                start = offset - base
                content = memoryview(block)[start + _HEAD.size:start + total_size - 1]
                if version == _VERSION and block[start + total_size - 1] == 0xFF and crc32(content) == checksum:
                    yield Found(message_id, offset, total_size)
                offset += total_size
        finally:
            file.close()

    def build_aside(self, number: int, pieces: list[tuple[int, list[Found]]]) -> int:
        """Write `<number>.rdt` of the records named, file by file, and make it durable; returns its size."""
        path = self._path(number, ASIDE)
        aside = self.disk.open(path, create=True)
        try:
            aside.truncate(0)
            for source, wanted in pieces:
                file = self.disk.open(self._path(source, SUFFIX))
                try:
                    for record in wanted:
                        aside.append([file.read(record.offset, record.total_size)])
                finally:
                    file.close()
            aside.sync()
            return aside.size()
        finally:
            aside.close()

    def replace_by_aside(self, number: int) -> None:
        self.close(number)
        self.disk.rename(self._path(number, ASIDE), self._path(number, SUFFIX))
        self.disk.sync_dir(self.directory)

    def delete(self, number: int) -> None:
        self.close(number)
        self.disk.delete(self._path(number, SUFFIX))

    def close(self, number: int) -> None:
        file = self._open.pop(number, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for number in list(self._open):
            self.close(number)

    def _path(self, number: int, suffix: str) -> str:
        return f'{self.directory}/{number}{suffix}'
