"""`FlowSamples`: what a sample of flow control has, from the statistics of connections, channels and queues.

A sample covers the time since the one before it. Statistics count from the beginning of a process, so this keeps the
last figures of each process and takes the differences. For the stages, and for what holds connections back, see
`operations/observing/bottlenecks`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

from ..contracts.info_items import InfoItems
from ..queue.master.intake import DEAD_LETTERS
from ..queue.mirroring import COPY_PEER, RING_PEER
from ..statistics.counts import MESSAGE_COUNTERS
from .operations.observing.bottlenecks import ADVICE, Items, verdict

#: Version of a sample.
VERSION = 1
#: Connections, channels and queues that a sample has, of each kind: those that were blocked the longest, then the
#: busiest.
MOST_OBJECTS = 50
#: Connections of which one sample has verdicts. If more are held back, the others have the same cause, or soon will.
MOST_VERDICTS = 200

#: The counters of messages by what a sample calls their sum.
_SUMS = {
    "published": ("publish",),
    "confirmed": ("confirm",),
    "delivered": ("deliver", "deliver_no_ack", "get", "get_no_ack"),
    "acked": ("ack",),
}
_PLACES = {name: [MESSAGE_COUNTERS.index(each) for each in counters] for name, counters in _SUMS.items()}
_ENDING = ("closing", "closed")


class NodeFigures(TypedDict):
    """What a sample has of the node as a whole."""

    node: str
    #: When the sample was taken, in milliseconds since the epoch, and the seconds since the last one.
    at: int
    seconds: float
    #: The counters of messages, in the order of `MESSAGE_COUNTERS`.
    counts: list[int]
    #: Bytes of memory; None where it cannot be measured.
    memory: int | None
    memory_limit: int
    alarms: list[str]


class FlowSamples:
    """See the module. Feed it with `read` and `end`, then call `sample`."""

    def __init__(self, counts: list[int], known: Iterable[str]) -> None:
        """`known`: the ids of the processes that exist already, whose figures count from their first reading on."""
        self._counts = counts
        self._unread = set(known)
        #: By id: figures that only grow, at the last reading.
        self._before: dict[str, list[float]] = {}
        #: By id of a queue: its ready and its unacknowledged messages, and their sums.
        self._waiting: dict[str, tuple[int, int]] = {}
        self._ready = self._unacked = 0
        #: By id: connections that something holds back, and channels and queues that were blocked lately.
        self._held: dict[str, Items] = {}
        self._blocked: dict[str, Items] = {}
        self._objects: dict[str, list[InfoItems]] = {"connection": [], "channel": [], "queue": []}
        self._bytes = [0, 0]

    def read(self, kind: str, process_id: str, items: Items) -> None:
        """Take the present statistics of a process that had a turn or was blocked."""
        waiting = items.get("messages_ready", 0), items.get("messages_unacknowledged", 0)
        if kind == "queue":
            self._wait(process_id, waiting)
        if kind == "connection":
            is_held = items["state"] not in _ENDING and (
                items["state"] == "flow" or bool(items["alarms"]) or bool(items["pauses"])
            )
            _keep(self._held, process_id, items, is_held)
        else:
            _keep(self._blocked, process_id, items, bool(items.get("blocked_by")))
        moved = self._moved(process_id, _figures(kind, items))
        if moved is None or "state" not in items:
            return
        if kind == "connection":
            self._bytes = [self._bytes[0] + int(moved[1]), self._bytes[1] + int(moved[2])]
        if any(moved):
            self._objects[kind].append(_object(kind, items, moved, waiting))

    def end(self, process_id: str) -> None:
        """Forget a process that has ended."""
        self._before.pop(process_id, None)
        self._unread.discard(process_id)
        self._held.pop(process_id, None)
        self._blocked.pop(process_id, None)
        self._wait(process_id, (0, 0))
        self._waiting.pop(process_id, None)

    def sample(self, node: NodeFigures) -> InfoItems:
        """The sample of everything that was read since the last one."""
        counts, before = node["counts"], self._counts
        self._counts = counts
        objects, self._objects = self._objects, {kind: [] for kind in self._objects}
        bytes_, self._bytes = self._bytes, [0, 0]
        return {
            "v": VERSION,
            **{name: node[name] for name in ("node", "at", "seconds", "memory", "memory_limit", "alarms")},
            **{name: sum(counts[at] - before[at] for at in places) for name, places in _PLACES.items()},
            **{"bytes_in": bytes_[0], "bytes_out": bytes_[1], "ready": self._ready, "unacked": self._unacked},
            "objects": [
                each
                for found in objects.values()
                for each in heapq.nlargest(
                    MOST_OBJECTS, found, key=lambda one: (one["blocked"], one["in"] + one["out"])
                )
            ],
            "verdicts": self._verdicts(node["node"]),
        }

    def _moved(self, process_id: str, figures: list[float]) -> list[float] | None:
        """How much each figure has grown since the last reading; None if that is not known."""
        before = self._before.get(process_id)
        self._before[process_id] = figures
        if before is None:
            if process_id in self._unread:
                self._unread.discard(process_id)
                return None
            return figures
        return [now - then for now, then in zip(figures, before)]

    def _wait(self, process_id: str, waiting: tuple[int, int]) -> None:
        before = self._waiting.get(process_id, (0, 0))
        self._waiting[process_id] = waiting
        self._ready += waiting[0] - before[0]
        self._unacked += waiting[1] - before[1]

    def _verdicts(self, node: str) -> list[InfoItems]:
        """What holds connections back: a row for each subject, with the number of connections behind it."""
        channels: dict[str, list[Items]] = {}
        queues: dict[tuple[str, str], Items] = {}
        for items in self._blocked.values():
            if "connection" in items:
                channels.setdefault(items["connection"], []).append(items)
            else:
                queues[items["vhost"], items["name"]] = items
        by_cause: dict[tuple[str, str], InfoItems] = {}
        for process_id, connection in list(self._held.items())[:MOST_VERDICTS]:
            found = verdict(connection, channels.get(process_id, ()), _queue_of(queues, connection["vhost"]), node)
            if found is None:
                continue
            share = connection["blocked_share"] if connection["state"] == "flow" else 1.0
            row = by_cause.setdefault(
                (found.bottleneck, found.subject),
                {
                    **{"bottleneck": found.bottleneck, "subject": found.subject, "connections": 0, "share": share},
                    **{"evidence": found.evidence, "advice": ADVICE[found.bottleneck]},
                },
            )
            row["connections"] += 1
            if share > row["share"]:
                row |= {"share": share, "evidence": found.evidence}
        return list(by_cause.values())


def _queue_of(queues: Mapping[tuple[str, str], Items], vhost: str) -> Callable[[str], Items | None]:
    return lambda name: queues.get((vhost, name))


def _keep(rows: dict[str, Items], process_id: str, items: Items, is_wanted: bool) -> None:
    if is_wanted:
        rows[process_id] = items
    else:
        rows.pop(process_id, None)


def _figures(kind: str, items: Items) -> list[float]:
    """The figures of a process that only grow: seconds blocked, in, out, and for a queue acknowledgements and the
    seconds blocked by the link, journal, segments, store, its mirrors and copies of it.
    """
    blocked = items.get("blocked_seconds", 0.0)
    if kind == "connection":
        return [blocked, items["recv_oct"], items["send_oct"]]
    counts = items["counts"]
    published, delivered, acked = (sum(counts[at] for at in _PLACES[name]) for name in _THROUGH)
    if kind == "channel":
        return [blocked, published, delivered]
    by = items.get("blocked_seconds_by", {})
    return [blocked, published, delivered, acked, *[by.get(peer, 0.0) for peer in _PEERS]]


#: The keys of `_SUMS` whose sums `_figures` computes for a channel or a queue.
_THROUGH = ("published", "delivered", "acked")
#: The kinds of peers that block a queue.
_PEERS = ("link", "journal", "segments", "store", RING_PEER, COPY_PEER, DEAD_LETTERS)


def _object(kind: str, items: Items, moved: Sequence[float], waiting: tuple[int, int]) -> InfoItems:
    """The row of a process that was blocked or that messages went through. `in` and `out` of connections are bytes."""
    found = {
        "stage": kind,
        "name": items["name"],
        "vhost": items["vhost"],
        "state": items["state"],
        "blocked": round(moved[0], 3),
        "in": int(moved[1]),
        "out": int(moved[2]),
    }
    if kind == "queue":
        found |= {"ready": waiting[0], "unacked": waiting[1], "consumers": items.get("consumers", 0)}
        found["acked"] = int(moved[3])
        found["blocked_by"] = {peer: round(seconds, 3) for peer, seconds in zip(_PEERS, moved[4:]) if seconds}
    if kind == "channel":
        found |= {"unacked": waiting[1], "unconfirmed": items["messages_unconfirmed"], "backlog": items["backlog"]}
    return found
