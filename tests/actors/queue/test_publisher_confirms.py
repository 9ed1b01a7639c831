"""`AwaitingConfirms` does what a dict of single numbers does (AB-111)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.publisher_confirms import AwaitingConfirms
from warren.store.messages.parts import split_parts

sizes = st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.booleans())
runs = st.tuples(st.just("add"), st.lists(sizes, min_size=1, max_size=4), st.integers(0, 3), st.booleans())
safe = st.tuples(
    st.just("safe"), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 10)), max_size=3), st.booleans()
)


@given(st.lists(st.one_of(runs, safe), max_size=50))
@settings(max_examples=300, deadline=None)
def test_awaiting_is_a_dict_of_numbers(steps):
    """One queue numbers in order, the levels of a priority queue out of order. Some publishes await no confirm, and the
    queue gives numbers to messages that are never added.
    """
    awaiting, model = AwaitingConfirms(), {}
    next_number = {False: 0, True: 1000}  # two levels of a priority queue number by themselves
    next_publish = dict.fromkeys("abc", 1)
    for name, *fields in steps:
        if name == "add":
            publishers, hole, level = fields
            first = number = next_number[level] + hole
            parts = []
            for channel_id, count, awaits_confirm in publishers:
                publish = next_publish[channel_id]
                parts.append((channel_id, publish, count, awaits_confirm))
                for offset in range(count if awaits_confirm else 0):
                    model[number + offset] = channel_id, publish + offset
                next_publish[channel_id] += count
                number += count
            awaiting.add(range(first, number), parts)
            next_number[level] = number
        else:
            pairs, level = fields
            ranges = [(first + 1000 * level, first + 1000 * level + more) for first, more in pairs]
            expected: dict[str, list[int]] = {}
            for first, last in ranges:
                for number in range(first, last + 1):
                    if number in model:
                        channel_id, publish = model.pop(number)
                        expected.setdefault(channel_id, []).append(publish)
            assert publish_numbers(awaiting.take(ranges)) == expected
    rest = awaiting.take([(0, 5000)])
    assert sum(map(len, publish_numbers(rest).values())) == len(model)
    assert not len(awaiting)


def publish_numbers(ranges_by_channel):
    return {
        channel_id: [number for low, high in ranges for number in range(low, high + 1)]
        for channel_id, ranges in ranges_by_channel.items()
    }


def test_neighbours_of_one_channel_are_confirmed_as_one_range():
    """However many runs brought them: the channel handles one range, not one for each run."""
    awaiting = AwaitingConfirms()
    for number in range(0, 30, 3):
        awaiting.add(range(number, number + 3), [("a", number + 1, 2, True), ("b", number + 1, 1, True)])
        assert len(awaiting) == number // 3 + 1
    awaiting.add(range(30, 32), [("b", 100, 2, True)])
    awaiting.add(range(32, 34), [("b", 102, 2, True)])
    found = awaiting.take([(0, 5), (30, 33)])
    assert found == {"a": [(1, 2), (4, 5)], "b": [(1, 1), (4, 4), (100, 103)]}


@given(st.lists(st.integers(1, 5), max_size=6), st.data())
def test_the_halves_of_split_parts_have_all_messages_in_order(sizes, data):
    """Splitting keeps the identity of every message."""
    parts, first = [], 1
    for at, size in enumerate(sizes):
        parts.append((f"c{at % 2}", first, size, at % 3 > 0))
        first += size
    count = data.draw(st.integers(0, sum(sizes)))
    head, rest = split_parts(parts, count)
    identities = [each(part) for part in parts]
    assert sum([each(part) for part in head], []) == sum(identities, [])[:count]
    assert sum([each(part) for part in rest], []) == sum(identities, [])[count:]


def each(part):
    channel_id, first, count, awaits_confirm = part
    return [(channel_id, number, awaits_confirm) for number in range(first, first + count)]
