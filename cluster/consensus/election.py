"""When a node begins an election (`Election`), and what it remembers of its votes (`Ballot`).

Time is counted in ticks since the start of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .membership import RaftMembers

#: Ticks without a leader after which a node begins an election: at least, at most. The generator draws one of them.
ELECTION_TICKS = (20, 40)
#: Ticks for which a node that has received something from its leader supports no other.
HEARD_TICKS = 20
#: As `ELECTION_TICKS`, for a node whose connection to the leader broke and was not made again.
LOST_TICKS = (1, 5)
#: As `ELECTION_TICKS`, for a node that lost the connection to its leader and whose first election failed: if two nodes
#: notice the end of the leader at the same time, they split the votes. A longer wait would not help, because the leader
#: is known to be gone.
AGAIN_TICKS = (4, 14)
#: How many elections and pre-votes a node begins so soon after it has lost its leader. If none of them succeeds, the
#: disks or the network may be too slow for such an election, which waits for two writes. Then the node takes
#: `ELECTION_TICKS` again, or there would be no leader for as long as they are slow.
AGAIN_MOST = 6


class Ballot(NamedTuple):
    """What a node must not forget: the latest term that it has met, and for whom it voted in that term."""

    term: int
    voted_for: str | None


class Election:
    """See the module. `draw` returns a number between two, both included."""

    def __init__(self, draw: Callable[[int, int], int]) -> None:
        self._draw = draw
        #: Ticks since the start.
        self.now = 0
        self._heard_until = HEARD_TICKS
        self._due_at = 0
        #: How many elections and pre-votes may still begin soon, because the leader is lost.
        self._again = 0
        #: Which voters have answered in this election, and whether they have granted their vote or pre-vote.
        self._votes: dict[str, bool] = {}
        self.put_off()

    @property
    def is_due(self) -> bool:
        """Whether the node has been without a leader for long enough."""
        return self.now >= self._due_at

    @property
    def has_heard_leader(self) -> bool:
        """Whether the node has received something from its leader lately, or may have before it started."""
        return self.now < self._heard_until

    def put_off(self) -> None:
        """Give a leader, or a candidate, the whole time again until this node begins an election."""
        self._due_at = self.now + self._draw(*(AGAIN_TICKS if self._again else ELECTION_TICKS))

    def hear_leader(self) -> None:
        """Note a sign of life of the leader."""
        self._again = 0
        self.put_off()
        self._heard_until = self.now + HEARD_TICKS

    def leader_lost(self) -> None:
        """Note that the connection to the leader broke: begin an election soon, and support those of others."""
        self._heard_until = self.now
        self._again = AGAIN_MOST
        self._due_at = self.now + self._draw(*LOST_TICKS)

    def begin(self) -> None:
        """Begin an election, or the pre-votes before it, without votes."""
        self.put_off()
        self._again = max(0, self._again - 1)
        self._votes = {}

    def count(self, voter: str, is_granted: bool, members: RaftMembers) -> bool | None:
        """Count a vote or a pre-vote. Returns whether the node has won, or None as long as no majority is clear."""
        self._votes[voter] = is_granted
        if members.has_majority(sum(self._votes.get(node, False) for node in members.voters)):
            return True
        if members.has_majority(sum(not self._votes.get(node, True) for node in members.voters)):
            return False
        return None
