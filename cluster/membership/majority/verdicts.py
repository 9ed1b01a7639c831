"""`Verdicts`: which members the leader declares down, and which it declares up (CL-43, CL-53).

Only the leader decides, and only by its own observations and the leases that it has granted: a member is down when no
lease of it can be valid any more, or when its process has ended for certain. The leader decides about everything that
has happened since its last decision together, because some decisions must be made about several nodes at once.

A new leader first waits until every member has sent something, or has ended for certain, or `net_ticktime` has passed.
So after a power cut of everything, all runs that ended with it go down together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....seams import seam
from .failure_detector import FailureDetector
from .lease import Granter


class Judgement(NamedTuple):
    """One set of changes: (node, incarnation) of each run that is down, and of each that is up."""

    down: tuple[tuple[str, str], ...]
    up: tuple[tuple[str, str], ...]


class Verdicts:
    """What one leader has observed of the members, from the moment `now` at which it became the leader."""

    def __init__(self, node: str, incarnation: str, now: float, net_ticktime: float) -> None:
        self._node = node
        self._incarnation = incarnation
        self._net_ticktime = net_ticktime
        self._began = now
        #: Whether this leader has had a heartbeat of every member, or has waited long enough.
        self.has_waited = False
        self.granter = Granter(now, net_ticktime)
        #: By member: the incarnation that has sent a heartbeat to this leader, and whether it waits to be declared up.
        self._seen: dict[str, tuple[str, bool]] = {}
        #: The rows of the last judgement.
        self._rows: dict[str, str | None] = {}
        #: Runs that have ended in order, as they have announced themselves.
        self._ended: set[tuple[str, str]] = set()
        #: Whether this node itself is to be declared up: an operator may have stopped its app.
        self.wants_up = True

    def heard(self, node: str, incarnation: str, wants_up: bool) -> None:
        """Note a heartbeat of this run of the node.

        `wants_up` is true until the run has been up once. A run that was declared down must not come up again, because
        other nodes have taken over its queues.
        """
        self._seen[node] = (incarnation, wants_up)

    def ended(self, node: str, incarnation: str) -> None:
        """Note that this run stops in order: it has no clients and no queues any more, so it needs no lease."""
        self._ended.add((node, incarnation))
        self._seen.setdefault(node, (incarnation, False))

    def reason(self, node: str, incarnation: str, lost: str | None) -> str:
        """The reason why this run is down, for the log; `lost` is that of the failure detector."""
        if (node, incarnation) in self._ended:
            return "it has stopped in order"
        return lost or f"its run {incarnation} has ended"

    def stopped(self, down: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """The nodes whose runs in `down` have stopped in order."""
        return tuple(node for node, incarnation in down if (node, incarnation) in self._ended)

    def gone(self, node: str) -> None:
        """Forget the run of a node whose link has ended: the next link may be that of another run."""
        self._seen.pop(node, None)

    def is_waiting(self, members: Iterable[str], detector: FailureDetector, now: float) -> bool:
        """Whether this leader still waits for heartbeats of members that are not known to be dead."""
        if not self.has_waited:
            missing = [
                node
                for node in members
                if node != self._node and node not in self._seen and not detector.is_dead(node, now)
            ]
            self.has_waited = not missing or now - self._began >= self._net_ticktime
        return not self.has_waited

    @seam("verdicts: who is down and who is up")
    def judge(self, rows: Mapping[str, str | None], detector: FailureDetector, now: float) -> Judgement | None:
        """The changes to propose now; None if none. `rows` has the incarnation of each member, None if it is down."""
        self._note_changes(rows, now)
        if self.is_waiting(rows, detector, now):
            return None
        lost = detector.lost(now)
        down, up = [], []
        for node, incarnation in sorted(rows.items()):
            seen, wants_up = self._seen.get(node, ("", False))
            if node == self._node:
                seen, wants_up = self._incarnation, self.wants_up
            if seen and seen != incarnation:
                if incarnation is not None:
                    # Another run of the node answers, so the one in the row has ended.
                    down.append((node, incarnation))
                if wants_up and node not in lost:
                    up.append((node, seen))
            elif incarnation is not None and node != self._node and self._is_lost(node, detector, now):
                down.append((node, incarnation))
        return Judgement(tuple(down), tuple(up)) if down or up else None

    def _note_changes(self, rows: Mapping[str, str | None], now: float) -> None:
        """Count a run that was just declared up as granted a lease now, so that it has time for its first question."""
        for node, incarnation in rows.items():
            if self._rows.get(node) != incarnation and self._rows:
                self.granter.grant(node, now)
        self._rows = dict(rows)

    @seam("verdicts: who is lost")
    def _is_lost(self, node: str, detector: FailureDetector, now: float) -> bool:
        has_ended = (node, self._rows.get(node)) in self._ended
        return has_ended or detector.is_dead(node, now) or self.granter.has_ended(node, now)
