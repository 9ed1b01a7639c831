"""What a channel retains of publishes to mirrored queues until they are answered (CL-96)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.channel.publishing import retained as module
from warren.actors.channel.publishing.range_set import RangeSet
from warren.actors.channel.publishing.retained import MESSAGE_BYTES, RetainedPublishes
from warren.actors.context.retained_bytes import RetainedBytes
from warren.amqp.frames import build_content
from warren.store.messages.message import Origin

ORIGIN = Origin("", ("q",), True)
BODY = 72
SIZE = BODY + MESSAGE_BYTES


def entry(first: int, count: int = 1):
    """A run of messages; the body of each is its publish number."""
    contents = [
        build_content(1, b"\0\0", b"%d" % number + bytes(BODY - len(str(number))), 0)
        for number in range(first, first + count)
    ]
    return ORIGIN, contents, BODY * count, first, True, 7


def numbers(entries) -> list[int]:
    return [number for each in entries for number in range(each[3], each[3] + len(each[1]))]


def everything() -> RangeSet:
    return RangeSet((0, 1 << 40))


def test_what_is_answered_is_forgotten():
    of_node = RetainedBytes()
    kept = RetainedPublishes(1 << 20, of_node)
    kept.keep("q", entry(1, 3))
    kept.keep("other", entry(4))
    kept.keep("q", entry(5))
    kept.answered("q", 3)
    assert numbers(kept.of("q", everything())) == [1, 2, 3, 5], "number 3 of the first run is owed"
    kept.answered("q", 4)
    assert numbers(kept.of("q", everything())) == [5] and numbers(kept.of("other", everything())) == [4]
    assert of_node.count == 2 * SIZE
    kept.forget_all()
    assert of_node.count == 0 and not kept


def test_a_part_of_a_run_is_published_again_under_its_numbers():
    kept = RetainedPublishes(1 << 20, RetainedBytes())
    kept.keep("q", entry(10, 6))
    first, last = kept.of("q", RangeSet((0, 11), (14, 14)))
    whole = entry(10, 6)[1]
    assert first == (ORIGIN, whole[:2], 2 * BODY, 10, True, 0)
    assert last == (ORIGIN, whole[4:5], BODY, 14, True, 0)


def test_the_oldest_publishes_go_first_when_a_channel_has_too_many():
    kept = RetainedPublishes(3 * SIZE, RetainedBytes())
    for number, queue in enumerate("abab", 1):
        kept.keep(queue, entry(number))
    assert numbers(kept.of("a", everything())) == [3] and numbers(kept.of("b", everything())) == [2, 4]
    kept.keep("a", entry(5, 4))
    assert not kept, "a run that is larger than the limit leaves nothing"


def test_a_limit_of_zero_retains_nothing():
    kept = RetainedPublishes(0, RetainedBytes())
    kept.keep("q", entry(1))
    assert not kept


def test_all_channels_of_a_node_have_a_limit_together(monkeypatch):
    monkeypatch.setattr(module, "NODE_BYTES", 4 * SIZE)
    of_node = RetainedBytes()
    one, other = RetainedPublishes(1 << 20, of_node), RetainedPublishes(1 << 20, of_node)
    one.keep("q", entry(1, 3))
    for number in range(1, 4):
        other.keep("q", entry(number))
    assert of_node.count <= 4 * SIZE and numbers(other.of("q", everything())) == [3]
    one.forget_all()
    assert of_node.count == SIZE


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("keep"), st.sampled_from("ab"), st.integers(1, 3)),
            st.tuples(st.just("answered"), st.sampled_from("ab"), st.integers(0, 30)),
        )
    ),
    st.integers(0, 12),
)
def test_it_has_the_newest_of_what_is_owed(plan, most):
    """The retained entries are the newest of all unanswered entries, up to the limit."""
    of_node = RetainedBytes()
    kept, model, following = RetainedPublishes(most * SIZE, of_node), [], 1
    for name, queue, number in plan:
        if name == "keep":
            kept.keep(queue, entry(following, number))
            model.append((queue, entry(following, number)))
            following += number
            while sum(len(each[1]) for _, each in model) > most:
                model.pop(0)
        else:
            kept.answered(queue, number)
            model = [(q, each) for q, each in model if q != queue or each[3] + len(each[1]) > number]
        for name in "ab":
            assert numbers(kept.of(name, everything())) == numbers(each for q, each in model if q == name)
        assert of_node.count == SIZE * sum(len(each[1]) for _, each in model)


@pytest.mark.parametrize(
    ("first", "last", "found"), [(0, 1, []), (2, 9, [(2, 3), (6, 9)]), (3, 6, [(3, 3), (6, 6)]), (4, 5, [])]
)
def test_the_part_of_a_set_within_a_range(first, last, found):
    assert RangeSet((2, 3), (6, 12)).within(first, last) == found
