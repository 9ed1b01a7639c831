"""`Serving`: has the node serve clients only as a part of the majority, as `Pause` decides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ....actors.contracts.node import to_node
from .pause import Pause, PauseAction, PauseStage

if TYPE_CHECKING:
    from ....actors.context.lease import Lease
    from ....actors.contracts.node import ToNode
    from ....runtime.contract import Address
    from ....runtime.process import Process
    from ..member_table import MemberTable
    from ..own_node import OwnNode
    from ..starting import Starting

log = logging.getLogger("warren.members")


class Serving:
    """A part of the process `process`, a `Members`."""

    def __init__(
        self,
        process: Process,
        node: Address[ToNode],
        lease: Lease,
        own: OwnNode,
        table: MemberTable,
        starting: Starting,
    ) -> None:
        self._process = process
        self._node = node
        self._lease = lease
        self._own = own
        self._table = table
        self._starting = starting
        #: None until the node is up, and once it stops in order.
        self._pause: Pause | None = None
        #: Whether the node accepts clients, unless it is paused.
        self._is_serving = False

    def node_up(self) -> None:
        """Note that this run of the node was declared up."""
        grace = self._own.settings.cluster_pause_grace / 1000
        self._pause = Pause(grace, restarted_at=self._process.now())

    def node_ends(self) -> None:
        """Note that the node stops in order: that the cluster declares this run down is no reason to begin another."""
        self._pause = None

    def begins(self) -> None:
        """Note that the node accepts clients from now on; suspend it if it is paused."""
        self._is_serving = True
        if self._pause is not None and self._pause.stage is PauseStage.PAUSED:
            self._suspend()

    def step(self, now: float) -> None:
        """At a beat: pause the node, have it resume, or have it begin another run."""
        pause = self._pause
        if pause is None:
            return
        was, has_lease = pause.stage, self._lease.holds(now)
        # A node that was removed while it was cut off gets no log that says so, only refusals. Its next run ends with
        # them, or, if it keeps everything in memory, joins as a new node.
        removed = self._starting.removed()
        is_over = not self._table.is_declared_up() or bool(removed) and not has_lease
        action = pause.step(now, has_lease, is_over)
        self._starting.stage = pause.stage.value
        if pause.stage is not was:
            self._log_stage(pause.stage, was)
        if action is PauseAction.PAUSE and self._is_serving:
            self._suspend()
        elif action is PauseAction.RESUME and self._is_serving:
            self._process.send(self._node, to_node.resume("majority"))
        elif action is PauseAction.RESTART:
            self._process.send(self._node, to_node.begin_anew(removed or "the cluster has declared it down"))

    def _suspend(self) -> None:
        text = f"node '{self._own.name}' cannot reach a majority of its cluster"
        self._process.send(self._node, to_node.suspend("majority", text))

    def _log_stage(self, stage: PauseStage, was: PauseStage) -> None:
        name, missing = self._own.name, self._starting.missing()
        match stage:
            case PauseStage.STALLED:
                log.warning("%s has no lease: %s", name, missing)
            case PauseStage.PAUSED:
                log.error(
                    "%s pauses and serves no clients, because it cannot reach a majority of its cluster: %s",
                    name,
                    missing,
                )
            case PauseStage.RUNNING:
                log.info("%s belongs to the majority again, after it was %s", name, was.value)
            case PauseStage.RESTARTING:
                pass
