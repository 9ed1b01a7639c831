"""A replica copies its queue from another one while messages are published (CL-85), and knows what it needs as a
master.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from warren.actors.queue.mirroring import ORPHAN_TIMER
from warren.amqp.errors import AmqpError
from warren.mirror.sync import learner as learner_module
from warren.mirror.sync import sync_source
from warren.routing.rows import Member

from .replicas import FakeReplica, Group


def copy_chunk(learner, source):
    """Have the learner get its next chunk from this replica."""
    asyncio.run(learner.replication._learner._get_chunk(source.member))


def arrive(group):
    """Deliver all frames in flight. No disk finishes a write meanwhile."""
    while any([group.arrive(pair) for pair in list(group.wires)]):
        pass


def test_a_master_that_was_a_learner_knows_who_has_published():
    """A master that was a learner knows the publisher of a message that it got in a chunk, which does not name the
    publisher.

    It once answered that it did not have the message, and the channel refused a message that is in the queue (CL-95).
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
    assert (
        learner.replication._learner._target.is_done and learner.numbers == first.numbers and len(learner.numbers) == 3
    )
    learner.replication._learner._ask_to_be_admitted()
    group.sync(learner)
    arrive(group)
    assert first.proposed is not None
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
    assert learner.replies == [[(1, 3)]]


def test_a_learner_asks_again_for_a_chunk_that_may_lack_what_was_left_to_it(monkeypatch):
    """A learner waits and asks again when a chunk comes from a member that has received less of the stream than the
    previous one, because the chunk may lack a publish that the learner has left to the chunks.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(2)
    group.run()
    learner = group.learn("b")
    arrive(group)
    target, source = learner.replication._learner._target, group.master
    group.publish()
    arrive(group)
    copy_chunk(learner, source)
    assert target.cursor == 1 and len(learner.numbers) == 1
    monkeypatch.setattr(source.replication, "_position", lambda: source.mirrored.position - 1)
    copy_chunk(learner, source)  # it was requested before
    assert (target.cursor, learner.slept, len(learner.numbers)) == (2, 0, 2)
    copy_chunk(learner, source)
    assert (target.cursor, learner.slept, len(learner.numbers)) == (2, 1, 2)
    monkeypatch.undo()
    copy_chunk(learner, source)
    assert target.is_done and learner.numbers == source.numbers


def test_a_learner_keeps_no_message_in_memory_while_it_copies(monkeypatch):
    """While it copies, a learner keeps no messages in memory, whatever its policy says: the backlog may be larger than
    its memory, and it once kept all of it. Afterwards the policy applies.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(2)
    group.run()
    learner = group.learn("b")
    modes = []
    learner.backing.set_queue_mode = modes.append
    arrive(group)
    assert modes == ["lazy"]
    learner.mirrored.set_queue_mode("default")
    copy_chunk(learner, group.master)
    assert modes == ["lazy", "lazy"], "another policy must not bring the messages into memory"
    copy_chunk(learner, group.master)
    assert learner.replication._learner._target.is_done and modes == ["lazy", "lazy", "default"]


@pytest.mark.parametrize("is_promoted", [False, True], ids=["the only replica", "a promoted replica"])
def test_a_learner_is_admitted_when_its_disk_has_the_copy(is_promoted):
    """The copy has messages that were confirmed before the master had a learner, or by another master. If all nodes
    lose their power, the disk of any member of the ring may be the only one that brings the queue back (CL-44).
    """
    group = Group("ab" if is_promoted else "a")
    group.publish(3)
    group.run()
    if is_promoted:
        group.kill(group.row.group.master)
        group.remove(group.row.group.master)
        group.apply(group.master)
        group.run()
    learner, master = group.learn("c"), group.master
    arrive(group)
    copy_chunk(learner, master)
    learner.replication._learner._ask_to_be_admitted()
    arrive(group)
    assert master.replication._admission.proposed == learner.member and master.proposed is None
    group.sync(learner)
    arrive(group)
    assert master.proposed == (group.row.group.epoch, learner.member)


def test_a_learner_waits_for_its_disk_when_it_has_taken_much(monkeypatch):
    """A learner waits for its disk when a certain number of bytes are not synced. To wait for each chunk took most of
    the time of a copy, and never to wait would fill the memory if the disk is slow.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    monkeypatch.setattr(learner_module, "UNSYNCED_BYTES", 250)
    group = Group("a")
    group.publish(12)
    group.run()
    learner = group.learn("b")
    arrive(group)
    syncs = []
    while not learner.replication._learner._target.is_done:
        copy_chunk(learner, group.master)
        syncs.append(learner.syncs)
        assert learner.replication._learner._unsynced <= 250
    assert len(syncs) == 12 and 1 <= syncs[-1] <= 6


def test_a_learner_copies_at_most_as_fast_as_its_node_allows(monkeypatch):
    """A learner pauses between chunks so that it copies no more bytes a second than `mirroring_sync_max_throughput`
    (CL-89). After the last chunk it does not pause.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    group = Group("a")
    group.publish(3)
    group.run()
    learner = group.learn("b")
    learner.context.settings = replace(learner.context.settings, mirroring_sync_max_throughput=1000)
    arrive(group)
    while not learner.replication._learner._target.is_done:
        copy_chunk(learner, group.master)
    first, second = learner.slept_seconds
    # A chunk has the bytes of one message and its description. The clock stands still here, so the second pause is for
    # the bytes of both chunks.
    assert 0.01 < first < 1 and second == 2 * first


