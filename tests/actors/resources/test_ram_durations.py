"""For how many seconds of their traffic queues may keep messages in memory (queue-and-store section 8.3)."""

from __future__ import annotations

import pytest

from warren.actors.resources.ram_durations import INFINITE, RamDurations

RATIO = 0.5


@pytest.fixture
def durations():
    return RamDurations(RATIO)


def test_below_the_paging_ratio_there_is_no_limit(durations):
    """Below the paging ratio there is no limit: with a watermark of 0.4 and a ratio of 0.5 paging starts at 20 % of
    memory.
    """
    assert durations.report("a", "A", 100.0) is None
    assert durations.update(RATIO - 0.01, False) == []
    assert durations.desired == INFINITE


def test_below_the_paging_ratio_no_queue_is_looked_at(durations, monkeypatch):
    """Below the paging ratio no queue is asked, because the monitor runs twice a second, and a node may have a hundred
    thousand queues.
    """

    class Unread(dict):
        def values(self):
            raise AssertionError("all queues are gone through")

    durations.report("a", "A", 1.0)
    monkeypatch.setattr(durations, "_reports", Unread(durations._reports))
    assert durations.update(RATIO - 0.01, False) == []
    with pytest.raises(AssertionError, match="gone through"):
        durations.update(RATIO + 0.01, False)


def test_above_it_all_get_the_same_target_at_once(durations):
    """Above the ratio all queues get the same target, ((sum of the reports + 1) / number of reports) / ratio."""
    durations.report("a", "A", 10.0)
    durations.report("b", "B", 30.0)
    desired = (41.0 / 2) / 0.8
    assert durations.update(0.8, False) == [("B", desired)], "A has less than it may"
    assert durations.report("a", "A", 10.0) == desired
    assert durations.report("a", "A", 10.0) is None, "it has this target already"
    assert durations.report("a", "another process", 10.0) == desired, "a restarted process begins with no target"


def test_no_queue_gets_a_target_twice(durations):
    durations.report("a", "A", 100.0)
    durations.report("b", "B", 1.0)
    (first,) = durations.update(0.8, False)
    assert durations.update(0.8, False) == []
    assert durations.update(0.7, False) == [], "a higher target is sent when it reports"
    ((_, less),) = durations.update(0.9, False)
    assert less < first[1]


def test_idle_queues_take_no_part(durations):
    durations.report("a", "A", INFINITE)
    assert durations.update(0.9, False) == [] and durations.desired == INFINITE
    durations.report("b", "B", 10.0)
    notified = durations.update(0.9, False)
    assert notified == [("A", 11.0 / 0.9)]


def test_queues_that_keep_nothing_come_back(durations):
    """By the increment of 1, queues that keep nothing may keep a little again; close to the watermark there is no
    increment.
    """
    durations.report("a", "A", 0.0)
    durations.update(0.94, False)
    assert durations.desired == pytest.approx(1 / 0.94)
    durations.update(0.96, False)
    assert durations.desired == 0.0
    durations.report("a", "A", 1e-7)
    durations.update(0.96, False)
    assert durations.desired == 0.0, "less than 1e-6 s is nothing"


def test_without_a_limit_to_divide_by_everything_goes_out(durations):
    """With a limit of 0, by which nothing can be divided, the target is 0 (queue-and-store section 8.2)."""
    durations.report("a", "A", 5.0)
    assert durations.update(INFINITE, False) == [("A", 0.0)]


@pytest.mark.parametrize(
    ("ratio", "used", "is_limited"), [(1.5, 1.2, False), (1.5, 1.6, True), (1.0, 0.99, False), (1.0, 1.0, True)]
)
def test_a_ratio_of_one_and_more(ratio, used, is_limited):
    """With a paging ratio of 1 nothing is paged before publishers are blocked, and with a higher one nothing at all
    (D-13).
    """
    durations = RamDurations(ratio)
    durations.report("a", "A", 5.0)
    durations.update(used, False)
    assert (durations.desired < INFINITE) == is_limited


def test_a_disk_alarm_stops_paging(durations):
    """A disk alarm stops paging: queues are notified at once that they may keep more, and the target falls again after
    the alarm.
    """
    durations.report("a", "A", 100.0)
    durations.report("b", "B", 1.0)
    ((_, desired),) = durations.update(0.9, False)
    assert durations.update(0.9, True) == [("A", INFINITE)]
    assert durations.update(0.9, True) == []
    assert durations.update(0.9, False) == [("A", desired)]


def test_one_that_ended_counts_no_more(durations):
    durations.report("a", "A", 100.0)
    durations.report("b", "B", 10.0)
    durations.forget("a")
    durations.forget("a")
    assert "a" not in durations and "b" in durations
    durations.update(0.8, False)
    assert durations.desired == 11.0 / 0.8
