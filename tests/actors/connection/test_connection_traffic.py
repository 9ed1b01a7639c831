"""A `Connection` that is open: its channels, credit, alarms, output and heartbeats."""

from __future__ import annotations

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.frames import heartbeat, method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicDeliver,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)

from .line import HEARTBEAT, Line


def closed_with(line: Line) -> tuple[int, str, int, int]:
    """The code, text and ids of the connection.close that the broker sends next."""
    line.world.run_until(lambda: any(isinstance(method, ConnectionClose) for _, method in line.received), 20.0)
    (close,) = [method for _, method in line.take() if isinstance(method, ConnectionClose)]
    return close.reply_code, close.reply_text, close.class_id, close.method_id


# -- channels and their numbers ---


def test_a_channel_gets_what_the_handshake_settled(make_line):
    line = make_line()
    line.open(frame_max=8192, consumer_cancel_notify=True)
    channel = line.open_channel(9)
    config = channel.config
    assert (config.number, config.vhost, config.user, config.frame_max) == (9, "/", "guest", 8192)
    assert config.has_cancel_notify and config.connection_id == line.info()["pid"]
    assert line.info()["channels"] == 1


def test_input_reaches_each_channel_in_order(line):
    one, two = line.open_channel(1), line.open_channel(2)
    sent = [BasicQos(0, count, False) for count in range(20)]
    line.write(b"".join([method_frame(1 + count % 2, method) for count, method in enumerate(sent)]))
    line.settle()
    assert (one.methods, two.methods) == (sent[::2], sent[1::2])


def test_what_one_read_brings_is_one_message_to_the_channel(make_line, monkeypatch):
    """What one read from the socket brings for a channel is sent to it in one message (FC-63)."""
    line = make_line()
    line.world.conditions = type(line.world.conditions)(link_delay=0, cut_one_in=0)
    line.open()
    channel = line.open_channel()
    before = channel.inputs
    line.publish(*[b"%d" % number for number in range(100)])
    line.settle()
    assert len(channel.bodies) == 100 and channel.inputs == before + 1


@pytest.mark.parametrize(
    ("method", "ids"), [(BasicQos(0, 1, False), (60, 10)), (BasicAck(1, False), (60, 80)), (ChannelCloseOk(), (20, 41))]
)
def test_a_channel_begins_with_channel_open(line, method, ids):
    line.send(method, channel=3)
    assert closed_with(line) == (504, "CHANNEL_ERROR - expected 'channel.open'", *ids)
    assert not line.channels


def test_a_method_that_belongs_on_channel_0_alone(line):
    line.send(ConnectionTuneOk(2047, 131_072, 0))
    assert closed_with(line) == (504, "CHANNEL_ERROR - unexpected method in connection state running", 10, 31)


def test_the_number_of_open_channels_is_limited(make_line):
    """`channel_max` limits how many channels are open, not their numbers, and a closed channel makes room."""
    line = make_line()
    line.open(channel_max=2)
    line.open_channel(7)
    line.open_channel(60_000)
    line.send(ChannelClose(200, "bye"), channel=7)
    line.settle()
    line.take()
    line.open_channel(8)
    line.send(ChannelOpen(), channel=9)
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert closed_with(line) == (530, text, 0, 0)


def test_a_closed_channel_s_number_may_be_used_again(line):
    first = line.open_channel(1)
    line.send(ChannelClose(200, "bye"), channel=1)
    line.settle()
    assert line.take() == [(1, ChannelCloseOk())]
    second = line.open_channel(1)
    assert first.config.channel_id != second.config.channel_id
    line.send(BasicQos(0, 1, False), channel=1)
    line.settle()
    assert (first.methods, second.methods) == ([], [BasicQos(0, 1, False)])


def test_a_number_is_taken_until_the_channel_is_closed(line):
    line.open_channel(1).is_busy = True
    line.send(ChannelClose(200, "bye"), ChannelOpen(), channel=1)
    assert closed_with(line) == (504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10)


def test_after_the_client_s_close_ok_the_number_is_free_at_once(line):
    """A client may open a channel number again in the packet in which it sends close-ok, as py-amqp does, although the
    old channel's process has not ended yet (AB-54).
    """
    old = line.open_channel(1)
    old.tell("channel_error", 1, 404, "NOT_FOUND - no queue")
    old.put(ChannelClose(404, "NOT_FOUND - no queue", 50, 10))
    line.settle()
    line.take()
    line.send(ChannelCloseOk(), ChannelOpen(), BasicQos(0, 5, False), channel=1)
    line.settle()
    assert line.take() == [(1, ChannelOpenOk(b""))]
    assert len(line.channels) == 2 and line.channels[1].methods == [BasicQos(0, 5, False)]


