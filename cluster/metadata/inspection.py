"""`ConsensusView`: what a node's Metadata shows of the log that its cluster agrees on, for checks.

A view reads the process when it is asked, so a process that nobody inspects pays nothing. It is used between two turns,
on the thread of the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..consensus.core import Raft
from ..consensus.log import Entry
from .process import ClusterMetadata


@dataclass(frozen=True, slots=True)
class ConsensusView:
    """See the module."""

    metadata: ClusterMetadata

    @property
    def has_log(self) -> bool:
        """Whether the node follows a log of consensus; the other properties may be read only then."""
        agreed = getattr(self.metadata, "agreed", None)
        return agreed is not None and agreed.replication is not None

    @property
    def leads_in(self) -> int | None:
        """The term in which the node leads; None if it does not."""
        raft = self._raft
        return raft.term if raft.leading is not None else None

    @property
    def committed(self) -> int:
        """The last entry that is committed as far as the node can tell."""
        return self._raft.log.committed

    @property
    def applied(self) -> int:
        """The last entry that the node has applied."""
        return self._raft.log.applied

    def entries(self, first: int, last: int) -> Iterable[Entry]:
        """The entries from `first` to `last`, without those that a snapshot has replaced."""
        log = self._raft.log
        first = max(first, log.start.index + 1)
        return log.between(first, last) if first <= last else ()

    def run_of(self, node: str) -> str | None:
        """The incarnation in which a member counts as up, empty if it is down; None if there is no such member."""
        record = self.metadata.state.definitions.node(node)
        return None if record is None else record.incarnation

    def rows(self) -> dict[tuple[str, str], str]:
        """All rows of the state, as texts."""
        replicated = self.metadata.agreed.rows()
        return {(change.table, repr(change.key)): repr(change.fields) for change in replicated}

    @property
    def _raft(self) -> Raft:
        replication = self.metadata.agreed.replication
        assert replication is not None
        return replication.raft
