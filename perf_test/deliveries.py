"""`DeliveryReader`: finds deliveries in what a consumer's connection receives.

A delivery is a method frame, a header frame and body frames. Deliveries of one consumer whose keys, properties and
body size are equal have equal lengths, so they stand in the input at equal distances. `DeliveryReader` decodes the
first one, and checks with strided slices that the next ones have the same framing. It counts them all at once: a
million of them cost as much as a thousand single ones.

The input is received into one buffer and read there. Copies of it, and new memory for each read from the socket, cost
more than everything else that a consumer does.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from ..amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from ..amqp.frames import HEAD

_DELIVER = b"\x00\x3c\x00\x3c"
_RETURN = b"\x00\x3c\x00\x32"
_LONG = Struct(">Q").unpack_from

#: Bytes of a header frame up to its body size.
_BODY_SIZE_AT = 7 + 4
_OVERHEAD = 8

#: Bytes of the buffer at first. It grows for a message that is larger.
BUFFER_BYTES = 512 << 10


class DeliveryBatch(NamedTuple):
    """Deliveries that are alike: they lie in `data` from `start` on, one every `length` bytes.

    `data` is the reader's buffer, so a batch is valid only until its receiver returns.
    """

    channel: int
    messages: int
    #: The tags of the first and of the last.
    first_tag: int
    last_tag: int
    data: bytearray
    start: int
    length: int
    #: Where a body begins in its delivery; None if the body is empty.
    body_at: int | None
    is_returned: bool


class _Shape(NamedTuple):
    length: int
    tag_at: int
    body_at: int | None
    #: Positions of bytes that all deliveries of the shape share.
    fixed: tuple[int, ...]


class DeliveryReader:
    """Calls `on_batch` for deliveries and returned messages, and `on_frame(type, channel, payload)` for others."""

    def __init__(self, on_batch: Callable[[DeliveryBatch], None], on_frame: Callable[[int, int, bytes], None]) -> None:
        self._on_batch = on_batch
        self._on_frame = on_frame
        self._buffer = bytearray(BUFFER_BYTES)
        #: Bytes at the beginning of the buffer that are not read yet: a message that is not complete.
        self._filled = 0

    def receive(self, read: Callable[[memoryview], int]) -> None:
        """Have `read` write into the buffer and return how many bytes, and report all messages that are complete."""
        if self._filled == len(self._buffer):
            self._buffer.extend(bytes(self._filled))
        buffer = self._buffer
        with memoryview(buffer)[self._filled :] as room:
            end = self._filled + read(room)
        at = 0
        while at + _OVERHEAD <= end:
            kind, channel, size = HEAD.unpack_from(buffer, at)
            if at + _OVERHEAD + size > end:
                break
            ids = buffer[at + 7 : at + 11]
            if kind == FRAME_METHOD and ids in (_DELIVER, _RETURN):
                shape = _shape(buffer, at, end, ids == _RETURN)
                if shape is None:
                    break
                at = self._read(at, end, channel, shape, ids == _RETURN)
            else:
                self._on_frame(kind, channel, bytes(buffer[at + 7 : at + 7 + size]))
                at += _OVERHEAD + size
        if at:
            buffer[: end - at] = buffer[at:end]
        self._filled = end - at

    def _read(self, at: int, end: int, channel: int, shape: _Shape, is_returned: bool) -> int:
        """Report the deliveries of this shape that begin at `at`, and return where they end."""
        buffer, length = self._buffer, shape.length
        count = 1 if is_returned else (end - at) // length
        if count > 1:
            for position in shape.fixed:
                column = buffer[at + position : at + count * length : length]
                if column.count(column[0]) != count:
                    count -= len(column.lstrip(column[:1]))  # up to the first that differs
        tag_at = at + shape.tag_at
        first = last = 0
        if not is_returned:
            first = _LONG(buffer, tag_at)[0]
            last = _LONG(buffer, tag_at + (count - 1) * length)[0]
            if last - first != count - 1:
                count, last = 1, first  # the tags between are other consumers'
        self._on_batch(DeliveryBatch(channel, count, first, last, buffer, at, length, shape.body_at, is_returned))
        return at + count * length


def _shape(buffer: bytearray, at: int, end: int, is_returned: bool) -> _Shape | None:
    """How the message at `at` is framed; None if it is not complete."""
    header_at = at + _OVERHEAD + HEAD.unpack_from(buffer, at)[2]
    if header_at + _BODY_SIZE_AT + 8 > end:
        return None
    kind, _, header_size = HEAD.unpack_from(buffer, header_at)
    assert kind == FRAME_HEADER
    body_size = _LONG(buffer, header_at + _BODY_SIZE_AT)[0]
    position = header_at + _OVERHEAD + header_size
    fixed = [at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7, at + 8, at + 9, at + 10, header_at - 1]
    fixed += range(header_at, header_at + _BODY_SIZE_AT + 8)
    body_at = position + 7 if body_size else None
    while body_size > 0:
        if position + 7 > end:
            return None
        kind, _, size = HEAD.unpack_from(buffer, position)
        assert kind == FRAME_BODY
        fixed += [position, *range(position + 3, position + 7), position + 7 + size]
        position += _OVERHEAD + size
        body_size -= size
    if position > end:
        return None
    tag_at = 0 if is_returned else 7 + 4 + 1 + buffer[at + 11]
    return _Shape(
        position - at, tag_at, None if body_at is None else body_at - at, tuple(place - at for place in fixed)
    )
