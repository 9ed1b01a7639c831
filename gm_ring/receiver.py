"""`Receiver`: what a member of a ring has sent to a member that has attached to it."""

from __future__ import annotations

from .view import Stream


class SentStream:
    """What was sent of one stream. The first instruction to send is the one behind `position`."""

    __slots__ = ("acked", "done", "position", "shown")

    def __init__(self, position: int) -> None:
        #: The position up to which instructions were sent.
        self.position = position
        #: The last `done` that was sent with them; None if nothing was sent yet, not even a frame without instructions.
        self.done: int | None = None
        #: The numbers (received, stored) of this member that were sent to the receiver last.
        self.shown: tuple[int, int] | None = None
        #: For a learner: the position up to which it has received the stream.
        self.acked = position


class Receiver:
    """What was sent on one attachment of the right neighbour, or of a learner that follows this member."""

    __slots__ = ("attachment", "streams")

    def __init__(self, attachment: int) -> None:
        self.attachment = attachment
        self.streams: dict[Stream, SentStream] = {}
