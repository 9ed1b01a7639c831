"""Coroutines that wait for a signal of their own process, and work that gives way to other processes."""

from __future__ import annotations

import gc
import weakref

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessDown, ProcessTimeout
from warren.runtime.process import Process
from warren.runtime.signal import Signal
from warren.runtime.sim.choosing import DrawnChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld

WAIT = 300


class Store(Process):
    """Its coroutines wait until it is idle; `log` has what happened in which order."""

    def __init__(self):
        super().__init__()
        self.is_busy = True
        self.log = []
        self.turns = 0
        self.idle = Signal(self)

    def after_batch(self):
        self.turns += 1

    async def on_wait(self, sender, name, timeout=None):
        try:
            await self.idle.wait(timeout)
        except ProcessTimeout:
            self.log.append(f"{name} timed out")
            return "timed out"
        self.log.append(name)
        return name

    async def on_wait_for(self, sender, name, timeout=None):
        await self.idle.wait_for(lambda: not self.is_busy, timeout)
        self.is_busy = True
        self.log.append(name)
        return name

    async def on_early(self, sender):
        """Wakes the wait before it is awaited."""
        waiting = self.idle.wait()
        self.idle.wake_all()
        await self.next_turn()
        await self.next_turn()
        await waiting
        return "early"

    def on_wake(self, sender, how="one"):
        self.is_busy = False
        (self.idle.wake if how == "one" else self.idle.wake_all)()
        self.log.append(f"wake {how}")

    def on_note(self, sender, what):
        self.log.append(what)

    def on_log(self, sender):
        return list(self.log)

    async def on_fail(self, sender):
        await self.idle.wait()
        raise ValueError("provoked")

    def on_stop(self, sender, reason):
        self.idle.wake_all()
        self.stop(reason)

    async def on_count(self, sender, steps):
        """Long work in steps."""
        for step in range(steps):
            self.log.append(step)
            await self.next_turn()
        return steps

    def on_request(self, sender, times):
        for _ in range(times):
            self.request_turn()

    def on_turns(self, sender):
        return self.turns


class Stage:
    """A store on a simulated machine."""

    def __init__(self, chooser=None, seed=1):
        self.world = SimWorld(seed, chooser)
        self.port = SimPort(self.world.machine("a").boot())
        self.store = self.port.base.newPrimaryActor(Store)

    def tell(self, *message):
        self.port.tell(self.store, message)

    def begin(self, *message):
        return self.port.begin(self.store, message)

    def ask(self, *message):
        return self.port.request(self.store, message)

    @property
    def process(self):
        return self.store._cell.actor


def ordinary():
    return Stage(DrawnChooser(lambda count: 0))


def test_those_who_have_waited_longest_go_on_first():
    stage = ordinary()
    answers = [stage.begin("wait", name) for name in "abcd"]
    stage.world.settle()
    stage.tell("wake")
    stage.world.settle()
    assert [answer.is_here for answer in answers] == [True, False, False, False]
    stage.tell("wake", "all")
    stage.world.settle()
    assert stage.ask("log") == ["wake one", "a", "wake all", "b", "c", "d"]
    assert [answer.value() for answer in answers] == list("abcd")


def test_waking_runs_nothing_at_once():
    """`wake` runs nothing at once: the coroutine goes on in a later turn, so the code after `wake` runs first."""
    stage = ordinary()
    stage.begin("wait", "a")
    stage.tell("wake")
    assert stage.ask("log")[0] == "wake one"


def test_a_signal_has_no_memory():
    stage = ordinary()
    stage.tell("wake", "all")
    answer = stage.begin("wait", "late")
    stage.world.settle()
    assert not answer.is_here


def test_a_wait_may_be_over_before_it_is_awaited():
    assert ordinary().ask("early") == "early"


def test_a_condition_is_checked_again_after_the_wait():
    """A condition is checked again after the wait: of two coroutines that are woken, the first makes it false again,
    and the second keeps waiting.
    """
    stage = ordinary()
    first, second = stage.begin("wait_for", "first"), stage.begin("wait_for", "second")
    stage.tell("wake", "all")
    stage.world.settle()
    assert (first.is_here, second.is_here) == (True, False)
    stage.tell("wake", "all")
    stage.world.settle()
    assert second.value() == "second"


def test_a_wait_ends_after_its_timeout():
    stage = ordinary()
    first, second = stage.begin("wait", "first", 1.0), stage.begin("wait", "second", 9.0)
    stage.world.run(2.0)
    stage.tell("wake")
    stage.world.settle()
    assert (first.value(), second.value()) == ("timed out", "second")
    assert not stage.process.idle._waiting and not stage.store._cell.timers


def test_the_timeout_of_a_condition_counts_from_the_beginning():
    """A wake-up that leaves the condition false does not start the time again."""
    stage = ordinary()
    begun = stage.world.time
    answer = stage.begin("wait_for", "never", 3.0)
    stage.world.run(2.0)
    stage.process.idle.wake_all()
    stage.world.run_until(lambda: answer.is_here, 60.0)
    with pytest.raises(ProcessTimeout):
        answer.value()
    assert stage.world.time - begun == pytest.approx(3.0, abs=0.1)


