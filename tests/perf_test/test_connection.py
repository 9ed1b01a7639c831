"""`LoadConnection` handles what the broker sends beside its answers, before the test starts and after."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from warren.amqp import methods
from warren.amqp.constants import PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.fields import Table
from warren.amqp.frames import heartbeat, method_frame, split_frames
from warren.perf_test.connection import ConnectionFailed, LoadConnection
from warren.perf_test.deliveries import DeliveryReader

BLOCKED = method_frame(0, methods.ConnectionBlocked("low on memory"))
UNBLOCKED = method_frame(0, methods.ConnectionUnblocked())
CONNECTED = method_frame(0, methods.ConnectionOpenOk())
OPENED = method_frame(1, methods.ChannelOpenOk())


@pytest.fixture
def opened():
    """Returns a function that opens a connection to a broker which sends these bytes as its answers, and the broker's
    socket.
    """
    sockets: list[socket.socket] = []

    def open_connection(to_open=CONNECTED, to_channel=OPENED):
        answers = {
            methods.ConnectionStartOk: method_frame(0, methods.ConnectionTune(10, 4096, 60)),
            methods.ConnectionOpen: to_open,
            methods.ChannelOpen: to_channel,
        }
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve():
            server, _ = listener.accept()
            sockets.append(server)
            assert server.recv(8, socket.MSG_WAITALL) == PROTOCOL_HEADER
            server.sendall(method_frame(0, methods.ConnectionStart(0, 9, Table(), b"PLAIN", b"en_US")))
            rest = b""
            while data := server.recv(4096):
                frames, rest = split_frames(rest + data)
                for _, _, payload in frames:
                    method = decode_method(payload)
                    server.sendall(answers.get(type(method), b""))
                    if isinstance(method, methods.ChannelOpen):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        connection = LoadConnection(f"amqp://127.0.0.1:{listener.getsockname()[1]}", "test")
        sockets.append(connection.socket)
        try:
            connection.call(1, methods.ChannelOpen(), methods.ChannelOpenOk)
        finally:
            thread.join()
        return connection, sockets[1]

    yield open_connection
    for each in sockets:
        each.close()


def test_a_block_behind_an_answer_is_noted(opened):
    assert opened(CONNECTED + BLOCKED)[0].is_blocked


def test_a_block_before_an_answer_is_noted(opened):
    assert opened(to_channel=heartbeat() + BLOCKED + OPENED)[0].is_blocked


def test_the_last_of_several_counts(opened):
    assert not opened(to_channel=BLOCKED + OPENED + UNBLOCKED)[0].is_blocked


def test_a_close_behind_an_answer_is_named(opened):
    close = method_frame(0, methods.ConnectionClose(320, "CONNECTION_FORCED"))
    with pytest.raises(ConnectionFailed, match="320 CONNECTION_FORCED"):
        opened(to_channel=OPENED + close)


def test_a_frame_may_end_after_the_start(opened):
    """The first part of a frame comes with an answer, the second one when nothing waits any more."""
    connection, server = opened(to_channel=OPENED + BLOCKED[:9])
    connection.start()
    server.sendall(BLOCKED[9:])
    reader = DeliveryReader(lambda batch: None, lambda kind, _, payload: connection.handle(kind, payload))
    while not connection.is_blocked:
        assert select.select([connection.socket], [], [], 10)[0]
        reader.receive(connection.receive_into)
