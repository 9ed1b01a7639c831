"""Turns of Thespian actors that are no `Process`. They are treated as Thespian's own system bases treat them."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ActorExitRequest, PoisonMessage, Thespian_StatusReq, ThespianWatch

from ..exit_reason import NORMAL, ExitKind, ExitReason
from ..loop.poller import READ
from .cell import Cell
from .status import actor_status

if TYPE_CHECKING:
    from .actor_base import ActorBase

log = logging.getLogger("warren.runtime")


def plain_turn(base: ActorBase, cell: Cell) -> None:
    """`ActorBase.turn` for an actor that is no Process."""
    queue = cell.queue
    for _ in range(min(len(queue), base.budget)):
        sender, message = queue.popleft()
        handle_plainly(base, cell, sender, message)
        if cell.actor is None:
            return
    if queue:
        base.ready.append(cell)
    else:
        cell.is_idle = True


def handle_plainly(base: ActorBase, cell: Cell, sender: ActorAddress, message: Any) -> None:
    """Have an actor that is no Process handle a message. It may fail once; then its sender gets a PoisonMessage."""
    if type(message) is tuple and message[:1] == ("$monitor",):
        cell.add_monitor(sender, message[1])
        return
    if type(message) is tuple and message[:1] == ("$demonitor",):
        cell.remove_monitor(sender, message[1])
        return
    if isinstance(message, Thespian_StatusReq):
        base.enqueue(cell.address, sender, actor_status(cell, base.address, base.now()))
        return
    is_exit = isinstance(message, ActorExitRequest)
    result = None
    for attempt in (1, 2):
        try:
            result = cell.actor.receiveMessage(message, sender)
            break
        except Exception:
            log.warning("%s failed on %s, attempt %d", cell.address, type(message).__name__, attempt, exc_info=True)
            if is_exit:
                break
            if attempt == 2 and not isinstance(message, PoisonMessage) and sender is not base.address:
                base.enqueue(cell.address, sender, PoisonMessage(message, traceback.format_exc()))
        except SystemExit as leaving:
            base.end(cell, ExitReason(ExitKind.EXIT, str(leaving.code)))
            return
    if is_exit:
        base.end(cell, NORMAL, message.isRecursive)
    elif cell.fds or isinstance(result, ThespianWatch):
        # In Thespian an actor watches exactly the descriptors of the ThespianWatch that it returned last.
        wanted = set(result.filenos) if isinstance(result, ThespianWatch) else set()
        for fd in cell.fds - wanted:
            base.poller.unwatch(cell, fd)
        for fd in wanted:
            base.poller.watch(cell, fd, READ)
