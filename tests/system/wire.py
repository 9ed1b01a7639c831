"""A client that shows every frame as it is on the socket, in order, and waits for each until a deadline.

    wire = Wire.open(broker.address)                       # the whole handshake
    wire.open_channel(1)
    ok = wire.call(1, QueueDeclare(exclusive=True))        # send, then the next method on that channel
    wire.publish(1, b"body", routing_key=ok.queue)
    wire.method(1, ChannelClose)                           # the next method on channel 1 must be this

The codec is warren's; everything else is independent of it, and the tests also run against RabbitMQ.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Any, NamedTuple, TypeVar

from warren.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, frame, method_frame, split_frames
from warren.amqp.method import Method
from warren.amqp.methods import (
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)

#: Seconds until a frame counts as missing. It is long enough for a busy machine; only failing tests wait for it.
TIMEOUT = 25.0

#: Seconds of silence after a refused login, or a fault that leaves the input out of step (AB-18, AB-38).
SLOW_DROP = 3.0

PLAIN = b"\0guest\0guest"
NO_PROPERTIES = b"\x00\x00"
CAPABILITIES = {
    "authentication_failure_close": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
}

M = TypeVar("M", bound=Method)
Address = tuple[str, int]


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    def __repr__(self) -> str:
        if self.kind == FRAME_METHOD:
            return f"<{self.channel}: {decode_method(self.payload)}>"
        return f"<{self.channel}: type {self.kind}, {len(self.payload)} octets>"


class HungUp(Exception):
    """The broker closed the socket."""


class Wire:
    """One TCP connection to a broker. `seen` counts received bytes."""

    def __init__(self, address: Address) -> None:
        self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_max = 4096
        self.seen = 0
        self.waiting: deque[Frame] = deque()
        self._rest = b""

    # -- the handshake, step by step ---------------------------------------------------------------------------------

    @classmethod
    def started(cls, address: Address) -> Wire:
        """Connect, up to connection.start of the broker."""
        wire = cls(address)
        wire.send(PROTOCOL_HEADER)
        wire.method(0, ConnectionStart)
        return wire

    @classmethod
    def tuning(cls, address: Address, **start_ok: Any) -> tuple[Wire, ConnectionTune]:
        """Connect and log in, up to connection.tune of the broker."""
        wire = cls.started(address)
        wire.send_start_ok(**start_ok)
        return wire, wire.method(0, ConnectionTune)

    @classmethod
    def opening(
        cls, address: Address, heartbeat: int = 0, frame_max: int = 0, channel_max: int = 0, **start_ok: Any
    ) -> Wire:
        """Connect and go on until the client has sent tune-ok, with the broker's values where 0 is given, and no
        heartbeats.
        """
        wire, tune = cls.tuning(address, **start_ok)
        wire.frame_max = frame_max or tune.frame_max
        wire.send_method(0, ConnectionTuneOk(channel_max or tune.channel_max, wire.frame_max, heartbeat))
        return wire

    @classmethod
    def open(cls, address: Address, vhost: str = "/", **options: Any) -> Wire:
        """A running connection."""
        wire = cls.opening(address, **options)
        wire.send_method(0, ConnectionOpen(vhost))
        wire.method(0, ConnectionOpenOk)
        return wire

    def send_start_ok(
        self,
        mechanism: str = "PLAIN",
        response: bytes = PLAIN,
        capabilities: dict[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        announced = CAPABILITIES if capabilities is None else capabilities
        table = table_from({"product": "wire", "capabilities": announced, **properties})
        self.send_method(0, ConnectionStartOk(table, mechanism, response, "en_US"))

    def open_channel(self, number: int) -> None:
        self.call(number, ChannelOpen(), ChannelOpenOk)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, *octets: bytes) -> None:
        self.sock.sendall(b"".join(octets))

    def send_method(self, channel: int, method: Method) -> None:
        self.send(method_frame(channel, method))

    def send_frame(self, kind: int, channel: int, payload: bytes = b"") -> None:
        self.send(frame(kind, channel, payload))

    def publish(
        self,
        channel: int,
        body: bytes,
        routing_key: str = "",
        exchange: str = "",
        props: bytes = NO_PROPERTIES,
        **fields: Any,
    ) -> None:
        self.send(publish_frames(channel, body, routing_key, exchange, props, self.frame_max, **fields))

    def send_until_refused(self, octets: bytes, limit: int, timeout: float = 0.5) -> int:
        """Send `octets` repeatedly until the socket takes no more for `timeout` seconds, or `limit` bytes are sent.

        Returns the number of bytes sent.
        """
        total = 0
        self.sock.settimeout(timeout)
        try:
            while total < limit:
                total += self.sock.send(memoryview(octets)[total % len(octets) :])
        except TimeoutError:
            pass
        finally:
            self.sock.settimeout(TIMEOUT)
        return total

    # -- receiving ---------------------------------------------------------------------------------------------------

    def frame(self, timeout: float = TIMEOUT) -> Frame:
        """The next frame of any channel, heartbeats included. HungUp at the end of the stream, TimeoutError if none
        comes."""
        deadline = time.monotonic() + timeout
        while not self.waiting:
            self._receive(deadline)
        return self.waiting.popleft()

    def _receive(self, deadline: float) -> None:
        self.sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.sock.recv(262_144)
        except TimeoutError:
            raise TimeoutError("no frame in time") from None
        except OSError as error:
            raise HungUp(f"{error.strerror}; unread: {self._rest!r}") from None
        finally:
            self.sock.settimeout(TIMEOUT)
        if not data:
            raise HungUp(f"unread: {self._rest!r}" if self._rest else "")
        self.seen += len(data)
        found, self._rest = split_frames(self._rest + data)
        self.waiting += (Frame(*item) for item in found)

    def raw(self, count: int) -> bytes:
        """Exactly `count` bytes, before any frame is read."""
        octets = b""
        while len(octets) < count:
            data = self.sock.recv(count - len(octets))
            if not data:
                raise HungUp(f"after {octets!r}")
            octets += data
        return octets

    def on(self, channel: int, timeout: float = TIMEOUT) -> Frame:
        """The next frame on that channel; frames of other channels are kept, heartbeats dropped."""
        deadline = time.monotonic() + timeout
        passed: deque[Frame] = deque()
        try:
            while True:
                found = self.frame(deadline - time.monotonic())
                if found.kind == FRAME_HEARTBEAT:
                    continue
                if found.channel == channel:
                    return found
                if found.channel == 0:
                    raise AssertionError(f"waiting on channel {channel}, there came {found}")
                passed.append(found)
        finally:
            self.waiting.extendleft(reversed(passed))

    def method(self, channel: int, kind: type[M], timeout: float = TIMEOUT) -> M:
        """The next frame on that channel, which must be this method."""
        found = self.on(channel, timeout)
        assert found.kind == FRAME_METHOD, found
        method = decode_method(found.payload)
        assert isinstance(method, kind), f"expected {kind.NAME} on channel {channel}, received {method}"
        return method

    def call(self, channel: int, method: Method, answer: type[M] = Method) -> M:
        """Send `method` and return the next method on its channel."""
        self.send_method(channel, method)
        return self.method(channel, answer)

    def content(self, channel: int) -> tuple[bytes, bytes]:
        """Read the header frame and the body frames that come next on that channel; return properties and body."""
        header = self.on(channel)
        assert header.kind == FRAME_HEADER, header
        missing = int.from_bytes(header.payload[4:12], "big")
        body = []
        while missing:
            piece = self.on(channel)
            assert piece.kind == FRAME_BODY, piece
            body.append(piece.payload)
            missing -= len(piece.payload)
        return header.payload[12:], b"".join(body)

    # -- ends --------------------------------------------------------------------------------------------------------

    def expect_hang_up(self, timeout: float = TIMEOUT) -> None:
        """Wait until the broker closes the socket; fail if it sends anything more."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                found = self.frame(deadline - time.monotonic())
                assert found.kind == FRAME_HEARTBEAT, f"expected the end of the stream, received {found}"
        except HungUp as end:
            assert "unread" not in str(end) or str(end).endswith("b''"), end

    def expect_close(self, code: int, text: str, ids: tuple[int, int] = (0, 0), answer: bool = True) -> ConnectionClose:
        """Wait until the broker closes the connection with this code, text and method; with `answer` send close-ok.

        A `text` that ends in `...` is the beginning of the reply text.
        """
        close = self.method(0, ConnectionClose)
        assert_reply(close, code, text, ids)
        if answer:
            self.send_method(0, ConnectionCloseOk())
            self.expect_hang_up()
        return close

    def close(self) -> None:
        """Close the connection in order, for tests of something else."""
        self.send_method(0, ConnectionClose(200, "", 0, 0))
        while True:
            found = self.frame()
            if (
                found.kind == FRAME_METHOD
                and found.channel == 0
                and isinstance(decode_method(found.payload), ConnectionCloseOk)
            ):
                break
        self.sock.close()

    def hang_up(self) -> None:
        self.sock.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def assert_reply(close: Any, code: int, text: str, ids: tuple[int, int]) -> None:
    """Check the fields of a close; a `text` that ends in `...` is only the beginning."""
    received = (close.reply_code, close.reply_text, (close.class_id, close.method_id))
    if text.endswith("..."):
        assert close.reply_text.startswith(text[:-3]), received
        text = close.reply_text
    assert received == (code, text, ids)


def publish_frames(
    channel: int,
    body: bytes,
    routing_key: str = "",
    exchange: str = "",
    props: bytes = NO_PROPERTIES,
    frame_max: int = 4096,
    **fields: Any,
) -> bytes:
    """The frames of a basic.publish with its content."""
    publish = BasicPublish(exchange=exchange, routing_key=routing_key, **fields)
    return method_frame(channel, publish) + build_content(channel, props, body, frame_max)


def text_of(table: Table, name: str) -> str:
    """The long string `name` of a table."""
    found = table.get(name)
    assert found is not None and found[0] == "S", (name, found)
    return found[1].decode("utf-8")
