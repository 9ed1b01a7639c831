"""`verdict`: which stage holds a connection back, and what to do about it (flow-control section 11).

A stage that cannot keep up blocks the one before it by giving it no more credit: the message stores and the journal
block queues, queues block channels, and channels block the connection, which then stops reading from its client. So
the last stage in this chain that is still blocked stands just before the one that is too slow.

The functions are pure: they compare info items of connections, channels and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
}


class Verdict(NamedTuple):
    """What holds one connection back."""

    #: A key of `ADVICE`.
    bottleneck: str
    #: What it is, such as `queue 'orders' in vhost '/'`. Connections with the same subject have the same problem.
    subject: str
    #: How that shows, in a few words.
    evidence: str

    def row(self, connection: Items) -> dict[str, Any]:
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
    seconds: float,
) -> Verdict | None:
    """What holds the connection back; None if nothing does (FC-66).

    channels   the info items of its channels
    queue_of   the info items of the queue with this name in the connection's virtual host

    All have the item `blocked_share` as well, the share of the last `seconds` during which the thing was blocked.
    """
    if connection["alarms"] and connection["state"] in ("blocked", "blocking"):
        sources = " and ".join(connection["alarms"])
        return Verdict("resource alarm", f"low {sources} on node {node}", f"the connection is {connection['state']}")
    if connection["pauses"]:
        waits = "it does not read" if "output" in connection["pauses"] else "it sends more methods than are answered"
        return Verdict("client", f"the client of connection {connection['name']}", waits)
    if connection["state"] != "flow":
        return None
    blocked = [channel for channel in channels if channel["blocked_by"]]
    if not blocked:
        numbers = connection["blocked_by"]
        return Verdict(
            "channel",
            f"{_named('channel', numbers)} of connection {connection['name']}",
            f"they blocked the connection for {_share([connection], seconds)}",
        )
    names = sorted({name for channel in blocked for name in channel["blocked_by"]})
    queues = [(name, queue_of(name)) for name in names]
    in_flow = [(name, items) for name, items in queues if items is not None and items["blocked_by"]]
    if in_flow:
        stages = sorted({str(peer) for _, items in in_flow for peer in items["blocked_by"]})
        return Verdict(
            "message store",
            f"the disk of vhost '{connection['vhost']}' on node {node}",
            f"its {' and '.join(map(_stage, stages))} blocked {_named('queue', [name for name, _ in in_flow])} "
            f"for {_share([items for _, items in in_flow], seconds)}",
        )
    numbers = [channel["number"] for channel in blocked]
    return Verdict(
        "queue",
        f"{_named('queue', names)} in vhost '{connection['vhost']}'",
        f"blocked {_named('channel', numbers)} for {_share(blocked, seconds)}",
    )


def _share(blocked: Sequence[Items], seconds: float) -> str:
    """For how long the one that was blocked the longest was blocked."""
    return f"{max(items['blocked_share'] for items in blocked):.0%} of {seconds:g} s"


def _stage(peer: str) -> str:
    return {"journal": "journal", "segments": "segment writer"}.get(peer, "message store")


def _named(kind: str, names: Sequence[object], most: int = 3) -> str:
    """`queue 'a'`, `queues 'a', 'b'`, or `queues 'a', 'b', 'c' and 7 others`."""
    if not names:
        return f"the {kind}s"
    shown = [f"'{name}'" if isinstance(name, str) else str(name) for name in names[:most]]
    others = f" and {len(names) - most} others" if len(names) > most else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(shown)}{others}"
