"""`SlowPublishers`: takes messages from publishers more slowly, so that every copy of a queue comes to its end (CL-89).

A learner copies a queue while clients publish to it. If they publish faster than it copies, it never gets there, and
the queue is without that replica for as long. So a learner that copies without coming nearer reports that to the
master. For each time that it does, the master takes messages for half as much of the time as before, until the learner
has everything or is gone. In the rest of the time it grants no credit, so the publishers wait as they do for a slow
disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...actors.queue.mirroring import COPY_PEER

if TYPE_CHECKING:
    from ...runtime.credit import CreditFlow

#: Seconds in which the master blocks publishers once and unblocks them once.
PERIOD = 0.2

#: How often the time is halved at most. Publishers that have a sixteenth of it are not stopped altogether.
MOST_HALVINGS = 4


class SlowPublishers:
    """What one master does. Its replication calls `turn` when a learner lags, and again after the seconds that `turn`
    returns.

    resume      has the queue go on when nothing blocks it any more
    """

    __slots__ = ("_credit", "_halvings", "_resume")

    def __init__(self, credit: CreditFlow, resume: Callable[[], None]) -> None:
        self._credit = credit
        self._resume = resume
        #: By the generation of a learner: how often it has lagged.
        self._halvings: dict[int, int] = {}

    def lags(self, generation: int) -> None:
        """Note that a learner has copied for a while without coming nearer."""
        self._halvings[generation] = min(self._halvings.get(generation, 0) + 1, MOST_HALVINGS)

    def learners_are(self, generations: Iterable[int]) -> None:
        """Note which learners there are now; the others have everything, or are gone."""
        if self._halvings:
            self._halvings = {one: self._halvings[one] for one in generations if one in self._halvings}

    def end(self) -> None:
        """Unblock the publishers for good, because the queue is not mirrored any more."""
        self._halvings = {}
        self.turn()

    def turn(self) -> float:
        """Block the publishers or unblock them, and return the seconds until the next call; 0 if there is none."""
        credit = self._credit
        is_blocked = COPY_PEER in credit.credit_blocked
        if is_blocked:
            credit.unblock(COPY_PEER)
            credit.peer_down(COPY_PEER)
            if not credit.blocked:
                self._resume()
        if not self._halvings:
            return 0.0
        share = 0.5 ** max(self._halvings.values())
        if is_blocked:
            return PERIOD * share
        credit.relate(COPY_PEER, kind=COPY_PEER)
        credit.block(COPY_PEER)
        return PERIOD * (1 - share)
