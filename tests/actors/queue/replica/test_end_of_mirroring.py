"""The process of a mirrored queue whose policy mirrors it no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.queue.process import Queue
from warren.mirror.node_mirroring import NodeMirroring
from warren.routing.rows import Member, MirrorGroup, QueueRow

from ...stage import Queue_, Stage, Stub

OTHER = Member("other", "1", 1)


@pytest.fixture
def stage():
    with Stage() as stage:
        stage.context = replace(stage.context, mirroring=NodeMirroring())
        yield stage


def here(stage):
    return Member(stage.context.node_name, "1", 2)


def change_group(stage, queue, group):
    """Have the queue apply a row with this group; None: the queue is not mirrored, and at home on this node."""
    node = stage.context.node_name if group is None else group.master.node
    row = replace(queue.actor.row, node=node, group=group)
    stage.tell(stage.metadata, queue.address, "group_changed", row)
    stage.settle()


def test_publishes_that_wait_for_mirrors_are_confirmed(stage):
    """What waits for a mirror, which does not answer, is confirmed when the queue has no mirror any more: it was once
    never confirmed. What is published later waits for nobody.
    """
    queue, channel = stage.queue(), stage.create(Stub)
    change_group(stage, queue, MirrorGroup((here(stage), OTHER)))
    queue.publish(channel, [b"1", b"2"], first_confirm=1)
    stage.settle()
    assert stage.actor(channel).take("confirm") == []
    change_group(stage, queue, None)
    assert stage.actor(channel).take("confirm") == [(queue.id, [(1, 2)])]
    queue.publish(channel, [b"3"], first_confirm=3)
    stage.settle()
    assert stage.actor(channel).take("confirm") == [(queue.id, [(3, 3)])]


def test_a_mirror_that_is_about_to_serve_does_so(stage):
    """A transfer has made this replica the master. While it waits for the old one, the queue loses its group. The
    process once crashed then, because a mirror has no use for a queue without a ring.
    """
    address, channel = stage.create(Queue), stage.create(Stub)
    row = QueueRow("/", "q", address, "q1", group=MirrorGroup((OTHER, here(stage))), node=OTHER.node)
    stage.tell(stage.metadata, address, "start", stage.context, row)
    stage.settle()
    queue = Queue_(stage, row)
    change_group(stage, queue, MirrorGroup((here(stage), OTHER), epoch=2, reign=2))
    queue.publish(channel, [b"1"], first_confirm=1)
    stage.settle()
    change_group(stage, queue, None)
    assert stage.is_alive(address)
    assert stage.actor(channel).take("confirm") == [(queue.id, [(1, 1)])]
