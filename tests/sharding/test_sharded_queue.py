"""`ShardedQueue` against a real broker over sockets: warren, or with `WARREN_TEST_URL` any other."""

import itertools
import os
import socket
import threading
import time

import pamqp.frame
import pika
import pytest
from pamqp.commands import Connection

from warren.sharding import DeclarationFailed, PublishFailed, PublishReturned, ShardedQueue, ShardingError, Skip

SECONDS = 60
_numbers = itertools.count(1)


@pytest.fixture
def name(broker_url):
    name = f"sharded-{os.getpid()}-{next(_numbers)}"
    yield name
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    channel = connection.channel()
    for index in range(8):
        channel.queue_delete(f"{name}_{index}")
    channel.exchange_delete(name)
    connection.close()


class Received:
    """A callback that keeps what it gets, and an event that is set when that is enough. With `distinct` a redelivery
    does not count.
    """

    def __init__(self, count, answer=lambda delivery: None, distinct=False):
        self.deliveries, self.count, self.answer, self.done = [], count, answer, threading.Event()
        self.distinct = distinct

    def __call__(self, delivery):
        self.deliveries.append(delivery)
        bodies = [each.body for each in self.deliveries]
        if len(set(bodies) if self.distinct else bodies) >= self.count:
            self.done.set()
        return self.answer(delivery)

    def wait(self):
        assert self.done.wait(SECONDS), f"{len(self.deliveries)} of {self.count} messages arrived"
        return [int(delivery.body) for delivery in self.deliveries]


def publish_all(queue, count, **options):
    futures = [queue.publish(b"%d" % number, **options) for number in range(count)]
    queue.wait_for_confirms()
    return futures


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def messages_in(url, queue):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    count = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return count


def test_sequence_fills_the_shards_in_turn_and_strict_order_restores_the_sequence(broker_url, name):
    """The policy `sequence` fills the shards in turn, and strict order restores the sequence (FC-72, FC-74, FC-75,
    FC-79, FC-80).
    """
    with ShardedQueue([broker_url], name, 4, exchange=name, connections=2) as queue:
        queue.declare()
        queue.declare()  # a second call changes nothing
        assert [future.result() for future in publish_all(queue, 202)] == list(range(202))
        assert [messages_in(broker_url, f"{name}_{shard}") for shard in range(4)] == [51, 51, 50, 50]
        received = Received(202)
        queue.consume(received, prefetch=40, order="strict")
        assert received.wait() == list(range(202))
        assert {delivery.routing_key for delivery in received.deliveries} == {name}
        queue.cancel()
        assert queue.get() is None


@pytest.mark.parametrize("policy, options", [("random", {}), ("key", {"key": "customer-17"})])
def test_other_policies_deliver_each_message_once(broker_url, name, policy, options):
    """Each other policy delivers each message once (FC-74, FC-80)."""
    with ShardedQueue(broker_url, name, 3, policy=policy) as queue:
        queue.declare()
        publish_all(queue, 90, **options)
        filled = [messages_in(broker_url, f"{name}_{shard}") for shard in range(3)]
        assert sum(filled) == 90 and (90 in filled) == (policy == "key")
        received = Received(90)
        queue.consume(received, workers=2)
        assert sorted(received.wait()) == list(range(90))
        with pytest.raises(ValueError, match="policy 'sequence'"):
            queue.consume(received, order="strict")


def test_successive_gets_touch_all_shards(broker_url, name):
    """Successive gets take from all shards, so that no shard's oldest message waits for more than N gets (FC-78)."""
    with ShardedQueue(broker_url, name, 3) as queue:
        queue.declare()
        publish_all(queue, 12)
        order = []
        for _ in range(12):
            delivery = queue.get()
            order.append(delivery.shard)
            delivery.ack()
        assert all(sorted(order[at : at + 3]) == [0, 1, 2] for at in range(0, 12, 3))
        assert queue.get() is None


def test_a_return_names_the_message_and_the_logical_key(broker_url, name):
    """A returned message is reported with its logical routing key (FC-75, FC-76)."""
    with ShardedQueue(broker_url, name, 2, exchange=name, routing_key="orders") as queue:
        queue.declare()
        channel = pika.BlockingConnection(pika.URLParameters(broker_url)).channel()
        channel.queue_unbind(f"{name}_1", name, "orders_1")
        routed, returned = queue.publish(b"0", mandatory=True), queue.publish(b"1", mandatory=True)
        assert routed.result(SECONDS) == 0
        with pytest.raises(PublishReturned, match="NO_ROUTE") as failure:
            returned.result(SECONDS)
        assert (failure.value.number, failure.value.routing_key, failure.value.body) == (1, "orders", b"1")
        channel.connection.close()


