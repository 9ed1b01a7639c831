"""No turn of a queue grows with the number of its consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from warren.amqp.fields import Table
from warren.routing.arguments.queue_settings import queue_settings
from warren.runtime.loop import lanes
from warren.runtime.process import Process
from warren.runtime.turn_work import STEP

from .measured_turns import Scenario, assert_no_turn_grows
from .stage import Stage, Stub


class Asker(Process):
    answer: Any = ()

    async def on_ask_for(self, sender: Any, queue: Any, what: str) -> None:
        self.answer = await self.ask(queue, (what,))


#: How many channels the consumers have.
CHANNELS = 3


def consumed(stage: Stage, count: int, **options: Any) -> tuple[Any, list[Any]]:
    """A queue with `count` consumers, which belong to several channels in turn."""
    queue, channels = stage.queue(), [stage.create(Stub) for _ in range(CHANNELS)]
    for number in range(count):
        queue.consume(channels[number % CHANNELS], f"c{number}", **options)
    stage.settle()
    assert len(queue.actor.role.consumers) == count
    return queue, channels


def apply(stage: Stage, queue: Any, **policy: Any) -> None:
    """Apply a policy with these settings to the queue."""
    settings = queue_settings(Table(), {key.replace("_", "-"): value for key, value in policy.items()})
    stage.tell(stage.metadata, queue.address, "apply_settings", settings)
    stage.settle()


def gates(queue: Any) -> int:
    return sum(consumer.gate is not None for consumer in queue.actor.role.consumers)


def limits(queue: Any) -> int:
    return sum(consumer.limit is not None for consumer in queue.actor.role.consumers)


def any_policy(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = consumed(stage, count)
    return lambda: apply(stage, queue, max_length=10, message_ttl=1000, expires=1000)


def a_pace_of_each_consumer(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = consumed(stage, count)

    def act() -> None:
        apply(stage, queue, pace_rate=10, pace_scope="consumer")
        assert gates(queue) == count
        apply(stage, queue, pace_rate=20, pace_scope="consumer")
        apply(stage, queue)
        assert not gates(queue)

    return act


def a_limit_of_each_consumer(stage: Stage, count: int) -> Callable[[], None]:
    """Each consumer holds one message, which is its limit."""
    queue, channels = consumed(stage, count, prefetch=1)
    publisher = stage.create(Stub)
    for _ in range(0, count, 100):
        queue.publish(publisher, [b"x"] * 100)
        stage.settle()
        for channel in channels:
            queue.tell(channel, "sent", queue.actor.channels.by_id[channel.actorAddressString].unsent)
        stage.settle()
    assert all(consumer.unacked == 1 for consumer in queue.actor.role.consumers)

    def act() -> None:
        apply(stage, queue, consumer_max_unacked=1)
        assert limits(queue) == count
        assert all(consumer.limit.room() == 0 for consumer in queue.actor.role.consumers)
        apply(stage, queue, consumer_max_unacked=2)
        apply(stage, queue)
        assert not limits(queue)

    return act


def the_end_of_a_channel(stage: Stage, count: int) -> Callable[[], None]:
    queue, channels = consumed(stage, count)

    def act() -> None:
        queue.tell(channels[1], "channel_closing")
        stage.settle()
        assert len(queue.actor.role.consumers) == count - count // CHANNELS

    return act


def the_end_of_a_channel_with_the_single_active_consumer(stage: Stage, count: int) -> Callable[[], None]:
    queue = stage.queue(x_single_active_consumer=True)
    channels = [stage.create(Stub) for _ in range(2)]
    for number in range(count):
        queue.consume(channels[0], f"c{number}")
    queue.consume(channels[1], "next")
    stage.settle()

    def act() -> None:
        queue.tell(channels[0], "channel_closing")
        stage.settle()
        assert queue.actor.role.consumers.active.tag == "next"

    return act


def a_listing(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = consumed(stage, count)

    asker = stage.create(Asker)

    def act() -> None:
        stage.tell(stage.metadata, asker, "ask_for", queue.address, "consumers_info")
        stage.until(lambda: len(stage.actor(asker).answer) == count)

    return act


def on_channels(stage: Stage, count: int, **options: Any) -> tuple[Any, list[Any]]:
    """A queue with `count` consumers, each on a channel of its own."""
    queue, channels = stage.queue(), [stage.create(Stub) for _ in range(count)]
    for channel in channels:
        queue.consume(channel, "c", **options)
    stage.settle()
    assert len(queue.actor.role.consumers) == len(queue.actor.channels.by_id) == count
    return queue, channels


def statistics_of_many_channels(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = on_channels(stage, count)
    queue.publish(stage.create(Stub), [b"x"] * 100)
    stage.settle()
    asker = stage.create(Asker)

    def act() -> None:
        stage.tell(stage.metadata, asker, "ask_for", queue.address, "info")
        stage.until(lambda: stage.actor(asker).answer)
        answer = stage.actor(asker).answer
        assert (answer["messages_unacknowledged"], answer["unsent"]) == (100, 100)

    return act


def the_deletion_of_a_queue_with_many_channels(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = on_channels(stage, count)

    def act() -> None:
        stage.tell(stage.metadata, queue.address, "delete", False, False)
        stage.until(lambda: not stage.is_alive(queue.address))

    return act


@pytest.mark.parametrize(
    "of",
    [
        statistics_of_many_channels,
        the_deletion_of_a_queue_with_many_channels,
        any_policy,
        a_pace_of_each_consumer,
        a_limit_of_each_consumer,
        the_end_of_a_channel,
        the_end_of_a_channel_with_the_single_active_consumer,
        a_listing,
    ],
)
def test_no_turn_grows_with_the_consumers(of: Scenario) -> None:
    assert_no_turn_grows(of)


def test_consumers_of_a_channel_that_ends_get_nothing_more() -> None:
    """When a channel ends, its consumers get nothing more, and the others get all messages in the order of
    their line.
    """
    with Stage() as stage:
        queue, channels = consumed(stage, 300, no_ack=True)
        queue.tell(channels[1], "channel_closing")
        queue.publish(stage.create(Stub), [b"x"] * 200)
        stage.settle()
        deliveries = [stage.actor(channel).take("deliver") for channel in channels]
        assert [len(found) for found in deliveries] == [100, 0, 100]
        assert [tag for _, tag, _ in deliveries[0]] == [f"c{number}" for number in range(0, 300, CHANNELS)]


def test_consumers_are_cancelled_and_listed_while_a_deleted_queue_forgets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Otherwise the queue may go on at once after a slice that seems long.
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", 600.0)
    with Stage() as stage:
        queue, count = stage.queue(), 2 * STEP + 1
        channels = [stage.create(Stub) for _ in range(count)]
        for channel in channels:
            queue.consume(channel, "c")
        watcher = stage.create(Stub)
        stage.actor(watcher).monitor(queue.address, "queue")
        stage.settle()
        stage.tell(watcher, queue.address, "delete", False, False)
        queue_actor = queue.actor
        stage.until(lambda: len(queue_actor.channels.by_id) < count)
        assert queue_actor.channels.by_id, "the test comes too late"
        for channel in channels:
            queue.tell(channel, "cancel", "c")
        stage.until(lambda: len(queue_actor.role.consumers) < count)
        assert len(queue_actor.role.consumers), "the test comes too late"
        stage.tell(watcher, queue.address, "consumers_info")
        stage.settle()
        assert [str(reason) for _, reason in stage.actor(watcher).downs] == ["deleted"]


def paced_consumers_that_wait_for_their_slots(stage: Stage, count: int) -> Callable[[], None]:
    """Consumers with a pace whose first slots come in an hour."""
    queue, channels = consumed(stage, count, no_ack=True)
    apply(stage, queue, pace_rate=1, pace_period_ms=3_600_000, pace_scope="consumer")
    publisher = stage.create(Stub)

    def publish() -> None:
        queue.publish(publisher, [b"x"] * 100)
        stage.settle()
        for channel in channels:
            queue.tell(channel, "sent", queue.actor.channels.by_id[channel.actorAddressString].unsent)
        stage.settle()

    publish()
    assert len(queue.actor.backing) == 100
    return publish


def test_paced_consumers_that_wait_cost_a_publish_nothing() -> None:
    assert_no_turn_grows(paced_consumers_that_wait_for_their_slots)
