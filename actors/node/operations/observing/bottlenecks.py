"""`verdict`: which stage holds a connection back, and what to do about it (flow-control section 11).

A stage that cannot keep up blocks the one before it by giving it no more credit: the message stores and the journal
block queues, queues block channels, and channels block the connection, which then stops reading from its client. So
the last stage in this chain that is still blocked stands just before the one that is too slow.

A listing is a sample, and a block lasts milliseconds, so what counts is the share of the last seconds during which each
stage was blocked. A stage that was blocked for a much smaller share than the one before it is not what holds that one
back: its own work does.

The functions are pure: they compare info items of connections, channels and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .....runtime.credit import SHARE_SECONDS, link_peer
from ....contracts.info_items import InfoItems
from ....queue.master.intake import DEAD_LETTERS
from ....queue.mirroring import COPY_PEER, RING_PEER

#: A stage is held back by the next one if that one was blocked for at least this part of its own blocked time.
PASSED_ON = 0.1

#: How the name of a link among the peers of a process begins.
LINK = link_peer("")

Items = Mapping[str, Any]

#: The advice for each bottleneck (FC-71).
ADVICE = {
    "resource alarm": "The broker accepts no publishes until there is room again. Have the consumers catch up, or "
    "raise the limit: 'warren set_vm_memory_high_watermark', 'warren set_disk_free_limit'.",
    "client": "The client does not read what the broker sends it, or sends methods faster than they can be answered. "
    "Have it read, for example with a lower prefetch, or have it wait for answers.",
    "channel": "Handling its publishes takes all the time that the broker has for it. Publish larger batches between "
    "two waits for confirms, or run a second broker for part of the traffic.",
    "queue": "The queue is the limit. Spread its messages over several queues, or route each message to fewer queues.",
    "message store": "The disk is the limit. Use a faster disk, publish fewer persistent messages, or keep the queue "
    "short enough to stay in memory.",
    "mirrors": "The replicas of the queue on other nodes are the limit, or the network to them. While a replica copies "
    "the queue, publishers wait so that the copy ends: see 'warren rings'. Fewer mirrors need less.",
    "link": "The network to that node, or the node itself, is the limit. See 'warren links', and run 'warren diagnose' "
    "there. A queue on the node of its publishers needs no link, and fewer mirrors need fewer.",
}

#: The names of the pauses of a connection whose reason is its client. A connection also pauses to let others have
#: turns, and while its node is cut off from the majority of the cluster.
CLIENT_PAUSES = ("output", "backlog")


class Verdict(NamedTuple):
    """What holds one connection back."""

    #: A key of `ADVICE`.
    bottleneck: str
    #: What it is, such as `queue 'orders' in vhost '/'`. Connections with the same subject have the same problem.
    subject: str
    #: How that shows, in a few words.
    evidence: str

    def row(self, connection: Items) -> InfoItems:
        return {
            "connection": connection["name"],
            "user": connection["user"],
            "vhost": connection["vhost"],
            "state": connection["state"],
            "bottleneck": self.bottleneck,
            "subject": self.subject,
            "evidence": self.evidence,
            "advice": ADVICE[self.bottleneck],
        }


def verdict(
    connection: Items,
    channels: Sequence[Items],
    queue_of: Callable[[str], Items | None],
    node: str,
) -> Verdict | None:
    """What holds the connection back; None if nothing does (FC-66).

    channels   the info items of its channels
    queue_of   the info items of the queue with this name in the connection's virtual host
    """
    if connection["alarms"] and connection["state"] in ("blocked", "blocking"):
        sources = " and ".join(connection["alarms"])
        return Verdict("resource alarm", f"low {sources} on node {node}", f"the connection is {connection['state']}")
    pauses = [pause for pause in connection["pauses"] if pause.startswith(CLIENT_PAUSES)]
    if pauses:
        waits = "it does not read" if "output" in pauses else "it sends more methods than are answered"
        return Verdict("client", f"the client of connection {connection['name']}", waits)
    if connection["state"] != "flow":
        return None
    blocked = _holding_back(connection["blocked_share"], channels)
    if not blocked:
        names = [name.removeprefix("channel ") for name in connection["blocked_by"]]
        return Verdict(
            "channel",
            f"{_named('channel', list(map(int, names)))} of connection {connection['name']}",
            f"blocked the connection for {_share([connection])}",
        )
    names = sorted({name for channel in blocked for name in channel["blocked_by"]})
    queues = [items for name in names if (items := queue_of(name)) is not None]
    links = [name for name in names if _stage(name) == "link" and queue_of(name) is None]
    if links == names:
        evidence = f"blocked {_named('channel', [channel['number'] for channel in blocked])} for {_share(blocked)}"
        return Verdict("link", _named_links(links), evidence)
    in_flow = _holding_back(max(channel["blocked_share"] for channel in blocked), queues)
    if in_flow:
        peers = sorted({peer for items in in_flow for peer in _behind(items)})
        stages = sorted({_stage(peer) for peer in peers})
        if stages == ["link"]:
            evidence = f"blocked {_named('queue', [items['name'] for items in in_flow])} for {_share(in_flow)}"
            return Verdict("link", _named_links(peers), evidence)
        if stages == ["mirrors"]:
            what = _named("queue", [items["name"] for items in in_flow])
            return Verdict(
                "mirrors",
                f"the mirrors of {what} in vhost '{connection['vhost']}'",
                f"{'one copies' if COPY_PEER in peers else 'they lag'}, and blocked {what} for {_share(in_flow)}",
            )
        return Verdict(
            "message store",
            f"the disk of vhost '{connection['vhost']}' on node {node}",
            f"its {' and '.join(stages)} blocked {_named('queue', [items['name'] for items in in_flow])} "
            f"for {_share(in_flow)}",
        )
    return Verdict(
        "queue",
        f"{_named('queue', names)} in vhost '{connection['vhost']}'",
        f"blocked {_named('channel', [channel['number'] for channel in blocked])} for {_share(blocked)}",
    )


def chain(
    connection: Items, channels: Sequence[Items], queues: Sequence[Items], found: Verdict | None
) -> list[InfoItems]:
    """A row for each stage between the client and the disk: which stages block it, for which share of the last seconds,
    and whether it is the bottleneck.

    queues   those that block any of the channels
    found    the verdict about the connection
    """
    slow = "" if found is None else found.bottleneck

    def row(stage: str, name: str, items: Items, is_slow: bool) -> InfoItems:
        return {
            "connection": connection["name"],
            "stage": stage,
            "name": name,
            "state": items["state"],
            "blocked_share": items["blocked_share"],
            "blocked_by": [
                peer if stage != "queue" or peer == DEAD_LETTERS else _stage(peer) for peer in items["blocked_by"]
            ],
            "bottleneck": is_slow,
        }

    rows = [row("connection", connection["name"], connection, slow in ("client", "resource alarm"))]
    for channel in channels:
        is_blocking = f"channel {channel['number']}" in connection["blocked_by"]
        rows.append(row("channel", str(channel["number"]), channel, slow == "channel" and is_blocking))
    for queue in queues:
        rows.append(row("queue", queue["name"], queue, slow == "queue"))
    for name in sorted({_stage(peer) for queue in queues for peer in _behind(queue)}):
        disk = {"state": "running", "blocked_share": 0.0, "blocked_by": ()}
        rows.append(row("disk", name, disk, slow == (name if name in ("link", "mirrors") else "message store")))
    return rows


def _holding_back(share: float, stage: Sequence[Items]) -> list[Items]:
    """The processes of `stage` that were blocked for a considerable part of `share`, that of the stage before."""
    return [items for items in stage if _behind(items) and items["blocked_share"] >= PASSED_ON * share]


def _behind(queue: Items) -> list[str]:
    """The peers that block a queue, without its own dead letters: what it does with these is work of the queue."""
    return [peer for peer in queue["blocked_by"] if peer != DEAD_LETTERS]


def _share(blocked: Sequence[Items]) -> str:
    """For which part of the time the process that was blocked the longest was blocked."""
    return f"{max(items['blocked_share'] for items in blocked):.0%} of {SHARE_SECONDS} s"


def _stage(peer: str) -> str:
    """What an operator calls the stage behind a queue: a queue is blocked by its journal, its segments, a store, the
    link to a replica's node or its replicas.
    """
    if peer.startswith(LINK):
        return "link"
    if peer in (RING_PEER, COPY_PEER):
        return "mirrors"
    return {"journal": "journal", "segments": "segment writer"}.get(peer, "message store")


def _named_links(peers: Sequence[str]) -> str:
    """The links with these peer names in words, such as `the links to nodes 'a', 'b'`."""
    return f"the link{'s' if len(peers) > 1 else ''} to {_named('node', [peer.removeprefix(LINK) for peer in peers])}"


def _named(kind: str, names: Sequence[object], most: int = 3) -> str:
    """`queue 'a'`, `queues 'a', 'b'`, or `queues 'a', 'b', 'c' and 7 others`."""
    if not names:
        return f"the {kind}s"
    shown = [f"'{name}'" if isinstance(name, str) else str(name) for name in names[:most]]
    more = len(names) - most
    others = f" and {more} other{'s' if more > 1 else ''}" if more > 0 else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(shown)}{others}"
