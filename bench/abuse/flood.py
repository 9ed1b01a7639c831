"""`Flood`: a connection that sends any number of frames without waiting, and counts the answers."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from types import TracebackType

from ...amqp import methods
from ...amqp.decoding import decode_method
from ...amqp.fields import Table
from ...amqp.frames import build_content, method_frame, split_frames
from ...amqp.method import Method
from ..load.broker import BrokerFailed

#: Seconds after which a broker that sends nothing has failed.
TIMEOUT = 300.0

_METHOD = 1


def publish(exchange: str, routing_key: str, body: bytes = b"x", properties: bytes = b"\0\0") -> bytes:
    """The frames of one message on channel 1, by default a transient one."""
    return method_frame(1, methods.BasicPublish(0, exchange, routing_key)) + build_content(1, properties, body, 131072)


class Flood:
    """An open connection, which may use channel numbers up to `channels` if the broker allows that."""

    def __init__(self, port: int, channels: int = 2047, vhost: str = "/") -> None:
        self._unread = b""
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.send(b"AMQP\0\0\x09\x01")
        self.answers(1)
        self.send(method_frame(0, methods.ConnectionStartOk(Table(), "PLAIN", b"\0guest\0guest", "en_US")))
        tune = self.answers(1)[0]
        assert isinstance(tune, methods.ConnectionTune)
        #: The highest channel number that the client may use.
        self.channel_max = min(channels, tune.channel_max or 65535)
        self.send(method_frame(0, methods.ConnectionTuneOk(self.channel_max, 131072, 0)))
        self.call(methods.ConnectionOpen(vhost, "", False), channel=0)

    def open_channel(self) -> None:
        self.call(methods.ChannelOpen())

    def call(self, method: Method, channel: int = 1) -> Method:
        """Send `method` and return its answer."""
        self.send(method_frame(channel, method))
        return self.answers(1)[0]

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answers(self, count: int) -> list[Method]:
        """The next `count` methods that the broker sends. Raises BrokerFailed if one is a close."""
        found: list[Method] = []
        while len(found) < count:
            data = self.socket.recv(1 << 18)
            if not data:
                raise BrokerFailed("the broker hung up")
            found += self._take(data)
        return found

    def _take(self, data: bytes) -> list[Method]:
        frames, self._unread = split_frames(self._unread + data)
        found = [decode_method(payload) for kind, _, payload in frames if kind == _METHOD]
        for method in found:
            if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
                raise BrokerFailed(f"the broker closed: {method.reply_code} {method.reply_text}")
        return found

    def skip(self, size: int) -> None:
        """Receive `size` bytes of deliveries that are all alike, and drop them."""
        while size > 0:
            data = self.socket.recv(min(size, 1 << 18))
            if not data:
                raise BrokerFailed("the broker hung up")
            size -= len(data)

    def stream(self, frames: Iterable[bytes], answers: int) -> None:
        """Send all frames as fast as the broker takes them, and return when it has sent `answers` methods."""
        unsent = memoryview(b"".join(frames))
        while answers > 0:
            readable, writable, _ = select.select([self.socket], [self.socket] if unsent else [], [], TIMEOUT)
            if not readable and not writable:
                raise BrokerFailed(f"the broker has sent nothing for {TIMEOUT:.0f} s")
            if writable:
                unsent = unsent[self.socket.send(unsent[: 1 << 16]) :]
            if readable:
                answers -= len(self.answers(1))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Flood:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
