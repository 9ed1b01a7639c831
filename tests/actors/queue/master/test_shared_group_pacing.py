"""Consumer groups that share a rate across the queues of a pace group (QP-106, QP-111), and the gates of consumer
groups.
"""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.pace.pace_clock import MILLISECOND as MS
from warren.actors.pace.pace_clock import SECOND, Pace
from warren.actors.pace.shared_clock import LeasedSlots, SharedClock
from warren.actors.queue.pacing import group_pacing, shared_group_pacing
from warren.actors.queue.pacing.leases import Leases
from warren.amqp.fields import Table, table_from
from warren.routing.arguments.queue_settings import queue_settings

from .core import Paced


def clock(group):
    """The clock of a consumer group in the pace group `api`."""
    return "/", f"api\0{group}"


class Sharing(Paced):
    """A core in the pace group `api`, whose consumer groups share their rates with those of other queues."""

    def __init__(self, rate=100, **pace):
        super().__init__(rate=rate, group="api", scope="group", **pace)

    def consume_as(self, group, tag=None, **options):
        arguments = table_from({"x-consumer-group": group} if group else {})
        return self.consume(channel=f"channel of {tag or group}", tag=tag or group, arguments=arguments, **options)

    def asked(self):
        """What was sent to pacers since the last call: the consumer group, and the message with its fields."""
        messages, self.effects.to_pacer = self.effects.to_pacer, []
        return [(name[1].removeprefix("api\0"), message[0], *message[3:]) for name, message in messages]

    def lease(self, group, first=0, last=0, slots=1, sharers=1):
        self.master.leased(clock(group), first * MS, last * MS, slots, sharers)
        self.turn()


def test_each_group_of_consumers_leases_from_a_clock_of_its_own():
    core = Sharing()
    core.consume_as("a")
    core.consume_as("b")
    core.consume_as("", "none")
    core.publish(5)
    core.turn()
    assert core.delivered() == []
    assert sorted(core.asked()) == [(group, "lease", (10 * MS, 0, 0), 5, 0) for group in ("", "a", "b")]
    core.lease("a")
    assert [tag for tag, _ in core.delivered()] == [], "the timer opens the gate"
    core.wait(0.001)
    assert [tag for tag, _ in core.delivered()] == ["a"]
    core.lease("", first=20, last=20)
    core.wait(0.0201)
    assert [tag for tag, _ in core.delivered()] == ["none"]


def test_consumers_of_one_group_take_its_slots_in_turn():
    core = Sharing()
    core.consume_as("a", "a1")
    core.consume_as("a", "a2")
    core.publish(5)
    core.turn()
    assert len(core.asked()) == 1
    core.lease("a", first=10, last=40, slots=4)
    found = []
    for _ in range(5):
        core.wait(0.0101)
        found += [tag for tag, bodies in core.delivered() for _ in bodies]
    assert sorted(found) == ["a1", "a1", "a2", "a2"]


def test_slots_go_back_when_no_message_is_ready():
    core = Sharing()
    core.consume_as("a")
    core.publish(1)
    core.turn()
    core.asked()
    core.lease("a", first=0, last=20, slots=3)
    core.wait(0.001)
    assert core.bodies() == [0]
    [(group, name, _, _, slots, owed)] = core.asked()
    assert (group, name, slots, owed) == ("a", "give_back", 2, 0)
    core.publish(1, first=1, number=2)
    core.turn()
    assert [name for _, name, *_ in core.asked()] == ["lease"], "the group asks again for the next message"


def test_slots_go_back_when_the_consumers_of_the_group_are_full():
    core = Sharing()
    consumer = core.consume_as("a", prefetch=1)
    core.publish(5)
    core.turn()
    core.asked()
    core.lease("a", first=0, last=20, slots=3)
    core.asked()
    core.wait(0.001)
    assert core.bodies() == [0]
    assert [(name, fields[2]) for _, name, *fields in core.asked()] == [("give_back", 2)]
    core.lease("a")
    assert [name for _, name, *_ in core.asked()] == ["give_back"]
    core.master.settle(consumer.channel, "ack", [sorted(consumer.channel.pending)])
    core.turn()
    assert [name for _, name, *_ in core.asked()] == ["lease"]


def test_slots_go_back_with_the_last_consumer_of_the_group():
    core = Sharing()
    consumer = core.consume_as("a")
    core.publish(3)
    core.turn()
    core.lease("a", first=20, last=40, slots=3)
    core.asked()
    core.master.cancel(consumer.channel.channel_id, "a")
    core.turn()
    assert [(name, fields[2]) for _, name, *fields in core.asked()] == [("give_back", 3)]
    core.lease("a")
    assert [name for _, name, *_ in core.asked()] == ["give_back"], "nobody wants a lease that comes now"


