"""`LogMembers`: adjusts the voters and learners of the consensus log to the table of nodes (CL-18, CL-19).

The table lists the members of the cluster; commands change it. The leader then changes the members of the log, one at a
time, as soon as the previous change is committed. So a node that was added becomes a learner, and a voter when it has
caught up; one that was removed loses its vote.
"""

from __future__ import annotations

from contextlib import suppress

from ...definitions.definitions import Definitions
from ..consensus.core import Raft
from ..consensus.leader import ProposalRefused
from ..consensus.membership import RaftMembers

#: The maximum number of voters; further nodes follow the log without a vote.
MOST_VOTERS = 7


class LogMembers:
    """See the module."""

    def __init__(self, raft: Raft, definitions: Definitions) -> None:
        self._raft = raft
        self._definitions = definitions

    def running(self) -> list[str]:
        """The members that count as up."""
        return [node.name for node in self._definitions.nodes.values() if node.incarnation]

    def follow_table(self) -> bool:
        """Make the next change, if this node leads and anything differs from the table; returns whether it does."""
        if self._raft.leading is None or not self._raft.leading.has_committed_in_term:
            return False
        wanted = self._next()
        if wanted is None:
            return False
        with suppress(ProposalRefused):  # another change is not committed yet
            self._raft.change_members(wanted)
        return True

    def _next(self) -> RaftMembers | None:
        """The members after one step towards the table; None if there is nothing to do."""
        leading, members = self._raft.leading, self._raft.log.members
        assert leading is not None
        table = {node.name: node for node in self._definitions.nodes.values()}
        for name in members.everyone:
            if name not in table and members.voters != (name,):
                return members.without(name)
        for name, node in table.items():
            if name not in members.everyone:
                return members.with_learner(name)
            is_witness = node.role == "witness"
            if name in members.voters and is_witness != (name in members.witnesses):
                return members.with_voter(name, is_witness)
        if len(members.voters) < MOST_VOTERS:
            for name in leading.level_learners:
                return members.with_voter(name, table[name].role == "witness")
        return None
