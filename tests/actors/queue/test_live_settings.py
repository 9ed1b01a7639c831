"""`apply_settings` replaces all settings of a running queue (AB-92 to AB-94, AB-103, AB-145).

A RabbitMQ 3.10 did the same with a policy when it was tried, unless a test says otherwise.
"""

from __future__ import annotations

import pytest

from warren.routing.arguments.queue_settings import QueueSettings

from ..stage import Stage, Stub, bodies_of


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Asker(Stub):
    async def on_go(self, sender, target, message):
        try:
            self.received.append(("answer", await self.ask(target, message)))
        except Exception as error:  # the test checks it
            self.received.append(("answer", error))


def applied(stage, queue, **settings):
    """Apply settings, and return the answer."""
    asker = stage.create(Asker)
    stage.tell(stage.metadata, asker, "go", queue.address, ("apply_settings", QueueSettings(**settings)))
    stage.settle()
    return stage.actor(asker).take("answer")[0][0]


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def published(stage, queue, count, first=0):
    publisher = stage.create(Stub)
    queue.publish(publisher, numbered(count, first), first_confirm=1)
    stage.settle()
    return stage.actor(publisher)


def bodies(stage, queue):
    """All bodies of the queue, taken by a consumer that then leaves."""
    eater = stage.create(Stub)
    queue.consume(eater, no_ack=True)
    stage.settle()
    queue.tell(eater, "cancel", "c")
    stage.settle()
    return [body for _, _, runs in stage.actor(eater).take("deliver") for run in runs for body in bodies_of(run[3])]


def test_a_ttl_that_is_set_counts_for_later_messages_only(stage):
    """A new TTL counts for later messages only. They wait behind earlier ones, which do not expire (AB-94, AB-95)."""
    queue = stage.queue()
    published(stage, queue, 3)
    assert applied(stage, queue, message_ttl=1) is True
    published(stage, queue, 2, first=3)
    stage.base.run_until(lambda: False, 0.02)
    assert len(queue.actor.backing) == 5
    assert bodies(stage, queue) == numbered(3)
    assert len(queue.actor.backing) == 0
    published(stage, queue, 1)
    stage.until(lambda: not len(queue.actor.backing))
    applied(stage, queue)
    published(stage, queue, 1)
    stage.base.run_until(lambda: False, 0.02)
    assert bodies(stage, queue) == numbered(1)


def test_what_was_published_before_keeps_the_earlier_settings(stage):
    """A publish in the same turn, before the new settings, is accepted under the old ones."""
    queue, publisher = stage.queue(), stage.create(Stub)
    queue.publish(publisher, numbered(2))
    stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(message_ttl=0))
    queue.publish(publisher, numbered(2, 2))
    stage.settle()
    assert bodies(stage, queue) == numbered(2)


def test_a_lowered_limit_drops_the_head_at_once(stage):
    """A lowered limit drops the head at once, and dropped messages become dead letters (AB-103)."""
    queue, grave = stage.queue(), stage.queue("grave")
    published(stage, queue, 6)
    applied(stage, queue, max_length=2, dead_letter_exchange="", dead_letter_routing_key="grave")
    stage.settle()
    assert bodies(stage, grave) == numbered(4) and bodies(stage, queue) == numbered(2, 4)


def test_a_limit_with_reject_publish_drops_nothing(stage):
    """With reject-publish a lowered limit drops nothing: publishes are refused until there is room again (AB-103).
    RabbitMQ 3.10 drops the head if one policy sets limit and overflow together, because it applies the limit first.
    """
    queue = stage.queue()
    published(stage, queue, 6)
    applied(stage, queue, max_length=2, overflow="reject-publish")
    assert len(queue.actor.backing) == 6
    assert published(stage, queue, 1, first=6).take("refuse") and len(queue.actor.backing) == 6
    applied(stage, queue, max_length=3)
    assert bodies(stage, queue) == numbered(3, 3)


def test_expires_that_is_set_counts_from_now(stage):
    """A new `expires` counts from now, as long as nobody uses the queue, and without it the queue stays (AB-93)."""
    queue, eater = stage.queue(), stage.create(Stub)
    applied(stage, queue, expires=20)
    applied(stage, queue)
    stage.base.run_until(lambda: False, 0.05)
    assert stage.is_alive(queue.address)
    queue.consume(eater)
    stage.settle()
    applied(stage, queue, expires=20)
    stage.base.run_until(lambda: False, 0.05)
    assert stage.is_alive(queue.address)
    queue.tell(eater, "cancel", "c")
    stage.until(lambda: not stage.is_alive(queue.address))
    assert stage.actor(stage.metadata).take("queue_gone")


def test_the_dead_letter_exchange_counts_when_a_message_dies(stage):
    """The dead-letter exchange is the one that is set when a message dies, not when it was published or delivered;
    without one the message is dropped (AB-145).
    """
    queue, first, other, channel = stage.queue(), stage.queue("first"), stage.queue("other"), stage.create(Stub)
    queue.consume(channel)
    published(stage, queue, 3)
    for tag, key in enumerate(("first", "other", None)):
        exchange = None if key is None else ""
        applied(stage, queue, dead_letter_exchange=exchange, dead_letter_routing_key=key)
        queue.tell(channel, "settle", "reject", [[tag]])
        stage.settle()
    assert (bodies(stage, first), bodies(stage, other)) == ([b"0"], [b"1"])
    assert queue.actor.role.dead_letterer.counts.dead["rejected"] == 3


def test_what_is_fixed_when_a_queue_is_declared_is_refused(stage):
    """Settings that are fixed at the declare are refused: priorities decide how the backing queue is built, and a
    single active consumer how consumers stand in line.
    """
    queue = stage.queue(x_max_priority=5)
    for settings in ({}, {"max_priority": 6}, {"max_priority": 5, "single_active_consumer": True}):
        refused = applied(stage, queue, **settings, message_ttl=1)
        assert refused.code == 406 and "cannot be changed" in str(refused), settings
    assert queue.actor.settings.message_ttl is None
    assert applied(stage, queue, max_priority=5, message_ttl=1) is True


def test_the_mode_is_listed(stage):
    """The mode of a queue is listed as it is now (AB-92)."""
    queue = stage.queue()
    applied(stage, queue, queue_mode="lazy")
    assert queue.actor.on_info(None)["queue_mode"] == "lazy"
