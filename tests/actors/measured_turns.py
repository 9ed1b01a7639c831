"""`measured`: the work of the largest turn on a stage, for tests that no turn's work grows with the number of messages
or other things that a client has.

Work is counted and not timed: the lines of Python that a turn runs, where each round of a loop counts, and the blocks
of memory that it frees, which stand for loops in C over messages.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from .stage import Stage

#: How many messages a turn settles at most, a setting of the stage.
TURN_MESSAGES = 20

#: How many messages there are in the small and in the large state.
SMALL, LARGE = 600, 2400

#: A turn in the large state may run `GROWTH` times as many lines as one in the small state, and `FLOOR` more.
GROWTH, FLOOR = 1.4, 300

#: How often a scenario is measured, until it keeps to that. On a busy machine several timers may be due at once, and
#: one turn then does the work of several. Work that grows with the state does so each time.
TRIES = 3

#: Prepares a state of the given size on the stage, and returns the function whose turns are measured.
Scenario = Callable[[Stage, int], Callable[[], None]]


class Meter:
    """The most lines that a turn of the loop has run, and the most blocks of memory that one has freed."""

    def __init__(self, stage: Stage) -> None:
        self.lines = self.freed = 0
        self._turn = stage.base.turn
        self._now = 0
        self._is_stopped = False
        stage.base.turn = self.turn  # type: ignore[method-assign]

    def stop(self) -> None:
        """Stop measuring before the stage ends, which would count."""
        self._is_stopped = True

    def turn(self, cell: Any) -> Any:
        if self._is_stopped:
            return self._turn(cell)
        self._now = 0
        blocks = sys.getallocatedblocks()
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return self._turn(cell)
        finally:
            sys.settrace(before)
            self.lines = max(self.lines, self._now)
            self.freed = max(self.freed, blocks - sys.getallocatedblocks())

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            self._now += 1
        return self._trace


def measured(of: Scenario, count: int) -> Meter:
    with Stage(turn_messages=TURN_MESSAGES) as stage:
        act = of(stage, count)
        gc.collect()
        gc.disable()  # a collection would count for the turn in which it happens to run
        try:
            meter = Meter(stage)
            act()
            meter.stop()
        finally:
            gc.enable()
        return meter


def assert_no_turn_grows(of: Scenario) -> None:
    """Assert that no turn of the scenario does more work in the large state than in the small one."""
    for _ in range(TRIES):
        small, large = measured(of, SMALL), measured(of, LARGE)
        found = (small.lines, large.lines), (small.freed, large.freed)
        if all(more <= GROWTH * few + FLOOR for few, more in found):
            return
    raise AssertionError(
        f"lines and freed blocks of the largest turn, in the small state and in the large one: {found}"
    )
