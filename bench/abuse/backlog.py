"""Rows in which a client settles, removes or leaves behind a large number of messages with one method."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from ...amqp import methods
from ...amqp.fields import Table, table_from
from ...amqp.frames import build_content, method_frame
from ...amqp.method import Method
from ...amqp.properties import Properties, encode_properties
from .flood import TIMEOUT, Flood
from .row import Abuse, AbuseRow

QUEUE, DEAD = "bench.abuse.backlog", "bench.abuse.dead"
TAG = "abuser"
BODY = b"x" * 20

#: Messages whose frames are sent with one call.
CHUNK = 1000


def rows(scale: float) -> list[AbuseRow]:
    """All rows of this module, with up to 5 million messages at scale 1."""
    one, two, three, five = (int(millions * 1_000_000 * scale) for millions in (1, 2, 3, 5))
    return [
        AbuseRow(f"recovers {three:,} unacknowledged messages", _held(three, _recover)),
        AbuseRow(f"goes away with {three:,} unacknowledged messages", _held(three, _leave)),
        AbuseRow(f"acknowledges {three:,} messages with one method", _held(three, _acknowledge)),
        AbuseRow(f"rejects {three:,} messages with one method, to be requeued", _held(three, _requeue)),
        AbuseRow(f"acknowledges every second of {one:,} messages, then closes", _held(one, _acknowledge_every_second)),
        AbuseRow(f"rejects {one:,} messages with one method, which become dead letters", _held(one, _reject, True)),
        AbuseRow(f"purges {five:,} messages", _ready(five, _purge)),
        AbuseRow(f"deletes a queue with {five:,} messages", _ready(five, _delete)),
        AbuseRow(f"has {two:,} messages expire at once", _expiring(two)),
        AbuseRow(f"has {one:,} messages expire at once, which become dead letters", _expiring(one, True)),
        AbuseRow(f"has a large message displace {one:,} small ones", _displaced(one)),
    ]


def _publish(properties: bytes, body: bytes = BODY) -> bytes:
    return method_frame(1, methods.BasicPublish(0, "", QUEUE)) + build_content(1, properties, body, 131072)


def _ready_messages(client: Flood, queue: str) -> int:
    answer = client.call(methods.QueueDeclare(queue=queue, passive=True))
    assert isinstance(answer, methods.QueueDeclareOk)
    return answer.message_count


def _await_ready(client: Flood, queue: str, count: int) -> None:
    """Return when the queue has `count` ready messages."""
    deadline = time.monotonic() + TIMEOUT
    while _ready_messages(client, queue) != count:
        assert time.monotonic() < deadline, f"{queue} does not reach {count} messages"
        time.sleep(0.05)


def _fill(client: Flood, count: int, properties: bytes = b"\0\0") -> None:
    chunk = _publish(properties) * CHUNK
    for _ in range(count // CHUNK):
        client.send(chunk)
    client.send(_publish(properties) * (count % CHUNK))


@contextmanager
def _queue(port: int, arguments: Table | None = None, has_dead: bool = False) -> Iterator[tuple[Flood, Flood]]:
    """The abuser's connection, and one that looks at its queue and deletes it at the end."""
    with Flood(port) as abuser, Flood(port) as observer:
        for client in (abuser, observer):
            client.open_channel()
        for queue in (QUEUE, DEAD):  # of a run that was interrupted
            observer.call(methods.QueueDelete(queue=queue))
        table = [*(arguments or ())]
        if has_dead:
            observer.call(methods.QueueDeclare(queue=DEAD))
            table += [*table_from({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD})]
        observer.call(methods.QueueDeclare(queue=QUEUE, arguments=Table(table)))
        try:
            yield abuser, observer
        finally:
            for queue in (QUEUE, DEAD):
                observer.call(methods.QueueDelete(queue=queue))


