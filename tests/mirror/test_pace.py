"""`Pace`: a copy takes what it needs to come to its end, and leaves publishers the rest (CL-89, CL-112)."""

from __future__ import annotations

import pytest

from warren.mirror.sync import pace as pace_module
from warren.mirror.sync import sync_source
from warren.mirror.sync.pace import GAINED_PER_SECOND, LITTLE, LOOK_SECONDS, UNPACED, Pace

from .replicas import Group
from .test_learners import arrive, copy_chunk

MIB = 1 << 20


def seconds_to_copy(backlog, published_per_second, copied_per_second, chunk=4 * MIB):
    """How long a copy takes while clients publish, if it is as fast as this when it does not wait."""
    pace, now, waited = Pace(), 0.0, 0.0
    pace.published(LITTLE * 2)
    pace.copied(0, LOOK_SECONDS)
    now = began = LOOK_SECONDS
    while backlog > 0:
        seconds = chunk / copied_per_second + waited
        now += seconds
        pace.published(round(published_per_second * seconds))
        backlog += published_per_second * seconds - chunk
        waited = pace.copied(chunk, now)
        assert waited >= 0
    return now - began


@pytest.mark.parametrize("published", [2 * MIB, 20 * MIB, 60 * MIB, 100 * MIB])
def test_a_copy_gains_on_the_publishers_at_one_pace_however_fast_they_are(published):
    backlog = 20 * UNPACED
    expected = (backlog - UNPACED) / GAINED_PER_SECOND
    assert seconds_to_copy(backlog, published, 200 * MIB) == pytest.approx(expected, rel=0.05)


def test_a_million_messages_of_1_kib_are_copied_in_less_than_a_minute():
    """With what describes them they have 1.1 KiB (CL-112)."""
    assert seconds_to_copy(1_000_000 * 1126, 50 * MIB, 200 * MIB) < 50


@pytest.mark.parametrize("published", [2 * MIB, 60 * MIB])
def test_a_copy_that_is_slower_than_that_does_not_wait(published):
    backlog, copied = 4 * UNPACED, published + GAINED_PER_SECOND // 2
    assert seconds_to_copy(backlog, published, copied) == pytest.approx(backlog / (copied - published), rel=0.05)


def test_a_copy_makes_up_for_the_time_in_which_its_disk_was_slow():
    pace, now, gained = Pace(), LOOK_SECONDS, 0
    pace.published(LITTLE * 2)
    pace.copied(0, now)
    while now < 60.0:
        seconds = 20.0 if 20.0 < now < 30.0 else max(0.01, pace.copied(2 * MIB, now))
        now += seconds
        published = round(10 * MIB * seconds)
        pace.published(published)
        gained += 2 * MIB - published
    assert gained == pytest.approx(UNPACED + 60.0 * GAINED_PER_SECOND, rel=0.1)


def test_little_traffic_does_not_slow_a_copy_down():
    pace = Pace()
    for second in range(1, 20):
        pace.published(LITTLE - 1)
        assert not pace.copied(200 * MIB, second * LOOK_SECONDS)


def test_a_replica_that_was_away_for_a_moment_copies_what_it_lacks_at_once():
    """5,000 messages of 1 KB a second, for 10 s (CL-112)."""
    pace, now = Pace(), 100.0
    for _ in range(100):
        pace.published(MIB // 20)
        now += 0.01
        assert not pace.copied(MIB // 2, now)


def test_a_learner_waits_after_chunks_while_clients_publish(monkeypatch):
    for name, value in {"LOOK_SECONDS": 0.0, "UNPACED": 0, "GAINED_PER_SECOND": 1000}.items():
        monkeypatch.setattr(pace_module, name, value)
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(4)
    group.run()
    learner = group.learn("b")
    arrive(group)
    group.publish()
    arrive(group)
    copy_chunk(learner, group.master)
    monkeypatch.setattr(pace_module, "LOOK_SECONDS", 1.0)
    waits = []
    for _ in range(2):
        copy_chunk(learner, group.master)
        waits.append(learner.slept_seconds[-1])
    # The clock stands still here, so the second wait is that for both chunks.
    assert 0 < waits[0] < waits[1]
