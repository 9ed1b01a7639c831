"""Paging and lazy queues, and reading their messages back from the disk."""

from __future__ import annotations

import pytest

from warren.actors.queue.disk.disk_loader import DiskLoader
from warren.routing.arguments.queue_settings import QueueSettings
from warren.store.queue.variable.segment_writer import SegmentWriter
from warren.store.queue.variable.variable_queue import VariableQueue

from ...disk_stage import SEGMENT, Publisher, bodies, consumer, drained
from ...stage import Stub, bodies_of
from ..durable import BACKLOG, LARGE, got, mixed, status


@pytest.fixture
def read_ids(monkeypatch):
    """The ids of the bodies that queues read from message stores during the test."""
    ids, ask_stores = [], DiskLoader._ask_stores

    def recorded(self, wanted):
        ids.extend([*wanted.persistent, *wanted.transient])
        return ask_stores(self, wanted)

    monkeypatch.setattr(DiskLoader, "_ask_stores", recorded)
    return ids


def test_a_target_of_zero_pages_everything_out(stage):
    """With a target of 0, all persistent and transient bodies are paged out to segments and stores, and then delivered
    in order (queue-and-store sections 4.7 and 8.3).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, BACKLOG, 4100) + publisher.publish(queue, SEGMENT, 4100, persistent=False)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.sub_queues.ram_count and status(queue)["q3"] <= SEGMENT)
    stage.quiet()
    queue.actor.backing.check()
    assert status(queue)["delta"] == BACKLOG
    assert bodies(drained(stage, queue, BACKLOG + SEGMENT)) == wanted


def test_messages_with_embedded_bodies_are_paged_out_whole(stage):
    """Messages with embedded bodies are paged out completely and become part of delta, except for the segment at the
    head (queue-and-store section 4.2).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, BACKLOG) + publisher.publish(queue, SEGMENT, persistent=False)
    stage.target = 0.0
    stage.until(lambda: queue.actor.backing.sub_queues.ram_count <= SEGMENT)
    stage.quiet()
    later = publisher.publish(queue, 3)
    assert bodies(drained(stage, queue, BACKLOG + SEGMENT + 3)) == wanted + later


def test_publishing_and_consuming_go_on_while_a_queue_pages(stage, read_ids, monkeypatch):
    """A queue pages while clients publish and consume, and no message is lost or reordered (FC-37, QS-14, QS-39)."""
    monkeypatch.setattr("warren.actors.queue.disk.durability.REPORT_SECONDS", 0.001)
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 2 * SEGMENT, LARGE)
    stage.target = 0.0
    eater = consumer(stage, queue, prefetch=5)
    for turn in range(60):
        wanted += publisher.publish(queue, 7, LARGE if turn % 3 else 10, persistent=bool(turn % 4))
        stage.base.run_until(lambda: True, 0)
        if not turn % 20:
            stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(eater.got) == len(wanted))
    assert bodies(eater.got) == wanted
    assert len(read_ids) > SEGMENT, "the queue did not page"


def test_a_queue_with_priorities_pages_under_traffic(stage, read_ids, monkeypatch):
    """With a target of 0, each of three levels of a queue with priorities stays in order under traffic (FC-39, QS-36,
    queue-and-store section 9).
    """
    monkeypatch.setattr("warren.actors.queue.disk.durability.REPORT_SECONDS", 0.001)
    queue, publisher = stage.declare(x_max_priority=3), Publisher(stage)
    wanted = {
        priority: publisher.publish(queue, SEGMENT, LARGE if priority else 10, priority=priority)
        for priority in (0, 1, 3)
    }
    stage.target = 0.0
    eater = consumer(stage, queue, prefetch=5)
    for turn in range(60):
        priority = (0, 3, 1)[turn % 3]
        wanted[priority] += publisher.publish(
            queue, 7, LARGE if turn % 2 else 10, persistent=bool(turn % 4), priority=priority
        )
        stage.base.run_until(lambda: True, 0)
        if not turn % 20:
            stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(eater.got) == sum(map(len, wanted.values())))
    got = bodies(eater.got)
    for published in wanted.values():
        assert [body for body in got if body in set(published)] == published
    assert len(read_ids) > SEGMENT, "the queue did not page"


def test_a_backlog_of_priorities_comes_from_the_disk_by_level(stage):
    """Levels that are paged out completely are delivered in the order of their priorities, after newer messages of a
    higher one (queue-and-store section 9).
    """
    queue, publisher = stage.declare(x_max_priority=2), Publisher(stage)
    wanted = {priority: publisher.publish(queue, BACKLOG, 4100, priority=priority) for priority in (1, 0)}
    publisher.await_confirms()
    stage.target = 0.0
    levels = queue.actor.durability.levels
    stage.until(lambda: not any(level.sub_queues.ram_count for level in levels.values()))
    stage.quiet()
    for level in levels.values():
        level.check()
        assert level.sub_queues.delta.count >= BACKLOG - SEGMENT
    first = publisher.publish(queue, 3, priority=9)
    assert bodies(drained(stage, queue, 2 * BACKLOG + 3)) == first + wanted[1] + wanted[0]


