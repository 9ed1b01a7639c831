"""A policy begins or ends the mirroring of a queue that clients use: each publish gets its confirm all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.mirror.node_mirroring import NodeMirroring
from warren.routing.rows import Member, MirrorGroup, QueueRow

from ...disk_stage import DurableStage, HeldDisk, Publisher

OTHER = "other"


@pytest.fixture
def stage(tmp_path):
    with DurableStage(tmp_path, HeldDisk()) as stage:
        yield stage


def declared(stage, **arguments):
    """A queue that is not mirrored yet."""
    queue = stage.declare(**arguments)
    queue.actor.context = replace(queue.actor.context, mirroring=NodeMirroring())
    return queue


def change(stage, queue, *nodes: str, learners=(), reign: int = 1) -> None:
    """Have the queue's row give it replicas on these nodes, the master first; none: it is not mirrored."""
    row: QueueRow = queue.actor.row
    epoch = 1 if row.group is None else row.group.epoch + 1
    numbers = {stage.context.node_name: 1, OTHER: 2}
    ring = tuple(Member(node, "1", numbers[node]) for node in nodes)
    others = tuple(Member(node, "1", numbers[node]) for node in learners)
    group = MirrorGroup(ring, learners=others, epoch=epoch, reign=reign, wanted=nodes, members=2) if nodes else None
    row = replace(row, node=nodes[0] if nodes else stage.context.node_name, group=group)
    stage.tell(stage.metadata, queue.address, "group_changed", row)
    stage.settle()


def test_what_waits_for_the_disk_when_the_queue_gets_replicas_is_confirmed(stage):
    queue, publisher = declared(stage), Publisher(stage)
    stage.disk.hold()
    publisher.publish(queue, 3)
    stage.is_held()
    change(stage, queue, stage.context.node_name)
    publisher.publish(queue, 2)
    assert publisher.confirmed == 0
    stage.disk.release()
    publisher.await_confirms()


@pytest.mark.parametrize("priority", [0, 2])
def test_what_waits_for_other_replicas_when_the_queue_loses_them_is_confirmed(stage, priority):
    queue, publisher = declared(stage, x_max_priority=3), Publisher(stage)
    here = stage.context.node_name
    change(stage, queue, here)
    publisher.publish(queue, 2, priority=priority)
    publisher.await_confirms()
    change(stage, queue, here, OTHER)
    publisher.publish(queue, 3, priority=priority)
    stage.quiet()
    stage.disk.hold()
    publisher.publish(queue, 2, priority=priority)
    stage.is_held()
    assert publisher.confirmed == 2
    change(stage, queue)
    assert publisher.confirmed == 5, "the disk has these"
    stage.disk.release()
    publisher.await_confirms()
    publisher.publish(queue, 1, priority=priority)
    publisher.await_confirms()


def test_a_replica_that_is_becoming_the_master_when_the_queue_loses_its_replicas_serves_clients(stage):
    """It waits for the acknowledgements of the old master, which is still in the ring, when the policy is cleared."""
    queue, publisher = declared(stage), Publisher(stage)
    here = stage.context.node_name
    change(stage, queue, OTHER, here)
    queue.actor.take_role(queue.actor.membership.replication.role())
    change(stage, queue, here, OTHER, reign=2)
    publisher.publish(queue, 2)
    stage.quiet()
    assert not queue.actor.membership.serves
    change(stage, queue)
    assert queue.actor.membership.replication is None
    publisher.publish(queue, 1)
    publisher.await_confirms()
    assert stage.ask(queue.address, "counts").answer() == (3, 0)
