"""A whole node starts, lists, raises alarms and stops. The client is pika."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import chain

import pika
import pytest
from thespian.actors import ActorExitRequest

from warren.actors.connection.listener import ListenError
from warren.actors.context.starting import to_new_node
from warren.actors.contracts.node import NodeError
from warren.actors.node.process import NodeSupervisor
from warren.actors.resources.alarms import UnknownAlarm
from warren.routing.rows import QueueRow
from warren.runtime.errors import ProcessDown
from warren.settings import Settings

WAIT = 300.0


@pytest.fixture
def node(system):
    return system.createActor(NodeSupervisor)


@pytest.fixture
def started(client, node):
    return client.ask(node, ("start", Settings(port=0, node_name="warren@test", stop_timeout=300)), WAIT)


@pytest.fixture
def connection(started):
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(started["host"], started["port"], client_properties={"connection_name": "tester"})
    )
    yield connection
    with suppress(pika.exceptions.AMQPError):
        connection.close()


def cell_of(base, name):
    """The address of the only process of this class."""
    [address] = [cell.address for cell in base.cells.values() if type(getattr(cell, "actor", None)).__name__ == name]
    return address


def test_start_answers_where_it_listens(started):
    assert started["host"] == "127.0.0.1" and started["port"] > 0
    assert started["node_name"] == "warren@test"


def test_a_port_in_use_ends_the_node(client, system, node, started):
    other = system.createActor(NodeSupervisor)
    with pytest.raises(ListenError, match="the port is in use by another program"):
        client.ask(other, ("start", Settings(port=started["port"])), WAIT)
    with pytest.raises(ProcessDown):
        client.ask(other, ("list", "queues", None), WAIT)
    assert client.ask(node, ("list", "queues", None), WAIT) == []


def test_a_node_without_a_disk_starts_queues_that_were_declared_early(client, node, started):
    """A node of a cluster counts as up a moment before it starts its virtual hosts. Queues that were declared there in
    between had no process, and whoever used them ended the node.
    """
    row = QueueRow("tenant", "q", None, "0f" * 16, True, node="warren@test", replicas=("warren@test",))
    _, [found] = client.ask(node, ("start_vhost", "tenant", [row], frozenset()), WAIT)
    assert client.ask(found.address, ("counts",), WAIT) == (0, 0)


def test_a_virtual_host_may_be_deleted_while_the_node_starts(client, node):
    """Another node of the cluster deletes it. The direct client, which is told of that, is started last."""
    settings = Settings(port=0, node_name="warren@test", stop_timeout=300)
    client.tell(node, to_new_node.start(settings, app_stopped=True))
    assert client.ask(node, ("stop_vhost", "tenant"), WAIT) is True
    assert client.ask(node, ("app_state",), WAIT) == "stopped"


class TestList:
    @pytest.fixture
    def ask(self, client, node):
        return lambda kind, vhost=None: client.ask(node, ("list", kind, vhost), WAIT)

    def test_every_kind(self, ask, connection):
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("x", "topic")
        channel.queue_bind("q", "x", "a.#")
        channel.basic_publish("x", "a.b", b"body")
        channel.basic_consume("q", lambda *_: None, consumer_tag="tag")
        [queue] = ask("queues")
        assert (queue["name"], queue["vhost"], queue["durable"], queue["state"], queue["messages"]) == (
            "q",
            "/",
            True,
            "running",
            1,
        )
        assert "x" in {row["name"] for row in ask("exchanges", "/")}
        assert {row["source_name"] for row in ask("bindings", "/")} == {"", "x"}
        assert [(row["queue_name"], row["consumer_tag"]) for row in ask("consumers")] == [("q", "tag")]
        assert [(row["user"], row["vhost"]) for row in ask("connections")] == [("guest", "/")]
        assert [row["number"] for row in ask("channels", "/")] == [1]
        assert ask("vhosts") == [{"name": "/"}]

    def test_unknown_kinds_and_vhosts(self, ask, started):
        with pytest.raises(
            NodeError, match="unknown kind 'queue'; it is one of: bindings, channels, connections, consumers"
        ):
            ask("queue")
        with pytest.raises(NodeError, match="Virtual host 'none' does not exist"):
            ask("queues", "none")

    def test_other_vhosts(self, client, node, ask, connection):
        client.ask(node, ("operate", "add_vhost", {"name": "other"}), WAIT)
        connection.channel().queue_declare("q")
        assert ask("queues", "other") == ask("connections", "other") == ask("channels", "other") == []
        assert len(ask("exchanges", "other")) == 7
        assert {row["name"] for row in ask("vhosts")} == {"/", "other"}

    @pytest.mark.parametrize("kind", ["queues", "consumers"])
    def test_a_queue_that_does_not_answer_does_not_delay_the_listing(self, ask, connection, base, monkeypatch, kind):
        monkeypatch.setattr("warren.actors.node.listings.LIST_TIMEOUT", 0.05)
        connection.channel().queue_declare("q")
        queue = cell_of(base, "Queue")
        stuck = {**queue._cell.actor._handlers, "info": lambda *_: None, "consumers_info": lambda *_: None}
        queue._cell.handlers = queue._cell.actor._handlers = stuck
        queue._cell.queue.append((queue, ("follows", 0)))  # a queue that has a message to handle is asked
        assert [(row["name"], "messages" in row) for row in ask(kind)] == ([("q", False)] if kind == "queues" else [])

    def test_queues_that_have_nothing_to_do_are_listed_without_a_turn(self, ask, connection, base):
        """Queues without work are listed from what is known of them, because to ask ten thousand queues would be ten
        thousand turns, each beside those of busy clients.
        """
        channel = connection.channel()
        channel.queue_declare("q")
        channel.queue_declare("other")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"body")
        feed = cell_of(base, "NodeSupervisor")._cell.actor.context.activity.open()
        assert len(list(chain.from_iterable(feed.take(100)[0]))) >= 2
        assert [(row["name"], row["messages"], row["consumers"]) for row in ask("queues")] == [
            ("q", 1, 0),
            ("other", 0, 0),
        ]
        queues = {row["queue_id"] for row in ask("queues")}
        assert not queues.intersection(chain.from_iterable(feed.take(100)[0]))

    def test_a_queue_that_has_a_message_to_handle_is_asked_behind_it(self, ask, connection, base):
        """A queue with messages in its mailbox is asked, so that a listing shows the effect of everything that was sent
        to the queue before.
        """
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"body")
        queue = cell_of(base, "Queue")
        queue._cell.queue.append((queue, ("purge",)))
        assert [row["messages"] for row in ask("queues")] == [0]

    def test_a_crashed_queue_is_listed(self, ask, started, client, base, connection):
        connection.channel().queue_declare("q")
        queue = cell_of(base, "Queue")
        routing = cell_of(base, "Metadata")._cell.actor.routing
        client.tell(cell_of(base, "Metadata"), ("queue_crashed", "/", "q", routing.queue("/", "q").queue_id))
        [row] = ask("queues")
        assert (row["name"], row["state"]) == ("q", "crashed")
        assert queue is not None


def test_alarms_reach_connections(client, node, connection):
    blocked, unblocked = [], []
    connection.add_on_connection_blocked_callback(lambda _, frame: blocked.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, frame: unblocked.append(True))
    assert client.ask(node, ("set_alarm", "memory", True), WAIT) is True
    connection.channel().basic_publish("", "q", b"")
    deadline = time.monotonic() + WAIT
    while not blocked and time.monotonic() < deadline:
        connection.process_data_events(0.05)
    assert blocked == ["low on memory"]
    client.ask(node, ("set_alarm", "memory", False), WAIT)
    while not unblocked and time.monotonic() < deadline:
        connection.process_data_events(0.05)
    assert unblocked
    with pytest.raises(UnknownAlarm):
        client.ask(node, ("set_alarm", "cpu", True), WAIT)


class TestStop:
    def test_clients_get_the_reason(self, client, node, connection):
        """A stop closes each connection with 320 and the reason of the stop (AB-31)."""
        answers = []
        stopping = threading.Thread(target=lambda: answers.append(client.ask(node, ("stop", "shutdown"), WAIT)))
        stopping.start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            while True:
                connection.process_data_events(0.05)
        stopping.join(WAIT)
        assert answers == [True]
        assert caught.value.reply_code == 320
        assert caught.value.reply_text == "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"

    def test_the_connection_of_a_client_that_does_not_answer_is_cut(self, client, node, base, connection, eventually):
        started_at = time.monotonic()
        assert client.ask(node, ("stop", "shutdown"), WAIT) is True
        assert time.monotonic() - started_at > 0.25
        eventually(
            lambda: (
                not [
                    cell for cell in base.cells.values() if type(getattr(cell, "actor", None)).__name__ == "Connection"
                ]
            )
        )

    def test_without_clients_at_once(self, client, node, started, base, eventually):
        assert client.ask(node, ("stop", "shutdown"), WAIT) is True
        eventually(
            lambda: (
                not [cell for cell in base.cells.values() if type(getattr(cell, "actor", None)).__name__ == "Listener"]
            )
        )


class TestFailures:
    def test_a_vhost_that_fails_closes_its_own_connections(self, client, node, base, connection):
        """When the processes of a virtual host fail, its connections get 320, and the node goes on (AB-171)."""
        client.tell(cell_of(base, "QueueSupervisor"), ActorExitRequest())
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            while True:
                connection.process_data_events(0.05)
        assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - vhost '/' is down")
        assert client.ask(node, ("list", "vhosts", None), WAIT) == [{"name": "/"}]

    @pytest.mark.parametrize("name", ["Metadata", "Alarms", "Listener"])
    def test_without_its_core_the_node_ends(self, client, node, base, started, name):
        client.tell(cell_of(base, name), ActorExitRequest())
        with pytest.raises(ProcessDown):
            while True:
                client.ask(node, ("list", "connections", None), 0.5)
