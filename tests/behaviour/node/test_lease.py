"""A node without a lease answers no client (CL-52), because other nodes may have changed what it would report."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from warren import Broker
from warren.actors.context.lease import FOREVER
from warren.amqp import methods as m
from warren.tests.behaviour.inside import Inside
from warren.tests.behaviour.wire import Channel, Client

#: Seconds in which a node with a lease would answer many times.
QUIET = 0.3


class Leased:
    """A broker whose lease the test ends and gives back."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._inside = Inside(broker)

    def end(self) -> None:
        self._set(0.0)

    def end_before(self, channel: Channel, body: str | bytes, queue: str) -> None:
        """Publish this message so that it is in flight to the queue when the lease ends; the queue accepts it after
        that.
        """
        with self._inside.paused(queue):
            channel.publish(body, queue)
            self.broker.wait_idle()
            self.end()

    def renew(self) -> None:
        self._set(FOREVER)

    def _set(self, until: float) -> None:
        def change() -> None:
            self._inside.node().context.lease.until = until

        self._inside.call(change)


@pytest.fixture
def leased() -> Iterator[Leased]:
    with Broker() as broker:
        leased = Leased(broker)
        yield leased
        leased.renew()


def test_no_method_and_no_publish_is_answered(leased):
    """Methods and publishes are answered, in order, only when the node has a lease again."""
    client = Client(leased.broker.url)
    channel = client.channel()
    channel.confirm()
    channel.queue("q")
    leased.end()
    channel.publish("a", "q")
    channel.send(m.QueueDeclare(queue="r"))
    assert not client.receive(QUIET)
    leased.renew()
    channel.wait(m.QueueDeclareOk)
    assert channel.confirms(1, 1) == ([1], [])
    client.close()


def test_nothing_is_delivered(leased):
    """A message that another part of the broker puts into the queue is delivered only when the node has a
    lease again.
    """
    client = Client(leased.broker.url)
    channel = client.channel()
    channel.queue("q")
    channel.consume("q")
    leased.end_before(channel, "a", "q")
    assert not client.receive(QUIET)
    leased.renew()
    assert channel.delivery().body == b"a"
    client.close()


def test_no_client_can_connect(leased):
    """The handshake of a new client waits until the node has a lease again."""
    leased.end()
    with pytest.raises(AssertionError, match="no ConnectionStart"):
        Client(leased.broker.url, timeout=QUIET)
    leased.renew()
    Client(leased.broker.url).close()


def test_the_end_of_a_connection_is_told(leased):
    """When an operator, or a node that pauses, closes a connection, the withheld output is written before the close."""
    client = Client(leased.broker.url)
    channel = client.channel()
    channel.queue("q")
    channel.consume("q", no_ack=True)
    leased.end_before(channel, "a", "q")
    assert leased.broker.close_connections("paused") == 1
    close = client.wait(0, m.ConnectionClose).method
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - paused")
    client.send(0, m.ConnectionCloseOk())
    with pytest.raises(ConnectionResetError):
        client.wait(0)
    leased.broker.wait_idle()
    assert leased.broker.connections() == []


def test_a_client_whose_node_has_no_lease_costs_nothing(leased):
    """Neither unread input nor unsent output keeps the loop running."""
    client = Client(leased.broker.url)
    channel = client.channel()
    channel.queue("q")
    channel.consume("q")
    leased.end_before(channel, bytes(1_000_000), "q")
    channel.publish("a", "q")
    began = time.process_time()
    assert not client.receive(2 * QUIET)
    assert time.process_time() - began < QUIET
    leased.renew()
    assert [len(event.body) for event in channel.deliveries(2)] == [1_000_000, 1]
    client.close()
