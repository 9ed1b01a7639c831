"""Clients of the HTTP API that let the server wait: their connections end after `management_idle_timeout`."""

import base64
import socket

import pytest

from warren import Broker

from ..conftest import ports

LOGIN = b"Authorization: Basic " + base64.b64encode(b"guest:guest") + b"\r\n"


@pytest.fixture(scope="module")
def port():
    with Broker(management=True, management_port=0, prometheus_port=0, management_idle_timeout=1) as broker:
        for number in range(3_000):
            broker.declare_queue(f"a-name-that-makes-the-list-of-queues-long-{number:06}")
        yield ports(broker)["http"]


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 60)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/overview HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nusername=",
        b"PUT /api/vhosts/v HTTP/1.1\r\nHost: x\r\n" + LOGIN + b"Content-Length: 100\r\n\r\n{",
        b"GET /api/auth HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nothing", "half of the headers", "half of a form", "half of a body", "one request"],
)
def test_a_client_that_sends_nothing_more_is_disconnected(port, sent):
    with connect(port) as client:
        client.sendall(sent)
        until_cut_off(client)


def test_a_client_that_sends_its_headers_bit_by_bit_is_disconnected(port):
    """Each further byte of the headers does not give the client more time."""
    with connect(port) as client, pytest.raises(OSError):
        client.settimeout(0.2)
        client.sendall(b"GET /api/auth HTTP/1.1\r\nX: ")
        for _ in range(300):
            client.sendall(b"x")
            try:
                if not client.recv(1):
                    raise ConnectionResetError
            except TimeoutError:
                pass
        raise AssertionError("the server still waits")


def test_a_client_that_does_not_read_is_disconnected(port):
    """The stream of events has no end of its own."""
    with connect(port) as client:
        paths = b"&".join([b"get=queues"] * 16)
        client.sendall(b"GET /api/events?" + paths + b" HTTP/1.1\r\nHost: x\r\n" + LOGIN + b"\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(3):  # each of these takes as long as the client may not read
            with connect(port) as other:
                assert other.recv(1) == b""
        until_cut_off(client)


def until_cut_off(client):
    """Read until the server has closed the connection."""
    try:
        while client.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass


def test_a_client_that_sends_a_body_slowly_is_served(port):
    """The time begins anew with each piece of a body."""
    body = b'{"description": "slow"}'
    with connect(port) as client:
        client.sendall(b"PUT /api/vhosts/slow HTTP/1.1\r\nHost: x\r\n" + LOGIN)
        client.sendall(b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        client.settimeout(0.25)
        for at in range(len(body)):
            client.sendall(body[at : at + 1])
            if at < 8:
                with pytest.raises(TimeoutError):
                    client.recv(1)
        client.settimeout(60)
        assert client.recv(12) == b"HTTP/1.1 201"