def test_a_wait_that_is_woken_does_not_time_out():
    """A wait that was woken does not time out, even if its timer is due before the coroutine has its turn."""
    stage = ordinary()
    answer = stage.begin("wait", "a", 1.0)
    stage.world.settle(0.5)
    stage.process.idle.wake()
    stage.world.advance(2.0)
    stage.world.settle()
    assert answer.value() == "a"


@pytest.mark.parametrize("is_woken", [False, True])
def test_the_end_of_the_process_ends_the_wait(is_woken):
    """When a process ends, askers of a coroutine that waits get the reason, and reference counting alone frees what
    waited.
    """
    stage = ordinary()
    answer = stage.begin("wait", "a")
    stage.world.settle()
    process = weakref.ref(stage.process)
    gc.disable()
    try:
        stage.tell("stop", "tired") if is_woken else stage.process.stop("tired")
        stage.tell("note", "never")
        stage.world.settle()
        assert process() is None, "a cycle keeps the process alive"
    finally:
        gc.enable()
    with pytest.raises(ProcessDown, match="tired"):
        answer.value()


def test_an_error_after_a_wait_is_a_crash():
    stage = ordinary()
    answer = stage.begin("fail")
    stage.tell("wake")
    stage.world.settle()
    with pytest.raises(ProcessDown, match="ValueError: provoked"):
        answer.value()


def test_the_chooser_decides_what_comes_first():
    """Of a coroutine that was woken and a message that waits, either may come first; the ordinary choice is the
    coroutine."""
    logs = set()
    for seed in range(40):
        stage = Stage(seed=seed)
        stage.begin("wait", "woken")
        stage.world.settle()
        stage.process.idle.wake()
        stage.tell("note", "message")
        stage.world.settle()
        logs.add(tuple(stage.ask("log")))
    assert logs == {("woken", "message"), ("message", "woken")}
    stage = ordinary()
    stage.begin("wait", "woken")
    stage.world.settle()
    stage.tell("note", "message")
    stage.process.idle.wake()
    stage.world.settle()
    assert stage.ask("log") == ["woken", "message"]
    assert [entry[3] for entry in stage.world.trace if entry[1] == "resume"] == ["Store.on_wait"]


def test_long_work_gives_way_to_messages():
    """A message that comes while a coroutine works in steps is handled between two of them."""
    stage = ordinary()
    answer = stage.begin("count", 5)
    stage.world.step()
    stage.world.step()
    stage.tell("note", "between")
    stage.world.settle()
    log = stage.ask("log")
    assert answer.value() == 5
    assert [what for what in log if what != "between"] == [0, 1, 2, 3, 4] and 0 < log.index("between") < 5


def test_another_turn_comes_without_a_message():
    stage = ordinary()
    before = stage.ask("turns")
    stage.tell("request", 3)
    stage.world.settle()
    assert stage.ask("turns") - before == 3, "the question's own turn, that of the request, and one more"


class TestOnALoop:
    def test_many_that_are_woken_share_their_turns_with_messages(self, system, client):
        """If more coroutines are woken than a turn resumes, a message that waits is handled before the last of them."""
        store = system.createActor(Store)
        for number in range(200):
            client.tell(store, ("wait", number))
        client.tell(store, ("wake", "all"))
        for _ in range(70):
            client.tell(store, ("note", "message"))
        client.ask(store, ("turns",), WAIT)
        log = client.ask(store, ("log",), WAIT)
        while len(log) < 271:
            log = client.ask(store, ("log",), WAIT)
        assert [what for what in log if type(what) is int] == list(range(200))
        assert log.index("message") < log.index(199)

    def test_timeouts(self, system, client):
        store = system.createActor(Store)
        assert client.ask(store, ("wait", "a", 0.01), WAIT) == "timed out"

    def test_steps_of_two_processes_alternate(self, base, system, client):
        """Neither of two processes with long work waits for the other to finish."""
        stores = [system.createActor(Store) for _ in range(2)]
        order = []
        actors = [store._cell.actor for store in stores]

        def note(which):
            class Log(list):
                def append(self, step):
                    order.append(which)

            return Log()

        for which, actor in enumerate(actors):
            base.call(setattr, actor, "log", note(which))
        base.call(lambda: [base.enqueue(base.address, store, ("count", 50)) for store in stores])
        client.ask(stores[0], ("count", 0), WAIT)
        while len(order) < 100:
            client.ask(stores[0], ("turns",), WAIT)
        assert order == [0, 1] * 50


def test_on_thespians_own_base():
    """Without an event loop the process sends itself a message for each turn that it asks for."""
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    try:
        store = system.createActor(Store)
        system.tell(store, ("wait", "a"))
        system.tell(store, ("wake", "all"))
        system.tell(store, ("count", 3))
        outcome = system.ask(store, ("ask", 1, ("log",)), WAIT)
        assert outcome[:3] == ("$answer", 1, True)
        assert [what for what in outcome[3] if what not in (0, 1, 2)] == ["wake all", "a"]
        assert [what for what in outcome[3] if what in (0, 1, 2)] == [0, 1, 2]
    finally:
        system.shutdown()
