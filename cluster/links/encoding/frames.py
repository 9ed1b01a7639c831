"""Frames between nodes: bytes in, frames out, without a socket and without a clock.

| offset | bytes | field |
|---|---|---|
| 0 | 4 | bytes that follow this field: 4 + header + body |
| 4 | 1 | type of the header: 0 is a JSON object, 2 a msgpack array |
| 5 | 3 | bytes of the header |
| 8 | h | header |
| 8 + h | rest | body |

All integers are big-endian. Headers of type 0 are those of the greeting, which a person can read in a packet dump. All
other frames have type 2: `[code, language, version, opaque, flag, remark, ext]`. `opaque` joins a response and its
request, `remark` is the text of an error or nil, and `ext` is a map of further values by name.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

JSON_TYPE, MSGPACK_TYPE = 0, 2

#: Python's number in RocketMQ's protocol, from which the header comes.
LANGUAGE = 3

#: Flag bits: the frame answers another one; no answer is wanted.
RESPONSE, ONE_WAY = 1, 2

#: The codes of frames.
HELLO, AUTH, PING, SEND = 1, 2, 3, 300

#: Most bytes of a header.
MAX_HEADER = 65_536

#: Most bytes of a whole frame once the greeting is over, and before. A connection that has proved nothing yet may not
#: make the node keep more.
MAX_FRAME, MAX_GREETING_FRAME = 1_048_576, 16_384

#: Bytes before the header.
HEAD = 8

_head = struct.Struct(">II")

Buffer = bytes | bytearray | memoryview


class LinkFrameError(Exception):
    """Input that is no frame. The text has the reason and the first bytes."""


class Header(NamedTuple):
    """The header of a frame of type 2; `remark` is empty if there is none."""

    code: int
    opaque: int
    flag: int
    remark: str
    ext: dict[str, Any]


class RawFrame(NamedTuple):
    """A frame whose header is not decoded. Its body is a part of the input, from `at` to `end`."""

    type: int
    header: bytes
    data: bytes
    at: int
    end: int

    @property
    def body(self) -> bytes:
        return self.data[self.at : self.end]


def json_frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame of type 0."""
    return frame(JSON_TYPE, json.dumps(header, separators=(",", ":")).encode("ascii"), body)


def msgpack_frame(
    code: int, opaque: int = 0, flag: int = 0, remark: str | None = None, ext: dict[str, Any] | None = None
) -> bytes:
    """A frame of type 2 without a body."""
    return frame(MSGPACK_TYPE, encode_header(code, opaque, flag, remark, ext), b"")


def encode_header(
    code: int, opaque: int = 0, flag: int = 0, remark: str | None = None, ext: dict[str, Any] | None = None
) -> bytes:
    """The header of a frame of type 2."""
    encoded: bytes = msgpack.packb([code, LANGUAGE, 1, opaque, flag, remark, ext or {}])
    return encoded


def frame(header_type: int, header: bytes, body: bytes) -> bytes:
    return frame_head(header_type, len(header), len(body)) + header + body


def frame_head(header_type: int, header_size: int, body_size: int) -> bytes:
    """What comes before the header."""
    return _head.pack(4 + header_size + body_size, header_type << 24 | header_size)


def json_header(encoded: Buffer) -> dict[str, Any]:
    """The header of a frame of type 0. Raises LinkFrameError."""
    try:
        header = json.loads(bytes(encoded))
    except (ValueError, RecursionError):
        raise LinkFrameError(f"the header is no JSON: {shown(encoded)}") from None
    if type(header) is not dict:
        raise LinkFrameError(f"the header is no JSON object: {shown(encoded)}")
    return header


def msgpack_header(encoded: Buffer) -> Header:
    """The header of a frame of type 2. Raises LinkFrameError."""
    try:
        fields = msgpack.unpackb(encoded)
        code, _, _, opaque, flag, remark, ext = fields
    except Exception:
        # msgpack raises errors of a dozen kinds, among them ones of Python itself such as UnicodeDecodeError.
        raise LinkFrameError(f"the header is no array of seven values: {shown(encoded)}") from None
    if (
        type(code) is not int
        or type(opaque) is not int
        or type(flag) is not int
        or type(ext) is not dict
        or not (remark is None or type(remark) is str)
    ):
        raise LinkFrameError(f"the header has a value of a wrong type: {shown(encoded)}")
    return Header(code, opaque, flag, remark or "", ext)


def shown(data: Buffer) -> str:
    """The first 32 bytes as a log line shows them."""
    return bytes(data[:32]).hex(" ")


class LinkFrameReader:
    """Cuts input into frames: `feed` takes input, and `next` returns the next frame or None.

    `max_frame` is the most bytes that a frame may have. Input of a frame that is not complete is joined once.
    """

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        #: Bytes that belong to no frame yet: `_data` from `_at` on, then the pieces in `_behind`.
        self.waiting = 0
        self._data = b""
        self._at = 0
        self._behind: list[bytes] = []
        #: Bytes from `_at` on without which there is no next frame.
        self._wanted = HEAD

    def feed(self, data: bytes) -> None:
        if self.waiting:
            self._behind.append(data)
            self.waiting += len(data)
        else:
            self._data, self._at, self.waiting = data, 0, len(data)

    def next(self) -> RawFrame | None:
        """Raises LinkFrameError for input that is no frame; the connection cannot go on then."""
        if self.waiting < self._wanted:
            return None
        if self._behind:
            self._data = b"".join([memoryview(self._data)[self._at :], *self._behind])
            self._at = 0
            self._behind.clear()
        data, at = self._data, self._at
        size, second = _head.unpack_from(data, at)
        header_type, header_size = second >> 24, second & 0xFF_FFFF
        if size + 4 > self.max_frame or header_size > MAX_HEADER or header_size + 4 > size:
            raise LinkFrameError(
                f"a frame of {size + 4} bytes with a header of {header_size}; at most {self.max_frame} and "
                f"{MAX_HEADER} are allowed: {shown(data[at : at + 32])}"
            )
        if header_type not in (JSON_TYPE, MSGPACK_TYPE):
            raise LinkFrameError(f"a frame of type {header_type}: {shown(data[at : at + 32])}")
        if self.waiting < size + 4:
            self._wanted = size + 4
            return None
        self._wanted = HEAD
        self._at = after = at + size + 4
        self.waiting -= size + 4
        if not self.waiting:
            self._data = b""
        body = at + HEAD + header_size
        return RawFrame(header_type, data[at + HEAD : body], data, body, after)
