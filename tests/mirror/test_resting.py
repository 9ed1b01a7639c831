"""A master comes to rest before another replica takes its place (CL-98)."""

from __future__ import annotations

import asyncio

import pytest

from warren.actors.queue.mirroring import DONE_TIMER
from warren.amqp.errors import AmqpError

from .replicas import Group


class Resting:
    """The master of a ring of two, which is asked to come to rest; the clock stands still until `wait`."""

    def __init__(self) -> None:
        self.group = Group("ab")
        self.master, self.mirror = self.group.replicas.values()
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
    assert resting.looks == 5 and resting.master.confirmed == {0, 1, 2}
    assert resting.master.is_at_rest and not resting.master.replication.serves


def test_it_gives_up_and_goes_on_if_that_takes_a_second():
    resting = Resting()
    resting.group.publish(3)
    with pytest.raises(AmqpError, match="is too busy"):
        resting.quiesce()
    assert resting.master.replication.serves and not resting.master.is_at_rest and 1.0 < resting.time < 1.1


def test_at_rest_it_adds_nothing_to_the_stream():
    """Neither what channels need not know any more nor a learner changes what all members have."""
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


def test_only_the_master_comes_to_rest():
    resting = Resting()
    with pytest.raises(AmqpError, match="no queue"):
        asyncio.run(resting.mirror.replication.quiesce())
    resting.quiesce()
    with pytest.raises(AmqpError, match="no queue"):
        resting.quiesce()