def test_another_policy_gives_the_slots_back():
    core = Sharing()
    core.consume_as("a")
    core.publish(3)
    core.turn()
    core.lease("a", first=20, last=40, slots=3)
    core.asked()
    core.apply(queue_settings(Table(), {"pace-rate": 10, "pace-scope": "group"}))
    assert [(name, fields[2]) for _, name, *fields in core.asked()] == [("give_back", 3)]
    core.turn()
    core.wait(0.2)
    assert core.bodies(), "the group has the rate for itself from now on"
    assert core.asked() == []


def test_another_rate_is_requested_at_once():
    """As for a queue with one clock: a request that waits by the old rate is repeated with the new one."""
    core = Sharing(rate=1, period_ms=3_600_000)
    core.consume_as("a")
    core.publish(3)
    core.turn()
    core.asked()
    core.settings = queue_settings(Table(), {"pace-rate": 100, "pace-group": "api", "pace-scope": "group"})
    core.apply(core.settings)
    assert core.asked() == [("a", "lease", (10 * MS, 0, 0), 3, 0)]


def test_a_group_without_its_pacer_holds_and_asks_again():
    core = Sharing()
    core.consume_as("a")
    core.publish(3)
    core.turn()
    core.asked()
    core.master.pacer_lost()
    core.turn()
    assert (core.bodies(), core.asked()) == ([], [])
    core.wait(0.1)
    assert [name for _, name, *_ in core.asked()] == ["lease"]


def test_a_single_active_consumer_waits_for_the_slots_of_its_group():
    core = Sharing()
    core.master.consumers.single_active = True
    core.consume_as("a")
    core.consume_as("b")
    core.publish(3)
    core.turn()
    assert [group for group, *_ in core.asked()] == ["a"]
    core.lease("a", first=10, last=20, slots=2)
    core.wait(0.0201)
    assert core.bodies() == [0, 1]


@pytest.mark.parametrize(("sharers", "kept"), [(1, 11), (5, 3)])
def test_messages_that_would_wait_too_long_are_those_above_the_shares_of_the_groups(sharers, kept):
    """A queue admits what its share of the groups' slots allows within the longest wait: with 100 a second, 50 ms and
    two groups eleven messages, and three if five queues share the rate.
    """
    core = Sharing(max_wait_ms=50, overflow="nack")
    core.consume_as("a", prefetch=1)
    core.consume_as("b", prefetch=1)
    core.publish(1)
    core.turn()
    for group in ("a", "b"):
        core.lease(group, slots=0, sharers=sharers)
    core.publish(20, first=1, number=2)
    core.turn()
    assert len(core.backing) == kept
    assert core.master.info()["pace"]["scope"] == "group"


def test_a_publish_adds_no_fraction_for_each_group(monkeypatch):
    made = []

    def fraction(*parts):
        made.append(parts)
        return Fraction(*parts)

    core = Sharing(max_wait_ms=50, overflow="nack")
    for number in range(100):
        core.consume_as(f"group {number}")
    monkeypatch.setattr(shared_group_pacing, "Fraction", fraction)
    core.publish(1)
    core.turn()
    assert made == [(100, 1)]


@given(
    queues=st.integers(1, 3),
    groups=st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
    prefetch=st.integers(0, 2),
    steps=st.lists(
        st.tuples(st.integers(0, 150), st.integers(0, 2), st.integers(0, 6), st.booleans()), min_size=1, max_size=20
    ),
)
@settings(max_examples=40)
def test_no_group_of_consumers_exceeds_its_rate(queues, groups, prefetch, steps):
    """Whatever queues publish, acknowledge and pause, the consumers of one group get no more than its rate allows from
    all queues together, and all messages are delivered in the end.
    """
    cores = [Sharing(rate=20) for _ in range(queues)]
    clocks, times, published = {}, {"a": [], "b": []}, 0
    for core in cores:
        for number, group in enumerate(groups):
            core.consume_as(group, f"{group}{number}", prefetch=prefetch)

    def exchange():
        now = int(cores[0].seconds * SECOND)
        while messages := [(number, *each) for number, core in enumerate(cores) for each in core.asked()]:
            for number, group, name, *fields in messages:
                shared = clocks.setdefault(group, SharedClock(now))
                if name == "lease":
                    shared.request(str(number), Pace(*fields[0]), fields[1], fields[2], now)
                else:
                    shared.give_back(str(number), LeasedSlots(*fields[:3]).moved(now), fields[3])
            pass_leases(now)
        pass_leases(now)

    def pass_leases(now):
        for group, shared in clocks.items():
            for number, lease in shared.leases(now):
                first, last, slots = lease.moved(-now)
                cores[int(number)].master.leased(clock(group), first, last, slots, shared.sharers(now))
                cores[int(number)].turn()

    def look():
        for core in cores:
            for tag, bodies in core.delivered():
                times[tag[0]].extend([core.seconds] * len(bodies))

    def wait(milliseconds):
        for _ in range(0, milliseconds, 5):
            for core in cores:
                core.wait(0.005)
            exchange()
            look()

    def acknowledge(core):
        for record in list(core.state.channels.values()):
            if record.pending:
                core.master.settle(record, "ack", [sorted(record.pending)])
        core.turn()

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
        if sum(map(len, times.values())) == published:
            break
        for core in cores:
            acknowledge(core)
        wait(55)
    assert sum(map(len, times.values())) == published
    for found in times.values():
        for at, start in enumerate(found):
            for more, end in enumerate(found[at:]):
                assert more + 1 <= (end - start) / 0.05 + 3.1


