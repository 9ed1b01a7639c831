"""The orders in which messages are handed over, for arrivals in any order that the shards allow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from warren.sharding.choosing import shard_of_key
from warren.sharding.hand_over import Relaxed, Skip, Strict


def take_all(order):
    found = []
    while (handed_over := order.take()) is not None:
        found.append(handed_over)
    return found


def interleaved(shards, draw):
    """The numbers of all shards, those of each shard in order, merged in an order that Hypothesis draws."""
    left = [list(numbers) for numbers in shards]
    merged = []
    while any(left):
        shard = draw(st.sampled_from([at for at, numbers in enumerate(left) if numbers]))
        merged.append((shard, left[shard].pop(0)))
    return merged


@given(st.data(), st.integers(1, 5), st.integers(0, 25))
def test_strict_order_restores_the_numbers_of_each_publisher(data, count, messages):
    """Strict order hands over the messages of each publisher in the order of their numbers (FC-80, FC-81)."""
    publishers = ["a", "b"]
    shards = [[(p, n) for n in range(messages) if n % count == at for p in publishers] for at in range(count)]
    order = Strict(count)
    found = []
    for shard, (publisher, number) in interleaved(shards, data.draw):
        order.arrived(shard, publisher, number, (publisher, number))
        found += take_all(order)
    assert not order.is_held_up
    for publisher in publishers:
        assert [h.item[1] for h in found if h.item[0] == publisher] == list(range(messages))
    assert not any(h.is_late or h.skip for h in found)


@given(st.data(), st.integers(1, 4), st.sets(st.integers(0, 30)))
def test_strict_order_passes_and_reports_missing_numbers(data, count, present):
    """Whatever numbers are missing, strict order hands over everything that arrives in ascending order, and reports the
    gaps exactly (FC-81).
    """
    shards = [sorted(n for n in present if n % count == at) for at in range(count)]
    order = Strict(count)
    found = []
    for shard, number in interleaved(shards, data.draw):
        order.arrived(shard, "p", number, number)
        found += take_all(order)
    while order.is_held_up:
        order.give_up(order.gaps())
        found += take_all(order)
    in_time = [h.item for h in found if not h.is_late]
    assert in_time == sorted(present)
    missing = set(range(max(present, default=-1) + 1)) - present
    reported = [n for h in found if h.skip for n in range(h.skip.first, h.skip.last + 1)]
    assert sorted(reported) == sorted(missing)


def test_a_number_that_cannot_come_any_more_is_skipped_without_the_timeout():
    """A number that cannot come any more is skipped before the timeout (FC-81)."""
    order = Strict(2)
    order.arrived(0, "p", 2, 2)  # 0 stood before 2 in shard 0, so it cannot come any more
    assert order.take() is None  # 1 may still come
    order.arrived(1, "p", 1, 1)
    first, second = take_all(order)
    assert (first.item, first.skip) == (1, Skip("p", 0, 0))
    assert (second.item, second.skip) == (2, None)


def test_large_numbers_are_passed_at_once():
    order = Strict(2)
    for number in (10**15, 10**15 + 1):
        order.arrived(number % 2, "p", number, number)
    assert [h.item for h in take_all(order)] == [10**15, 10**15 + 1]


def test_a_redelivery_is_handed_over_at_once_and_flagged():
    """A redelivered message is handed over at once, and flagged (FC-81)."""
    order = Strict(2)
    order.arrived(0, "p", 0, "first")
    assert [h.item for h in take_all(order)] == ["first"]
    order.arrived(0, "p", 0, "again")
    (again,) = take_all(order)
    assert again.item == "again" and again.is_late


def test_what_a_lost_channel_had_delivered_is_forgotten_and_comes_again_in_its_turn():
    order = Strict(2)
    order.arrived(1, "p", 1, "lost")
    order.drop(1)
    order.arrived(0, "p", 0, 0)
    order.arrived(1, "p", 1, 1)
    assert [(h.item, h.is_late) for h in take_all(order)] == [(0, False), (1, False)]


def test_messages_of_other_programs_do_not_wait():
    order = Strict(2)
    order.arrived(1, None, None, "foreign")
    order.arrived(0, "p", 5, "other number of shards")  # 5 belongs to shard 1 of 2
    assert {h.item for h in take_all(order)} == {"foreign", "other number of shards"}


@given(st.lists(st.integers(0, 3), max_size=40))
def test_relaxed_order_keeps_the_order_of_each_shard_and_starves_none(arrivals):
    """Relaxed order keeps the order of each shard and starves none (FC-80)."""
    order = Relaxed(4)
    for at, shard in enumerate(arrivals):
        order.arrived(shard, None, None, at)
    found = take_all(order)
    for shard in range(4):
        assert [h.item for h in found if h.shard == shard] == [at for at, s in enumerate(arrivals) if s == shard]
    left = Counter(arrivals)
    since: Counter = Counter()
    for handed_over in found:
        since.update(left.keys() - {handed_over.shard})
        since[handed_over.shard] = 0
        left[handed_over.shard] -= 1
        left = +left
        assert all(since[shard] < 4 for shard in left), "a shard with messages waited for a whole rotation"


def test_a_key_has_the_same_shard_everywhere():
    """A key has the same shard on every machine and in every version (FC-74)."""
    assert [shard_of_key(key, 4) for key in ("a", b"a", "b", "customer-17")] == [3, 3, 1, 1]
    assert {shard_of_key(str(n), 8) for n in range(200)} == set(range(8))
