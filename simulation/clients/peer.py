"""The client's side of AMQP 0-9-1 over a simulated stream: frames in, methods out, and the handshake. What to do with it is a subclass's matter."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...amqp import methods
from ...amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER
from ...amqp.decoding import decode_method
from ...amqp.fields import table_from
from ...amqp.frames import build_content, heartbeat, method_frame
from ...amqp.properties import Properties, encode_properties
from ...runtime.sim.client import SimStream

FRAME_MAX = 131_072
_FRAME_END = 0xCE
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
    """What came with a method; `props` are encoded."""

    props: bytes
    body: bytes


class Peer:
    """Logs in as guest on '/'. A subclass hears `on_open`, `on_method` and `on_lost`.

    With a `heartbeat`, in seconds, every heartbeat of the broker is answered with one: so there are enough, and no timer is needed for them.
    """

    stream: SimStream

    def __init__(self, heartbeat: int = 0) -> None:
        self._heartbeat = heartbeat
        self._buffer = bytearray()
        self._content: tuple[int, Any, int, bytes, list[bytes]] | None = (
            None  # of one channel at a time: the broker writes contents whole
        )

    # -- what a subclass hears ---------------------------------------------------------------------

    def on_open(self) -> None:
        """The connection is open."""

    def on_method(self, channel: int, method: Any, content: SimContent | None) -> None:
        """A method that is not of the handshake, with its content if it has one."""

    def on_lost(self, stream: SimStream, reason: str) -> None:
        """See `runtime.sim.client.SimClient`."""

    # -- sending -----------------------------------------------------------------------------------

    def send(self, channel: int, method: Any, body: bytes | None = None, properties: Properties | None = None) -> None:
        data = method_frame(channel, method)
        if body is not None:
            data += build_content(channel, encode_properties(properties or Properties()), body, FRAME_MAX)
        self.stream.write(data)

    # -- what the world calls ----------------------------------------------------------------------

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
            assert buffer[at + 7 + size] == _FRAME_END, "a frame without its end"
            at += size + _OVERHEAD
            self._frame(kind, channel, payload)
        del buffer[:at]

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD:
            assert self._content is None, "a method came within a content"
            method: Any = decode_method(payload)
            if method.HAS_CONTENT:
                self._content = (channel, method, -1, b"", [])
            else:
                self._method(channel, method)
        elif kind in (FRAME_HEADER, FRAME_BODY):
            assert self._content is not None and self._content[0] == channel, "a content that no method began"
            _, method, size, props, pieces = self._content
            if kind == FRAME_HEADER:
                size, props = int.from_bytes(payload[4:12], "big"), payload[12:]
            else:
                pieces.append(payload)
            self._content = (channel, method, size, props, pieces)
            if sum(map(len, pieces)) >= size:
                self._content = None
                self.on_method(channel, method, SimContent(props, b"".join(pieces)))
        elif kind == FRAME_HEARTBEAT and self._heartbeat:
            self.stream.write(heartbeat())

    def _method(self, channel: int, method: Any) -> None:
        kind = type(method)
        if kind is methods.ConnectionStart:
            self.send(
                0,
                methods.ConnectionStartOk(
                    client_properties=_CAPABILITIES, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
                ),
            )
        elif kind is methods.ConnectionTune:
            self.send(0, methods.ConnectionTuneOk(method.channel_max, FRAME_MAX, self._heartbeat))
            self.send(0, methods.ConnectionOpen("/"))
        elif kind is methods.ConnectionOpenOk:
            self.on_open()
        else:
            self.on_method(channel, method, None)
