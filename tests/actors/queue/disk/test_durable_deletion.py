"""Purging and deleting a queue with a disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.queue.process import Queue
from warren.routing.arguments.queue_settings import QueueSettings
from warren.runtime.errors import ProcessDown

from ...disk_stage import SEGMENT, DurableStage, Publisher, bodies, consumer, drained
from ...stage import CRASHED
from ..durable import LARGE, got, mixed


def stored(stage):
    """The bytes of bodies that have references in the persistent store."""
    engine = stage.actor(stage.storage.persistent).engine
    return engine._summary.sum_valid_data


@pytest.mark.parametrize("arguments", [{}, {"x_queue_mode": "lazy"}, {"x_max_priority": 2}])
@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_purge_and_delete_free_the_disk(stage, disk, arguments, verb):
    """A purge or a deletion removes segments and bodies from the disk, and is answered with the number of ready
    messages (QS-22, QS-23, queue-and-store section 4.6).
    """
    queue, publisher = stage.declare(**arguments), Publisher(stage)
    mixed(stage, queue, publisher)
    publisher.publish(queue, 3 * SEGMENT, LARGE)
    publisher.await_confirms()
    stage.ask(queue.address, "flush_synced").answer()
    stage.quiet()
    assert stage.files_of(queue) and stored(stage)
    message = ("purge",) if verb == "purge" else ("delete", False, False)
    assert stage.ask(queue.address, *message).answer() == 4 * SEGMENT + 25
    stage.until(lambda: not stage.files_of(queue) and not stored(stage))
    assert stage.is_alive(queue.address) == (verb == "purge")


def test_a_purged_queue_stays_purged(tmp_path, disk):
    """A kill after the answer to a purge brings back unacknowledged messages only (C-16)."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        mixed(stage, queue, publisher)
        eater = consumer(stage, queue, acks=False, prefetch=3)
        stage.until(lambda: len(eater.got) == 3)
        assert stage.ask(queue.address, "purge").answer() == SEGMENT + 22
        stage.quiet()
        wanted, rows = bodies(eater.got), stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert bodies(drained(stage, stage.recovered(), 3)) == wanted


@pytest.mark.parametrize("kind", ["append", "sync", "delete"])
def test_a_queue_is_deleted_while_it_writes_its_segments(stage, disk, kind):
    """A queue that is deleted during a flush leaves nothing behind, and does not crash (C-16, QS-23)."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    stage.ask(queue.address, "flush_synced").answer()
    publisher.publish(queue, SEGMENT)
    publisher.await_confirms()
    if kind == "delete":
        disk.hold(kind)
    assert len(got(stage, queue, SEGMENT)) == SEGMENT  # a segment has become empty
    if kind != "delete":
        stage.quiet()
        disk.hold(kind)
    flushing = stage.ask(queue.address, "flush_synced")
    stage.is_held()
    deleting = stage.ask(queue.address, "delete", False, False)
    stage.settle()
    assert not deleting.is_answered
    disk.release()
    assert deleting.answer() == SEGMENT + 25
    assert flushing.is_answered
    stage.quiet()
    assert not stage.files_of(queue) and not stage.is_alive(queue.address)
    assert stage.actor(stage.metadata).take("queue_restarted") == []


def test_a_queue_is_purged_while_it_writes_its_segments(stage, disk):
    """A purge waits for the flush under way, and messages that are published meanwhile stay."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    disk.hold("append")
    stage.ask(queue.address, "flush_synced")
    stage.is_held()
    purging = stage.ask(queue.address, "purge")
    stage.until(lambda: not len(stage.actor(queue.address).backing))
    wanted = publisher.publish(queue, 5, LARGE)
    disk.release()
    assert purging.answer() == SEGMENT + 25
    publisher.await_confirms()
    stage.quiet()
    assert bodies(drained(stage, queue, 5)) == wanted


