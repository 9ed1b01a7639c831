"""When a replica may copy the next part of its queue (CL-84, CL-88, CL-90)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from warren.actors.context.replica_limits import (
    COPIES_MOST,
    RETAINED_MOST,
    CopyLimiter,
    ReplicaLimits,
    RetainedByMasters,
)
from warren.mirror.sync import sync_source
from warren.mirror.sync.attempts import ATTEMPTS, PAUSE_SECONDS, Attempts
from warren.runtime.errors import ProcessTimeout

from ..replicas import Asked, Group, Waits


class Copier:
    """Counts how often it was notified."""

    def __init__(self) -> None:
        self.notified = 0

    def may_copy(self) -> None:
        self.notified += 1


def test_a_bounded_number_of_replicas_of_a_node_copy_at_a_time():
    """The others follow in the order in which they came, whoever looks first."""
    limiter, copiers = CopyLimiter(), [Copier() for _ in range(COPIES_MOST + 3)]
    assert [limiter.take(each) for each in copiers] == [True] * COPIES_MOST + [False] * 3
    first, *_ = copiers
    assert limiter.take(first), "it goes on"
    *_, next_one, last_but_one, last = copiers
    limiter.give_back(first)
    assert [each.notified for each in copiers[COPIES_MOST:]] == [1, 0, 0]
    assert not limiter.take(last) and not limiter.take(last_but_one) and limiter.take(next_one)
    assert not limiter.take(first), "it waits behind the others now"
    limiter.give_back(last_but_one)
    limiter.give_back(next_one)
    assert limiter.take(last) and not limiter.take(first)


def test_one_that_waits_no_more_is_in_nobodys_way():
    limiter, copiers = CopyLimiter(), [Copier() for _ in range(COPIES_MOST + 2)]
    for each in copiers:
        limiter.take(each)
    gone, last = copiers[COPIES_MOST:]
    limiter.give_back(gone)
    limiter.give_back(copiers[0])
    assert (gone.notified, last.notified) == (0, 1) and limiter.take(last)


def test_the_masters_of_a_node_share_what_they_may_retain():
    """Each may retain its window, until all together retain too much (CL-69)."""
    retained, window = RetainedByMasters(), RETAINED_MOST // 4
    for _ in range(4):
        retained.change(0, window)
    assert retained.window(window) == window
    retained.change(0, window)
    assert (retained.masters, retained.window(window)) == (5, RETAINED_MOST // 5)
    assert retained.window(1000) == 1000
    retained.change(window, 0)
    assert (retained.masters, retained.bytes, retained.window(window)) == (4, RETAINED_MOST, window)


class Copies:
    """Learners of several queues on one node."""

    def __init__(self, monkeypatch, count: int) -> None:
        monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
        limits = ReplicaLimits()
        self.groups, self.replicas = [], []
        for _ in range(count):
            group = Group("a")
            group.publish(2)
            group.run()
            replica = group.learn("x")
            replica.context.replica_limits = limits
            while any([group.arrive(pair) for pair in list(group.wires)]):
                pass
            self.groups.append(group)
            self.replicas.append(replica)

    def learner(self, at: int):
        return self.replicas[at].replication._learner

    def may_get_chunk(self, at: int) -> bool:
        """Whether this learner may copy now. If not, it waits."""
        try:
            return asyncio.run(self.learner(at)._may_get_chunk())
        except Waits:
            return False

    def woken(self, at: int) -> bool:
        """Whether this learner, which has waited, goes on."""
        try:
            return asyncio.run(self.learner(at).gate.wait())
        except Waits:
            return False

    def copy(self, at: int) -> None:
        """This learner copies its queue."""
        while not self.learner(at)._target.is_done:
            asyncio.run(self.learner(at)._get_chunk(self.groups[at].master.member))


def test_a_replica_waits_until_another_one_of_its_node_has_its_copy(monkeypatch):
    """It keeps nothing of the stream meanwhile, and is shown as waiting, but not as stopped."""
    copies = Copies(monkeypatch, COPIES_MOST + 1)
    assert [copies.may_get_chunk(at) for at in range(COPIES_MOST + 1)] == [True] * COPIES_MOST + [False]
    last = copies.learner(COPIES_MOST)
    status = last.status()
    assert (status["stage"], status["is_stopped"], last._target.is_paused) == ("waiting", False, True)
    assert not copies.woken(COPIES_MOST)
    copies.copy(0)
    assert copies.woken(COPIES_MOST)


@pytest.mark.parametrize("end", ["_pause", "end", "process_ended"])
def test_a_replica_that_copies_no_more_lets_another_one_copy(monkeypatch, end):
    copies = Copies(monkeypatch, COPIES_MOST + 1)
    for at in range(COPIES_MOST + 1):
        copies.may_get_chunk(at)
    first = copies.replicas[0].replication
    getattr(first if end == "process_ended" else first._learner, end)()
    assert copies.woken(COPIES_MOST)


def test_an_operator_may_stop_a_replica_that_waits_for_others(monkeypatch):
    copies = Copies(monkeypatch, COPIES_MOST + 1)
    for at in range(COPIES_MOST + 1):
        copies.may_get_chunk(at)
    last = copies.learner(COPIES_MOST)
    assert last.synchronise(True) and last._target.is_paused, "it waits for the others all the same"
    assert last.synchronise(False) and not last.synchronise(False)
    assert last.status()["is_stopped"]
    copies.copy(0)
    assert not last.gate.is_queued and last.stage == "waiting"


def test_a_replica_copies_nothing_while_its_node_has_an_alarm(monkeypatch):
    """A copy takes disk space, of which the node has too little. The node looks again each second (CL-88)."""
    copies = Copies(monkeypatch, 1)
    group, replica = copies.groups[0], copies.replicas[0]
    replica.alarms = ("disk",)
    assert not copies.may_get_chunk(0) and copies.learner(0).status()["alarms"] == ["disk"]
    replica.alarms = ()
    assert not copies.may_get_chunk(0), "it has not looked again"
    group.now += 1.0
    assert copies.may_get_chunk(0) and copies.learner(0).status()["alarms"] == []
    assert replica.slept_seconds == [1.0, 1.0]


def test_an_attempt_fails_when_nothing_has_come_for_a_while():
    """After several attempts in a row the replica pauses for longer. A part that comes ends the row."""
    attempts, now, pauses = Attempts(), 0.0, []
    for _ in range(2 * ATTEMPTS):
        attempts.begin(now)
        assert not attempts.has_failed(now + 29.9, 30.0)
        now += 30.0
        assert attempts.has_failed(now, 30.0)
        pauses.append(attempts.pause_seconds)
    assert pauses == [0.0] * 4 + [PAUSE_SECONDS] + [0.0] * 4 + [PAUSE_SECONDS]
    attempts.begin(now)
    attempts.came()
    assert not attempts.has_failed(now + 60.0, 30.0) and attempts.count == 0


def test_time_in_which_the_replica_asks_for_nothing_does_not_count():
    attempts = Attempts()
    attempts.begin(0.0)
    attempts.pause()
    assert not attempts.has_failed(100.0, 30.0)
    attempts.begin(100.0)
    attempts.begin(120.0)
    assert not attempts.has_failed(129.0, 30.0) and attempts.has_failed(130.0, 30.0)


def test_a_part_that_does_not_come_is_requested_again(monkeypatch, caplog):
    """The replica keeps what it has copied, and others copy before it asks again (CL-90). After several attempts it
    pauses for a minute.
    """
    caplog.set_level(logging.INFO, "warren.mirror")
    copies = Copies(monkeypatch, COPIES_MOST + 1)
    for at in range(COPIES_MOST + 1):
        copies.may_get_chunk(at)
    group, replica, learner = copies.groups[0], copies.replicas[0], copies.learner(0)
    asyncio.run(learner._get_chunk(group.master.member))
    assert len(replica.numbers) == 1
    ask, timeouts = replica.ask, []

    async def nothing():
        group.now += 30.0
        raise ProcessTimeout

    def ask_in_vain(address, message, timeout=None):
        timeouts.append((message[1], timeout))
        return Asked(nothing())

    replica.ask = ask_in_vain
    learner._requested = None
    assert not copies.woken(COPIES_MOST)
    for _ in range(5):
        asyncio.run(learner._get_chunk(group.master.member))
        asyncio.run(learner._retry())
        assert learner._requested is None
    assert copies.woken(COPIES_MOST)
    assert timeouts == [(1, 30.0)] * 5 and replica.slept_seconds[1::2] == [0.0] * 4 + [60.0]
    levels = [record.levelno for record in caplog.records if "asks again" in record.getMessage()]
    assert levels == [logging.INFO] * 4 + [logging.WARNING]
    replica.ask = ask
    asyncio.run(learner._get_chunk(group.master.member))
    assert learner._target.is_done and replica.numbers == group.master.numbers


def test_a_replica_asks_its_neighbour_for_as_many_messages_as_its_node_is_set_to():
    """`mirroring_sync_batch_size` applies if the policy has no `ha-sync-batch-size` (CL-89)."""
    group = Group("a")
    group.publish(5)
    group.run()
    learner, source = group.learn("b"), group.master
    while any([group.arrive(pair) for pair in list(group.wires)]):
        pass
    source.context.settings = replace(source.context.settings, mirroring_sync_batch_size=2)
    counts = []
    while not learner.replication._learner._target.is_done:
        asyncio.run(learner.replication._learner._get_chunk(source.member))
        counts.append(len(learner.numbers))
    assert counts == [2, 4, 5]
