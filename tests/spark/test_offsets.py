"""Offsets, shares, partitions and losses are as promised, for any history of a queue."""

import json

import hypothesis.strategies as st
from hypothesis import given

from warren.spark.reading.offsets import (
    QueueRange,
    QueueState,
    cut_pieces,
    cut_range,
    first_number,
    loss,
    make_offset,
    place_of,
    plan,
    pour,
    ranges,
    share,
    without_gaps,
)
from warren.store.messages.lives import Gap

NAMES = st.sampled_from(["a", "b", "c", "d"])
AMOUNTS = st.dictionaries(NAMES, st.integers(0, 1000), max_size=4)


@given(AMOUNTS, st.integers(1, 2000))
def test_shares_stay_within_the_budget_and_starve_nobody(available, budget):
    shares = pour(available, budget)
    assert shares.keys() == available.keys()
    assert all(0 <= shares[name] <= has for name, has in available.items())
    busy = [name for name, has in available.items() if has]
    assert all(shares[name] for name in busy)
    assert sum(shares.values()) == min(sum(available.values()), max(budget, len(busy)))


@given(AMOUNTS, st.integers(1, 2000))
def test_a_queue_that_gets_less_than_it_has_gets_no_less_than_any_other(available, budget):
    shares = pour(available, budget)
    for name in available:
        if shares[name] < available[name]:
            assert all(shares[name] >= other - 1 for other in shares.values())


def test_the_budget_in_bytes_is_planned_by_average_sizes():
    states = {
        name: QueueState(name, 0, 1000, messages=10, message_bytes=10 * size) for name, size in (("a", 10), ("b", 1000))
    }
    ends = share(states, {"a": 0, "b": 0}, None, 20_000)
    assert ends["a"] == 1000 and 1 <= ends["b"] <= 10
    assert share(states, {"a": 1000, "b": 999}, 5, 20_000) == {"a": 1000, "b": 1000}


def test_numbers_in_a_gap_take_nothing_of_the_budget():
    """After a failover a queue leaves out a million numbers, through which a stream with a limit of 2,000 messages took
    524 micro-batches without any message.
    """
    states = {"a": QueueState("a", 0, 1_061_576, life=1, gaps=(Gap(10_000, 1_058_576, 1),))}
    assert share(states, {"a": 8_000}, 2_000, None) == {"a": 10_000}
    assert share(states, {"a": 9_000}, 2_000, None) == {"a": 1_059_576}
    assert share(states, {"a": 10_000}, 5_000, None) == {"a": 1_061_576}
    only_gap = {"a": QueueState("a", 0, 1_058_576, life=1, gaps=(Gap(10_000, 1_058_576, 1),))}
    assert share(only_gap, {"a": 10_000}, 2_000, None) == {"a": 1_058_576}


@given(
    st.dictionaries(NAMES, st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=5), max_size=3),
    st.integers(0, 50),
    st.integers(1, 60),
)
def test_a_micro_batch_has_as_many_numbers_outside_gaps_as_its_budget_allows(gaps, start, budget):
    states = {
        name: QueueState(name, 0, 100, life=1, gaps=tuple(Gap(first, first + size, 1) for first, size in found))
        for name, found in gaps.items()
    }
    starts = dict.fromkeys(states, start)
    ends = share(states, starts, budget, None)
    numbers = {name: sum(map(len, without_gaps(start, ends[name], state.gaps, 1))) for name, state in states.items()}
    waiting = {name: sum(map(len, without_gaps(start, 100, state.gaps, 1))) for name, state in states.items()}
    assert numbers == pour(waiting, budget)
    assert all(ends[name] >= 100 for name in states if numbers[name] == waiting[name])


@given(st.integers(1, 5000), st.integers(1, 100_000), st.integers(1, 3000))
def test_a_budget_in_bytes_that_is_not_reached_takes_nothing_away(messages, size, wanted):
    states = {"a": QueueState("a", 0, 3000, messages=messages, message_bytes=size)}
    assert share(states, {"a": 0}, wanted, 1 << 40) == {"a": wanted}


@given(st.integers(0, 1 << 40), st.integers(0, 200_000), st.integers(1, 50_000))
def test_cuts_cover_a_range_once_in_pieces_of_at_most_the_cut(first, count, cut):
    spans = cut_range(range(first, first + count), cut)
    assert [number for span in spans for number in (span.start, span.stop)] == sorted(
        number for span in spans for number in (span.start, span.stop)
    )
    assert sum(map(len, spans)) == count
    assert all(0 < len(span) <= cut for span in spans)
    assert all(one.stop == other.start for one, other in zip(spans, spans[1:]))


