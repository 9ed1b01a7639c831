"""A queue recovers after a crash of its process, a clean stop and a kill."""

from __future__ import annotations

import pytest

from ...disk_stage import SEGMENT, DurableStage, Publisher, bodies, consumer, drained
from ..durable import LARGE, got, mixed


def test_a_queue_that_crashes_recovers_its_persistent_messages(stage):
    """A queue whose process crashed has its persistent messages again, all redelivered, and takes publishes, while
    journal and stores keep running (QS-37, QS-39, C-5).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = mixed(stage, queue, publisher)
    publisher.publish(queue, 3, persistent=False)
    assert got(stage, queue, 2) == wanted[:2]
    stage.quiet()
    stage.crash(queue.address)
    queue = stage.restarted()
    later = publisher.publish(queue, 4, LARGE)
    publisher.await_confirms()
    assert drained(stage, queue, len(wanted) + 2) == [(body, True) for body in wanted[2:]] + [
        (body, False) for body in later
    ]


def test_a_queue_recovers_from_several_crashes(stage):
    """However often the queue crashes, no confirmed message is lost (QS-24)."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = []
    for _ in range(4):
        wanted += publisher.publish(queue, 10) + publisher.publish(queue, 2, LARGE)
        publisher.await_confirms()
        stage.crash(queue.address)
        queue = stage.restarted()
    assert bodies(drained(stage, queue, len(wanted))) == wanted


def test_a_queue_with_priorities_recovers_every_level(stage):
    """Each level of a queue with priorities recovers by itself, and messages are delivered in the order of their
    priorities (queue-and-store section 9, C-24).
    """
    queue, publisher = stage.declare(x_max_priority=3), Publisher(stage)
    wanted = {
        priority: publisher.publish(queue, 5, LARGE if priority == 2 else 10, priority=priority)
        for priority in (1, 3, 2, 0, 9)
    }
    publisher.await_confirms()
    stage.crash(queue.address)
    queue = stage.restarted()
    assert bodies(drained(stage, queue, 25)) == wanted[3] + wanted[9] + wanted[2] + wanted[1] + wanted[0]


def test_a_queue_that_is_not_durable_comes_back_empty(stage):
    """A queue that is not durable is empty after a crash, and the numbers that it gives again do not bring back old
    bodies.
    """
    queue, publisher = stage.declare(durable=False), Publisher(stage)
    publisher.publish(queue, 5, LARGE)
    stage.settle()
    stage.crash(queue.address)
    queue = stage.restarted()
    assert len(queue.actor.backing) == 0
    wanted = publisher.publish(queue, 2, LARGE)
    assert bodies(drained(stage, queue, 2)) == wanted


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 2}, {"x_queue_mode": "lazy"}])
def test_a_restarted_vhost_has_all_persistent_messages(tmp_path, disk, is_clean, arguments):
    """A restarted virtual host has all persistent messages after a clean stop and after a kill; the redelivered flags
    survive only a clean stop (QS-37, QS-39, QS-41, queue-and-store section 10.1).
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(**arguments), Publisher(stage)
        wanted = mixed(stage, queue, publisher)
        publisher.publish(queue, 3, persistent=False)
        assert got(stage, queue, 2) == wanted[:2]
        stage.quiet()
        if is_clean:
            stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue, publisher = stage.recovered(), Publisher(stage)
        later = publisher.publish(queue, 3, LARGE)
        publisher.await_confirms()
        found = drained(stage, queue, len(wanted) + 1)
        assert bodies(found) == wanted[2:] + later
        assert [redelivered for _, redelivered in found] == [not is_clean] * (len(wanted) - 2) + [False] * 3


def test_a_clean_start_reads_no_segment(tmp_path, disk, monkeypatch):
    """After a clean stop the counts come from the terms, so that no segment is read (queue-and-store section 5.5)."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        mixed(stage, queue, publisher)
        stage.terminate()
        rows = stage.rows
    monkeypatch.setattr("warren.store.index.segment_scan.scan_segment", None)
    with DurableStage(tmp_path, disk, rows) as stage:
        assert len(stage.recovered().actor.backing) == SEGMENT + 25


def test_unacknowledged_messages_are_ready_after_a_restart(tmp_path, disk):
    """Unacknowledged messages are redelivered after a restart, each in its place; those whose acknowledgement reached
    the disk are not (C-7).
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        wanted = publisher.publish(queue, 10, LARGE)
        publisher.await_confirms()
        eater = consumer(stage, queue, acks=False, prefetch=6)
        stage.until(lambda: len(eater.got) == 6)
        queue.tell(eater.myAddress, "settle", "ack", [[1, 3]])
        stage.quiet()
        stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        left = [body for number, body in enumerate(wanted) if number not in (1, 3, 7, 8)]
        found = drained(stage, stage.recovered(), 8)
        assert bodies(found) == [body for number, body in enumerate(wanted) if number not in (1, 3)]
        assert left and [redelivered for _, redelivered in found][:4] == [True] * 4


def test_a_message_whose_body_is_lost_is_dropped(tmp_path, disk):
    """A recovering queue drops an index entry whose body is lost, and raises no error (C-3)."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        publisher.publish(queue, 3, LARGE)
        wanted = publisher.publish(queue, 2)
        publisher.await_confirms()
        rows = stage.rows
    for name in disk.list("msg_store_persistent"):
        disk.delete(f"msg_store_persistent/{name}")
    with DurableStage(tmp_path, disk, rows) as stage:
        assert bodies(drained(stage, stage.recovered(), 2)) == wanted
