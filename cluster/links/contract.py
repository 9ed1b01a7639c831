"""What `Links` receives, and what it sends to the processes that follow the links of this node.

`Links` manages nodes, sessions and connections, and does not read the cluster's metadata. `Members` sends it the nodes
to connect to (`set_peers`) and those to admit (`set_membership`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ...runtime.contract import Address, Contract, message

if TYPE_CHECKING:
    from ...actors.context.node_context import NodeContext
    from .admission import ClusterMembership, Facts, LinkIdentity
    from .config import LinkConfig
    from .handshake import Connected


class LaneItems(TypedDict):
    """One lane, for the command `warren links`."""

    lane: str
    received_bytes: int
    sent_bytes: int
    received_frames: int
    sent_frames: int
    received_messages: int
    sent_messages: int
    unsent: int
    held: int


class LinkItems(TypedDict):
    """One peer, for the command `warren links`."""

    node: str
    #: `up`, `connecting`, `waiting` before the next attempt, or `refused`.
    state: str
    #: Seconds for which the link has been in this state.
    since: float
    address: str
    incarnation: str
    #: Milliseconds from a ping to its answer; None before the first one.
    round_trip: float | None
    #: How many asks and monitors are open across the link, in both directions.
    open: int
    #: How often the link has been made since the node started.
    sessions: int
    #: Version of the protocol; 0 if the link is not up.
    version: int
    #: The reason of the last refusal or end of a session, also while the link is up again; empty if there was none.
    reason: str
    #: By reason: the attempts of this node to connect that one of the two nodes has refused since the node started.
    rejected: dict[str, int]
    lanes: list[LaneItems]


class ToLinkWatcher(Contract):
    """For processes that follow the links of their node. They receive the messages of one peer in order."""

    @message
    def link_up(self, node: str, incarnation: str, node_id: str, facts: Facts) -> None:
        """From Links: this run of the node is connected. Messages to its addresses arrive from now on."""

    @message
    def link_down(self, node: str, reason: str) -> None:
        """From Links: the connection has ended. Asks and monitors across it have got `noconnection` before."""

    @message
    def link_refused(self, node: str, sentence: str, is_gone: bool) -> None:
        """From Links: an attempt to connect has failed. The sentence is for a person.

        `is_gone`: the node's host answers, and no process listens at the node's address. Otherwise one of the two sides
        has refused the greeting, or there was no answer.
        """


class ToLinks(Contract):
    @message
    def start(self, context: NodeContext, node_id: str, incarnation: str) -> tuple[str, int]:
        """From members: listen on `cluster_host` and `cluster_port`. Answered with host and port.

        Raises LinksError if the port or the shared secret cannot be used.
        """

    @message
    def set_peers(self, peers: dict[str, tuple[str, int]]) -> None:
        """From members: keep a link to each of these nodes, at this host and port. Links to former peers end."""

    @message
    def set_membership(self, membership: ClusterMembership) -> None:
        """From members: greet with this from now on, and admit by it. Links that are up stay."""

    @message
    def subscribe(self, watcher: Address[ToLinkWatcher]) -> None:
        """From watchers: send the watcher `link_up` for each link that is up, then every later message, until
        it ends.
        """

    @message
    def disconnect(self, node: str, reason: str) -> None:
        """From members: end the link to this node now, and make it again as after any other end."""

    @message
    def hold(self, node: str, sends: bool, receives: bool) -> bool:
        """From a `Cluster` in tests: keep back what this node sends to that one, and leave unread what comes from it.

        The connections stay open and no new ones are made, as behind a dead switch, until both are False again.
        Answered when it is so. Links has the name `links` in its node.
        """

    @message
    def reload_certificates(self) -> str:
        """From members: read the files of `cluster_tls_*` again, for connections that are made from now on.

        Answered with an empty text, or with the reason why the certificate in use stays.
        """

    @message
    def links(self) -> list[LinkItems]:
        """From operations: one row for each peer and each node that is connected without being one."""


class ToLink(Contract):
    @message
    def start(
        self,
        config: LinkConfig,
        node: str,
        identity: LinkIdentity,
        watchers: list[Address[ToLinkWatcher]],
    ) -> None:
        """From Links, before all other messages: this is the link to `node`."""

    @message
    def place(self, place: tuple[str, int] | None) -> None:
        """From Links: connect to the node at this host and port. None: keep only what the node itself connects."""

    @message
    def accepted(self, connected: Connected) -> None:
        """From Links: the node has made a connection, and both sides have admitted each other."""

    @message
    def greet_as(self, identity: LinkIdentity) -> None:
        """From Links: later sessions of the link begin with this identity of the node."""

    @message
    def use(self, config: LinkConfig) -> None:
        """From Links: make later connections with this configuration, whose certificate was renewed."""

    @message
    def watched_by(self, watcher: Address[ToLinkWatcher]) -> None:
        """From Links: notify this process, too, whenever the link comes up or breaks."""

    @message
    def unwatched_by(self, watcher: Address[ToLinkWatcher]) -> None:
        """From Links: this process has ended, so do not notify it any more."""

    @message
    def hold(self, sends: bool, receives: bool) -> bool:
        """From Links: see `ToLinks.hold`."""

    @message
    def end_session(self, reason: str) -> None:
        """From Links: end the session that is up now, and connect again."""

    @message
    def items(self) -> LinkItems:
        """From Links: the row of this link."""


to_links = ToLinks()
to_link = ToLink()
to_link_watcher = ToLinkWatcher()
