"""The clocks of a paced queue, and how its master uses them, on a clock that stands still."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.actors.pace.pace_clock import PaceClock
from warren.amqp.fields import Table, table_from
from warren.routing.arguments.queue_settings import queue_settings

from .core import Paced

MS = 1_000_000
SECOND = 1000 * MS
LONG_AGO = -(10**18)


def clock(rate, burst=1):
    made = PaceClock(LONG_AGO)
    made.unit = SECOND // rate
    made.kept = (burst - 1) * made.unit
    return made


def arrivals(clock, times, longest):
    """For each arrival, how long it waits in ms, or None if it is refused."""
    waits = []
    for time in times:
        now = time * MS
        if clock.free_until(now, now + longest * MS):
            waits.append((clock.next_slot(now) - now) // MS)
            clock.take(now, 1)
        else:
            waits.append(None)
    return waits


@pytest.mark.parametrize(
    ("rate", "longest", "times", "waits"),
    [
        (5, 5000, [1000] * 28, [*range(0, 5001, 200), None, None]),
        (10, 500, [*[1000] * 7, 1050, 1900], [0, 100, 200, 300, 400, 500, None, None, 0]),
        (10, 0, [1000, 1050, 1100], [0, None, 0]),
    ],
)
def test_waits_are_those_of_sentinel(rate, longest, times, waits):
    """The waits are those that Sentinel computes for the same arrivals (QP-91, QP-92)."""
    assert arrivals(clock(rate), times, longest) == waits


@given(
    unit=st.integers(1, 50),
    burst=st.integers(1, 4),
    longest=st.integers(0, 200),
    steps=st.lists(st.tuples(st.integers(0, 120), st.integers(1, 5)), max_size=40),
)
def test_rate_is_never_exceeded(unit, burst, longest, steps):
    """In any window of length T there are at most T / unit + burst slots. No planned wait is longer than allowed, and
    refused messages change nothing (QP-104).
    """
    pace = PaceClock(LONG_AGO)
    pace.unit, pace.kept = unit, (burst - 1) * unit
    now, slots = 0, []
    for passed, count in steps:
        now += passed
        admitted = min(count, pace.free_until(now, now + longest))
        first = pace.next_slot(now)
        before = pace.latest
        pace.take(now, admitted)
        if admitted < count:
            assert first + admitted * unit > now + longest
        if not admitted:
            assert pace.latest == before
        for number in range(admitted):
            slot = max(now, first + number * unit)
            assert slot <= now + longest
            slots.append(slot)
    assert slots == sorted(slots)
    for at, start in enumerate(slots):
        for more, end in enumerate(slots[at:]):
            assert more + 1 <= (end - start) // unit + burst


def warming(rate, seconds):
    """A clock that is cold and has had its first slot at 0."""
    made = PaceClock(0)
    made.apply(queue_settings(Table(), {"pace-rate": rate, "pace-warm-up-ms": seconds * 1000}), is_delivery=False)
    made.take(60 * SECOND, 1)
    made.latest = 0
    return made


@pytest.mark.parametrize(("rate", "seconds"), [(100, 10), (7, 3)])
def test_clock_warms_up(rate, seconds):
    """A clock begins at a third of its rate and reaches the whole rate after the warm-up, in which it gives half as
    many slots as at the whole rate (QP-107).
    """
    pace = warming(rate, seconds)
    slots = [0]
    while slots[-1] < 2 * seconds * SECOND:
        pace.take(slots[-1], 1)
        slots.append(pace.latest)
    distances = [after - before for before, after in zip(slots, slots[1:])]
    assert distances[0] == pytest.approx(3 * SECOND / rate, rel=8 / (rate * seconds))
    assert distances == sorted(distances, reverse=True)
    warm = next(at for at, distance in enumerate(distances) if distance <= SECOND // rate + 1)
    assert warm == pytest.approx(rate * seconds / 2, abs=2)
    assert slots[warm] == pytest.approx(seconds * SECOND, rel=0.1)


def test_clock_cools():
    """A clock stays warm for half of the warm-up without use, and is cold after the whole of it."""
    first = []
    for pause in (1, 5, 7.5, 10, 100):
        pace = warming(10, 10)
        pace.take(0, 1000)
        resumed = pace.latest + int(pause * SECOND)
        pace.take(resumed, 1)
        pace.take(resumed, 1)
        first.append(round((pace.latest - resumed) / MS))
    assert first == [100, 100, 192, 292, 296]


@given(
    steps=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40)), max_size=8),
    longest=st.integers(0, 5000),
)
def test_slots_of_a_warming_clock_are_the_same_one_by_one_or_together(steps, longest):
    """Slots that are taken together are at the times at which they would be one by one; `free_until` counts those that
    fit.
    """
    one, other = warming(20, 5), warming(20, 5)
    now = total = 0
    for passed, count in steps:
        now += passed * MS
        end = now + longest * MS
        free = one.free_until(now, end)
        taken = min(count, free)
        one.take(now, taken)
        total += taken  # each slot that is taken alone is rounded up
        for _ in range(taken):
            assert other.next_slot(now) <= end + total
            other.take(now, 1)
        assert one.latest == pytest.approx(other.latest, abs=total)
        assert (taken < free) or one.next_slot(now) > end - 1


def test_deliveries_are_spaced():
    """Each slot has one message, also when the queue is empty and a consumer waits (QP-90, QP-105)."""
    core = Paced(rate=10)
    core.consume()
    core.publish(3)
    core.turn()
    assert core.bodies() == []
    for body in range(3):
        core.wait(0.05)
        assert core.bodies() == []
        core.wait(0.0501)
        assert core.bodies() == [body]
    core.wait(10)
    core.publish(2, first=3)
    core.turn()
    assert core.bodies() == [3], "a pause saves nothing up but the next slot"


def test_consumer_that_comes_back_gets_no_burst():
    """A consumer that comes back gets no burst for the time in which it was away (QP-100, QP-105)."""
    core = Paced(rate=10)
    core.publish(100)
    core.turn()
    core.wait(60)
    assert core.timers() == {}, "nobody could take a message"
    core.consume()
    core.turn()
    assert core.bodies() == [0]
    core.wait(0.1001)
    assert core.bodies() == [1]


def test_burst_of_the_policy():
    """A policy with `pace-burst` lets that many messages go at once (QP-104)."""
    core = Paced(rate=10, burst=3)
    core.consume()
    core.wait(60)
    core.publish(5)
    core.turn()
    assert core.bodies() == [0, 1, 2]
    core.wait(0.1001)
    assert core.bodies() == [3]


def test_high_rate_needs_few_timers():
    """At 10,000 a second a timer fires every 5 ms, and delivers all that has become due (QP-105)."""
    core = Paced(rate=10_000)
    consumer = core.consume(no_ack=True)
    core.wait(1)
    core.publish(300)
    core.turn()
    core.master.sent(consumer.channel, len(core.bodies()))
    counts = []
    for _ in range(3):
        assert core.effects.timers["pace"] == pytest.approx(0.005, abs=1e-4)
        core.wait(0.005)
        counts.append(len(core.bodies()))
    assert sum(counts) == pytest.approx(150, abs=2)


def test_hold_keeps_everything():
    """With the overflow `hold` the queue keeps messages that would wait too long (QP-102)."""
    core = Paced(rate=10, max_wait_ms=0)
    core.publish(50)
    core.turn()
    assert len(core.backing) == 50
    assert core.master.info()["pace"]["planned_wait_ms"] == pytest.approx(5000, abs=100)


@pytest.mark.parametrize("overflow", ["nack", "drop", "dead-letter"])
def test_messages_that_would_wait_too_long(overflow):
    """A message that would wait too long is treated as the overflow says: at 10 a second the third one would wait for
    300 ms (QP-100, QP-102, QP-104).
    """
    core = Paced(rate=10, max_wait_ms=250, overflow=overflow)
    core.publish(4)
    core.turn()
    assert len(core.backing) == 2
    assert core.master.info()["pace"]["refused_total"] == 2
    refused = [ranges for _, _, ranges, _ in core.sent("refuse")]
    confirmed = [ranges for _, _, ranges in core.sent("confirm")]
    assert refused == ([[(3, 4)]] if overflow == "nack" else [])
    assert [last for ranges in confirmed for _, last in ranges] == ([2] if overflow == "nack" else [4])
    core.wait(0.3)
    core.publish(1, first=9, number=9)
    core.turn()
    assert len(core.backing) == 3, "those that were refused take no time of others"


def test_dead_letters_of_a_paced_queue():
    """Messages that a paced queue refuses become dead letters, if it has a dead-letter exchange (QP-102)."""
    core = Paced(rate=10)
    core.settings = queue_settings(
        Table(),
        {
            "pace-rate": 10,
            "pace-max-wait-ms": 100,
            "pace-overflow": "dead-letter",
            "dead-letter-exchange": "",
            "dead-letter-routing-key": "grave",
        },
    )
    core.apply(core.settings)
    core.grave("grave")
    core.publish(3)
    core.turn()
    assert [bodies for _, bodies in core.buried()] == [[1, 2]]
    assert core.master.dead_letterer.counts.dead["paced"] == 2


def test_requeued_message_is_not_admitted_again():
    """A requeued message is not admitted again, and its delivery takes a slot (QP-103)."""
    core = Paced(rate=10, max_wait_ms=100, overflow="drop")
    consumer = core.consume()
    core.publish(1)
    core.turn()
    core.wait(0.1001)
    assert core.bodies() == [0]
    core.master.settle(consumer.channel, "requeue", [[0]])
    core.turn()
    assert core.bodies() == []
    core.wait(0.1001)
    assert core.bodies() == [0]


def test_purge_lets_the_next_messages_in():
    """A purge makes room, so that the next messages are admitted (QP-103)."""
    core = Paced(rate=1, max_wait_ms=1000, overflow="drop")
    core.publish(1)
    core.turn()
    core.publish(1, first=1, number=2)
    core.turn()
    assert len(core.backing) == 1
    for _ in core.master.purge():
        pass
    core.publish(1, first=2, number=3)
    core.turn()
    assert len(core.backing) == 1


def test_change_of_the_rate_makes_no_burst():
    """A change of the rate lets no burst through (QP-104)."""
    core = Paced(rate=1)
    core.consume()
    core.publish(10)
    core.wait(1.0001)
    assert core.bodies() == [0]
    core.pace(rate=10)
    core.turn()
    core.wait(0.1001)
    assert core.bodies() == [1]


def test_policy_that_ends():
    """When the policy ends, waiting messages are delivered at once."""
    core = Paced(rate=1)
    core.consume()
    core.publish(3)
    core.turn()
    core.settings = queue_settings(Table())
    core.apply(core.settings)
    core.master.release()
    core.turn()
    assert core.bodies() == [0, 1, 2]


def test_queue_begins_slowly_after_a_pause():
    core = Paced(rate=10, warm_up_ms=10_000)
    core.consume(no_ack=True)
    core.wait(60)
    core.publish(20)
    core.turn()
    got = []
    for _ in range(10):
        got += core.bodies()
        core.wait(0.1)
    assert 4 <= len(got) <= 5, "a third of the rate in the first second, and one at once"
    core.pace(rate=10)
    before = len(got)
    for _ in range(5):
        got += core.bodies()
        core.wait(0.1001)
    assert len(got) - before >= 4


def finds(core):
    """Whether basic.get returns a message. A queue in memory answers at once."""
    with pytest.raises(StopIteration) as stop:
        next(core.master.get(None))
    return stop.value.value[0] is not None


@pytest.mark.parametrize("is_paced", [False, True])
def test_pace_of_basic_get(is_paced):
    """With `pace-get`, basic.get finds the queue empty before the next slot, and takes slots that consumers would have
    had.
    """
    core = Paced(rate=10, get=is_paced)
    core.wait(1)
    core.publish(4)
    core.turn()
    assert [finds(core), finds(core)] == [True, not is_paced]
    core.wait(0.05)
    assert finds(core) is not is_paced
    core.wait(0.0501)
    core.consume()
    assert finds(core)
    if is_paced:
        core.turn()
        assert core.bodies() == []
        core.wait(0.1001)
        assert core.bodies() == [2]


def test_planned_wait_knows_of_the_warm_up():
    """The planned wait takes the warm-up into account: at 10 a second, the second message of a cold clock would wait
    for 600 ms.
    """
    core = Paced(rate=10, warm_up_ms=10_000, max_wait_ms=500, overflow="drop")
    core.wait(60)
    core.publish(3)
    core.turn()
    assert core.master.info()["pace"]["refused_total"] == 1
    assert core.master.info()["pace"]["planned_wait_ms"] > 500


def in_group(core, tag, group, **options):
    """Add a consumer of a consumer group, on a channel of its own."""
    return core.consume(f"channel of {tag}", tag, arguments=table_from({"x-consumer-group": group}), **options)


def taken(core):
    """How many messages each consumer has got since the last call."""
    counts = {}
    for tag, bodies in core.delivered():
        counts[tag] = counts.get(tag, 0) + len(bodies)
    return counts


def test_each_group_has_a_clock():
    """Each consumer group has a clock, whose slots its consumers share."""
    core = Paced(rate=10, scope="group")
    for tag, group in (("a1", "a"), ("a2", "a"), ("b", "b")):
        in_group(core, tag, group)
    core.publish(100)
    core.turn()
    total = {}
    for _ in range(10):
        core.wait(0.1001)
        counts = taken(core)
        assert counts.pop("b") == 1 and sum(counts.values()) == 1
        for tag, count in counts.items():
            total[tag] = total.get(tag, 0) + count
    assert sum(total.values()) == 10


def test_each_consumer_has_a_clock():
    core = Paced(rate=10, scope="consumer", burst=2)
    core.consume("one", "a"), core.consume("one", "b"), core.consume("other", "c", no_ack=True)
    core.wait(5)
    core.publish(100)
    core.turn()
    assert taken(core) == {"a": 2, "b": 2, "c": 2}
    core.wait(0.1001)
    assert taken(core) == {"a": 1, "b": 1, "c": 1}


def test_coming_back_makes_no_burst():
    """A consumer that leaves and comes back waits for its next slot."""
    core = Paced(rate=10, scope="consumer")
    core.publish(10)
    for _ in range(5):
        core.consume()
        core.turn()
        assert core.bodies() == []
        core.master.cancel("a channel", "c")


def test_scope_that_changes():
    """When the scope of the pace changes, clocks are made and dropped, and the consumers stay."""
    core = Paced(rate=10, scope="group")
    consumer = core.consume()
    core.publish(10)
    core.turn()
    assert core.bodies() == []
    core.pace(rate=10)
    core.turn()
    assert core.bodies() == []
    core.wait(0.1001)
    assert core.bodies() == [0]
    core.settings = queue_settings(Table())
    core.apply(core.settings)
    core.master.release()
    core.turn()
    assert core.bodies() == list(range(1, 10))
    assert consumer.unacked == 10


@given(
    scope=st.sampled_from(("queue", "group", "consumer")),
    groups=st.lists(st.sampled_from(("a", "b")), min_size=1, max_size=4),
    prefetch=st.integers(0, 3),
    steps=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 4), st.booleans()), max_size=25),
)
@example(scope="group", groups=["a"], prefetch=1, steps=[(0, 3, False)])
def test_no_clock_is_exceeded(scope, groups, prefetch, steps):
    """With publishes, acks and pauses in any order, each clock lets at most one message go in its unit, and all
    messages are delivered in the end.
    """
    core = Paced(rate=10, scope=scope)
    consumers = {
        f"c{number}": in_group(core, f"c{number}", group, prefetch=prefetch) for number, group in enumerate(groups)
    }
    clock_of = {tag: {"queue": "", "group": group, "consumer": tag}[scope] for tag, group in zip(consumers, groups)}
    latest, published, got = {}, 0, []

    def look():
        for tag, bodies in core.delivered():
            got.extend(bodies)
            assert len(bodies) == 1
            assert core.seconds - latest.get(clock_of[tag], 0) > 0.0999
            latest[clock_of[tag]] = core.seconds

    def acknowledge():
        for consumer in consumers.values():
            if consumer.channel.pending:
                core.master.settle(consumer.channel, "ack", [sorted(consumer.channel.pending)])

    for passed, count, acks in steps:
        if count:
            core.publish(count, first=published, number=published + 1)
            published += count
        core.wait(passed / 1000)
        look()
        if acks:
            acknowledge()
            core.turn()
            look()
    for _ in range(2 * published + 2):
        acknowledge()
        core.wait(0.1001)
        look()
    assert sorted(got) == list(range(published))