def test_messages_to_a_queue_that_is_being_deleted(stage, disk):
    """A queue that is being deleted refuses requests, ignores publishes and settlements, and does not crash (AB-86)."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    eater = consumer(stage, queue, acks=False, prefetch=3)
    stage.until(lambda: len(eater.got) == 3)
    stage.ask(queue.address, "flush_synced").answer()
    disk.hold("rename")
    deleting = stage.ask(queue.address, "delete", False, False)
    stage.is_held()
    publisher.publish(queue, 3, LARGE)
    queue.tell(eater.myAddress, "settle", "ack", [eater.tags[:1]])
    queue.tell(eater.myAddress, "settle", "requeue", [eater.tags[1:]])
    queue.tell(eater.myAddress, "sent", 3)
    stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(queue_mode="lazy"))
    questions = [
        stage.ask(queue.address, *message)
        for message in (("info",), ("counts",), ("purge",), ("flush_synced",), ("consumers_info",))
    ]
    refused = stage.ask(queue.address, "get", "ch", eater.myAddress, True)
    again = stage.ask(queue.address, "delete", False, False)
    stage.base.end(stage.base.cells[eater.myAddress.actorAddressString], CRASHED)
    stage.settle()
    with pytest.raises(Exception, match="no queue"):
        refused.answer()
    disk.release()
    assert deleting.answer() == SEGMENT + 22
    with pytest.raises(ProcessDown, match="deleted"):
        again.answer()
    stage.until(lambda: all(question.is_answered for question in questions))
    stage.quiet()
    assert not stage.files_of(queue) and not stage.is_alive(queue.address)


def test_a_queue_that_crashed_for_good_is_removed_with_its_files(stage, disk, monkeypatch):
    """`forget_queue` removes the files of a queue that crashed for good and has no process (AB-63, QS-23, C-17)."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    stage.ask(queue.address, "flush_synced").answer()
    monkeypatch.setitem(Queue._handlers, "start", None)
    stage.crash(queue.address)
    stage.until(lambda: any(message[0] == "queue_crashed" for message in stage.actor(stage.metadata).received))
    assert stage.files_of(queue)
    assert stage.ask(stage.supervisor, "forget_queue", queue.id).answer() is True
    stage.quiet()
    assert not stage.files_of(queue)


def references(stage):
    return stage.actor(stage.storage.persistent).engine.reference_counts()


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_the_next_start_removes_the_bodies_of_a_queue_deleted_before_its_recovery(
    tmp_path, disk, monkeypatch, ends_in_order
):
    """If a queue is deleted before its recovery, it was no client of the store yet. The store must then not trust the
    references that it had counted, and the next start removes the bodies (QS-26, queue-and-store section 10.1).
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        publisher.publish(queue, 3, LARGE)
        publisher.await_confirms()
        if ends_in_order:
            stage.terminate()
        rows = stage.rows
    with monkeypatch.context() as patch:
        patch.setitem(Queue._handlers, "start", None)
        with DurableStage(tmp_path, disk, rows) as stage:
            assert [row.state for row in stage.rows] == ["stopped"] and len(references(stage)) == 3
            assert stage.ask(stage.supervisor, "forget_queue", rows[0].queue_id).answer() is True
            stage.terminate()
    with DurableStage(tmp_path, disk) as stage:
        assert not references(stage)


def test_a_second_recovery_waits_until_the_store_runs(tmp_path, disk, monkeypatch):
    """After an unclean end the store starts only when all queues are scanned. That takes longer than the first attempt
    to recover a queue waits, so a second one waits for the store.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        wanted = publisher.publish(queue, 3, LARGE)
        publisher.await_confirms()
        rows = stage.rows
    starts = iter((None,))
    start = Queue._handlers["start"]
    monkeypatch.setitem(Queue._handlers, "start", lambda *arguments: next(starts, start)(*arguments))
    for name in ("node.queue_supervisor", "disk.disk_retry"):
        monkeypatch.setattr(f"warren.actors.{name}.FIRST_WAIT", 0.0)
    with DurableStage(tmp_path, disk, rows) as stage:
        received = stage.actor(stage.metadata).received
        stage.until(lambda: any(message[0] == "queue_recovered" for message in received))
        [address] = [message[4] for message in received if message[0] == "queue_recovered"]
        stage.routing.put_queue(replace(rows[0], address=address, state="running"))
        assert bodies(drained(stage, stage.recovered(), 3)) == wanted
