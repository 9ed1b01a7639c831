"""Resource alarms as clients see them, and update-secret (AB-33 to AB-37)."""

from __future__ import annotations

import time

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_HEADER
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    ConnectionBlocked,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclare,
    QueueDeclareOk,
)

from ..wire import Wire

#: Seconds without a frame after which none is expected.
SILENCE = 0.05


@pytest.fixture
def alarms(own):
    yield own.set_alarm
    own.set_alarm("memory", False)
    own.set_alarm("disk", False)


def state_of(own, wire):
    port = wire.sock.getsockname()[1]
    return next(row.state for row in own.connections() if row.peer_port == port)


def is_silent(wire):
    try:
        wire.frame(SILENCE)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize(
    ("sources", "reason"),
    [(["memory"], "low on memory"), (["disk"], "low on disk"), (["disk", "memory"], "low on memory & low on disk")],
)
def test_a_publisher_is_told_what_the_broker_runs_low_on(channel, alarms, sources, reason):
    """connection.blocked names the resources that run low; unblocked comes when the last alarm ends (AB-33, AB-34)."""
    for source in sources:
        alarms(source, True)
    channel.publish(1, b"x", routing_key="nowhere")
    assert channel.method(0, ConnectionBlocked).reason == reason
    for source in sources:
        assert is_silent(channel)
        alarms(source, False)
    channel.method(0, ConnectionUnblocked)


def test_only_publishing_blocks(own, channel, alarms):
    """During an alarm a connection is served, and listed as blocking, until it publishes (AB-33, AB-36)."""
    alarms("memory", True)
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    assert state_of(own, channel) == "blocking"
    channel.publish(1, b"x", routing_key=queue)
    channel.method(0, ConnectionBlocked)
    assert state_of(own, channel) == "blocked"
    channel.send_method(1, QueueDeclare(exclusive=True))
    assert is_silent(channel)  # the broker does not read a blocked connection
    alarms("memory", False)
    channel.method(0, ConnectionUnblocked)
    channel.method(1, QueueDeclareOk)
    assert state_of(own, channel) == "running"


def test_the_header_blocks_not_the_method(channel, alarms):
    """The content of a publish blocks a connection during an alarm, and not its method frame (AB-33)."""
    alarms("disk", True)
    channel.send(method_frame(1, BasicPublish(routing_key="nowhere")))
    assert is_silent(channel)
    channel.send_frame(FRAME_HEADER, 1, b"\0\x3c\0\0\0\0\0\0\0\0\0\x01\0\0")
    assert channel.method(0, ConnectionBlocked).reason == "low on disk"
    channel.send_frame(FRAME_BODY, 1, b"x")
    alarms("disk", False)
    channel.method(0, ConnectionUnblocked)
    channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)


def test_blocked_is_sent_once_and_the_next_publish_under_a_new_alarm_blocks_again(channel, alarms):
    """A second alarm sends no second connection.blocked; a later alarm blocks at the next publish (AB-34, AB-35)."""
    for _ in range(2):
        alarms("memory", True)
        channel.publish(1, b"x", routing_key="nowhere")
        channel.publish(1, b"x", routing_key="nowhere")
        channel.method(0, ConnectionBlocked)
        alarms("disk", True)
        alarms("memory", False)
        assert is_silent(channel)
        alarms("disk", False)
        channel.method(0, ConnectionUnblocked)
        channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)


def test_a_client_without_the_capability_is_blocked_in_silence(own, address, alarms):
    """A client without `connection.blocked` gets no notice, but its input waits all the same (AB-10, AB-34)."""
    with Wire.open(address, capabilities={}) as wire:
        wire.open_channel(1)
        alarms("memory", True)
        wire.publish(1, b"x", routing_key="nowhere")
        wire.send_method(1, QueueDeclare(exclusive=True))
        assert is_silent(wire)
        assert state_of(own, wire) == "blocked"
        alarms("memory", False)
        wire.method(1, QueueDeclareOk)


def test_a_connection_opened_during_an_alarm_is_served_until_it_publishes(address, alarms):
    """An alarm that is on already blocks a new connection only at its first publish (AB-35)."""
    alarms("memory", True)
    with Wire.open(address) as wire:
        wire.open_channel(1)
        wire.publish(1, b"", routing_key="nowhere")
        wire.method(0, ConnectionBlocked)
        alarms("memory", False)
        wire.method(0, ConnectionUnblocked)


def test_consumers_drain_queues_during_an_alarm(channel, address, alarms):
    """During an alarm consumers can drain queues, because only connections that publish are blocked (AB-33)."""
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    for number in range(10):
        channel.publish(1, b"%d" % number, routing_key=queue)
    channel.call(1, QueueDeclare(queue=queue, passive=True), QueueDeclareOk)
    alarms("memory", True)
    channel.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
    for number in range(10):
        channel.method(1, BasicDeliver)
        assert channel.content(1)[1] == b"%d" % number


def test_a_blocked_client_that_vanishes_is_noticed(own, address, alarms):
    """The end of a blocked client is noticed by writing to its socket, which is not read while it is
    blocked (AB-26).
    """
    with Wire.open(address, heartbeat=1) as wire:
        wire.open_channel(1)
        alarms("memory", True)
        wire.publish(1, b"x", routing_key="nowhere")
        wire.method(0, ConnectionBlocked)
        port = wire.sock.getsockname()[1]
    deadline = time.monotonic() + 300
    while any(row.peer_port == port for row in own.connections()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stopping_the_broker_reaches_blocked_clients(start_broker):
    """When the broker stops, blocked clients get connection.close too, although they are not read (AB-31)."""
    target = start_broker(stop_timeout=100)
    with Wire.open(target.address) as wire:
        wire.open_channel(1)
        target.embedded.set_alarm("disk", True)
        wire.publish(1, b"x", routing_key="nowhere")
        wire.method(0, ConnectionBlocked)
        target.embedded.stop()
        wire.expect_close(
            320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", answer=False
        )


def test_update_secret_is_accepted(wire):
    """update-secret is answered, and changes nothing (AB-37)."""
    wire.call(0, ConnectionUpdateSecret(b"new", "expired"), ConnectionUpdateSecretOk)
    wire.open_channel(1)
    wire.call(0, ConnectionUpdateSecret(b"newer", ""), ConnectionUpdateSecretOk)
