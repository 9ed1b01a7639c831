"""`InForce`: up to where the changes of the log are in force on all nodes.

A change is answered when every member that runs has applied it (CL-31). The members report to the leader up to where
they have applied the log, and the leader sends all of them the index up to which every member has. A member that has
not answered the leader for `SILENT_TICKS` does not count, so that its death delays the answers for that time at most.
Nor does a member that is more than `LAG_TICKS` behind, such as one whose disk refuses writes (CL-32).
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ...seams import seam

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..consensus.core import Raft
    from ..consensus.leader import Leader
    from .log_members import LogMembers

#: Seconds of a tick.
TICK = 0.05
#: Seconds for which answers wait at least for a member that is silent, even if `net_ticktime` is shorter.
LEAST_SECONDS = 2.0


class AnswerTimeouts(NamedTuple):
    """For how many ticks the answers to changes wait for a member.

    silent  after the last heartbeat of the leader that it has answered
    behind  after the commit of an entry that it has not applied
    """

    silent: int
    behind: int

    @classmethod
    def of(cls, net_ticktime: float, apply_lag: float) -> AnswerTimeouts:
        """From the settings, in seconds.

        A lease ends after three quarters of `net_ticktime`, and the leader does not prolong that of a member that has
        not applied what was committed `apply_lag` ago. The last quarter is for beats and ticks, which do not follow the
        clock closely.
        """
        lasts = max(net_ticktime, LEAST_SECONDS)
        return cls(ceil(lasts / TICK), ceil((apply_lag + lasts) / TICK))


class InForce:
    """Keeps the index up to which this node takes the log to be in force, and calls `report` with it when it rises."""

    def __init__(
        self, raft: Raft, members: LogMembers, report: Callable[[int], None], timeouts: AnswerTimeouts
    ) -> None:
        self.raft = raft
        self._members = members
        self._report = report
        self._timeouts = timeouts
        #: The index up to which the log is in force.
        self.index = 0
        #: On the leader: up to where each member has applied the log, and the last index that it was sent as in force.
        self._applied_by: dict[str, int] = {}
        self._told: dict[str, int] = {}
        #: On the leader: what was committed at each of the last `timeouts.behind` ticks, the oldest first.
        self._committed_before = deque([0], timeouts.behind)

    def leader_changed(self) -> None:
        """Forget what the members have reported to an earlier leader."""
        self._applied_by.clear()
        self._told.clear()
        self._committed_before = deque([0], self._timeouts.behind)

    def ticked(self, ticks: int) -> None:
        """Note that this many ticks have passed on the leader."""
        self._committed_before.extend([self.raft.log.committed] * ticks)

    def member_applied(self, node: str, index: int, own: int) -> list[str]:
        """Note that a member has applied the log up to this index. Returns what `find` does."""
        known = self._applied_by.get(node, 0)
        if index <= known:
            # The member repeats its report because its link was made again, or because it has started again. What this
            # node sent it before may be lost.
            self._told.pop(node, None)
        self._applied_by[node] = max(index, known)
        told = self.find(own)
        return [*told, *self._untold([node])]

    def find(self, own: int) -> list[str]:
        """If this node leads, find the index up to which all running members have applied the log.

        This node has applied the log up to `own`. Returns the nodes to which the index has to be sent. A change that
        was answered to a client is in force on every node that serves clients (CL-31), because the answer waits for its
        index.
        """
        leading = self.raft.leading
        if leading is None:
            return []
        self._applied_by[self.raft.node] = own
        index = self._applied_everywhere(leading)
        if index <= self.index:
            return []
        self.reached(index)
        return self._untold(self.raft.log.members.everyone)

    def reached(self, index: int) -> None:
        """Note that everything up to this index is in force."""
        if index > self.index:
            self.index = index
            self._report(index)

    @seam("cluster: which changes are in force")
    def _applied_everywhere(self, leading: Leader) -> int:
        """The index up to which the log is applied on every running member that may hold a lease."""
        own = self.raft.node
        index = self.raft.log.committed
        due = self._committed_before[0]
        for node in self._members.running():
            applied = self._applied_by.get(node, 0)
            if applied >= due and (node == own or leading.is_heard(node, self._timeouts.silent)):
                index = min(index, applied)
        return index

    def _untold(self, nodes: Iterable[str]) -> list[str]:
        """The nodes among `nodes` to which this node, if it leads, has not sent `index`.

        The index is noted as sent to them, because the caller sends it at once.
        """
        raft = self.raft
        if raft.leading is None:
            return []
        untold = [node for node in nodes if node != raft.node and self._told.get(node, 0) < self.index]
        self._told.update(dict.fromkeys(untold, self.index))
        return untold
