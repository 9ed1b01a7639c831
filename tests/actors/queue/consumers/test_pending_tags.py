"""The ack tags of a channel behave as in one dict, but are kept in several small ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.queue.consumers import pending_tags
from warren.actors.queue.consumers.pending_tags import NOT_PENDING, PendingTags

#: Tags of several pages of 16, and of a queue with priorities, which begin at 7 << 56.
TAGS = st.integers(0, 80) | st.integers(7 << 56, (7 << 56) + 20)


@pytest.fixture(scope="module")
def small_pages():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_tags, "RECENT_TAGS", 8)
        patch.setattr(pending_tags, "PAGE_BITS", 4)
        yield


STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(TAGS, min_size=1, max_size=12, unique=True), st.sampled_from("abc"))
    | st.tuples(st.just("add"), st.builds(range, st.integers(0, 60), st.integers(61, 80)), st.sampled_from("abc"))
    | st.tuples(st.just("take"), st.lists(TAGS, min_size=1, max_size=40, unique=True), st.none())
    | st.tuples(st.just("take"), st.builds(range, st.integers(0, 40), st.integers(41, 80)), st.none())
    | st.tuples(st.just("take last"), st.integers(1, 30), st.none()),
    max_size=30,
)


@given(steps=STEPS)
def test_they_do_what_a_dict_would_do(small_pages, steps):
    tags: PendingTags[str] = PendingTags()
    model: dict[int, str] = {}
    for name, argument, owner in steps:
        if name == "add":
            new = [tag for tag in argument if tag not in model]
            if new:
                tags.add(new, owner)
                model |= dict.fromkeys(new, owner)
        elif name == "take":
            assert tags.take(argument) == [model.pop(tag, NOT_PENDING) for tag in argument]
        else:
            taken = tags.take_last(argument)
            assert len(taken) == len(set(taken)) == min(argument, len(model))
            for tag in taken:
                del model[tag]
        assert sorted(tags) == sorted(model) and len(tags) == len(model) and bool(tags) == bool(model)
        assert all((tag in tags) == (tag in model) for tag in range(81))
        assert sorted(tags.owners()) == sorted(model.values())


def test_the_last_tags_come_in_the_order_in_which_they_were_added(small_pages):
    tags: PendingTags[str] = PendingTags()
    for first in range(0, 60, 3):
        tags.add(range(first, first + 3), "a")
    assert tags.take_last(40) == list(range(20, 60))
    assert tags.take_last(40) == list(range(20))
    assert not tags and tags.take_last(1) == []


def test_no_dict_is_larger_than_a_turn_may_let_grow_or_free():
    """No dict gets large, because a dict of a million tags would take 20 ms to grow, as every entry moves."""
    tags: PendingTags[str] = PendingTags()
    for first in range(0, 100_000, 200):
        tags.add(range(first, first + 200), "a")
        assert max(map(len, dicts_of(tags))) <= 20_000
    assert len(tags) == 100_000
    assert tags.take(range(100_000)) == ["a"] * 100_000
    assert sum(map(len, dicts_of(tags))) == 0 and len(dicts_of(tags)) == 1, "pages are left"


def dicts_of(tags):
    return [tags._recent, *tags._pages.values()]
