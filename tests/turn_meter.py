"""`metered`: how much work each turn of a broker's processes does, counted instead of timed.

The work of a turn is the number of function calls in it, Python's and C's. It is the same on every machine, and grows
with the number of queues, bindings or messages that a handler visits one by one. What C does in one call, such as
copying a list, counts as 1, and takes little time.

    with metered() as turns, Broker() as broker:
        ...
        assert turns.most.calls < 10_000, turns.most
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from warren.runtime.system.actor_base import ActorBase


class Turn(NamedTuple):
    calls: int
    #: The address of the process, and the name of the last message that it handled.
    process: str
    message: str


class Turns:
    """The turns since the last `forget`."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.count = 0
        #: The turn with the most work.
        self.most = Turn(0, "", "")

    def note(self, calls: int, cell, message) -> None:
        self.count += 1
        if calls > self.most.calls:
            name = message[2] if type(message) is tuple and message[:1] == ("ask",) else message
            self.most = Turn(calls, str(cell.address), str(name[0] if type(name) is tuple and name else name))


@contextmanager
def metered() -> Iterator[Turns]:
    """Count the work of all turns of the event loops that start inside."""
    turns = Turns()
    plain_turn, plain_descriptor_turn = ActorBase.turn, ActorBase.descriptor_turn

    def turn(self, cell):
        calls, message = _counted(plain_turn, self, cell)
        turns.note(calls, cell, message)
        return message

    def descriptor_turn(self, cell, fd, mask, wanted):
        calls, _ = _counted(plain_descriptor_turn, self, cell, fd, mask, wanted)
        turns.note(calls, cell, "a descriptor")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActorBase, "turn", turn)
        patch.setattr(ActorBase, "descriptor_turn", descriptor_turn)
        yield turns


def _counted(function, *arguments):
    calls = 0

    def profile(frame, event, argument):
        nonlocal calls
        if event == "call" or event == "c_call":
            calls += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return calls, result
