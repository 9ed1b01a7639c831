"""`StreamState`: what one member of a ring has of one stream."""

from __future__ import annotations

from .frames import Instruction, Pubs
from .retained import RetainedInstructions
from .view import Member


class StreamState:
    """The instructions of a stream that a member retains, and how far it and others have received the stream.

    The member retains the instructions behind the position `base`, and delivers those behind `start` to its owner.
    """

    __slots__ = (
        *(
            "ahead",
            "counted",
            "delivered",
            "done",
            "fresh",
            "has_begun",
            "home",
            "is_fed",
            "progress",
            "reported",
            "retained",
        ),
        *("safe", "told"),
    )

    def __init__(self, base: int, start: int) -> None:
        self.retained = RetainedInstructions(base)
        #: The position up to which all members have received the stream, as far as this member has been sent it.
        self.done = base
        #: The position up to which instructions were delivered to the owner, or need not be.
        self.delivered = start
        #: The position up to which the stream is safe at this member, as its owner has reported.
        self.safe = 0
        #: The numbers of the left neighbour on the present attachment: received, stored.
        self.told = (0, 0)
        #: Whether instructions have come on the present attachment, or their position alone.
        self.is_fed = False
        #: At the speaker: the numbers that the last member has sent on the present attachment.
        self.home = (0, 0)
        #: At the speaker: the numbers of learners.
        self.counted: dict[Member, tuple[int, int]] = {}
        #: The last report to the owner.
        self.reported = (0, 0, -1)
        #: At a learner: the last progress that it has sent, and to which speaker, if to any.
        self.progress: object = None
        #: At a learner whose left neighbour has changed: what the learner had received by then, until that neighbour
        #: has it too.
        self.ahead = 0
        #: At a learner: whether its owner has to be notified where the stream begins.
        self.has_begun = False
        #: The instructions that have come in this turn, for the owner.
        self.fresh: list[Instruction] = []

    @property
    def is_ahead(self) -> bool:
        """Whether this learner may have received more than its left neighbour."""
        return self.ahead > self.done

    def take(self, frame: Pubs) -> bool:
        """Add the instructions of a frame that this member lacks; False if it also lacks instructions before them."""
        retained = self.retained
        known = retained.last + 1 - frame.first
        if known < 0:
            return False
        self.is_fed = True
        last = frame.first + len(frame.instructions) - 1
        fresh = frame.instructions[known:] if known else frame.instructions
        if fresh:
            at = retained.last + 1
            retained.add(fresh)
            if self.delivered < retained.last:
                self.fresh += fresh[self.delivered + 1 - at :] if self.delivered >= at else fresh
                self.delivered = retained.last
        if frame.instructions:
            received, stored = self.told
            self.told = max(received, last), stored
            if last >= self.ahead:
                self.ahead = 0
        self.done = max(self.done, min(frame.done, retained.last))
        return True
