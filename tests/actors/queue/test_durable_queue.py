"""A queue with a disk: the real journal and message stores of its vhost beside it, on a disk that stands still, fills up or forgets when the test says so."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from warren.actors.queue.process import Queue
from warren.amqp.frames import content_body
from warren.amqp.methods import BasicAck, BasicNack, ConfirmSelect
from warren.runtime.errors import ProcessDown
from warren.store.queue.paging import IO_BATCH_SIZE

from ..disk_stage import SEGMENT, DurableStage, HeldDisk, Publisher, bodies, consumer, drained
from ..stage import CRASHED, PERSISTENT, Stub, bodies_of

LARGE = 10_000
"""Bytes of a body that belongs in a message store."""
BACKLOG = IO_BATCH_SIZE + SEGMENT
"""So many messages may be paged out but for a segment."""
NO_SPACE = OSError(errno.ENOSPC, "injected")


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
def stage(tmp_path, disk):
    with DurableStage(tmp_path, disk) as stage:
        yield stage


def status(queue):
    return queue.actor.backing.info("backing_queue_status")


def got(stage, queue, count, no_ack=True):
    """Bodies of so many basic.get; None where there was none."""
    channel = stage.create(Stub)
    found = []
    for _ in range(count):
        delivery, _ = stage.ask(queue.address, "get", channel.actorAddressString, channel, no_ack).answer()
        found.append(None if delivery is None else content_body(delivery[3][0]))
    return found


# --- confirms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_publish_is_confirmed_after_its_sync_and_not_before(stage, disk, size):
    """QS-17, AB-111: body and index entry are on disk, be the body in the journal or in a store."""
    queue, publisher = stage.declare(), Publisher(stage)
    disk.hold()
    publisher.publish(queue, 5, size)
    stage.is_held()
    assert publisher.confirmed == 0
    assert len(queue.actor.backing) == 5
    disk.release()
    publisher.await_confirms()


def test_what_need_not_survive_is_confirmed_at_once(stage, disk):
    """Section 3.3: transient messages, and whatever a queue that is not durable takes."""
    durable, other, publisher = stage.declare(), stage.declare("other", durable=False), Publisher(stage)
    disk.hold()
    publisher.publish(durable, 3, persistent=False)
    publisher.publish(other, 3, LARGE)
    stage.is_held()
    assert publisher.confirmed == 6
    assert disk.waiting == 1, "how far the numbering of the durable queue may go"


def test_what_is_acked_before_its_sync_is_confirmed_once(stage, disk):
    """QS-18, QS-30: with bodies in the store, which never need to reach the disk."""
    queue, publisher = stage.declare(), Publisher(stage)
    eater = consumer(stage, queue)
    stage.settle()
    disk.hold()
    publisher.publish(queue, 4, LARGE)
    publisher.publish(queue, 4)
    stage.is_held()
    assert len(eater.got) == 8
    disk.release()
    publisher.await_confirms()
    stage.quiet()
    assert publisher.confirmed == 8


# --- crashes and restarts ---------------------------------------------------------------------------------------------


def mixed(stage, queue, publisher):
    """Confirmed messages of every kind; returns their bodies in order."""
    found = publisher.publish(queue, 20) + publisher.publish(queue, 5, LARGE) + publisher.publish(queue, SEGMENT)
    publisher.await_confirms()
    return found


def test_a_queue_that_crashes_comes_back_with_all_it_had(stage):
    """QS-37, QS-39, C-5: against the running journal and stores; everything is redelivered; it goes on as before."""
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


def test_it_crashes_again_and_again(stage):
    """QS-24."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = []
    for _ in range(4):
        wanted += publisher.publish(queue, 10) + publisher.publish(queue, 2, LARGE)
        publisher.await_confirms()
        stage.crash(queue.address)
        queue = stage.restarted()
    assert bodies(drained(stage, queue, len(wanted))) == wanted


