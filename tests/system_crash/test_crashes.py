"""Processes that crash inside a running broker: what clients see, what is restarted, and that others go on."""

from __future__ import annotations

import threading

import pytest

from warren.actors.channel import Channel
from warren.actors.connection import Connection
from warren.actors.node.restart_policy import MAX_RESTARTS
from warren.amqp.fields import table_from
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.tests.system.wire import HungUp, publish_frames

pytestmark = pytest.mark.usefixtures("witness")


def declared(wire, name, **options):
    return wire.call(1, QueueDeclare(queue=name, **options), QueueDeclareOk)


def is_back(anatomy, name):
    """Whether the queue's row has the address of a living process."""
    row = anatomy.node().routing.queue("/", name)
    return row is not None and row.state == "running" and row.address.actorAddressString in anatomy.base.cells


# -- a queue ---


def test_a_crashing_queue_nacks_what_it_had_not_confirmed(anatomy, connect, name):
    """AB-111, last row; confirm_nack: if one of two target queues crashes, each message gets one nack and no ack."""
    wire = connect()
    for queue in (name, name + "-sound"):
        declared(wire, queue)
        wire.call(1, QueueBind(queue=queue, exchange="amq.fanout"), QueueBindOk)
    wire.call(1, ConfirmSelect(), ConfirmSelectOk)
    anatomy.crash_at_publish(name)
    # All three publishes go in one write, so that they arrive before the queue is restarted.
    wire.send(publish_frames(1, b"x", exchange="amq.fanout") * 3)
    nacked = 0
    while nacked < 3:
        nack = wire.method(1, BasicNack)
        assert nack.multiple or nack.delivery_tag == nacked + 1
        nacked = nack.delivery_tag
    anatomy.eventually(lambda: is_back(anatomy, name))
    wire.publish(1, b"again", exchange="amq.fanout")
    assert wire.method(1, BasicAck).delivery_tag == 4
    for queue in (name, name + "-sound"):
        wire.call(1, QueueDelete(queue=queue), QueueDeleteOk)


def test_a_crashed_queue_cancels_consumers_that_ask_for_it_and_is_restarted(anatomy, connect, name):
    """AB-126: only clients with the capability receive basic.cancel. The restarted queue is empty but bound."""
    failover = table_from({"x-cancel-on-ha-failover": True})
    wire, mute = connect(), connect(capabilities={})
    declared(wire, name)
    wire.call(1, QueueBind(queue=name, exchange="amq.direct", routing_key=name), QueueBindOk)
    wire.publish(1, b"lost with the process", name)
    wire.call(1, BasicConsume(queue=name, consumer_tag="t", arguments=failover), BasicConsumeOk)
    mute.call(1, BasicConsume(queue=name, consumer_tag="m", arguments=failover), BasicConsumeOk)
    wire.method(1, BasicDeliver)
    wire.content(1)
    anatomy.crash(lambda: anatomy.queue(name))
    assert wire.method(1, BasicCancel) == BasicCancel("t", True)
    anatomy.eventually(lambda: is_back(anatomy, name))
    assert mute.call(1, BasicGet(queue=name), BasicGetEmpty)
    wire.publish(1, b"new", name, "amq.direct")
    # The ack of a delivery by the crashed process has no effect on the new message.
    wire.send_method(1, BasicAck(0, True))
    assert wire.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk).redelivered is False
    assert wire.content(1)[1] == b"new"
    assert wire.call(1, BasicConsume(queue=name, consumer_tag="t"), BasicConsumeOk)
    mute.call(1, QueueDelete(queue=name), QueueDeleteOk)


def test_a_queue_that_crashes_too_often_stays_down(anatomy, connect, name):
    """AB-63: after the allowed restarts any use is refused, but the queue can be deleted and declared again."""
    wire = connect()
    declared(wire, name)
    for _ in range(MAX_RESTARTS):
        anatomy.crash(lambda: anatomy.queue(name))
        anatomy.eventually(lambda: is_back(anatomy, name))
    anatomy.crash(lambda: anatomy.queue(name))
    anatomy.eventually(lambda: anatomy.node().routing.queue("/", name).state == "crashed")
    close = wire.call(1, QueueDeclare(queue=name), ChannelClose)
    assert (close.reply_code, close.reply_text) == (
        404,
        f"NOT_FOUND - queue '{name}' in vhost '/' has crashed and failed to restart",
    )
    wire.send_method(1, ChannelCloseOk())
    wire.open_channel(1)
    wire.call(1, QueueDelete(queue=name), QueueDeleteOk)
    assert declared(wire, name).message_count == 0
    wire.call(1, QueueDelete(queue=name), QueueDeleteOk)


