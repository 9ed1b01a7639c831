"""The catalogue with pika: what a reader by number needs to know of many queues (SP-20, SP-21)."""

from __future__ import annotations

import json

import pika
import pytest

from warren import Broker
from warren.actors.channel.consuming import catalogue

from ..oracle import ORACLE

pytestmark = pytest.mark.skipif(bool(ORACLE), reason="no other broker has it")

CATALOGUE = "amq.warren.catalogue"


@pytest.fixture(scope="module")
def broker():
    with Broker(port=0) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            for name, arguments in (
                ("orders.eu", {}),
                ("orders.us", {"x-max-length": 5}),
                ("ranked", {"x-max-priority": 3}),
                ("log", {"x-queue-type": "stream"}),
                ("wide", {"x-warren-shards": 2}),
            ):
                channel.queue_declare(name, durable=True, arguments=arguments)
            for size in range(7):
                channel.basic_publish("", "orders.us", bytes(size))
            channel.queue_declare("taken", durable=True)
            channel.basic_publish("", "taken", b"12345")
            channel.basic_get("taken")
            broker.add_user("reader", "secret")
            broker.set_permissions("reader", configure="", write="", read="^orders")
            yield broker


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


def rows(channel, **arguments):
    arguments = {f"x-warren-{key}": value for key, value in arguments.items()}
    ((method, properties, body),) = channel.consume(CATALOGUE, auto_ack=True, arguments=arguments)
    assert (method.routing_key, properties.content_type) == (CATALOGUE, "application/json")
    return json.loads(body)


def names(channel, **arguments):
    return [row["name"] for row in rows(channel, **arguments)]


def test_a_row_in_full(broker, channel):
    assert "catalogue" in channel.connection._impl.server_properties["warren_features"]
    (row,) = rows(channel, queues=["orders.us", "nowhere"])
    queue = broker.queue("orders.us")
    assert row == {
        "name": "orders.us", "id": queue.queue_id, "life": 0, "gaps": [], "first": 2, "next": 7, "messages": 5,
        "message_bytes": 20, "unacked": 0, "consumers": 0, "durable": True, "arguments": {"x-max-length": 5},
        "shard_of": None, "dedup": 0, "readable": True, "reason": None, "node": row["node"], "here": True,
        "endpoints": [f"127.0.0.1:{broker.port}"], "in_sync": [row["node"]],
    }  # fmt: skip


def test_unacknowledged_messages_count(channel):
    (row,) = rows(channel, queues=["taken"])
    assert (row["messages"], row["unacked"], row["message_bytes"], row["first"], row["next"]) == (1, 1, 5, 0, 1)


def test_patterns_choose_queues_by_name(channel):
    assert names(channel, pattern="orders.*") == ["orders.eu", "orders.us"]
    assert names(channel, pattern="orders.?u") == ["orders.eu"]
    assert names(channel, pattern="nothing*") == []


def test_a_sharded_queue_stands_for_its_shards(channel):
    assert names(channel, queues=["wide"]) == names(channel, pattern="wide") == ["wide_0", "wide_1"]
    assert [row["shard_of"] for row in rows(channel, queues=["wide_1"])] == ["wide"]


def test_queues_that_cannot_be_read_by_number_say_why(channel):
    found = {
        row["name"]: (row["readable"], row["reason"], row["next"]) for row in rows(channel, queues=["ranked", "log"])
    }
    assert found["ranked"][0] is False and "priorities" in found["ranked"][1]
    assert found["log"] == (False, "it is a stream, whose consumers begin at an x-stream-offset", None)


def test_exchanges_have_the_smallest_window_behind_them(broker, channel):
    """The catalogue shows of an exchange the smallest deduplication window behind it: that of an exchange that
    deduplicates, or of queues that do so by themselves (SP-83).
    """
    window = {"x-warren-deduplicate": 100}
    channel.exchange_declare("plain", "fanout")
    channel.exchange_declare("once", "fanout", arguments=window)
    row = {"name": "once", "dedup": 0, "queue": None}
    assert rows(channel, exchanges=["once", "nowhere"]) == [row]
    channel.queue_declare("orders.once", arguments={"x-warren-deduplicate": 50}, exclusive=True)
    channel.queue_bind("orders.once", "plain")
    assert rows(channel, exchanges=["plain"]) == [{"name": "plain", "dedup": 50, "queue": "orders.once"}]
    channel.queue_bind("orders.us", "once")
    channel.exchange_bind("once", "plain")
    assert rows(channel, exchanges=["plain", "once"]) == [
        {"name": "once", "dedup": 100, "queue": "orders.us"},
        {"name": "plain", "dedup": 0, "queue": "orders.us"},
    ], "a message may come to a queue behind 'plain' by another way"
    channel.queue_declare("orders.stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind("orders.stream", "once")
    assert rows(channel, exchanges=["once"]) == [{"name": "once", "dedup": 0, "queue": "orders.stream"}]
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials("reader", "secret")
    with pika.BlockingConnection(parameters) as connection:
        assert rows(connection.channel(), exchanges=["once"]) == []
    for exchange in ("plain", "once"):
        channel.exchange_delete(exchange)
    channel.queue_delete("orders.stream")


def test_others_queues_are_absent(broker, channel):
    """The catalogue leaves out queues that the user may not read, and exclusive queues of other connections."""
    channel.queue_declare("orders.mine", exclusive=True)
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials("reader", "secret")
    with pika.BlockingConnection(parameters) as connection:
        assert names(connection.channel(), pattern="*") == ["orders.eu", "orders.us"]
    assert names(channel, pattern="orders.*") == ["orders.eu", "orders.mine", "orders.us"]


def test_too_many_rows_are_refused(channel, monkeypatch):
    monkeypatch.setattr(catalogue, "MOST_ROWS", 1)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="has 2 rows for these arguments") as caught:
        channel.basic_consume(CATALOGUE, lambda *_: None, auto_ack=True, arguments={"x-warren-pattern": "orders.*"})
    assert caught.value.reply_code == 406


@pytest.mark.parametrize(
    "use, code",
    [
        (lambda channel: channel.basic_get(CATALOGUE), 403),
        (lambda channel: channel.queue_declare(CATALOGUE), 403),
        (lambda channel: channel.queue_declare(CATALOGUE, passive=True), 403),
        (lambda channel: channel.queue_purge(CATALOGUE), 403),
        (lambda channel: channel.basic_consume(CATALOGUE, print, auto_ack=True), 406),
        (lambda channel: channel.basic_consume(CATALOGUE, print, arguments={"x-warren-pattern": "*"}), 406),
        (lambda channel: rows(channel, queues=["q"], exchanges=["x"]), 406),
        (lambda channel: rows(channel, exchanges=[str(number) for number in range(17)]), 406),
        (
            lambda channel: channel.basic_consume(CATALOGUE, print, auto_ack=True, arguments={"x-warren-queues": [1]}),
            406,
        ),
    ],
)
def test_nothing_else_is_possible(channel, use, code):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        use(channel)
    assert caught.value.reply_code == code