def test_a_queue_of_a_priority_each_comes_back(stage):
    """Section 9, C-24: each level recovers by itself, and the order between them stays."""
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
def test_the_vhost_starts_again(tmp_path, disk, is_clean, arguments):
    """QS-37, QS-39, QS-41, section 10.1: after a stop in order and after a kill; redelivered is known after the first alone."""
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
    """Section 5.5: counts come from the terms."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        mixed(stage, queue, publisher)
        stage.terminate()
        rows = stage.rows
    monkeypatch.setattr("warren.store.index.queue_index.scan_segment", None)
    with DurableStage(tmp_path, disk, rows) as stage:
        assert len(stage.recovered().actor.backing) == SEGMENT + 25


def test_unacknowledged_messages_are_ready_after_a_restart(tmp_path, disk):
    """C-7: redelivered, each at its place; what was acknowledged durably is not there."""
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


def test_bodies_that_never_came_to_the_disk_are_said_to_be_gone(tmp_path, disk):
    """C-3: an index entry whose body was lost is acked away, never an error."""
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


# --- paging -----------------------------------------------------------------------------------------------------------


def test_a_queue_that_is_to_keep_nothing_in_memory_puts_it_on_disk(stage):
    """Section 4.7, 8.3: persistent and transient bodies, in segments and stores; all come back in order."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, BACKLOG, 4100) + publisher.publish(queue, SEGMENT, 4100, persistent=False)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.info("messages_ready_ram") and status(queue)["q3"] <= SEGMENT)
    stage.quiet()
    queue.actor.backing.check()
    assert status(queue)["delta"][2] == BACKLOG
    assert bodies(drained(stage, queue, BACKLOG + SEGMENT)) == wanted


def test_what_is_embedded_leaves_memory_as_part_of_delta(stage):
    """Section 4.2: but for the segment at the head."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, BACKLOG) + publisher.publish(queue, SEGMENT, persistent=False)
    stage.target = 0.0
    stage.until(lambda: queue.actor.backing.info("messages_ready_ram") <= SEGMENT)
    stage.quiet()
    later = publisher.publish(queue, 3)
    assert bodies(drained(stage, queue, BACKLOG + SEGMENT + 3)) == wanted + later


def test_publishing_and_consuming_go_on_while_it_pages(stage, monkeypatch):
    """QS-14, QS-39."""
    monkeypatch.setattr("warren.actors.queue.durability.REPORT_SECONDS", 0.001)
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
    assert queue.actor.backing.info("disk_reads") > SEGMENT, "it has paged"


def test_priorities_page_under_traffic(stage, monkeypatch):
    """Section 9, QS-36: three levels in one queue that is to keep nothing in memory; each consumer's deliveries of a level are in its order, and nothing is missing."""
    monkeypatch.setattr("warren.actors.queue.durability.REPORT_SECONDS", 0.001)
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
    assert queue.actor.backing.info("disk_reads") > SEGMENT, "it has paged"


def test_a_backlog_of_priorities_comes_from_the_disk_by_level(stage):
    """Section 9: paged out to the last, then drained, the highest first, while more comes."""
    queue, publisher = stage.declare(x_max_priority=2), Publisher(stage)
    wanted = {priority: publisher.publish(queue, BACKLOG, 4100, priority=priority) for priority in (1, 0)}
    publisher.await_confirms()
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.info("messages_ready_ram"))
    stage.quiet()
    for level in queue.actor.durability.levels.values():
        level.check()
        assert level.info("backing_queue_status")["delta"][2] >= BACKLOG - SEGMENT
    first = publisher.publish(queue, 3, priority=9)
    assert bodies(drained(stage, queue, 2 * BACKLOG + 3)) == first + wanted[1] + wanted[0]


def test_a_crash_with_everything_paged_out(stage):
    """QS-25."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = mixed(stage, queue, publisher) + publisher.publish(queue, BACKLOG)
    publisher.publish(queue, 20, LARGE, persistent=False)
    publisher.await_confirms()
    stage.target = 0.0
    stage.until(lambda: queue.actor.backing.info("messages_ready_ram") <= SEGMENT)
    stage.quiet()
    stage.crash(queue.address)
    assert bodies(drained(stage, stage.restarted(), len(wanted))) == wanted


def test_get_reads_from_disk(stage):
    """Not empty because it must be read first (QS-46)."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 2 * SEGMENT, LARGE)
    publisher.await_confirms()
    stage.quiet()
    assert got(stage, queue, 2 * SEGMENT + 1) == [*wanted, None]


