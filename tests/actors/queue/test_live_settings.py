"""The settings of a queue that runs: `apply_settings` replaces them all (AB-92 to AB-94, AB-103, AB-145).

RabbitMQ 3.10 was observed to do the same with a policy, unless a test says otherwise.
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
        except Exception as error:  # the test looks at it
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
    """Everything that the queue has, taken by a consumer that then goes away."""
    eater = stage.create(Stub)
    queue.consume(eater, no_ack=True)
    stage.settle()
    queue.tell(eater, "cancel", "c")
    stage.settle()
    return [body for _, _, runs in stage.actor(eater).take("deliver") for run in runs for body in bodies_of(run[3])]


def test_a_ttl_that_is_set_counts_for_later_messages_only(stage):
    """AB-94, AB-95: later messages wait behind earlier ones, which do not expire."""
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
    """A publish in the same turn, in front of the new settings, is accepted under the old ones."""
    queue, publisher = stage.queue(), stage.create(Stub)
    queue.publish(publisher, numbered(2))
    stage.tell(stage.metadata, queue.address, "apply_settings", QueueSettings(message_ttl=0))
    queue.publish(publisher, numbered(2, 2))
    stage.settle()
    assert bodies(stage, queue) == numbered(2)


def test_a_lowered_limit_drops_the_head_at_once(stage):
    """AB-103: and what is dropped becomes dead letters."""
    queue, grave = stage.queue(), stage.queue("grave")
    published(stage, queue, 6)
    applied(stage, queue, max_length=2, dead_letter_exchange="", dead_letter_routing_key="grave")
    stage.settle()
    assert bodies(stage, grave) == numbered(4) and bodies(stage, queue) == numbered(2, 4)


def test_a_limit_with_reject_publish_drops_nothing(stage):
    """AB-103: it refuses publishes until there is room again. RabbitMQ 3.10 drops the head if one policy sets limit and
    overflow at the same time, because it applies the limit before the overflow.
    """
    queue = stage.queue()
    published(stage, queue, 6)
    applied(stage, queue, max_length=2, overflow="reject-publish")
    assert len(queue.actor.backing) == 6
    assert published(stage, queue, 1, first=6).take("refuse") and len(queue.actor.backing) == 6
    applied(stage, queue, max_length=3)
    assert bodies(stage, queue) == numbered(3, 3)


def test_expires_that_is_set_counts_from_now(stage):
    """AB-93: it is for queues that nobody uses; without it the queue stays."""
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
    """AB-145: whatever it was when the message was published or delivered; without one messages are dropped."""
    queue, first, other, channel = stage.queue(), stage.queue("first"), stage.queue("other"), stage.create(Stub)
    queue.consume(channel)
    published(stage, queue, 3)
    for tag, key in enumerate(("first", "other", None)):
        exchange = None if key is None else ""
        applied(stage, queue, dead_letter_exchange=exchange, dead_letter_routing_key=key)
        queue.tell(channel, "settle", "reject", [[tag]])
        stage.settle()
    assert (bodies(stage, first), bodies(stage, other)) == ([b"0"], [b"1"])
    assert queue.actor.role.dead_letterer.counters["rejected"] == 3


def test_what_is_fixed_when_a_queue_is_declared_is_refused(stage):
    """Priorities decide how the backing queue is built, and the single active consumer how consumers stand in line."""
    queue = stage.queue(x_max_priority=5)
    for settings in ({}, {"max_priority": 6}, {"max_priority": 5, "single_active_consumer": True}):
        refused = applied(stage, queue, **settings, message_ttl=1)
        assert refused.code == 406 and "cannot be changed" in str(refused), settings
    assert queue.actor.settings.message_ttl is None
    assert applied(stage, queue, max_priority=5, message_ttl=1) is True


def test_the_mode_is_listed(stage):
    """AB-92."""
    queue = stage.queue()
    applied(stage, queue, queue_mode="lazy")
    assert queue.actor.on_info(None)["queue_mode"] == "lazy"
