"""Who decides in a simulation: seeds, Hypothesis, and `sweep_interval`."""

from __future__ import annotations

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from warren.runtime.process import Process
from warren.runtime.sim.choosing import DrawnChooser, SeedChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.trace import digest, whole_message
from warren.runtime.sim.world import SimWorld

from .test_sim_base import Sink, Source


def race(chooser, **options):
    """The messages that a sink got from two sources, and the world."""
    world = SimWorld(0, chooser, **options)
    port = SimPort(world.machine("a").boot())
    sink = port.base.newPrimaryActor(Sink)
    for _ in range(2):
        port.tell(port.base.newPrimaryActor(Source), ("go", sink, 2))
    world.settle()
    return [(name[-1], number) for name, number in port.request(sink, ("seen",))], world


def test_a_seed_says_the_same_again():
    rolls = [[chooser.below(7) for _ in range(200)] for chooser in map(SeedChooser, (1, 1, 2))]
    assert rolls[0] == rolls[1] != rolls[2]
    assert set(rolls[0]) == set(range(7))


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_hypothesis_can_choose(data):
    """Hypothesis can make each decision as a draw, and such a run keeps the rules of every other run."""
    draws = []

    def draw(count):
        draws.append(data.draw(st.integers(0, count - 1)))
        return draws[-1]

    seen, world = race(DrawnChooser(draw), describe=whole_message)
    assert sorted(seen) == [("2", 0), ("2", 1), ("3", 0), ("3", 1)]
    again = iter(draws)
    _, twin = race(DrawnChooser(lambda count: next(again)), describe=whole_message)
    assert digest(twin.trace) == digest(world.trace)


def test_a_failing_schedule_shrinks_to_the_plainest():
    """Hypothesis shrinks a failing schedule: the one in which the second source comes first has as few choices other
    than 0 as possible.
    """

    def second_first(choices):
        draws = iter(choices)
        return race(DrawnChooser(lambda count: min(next(draws, 0), count - 1)))[0][0] == ("3", 0)

    shrunk = find(st.lists(st.integers(0, 9), max_size=20), second_first)
    assert sum(map(bool, shrunk)) <= 2 and len(shrunk) <= 5


def test_no_choice_puts_messages_of_a_pair_out_of_order():
    def out_of_order(choices):
        draws = iter(choices)
        seen, _ = race(DrawnChooser(lambda count: min(next(draws, 0), count - 1)))
        return [number for name, number in seen if name == "2"] != [0, 1]

    with pytest.raises(NoSuchExample):
        find(st.lists(st.integers(0, 9), max_size=20), out_of_order, settings=settings(max_examples=500))


@pytest.mark.parametrize("chosen", [-1, 2])
def test_a_chooser_must_choose_what_there_is(chosen):
    with pytest.raises(ValueError, match=f"the chooser returned {chosen}; it must return a number from 0 to 1"):
        DrawnChooser(lambda count: chosen).below(2)


# -- sweeps ----------------------------------------------------------------------------------------


class Chatter(Process):
    """Always has a message for itself."""

    def on_chat(self, sender):
        self.send(self.myAddress, ("chat",))


def neglected(sweep_interval, steps=2000):
    """How many steps a message waits while the chooser prefers all other steps."""
    world = SimWorld(0, DrawnChooser(lambda count: count - 1), sweep_interval=sweep_interval)
    port = SimPort(world.machine("a").boot())
    sink = port.base.newPrimaryActor(Sink)
    chatters = [port.base.newPrimaryActor(Chatter) for _ in range(3)]
    port.tell(sink, ("take", 1))
    for chatter in chatters:
        port.tell(chatter, ("chat",))
    world.run_until(lambda: world.steps >= steps or any(entry[2] == sink.actorAddressString for entry in world.trace))
    return world.steps


def test_without_sweeps_a_message_may_wait_for_ever():
    assert neglected(None) == 2000


@pytest.mark.parametrize("sweep_interval", [1, 10, 100])
def test_with_sweeps_nothing_waits_longer(sweep_interval):
    assert neglected(sweep_interval) <= sweep_interval + 5


def test_a_sweep_reaches_the_last_message_of_a_mailbox():
    """A sweep handles whole mailboxes, so messages of other senders cannot keep one waiting for ever."""

    class Feeder(Process):
        def on_feed(self, sender, sink):
            self.send(sink, ("take", "more"))
            self.send(self.myAddress, ("feed", sink))

    def contrary(count):
        return count - 1 if count > 1 else 0

    world = SimWorld(0, DrawnChooser(contrary), sweep_interval=50)
    port = SimPort(world.machine("a").boot())
    sink = port.base.newPrimaryActor(Sink)
    port.request(sink, ("seen",))
    for _ in range(2):
        port.tell(port.base.newPrimaryActor(Feeder), ("feed", sink))
    world.run_steps(10)
    answer = port.begin(sink, ("seen",))
    world.run_until(lambda: answer.is_here or world.steps > 2000)
    assert answer.is_here and world.steps < 200


def test_sweeps_are_part_of_the_schedule():
    """The same seed and interval give the same trace."""
    traces = [
        [digest(race(SeedChooser(seed), sweep_interval=sweep_interval)[1].trace) for seed in range(10)]
        for sweep_interval in (2, 2, None)
    ]
    assert traces[0] == traces[1] != traces[2]
