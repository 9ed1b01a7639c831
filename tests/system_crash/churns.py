"""Clients that make and remove one kind of entity again and again, as `test_nothing_left` and `bench/churn.py` do.

A churn is called with the broker and a range of numbers; it makes one entity, or a few, for each number, uses it, and
removes it. When it returns, the broker has answered everything, and nothing of it must be left.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from warren.amqp import methods
from warren.amqp.constants import FRAME_METHOD
from warren.amqp.decoding import decode_method
from warren.amqp.fields import table_from
from warren.amqp.frames import method_frame
from warren.amqp.method import Method
from warren.amqp.properties import Properties, decode_properties, encode_properties
from warren.tests.system.wire import HungUp, Wire, publish_frames

#: SO_LINGER with which `close` resets the connection.
RESET = struct.pack("ii", 1, 0)
#: Encoded properties: delivery mode 2 and nothing else.
PERSISTENT = b"\x10\x00\x02"
#: More bytes than the journal takes (`embed_below`), so that the message store keeps the body.
LARGE = 5000
#: Entities whose methods are sent in one write.
BURST = 20


class Site(Protocol):
    """What a churn uses of a `Broker`."""

    host: str
    port: int
    create_vhost: Callable[[str], None]
    delete_vhost: Callable[[str], None]
    declare_queue: Callable[[str], Any]
    delete_queue: Callable[[str], Any]
    publish: Callable[..., Any]
    get: Callable[..., Any]


Churn = Callable[[Site, range], None]

CHURNS: dict[str, Churn] = {}


def churn(function: Churn) -> Churn:
    CHURNS[function.__name__] = function
    return function


def frames(channel: int, *methods: Method | bytes) -> bytes:
    return b"".join(method if isinstance(method, bytes) else method_frame(channel, method) for method in methods)


def read_until(wire: Wire, channel: int | None, kind: type[Method], count: int = 1) -> None:
    """Read frames until `count` methods of this kind have come on that channel, or on any. Broker errors fail."""
    while count:
        found = wire.frame()
        if found.kind == FRAME_METHOD:
            method = decode_method(found.payload)
            if channel in (None, found.channel) and isinstance(method, kind):
                count -= 1
            else:
                assert not isinstance(method, (methods.ChannelClose, methods.ConnectionClose)), method


@contextmanager
def channel(site: Site, **options: Any) -> Iterator[Wire]:
    """A connection whose channel 1 is open. It is closed in order."""
    wire = open_channel(site, **options)
    yield wire
    wire.close()


def open_channel(site: Site, **options: Any) -> Wire:
    wire = Wire.open((site.host, site.port), **options)
    wire.open_channel(1)
    return wire


def in_bursts(site: Site, numbers: range, make: Callable[[int], bytes], last: type[Method], **options: Any) -> None:
    """Send what `make` returns for each number, and await the `last` method of each, on any channel."""
    with channel(site, **options) as wire:
        for start in range(0, len(numbers), BURST):
            burst = numbers[start : start + BURST]
            wire.send(*map(make, burst))
            read_until(wire, None, last, len(burst))


def own_channel(number: int) -> int:
    """The number of a channel that nothing else of the burst uses."""
    return 2 + number % BURST


def message(queue: str, body: bytes = b"x" * 100, props: bytes = PERSISTENT, **fields: Any) -> bytes:
    return publish_frames(1, body, queue, props=props, **fields)


# -- queues --------------------------------------------------------------------------------------------


def queues(site: Site, numbers: range, arguments: dict[str, Any] | None = None, **fields: Any) -> None:
    table = table_from(arguments or {})

    def make(number: int) -> bytes:
        name = f"churn {number}"
        return frames(
            1,
            methods.QueueDeclare(queue=name, arguments=table, **fields),
            methods.QueueBind(queue=name, exchange="amq.topic", routing_key=f"{number}.*"),
            message(name),
            message(name, bytes(LARGE)),
            message(name, bytes(LARGE), props=b"\x00\x00"),
            methods.QueueDelete(queue=name),
        )

    in_bursts(site, numbers, make, methods.QueueDeleteOk)


@churn
def transient_queues(site: Site, numbers: range) -> None:
    queues(site, numbers)


@churn
def durable_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, durable=True)


@churn
def exclusive_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, exclusive=True)


@churn
def priority_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, {"x-max-priority": 5}, durable=True)


@churn
def lazy_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, {"x-queue-mode": "lazy"}, durable=True)


@churn
def limited_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, {"x-max-length": 1, "x-message-ttl": 60_000, "x-expires": 60_000}, durable=True)


@churn
def sharded_queues(site: Site, numbers: range) -> None:
    queues(site, numbers, {"x-warren-shards": 3}, durable=True)


@churn
def sharded_queues_with_consumers(site: Site, numbers: range) -> None:
    """Sharded queues that are deleted with their consumer, which has a message unacknowledged and a prefetch."""

    def make(number: int) -> bytes:
        name = f"churn {number}"
        return frames(
            1,
            methods.QueueDeclare(queue=name, auto_delete=True, arguments=table_from({"x-warren-shards": 3})),
            methods.BasicQos(prefetch_count=1),
            methods.BasicConsume(queue=name, consumer_tag=name),
            *[message(name) for _ in range(4)],
            methods.BasicCancel(name),
        )

    in_bursts(site, numbers, make, methods.BasicCancelOk)


@churn
def auto_delete_queues(site: Site, numbers: range) -> None:
    """Auto-delete queues, each of which is deleted with its consumer, which has a message unacknowledged."""

    def make(number: int) -> bytes:
        name = f"churn {number}"
        return frames(
            1,
            methods.QueueDeclare(queue=name, auto_delete=True),
            methods.BasicConsume(queue=name, consumer_tag=name),
            message(name),
            methods.BasicCancel(name),
        )

    in_bursts(site, numbers, make, methods.BasicCancelOk)


@churn
def queues_deleted_under_their_consumers(site: Site, numbers: range) -> None:
    def make(number: int) -> bytes:
        name = f"churn {number}"
        return frames(
            1,
            methods.QueueDeclare(queue=name),
            methods.BasicConsume(queue=name, consumer_tag=name),
            message(name),
            methods.QueueDelete(queue=name),
        )

    in_bursts(site, numbers, make, methods.QueueDeleteOk)


@churn
def bindings(site: Site, numbers: range) -> None:
    def make(number: int) -> bytes:
        pieces: list[Method | bytes] = []
        for exchange in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers"):
            binding = {
                "queue": "churned",
                "exchange": exchange,
                "routing_key": f"{number}.*",
                "arguments": table_from({"number": number}),
            }
            pieces += [
                methods.QueueBind(**binding),
                message(f"{number}.x", exchange=exchange),
                methods.QueueUnbind(**binding),
            ]
        return frames(1, *pieces, methods.QueuePurge(queue="churned"))

    site.declare_queue("churned")
    in_bursts(site, numbers, make, methods.QueuePurgeOk)
    site.delete_queue("churned")


@churn
def exchanges(site: Site, numbers: range) -> None:
    """Exchanges with bindings, also from exchange to exchange, and one that deletes itself."""

    def make(number: int) -> bytes:
        pieces: list[Method | bytes] = []
        for kind in ("direct", "fanout", "topic", "headers"):
            name = f"churn {kind} {number}"
            pieces += [
                methods.ExchangeDeclare(exchange=name, type=kind, durable=number % 2 == 0, auto_delete=kind == "topic"),
                methods.ExchangeBind(destination="amq.direct", source=name, routing_key="key"),
                methods.ExchangeBind(destination=name, source="amq.topic", routing_key=f"#.{number}"),
                message(f"a.{number}", exchange="amq.topic"),
                methods.ExchangeUnbind(destination="amq.direct", source=name, routing_key="key"),
                methods.ExchangeDelete(exchange=name),
            ]
        return frames(1, *pieces, methods.BasicQos(0, 0, False))

    in_bursts(site, numbers, make, methods.BasicQosOk)


# -- connections and channels --------------------------------------------------------------------------


@churn
def connections(site: Site, numbers: range) -> None:
    for number in numbers:
        with channel(site) as wire:
            wire.call(1, methods.QueueDeclare(queue=f"churn {number}", exclusive=True))


@churn
def resets(site: Site, numbers: range) -> None:
    """Connections whose clients vanish with a consumer, a transaction and half a message."""
    site.declare_queue("churned")
    for number in numbers:
        wire = Wire.open((site.host, site.port))
        wire.send(
            frames(1, methods.ChannelOpen(), methods.QueueDeclare(queue=f"churn {number}", exclusive=True)),
            frames(1, methods.BasicConsume(queue=f"churn {number}"), message(f"churn {number}")),
            frames(1, methods.BasicConsume(queue="churned"), message("churned", b"")),
            frames(2, methods.ChannelOpen(), methods.TxSelect(), publish_frames(2, b"x", "churned")),
            publish_frames(1, bytes(100_000), "churned")[:50_000],
        )
        wire.method(2, methods.ChannelOpenOk)
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        wire.sock.close()
    site.delete_queue("churned")


@churn
def handshakes_given_up(site: Site, numbers: range) -> None:
    for number in numbers:
        if number % 2:
            Wire.started((site.host, site.port)).sock.close()
        else:
            wire = Wire((site.host, site.port))
            wire.send(b"GET / HTTP/1.1\r\n\r\n")
            wire.raw(8)
            wire.sock.close()


@churn
def refused_logins(site: Site, numbers: range) -> None:
    for number in numbers:
        wire = Wire.started((site.host, site.port))
        wire.send_start_ok(response=b"\0guest\0wrong", mechanism="PLAIN" if number % 3 else "SIMPLE")
        wire.sock.close()


@churn
def refused_vhosts(site: Site, numbers: range) -> None:
    for _ in numbers:
        wire = Wire.opening((site.host, site.port))
        wire.send_method(0, methods.ConnectionOpen("no such vhost"))
        read_until(wire, 0, methods.ConnectionClose)
        wire.sock.close()


@churn
def connection_errors(site: Site, numbers: range) -> None:
    for _ in numbers:
        wire = Wire.open((site.host, site.port))
        wire.send_method(7, methods.BasicAck(1, False))
        read_until(wire, 0, methods.ConnectionClose)
        wire.send_method(0, methods.ConnectionCloseOk())
        wire.sock.close()


@churn
def channels(site: Site, numbers: range) -> None:
    def make(number: int) -> bytes:
        own = own_channel(number)
        return frames(
            own,
            methods.ChannelOpen(),
            methods.ConfirmSelect(),
            publish_frames(own, b"x", "nowhere", mandatory=True),
            methods.ChannelClose(200, "", 0, 0),
        )

    in_bursts(site, numbers, make, methods.ChannelCloseOk)


@churn
def channel_errors(site: Site, numbers: range) -> None:
    """Channels that end with 404, 405, 406 and 403."""
    faults: tuple[Method | bytes, ...] = (
        methods.QueueDeclare(queue="nowhere", passive=True),
        methods.QueueBind(queue="nowhere", exchange="amq.topic"),
        publish_frames(1, b"x", "key", exchange="nowhere"),
        methods.QueueDeclare(queue="churned", durable=True),
        methods.QueueDelete(queue="churned", if_unused=True),
        methods.BasicConsume(queue="owned"),
        methods.BasicConsume(queue="churned", exclusive=True),
        methods.BasicAck(7, False),
    )
    site.declare_queue("churned")
    with channel(site) as owner:
        owner.call(1, methods.QueueDeclare(queue="owned", exclusive=True))
        owner.call(1, methods.BasicConsume(queue="churned"))
        wire = Wire.open((site.host, site.port))
        for number in numbers:
            wire.open_channel(1)
            wire.send(frames(1, faults[number % len(faults)]))
            wire.method(1, methods.ChannelClose)
            wire.send_method(1, methods.ChannelCloseOk())
        wire.close()
    site.delete_queue("churned")


@churn
def direct_replies(site: Site, numbers: range) -> None:
    """Requests and direct replies, each with channels of their own."""
    props = encode_properties(Properties(reply_to="amq.rabbitmq.reply-to"))
    with channel(site) as server, channel(site) as client:
        server.call(1, methods.QueueDeclare(queue="requests", exclusive=True))
        server.call(1, methods.BasicConsume(queue="requests", no_ack=True))
        for _ in numbers:
            client.send(
                frames(2, methods.ChannelOpen(), methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True)),
                publish_frames(2, b"question", "requests", props=props),
            )
            server.method(1, methods.BasicDeliver)
            reply_to = decode_reply_to(server.content(1)[0])
            server.publish(1, b"answer", reply_to)
            read_until(client, 2, methods.BasicDeliver)
            client.content(2)
            client.call(2, methods.ChannelClose(200, "", 0, 0), methods.ChannelCloseOk)


def decode_reply_to(props: bytes) -> str:
    reply_to = decode_properties(props).reply_to
    assert reply_to is not None
    return reply_to


# -- consuming -----------------------------------------------------------------------------------------


@churn
def consumers(site: Site, numbers: range) -> None:
    def make(number: int) -> bytes:
        tag, own = f"churn {number}", own_channel(number)
        return frames(
            own,
            methods.ChannelOpen(),
            methods.BasicQos(0, 3, number % 2 == 0),
            methods.BasicConsume(queue="churned", consumer_tag=tag, arguments=table_from({"x-priority": number % 3})),
            publish_frames(own, b"x", "churned"),
            publish_frames(own, b"y", "churned"),
            methods.BasicGet(queue="churned"),
            methods.BasicNack(0, True, True),
            *([methods.BasicCancel(tag)] if number % 3 else []),
            methods.QueuePurge(queue="churned"),
            methods.ChannelClose(200, "", 0, 0),
        )

    site.declare_queue("churned")
    in_bursts(site, numbers, make, methods.ChannelCloseOk)
    site.delete_queue("churned")


@churn
def readers(site: Site, numbers: range) -> None:
    """Readers by number, of which every other one is closed before it has read everything."""
    with channel(site) as wire:
        wire.call(1, methods.QueueDeclare(queue="read", durable=True))
        wire.call(1, methods.ConfirmSelect())
        for number in range(10):
            wire.send(message("read", bytes(LARGE if number % 2 else 10)))
        read_until(wire, 1, methods.BasicAck)
        for number in numbers:
            arguments = table_from({"x-warren-read-from": "first", "x-warren-read-to": 9})
            wire.send(
                frames(
                    2,
                    methods.ChannelOpen(),
                    methods.BasicQos(0, 10 if number % 2 else 3, False),
                    methods.BasicConsume(queue="read", consumer_tag="reader", arguments=arguments),
                )
            )
            read_until(wire, 2, methods.BasicCancel if number % 2 else methods.BasicDeliver)
            wire.send_method(2, methods.ChannelClose(200, "", 0, 0))
            read_until(wire, 2, methods.ChannelCloseOk)
        wire.call(1, methods.QueueDelete(queue="read"))


@churn
def transactions(site: Site, numbers: range) -> None:
    """Transactions that are committed, rolled back, or left open when the channel is closed.

    The client waits for commit-ok, because a channel that commits takes no other method.
    """

    def publish(number: int) -> bytes:
        return publish_frames(own_channel(number), b"x", "churned", props=PERSISTENT)

    def commit(number: int) -> bytes:
        return frames(
            own_channel(number),
            methods.ChannelOpen(),
            methods.TxSelect(),
            publish(number),
            methods.BasicGet(queue="churned"),
            methods.TxCommit(),
        )

    def go_on(number: int) -> bytes:
        return frames(
            own_channel(number),
            publish(number),
            methods.BasicGet(queue="churned", no_ack=True),
            methods.TxRollback(),
            publish(number),
            methods.BasicAck(0, True),
            methods.QueuePurge(queue="churned"),
            methods.ChannelClose(200, "", 0, 0),
        )

    with channel(site) as wire:
        wire.call(1, methods.QueueDeclare(queue="churned", durable=True))
        for start in range(0, len(numbers), BURST):
            burst = numbers[start : start + BURST]
            wire.send(*map(commit, burst))
            read_until(wire, None, methods.TxCommitOk, len(burst))
            wire.send(*map(go_on, burst))
            read_until(wire, None, methods.ChannelCloseOk, len(burst))
    site.delete_queue("churned")


@churn
def dead_letters(site: Site, numbers: range) -> None:
    """Chains of three queues: a message is rejected in the first, expires in the second, and is read in the third."""
    with channel(site) as wire:
        wire.call(1, methods.QueueDeclare(queue="grave", durable=True))
        wire.call(1, methods.BasicConsume(queue="grave", no_ack=True))
        for index, number in enumerate(numbers):
            first, second = f"first {number}", f"second {number}"
            wire.send(
                frames(
                    1,
                    methods.QueueDeclare(queue=first, durable=True, arguments=dead_letters_to(second)),
                    methods.QueueDeclare(queue=second, durable=True, arguments=dead_letters_to("grave", ttl=1)),
                    message(first),
                    methods.BasicGet(queue=first),
                )
            )
            read_until(wire, 1, methods.BasicGetOk)
            wire.content(1)
            wire.send_method(1, methods.BasicReject(2 * index + 1, False))
            read_until(wire, 1, methods.BasicDeliver)
            wire.content(1)
            wire.send(frames(1, methods.QueueDelete(queue=first), methods.QueueDelete(queue=second)))
            read_until(wire, 1, methods.QueueDeleteOk, 2)
        wire.call(1, methods.QueueDelete(queue="grave"))


def dead_letters_to(queue: str, ttl: int | None = None) -> Any:
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    if ttl is not None:
        arguments["x-message-ttl"] = ttl
    return table_from(arguments)


# -- virtual hosts, and the program around an embedded broker ------------------------------------------


@churn
def vhosts(site: Site, numbers: range) -> None:
    for number in numbers:
        name = f"churn {number}"
        site.create_vhost(name)
        with channel(site, vhost=name) as wire:
            wire.send(frames(1, methods.QueueDeclare(queue="kept", durable=True), message("kept", bytes(LARGE))))
            wire.method(1, methods.QueueDeclareOk)
        site.publish(b"x", "kept", vhost=name)
        site.delete_vhost(name)


@churn
def requests_of_the_program(site: Site, numbers: range) -> None:
    site.declare_queue("churned")
    for _ in numbers:
        site.publish(b"x", "churned")
        site.get("churned")
        with suppress(Exception):  # 404 ends the channel of the embedded client
            site.get("nowhere")
    site.delete_queue("churned")


def tls_connections(site: Site, numbers: Iterable[int], port: int, context: ssl.SSLContext) -> None:
    """Connections over TLS; of every third one the handshake fails."""

    class TlsWire(Wire):
        def __init__(self, address: tuple[str, int]) -> None:
            super().__init__(address)
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    for number in numbers:
        if number % 3:
            wire = TlsWire.open((site.host, port))
            wire.open_channel(1)
            wire.close()
        else:
            plain = Wire((site.host, port))
            plain.send(b"AMQP\0\0\x09\x01")
            with suppress(HungUp):
                plain.raw(1)
            plain.sock.close()
