"""`ClientOutput`: the frames that a channel gathers for its client, and the notices that count their deliveries."""

from __future__ import annotations

from ...amqp.frames import fit, method_frame
from ...amqp.method import Method
from .contract import DeliveryNotice

#: Contents travel between processes and rest in queues with this channel number; a channel replaces its own number by
#: it on input, and the other way round on output.
CONTENT_CHANNEL = 1

#: Bytes of a content that goes to the socket as a piece of its own; copying a smaller one to the others costs less.
LARGE_CONTENT = 16 * 1024


class ClientOutput:
    """The parts of a channel append to `frames` and `notices`; the channel sends both after each batch."""

    __slots__ = ("frame_max", "frames", "has_large", "notices", "number")

    def __init__(self, number: int, frame_max: int) -> None:
        self.number = number
        self.frame_max = frame_max
        self.frames: list[bytes] = []
        self.notices: list[DeliveryNotice] = []
        #: Whether a content of at least LARGE_CONTENT bytes is among the frames.
        self.has_large = False

    def put_method(self, method: Method) -> None:
        self.frames.append(method_frame(self.number, method))

    def put_content(self, content: bytes) -> None:
        """Append a content with this channel's number, in frames of at most `frame_max` bytes."""
        self.frames.append(fit(content, self.number, self.frame_max))

    def take(self) -> tuple[list[bytes], list[DeliveryNotice]]:
        """The gathered frames in as few pieces as large contents allow, with their notices; both are then forgotten."""
        frames, self.frames = self.frames, []
        notices, self.notices = self.notices, []
        if self.has_large:
            self.has_large = False
            return _joined_between_large(frames), notices
        return [b"".join(frames)] if len(frames) > 1 else frames, notices


def _joined_between_large(frames: list[bytes]) -> list[bytes]:
    """The same bytes: large contents are not copied, what is between them is joined."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for frame in frames:
        if len(frame) < LARGE_CONTENT:
            small.append(frame)
            continue
        if small:
            pieces.append(b"".join(small))
            small.clear()
        pieces.append(frame)
    if small:
        pieces.append(b"".join(small))
    return pieces
