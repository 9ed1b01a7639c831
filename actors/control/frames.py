"""The frames of the control protocol, which commands such as `warren list_queues` speak with a running node.

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
from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]

PROTOCOL = 1

#: Bytes of a frame that a client may send before it has proved that it knows the secret, and afterwards. The longest
#: requests are definitions.
UNPROVED_MAX = 1024
FRAME_MAX = 64 << 20

_LENGTH = struct.Struct(">I")


class FrameError(Exception):
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
    """The message in the body of a frame. Raises FrameError."""
    try:
        message = msgpack.unpackb(body, unicode_errors="surrogateescape")
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"a frame is not MessagePack: {error}") from None
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise FrameError("a frame is not a map with texts as keys")
    return message


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
        """The next message; None if it is not complete. Raises FrameError."""
        if len(self._data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if size > self.limit:
            raise FrameError(f"a frame of {size} bytes is longer than the {self.limit} that are allowed")
        end = _LENGTH.size + size
        if len(self._data) < end:
            return None
        body = bytes(memoryview(self._data)[_LENGTH.size : end])
        del self._data[:end]
        return unpack(body)
