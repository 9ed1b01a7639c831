"""Publisher confirms of one channel against a model that keeps a set for every number (AB-110, AB-111, AB-113)."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.channel.publishing.confirms import Confirms, Range, RangeSet

small_ranges = st.tuples(st.integers(1, 40), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


# --- RangeSet ---


def numbers(ranges: Iterable[Range]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


@given(st.lists(st.tuples(st.sampled_from(["add", "discard"]), small_ranges), max_size=40))
@settings(max_examples=150, deadline=None)
def test_a_range_set_is_a_set_of_integers(operations):
    """Ranges stay sorted, disjoint and merged; `discard` returns exactly the integers that were in the set."""
    ranges, model = RangeSet(), set()
    for operation, (first, last) in operations:
        span = set(range(first, last + 1))
        if operation == "add":
            ranges.add(first, last)
            model |= span
        else:
            assert numbers(ranges.discard(first, last)) == sorted(model & span)
            model -= span
        held = list(ranges)
        assert numbers(held) == sorted(model)
        assert all(one[1] + 1 < other[0] for one, other in zip(held, held[1:], strict=False))
        assert (len(ranges), bool(ranges), ranges.smallest) == (len(model), bool(model), min(model, default=None))


# --- Confirms ---


class Model:
    """What a channel must still answer to its client, number by number."""

    def __init__(self) -> None:
        self.next_number = 1
        self.owed: dict[str, set[int]] = {}
        self.waiting: dict[int, set[str]] = {}
        self.acked: set[int] = set()
        self.nacked: set[int] = set()

    def publish(self, count: int, queue_ids: Iterable[str]) -> int:
        first = self.next_number
        self.next_number += count
        for number in range(first, self.next_number):
            if queue_ids:
                self.waiting[number] = set(queue_ids)
            else:
                self.acked.add(number)
            for queue_id in queue_ids:
                self.owed.setdefault(queue_id, set()).add(number)
        return first

    def settle(self, queue_id: str, span: Iterable[int], refused: bool) -> None:
        owed = self.owed.get(queue_id, set())
        for number in owed & set(span):
            owed.discard(number)
            waiting_for = self.waiting.get(number)
            if waiting_for is None:
                continue
            waiting_for.discard(queue_id)
            if refused:
                self.nacked.add(number)
            elif not waiting_for:
                self.acked.add(number)
            if refused or not waiting_for:
                del self.waiting[number]

    def flush(self) -> tuple[list[tuple[int, bool]], list[tuple[int, bool]]]:
        acked, nacked = sorted(self.acked), sorted(self.nacked)
        self.acked, self.nacked = set(), set()
        return self.group(acked, nacked), self.group(nacked, acked)

    def group(self, mine: list[int], others: list[int]) -> list[tuple[int, bool]]:
        """Group the answers as AB-113 states it."""
        if len(mine) == 1:
            return [(mine[0], False)]
        cut = min([*self.waiting, *others], default=self.next_number)
        below = [number for number in mine if number < cut]
        return [(max(below), True) for _ in below[:1]] + [(number, False) for number in mine if number >= cut]


class Client:
    """A publisher that expects exactly one outcome for each number."""

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.received: dict[int, str] = {}

    def hear(self, outcome: str, tag: int, multiple: bool) -> None:
        covered = {number for number in self.outstanding if number <= tag} if multiple else {tag}
        assert covered and covered <= self.outstanding, (outcome, tag, multiple)
        self.outstanding -= covered
        self.received.update(dict.fromkeys(covered, outcome))


queues = st.sampled_from("abc")
operations = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 6), st.lists(queues, unique=True)),
    st.tuples(st.just("confirm"), queues, st.lists(small_ranges, max_size=3)),
    st.tuples(st.just("refuse"), queues, st.lists(small_ranges, max_size=2)),
    st.tuples(st.just("gone"), queues, st.booleans()),
    st.tuples(st.just("flush"), st.none(), st.none()),
)


@given(st.integers(0, 3), st.lists(operations, max_size=40))
@settings(max_examples=200, deadline=None)
def test_every_number_is_sent_once_with_the_outcome_of_all_its_queues(uncounted, steps):
    """Every number is answered once, with the combined outcome of its queues: fan-out, refusals, crashes and deletions
    in any order, flushed at any time (AB-110, AB-111, AB-113).

    The client does not count what it published before it selected confirms.
    """
    confirms, model, client = Confirms(), Model(), Client()
    confirms.next_number += uncounted
    confirms.begin()
    outcomes: dict[int, str] = {}

    def flush() -> None:
        outcomes.update(dict.fromkeys(model.acked, "ack") | dict.fromkeys(model.nacked, "nack"))
        assert confirms.has_settled == bool(model.acked or model.nacked)
        acks, nacks = confirms.flush()
        assert (acks, nacks) == model.flush()
        for tag, multiple in acks:
            client.hear("ack", tag, multiple)
        for tag, multiple in nacks:
            client.hear("nack", tag, multiple)
        assert not confirms.has_settled

    for name, subject, detail in steps:
        if name == "publish":
            first = confirms.publish(subject, detail)
            first_tag = model.publish(subject, detail)
            assert first == first_tag + uncounted
            client.outstanding |= set(range(first_tag, first_tag + subject))
        elif name == "gone":
            # A deleted queue confirms the publishes that it still had to answer, and a crashed one refuses them.
            confirms.queue_gone(subject, is_crashed=detail)
            model.settle(subject, list(model.owed.get(subject, ())), refused=detail)
        elif name == "flush":
            flush()
        else:
            numbered = [(low + uncounted, high + uncounted) for low, high in detail]
            (confirms.confirm if name == "confirm" else confirms.refuse)(subject, numbered)
            for span in detail:
                model.settle(subject, numbers([span]), refused=name == "refuse")
        assert len(confirms) == len(model.waiting)
    for queue_id in "abc":
        confirms.queue_gone(queue_id, is_crashed=False)
        model.settle(queue_id, list(model.owed.get(queue_id, ())), refused=False)
    flush()
    assert client.received == outcomes and not client.outstanding
    assert not confirms._fan_out and not confirms._by_queue, "numbers that were sent are still kept"


def test_a_run_to_many_queues_is_counted_as_one_stretch_that_only_a_partial_confirm_cuts():
    """A run is counted as a whole, and split only where a queue confirms a part of it: 100 messages to 20,000 queues
    would take two million steps if each were counted by itself.
    """
    confirms, ids = Confirms(), [f"q{number}" for number in range(50)]
    assert confirms.publish(100, ids) == 1
    assert confirms.publish(100, ids) == 101
    stretches = confirms._fan_out.stretches
    for queue_id in ids[1:-1]:
        confirms.confirm(queue_id, [(1, 200)])
    assert list(stretches) == [1, 101]
    confirms.confirm(ids[0], [(41, 60)])
    assert sorted(stretches) == [1, 41, 61, 101]
    confirms.confirm(ids[-1], [(1, 200)])
    assert confirms.flush() == ([(number, False) for number in range(41, 61)], [])
    confirms.confirm(ids[0], [(1, 200)])
    assert confirms.flush() == ([(200, True)], [])
    assert not stretches and not confirms._fan_out._starts


def test_one_ack_alone_is_not_multiple():
    """An ack for a single number does not have `multiple` set, even if all numbers before it have been answered
    (AB-113).
    """
    confirms = Confirms()
    confirms.publish(1, [])
    assert confirms.flush() == ([(1, False)], [])


def test_a_multiple_stops_before_the_other_outcome():
    """Acks below the first nack are sent as one multiple; acks after it are sent one by one (AB-113)."""
    confirms = Confirms()
    confirms.publish(6, ["a"])
    confirms.refuse("a", [(3, 3)])
    confirms.confirm("a", [(1, 2), (4, 6)])
    assert confirms.flush() == ([(2, True), (4, False), (5, False), (6, False)], [(3, False)])


def test_one_refusal_decides_whatever_the_others_say():
    """The first refusal of a queue sends the nack at once, and later confirms of other queues send nothing (AB-111)."""
    confirms = Confirms()
    confirms.publish(2, ["a", "b"])
    confirms.refuse("a", [(1, 2)])
    assert confirms.flush() == ([], [(2, True)])
    confirms.confirm("b", [(1, 2)])
    assert confirms.flush() == ([], []) and not len(confirms)


def test_a_crashed_queue_refuses_and_a_deleted_one_confirms():
    """A queue that crashes refuses its unanswered publishes, and a queue that is deleted confirms them (AB-111)."""
    confirms = Confirms()
    confirms.publish(1, ["a"])
    confirms.publish(1, ["b"])
    confirms.queue_gone("a", is_crashed=True)
    confirms.queue_gone("b", is_crashed=False)
    assert confirms.flush() == ([(2, False)], [(1, False)])
