"""`Peer`: the client's side of AMQP 0-9-1 over a simulated connection. A subclass decides what to do with it.

It decodes the frames that it receives to methods with their contents, and does the handshake of the connection.
"""

from __future__ import annotations

from typing import NamedTuple

from ...amqp import methods
from ...amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER
from ...amqp.decoding import decode_method
from ...amqp.fields import table_from
from ...amqp.frames import build_content, heartbeat, method_frame
from ...amqp.method import Method
from ...amqp.properties import Properties, encode_properties
from ...runtime.sim.client import SimStream

FRAME_MAX = 131_072
_FRAME_END = 0xCE
#: Bytes of a frame beside its payload.
_OVERHEAD = 8
_CAPABILITIES = table_from(
    {
        "capabilities": {
            "consumer_cancel_notify": True,
            "basic.nack": True,
            "publisher_confirms": True,
            "connection.blocked": True,
        }
    }
)


class SimContent(NamedTuple):
    """The content of a method; `props` are encoded."""

    props: bytes
    body: bytes


class _PartialContent(NamedTuple):
    """A content whose body has not arrived completely; `size` is -1 before its header."""

    channel: int
    method: Method
    size: int
    props: bytes
    parts: list[bytes]


class Peer:
    """Logs in as guest on '/'. A subclass gets `on_open`, `on_method` and `on_lost`.

    heartbeat   in seconds, 0 for none. Each heartbeat of the broker is answered with one, which is often enough and
                needs no timer
    """

    stream: SimStream

    def __init__(self, heartbeat: int = 0) -> None:
        self._heartbeat = heartbeat
        self._buffer = bytearray()
        #: At most one, since the broker writes the frames of a content together.
        self._content: _PartialContent | None = None

    # -- for subclasses ---

    def on_open(self) -> None:
        """The connection is open."""

    def on_method(self, channel: int, method: Method, content: SimContent | None) -> None:
        """A method arrives that is not of the handshake, with its content if it has one."""

    def on_lost(self, stream: SimStream, reason: str) -> None:
        """See `runtime.sim.client.SimClient`."""

    def send(
        self, channel: int, method: Method, body: bytes | None = None, properties: Properties | None = None
    ) -> None:
        """Send a method, with a content if there is a `body`."""
        data = method_frame(channel, method)
        if body is not None:
            data += build_content(channel, encode_properties(properties or Properties()), body, FRAME_MAX)
        self.stream.write(data)

    # -- called by the world ---

    def on_connected(self, stream: SimStream) -> None:
        stream.write(PROTOCOL_HEADER)

    def on_data(self, stream: SimStream, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _OVERHEAD:
            size = int.from_bytes(buffer[at + 3 : at + 7], "big")
            if len(buffer) - at < size + _OVERHEAD:
                break
            kind, channel = buffer[at], int.from_bytes(buffer[at + 1 : at + 3], "big")
            payload = bytes(buffer[at + 7 : at + 7 + size])
            assert buffer[at + 7 + size] == _FRAME_END, "a frame has no frame-end byte"
            at += size + _OVERHEAD
            self._on_frame(kind, channel, payload)
        del buffer[:at]

    def _on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD:
            assert self._content is None, "a method arrived between the frames of a content"
            method = decode_method(payload)
            if method.HAS_CONTENT:
                self._content = _PartialContent(channel, method, -1, b"", [])
            else:
                self._on_method(channel, method)
        elif kind in (FRAME_HEADER, FRAME_BODY):
            content = self._content
            assert content is not None and content.channel == channel, "a content has no method"
            if kind == FRAME_HEADER:
                content = content._replace(size=int.from_bytes(payload[4:12], "big"), props=payload[12:])
            else:
                content.parts.append(payload)
            self._content = content
            if sum(map(len, content.parts)) >= content.size:
                self._content = None
                self.on_method(channel, content.method, SimContent(content.props, b"".join(content.parts)))
        elif kind == FRAME_HEARTBEAT and self._heartbeat:
            self.stream.write(heartbeat())

    def _on_method(self, channel: int, method: Method) -> None:
        if isinstance(method, methods.ConnectionStart):
            self.send(
                0,
                methods.ConnectionStartOk(
                    client_properties=_CAPABILITIES, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
                ),
            )
        elif isinstance(method, methods.ConnectionTune):
            self.send(0, methods.ConnectionTuneOk(method.channel_max, FRAME_MAX, self._heartbeat))
            self.send(0, methods.ConnectionOpen("/"))
        elif isinstance(method, methods.ConnectionOpenOk):
            self.on_open()
        else:
            self.on_method(channel, method, None)
