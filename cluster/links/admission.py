"""Which node may link to which: each side of a greeting decides it from the identities of both (CL-8, CL-9)."""

from __future__ import annotations

from typing import Any, NamedTuple

from .encoding.frames import LinkFrameError

#: The protocol versions that this build supports: the oldest and the newest.
VERSIONS = (1, 1)

#: Codes of refusals.
NOT_SUPPORTED, NO_PERMISSION, MALFORMED, CONFLICT, BAD_SECRET = 3, 16, 1004, 1005, 1007

#: The words for the codes, in metrics.
REASONS = {
    NOT_SUPPORTED: "not_supported",
    NO_PERMISSION: "no_permission",
    MALFORMED: "malformed",
    CONFLICT: "conflict",
    BAD_SECRET: "bad_secret",
}

#: A part of the text of each refusal of a node that has the name of a member and another id (CL-45), by which
#: `Seeking` recognises it. Such a node stays refused.
ANOTHER_DIRECTORY = "is a member with another data directory"

#: A part of the text of each refusal of a node that has the id of this cluster and is not listed, such as one that was
#: removed from it.
NO_MEMBER = "is no member of the cluster"

#: The key of the facts under which a node sends its settings that must be the same on all nodes.
SETTINGS = "settings"

#: Most characters of a name or id, and most features and members that a greeting may name.
MAX_TEXT, MAX_ITEMS = 255, 1_000

#: What a node sends its peers about itself in the greeting, by name: strings, numbers, booleans, None, lists of them.
Facts = dict[str, Any]


class ClusterMembership(NamedTuple):
    """What a node sends about its cluster in the greeting, and whom it admits.

    cluster_id  None as long as the node belongs to no cluster. A node without one may link to every node, because it
                must ask where it belongs
    members     the node id of each member, by name; empty as long as the node has not received them. A node that claims
                this cluster and is not listed, or is listed with another id, is refused
    replaces    whether a node with a member's name and an empty data directory is admitted: it takes the member's place
    required    the features that are enabled in the cluster: a node whose build lacks one is refused
    facts       what else the greeting has for the peer, whose watchers receive it in `link_up`. `settings` has those
                that must be the same on both nodes
    """

    cluster_id: str | None = None
    members: dict[str, str] = {}
    replaces: bool = False
    required: frozenset[str] = frozenset()
    facts: Facts = {}


class Refusal(NamedTuple):
    """Why two nodes have no link: a code for the nodes, and for operators a sentence with the reason and a way out.

    `by_peer` is True if the other node has refused, and False if this one has.
    """

    code: int
    sentence: str
    by_peer: bool = False


class LinkIdentity(NamedTuple):
    """Who a node is. The greeting carries everything but `membership`, which is filled for this node only."""

    node: str
    node_id: str
    incarnation: str
    cluster_id: str | None = None
    versions: tuple[int, int] = VERSIONS
    features: frozenset[str] = frozenset()
    facts: Facts = {}
    membership: ClusterMembership = ClusterMembership()

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "id": self.node_id,
            "incarnation": self.incarnation,
            "cluster": self.cluster_id,
            "versions": list(self.versions),
            "features": sorted(self.features),
            "facts": self.facts,
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> LinkIdentity:
        """Raises LinkFrameError unless every field has the right type and a sensible size."""
        texts = [given.get(key) for key in ("node", "id", "incarnation")]
        cluster, versions, features = given.get("cluster"), given.get("versions"), given.get("features")
        facts = given.get("facts", {})
        if not all(type(text) is str and 0 < len(text) <= MAX_TEXT and text.isprintable() for text in texts):
            raise LinkFrameError("a greeting without node, id or incarnation")
        if "/" in texts[0] or "/" in texts[2] or "-" in texts[2]:  # type: ignore[operator]
            raise LinkFrameError("a greeting with a name or incarnation that no node has")
        if cluster is not None and (type(cluster) is not str or len(cluster) > MAX_TEXT):
            raise LinkFrameError("a greeting with a wrong cluster id")
        if type(versions) is not list or [type(item) for item in versions] != [int, int]:
            raise LinkFrameError("a greeting without versions")
        if type(features) is not list or len(features) > MAX_ITEMS or not all(type(item) is str for item in features):
            raise LinkFrameError("a greeting without features")
        if type(facts) is not dict:
            raise LinkFrameError("a greeting with wrong facts")
        node, node_id, incarnation = map(str, texts)
        return cls(node, node_id, incarnation, cluster, (versions[0], versions[1]), frozenset(features), facts)


