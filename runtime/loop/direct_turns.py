"""`DirectTurns`: how a loop gives turns while no client causes more of them than others: without rounds and lanes.

The owners of the descriptors that are ready have their turns, then the processes that were woken, in the order in which
they were woken, and so on until none is ready. As in a round, a queue has its turn after all channels that have input
for it. Lanes would share out the turns between clients. While every client has one or two processes that wait, that
changes nothing, and with 100 busy clients it would take 8 % of the processor time of a message.

Nobody waits longer for this than for a round. The descriptors are polled every `POLL_INTERVAL`. Once more processes are
ready than the clients that are busy can account for, or a turn was long, those that are ready join lanes, and each
client gets its share. The loop returns to direct turns when no client needs a lane any more (`Lanes.give_up`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .lanes import BURST, LONG_TURN_SECONDS

if TYPE_CHECKING:
    from ..system.cell import Cell
    from .loop_base import LoopBase

#: Most descriptors of one poll that are served in this way, and most processes that may be ready meanwhile. With
#: turns of 20 µs, 512 processes take 10 ms, as long as an idle client may have to wait.
MOST_DESCRIPTORS = 128
MOST_READY = 512

#: Seconds between two polls while the run queue is never empty. What clients send meanwhile is read at once, so that
#: channels and queues have fewer turns with more messages each: with 100 busy clients a fifth of the processor time is
#: saved against a poll every 0.2 ms. A client that was idle waits this much longer, but only while others are busy.
POLL_INTERVAL = 1e-3

#: Seconds after which the loop fires timers and calls `housekeep`, as between two rounds.
DIRECT_SECONDS = 10e-3


class DirectTurns:
    """Serves the descriptors of `base`, whose waker has the descriptor `wake_fd`."""

    __slots__ = ("_base", "_wake_fd", "goes_on")

    def __init__(self, base: LoopBase, wake_fd: int) -> None:
        self._base = base
        self._wake_fd = wake_fd
        #: Whether processes wait on the run queue of the loop for the next call of `serve`.
        self.goes_on = False

    def serve(self, events: list[tuple[int, int]], now: float, wake_at: float | None) -> float:
        """Serve `events`, pairs of a descriptor and a mask, and all that follows from them. Return the time.

        `now` is the present time, and `wake_at` when the next timer is due, if there is one.
        """
        base, ready, watchdog = self._base, self._base.ready, self._base.watchdog
        over = now + DIRECT_SECONDS
        if wake_at is not None and wake_at < over:
            over = wake_at
        self.goes_on = False
        while True:
            ends = min(now + POLL_INTERVAL, over)
            now = self._read(events, now)
            now = self._follow(now, ends)
            if not ready:
                return now
            if now - ends > LONG_TURN_SECONDS or base.is_stopping or self._is_crowded():
                break
            if now > over:
                self.goes_on = True
                return now
            if now >= watchdog.next_mark:
                watchdog.mark(now)
            events = base.poller.poll(0)
            if len(events) > MOST_DESCRIPTORS or base.descriptors.unserved:
                base.descriptors.unserved += events
                break
        # Even if one client alone was served, others may have caused what is ready: the end of a blocking call wakes
        # hundreds of processes, and in the lane of that client its own would wait behind them.
        base.lanes.admit_each()
        return now

    def _is_crowded(self) -> bool:
        """Whether one client may have caused more than a few of the turns that are due, so that lanes have to give
        each client its share. The processes that serve no client, such as queues, are counted as if one had woken all.
        """
        ready = self._base.ready
        count = len(ready)
        if count <= BURST:
            return False
        return count > MOST_READY or count > BURST + len({cell.client or cell.parent for cell in ready})

    def _read(self, events: list[tuple[int, int]], now: float) -> float:
        """Let the owners of ready descriptors have their turns. Return the time.

        Descriptors of processes that share their turns, and of plain actors, are left to `Descriptors`.
        """
        base, monotonic = self._base, time.monotonic
        owners, floor = base.poller.owners, base.watchdog.floor
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
            base.descriptor_turn(cell, fd, mask, wanted)
            began, now = now, monotonic()
            if now - began > floor or now - began > LONG_TURN_SECONDS:
                base.lanes.note(cell, ("a descriptor",), began, now)
        return now

    def _follow(self, now: float, ends: float) -> float:
        """Give turns to all processes that are ready or become so, until `ends`. Return the time."""
        base, monotonic = self._base, time.monotonic
        ready, calls, round_end, turn = base.ready, base.threads.calls, base.round_end, base.turn
        cell: Cell | None = None
        try:
            while True:
                if calls:
                    base.threads.make_calls()
                if round_end:
                    base.end_round()
                if not ready:
                    return now
                for _ in range(len(ready)):
                    began = now
                    cell = ready.popleft()
                    message = turn(cell)
                    now = monotonic()
                    # Only long turns are noted. Every such turn is over later than `ends`, which is at most
                    # `POLL_INTERVAL` after its beginning.
                    if now > ends:
                        if now - began > base.watchdog.floor or now - began > LONG_TURN_SECONDS:
                            base.lanes.note(cell, message, began, now)
                        return now
        except BaseException:
            # As in `Lanes`, keep the cell whose turn was cut short. A cell that is idle has had its turn.
            if cell is not None and cell.actor is not None and not cell.is_idle and cell not in ready:
                ready.append(cell)
            raise
