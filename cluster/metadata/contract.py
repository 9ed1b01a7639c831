"""What `ClusterMetadata` receives besides the messages of every Metadata, and what it sends to those who follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ...actors.context.starting import ToNewMetadata
from ...runtime.contract import Contract, message
from ..links.contract import ToLinkWatcher

if TYPE_CHECKING:
    from ...definitions.records import Node
    from ...runtime.contract import Address


class ConsensusStatus(TypedDict):
    """What a node knows of the agreement on the log.

    A node that has never had company has no log: it has no leader and no voters, and its term and indexes are 0.
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
    #: Up to here all members that run have applied the log.
    in_force: int
    #: Of a leader: the moment on this node's monotonic clock at which it sent the latest heartbeats that a majority has
    #: answered; 0.0 if there is none, or if this node does not lead.
    contact: float


#: Of a node without a log, and of one that has not read its disk yet.
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
        """From Metadata, every 250 ms: what the watcher sends to other nodes now shares frames with the consensus."""

    @message
    def nodes_changed(self) -> None:
        """From Metadata, when the table of nodes or that of features has changed, and at the beginning."""


class ToClusterMetadata(ToNewMetadata, ToLinkWatcher):
    """The names of this process are `meta` and `consensus`."""

    @message
    def consensus(self, node: str, data: bytes) -> None:
        """From the Metadata of another node: what nodes say to each other about the log (`wire`)."""

    @message
    def found(self, node: Node) -> None:
        """From members: begin the log, with this node as the sole voter.

        `node` is the record of this node, whose run counts as up from now on. Answered when the disk has it. Does
        nothing if the log has begun.
        """

    @message
    def follow(self) -> None:
        """From members: begin a log without members, and wait until a leader sends its state.

        Answered when the disk has it. Does nothing if the log has begun. The node must have no metadata of its own.
        """

    @message
    def barrier(self) -> int:
        """From members: wait until this node has applied everything that was committed when it asked.

        Answered with the index. That may take as long as there is no majority.
        """

    @message
    def consensus_status(self) -> ConsensusStatus:
        """From members and operations: see `ConsensusStatus`."""

    @message
    def watch_consensus(self, watcher: Address[ToConsensusWatcher]) -> None:
        """From members: send it `leader_is` and `nodes_changed`, now and at each change, and `beat`, until it ends."""

    @message
    def transfer_leadership(self, to: str | None) -> str:
        """From members, before the node stops: hand over to this voter, or to the fittest.

        Answered with its name, empty if there is nobody or if this node does not lead.
        """


to_consensus_watcher = ToConsensusWatcher()
to_cluster_metadata = ToClusterMetadata()
