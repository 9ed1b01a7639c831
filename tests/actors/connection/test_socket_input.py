"""`SocketInput`: the buffers into which a connection reads."""

from __future__ import annotations

import pytest

from warren.actors.connection.socket_input import BETWEEN_LARGE, SocketInput
from warren.actors.context.received_bytes import ReceivedBytes
from warren.amqp.frames import build_content, content_body, method_frame
from warren.amqp.methods import BasicPublish
from warren.amqp.parser.reader import FrameReader

FRAME_MAX = 131_064
LARGE = b"x" * 1_000_000


class Socket:
    """Stands for a socket whose client writes again only when its last write was read. `pieces` has the sizes that
    `recv` returned.
    """

    def __init__(self) -> None:
        self.waiting = b""
        self.pieces: list[int] = []

    def recv(self, size):
        if not self.waiting:
            raise BlockingIOError
        data, self.waiting = self.waiting[:size], self.waiting[size:]
        self.pieces.append(len(data))
        return data

    def recv_into(self, room):
        if not self.waiting:
            raise BlockingIOError
        count = min(len(room), len(self.waiting))
        room[:count], self.waiting = self.waiting[:count], self.waiting[count:]
        return count


class Client:
    """Publishes one message at a time; `received` has their bodies as the reader returns them."""

    def __init__(self) -> None:
        self.sock = Socket()
        self.reader = FrameReader(FRAME_MAX)
        self.node = ReceivedBytes()
        self.input = SocketInput(self.sock, self.reader, self.node, pytest.fail, pytest.fail)
        self.input.pass_on()
        self.sent = 0
        self.received: list[bytes] = []

    def publish(self, body):
        self.sock.waiting = method_frame(1, BasicPublish(routing_key="q")) + build_content(1, b"\0\0", body, FRAME_MAX)
        self.sent += len(self.sock.waiting)
        while self.input.read():
            while (event := self.reader.next()) is not None:
                self.received += map(content_body, event[4])


def test_of_large_bodies_that_follow_each_other_little_is_copied():
    """Large bodies that follow each other are read into their final place, except for the piece with which
    each begins.
    """
    client = Client()
    client.publish(LARGE)
    client.sock.pieces.clear()
    for _ in range(3):
        client.publish(LARGE)
    assert client.received == [LARGE] * 4
    assert client.sock.pieces == [BETWEEN_LARGE] * 3


def test_small_bodies_behind_a_large_one_are_read_in_large_pieces_again():
    client = Client()
    client.publish(LARGE)
    client.sock.pieces.clear()
    client.publish(b"y" * 100_000)
    client.sock.pieces.clear()
    client.publish(b"y" * 10_000)
    assert client.received == [LARGE, b"y" * 100_000, b"y" * 10_000]
    assert len(client.sock.pieces) == 1


def test_what_is_read_counts_for_the_node():
    client = Client()
    client.publish(LARGE)
    client.publish(b"y")
    assert client.node.count == client.input.received == client.sent