def test_the_policy_says_which_rate_is_shared():
    text = json.dumps({"pace-rate": 5, "pace-group": "api", "pace-scope": "group"})
    found = queue_settings(Table(), json.loads(text))
    assert found.paces_consumers and not found.paces_queue


def test_a_group_whose_slot_another_consumer_took_does_not_keep_the_groups_behind_it_back(monkeypatch):
    """A turn opens only a few gates. When another consumer has taken the slot of a group, the groups behind it get
    theirs in the next turn all the same.
    """
    monkeypatch.setattr(group_pacing, "GATES_OPENED", 2)
    core = Paced(rate=1, period_ms=60_000, scope="group")

    def consume(group, tag, **options):
        return core.consume(tag, tag, arguments=table_from({"x-consumer-group": group}), **options)

    consume("a", "a", no_ack=True)
    consume("b", "b", no_ack=True)
    core.seconds += 1
    second = consume("c", "c2", prefetch=1)
    core.seconds += 1
    consume("d", "d", no_ack=True)
    core.publish(20)
    core.turn()
    for seconds in (58.01, 1, 1):
        core.wait(seconds)
    assert sorted(tag for tag, _ in core.delivered()) == ["a", "b", "c2", "d"]
    consume("c", "c1", no_ack=True)
    core.publish(1, first=20, number=21)
    core.turn()
    core.seconds += 63  # the slots of all groups are due, but the timer fires late
    core.master.settle(second.channel, "ack", [sorted(second.channel.pending)])
    core.turn()
    assert [tag for tag, _ in core.delivered()] == ["c2"]
    core.wait(0)
    assert [tag for tag, _ in core.delivered()] == ["a", "b"]
    for _ in range(3):
        assert core.effects.timers["pace"] < 1
        core.wait(0)
        if found := [tag for tag, _ in core.delivered()]:
            break
    assert found == ["d"]


def test_a_queue_that_ends_gives_its_slots_back():
    core = Sharing()
    core.consume_as("a")
    core.publish(3)
    core.turn()
    core.lease("a", first=20, last=40, slots=3)
    core.asked()
    core.master.end()
    assert [(name, fields[2]) for _, name, *fields in core.asked()] == [("give_back", 3)]


def test_gates_of_consumers_that_leave_an_empty_queue_are_forgotten():
    """The gates of consumers that leave an empty queue are forgotten, although the queue checks the gates that hold
    consumers back only while it has messages.
    """
    core = Paced(rate=1, period_ms=60_000, scope="group")
    for number in range(3):
        consumer = core.consume("c", "c", prefetch=1)
        core.publish(1, first=number, number=number + 1)
        core.turn()
        for _ in core.master.purge():
            pass
        if consumer.channel.pending:
            core.master.settle(consumer.channel, "ack", [sorted(consumer.channel.pending)])
        core.turn()
        core.master.cancel("c", "c")
        core.turn()
        assert not core.master.consumers.changed_gates


def test_a_publish_looks_at_no_group_that_has_not_changed(monkeypatch):
    """A publish checks only groups that have changed: to check all of 3,000 groups that wait for slots took 1 ms in
    each turn.
    """
    core = Sharing()
    for number in range(100):
        core.consume_as(f"group {number}")
    core.publish(1)
    core.turn()
    assert len(core.asked()) == 100
    core.lease("group 7", first=20, last=20)
    looks = []
    monkeypatch.setattr(Leases, "ask", lambda leases, wanted, now: looks.append(leases.name))
    core.publish(1, first=1, number=2)
    core.turn()
    assert looks == []
    core.lease("group 8", first=20, last=20)
    assert looks == [clock("group 8")]
