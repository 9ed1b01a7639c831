"""Actors on virtual time: in which order messages come, what a turn takes, timers, blocking calls, crashes."""

from __future__ import annotations

import pytest
from thespian.actors import Actor, ActorSystem

from warren.runtime.errors import ProcessDown, ProcessTimeout, UnknownMessage
from warren.runtime.process import Process
from warren.runtime.sim.choosing import DrawnChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.sim_base import SimulatedCrash
from warren.runtime.sim.trace import digest, message_name, story, whole_message
from warren.runtime.sim.world import FIRST_NOW, STEP_SECONDS, WALL_CLOCK_OFFSET, Conditions, SimWorld

SEEDS = range(40)


class Sink(Process):
    """Keeps its messages, and records where its turns end."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.turns = []  # messages seen so far, one entry for each message; the last entry of a turn is negative

    def on_take(self, sender, *what):
        self.seen.append(what)
        self.turns.append(len(self.seen))

    def after_batch(self):
        if self.turns:
            self.turns[-1] = -len(self.seen)

    def on_seen(self, sender):
        return list(self.seen)

    def on_turns(self, sender):
        return list(self.turns)


class Source(Process):
    def on_go(self, sender, target, count):
        for number in range(count):
            self.send(target, ("take", self.myAddress.actorAddressString, number))


class Alarm(Process):
    def __init__(self):
        super().__init__()
        self.rang = []

    def on_set(self, sender, seconds):
        return self.start_timer(seconds, seconds)

    def on_cancel(self, sender, ref):
        self.cancel_timer(ref)
        return True

    def on_timer(self, payload):
        self.rang.append((payload, self.now(), self.wall_clock()))

    def on_rang(self, sender):
        return list(self.rang)

    def on_dice(self, sender):
        return self.random_bytes(8)


class Worker(Process):
    def __init__(self):
        super().__init__()
        self.done = []

    async def on_work(self, sender, function, *args):
        value = await self.run_blocking(function, *args)
        self.done.append((value, self.now()))
        return value

    def on_done(self, sender):
        return list(self.done)


class Fragile(Process):
    """Sends its witness a message for each thing that it does, `after_batch` included."""

    def on_touch(self, sender, witness):
        self.send(witness, ("take", "handled"))
        self.witness = witness

    def after_batch(self):
        if hasattr(self, "witness"):
            self.send(self.witness, ("take", "flushed"))
            del self.witness


@pytest.fixture
def world():
    return SimWorld(seed=1)


@pytest.fixture
def base(world):
    return world.machine("a").boot()


@pytest.fixture
def port(base):
    return SimPort(base)


def crowd(seed, sources=3, count=4, **options):
    """Several sources send to one sink at the same time. Returns what the sink got, and the world."""
    world = SimWorld(seed, **options)
    base = world.machine("a").boot()
    port = SimPort(base)
    sink = base.newPrimaryActor(Sink)
    for _ in range(sources):
        port.tell(base.newPrimaryActor(Source), ("go", sink, count))
    assert world.settle()
    return port.request(sink, ("seen",)), world


# -- order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_of_one_sender_to_one_receiver_keep_their_order(seed):
    """Messages of one sender to one receiver keep their order, whatever the chooser decides."""
    seen, _ = crowd(seed)
    for name in {name for name, _ in seen}:
        assert [number for other, number in seen if other == name] == [0, 1, 2, 3]
    assert len(seen) == 12


def test_messages_of_different_senders_come_in_any_order():
    """Messages of different senders come in any order: all six orders of three messages occur."""
    assert len({tuple(crowd(seed, 3, 1)[0]) for seed in SEEDS}) == 6


def test_the_same_seed_gives_the_same_trace_and_another_one_another():
    traces = [digest(crowd(seed, describe=whole_message)[1].trace) for seed in SEEDS]
    assert traces == [digest(crowd(seed, describe=whole_message)[1].trace) for seed in SEEDS]
    assert len(set(traces)) == len(SEEDS)


def test_a_chooser_of_zeros_runs_actors_as_the_loop_does():
    """With a chooser that always takes 0, actors have their turns as on the event loop: in the order of their messages,
    with whole mailboxes.
    """
    seen, _ = crowd(0, chooser=DrawnChooser(lambda count: 0))
    assert seen == sorted(seen)


def test_a_turn_takes_one_message_or_all_that_wait(world, base, port):
    sizes = set()
    for _ in range(40):
        sink = base.newPrimaryActor(Sink)
        for number in range(5):
            port.tell(sink, ("take", number))
        world.settle()
        turns = port.request(sink, ("turns",))
        ends = [-turn for turn in turns if turn < 0]
        sizes |= {end - start for start, end in zip([0, *ends], ends)}
    assert sizes == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("join_one_in", "turns"), [(0, [-1, -2, -3]), (1, [1, 2, -3])])
def test_how_often_a_turn_takes_all_is_a_condition(join_one_in, turns):
    world = SimWorld(1, conditions=Conditions(join_one_in=join_one_in))
    port = SimPort(world.machine("a").boot())
    sink = port.base.newPrimaryActor(Sink)
    for number in range(3):
        port.tell(sink, ("take", number))
    world.settle()
    assert port.request(sink, ("turns",)) == turns


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_message_of_a_new_process_is_its_creators(seed):
    """No other sender can be faster. In Erlang, too, the creator of a process waits until that is initialised."""

    class Nursery(Process):
        def on_birth(self, sender, stranger):
            child = self.createActor(Sink)
            self.send(child, ("take", "creator"))
            self.send(stranger, ("meet", child))

    class Stranger(Process):
        def on_meet(self, sender, child):
            self.send(child, ("take", "stranger"))
            self.send(child, ("take", "stranger"))

    world = SimWorld(seed)
    base = world.machine("a").boot()
    SimPort(base).tell(base.newPrimaryActor(Nursery), ("birth", base.newPrimaryActor(Stranger)))
    world.settle()
    turns = [entry for entry in world.trace if entry[1] == "turn" and "/Sink-" in entry[2]]
    assert "/Nursery-" in turns[0][3] and len(turns) == 3


# -- time ------------------------------------------------------------------------------------------------


def test_time_is_virtual(world, port):
    """Time is virtual: an hour passes at once, and only because a timer waits for it."""
    alarm = port.base.newPrimaryActor(Alarm)
    for seconds in (3600.0, 1.0, 60.0):
        port.tell(alarm, ("set", seconds))
    world.run(seconds=3601.0)
    rang = port.request(alarm, ("rang",))
    assert [payload for payload, _, _ in rang] == [1.0, 60.0, 3600.0]
    for payload, now, wall_clock in rang:
        assert now == pytest.approx(FIRST_NOW + payload, abs=20 * STEP_SECONDS)
        assert wall_clock == WALL_CLOCK_OFFSET + now
    assert world.steps < 20


def test_clocks_may_run_at_another_speed(world, port):
    """Timers and both clocks of a machine run at its rate, and go on from what they show when the rate changes."""
    alarm = port.base.newPrimaryActor(Alarm)
    port.tell(alarm, ("set", 10.0))
    world.settle()
    port.base.machine.set_clock_rate(0.8)
    world.run(seconds=12.4)
    assert port.request(alarm, ("rang",)) == []
    world.run(seconds=0.2)
    ((_, now, wall_clock),) = port.request(alarm, ("rang",))
    assert now == pytest.approx(FIRST_NOW + 10.0, abs=20 * STEP_SECONDS)
    assert wall_clock == WALL_CLOCK_OFFSET + now
    port.base.machine.set_clock_rate(1.25)
    port.tell(alarm, ("set", 10.0))
    world.run(seconds=7.9)
    assert len(port.request(alarm, ("rang",))) == 1
    world.run(seconds=0.2)
    assert len(port.request(alarm, ("rang",))) == 2


def test_a_cancelled_timer_does_not_ring(world, port):
    alarm = port.base.newPrimaryActor(Alarm)
    port.request(alarm, ("cancel", port.request(alarm, ("set", 1.0))))
    world.run(2.0)
    assert port.request(alarm, ("rang",)) == []


def test_running_stops_where_it_should(world, port):
    alarm = port.base.newPrimaryActor(Alarm)
    port.tell(alarm, ("set", 10.0))
    before = world.time
    world.run(seconds=4.0)
    assert world.time == pytest.approx(before + 4.0)
    assert world.settle() and world.time == pytest.approx(before + 4.0)
    assert world.run_steps(100) == 1
    assert not world.step(), "nothing is left"
    assert not world.run_until(lambda: False)
    assert world.time == pytest.approx(before + 10.0, abs=1e-3)


def test_time_can_pass_while_messages_wait(world, port):
    """After a pause of the whole machine, timers that are due compete with messages that waited."""
    alarm = port.base.newPrimaryActor(Alarm)
    port.request(alarm, ("set", 1.0))
    port.tell(alarm, ("set", 50.0))
    world.advance(5.0)
    world.run_steps(2)
    assert port.request(alarm, ("rang",))[0][1] > FIRST_NOW + 5.0


def test_dice_are_the_seeds(port):
    first = port.request(port.base.newPrimaryActor(Alarm), ("dice",))
    again, other = (SimPort(SimWorld(seed).machine("a").boot()) for seed in (1, 2))
    assert again.request(again.base.newPrimaryActor(Alarm), ("dice",)) == first
    assert other.request(other.base.newPrimaryActor(Alarm), ("dice",)) != first


def test_each_boot_of_each_machine_has_dice_of_its_own():
    world = SimWorld(1)
    rolls = []
    for name in ("a", "b", "a"):
        world.machine(name).crash()
        port = SimPort(world.machine(name).boot())
        rolls.append(port.request(port.base.newPrimaryActor(Alarm), ("dice",)))
    assert len(set(rolls)) == 3


# -- blocking calls --------------------------------------------------------------------------------------


def test_blocking_calls_take_time_and_end_in_any_order():
    orders = set()
    for seed in SEEDS:
        world = SimWorld(seed, conditions=Conditions(blocking_delay=1.0))
        port = SimPort(world.machine("a").boot())
        worker = port.base.newPrimaryActor(Worker)
        for number in range(3):
            port.tell(worker, ("work", int, number))
        assert world.settle()
        done = port.request(worker, ("done",))
        orders.add(tuple(value for value, _ in done))
        assert all(FIRST_NOW < now < FIRST_NOW + 1.1 for _, now in done)
    assert len(orders) == 6


def test_an_error_of_a_blocking_call_is_raised_where_it_is_awaited(port):
    with pytest.raises(ProcessDown, match="ZeroDivisionError"):
        port.request(port.base.newPrimaryActor(Worker), ("work", divmod, 1, 0))
    assert [type(error) for _, error in port.base.world.crashes] == [ZeroDivisionError]


# -- crashes of actors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "seen"), [(False, []), (True, [("handled",)])])
def test_an_actor_crashes_at_a_chosen_message(world, base, port, after, seen):
    """An actor crashes at a chosen message, either instead of handling it or between its handler and after_batch."""
    sink, fragile = base.newPrimaryActor(Sink), base.newPrimaryActor(Fragile)
    base.crash_when(lambda address, message: "/Fragile-" in address and message[0] == "touch", after)
    port.tell(fragile, ("touch", sink))
    assert world.settle()
    assert port.request(sink, ("seen",)) == seen
    assert [(address, type(error)) for address, error in world.crashes] == [
        (fragile.actorAddressString, SimulatedCrash)
    ]
    with pytest.raises(ProcessDown, match="noproc"):
        port.request(fragile, ("touch", sink))


def test_a_trap_snaps_once(world, base, port):
    sinks = [base.newPrimaryActor(Sink) for _ in range(2)]
    base.crash_when(lambda address, message: message == ("take", "bait"))
    for sink in sinks:
        port.tell(sink, ("take", "bait"))
    world.settle()
    assert len(world.crashes) == 1


def test_crashes_nobody_planned_are_told(world, base, port):
    with pytest.raises(UnknownMessage):
        port.request(base.newPrimaryActor(Sink), ("riddle",))
    assert world.crashes == []
    port.tell(base.newPrimaryActor(Sink), ("riddle",))
    world.settle()
    assert [type(error) for _, error in world.crashes] == [UnknownMessage]


# -- the outside -----------------------------------------------------------------------------------------


def test_asking_from_outside_runs_the_world(world, port):
    sink = port.base.newPrimaryActor(Sink)
    answer = port.begin(sink, ("seen",))
    assert not answer.is_here
    with pytest.raises(ProcessTimeout):
        answer.value()
    world.settle()
    assert answer.value() == []


def test_an_ask_that_nobody_answers_times_out_on_virtual_time(world, port):
    class Silent(Process):
        def on_hold(self, sender):
            self.start_timer(1000.0)

    with pytest.raises(ProcessTimeout):
        port.request(port.base.newPrimaryActor(Silent), ("hold",), timeout=5.0)
    assert world.time == pytest.approx(FIRST_NOW + 5.0, abs=1e-3)


def test_it_is_a_base_for_thespians_own_system(world):
    """ActorSystem, plain actors, private ports and shutdown work on it."""

    class Echo(Actor):
        def receiveMessage(self, message, sender):
            self.send(sender, message)

    base = world.machine("a").boot()
    system = ActorSystem(systemBase=base, transientUnique=True)
    echo = system.createActor(Echo)
    assert system.ask(echo, "hello", 1) == "hello"
    with system.private() as private:
        assert private.ask(echo, "psst", 1) == "psst"
    system.shutdown()
    assert base.living == 0 and not base.is_alive


def test_invariants_are_looked_at_after_every_step(world, port):
    counts = []
    world.after_step = lambda: counts.append(world.steps)
    port.request(port.base.newPrimaryActor(Sink), ("seen",))
    assert counts == list(range(1, world.steps + 1))

    def broken():
        raise AssertionError("a promise")

    world.after_step = broken
    port.tell(port.base.newPrimaryActor(Sink), ("take", 1))
    with pytest.raises(AssertionError, match="a promise"):
        world.step()


# -- traces ----------------------------------------------------------------------------------------------


def test_what_a_trace_says_of_messages():
    assert message_name(("take", 1)) == "take"
    assert message_name(("ask", 3, ("info",))) == ("ask", "info")
    assert message_name(object()) == "object"
    everything = ("a", [b"b", {"c": 1.5}], frozenset({"e", "d"}), ValueError("f"), bytearray(b"g"), object())
    assert whole_message(everything) == ("a", (b"b", (("c", 1.5),)), ("d", "e"), ("ValueError", "f"), b"g", "object")


def test_a_story_has_a_line_for_each_step(world, port):
    sink = port.base.newPrimaryActor(Sink)
    port.tell(sink, ("take", 1))
    world.settle()
    lines = list(story(world.trace))
    assert lines[-1].split() == [
        "1000.000000",
        "turn",
        sink.actorAddressString,
        port.address.actorAddressString,
        "take",
    ]
    assert len(lines) == len(world.trace) == 2
