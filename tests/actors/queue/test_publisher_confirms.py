"""`AwaitingConfirms` does what a dict of single numbers does (AB-111)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.publisher_confirms import AwaitingConfirms

publishes = st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 3), st.booleans())
safe = st.tuples(
    st.just("safe"), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 10)), max_size=3), st.booleans()
)
drops = st.tuples(st.just("drop"), st.sampled_from("abc"))


@given(st.lists(st.one_of(publishes, safe, drops), max_size=50))
@settings(max_examples=300, deadline=None)
def test_awaiting_is_a_dict_of_numbers(steps):
    """One queue numbers in order, the levels of a priority queue out of order, and some numbers have no confirm."""
    awaiting, model = AwaitingConfirms(), {}
    next_number = {False: 0, True: 1000}  # two levels of a priority queue number by themselves
    next_publish = dict.fromkeys("abc", 1)
    for name, *fields in steps:
        if name == "add":
            channel_id, count, hole, level = fields
            first = next_number[level] + hole
            number = next_publish[channel_id]
            awaiting.add(range(first, first + count), channel_id, number)
            model.update({first + offset: (channel_id, number + offset) for offset in range(count)})
            next_number[level] = first + count
            next_publish[channel_id] = number + count
        elif name == "safe":
            pairs, level = fields
            ranges = [(first + 1000 * level, first + 1000 * level + more) for first, more in pairs]
            expected: dict[str, list[int]] = {}
            for first, last in ranges:
                for number in range(first, last + 1):
                    if number in model:
                        channel_id, publish = model.pop(number)
                        expected.setdefault(channel_id, []).append(publish)
            found = awaiting.take(ranges)
            assert {
                channel_id: [n for low, high in spans for n in range(low, high + 1)]
                for channel_id, spans in found.items()
            } == expected
        else:
            awaiting.forget_channel(fields[0])
            model = {number: entry for number, entry in model.items() if entry[0] != fields[0]}
    rest = awaiting.take([(0, 5000)])
    assert sum(high - low + 1 for spans in rest.values() for low, high in spans) == len(model)
    assert not len(awaiting)
