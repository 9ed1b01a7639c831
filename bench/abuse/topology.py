"""Rows in which a client uses many queues, bindings, channels or connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ...amqp import methods
from ...amqp.frames import method_frame
from .flood import Flood, publish
from .row import Abuse, AbuseRow

EXCHANGE = "bench.abuse"


def rows(scale: float) -> list[AbuseRow]:
    """All rows of this module, with 20,000 queues at scale 1."""
    queues, connections = int(20_000 * scale), int(1_000 * scale)
    channels = int(65_535 * scale)
    return [
        AbuseRow(f"publishes once to a fanout exchange with {queues:,} queues", _fanout(queues, 1)),
        AbuseRow(f"publishes 100 times to a fanout exchange with {queues:,} queues", _fanout(queues, 100)),
        AbuseRow(f"deletes a fanout exchange with {queues:,} queues", _delete_exchange(queues)),
        AbuseRow(f"declares {queues:,} queues without waiting", _declare(queues)),
        AbuseRow(f"deletes {queues:,} queues without waiting", _delete(queues)),
        AbuseRow(f"goes away with {queues:,} exclusive queues", _leave_queues(queues)),
        AbuseRow(f"deletes a queue with {queues:,} bindings", _delete_bound_queue(queues)),
        AbuseRow(f"opens {channels:,} channels on a connection", _open_channels(channels), "its limit is 2,047"),
        AbuseRow(f"goes away with {channels:,} channels", _leave_channels(channels), "its limit is 2,047"),
        AbuseRow("opens 2,047 channels on a connection", _open_channels(2_047)),
        AbuseRow("goes away with 2,047 channels", _leave_channels(2_047)),
        AbuseRow(f"opens {connections:,} connections at once", _connect(connections)),
        AbuseRow(f"goes away with {connections:,} connections", _leave_connections(connections)),
        AbuseRow("publishes to a queue without a pause, in small messages", _flood_messages(5.0)),
    ]


def _declares(count: int, exclusive: bool = False) -> list[bytes]:
    return [
        method_frame(1, methods.QueueDeclare(queue=f"{EXCHANGE}.{number}", exclusive=exclusive, nowait=True))
        for number in range(count)
    ]


def _deletes(count: int) -> list[bytes]:
    return [method_frame(1, methods.QueueDelete(queue=f"{EXCHANGE}.{number}", nowait=True)) for number in range(count)]


#: A method that the broker answers only when it has handled everything that the channel sent before.
_LAST = method_frame(1, methods.BasicQos())


@contextmanager
def _queues(port: int, count: int, exclusive: bool = False) -> Iterator[Flood]:
    """A connection that has declared `count` queues, and deletes them at the end."""
    with Flood(port) as client:
        client.open_channel()
        client.stream([*_declares(count, exclusive), _LAST], 1)
        yield client
    if not exclusive:
        with Flood(port) as client:
            client.open_channel()
            client.stream([*_deletes(count), _LAST], 1)


@contextmanager
def _bound_queues(port: int, count: int) -> Iterator[Flood]:
    with _queues(port, count) as client:
        client.call(methods.ExchangeDeclare(exchange=EXCHANGE, type="fanout"))
        bind = [
            method_frame(1, methods.QueueBind(queue=f"{EXCHANGE}.{number}", exchange=EXCHANGE, nowait=True))
            for number in range(count)
        ]
        client.stream([*bind, _LAST], 1)
        yield client
        client.call(methods.ExchangeDelete(exchange=EXCHANGE))


def _fanout(queues: int, messages: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _bound_queues(port, queues) as client:
            client.call(methods.ConfirmSelect())
            yield
            last = 0
            client.send(publish(EXCHANGE, "") * messages)
            while last < messages:
                last = max(ack.delivery_tag for ack in client.answers(1) if isinstance(ack, methods.BasicAck))
            yield

    return abuse


def _delete_exchange(queues: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _bound_queues(port, queues) as client:
            yield
            client.call(methods.ExchangeDelete(exchange=EXCHANGE))
            yield

    return abuse


def _declare(queues: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _queues(port, 0) as client:
            yield
            client.stream([*_declares(queues), _LAST], 1)
            yield
            client.stream([*_deletes(queues), _LAST], 1)

    return abuse


def _delete(queues: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _queues(port, queues) as client:
            yield
            client.stream([*_deletes(queues), _LAST], 1)
            yield

    return abuse


def _leave_queues(queues: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with Flood(port) as client:
            client.open_channel()
            client.stream([*_declares(queues, exclusive=True), _LAST], 1)
            yield
            client.call(methods.ConnectionClose(200, "", 0, 0), channel=0)
            yield

    return abuse


def _delete_bound_queue(bindings: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _queues(port, 1) as client:
            client.call(methods.ExchangeDeclare(exchange=EXCHANGE, type="direct"))
            bind = [
                method_frame(1, methods.QueueBind(0, f"{EXCHANGE}.0", EXCHANGE, f"key {number}", nowait=True))
                for number in range(bindings)
            ]
            client.stream([*bind, _LAST], 1)
            yield
            client.call(methods.QueueDelete(queue=f"{EXCHANGE}.0"))
            yield
            client.call(methods.ExchangeDelete(exchange=EXCHANGE))

    return abuse


def _open_all(client: Flood, channels: int) -> None:
    client.stream([method_frame(number, methods.ChannelOpen()) for number in range(1, channels + 1)], channels)


def _open_channels(channels: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with Flood(port, channels) as client:
            yield
            _open_all(client, client.channel_max)
            yield

    return abuse


def _leave_channels(channels: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with Flood(port, channels) as client:
            _open_all(client, client.channel_max)
            yield
            client.call(methods.ConnectionClose(200, "", 0, 0), channel=0)
            yield

    return abuse


def _connect_all(port: int, connections: int) -> list[Flood]:
    """Open this many connections in eight threads."""
    found: list[Flood] = []

    def connect(count: int) -> None:
        for _ in range(count):
            found.append(Flood(port))

    threads = [threading.Thread(target=connect, args=(connections // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _connect(connections: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        yield
        found = _connect_all(port, connections)
        yield
        for client in found:
            client.close()
        time.sleep(2)

    return abuse


def _leave_connections(connections: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        found = _connect_all(port, connections)
        yield
        for client in found:
            client.close()
        time.sleep(2)
        yield

    return abuse


def _flood_messages(seconds: float) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        with _queues(port, 1) as client:
            batch = publish("", f"{EXCHANGE}.0") * 500
            yield
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                client.send(batch)
            yield

    return abuse
