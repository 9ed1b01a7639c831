"""Rows in which an operator does something large, or in which memory or TLS handshakes are the burden."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import suppress

from ...amqp import methods
from ...amqp.frames import method_frame
from .flood import Flood, publish
from .row import Abuse, AbuseRow
from .target import AbusedBroker

QUEUE, VHOST = "bench.abuse.operating", "bench.abuse"

#: Bytes of a body, and messages that are sent with one call.
BODY = b"x" * 1000
CHUNK = 100

#: Seconds for which a row watches an alarm and the paging after it.
ALARM_SECONDS = 8.0

#: Messages with which the memory alarm is raised, at scale 1. With 1 KB each they are above any small watermark.
ALARM_MESSAGES = 500_000

NO_COMMAND = "no --command was given that operates the broker"
NO_TLS = "no --tls-port was given"


def rows(scale: float, target: AbusedBroker) -> list[AbuseRow]:
    """All rows of this module."""
    queues, messages, handshakes = int(20_000 * scale), int(100_000 * scale), int(2_000 * scale)
    vhost_queues, alarm = int(10_000 * scale), int(ALARM_MESSAGES * scale)
    no_command = "" if target.command else NO_COMMAND
    no_tls = "" if target.tls_port is not None else NO_TLS
    return [
        AbuseRow(f"lists {queues:,} queues", _list_queues(target, queues), no_command),
        AbuseRow(
            f"deletes another virtual host with {messages:,} persistent messages",
            _delete_vhost(target, 1, messages),
            no_command,
        ),
        AbuseRow(
            f"deletes another virtual host with {vhost_queues:,} queues",
            _delete_vhost(target, vhost_queues),
            no_command,
        ),
        AbuseRow(f"{handshakes:,} TLS handshakes in eight threads", _handshakes(target, handshakes), no_tls),
        AbuseRow(
            f"raises the memory alarm with {alarm:,} messages of 1 KB, which are paged",
            _alarm(target, alarm),
            no_command,
            publishes=False,
        ),
        AbuseRow(
            f"raises the memory alarm with {4 * alarm:,} messages of 1 byte, which are paged",
            _alarm(target, 4 * alarm, b"x"),
            no_command,
            publishes=False,
        ),
    ]


def _fill(client: Flood, count: int, body: bytes = BODY, persistent: bool = False) -> None:
    """Publish `count` messages to `QUEUE`, and return when they are in it."""
    message = publish("", QUEUE, body, b"\x10\x00\x02" if persistent else b"\0\0")
    for _ in range(count // CHUNK):
        client.send(message * CHUNK)
    while True:
        answer = client.call(methods.QueueDeclare(queue=QUEUE, passive=True))
        assert isinstance(answer, methods.QueueDeclareOk)
        if answer.message_count >= count // CHUNK * CHUNK:
            return
        time.sleep(0.05)


def _list_queues(target: AbusedBroker, count: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        names = [f"{QUEUE}.{number}" for number in range(count)]
        with Flood(port) as client:
            client.open_channel()
            last = method_frame(1, methods.BasicQos())
            declares = [method_frame(1, methods.QueueDeclare(queue=name, nowait=True)) for name in names]
            client.stream([*declares, last], 1)
            yield
            target.operate("list_queues", "name", "messages", "consumers")
            yield
            deletes = [method_frame(1, methods.QueueDelete(queue=name, nowait=True)) for name in names]
            client.stream([*deletes, last], 1)

    return abuse


def _delete_vhost(target: AbusedBroker, queues: int, messages: int = 0) -> Abuse:
    """Delete a virtual host with this many durable queues, of which one has messages."""

    def abuse(port: int) -> Generator[None, None, None]:
        target.operate("add_vhost", VHOST)
        target.operate("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
        with Flood(port, vhost=VHOST) as client:
            client.open_channel()
            client.call(methods.QueueDeclare(queue=QUEUE, durable=True))
            declares = [
                method_frame(1, methods.QueueDeclare(queue=f"{QUEUE}.{number}", durable=True, nowait=True))
                for number in range(queues - 1)
            ]
            client.stream([*declares, method_frame(1, methods.BasicQos())], 1)
            _fill(client, messages, persistent=True)
        yield
        target.operate("delete_vhost", VHOST)
        yield

    return abuse


def _handshakes(target: AbusedBroker, count: int) -> Abuse:
    def shake_hands(context: ssl.SSLContext, number: int) -> None:
        for _ in range(number):
            with suppress(OSError), socket.create_connection(("127.0.0.1", target.tls_port or 0)) as sock:
                context.wrap_socket(sock, server_hostname="localhost").close()

    def abuse(port: int) -> Generator[None, None, None]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        yield
        threads = [threading.Thread(target=shake_hands, args=(context, count // 8)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield

    return abuse


def _alarm(target: AbusedBroker, count: int, body: bytes = BODY) -> Abuse:
    """Lower the watermark below what the messages of a queue take, so that an alarm goes on and they are paged."""

    def abuse(port: int) -> Generator[None, None, None]:
        with Flood(port) as client:
            client.open_channel()
            client.call(methods.QueueDeclare(queue=QUEUE, durable=True))
            try:
                _fill(client, count, body)
                yield
                target.operate("set_vm_memory_high_watermark", "absolute", "100MB")
                # A queue's share of the memory is computed from its traffic, so without a consumer nothing would be
                # paged.
                client.send(method_frame(1, methods.BasicConsume(queue=QUEUE, consumer_tag="slow", nowait=True)))
                time.sleep(ALARM_SECONDS)
                yield
            finally:
                target.operate("set_vm_memory_high_watermark", "0.4")
        with Flood(port) as client:
            client.open_channel()
            client.call(methods.QueueDelete(queue=QUEUE))

    return abuse
