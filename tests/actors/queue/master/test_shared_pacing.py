"""A queue that shares the rate of its pace group: which slots it requests from its pacer, and how it uses them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.pace.pace_clock import MILLISECOND as MS
from warren.actors.pace.pace_clock import SECOND, Pace
from warren.actors.pace.shared_clock import LeasedSlots, SharedClock
from warren.amqp.fields import Table
from warren.routing.arguments.queue_settings import queue_settings

from .core import Paced

CLOCK = ("/", "api")


class Sharing(Paced):
    """A core in the pace group `api`."""

    def __init__(self, rate=100, **pace):
        super().__init__(rate=rate, group="api", **pace)

    def asked(self):
        """What was sent to the pacer since the last call: names and fields, without the name of the clock."""
        messages, self.effects.to_pacer = self.effects.to_pacer, []
        assert all(clock == CLOCK for clock, _ in messages)
        return [(message[0], *message[3:]) for _, message in messages]

    def lease(self, first=0, last=0, slots=1, sharers=1):
        self.master.leased(CLOCK, first * MS, last * MS, slots, sharers)
        self.turn()


def test_slots_are_leased_for_the_messages_that_are_ready():
    core = Sharing()
    core.consume()
    core.publish(3)
    core.turn()
    assert core.bodies() == []
    assert core.asked() == [("lease", (10 * MS, 0, 0), 3, 0)]
    core.publish(5, first=3, number=4)
    core.turn()
    assert core.asked() == [], "one request at a time"
    core.lease(first=20, last=40, slots=3)
    assert core.bodies() == []
    core.wait(0.0201)
    assert core.bodies() == [0]
    core.wait(0.0201)
    assert core.bodies() == [1, 2]
    assert [name for name, *_ in core.asked()] == ["lease"], "more, before the slots are used up"


def test_slots_that_cannot_be_used_are_given_back():
    core = Sharing()
    core.consume()
    core.publish(3)
    core.turn()
    core.asked()
    core.lease(first=20, last=40, slots=3)
    core.wait(0.0201)
    assert core.bodies() == [0]
    core.asked()
    core.master.cancel("a channel", "c")
    core.turn()
    [(name, first, last, slots, owed)] = core.asked()
    assert (name, slots, owed) == ("give_back", 2, 0)
    assert (first / MS, last / MS) == pytest.approx((10, 20), abs=0.5)


def test_a_lease_that_comes_too_late_goes_back():
    core = Sharing()
    consumer = core.consume()
    core.publish(1)
    core.turn()
    core.asked()
    core.master.cancel(consumer.channel.channel_id, "c")
    core.lease(first=20, last=40, slots=3)
    assert [name for name, *_ in core.asked()] == ["give_back"]


def test_another_policy_gives_the_slots_back():
    core = Sharing()
    core.consume()
    core.publish(3)
    core.turn()
    core.asked()
    core.lease(first=20, last=40, slots=3)
    core.asked()
    core.settings = queue_settings(Table(), {"pace-rate": 100})
    core.apply(core.settings)
    assert [(name, slots) for name, _, _, slots, _ in core.asked()] == [("give_back", 3)]
    core.master.leased(CLOCK, 0, 0, 1, 1)
    assert [name for name, *_ in core.asked()] == ["give_back"], "the answer to the request comes all the same"


def test_another_rate_is_requested_at_once():
    """The clock goes by the rate of the latest request, and a request waits there for a slot of that rate. So a queue
    repeats its request when a policy changes the rate: the answer by the old rate might take hours.
    """
    core = Sharing(rate=1, period_ms=3_600_000)
    core.consume()
    core.publish(3)
    core.turn()
    assert core.asked() == [("lease", (3600 * SECOND, 0, 0), 3, 0)]
    for _ in range(2):
        core.settings = queue_settings(Table(), {"pace-rate": 100, "pace-group": "api"})
        core.apply(core.settings)
    assert core.asked() == [("lease", (10 * MS, 0, 0), 3, 0)]
    core.lease(first=0, last=20, slots=3)
    core.asked()
    core.settings = queue_settings(Table(), {"pace-rate": 50, "pace-group": "api"})
    core.apply(core.settings)
    assert [name for name, *_ in core.asked()] == [], "there is no request to repeat"


def test_a_queue_without_its_pacer_holds_and_asks_again():
    core = Sharing()
    core.consume()
    core.publish(3)
    core.turn()
    core.asked()
    core.wait(5)
    assert (core.bodies(), core.asked()) == ([], [])
    core.master.pacer_lost()
    core.turn()
    assert core.asked() == [], "not at once, or it would ask a pacer that is not there over and over"
    core.wait(0.1)
    assert [name for name, *_ in core.asked()] == ["lease"]


def test_slots_are_lost_when_nobody_has_used_them_for_long():
    core = Sharing()
    core.consume()
    core.publish(3)
    core.turn()
    core.asked()
    core.master.leased(CLOCK, 20 * MS, 40 * MS, 3, 1)
    core.seconds += 5
    core.turn()
    assert core.bodies() == []
    assert [name for name, *_ in core.asked()] == ["lease"]


def test_the_size_of_a_message_is_paid_with_the_next_request():
    core = Sharing(cost="kib")
    core.consume()
    core.publish(2)
    core.turn()
    core.asked()
    core.lease()
    assert core.bodies() == [0]
    [(name, _, wanted, owed)] = core.asked()
    assert (name, wanted, owed) == ("lease", 1, 0)
    core.master.dispatch.pacing.leases.take(4)
    core.master.pacer_lost()
    core.wait(0.1)
    assert core.asked()[0][3] == 4


@pytest.mark.parametrize(("sharers", "kept"), [(1, 6), (5, 2)])
def test_messages_that_would_wait_too_long_are_those_above_the_share_of_the_queue(sharers, kept):
    """A queue admits what its share of the rate allows within the longest wait: with 100 a second and 50 ms six
    messages, and two if five queues share the rate.
    """
    core = Sharing(max_wait_ms=50, overflow="nack")
    core.master.leased(CLOCK, 0, 0, 0, sharers)
    core.turn()
    core.publish(10)
    core.turn()
    assert len(core.backing) == kept
    info = core.master.info()["pace"]
    assert (info["group"], info["refused_total"], info["waiting"]) == ("api", 10 - kept, kept)
    assert info["outcomes"]["nack"] == 10 - kept


def test_pace_of_basic_get_asks_for_a_slot():
    core = Sharing(get=True)
    core.publish(1)
    core.turn()

    def finds():
        with pytest.raises(StopIteration) as stop:
            next(core.master.get(None))
        return stop.value.value[0] is not None

    assert not finds()
    assert [name for name, *_ in core.asked()] == ["lease"]
    core.master.leased(CLOCK, 0, 0, 1, 1)
    assert finds()


@given(
    queues=st.integers(1, 3),
    prefetch=st.integers(0, 2),
    steps=st.lists(
        st.tuples(st.integers(0, 150), st.integers(0, 2), st.integers(0, 6), st.booleans()), min_size=1, max_size=25
    ),
)
def test_the_rate_of_the_group_is_never_exceeded(queues, prefetch, steps):
    """Whatever queues publish, acknowledge and pause, together they deliver no more than the rate allows, and all
    messages are delivered in the end.
    """
    cores = [Sharing(rate=20) for _ in range(queues)]
    clock, times, published = SharedClock(int(cores[0].seconds * SECOND)), [], 0
    for core in cores:
        core.consume(prefetch=prefetch)

    def exchange():
        """Pass on the messages between the queues and the pacer until there are none."""
        now = int(cores[0].seconds * SECOND)
        while messages := [(number, *each) for number, core in enumerate(cores) for each in core.asked()]:
            for number, name, *fields in messages:
                if name == "lease":
                    clock.request(str(number), Pace(*fields[0]), fields[1], fields[2], now)
                else:
                    clock.give_back(str(number), LeasedSlots(*fields[:3]).moved(now), fields[3])
            pass_leases(now)
        pass_leases(now)

    def pass_leases(now):
        for number, lease in clock.leases(now):
            first, last, slots = lease.moved(-now)
            cores[int(number)].master.leased(CLOCK, first, last, slots, clock.sharers(now))
            cores[int(number)].turn()

    def look():
        for core in cores:
            times.extend([core.seconds] * len(core.bodies()))

    def wait(milliseconds):
        for _ in range(milliseconds):
            for core in cores:
                core.wait(0.001)
            exchange()
            look()

    for passed, at, count, acks in steps:
        core = cores[at % queues]
        if count:
            core.publish(count, first=published, number=published + 1)
            published += count
        core.turn()
        exchange()
        look()
        wait(passed)
        for core in cores if acks else ():
            acknowledge(core)
    for _ in range(4 * published + 4):
        if len(times) == published:
            break
        for core in cores:
            acknowledge(core)
        wait(55)
    assert len(times) == published
    for at, start in enumerate(times):
        for more, end in enumerate(times[at:]):
            assert more + 1 <= (end - start) / 0.05 + 3.001


def acknowledge(core):
    for record in list(core.state.channels.values()):
        if record.pending:
            core.master.settle(record, "ack", [sorted(record.pending)])
    core.turn()
