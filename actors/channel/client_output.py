"""`ClientOutput`: the frames that a channel gathers for its client, and the notices that count their deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from ...amqp import methods
from ...amqp.frames import fit, method_frame
from ...amqp.method import Method
from ..contracts.channel import DeliveryNotice

#: Contents travel between processes and rest in queues with this channel number; a channel replaces its own number by
#: it on input, and the other way round on output.
CONTENT_CHANNEL = 1

#: Bytes from which on a content goes to the socket as a piece of its own. To copy a smaller one into a piece with
#: others costs less.
LARGE_CONTENT = 16 * 1024

#: Of a run of more than `LARGE_RUN` bytes from another node, about `FIRST_OF_RUN` are a piece of their own, which the
#: connection writes first (`SocketOutput`). So the client reads and publishes on while the rest is copied, and there is
#: more on its way between the nodes. A batch then costs fewer frames and fewer turns, because it waits less often for
#: something from the other node.
LARGE_RUN, FIRST_OF_RUN = 64 * 1024, 16 * 1024


class ClientOutput:
    """What the channel gathers in a batch and sends to the connection at its end.

    The parts of a channel append to `frames` and `notices`. Large contents are no frames but pieces of their own, so
    that they are not copied; `frames` then begins again behind them.
    """

    __slots__ = ("frame_max", "frames", "has_sent_close", "notices", "number", "pieces")

    def __init__(self, number: int, frame_max: int) -> None:
        self.number = number
        self.frame_max = frame_max
        self.frames: list[bytes] = []
        self.notices: list[DeliveryNotice] = []
        #: The part of the output that goes to the socket before `frames`.
        self.pieces: list[bytes] = []
        #: Whether channel.close has been put, which no method may follow but close-ok (AB-54).
        self.has_sent_close = False

    def put_method(self, method: Method) -> None:
        """Append a method. Does nothing behind channel.close: a method that the client sent before may still be under
        way when the broker closes the channel, for example because an acknowledgement is overdue.
        """
        if not self.has_sent_close:
            self.frames.append(method_frame(self.number, method))

    def put_content(self, content: bytes) -> None:
        """Append a content with this channel's number, in frames of at most `frame_max` bytes."""
        if not self.has_sent_close:
            self.frames.append(fit(content, self.number, self.frame_max))

    def put_close(self, method: methods.ChannelClose | methods.ChannelCloseOk) -> None:
        """Append channel.close or close-ok."""
        self.frames.append(method_frame(self.number, method))
        self.has_sent_close = True

    def put_deliveries(self, heads: Iterable[bytes], contents: Iterable[bytes]) -> None:
        """Append deliveries of which at least one is large: the method frame and the content of each."""
        pieces, frames = self.pieces, self.frames
        for head, content in zip(heads, contents):
            frames.append(head)
            if len(content) < LARGE_CONTENT:
                frames.append(content)
            else:
                pieces += (b"".join(frames), content)
                frames.clear()

    def put_run(self, parts: Iterator[bytes], size: int, far: int) -> None:
        """Append deliveries, each of four parts and at most about `size` bytes. `far` is the number of the deliveries
        if they come from another node, else 0.
        """
        frames = self.frames
        if far * size > LARGE_RUN:
            self.pieces.append(b"".join(chain(frames, islice(parts, 4 * (1 + FIRST_OF_RUN // size)))))
            frames.clear()
        frames.append(b"".join(parts))

    def take(self) -> tuple[list[bytes], list[DeliveryNotice]]:
        """The gathered frames in as few pieces as large contents allow, with their notices; both are then forgotten."""
        frames, self.frames = self.frames, []
        notices, self.notices = self.notices, []
        if len(frames) > 1:
            frames = [b"".join(frames)]
        if self.pieces:
            frames, self.pieces = self.pieces + frames, []
        return frames, notices
