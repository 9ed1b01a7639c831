"""Shapes of publishes: recognise the next basic.publish by comparing its bytes with those of the one before.

A message is compared in these parts. `head` and `middle` hold the bytes that do not vary with the size of the body;
`prefix` holds all bytes before the body, including the size::

    | method frame | header frame up to weight | size u64 | props CE 03 channel | length u32 | body CE |
    |<------------- head ------------------->|            |<----- middle ----->|
    |<------------------------------------- prefix -------------------------------------->|

A shape is learnt from a message whose method frame is valid; class, weight and sizes of its header are checked then. So
a later message with the same bytes needs only one more check, the end octet of its body frame. A message with more than
one body frame has no shape.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ..constants import CLASS_BASIC, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from ..decoding import check_publish
from ..errors import AmqpError
from ..frames import CONTENT_HEAD, END, HEAD
from .skimmer import fate

#: An argument for `startswith` that no input matches. No `bytes` value would do, because a client can send any.
NOTHING: tuple[bytes, ...] = ()
#: The largest method frame, and the largest payload of a header frame, that a shape remembers, in bytes.
SHAPE_SIZE_MAX = 1024
#: Class and method id of basic.publish.
PUBLISH_IDS = b"\x00\x3c\x00\x28"
#: Shapes remembered for one connection. At one more, the reader forgets all of them, so that a client cannot make it
#: keep more than this many shapes of SHAPE_SIZE_MAX bytes.
_SHAPES_MAX = 256
#: Contents cut out of the buffer by one call of struct.unpack.
_BLOCK = 32


class PublishShape:
    """The bytes that publishes with one method frame have in common. The module names the parts."""

    __slots__ = (
        "channel",
        "expiration",
        "head",
        "head_size",
        "key",
        "method_frame",
        "payload",
        "middle",
        "latest_size",
        "overhead",
        "overhead_empty",
        "prefix",
        "props",
        "repeated",
        "size",
        "size_max",
        "stride",
        "tail",
        "unpack_from",
        "varies",
    )

    def __init__(self, method_frame: bytes, channel: int) -> None:
        self.method_frame: bytes | tuple[bytes, ...] = method_frame or NOTHING
        self.payload = method_frame[7:-1]
        self.channel = channel
        self.props = b""
        #: The fate of messages with these properties, see `skimmer`.
        self.key = b""
        self.expiration: bytes | None = None
        #: Whether the properties of the latest message differed from those of the message before it.
        self.varies = False
        self.head: bytes | tuple[bytes, ...] = NOTHING
        self.middle = b""
        #: The last 4 bytes of `middle`.
        self.tail = b"\xce\x03" + channel.to_bytes(2, "big")
        self.unpack_from = _lengths(0).unpack_from
        self.head_size = 0
        #: Bytes of a message with a body, without that body.
        self.overhead = 0
        #: Bytes of a message without a body.
        self.overhead_empty = 0
        self.latest_size = -1
        self.size_max = 0
        self.forget()

    def forget(self) -> None:
        """Do not try to recognise the next message by its prefix."""
        self.prefix: bytes | tuple[bytes, ...] = NOTHING
        self.repeated: bytes | tuple[bytes, ...] = NOTHING
        self.size = 0
        self.stride = 0

    def expect(self, prefix: bytes, size: int) -> None:
        """Expect that the next message begins with `prefix`, which means a body of `size` bytes."""
        self.prefix = prefix
        self.repeated = END + prefix
        self.size = size
        self.stride = len(prefix) + size + 1

    def learn(self, buffer: bytes, position: int, frame_max: int, max_body_size: int) -> bool:
        """Learn properties and sizes from the message at `position`. False if its header is not valid or complete."""
        start = position + len(self.method_frame)
        if start + CONTENT_HEAD.size > len(buffer):
            return False
        kind, channel, length, class_id, weight, _ = CONTENT_HEAD.unpack_from(buffer, start)
        last = start + 7 + length
        if kind != FRAME_HEADER or channel != self.channel or class_id != CLASS_BASIC or weight:
            return False
        if not 12 <= length <= SHAPE_SIZE_MAX or last >= len(buffer) or buffer[last] != FRAME_END:
            return False
        self.props = buffer[start + 19 : last]
        self.key, self.expiration = fate(self.props)
        self.head = buffer[position : start + 11]
        self.head_size = start + 11 - position
        self.middle = self.props + self.tail
        self.unpack_from = _lengths(len(self.middle)).unpack_from
        self.overhead_empty = last + 1 - position
        self.overhead = self.overhead_empty + FRAME_OVERHEAD
        self.latest_size = -1
        self.size_max = min(frame_max, max_body_size) if frame_max else max_body_size
        self.forget()
        return True

    def size_at(self, buffer: bytes, position: int) -> int:
        """Size of the body of the message at `position`; -1 if the message has another shape, or is not complete."""
        if not buffer.startswith(self.head, position):
            return -1
        try:
            size, middle, length = self.unpack_from(buffer, position + self.head_size)
        except struct.error:
            return -1
        if size:
            last = position + self.overhead + size - 1
            if (
                size != length
                or middle != self.middle
                or size > self.size_max
                or last >= len(buffer)
                or buffer[last] != FRAME_END
            ):
                return -1
            return size  # type: ignore[no-any-return]
        # There is no body frame, so the last three bytes of `middle` belong to the next frame.
        return 0 if middle.startswith(self.middle[:-3]) else -1


@lru_cache(maxsize=256)
def _lengths(middle_size: int) -> struct.Struct:
    return struct.Struct(f">Q{middle_size}sI")


#: The shape that no input matches.
NO_SHAPE = PublishShape(b"", 0)


@lru_cache(maxsize=64)
def _block(skip: int, size: int) -> struct.Struct:
    return struct.Struct(f"{skip}x{size}s" * _BLOCK)


def take_contents(buffer: bytes, start: int, stop: int, skip: int, stride: int, contents: list[bytes]) -> None:
    """Append the content of each message of `stride` bytes from `start` to `stop`, without its first `skip` bytes."""
    if stop - start == stride:
        contents.append(buffer[start + skip : stop])
        return
    while stop - start >= _BLOCK * stride:
        # 20 ns for each content; slicing takes 70.
        contents += _block(skip, stride - skip).unpack_from(buffer, start)
        start += _BLOCK * stride
    contents += [buffer[at + skip : at + stride] for at in range(start, stop, stride)]


class KnownShapes:
    """The shapes of one connection's publishes."""

    __slots__ = ("by_method_frame",)

    def __init__(self) -> None:
        #: Whole method frames, each of them sound, and their shapes.
        self.by_method_frame: dict[bytes, PublishShape] = {}

    def __len__(self) -> int:
        return len(self.by_method_frame)

    def forget(self) -> None:
        """Forget all shapes."""
        self.by_method_frame.clear()

    def find(self, buffer: bytes, position: int) -> PublishShape | None:
        """The shape, remembered or new, of a sound basic.publish frame at `position`; None if there is none."""
        if not buffer.startswith(PUBLISH_IDS, position + 7):
            return None
        kind, channel, length = HEAD.unpack_from(buffer, position)
        stop = position + 7 + length
        if length > SHAPE_SIZE_MAX or stop >= len(buffer):
            return None
        method_frame = buffer[position : stop + 1]
        shape = self.by_method_frame.get(method_frame)
        if shape is None:
            if kind != FRAME_METHOD or channel == 0 or buffer[stop] != FRAME_END:
                return None
            try:
                check_publish(method_frame[7:-1])
            except AmqpError:
                return None
            if len(self.by_method_frame) >= _SHAPES_MAX:
                self.by_method_frame.clear()
            self.by_method_frame[method_frame] = shape = PublishShape(method_frame, channel)
        return shape
