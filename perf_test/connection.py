"""`LoadConnection`: a connection to the broker under test.

Opening the connection and declaring wait for the broker. After `start` nothing waits: bytes that the socket does not
take at once are kept and sent when it is writable, and the runner reads when it is readable.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from ..amqp import methods
from ..amqp.constants import FRAME_METHOD, PROTOCOL_HEADER
from ..amqp.decoding import decode_method
from ..amqp.errors import AmqpError
from ..amqp.fields import table_from
from ..amqp.frames import heartbeat, method_frame, split_frames
from ..amqp.method import Method

#: Seconds that the broker may take to answer a method.
ANSWER_SECONDS = 30.0

RECEIVE_BYTES = 1 << 20

#: Names of the schemes of a URI, with their default ports.
PORTS = {"amqp": 5672, "amqps": 5671}

CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "connection.blocked": True,
    # A refused login is then answered with the reason, and not only by the end of the connection.
    "authentication_failure_close": True,
}


class ConnectionFailed(Exception):
    """The broker cannot be reached, refuses something, or has gone; the text is for the user."""


class ChannelRefused(ConnectionFailed):
    """The broker has closed a channel, and the connection goes on."""


def split_uri(uri: str) -> tuple[bool, str, int, str, str, str]:
    """Whether TLS is asked for, host, port, user, password and virtual host.

    Raises ValueError. Its text quotes no part of the URI, because any part of a malformed one may be the password.
    """
    parts = urlsplit(uri)
    if parts.scheme not in PORTS:
        raise ValueError("a URI of a broker must begin with amqp:// or amqps://")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(
            "the port in the URI of a broker is no number up to 65535; reserved characters in user and password must "
            "be percent-encoded, such as %2F for /"
        ) from None
    return (
        parts.scheme == "amqps",
        parts.hostname or "127.0.0.1",
        port or PORTS[parts.scheme],
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        unquote(parts.path[1:]) or "/",
    )


class LoadConnection:
    """One connection, which the constructor opens. Raises ConnectionFailed."""

    def __init__(self, uri: str, name: str) -> None:
        is_tls, host, port, user, password, vhost = split_uri(uri)
        self._where = f"{host}:{port}"
        self.is_blocked = False
        #: Bytes that the socket has not taken yet.
        self.unsent: memoryview | None = None
        #: The beginning of a frame that `_wait` has read and whose end has not arrived.
        self._rest = b""
        try:
            self.socket: socket.socket = socket.create_connection((host, port), ANSWER_SECONDS)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if is_tls:
                self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=host)
            self._log_in(user, password, vhost, name)
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(f"cannot connect to {self._where}: {error.args[-1]}") from error

    def _log_in(self, user: str, password: str, vhost: str, name: str) -> None:
        self.socket.sendall(PROTOCOL_HEADER)
        self._wait(methods.ConnectionStart)
        properties = table_from({"product": "warren perf-test", "connection_name": name, "capabilities": CAPABILITIES})
        self._send_now(0, methods.ConnectionStartOk(properties, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"))
        tune = self._wait(methods.ConnectionTune)
        self.frame_max: int = tune.frame_max
        self._send_now(0, methods.ConnectionTuneOk(tune.channel_max, tune.frame_max, tune.heartbeat))
        #: The heartbeat timeout in seconds, as the broker has proposed it; 0: no heartbeats.
        self.heartbeat: int = tune.heartbeat
        self._send_now(0, methods.ConnectionOpen(vhost))
        self._wait(methods.ConnectionOpenOk)

    # -- waiting for answers, before the test starts ---

    def call(self, channel: int, method: Method, answer: type[Method]) -> Any:
        """Send `method` and wait for its answer. Raises ConnectionFailed."""
        try:
            self._send_now(channel, method)
            return self._wait(answer)
        except OSError as error:
            raise ConnectionFailed(f"lost the connection to {self._where}: {error}") from error

    def ask(self, channel: int, method: Method, answer: type[Method]) -> Any:
        """Send `method` on a channel that is opened for it. None if the broker closes that channel over it."""
        self.call(channel, methods.ChannelOpen(), methods.ChannelOpenOk)
        try:
            found = self.call(channel, method, answer)
        except ChannelRefused:
            self._send_now(channel, methods.ChannelCloseOk())
            return None
        self.call(channel, methods.ChannelClose(200, "done"), methods.ChannelCloseOk)
        return found

    def _send_now(self, channel: int, method: Method) -> None:
        self.socket.sendall(method_frame(channel, method))

    def _wait(self, wanted: type[Method]) -> Any:
        """The answer, after all whole frames that came with it are handled: a `connection.blocked` may follow it."""
        found = None
        while found is None:
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionFailed(f"{self._where} hung up instead of sending {wanted.NAME}; is it an AMQP broker?")
            try:
                frames, self._rest = split_frames(self._rest + data)
                for kind, _, payload in frames:
                    method = self.handle(kind, payload)
                    if isinstance(method, wanted):
                        found = method
            except AmqpError as error:
                raise ConnectionFailed(f"{self._where} does not speak AMQP 0-9-1: {error.text}") from error
        return found

    def raise_if_closed(self, method: Method) -> None:
        """Raise ConnectionFailed if the method is the broker's close of a channel or the connection."""
        if isinstance(method, (methods.ChannelClose, methods.ConnectionClose)):
            kind = ChannelRefused if isinstance(method, methods.ChannelClose) else ConnectionFailed
            raise kind(f"the broker at {self._where} refused: {method.reply_code} {method.reply_text}")

    # -- during the test, without waiting ---

    def start(self) -> None:
        self.socket.setblocking(False)

    def send(self, data: bytes) -> None:
        """Send as much as the socket takes. Nothing may be unsent."""
        assert self.unsent is None
        self.unsent = memoryview(data)
        self.send_rest()

    def send_rest(self) -> None:
        rest = self.unsent
        try:
            while rest:
                rest = rest[self.socket.send(rest) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            raise ConnectionFailed(f"lost the connection to {self._where}: {error.strerror}") from error
        self.unsent = rest or None

    def receive_into(self, room: memoryview) -> int:
        """Write what has arrived into `room`, and return its size. Raises ConnectionFailed at the end of the input."""
        if self._rest:
            part, self._rest = self._rest[: len(room)], self._rest[len(room) :]
            room[: len(part)] = part
            return len(part)
        try:
            size = self.socket.recv_into(room)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise ConnectionFailed(f"lost the connection to {self._where}: {error.strerror}") from error
        if not size:
            raise ConnectionFailed(f"the broker at {self._where} hung up")
        return size

    @property
    def has_decrypted(self) -> bool:
        """Whether the TLS layer has input that it has decrypted already, which a selector does not see."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def handle(self, kind: int, payload: bytes) -> Method | None:
        """Handle a frame that is no content: note `connection.blocked`, and return any other method.

        Raises ConnectionFailed if it is a close.
        """
        if kind != FRAME_METHOD:
            return None  # a heartbeat
        method = decode_method(payload)
        if isinstance(method, (methods.ConnectionBlocked, methods.ConnectionUnblocked)):
            self.is_blocked = isinstance(method, methods.ConnectionBlocked)
            return None
        self.raise_if_closed(method)
        return method

    def beat(self) -> None:
        """Send a heartbeat if nothing else waits to be sent."""
        if self.unsent is None:
            self.send(heartbeat())

    def close(self) -> None:
        """Close the connection, in order if the broker still answers."""
        try:
            self.socket.settimeout(1.0)
            if self.unsent is not None:
                self.socket.sendall(self.unsent)
            self._send_now(0, methods.ConnectionClose(200, "done"))
            while self.socket.recv(RECEIVE_BYTES):
                pass
        except OSError:
            pass
        self.socket.close()
