"""Virtual hosts that are created and deleted while the broker runs (AB-27, AB-31, AB-64, AB-169, AB-170).

The file includes RabbitMQ's vhost_SUITE and connection tracking suites, as far as they are about one node. Those about
files are elsewhere.
"""

import os

import pytest
from thespian.actors import ActorExitRequest

from warren import Broker, BrokerError
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp import methods as m

from ..wire import Client, Refused

pytestmark = pytest.mark.skipif(
    "WARREN_TEST_URL" in os.environ, reason="virtual hosts are made through the embedded broker"
)

DEFAULTS = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.match": "headers",
    "amq.headers": "headers",
    "amq.rabbitmq.trace": "topic",
}


@pytest.fixture(scope="module")
def broker():
    with Broker(stop_timeout=0) as broker:
        yield broker


@pytest.fixture
def vhost(broker, name):
    broker.create_vhost(name)
    yield name
    if name in broker.vhosts():
        broker.delete_vhost(name)


@pytest.fixture
def connect(broker):
    clients = []

    def connect(vhost="/"):
        clients.append(Client(broker.url_of(vhost)))
        return clients[-1]

    yield connect
    for client in clients:
        client.abort()


def closed_with(client):
    """The code and text of the connection.close that arrives."""
    with pytest.raises(Refused) as caught:
        client.wait(0, m.ConnectionCloseOk)
    assert caught.value.is_connection_error
    return caught.value.close.reply_code, caught.value.close.reply_text


# -- creating --


def test_vhost_creation_idempotency(broker, vhost, connect):
    """A virtual host can be created three times, and its queues stay (AB-169)."""
    broker.declare_queue("kept", vhost=vhost)
    for _ in range(3):
        broker.create_vhost(vhost)
    assert broker.vhosts().count(vhost) == 1
    assert [info.name for info in broker.queues(vhost)] == ["kept"]
    connect(vhost).close()


def test_a_new_vhost_has_the_default_exchanges(broker, vhost):
    """AB-64: a new virtual host has the default exchanges, durable, and only the trace exchange is internal."""
    exchanges = broker.exchanges(vhost)
    assert {info.name: info.type for info in exchanges} == DEFAULTS
    assert all(
        info.durable and not info.auto_delete and info.internal == (info.name == "amq.rabbitmq.trace")
        for info in exchanges
    )


def test_vhosts_share_nothing(broker, vhost, connect, name):
    """The same name is another queue in each virtual host, and a message stays in its own."""
    here, there = connect(vhost).channel(), connect().channel()
    here.queue(name)
    with pytest.raises(Refused):
        there.queue(name, passive=True)
    there = connect().channel()
    there.queue(name)
    here.publish("here", name)
    here.expect_ready(name, 1)
    assert there.ready(name) == 0
    assert broker.get(name, vhost=vhost).text == "here"
    there.delete(name)


@pytest.mark.parametrize("odd", ["a/b", "%2F", "with space", "käse 🐇", "?x=1#y", "x" * 255])
def test_any_name_can_be_opened_by_its_url(broker, connect, odd):
    """AB-27: a URL can carry every name, whatever characters it has."""
    broker.create_vhost(odd)
    connect(odd).close()
    assert odd in broker.vhosts()
    broker.delete_vhost(odd)
    assert odd not in broker.vhosts()


@pytest.mark.parametrize("bad", ["", "x" * 256, "ä" * 128])
def test_a_name_that_no_client_could_open_is_refused(broker, bad):
    with pytest.raises(BrokerError, match="530 NOT_ALLOWED - a virtual host's name has 1 to 255 bytes"):
        broker.create_vhost(bad)


# -- deleting --


def test_single_node_vhost_deletion_forces_connection_closure(broker, vhost, connect, name):
    """AB-170, AB-31: only the deleted vhost's connections close."""
    victims, other = [connect(vhost), connect(vhost)], connect()
    channel = other.channel()
    channel.queue(name)
    broker.delete_vhost(vhost)
    for victim in victims:
        assert closed_with(victim) == (320, f"CONNECTION_FORCED - vhost '{vhost}' is deleted")
    channel.publish("still here", name)
    channel.expect_ready(name, 1)
    channel.delete(name)


def test_single_node_vhost_deletion(broker, vhost, connect):
    """AB-170: all its connections close, and nothing lists them, their channels or their queues any more."""
    client = connect(vhost)
    channel = client.channel()
    queue = channel.queue("", exclusive=True)
    channel.consume(queue, "t")
    broker.delete_vhost(vhost)
    assert closed_with(client)[0] == 320
    client.abort()
    broker.wait_idle()
    assert [info for info in (*broker.connections(), *broker.channels()) if info.vhost == vhost] == []
    with pytest.raises(BrokerError, match="does not exist"):
        broker.queues(vhost)


