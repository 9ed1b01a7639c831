"""`LargeContent`: a content that is received into the very bytes that the broker keeps, stores and sends.

A publisher cuts a large body into frames of one size, the last one excepted. So the first frame head tells where each
later head and end octet must stand, and how long the content will be with its framing (AB-44). The buffer is made in
that size, the socket writes into it, and the reader only checks the framing where it must stand. Bytes that differ from
the announced framing, for example a frame of another channel, are no fault: the reader then takes the frames that are
complete and the bytes behind them out of the buffer, and reads on frame by frame.

The buffer has its full size when the client has only announced the body. Its pages take memory when they are first
written, so clients that announce large bodies and send nothing do not fill the memory. A body that were gathered
elsewhere at first would have to be copied in one turn: 13 ms for 20 MB.

A publisher of large bodies often sends the same bytes before each of them. `LargeStart` remembers these, so that the
reader need not decode them again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

from ..constants import FRAME_BODY, FRAME_END, FRAME_METHOD, FRAME_OVERHEAD
from ..frames import HEAD, frame, framing

#: A body is received in place if at least this many of its bytes must still arrive, or if it has more than `COPIED_MAX`
#: bytes and any are missing. Copying a smaller one costs less than a separate read.
REST_MIN = 16 * 1024
COPIED_MAX = 40 * 1024
#: A body is received in place only if its next frame has a payload of at least this many bytes, because each frame
#: costs a check.
FRAME_MIN = 4000


def _unwritten() -> Callable[[int], bytes]:
    """A function that makes `bytes` of a length with undefined values, which the caller has to write before use.

    `bytes(length)` writes zeros first, which costs 40 to 120 µs for a body of 1 MB, a tenth of what the broker spends
    on such a message. CPython makes `bytes` without that only for its own C code, so its function is called by ctypes.
    Other interpreters get the zeros.
    """
    if not hasattr(ctypes, "pythonapi") or not hasattr(ctypes.pythonapi, "PyBytes_FromStringAndSize"):
        return bytes
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
        ("PyBytes_FromStringAndSize", ctypes.pythonapi)
    )
    return lambda length: make(None, length)


_make_unwritten = _unwritten()


class LargeStart(NamedTuple):
    """The bytes with which a publish with a large body begins, and their decoded meaning."""

    #: The method frame, the header frame, and the head of the first body frame.
    prefix: bytes
    #: Bytes of the whole publish.
    total: int
    channel: int
    method_payload: bytes
    props: bytes
    header_frame: bytes
    #: Bytes of the body, and of the payload of its first frame.
    size: int
    step: int


def large_start(
    channel: int, method_payload: bytes, props: bytes, header_frame: bytes, size: int, step: int
) -> LargeStart:
    """The start of a publish from its parts."""
    prefix = frame(FRAME_METHOD, channel, method_payload) + header_frame + HEAD.pack(FRAME_BODY, channel, step)
    total = len(prefix) - 7 + size + FRAME_OVERHEAD * -(-size // step)
    return LargeStart(prefix, total, channel, method_payload, props, header_frame, size, step)


class LargeContent:
    """The buffer of one content, `channel` and the size of its frames. The content is `size` bytes long."""

    __slots__ = ("_bytes", "_step", "_view", "channel", "checked", "filled", "remaining", "size")

    def __init__(self, channel: int, start: bytes | bytearray, step: int, remaining: int) -> None:
        """`start`: the frames so far. `remaining` bytes of the body follow in frames of `step` bytes."""
        self.channel = channel
        self._step = step
        #: Bytes of the body in the frames that are not complete yet.
        self.remaining = remaining
        self.size = len(start) + remaining + FRAME_OVERHEAD * -(-remaining // step)
        # BytesIO lets its buffer be written to, and returns it as `bytes` without a copy when the view is released.
        # Bytes that were not written are never read: `filled` bounds each use of the view, and `take` needs all of it.
        self._bytes = BytesIO(_make_unwritten(self.size))
        self._view = self._bytes.getbuffer()
        self._view[: len(start)] = start
        #: Bytes that have arrived, and how many of them are complete frames as announced.
        self.filled = self.checked = len(start)

    @property
    def room(self) -> memoryview:
        """Where the next bytes of input belong."""
        return self._view[self.filled :]

    def add(self, data: bytes | memoryview) -> bytes | memoryview:
        """Copies as much of `data` as there is room for, and returns the rest."""
        count = min(len(data), self.size - self.filled)
        self._view[self.filled : self.filled + count] = data[:count]
        self.filled += count
        return data[count:]

    def check(self) -> bool:
        """Whether the frames are as announced; counts those that are complete."""
        view = self._view
        if self.filled == self.size:
            layout, expected = framing(self.channel, self._step, self.remaining)
            if layout.unpack_from(view, self.checked) == expected:
                self.remaining = 0
                self.checked = self.size
                return True
        while self.filled - self.checked >= 7:
            length = min(self._step, self.remaining)
            if view[self.checked : self.checked + 7] != HEAD.pack(FRAME_BODY, self.channel, length):
                return False
            end = self.checked + length + FRAME_OVERHEAD
            if self.filled < end:
                break
            if view[end - 1] != FRAME_END:
                return False
            self.remaining -= length
            self.checked = end
        return True

    def take(self) -> bytes:
        """The content, when it is complete; ends the use of the buffer."""
        assert self.filled == self.size, "a part of this content has not been received"
        self._view.release()
        return self._bytes.getvalue()

    def give_up(self) -> tuple[bytearray, bytes]:
        """The complete frames, and the bytes behind them; ends the use of the buffer."""
        frames, rest = bytearray(self._view[: self.checked]), bytes(self._view[self.checked : self.filled])
        self._view.release()
        return frames, rest


def is_worth_it(remaining: int, missing: int) -> bool:
    """Whether `remaining` bytes of a body, `missing` of which have not arrived yet, are better received in place."""
    return missing >= REST_MIN or remaining > COPIED_MAX and missing > 0


def fits(length: int, remaining: int, arrived: int) -> bool:
    """Whether `remaining` bytes of a body, the next `length` of them in one frame, are received in place.

    `arrived`: how many of them have arrived already.
    """
    return FRAME_MIN <= length <= remaining and is_worth_it(remaining, remaining - arrived)
