"""While the master of a mirrored queue rests, it adds nothing to its stream, whatever messages it gets (CL-98)."""

from __future__ import annotations

import pytest

from warren.actors.queue.role import Wait
from warren.mirror.backing.mirrored_stream import mirrored
from warren.routing.arguments.queue_settings import queue_settings
from warren.runtime.process import Process
from warren.store.messages.message import Origin

from ...stage import CRASHED, Stage, Stub, bodies_of

QUORUM = {"x_queue_type": "quorum"}


class Resting:
    """Stands for the replication of a master with one mirror. It rests when the test says so."""

    takes_acks = False

    def __init__(self, queue) -> None:
        self.queue = queue
        self.backing = mirrored(queue.backing, queue.row.durable)
        self.backing.is_followed = True
        self.is_resting = False
        queue.membership.replication = self
        queue._use(self.backing)

    @property
    def serves(self) -> bool:
        return not self.is_resting

    def end_turn(self) -> None:
        """Send the mirror nothing, so that `told` has all instructions."""

    confirms_sent = end_turn

    def channel_gone(self, channel_id, is_certain) -> None: ...

    def answered(self, channel_id, floor) -> None: ...

    @property
    def told(self) -> list[int]:
        """The kinds of all instructions so far."""
        return [kind for kind, _ in self.backing.out]

    def rest(self) -> None:
        self.is_resting = True
        self.queue.rest()

    def go_on(self) -> None:
        self.is_resting = False
        self.queue.go_on()