def test_a_close_ok_that_follows_crossed_closes_opens_nothing(line):
    """When both sides have sent channel.close, the client's late close-ok is ignored and opens nothing."""
    line.open_channel(1).end(True, ChannelClose(404, "NOT_FOUND"), ChannelCloseOk())
    line.settle()
    assert len(line.take()) == 2
    line.send(ChannelCloseOk(), channel=1)
    line.settle()
    assert line.take() == [] and line.end is None
    line.open_channel(1)


def test_a_channel_that_crashes_ends_the_connection(line):
    channel = line.open_channel(1)
    line.port.tell(channel.address, ("no such message",))
    assert closed_with(line) == (541, "INTERNAL_ERROR", 0, 0)


def test_an_error_of_a_channel_ends_the_connection(line):
    line.open_channel(1).tell("channel_failed", 1, AmqpError(503, "unimplemented method", 60, 30))
    assert closed_with(line) == (503, "COMMAND_INVALID - unimplemented method", 60, 30)


def test_listings_ask_every_channel(line):
    line.open_channel(1)
    line.open_channel(5)
    items = line.port.request(line.address, ("channels_info",))
    assert sorted(item["number"] for item in items) == [1, 5]


def test_update_secret_is_answered(line):
    line.send(ConnectionUpdateSecret(b"secret", "why"))
    assert line.next_method() == ConnectionUpdateSecretOk()


# -- frame errors ---

FAULTS = {
    "a wrong end octet": (b"\x01\0\x01\0\0\0\x05\0\x14\0\x28\0\xcd", 501, True),
    "a frame that is too large": (b"\x01\0\x01\0\x10\0\x01", 501, True),
    "an unknown type": (b"\x04\0\x01\0\0\0\x01x\xce", 501, False),
    "a heartbeat with a payload": (b"\x08\0\0\0\0\0\x01x\xce", 501, False),
    "a body out of place": (b"\x03\0\x01\0\0\0\x01x\xce", 505, False),
    "an unknown method": (b"\x01\0\x01\0\0\0\x04\0\x3c\0\xff\xce", 503, False),
}


