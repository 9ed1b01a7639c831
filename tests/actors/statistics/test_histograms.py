"""The histograms of a node, and which messages are followed to their consumers (CM-375)."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.statistics.histograms import ON_THE_WAY, SAMPLED, SECONDS, DeliverySamples, Histogram, Sample

VALUES = st.lists(
    st.tuples(st.one_of(st.sampled_from(SECONDS), st.floats(0, 1_000)), st.integers(1, 5_000)), max_size=30
)


@given(VALUES)
def test_a_histogram_counts_the_values_up_to_each_bound(values):
    histogram = Histogram(SECONDS)
    for value, count in values:
        histogram.observe(value, count)
    found = histogram.values()
    expected = [sum(count for value, count in values if value <= bound) for bound in [*SECONDS, float("inf")]]
    assert list(accumulate(found["counts"])) == expected
    assert found["sum"] == pytest.approx(sum(value * count for value, count in values))


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=200))
def test_one_of_1024_messages_is_followed(runs):
    samples = DeliverySamples()
    due = 0
    for count in runs:
        samples.left -= count
        if samples.left <= 0:
            samples.follow("q", Sample("a", 1, 0.0))
            due += 1
    # The node's first message is followed, and of each run at most one.
    assert 1 <= due <= 1 + sum(runs) // SAMPLED + 1
    if max(runs) < SAMPLED:
        assert due >= sum(runs) // SAMPLED


def test_a_sample_is_found_by_the_identity_of_its_publish():
    samples = DeliverySamples()
    samples.follow("q", Sample("a", 7, 1.5))
    assert samples.arrived("other", [("a", 7, 1, False)]) is None
    assert samples.arrived("q", [("b", 7, 1, False), ("a", 8, 5, False)]) is None
    assert samples.arrived("q", [("b", 1, 10, False), ("a", 5, 5, False)]) == (12, 1.5)
    assert samples.arrived("q", [("a", 5, 5, False)]) is None, "a sample arrives once"


def test_samples_that_never_arrive_take_no_more_than_their_places():
    samples = DeliverySamples()
    for number in range(ON_THE_WAY + 5):
        samples.follow(f"q{number}", Sample("a", number, 0.0))
    assert len(samples.on_the_way) == ON_THE_WAY
    assert samples.arrived("q4", [("a", 4, 1, False)]) is None, "the oldest have left"
    assert samples.arrived("q5", [("a", 5, 1, False)]) == (0, 0.0)
