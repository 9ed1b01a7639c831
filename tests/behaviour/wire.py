"""A client that sends every method as written, and lets tests inspect every frame that arrives, in order.

It uses warren's own codec, which `tests/wire` compares with an independent one. It sends at once, and keeps what
arrives by channel until a test asks for it. A wait fails after `timeout` seconds, by default `TIMEOUT`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from warren.amqp import methods as m
from warren.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, method_frame, split_frames
from warren.amqp.properties import Properties, decode_properties, encode_properties

TIMEOUT = 60.0
CAPABILITIES = {"basic.nack": True, "consumer_cancel_notify": True, "publisher_confirms": True}

REPLIES: dict[type, tuple[type, ...]] = {
    m.ChannelOpen: (m.ChannelOpenOk,),
    m.ChannelClose: (m.ChannelCloseOk,),
    m.ChannelFlow: (m.ChannelFlowOk,),
    m.AccessRequest: (m.AccessRequestOk,),
    m.ExchangeDeclare: (m.ExchangeDeclareOk,),
    m.ExchangeDelete: (m.ExchangeDeleteOk,),
    m.ExchangeBind: (m.ExchangeBindOk,),
    m.ExchangeUnbind: (m.ExchangeUnbindOk,),
    m.QueueDeclare: (m.QueueDeclareOk,),
    m.QueueBind: (m.QueueBindOk,),
    m.QueueUnbind: (m.QueueUnbindOk,),
    m.QueuePurge: (m.QueuePurgeOk,),
    m.QueueDelete: (m.QueueDeleteOk,),
    m.BasicQos: (m.BasicQosOk,),
    m.BasicConsume: (m.BasicConsumeOk,),
    m.BasicCancel: (m.BasicCancelOk,),
    m.BasicGet: (m.BasicGetOk, m.BasicGetEmpty),
    m.BasicRecover: (m.BasicRecoverOk,),
    m.ConfirmSelect: (m.ConfirmSelectOk,),
    m.TxSelect: (m.TxSelectOk,),
    m.TxCommit: (m.TxCommitOk,),
    m.TxRollback: (m.TxRollbackOk,),
}


class Event(NamedTuple):
    """A method that has arrived, with its content if it has one."""

    method: Any
    properties: Properties | None = None
    body: bytes | None = None

    @property
    def tag(self) -> int:
        return self.method.delivery_tag

    @property
    def headers(self) -> Table | None:
        return self.properties.headers


class Refused(Exception):
    """Raised when the broker has sent channel.close or connection.close."""

    def __init__(self, close: Any) -> None:
        super().__init__(f"{close.reply_code} {close.reply_text}")
        self.close = close
        self.is_connection_error = isinstance(close, m.ConnectionClose)


def table(arguments: Mapping[str, Any] | None) -> Table:
    return arguments if isinstance(arguments, Table) else table_from(arguments or {})


def plain(text: str) -> str:
    """A reply text without the Erlang notation in which RabbitMQ prints strings."""
    return text.replace('<<"', '"').replace('">>', '"')


class Client:
    """One connection, which the constructor opens."""

    def __init__(
        self,
        url: str,
        capabilities: Mapping[str, bool] = CAPABILITIES,
        frame_max: int = 131_072,
        timeout: float = TIMEOUT,
    ) -> None:
        parts = urlsplit(url)
        self.frame_max = frame_max
        self.timeout = timeout
        self.vhost = unquote(parts.path[1:]) or "/"
        self.events: dict[int, deque[Event]] = {0: deque()}
        self._rest = b""
        self._contents: dict[int, list[Any]] = {}  # channel -> [method, properties, body parts, bytes missing]
        self._held: list[bytes] | None = None
        self._highest = 0
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PROTOCOL_HEADER)
        self.start = self.wait(0, m.ConnectionStart).method
        response = f"\0{parts.username}\0{parts.password}".encode()
        properties = table_from({"product": "behaviour tests", "capabilities": dict(capabilities)})
        self.send(0, m.ConnectionStartOk(properties, "PLAIN", response, "en_US"))
        tune = self.wait(0, m.ConnectionTune).method
        self.send(0, m.ConnectionTuneOk(tune.channel_max, frame_max, 0))
        self.send(0, m.ConnectionOpen(self.vhost))
        self.wait(0, m.ConnectionOpenOk)

    def channel(self, number: int = 0) -> Channel:
        """Open a channel; `number` 0 means the next unused one."""
        self._highest = max(self._highest, number) if number else self._highest + 1
        return Channel(self, number or self._highest)

    def send(self, channel: int, method: Any, body: bytes | None = None, properties: bytes = b"\0\0") -> None:
        frame = method_frame(channel, method)
        if body is not None:
            frame += build_content(channel, properties, body, self.frame_max)
        self.write(frame)

    def write(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        # `receive` may have left a time limit that is too short for a busy broker.
        self.socket.settimeout(self.timeout)
        self.socket.sendall(data)

    @contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """Send everything inside as one write."""
        self._held = []
        yield
        held, self._held = self._held, None
        self._write(b"".join(held))

    def wait(self, channel: int, *wanted: type) -> Event:
        """Take out the next event of the `wanted` types, or of any type if none is given. Other events stay.

        Raises Refused if the broker closes the channel or the connection first.
        """
        deadline = monotonic() + self.timeout
        while True:
            events = self.events[channel]
            for at, event in enumerate(events):
                if not wanted or isinstance(event.method, wanted):
                    del events[at]
                    return event
                if isinstance(event.method, m.ChannelClose):
                    del events[at]
                    self.send(channel, m.ChannelCloseOk())
                    raise Refused(event.method)
            for event in self.events[0]:
                if isinstance(event.method, m.ConnectionClose):
                    self.send(0, m.ConnectionCloseOk())
                    raise Refused(event.method)
            if not self.receive(deadline - monotonic()):
                names = " or ".join(kind.__name__ for kind in wanted) or "anything"
                raise AssertionError(
                    f"no {names} on channel {channel} within {self.timeout} s; received: {list(events)}"
                )

    def receive(self, seconds: float) -> bool:
        """Read from the socket; False if nothing arrives within `seconds`."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        if not data:
            raise ConnectionResetError("the broker hung up")
        frames, self._rest = split_frames(self._rest + data)
        for kind, channel, payload in frames:
            if kind == FRAME_METHOD:
                method = decode_method(payload)
                if method.HAS_CONTENT:
                    self._contents[channel] = [method, None, [], 0]
                else:
                    self.events.setdefault(channel, deque()).append(Event(method))
            elif kind == FRAME_HEADER:
                content = self._contents[channel]
                content[1], content[3] = decode_properties(payload[12:]), int.from_bytes(payload[4:12], "big")
            elif kind == FRAME_BODY:
                content = self._contents[channel]
                content[2].append(payload)
                content[3] -= len(payload)
            if kind in (FRAME_HEADER, FRAME_BODY) and not self._contents[channel][3]:
                method, properties, parts, _ = self._contents.pop(channel)
                self.events[channel].append(Event(method, properties, b"".join(parts)))
        return True

    def close(self) -> None:
        """Close the connection and wait for close-ok."""
        self.send(0, m.ConnectionClose(200, "bye"))
        self.wait(0, m.ConnectionCloseOk)
        self.socket.close()

    def abort(self) -> None:
        """Close the socket without connection.close."""
        self.socket.close()

    def reset(self) -> None:
        """Reset the TCP connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Channel:
    """One channel, which the constructor opens. `arguments` and `headers` are mappings or tables."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.vhost = client.vhost
        client.events[number] = deque()
        self.call(m.ChannelOpen())

    # -- anything

    def send(self, method: Any, body: bytes | None = None, properties: bytes = b"\0\0") -> None:
        self.client.send(self.number, method, body, properties)

    def call(self, method: Any) -> Any:
        """Send a method and return the one that answers it."""
        self.send(method)
        return self.wait(*REPLIES[type(method)]).method

    def wait(self, *wanted: type) -> Event:
        return self.client.wait(self.number, *wanted)

    @property
    def pending(self) -> list[Event]:
        """The events that no test has asked for yet."""
        return list(self.client.events[self.number])

    def refuses(
        self, code: int, text: str, method: Any = None, body: bytes | None = None, properties: bytes = b"\0\0"
    ) -> None:
        """Send `method`, and assert that the broker refuses it with this code and text and the ids of the method."""
        if method is not None:
            self.send(method, body, properties)
        try:
            self.wait(m.ChannelCloseOk)
        except Refused as refused:
            close = refused.close
            expected = AmqpError(code, text)
            assert (close.reply_code, plain(close.reply_text)) == (code, expected.reply_text)
            assert refused.is_connection_error == expected.is_connection_error
            if method is not None:
                assert (close.class_id, close.method_id) == (method.CLASS_ID, method.METHOD_ID)

    def close(self) -> None:
        self.call(m.ChannelClose(200, "bye"))

    # -- exchanges and queues

    def exchange(
        self, name: str, type: str = "direct", arguments: Mapping[str, Any] | None = None, **flags: bool
    ) -> str:
        self.call(m.ExchangeDeclare(exchange=name, type=type, arguments=table(arguments), **flags))
        return name

    def queue(self, name: str = "", arguments: Mapping[str, Any] | None = None, **flags: bool) -> str:
        return self.declare(name, arguments, **flags).queue

    def declare(self, name: str = "", arguments: Mapping[str, Any] | None = None, **flags: bool) -> m.QueueDeclareOk:
        return self.call(m.QueueDeclare(queue=name, arguments=table(arguments), **flags))

    def ready(self, name: str) -> int:
        """The number of ready messages of a queue."""
        return self.declare(name, passive=True).message_count

    def expect_ready(self, name: str, count: int) -> None:
        """Wait until the queue has `count` ready messages.

        In RabbitMQ the answer to a declare may overtake earlier publishes.
        """
        deadline = monotonic() + TIMEOUT
        while (found := self.ready(name)) != count:
            assert monotonic() < deadline, f"{found} ready messages instead of {count}"
            sleep(0.005)

    def bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        self.call(m.QueueBind(queue=queue, exchange=exchange, routing_key=routing_key, arguments=table(arguments)))

    def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        self.call(
            m.ExchangeBind(destination=destination, source=source, routing_key=routing_key, arguments=table(arguments))
        )

    def purge(self, queue: str) -> int:
        return self.call(m.QueuePurge(queue=queue)).message_count

    def delete(self, queue: str, **flags: bool) -> int:
        return self.call(m.QueueDelete(queue=queue, **flags)).message_count

    # -- messages

    def publish(
        self,
        body: bytes | str,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        encoded = body.encode() if isinstance(body, str) else body
        known = Properties(headers=None if headers is None else table(headers), **properties)
        self.send(
            m.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory),
            encoded,
            encode_properties(known),
        )

    def fill(self, queue: str, *bodies: str) -> None:
        """Publish to an empty queue without consumers, and wait until all messages are ready."""
        for body in bodies:
            self.publish(body, queue)
        self.expect_ready(queue, len(bodies))

    def get(self, queue: str, no_ack: bool = False) -> Event | None:
        self.send(m.BasicGet(queue=queue, no_ack=no_ack))
        event = self.wait(m.BasicGetOk, m.BasicGetEmpty)
        return event if isinstance(event.method, m.BasicGetOk) else None

    def get_all(self, queue: str) -> list[bytes]:
        """Get all ready messages without ack, and return their bodies."""
        bodies = []
        while (event := self.get(queue, no_ack=True)) is not None:
            bodies.append(event.body)
        return bodies

    def consume(self, queue: str, tag: str = "", arguments: Mapping[str, Any] | None = None, **flags: bool) -> str:
        return self.call(
            m.BasicConsume(queue=queue, consumer_tag=tag, arguments=table(arguments), **flags)
        ).consumer_tag

    def cancel(self, tag: str) -> None:
        self.call(m.BasicCancel(tag))

    def delivery(self) -> Event:
        return self.wait(m.BasicDeliver)

    def deliveries(self, count: int) -> list[Event]:
        return [self.delivery() for _ in range(count)]

    def bodies(self, count: int) -> list[bytes]:
        return [event.body for event in self.deliveries(count)]

    def quiet(self, queue: str) -> bool:
        """Whether no unexpected delivery has come when `queue` has handled all that was sent to it."""
        # Deliveries that the queue prepares at the first request are sent before the answer to the second one.
        for _ in range(2):
            self.ready(queue)
        return not any(isinstance(event.method, m.BasicDeliver) for event in self.pending)

    def take(self, queue: str, count: int) -> list[Event]:
        """Consume `count` messages from `queue`, and fail if it has more."""
        tag = self.consume(queue, no_ack=True)
        taken = self.deliveries(count)
        self.cancel(tag)
        assert not self.pending
        return taken

    def qos(self, count: int, global_: bool = False) -> None:
        self.call(m.BasicQos(0, count, global_))

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send(m.BasicAck(tag, multiple))

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self.send(m.BasicNack(tag, multiple, requeue))

    def reject(self, tag: int, requeue: bool = True) -> None:
        self.send(m.BasicReject(tag, requeue))

    # -- confirms

    def confirm(self) -> None:
        self.call(m.ConfirmSelect())

    def confirms(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Wait until the publishes first to last are answered, each once; return the acked and the nacked ones."""
        waiting = set(range(first, last + 1))
        acked: list[int] = []
        nacked: list[int] = []
        while waiting:
            method = self.wait(m.BasicAck, m.BasicNack).method
            numbers = (
                sorted(n for n in waiting if n <= method.delivery_tag) if method.multiple else [method.delivery_tag]
            )
            assert waiting.issuperset(numbers), f"{method} settles a publish a second time"
            waiting.difference_update(numbers)
            (acked if isinstance(method, m.BasicAck) else nacked).extend(numbers)
        return acked, nacked