def test_gets_at_the_same_time_get_different_messages(stage):
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 5, LARGE)
    publisher.await_confirms()
    stage.quiet()
    channel = stage.create(Stub)
    asked = [stage.ask(queue.address, "get", channel.actorAddressString, channel, False) for _ in range(7)]
    found = [question.answer()[0] for question in asked]
    assert [bodies_of(delivery[3])[0] for delivery in found[:5]] == wanted and found[5:] == [None, None]


# --- lazy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, LARGE])
def test_switching_modes_under_traffic_loses_and_reorders_nothing(stage, size):
    """QS-32, section 7.2: back and forth, with unacknowledged messages and a consumer."""
    queue, publisher = stage.declare(), Publisher(stage)
    eater = consumer(stage, queue, prefetch=10)
    wanted = []
    for turn in range(30):
        wanted += publisher.publish(queue, SEGMENT // 2, size, persistent=bool(turn % 3))
        if turn % 5 == 4:
            stage.tell(stage.metadata, queue.address, "set_queue_mode", "lazy" if turn % 10 == 4 else "default")
        stage.base.run_until(lambda: True, 0)
        if turn % 7 == 6:
            stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(eater.got) == len(wanted))
    assert bodies(eater.got) == wanted
    assert not any(redelivered for _, redelivered in eater.got)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_backlog_changes_its_mode(stage, size):
    """QS-7, QS-32, QS-49: a queue that nobody reads gets there by itself."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 5 * SEGMENT, size)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False, prefetch=10)
    stage.until(lambda: len(eater.got) == 10)
    queue.tell(eater.myAddress, "cancel", "c")
    for mode in ("lazy", "default", "lazy"):
        stage.tell(stage.metadata, queue.address, "set_queue_mode", mode)
        stage.until(lambda mode=mode: status(queue)["mode"] == mode)
        stage.quiet()
        queue.actor.backing.check()
        found = status(queue)
        assert mode == "default" or found["delta"][2] + found["q3"] == 5 * SEGMENT - 10 == found["len"]
    queue.tell(eater.myAddress, "settle", "requeue", [eater.tags])
    assert bodies(drained(stage, queue, 5 * SEGMENT)) == wanted


def test_a_lazy_queue_keeps_no_bodies(stage):
    """Section 7.3: embedded ones go to segments as soon as they are too many."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    wanted = publisher.publish(queue, 1000, 3000)
    publisher.await_confirms()
    stage.quiet()
    assert queue.actor.backing.info("message_bytes_ram") == 0
    assert stage.files_of(queue)
    assert bodies(drained(stage, queue, 1000)) == wanted


# --- what takes messages from the head while they are on disk ---------------------------------------------------------


def dead_lettering(stage, **arguments):
    """A lazy queue whose dead letters go to a stub queue."""
    grave = stage.queue("grave", process=Stub)
    return grave, stage.declare(
        x_queue_mode="lazy", x_dead_letter_exchange="", x_dead_letter_routing_key="grave", **arguments
    )


def buried(stage, grave):
    return [
        body
        for _, entries in grave.actor.take("publish")
        for _, contents, *_ in entries
        for body in bodies_of(contents)
    ] + [
        body
        for (entries,) in grave.actor.take("publish_at_most_once")
        for _, contents, *_ in entries
        for body in bodies_of(contents)
    ]


