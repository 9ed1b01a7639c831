"""py-amqp, the library beneath kombu."""

from contextlib import suppress

import pytest

import amqp


@pytest.fixture
def connection(broker_address):
    host, port = broker_address
    with amqp.Connection(f"{host}:{port}", "guest", "guest") as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


def test_the_server_looks_like_one_that_clients_know(connection):
    """AB-8: kombu reads product and version to choose the flag of basic.qos."""
    properties = connection.server_properties
    assert properties["product"] == "RabbitMQ"
    assert (3, 3) <= tuple(int(part) for part in properties["version"].split(".")[:2]) < (4, 0)
    assert properties["capabilities"]["basic.nack"] is True


@pytest.mark.parametrize("mechanism", [amqp.sasl.PLAIN, amqp.sasl.AMQPLAIN])
def test_login_mechanisms(broker_address, mechanism):
    host, port = broker_address
    with amqp.Connection(f"{host}:{port}", authentication=[mechanism("guest", "guest")]) as connection:
        assert connection.connected


def test_a_wrong_password_is_an_access_refused(broker_address):
    host, port = broker_address
    connection = amqp.Connection(f"{host}:{port}", "guest", "wrong")
    with pytest.raises(amqp.AccessRefused, match="Login was refused using authentication mechanism"):
        connection.connect()


def test_publish_and_get(channel, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish_confirm(
        amqp.Message("hello", application_headers={"n": 1}, content_type="text/plain"), "", name
    )
    message = channel.basic_get(name, no_ack=True)
    assert message.body == "hello"
    assert message.application_headers == {"n": 1}
    assert channel.basic_get(name) is None


def test_consume_and_acknowledge(connection, channel, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_qos(0, 1, False)
    bodies = []

    def on_message(message):
        bodies.append(message.body)
        channel.basic_ack(message.delivery_tag)

    channel.basic_consume(name, callback=on_message)
    for number in range(10):
        channel.basic_publish_confirm(amqp.Message(str(number)), "", name)
    while len(bodies) < 10:
        connection.drain_events(timeout=300)
    assert bodies == [str(number) for number in range(10)]


def test_a_server_named_queue(channel):
    queue, messages, consumers = channel.queue_declare()
    assert queue.startswith("amq.gen-")
    assert (messages, consumers) == (0, 0)


def test_errors_are_raised_as_their_reply_codes(connection, name):
    with pytest.raises(amqp.NotFound):
        connection.channel().queue_declare(name, passive=True)
    with pytest.raises(amqp.AccessRefused, match="reserved prefix"):
        connection.channel().queue_declare("amq.mine")
    with pytest.raises(amqp.PreconditionFailed):
        connection.channel().exchange_declare("amq.direct", "fanout", durable=True)


def test_heartbeats_keep_a_quiet_connection_open(broker_address):
    """With heartbeat 1 and no other traffic, both sides send heartbeats and the connection stays open."""
    host, port = broker_address
    with amqp.Connection(f"{host}:{port}", heartbeat=1) as connection:
        assert connection.heartbeat == 1
        for _ in range(20):
            connection.heartbeat_tick()
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.2)
        assert connection.bytes_recv > 0
        assert connection.channel().queue_declare(exclusive=True).queue
