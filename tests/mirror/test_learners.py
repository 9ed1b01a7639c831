"""A replica that copies its queue from another one while messages are published (CL-85), and what it knows later."""

from __future__ import annotations

import asyncio

from warren.mirror import sync_source

from .replicas import Group


def copy_chunk(learner, source):
    """The learner gets its next chunk from this replica."""
    replication = learner.replication
    asyncio.run(replication._get_chunk(replication._target, source.member))


def arrive(group):
    """Whatever is on its way arrives, and no disk is done meanwhile."""
    while any([group.arrive(pair) for pair in list(group.wires)]):
        pass


def test_a_master_that_was_a_learner_knows_who_has_published():
    """The publish came while the replica copied the queue, so a chunk brought it, which does not name the publisher.

    The new master said that it had not got it, and the channel refused a message that is in the queue (CL-95).
    """
    group = Group("a")
    group.publish()
    group.run()
    learner = group.learn("b")
    arrive(group)
    group.publish(2)
    arrive(group)
    first = group.master
    copy_chunk(learner, first)
    assert learner.replication._target.is_done and learner.numbers == first.numbers and len(learner.numbers) == 3
    group.admit(learner)
    for replica in group.living():
        group.apply(replica)
    arrive(group)
    group.kill(first.member)
    group.remove(first.member)
    group.apply(learner)
    learner.replication.reclaim(None, "c1", [(1, 3)])
    group.run()
    group.end_turn(learner)
    assert learner.replies == [[(1, 2)]]


def test_a_learner_asks_again_for_a_chunk_that_may_lack_what_was_left_to_it(monkeypatch):
    """The chunk is from a member that has received less of the stream than the one before, so it lacks a publish."""
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(2)
    group.run()
    learner = group.learn("b")
    arrive(group)
    target, source = learner.replication._target, group.master
    group.publish()
    arrive(group)
    copy_chunk(learner, source)
    assert target.cursor == 1 and len(learner.numbers) == 1
    monkeypatch.setattr(source.replication, "_position", lambda: source.mirrored.position - 1)
    copy_chunk(learner, source)
    assert (target.cursor, learner.slept, len(learner.numbers)) == (1, 1, 1)
    monkeypatch.undo()
    copy_chunk(learner, source)
    assert target.is_done and learner.numbers == source.numbers


def test_the_only_member_that_is_left_answers_what_channels_ask():
    """The ring had reported what all members have just before the promotion, and the new master forgot that. So it
    answered with its next publish, or never.
    """
    group = Group("ab")
    first, second = group.replicas.values()
    group.publish(2)
    arrive(group)
    group.kill(first.member)
    group.remove(first.member)
    group.apply(second)
    second.replication.reclaim(None, "c1", [(1, 3)])
    group.run()
    group.end_turn(second)
    assert second.replies == [[(1, 2)]]
