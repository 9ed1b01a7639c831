"""The processes of replicas on a disk: what they find when they start, and what remains when they leave a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.routing.rows import Member, MirrorGroup, QueueRow
from warren.runtime.errors import ProcessDown
from warren.store.messages.lives import FIRST_LIFE

from ..disk_stage import Publisher
from ..stage import Queue_
from .durable import got, mixed


def replica_row(stage, generation: int = 1, master: str | None = None) -> QueueRow:
    """The row of a queue with a replica on this node. Its master is on the node `master`, or on this one if that is
    None.
    """
    here = stage.context.node_name
    nodes = [here] if master is None else [master, here]
    ring = tuple(Member(node, "1", generation + at) for at, node in enumerate(nodes))
    group = MirrorGroup(ring, epoch=generation, reign=generation, wanted=tuple(nodes), members=generation + 1)
    return QueueRow("/", "q", None, "ab" * 16, True, node=nodes[0], replicas=tuple(nodes), group=group)


def start(stage, row: QueueRow, from_disk: bool) -> Queue_:
    started = stage.ask(stage.supervisor, "start_replica", row, from_disk).answer()
    stage.routing.put_queue(started)
    return Queue_(stage, started)


def end(stage, queue: Queue_, keeps_files: bool) -> None:
    assert stage.ask(stage.supervisor, "end_replica", queue.id, keeps_files).answer() is True
    assert not stage.is_alive(queue.address)
    stage.quiet()


def test_a_replica_starts_with_what_the_disk_has_or_with_nothing(stage):
    queue = start(stage, replica_row(stage), from_disk=False)
    assert queue.actor.member == queue.row.group.master
    wanted = mixed(stage, queue, Publisher(stage))
    end(stage, queue, keeps_files=True)
    again = start(stage, replica_row(stage, 2), from_disk=True)
    assert stage.ask(again.address, "counts").answer() == (len(wanted), 0)
    assert got(stage, again, 3) == wanted[:3]
    stage.ask(again.address, "flush_synced").answer()
    end(stage, again, keeps_files=True)
    assert stage.files_of(again)
    empty = start(stage, replica_row(stage, 3), from_disk=False)
    assert stage.ask(empty.address, "counts").answer() == (0, 0)
    publisher = Publisher(stage)
    bodies = publisher.publish(empty, 5)
    publisher.await_confirms()
    end(stage, empty, keeps_files=True)
    assert got(stage, start(stage, replica_row(stage, 4), from_disk=True), 6) == [*bodies, None], (
        "what an earlier life had does not come back"
    )


def learner_row(stage, generation: int) -> QueueRow:
    """The row of a queue with a replica on this node that copies it from another one."""
    row = replica_row(stage, generation, master="other")
    *ring, learner = row.group.ring
    return replace(row, group=replace(row.group, ring=tuple(ring), learners=(learner,)))


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_learner_goes_on_with_the_number_behind_its_last_message(stage, is_flushed):
    """A learner continues with the number after its last message. A queue that gives numbers itself would continue
    after all numbers that it has reserved (SP-25).
    """
    queue = start(stage, replica_row(stage), from_disk=False)
    wanted = mixed(stage, queue, Publisher(stage))
    got(stage, queue, 3)
    if is_flushed:
        stage.ask(queue.address, "flush_synced").answer()
    stage.crash(queue.address)
    stage.until(lambda: not stage.is_alive(queue.address))
    stage.settle()
    learner = start(stage, learner_row(stage, 2), from_disk=True)
    backing = learner.actor.backing
    assert backing.numbers() == range(3, len(wanted))
    assert (backing.lives, backing.totals().depth) == (FIRST_LIFE, len(wanted) - 3)
    publisher = Publisher(stage)
    wanted += publisher.publish(learner, 5)
    publisher.await_confirms()
    stage.crash(learner.address)
    stage.until(lambda: not stage.is_alive(learner.address))
    stage.settle()
    master = start(stage, replica_row(stage, 3), from_disk=True)
    assert master.actor.backing.numbers().stop > len(wanted), "it gives numbers itself"
    assert got(stage, master, len(wanted) - 2) == [*wanted[3:], None]


def test_a_learner_that_has_lost_everything_keeps_its_place(stage):
    queue = start(stage, replica_row(stage), from_disk=False)
    wanted = mixed(stage, queue, Publisher(stage))
    got(stage, queue, len(wanted))
    end(stage, queue, keeps_files=True)
    learner = start(stage, learner_row(stage, 2), from_disk=True)
    assert learner.actor.backing.numbers() == range(len(wanted), len(wanted))


def test_nothing_is_left_of_a_replica_that_is_not_wanted(stage):
    queue = start(stage, replica_row(stage), from_disk=False)
    mixed(stage, queue, Publisher(stage))
    stage.ask(queue.address, "flush_synced").answer()
    end(stage, queue, keeps_files=False)
    assert not stage.files_of(queue)
    assert stage.ask(stage.supervisor, "end_replica", queue.id, False).answer() is True


def test_nothing_is_left_of_a_replica_that_has_crashed_when_its_queue_is_deleted(stage):
    """A replica that crashes leaves its files to the next member. If the queue is deleted before there is one, the
    supervisor removes them: otherwise they would take space until the node starts again (QS-23).
    """
    queue = start(stage, replica_row(stage), from_disk=False)
    mixed(stage, queue, Publisher(stage))
    stage.ask(queue.address, "flush_synced").answer()
    stage.crash(queue.address)
    stage.until(lambda: not stage.is_alive(queue.address))
    stage.settle()
    assert stage.files_of(queue)
    assert stage.ask(stage.supervisor, "forget_queue", queue.id).answer() is True
    assert not stage.files_of(queue)
    assert not stage.actor(stage.storage.journal).files.numbers


def test_a_replica_that_leaves_its_group_ends_by_a_fault(stage):
    """A replica that leaves its group ends as if it had crashed: at an orderly end its channels would confirm publishes
    that no other member has (AB-86).
    """
    queue = start(stage, replica_row(stage), from_disk=False)
    asked = stage.ask(queue.address, "flush_synced")
    left = replace(queue.row, group=replace(queue.row.group, ring=(Member("other", "1", 9),)), node="other")
    stage.tell(stage.metadata, queue.address, "group_changed", left)
    stage.until(lambda: not stage.is_alive(queue.address))
    outcome = stage.actor(asked._asker).outcome
    stage.until(lambda: bool(outcome))
    assert outcome[0] is True or isinstance(outcome[0], ProcessDown) and outcome[0].reason.is_fault
    stage.settle()
    assert stage.actor(stage.metadata).take("replica_ended") == [("/", "q", queue.id, 1)]


def test_a_replica_that_crashes_is_reported_and_not_restarted(stage):
    queue = start(stage, replica_row(stage, master="other"), from_disk=False)
    stage.crash(queue.address)
    stage.until(lambda: not stage.is_alive(queue.address))
    stage.settle()
    metadata = stage.actor(stage.metadata)
    assert metadata.take("replica_ended") == [("/", "q", queue.id, 2)]
    assert not metadata.take("queue_restarted")


def test_a_plain_queue_is_restarted_unless_it_is_mirrored_since(stage):
    queue = stage.declare("q")
    mirrored = replace(replica_row(stage), queue_id=queue.id)
    stage.tell(stage.metadata, stage.supervisor, "mirror_queue", mirrored)
    stage.crash(queue.address)
    stage.until(lambda: not stage.is_alive(queue.address))
    stage.settle()
    metadata = stage.actor(stage.metadata)
    assert metadata.take("replica_ended") == [("/", "q", queue.id, 1)] and not metadata.take("queue_restarted")


def test_a_queue_whose_process_ended_with_its_mirroring_is_restarted_as_a_plain_one(stage):
    queue = start(stage, replica_row(stage), from_disk=False)
    wanted = mixed(stage, queue, Publisher(stage))
    plain = replace(queue.row, address=None, group=None)
    stage.tell(stage.metadata, stage.supervisor, "restart_queue", plain)
    stage.settle()
    assert stage.is_alive(queue.address), "a queue that has a process gets no other one"
    stage.ask(queue.address, "flush_synced").answer()
    stage.crash(queue.address)
    stage.until(lambda: not stage.is_alive(queue.address))
    stage.settle()
    metadata = stage.actor(stage.metadata)
    assert metadata.take("replica_ended") == [("/", "q", queue.id, 1)]
    for _ in range(2):
        stage.tell(stage.metadata, stage.supervisor, "restart_queue", plain)
    stage.quiet()
    ((*where, address),) = metadata.take("queue_restarted")
    assert where == ["/", "q", queue.id]
    stage.routing.put_queue(plain.at(address))
    assert got(stage, Queue_(stage, plain.at(address)), 3) == wanted[:3]
    stage.crash(address)
    stage.until(lambda: not stage.is_alive(address))
    stage.quiet()
    assert metadata.take("queue_restarted") and not metadata.take("replica_ended"), "it is a plain queue from now on"
