"""`RaftMembers`: the nodes of a cluster, as the log has them, and what a majority of them is.

Three kinds of nodes follow the log:

- A **voter** elects leaders, and an entry is committed when a majority of the voters has it on the disk.
- A **witness** is a voter that holds no queues. It has the whole log, and leads only until another voter can.
- A **learner** receives the log and has no vote. Every new node begins as one, so that a node without the log never
  counts towards a majority that needs it.

The members change one at a time (CL-18): any majority of the old voters and any majority of the new ones then share a
node, so two leaders can never be elected in one term by different sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from ...seams import seam


class RaftMembers(NamedTuple):
    """Names of nodes, each of the three in ascending order; the witnesses are also voters."""

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()

    @property
    def everyone(self) -> tuple[str, ...]:
        """All nodes that follow the log."""
        return self.voters + self.learners

    def is_sole_voter(self, node: str) -> bool:
        """Whether the vote of `node` alone is a majority."""
        return self.voters == (node,)

    @seam("consensus: how many are a majority")
    def has_majority(self, count: int) -> bool:
        """Whether this many voters are more than half of them."""
        return count > len(self.voters) // 2

    @seam("consensus: what a majority has reached")
    def reached_by_majority(self, value: Callable[[str], int]) -> int:
        """The highest number that the `value` of more than half of the voters has reached."""
        return sorted(map(value, self.voters), reverse=True)[len(self.voters) // 2]

    def with_learner(self, node: str) -> RaftMembers:
        """These members and `node`, which follows the log without a vote; a voter becomes a learner."""
        rest = self.without(node)
        return rest._replace(learners=tuple(sorted({*rest.learners, node})))

    def with_voter(self, node: str, is_witness: bool = False) -> RaftMembers:
        """These members, with `node` as a voter."""
        rest = self.without(node)
        witnesses = {*rest.witnesses, node} if is_witness else rest.witnesses
        return RaftMembers(tuple(sorted({*rest.voters, node})), rest.learners, tuple(sorted(witnesses)))

    def without(self, node: str) -> RaftMembers:
        """These members except `node`."""
        return RaftMembers(*(tuple(name for name in kind if name != node) for kind in self))

    def why_not(self, new: RaftMembers) -> str | None:
        """Why the members must not become `new` in one step; None if they may."""
        if not new.voters:
            return "the last voter cannot leave"
        if len(set(self.voters) ^ set(new.voters)) > 1:
            return "the voters change one at a time"
        added = set(new.voters) - set(self.voters)
        if not added <= set(self.learners):
            return f"{added.pop()} must follow the log as a learner before it gets a vote"
        return None

    def packed(self) -> bytes:
        """The members as the data of a log entry."""
        packed: bytes = msgpack.packb([list(kind) for kind in self])
        return packed

    @classmethod
    def unpacked(cls, data: bytes) -> RaftMembers:
        """From the data of an entry."""
        return cls(*map(tuple, msgpack.unpackb(data)))
