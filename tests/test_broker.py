"""The embedded broker: start and stop, its controls and listings, and waiting until it is idle."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import aio_pika
import pika
import pika.exceptions
import pytest

from warren import Broker, BrokerError, QueueInfo, Settings, SettingsError, StartError
from warren.actors.queue.process import Queue
from warren.amqp.fields import Table
from warren.listings import info


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def connect():
    """`connect(broker)` is a pika connection, closed at the end of the test."""
    made = []

    def connect(broker):
        made.append(pika.BlockingConnection(pika.URLParameters(broker.url)))
        return made[-1]

    yield connect
    for connection in made:
        with suppress(pika.exceptions.AMQPError):
            connection.close()


class TestStartAndStop:
    def test_it_accepts_when_start_returns_in_under_100_ms(self):
        took = []
        # the first start imports the broker's modules, and other programs may keep the machine busy during some of them
        for _ in range(10):
            began = time.perf_counter()
            with Broker() as broker, socket.create_connection((broker.host, broker.port), 60):
                took.append(time.perf_counter() - began)
            if took[-1] < 0.1:
                break
        assert min(took) < 0.1

    def test_import_warren_loads_nothing_else(self):
        modules = "[name for name in sys.modules if name.startswith(('warren.', 'thespian', 'asyncio'))]"
        code = f"import sys, warren; print({modules})"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
        assert result.stdout.strip() == "[]"

    def test_several_brokers_share_nothing(self):
        with Broker() as one, Broker() as two:
            one.declare_queue("q")
            assert one.port != two.port
            assert [queue.name for queue in one.queues()] == ["q"]
            assert two.queues() == []

    def test_stop_may_be_called_twice_and_before_start(self):
        broker = Broker()
        broker.stop()
        broker.start()
        broker.stop()
        broker.stop()
        assert not broker.is_running

    def test_start_may_be_called_twice(self, broker):
        port = broker.port
        assert broker.start() is broker
        assert broker.port == port

    def test_a_stopped_broker_starts_again_empty(self):
        broker = Broker()
        with broker:
            broker.declare_queue("q")
        with broker:
            assert broker.queues() == []

    def test_a_stopped_broker_frees_its_port(self):
        with Broker() as broker:
            port = broker.port
        with Broker(port=port) as again:
            assert again.port == port

    def test_nothing_is_left_behind(self):
        """Stopped brokers leave no thread and no open descriptor behind, even if clients were connected."""
        with Broker() as broker:
            pika.BlockingConnection(pika.URLParameters(broker.url)).close()
        threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            with Broker() as broker:
                pika.BlockingConnection(pika.URLParameters(broker.url)).close()
        assert threading.active_count() == threads
        assert len(os.listdir("/proc/self/fd")) == descriptors

    def test_clients_see_connection_forced(self, connect):
        broker = Broker().start()
        connection = connect(broker)
        broker_stops = threading.Thread(target=broker.stop)
        broker_stops.start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            while True:
                connection.process_data_events(time_limit=5)
        broker_stops.join(60)
        assert caught.value.reply_code == 320
        assert caught.value.reply_text == "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"

    def test_stop_does_not_wait_for_a_silent_client(self):
        broker = Broker(stop_timeout=200).start()
        silent = pika.BlockingConnection(pika.URLParameters(broker.url))
        began = time.perf_counter()
        broker.stop()
        assert time.perf_counter() - began < 30
        assert silent is not None

    def test_a_taken_port_is_an_error_that_names_it(self, broker):
        with pytest.raises(StartError, match=f"127.0.0.1:{broker.port}.*in use"):
            Broker(port=broker.port).start()

    def test_an_unknown_setting_is_refused_before_anything_starts(self):
        with pytest.raises(SettingsError, match="did you mean 'heartbeat'"):
            Broker(heartbeats=5)

    def test_settings_come_as_a_value_as_keywords_or_as_both(self):
        settings = Settings(port=0, heartbeat=7, vm_memory_high_watermark="2GB")
        assert Broker(settings=settings).settings == settings
        both = Broker(settings=settings, heartbeat=9, host="::1").settings
        assert (both.heartbeat, both.host, both.port, both.vm_memory_high_watermark) == (9, "::1", 0, 2_000_000_000)
        with Broker(settings=settings) as broker:
            assert broker.port != 0

    def test_the_default_port_is_a_free_one_unless_settings_are_given(self):
        assert Broker(heartbeat=7).settings.port == 0
        assert Broker(settings=Settings()).settings.port == 5672
        assert Broker(5673, settings=Settings()).settings.port == 5673

    def test_a_stopped_broker_answers_with_the_way_out(self):
        with pytest.raises(RuntimeError, match="call start"):
            Broker().queues()

    def test_repr(self, broker):
        assert repr(broker) == f"<Broker {broker.url}>"
        assert repr(Broker()) == "<Broker, stopped>"

    async def test_async_with(self):
        """A client on the same event loop receives connection.close and answers it while the broker stops."""
        async with Broker() as broker:
            connection = await aio_pika.connect(broker.url)
            channel = await connection.channel()
            await channel.declare_queue("q")
            assert [queue.name for queue in broker.queues()] == ["q"]
            closed = asyncio.Event()
            connection.close_callbacks.add(lambda *_: closed.set())
        await asyncio.wait_for(closed.wait(), 5)

    def test_the_url_carries_user_password_and_vhost(self, connect):
        with Broker(default_user="a/b", default_pass="p@s:s", default_vhost="over there") as broker:
            assert broker.url == f"amqp://a%2Fb:p%40s%3As@127.0.0.1:{broker.port}/over%20there"
            connect(broker)
            assert [(item.user, item.vhost) for item in broker.connections()] == [("a/b", "over there")]

    def test_the_url_of_a_wildcard_address_leads_to_this_machine(self, connect):
        with Broker(host="0.0.0.0") as broker:
            assert broker.url.startswith("amqp://guest:guest@127.0.0.1:")
            connect(broker)


class TestControlsAndListings:
    def test_publish_and_get(self, broker):
        broker.declare_queue("q")
        assert broker.publish(
            "grüß",
            "q",
            headers={"n": 1, "deep": {"list": [1, "x"]}},
            content_type="text/plain",
            priority=3,
            timestamp=1_700_000_000,
        )
        message = broker.get("q")
        assert message.text == "grüß"
        assert (message.exchange, message.routing_key, message.redelivered) == ("", "q", False)
        assert message.headers == {"n": 1, "deep": {"list": [1, "x"]}}
        assert message.properties == {"content_type": "text/plain", "priority": 3, "timestamp": 1_700_000_000}
        assert broker.get("q") is None

    def test_get_with_requeue_leaves_the_message(self, broker):
        broker.declare_queue("q")
        broker.publish(b"x", "q")
        assert broker.get("q", requeue=True).redelivered is False
        assert broker.queue("q").messages_ready == 1
        assert broker.get("q").redelivered is True

    def test_the_old_spelling_of_requeue_works_with_a_warning(self, broker):
        broker.declare_queue("q")
        broker.publish(b"x", "q")
        with pytest.warns(DeprecationWarning, match="write requeue=True instead of ack=False"):
            assert broker.get("q", ack=False).text == "x"
        with pytest.warns(DeprecationWarning, match="leave out ack=True"):
            assert broker.get("q", ack=True).text == "x"
        assert broker.get("q") is None

    def test_publish_returns_whether_a_queue_was_reached(self, broker):
        assert broker.publish(b"x", "nobody") is False

    def test_a_large_body(self, broker):
        broker.declare_queue("q")
        body = os.urandom(1_000_000)
        broker.publish(body, "q")
        assert broker.get("q").body == body

    def test_an_exchange_and_its_bindings(self, broker):
        broker.declare_exchange("logs", "topic")
        name = broker.declare_queue()
        broker.bind(name, "logs", "app.#", arguments={"note": "mine"})
        assert name.startswith("amq.gen-")
        assert broker.publish(b"x", "app.db.error", "logs")
        assert not broker.publish(b"x", "web.error", "logs")
        assert [
            (b.source_name, b.destination_name, b.routing_key, b.arguments) for b in broker.bindings() if b.source_name
        ] == [("logs", name, "app.#", {"note": "mine"})]
        assert ("logs", "topic") in [(exchange.name, exchange.type) for exchange in broker.exchanges()]
        broker.unbind(name, "logs", "app.#", arguments={"note": "mine"})
        assert not broker.publish(b"x", "app.db.error", "logs")
        broker.unbind(name, "logs", "app.#", arguments={"note": "mine"})  # there is no such binding, so nothing happens
        broker.delete_exchange("logs")
        assert "logs" not in [exchange.name for exchange in broker.exchanges()]

    def test_an_exchange_bound_to_an_exchange(self, broker):
        broker.declare_exchange("all", "fanout")
        broker.declare_exchange("errors", "topic")
        broker.declare_queue("q")
        broker.bind("q", "all")
        broker.bind_exchange("all", "errors", "app.#")
        assert broker.publish(b"x", "app.db", "errors")
        (binding,) = [binding for binding in broker.bindings() if binding.destination_kind == "exchange"]
        assert (binding.source_name, binding.destination_name, binding.routing_key) == ("errors", "all", "app.#")
        broker.unbind_exchange("all", "errors", "app.#")
        assert not broker.publish(b"x", "app.db", "errors")
        with pytest.raises(BrokerError, match="404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"):
            broker.bind_exchange("nowhere", "errors")

    def test_a_passive_declaration_checks_and_creates_nothing(self, broker):
        with pytest.raises(BrokerError, match="404 NOT_FOUND - no queue 'q' in vhost '/'"):
            broker.declare_queue("q", passive=True)
        with pytest.raises(BrokerError, match="404 NOT_FOUND - no exchange 'e' in vhost '/'"):
            broker.declare_exchange("e", passive=True)
        assert broker.queues() == []
        broker.declare_queue("q", durable=True)
        broker.declare_exchange("e", "topic")
        assert broker.declare_queue("q", passive=True) == "q"
        broker.declare_exchange("e", passive=True)

    def test_a_queue_in_full(self, broker):
        broker.declare_queue("q", durable=True, arguments={"x-max-length": 5})
        broker.publish(b"12345", "q")
        queue = broker.queue("q")
        assert len(queue.queue_id) == 32
        assert queue == QueueInfo(
            name="q", vhost="/", durable=True, exclusive=False, auto_delete=False, arguments={"x-max-length": 5},
            messages=1, messages_ready=1, messages_unacknowledged=0, message_bytes=5, consumers=0, state="running",
            queue_mode="default", first_number=0, next_number=1, queue_id=queue.queue_id, life=0, gaps=[],
            node=broker.settings.node_name, mirrors=(), in_sync=(broker.settings.node_name,), wanted_nodes=(),
        )  # fmt: skip

    def test_a_queue_that_does_not_run_has_a_state_and_no_counts(self):
        """A queue that does not run has a state and no counts, because a count of 0 would look like an empty queue."""
        items = {
            "name": "q", "vhost": "/", "durable": True, "exclusive": False, "auto_delete": False, "arguments": Table(),
            "queue_mode": None, "state": "stopped", "node": "warren@localhost",
        }  # fmt: skip
        queue = info(QueueInfo, items)
        assert queue.state == "stopped"
        assert (queue.messages, queue.messages_ready, queue.messages_unacknowledged, queue.consumers) == (None,) * 4

    def test_purge_and_delete_count_what_they_drop(self, broker):
        broker.declare_queue("q")
        for _ in range(3):
            broker.publish(b"x", "q")
        assert broker.purge("q") == 3
        broker.publish(b"x", "q")
        assert broker.delete_queue("q") == 1
        assert broker.delete_queue("q") == 0

    def test_connections_channels_and_consumers_are_listed(self, broker, connect):
        channel = connect(broker).channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        channel.basic_qos(prefetch_count=7)
        tag = channel.basic_consume("q", lambda *_: None)
        broker.publish(b"x", "q")
        broker.wait_idle()
        (connection,) = broker.connections()
        assert (connection.user, connection.state, connection.channels) == ("guest", "running", 1)
        assert connection.client_properties["product"] == "Pika Python Client Library"
        (info,) = broker.channels()
        assert (info.number, info.confirm, info.consumer_count, info.messages_unacknowledged) == (1, True, 1, 1)
        (consumer,) = broker.consumers()
        assert (consumer.queue_name, consumer.consumer_tag, consumer.prefetch_count, consumer.ack_required) == (
            "q",
            tag,
            7,
            True,
        )
        assert broker.queue("q").messages_unacknowledged == 1

    def test_a_refusal_is_an_error_with_the_reply_code(self, broker):
        with pytest.raises(BrokerError) as caught:
            broker.publish(b"x", "q", exchange="nowhere")
        assert (caught.value.code, caught.value.name, caught.value.text) == (
            404,
            "NOT_FOUND",
            "no exchange 'nowhere' in vhost '/'",
        )
        with pytest.raises(BrokerError, match="404 NOT_FOUND - no queue 'q' in vhost '/'"):
            broker.queue("q")
        with pytest.raises(BrokerError, match="406 PRECONDITION_FAILED"):
            broker.declare_queue("q", arguments={"x-max-length": -1})
        broker.declare_queue("still works")

    def test_a_full_queue_refuses(self, broker):
        broker.declare_queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        broker.publish(b"fits", "q")
        with pytest.raises(BrokerError) as caught:
            broker.publish(b"does not", "q")
        assert caught.value.code == 406

    def test_an_unknown_vhost(self, broker):
        with pytest.raises(BrokerError, match="nowhere"):
            broker.queues(vhost="nowhere")
        with pytest.raises(BrokerError, match="nowhere"):
            broker.declare_queue("q", vhost="nowhere")

    def test_many_threads_at_once(self, broker):
        broker.declare_queue("q")

        def publish():
            for _ in range(50):
                assert broker.publish(b"x", "q")

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert broker.queue("q").messages == 400


class TestAlarmsAndLostConnections:
    def test_an_alarm_blocks_publishers_until_it_is_cleared(self, broker, connect):
        connection = connect(broker)
        events = []
        connection.add_on_connection_blocked_callback(lambda _connection, frame: events.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: events.append("unblocked"))
        broker.declare_queue("q")
        broker.set_alarm("memory", True)
        connection.channel().basic_publish("", "q", b"x")
        wait_until(connection, lambda: events)
        assert events == ["low on memory"]
        assert [item.state for item in broker.connections()] == ["blocked"]
        broker.set_alarm("memory", False)
        wait_until(connection, lambda: len(events) > 1)
        assert events == ["low on memory", "unblocked"]
        broker.wait_idle()
        assert broker.queue("q").messages == 1

    def test_an_unknown_resource(self, broker):
        with pytest.raises(ValueError, match="'memory' or 'disk'"):
            broker.set_alarm("cpu", True)

    def test_close_connections(self, broker, connect):
        connection = connect(broker)
        assert broker.close_connections("maintenance") == 1
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            while True:
                connection.process_data_events(time_limit=5)
        assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - maintenance")
        connect(broker)


LONG = "x" * 256


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (lambda broker: broker.publish(b"", routing_key=b"q"), TypeError, "routing_key must be a str, not bytes"),
        (lambda broker: broker.publish(b"", exchange=None), TypeError, "exchange must be a str, not NoneType"),
        (lambda broker: broker.publish(b"", LONG), ValueError, "routing_key has 256 bytes; AMQP allows at most 255"),
        (lambda broker: broker.publish(7, "q"), TypeError, "bytes-like object is required, not 'int'"),
        (lambda broker: broker.publish(b"", "q", headers=7), TypeError, "headers must be a mapping, not int"),
        (lambda broker: broker.publish(b"", "q", headers={7: "x"}), ValueError, "name must be a str, not int"),
        (lambda broker: broker.publish(b"", "q", message_id=7), ValueError, "message_id must be a str, not int"),
        (lambda broker: broker.publish(b"", "q", priority="high"), ValueError, "priority must be an int, not str"),
        (lambda broker: broker.declare_queue(7), TypeError, "name must be a str, not int"),
        (lambda broker: broker.declare_queue(LONG), ValueError, "name has 256 bytes"),
        (lambda broker: broker.declare_queue("\udcff"), BrokerError, "501 FRAME_ERROR - Malformed UTF-8 in shortstr"),
        (lambda broker: broker.publish(b"", "q", "no\udcff"), BrokerError, "404 NOT_FOUND - no exchange 'no\udcff'"),
        (lambda broker: broker.declare_queue("q", arguments=7), TypeError, "arguments must be a mapping, not int"),
        (lambda broker: broker.bind("q", "e", arguments={"a": {None: 1}}), ValueError, "name must be a str, not None"),
        (lambda broker: broker.declare_exchange("e", 7), TypeError, "type must be a str, not int"),
        (lambda broker: broker.bind("q", "e", b"k"), TypeError, "routing_key must be a str, not bytes"),
        (lambda broker: broker.unbind("q", b"e"), TypeError, "exchange must be a str, not bytes"),
        (lambda broker: broker.bind_exchange(7, "e"), TypeError, "destination must be a str, not int"),
        (lambda broker: broker.unbind_exchange("e", 7), TypeError, "source must be a str, not int"),
        (lambda broker: broker.queue(7), TypeError, "name must be a str, not int"),
        (lambda broker: broker.get(b"q"), TypeError, "queue must be a str, not bytes"),
        (lambda broker: broker.delete_queue(7), TypeError, "name must be a str, not int"),
        (lambda broker: broker.create_vhost(7), TypeError, "name must be a str, not int"),
        (lambda broker: broker.queues(7), TypeError, "vhost must be a str, not int"),
    ],
)
def test_a_value_that_no_frame_can_carry_is_refused_before_it_reaches_the_broker(broker, call, error, reason):
    """A value that no frame can carry is refused before it reaches the broker, where encoding it would
    crash a process.
    """
    with pytest.raises(error, match=reason):
        call(broker)
    assert broker.declare_queue("alive") == "alive"


class TestWaitIdle:
    def test_what_clients_sent_is_in_the_queues(self, broker, connect):
        channel = connect(broker).channel()
        channel.queue_declare("q")
        for _ in range(2_000):
            channel.basic_publish("", "q", b"x" * 100)
        broker.wait_idle()
        assert broker.queue("q").messages == 2_000

    def test_what_can_be_delivered_is_delivered(self, broker, connect):
        channel = connect(broker).channel()
        channel.queue_declare("q")
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume("q", lambda *_: None)
        for _ in range(10):
            broker.publish(b"x", "q")
        broker.wait_idle()
        queue = broker.queue("q")
        assert (queue.messages_ready, queue.messages_unacknowledged) == (7, 3)

    def test_an_idle_broker_is_idle_at_once(self, broker):
        took = []
        for _ in range(10):  # other programs may keep the machine busy during some of them
            began = time.perf_counter()
            broker.wait_idle()
            took.append(time.perf_counter() - began)
        assert min(took) < 0.1

    def test_a_client_that_does_not_read_keeps_it_busy(self, broker, connect):
        """Output that the operating system does not accept yet keeps the broker from being idle."""
        channel = connect(broker).channel()
        channel.queue_declare("q")
        channel.basic_consume("q", lambda *_: None, auto_ack=True)
        for _ in range(20):
            broker.publish(bytes(1_000_000), "q")
        with pytest.raises(TimeoutError, match="cannot write"):
            broker.wait_idle(timeout=0.2)


def wait_until(connection, condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        connection.process_data_events(time_limit=0.05)


def test_stats_name_the_longest_turns(monkeypatch):
    """`stats` lists the longest turns first, with their process in words that a person understands."""
    purge = Queue._handlers["purge"]

    def slow_purge(self, sender):
        until = time.thread_time() + 0.02  # because turns are measured in processor time
        while time.thread_time() < until:
            pass
        return purge(self, sender)

    monkeypatch.setitem(Queue._handlers, "purge", slow_purge)
    with Broker() as broker:
        broker.declare_queue("q0")
        broker.purge("q0")
        stats = broker.stats()
        assert len(stats.longest_turns) <= 10
        assert stats.longest_turns == sorted(stats.longest_turns, key=lambda turn: -turn.seconds)
        assert stats.longest_turns[0].seconds >= 0.001
        assert all(turn.process and turn.message and turn.ended_at > 0 for turn in stats.longest_turns)
        assert stats.dead_letters >= 0
        queue = next(cell.actor for address, cell in broker._node._base.cells.items() if "/Queue-" in address)
        assert queue.label == "queue 'q0' in vhost '/'"