def test_a_deleted_vhost_cannot_be_opened(broker, vhost, connect):
    """AB-27: connection.open of a deleted virtual host is refused with 530."""
    broker.delete_vhost(vhost)
    with pytest.raises(Refused, match=f"530 NOT_ALLOWED - vhost {vhost} not found"):
        connect(vhost)


def test_a_vhost_created_anew_is_empty(broker, vhost, connect):
    """A virtual host that is created anew has none of the queues, exchanges, bindings and messages of the deleted one,
    and tracing is off (AB-170).
    """
    channel = connect(vhost).channel()
    channel.exchange("x", "fanout", durable=True)
    channel.exchange("upstream", "fanout", auto_delete=True)
    channel.queue("q", durable=True)
    channel.bind("q", "x")
    channel.bind_exchange("x", "upstream")
    channel.publish("lost", exchange="upstream")
    channel.expect_ready("q", 1)
    broker.publish("too", "q", vhost=vhost)
    broker.trace(True, vhost=vhost)
    broker.delete_vhost(vhost)
    broker.create_vhost(vhost)
    assert broker.queues(vhost) == [] and broker.bindings(vhost) == []
    assert {info.name for info in broker.exchanges(vhost)} == set(DEFAULTS)
    again = connect(vhost).channel()
    assert again.declare("q").message_count == 0
    assert broker.publish("new", "q", vhost=vhost)
    assert [event.body for event in again.take("q", 1)] == [b"new"]


def test_deleting_an_unknown_vhost_names_it(broker, name):
    with pytest.raises(BrokerError, match=f"530 NOT_ALLOWED - Virtual host '{name}' does not exist"):
        broker.delete_vhost(name)


def test_deleting_it_leaves_no_process(broker, inside, name):
    """When a virtual host is deleted, its queues, their supervisors and the broker's own channel in it end (AB-170)."""
    broker.declare_queue("warm")
    base = broker._node._base
    broker.wait_idle()
    before = base.call(lambda: len(base.cells))
    broker.create_vhost(name)
    for number in range(10):
        broker.declare_queue(f"q{number}", vhost=name)
    broker.publish("x", "q1", vhost=name)
    broker.delete_vhost(name)
    broker.wait_idle()
    assert base.call(lambda: len(base.cells)) == before
    broker.delete_queue("warm")


def test_a_vhost_may_have_the_name_of_a_kind(broker, connect):
    """A virtual host may have a name that Metadata uses for kinds of operations; its deletion waits for its own
    operations only.
    """
    for name in ("vhost", "exchange", "queue", "binding"):
        broker.create_vhost(name)
        channel = connect(name).channel()
        channel.exchange(name)
        channel.bind(channel.queue(name), name)
        broker.delete_vhost(name)
    assert broker.vhosts() == ["/"]


def test_declaring_while_it_is_deleted_leaves_nothing(broker, connect, name):
    """Operations under way when their virtual host is deleted are refused or done, and a new one of that name has none
    of their results.
    """
    for _ in range(20):
        broker.create_vhost(name)
        client = connect(name)
        channel = client.channel()
        with client.in_one_piece():
            for number in range(50):
                channel.send(m.QueueDeclare(queue=f"q{number}", nowait=True))
                channel.send(m.ExchangeDeclare(exchange=f"x{number}", type="fanout", nowait=True))
                channel.send(m.QueueBind(queue=f"q{number}", exchange=f"x{number}", nowait=True))
        broker.delete_vhost(name)
        broker.create_vhost(name)
        assert closed_with(client)[0] == 320
        assert broker.queues(name) == [] and broker.bindings(name) == []
        assert {info.name for info in broker.exchanges(name)} == set(DEFAULTS)
        broker.delete_vhost(name)


# -- failing --


def test_vhost_failure_forces_connection_closure(broker, inside, vhost, connect):
    """AB-171, single_node_vhost_down_mimic: the failure of a virtual host closes its connections and no others; it can
    be deleted then.
    """
    victim, other = connect(vhost), connect()
    victim.channel().queue("q", durable=True)
    base = broker._node._base

    def fail():
        newest = [
            cell.address for cell in base.cells.values() if isinstance(getattr(cell, "actor", None), VhostSupervisor)
        ][-1]
        base.enqueue(newest, newest, ActorExitRequest())

    base.call(fail)
    assert closed_with(victim) == (320, f"CONNECTION_FORCED - vhost '{vhost}' is down")
    other.channel().close()
    (down,) = broker.queues(vhost)
    assert broker.queue("q", vhost) == down
    assert (down.state, down.durable, down.messages, down.consumers) == ("stopped", True, None, None)
    with pytest.raises(
        Refused,
        match=f"541 INTERNAL_ERROR - access to vhost '{vhost}' refused for user 'guest': vhost '{vhost}' is down",
    ):
        connect(vhost)
    broker.delete_vhost(vhost)
    broker.create_vhost(vhost)
    connect(vhost).channel().queue("q")
