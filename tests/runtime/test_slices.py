"""Handlers that work in slices: in between other processes have turns, and the process itself does nothing else."""

from __future__ import annotations

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessDown, ProcessError
from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld

WAIT = 300


class Refused(ProcessError):
    pass


class Worker(Process):
    """`log` has what happened in which order."""

    def __init__(self):
        super().__init__()
        self.log = []

    def after_batch(self):
        self.log.append("after_batch")

    def on_work(self, sender, slices, name="work"):
        for number in range(slices):
            self.log.append((name, number))
            yield
        return f"{name} done"

    async def _wait(self, name):
        await self.next_turn()
        self.log.append(name)
        return f"{name} waited"

    def on_work_then_wait(self, sender):
        yield
        return self._wait("then")

    async def on_wait(self, sender):
        return await self._wait("wait")

    def on_refuse(self, sender, after):
        for _ in range(after):
            yield
        raise Refused("not today")

    def on_fail(self, sender):
        yield
        raise ValueError("provoked")

    def on_stop_in_the_middle(self, sender):
        self.stop("tired")
        yield
        self.log.append("stopped")
        return "finished"

    def on_note(self, sender, what):
        self.log.append(what)

    def on_log(self, sender):
        return list(self.log)

    def on_send_log(self, sender):
        self.send(sender, list(self.log))


class Neighbour(Process):
    """Has turns until the worker has done its last slice, and notes how much of the worker's log it sees in them."""

    log = seen = None

    def on_watch(self, sender, log, seen):
        self.log, self.seen = log, seen
        self.request_turn()

    def after_batch(self):
        if self.log is not None and ("work", 9) not in self.log:
            self.seen.add(len(self.log))
            self.request_turn()


@pytest.fixture(params=["LoopBase", "SimBase"])
def ours(request):
    if request.param == "LoopBase":
        yield request.getfixturevalue("system")
    else:
        system = ActorSystem(systemBase=SimWorld(seed=1).machine("a").boot(), transientUnique=True)
        yield system
        system.shutdown()


def events(log):
    return [entry for entry in log if entry != "after_batch"]


def test_the_value_is_the_answer_and_messages_wait_meanwhile(ours):
    worker = ours.createActor(Worker)
    ours.tell(worker, ("work", 5, "first"))
    ours.tell(worker, ("note", "between"))
    ours.tell(worker, ("work", 3, "second"))
    log = ours.ask(worker, ("send_log",), WAIT)
    assert events(log) == [*[("first", n) for n in range(5)], "between", *[("second", n) for n in range(3)]]
    first = log.index(("first", 4))
    assert "after_batch" not in log[: first + 1], "the turn has not ended before the handler has"
    assert log[first + 1] == "after_batch"


def test_other_processes_have_turns_between_the_slices(ours):
    worker, neighbour = ours.createActor(Worker), ours.createActor(Neighbour)
    base = ours._systemBase
    log, seen = base.cells[worker.actorAddressString].actor.log, set()
    ours.tell(neighbour, ("watch", log, seen))
    ours.tell(worker, ("work", 10))
    ours.ask(worker, ("send_log",), WAIT)
    assert len(seen) >= 4, seen


def stage(seed=1):
    world = SimWorld(seed=seed)
    base = world.machine("a").boot()
    return world, base, SimPort(base, "test")


def test_an_ask_gets_the_value_and_a_coroutine_may_follow():
    world, base, _ = stage()
    worker = base.create(Worker, None, None, None, None)
    asker = base.create(Asker, None, None, None, None)
    actor = base.cells[asker._aaddr].actor
    for message in (("work", 3), ("work", 0), ("work_then_wait",), ("refuse", 0), ("refuse", 2)):
        base.enqueue(base.address, asker, ("ask_it", worker, message))
    world.run_until(lambda: len(actor.answers) == 5, WAIT)
    assert sorted(actor.answers) == ["not today", "not today", "then waited", "work done", "work done"]


class Asker(Process):
    def __init__(self):
        super().__init__()
        self.answers = []

    async def on_ask_it(self, sender, worker, message):
        try:
            self.answers.append(await self.ask(worker, message))
        except Refused as error:
            self.answers.append(str(error))
        except ProcessDown as down:
            self.answers.append(f"down: {down.reason.kind.name}")


def test_coroutines_of_the_process_wait_as_well():
    world, base, _ = stage()
    worker = base.create(Worker, None, None, None, None)
    log = base.cells[worker._aaddr].actor.log
    base.enqueue(base.address, worker, ("wait",))
    base.enqueue(base.address, worker, ("work", 4))
    world.run_until(lambda: "wait" in log, WAIT)
    numbers = [log.index(("work", number)) for number in range(4)]
    at = log.index("wait")
    assert at < numbers[0] or at > numbers[3]
    assert at > numbers[0], "the wait began before the work in this schedule"


@pytest.mark.parametrize(("message", "kind"), [(("fail",), "CRASH"), (("stop_in_the_middle",), None)])
def test_a_failure_crashes_and_a_stop_waits_for_the_last_slice(message, kind):
    world, base, _ = stage()
    worker = base.create(Worker, None, None, None, None)
    asker = base.create(Asker, None, None, None, None)
    actor, log = base.cells[asker._aaddr].actor, base.cells[worker._aaddr].actor.log
    base.enqueue(base.address, asker, ("ask_it", worker, message))
    base.enqueue(base.address, asker, ("ask_it", worker, ("log",)))
    world.run_until(lambda: len(actor.answers) == 2, WAIT)
    if kind is None:
        assert "stopped" in log
        assert actor.answers[0] == "finished"
        assert actor.answers[1] == "down: ORDERLY"
    else:
        assert actor.answers == [f"down: {kind}"] * 2


def test_a_process_that_is_ended_between_two_slices_does_no_more_of_them():
    world, base, _ = stage()
    worker = base.create(Worker, None, None, None, None)
    cell = base.cells[worker._aaddr]
    log = cell.actor.log
    base.enqueue(base.address, worker, ("work", 1000))
    world.run_until(lambda: len(log) > 3, WAIT)
    base.machine.crash()
    count = len(log)
    world.run_until(lambda: False, 1)
    assert len(log) == count < 1000


def test_thespians_own_bases_do_all_slices_at_once():
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    try:
        worker = system.createActor(Worker)
        system.tell(worker, ("work", 3))
        assert events(system.ask(worker, ("send_log",), WAIT)) == [("work", number) for number in range(3)]
    finally:
        system.shutdown()
