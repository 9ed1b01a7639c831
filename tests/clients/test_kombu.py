"""kombu: its own queues and exchanges, SimpleQueue, ConsumerMixin and retries."""

import socket
import threading

import kombu
import pytest
from kombu.mixins import ConsumerMixin
from kombu.pools import producers


@pytest.fixture
def connection(broker_url):
    with kombu.Connection(broker_url) as connection:
        yield connection


def test_the_url_names_the_default_vhost(connection):
    assert connection.ensure_connection(max_retries=1).connected
    assert connection.virtual_host == "/"


def test_simple_queue_with_json(connection, name):
    with connection.SimpleQueue(name, queue_opts={"durable": False, "auto_delete": True}) as queue:
        queue.put({"order": 7, "items": ["a", "b"]})
        message = queue.get(timeout=300)
        assert message.payload == {"order": 7, "items": ["a", "b"]}
        message.ack()
        with pytest.raises(queue.Empty):
            queue.get(block=False)


def test_compressed_payloads_through_a_topic_exchange(connection, name):
    exchange = kombu.Exchange(name, type="topic", auto_delete=True, durable=False)
    queue = kombu.Queue(name, exchange, routing_key="media.#", auto_delete=True, durable=False)
    received = []

    def on_message(body, message):
        received.append((body, message.delivery_info["routing_key"]))
        message.ack()

    with connection.Consumer(queue, callbacks=[on_message]):
        with producers[connection].acquire(block=True) as producer:
            producer.publish(
                {"id": 1}, exchange=exchange, routing_key="media.video.new", compression="zlib", declare=[queue]
            )
        while not received:
            connection.drain_events(timeout=300)
    assert received == [({"id": 1}, "media.video.new")]


def test_global_prefetch_is_refused_to_none(connection, name):
    """kombu chooses the flag of basic.qos by the broker's product and version; a prefetch of 2 then allows two
    unacknowledged messages.
    """
    queue = kombu.Queue(name, durable=False, auto_delete=True)
    in_hand = []
    consumer = connection.Consumer(queue, callbacks=[lambda _body, message: in_hand.append(message)], prefetch_count=2)
    with consumer:
        producer = connection.Producer()
        for number in range(5):
            producer.publish(number, routing_key=name)
        while len(in_hand) < 2:
            connection.drain_events(timeout=300)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        assert len(in_hand) == 2
        in_hand[0].ack()
        connection.drain_events(timeout=300)
        assert [message.payload for message in in_hand] == [0, 1, 2]


def test_consumer_mixin(broker_url, name):
    queue = kombu.Queue(name, durable=False, auto_delete=True)
    ready = threading.Event()

    class Worker(ConsumerMixin):
        def __init__(self, connection):
            self.connection = connection
            self.bodies = []

        def get_consumers(self, Consumer, channel):
            return [Consumer([queue], callbacks=[self.on_task])]

        def on_consume_ready(self, connection, channel, consumers, **kwargs):
            ready.set()

        def on_task(self, body, message):
            self.bodies.append(body)
            message.ack()
            if len(self.bodies) == 3:
                self.should_stop = True

    with kombu.Connection(broker_url) as consuming:
        worker = Worker(consuming)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert ready.wait(60)
        with kombu.Connection(broker_url) as publishing:
            for number in range(3):
                publishing.Producer().publish(number, routing_key=name, retry=True)
            thread.join(60)
    assert worker.bodies == [0, 1, 2]
