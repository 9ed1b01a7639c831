"""A queue among stubs of channels: deliveries, settlements, confirms, channels that end, delayed publishes (FC-33)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren.actors.contracts.channel import SMALL_CONTENT
from warren.runtime.exit_reason import NORMAL

from ..stage import CRASHED, Stage, Stub, bodies_of


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Asker(Stub):
    async def on_go(self, sender, target, message):
        self.received.append(("answer", await self.ask(target, message)))


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def delivered(stub):
    """The runs that the stub has received, as (consumer tag, redelivered, ack tags, bodies)."""
    return [
        (tag, redelivered, tags if tags is None else list(tags), bodies_of(contents))
        for _, tag, runs in stub.take("deliver")
        for _, redelivered, tags, contents in runs
    ]


def bodies(stub):
    return [body for _, _, _, found in delivered(stub) for body in found]


def test_a_publish_is_confirmed_when_the_queue_has_it(stage):
    """Transient messages are confirmed at once, in ranges, to the channel that published them (AB-111)."""
    queue, one, other = stage.queue(), stage.create(Stub), stage.create(Stub)
    queue.publish(one, numbered(3), first_confirm=1)
    queue.publish(one, numbered(2), first_confirm=4)
    queue.publish(other, numbered(1), first_confirm=9)
    queue.publish(one, numbered(1))
    stage.settle()
    assert stage.actor(one).take("confirm") == [(queue.id, [(1, 5)])]
    assert stage.actor(other).take("confirm") == [(queue.id, [(9, 9)])]


def test_requeued_messages_are_delivered_again_in_their_places(stage):
    """Requeued messages are delivered again in their places, redelivered; acknowledged and rejected ones are not
    (AB-129, AB-131).
    """
    queue, channel = stage.queue(), stage.create(Stub)
    queue.publish(channel, numbered(4))
    queue.consume(channel)
    stage.settle()
    ((tag, redelivered, tags, found),) = delivered(stage.actor(channel))
    assert (tag, redelivered, found) == ("c", False, numbered(4))
    queue.tell(channel, "settle", "ack", [[tags[1]]])
    queue.tell(channel, "settle", "requeue", [[tags[0]], [tags[3]]])
    queue.tell(channel, "settle", "reject", [[tags[2]]])
    stage.settle()
    assert [(again, body) for _, again, _, body in delivered(stage.actor(channel))] in (
        [(True, [b"0", b"3"])],
        [(True, [b"0"]), (True, [b"3"])],
    )


def test_unknown_and_repeated_settlements_have_no_effect(stage):
    """Each acknowledgement counts once at its consumer."""
    queue, channel = stage.queue(), stage.create(Stub)
    queue.publish(channel, numbered(2))
    queue.consume(channel, prefetch=2)
    stage.settle()
    for _ in range(3):
        queue.tell(channel, "settle", "ack", [[0, 7, 99]])
    stage.settle()
    assert [consumer.unacked for consumer in queue.actor.role.consumers] == [1]


def test_an_empty_queue_hands_messages_straight_to_a_consumer(stage):
    """An empty queue gives messages directly to a consumer. They are confirmed and get ack tags, and those that the
    consumer has no room for are stored (AB-123).
    """
    queue, channel = stage.queue(), stage.create(Stub)
    queue.consume(channel, prefetch=2)
    stage.settle()
    queue.publish(channel, numbered(3), first_confirm=1)
    stage.settle()
    assert stage.actor(channel).take("confirm") == [(queue.id, [(1, 3)])]
    assert delivered(stage.actor(channel)) == [("c", False, [0, 1], numbered(2))]
    assert len(queue.actor.backing) == 1


def test_four_hundred_unsent_deliveries_stop_one_channel_only(stage):
    """400 unsent deliveries of a channel, to whichever of its consumers, stop that channel only (FC-32)."""
    queue, stuck, reading = stage.queue(), stage.create(Stub), stage.create(Stub)
    queue.consume(stuck, "a", no_ack=True)
    queue.consume(stuck, "b", no_ack=True)
    queue.publish(stuck, numbered(900))
    stage.settle()
    assert len(bodies(stage.actor(stuck))) == 400
    queue.consume(reading, no_ack=True)
    stage.settle()
    assert len(bodies(stage.actor(reading))) == 400
    queue.tell(stuck, "sent", 50)
    stage.settle()
    assert len(bodies(stage.actor(stuck))) == 50


def test_two_hundred_unsent_deliveries_of_larger_contents_stop_a_channel(stage):
    """400 deliveries may be unsent while contents are small, and 200 otherwise. The size of the latest ones decides
    (FC-32).
    """
    queue, consumer = stage.queue(), stage.create(Stub)
    queue.consume(consumer, no_ack=True)
    queue.publish(consumer, [bytes(SMALL_CONTENT)])
    stage.settle()
    queue.publish(consumer, [bytes(SMALL_CONTENT)] * 500)
    stage.settle()
    for expected in (200, 200, 101):
        assert len(bodies(stage.actor(consumer))) == expected
        queue.tell(consumer, "sent", 200 if expected == 200 else 0)
        stage.settle()
    queue.publish(consumer, numbered(500))
    stage.settle()
    assert len(bodies(stage.actor(consumer))) == 99
    queue.tell(consumer, "sent", 1)
    stage.settle()
    assert len(bodies(stage.actor(consumer))) == 201


@pytest.mark.parametrize("orderly", [True, False])
def test_a_channel_that_ends_leaves_nothing_behind(stage, orderly):
    """When a channel ends, its unacknowledged messages are requeued, and its consumers, confirms and credit are gone
    (AB-53, FC-53).
    """
    queue, ending, staying = stage.queue(), stage.create(Stub), stage.create(Stub)
    queue.publish(ending, numbered(5), first_confirm=1)
    queue.consume(ending, prefetch=3)
    stage.settle()
    if orderly:
        queue.tell(ending, "channel_closing")
    else:
        stage.base.end(stage.base.cells[ending.actorAddressString], CRASHED)
    stage.settle()
    actor = queue.actor
    assert not actor.channels.by_id and not len(actor.role.consumers) and not actor._monitored
    assert not actor.channels.credit._credit_to
    queue.consume(staying)
    stage.settle()
    assert bodies(stage.actor(staying)) == numbered(5)


def test_the_answer_to_consume_precedes_the_first_delivery(stage):
    """basic.consume-ok comes before the first delivery, although the queue has a message ready (AB-119)."""
    queue, channel = stage.queue(), stage.create(Asker)
    queue.publish(channel, numbered(1))
    stage.tell(
        channel, channel, "go", queue.address, ("consume", "ch", channel, "c", True, False, 0, False, 0, (), "guest")
    )
    stage.settle()
    assert [message[0] for message in stage.actor(channel).received] == ["answer", "deliver"]


def test_no_delivery_follows_the_answer_to_cancel(stage):
    """After basic.cancel-ok there is no delivery: messages stay in the queue, and unacknowledged ones can still be
    settled (AB-120).
    """
    queue, channel = stage.queue(), stage.create(Stub)
    queue.publish(channel, numbered(3))
    queue.consume(channel, prefetch=2)
    stage.settle()
    assert bodies(stage.actor(channel)) == numbered(2)
    queue.tell(channel, "cancel", "c")
    queue.tell(channel, "settle", "ack", [[0]])
    queue.publish(channel, numbered(1, 3))
    stage.settle()
    assert bodies(stage.actor(channel)) == []
    assert (len(queue.actor.backing), queue.actor.backing.totals().depth) == (2, 3)


# --- publishes that wait for deliveries (FC-33) -----------------------------------------------------------------------


def fill(stage, queue, consumer):
    """Give the queue a backlog and a consumer whose socket takes nothing, so that publishes have to wait."""
    queue.consume(consumer, no_ack=True)
    queue.publish(consumer, numbered(500))
    stage.settle()
    assert len(bodies(stage.actor(consumer))) == 400 and queue.actor.role.dispatch.awaits_write


def test_publishes_wait_for_deliveries_until_the_consumers_stall(stage):
    """A publish waits while a consumer's socket takes deliveries, and no longer when no client reads (FC-33, FC-14)."""
    queue, consumer, publisher = stage.queue(), stage.create(Stub), stage.create(Stub)
    fill(stage, queue, consumer)
    queue.publish(publisher, numbered(10, 300), first_confirm=1)
    stage.settle()
    assert queue.actor.role.publish_delay.delayed and not stage.actor(publisher).take("confirm")
    stage.until(lambda: queue.actor.role.publish_delay.is_stalled)
    stage.settle()
    assert not queue.actor.role.publish_delay.delayed and stage.actor(publisher).take("confirm") == [
        (queue.id, [(1, 10)])
    ]
    queue.publish(publisher, numbered(10, 310), first_confirm=11)
    stage.settle()
    assert stage.actor(publisher).take("confirm") == [(queue.id, [(11, 20)])], (
        "no consumer reads, so publishes need not wait"
    )
    queue.tell(consumer, "sent", 50)
    queue.publish(publisher, numbered(10, 320))
    stage.settle()
    assert not queue.actor.role.publish_delay.is_stalled


