"""`Descriptors`: has the owners of descriptors that are ready serve them, in the loop of one system.

The loop calls `on_readable` and `on_writable` directly instead of sending a message: the poller is level triggered and
would report the descriptor again and again while that message waited.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from thespian.actors import WatchMessage

from ..system.plain_actors import handle_plainly
from .lanes import ROUND_SECONDS

if TYPE_CHECKING:
    from ..system.cell import Cell
    from .loop_base import LoopBase


class Descriptors:
    """The descriptors that the poller of `base` has reported. The loop itself watches that of its waker."""

    #: The waker's descriptor has this object as its owner, which is no process, and belongs to no client.
    group, handlers, lane, light = "", None, None, 0

    def __init__(self, base: LoopBase, wake_fd: int) -> None:
        self._base = base
        self._wake_fd = wake_fd
        self.fds: frozenset[int] = frozenset()
        #: Events that the last poll has reported and no process has handled yet, as (descriptor, mask).
        self.unserved: list[tuple[int, int]] = []

    def serve(self) -> None:
        """Let the owners of ready descriptors have their turns, for `ROUND_SECONDS`. `unserved` has the rest.

        After a long turn, clients that have nothing waiting come first. Otherwise such a client would often be left to
        the next round, behind the long turns of the others in this one.
        """
        base = self._base
        events = self.unserved or base.poller.poll(0)
        if not events:
            return
        owners, lanes, ready, watchdog = base.poller.owners, base.lanes, base.ready, base.watchdog
        serve, monotonic = base.descriptor_turn, time.monotonic
        now = monotonic()
        if len(events) > 1 and now < lanes.follow_until:
            events.sort(key=self._is_busy)
        late, ends = now + watchdog.floor, now + ROUND_SECONDS
        plain: dict[int, tuple[Cell, list[int]]] = {}
        rest = iter(events)
        for fd, mask in rest:
            owner = owners.get(fd)
            if owner is None:
                base.poller.forget(fd)
                continue
            cell, wanted = owner
            if cell.group:
                lanes.put_off(fd, mask)
            elif cell.handlers is not None:
                began = now
                serve(cell, fd, mask, wanted)
                now = monotonic()
                if now > late and now - began > watchdog.floor:
                    watchdog.note(cell, ("a descriptor",), began, now)
                if ready:
                    now = lanes.go_on(cell, base.turn, began, now)
                if now > ends:
                    break
            elif fd == self._wake_fd:
                base.threads.waker.drain()
            else:
                plain.setdefault(id(cell), (cell, []))[1].append(fd)
        self.unserved = list(rest)
        for cell, fds in plain.values():
            handle_plainly(base, cell, cell.address, WatchMessage(fds))

    def _is_busy(self, event: tuple[int, int]) -> bool:
        """Whether processes of the client whose descriptor is ready wait for their turns."""
        owner = self._base.poller.owners.get(event[0])
        return owner is not None and (owner[0].lane is not None or owner[0].light > 0)

    def serve_crowd(self) -> None:
        """Serve one descriptor of the processes that share their turns."""
        base = self._base
        fd, mask = base.lanes.next_of_crowd()
        owner = base.poller.owners.get(fd)
        if owner is not None and owner[0].handlers is not None:
            cell, wanted = owner
            began = time.monotonic()
            base.descriptor_turn(cell, fd, mask, wanted)
            if base.ready:
                base.lanes.admit(cell)
            now = time.monotonic()
            if now - began > base.watchdog.floor:
                base.watchdog.note(cell, ("a descriptor",), began, now)
