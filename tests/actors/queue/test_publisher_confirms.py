"""`PublisherConfirms` does what a dict of single numbers does (AB-111)."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.effects import Effects
from warren.actors.queue.publisher_confirms import PublisherConfirms
from warren.store.messages.parts import split_parts

CHANNELS = {channel_id: SimpleNamespace(address=f"address of {channel_id}") for channel_id in "abc"}

sizes = st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.booleans())
runs = st.tuples(st.just("run"), st.lists(sizes, min_size=1, max_size=4), st.integers(0, 3), st.booleans())
turns = st.tuples(
    st.just("turn"), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 10), st.booleans()), max_size=3)
)
refusals = st.tuples(st.just("refusal"), sizes)


class Turns:
    """The confirms of one queue, collected turn by turn."""

    def __init__(self):
        effects = Effects()
        self.sent = effects.endings
        self.confirms = PublisherConfirms(effects, "q", CHANNELS)

    def collect(self, safe):
        """The confirmed and the refused publish numbers of this turn, by channel."""
        self.sent.clear()
        self.confirms.collect(safe)
        found = {"confirm": {}, "refuse": {}}
        for address, (name, queue_id, ranges, *_) in self.sent:
            assert queue_id == "q"
            numbers = [number for low, high in ranges for number in range(low, high + 1)]
            channel_id = address.rpartition(" ")[2]
            assert channel_id not in found[name], "one message a channel"
            found[name][channel_id] = numbers
        return found["confirm"], found["refuse"]


@given(st.lists(st.one_of(runs, turns, refusals), max_size=50))
@settings(max_examples=150, deadline=None)
def test_confirms_are_those_of_a_dict_of_numbers(steps):
    """Confirms are those that a dict of single numbers gives. The numbers of one queue come in order, and those of a
    priority queue's levels out of order. Some publishes await no confirm, some numbers belong to no publish, and safe
    ranges may overlap.
    """
    queue, model, refused = Turns(), {}, {}
    next_number = {False: 0, True: 1000}  # each of the two levels of a priority queue has numbers of its own
    next_publish = dict.fromkeys("abc", 1)
    for name, *fields in [*steps, ("turn", [(0, 999, False), (0, 999, True)])]:
        if name == "run":
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
            queue.confirms.recent.append((first, number - 1, parts))
            next_number[level] = number
        elif name == "refusal":
            channel_id, count, awaits_confirm = fields[0]
            first = next_publish[channel_id]
            queue.confirms.refused.append((channel_id, first, count, awaits_confirm))
            next_publish[channel_id] += count
            if awaits_confirm:
                refused.setdefault(channel_id, []).extend(range(first, first + count))
        else:
            ranges = [(first + 1000 * level, first + 1000 * level + more) for first, more, level in fields[0]]
            expected = {}
            safe = {number for first, last in ranges for number in range(first, last + 1)}
            for number in sorted(safe & model.keys()):
                channel_id, publish = model.pop(number)
                expected.setdefault(channel_id, []).append(publish)
            confirmed, now_refused = queue.collect(ranges)
            assert {channel_id: sorted(numbers) for channel_id, numbers in confirmed.items()} == {
                channel_id: sorted(numbers) for channel_id, numbers in expected.items()
            }
            assert now_refused == refused
            refused = {}
    assert not model and not len(queue.confirms.awaiting) and not queue.confirms.recent


def test_neighbours_of_one_channel_are_confirmed_as_one_range():
    """Numbers of one channel that follow each other are confirmed as one range, however many runs brought them, so that
    the channel handles one.
    """
    queue = Turns()
    for number in range(0, 30, 3):
        queue.confirms.recent.append((number, number + 2, [("a", number + 1, 2, True), ("b", number + 1, 1, True)]))
    queue.collect([])
    assert len(queue.confirms.awaiting) == 10
    queue.confirms.recent += [(30, 31, [("b", 100, 2, True)]), (32, 33, [("b", 102, 2, True)])]
    queue.collect([(0, 5), (30, 33)])
    ranges = {address: fields[2] for address, fields in queue.sent}
    assert ranges == {"address of a": [(1, 2), (4, 5)], "address of b": [(100, 103), (1, 1), (4, 4)]}


@given(st.lists(st.integers(1, 5), max_size=6), st.data())
def test_the_halves_of_split_parts_have_all_messages_in_order(sizes, data):
    """When parts are split, both halves together have all messages in order with their identities."""
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