def test_an_answer_includes_delayed_publishes(stage):
    """Before the queue answers `counts`, it accepts the publishes that wait (FC-33)."""
    queue, consumer, publisher = stage.queue(), stage.create(Stub), stage.create(Stub)
    fill(stage, queue, consumer)
    queue.publish(publisher, numbered(7))
    stage.tell(publisher, queue.address, "counts")
    stage.settle()
    assert len(queue.actor.backing) == 107


def test_delayed_publishes_of_a_channel_that_dies_are_published(stage):
    """Delayed publishes of a channel that ends are accepted before the queue forgets the channel."""
    queue, consumer, publisher = stage.queue(), stage.create(Stub), stage.create(Stub)
    fill(stage, queue, consumer)
    queue.publish(publisher, numbered(7), first_confirm=1)
    stage.settle()
    stage.base.end(stage.base.cells[publisher.actorAddressString], NORMAL)
    stage.until(lambda: len(queue.actor.backing) == 107)
    stage.settle()
    assert list(queue.actor.channels.by_id) == [consumer.actorAddressString]


moves = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 1), st.integers(1, 120)),
    st.tuples(st.just("sent"), st.integers(1, 4), st.none()),
    st.tuples(st.just("settle"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.none()),
)


@given(st.lists(moves, min_size=1, max_size=30))
@example([("publish", 0, 1), ("wait", None, None), ("wait", None, None)])
@settings(max_examples=60, deadline=None)
def test_delayed_publishes_are_neither_reordered_nor_lost_nor_stuck(plan):
    """A consumer gets each channel's delayed publishes in order, and each is confirmed and credited (FC-33, AB-109,
    FC-5).
    """
    with Stage() as stage:
        queue, consumer = stage.queue(), stage.create(Stub)
        publishers = [stage.create(Stub), stage.create(Stub)]
        published, unsent, got = [0, 0], 0, []
        queue.consume(consumer, no_ack=True)

        def drain():
            nonlocal unsent
            found = bodies(stage.actor(consumer))
            got.extend(found)
            unsent += len(found)
            assert unsent <= 400

        for name, first, count in plan:
            if name == "publish":
                sent = [b"%d %d" % (first, number) for number in range(published[first], published[first] + count)]
                queue.publish(publishers[first], sent, first_confirm=published[first] + 1)
                published[first] += count
            elif name == "sent" and unsent:
                count = min(unsent, 50 * first)
                queue.tell(consumer, "sent", count)
                unsent -= count
            elif name == "settle":
                stage.settle()
            elif name == "wait":
                stage.until(lambda: not queue.actor.role.publish_delay.is_timing)
            drain()
        while len(got) < sum(published):
            queue.tell(consumer, "sent", unsent)
            unsent = 0
            stage.until(lambda: not queue.actor.role.publish_delay.is_timing)
            stage.settle()
            drain()
        stage.settle()  # a publisher may still have its last confirm in its mailbox
        for number, publisher in enumerate(publishers):
            assert [body for body in got if body.startswith(b"%d " % number)] == [
                b"%d %d" % (number, at) for at in range(published[number])
            ]
            confirmed = [
                n
                for _, ranges in stage.actor(publisher).take("confirm")
                for low, high in ranges
                for n in range(low, high + 1)
            ]
            assert confirmed == list(range(1, published[number] + 1))
            granted = sum(amount for _, amount in stage.actor(publisher).take("bump"))
            assert granted == published[number] // 200 * 200
        assert not queue.actor.role.publish_delay.delayed and not queue.actor.role.publish_delay.is_timing
