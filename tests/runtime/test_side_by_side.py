"""A process does several operations at a time, and no more than it may."""

from __future__ import annotations

import pytest

from warren.runtime.process import Process
from warren.runtime.side_by_side import side_by_side
from warren.runtime.signal import Signal
from warren.runtime.sim.choosing import DrawnChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld


class Worker(Process):
    """Its operations wait until they are let go. The one named `bad` raises an error then."""

    reply_errors = (ValueError,)

    def __init__(self):
        super().__init__()
        self.running = []
        self.gone = set()
        self.changed = Signal(self)

    async def work(self, name):
        self.running.append(name)
        await self.changed.wait_for(lambda: name in self.gone)
        self.running.remove(name)
        if name == "bad":
            raise ValueError(name)

    async def on_work(self, sender, most, names):
        await side_by_side(self, most, self.work, names)
        return "done"

    def on_let_go(self, sender, name):
        self.gone.add(name)
        self.changed.wake_all()


class Stage:
    """A worker on a simulated machine."""

    def __init__(self):
        self.world = SimWorld(1, DrawnChooser(lambda count: 0))
        self.port = SimPort(self.world.machine("a").boot())
        self.address = self.port.base.newPrimaryActor(Worker)

    def tell(self, *message):
        self.port.tell(self.address, message)

    def begin(self, *message):
        return self.port.begin(self.address, message)

    def running(self):
        """The operations that run when nothing more happens."""
        self.world.run(1)
        return self.address._cell.actor.running


def test_the_next_begins_when_one_is_done():
    stage = Stage()
    work = stage.begin("work", 2, ["a", "b", "c", "d"])
    assert stage.running() == ["a", "b"]
    stage.tell("let_go", "b")
    assert stage.running() == ["a", "c"]
    for name in "acd":
        stage.tell("let_go", name)
    assert stage.running() == [] and work.value() == "done"


def test_an_error_is_raised_when_those_that_run_are_done():
    """After an error no further operation begins."""
    stage = Stage()
    work = stage.begin("work", 2, ["bad", "b", "c"])
    assert stage.running() == ["bad", "b"]
    stage.tell("let_go", "bad")
    assert stage.running() == ["b"] and not work.is_here
    stage.tell("let_go", "b")
    assert stage.running() == []
    with pytest.raises(ValueError, match="bad"):
        work.value()


def test_nothing_to_do_is_done():
    stage = Stage()
    work = stage.begin("work", 2, [])
    assert stage.running() == [] and work.value() == "done"
