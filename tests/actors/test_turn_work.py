"""No turn of a queue or a channel does more work because a client has more there: each kind of message is tried with
two sizes of state.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from warren.actors.channel.consuming.gets import GOT_TOGETHER
from warren.actors.contracts.channel import ToChannel
from warren.actors.contracts.queue import ToQueue
from warren.actors.node.queue_supervisor import QueueSupervisor
from warren.amqp import methods
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content
from warren.amqp.parser.events import ACKS, METHOD
from warren.amqp.properties import Properties, encode_properties
from warren.routing.arguments.queue_settings import queue_settings
from warren.routing.changes import BindingAdded
from warren.routing.rows import Binding, QueueRow
from warren.store.messages.message import Origin

from .measured_turns import FLOOR, GROWTH, LARGE, SMALL, TURN_MESSAGES, Scenario, assert_no_turn_grows, measured
from .stage import DELETED, PROPS, Stage, Stub

#: How many messages are published together.
RUN = 100

#: Messages without a scenario, and why they need none.
EXEMPT = {
    **dict.fromkeys(("start", "open", "recovered", "hold", "terminate"), "the life of the node, not of a client"),
    **dict.fromkeys(("durable", "batch_lost", "flush_synced", "stored"), "journal and stores report by batches"),
    **dict.fromkeys(("ram_duration_target", "page_out"), "paging has a quota"),
    "set_queue_mode": "as apply_settings",
    "bump": "a number",
    "link_full": "one link of the node",
    "link_free": "one link of the node",
    "sent": "a number",
    "limiter_changed": "a number",
    "limiter_grant": "a number",
    "limiter_request": "a number",
    "limiter_request_now": "a number",
    "limiter_return": "a number",
    "publish_at_most_once": "as publish",
    "take_dead_letters": "as publish",
    "handed_over": "as publish",
    "cancel": "one consumer",
    "consume": "one consumer",
    "confirm": "ranges of publishes, which credit bounds",
    "refuse": "ranges of publishes, which credit bounds",
    "deliver": "200 messages at most",
    "reading_ended": "one consumer",
    "reply_to": "one message from the mailbox",
    **dict.fromkeys(("has_reply_key", "handled"), "one look-up"),
    "look_up": "as many messages as an operator's query may return",
    **dict.fromkeys(("group_changed", "dismiss", "node_met", "follows", "go_on", "standing"), "one replica of a queue"),
    "ring": "one frame between two nodes",
    "sync_chunk": "a chunk has a largest size",
    "serve_kept": "as the messages that were kept, each of which has its own turns",
    "handover": "the acknowledgements of the moment for which a master was at rest",
    "sync_held": "at most COMPARED_AT_ONCE numbers, and each read of the index is a turn of its own",
    **dict.fromkeys(("browse", "peek"), "reads batches of a largest size, with turns of others between them"),
    **dict.fromkeys(
        ("sync_numbers", "sync_floors", "copy_lags", "copy_progress", "synchronise", "quiesce", "replica_status"),
        "one replica of a queue",
    ),
    "sync_window": "a bounded part of what the queue remembers",
    **dict.fromkeys(("leased", "pacer_moved"), "one pace of the queue, whatever waits for it"),
    "reclaim": "ranges of publishes, which credit bounds",
    "reading_info": "a few numbers",
}

SCENARIOS: dict[str, list[tuple[str, Scenario]]] = {}


def scenario(message: str) -> Callable[[Scenario], Scenario]:
    def register(function: Scenario) -> Scenario:
        SCENARIOS.setdefault(message, []).append((function.__name__, function))
        return function

    return register


# -- queues ---


def filled(stage: Stage, count: int, **arguments: Any) -> Any:
    """A queue with `count` ready messages."""
    queue, publisher = stage.queue(**arguments), stage.create(Stub)
    for _ in range(0, count, RUN):
        queue.publish(publisher, [b"x"] * RUN)
        stage.settle()
    stage.until(lambda: len(queue.actor.backing) == count)
    return queue


def held(stage: Stage, count: int, **arguments: Any) -> tuple[Any, Any]:
    """A queue, and a channel that has `count` of its messages unacknowledged."""
    queue, channel = filled(stage, count, **arguments), stage.create(Stub)
    queue.consume(channel)
    record = None
    while len(queue.actor.backing):
        stage.settle()
        record = queue.actor.channels.by_id[channel.actorAddressString]
        if record.unsent:
            queue.tell(channel, "sent", record.unsent)
    stage.settle()
    queue.tell(channel, "cancel", "c")
    stage.settle()
    assert record is not None and len(record.pending) == count
    stage.actor(channel).received.clear()
    return queue, channel


def unacked(queue: Any) -> int:
    return sum(len(record.pending) for record in queue.actor.channels.by_id.values())


def settling(stage: Stage, count: int, outcome: str, pieces: list[Any], **arguments: Any) -> Callable[[], None]:
    queue, channel = held(stage, count, **arguments)

    def act() -> None:
        queue.tell(channel, "settle", outcome, pieces)
        stage.until(lambda: not unacked(queue))
        stage.settle()

    return act


def scattered(count: int) -> list[list[int]]:
    return [[tag] for tag in random.Random(1).sample(range(count), count)]


@scenario("settle")
def acks_in_a_row(stage: Stage, count: int) -> Callable[[], None]:
    return settling(stage, count, "ack", [range(count)])


@scenario("settle")
def scattered_acks(stage: Stage, count: int) -> Callable[[], None]:
    return settling(stage, count, "ack", scattered(count))


@scenario("settle")
def a_requeue_in_a_row(stage: Stage, count: int) -> Callable[[], None]:
    return settling(stage, count, "requeue", [range(count)])


@scenario("settle")
def scattered_requeues(stage: Stage, count: int) -> Callable[[], None]:
    return settling(stage, count, "requeue", scattered(count))


@scenario("settle")
def a_requeue_over_the_limit(stage: Stage, count: int) -> Callable[[], None]:
    queue, channel = held(stage, count)
    stage.tell(stage.metadata, queue.address, "apply_settings", queue_settings(table_from({"x-max-length": 1})))
    stage.settle()

    def act() -> None:
        queue.tell(channel, "settle", "requeue", [range(count)])
        stage.until(lambda: not unacked(queue) and len(queue.actor.backing) == 1)

    return act


@scenario("settle")
def rejections(stage: Stage, count: int) -> Callable[[], None]:
    stage.queue("dead", process=Stub)
    return settling(stage, count, "reject", [range(count)], x_dead_letter_exchange="", x_dead_letter_routing_key="dead")


@scenario("settle")
def many_small_settlements_in_one_turn(stage: Stage, count: int) -> Callable[[], None]:
    queue, channel = held(stage, count)

    def act() -> None:
        for first in range(0, count, TURN_MESSAGES):
            queue.tell(channel, "settle", "ack", [[tag] for tag in range(first, first + TURN_MESSAGES)])
        stage.until(lambda: not unacked(queue))

    return act


@scenario("channel_closing")
def a_channel_that_closes(stage: Stage, count: int) -> Callable[[], None]:
    queue, channel = held(stage, count)

    def act() -> None:
        queue.tell(channel, "channel_closing")
        stage.until(lambda: len(queue.actor.backing) == count)

    return act


@scenario("channel_closing")
def a_channel_that_dies(stage: Stage, count: int) -> Callable[[], None]:
    queue, channel = held(stage, count)

    def act() -> None:
        stage.base.end(stage.base.cells[channel.actorAddressString], DELETED)
        stage.until(lambda: len(queue.actor.backing) == count)

    return act


@scenario("purge")
def a_purge(stage: Stage, count: int) -> Callable[[], None]:
    queue = filled(stage, 4 * count)

    def act() -> None:
        stage.tell(stage.metadata, queue.address, "purge")
        stage.until(lambda: not len(queue.actor.backing))

    return act


@scenario("delete")
def a_deletion(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = held(stage, count)
    publisher = stage.create(Stub)
    for _ in range(0, 4 * count, RUN):
        queue.publish(publisher, [b"x"] * RUN)
        stage.settle()

    def act() -> None:
        stage.tell(stage.metadata, queue.address, "delete", False, False)
        stage.until(lambda: not stage.is_alive(queue.address))

    return act


@scenario("apply_settings")
def a_lower_limit(stage: Stage, count: int) -> Callable[[], None]:
    queue = filled(stage, count)

    def act() -> None:
        stage.tell(stage.metadata, queue.address, "apply_settings", queue_settings(table_from({"x-max-length": 1})))
        stage.until(lambda: len(queue.actor.backing) == 1)

    return act


@scenario("publish")
def a_large_message_that_displaces_small_ones(stage: Stage, count: int) -> Callable[[], None]:
    queue = filled(stage, count, x_max_length_bytes=count)

    def act() -> None:
        queue.publish(stage.create(Stub), [b"x" * count])
        stage.until(lambda: len(queue.actor.backing) == 1)

    return act


@scenario("publish")
def refused_messages_that_become_dead_letters(stage: Stage, count: int) -> Callable[[], None]:
    for number in range(10):
        stage.queue(f"dead {number}", process=Stub)
        binding = Binding.of("amq.fanout", "queue", f"dead {number}", "", table_from({}))
        stage.routing.publish([BindingAdded("/", binding, False)])
    queue = filled(stage, RUN, x_max_length=RUN, x_overflow="reject-publish-dlx", x_dead_letter_exchange="amq.fanout")
    properties = [encode_properties(Properties(message_id=f"{number}")) for number in range(count // 6)]
    contents = [build_content(1, each, b"x", 4096) for each in properties]

    def act() -> None:
        publisher = stage.create(Stub)
        entry = Origin("", ("q",), False), contents, len(contents), 0, False, 0
        stage.tell(publisher, queue.address, "publish", publisher.actorAddressString, [entry])
        stage.until(lambda: queue.actor.role.dead_letterer.counts.dead["maxlen"] and queue.actor.role.is_quiet)

    return act


@scenario("get_several")
def many_gets(stage: Stage, count: int) -> Callable[[], None]:
    queue, publisher = stage.queue(), stage.create(Stub)
    queue.publish(publisher, [b"x"] * count)
    stage.until(lambda: len(queue.actor.backing) == count)

    def act() -> None:
        while len(queue.actor.backing):
            queue.tell(publisher, "get_several", publisher, True, GOT_TOGETHER)
            stage.settle()

    return act


@scenario("get")
def messages_that_expire_together(stage: Stage, count: int) -> Callable[[], None]:
    queue, publisher = stage.queue(), stage.create(Stub)
    queue.publish(publisher, [b"x"])
    content = build_content(1, PROPS, b"x", 4096)
    entry = Origin("", ("q",), False, 0, 1), [content] * count, count, 0, False, 0
    stage.tell(publisher, queue.address, "publish", publisher.actorAddressString, [entry])
    stage.until(lambda: len(queue.actor.backing) == count + 1)
    expiry = queue.actor.role.message_expiry
    passed = expiry.now() / 1_000_000 + 1
    expiry._wall_clock = lambda: passed  # all have expired when the message at the head is taken

    def act() -> None:
        queue.tell(publisher, "get", publisher, True)
        stage.until(lambda: not len(queue.actor.backing))

    return act


@scenario("counts")
@scenario("info")
@scenario("consumers_info")
def questions(stage: Stage, count: int) -> Callable[[], None]:
    queue, _ = held(stage, count)

    def act() -> None:
        for name in ("counts", "info", "consumers_info"):
            stage.tell(stage.metadata, queue.address, name)
        stage.settle()

    return act


# -- channels ---


def holding(stage: Stage, count: int, *first: methods.Method) -> Any:
    """A channel with `count` unacknowledged deliveries, each a run of its own."""
    queue = stage.queue(process=Stub)
    queue.actor.answers = {"consume": True, "channel_closing": True}
    channel = stage.channel()
    channel.send(*first, methods.BasicConsume(queue="q", consumer_tag="c"))
    stage.settle()
    origin, content = Origin("", ("q",), False), build_content(1, PROPS, b"x", 4096)
    for first_tag in range(0, count, 100):
        runs = [(origin, False, [2 * tag], [content]) for tag in range(first_tag, first_tag + 100)]
        stage.tell(queue.address, channel.address, "deliver", queue.id, "c", runs)
    stage.until(lambda: channel.actor.deliveries.unacked.count == count)
    stage.settle()
    channel.frames()
    channel.queue = queue
    return channel


def settled_by(stage: Stage, count: int, *events: Any) -> Callable[[], None]:
    channel = holding(stage, count)

    def act() -> None:
        channel.input(*events)
        stage.until(lambda: not channel.actor.deliveries.unacked.count and not channel.actor.busy)
        stage.settle()
        pieces = [piece for _, _, pieces in channel.queue.actor.take("settle") for piece in pieces]
        assert sorted(tag for piece in pieces for tag in piece) == [2 * tag for tag in range(count)]

    return act


def numbers(count: int) -> list[int]:
    """All delivery tags in random order."""
    return random.Random(1).sample(range(1, count + 1), count)


@scenario("input")
def acks_in_random_order(stage: Stage, count: int) -> Callable[[], None]:
    return settled_by(stage, count, (ACKS, 1, [(tag, False) for tag in numbers(count)]))


@scenario("input")
def an_ack_of_all(stage: Stage, count: int) -> Callable[[], None]:
    return settled_by(stage, count, (ACKS, 1, [(count, True)]))


@scenario("input")
def rejections_in_random_order(stage: Stage, count: int) -> Callable[[], None]:
    return settled_by(stage, count, *[(METHOD, 1, methods.BasicReject(tag, True)) for tag in numbers(count)])


@scenario("input")
def a_nack_of_all(stage: Stage, count: int) -> Callable[[], None]:
    return settled_by(stage, count, (METHOD, 1, methods.BasicNack(0, True, True)))


@scenario("input")
def recover(stage: Stage, count: int) -> Callable[[], None]:
    return settled_by(stage, count, (METHOD, 1, methods.BasicRecover(True)))


def transaction(stage: Stage, count: int, end: methods.Method, answer: type[methods.Method]) -> Callable[[], None]:
    channel = holding(stage, count, methods.TxSelect())
    for tag in numbers(count):
        channel.ack(tag)
        channel.publish([b"x"], "nowhere")
    stage.settle()

    def act() -> None:
        channel.send(end)
        frames: list[Any] = []
        stage.until(lambda: frames.extend(channel.frames()) or any(type(frame) is answer for frame in frames))

    return act


@scenario("input")
def a_commit(stage: Stage, count: int) -> Callable[[], None]:
    return transaction(stage, count, methods.TxCommit(), methods.TxCommitOk)


@scenario("input")
def a_rollback(stage: Stage, count: int) -> Callable[[], None]:
    return transaction(stage, count, methods.TxRollback(), methods.TxRollbackOk)


@scenario("input")
def a_close(stage: Stage, count: int) -> Callable[[], None]:
    channel = holding(stage, count)

    def act() -> None:
        channel.send(methods.ChannelClose(200, "", 0, 0))
        stage.until(lambda: not stage.is_alive(channel.address))

    return act


@scenario("shut_down")
def the_end_of_the_connection(stage: Stage, count: int) -> Callable[[], None]:
    channel = holding(stage, count)

    def act() -> None:
        stage.tell(channel.connection, channel.address, "shut_down")
        stage.until(lambda: not stage.is_alive(channel.address))

    return act


@scenario("info")
def the_end_of_the_queue(stage: Stage, count: int) -> Callable[[], None]:
    channel = holding(stage, count)

    def act() -> None:
        stage.tell(channel.connection, channel.address, "info")
        stage.base.end(stage.base.cells[channel.queue.address.actorAddressString], DELETED)
        stage.settle()
        assert not channel.actor.deliveries.unacked.sources

    return act


# -- the queues of a virtual host ---


@scenario("end_queues")
def all_queues_end(stage: Stage, count: int) -> Callable[[], None]:
    supervisor = stage.create(QueueSupervisor)
    tell(stage, supervisor, "start", stage.context, None)
    for number in range(count):
        tell(stage, supervisor, "start_queue", QueueRow("/", f"q{number}", None, f"id {number}"))
    stage.settle()

    def act() -> None:
        tell(stage, supervisor, "end_queues")
        stage.settle()
        assert not stage.actor(supervisor).queues

    return act


def tell(stage: Stage, process: Any, *message: Any) -> None:
    stage.tell(stage.metadata, process, *message)


# -- the test ---


@pytest.mark.parametrize("of", [pytest.param(of, id=name) for pairs in SCENARIOS.values() for name, of in pairs])
def test_no_turn_grows_with_the_state(of: Scenario) -> None:
    assert_no_turn_grows(of)


@pytest.mark.parametrize("contract", [ToQueue, ToChannel])
def test_each_message_has_a_scenario_or_a_reason(contract: Any) -> None:
    assert not set(contract.messages) - SCENARIOS.keys() - EXEMPT.keys()


def test_a_turn_that_grows_is_found() -> None:
    """The test finds a handler that does all its work in one turn; if it did not, the scenarios would prove nothing."""

    def in_one_turn(stage: Stage, count: int) -> Callable[[], None]:
        queue, channel = held(stage, count)
        work = queue.actor.state.work
        work.most = work.left = 1 << 30

        def act() -> None:
            queue.tell(channel, "settle", "requeue", scattered(count))
            stage.until(lambda: not unacked(queue))

        return act

    small, large = measured(in_one_turn, SMALL), measured(in_one_turn, LARGE)
    assert large.lines > GROWTH * small.lines + FLOOR
