"""Rows are published at the rate that was asked for, however many publishers share it and however they are delayed."""

import heapq
import itertools

import pytest

from warren.spark.pace import CATCH_UP, RowPace


def sent(pace, publishers, rows_each, delay=0.0):
    """When each row is published, by publishers that are delayed every two seconds before they ask for more rows."""
    waiting = [(0.0, publisher, rows) for publisher, rows in zip(range(publishers), rows_each)]
    heapq.heapify(waiting)
    times = []
    delayed = 0.0
    while waiting:
        now, publisher, left = heapq.heappop(waiting)
        rows = min(pace.together, left)
        due = pace.due(rows, now)
        assert due >= now
        times += [due] * rows
        if left > rows:
            is_delayed = due - delayed > 2
            delayed = due if is_delayed else delayed
            heapq.heappush(waiting, (due + delay * is_delayed, publisher, left - rows))
    return sorted(times)


def in_each_five_seconds(times):
    """How many rows are published in each 5 s that begin with a row and that are over before the last one."""
    ends = itertools.takewhile(lambda at: at + 5 <= times[-1], times)
    behind = 0
    for place, at in enumerate(ends):
        while behind < len(times) and times[behind] < at + 5:
            behind += 1
        yield behind - place


@pytest.mark.parametrize("rate", [7, 100, 3000])
def test_any_five_seconds_have_the_rate(rate):
    """The rate holds within 5%, also while publishers are delayed for a while now and then (SP-97)."""
    times = sent(RowPace(rate), 1, [rate * 30], CATCH_UP)
    assert all(abs(count - 5 * rate) <= 0.05 * 5 * rate + 1 for count in in_each_five_seconds(times))


def test_publishers_share_a_rate_until_the_last_one_ends():
    """Three of four publishers have few rows, so the fourth one has nearly the whole rate."""
    times = sent(RowPace(100), 4, [10, 10, 10, 970])
    assert times[-1] == pytest.approx(10.0, abs=0.1)


def test_a_long_delay_is_not_made_up_for_by_a_burst():
    pace = RowPace(100)
    assert [pace.due(1, 0.0) for _ in range(3)] == pytest.approx([0.0, 0.01, 0.02])
    late = [pace.due(1, 60.0) for _ in range(200)]
    # 0.25 s are made up for, at 1.25 times the rate.
    assert late[0] == 60.0 and late[100] == pytest.approx(60.8) and late[199] == pytest.approx(60.0 + 1.99 - CATCH_UP)


def test_rows_are_sent_together_at_a_high_rate():
    assert (RowPace(1).together, RowPace(400).together, RowPace(50_000).together) == (1, 1, 100)
