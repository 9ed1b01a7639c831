"""Confirms of a queue with a disk, and the credit that it grants its publishers."""

from __future__ import annotations

import pytest

from warren.actors.disk.inspection import MessageStoreView
from warren.amqp.methods import BasicAck, BasicNack, ConfirmSelect

from ...disk_stage import Publisher, consumer
from ...stage import PERSISTENT
from ..durable import LARGE


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_publish_is_confirmed_after_its_sync_and_not_before(stage, disk, size):
    """QS-17, AB-111: a confirm waits until index entry and body are synced, whether the journal or a store has the
    body.
    """
    queue, publisher = stage.declare(), Publisher(stage)
    disk.hold()
    publisher.publish(queue, 5, size)
    stage.is_held()
    assert publisher.confirmed == 0
    assert len(queue.actor.backing) == 5
    disk.release()
    publisher.await_confirms()


def test_a_message_that_need_not_survive_is_confirmed_at_once(stage, disk):
    """queue-and-store section 3.3: transient messages, and all messages of a queue that is not durable."""
    durable, other, publisher = stage.declare(), stage.declare("other", durable=False), Publisher(stage)
    disk.hold()
    publisher.publish(durable, 3, persistent=False)
    publisher.publish(other, 3, LARGE)
    stage.is_held()
    assert publisher.confirmed == 6
    assert disk.waiting == 1, "only the durable queue's reserve of numbers is being synced"


def test_a_message_acked_before_its_sync_is_confirmed_once(stage, disk):
    """QS-18, QS-30: also if its body is in the store, where it never needs to reach the disk."""
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


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_queue_without_credit_from_the_disk_grants_none(stage, disk, size):
    """FC-16, FC-17, FC-19, FC-5, queue-and-store section 6.10: credit runs out from the disk up to the publisher, and
    comes back.
    """
    queue, publisher = stage.declare(), Publisher(stage)
    disk.hold()
    for _ in range(9):
        publisher.publish(queue, 500, size)
        stage.settle()
    assert queue.actor.channels.credit.blocked
    granted = sum(amount for _, amount in stage.actor(publisher.address).take("bump"))
    assert granted < 4500
    disk.release()
    publisher.await_confirms()
    stage.until(lambda: not queue.actor.channels.credit.blocked)
    stage.quiet()
    granted += sum(amount for _, amount in stage.actor(publisher.address).take("bump"))
    assert granted == 4400


@pytest.mark.parametrize(
    "arguments", [{"x_max_length": 0}, {"x_message_ttl": 0}, {"x_max_length": 0, "x_max_priority": 1}]
)
@pytest.mark.parametrize("size", [10, LARGE])
def test_a_message_that_leaves_in_the_turn_of_its_publish_is_confirmed(stage, arguments, size):
    """QS-18: its body is never sent to a store, so no store reports it."""
    queue, publisher = stage.declare(**arguments), Publisher(stage)
    publisher.publish(queue, 5, size)
    publisher.await_confirms()
    assert queue.actor.backing.totals().depth == 0


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_message_purged_in_the_turn_of_its_publish_is_confirmed(stage, size):
    """QS-18, queue-and-store section 6.10: write and remove cancel, and the store receives neither."""
    queue, publisher = stage.declare(), Publisher(stage)
    publisher.publish(queue, 5, size)
    stage.tell(publisher.address, queue.address, "purge")
    publisher.await_confirms()
    assert stage.actor(stage.storage.persistent).engine._summary.sum_file_size == 0


def test_a_publish_to_a_terminated_queue_is_refused(stage):
    """QS-37: the embedding program may publish while the broker stops. A queue that has flushed for the last time
    confirms nothing.
    """
    queue, channel = stage.declare(), stage.channel()
    channel.send(ConfirmSelect())
    channel.publish([b"kept"], props=PERSISTENT)
    acked = BasicAck(1, False).encode()
    stage.until(
        lambda: any(
            message[0] == "output" and acked in b"".join(message[1])
            for message in stage.actor(channel.connection).received
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
    channel.publish([b"too late"], props=PERSISTENT)
    ending.answer()
    stage.quiet()
    assert channel.frames() == [BasicNack(2, False, False)]


def test_nothing_reaches_the_disk_after_the_terms_of_a_queue(stage):
    """A channel of another node may acknowledge while this one stops, after the queue has written down what it has. The
    next start has that message again, so it must have its body: else the second acknowledgement would remove the body
    that another queue shares. A confirmed message was lost like that.
    """
    queue, channel = stage.declare(), stage.channel()
    channel.publish([bytes(LARGE)], props=PERSISTENT)
    store = MessageStoreView(stage.actor(stage.storage.persistent))
    stage.until(lambda: sum(store.references().values()) == 1)
    stage.quiet()  # so that the store has no turn of its own before `until` has looked into its mailbox
    backing, durability = queue.actor.backing, queue.actor.durability
    backing.fetch(1, True)
    ending = stage.ask(queue.address, "terminate")
    stage.until(
        lambda: any(
            type(message) is tuple and message[-1] == ("detach", "1")
            for message in stage.mailbox(stage.storage.persistent)
        )
    )
    assert backing.ack([0]) == 1
    durability.send()
    assert ending.answer()["persistent_count"] == 1
    stage.quiet()
    assert sum(store.references().values()) == 1
