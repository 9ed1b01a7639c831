"""The frames of the control protocol, by which commands such as `warren list_queues` reach a running node.

A frame is its length in bytes as a u32 and a map in MessagePack, which can carry plain values only. One client sends
one request at a time:

    node    {"hello": 1, "node": "warren@localhost", "challenge": bytes or None}
    client  {"proof": bytes, "challenge": bytes}          only if the node sent a challenge (`proof`)
    node    {"proof": bytes}
    client  {"operation": "list_queues", "arguments": {"vhost": "/"}}
    node    {"rows": [{...}, ...]}                        any number of them
    node    {"result": value}  or  {"error": {"kind": ..., "text": ..., "details": [...], "code": ...}}

`hello` is the version of the protocol. Names of queues and the like are text whose undecodable bytes are escaped as
everywhere in warren (`surrogateescape`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]

PROTOCOL = 1

#: Bytes of a frame that a client may send before it has proved that it knows the secret, and afterwards. The longest
#: requests are definitions.
UNPROVED_MAX = 1024
FRAME_MAX = 64 << 20

#: Bytes of a frame that is unpacked in steps.
LARGE = 64 << 10
#: Elements of an array or a map that are unpacked in one step.
STEP = 250
#: Levels of nesting that are unpacked in steps: the request, its arguments, the definitions in these, and their
#: sections, which are arrays.
STEPPED_LEVELS = 4

_LENGTH = struct.Struct(">I")

#: The first bytes of MessagePack's maps and arrays, and one that begins neither.
_MAPS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
_ARRAYS = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_NOT_DIVIDED = 0xC0


class ControlFrameError(Exception):
    """The peer sent something that is no frame of this protocol."""


def frame(message: Mapping[str, Any]) -> bytes:
    """A message as a frame. Raises ValueError, OverflowError or TypeError for values that the protocol cannot carry."""
    body = pack(message)
    return _LENGTH.pack(len(body)) + body


def pack(message: Mapping[str, Any]) -> bytes:
    """The body of a frame. Raises ValueError, OverflowError or TypeError for values that the protocol cannot carry."""
    body: bytes = msgpack.packb(message, unicode_errors="surrogateescape")
    return body


def unpack(body: bytes) -> dict[str, Any]:
    """The message in the body of a frame. Raises ControlFrameError."""
    try:
        message = msgpack.unpackb(body, unicode_errors="surrogateescape")
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ControlFrameError(f"a frame is not MessagePack: {error}") from None
    return checked(message)


def checked(message: object) -> dict[str, Any]:
    """The message. Raises ControlFrameError if it is no map with texts as keys."""
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise ControlFrameError("a frame is not a map with texts as keys")
    return message


def unpack_in_steps(body: bytes) -> Generator[None, None, dict[str, Any]]:
    """As `unpack`, for the body of a large frame: the caller lets others have a turn at each step.

    Definitions with 20,000 queues take 12 ms. Only what lies in the first `STEPPED_LEVELS` levels is divided.
    """
    unpacker = msgpack.Unpacker(unicode_errors="surrogateescape", max_buffer_size=len(body))
    unpacker.feed(body)
    try:
        message = yield from _value_in_steps(unpacker, body, STEPPED_LEVELS)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ControlFrameError(f"a frame is not MessagePack: {error}") from None
    if unpacker.tell() != len(body):
        raise ControlFrameError("a frame is not MessagePack: something follows its message")
    return checked(message)


def _value_in_steps(unpacker: Any, body: bytes, levels: int) -> Generator[None, None, Any]:
    at = unpacker.tell()
    first = body[at] if levels and at < len(body) else _NOT_DIVIDED
    if first in _MAPS:
        entries: dict[Any, Any] = {}
        for number in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if not isinstance(key, (str, bytes)):
                raise ValueError(f"{type(key).__name__} is not allowed for map key")
            entries[key] = yield from _value_in_steps(unpacker, body, levels - 1)
            if number % STEP == STEP - 1:
                yield
        return entries
    if first in _ARRAYS:
        elements: list[Any] = []
        for number in range(unpacker.read_array_header()):
            elements.append((yield from _value_in_steps(unpacker, body, levels - 1)))
            if number % STEP == STEP - 1:
                yield
        return elements
    return unpacker.unpack()


class FrameBuffer:
    """Takes bytes as they arrive and returns the messages in them."""

    __slots__ = ("_data", "limit")

    def __init__(self, limit: int) -> None:
        #: Bytes that a frame may have.
        self.limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def __len__(self) -> int:
        return len(self._data)

    def next(self) -> dict[str, Any] | None:
        """The next message; None if it is not complete. Raises ControlFrameError."""
        body = self.next_body()
        return None if body is None else unpack(body)

    def next_body(self) -> bytes | None:
        """The body of the next frame; None if it is not complete. Raises ControlFrameError."""
        if len(self._data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if size > self.limit:
            raise ControlFrameError(f"a frame of {size} bytes is longer than the {self.limit} that are allowed")
        end = _LENGTH.size + size
        if len(self._data) < end:
            return None
        body = bytes(memoryview(self._data)[_LENGTH.size : end])
        del self._data[:end]
        return body
