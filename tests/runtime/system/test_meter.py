"""What a meter counts, and that a loop is not measured when nobody looks."""

from __future__ import annotations

import time

from thespian.actors import ActorExitRequest

from warren.runtime.process import Process
from warren.runtime.system.actor_base import ActorBase
from warren.runtime.system.meter import Meter

WAIT = 300


class Worker(Process):
    label = "worker"

    def on_work(self, sender):
        return True


def read(base, meter):
    """Read the figures by kind, on the thread of the loop, so that the processes do not change meanwhile."""
    return base.call(lambda: {each.kind: each for each in meter.read() if each is not None})


def test_messages_and_turns_are_counted_from_the_opening_on(base, system):
    worker = system.createActor(Worker)
    for _ in range(5):
        assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    meter = base.call(Meter, base)
    assert "Worker" not in read(base, meter)
    for _ in range(3):
        assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    found = read(base, meter)["Worker"]
    assert (found.label, found.messages, found.turns, found.mailbox) == ("worker", 3, 3, 0)
    assert found.process.startswith("Worker-") and found.seconds > 0
    assert "Worker" not in read(base, meter), "it has done nothing since"
    assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    assert read(base, meter)["Worker"].messages == 1
    base.call(meter.close)


def test_loop_is_measured_only_while_a_meter_is_open(base, system):
    worker = system.createActor(Worker)
    first, second = base.call(Meter, base), base.call(Meter, base)
    assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    base.call(first.close)
    base.call(first.close)
    assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    assert read(base, second)["Worker"].messages == 2
    base.call(second.close)
    assert not {"turn", "descriptor_turn"} & vars(base).keys()
    assert not base.metering.tallies
    assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    assert not base.metering.tallies
    assert base.turn.__func__ is ActorBase.turn


def test_processes_with_waiting_messages_are_shown_though_they_do_nothing(base, system):
    worker = system.createActor(Worker)
    meter = base.call(Meter, base)

    def look():
        base.enqueue(None, worker, ("work",))
        base.enqueue(None, worker, ("work",))
        return {each.kind: each for each in meter.read() if each is not None}

    found = base.call(look)["Worker"]
    assert (found.mailbox, found.turns) == (2, 0)
    base.call(meter.close)


def test_ended_processes_are_forgotten(base, system):
    worker = system.createActor(Worker)
    meter = base.call(Meter, base)
    assert system.ask(worker, ("ask", 1, ("work",)), WAIT)
    read(base, meter)
    system.tell(worker, ActorExitRequest())
    while any(type(getattr(each, "actor", None)) is Worker for each in base.call(lambda: [*base.cells.values()])):
        time.sleep(0.001)
    assert "Worker" not in read(base, meter)
    assert not any(type(cell.actor) is Worker for cell in base.call(lambda: [*base.metering.tallies]))
    base.call(meter.close)