def test_a_mirror_reports_what_it_keeps_in_memory():
    """A mirror reports that it has received messages, so that its node counts them and can page them out when memory is
    short. Mirrors once did not, and kept all messages in memory.
    """
    group = Group("ab")
    _, second = group.replicas.values()
    group.publish()
    group.run()
    assert second.state.effects.messages_came


def test_the_only_member_that_is_left_answers_what_channels_ask():
    """A mirror that becomes the master, and is alone, answers at once which publishes it has. It once forgot what all
    members had before the promotion, and answered only after its next publish, or never.
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


def test_a_publish_from_before_a_learner_came_is_not_unknown_to_it():
    """A learner is told before it is admitted who has published the messages in its chunks that the master has not
    confirmed. Otherwise it would not know these publishes as the master, and the channel would refuse or repeat
    messages that are in the queue (CL-65, CL-95).
    """
    group = Group("a")
    first = group.master
    group.publish(2)
    learner = group.learn("b")
    arrive(group)
    copy_chunk(learner, first)
    copy = learner.replication._learner
    copy._ask_to_be_admitted()
    group.sync(learner)
    arrive(group)
    assert learner.numbers == first.numbers and first.proposed is not None
    group.admit(learner)
    for replica in group.living():
        group.apply(replica)
    group.kill(first.member)
    group.remove(first.member)
    group.apply(learner)
    learner.replication.reclaim(None, "c1", [(1, 3)])
    group.run()
    assert learner.replies == [[(1, 2)]]


def test_a_publish_that_was_confirmed_is_known_until_its_channel_has_the_answer():
    """Mirrors remember a confirmed publish until its channel says that it awaits no answer, because the confirm may be
    lost with the master (CL-65).
    """
    group = Group("ab")
    first, second = group.replicas.values()
    group.publish(3)
    group.run()
    assert first.state.confirms.confirmed == {0, 1, 2}
    first.replication.answered("c1", 3)
    group.run()
    group.kill(first.member)
    group.remove(first.member)
    group.apply(second)
    second.replication.reclaim(None, "c1", [(1, 4)])
    group.run()
    assert second.replies == [[(3, 3)]]


def test_a_replica_that_a_disk_has_brought_back_does_not_know_who_has_published():
    group = Group("a")
    group.publish(3)
    group.run()
    member = Member("a", "2", 2)
    group.row = replace(group.row, group=replace(group.row.group, ring=(member,), epoch=2, members=2))
    again = group.replicas[member] = FakeReplica(group, member, group.row)
    again.replication.reclaim(None, "c1", [(1, 4)])
    group.end_turn(again)
    (reply,) = again.replies
    assert isinstance(reply, AmqpError)


def test_channels_that_have_ended_are_forgotten_everywhere():
    group = Group("ab")
    first, second = group.replicas.values()
    group.publish(3)
    group.run()
    assert dict(second.mirrored.publishers) == {"c1": [(1, 3)]}
    first.replication.channel_gone("c1", False)
    group.run()
    assert dict(second.mirrored.publishers) == {"c1": [(1, 3)]}, "the channel may live on another node"
    for _ in range(2):
        assert dict(first.mirrored.publishers)
        first.replication.timer_fired(ORPHAN_TIMER)
    group.run()
    assert not dict(first.mirrored.publishers) and not dict(second.mirrored.publishers)


def test_a_channel_whose_connection_was_lost_a_moment_ago_is_not_forgotten():
    """A channel that has lost its connection to the queue has a minute to come back. That minute begins anew when the
    connection is lost again. It did not, so the queue forgot the channel too early, and took its publishes twice.
    """
    group = Group("ab")
    first = group.master
    group.publish(3)
    group.run()
    first.replication.channel_gone("c1", False)
    first.replication.timer_fired(ORPHAN_TIMER)
    first.replication.channel_gone("c1", False)
    first.replication.timer_fired(ORPHAN_TIMER)
    first.replication.reclaim(None, "c1", [(1, 3)])
    group.run()
    assert first.replies == [[(1, 3)]]


class Waiting:
    """A learner of a ring with one member, with a policy under which it waits before it copies."""

    def __init__(self, monkeypatch, published: int, mode: str = "manual") -> None:
        self.group = Group("a")
        if published:
            self.group.publish(published)
            self.group.run()
        self.policy = {"ha-sync-mode": mode}
        monkeypatch.setattr(learner_module, "policy_of", lambda replica: self.policy)
        self.master = self.group.master
        self.replica = self.group.learn("b")
        arrive(self.group)
        self.learner = self.replication._learner
        self.now = 0.0
        self.replica.now = lambda: self.now
        self.replica.ask = self.answer
        if mode == "manual":
            self.learner._pause()

    @property
    def replication(self):
        return self.replica.replication

    async def answer(self, address, message, timeout):
        assert address == self.master.member
        name, *fields = message
        if name == "sync_numbers":
            return self.master.replication.numbers()
        assert name == "sync_chunk"
        return await self.master.replication.chunk(*fields)

    def tick(self) -> str:
        """Let the learner check once whether it may copy, or get a chunk, and return its stage."""
        self.now += 100.0
        step = self.learner._wait if self.learner.stage == "waiting" else self.learner._get_chunk
        asyncio.run(step(self.master.member))
        arrive(self.group)
        return self.replication.status()["stage"]


def test_a_learner_with_a_manual_policy_waits_and_keeps_nothing(monkeypatch):
    waiting = Waiting(monkeypatch, 3)
    assert [waiting.tick() for _ in range(3)] == ["waiting"] * 3
    waiting.group.publish(2)
    arrive(waiting.group)
    assert waiting.tick() == "waiting" and not waiting.replica.numbers


def test_an_operator_has_it_copy_the_queue(monkeypatch):
    waiting = Waiting(monkeypatch, 3)
    waiting.tick()
    assert waiting.replication.synchronise(True)
    assert (waiting.learner.stage, waiting.tick()) == ("copying", "following")
    assert waiting.replica.numbers == waiting.master.numbers
    assert not waiting.replication.synchronise(True), "it has everything"
    assert not waiting.replication.synchronise(False) and waiting.learner.stage == "following"


def test_a_policy_that_says_automatic_later_has_it_copy_the_queue(monkeypatch):
    waiting = Waiting(monkeypatch, 3)
    assert waiting.tick() == "waiting"
    waiting.policy = {}
    assert [waiting.tick(), waiting.tick()] == ["copying", "following"]


def test_it_copies_the_queue_when_nothing_older_is_left(monkeypatch):
    waiting = Waiting(monkeypatch, 3)
    assert waiting.tick() == "waiting"
    waiting.group.publish(2)
    waiting.group.consume(2, "ack")
    assert waiting.tick() == "waiting"
    waiting.group.consume(1, "ack")
    arrive(waiting.group)
    assert [waiting.tick(), waiting.tick()] == ["copying", "following"]
    assert waiting.replica.numbers == waiting.master.numbers and len(waiting.replica.numbers) == 2


def test_the_policy_says_how_many_messages_a_chunk_has(monkeypatch):
    waiting = Waiting(monkeypatch, 5)
    waiting.replication.synchronise(True)
    monkeypatch.setattr(sync_source, "policy_of", lambda replica: {"ha-sync-batch-size": 2})
    counts = []
    while waiting.learner.stage == "copying":
        waiting.tick()
        counts.append(len(waiting.replica.numbers))
    assert counts == [2, 4, 5] and waiting.replica.numbers == waiting.master.numbers


def test_it_copies_an_empty_queue_at_once(monkeypatch):
    assert Waiting(monkeypatch, 0).tick() == "copying"


@pytest.mark.parametrize("mode", ["automatic", "manual"])
def test_an_operator_stops_a_copy_until_he_wants_it_again(monkeypatch, mode):
    """A copy that an operator has stopped keeps what it has, follows the stream for these messages, and goes on when
    the operator starts it again.
    """
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
    waiting = Waiting(monkeypatch, 4, mode)
    if mode == "manual":
        waiting.replication.synchronise(True)
    assert [waiting.tick(), waiting.tick()] == ["copying"] * 2 and len(waiting.replica.numbers) == 2
    assert waiting.replication.synchronise(False)
    assert not waiting.replication.synchronise(False), "it is not copying any more"
    waiting.group.consume(1, "ack")
    waiting.group.publish(1)
    arrive(waiting.group)
    assert [waiting.tick(), waiting.tick()] == ["waiting"] * 2 and len(waiting.replica.numbers) == 1
    assert waiting.replication.synchronise(True)
    assert waiting.learner.stage == "copying"
    while waiting.learner.stage == "copying":
        waiting.tick()
    assert waiting.replica.numbers == waiting.master.numbers and len(waiting.replica.numbers) == 4
