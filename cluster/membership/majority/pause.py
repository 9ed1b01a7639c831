"""`Pause`: what a node does while it has no lease (CL-54, CL-55).

    running ──lease ends──► stalled ──cluster_pause_grace──► paused
       ▲                      │                                │
       └──── lease is back ───┴──────────── and this run is up ┤
                                                               └── declared down ──► restarting

While it is *stalled* the node answers nothing that only a majority may answer, and its clients notice a delay alone.
When it is *paused* it accepts no clients and has closed those it had. When it has a lease again and the cluster still
counts this run of it as up, it goes on where it was. If the cluster has declared it down, others have taken over, so it
begins anew as another run of itself (`PauseAction.RESTART`), at most once in `RESTART_SECONDS`.
"""

from __future__ import annotations

from enum import Enum

from ....seams import seam

#: Seconds between two restarts of a node that was declared down.
RESTART_SECONDS = 10.0


class PauseStage(Enum):
    """See the module."""

    RUNNING = "running"
    STALLED = "stalled"
    PAUSED = "paused"
    RESTARTING = "restarting"


class PauseAction(Enum):
    """What the caller does because the stage has changed."""

    #: Close the listeners, and the connections of all clients.
    PAUSE = "pause"
    #: Open the listeners again.
    RESUME = "resume"
    #: End everything in the node, and boot with another incarnation.
    RESTART = "restart"


class Pause:
    """One run of a node, from when it is up. `grace` is in seconds, `restarted_at` when it last was declared down."""

    def __init__(self, grace: float, restarted_at: float = float("-inf")) -> None:
        self.stage = PauseStage.RUNNING
        self._grace = grace
        self._restarted_at = restarted_at
        self._stalled_since = 0.0

    @seam("pause: what a node does without a lease")
    def step(self, now: float, has_lease: bool, is_declared_down: bool) -> PauseAction | None:
        """Decide what the node has to do now; None if it goes on as it is. The caller does it.

        Called at least with every heartbeat. If that is late, clients stay connected a little longer than `grace`
        allows. Nothing worse follows, because a node without a lease answers them nothing.
        """
        if self.stage is PauseStage.RESTARTING:
            return None
        if is_declared_down and now - self._restarted_at >= RESTART_SECONDS:
            self.stage = PauseStage.RESTARTING
            return PauseAction.RESTART
        if has_lease and not is_declared_down:
            was_paused = self.stage is PauseStage.PAUSED
            self.stage = PauseStage.RUNNING
            return PauseAction.RESUME if was_paused else None
        if self.stage is PauseStage.RUNNING:
            self.stage, self._stalled_since = PauseStage.STALLED, now
        if self.stage is PauseStage.STALLED and now - self._stalled_since >= self._grace:
            self.stage = PauseStage.PAUSED
            return PauseAction.PAUSE
        return None