def test_publishes_to_a_queue_that_is_down_for_good_are_nacked(anatomy, connect, name):
    """A publish to a queue that stays down is nacked, even if another queue that it goes to runs (AB-111:
    dead_queue_rejects, mixed_dead_alive_queues_reject).
    """
    wire = connect()
    for queue in (name, name + "-sound"):
        declared(wire, queue)
        wire.call(1, QueueBind(queue=queue, exchange="amq.direct", routing_key=name), QueueBindOk)
    for _ in range(MAX_RESTARTS + 1):
        anatomy.eventually(lambda: is_back(anatomy, name))
        anatomy.crash(lambda: anatomy.queue(name))
    anatomy.eventually(lambda: anatomy.node().routing.queue("/", name).state == "crashed")
    wire.call(1, ConfirmSelect(), ConfirmSelectOk)
    wire.publish(1, b"to the dead alone", name)
    assert wire.method(1, BasicNack).delivery_tag == 1
    wire.publish(1, b"to both", name, "amq.direct")
    assert wire.method(1, BasicNack).delivery_tag == 2
    for queue in (name, name + "-sound"):
        wire.call(1, QueueDelete(queue=queue), QueueDeleteOk)


# -- a channel ---


def test_a_crashed_channel_ends_its_connection(anatomy, connect, name):
    """If a channel crashes, its connection is closed with 541, its messages are ready again, and its exclusive queue is
    deleted (AB-38).
    """
    victim, other = connect(), connect()
    declared(other, name)
    exclusive = declared(victim, "", exclusive=True).queue
    victim.call(1, BasicConsume(queue=name, consumer_tag=name), BasicConsumeOk)
    other.publish(1, b"x", name)
    victim.method(1, BasicDeliver)
    victim.content(1)
    anatomy.crash(lambda: anatomy.channel_with(name))
    victim.expect_close(541, "INTERNAL_ERROR")
    assert other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk).redelivered is True
    other.content(1)
    anatomy.eventually(lambda: anatomy.node().routing.queue("/", exclusive) is None)
    other.call(1, QueueDelete(queue=name), QueueDeleteOk)


def test_a_channel_whose_mailbox_overflows_ends_its_connection(anatomy, connect, name):
    """If the mailbox of a channel overflows, its connection is closed with 506, so that the mailbox takes no more
    memory (FC-60).
    """
    victim = connect()
    declared(victim, name, exclusive=True)
    victim.call(1, BasicConsume(queue=name, consumer_tag=name), BasicConsumeOk)

    def flood():
        channel = anatomy.channel_with(name)
        channel._host.limit = 100
        for _ in range(101):
            anatomy.base.enqueue(channel.myAddress, channel.myAddress, ("confirm", "nobody", []))

    anatomy.call(flood)
    victim.expect_close(506, "RESOURCE_ERROR - too many messages wait for a channel of this connection")


def test_the_brokers_own_client_gets_a_new_channel(broker, anatomy, name):
    """If the channel of the embedding program crashes between two of its calls, the program does not notice."""
    broker.declare_queue(name)
    anatomy.crash(
        lambda: next(
            channel
            for channel in anatomy.processes(Channel)
            if channel.config.connection_id == anatomy.direct().connection_id
        )
    )
    broker.wait_idle()
    assert broker.publish(b"x", name)
    assert broker.get(name).body == b"x"
    broker.delete_queue(name)


# -- a connection ---


def test_a_crashed_connection_leaves_nothing_behind(anatomy, connect, name):
    """AB-28: the connection's channels end, its unacknowledged messages are ready again, and its exclusive queues are
    deleted."""
    other = connect()
    declared(other, name)
    before = anatomy.census()
    victim = connect()
    declared(victim, "", exclusive=True)
    victim.call(1, BasicConsume(queue=name, consumer_tag=name), BasicConsumeOk)
    other.publish(1, b"x", name)
    victim.method(1, BasicDeliver)
    victim.content(1)
    anatomy.crash(lambda: anatomy.connection_of(anatomy.channel_with(name)))
    with pytest.raises(HungUp):
        victim.frame()
    victim.hang_up()
    anatomy.eventually(lambda: anatomy._census()["processes"] == before["processes"])
    assert other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk).redelivered is True
    other.content(1)
    assert anatomy.census()["queues"] == before["queues"]
    other.call(1, QueueDelete(queue=name), QueueDeleteOk)


def test_a_client_that_closes_and_hangs_up_at_once_loses_its_exclusive_queues(anatomy, connect):
    """AB-28: exclusive queues are deleted even if the client closes the socket directly after connection.close."""
    for _ in range(20):
        wire = connect()
        queue = declared(wire, "", exclusive=True).queue
        wire.send_method(1, BasicConsume(queue=queue))
        wire.send_method(0, ConnectionClose(200, "", 0, 0))
        wire.hang_up()
        anatomy.eventually(lambda queue=queue: anatomy.node().routing.queue("/", queue) is None)


def test_channels_may_end_while_they_are_listed(broker, anatomy, connect):
    """A channel may end before it answers a request for its state; the listing and its connection go on."""
    wire = connect()
    done = threading.Event()
    failures = []

    def look():
        while not done.is_set():
            try:
                broker.channels()
            except Exception as error:
                failures.append(error)
                return

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(150):
        wire.call(2, ChannelOpen(), ChannelOpenOk)
        wire.call(2, ChannelClose(200, "", 0, 0), ChannelCloseOk)
    done.set()
    thread.join()
    assert not failures
    assert len(anatomy.call(lambda: anatomy.processes(Connection))) and anatomy.call(lambda: anatomy.processes(Channel))
    wire.call(1, BasicGet(queue=declared(wire, "", exclusive=True).queue), BasicGetEmpty)
