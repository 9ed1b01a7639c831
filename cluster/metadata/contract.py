"""The messages that `ClusterMetadata` receives besides those of every Metadata, and those that it sends to watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ...actors.context.starting import ToNewMetadata
from ...runtime.contract import Contract, message
from ..links.contract import ToLinkWatcher

if TYPE_CHECKING:
    from ...definitions.records import Node
    from ...runtime.contract import Address


class ConsensusStatus(TypedDict):
    """The state of the consensus at a node.

    A node that never had a cluster has no log: it has no leader and no voters, and its term and indexes are 0.
    """

    #: `follower`, `pre-candidate`, `candidate` or `leader`; `alone` without a log.
    role: str
    term: int
    #: Empty if no leader is known.
    leader: str
    voters: list[str]
    learners: list[str]
    witnesses: list[str]
    #: The last entry that is committed, and the last one that this node has applied.
    committed: int
    applied: int
    #: The last entry that all running members have applied.
    in_force: int
    #: At a leader: the time of its monotonic clock at which it sent the latest heartbeats that a majority has answered;
    #: 0.0 if there are none, or if this node does not lead.
    contact: float


#: The status of a node without a log, and of one that has not read its disk yet.
NO_LOG: ConsensusStatus = {
    "role": "alone",
    "term": 0,
    "leader": "",
    "voters": [],
    "learners": [],
    "witnesses": [],
    "committed": 0,
    "applied": 0,
    "in_force": 0,
    "contact": 0.0,
}


class ToConsensusWatcher(Contract):
    """For processes that follow the consensus of their node."""

    @message
    def leader_is(self, leader: str | None, term: int) -> None:
        """From Metadata, when the leader or the term changes: None if no leader is known."""

    @message
    def beat(self, status: ConsensusStatus) -> None:
        """From Metadata, every 250 ms: messages that the watcher sends now share frames with the heartbeats."""

    @message
    def nodes_changed(self) -> None:
        """From Metadata, when the table of nodes or that of features has changed, and at the beginning."""


class ToClusterMetadata(ToNewMetadata, ToLinkWatcher):
    """The names of this process are `meta` and `consensus`."""

    @message
    def consensus(self, node: str, data: bytes) -> None:
        """From the Metadata of another node: an encoded message of the consensus (`wire`)."""

    @message
    def found(self, node: Node) -> None:
        """From members: begin the log, with this node as the sole voter.

        `node` is the record of this node, whose run counts as up from now on. Answered when the log is on the disk.
        Does nothing if the log has begun.
        """

    @message
    def follow(self) -> None:
        """From members: begin a log without members, and wait until a leader sends its state.

        Answered when the log is on the disk. Does nothing if the log has begun. The node must have no metadata.
        """

    @message
    def barrier(self) -> int:
        """From members: wait until this node has applied everything that was committed when it asked.

        Answered with the index; not before the cluster has a majority.
        """

    @message
    def consensus_status(self) -> ConsensusStatus:
        """From members and operations: see `ConsensusStatus`."""

    @message
    def watch_consensus(self, watcher: Address[ToConsensusWatcher]) -> None:
        """From members: send the watcher `leader_is` and `nodes_changed`, now and at each change, and `beat`."""

    @message
    def transfer_leadership(self, to: str | None) -> str:
        """From members, before the node stops: hand the leadership over to this voter, or to the most advanced one.

        Answered with the name of that voter; empty if there is none or if this node does not lead.
        """


to_consensus_watcher = ToConsensusWatcher()
to_cluster_metadata = ToClusterMetadata()
