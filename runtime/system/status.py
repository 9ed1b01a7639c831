"""What Thespian's status requests are answered with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from thespian.actors import ActorAddress, Thespian_ActorStatus, Thespian_SystemStatus
from thespian.system.timing import ExpirationTimer

from ..loop.timers import DEADLINE
from .cell import Cell


def actor_status(cell: Cell, system: ActorAddress, now: float) -> Thespian_ActorStatus:
    """The status of the actor of `cell`, which lives in `system`."""
    parent = cell.parent.address if cell.parent is not None else system
    status = Thespian_ActorStatus(cell.address, type(cell.actor).__name__, system, parent)
    for child in cell.children.values():
        status.addChild(child.address)
    for sender, message in cell.queue:
        status.addReceivedMessage(sender, cell.address, type(message).__name__)
    status.addWakeups(
        (cell.address, ExpirationTimer(timedelta(seconds=max(0.0, entry[DEADLINE] - now))))
        for entry in cell.timers.values()
    )
    return status


def system_status(
    system: ActorAddress,
    capabilities: Mapping[str, Any],
    roots: Iterable[Cell],
    global_names: Mapping[str, ActorAddress],
    dead_letter_handler: Cell | None,
) -> Thespian_SystemStatus:
    """The status of a whole system of actors."""
    status = Thespian_SystemStatus(system, capabilities=dict(capabilities))
    for cell in roots:
        status.addChild(cell.address)
    for name, address in global_names.items():
        status.addGlobalActor(name, address)
    if dead_letter_handler is not None:
        status.setDeadLetterHandler(dead_letter_handler.address)
    return status
