"""`FailureDetector`: which other nodes a node takes for lost, and why (CL-50).

A node sends every other one a heartbeat each `HEARTBEAT_SECONDS`. It takes a node for lost that sent nothing for
`net_ticktime`, give or take a tenth, which is drawn anew each time so that nodes do not all decide in one moment. It
takes a node for lost earlier if the node's host refuses connections for `REFUSED_SECONDS`: the host answers and nobody
listens, so the process has ended. All times are in seconds of this node's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: Seconds between two heartbeats to a node.
HEARTBEAT_SECONDS = 0.25

#: Seconds for which a host must refuse connections until its node counts as dead.
REFUSED_SECONDS = 0.5

#: The share by which the time without a sign of life is drawn longer or shorter.
JITTER = 0.1


class FailureDetector:
    """See the module. `draw` returns a random number between 0 and 1."""

    def __init__(self, net_ticktime: float, draw: Callable[[], float]) -> None:
        self._net_ticktime = net_ticktime
        self._draw = draw
        self._heard: dict[str, float] = {}
        self._limits: dict[str, float] = {}
        self._refused_since: dict[str, float] = {}

    def watch(self, nodes: Iterable[str], now: float) -> None:
        """Watch these nodes, and no others. A new one has `net_ticktime` to send something."""
        wanted = set(nodes)
        for node in set(self._heard) - wanted:
            del self._heard[node], self._limits[node]
            self._refused_since.pop(node, None)
        for node in sorted(wanted - set(self._heard)):
            self.heard(node, now)

    def heard(self, node: str, now: float) -> None:
        """Note that something from this node has arrived."""
        self._heard[node] = now
        self._limits[node] = self._net_ticktime * (1 + JITTER * (2 * self._draw() - 1))
        self._refused_since.pop(node, None)

    def refused(self, node: str, now: float) -> None:
        """Note that the host of this node has refused a connection."""
        if node in self._heard:
            self._refused_since.setdefault(node, now)

    def run_began(self, node: str) -> None:
        """Note that another run of this node was declared up. What its host has refused says nothing about this run."""
        self._refused_since.pop(node, None)

    def is_dead(self, node: str, now: float) -> bool:
        """Whether the process of this node has ended for certain."""
        return now - self._refused_since.get(node, now) >= REFUSED_SECONDS

    def lost(self, now: float) -> dict[str, str]:
        """The nodes that count as lost, and the reason, for people."""
        lost = {}
        for node, heard in self._heard.items():
            if self.is_dead(node, now):
                lost[node] = "its host refuses connections, so its process has ended"
            elif now - heard >= self._limits[node]:
                lost[node] = f"nothing has come from it for {now - heard:.1f} s"
        return lost

    def silence(self, node: str, now: float) -> float:
        """For how many seconds nothing has come from this node."""
        return now - self._heard.get(node, now)
