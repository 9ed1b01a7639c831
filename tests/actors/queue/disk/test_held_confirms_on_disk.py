"""A backing queue that wraps one with a disk: a confirm waits for both, and only the inner one has a disk side."""

from __future__ import annotations

import pytest

from warren.routing.arguments.queue_settings import QueueSettings

from ...disk_stage import SEGMENT, Publisher, bodies, consumer, drained
from ...stage import Stub
from ..durable import BACKLOG, LARGE


def release(stage, queue, backing):
    backing.release()
    stage.actor(queue.address).request_turn()


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("is_persistent", [False, True], ids=["transient", "persistent"])
def test_confirms_wait_for_the_disk_and_for_the_outer_queue(stage, disk, holding, size, is_persistent):
    """A confirm waits for the disk and for the outer queue, whichever is later."""
    queue, publisher = stage.declare(), Publisher(stage)
    publisher.publish(queue, 5, size, persistent=is_persistent)
    stage.quiet()
    assert publisher.confirmed == 0, "the disk has them, and the outer queue holds them back"
    disk.hold()
    publisher.publish(queue, 5, size, persistent=is_persistent)
    release(stage, queue, holding[0])
    stage.is_held() if is_persistent else stage.settle()
    assert publisher.confirmed == (5 if is_persistent else 10), "the disk holds back what has to be on it"
    disk.release()
    publisher.await_confirms()


def test_a_queue_process_needs_no_more_than_the_operations_of_a_backing_queue(stage, holding):
    """Paging, rejections, modes, listings, expiry, purges and restarts of a queue use only the operations of
    `BackingQueue`.
    """
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "grave", "x_max_length": 10 * BACKLOG}
    grave = stage.queue("grave", process=Stub)
    queue, publisher = stage.declare(**arguments), Publisher(stage)
    wanted = publisher.publish(queue, BACKLOG, 4100) + publisher.publish(queue, SEGMENT)
    stage.target = 0.0
    stage.until(lambda: holding[0].inner.sub_queues.delta.count)
    stage.quiet()
    eater = consumer(stage, queue, acks=False, prefetch=10)
    stage.until(lambda: len(eater.got) == 10)
    queue.tell(eater.myAddress, "settle", "reject", [eater.tags[:5]])
    stage.until(lambda: sum(len(entry[1]) for (entries,) in peek(grave) for entry in entries) == 5)
    queue.tell(eater.myAddress, "channel_closing")
    stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(queue_mode="lazy"))
    assert stage.ask(queue.address, "info").answer()["messages_ready"] == len(wanted) - 5
    later = publisher.publish(queue, 1, expiration=0)
    publisher.publish(queue, 20)
    stage.quiet()
    release(stage, queue, holding[0])
    publisher.await_confirms()
    found = bodies(drained(stage, queue, len(wanted) - 5 + 20))
    assert found[: len(wanted) - 5] == wanted[5:] and later[0] not in found
    publisher.publish(queue, 3)
    assert stage.ask(queue.address, "purge").answer() == 3
    kept = publisher.publish(queue, 4, LARGE)
    publisher.await_confirms()
    stage.crash(queue.address)
    again = stage.restarted()
    release(stage, again, holding[1])
    assert bodies(drained(stage, again, 4)) == kept


def peek(stub):
    return [message[1:] for message in stub.actor.received if message[0] == "publish_at_most_once"]