def _held(count: int, settle: Callable[[Flood, Flood, int], None], has_dead: bool = False) -> Abuse:
    """The abuser has all messages of its queue unacknowledged, and then calls `settle`."""

    def abuse(port: int) -> Generator[None, None, None]:
        with _queue(port, has_dead=has_dead) as (abuser, observer):
            _fill(abuser, count)
            _await_ready(observer, QUEUE, count)
            deliver = methods.BasicDeliver(TAG, 1, False, "", QUEUE)
            size = len(method_frame(1, deliver)) + len(build_content(1, b"\0\0", BODY, 131072))
            abuser.send(method_frame(1, methods.BasicConsume(queue=QUEUE, consumer_tag=TAG)))
            abuser.skip(len(method_frame(1, methods.BasicConsumeOk(TAG))) + count * size)
            abuser.call(methods.BasicCancel(TAG))
            yield
            settle(abuser, observer, count)
            yield

    return abuse


def _then(abuser: Flood, method: Method) -> None:
    """Send a method, and wait until the channel has handled it."""
    abuser.send(method_frame(1, method))
    abuser.call(methods.BasicQos())


def _recover(abuser: Flood, observer: Flood, count: int) -> None:
    abuser.call(methods.BasicRecover(True))
    _await_ready(observer, QUEUE, count)


def _leave(abuser: Flood, observer: Flood, count: int) -> None:
    abuser.socket.shutdown(socket.SHUT_RDWR)  # to close it is not enough: the witness has inherited it
    _await_ready(observer, QUEUE, count)


def _acknowledge(abuser: Flood, observer: Flood, count: int) -> None:
    _then(abuser, methods.BasicAck(count, True))
    _ready_messages(observer, QUEUE)


def _requeue(abuser: Flood, observer: Flood, count: int) -> None:
    _then(abuser, methods.BasicNack(count, True, True))
    _await_ready(observer, QUEUE, count)


def _reject(abuser: Flood, observer: Flood, count: int) -> None:
    _then(abuser, methods.BasicNack(count, True, False))
    _await_ready(observer, DEAD, count)


def _acknowledge_every_second(abuser: Flood, observer: Flood, count: int) -> None:
    acks = [method_frame(1, methods.BasicAck(tag, False)) for tag in range(2, count + 1, 2)]
    for at in range(0, len(acks), CHUNK):
        abuser.send(b"".join(acks[at : at + CHUNK]))
    abuser.call(methods.ChannelClose(200, "", 0, 0))
    _await_ready(observer, QUEUE, count - len(acks))


def _ready(count: int, remove: Callable[[Flood], None]) -> Abuse:
    """The abuser's queue has `count` ready messages, and then the abuser calls `remove`."""

    def abuse(port: int) -> Generator[None, None, None]:
        with _queue(port) as (abuser, observer):
            _fill(abuser, count)
            _await_ready(observer, QUEUE, count)
            yield
            remove(abuser)
            yield

    return abuse


def _purge(abuser: Flood) -> None:
    abuser.call(methods.QueuePurge(queue=QUEUE))


def _delete(abuser: Flood) -> None:
    abuser.call(methods.QueueDelete(queue=QUEUE))


def _expiring(count: int, has_dead: bool = False) -> Abuse:
    """So many messages have expired behind one that has not, and then that one is consumed."""

    def abuse(port: int) -> Generator[None, None, None]:
        with _queue(port, has_dead=has_dead) as (abuser, observer):
            abuser.send(_publish(b"\0\0"))
            _fill(abuser, count, encode_properties(Properties(expiration="100")))
            _await_ready(observer, QUEUE, count + 1)
            time.sleep(0.2)
            yield
            abuser.call(methods.BasicGet(queue=QUEUE, no_ack=True))
            _await_ready(observer, QUEUE, 0)
            if has_dead:
                _await_ready(observer, DEAD, count)
            yield

    return abuse


def _displaced(count: int) -> Abuse:
    def abuse(port: int) -> Generator[None, None, None]:
        size = count * len(BODY)
        with _queue(port, table_from({"x-max-length-bytes": size})) as (abuser, observer):
            _fill(abuser, count)
            _await_ready(observer, QUEUE, count)
            yield
            abuser.send(_publish(b"\0\0", b"x" * size))
            _await_ready(observer, QUEUE, 1)
            yield

    return abuse
