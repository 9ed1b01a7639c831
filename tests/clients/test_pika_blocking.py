"""pika's BlockingConnection, used as in its documentation."""

import functools
import threading
import time

import pika
import pika.exceptions
import pytest


@pytest.fixture
def connection(broker_url):
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


def get_soon(channel, queue, auto_ack=True, seconds=5.0):
    """Repeat basic_get until it returns a message: a publish without confirms may still be in flight."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        if method is not None:
            return method, properties, body
        time.sleep(0.005)
    raise AssertionError(f"no message in {queue} within {seconds} s")


def test_a_message_comes_back_with_its_properties(channel, name):
    """Every property and a header table survive publish and get."""
    channel.queue_declare(name, exclusive=True)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={
            "n": 7,
            "big": 2**40,
            "text": "ü",
            "yes": True,
            "nested": {"list": [1, "two", None]},
            "octets": b"\xff\x00",
        },
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        reply_to="elsewhere",
        expiration="60000",
        message_id="m-1",
        timestamp=1_700_000_000,
        type="order",
        app_id="tests",
    )
    channel.basic_publish("", name, b"hello", sent)
    method, properties, body = get_soon(channel, name)
    assert body == b"hello"
    assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == ("", name, False, 0)
    assert vars(properties) == vars(sent)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000, 5_000_000])
def test_bodies_of_any_size(channel, name, size):
    """An empty body has no body frame; a large body is split into frames of frame_max."""
    channel.queue_declare(name, exclusive=True)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    channel.basic_publish("", name, body)
    assert get_soon(channel, name)[2] == body


def test_consume_acknowledges_and_nothing_is_left(channel, connection, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_qos(prefetch_count=10)
    for number in range(100):
        channel.basic_publish("", name, str(number))
    seen = []
    for method, _properties, body in channel.consume(name, inactivity_timeout=300):
        seen.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 100:
            break
    assert channel.cancel() == 0
    assert seen == list(range(100))
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_callbacks_under_start_consuming(channel, name):
    channel.queue_declare(name, exclusive=True)
    seen = []

    def on_message(channel, method, _properties, body):
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 3:
            channel.stop_consuming()

    channel.basic_consume(name, on_message)
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", name, body)
    channel.start_consuming()
    assert seen == [b"a", b"b", b"c"]


def test_confirms_and_unroutable_mandatory(channel, name):
    """With confirms, basic_publish returns when the broker has the message; an unroutable mandatory message raises."""
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"kept", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", name + "-nobody", b"lost", mandatory=True)
    assert channel.basic_get(name, auto_ack=True)[2] == b"kept"


def test_a_full_queue_that_rejects_nacks(channel, name):
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", name, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, b"does not")


@pytest.mark.parametrize(
    ("exchange_type", "binding", "hit", "miss"),
    [
        ("direct", "red", "red", "blue"),
        ("topic", "log.*.error", "log.db.error", "log.error"),
        ("fanout", "", "anything", None),
    ],
)
def test_exchange_types(channel, name, exchange_type, binding, hit, miss):
    channel.confirm_delivery()
    channel.exchange_declare(name, exchange_type, auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, binding)
    channel.basic_publish(name, hit, b"hit", mandatory=True)
    if miss:
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(name, miss, b"miss", mandatory=True)
    assert channel.basic_get(name, auto_ack=True)[2] == b"hit"


def test_headers_exchange(channel, name):
    channel.confirm_delivery()
    channel.exchange_declare(name, "headers", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, arguments={"x-match": "all", "format": "pdf", "pages": 3})
    channel.basic_publish(
        name, "", b"hit", pika.BasicProperties(headers={"format": "pdf", "pages": 3, "more": 1}), mandatory=True
    )
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "", b"miss", pika.BasicProperties(headers={"format": "pdf"}), mandatory=True)


def test_nack_requeues_with_the_redelivered_flag(channel, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"again")
    method, _, _ = get_soon(channel, name, auto_ack=False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = get_soon(channel, name)
    assert (method.redelivered, body) == (True, b"again")


def test_a_rejected_message_is_dead_lettered_with_x_death(channel, name):
    channel.queue_declare(name + "-dead", exclusive=True)
    channel.queue_declare(
        name, exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + "-dead"}
    )
    channel.basic_publish("", name, b"poison")
    method, _, _ = get_soon(channel, name, auto_ack=False)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = get_soon(channel, name + "-dead")
    assert body == b"poison"
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"]) == (
        name,
        "rejected",
        1,
        "",
        [name],
    )


def test_an_expired_message_is_gone(channel, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"late", pika.BasicProperties(expiration="20"))
    channel.basic_publish("", name, b"stays")
    time.sleep(0.2)
    assert get_soon(channel, name)[2] == b"stays"


def test_priorities_decide_the_order(channel, name):
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 5})
    for priority in (1, 5, 3):
        channel.basic_publish("", name, str(priority), pika.BasicProperties(priority=priority))
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(3)] == [b"5", b"3", b"1"]


def test_transactions(channel, name):
    """Consumers see the messages of a transaction after commit, and never after rollback."""
    channel.queue_declare(name, exclusive=True)
    channel.tx_select()
    channel.basic_publish("", name, b"one")
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.tx_commit()
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    channel.basic_publish("", name, b"two")
    channel.tx_rollback()
    assert channel.queue_declare(name, passive=True).method.message_count == 1


def test_a_missing_queue_closes_the_channel_with_404(connection, name):
    """A channel error closes the channel; the connection stays open."""
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_code == 404
    assert caught.value.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
    assert connection.channel().is_open


def test_a_redeclared_queue_with_other_arguments_is_406(connection, name):
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 5})
    assert caught.value.reply_code == 406
    assert "inequivalent arg 'x-max-length' for queue" in caught.value.reply_text


def test_another_connections_exclusive_queue_is_locked(broker_url, channel, name):
    channel.queue_declare(name, exclusive=True)
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as other:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            other.channel().queue_declare(name, passive=True)
    assert caught.value.reply_code == 405


def test_a_wrong_password_is_refused_with_403(broker_address):
    host, port = broker_address
    parameters = pika.ConnectionParameters(host, port, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_a_missing_vhost_is_refused(broker_address):
    host, port = broker_address
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="NOT_ALLOWED - vhost nowhere not found"):
        pika.BlockingConnection(pika.ConnectionParameters(host, port, virtual_host="nowhere"))


def test_the_consumer_of_a_deleted_queue_is_told(connection, channel, name):
    channel.queue_declare(name)
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    tag = channel.basic_consume(name, lambda *_: None)
    connection.channel().queue_delete(name)
    deadline = time.monotonic() + 300
    while not cancelled and time.monotonic() < deadline:
        connection.process_data_events(time_limit=0.1)
    assert [frame.method.consumer_tag for frame in cancelled] == [tag]


def test_direct_reply_to(broker_url, channel, name):
    """The answer to a request without a reply queue arrives through amq.rabbitmq.reply-to."""
    channel.queue_declare(name, exclusive=False, auto_delete=True)

    def serve():
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            server = connection.channel()
            for method, properties, body in server.consume(name, inactivity_timeout=300):
                if method is None:
                    return
                server.basic_publish(
                    "",
                    properties.reply_to,
                    body.upper(),
                    pika.BasicProperties(correlation_id=properties.correlation_id),
                )
                server.basic_ack(method.delivery_tag)
                return

    server = threading.Thread(target=serve)
    server.start()
    answers = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *message: answers.append(message), auto_ack=True)
    channel.basic_publish(
        "", name, b"ping", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="42")
    )
    deadline = time.monotonic() + 300
    while not answers and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.1)
    server.join(60)
    assert [(properties.correlation_id, body) for _, _, properties, body in answers] == [("42", b"PING")]


def test_acknowledging_from_a_worker_thread(connection, channel, name):
    """pika's documented pattern: other threads do the work, the connection's thread acknowledges."""
    channel.queue_declare(name, exclusive=True)
    channel.basic_qos(prefetch_count=1)
    done = []

    def work(tag, body):
        done.append(body)
        connection.add_callback_threadsafe(functools.partial(settle, tag))

    def settle(tag):
        channel.basic_ack(tag)
        if len(done) == 5:
            channel.stop_consuming()

    threads = []

    def on_message(_channel, method, _properties, body):
        threads.append(threading.Thread(target=work, args=(method.delivery_tag, body)))
        threads[-1].start()

    channel.basic_consume(name, on_message)
    for number in range(5):
        channel.basic_publish("", name, str(number))
    channel.start_consuming()
    for thread in threads:
        thread.join()
    assert done == [b"0", b"1", b"2", b"3", b"4"]
