"""`LinkLane`: one of the connections of a link, once its greeting is over.

    lane.write(buffers)     take what follows; it leaves with the next `flush`
    lane.unsent             bytes that wait here
    lane.on_frame           called with each frame that has arrived

Nothing above it knows TCP. `read` and `flush` are called by the process that watches the descriptor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from .encoding.frames import MAX_FRAME, Buffer, LinkFrameReader, RawFrame

#: Most bytes of one read. What a read has brought is handled before other processes have turns.
READ_SIZE = 1_048_576

#: The size of a read after `SMALL_READS` in a row that brought less than this. An allocator may map and unmap the
#: memory of a large read each time, which takes twice as long as the rest of a small frame. One small frame does not
#: end the large reads: if small frames came between large ones, each large one would need two reads, in two rounds of
#: the loop, and its parts would be joined.
SMALL_READ = 65_536
SMALL_READS = 8

#: Most buffers of one write; systems allow at least 1,024.
MOST_BUFFERS = 512


class LaneClosed(Exception):
    """The other side has ended the connection, or it broke. The text is for a person."""


class LinkLane:
    """A lane over a connected, non-blocking socket. `reader` has what has come behind the greeting."""

    def __init__(
        self, name: str, fd: int, sock: Any, reader: LinkFrameReader, on_frame: Callable[[LinkLane, RawFrame], None]
    ) -> None:
        self.name = name
        self.fd = fd
        self.on_frame = on_frame
        #: Bytes that `write` has taken and the socket has not.
        self.unsent = 0
        self.received_bytes = self.sent_bytes = 0
        self.received_frames = self.sent_frames = 0
        self.received_messages = self.sent_messages = 0
        #: Frames that wait until this node has applied the log far enough, and their bytes.
        self.held: deque[tuple[int, RawFrame]] = deque()
        self.held_bytes = 0
        #: The parts of a message that have arrived, if it is not complete.
        self.parts: list[bytes] = []
        self.is_closed = False
        #: Whether this node has sent a ping that is not answered, and for how many looks in a row the lane has been
        #: silent since; the bytes that it had received and sent at the last look.
        self.is_pinged = False
        self._silent_looks = 0
        self._had_received = self._had_sent = 0
        #: What the link watches the socket for: input, and room for output. None before it has watched it.
        self.watched: tuple[bool, bool] | None = None
        #: Whether the socket has a buffer of its own, as with TLS.
        self._has_buffer = hasattr(sock, "has_unsent")
        self._read_size = SMALL_READ
        #: How many reads in a row have brought less than `SMALL_READ`.
        self._small_reads = 0
        self._sock = sock
        self._reader = reader
        self._reader.max_frame = MAX_FRAME
        self._waiting: deque[Buffer] = deque()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Take the buffers of one frame."""
        self.sent_frames += 1
        self._waiting += buffers
        self.unsent += sum(map(len, buffers))

    def flush(self) -> None:
        """Write as much as the socket takes. Raises LaneClosed."""
        waiting = self._waiting
        while waiting:
            try:
                if len(waiting) == 1:
                    count = self._sock.send(waiting[0])
                else:
                    count = self._sock.sendmsg(list(islice(waiting, MOST_BUFFERS)))
            except BlockingIOError:
                return
            except OSError as error:
                raise LaneClosed(_reason(error)) from None
            self.sent_bytes += count
            if count == self.unsent:
                self.unsent = 0
                waiting.clear()
                return
            self.unsent -= count
            while count:
                buffer = waiting[0]
                size = len(buffer)
                if size > count:
                    waiting[0] = memoryview(buffer)[count:]
                    break
                count -= size
                waiting.popleft()
            while waiting and not len(waiting[0]):
                waiting.popleft()

    def read(self) -> None:
        """Read once and hand out the frames that are complete. Raises LaneClosed, and FrameError for other input."""
        try:
            data = self._sock.recv(self._read_size)
        except BlockingIOError:
            return
        except OSError as error:
            raise LaneClosed(_reason(error)) from None
        if not data:
            raise LaneClosed("the other side has closed the connection")
        if len(data) >= SMALL_READ:
            self._read_size, self._small_reads = READ_SIZE, 0
        elif self._read_size != SMALL_READ:
            self._small_reads += 1
            if self._small_reads == SMALL_READS:
                self._read_size = SMALL_READ
        self.received_bytes += len(data)
        self._reader.feed(data)
        self.hand_out()

    def hand_out(self) -> None:
        """Hand out the frames that have come. Raises FrameError."""
        reader = self._reader
        while reader.waiting and not self.is_closed:
            found = reader.next()
            if found is None:
                return
            self.received_frames += 1
            self.on_frame(self, found)

    def silent_looks(self) -> int:
        """Count another look at whether the connection still works. Return for how many looks in a row nothing has come
        although a ping is unanswered. A look at which earlier output is still leaving does not count, because the ping
        is behind it.
        """
        is_writing = self.unsent > 0 and self.sent_bytes != self._had_sent
        is_silent = self.is_pinged and not is_writing and self.received_bytes == self._had_received
        self._silent_looks = self._silent_looks + 1 if is_silent else 0
        self._had_received, self._had_sent = self.received_bytes, self.sent_bytes
        return self._silent_looks

    @property
    def wants_write(self) -> bool:
        """Whether the socket should be watched for room."""
        return self.unsent > 0 or (self._has_buffer and self._sock.has_unsent)

    def close(self) -> None:
        self.is_closed = True
        self._waiting.clear()
        self._sock.close()


def _reason(error: OSError) -> str:
    return f"the connection broke: {error.strerror or error}"
