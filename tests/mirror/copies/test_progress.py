"""A replica that copies its queue shows how far it is (CL-90)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from warren.amqp.errors import AmqpError
from warren.mirror.sync import sync_source
from warren.mirror.sync.copy_progress import CopyProgress
from warren.mirror.sync.copy_reports import CopyReports, described
from warren.runtime.errors import UnknownMessage

from ..replicas import Asked, Group


def test_rates_are_those_of_the_last_seconds():
    """A copy that was fast and is slow now has the rate of now, and an estimate of how long it takes at that rate."""
    progress = CopyProgress()
    left = 100_000
    for second in range(60):
        fast = second < 30
        progress.took(1000 if fast else 100, 1_000_000 if fast else 100_000)
        left -= 1000 if fast else 100
        progress.sample(float(second), left)
    assert (progress.copied, progress.copied_bytes, progress.left) == (33_000, 33_000_000, 67_000)
    assert (progress.bytes_per_second, progress.seconds_left) == (100_000, 670)


@pytest.mark.parametrize(
    ("lefts", "seconds"),
    [([], None), ([5], None), ([None, None], None), ([5, 5], None), ([5, 9], None), ([9, 6], 2), ([9, 0], 0), ([0], 0)],
)
def test_there_is_an_estimate_only_while_the_copy_comes_nearer(lefts, seconds):
    progress = CopyProgress()
    for now, left in enumerate(lefts):
        progress.sample(float(now), left)
    assert progress.seconds_left == seconds and progress.bytes_per_second == 0


def test_a_copy_that_pauses_has_no_rate():
    progress = CopyProgress()
    for now in range(3):
        progress.took(1, 100)
        progress.sample(float(now), 10 - now)
    assert (progress.bytes_per_second, progress.seconds_left) == (100, 8)
    progress.pause(None)
    assert (progress.bytes_per_second, progress.seconds_left, progress.copied) == (0, None, 3)


class Copy:
    """A learner with its reports. The queue has `published` messages, and a chunk has one of them."""

    def __init__(self, monkeypatch, published: int, names: str = "a", earlier=None) -> None:
        monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
        self.group = Group(names)
        if published:
            self.group.publish(published)
            self.group.run()
        self.replica = self.group.learn("x", earlier)
        self.arrive()
        self.learner = self.replica.replication._learner
        self.reports = CopyReports(self.replica, self.learner)

    @property
    def shown(self):
        """What the master shows of the copy."""
        (found,) = self.group.master.replication.copies
        return found

    def arrive(self) -> None:
        while any([self.group.arrive(pair) for pair in list(self.group.wires)]):
            pass

    def second(self, chunks: int = 0) -> None:
        """A second passes, in which so many chunks are copied."""
        self.group.now += 1.0
        for _ in range(chunks):
            self.group.copy_chunk(self.replica)
        self.arrive()
        asyncio.run(self.reports.report())


def test_the_master_shows_what_a_replica_has_copied_and_what_it_lacks(monkeypatch):
    copy = Copy(monkeypatch, 10)
    assert copy.group.master.replication.copies == []
    copy.second()
    shown = copy.shown
    assert (shown["node"], shown["stage"], shown["copied"], shown["left"]) == ("x", "copying", 0, None)
    copy.second(chunks=2)
    copy.second(chunks=2)
    shown = copy.shown
    assert (shown["copied"], shown["left"], shown["seconds_left"]) == (4, 6, 3)
    assert shown["bytes_per_second"] == shown["copied_bytes"] // 2 > 0
    copy.second(chunks=6)
    assert (copy.shown["stage"], copy.shown["copied"], copy.shown["left"]) == ("following", 10, 0)


def test_messages_that_are_published_meanwhile_are_left_too(monkeypatch):
    copy = Copy(monkeypatch, 4)
    copy.second(chunks=1)
    copy.group.publish(5)
    copy.second()  # the answer to this report has the new number of messages
    copy.second()
    assert (copy.shown["copied"], copy.shown["left"], copy.shown["seconds_left"]) == (1, 8, None)


def test_messages_that_were_compared_are_not_copied(monkeypatch):
    """A replica that comes back with messages on its disk shows how many it has compared, and lacks the others."""
    group = Group("ab")
    group.publish(6)
    group.run()
    earlier = group.replicas[group.row.group.ring[1]]
    group.kill(earlier.member)
    group.remove(earlier.member)
    group.apply(group.master)
    group.publish(3)
    group.run()
    copy = Copy.__new__(Copy)
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    copy.group, copy.replica = group, group.learn("b", earlier)
    copy.arrive()
    copy.learner = copy.replica.replication._learner
    copy.reports = CopyReports(copy.replica, copy.learner)
    copy.second()
    assert copy.shown["stage"] == "comparing"
    while copy.learner.stage == "comparing":
        copy.second(chunks=1)
    shown = copy.shown
    assert (shown["stage"], shown["compared"], shown["copied"], shown["left"]) == ("copying", 6, 0, 3)


def test_a_replica_that_does_nothing_new_reports_nothing(monkeypatch):
    """A ring without traffic sends nothing (CL-73), so a replica that waits or has everything reports that once."""
    copy = Copy(monkeypatch, 2)
    asked = []
    ask = copy.replica.ask

    def count(address, message, timeout=None):
        asked.append(message[0])
        return ask(address, message, timeout)

    copy.replica.ask = count
    copy.second()
    copy.learner._pause()
    asked.clear()
    for _ in range(5):
        copy.second()
    assert asked == ["copy_progress"] and copy.shown["stage"] == "waiting" and copy.shown["left"] is None


def test_a_new_master_gets_the_report_of_a_replica_that_waits(monkeypatch):
    copy = Copy(monkeypatch, 2, "ab")
    copy.learner._pause()
    copy.second()
    group = copy.group
    first, second = (group.replicas[member] for member in group.row.group.ring)
    assert first.replication.copies and not second.replication.copies
    group.kill(first.member)
    group.remove(first.member)
    for replica in (second, copy.replica):
        group.apply(replica)
    group.run()
    assert second.has_promoted
    copy.second()
    assert [each["stage"] for each in second.replication.copies] == ["waiting"]


def test_a_replica_in_the_ring_is_shown_no_more(monkeypatch):
    copy = Copy(monkeypatch, 1)
    copy.second(chunks=1)
    assert copy.shown["stage"] == "following"
    copy.group.admit(copy.replica)
    copy.group.apply(copy.group.master)
    assert copy.group.master.replication.copies == []


def test_a_master_of_an_older_version_gets_one_report(monkeypatch):
    """It does not know the message. The replica copies all the same, and shows no estimate."""
    copy = Copy(monkeypatch, 3)
    asked = []

    async def refuse():
        raise UnknownMessage

    def ask(address, message, timeout=None):
        asked.append(message[0])
        return Asked(refuse())

    copy.replica.ask = ask
    for _ in range(3):
        copy.second()
    assert asked == ["copy_progress"] and copy.learner.status()["left"] is None


def test_a_report_that_was_not_answered_is_repeated(monkeypatch):
    copy = Copy(monkeypatch, 3)
    copy.learner._pause()
    ask, asked = copy.replica.ask, []

    async def refuse():
        raise AmqpError(404, "no queue")

    def ask_in_vain(address, message, timeout=None):
        asked.append(message[0])
        return Asked(refuse())

    copy.replica.ask = ask_in_vain
    copy.second()
    copy.replica.ask = ask
    copy.second()
    assert asked == ["copy_progress"] and copy.shown["stage"] == "waiting"


def test_a_replica_that_is_not_the_master_takes_no_reports():
    group = Group("ab")
    group.run()
    with pytest.raises(AmqpError, match="no queue"):
        group.replicas[group.row.group.ring[1]].replication.copy_progress(3, {})


def test_the_log_has_a_line_every_ten_seconds(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "warren.mirror")
    copy = Copy(monkeypatch, 100)
    caplog.clear()
    for _ in range(25):
        copy.second(chunks=2)
        copy.reports._log()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    for text, copied, left in zip(texts, (20, 40), (80, 60)):
        begin = "queue 'orders' in vhost '/': this replica is copying: 0 messages compared"
        assert text.startswith(f"{begin}, {copied} copied, {left} left, ") and text.endswith(f"/s, about {left // 2} s")


def test_the_log_names_an_alarm():
    status = {**CopyProgress().items(), "stage": "copying", "alarms": ["disk"]}
    assert described(status).endswith("0 bytes/s, waiting until the alarm of this node is cleared (disk)")
