"""A master comes to rest before another replica takes its place (CL-98)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from warren.actors.queue.mirroring import DONE_TIMER, HANDOVER_TIMER
from warren.amqp.errors import AmqpError

from .replicas import Group


class Resting:
    """The master of a ring, which a test asks to come to rest. Its clock moves only when it sleeps."""

    def __init__(self, names: str = "ab") -> None:
        self.group = Group(names)
        self.master, self.mirror, *_ = self.group.replicas.values()
        self.time = 0.0
        self.master.now = lambda: self.time
        self.master.sleep = self.sleep
        self.looks = 0
        self.each_look = lambda: None

    async def sleep(self, seconds: float) -> None:
        self.looks += 1
        self.time += seconds
        self.each_look()

    def quiesce(self) -> int:
        return asyncio.run(self.master.replication.quiesce())


def test_it_waits_until_all_members_have_stored_what_was_published():
    resting = Resting()
    resting.group.publish(3)
    resting.each_look = lambda: resting.group.run() if resting.looks == 5 else None
    assert resting.quiesce() == 1
    assert resting.looks == 5 and resting.master.state.confirms.confirmed == {0, 1, 2}
    assert resting.master.is_at_rest and not resting.master.replication.serves


def test_it_gives_up_and_goes_on_if_that_takes_a_second():
    resting = Resting()
    resting.group.publish(3)
    with pytest.raises(AmqpError, match="is too busy"):
        resting.quiesce()
    assert resting.master.replication.serves and not resting.master.is_at_rest and 1.0 < resting.time < 1.1


def test_at_rest_it_adds_nothing_to_the_stream():
    """A master at rest adds nothing to its stream, neither for a learner nor to let members drop publishers' records,
    because all members must keep having the same.
    """
    resting = Resting()
    resting.group.publish(3)
    resting.group.run()
    resting.quiesce()
    position = resting.master.mirrored.position
    learner = resting.group.learn("c")
    resting.master.replication.follows(learner.member.generation)
    resting.master.replication.answered("c1", 4)
    resting.master.replication.timer_fired(DONE_TIMER)
    resting.group.run()
    assert resting.master.mirrored.position == position and resting.master.proposed is None
    resting.master.replication.go_on()
    resting.master.replication.timer_fired(DONE_TIMER)
    resting.group.run()
    assert resting.master.mirrored.position > position and resting.master.proposed is not None


def test_it_takes_acknowledgements_that_are_on_their_way():
    resting = Resting()
    record = SimpleNamespace(pending=[0, 1, 2])
    resting.group.publish(3)
    resting.group.run()
    resting.group.master.mirrored.fetch(3, True)
    resting.master.state.channels["c1"] = record
    took: list[bool] = []

    def ack() -> None:
        took.append(resting.master.replication.takes_acks)
        if record.pending and resting.looks % 5 == 0:
            resting.group.ack_pending(slice(1))
            del record.pending[0]
        elif not record.pending:
            resting.group.run()

    resting.each_look = ack
    resting.quiesce()
    assert took == [True] * 15 + [False] * (len(took) - 15)
    assert resting.mirror.numbers == {} == resting.master.numbers
    assert not resting.master.replication.takes_acks


def test_a_consumer_that_keeps_its_messages_delays_it_for_a_moment():
    resting = Resting()
    resting.master.state.channels["c1"] = SimpleNamespace(pending=[0])
    resting.quiesce()
    assert 0.02 <= resting.time < 0.03


def test_a_consumer_that_goes_on_acknowledging_delays_it_for_a_tenth_of_a_second():
    resting = Resting()
    record = SimpleNamespace(pending=list(range(1_000)))
    resting.master.state.channels["c1"] = record
    resting.each_look = lambda: record.pending.pop()
    resting.quiesce()
    assert 0.1 <= resting.time < 0.11


@pytest.mark.parametrize("to", [1, 2], ids=["the next member", "the last member"])
def test_the_other_mirrors_stay_when_one_becomes_the_master(to):
    """When one mirror becomes the master, the others stay in the ring, because after the rest all know that they have
    the same.
    """
    resting = Resting("abc")
    group = resting.group
    _, middle, last = group.replicas.values()
    group.publish(3)
    resting.each_look = lambda: group.run(tells_done=False)
    resting.quiesce()
    group.run(tells_done=False)
    group.transfer(list(group.replicas)[to])
    for replica in list(group.replicas.values()):
        group.apply(replica)
    assert [replica.is_alive for replica in (resting.master, middle, last)] == [False, True, True]
    group.remove(resting.master.member)
    for replica in group.living():
        group.apply(replica)
    group.publish(3)
    group.run()
    group.check_rest()
    assert len(group.master.state.confirms.confirmed) == 3 and group.master is (middle, last)[to - 1]


def handed_over(first: str, to: int = 1) -> Resting:
    """A master at rest whose place another replica has taken, while consumers acknowledged the messages 1 and 3 of
    five.
    """
    resting = Resting("abc")
    group = resting.group
    group.publish(5)
    group.run()
    group.master.mirrored.fetch(4, True)
    resting.quiesce()
    group.run()
    resting.master.kept_acks = [1, 3]
    group.gone |= {resting.master.numbers[number] for number in resting.master.kept_acks}
    group.transfer(list(group.replicas)[to])
    for replica in sorted(group.replicas.values(), key=lambda replica: replica.member.node != first):
        group.apply(replica)
    return resting


@pytest.mark.parametrize("to", [1, 2])
@pytest.mark.parametrize("first", ["a", "b", "c"], ids="{} is told first".format)
def test_what_was_acknowledged_at_rest_does_not_come_again(first, to):
    """Messages that were acknowledged while the master was at rest do not come again: the old master sends the
    acknowledgements to the new one, which serves only after it has them.
    """
    resting = handed_over(first, to)
    group = resting.group
    group.remove(resting.master.member)
    group.run()
    assert group.replicas[list(group.replicas)[to]].has_promoted
    for replica in group.living():
        group.apply(replica)
    group.run()
    for replica in group.living():
        assert sorted(replica.numbers) == [0, 2, 4]
    group.check_rest()


@pytest.mark.parametrize("how", ["it has left the ring", "a second has passed"])
def test_a_new_master_does_not_wait_for_an_old_one_that_is_lost(how):
    resting = handed_over("b")
    group = resting.group
    master = group.replicas[list(group.replicas)[1]]
    group.wires.clear()
    group.end_turn(master)
    assert not master.has_promoted and not master.replication.serves
    if how == "a second has passed":
        master.replication.timer_fired(HANDOVER_TIMER)
        group.end_turn(master)
    else:
        group.remove(resting.master.member)
        group.apply(master)
    assert master.has_promoted and len(master.numbers) == 5, "it does not know what was acknowledged"


def test_only_the_master_comes_to_rest():
    resting = Resting()
    with pytest.raises(AmqpError, match="no queue"):
        asyncio.run(resting.mirror.replication.quiesce())
    resting.quiesce()
    with pytest.raises(AmqpError, match="no queue"):
        resting.quiesce()
