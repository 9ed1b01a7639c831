"""Leases: the right of a node to act as a part of the majority, until a moment on its own clock (CL-51).

`Asker` is the side of the node, `Granter` the side of the leader. A node asks with each heartbeat, and sends the time
of the question by its own monotonic clock; the leader returns that time with the grant. The lease lasts `LEASE_SHARE`
of the leader's `net_ticktime` from the *question*. So a grant that was in flight for long has little time left, and a
node that was suspended for long finds its lease ended. The leader declares a node down no sooner than a whole
`net_ticktime` after its last grant to it. So a node stops acting before others take over, provided that the rates of
the two clocks differ by less than a third; the clocks need not show the same time.

The leader grants a lease only if a majority has answered its recent heartbeats. A leader that is elected in its place
waits for `net_ticktime` before it declares any node down, and was elected no sooner than `HEARD_SECONDS` after the last
answer that the old leader counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....actors.context.lease import Lease
from ....seams import seam

#: The share of the leader's `net_ticktime` for which a lease is valid.
LEASE_SHARE = 0.75

#: Seconds for which a voter that has answered a leader votes for no other (`HEARD_TICKS` of the consensus).
HEARD_SECONDS = 1.0

#: The share of `HEARD_SECONDS` for which a leader that a majority has answered grants leases.
CONTACT_SHARE = 0.75


class Asker:
    """Extends the lease of a node. At first the node has none. All times are of the node's monotonic clock."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._has_given_up = False
        lease.until = float("-inf")

    @seam("lease: from when it counts")
    def granted(self, asked_at: float, seconds: float) -> None:
        """Extend the lease by a grant of the question that was sent at `asked_at`. Grants may come in any order."""
        if not self._has_given_up:
            self._lease.until = max(self._lease.until, asked_at + seconds)

    def give_up(self) -> None:
        """End the lease for good. Called before the leader is notified that this run ends, and declares it down."""
        self._has_given_up = True
        self._lease.until = float("-inf")


class Granter:
    """The leader's side, from the moment at which it became the leader. All times are of its monotonic clock."""

    def __init__(self, now: float, net_ticktime: float) -> None:
        self._began = now
        self._net_ticktime = net_ticktime
        self._granted: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """For how long a lease is valid."""
        return LEASE_SHARE * self._net_ticktime

    @seam("lease: whether a leader may grant")
    def may_grant(self, now: float, contact: float) -> bool:
        """Whether a majority has answered recent heartbeats, the latest of which the leader sent at `contact`."""
        return now - contact < CONTACT_SHARE * HEARD_SECONDS

    def grant(self, node: str, now: float) -> float:
        """Grant a lease to `node` and return how long it is valid."""
        self._granted[node] = now
        return self.seconds

    @seam("lease: when a node has lost it for certain")
    def has_ended(self, node: str, now: float) -> bool:
        """Whether no lease of this node can be valid, not even one that an earlier leader granted."""
        return now - self._granted.get(node, self._began) >= self._net_ticktime

    def ended(self, nodes: Iterable[str], now: float) -> list[str]:
        """The nodes among `nodes` whose leases have ended for certain."""
        return [node for node in nodes if self.has_ended(node, now)]
