"""The end of a `Connection`, from either side and in every state of it (AB-28 to AB-32)."""

from __future__ import annotations

import pytest

from warren.amqp.methods import (
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ConnectionClose,
    ConnectionCloseOk,
)

from .line import Line

BYE = ConnectionClose(200, "bye", 0, 0)


def forced(line: Line) -> None:
    """Close the connection as an operator does; the broker's close is then in flight to the client."""
    line.tell("force_close", 320, "shutdown")
    line.settle()


def test_the_client_s_close(line):
    """Close-ok is sent when the channels have given back their messages and the exclusive queues are deleted."""
    channel = line.open_channel(1)
    channel.is_busy = True
    line.send(BYE)
    line.settle()
    assert channel.is_shut_down and line.take() == [] and not line.metadata.take("delete_exclusive")
    connection_id = channel.config.connection_id
    # From now on other clients that want these queues may wait for their deletion.
    assert line.metadata.take("connection_ending") == [(connection_id,)]
    channel.release()
    line.settle()
    assert line.metadata.take("delete_exclusive") == [(connection_id,)]
    assert line.take() == [(0, ConnectionCloseOk())]
    # After close-ok the client closes the socket, not the broker.
    assert line.end is None and not line.has_ended
    line.stream.close()
    line.settle()
    assert line.has_ended


def test_metadata_is_waited_for(line):
    line.metadata.answers = {}
    line.send(BYE)
    line.settle()
    assert line.take() == [] and len(line.metadata.take("delete_exclusive")) == 1


@pytest.mark.parametrize(("heartbeat", "seconds"), [(0, 30), (10, 10), (60, 30)])
def test_a_client_that_does_not_hang_up_after_close_ok(make_line, heartbeat, seconds):
    """A client that does not close the socket after close-ok gets as much time as a heartbeat, at most 30 s; then the
    broker closes it.
    """
    line = make_line()
    line.open(heartbeat=heartbeat)
    line.send(BYE)
    line.settle()
    line.run(seconds - 1)
    assert line.end is None
    line.run(1.5)
    assert line.end == "closed" and line.has_ended


def test_a_client_that_is_to_be_dropped_is_not_read(make_line):
    """The broker does not read what a client sends that gets no answer any more (AB-18). It would keep as much as the
    client can send in 3 s, and the client has not even logged in.
    """
    line = make_line()
    line.start()
    line.start_ok("NO-SUCH-MECHANISM")
    line.settle()
    received = line.info()["recv_oct"]
    line.write(bytes(1_000_000))
    line.run(1)
    assert line.info()["recv_oct"] == received and line.end is None
    line.run(3)
    assert line.end is not None and line.take() == []


def test_a_channel_that_does_not_answer_is_not_waited_for(make_line):
    line = make_line(channel_operation_timeout=2_000)
    line.open()
    line.open_channel(1).is_busy = True
    line.send(BYE)
    line.run(1.9)
    assert line.take() == []
    line.run(0.2)
    assert line.take() == [(0, ConnectionCloseOk())]


def test_a_channel_s_last_output_precedes_close_ok(line):
    channel = line.open_channel(1)
    channel.is_busy = True
    line.send(BYE)
    line.settle()
    channel.put(BasicQosOk())
    channel.release()
    line.settle()
    assert line.take() == [(1, BasicQosOk()), (0, ConnectionCloseOk())]


def test_input_behind_the_close_is_dropped(line):
    channel = line.open_channel(1)
    line.send(BYE, BYE)
    line.publish(b"late")
    line.send(ChannelClose(200, "late"), channel=1)
    line.settle()
    # The second close is answered as well.
    assert line.take() == [(0, ConnectionCloseOk())] * 2
    assert not channel.bodies and line.end is None


def test_a_close_while_a_channel_is_closing(line):
    """When the client closes the connection, and a channel that it closed before has not given back everything,
    close-ok waits for that channel.
    """
    closing, other = line.open_channel(1), line.open_channel(2)
    closing.is_busy = other.is_busy = True
    line.send(ChannelClose(200, "bye"), channel=1)
    line.send(BYE)
    line.settle()
    assert closing.is_shut_down and other.is_shut_down and line.take() == []
    closing.end(False, ChannelCloseOk())
    line.settle()
    assert line.take() == [(1, ChannelCloseOk())]
    other.release()
    line.settle()
    assert line.take() == [(0, ConnectionCloseOk())]


def test_the_broker_s_close(line):
    """The broker sends connection.close when everything has been given back, and the client's close-ok ends the
    connection.
    """
    channel = line.open_channel(1)
    channel.is_busy = True
    forced(line)
    assert channel.is_shut_down and line.take() == []
    channel.release()
    line.settle()
    assert line.take() == [(0, ConnectionClose(320, "CONNECTION_FORCED - shutdown", 0, 0))]
    assert len(line.metadata.take("delete_exclusive")) == 1 and line.end is None
    line.send(ConnectionCloseOk())
    line.settle()
    assert line.end == "closed" and line.has_ended


@pytest.mark.parametrize(("heartbeat", "seconds"), [(0, 30), (10, 10)])
def test_a_client_that_does_not_answer_the_broker_s_close(make_line, heartbeat, seconds):
    line = make_line()
    line.open(heartbeat=heartbeat)
    forced(line)
    line.run(seconds - 1)
    assert line.end is None
    line.run(1.5)
    assert line.end == "closed" and line.has_ended


