"""No turn copies a large table because a client adds an entry to it (`warren.parted_table`)."""

from __future__ import annotations

from collections import deque

import pytest

from warren import Broker
from warren.actors.connection import Connection
from warren.amqp import methods as m
from warren.amqp.frames import method_frame
from warren.parted_table import SPLIT_AT
from warren.tests.behaviour.wire import Client
from warren.tests.system_crash.anatomy import Anatomy

from .large_dicts import large_dicts

MANY = SPLIT_AT + 300


@pytest.fixture
def anatomy():
    with Broker(channel_max=0) as broker:
        yield Anatomy(broker)


@pytest.fixture
def client(anatomy):
    client = Client(anatomy.broker.url, timeout=60)
    yield client
    client.abort()


def open_channels(client):
    client.write(b"".join([method_frame(number, m.ChannelOpen()) for number in range(1, MANY + 1)]))
    for number in range(1, MANY + 1):
        client.events.setdefault(number, deque())
    for number in range(1, MANY + 1):
        client.wait(number, m.ChannelOpenOk)


def keys(dicts):
    return [next(iter(each)) for each in dicts]


def test_the_tables_of_channels_grow_in_parts(anatomy, client):
    """The tables of a channel grow in parts. Two tables by channel number are dicts, because each batch is looked up in
    them; they are copied quickly, since the hash of a number is the number itself.
    """
    open_channels(client)
    [connection] = anatomy.processes(Connection)
    large = anatomy.call(large_dicts, connection, anatomy.base)
    assert keys(large) == [1, 1]
    assert {id(connection.channels.by_number), id(connection.reader.credit)} == set(map(id, large))


def test_the_tables_of_a_queue_grow_in_parts(anatomy, client):
    """The tables of a queue with a consumer on each of many channels, each with an unacknowledged delivery, grow in
    parts.

    Two tables of the queue are dicts: that of its channels, which it looks up for each batch, and that of its
    consumers, which have an order.
    """
    publisher = Client(anatomy.broker.url, timeout=60)
    channel = publisher.channel()
    channel.queue("q")
    open_channels(client)
    client.write(b"".join([method_frame(number, m.BasicConsume(queue="q")) for number in range(1, MANY + 1)]))
    for number in range(1, MANY + 1):
        client.wait(number, m.BasicConsumeOk)
    for _ in range(MANY):
        channel.publish("x", "q")
    for number in range(1, MANY + 1):
        client.wait(number, m.BasicDeliver)
    queue = anatomy.queue("q")
    large = anatomy.call(large_dicts, queue)
    publisher.abort()
    [connection] = [each for each in anatomy.processes(Connection) if len(each.channels.by_number) == MANY]
    assert sorted(map(id, large)) == sorted(
        map(
            id,
            (
                connection.channels.by_number,
                connection.reader.credit,
                queue.channels.by_id,
                queue.role.consumers._all,
            ),
        )
    )
