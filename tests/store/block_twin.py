"""The slow and obvious twin of `warren.store.block`: a block is read one field after the other, message by message."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple


class BlockMessage(NamedTuple):
    """One message of a block. `arrived` and `expires` are None if they are unknown or never."""

    number: int
    exchange: str
    routing_keys: tuple[str, ...]
    priority: int
    properties: bytes
    arrived: int | None
    expires: int | None
    redelivered: bool
    persistent: bool
    content: bytes


class BlockRead(NamedTuple):
    first: int
    next: int
    runs: int
    messages: list[BlockMessage]


class Fields:
    """Takes one field after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, letter: str) -> int:
        (value,) = struct.unpack_from("<" + letter, self.data, self.at)
        self.at += struct.calcsize("<" + letter)
        return value

    def octets(self, count: int) -> bytes:
        assert self.at + count <= len(self.data), "the block is cut"
        self.at += count
        return self.data[self.at - count : self.at]

    def align(self) -> None:
        while self.at % 8:
            assert self.octets(1) == b"\0"


def read_block(data: bytes) -> BlockRead:
    """Take a block apart, and check everything that its description promises."""
    fields = Fields(data)
    assert fields.octets(4) == b"WBK1"
    is_uniform = fields.number("I")
    first, next_number = fields.number("Q"), fields.number("Q")
    count, run_count, origin_count, origin_bytes = (fields.number("I") for _ in range(4))
    content_bytes = fields.number("Q")
    assert fields.number("Q") == 0
    checksum = fields.number("I")
    assert fields.number("I") == 0 and fields.at == 64
    runs = [tuple(fields.number(letter) for letter in "QqqIIII") for _ in range(run_count)]
    origins_at = fields.at
    origins = []
    for _ in range(origin_count):
        size = fields.number("I")
        end = fields.at + size
        exchange = fields.octets(fields.number("H")).decode("utf-8", "surrogateescape")
        keys = tuple(
            fields.octets(fields.number("B")).decode("utf-8", "surrogateescape") for _ in range(fields.number("H"))
        )
        priority = fields.number("B")
        origins.append((exchange, keys, priority, fields.octets(fields.number("I"))))
        assert fields.at == end
    assert fields.at - origins_at == origin_bytes
    fields.align()
    sizes = [fields.number("I")] * count if is_uniform else [fields.number("I") for _ in range(count)]
    fields.align()
    assert zlib.crc32(data[:56] + bytes(4) + data[60 : fields.at]) == checksum
    contents_at = fields.at
    messages = []
    left = iter(sizes)
    for number, arrived, expires, messages_of_run, origin, flags, zero in runs:
        assert zero == 0 and messages_of_run
        exchange, keys, priority, properties = origins[origin]
        for index in range(messages_of_run):
            content = fields.octets(next(left))
            own = content[19 : 7 + int.from_bytes(content[3:7], "big")]
            assert flags & 4 or properties == own
            messages.append(
                BlockMessage(
                    number + index,
                    exchange,
                    keys,
                    priority,
                    own,
                    None if arrived < 0 else arrived,
                    None if expires < 0 else expires,
                    bool(flags & 1),
                    bool(flags & 2),
                    content,
                )
            )
    assert len(messages) == count and fields.at - contents_at == content_bytes and fields.at == len(data)
    numbers = [message.number for message in messages]
    assert numbers == sorted(set(numbers)) and all(first <= number < next_number for number in numbers)
    return BlockRead(first, next_number, run_count, messages)
