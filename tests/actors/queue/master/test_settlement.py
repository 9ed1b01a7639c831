"""Acknowledged, requeued and rejected messages, decided without a process (AB-129 to AB-133)."""

from __future__ import annotations

import pytest

from warren.actors.queue.disk.disk_loader import PendingRead
from warren.store.queue.memory_queue import MemoryQueue

from .core import Core


class BodiesElsewhere(MemoryQueue):
    """A queue whose pending messages have their bodies on the disk."""

    def prepare_pending(self, tags):
        return "a job"


def delivered(count=4, **arguments):
    """A core whose only consumer has `count` messages, with the ack tags 0, 1, …"""
    core = Core(**arguments)
    consumer = core.consume()
    core.publish(count)
    core.turn()
    core.bodies()
    return core, consumer


def test_each_outcome():
    """A requeued message is delivered again; an acknowledged or rejected one is gone (AB-129, AB-131)."""
    core, consumer = delivered()
    core.master.settle(consumer.channel, "ack", [[1]])
    core.master.settle(consumer.channel, "reject", [[2]])
    core.master.settle(consumer.channel, "requeue", [[0], [3]])
    core.turn()
    assert core.bodies() == [0, 3] and core.backing.totals().depth == 2 and consumer.unacked == 2
    assert core.master.dead_letterer.counts.dead["rejected"] == 1


@pytest.mark.parametrize("outcome", ["ack", "requeue", "reject"])
def test_unknown_tags_do_nothing(outcome):
    core, consumer = delivered()
    core.master.settle(consumer.channel, "ack", [[0]])
    core.master.settle(consumer.channel, outcome, [[0, 99]])
    core.turn()
    assert consumer.unacked == 3 and core.backing.totals().depth == 3 and core.bodies() == []


def test_rejected_messages_become_dead_letters():
    core, consumer = delivered(x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.master.settle(consumer.channel, "reject", [[0, 2]])
    assert core.buried() == [("grave", [0, 2])]


def test_bodies_on_the_disk_are_read_before_they_become_dead_letters():
    """The bodies of rejected messages are read from the disk before they become dead letters. Until then the replica is
    not quiet, so a node that stops waits for them.
    """
    core, consumer = delivered(backing=BodiesElsewhere(), x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.master.settle(consumer.channel, "reject", [[0]])
    core.turn()
    (job,) = core.effects.jobs
    assert type(job) is PendingRead and job.tags == [0]
    assert core.buried() == [] and core.backing.totals().depth == 4 and not core.master.is_quiet
    job.finish()
    assert core.buried() == [("grave", [0])] and core.backing.totals().depth == 3 and core.master.is_quiet


def test_get_takes_the_head_and_waits_for_nothing_that_is_in_memory():
    """basic.get takes the head, with or without acknowledgement, and does not wait for a message that is in memory
    (AB-137).
    """
    core = Core()
    core.publish(2)
    core.turn()
    record = core.channel()
    with pytest.raises(StopIteration) as stop:
        next(core.master.get(record))
    delivery, left = stop.value.value
    assert list(delivery.tags) == [0] and left == 1 and list(record.pending) == [0]
    with pytest.raises(StopIteration) as stop:
        next(core.master.get(None))
    assert stop.value.value[1] == 0 and core.backing.totals().depth == 1
    with pytest.raises(StopIteration) as stop:
        next(core.master.get(None))
    assert stop.value.value == (None, 0)


def test_get_takes_nothing_for_a_channel_that_ended_while_the_head_was_read():
    core = Core()
    core.publish(1)
    core.turn()
    record = core.channel()
    record.has_ended = True
    with pytest.raises(StopIteration) as stop:
        next(core.master.get(record))
    assert stop.value.value == (None, 0) and core.backing.totals().depth == 1
