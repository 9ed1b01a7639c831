"""Histograms of latencies, and which publishes confirms confirm, agree with simple lists and sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.perf_test.latencies import Latencies
from warren.perf_test.producer import OutstandingConfirms


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 5)), min_size=1))
def test_percentiles(values):
    latencies, other = Latencies(), Latencies()
    for index, (value, weight) in enumerate(values):
        (latencies if index % 2 else other).add(value, weight)
    latencies.merge(other)
    ordered = sorted(value for value, weight in values for _ in range(weight))
    shares = [0.0, 0.25, 0.5, 0.9, 1.0]
    for share, found in zip(shares, latencies.percentiles(shares)):
        exact = ordered[max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1)]
        assert exact * 0.98 - 1 <= found <= exact
    assert latencies.count == len(ordered) and latencies.largest == ordered[-1]
    assert sum(count for _, _, count in latencies.buckets(5)) == len(ordered)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 8)), max_size=40), st.randoms())
def test_confirms(steps, random):
    confirms = OutstandingConfirms()
    waiting: set[int] = set()
    #: When each publish of a batch was sent.
    times: dict[int, int] = {}
    measured: list[int] = []
    total = 0
    for is_publish, count in steps:
        if is_publish:
            waiting |= set(range(total + 1, total + count + 1))
            times.update(dict.fromkeys(range(total + 1, total + count + 1), total + count))
            total += count
            confirms.publish(count, total)
        elif waiting:
            number, is_multiple = random.choice(sorted(waiting)), random.random() < 0.5
            gone = {each for each in waiting if each <= number} if is_multiple else {number}
            confirmed, completed = confirms.confirmed(number, is_multiple)
            assert confirmed == len(gone)
            waiting -= gone
            measured += [published_at for messages, published_at in completed for _ in range(messages)]
        assert confirms.outstanding == len(waiting)
        # The latency of each message is measured from its own publish, when its batch is confirmed up to its last one.
        whole = [each for each in times if times[each] < min(waiting, default=total + 1)]
        assert measured == [times[each] for each in whole]
