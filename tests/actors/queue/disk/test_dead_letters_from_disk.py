"""Length limits, expiry and rejections of messages whose bodies are on the disk."""

from __future__ import annotations

import pytest

from ...disk_stage import SEGMENT, DurableStage, Publisher, bodies, consumer, drained
from ...stage import Stub, bodies_of
from ..durable import LARGE


def dead_lettering(stage, **arguments):
    """A stub of a queue, and a lazy queue whose dead letters go to it."""
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
                for message in grave.actor.received
                if message[0].startswith("publish")
                for entry in message[-1]
            )
            >= count
        )
    )
    stage.quiet()
    return buried(stage, grave)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_length_limit_drops_messages_on_the_disk(stage, size):
    """A length limit dead-letters the oldest messages with their bodies (AB-100)."""
    grave, queue = dead_lettering(stage, x_max_length=SEGMENT)
    publisher = Publisher(stage)
    wanted = publisher.publish(queue, SEGMENT, size)
    publisher.await_confirms()
    stage.quiet()
    wanted += publisher.publish(queue, SEGMENT + 10, size)
    assert all_buried(stage, grave, SEGMENT + 10) == wanted[: SEGMENT + 10]
    publisher.await_confirms()
    assert bodies(drained(stage, queue, SEGMENT)) == wanted[SEGMENT + 10 :]


def test_a_message_dropped_by_a_length_limit_is_confirmed(stage):
    """A message that a length limit drops is confirmed (QS-18)."""
    queue, publisher = stage.declare(x_queue_mode="lazy", x_max_length=10), Publisher(stage)
    wanted = []
    for _ in range(5):
        wanted += publisher.publish(queue, 30, LARGE)
        stage.quiet()
    publisher.await_confirms()
    stage.until(lambda: len(queue.actor.backing) == 10)
    assert bodies(drained(stage, queue, 10)) == wanted[-10:]


@pytest.mark.parametrize("size", [10, LARGE])
def test_messages_that_expire_on_the_disk_are_dead_lettered_whole(stage, size):
    """Messages that expire on the disk are dead-lettered in order with their bodies (AB-94 to AB-97)."""
    grave, queue = dead_lettering(stage, x_message_ttl=50)
    publisher = Publisher(stage)
    wanted = publisher.publish(queue, 2 * SEGMENT, size)
    assert all_buried(stage, grave, 2 * SEGMENT) == wanted
    publisher.await_confirms()
    assert queue.actor.backing.totals().depth == 0


def test_messages_expire_that_were_due_while_the_node_was_down(tmp_path, disk):
    """Messages that expired while the node was down are dead-lettered when the queue starts (queue-and-store section
    10.1).
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(x_message_ttl=1), Publisher(stage)
        publisher.publish(queue, 3)
        publisher.publish(queue, 3, LARGE)
        publisher.await_confirms()
        stage.terminate()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue = stage.recovered().actor
        stage.until(lambda: not queue.backing.totals().depth)


@pytest.mark.parametrize("size", [10, LARGE])
def test_rejected_messages_whose_bodies_are_paged_out_are_dead_lettered_whole(stage, size):
    """The queue reads the bodies of rejected messages before it makes dead letters of them (AB-133)."""
    grave = stage.queue("grave", process=Stub)
    queue, publisher = stage.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="grave"), Publisher(stage)
    wanted = publisher.publish(queue, 10, size)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == 10)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.paging.ram_acks() or size == 10)
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags[:4]])
    queue.tell(eater.myAddress, "settle", "ack", [eater.tags[4:6]])
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags[6:]])
    assert sorted(all_buried(stage, grave, 8)) == sorted(wanted[:4] + wanted[6:])
    assert queue.actor.backing.totals().depth == 0


def test_a_channel_that_ends_while_its_rejections_are_read(stage, disk):
    """Messages that were rejected before their channel ended are dead-lettered and not requeued, although their bodies
    were still being read then (AB-53).
    """
    grave = stage.queue("grave", process=Stub)
    queue, publisher = stage.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="grave"), Publisher(stage)
    wanted = publisher.publish(queue, 4, LARGE)
    publisher.await_confirms()
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == 4)
    stage.target = 0.0
    stage.until(lambda: not queue.actor.backing.paging.ram_acks())
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags])
    queue.tell(eater.myAddress, "channel_closing")
    assert all_buried(stage, grave, 4) == wanted
    assert queue.actor.backing.totals().depth == 0