class Asker(Process):
    """Sends asks to a queue, and keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = []

    async def on_question(self, sender, queue, message):
        self.answers.append(await self.ask(queue, message))


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


def master(stage, unacked=2, ready=2, **arguments):
    """A queue with a mirror and a consumer, which has some of its messages."""
    queue, eater = stage.queue(**arguments), stage.create(Stub)
    replication = Resting(queue.actor)
    queue.consume(eater, prefetch=unacked)
    stage.settle()
    if unacked + ready:
        queue.publish(stage.create(Stub), [b"%d" % number for number in range(unacked + ready)], persistent=True)
        stage.settle()
    assert len(queue.actor.channels.by_id[eater.actorAddressString].pending) == unacked
    return queue, eater, replication


def delivered(stage, channel):
    return [body for _, _, runs in stage.actor(channel).take("deliver") for run in runs for body in bodies_of(run[3])]


def close(stage, queue, eater):
    queue.tell(eater, "channel_closing")


def crash(stage, queue, eater):
    stage.base.end(stage.base.cells[eater.actorAddressString], CRASHED)


def settle(outcome):
    return lambda stage, queue, eater: queue.tell(eater, "settle", outcome, [[0]])


def publish(stage, queue, eater):
    queue.publish(eater, [b"new"])


def publish_at_most_once(stage, queue, eater):
    entry = Origin("", ("q",), False), [queue.actor.backing.head().content], 1, 0
    stage.tell(eater, queue.address, "publish_at_most_once", [entry])


def get(stage, queue, eater):
    queue.tell(eater, "get", eater, True)


def purge(stage, queue, eater):
    stage.tell(eater, queue.address, "purge")


def lower_limit(stage, queue, eater):
    row = queue.actor.row
    stage.tell(eater, queue.address, "apply_settings", queue_settings(row.arguments, {"max-length": 1}))


def consume(stage, queue, eater):
    queue.consume(stage.create(Stub), no_ack=True)


EVENTS = {
    "a channel closes": close,
    "a channel ends": crash,
    "a message is acknowledged": settle("ack"),
    "a message is returned": settle("requeue"),
    "a message is rejected": settle("reject"),
    "messages are published": publish,
    "a dead letter comes": publish_at_most_once,
    "a message is got": get,
    "the queue is purged": purge,
    "a policy lowers the limit": lower_limit,
    "a consumer comes": consume,
}


@pytest.mark.parametrize("event", EVENTS)
def test_it_adds_nothing_until_it_goes_on(stage, event):
    """What arrives at a resting master adds nothing to its stream, and is handled when the master goes on."""
    queue, eater, replication = master(stage, **QUORUM)
    replication.rest()
    told = replication.told
    EVENTS[event](stage, queue, eater)
    stage.settle()
    assert replication.told == told
    replication.go_on()
    stage.settle()
    assert replication.told[: len(told)] == told and len(replication.told) > len(told)


def test_the_sender_is_answered_when_it_goes_on(stage):
    queue, eater, replication = master(stage, **QUORUM)
    replication.rest()
    asker = stage.create(Asker)
    stage.tell(eater, asker, "question", queue.address, ("channel_closing", eater.actorAddressString))
    stage.settle()
    assert stage.actor(asker).answers == []
    replication.go_on()
    stage.settle()
    assert stage.actor(asker).answers == [True] and len(queue.actor.backing) == 4


def test_what_comes_as_it_goes_on_does_not_overtake_what_was_kept(stage):
    """What arrives when the master goes on is handled after what it has kept, and the master may rest again before that
    is handled.
    """
    queue, eater, replication = master(stage, unacked=0, ready=0)
    other = stage.create(Stub)
    replication.rest()
    queue.publish(other, [b"1"])
    stage.settle()
    replication.go_on()
    queue.publish(other, [b"2"])
    replication.rest()
    queue.publish(other, [b"3"])
    stage.settle()
    assert replication.told == []
    replication.go_on()
    queue.publish(other, [b"4"])
    stage.settle()
    assert delivered(stage, eater) == [b"1", b"2", b"3", b"4"]


def test_a_channel_that_asks_for_its_publishes_waits_until_those_that_were_kept_are_taken(stage):
    """A channel that asks which of its publishes are in the queue gets the answer after the kept ones have been
    accepted. Otherwise it would publish them again, and the queue would have them twice.
    """
    queue, eater, replication = master(stage, unacked=0, ready=0)
    asked = []
    replication.reclaim = lambda sender, channel_id, ranges: asked.append(len(queue.actor.role.intake.arrivals))
    replication.rest()
    queue.publish(eater, [b"1"])
    queue.tell(eater, "reclaim", [(1, 1)])
    stage.settle()
    assert not asked
    replication.go_on()
    stage.settle()
    assert asked == [1], "the publish arrived before the question"


def test_a_long_purge_that_was_kept_removes_nothing_that_comes_later(stage):
    """A purge that was kept and takes several turns removes no message that is published later, because the mirror gets
    one instruction with all the messages that the purge removes.
    """
    queue, eater, replication = master(stage, unacked=0, ready=0)
    queue.tell(eater, "cancel", "c")
    queue.publish(eater, [b"old"] * 9_000)
    stage.settle()
    queue.actor.state.work.most = 100
    replication.rest()
    purge(stage, queue, eater)
    stage.settle()
    replication.go_on()
    queue.publish(eater, [b"new"])
    stage.settle()
    assert len(queue.actor.backing) == 1


def test_an_operation_in_progress_waits(stage):
    """An operation under way, such as a basic.get that waits for the disk, goes on only when the master does: it would
    otherwise take a message out meanwhile.
    """
    queue, _, replication = master(stage)
    steps, came = [], []

    def operation():
        yield Wait.NEXT_TURN
        steps.append("went on")

    async def run():
        came.append(await queue.actor.runner.go_through(operation()))

    queue.actor.spawn(run())
    replication.rest()
    stage.settle()
    assert not steps
    replication.go_on()
    stage.settle()
    assert steps == ["went on"] and came == [None]


def test_publishes_that_wait_for_a_limiter_are_accepted_before_it_rests(stage):
    """Publishes that wait for a limiter are accepted before the master rests, because a grant, or the end of the
    limiter's channel, would have them accepted during the rest.
    """
    queue, limited, other = stage.queue(x_max_length=0), stage.create(Stub), stage.create(Stub)
    replication = Resting(queue.actor)
    queue.consume(limited, is_limited=True)
    for number in range(2):
        queue.publish(other, [b"%d" % number], first_confirm=1 + number)
        stage.settle()
    assert stage.actor(limited).take("limiter_request_now") and not stage.actor(other).take("confirm")
    replication.rest()
    told = replication.told
    queue.tell(limited, "limiter_grant", 5)
    stage.settle()
    assert replication.told == told and len(told) == 4, "each was published, and dropped because of the limit"
