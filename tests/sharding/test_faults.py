"""`ShardedQueue` lives on after what once ended the thread that runs its connections, or lost a message."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pika
import pytest

from warren.sharding import PublishFailed, ShardedQueue, ShardingError
from warren.sharding.shard import Shard

from .test_sharded_queue import Received, messages_in, name, publish_all, wait_until  # noqa: F401  name is a fixture


@pytest.fixture
def queue(broker_url, name):  # noqa: F811
    with ShardedQueue(broker_url, name, 2, timeout=20, reconnect_delay=0.05) as queue:
        queue.declare()
        yield queue


def test_a_message_that_cannot_be_encoded_fails_alone(queue):
    """Only the future of a message fails whose headers AMQP has no type for."""
    failed = queue.publish(b"a", pika.BasicProperties(headers={"x": object()}))
    with pytest.raises(PublishFailed, match="cannot be sent"):
        failed.result(20)
    assert [queue.publish(b"b").result(20), queue.publish(b"c").result(20)] == [1, 2]


def test_a_future_cannot_be_cancelled(queue):
    """A message that is on its way cannot be called back, as by a program that waits for it with asyncio."""
    future = queue.publish(b"a")
    assert not future.cancel()
    assert future.result(20) == 0 and queue.publish(b"b").result(20) == 1


def test_what_cannot_be_sent_is_refused_at_once(queue):
    """Arguments that cannot be sent raise an error where they are given, and the queue goes on."""
    with pytest.raises(Exception, match="object"):
        queue.declare(arguments={"x": object()})
    with pytest.raises(ValueError, match="at most 131070"):
        queue.consume(lambda delivery: None, prefetch=200_000)
    with pytest.raises(ValueError, match="63 bits"):
        queue.publish(b"a", msg_seq=1 << 63)
    assert queue.publish(b"a").result(20) == 0


def test_a_bad_key_is_refused_at_once(broker_url, name):  # noqa: F811
    with ShardedQueue(broker_url, name, 2, policy="key") as queue:
        queue.declare()
        with pytest.raises(UnicodeEncodeError):
            queue.publish(b"a", key="\udc80")
        assert queue.publish(b"a", key="a").result(20) == 0


def test_several_threads_may_get_at_once(broker_url, name):  # noqa: F811
    """A channel can have one basic.get at a time; other threads wait for theirs."""
    with ShardedQueue(broker_url, name, 1, timeout=20) as queue:
        queue.declare()
        publish_all(queue, 40)
        found = []

        def get():
            for _ in range(10):
                delivery = queue.get()
                found.append(int(delivery.body))
                delivery.ack()

        threads = [threading.Thread(target=get) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(40)) and queue.get() is None


def test_a_get_that_has_timed_out_keeps_no_message(broker_url, name, queue):  # noqa: F811
    """A message that arrives after the timeout of its get goes back to its shard."""
    queue.publish(b"a").result(20)
    with ShardedQueue(broker_url, name, 2, timeout=20) as other:
        wait_until(lambda: all(shard._consuming is not None for shard in other._shards))
        other._timeout = 0
        with pytest.raises(ShardingError):
            other.get()
        wait_until(lambda: messages_in(broker_url, f"{name}_0") == 1)


def test_a_shard_that_comes_back_is_consumed_again(broker_url, name, queue):  # noqa: F811
    """A consumer that the broker has cancelled consumes again when its shard is there again."""
    received = Received(4)
    queue.consume(received)
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    channel = connection.channel()
    channel.queue_delete(f"{name}_1")
    queue.declare()
    publish_all(queue, 4)
    assert sorted(received.wait()) == list(range(4))
    channel.queue_delete(f"{name}_1")
    connection.close()
    queue.cancel()


def test_a_consumer_that_one_shard_refuses_consumes_from_none(broker_url, name, queue):  # noqa: F811
    """When `consume` raises, no other shard goes on to call the callback, and a later call is not refused (FC-79)."""
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    channel = connection.channel()
    channel.queue_delete(f"{name}_1")
    received = Received(4)
    with pytest.raises(RuntimeError, match="could not begin to consume"):
        queue.consume(received)
    assert channel.queue_declare(f"{name}_0", passive=True).method.consumer_count == 0
    queue.declare()
    queue.consume(received)
    publish_all(queue, 4)
    assert sorted(received.wait()) == list(range(4))
    connection.close()


class Link:
    """A connection of pika, whose channels answer nothing by themselves."""

    is_open = True

    def __init__(self):
        self.consumed = []
        self.ioloop = SimpleNamespace(call_later=lambda delay, function: None)

    def channel(self, on_open_callback):
        on_open_callback(self)

    def __getattr__(self, method):
        return lambda *args, **options: None

    def basic_consume(self, queue, delivered, consumer_tag, callback):
        self.consumed.append((queue, callback))


def test_a_consumer_begins_on_the_next_connection_if_one_is_lost_meanwhile():
    """A connection that is lost before consume-ok is as good as one that is lost before or after: the consumer begins
    when there is another one (FC-77).
    """
    shard = Shard(0, "q", "", "q", 0.01, lambda function: function())
    started = Future()
    first, second = Link(), Link()
    shard.link_opened(first)
    shard.consume("t", 1, None, lambda shard: None, started)
    assert [queue for queue, _ in first.consumed] == ["q_0"]
    shard._consuming_closed(first, pika.exceptions.StreamLostError("lost"))
    shard.link_lost("lost")
    assert not started.done()
    shard.link_opened(second)
    ((_, begun),) = second.consumed
    begun(None)
    assert started.result(0) is None