def all_buried(stage, grave, count):
    stage.until(
        lambda: (
            sum(
                len(entry[1])
                for message in grave.actor.heard
                if message[0].startswith("publish")
                for entry in message[-1]
            )
            >= count
        )
    )
    stage.quiet()
    return buried(stage, grave)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_length_limit_drops_what_is_on_disk(stage, size):
    """AB-100: the oldest, whole, to the dead-letter exchange."""
    grave, queue = dead_lettering(stage, x_max_length=SEGMENT)
    publisher = Publisher(stage)
    wanted = publisher.publish(queue, SEGMENT, size)
    publisher.await_confirms()
    stage.quiet()
    wanted += publisher.publish(queue, SEGMENT + 10, size)
    assert all_buried(stage, grave, SEGMENT + 10) == wanted[: SEGMENT + 10]
    publisher.await_confirms()
    assert bodies(drained(stage, queue, SEGMENT)) == wanted[SEGMENT + 10 :]


def test_a_length_limit_without_dead_letters(stage):
    """QS-18: what is dropped is confirmed as well."""
    queue, publisher = stage.declare(x_queue_mode="lazy", x_max_length=10), Publisher(stage)
    wanted = []
    for _ in range(5):
        wanted += publisher.publish(queue, 30, LARGE)
        stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(queue.actor.backing) == 10)
    assert bodies(drained(stage, queue, 10)) == wanted[-10:]


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_expires_on_disk_is_dead_lettered_whole(stage, size):
    """AB-94 to AB-97."""
    grave, queue = dead_lettering(stage, x_message_ttl=50)
    publisher = Publisher(stage)
    wanted = publisher.publish(queue, 2 * SEGMENT, size)
    assert all_buried(stage, grave, 2 * SEGMENT) == wanted
    publisher.await_confirms()
    assert queue.actor.backing.depth() == 0


def test_what_expired_while_the_node_was_down(tmp_path, disk):
    """Section 10.1: a start expires heads."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(x_message_ttl=1), Publisher(stage)
        publisher.publish(queue, 3)
        publisher.publish(queue, 3, LARGE)
        publisher.await_confirms()
        stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue = stage.recovered()
        stage.until(lambda: not queue.actor.backing.depth())


@pytest.mark.parametrize("size", [10, LARGE])
def test_rejected_messages_whose_bodies_were_paged_out(stage, size):
    """AB-133: a rejected message is dead-lettered with its body, wherever that is."""
    grave = stage.queue("grave", process=Stub)
    queue, publisher = stage.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="grave"), Publisher(stage)
    wanted = publisher.publish(queue, 10, size)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == 10)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.info("messages_unacknowledged_ram") or size == 10)
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags[:4]])
    queue.tell(eater.myAddress, "settle", "ack", [eater.tags[4:6]])
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags[6:]])
    assert sorted(all_buried(stage, grave, 8)) == sorted(wanted[:4] + wanted[6:])
    assert queue.actor.backing.depth() == 0


def test_a_channel_that_ends_while_its_rejections_are_read(stage, disk):
    """AB-53: they were rejected before it ended, so they do not come back."""
    grave = stage.queue("grave", process=Stub)
    queue, publisher = stage.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="grave"), Publisher(stage)
    wanted = publisher.publish(queue, 4, LARGE)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == 4)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.info("messages_unacknowledged_ram"))
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags])
    queue.tell(eater.myAddress, "channel_closing")
    assert all_buried(stage, grave, 4) == wanted
    assert queue.actor.backing.depth() == 0


# --- purge and delete -------------------------------------------------------------------------------------------------


def stored(stage):
    """Bytes of bodies that the persistent store counts as wanted."""
    engine = stage.actor(stage.storage.persistent).engine
    return engine._summary.sum_valid_data


@pytest.mark.parametrize("arguments", [{}, {"x_queue_mode": "lazy"}, {"x_max_priority": 2}])
@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_purge_and_delete_give_the_files_back(stage, disk, arguments, verb):
    """QS-22, QS-23, section 4.6: segments and bodies; the count is that of ready messages."""
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
    """C-16."""
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
def test_it_is_deleted_while_it_writes_its_segments(stage, disk, kind):
    """C-16, QS-23: nothing of it is left, and nobody crashes."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    stage.ask(queue.address, "flush_synced").answer()
    publisher.publish(queue, SEGMENT)
    publisher.await_confirms()
    if kind == "delete":
        disk.hold(kind)
    assert len(got(stage, queue, SEGMENT)) == SEGMENT  # a segment of which nothing is wanted any more
    if kind != "delete":
        stage.quiet()
        disk.hold(kind)
    folding = stage.ask(queue.address, "flush_synced")
    stage.is_held()
    deleting = stage.ask(queue.address, "delete", False, False)
    stage.settle()
    assert not deleting.is_answered
    disk.release()
    assert deleting.answer() == SEGMENT + 25
    assert folding.is_answered
    stage.quiet()
    assert not stage.files_of(queue) and not stage.is_alive(queue.address)
    assert stage.actor(stage.metadata).take("queue_restarted") == []


