"""What waits to be written to one socket, and who wants to know when it was.

Output is gathered over a wake-up and written with one system call. Deliveries come with notices: when the last octet of what they came with has been given to
the kernel, their queues are told how many went out (FC-32).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

IOV_MAX = 512  # pieces in one sendmsg
NOTICE_STEP = 50  # deliveries a queue hears of at a time
UNREPORTED_MAX = 256  # (queue, channel) pairs with fewer than that; beyond, the oldest hears of them early


class Transport(Protocol):
    """What a connection uses of a non-blocking socket, and TLS has too."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: Any, /) -> int: ...
    def sendmsg(self, buffers: Any, /) -> int: ...
    def close(self) -> None: ...


class SocketOutput:
    """The outgoing half of a non-blocking socket."""

    __slots__ = ("sock", "size", "total_written", "_pieces", "_queued_total", "_notices", "_written", "due")

    def __init__(self, sock: Transport) -> None:
        self.sock = sock
        self.size = 0  # octets waiting
        self.total_written = 0  # octets written, ever
        self._pieces: deque[Any] = deque()
        self._queued_total = 0  # octets put in, ever
        self._notices: deque[tuple[int, tuple[Any, str, str, int]]] = deque()  # position after which they are true
        self._written: dict[
            tuple[str, str], tuple[Any, int]
        ] = {}  # (queue, channel) -> address, deliveries written and not yet reported
        self.due: list[tuple[Any, str, int]] = []  # to be sent to queues: address, channel id, count

    def put(self, data: bytes, notices: list[tuple[Any, str, str, int]] | tuple[()] = ()) -> None:
        self._pieces.append(data)
        self.size += len(data)
        self._queued_total += len(data)
        for notice in notices:
            self._notices.append((self._queued_total, notice))

    def write(self) -> None:
        """Writes what the socket takes; `size` tells what is left. Raises OSError when the connection is gone."""
        pieces = self._pieces
        while pieces:
            try:
                if len(pieces) == 1:
                    count = self.sock.send(pieces[0])
                else:
                    count = self.sock.sendmsg([pieces[at] for at in range(min(len(pieces), IOV_MAX))])
            except BlockingIOError:
                break
            self.size -= count
            self.total_written += count
            while count:
                first = len(pieces[0])
                if count < first:
                    pieces[0] = memoryview(pieces[0])[count:]
                    break
                count -= first
                pieces.popleft()
        if self._notices:
            self._report()

    def _report(self) -> None:
        notices, written = self._notices, self._written
        while notices and notices[0][0] <= self.total_written:
            address, queue_id, channel_id, count = notices.popleft()[1]
            before = written.pop((queue_id, channel_id), None)
            if before is not None and before[0] == address:  # a restarted queue has the same id and another address
                count += before[1]
            if count >= NOTICE_STEP:
                self.due.append((address, channel_id, count))
            else:
                written[queue_id, channel_id] = address, count
        while len(written) > UNREPORTED_MAX:
            oldest = next(iter(written))
            address, count = written.pop(oldest)
            self.due.append((address, oldest[1], count))

    def forget_channel(self, channel_id: str) -> None:
        """Drops what is remembered of a channel that is gone."""
        for key in [key for key in self._written if key[1] == channel_id]:
            del self._written[key]
