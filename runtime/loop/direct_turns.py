"""`DirectTurns`: how a loop serves the few descriptors that have ended its sleep: without rounds and lanes.

A loop that slept has nothing else to do. While few clients are busy, turns need not be shared out between them, and a
round with its lanes would take 6 µs of the 80 µs of a message that is published, confirmed, delivered and acknowledged.
So the owners of the descriptors have their turns, then the processes that were woken, in the order in which they were
woken, and so on until none is ready. As in a round, a queue has its turn after all channels that have input for it.

Nobody waits longer for this than for a round. The descriptors are polled every `POLL_INTERVAL`. Once many descriptors
or many processes are ready, or a turn was long, those that are ready join lanes, and each client gets its share.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .lanes import BURST, LONG_TURN_SECONDS

if TYPE_CHECKING:
    from ..system.cell import Cell
    from .loop_base import LoopBase

#: Most descriptors that are served in this way.
FEW = 4

#: Seconds between two polls while the run queue is never empty. What clients send meanwhile is read at once, so that
#: channels and queues have fewer turns with more messages each: with 100 busy clients a fifth of the processor time is
#: saved against a poll every 0.2 ms. A client that was idle waits this much longer, but only while others are busy.
POLL_INTERVAL = 1e-3

#: Seconds after which the loop goes through a whole round, which also fires timers and calls `housekeep`.
DIRECT_SECONDS = 10e-3


class DirectTurns:
    """Serves the descriptors of `base`, whose waker has the descriptor `wake_fd`."""

    __slots__ = ("_base", "_wake_fd")

    def __init__(self, base: LoopBase, wake_fd: int) -> None:
        self._base = base
        self._wake_fd = wake_fd

    def serve(self, events: list[tuple[int, int]], now: float, wake_at: float | None) -> float:
        """Serve `events`, pairs of a descriptor and a mask, and all that follows from them. Return the time.

        `now` is the present time, and `wake_at` when the next timer is due, if there is one.
        """
        base, ready, watchdog = self._base, self._base.ready, self._base.watchdog
        #: The owners of the descriptors served so far.
        served: set[Cell] = set()
        over = now + DIRECT_SECONDS
        if wake_at is not None and wake_at < over:
            over = wake_at
        while True:
            ends = min(now + POLL_INTERVAL, over)
            now = self._read(events, now, served)
            now = self._follow(now, ends)
            if not ready:
                return now
            if len(ready) > BURST or now > over or now - ends > LONG_TURN_SECONDS or base.is_stopping:
                break
            watchdog.mark()
            events = base.poller.poll(0)
            if len(events) > FEW or base.descriptors.unserved:
                base.descriptors.unserved += events
                break
        if len(served) == 1:
            base.lanes.admit(served.pop())
        else:
            base.lanes.admit_each()
        return now

    def _read(self, events: list[tuple[int, int]], now: float, served: set[Cell]) -> float:
        """Let the owners of ready descriptors have their turns, and add them to `served`. Return the time.

        Descriptors of processes that share their turns, and of plain actors, are left to `Descriptors`.
        """
        base = self._base
        owners, short = base.poller.owners, min(base.watchdog.floor, LONG_TURN_SECONDS)
        for fd, mask in events:
            if fd == self._wake_fd:
                base.threads.waker.drain()
                continue
            owner = owners.get(fd)
            if owner is None:
                base.poller.forget(fd)
                continue
            cell, wanted = owner
            if cell.group or cell.handlers is None:
                base.descriptors.unserved.append((fd, mask))
                continue
            served.add(cell)
            base.descriptor_turn(cell, fd, mask, wanted)
            began, now = now, time.monotonic()
            if now - began > short:
                base.lanes.note(cell, ("a descriptor",), began, now)
        return now

    def _follow(self, now: float, ends: float) -> float:
        """Give turns to all processes that are ready or become so, until `ends`. Return the time."""
        base, monotonic = self._base, time.monotonic
        ready, calls, turn = base.ready, base.threads.calls, base.turn
        short = min(base.watchdog.floor, LONG_TURN_SECONDS)
        cell: Cell | None = None
        left = 0  # how many processes have not had their turns since the last end of a round
        try:
            while True:
                if calls:
                    base.threads.make_calls()
                if not left:
                    if base.round_end:
                        base.end_round()
                    left = len(ready)
                    if not left:
                        return now
                left -= 1
                began = now
                cell = ready.popleft()
                message = turn(cell)
                now = monotonic()
                # Only turns longer than `short` are noted. Every such turn is over later than `ends`, which is at most
                # `POLL_INTERVAL` after its beginning, so other turns need not be compared with `short`.
                if now > ends:
                    if now - began > short:
                        base.lanes.note(cell, message, began, now)
                    return now
        except BaseException:
            # As in `Lanes`, keep the cell whose turn was cut short. A cell that is idle has had its turn.
            if cell is not None and cell.actor is not None and not cell.is_idle and cell not in ready:
                ready.append(cell)
            raise