def test_a_crash_with_everything_paged_out(stage):
    """A queue that crashes when everything is paged out recovers all persistent messages in order (QS-25)."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = mixed(stage, queue, publisher) + publisher.publish(queue, BACKLOG)
    publisher.publish(queue, 20, LARGE, persistent=False)
    publisher.await_confirms()
    stage.target = 0.0
    stage.until(lambda: queue.actor.backing.sub_queues.ram_count <= SEGMENT)
    stage.quiet()
    stage.crash(queue.address)
    assert bodies(drained(stage, stage.restarted(), len(wanted))) == wanted


@pytest.mark.parametrize(("limit", "most"), [("PART_RUNS", 4), ("PART_MESSAGES", 20)])
def test_a_flush_of_many_messages_is_done_in_parts(stage, monkeypatch, limit, most):
    """A flush of many runs or of many messages is done by several jobs, and no message is lost. Each batch of
    persistent messages between transient ones is a run.
    """
    parts, take_part = [], SegmentWriter.take_part

    def recorded(self):
        parts.append(take_part(self))
        return parts[-1]

    monkeypatch.setattr(SegmentWriter, "take_part", recorded)
    monkeypatch.setattr(f"warren.store.queue.variable.segment_writer.{limit}", most)
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = []
    for turn in range(40):
        wanted += publisher.publish(queue, 5, persistent=bool(turn % 2))
    stage.target = 0.0
    stage.until(lambda: queue.actor.backing.sub_queues.ram_count <= SEGMENT)
    stage.quiet()
    assert len(parts) > 2
    assert all(len(pieces) <= 8 for job in parts for _, pieces, *_ in job.parts)
    assert bodies(drained(stage, queue, len(wanted))) == wanted


def test_get_waits_for_a_message_on_the_disk(stage):
    """basic.get of a queue whose head is on the disk waits for it, and is not answered with get-empty (QS-46)."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 2 * SEGMENT, LARGE)
    publisher.await_confirms()
    stage.quiet()
    assert got(stage, queue, 2 * SEGMENT + 1) == [*wanted, None]


def test_concurrent_gets_get_different_messages(stage):
    """Concurrent gets wait for the disk, and each returns another message."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 5, LARGE)
    publisher.await_confirms()
    stage.quiet()
    channel = stage.create(Stub)
    asked = [stage.ask(queue.address, "get", channel.actorAddressString, channel, False) for _ in range(7)]
    found = [question.answer()[0] for question in asked]
    assert [bodies_of(delivery[3])[0] for delivery in found[:5]] == wanted and found[5:] == [None, None]


def test_messages_that_go_to_segments_alone_are_synced_when_the_segment_is(stage):
    """Messages that are written to a segment and not to the journal count as synced when the segment is, which a
    learner waits for before it copies more.
    """
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    levels, waited = queue.actor.durability._levels, []

    async def wait() -> None:
        await queue.actor.synced()
        waited.append(levels.direct_safe)

    stage.disk.hold()
    publisher.publish(queue, 20, 3000)
    stage.until(lambda: levels.direct)
    direct = levels.direct
    queue.actor.spawn(wait())
    stage.disk.release()
    stage.until(lambda: waited)
    assert waited[0] >= direct > 0


@pytest.mark.parametrize("size", [10, LARGE])
def test_switching_modes_under_traffic_loses_and_reorders_nothing(stage, size):
    """Changes of the mode under traffic lose and reorder no message, with unacknowledged messages and a consumer
    (FC-38, QS-32, queue-and-store section 7.2).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    eater = consumer(stage, queue, prefetch=10)
    wanted = []
    modes = QueueSettings(queue_mode="default"), QueueSettings(queue_mode="lazy")
    for turn in range(30):
        wanted += publisher.publish(queue, SEGMENT // 2, size, persistent=bool(turn % 3))
        if turn % 5 == 4:
            stage.tell(stage.metadata, queue.address, "apply_settings", modes[turn % 10 == 4])
        stage.base.run_until(lambda: True, 0)
        if turn % 7 == 6:
            stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(eater.got) == len(wanted))
    assert bodies(eater.got) == wanted
    assert not any(redelivered for _, redelivered in eater.got)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_queue_with_a_backlog_changes_its_mode(stage, size):
    """A queue with a backlog, part of it unacknowledged, changes its mode without traffic (FC-38, QS-7,
    QS-32, QS-49).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 5 * SEGMENT, size)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False, prefetch=10)
    stage.until(lambda: len(eater.got) == 10)
    queue.tell(eater.myAddress, "cancel", "c")
    for mode in ("lazy", "default", "lazy"):
        stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(queue_mode=mode))
        stage.until(lambda mode=mode: status(queue)["mode"] == mode)
        stage.quiet()
        queue.actor.backing.check()
        found = status(queue)
        assert mode == "default" or found["delta"] + found["q3"] == 5 * SEGMENT - 10 == found["len"]
    queue.tell(eater.myAddress, "settle", "requeue", [eater.tags])
    assert bodies(drained(stage, queue, 5 * SEGMENT)) == wanted


def test_a_lazy_queue_keeps_no_bodies(stage):
    """A lazy queue keeps no bodies: it writes embedded ones to segments as soon as there are too many (queue-and-store
    section 7.3).
    """
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 1000, 3000)
    publisher.await_confirms()
    stage.quiet()
    assert queue.actor.backing.sub_queues.ram_bytes == 0
    assert stage.files_of(queue)
    assert bodies(drained(stage, queue, 1000)) == wanted


def test_credit_that_a_flush_frees_is_granted_in_the_same_turn(stage, monkeypatch):
    """Credit that a flush frees is granted in the same turn. An idle queue may have no later turn, so its publisher
    would wait for ever (FC-8).
    """
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    in_flight, safe = 4000, 0
    monkeypatch.setattr(VariableQueue, "direct_counts", lambda self: (in_flight, safe))
    publisher.publish(queue, 1)
    publisher.await_confirms()
    publisher.publish(queue, 400)
    publisher.await_confirms()
    stage.quiet()
    channel = stage.actor(publisher.address)
    assert queue.actor.channels.credit.blocked and not channel.take("bump")
    safe = in_flight
    queue.actor.after_batch()
    stage.quiet()
    assert not queue.actor.channels.credit.blocked and channel.take("bump")