def test_a_second_forced_close_changes_nothing(line):
    forced(line)
    forced(line)
    assert len(line.take()) == 1
    line.send(ConnectionCloseOk())
    line.settle()
    assert line.has_ended


def test_closes_that_cross(line):
    """When both sides send connection.close, the client's is answered, and its close-ok ends the connection (AB-30)."""
    forced(line)
    line.take()
    line.send(BYE)
    line.settle()
    assert line.take() == [(0, ConnectionCloseOk())] and line.end is None
    line.send(ConnectionCloseOk())
    line.settle()
    assert line.has_ended


def test_a_client_that_closes_before_the_broker_s_close_is_sent(line):
    """If the client's close arrives while the broker is still giving back, the broker sends its own close first, and
    then close-ok.
    """
    channel = line.open_channel(1)
    channel.is_busy = True
    forced(line)
    line.send(BYE)
    line.settle()
    assert line.take() == []
    channel.release()
    line.settle()
    assert [type(method) for _, method in line.take()] == [ConnectionClose, ConnectionCloseOk]


def test_a_forced_close_while_the_client_s_close_is_answered(line):
    channel = line.open_channel(1)
    channel.is_busy = True
    line.send(BYE)
    line.settle()
    forced(line)
    channel.release()
    line.settle()
    assert line.take() == [(0, ConnectionCloseOk())]


def test_only_connections_of_a_virtual_host_are_closed_with_it(line):
    line.tell("close_if_on", "other", 320, "gone")
    line.settle()
    assert line.take() == []
    line.tell("close_if_on", "/", 320, "gone")
    line.settle()
    assert line.take() == [(0, ConnectionClose(320, "CONNECTION_FORCED - gone", 0, 0))]


def test_nothing_follows_the_broker_s_close(line):
    """No frame follows the broker's connection.close, even if a channel sends output late."""
    channel = line.open_channel(1)
    channel.is_busy = True
    forced(line)
    line.run(16)  # longer than `channel_operation_timeout`
    assert len(line.take()) == 1
    channel.put(BasicQosOk())
    line.settle()
    assert line.take() == []


# -- the socket goes away ---


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_lost_client_s_channels_and_queues_are_cleaned_up(line, how):
    one, two = line.open_channel(1), line.open_channel(2)
    two.is_busy = True
    getattr(line.stream, how)()
    line.settle()
    assert one.is_shut_down and two.is_shut_down and not line.has_ended
    assert not line.metadata.take("delete_exclusive")
    two.release()
    line.settle()
    assert len(line.metadata.take("delete_exclusive")) == 1 and line.has_ended


@pytest.mark.parametrize("how", ["close", "reset"])
def test_what_a_lost_client_sent_before_is_handled(line, how):
    channel = line.open_channel(1)
    line.publish(b"1", b"2")
    line.run(0.001)
    line.settle()
    getattr(line.stream, how)()
    line.settle()
    assert channel.bodies == [b"1", b"2"] and line.has_ended


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("cause", ["client", "broker"])
def test_a_client_that_is_lost_while_the_connection_closes(line, how, cause):
    """When the socket is lost while the connection closes, everything is given back once, and the process ends."""
    channel = line.open_channel(1)
    channel.is_busy = True
    if cause == "client":
        line.send(BYE)
        line.settle()
    else:
        forced(line)
    getattr(line.stream, how)()
    line.settle()
    assert not line.has_ended
    channel.release()
    line.settle()
    assert len(line.metadata.take("delete_exclusive")) == 1 and line.has_ended


def test_messages_of_channels_after_the_loss_are_ignored(line):
    channel = line.open_channel(1)
    channel.is_busy = True
    line.stream.reset()
    line.settle()
    channel.put(BasicQosOk())
    channel.tell("bump", channel.config.channel_id, 5)
    channel.tell("pause_input", 1, True)
    channel.tell("pause_input", 1, False)
    line.tell("alarms", ("memory",))
    line.tell("alarms", ())
    line.tell("force_close", 320, "shutdown")
    line.settle()
    channel.release()
    line.settle()
    assert line.has_ended and not line.world.crashes


def test_a_client_lost_in_the_middle_of_a_content(line):
    channel = line.open_channel(1)
    line.publish(b"1", b"x" * 2000)
    line.world.run_until(lambda: False, 0.00015)
    line.stream.reset()
    line.settle()
    assert channel.bodies[:1] in ([], [b"1"]) and line.has_ended


def test_an_output_that_waits_is_written_before_the_broker_hangs_up(make_line):
    """Output that waits for the socket is written before the broker closes it, although the client has answered the
    broker's close and reads nothing yet.
    """
    line = make_line()
    line.open()
    channel = line.open_channel(1)
    line.stream.stall()
    big = ConnectionClose(200, "x" * 250)
    for _ in range(600):
        channel.put(big)
    line.settle()
    forced(line)
    line.send(ConnectionCloseOk())
    line.settle()
    assert not line.has_ended
    line.stream.stall(False)
    line.settle()
    received = line.take()
    assert len(received) == 601 and received[-1][1].reply_code == 320
    assert line.end == "closed" and line.has_ended
