"""`Meter`: how much each process of a system does, counted only while a meter is open (CM-207).

A turn is so short that to measure each one would cost the broker some per cent. So the first meter that is opened puts
measured twins in front of the system's two kinds of turns, and the last one that is closed takes them away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .actor_base import ActorBase
    from .cell import Cell


class Figures(NamedTuple):
    """What one process has done since the last look.

    process    its address within the system
    kind       its class
    label      what it stands for, such as the name of a queue; may be empty
    mailbox    messages that wait for it now
    messages   handled
    turns      of its messages and of its descriptors
    seconds    in these turns
    """

    process: str
    kind: str
    label: str
    mailbox: int
    messages: int
    turns: int
    seconds: float


class CellTally:
    """What one cell has done since its system is measured."""

    __slots__ = ("messages", "seconds", "turns")

    def __init__(self) -> None:
        self.messages = self.turns = 0
        self.seconds = 0.0


class Metering:
    """The measured turns of one system, shared by its meters."""

    def __init__(self, base: ActorBase) -> None:
        self._base = base
        self._meters = 0
        self.tallies: dict[Cell, CellTally] = {}

    def enter(self) -> None:
        self._meters += 1
        if self._meters == 1:
            # Attributes of the object are found before the methods of its class, which stay as they are.
            vars(self._base).update(turn=self._turn, descriptor_turn=self._descriptor_turn)

    def leave(self) -> None:
        self._meters -= 1
        if not self._meters:
            for name in ("turn", "descriptor_turn"):
                del vars(self._base)[name]
            self.tallies.clear()

    def _turn(self, cell: Cell) -> Any:
        waiting, began = len(cell.queue), time.perf_counter()
        message = type(self._base).turn(self._base, cell)
        tally = self._count(cell, began)
        # The handled messages are those that are gone from the mailbox. Messages that the process sent itself in this
        # turn are in it now, so that as many too few are counted.
        tally.messages += max(0, waiting - len(cell.queue))
        return message

    def _descriptor_turn(self, cell: Cell, fd: int, mask: int, wanted: int) -> None:
        began = time.perf_counter()
        type(self._base).descriptor_turn(self._base, cell, fd, mask, wanted)
        self._count(cell, began)

    def _count(self, cell: Cell, began: float) -> CellTally:
        tally = self.tallies.get(cell)
        if tally is None:
            tally = self.tallies[cell] = CellTally()
        tally.turns += 1
        tally.seconds += time.perf_counter() - began
        return tally


class Meter:
    """One look at a system, from the opening on. Everything is called on the thread of the system."""

    def __init__(self, base: ActorBase) -> None:
        self._base = base
        self._metering = base.metering
        self._metering.enter()
        self._is_open = True
        #: The figures at the last look: messages, turns, seconds.
        self._before: dict[Cell, tuple[int, int, float]] = {}

    def read(self) -> Iterator[Figures | None]:
        """The figures of all processes that have done something since the last look, or that have messages waiting.

        None stands for any other process, so that the caller can pause after a number of them.
        """
        before, self._before = self._before, {}
        tallies = self._metering.tallies
        for cell in list(self._base.cells.values()):
            tally = tallies.get(cell)
            if tally is not None:
                self._before[cell] = tally.messages, tally.turns, tally.seconds
            messages, turns, seconds = self._before.get(cell, (0, 0, 0.0))
            old = before.get(cell, (0, 0, 0.0))
            actor = getattr(cell, "actor", None)  # a port, through which other threads call, has none
            if actor is None or turns == old[1] and not cell.queue:
                yield None
                continue
            yield Figures(
                str(cell.address.addressDetails).partition("/")[2],
                type(actor).__name__,
                actor.label if cell.handlers is not None else "",
                len(cell.queue),
                messages - old[0],
                turns - old[1],
                seconds - old[2],
            )
        for cell in [cell for cell in tallies if cell.actor is None]:
            del tallies[cell]

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._metering.leave()