@pytest.mark.parametrize(("octets", "code", "is_out_of_step"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_frame(line, octets, code, is_out_of_step):
    """What came before a faulty frame is handled, and connection.close follows. If the fault hides where the next frame
    begins, no close-ok can be read, so the broker closes the socket after 3 s; otherwise the client's close-ok ends the
    connection.
    """
    channel = line.open_channel(1)
    line.write(method_frame(1, BasicQos(0, 5, False)) + octets)
    assert closed_with(line)[0] == code
    assert channel.methods == [BasicQos(0, 5, False)] and channel.is_shut_down
    line.send(ConnectionCloseOk())
    line.settle()
    assert (line.end is None) is is_out_of_step
    line.run(3.1)
    assert line.end is not None and line.has_ended


# -- credit ---


def test_a_channel_gets_no_more_than_its_credit(make_line):
    """A connection sends a channel no more than the channel's credit allows. The rest of the input stays unread and in
    order, including what is for other channels (FC-25, FC-30, FC-4, FC-22).
    """
    line = make_line(credit_flow_default_credit=(10, 5))
    line.open()
    channel, other = line.open_channel(1), line.open_channel(2)
    line.publish(*[b"%d" % number for number in range(12)])
    line.send(BasicQos(0, 1, False), channel=1)
    line.send(BasicQos(0, 1, False), channel=2)
    line.settle()
    assert len(channel.bodies) == 10 and not channel.methods
    assert line.info()["state"] == "flow"
    channel.tell("bump", channel.config.channel_id, 1)
    line.settle()
    assert len(channel.bodies) == 11 and not channel.methods
    channel.tell("bump", channel.config.channel_id, 5)
    line.settle()
    assert channel.bodies == [b"%d" % number for number in range(12)]
    assert len(channel.methods) == len(other.methods) == 1
    # Missing credit is no alarm, so the client gets no connection.blocked.
    assert line.take() == []


def test_the_end_of_a_channel_without_credit_lets_the_others_go_on(make_line):
    line = make_line(credit_flow_default_credit=(10, 5))
    line.open()
    channel, other = line.open_channel(1), line.open_channel(2)
    line.publish(*[b"x"] * 11)
    line.send(BasicQos(0, 1, False), channel=2)
    line.settle()
    assert not other.methods
    channel.tell("channel_error", 1, 404, "NOT_FOUND")
    channel.end(True, ChannelClose(404, "NOT_FOUND"), ChannelCloseOk())
    line.settle()
    # The eleventh publish is now for a channel number that is not open.
    assert closed_with(line)[:2] == (504, "CHANNEL_ERROR - expected 'channel.open'")


def test_a_channel_with_too_many_waiting_methods_stops_the_reading(line):
    """A connection stops reading when too many methods wait in one of its channels (FC-34)."""
    channel = line.open_channel(1)
    channel.tell("pause_input", 1, True)
    line.settle()
    line.send(*[BasicQos(0, 1, False)] * 5, channel=1)
    line.settle()
    assert not channel.methods
    channel.tell("pause_input", 1, False)
    line.settle()
    assert len(channel.methods) == 5


def test_the_end_of_a_channel_that_stopped_the_reading_starts_it_again(line):
    channel, other = line.open_channel(1), line.open_channel(2)
    channel.tell("pause_input", 1, True)
    line.settle()
    line.send(BasicQos(0, 1, False), channel=2)
    line.settle()
    assert not other.methods
    channel.end(True, ChannelClose(404, "NOT_FOUND"), ChannelCloseOk())
    line.settle()
    assert len(other.methods) == 1


# -- alarms ---


@pytest.mark.parametrize(
    ("sources", "reason"), [(("memory",), "low on memory"), (("disk", "memory"), "low on memory & low on disk")]
)
def test_an_alarm_blocks_a_client_that_publishes(line, sources, reason):
    """An alarm blocks a client when it publishes: it is notified once, its input waits, and is handled in order when
    the alarm ends (FC-25, FC-26, AB-33).
    """
    channel = line.open_channel(1)
    line.tell("alarms", sources)
    line.settle()
    line.send(BasicQos(0, 1, False), channel=1)
    line.settle()
    assert line.take() == [] and len(channel.methods) == 1
    assert line.info()["state"] == "blocking"
    line.publish(b"1", b"2")
    line.send(BasicQos(0, 2, False), channel=1)
    line.settle()
    assert line.take() == [(0, ConnectionBlocked(reason))]
    assert line.info()["state"] == "blocked" and len(channel.methods) == 1
    line.tell("alarms", ())
    line.settle()
    assert line.take() == [(0, ConnectionUnblocked())]
    assert channel.bodies == [b"1", b"2"] and len(channel.methods) == 2
    assert line.info()["state"] == "running"


def test_a_blocked_client_still_gets_what_is_sent_to_it(line):
    channel = line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    line.take()
    channel.put(BasicQosOk())
    line.settle()
    assert line.take() == [(1, BasicQosOk())]


def test_a_client_without_the_capability_is_blocked_in_silence(make_line):
    line = make_line()
    line.open(connection__blocked=False)
    channel = line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    line.tell("alarms", ())
    line.settle()
    assert line.take() == [] and channel.bodies == [b"1"]


def test_a_second_alarm_while_blocked_is_not_announced(line):
    line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    line.take()
    line.tell("alarms", ("disk", "memory"))
    line.tell("alarms", ("disk",))
    line.settle()
    assert line.take() == [] and line.info()["state"] == "blocked"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_blocked_client_that_leaves(make_line, how):
    """The end of a blocked client is noticed by a heartbeat that cannot be written, because the broker does not read
    from its socket (AB-26).
    """
    line = make_line()
    line.open(heartbeat=10)
    channel = line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    getattr(line.stream, how)()
    line.settle()
    assert not line.has_ended
    line.run(15.1)
    assert line.has_ended and channel.is_shut_down


def test_a_blocked_client_that_left_is_noticed_after_the_block(line):
    line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    line.stream.close()
    line.settle()
    assert not line.has_ended
    line.tell("alarms", ())
    line.settle()
    assert line.has_ended


def test_a_blocked_connection_can_be_closed_by_the_broker(line):
    line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.settle()
    line.take()
    line.tell("force_close", 320, "shutdown")
    assert closed_with(line) == (320, "CONNECTION_FORCED - shutdown", 0, 0)
    line.send(ConnectionCloseOk())
    line.settle()
    assert line.has_ended


# -- output ---


def test_deliveries_are_reported_when_the_socket_has_them(make_line):
    """Deliveries are reported to their queue when the client's socket has taken them, fifty of a queue at a time
    (FC-32).
    """
    line = make_line()
    line.open()
    channel = line.open_channel(1)
    line.stream.stall()
    delivery = BasicDeliver("c", 1, False, "", "q" * 200)
    count = 2 * 65_536 // len(method_frame(1, delivery))
    for _ in range(count):
        channel.put(delivery, notices=[(line.queue, "q", channel.config.channel_id, 1, 50)])
    line.settle()
    reported = line.sent_to_queue()
    assert 0 < reported <= count // 2 + 1 and reported % 50 == 0
    line.stream.stall(False)
    line.settle()
    assert len(line.take()) == count
    assert reported + line.sent_to_queue() == count - count % 50


def test_a_client_that_does_not_take_its_output_is_not_read(make_line):
    """A client that does not read its output is not read from, so that output does not fill memory (FC-35)."""
    line = make_line(output_buffer_limit=50_000)
    line.open()
    channel = line.open_channel(1)
    line.stream.stall()
    big = ConnectionUpdateSecret(b"x" * 100_000, "")  # any large frame will do
    channel.put(big, big)
    line.settle()
    line.send(BasicQos(0, 1, False), channel=1)
    line.settle()
    assert not channel.methods and line.info()["send_pend"] > 50_000
    line.stream.stall(False)
    line.settle()
    assert len(channel.methods) == 1 and line.info()["send_pend"] == 0
    assert [type(method) for _, method in line.take()] == [ConnectionUpdateSecret] * 2


# -- heartbeats ---


def test_heartbeats_are_sent_into_silence_only(make_line):
    """The first heartbeat is sent after half an interval, and later ones only if nothing else was written (AB-23)."""
    line = make_line()
    line.open(heartbeat=10)
    channel = line.open_channel(1)
    line.run(5.2)
    assert line.take() == [(0, HEARTBEAT)]
    channel.put(BasicQosOk())
    line.run(5)
    assert line.take() == [(1, BasicQosOk())]
    line.run(5)
    assert line.take() == [(0, HEARTBEAT)]


def test_a_silent_client_is_given_up(make_line):
    """A client that sends nothing is given up after two to three intervals, and its messages are requeued (AB-24)."""
    line = make_line()
    line.open(heartbeat=10)
    channel = line.open_channel(1)
    line.run(19.5)
    assert line.end is None
    line.run(11)
    assert line.end == "closed" and channel.is_shut_down and line.has_ended
    assert all(method == HEARTBEAT for _, method in line.take())
    assert len(line.metadata.take("delete_exclusive")) == 1


@pytest.mark.parametrize("said", [heartbeat(), method_frame(1, ChannelFlow(True))])
def test_a_client_that_sends_anything_is_not_given_up(make_line, said):
    line = make_line()
    line.open(heartbeat=10)
    line.open_channel(1)
    for _ in range(20):
        line.run(9.5)
        line.write(said)
    assert line.end is None


def test_a_blocked_client_is_not_given_up_for_its_silence(make_line):
    """A blocked client is not given up for its silence, because the broker does not read from it. After the block its
    time starts anew (FC-25, FC-26, AB-26).
    """
    line = make_line()
    line.open(heartbeat=10)
    line.open_channel(1)
    line.tell("alarms", ("memory",))
    line.settle()
    line.publish(b"1")
    line.run(200)
    assert line.end is None
    line.tell("alarms", ())
    line.run(15)
    assert line.end is None
    line.run(20)
    assert line.end is not None


# -- what the node receives ---


def test_a_look_at_the_memory_is_asked_for_when_it_is_due(line):
    line.open_channel()
    line.received_bytes.due = 20_000
    line.publish(b"x" * 4000)
    line.settle()
    assert line.received_bytes.count >= 4000 and not line.memory_monitor.received
    for _ in range(5):
        line.publish(b"x" * 4000)
        line.settle()
    assert line.memory_monitor.received == [("look",)]
    assert line.received_bytes.count < 20_000
