"""However fast clients publish, every copy of a mirrored queue ends, because its master slows publishers
down (CL-89).
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.queue.mirroring import COPY_PEER, COPY_TIMER
from warren.mirror.sync import sync_source
from warren.mirror.sync.approach import LAG_SECONDS, Approach
from warren.mirror.sync.slow_publishers import MOST_HALVINGS, PERIOD, SlowPublishers
from warren.runtime.credit import CreditFlow
from warren.store.queue.levels.level_tags import LEVEL_SHIFT

from .replicas import Group


class Master:
    """Calls `turn` when it is due, and measures for which part of the time publishers are not blocked."""

    def __init__(self):
        self.credit = CreditFlow(clock=lambda: 0.0)
        self.resumed = 0
        self.slow = SlowPublishers(self.credit, self.resume)

    def resume(self):
        self.resumed += 1

    def open_share(self):
        times = {True: 0.0, False: 0.0}
        for _ in range(20):
            seconds = self.slow.turn()
            times[self.credit.blocked] += seconds
        return times[False] / sum(times.values())


def test_each_time_that_a_learner_lags_publishers_have_half_of_the_time():
    master = Master()
    for halvings in range(1, MOST_HALVINGS + 3):
        master.slow.lags(7)
        assert master.open_share() == pytest.approx(0.5 ** min(halvings, MOST_HALVINGS))
    assert sum([master.slow.turn(), master.slow.turn()]) == pytest.approx(PERIOD)
    assert master.resumed


def test_publishers_are_free_once_no_learner_is_left_that_lagged():
    """Publishers are slowed down for the slowest learner, and no longer when no learner is left that has lagged."""
    master = Master()
    for generation in (3, 4, 4):
        master.slow.lags(generation)
    master.slow.learners_are([3, 4])
    assert master.open_share() == pytest.approx(0.25)
    master.slow.learners_are([3, 5])
    assert master.open_share() == pytest.approx(0.5)
    master.slow.learners_are([5])
    assert master.slow.turn() == 0 and not master.credit.blocked


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 20)), max_size=60))
def test_a_learner_lags_when_it_has_copied_for_a_while_without_coming_nearer(steps):
    """Each step says how many messages are published and how many copied in how many seconds. A copy lags if it does
    not come nearer to the end; one that has everything, or stands still, does not count as lagging.
    """
    approach, newest, cursor, now = Approach(), 1000, 0, 0
    approach.published(newest)
    least, since, seen = 1000, 0, 0
    approach.lags(0, 0)
    for published, copied, seconds in steps:
        newest, now = newest + published, now + seconds
        cursor = min(newest, cursor + copied)
        approach.published(newest)
        expected = False
        if newest - cursor < least:
            least, since, seen = newest - cursor, now, cursor
        elif now - since >= LAG_SECONDS:
            expected = cursor > seen
            since, seen = now, cursor
        assert approach.lags(cursor, now) == expected


def test_the_levels_that_are_still_to_be_copied_count_too():
    approach = Approach()
    approach.published(500)
    approach.published((3 << LEVEL_SHIFT) + 10)
    assert not approach.lags(400, 0)
    approach.published((3 << LEVEL_SHIFT) + 200)
    assert not approach.lags(450, LAG_SECONDS - 1)
    assert approach.lags(480, LAG_SECONDS)
    assert not approach.lags(3 << LEVEL_SHIFT, LAG_SECONDS + 1)


def test_a_master_slows_its_publishers_down_until_the_learner_has_everything(monkeypatch):
    """Clients publish two messages for each one that the learner copies. After half a minute the learner reports that
    it lags, and the master blocks publishers for a part of the time until the learner has joined the ring.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(3)
    group.run()
    learner, master = group.learn("b"), group.master
    arrive(group)
    while not learner.lags:
        group.publish(2)
        arrive(group)
        asyncio.run(learner.replication._learner._get_chunk(master.member))
        group.now += 5
        assert group.now < 3 * LAG_SECONDS
    asyncio.run(learner.replication._learner._report_lag())
    master.replication.timer_fired(COPY_TIMER)
    assert list(master.credit.credit_blocked) == [COPY_PEER]
    while not learner.replication._learner._target.is_done:
        asyncio.run(learner.replication._learner._get_chunk(master.member))
    learner.replication._learner._ask_to_be_admitted()
    group.sync(learner)
    arrive(group)
    group.admit(learner)
    for replica in group.living():
        group.apply(replica)
    master.replication.timer_fired(COPY_TIMER)
    assert not master.credit.blocked


def test_a_replica_that_is_not_the_master_slows_nobody_down():
    group = Group("ab")
    first, second = group.replicas.values()
    assert first.replication.copy_lags(9) and not second.replication.copy_lags(9)


def arrive(group):
    """Deliver all frames in flight. No disk finishes a write meanwhile."""
    while any([group.arrive(pair) for pair in list(group.wires)]):
        pass
