"""A queue that a policy no longer mirrors goes on with its master alone, and nothing waits for the other replicas."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from warren.actors.queue.mirroring import COPY_PEER, COPY_TIMER, RING_PEER
from warren.amqp.errors import AmqpError
from warren.mirror import ring_credit

from .replicas import Asked, FakeReplica, Group


def end_mirroring(group: Group, replica: FakeReplica) -> list[tuple[int, int]]:
    """Have the replica apply a row without a group. Returns the numbers of messages that may be confirmed now."""
    group.row = replica.row = replace(group.row, group=None)
    return replica.replication.end()


def with_proposed_learner() -> tuple[Group, FakeReplica]:
    """A master that counts a learner, and is about to propose that it join."""
    group = Group("a")
    group.publish()
    group.run()
    learner = group.learn("b")
    group.run()
    group.copy_chunk(learner)
    group.copy_chunk(learner)
    group.run()
    assert group.master.proposed is not None
    return group, learner


def test_a_learner_that_the_master_has_proposed_does_not_join(monkeypatch):
    """The queue loses its group before the log refuses the learner. The master once crashed then, and the publishes
    that it had not confirmed were refused.
    """
    group, learner = with_proposed_learner()
    master = group.master
    admission, ring = master.replication._admission, master.replication._ring
    view = ring.view

    def refused(address, command):
        end_mirroring(group, master)
        return Asked(answer(False))

    monkeypatch.setattr(master, "ask", refused)
    asyncio.run(admission._admit(ring, learner.member))
    assert ring.view is view and admission.proposed is None and admission.following == ()


async def answer(value):
    return value


def test_what_waits_for_other_replicas_alone_may_be_confirmed():
    """A message that is safe at the master may be confirmed although no other replica has it. It once never was."""
    group = Group("ab")
    master = group.master
    group.publish(2)
    group.sync(master)
    group.publish()  # this one is not on the disk of the master yet
    assert not group.confirmed
    assert end_mirroring(group, master) == [(0, 1)]
    assert master.replication.end() == [], "no message is confirmed twice"
    master.backing.sync()
    assert master.backing.drain_confirmed() == [(2, 2)], "the others are confirmed when the disk has them"


def test_publishers_are_blocked_no_longer(monkeypatch):
    """A ring that lags and a copy that lags block publishers, who once stayed blocked when the ring was gone."""
    monkeypatch.setattr(ring_credit, "WINDOW_INSTRUCTIONS", 0)
    group = Group("ab")
    master = group.master
    freed = []
    master.credit_freed = lambda: freed.append(master.credit.blocked)
    group.publish(9)
    master.replication.copy_lags(9)
    master.replication.timer_fired(COPY_TIMER)
    assert set(master.credit.credit_blocked) == {RING_PEER, COPY_PEER}
    end_mirroring(group, master)
    assert not master.credit.blocked and True not in freed


def test_a_replica_that_waits_for_the_old_master_serves_at_once():
    """A replica that a transfer makes the master waits for the acknowledgements of the old one, which leaves with the
    group.
    """
    group = Group("ab")
    group.publish(3)
    group.run()
    old, new = group.replicas.values()
    group.transfer(new.member)
    group.apply(new)
    group.end_turn(new)
    assert not new.has_promoted
    end_mirroring(group, new)
    assert new.has_promoted and len(new.numbers) == 3


def test_a_master_at_rest_goes_on():
    """A master that rests, so that another replica may take its place, serves clients again when that one is gone."""
    group = Group("ab")
    master = group.master

    async def rest():
        await master.replication.quiesce()

    asyncio.run(rest())
    assert master.is_at_rest
    end_mirroring(group, master)
    assert not master.is_at_rest and not master.replication.is_resting


def test_channels_that_ask_for_their_publishes_are_refused():
    """A channel that asks a new master which publishes are in the queue is answered when all replicas have these. If
    the group goes before that, the answer is 404, so that the channel refuses the publishes and waits no longer.
    """
    group = Group("ab")
    old, new = group.replicas.values()
    group.run()
    group.publish(3)
    while group.arrive((old.member, new.member)):
        pass
    group.kill(old.member)
    group.remove(old.member)
    group.apply(new)
    new.replication.reclaim(None, "c1", [(1, 3)])
    group.end_turn(new)
    assert new.has_promoted and new.replies == [], "nothing is on the disk of the new master yet"
    end_mirroring(group, new)
    (refusal,) = new.replies
    assert isinstance(refusal, AmqpError) and refusal.code == 404


def test_messages_that_a_lost_master_may_have_delivered_are_still_redelivered():
    """The master was lost, and the policy of the queue was cleared before its messages were delivered again. They came
    without the flag (P9), because only the queue around the one with the messages had marked them.
    """
    group = Group("ab")
    first, second = group.row.group.ring
    group.publish(5)
    group.run()
    group.kill(first)
    group.remove(first)
    group.apply(group.replicas[second])
    group.run()
    master = group.master
    assert master.member == second and master.replication.serves
    end_mirroring(group, master)
    found = [(delivery.redelivered, len(delivery.contents)) for delivery in master.backing.fetch(9, True)]
    assert found == [(True, 5)]