def refusal(own: LinkIdentity, peer: LinkIdentity, expected: str = "") -> Refusal | None:
    """Why `own` does not link to `peer`, None if it does. `expected` is the node that it wanted to reach, if any."""
    a, b, membership = own.node, peer.node, own.membership
    if b == a:
        if peer.node_id == own.node_id and peer.incarnation == own.incarnation:
            return Refusal(
                CONFLICT,
                f"{a} has reached itself: an address in its list of nodes, or in cluster_peer_addresses, is its own "
                "under another name",
            )
        return Refusal(
            CONFLICT, f"two nodes are named {a}; give one of them another node_name, because names must differ"
        )
    if expected and b != expected:
        return Refusal(CONFLICT, f"{b} answers at the address of {expected}; correct the address, or the name")
    if min(own.versions[1], peer.versions[1]) < max(own.versions[0], peer.versions[0]):
        return Refusal(
            NOT_SUPPORTED,
            f"{b} speaks versions {peer.versions[0]} to {peer.versions[1]} of the protocol between nodes, and {a} "
            f"versions {own.versions[0]} to {own.versions[1]}; upgrade the older one, one release at a time",
        )
    missing = membership.required - peer.features
    if missing:
        return Refusal(
            NOT_SUPPORTED,
            f"{b} lacks the features {', '.join(sorted(missing))}, which are enabled in this cluster; upgrade {b}",
        )
    differing = _differing_setting(own, peer)
    if differing:
        return Refusal(CONFLICT, differing)
    if own.cluster_id is None or peer.cluster_id is None:
        return _of_a_stranger(membership, peer) if peer.cluster_id is None else None
    if peer.cluster_id != own.cluster_id:
        return Refusal(
            CONFLICT,
            f"{b} belongs to another cluster ({peer.cluster_id}) than {a} ({own.cluster_id}); to move a node, start "
            "it with an empty data directory and a member of the other cluster in cluster_formation.nodes",
        )
    if membership.members:
        known = membership.members.get(b)
        if known is None:
            return Refusal(
                NO_PERMISSION,
                f"{b} {NO_MEMBER} of {a}; start {b} with an empty data directory, and it joins as a new one",
            )
        if known != peer.node_id:
            return _another_directory(b)
    return None


def _differing_setting(own: LinkIdentity, peer: LinkIdentity) -> str:
    """What is wrong if a setting differs that must be the same on both nodes (see `ClusterMembership`), else empty."""
    given, theirs = own.facts.get(SETTINGS), peer.facts.get(SETTINGS)
    if type(given) is not dict or type(theirs) is not dict:
        return ""
    for name, value in given.items():
        other = theirs.get(name, value)
        if other != value and type(other) in (int, float, str):
            return (
                f"{name} is {value} on {own.node} and {other!s:.40} on {peer.node}; give it the same value in the"
                " configuration of all nodes, and start those again that had another one"
            )
    return ""


def _of_a_stranger(membership: ClusterMembership, peer: LinkIdentity) -> Refusal | None:
    """Why a node without a cluster is refused: it may ask where it belongs, but not under the name of a member."""
    known = membership.members.get(peer.node)
    is_admitted = known is None or known == peer.node_id or membership.replaces
    return None if is_admitted else _another_directory(peer.node)


def _another_directory(node: str) -> Refusal:
    return Refusal(
        CONFLICT,
        f"{node} {ANOTHER_DIRECTORY}. If that one is lost: `warren forget_cluster_node {node}`, "
        "then start this node again. If it is not mounted: mount it",
    )