def test_a_refusal_names_the_message(broker_url, name):
    """A refused message is reported (FC-75)."""
    with ShardedQueue(broker_url, name, 2) as queue:
        queue.declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        publish_all(queue, 2)
        with pytest.raises(PublishFailed, match="Message 2 was not confirmed by shard 0: the broker refused it"):
            queue.publish(b"2").result(SECONDS)
        # A refusal that comes before the call is in the future alone, so this is tried until one comes later.
        with pytest.raises(PublishFailed, match=r"Message \d+ was not confirmed"):
            for _ in range(1000):
                queue.publish(b"3")
                queue.wait_for_confirms()


def test_a_failed_declaration_names_the_shard_and_leaves_the_others(broker_url, name):
    """A declaration that fails names its shard and leaves the others (FC-72)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    connection.channel().queue_declare(f"{name}_1", durable=False)
    with ShardedQueue(broker_url, name, 3) as queue:
        with pytest.raises(DeclarationFailed, match="shard 1: .*inequivalent arg 'durable'") as failure:
            queue.declare()
        assert list(failure.value.failed) == [1]
        assert [messages_in(broker_url, f"{name}_{shard}") for shard in (0, 2)] == [0, 0]
        queue.publish(b"0").result(SECONDS)  # the refusal closed no other channel
    connection.close()


def test_outcomes_of_callbacks(broker_url, name):
    """FC-81, FC-82: success acks, False rejects, and an exception requeues; the redelivery comes late and flagged."""
    failed = []

    def answer(delivery):
        if delivery.body == b"1":
            return False
        if delivery.body == b"2" and not failed:
            failed.append(delivery)
            raise ValueError("the first attempt")
        return None

    with ShardedQueue(broker_url, name, 2) as queue:
        queue.declare()
        publish_all(queue, 6)
        received = Received(7, answer)
        queue.consume(received, order="strict", prefetch=100)
        assert sorted(received.wait()) == [0, 1, 2, 2, 3, 4, 5]
        (again,) = [delivery for delivery in received.deliveries if delivery.is_redelivered]
        assert again.body == b"2" and again.is_late
        queue.cancel()
        assert queue.get() is None


def test_the_prefetch_is_divided_among_the_shards(broker_url, name):
    """FC-79, FC-83: each shard has a consumer of its own, which gets a third of the 7 messages, rounded up."""
    may_end = threading.Event()
    with ShardedQueue(broker_url, name, 3) as queue:
        queue.declare()
        publish_all(queue, 60)
        queue.consume(lambda delivery: may_end.wait(SECONDS) and None, prefetch=7)
        deadline = time.monotonic() + SECONDS
        while (left := [messages_in(broker_url, f"{name}_{shard}") for shard in range(3)]) != [17, 17, 17]:
            assert time.monotonic() < deadline and min(left) >= 17, left
        may_end.set()


def test_a_gap_is_reported_and_passed(broker_url, name):
    """A gap in the numbers is reported, and later messages are handed over (FC-81)."""
    skips = []
    with ShardedQueue(broker_url, name, 2) as queue:
        queue.declare()
        for number in (0, 1, 4, 5):
            queue.publish(b"%d" % number, msg_seq=number)
        queue.wait_for_confirms()
        received = Received(4)
        queue.consume(received, order="strict", gap_timeout=0.2, on_skip=skips.append)
        assert received.wait() == [0, 1, 4, 5]
        assert skips == [Skip(queue.publisher, 2, 3)]


def test_cancel_gives_back_what_no_callback_had(broker_url, name):
    started, may_end = threading.Event(), threading.Event()

    def callback(delivery):
        started.set()
        may_end.wait(SECONDS)

    with ShardedQueue(broker_url, name, 2) as queue:
        queue.declare()
        publish_all(queue, 10)
        queue.consume(callback, prefetch=10)
        assert started.wait(SECONDS)
        threading.Timer(0.2, may_end.set).start()
        queue.cancel()
        received = Received(9)
        queue.consume(received)
        assert len(received.wait()) == 9


def test_one_of_two_connections_is_lost(broker_url, name):
    """When one of two connections is lost, the other shards go on, messages of the lost shards wait for the connection,
    and none is lost or reordered (FC-77).
    """
    with ShardedQueue(broker_url, name, 2, connections=2, reconnect_delay=0.5) as queue:
        queue.declare()
        received = Received(40, distinct=True)
        queue.consume(received, order="strict", gap_timeout=SECONDS)
        publish_all(queue, 20)
        queue._shards[1].connection._transport._sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not queue._shards[1].is_usable)
        futures = [queue.publish(b"%d" % number) for number in range(20, 40)]
        assert futures[0].result(SECONDS) == 20
        queue.wait_for_confirms(SECONDS)
        numbers = received.wait()
        assert list(dict.fromkeys(numbers)) == list(range(40))


def test_a_queue_that_was_deleted_during_a_reconnection(broker_url, name):
    """While the queue of a shard is missing, the consumer tries again after each delay, and goes on once the queue is
    declared (FC-77).
    """
    with ShardedQueue(broker_url, name, 1, reconnect_delay=0.3) as queue:
        queue.declare()
        received = Received(1)
        queue.consume(received)
        (shard,), (link,) = queue._shards, queue._links
        connect, begin = link.connect, shard._begin_consuming
        attempts = []
        shard._begin_consuming = lambda: (attempts.append(time.monotonic()), begin())
        link.connect = lambda: None  # the connection stays down until the queue is deleted
        shard.connection._transport._sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not shard.is_usable)
        other = pika.BlockingConnection(pika.URLParameters(broker_url))
        other.channel().queue_delete(f"{name}_0")
        other.close()
        del link.connect
        queue._on_loop(connect)
        wait_until(lambda: len(attempts) >= 3)
        assert min(later - earlier for earlier, later in itertools.pairwise(attempts)) >= 0.3
        queue.declare()
        queue.publish(b"0").result(SECONDS)
        assert received.wait() == [0]


def test_without_a_broker(name):
    """FC-75, FC-77, FC-85: a message fails at once if the program asked for that; waiting methods say what is wrong."""
    url = "amqp://guest:guest@127.0.0.1:1/%2F"
    with ShardedQueue(url, name, 2, when_down="fail", timeout=0.3) as queue:
        with pytest.raises(PublishFailed, match="Message 0 was not confirmed by shard 0"):
            queue.publish(b"0").result(SECONDS)
        with pytest.raises(DeclarationFailed, match="did not answer within 0.3 s"):
            queue.declare()
    with ShardedQueue(url, name, 2, timeout=0.3) as queue:
        waiting = queue.publish(b"0")
        with pytest.raises(ShardingError, match="1 messages have no confirm yet"):
            queue.wait_for_confirms()
        queue.close(timeout=0.1)
        with pytest.raises(PublishFailed, match="was closed"):
            waiting.result(SECONDS)
        queue.close()  # a second call changes nothing
        with pytest.raises(ShardingError, match="is closed"):
            queue.publish(b"1")


@pytest.fixture
def handshake(name):
    """A sharded queue, and the broker's end of its connection after the protocol header."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        queue = ShardedQueue(f"amqp://127.0.0.1:{server.getsockname()[1]}", name, 2)
        client, _ = server.accept()
        with client, client.makefile("rb") as received:
            client.settimeout(SECONDS)
            assert received.read(8) == b"AMQP\0\0\x09\x01"
            yield queue, client, received
    queue.close()


