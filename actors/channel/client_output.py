"""`ClientOutput`: the frames that a channel gathers for its client, and the notices that count their deliveries."""

from __future__ import annotations

from ...amqp.frames import fit, method_frame
from ...amqp.method import Method
from .contract import DeliveryNotice

#: Contents travel between processes and rest in queues with this channel number; a channel replaces its own number by
#: it on input, and the other way round on output.
CONTENT_CHANNEL = 1


class ClientOutput:
    """The parts of a channel append to `frames` and `notices`; the channel sends both after each batch."""

    __slots__ = ("frame_max", "frames", "notices", "number")

    def __init__(self, number: int, frame_max: int) -> None:
        self.number = number
        self.frame_max = frame_max
        self.frames: list[bytes] = []
        self.notices: list[DeliveryNotice] = []

    def put_method(self, method: Method) -> None:
        self.frames.append(method_frame(self.number, method))

    def put_content(self, content: bytes) -> None:
        """Append a content with this channel's number, in frames of at most `frame_max` bytes."""
        self.frames.append(fit(content, self.number, self.frame_max))

    def take(self) -> tuple[bytes, list[DeliveryNotice]]:
        """The gathered frames as one piece, with their notices; both are then forgotten."""
        frames, self.frames = self.frames, []
        notices, self.notices = self.notices, []
        return b"".join(frames) if len(frames) != 1 else frames[0], notices
