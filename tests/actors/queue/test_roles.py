"""A replica changes its role while it runs, and keeps its address, mailbox, channels and backing queue."""

from __future__ import annotations

import pytest

from warren.actors.queue.master.master import Master
from warren.actors.queue.role import Role, Wait
from warren.amqp.errors import AmqpError
from warren.store.messages.message import each_of

from ..stage import Stage, Stub, bodies_of


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Keeper(Role):
    """A role that stores publishes and delivers nothing."""

    def __init__(self, state, settings):
        self.state = state
        self.settings = settings
        self.forgotten = []

    is_quiet = True

    def apply(self, settings):
        self.settings = settings

    def publish(self, record, entries):
        state = self.state
        for origins, contents, body_bytes, number, awaits_confirm, shared in entries:
            parts = [(record.channel_id, number, len(contents), awaits_confirm)]
            origins = list(each_of(origins, len(contents)))
            numbers = state.backing.publish(origins, contents, body_bytes, None, awaits_confirm, parts, shared)
            state.confirms.recent.append((numbers.start, numbers.stop - 1, parts))
            state.credit.take(record.channel_id, len(contents))

    def forget_channel(self, record):
        self.forgotten.append(record.channel_id)
        yield


def take_role(queue, make):
    """Replace the role and call `after_batch`, as after a handler that does so."""
    queue.actor.take_role(make)
    queue.actor.request_turn()


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def bodies(stub):
    return [body for _, _, runs in stub.take("deliver") for run in runs for body in bodies_of(run[3])]


def test_a_replica_becomes_another_role_and_a_master_again(stage):
    """When a replica takes another role and becomes the master again, nothing is lost: unacknowledged messages are
    requeued, and those that the other role stored are delivered.
    """
    queue, publisher, eater = stage.queue(), stage.create(Stub), stage.create(Stub)
    address, backing = queue.address, queue.actor.backing
    queue.consume(eater, prefetch=2)
    queue.publish(publisher, numbered(4), first_confirm=1)
    stage.settle()
    assert bodies(stage.actor(eater)) == numbered(2) and stage.actor(publisher).take("confirm")

    queue.publish(publisher, numbered(1, 4), first_confirm=5)
    take_role(queue, Keeper)
    assert len(backing) == 4, "two were requeued, and two were there"
    stage.settle()
    queue.publish(publisher, numbered(2, 5), first_confirm=6)
    queue.tell(eater, "settle", "ack", [[0]])
    queue.tell(eater, "sent", 2)
    stage.settle()
    assert stage.actor(publisher).take("confirm") == [(queue.id, [(5, 5)]), (queue.id, [(6, 7)])]
    assert len(backing) == 7 and bodies(stage.actor(eater)) == []

    take_role(queue, Master)
    queue.consume(eater, tag="again")
    stage.settle()
    assert bodies(stage.actor(eater)) == numbered(7)
    assert queue.actor.backing is backing and queue.address == address
    assert set(queue.actor.channels.by_id) == {publisher.actorAddressString, eater.actorAddressString}


def test_a_role_that_is_replaced_has_no_timers_any_more(stage):
    """The timers of a role end with it, and the next role sets its own: here that of the messages' expiry, and not that
    of the queue's.
    """
    queue, publisher = stage.queue(x_message_ttl=200, x_expires=300), stage.create(Stub)
    queue.publish(publisher, numbered(3))
    stage.settle()
    assert set(queue.actor.runner._timers) == {"queue_expiry", "expiry"}
    take_role(queue, Keeper)
    stage.settle()
    assert not queue.actor.runner._timers
    take_role(queue, Master)
    stage.until(lambda: not len(queue.actor.backing))
    assert queue.actor.role.dead_letterer.counts.dead["expired"] == 3
    stage.until(lambda: not stage.is_alive(queue.address))


def test_what_waits_for_the_disk_is_given_up_with_the_role(stage):
    """Requests that wait for the disk get an error when the role is replaced, as when the queue is deleted."""
    queue, answers = stage.queue(), []
    queue.actor.spawn(answer_of(queue.actor.runner.go_through(waiting()), answers))
    take_role(queue, Keeper)
    stage.settle()
    assert answers == [404]


def waiting():
    """An operation of a role that never ends."""
    while True:
        yield Wait.NEXT_TURN


async def answer_of(coroutine, answers):
    try:
        answers.append(await coroutine)
    except AmqpError as error:
        answers.append(error.code)


def test_a_channel_that_ends_is_forgotten_by_the_role_that_is_there(stage):
    queue, publisher = stage.queue(), stage.create(Stub)
    queue.publish(publisher, numbered(1))
    stage.settle()
    take_role(queue, Keeper)
    queue.tell(publisher, "channel_closing")
    stage.settle()
    assert queue.actor.role.forgotten == [publisher.actorAddressString] and not queue.actor.channels.by_id
