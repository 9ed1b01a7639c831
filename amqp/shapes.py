"""What a publisher repeats: recognising the next basic.publish by comparing octets.

A message on the wire is compared in these parts. `head` and `middle` hold whatever does not vary with the size of the
body, `prefix` everything before the body, the size included::

    | method frame | header frame up to weight | size u64 | props CE 03 channel | length u32 | body CE |
    |<------------- head ------------------->|            |<----- middle ----->|
    |<------------------------------------- prefix -------------------------------------->|

A shape is learnt from a message whose method frame is known to be sound, and holds only what was checked then: limits
on sizes, class and weight of the header. So octets that equal those of a shape need no check but the end octet
of the body frame. A message with more than one body frame has no shape.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from .constants import CLASS_BASIC, FRAME_END, FRAME_HEADER, FRAME_OVERHEAD
from .frames import CONTENT_HEAD, END

# What no octets begin with. (No `bytes` would do: whatever it is, a client can send it.)
NOTHING: tuple[bytes, ...] = ()
SHAPE_SIZE_MAX = 1024  # octets of a method frame, or the payload of a header frame, worth remembering
_BLOCK = 32  # contents taken by one call of struct.unpack


class PublishShape:
    """What publishes with one method frame have looked like, in octets. The parts are named in the module's table."""

    __slots__ = (
        "channel",
        "head",
        "head_size",
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
    )

    def __init__(self, method_frame: bytes, channel: int) -> None:
        self.method_frame: bytes | tuple[bytes, ...] = method_frame or NOTHING
        self.payload = method_frame[7:-1]
        self.channel = channel
        self.props = b""
        self.head: bytes | tuple[bytes, ...] = NOTHING
        self.middle = b""
        self.tail = b"\xce\x03" + channel.to_bytes(2, "big")  # of `middle`
        self.unpack_from = _lengths(0).unpack_from
        self.head_size = 0
        self.overhead = 0  # octets of a message with a body, the body not counted
        self.overhead_empty = 0  # octets of a message without
        self.latest_size = -1
        self.size_max = 0
        self.forget()

    def forget(self) -> None:
        """The next message will not be recognised by its prefix."""
        self.prefix: bytes | tuple[bytes, ...] = NOTHING
        self.repeated: bytes | tuple[bytes, ...] = NOTHING
        self.size = 0
        self.stride = 0

    def expect(self, prefix: bytes, size: int) -> None:
        """The next message will probably begin with `prefix`, and then has a body of `size`."""
        self.prefix = prefix
        self.repeated = END + prefix
        self.size = size
        self.stride = len(prefix) + size + 1

    def is_of(self, channel: int, method_payload: bytes, props: bytes) -> bool:
        return self.channel == channel and self.props == props and self.payload == method_payload

    def learn(self, buffer: bytes, position: int, frame_max: int, max_body_size: int) -> bool:
        """Take properties and sizes from the message at `position`. False if it has no sound header frame there."""
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

    def size_at(self, buffer: bytes, position: int, adopt: bool) -> int:
        """Size of the body at `position`, or -1 if the message differs in more than that, or is not all there.

        With `adopt` the properties may differ, too, but not in length, and become those of the shape: a message id
        or a correlation id of its own in every message is common.
        """
        if not buffer.startswith(self.head, position):
            return -1
        try:
            size, middle, length = self.unpack_from(buffer, position + self.head_size)
        except struct.error:
            return -1
        if size:
            last = position + self.overhead + size - 1
            if size != length or size > self.size_max or last >= len(buffer) or buffer[last] != FRAME_END:
                return -1
            if middle != self.middle:
                if not adopt or not middle.endswith(self.tail):
                    return -1
                self.middle = middle
                self.props = middle[:-4]
                self.latest_size = -1
                self.forget()
            return size  # type: ignore[no-any-return]
        # No body frame, so the last three octets of `middle` belong to whatever follows.
        return 0 if middle.startswith(self.middle[:-3]) else -1


@lru_cache(maxsize=256)
def _lengths(middle_size: int) -> struct.Struct:
    return struct.Struct(f">Q{middle_size}sI")


NO_SHAPE = PublishShape(b"", 0)


@lru_cache(maxsize=64)
def _block(skip: int, size: int) -> struct.Struct:
    return struct.Struct(f"{skip}x{size}s" * _BLOCK)


def take_contents(buffer: bytes, start: int, stop: int, skip: int, stride: int, contents: list[bytes]) -> None:
    """Append the content of each message of `stride` octets from `start` to `stop`, without its first `skip` octets."""
    if stop - start == stride:
        contents.append(buffer[start + skip : stop])
        return
    while stop - start >= _BLOCK * stride:
        # 20 ns a content where slicing takes 70.
        contents += _block(skip, stride - skip).unpack_from(buffer, start)
        start += _BLOCK * stride
    contents += [buffer[at + skip : at + stride] for at in range(start, stop, stride)]
