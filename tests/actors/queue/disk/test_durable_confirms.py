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
    """A confirm waits until index entry and body are synced, whether the journal or a message store has the body
    (QS-17, AB-111).
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
    """Transient messages, and all messages of a queue that is not durable, are confirmed at once (queue-and-store
    section 3.3).
    """
    durable, other, publisher = stage.declare(), stage.declare("other", durable=False), Publisher(stage)
    disk.hold()
    publisher.publish(durable, 3, persistent=False)
    publisher.publish(other, 3, LARGE)
    stage.is_held()
    assert publisher.confirmed == 6
    assert disk.waiting == 1, "only the durable queue's reserve of numbers is being synced"


def test_a_message_acked_before_its_sync_is_confirmed_once(stage, disk):
    """A message that is acknowledged before its sync is confirmed once, also if its body would go to a store and now
    need not be written (QS-18, QS-30).
    """
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
    """A queue that has no credit from the disk grants its publishers none, and grants it again when the disk does
    (FC-5, FC-16, FC-17, FC-19, queue-and-store section 6.10).
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
    """A message that leaves the queue in the turn of its publish is confirmed, although its body never goes to a store,
    which could report it (QS-18).
    """
    queue, publisher = stage.declare(**arguments), Publisher(stage)
    publisher.publish(queue, 5, size)
    publisher.await_confirms()
    assert queue.actor.backing.totals().depth == 0


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_message_purged_in_the_turn_of_its_publish_is_confirmed(stage, size):
    """A message that is purged in the turn of its publish is confirmed: write and remove cancel each other, so the
    store receives neither (QS-18, queue-and-store section 6.10).
    """
    queue, publisher = stage.declare(), Publisher(stage)
    publisher.publish(queue, 5, size)
    stage.tell(publisher.address, queue.address, "purge")
    publisher.await_confirms()
    assert stage.actor(stage.storage.persistent).engine._summary.sum_file_size == 0


def test_a_publish_to_a_terminated_queue_is_refused(stage):
    """A publish by the embedding program while the broker stops is not confirmed by a queue that has flushed for the
    last time (QS-37).
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
    """After a queue has written its terms, an acknowledgement from a channel on another node has no effect on the disk.
    The next start has the message again, so its body must be there too: its second acknowledgement would otherwise
    remove a body that another queue shares. A confirmed message was lost in this way.
    """
    queue, channel = stage.declare(), stage.channel()
    channel.publish([bytes(LARGE)], props=PERSISTENT)
    store = MessageStoreView(stage.actor(stage.storage.persistent))
    stage.until(lambda: sum(store.references().values()) == 1)
    stage.quiet()  # so that the store has no turn before `until` checks its mailbox
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
