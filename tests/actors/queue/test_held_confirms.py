"""The confirm of a message waits until the backing queue reports its number as safe, whatever becomes of the message
(AB-111).

So a backing queue that shares its messages with other replicas can hold back every confirm. In these tests it reports
nothing until `release`.
"""

from __future__ import annotations

import pytest

from ..stage import Stage, Stub, bodies_of


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


def numbered(count):
    return [b"%d" % number for number in range(count)]


def release(stage, queue, backing):
    """Have the backing queue report what it has held back, and give the queue a turn in which it asks for that."""
    backing.release()
    stage.actor(queue.address).request_turn()
    stage.settle()


FATES = {
    "stored": ({}, None),
    "stored by priority": ({"x_max_priority": 3}, None),
    "handed to a consumer that acknowledges": ({}, False),
    "handed to a consumer that does not": ({}, True),
    "expired at once": ({"x_message_ttl": 0}, None),
    "dropped at a limit of messages": ({"x_max_length": 1}, None),
    "dropped at a limit of none": ({"x_max_length": 0}, None),
    "dropped at a limit of bytes": ({"x_max_length_bytes": 2}, None),
}


@pytest.mark.parametrize("is_persistent", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("fate", FATES)
def test_no_confirm_precedes_the_report_of_the_backing_queue(stage, holding, fate, is_persistent):
    """No message is confirmed before that report, not even a transient one or one that leaves the queue at once."""
    arguments, no_ack = FATES[fate]
    queue, publisher, consumer = stage.queue(**arguments), stage.create(Stub), stage.create(Stub)
    if no_ack is not None:
        queue.consume(consumer, no_ack=no_ack)
        stage.settle()
    queue.publish(publisher, numbered(3), first_confirm=1, persistent=is_persistent)
    stage.settle()
    if no_ack is not None:
        ((_, _, runs),) = stage.actor(consumer).take("deliver")
        assert [body for run in runs for body in bodies_of(run[3])] == numbered(3), "a delivery does not wait"
    assert stage.actor(publisher).take("confirm") == []
    release(stage, queue, holding[0])
    assert stage.actor(publisher).take("confirm") == [(queue.id, [(1, 3)])]
    release(stage, queue, holding[0])
    assert stage.actor(publisher).take("confirm") == []


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_refused_message_is_refused_once_and_never_confirmed(stage, holding, overflow):
    """A refused message is refused once and never confirmed, although it got a number that the backing queue may report
    as safe.
    """
    queue, publisher = stage.queue(x_max_length=2, x_overflow=overflow), stage.create(Stub)
    queue.publish(publisher, numbered(4), first_confirm=1)
    queue.publish(publisher, numbered(2), first_confirm=5)
    stage.settle()
    assert stage.actor(publisher).take("refuse") == [(queue.id, [(3, 6)], False)]
    assert stage.actor(publisher).take("confirm") == []
    assert len(queue.actor.backing) == 2
    holding[0].inner._confirmed = [(0, 5)]
    release(stage, queue, holding[0])
    assert stage.actor(publisher).take("confirm") == [(queue.id, [(1, 2)])]
    assert stage.actor(publisher).take("refuse") == []


def test_a_limit_of_bytes_refuses_what_does_not_fit(stage, holding):
    """A limit of bytes refuses each message by itself, so a small one behind a large one may fit (AB-101)."""
    queue, publisher = stage.queue(x_max_length_bytes=4, x_overflow="reject-publish"), stage.create(Stub)
    queue.publish(publisher, [b"12", b"123", b"12", b"", b"1"], first_confirm=1)
    stage.settle()
    assert stage.actor(publisher).take("refuse") == [(queue.id, [(2, 2), (5, 5)], False)]
    release(stage, queue, holding[0])
    assert stage.actor(publisher).take("confirm") == [(queue.id, [(1, 1), (3, 4)])]


def test_the_backing_queue_is_given_the_identity_of_each_publish(stage, holding):
    """The backing queue gets the channel's id and the publish number of each publish, whether or not the channel awaits
    a confirm.
    """
    queue, one, other = stage.queue(x_max_length=9, x_overflow="reject-publish"), stage.create(Stub), stage.create(Stub)
    name, other_name = one.actorAddressString, other.actorAddressString
    queue.consume(one, prefetch=2)
    stage.settle()
    queue.publish(one, numbered(5), first_confirm=11)
    stage.settle()
    queue.publish(one, numbered(1), first_confirm=16)
    queue.publish(other, numbered(5))
    stage.settle()
    queue.publish(other, numbered(5))
    stage.settle()
    assert holding[0].taken == [
        ("publish_delivered", range(2), True, [(name, 11, 2, True)]),
        ("publish", range(2, 5), True, [(name, 13, 3, True)]),
        ("publish", range(5, 11), True, [(name, 16, 1, True), (other_name, 0, 5, False)]),
        ("discard", range(11, 16), False, [(other_name, 0, 5, False)]),
    ]


def test_a_channel_that_has_ended_is_sent_no_confirm(stage, holding):
    """A channel that has ended gets no confirm that was held back until after its end; other channels get theirs."""
    queue, ending, staying = stage.queue(), stage.create(Stub), stage.create(Stub)
    queue.publish(ending, numbered(2), first_confirm=1)
    queue.publish(staying, numbered(2), first_confirm=1)
    stage.settle()
    queue.tell(ending, "channel_closing")
    stage.settle()
    release(stage, queue, holding[0])
    assert stage.actor(ending).take("confirm") == []
    assert stage.actor(staying).take("confirm") == [(queue.id, [(1, 2)])]
    assert not len(queue.actor.state.confirms.awaiting)


def test_publishes_without_confirms_leave_nothing_that_waits(stage, holding):
    """Publishes without confirms, also persistent ones, leave no entry behind in the backing queue or the queue."""
    queue, publisher = stage.queue(), stage.create(Stub)
    for is_persistent in (False, True):
        queue.publish(publisher, numbered(3), persistent=is_persistent)
    stage.settle()
    assert not len(queue.actor.state.confirms.awaiting) and not holding[0].inner.drain_confirmed()
