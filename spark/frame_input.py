"""`FrameInput`: the frames that a broker sends, cut out of what a socket receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_OVERHEAD
from ..amqp.frames import CONTENT_HEAD, HEAD

#: Bytes asked of the socket at once. The buffer stays in the processor's cache, from where its bytes are copied.
RECEIVE_BYTES = 256 << 10


class FrameInput:
    """Reads frames and contents, and waits for more input where one is not complete.

    receive    waits for input, writes it to the beginning of a buffer, and returns how many bytes that were
    """

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        #: The received bytes that are not taken yet are `_buffer[_at:_end]`.
        self._at = self._end = 0

    def __bool__(self) -> bool:
        """Whether something was received that is not taken yet."""
        return self._at < self._end

    def frame(self) -> tuple[int, bytes]:
        """The type and the payload of the next frame."""
        self._fill(HEAD.size)
        kind, _, size = HEAD.unpack_from(self._buffer, self._at)
        return kind, self._take(size + FRAME_OVERHEAD)[HEAD.size : -1]

    def content(self) -> bytes:
        """A content: its header frame and its body frames as they came."""
        self._fill(CONTENT_HEAD.size)
        kind, _, length, _, _, size = CONTENT_HEAD.unpack_from(self._buffer, self._at)
        if kind == FRAME_HEADER and 0 < size <= RECEIVE_BYTES // 2:
            # The usual content has one body frame. A content with several has more bytes, so waiting for `whole` never
            # hangs.
            whole = length + size + 2 * FRAME_OVERHEAD
            self._fill(whole)
            kind, _, length = HEAD.unpack_from(self._buffer, self._at + length + FRAME_OVERHEAD)
            if kind == FRAME_BODY and length == size:
                return self._take(whole)
        parts = [self._frame_of_content()]
        left = _body_size(parts[0])
        while left > 0:
            part = self._frame_of_content()
            parts.append(part)
            left -= len(part) - FRAME_OVERHEAD
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def body(self) -> Any:
        """The body of a content, as an array of bytes. Each byte is copied once, out of the buffer."""
        size = _body_size(self._frame_of_content())
        body = np.empty(size, np.uint8)
        into = memoryview(body)
        at = 0
        while at < size:
            self._fill(HEAD.size)
            kind, _, left = HEAD.unpack_from(self._buffer, self._at)
            if kind != FRAME_BODY:
                self._take(left + FRAME_OVERHEAD)  # a heartbeat
                continue
            self._at += HEAD.size
            while left:
                self._fill(1)
                part = min(left, self._end - self._at)
                into[at : at + part] = self._buffer[self._at : self._at + part]
                at, left, self._at = at + part, left - part, self._at + part
            self._take(1)
        return body

    def received(self) -> memoryview:
        """What was received and is not taken yet. It holds until the next call of another method."""
        return self._buffer[self._at : self._end]

    def skip(self, size: int) -> None:
        """Take so many bytes of what was received."""
        self._at += size

    def _frame_of_content(self) -> bytes:
        """The next frame that is no heartbeat, with its head and its end."""
        while True:
            self._fill(HEAD.size)
            kind, _, size = HEAD.unpack_from(self._buffer, self._at)
            frame = self._take(size + FRAME_OVERHEAD)
            if kind != FRAME_HEARTBEAT:
                return frame

    def _take(self, size: int) -> bytes:
        self._fill(size)
        self._at += size
        return bytes(self._buffer[self._at - size : self._at])

    def _fill(self, size: int) -> None:
        """Receive until the buffer has at least `size` bytes that are not taken yet."""
        while self._end - self._at < size:
            has_little_room = len(self._buffer) - self._end < RECEIVE_BYTES // 2
            if self._at + size > len(self._buffer) or self._at and has_little_room:
                self._make_room(size)
            self._end += self._receive(self._buffer[self._end :])

    def _make_room(self, size: int) -> None:
        """Move the bytes that are not taken yet to the beginning of a buffer that holds at least `size` bytes."""
        rest = bytes(self._buffer[self._at : self._end])
        if size > len(self._buffer) or len(self._buffer) > RECEIVE_BYTES:
            self._buffer = memoryview(bytearray(max(size, RECEIVE_BYTES)))
        self._buffer[: len(rest)] = rest
        self._at, self._end = 0, len(rest)


def _body_size(header: bytes) -> int:
    return int.from_bytes(header[11:19], "big")