def test_it_is_purged_while_it_writes_its_segments(stage, disk):
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


def test_what_comes_to_a_queue_that_is_being_deleted(stage, disk):
    """AB-86: refused or lost without a trace, never a crash."""
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
    stage.tell(stage.metadata, queue.address, "set_queue_mode", "lazy")
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
    """AB-63, QS-23, C-17."""
    queue, publisher = stage.declare(), Publisher(stage)
    mixed(stage, queue, publisher)
    stage.ask(queue.address, "flush_synced").answer()
    monkeypatch.setitem(Queue._handlers, "start", None)
    stage.crash(queue.address)
    stage.until(lambda: any(message[0] == "queue_crashed" for message in stage.actor(stage.metadata).heard))
    assert stage.files_of(queue)
    assert stage.ask(stage.supervisor, "forget_queue", queue.id).answer() is True
    stage.quiet()
    assert not stage.files_of(queue)


def references(stage):
    return stage.actor(stage.storage.persistent).engine.reference_counts()


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_bodies_of_a_queue_that_was_deleted_before_it_was_recovered_go_with_the_next_start(
    tmp_path, disk, monkeypatch, ends_in_order
):
    """QS-26, section 10.1: it is no client of the store, which must not trust what it had counted for it."""
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


def test_what_could_not_be_recovered_waits_with_its_next_attempt_for_the_store(tmp_path, disk, monkeypatch):
    """After an unclean end the store is started when the queues have been looked through, and takes its time."""
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
        heard = stage.actor(stage.metadata).heard
        stage.until(lambda: any(message[0] == "queue_recovered" for message in heard))
        [address] = [message[4] for message in heard if message[0] == "queue_recovered"]
        stage.routing.put_queue(replace(rows[0], address=address, state="running"))
        assert bodies(drained(stage, stage.recovered(), 3)) == wanted


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3000, LARGE])
def test_a_full_disk_confirms_nothing_and_goes_on_when_there_is_room(tmp_path, monkeypatch, size):
    """QS-35: publishers are blocked by the disk alarm; all that was confirmed, and nothing torn, is there after a kill."""
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    disk = HeldDisk(limit=200_000)
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        wanted = publisher.publish(queue, 10, size)
        publisher.await_confirms()
        wanted += publisher.publish(queue, 100, size)
        stage.until(lambda: stage.actor(stage.alarms).heard)
        assert set(stage.alarms_heard()) == {True}  # of the store, and perhaps of the journal
        assert publisher.confirmed == 10
        disk.limit = None
        publisher.await_confirms()
        stage.until(lambda: stage.actor(stage.alarms).heard)
        assert stage.alarms_heard()[-1] is False
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert bodies(drained(stage, stage.recovered(), 110)) == wanted


def test_a_full_disk_delays_folding(stage, disk, monkeypatch):
    """QS-35: segments are written when there is room, and nothing of them is lost meanwhile."""
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = mixed(stage, queue, publisher)
    disk.fail("append", NO_SPACE, NO_SPACE)
    folding = stage.ask(queue.address, "flush_synced")
    stage.until(lambda: stage.actor(stage.alarms).heard)
    assert stage.alarms_heard() == [True]
    assert got(stage, queue, 3) == wanted[:3]
    assert folding.answer() is True
    stage.settle()
    assert stage.alarms_heard()[-1] is False
    assert bodies(drained(stage, queue, len(wanted) - 3)) == wanted[3:]


