"""A queue whose disk refuses writes."""

from __future__ import annotations

import pytest

from warren.runtime.errors import ProcessDown

from ...disk_stage import DurableStage, HeldDisk, Publisher, bodies, drained
from ..durable import LARGE, NO_SPACE, got, mixed


@pytest.mark.parametrize("size", [3000, LARGE])
def test_a_full_disk_confirms_nothing_until_there_is_room(tmp_path, monkeypatch, size):
    """While the disk is full, nothing is confirmed and the disk alarm blocks publishers. After a kill all confirmed
    messages are there, and none is damaged (QS-35).
    """
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    disk = HeldDisk(limit=200_000)
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        wanted = publisher.publish(queue, 10, size)
        publisher.await_confirms()
        wanted += publisher.publish(queue, 100, size)
        stage.until(lambda: stage.actor(stage.alarms).received)
        assert set(stage.disk_alarms()) == {True}  # that of the store, and perhaps that of the journal
        assert publisher.confirmed == 10
        disk.limit = None
        publisher.await_confirms()
        stage.until(lambda: stage.actor(stage.alarms).received)
        assert stage.disk_alarms()[-1] is False
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert bodies(drained(stage, stage.recovered(), 110)) == wanted


def test_a_full_disk_delays_a_flush(stage, disk, monkeypatch):
    """A flush that the disk refuses is repeated until it succeeds, and no message is lost meanwhile (QS-35)."""
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = mixed(stage, queue, publisher)
    disk.fail("append", NO_SPACE, NO_SPACE)
    flushing = stage.ask(queue.address, "flush_synced")
    stage.until(lambda: stage.actor(stage.alarms).received)
    assert stage.disk_alarms() == [True]
    assert got(stage, queue, 3) == wanted[:3]
    assert flushing.answer() is True
    stage.settle()
    assert stage.disk_alarms()[-1] is False
    assert bodies(drained(stage, queue, len(wanted) - 3)) == wanted[3:]


def filled_up(stage, disk, size=3000):
    """A queue with 10 confirmed messages, 10 more that the full disk refuses, and a flush that it refuses."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 10, size)
    publisher.await_confirms()
    disk.limit = disk.held
    publisher.publish(queue, 10, size)
    flushing = stage.ask(queue.address, "flush_synced")
    stage.until(lambda: len([message for message in stage.actor(stage.alarms).received if message[2]]) >= 2)
    assert not flushing.is_answered
    return queue, wanted


@pytest.mark.parametrize("size", [3000, LARGE])
def test_a_node_stops_while_the_disk_is_full(tmp_path, disk, monkeypatch, size):
    """A node that stops while the disk is full does not wait for room but ends uncleanly, and its next start has every
    confirmed message (QS-35, C-21).
    """
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    with DurableStage(tmp_path, disk) as stage:
        _, wanted = filled_up(stage, disk, size)
        with pytest.raises(ProcessDown):
            stage.terminate()
        rows = stage.rows
    disk.limit = None
    with DurableStage(tmp_path, disk, rows) as stage:
        queue = stage.recovered()
        stage.quiet()
        assert got(stage, queue, 10) == wanted


def test_a_queue_is_deleted_while_the_disk_is_full(stage, disk, monkeypatch):
    """A flush that the disk refuses is given up when its queue is deleted (QS-35)."""
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    queue, _ = filled_up(stage, disk)
    assert stage.ask(queue.address, "delete", False, False).answer() == 20
    assert not stage.files_of(queue)


def test_acknowledgements_end_a_flush_that_has_no_room(stage, disk, monkeypatch):
    """Messages that are acknowledged while their flush waits for room need not be written any more, so the flush ends
    and does not wait for ever.
    """
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 40, 3000)
    publisher.await_confirms()
    disk.limit = disk.held + 20_000
    flushing = stage.ask(queue.address, "flush_synced")
    stage.until(lambda: stage.actor(stage.alarms).received)
    assert stage.disk_alarms() == [True] and not flushing.is_answered
    assert bodies(drained(stage, queue, 40)) == wanted
    assert flushing.answer() is True
    stage.settle()
    assert stage.disk_alarms()[-1] is False and not stage.files_of(queue)


def test_a_queue_recovers_without_room_for_what_the_journal_has(tmp_path, disk):
    """On a disk that is full of messages a queue recovers with the entries in memory, so that consumers can acknowledge
    them.
    """
    with DurableStage(tmp_path, disk) as stage:
        publisher = Publisher(stage)
        wanted = publisher.publish(stage.declare(), 40, 3000)
        publisher.await_confirms()
        rows = stage.rows
    disk.limit = disk.held + 20_000
    with DurableStage(tmp_path, disk, rows) as stage:
        queue = stage.recovered()
        assert bodies(drained(stage, queue, 40)) == wanted
        assert not stage.files_of(queue)


def test_a_flush_that_fails_gives_back_the_room_that_it_took(stage, disk, monkeypatch):
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 60.0)
    queue, publisher = stage.declare(), Publisher(stage)
    publisher.publish(queue, 10, 3000)
    publisher.await_confirms()
    before = disk.held
    disk.fail("append", NO_SPACE)
    stage.ask(queue.address, "flush_synced")
    stage.until(lambda: stage.actor(stage.alarms).received)
    assert disk.held == before
