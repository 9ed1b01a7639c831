"""Cases of queue-and-store section 12.7 that RabbitMQ's own tests lack and that need the processes of a virtual host:
reference counts after a queue was killed, an index that was deleted, and many readers.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from warren.store.bodies.location_index import LocationIndex

from ..disk_stage import SEGMENT, DurableStage, HeldDisk, Publisher, bodies, consumer, drained
from ..stage import Stub

LARGE = 10_000
"""Bytes of a body that belongs in a message store."""


@pytest.fixture
def disk():
    return HeldDisk()


def wanted(stage) -> int:
    """How many bodies of `LARGE` bytes and a little more are referenced in the persistent store."""
    engine = stage.actor(stage.storage.persistent).engine
    engine.check()
    return round(engine.file_sizes[1] / LARGE)


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_a_queue_is_killed_then_a_restart_then_the_count(tmp_path, disk, end):
    """After a queue was killed, the bodies that it had in flight have no references in the end, and another queue loses
    nothing (queue-and-store section 10.1).
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, other, publisher = stage.declare(), stage.declare("other"), Publisher(stage)
        kept = publisher.publish(queue, 20, LARGE) + publisher.publish(queue, SEGMENT)
        others = publisher.publish(other, 5, LARGE)
        publisher.await_confirms()
        eater = consumer(stage, queue, acks=False, prefetch=5)
        stage.until(lambda: len(eater.got) == 5)
        publisher.publish(queue, 3, LARGE, persistent=False)
        disk.hold()
        queue.tell(eater.myAddress, "settle", "ack", [eater.tags])
        stage.is_held()
        stage.crash(queue.address)
        disk.release()
        queue = stage.restarted()
        stage.quiet()
        count = len(queue.actor.backing)
        assert count == len(kept) - 5
        if end == "clean":
            stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue, other = stage.recovered(), stage.recovered("other")
        assert (len(queue.actor.backing), len(other.actor.backing)) == (count, 5)
        assert wanted(stage) == 15 + 5
        assert bodies(drained(stage, queue, count)) == kept[5:]
        stage.until(lambda: wanted(stage) == 5)
        assert bodies(drained(stage, other, 5)) == others
        stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        assert wanted(stage) == 0
        assert not len(stage.recovered().actor.backing)


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize(
    "arguments", [{}, {"x_queue_mode": "lazy"}, {"x_max_priority": 1}], ids=["default", "lazy", "priorities"]
)
def test_qs_42_the_index_of_a_store_is_deleted_while_the_node_is_down(tmp_path, disk, end, arguments):
    """If the index of a store is deleted while the node is down, no message is lost, and their order stays."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(**arguments), Publisher(stage)
        kept = []
        for size in (LARGE, 10, LARGE, 5000):
            kept += publisher.publish(queue, SEGMENT // 2, size)
        publisher.await_confirms()
        if end == "clean":
            stage.terminate()
        path, rows = stage.path, stage.rows
    for _ in range(2):
        shutil.rmtree(f"{path}/msg_store_persistent/index")
        with DurableStage(tmp_path, disk, rows) as stage:
            assert bodies(got := drained_and_given_back(stage, len(kept))) == kept and len(got) == len(kept)
            if end == "clean":
                stage.terminate()
            rows = stage.rows


def drained_and_given_back(stage, count):
    """Take all messages in order, and requeue them."""
    queue = stage.recovered()
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == count)
    queue.tell(eater.myAddress, "cancel", "c")
    queue.tell(eater.myAddress, "settle", "requeue", [eater.tags])
    stage.quiet()
    return eater.got


def test_200_queues_read_at_once(tmp_path, disk, monkeypatch):
    """200 queues can read at the same time, although LMDB allows 126 readers, because only the store reads its index,
    for all queues (queue-and-store section 11.1).
    """
    environments = []
    opened = LocationIndex.__init__

    def noted(index, *arguments, **options):
        opened(index, *arguments, **options)
        environments.append(index._env)

    monkeypatch.setattr(LocationIndex, "__init__", noted)
    names = [f"q{number}" for number in range(200)]
    with DurableStage(tmp_path, disk) as stage:
        publisher = Publisher(stage)
        published = {name: publisher.publish(stage.declare(name), 3, LARGE) for name in names}
        publisher.await_confirms()
        rows = stage.rows
    environments.clear()
    with DurableStage(tmp_path, disk, rows) as stage:
        eaters = {name: consumer(stage, stage.recovered(name)) for name in names}
        stage.until(lambda: all(len(eater.got) == 3 for eater in eaters.values()))
        assert {name: bodies(eater.got) for name, eater in eaters.items()} == published
        assert environments and all(environment.info()["num_readers"] < 20 for environment in environments)


class SlowMetadata(Stub):
    """Stands for a Metadata that answers `write` only when the test allows it."""

    def __init__(self):
        super().__init__()
        self.writing = []

    def on_write(self, sender):
        self.received.append(("write",))
        self.writing.append(sender)

    def on_written(self, sender):
        for asker in self.writing:
            self.reply(asker, None)


@pytest.mark.parametrize("kill", [True, False])
def test_c_16_a_queue_goes_from_the_metadata_before_its_files_go(tmp_path, disk, kill):
    """A queue's row is deleted before its files. So a kill during a deletion leaves the whole queue, or files that the
    next start removes, but never a part of the messages.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        kept = publisher.publish(queue, SEGMENT)
        publisher.await_confirms()
        stage.ask(queue.address, "flush_synced").answer()
        kept += publisher.publish(queue, 5) + publisher.publish(queue, 5, LARGE)
        publisher.await_confirms()
        slow = stage.create(SlowMetadata)
        stage.actor(queue.address).context = replace(stage.context, metadata=slow)
        stage.actor(slow).answers = {"queue_gone": True}
        deleting = stage.ask(queue.address, "delete", False, False)
        stage.until(lambda: stage.actor(slow).writing)
        stage.quiet()
        assert not deleting.is_answered and stage.files_of(queue)
        assert [message[0] for message in stage.actor(slow).received] == ["queue_gone", "write"]
        rows = stage.rows
        if not kill:
            stage.tell(slow, slow, "written")
            assert deleting.answer() == len(kept)
            assert not stage.files_of(queue)
            rows = ()
    with DurableStage(tmp_path, disk, rows) as stage:
        if kill:
            assert bodies(drained(stage, stage.recovered(), len(kept))) == kept
        else:
            assert wanted(stage) == 0 and disk.list("queues") == []


def test_d_15_a_queue_that_is_not_durable_pages_transient_messages(tmp_path, disk):
    """A queue that is not durable pages persistent messages out as transient ones, because its messages do not outlive
    the node whatever their delivery mode is.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(durable=False, x_queue_mode="lazy"), Publisher(stage)
        published = publisher.publish(queue, 10, LARGE) + publisher.publish(queue, 10)
        stage.until(lambda: publisher.confirmed == 20)
        stage.quiet()
        assert queue.actor.backing.sub_queues.delta.transient == 20
        assert wanted(stage) == 0, "nothing is in the persistent store"
        assert bodies(drained(stage, queue, 20)) == published
