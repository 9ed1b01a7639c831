"""`EndNotices`: notifies the monitors of a process of its end, few of them in each turn.

A queue may have 65,535 channels that monitor it. So only the first `MONITORS` of a process's monitors are notified when
it ends; its parent passes on the rest in turns of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...parted_table import Growing
from ..exit_reason import ExitReason

if TYPE_CHECKING:
    from thespian.actors import ActorAddress

    from .actor_base import ActorBase
    from .cell import Cell

#: Monitors of a process that one turn notifies of its end.
MONITORS = 500


class EndNotices:
    """The notices that are not sent yet. `monitors` has the addresses to notify, by address and monitor's number."""

    __slots__ = ("_base", "_ended", "_monitors", "_reason")

    def __init__(
        self, base: ActorBase, ended: Cell, monitors: Growing[tuple[str, Any], ActorAddress], reason: ExitReason
    ) -> None:
        self._base = base
        self._ended = ended
        self._monitors = monitors
        self._reason = reason

    def send(self) -> None:
        """Send the next `MONITORS` notices, and have the parent of the ended process call this again for the rest."""
        base, ended, monitors = self._base, self._ended, self._monitors
        parent = ended.parent
        count = len(monitors)
        if count > MONITORS and parent is not None and parent.actor is not None and parent.handlers is not None:
            count = MONITORS
        for _ in range(count):
            (_, ref), watcher = monitors.popitem()
            base.enqueue(ended.address, watcher, ("$down", ref, self._reason))
        if monitors and parent is not None:
            base.enqueue(ended.address, parent.address, ("$work", self.send))
