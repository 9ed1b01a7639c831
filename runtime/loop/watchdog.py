"""`Watchdog`: remembers the longest turns of a loop, and warns of those for which all other processes waited too long.

One thread serves all processes, and nothing interrupts a turn. A turn should take less than 5 ms of processor time; one
that takes 100 ms is a fault of warren or of an extension, and the log says which process had it.

The loop reads the clock once a turn, which costs it 0.05 µs, and passes on the turns that are longer than `floor`. What
counts is processor time, so that a turn during which the operating system ran other programs is not blamed. To read the
clock of processor time is a system call, at which the system likes to run another thread that was woken: once a
millisecond it cost 7 % of the processor time of a durable message. So it is read every `MARK_SECONDS` (a **mark**)
and after each long turn. The processor time since the last mark is that of the turn and of what the loop did before the
turn without sleeping. The latter is at most the time which that took (`awake`), and the turn is charged with the rest.
Long turns come one after the other, and from the second on nothing lies between the mark and the turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ..long_turn import LongTurnRecord
from ..system.cell import Cell

log = logging.getLogger("warren.runtime")

#: How many turns are remembered.
REMEMBERED = 10

#: Seconds below which a turn is never remembered.
FLOOR_SECONDS = 0.001

#: Seconds of processor time from which on a turn is logged.
WARNING_SECONDS = 0.1

#: Seconds between two warnings at least; those between are counted.
QUIET_SECONDS = 10.0

#: Seconds between two marks at least, unless a turn is long.
MARK_SECONDS = 0.01


class Watchdog:
    """The longest turns of one loop. Only the loop's thread uses it."""

    def __init__(
        self,
        processor: Callable[[], float] = time.thread_time,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processor = processor
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        #: The longest turns, the longest one first.
        self.longest: list[LongTurnRecord] = []
        #: A turn that took more seconds than this is passed to `note`.
        self.floor = FLOOR_SECONDS
        #: What the processor's clock showed at the last mark, and when that was.
        self._marked = self._marked_at = 0.0
        #: When the next mark is due.
        self.next_mark = 0.0
        #: Seconds for which the loop has slept since the last mark.
        self.slept = 0.0
        self._next_warning = 0.0
        self._unlogged = 0

    def mark(self, now: float) -> None:
        """Remember what the processor's clock shows at the time `now`: when a thread begins to run the loop, because
        the clock is that of the thread, and between two turns when `next_mark` has come.
        """
        self._marked = self._processor()
        self._marked_at, self.next_mark, self.slept = now, now + MARK_SECONDS, 0.0

    def note(self, cell: Cell, message: Any, began: float, ended: float) -> float:
        """Note a turn and the `message` that it handled last. Returns the least processor time that it has used."""
        awake, marked = max(0.0, began - self._marked_at - self.slept), self._marked
        self.mark(ended)
        used = min(ended - began, self._marked - marked - awake)
        if used <= self.floor:
            return used
        actor = cell.actor
        name = str(cell.address.addressDetails).partition("/")[2]
        label = actor.label if cell.handlers is not None and actor is not None else ""
        turn = LongTurnRecord(used, f"{label} ({name})" if label else name, _name(message), self._wall_clock())
        self.longest = sorted([*self.longest, turn], reverse=True)[:REMEMBERED]
        if len(self.longest) == REMEMBERED:
            self.floor = min(self.longest[-1].seconds, WARNING_SECONDS)
        if used >= WARNING_SECONDS:
            self._warn(turn)
        return used

    def _warn(self, turn: LongTurnRecord) -> None:
        now = self._monotonic()
        if now < self._next_warning:
            self._unlogged += 1
            return
        self._next_warning = now + QUIET_SECONDS
        more = f"; {self._unlogged} more turns were too long since the last warning" if self._unlogged else ""
        self._unlogged = 0
        log.warning(
            "%s had a turn of %.0f ms, in which everybody else waited; it handled %s last%s",
            turn.process,
            turn.seconds * 1000,
            turn.message,
            more,
        )


def _name(message: Any) -> str:
    """The name of a message, or of the message that was asked."""
    if type(message) is tuple and message:
        return _name(message[2]) if message[0] == "ask" and len(message) == 3 else str(message[0])
    return "no message" if message is None else type(message).__name__
