"""`SocketOutput`: the output of one connection, and the deliveries in it that queues have to be notified of.

Output is gathered during a batch and written with one system call. A delivery notice counts the deliveries of one queue
in a piece of output; when the last byte of the piece has been given to the kernel, the deliveries count as sent
(FC-32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...runtime.contract import Address
from ..contracts.channel import DeliveryNotice, ToDeliverer

#: The most pieces in one sendmsg.
IOV_MAX = 512

#: If more pieces wait than fit into one sendmsg, and their mean size is below `SMALL_PIECE`, the first `JOINED` of them
#: are joined. A client that opens 65,535 channels gets a megabyte of answers, with 16 system calls instead of 128.
SMALL_PIECE = 256
JOINED = 4096

#: Of more than `LARGE_OUTPUT` bytes in several pieces, the first `FIRST_WRITE` are given to the kernel by a system call
#: of their own. The client reads them, and publishes on, while the kernel copies the rest. With one call for all of the
#: output, the broker and a client that waits for its deliveries would work in turn, not at the same time, and the
#: broker's batches would be smaller: messages of 16 to 130 KB then took the broker 10 to 30 % more processor time. More
#: calls would wake the client again for every few messages.
FIRST_WRITE = 16 * 1024
LARGE_OUTPUT = 64 * 1024

#: The most pairs of queue and channel that have unreported deliveries. With one pair more, the deliveries of the oldest
#: pair are reported although they are fewer than their step.
UNREPORTED_MAX = 256

Buffer = bytes | memoryview


class Transport(Protocol):
    """The part of a non-blocking socket that a connection uses; a `TlsTransport` has it as well."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: Buffer, /) -> int: ...
    def sendmsg(self, buffers: Sequence[Buffer], /) -> int: ...
    def close(self) -> None: ...


class SocketOutput:
    """The outgoing half of a non-blocking socket."""

    __slots__ = ("_notices", "_pieces", "_unreported", "due", "size", "sock", "total_written", "writes")

    def __init__(self, sock: Transport) -> None:
        self.sock = sock
        #: Bytes that wait to be written.
        self.size = 0
        #: Bytes written since the connection began.
        self.total_written = 0
        #: How often the socket took something.
        self.writes = 0
        # Lists, because two empty deques take 1.5 KB of each connection.
        self._pieces: list[Buffer] = []
        #: Each notice with the `total_written` at which its deliveries are sent.
        self._notices: list[tuple[int, DeliveryNotice]] = []
        #: By queue id and channel id: the queue's address, and the deliveries sent and not reported yet.
        self._unreported: dict[tuple[str, str], tuple[Address[ToDeliverer], int]] = {}
        #: Deliveries to report to queues: address, channel id and count. The connection sends and clears them.
        self.due: list[tuple[Address[ToDeliverer], str, int]] = []

    def put(self, data: bytes, notices: Sequence[DeliveryNotice] = ()) -> None:
        self.put_all([data], notices)

    def put_all(self, pieces: Sequence[bytes], notices: Sequence[DeliveryNotice]) -> None:
        """Take several pieces of output. The `notices` are due when the last piece is written."""
        self._pieces += pieces
        self.size += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if notices:
            sent_at = self.total_written + self.size
            for notice in notices:
                self._notices.append((sent_at, notice))

    def write(self) -> None:
        """Write as much as the socket takes; `size` is what is left. OSError if the connection has ended."""
        pieces = self._pieces
        is_first = self.size > LARGE_OUTPUT and 1 < len(pieces) <= IOV_MAX
        while pieces:
            if len(pieces) > IOV_MAX and self.size < SMALL_PIECE * len(pieces):
                pieces[:JOINED] = [b"".join(pieces[:JOINED])]
            try:
                if is_first:
                    is_first = False
                    count = self.sock.sendmsg(self._first_bytes())
                else:
                    count = self.sock.send(pieces[0]) if len(pieces) == 1 else self.sock.sendmsg(pieces[:IOV_MAX])
            except BlockingIOError:
                break
            self.total_written += count
            self.writes += 1
            if count == self.size:
                self.size = 0
                pieces.clear()
                break
            self.size -= count
            done = 0
            while len(pieces[done]) <= count:
                count -= len(pieces[done])
                done += 1
            if count:
                pieces[done] = memoryview(pieces[done])[count:]
            del pieces[:done]
        if self._notices:
            self._report()

    def _first_bytes(self) -> list[Buffer]:
        """The first `FIRST_WRITE` bytes of the pieces."""
        first: list[Buffer] = []
        left = FIRST_WRITE
        for piece in self._pieces:
            if len(piece) >= left:
                first.append(memoryview(piece)[:left])
                break
            first.append(piece)
            left -= len(piece)
        return first

    def _report(self) -> None:
        notices, unreported = self._notices, self._unreported
        reported = 0
        for sent_at, (address, queue_id, channel_id, count, step) in notices:
            if sent_at > self.total_written:
                break
            reported += 1
            before = unreported.pop((queue_id, channel_id), None)
            # A restarted queue has the same id and another address.
            if before is not None and (before[0] is address or before[0] == address):
                count += before[1]
            if count >= step:
                self.due.append((address, channel_id, count))
            else:
                unreported[queue_id, channel_id] = address, count
        del notices[:reported]
        while len(unreported) > UNREPORTED_MAX:
            oldest = next(iter(unreported))
            address, count = unreported.pop(oldest)
            self.due.append((address, oldest[1], count))

    def forget_channel(self, channel_id: str) -> None:
        """Drop the unreported deliveries of a channel that has ended."""
        for key in [key for key in self._unreported if key[1] == channel_id]:
            del self._unreported[key]