# --- credit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_queue_without_credit_from_the_disk_grants_none(stage, disk, size):
    """Section 6.10, FC-5: the chain from the disk to the publisher."""
    queue, publisher = stage.declare(), Publisher(stage)
    disk.hold()
    for _ in range(9):
        publisher.publish(queue, 500, size)
        stage.settle()
    assert queue.actor.credit.blocked
    granted = sum(amount for _, amount in stage.actor(publisher.address).take("bump"))
    assert granted < 4500
    disk.release()
    publisher.await_confirms()
    stage.until(lambda: not queue.actor.credit.blocked)
    stage.quiet()
    granted += sum(amount for _, amount in stage.actor(publisher.address).take("bump"))
    assert granted == 4400


@pytest.mark.parametrize(
    "arguments", [{"x_max_length": 0}, {"x_message_ttl": 0}, {"x_max_length": 0, "x_max_priority": 1}]
)
@pytest.mark.parametrize("size", [10, LARGE])
def test_what_leaves_in_the_turn_in_which_it_came_is_confirmed(stage, arguments, size):
    """QS-18: nobody wants it on disk any more, so no store ever speaks of it."""
    queue, publisher = stage.declare(**arguments), Publisher(stage)
    publisher.publish(queue, 5, size)
    publisher.await_confirms()
    assert queue.actor.backing.depth() == 0


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_is_purged_in_the_turn_in_which_it_came_is_confirmed(stage, size):
    """QS-18, section 6.10: write and remove cancel, and the store hears of neither."""
    queue, publisher = stage.declare(), Publisher(stage)
    publisher.publish(queue, 5, size)
    stage.tell(publisher.address, queue.address, "purge")
    publisher.await_confirms()
    assert stage.actor(stage.storage.persistent).engine._summary.sum_file_size == 0


def filled_up(stage, disk, size=3000):
    """A queue with 10 confirmed messages in segments, more that cannot be written, and one that fails to fold."""
    queue, publisher = stage.declare(), Publisher(stage)
    wanted = publisher.publish(queue, 10, size)
    publisher.await_confirms()
    disk.limit = disk.held
    publisher.publish(queue, 10, size)
    folding = stage.ask(queue.address, "flush_synced")
    stage.until(lambda: len([message for message in stage.actor(stage.alarms).heard if message[2]]) >= 2)
    assert not folding.is_answered
    return queue, wanted


@pytest.mark.parametrize("size", [3000, LARGE])
def test_a_node_stops_though_the_disk_is_full(tmp_path, disk, monkeypatch, size):
    """QS-35, C-21: it ends uncleanly rather than wait for room, and what was confirmed is there."""
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


def test_deleting_a_queue_makes_room(stage, disk, monkeypatch):
    """QS-35: what cannot be written need not be, once it is deleted."""
    monkeypatch.setattr("warren.actors.disk.disk_retry.RETRY_SECONDS", 0.02)
    queue, _ = filled_up(stage, disk)
    assert stage.ask(queue.address, "delete", False, False).answer() == 20
    assert not stage.files_of(queue)


def test_what_comes_when_all_was_put_in_its_place_is_not_confirmed(stage):
    """QS-37: the program that embeds a broker publishes beside the connections, and while the broker stops."""
    queue, channel = stage.declare(), stage.channel()
    channel.say(ConfirmSelect())
    channel.publish([b"kept"], props=PERSISTENT)
    stage.until(
        lambda: (
            ("output", True)
            in [
                (message[0], BasicAck(1, False).encode() in message[1])
                for message in stage.actor(channel.connection).heard
            ]
        )
    )
    channel.frames()
    ending = stage.ask(queue.address, "terminate")
    stage.until(
        lambda: any(
            type(message) is tuple and message[-1] == ("detach", "1")
            for message in stage.mailbox(stage.storage.persistent)
        )
    )
    channel.publish([b"late"], props=PERSISTENT)
    ending.answer()
    stage.quiet()
    assert channel.frames() == [BasicNack(2, False, False)]
