"""`Remains`: what is left to do for a process that has ended, a part of it in each turn.

A queue may have 65,535 channels that monitor it, a connection may have as many children, and two million messages may
be in memory when their queue ends without having been deleted. So an end is a number of small steps. The first ones are
done at once; the rest waits in the mailbox of the nearest ancestor that lives, which does a part of it in each of its
turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorExitRequest

from ..turn_work import END_OF_TURN

if TYPE_CHECKING:
    from ..exit_reason import ExitReason
    from .actor_base import ActorBase
    from .cell import Cell


class Remains:
    """The end of the process of `cell`. Each step does a part of it and returns how much of `END_OF_TURN` it was."""

    __slots__ = ("_base", "_cell", "_steps")

    def __init__(self, base: ActorBase, cell: Cell, actor: Any, reason: ExitReason) -> None:
        self._base = base
        self._cell = cell
        self._steps = _steps(base, cell, actor, reason)

    def go_on(self) -> None:
        """Do the next steps, and have an ancestor of the ended process call this again if there are more.

        Without an ancestor, and while the whole system ends, all steps are done now.
        """
        left = END_OF_TURN
        for work in self._steps:
            left -= work
            if left <= 0:
                ancestor = None if self._base.is_ending else self._ancestor()
                if ancestor is not None:
                    self._base.enqueue(self._cell.address, ancestor.address, ("$work", self.go_on))
                    return
                left = END_OF_TURN

    def _ancestor(self) -> Cell | None:
        """The nearest process above the ended one that takes messages."""
        found = self._cell.parent
        while found is not None and (found.actor is None or found.handlers is None):
            found = found.parent
        return found


def _steps(base: ActorBase, cell: Cell, actor: Any, reason: ExitReason) -> Iterator[int]:
    """Do what is left to do for an actor that takes no more messages. Yields how much work each step was
    (`END_OF_TURN`).
    """
    is_process = cell.handlers is not None
    if is_process:
        yield from actor._end_conversations(reason)
    unread, cell.queue = cell.queue, deque()
    while unread:
        sender, message = unread.popleft()
        base.undelivered.take(sender, cell.address, message, reason)
        yield 1
    while cell.monitors:
        (_, ref), watcher = cell.monitors.popitem()
        base.enqueue(cell.address, watcher, ("$down", ref, reason))
        yield 1
    for part in cell.children.parts():
        for child in part:
            if child.actor is not None:
                base.enqueue(cell.address, child.address, ActorExitRequest())
            yield 1
    if is_process:
        yield from actor._let_go()