@st.composite
def gap_lists(draw):
    at, found = 0, []
    for life in range(draw(st.integers(0, 5))):
        at += draw(st.integers(0, 500))
        size = draw(st.integers(1, 500))
        found.append(Gap(at, at + size, life))
        at += size
    return found


@given(
    gap_lists(), st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 5), st.integers(1, 700), st.integers(1, 6)
)
def test_pieces_cover_a_range_less_its_known_gaps_and_nothing_else(gaps, first, count, life, cut, least):
    parts = without_gaps(first, first + count, gaps, life)
    expected = set(range(first, first + count)) - {
        number for gap in gaps if gap.life <= life for number in range(gap.first, gap.next)
    }
    pieces = cut_pieces([QueueRange("q", part.start, part.stop, "id", life) for part in parts], cut, least)
    numbers = [number for piece in pieces for number in range(piece.first, piece.next)]
    assert numbers == sorted(expected)
    assert all(piece.next - piece.first <= cut for piece in pieces)


@given(gap_lists(), st.integers(0, 1000), st.integers(0, 2000), st.integers(0, 5))
def test_two_offsets_give_the_same_partitions_after_json_and_without_the_broker(gaps, first, count, life):
    state = QueueState("q", 0, first + count, "id", life, tuple(gaps))
    start = make_offset({"q": place_of(state, first, first)}, 1, 100)
    end = make_offset({"q": place_of(state, first + count, first)}, 2, 100)
    planned = plan(start, end, 2)
    assert plan(json.loads(json.dumps(start)), json.loads(json.dumps(end)), 2) == planned
    assert sum(piece.next - piece.first for piece in planned) == sum(
        map(len, without_gaps(first, first + count, gaps, life))
    )


def test_the_end_of_the_first_micro_batch_says_where_it_began():
    """The end of the first micro-batch contains where it began: after a crash Spark asks for the first offset again,
    and the head of the queue may have moved since.
    """
    place = {"id": "i", "life": 0}
    end = make_offset({"q": place | {"next": 10}}, 0, 100) | {"from": {"q": place | {"next": 3}}}
    asked_again = make_offset({"q": place | {"next": 8}}, 0, 100)
    assert ranges(asked_again, end) == {"q": range(3, 10)}


def test_a_queue_declared_again_is_read_from_its_own_beginning():
    start = make_offset({"q": {"id": "old", "life": 0, "next": 50}}, 0, 100)
    end = make_offset(
        {"q": {"id": "new", "life": 0, "next": 7, "begin": 2}, "r": {"id": "r", "life": 0, "next": 4}}, 0, 9
    )
    assert ranges(start, end) == {"q": range(2, 7), "r": range(0, 4)}


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), gap_lists())
def test_loss_is_what_is_below_the_first_number_and_was_given(read_to, first, more, gaps):
    state = QueueState("q", first, first + more, "id", 9, tuple(gaps))
    place = {"id": "id", "life": 9, "next": read_to}
    found = loss("q", place, state)
    in_gaps = {number for gap in gaps for number in range(gap.first, gap.next)}
    if state.next < read_to:
        assert found.kind == "went_back"
    else:
        gone = [number for number in range(read_to, first) if number not in in_gaps]
        assert (found is None) == (not gone)
        if gone:
            assert (found.kind, found.first, found.next) == ("below_first", gone[0], gone[-1] + 1)


def test_a_queue_that_is_another_one_or_none_is_lost():
    place = {"id": "old", "life": 0, "next": 5}
    assert loss("q", place, QueueState("q", 0, 9, "new")).kind == "other_queue"
    assert loss("q", place, None).kind == "deleted"
    assert loss("q", place, QueueState("q", 0, 9)) is None  # a broker that gives queues no ids


def test_starting_offsets():
    state = QueueState("q", 100, 200)
    places = {"earliest": 100, "latest": 200}
    assert {wanted: first_number(state, wanted) for wanted in places} == places
    assert first_number(state, {"q": 120}) == 120
    assert first_number(state, {"q": -30}) == 170
    assert first_number(state, {"other": 1}) == 100
    assert first_number(state, {"q": 9999}) == 200
