"""`Receiver`: what a member of a ring has sent to a member that has attached to it."""

from __future__ import annotations

from .view import Stream


class Receiver:
    """What was sent on one attachment of the right neighbour, or of a learner that follows this member."""

    __slots__ = ("acked", "attachment", "done", "sent", "shown")

    def __init__(self, attachment: int) -> None:
        self.attachment = attachment
        #: By stream: the position up to which instructions were sent, and the last `done` that was sent with them.
        self.sent: dict[Stream, int] = {}
        self.done: dict[Stream, int] = {}
        #: By stream: the numbers of this member that the receiver knows.
        self.shown: dict[Stream, tuple[int, int]] = {}
        #: For a learner, by stream: the position up to which it has received the stream.
        self.acked: dict[Stream, int] = {}
