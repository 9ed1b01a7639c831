"""Acknowledged numbers as ranges."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.messages.records import decode_spans, encode_spans
from warren.store.messages.spans import MOST_STEP, spans


@given(st.lists(st.integers(0, 60), unique=True), st.sampled_from([1, MOST_STEP // 60, 1 << 30]))
def test_numbers_come_back_in_their_order(tags, factor):
    numbers = [tag * factor for tag in tags]
    found = spans(numbers)
    assert [number for span in found for number in span] == sorted(numbers)
    assert all(found) and all(0 < span.step <= MOST_STEP for span in found)


def test_round_robin_is_one_range():
    assert spans([3, 10, 17]) == [range(3, 18, 7)] and spans([3, 4, 5]) == [range(3, 6)]


@pytest.mark.parametrize("distance", [1 << 17, (1 << 32) - 1, 1 << 32, 1 << 50])
def test_two_messages_that_are_far_apart_are_two_ranges(distance):
    """A consumer may acknowledge together a message that it has held since the queue had few, and the latest one. Each
    is a range of its own, which a record of the journal has room for (QS-20).
    """
    found = spans([5, 5 + distance])
    assert found == [range(5, 6), range(5 + distance, 6 + distance)]
    assert decode_spans(encode_spans(found)) == found
