"""Constants and requests to a queue that the tests of queues with a disk share."""

from __future__ import annotations

import errno

from warren.amqp.frames import content_body
from warren.store.queue.variable.paging import IO_BATCH_SIZE

from ..disk_stage import SEGMENT
from ..stage import Stub

#: Bytes of a body that belongs in a message store.
LARGE = 10_000

#: So many messages that paging moves all but one segment to the disk.
BACKLOG = IO_BATCH_SIZE + SEGMENT

NO_SPACE = OSError(errno.ENOSPC, "injected")


def status(queue):
    """Where the ready messages of a queue are, by the names of queue-and-store section 4.9."""
    sub = queue.actor.backing.sub_queues
    mode = "lazy" if sub.is_lazy else "default"
    return {"mode": mode, "q3": sub.q3.count, "delta": sub.delta.count, "len": len(sub)}


def got(stage, queue, count, no_ack=True):
    """The bodies that `count` basic.gets return; None for get-empty."""
    channel = stage.create(Stub)
    found = []
    for _ in range(count):
        delivery, _ = stage.ask(queue.address, "get", channel.actorAddressString, channel, no_ack).answer()
        found.append(None if delivery is None else content_body(delivery[3][0]))
    return found


def mixed(stage, queue, publisher):
    """Publish small and large messages, wait for their confirms, and return their bodies in order."""
    found = publisher.publish(queue, 20) + publisher.publish(queue, 5, LARGE) + publisher.publish(queue, SEGMENT)
    publisher.await_confirms()
    return found