def test_closing_during_a_handshake_closes_the_connection_once_it_is_open(handshake):
    """A queue that is closed during the handshake closes the connection as soon as it is open, and its thread ends
    without an error (FC-85).
    """
    queue, client, received = handshake
    closing = threading.Thread(target=queue.close)
    closing.start()
    while not queue._is_closed:
        time.sleep(0.001)
    for sent, expected in [
        (Connection.Start(server_properties={}), [Connection.StartOk]),
        (Connection.Tune(heartbeat=0), [Connection.TuneOk, Connection.Open]),
        (Connection.OpenOk(), [Connection.Close]),
    ]:
        client.sendall(pamqp.frame.marshal(sent, 0))
        for method in expected:
            head = received.read(7)
            frame = head + received.read(int.from_bytes(head[3:], "big") + 1)
            assert isinstance(pamqp.frame.unmarshal(frame)[2], method)
    client.sendall(pamqp.frame.marshal(Connection.CloseOk(), 0))
    assert received.read() == b""
    closing.join(SECONDS)
    assert not queue._thread.is_alive()


def test_closing_waits_no_longer_than_its_timeout_for_a_handshake(handshake):
    queue, _, _ = handshake
    queue.close(timeout=0.1)
    assert not queue._thread.is_alive()


@pytest.mark.parametrize(
    "options, text",
    [
        ({"shards": 0}, "at least 1 shard"),
        ({"shards": 2, "connections": 3}, "1 to 2 connections"),
        ({"shards": 2, "policy": "round-robin"}, "'sequence', 'random' or 'key'"),
        ({"shards": 2, "routing_key": "other"}, "default exchange"),
    ],
)
def test_bad_arguments(name, options, text):
    """Wrong arguments are refused with the reason (FC-72, FC-74, FC-77)."""
    with pytest.raises(ValueError, match=text):
        ShardedQueue("amqp://127.0.0.1:1", name, **options)


def test_bad_messages(broker_url, name):
    """Wrong messages are refused with the reason (FC-84)."""
    with ShardedQueue(broker_url, name, 2, policy="key") as queue:
        with pytest.raises(TypeError, match="encode it to bytes"):
            queue.publish("text", key="a")
        with pytest.raises(ValueError, match="Give a key"):
            queue.publish(b"text")
