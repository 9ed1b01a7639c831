"""The clock of a pace group, from which queues lease slots, on virtual time."""

from hypothesis import given
from hypothesis import strategies as st

from warren.actors.pace.pace_clock import MILLISECOND as MS
from warren.actors.pace.pace_clock import SECOND, Pace
from warren.actors.pace.shared_clock import HORIZON, LeasedSlots, SharedClock


def pace(rate, burst=1):
    return Pace(SECOND // rate, (burst - 1) * (SECOND // rate), 0)


def serve(clock, now):
    """The leases that are due. As in `Pacer`, each is sent with the number of queues that share the rate."""
    found = []
    for queue, lease in clock.leases(now):
        assert clock.sharers(now) >= len({queue, *clock._waiting})
        found.append((queue, lease))
    return found


def slots(lease):
    return [lease.slot(number) for number in range(lease.slots)]


def test_slots_come_ahead_but_not_further_than_the_horizon():
    """At 100 a second a queue with many messages gets the slots of the next 100 ms, evenly spaced."""
    clock = SharedClock(0)
    clock.request("a", pace(100), 1000, 0, SECOND)
    [(queue, lease)] = serve(clock, SECOND)
    assert queue == "a"
    assert slots(lease) == [SECOND + number * 10 * MS for number in range(10)]
    clock.request("a", pace(100), 1000, 0, SECOND)
    assert serve(clock, SECOND) == []
    assert clock.next_lease(SECOND) == SECOND + 40 * MS, "as soon as there are slots for half of the horizon"
    assert serve(clock, clock.next_lease(SECOND))


def test_a_new_clock_begins_behind_the_leases_of_the_one_before():
    clock = SharedClock(0)
    clock.request("a", pace(100), 1, 0, 0)
    [(_, lease)] = serve(clock, 10 * MS)
    assert lease.first == HORIZON + 10 * MS


def test_a_slow_clock_serves_those_that_wait_in_order():
    """A clock with one slot in ten seconds gives each queue one slot, in the order of the requests."""
    clock, slow = SharedClock(0), Pace(10 * SECOND, 0, 0)
    served, now = [], 60 * SECOND
    for queue in "abc":
        clock.request(queue, slow, 5, 0, now)
    for _ in range(6):
        now = max(now, clock.next_lease(now))
        for queue, lease in serve(clock, now):
            assert lease.slots == 1
            served.append((queue, lease.first // SECOND))
            clock.request(queue, slow, 5, 0, now)
    assert served == [("a", 60), ("b", 70), ("c", 80), ("a", 90), ("b", 100), ("c", 110)]


def test_the_newest_slots_come_back_without_loss():
    clock = SharedClock(0)
    clock.request("a", pace(10), 5, 0, SECOND)
    [(_, lease)] = serve(clock, SECOND)
    clock.give_back("a", lease, 0)
    clock.request("b", pace(10), 1, 0, SECOND)
    assert serve(clock, SECOND)[0][1].first == lease.first


def test_other_slots_go_to_the_next_queue():
    clock = SharedClock(0)
    clock.request("a", pace(100), 3, 0, SECOND)
    [(_, first)] = serve(clock, SECOND)
    clock.request("b", pace(100), 3, 0, SECOND)
    serve(clock, SECOND)
    clock.give_back("a", first, 0)
    clock.request("c", pace(100), 2, 0, SECOND)
    [(queue, lease)] = serve(clock, SECOND)
    assert queue == "c" and slots(lease) == slots(first)[:2]
    clock.request("c", pace(100), 2, 0, SECOND)
    assert serve(clock, SECOND)[0][1].first == first.last


def test_slots_that_nobody_can_use_in_time_are_lost():
    clock = SharedClock(0)
    for queue in "ab":
        clock.request(queue, pace(100), 3, 0, SECOND)
    (_, first), (_, second) = serve(clock, SECOND)
    clock.give_back("a", first, 0)
    clock.request("a", pace(100), 3, 0, 2 * SECOND)
    assert serve(clock, 2 * SECOND)[0][1].first == 2 * SECOND


def test_slots_that_were_used_without_a_lease_are_paid_for():
    """A message that needs more slots than were leased uses later slots of the clock: a message of 8 KiB may take eight
    when one was leased.
    """
    clock = SharedClock(0)
    clock.request("a", pace(10), 1, 0, SECOND)
    [(_, lease)] = serve(clock, SECOND)
    clock.give_back("a", LeasedSlots(0, 0, 0), 7)
    clock.request("b", pace(10), 1, 0, SECOND)
    assert clock.next_lease(SECOND) + HORIZON == lease.first + 8 * SECOND // 10


def test_queues_that_ask_or_wait_count_as_sharers():
    clock = SharedClock(0)
    for queue in "abcab":
        clock.request(queue, pace(10), 1, 0, SECOND)
    assert clock.sharers(SECOND) == clock.sharers(3 * SECOND) == 3, "they still wait"
    while clock.next_lease(3 * SECOND) is not None:
        serve(clock, max(3 * SECOND, clock.next_lease(3 * SECOND)))
    clock.request("a", pace(10), 1, 0, 5 * SECOND)
    assert clock.sharers(5 * SECOND) == 1


STEPS = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from("abc"), st.integers(1, 30), st.integers(0, 30)), max_size=40
)


@given(rate=st.sampled_from((1, 7, 100, 1000)), burst=st.integers(1, 3), steps=STEPS)
def test_the_rate_is_never_exceeded(rate, burst, steps):
    """Whatever queues request and give back, the slots that they keep never exceed the rate in any period, and every
    request is served in the end.
    """
    clock, kept, now = SharedClock(0), [], 10 * SECOND
    unit = SECOND // rate

    def take(returned=0):
        for queue, lease in serve(clock, now):
            assert lease.last <= now + HORIZON
            if 0 < returned < lease.slots:
                lease, unused = lease.split(lease.slots - returned)
                clock.give_back(queue, unused, 0)
            elif returned:
                clock.give_back(queue, lease, 0)
                continue
            # A slot whose time has passed is used now.
            kept.extend(max(slot, now) for slot in slots(lease))

    for passed, queue, wanted, returned in steps:
        now += passed * MS
        clock.request(queue, pace(rate, burst), wanted, 0, now)
        take(returned)
    for _ in range(4):
        following = clock.next_lease(now)
        if following is not None:
            now = max(now, following)
            take()
    assert clock.next_lease(now) is None
    kept.sort()
    for at, start in enumerate(kept):
        for more, end in enumerate(kept[at:]):
            assert more + 1 <= (end - start) // unit + burst + 1


@given(slots_of=st.integers(1, 50), at=st.integers(1, 49), first=st.integers(0, 10**9), span=st.integers(0, 10**9))
def test_a_lease_is_split_where_its_slots_are(slots_of, at, first, span):
    lease = LeasedSlots(first, first + (span if slots_of > 1 else 0), slots_of)
    if at < slots_of:
        one, other = lease.split(at)
        assert (one.slots, other.slots) == (at, slots_of - at)
        assert one.first == lease.first and other.last == lease.last
        assert one.last == lease.slot(at - 1) and other.first == lease.slot(at)
