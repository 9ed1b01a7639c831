"""The handshake of a `Connection`: its steps, its refusals with their reply codes, its time limit (AB-1 to AB-27)."""

from __future__ import annotations

import pytest

from warren.amqp.constants import PROTOCOL_HEADER
from warren.amqp.frames import heartbeat, method_frame
from warren.amqp.methods import (
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)

from .line import PLAIN, Line

WRONG = b"\0guest\0wrong"


def expect_close(line: Line, code: int, ids: tuple[int, int] = (0, 0)) -> ConnectionClose:
    close = line.next_method()
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (code, *ids)
    return close


def expect_silence(line: Line) -> None:
    """Assert that the broker sends nothing, and closes the socket after 3 s (AB-38)."""
    line.run(2.9)
    assert line.end is None
    line.run(0.2)
    assert line.end == "closed" and line.take() == [] and line.has_ended


# -- the way to `running` ---


def test_a_whole_handshake(make_line):
    """The broker proposes its settings, and reports the connection to other processes only when it is open."""
    line = make_line(channel_max=7, frame_max=65_536, heartbeat=33)
    line.write(PROTOCOL_HEADER)
    start = line.next_method()
    assert isinstance(start, ConnectionStart)
    assert (start.version_major, start.version_minor, start.mechanisms) == (0, 9, b"PLAIN AMQPLAIN")
    line.start_ok()
    tune = line.next_method()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (7, 65_536, 33)
    line.send(ConnectionTuneOk(5, 8192, 0))
    line.settle()
    assert line.take() == [] and not line.alarms.received and not line.metadata.received
    line.send(ConnectionOpen("/"))
    assert line.next_method() == ConnectionOpenOk("")
    line.settle()
    assert line.alarms.take("register") == [(line.address, True)]
    items = line.info()
    assert line.metadata.take("connection_opened") == [(items["pid"],)]
    assert (items["state"], items["user"], items["vhost"]) == ("running", "guest", "/")
    assert (items["channel_max"], items["frame_max"], items["timeout"]) == (5, 8192, 0)


def test_a_client_that_sends_everything_at_once(make_line):
    """A client may send its whole part of the handshake at once, without waiting for the broker's."""
    line = make_line()
    methods = [
        ConnectionStartOk((), "PLAIN", PLAIN, "en_US"),
        ConnectionTuneOk(2047, 131_072, 0),
        ConnectionOpen("/"),
    ]
    opened = method_frame(1, ChannelOpen())
    line.write(PROTOCOL_HEADER + b"".join([method_frame(0, method) for method in methods]) + heartbeat() + opened)
    line.settle()
    kinds = [type(method) for channel, method in line.take() if channel == 0]
    assert kinds == [ConnectionStart, ConnectionTune, ConnectionOpenOk]
    assert len(line.channels) == 1


def test_a_challenge(make_line):
    line = make_line(auth_mechanisms=("RABBIT-CR-DEMO",))
    line.start()
    line.start_ok("RABBIT-CR-DEMO", b"guest")
    assert isinstance(line.next_method(), ConnectionSecure)
    line.send(ConnectionSecureOk(b"My password is guest"))
    assert isinstance(line.next_method(), ConnectionTune)


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x02", b"AMQP\x03\x01\x00\x00", b"GET / HT", b"\0" * 8])
def test_another_protocol_gets_the_broker_s_header_and_the_end(make_line, header):
    """A client of another protocol gets the broker's protocol header, and the socket is closed (AB-1)."""
    line = make_line()
    line.write(header)
    line.settle()
    assert (line.header, line.end, line.has_ended) == (PROTOCOL_HEADER, "closed", True)
    assert not line.metadata.received


# -- refusals ---


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_refused_login_is_reported_to_clients_that_ask_for_it(make_line, mechanism):
    """A refused login gets connection.close if the client asked for that. The text does not say whether the user or the
    password is wrong (AB-17).
    """
    response = WRONG if mechanism == "PLAIN" else b"\x05LOGINS\0\0\0\x01x\x08PASSWORDS\0\0\0\x01y"
    line = make_line()
    line.start()
    line.start_ok(mechanism, response)
    close = expect_close(line, 403)
    assert close.reply_text == (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. "
        "For details see the broker logfile."
    )
    line.send(ConnectionCloseOk())
    line.settle()
    assert line.end == "closed" and line.has_ended


@pytest.mark.parametrize(
    ("mechanism", "response", "capabilities"),
    [
        ("PLAIN", WRONG, {"authentication_failure_close": False}),
        ("PLAIN", b"guest", {"authentication_failure_close": True}),
        ("AMQPLAIN", b"\x05LOGIN", {"authentication_failure_close": True}),
        ("NONE", b"", {"authentication_failure_close": True}),
        ("EXTERNAL", b"", {"authentication_failure_close": True}),
    ],
)
def test_other_faults_of_a_login_are_answered_with_silence(make_line, mechanism, response, capabilities):
    """Any other fault of a login is answered with silence, because the client may be guessing, or may not speak AMQP
    (AB-18, AB-38).
    """
    line = make_line()
    line.start()
    line.start_ok(mechanism, response, **capabilities)
    expect_silence(line)
    assert line.metadata.take("delete_exclusive") == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((2047, 4095, 0), "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        ((2047, 131_073, 0), "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
        ((2047, 0, 0), "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        ((2048, 131_072, 0), "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"),
        ((0, 131_072, 0), "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
    ],
)
def test_a_tune_ok_beyond_the_limits(make_line, values, text):
    """A tune-ok beyond the broker's limits is refused with connection.close (AB-20, AB-21)."""
    line = make_line()
    line.tune()
    line.send(ConnectionTuneOk(*values))
    assert expect_close(line, 530, (10, 30)).reply_text == f"NOT_ALLOWED - {text}"
    line.run(3.1)
    assert line.end == "closed" and line.has_ended


def test_without_limits_the_client_s_values_are_used(make_line):
    line = make_line(frame_max=0, channel_max=0)
    line.open(channel_max=0, frame_max=0)
    assert (line.info()["channel_max"], line.info()["frame_max"]) == (0, 0)


def test_a_virtual_host_that_does_not_exist(make_line):
    line = make_line()
    line.tune()
    line.send(ConnectionTuneOk(2047, 131_072, 0), ConnectionOpen("other"))
    assert expect_close(line, 530, (10, 40)).reply_text == "NOT_ALLOWED - vhost other not found"
    # The user has logged in, so the deletion of the connection's exclusive queues is requested before the client gets
    # the close.
    assert len(line.metadata.take("delete_exclusive")) == 1


def test_a_virtual_host_that_is_down(make_line):
    line = make_line()
    line.routing.set_down("/")
    line.tune()
    line.send(ConnectionTuneOk(2047, 131_072, 0), ConnectionOpen("/"))
    text = "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down"
    assert expect_close(line, 541, (10, 40)).reply_text == text


def test_more_connections_than_the_node_may_have(make_line):
    line = make_line(is_refused=True, connection_max=3)
    line.tune()
    line.send(ConnectionTuneOk(2047, 131_072, 0), ConnectionOpen("/"))
    text = "NOT_ALLOWED - connection refused: node connection limit (3) is reached"
    assert expect_close(line, 530, (10, 40)).reply_text == text


def test_a_method_out_of_turn(make_line):
    """A method out of turn is answered with silence until the connection is opened, and from then on with
    connection.close 504 (AB-5).
    """
    early, late = make_line(), make_line()
    early.start()
    early.send(ConnectionOpen("/"))
    late.tune()
    late.send(ConnectionTuneOk(2047, 131_072, 0), ConnectionTuneOk(2047, 131_072, 0))
    text = "CHANNEL_ERROR - unexpected method in connection state opening"
    assert expect_close(late, 504, (10, 31)).reply_text == text
    expect_silence(early)


# -- time ---


def _header(line: Line) -> None:
    line.write(PROTOCOL_HEADER[:7])


def _start(line: Line) -> None:
    line.start()


def _tune(line: Line) -> None:
    line.tune()


def _opening(line: Line) -> None:
    line.tune()
    line.send(ConnectionTuneOk(2047, 131_072, 0))


@pytest.mark.parametrize("step", [_header, _start, _tune, _opening])
def test_a_handshake_that_is_not_finished_in_time(make_line, step):
    """When `handshake_timeout` has passed, the broker closes the socket without a frame, at any step of the
    handshake.
    """
    line = make_line(handshake_timeout=5_000)
    step(line)
    line.take()
    line.run(4.8)
    assert line.end is None
    line.run(0.3)
    assert line.end == "closed" and line.take() == [] and line.has_ended


def test_the_time_limit_ends_with_the_handshake(make_line):
    line = make_line(handshake_timeout=5_000)
    line.open()
    line.run(60)
    assert line.end is None and line.info()["state"] == "running"


@pytest.mark.parametrize("step", [_header, _start, _tune, _opening])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_in_the_handshake_leaves_nothing_behind(make_line, step, how):
    line = make_line()
    step(line)
    getattr(line.stream, how)()
    line.settle()
    assert line.has_ended


@pytest.mark.parametrize("step", [_header, _start, _tune, _opening])
def test_a_forced_close_before_running_is_only_a_hang_up(make_line, step):
    """A close that an operator forces before the connection is open only closes the socket (AB-31)."""
    line = make_line()
    step(line)
    line.settle()
    line.take()
    line.tell("force_close", 320, "the node stops")
    line.settle()
    assert line.end == "closed" and line.take() == [] and line.has_ended
