"""Random valid conversations of clients as bytes, and the events that a reader must return for them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.amqp.frames import CONTENT_HEAD, content_size, frame, heartbeat, method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    ConnectionUpdateSecret,
    QueueDeclare,
)
from warren.amqp.parser.events import ACKS, HEARTBEAT, METHOD, RUN, Event
from warren.amqp.parser.frame_meanings import CLOSING
from warren.amqp.parser.reader import FrameReader
from warren.amqp.parser.skimmer import fate
from warren.amqp.properties import Properties, encode_properties

PROPS = (
    b"\x00\x00",
    b"\x10\x00\x02",
    b"\x10\x00\x01",
    encode_properties(Properties(headers=table_from({"a": 1}), correlation_id="c", expiration="1000")),
)
# One routing key has the bytes of a frame head, which must not mislead the reader's comparison of bytes.
ROUTES = (("", "q"), ("x", "key"), ("", "\x01\x00\x01\x00\x00\x00"), ("x" * 40, "k" * 200))
SIZES = (0, 1, 2, 100, 100, 100, 101, 0xCE, 300)
OTHERS = (
    QueueDeclare(queue="q", arguments=table_from({"x-expires": 5})),
    BasicGet(queue="q"),
    BasicNack(3, True),
    BasicConsume(queue="q"),
)

#: Frames of one channel, and the events that a reader returns once it has read the last of them.
Step = tuple[list[bytes], list[Event]]


def publish(rng: Random, channel: int, route: tuple[str, str], props: bytes, size: int) -> Step:
    """One publish, whose body is cut at random into frames, some of them empty."""
    method = BasicPublish(exchange=route[0], routing_key=route[1])
    body = bytes([rng.randrange(256)]) * size
    header = CONTENT_HEAD.pack(2, channel, 12 + len(props), 60, 0, size) + props + b"\xce"
    frames = [method_frame(channel, method), header]
    content = header
    position = 0
    while position < size:
        step = size if rng.random() < 0.7 else rng.randint(0, size)
        piece = frame(3, channel, body[position : position + step])
        frames.append(piece)
        if len(piece) > 8:
            content += piece
        position += step
    key, expiration = fate(props)
    return frames, [(RUN, channel, method.encode(), key, [content], size, expiration)]


def with_ids(rng: Random) -> bytes:
    """Properties as real publishers send them: some values differ from message to message, mostly not in length."""
    digits = str(rng.randrange(10**9, 10**10)) if rng.random() < 0.97 else str(rng.randrange(10**6))
    headers = {"id": digits, "task": "shop.add", "retries": rng.randrange(3), "eta": None, "trace": {"depth": 1}}
    if rng.random() < 0.02:
        headers["CC"] = ["q"]
    return encode_properties(
        Properties(
            content_type="application/json",
            headers=table_from(headers),
            delivery_mode=2 if rng.random() < 0.98 else 1,
            correlation_id=digits,
            reply_to="amq.rabbitmq.reply-to" if rng.random() < 0.02 else "amq.rabbitmq.reply-ty",
            expiration=str(rng.randrange(990, 1010)) if rng.random() < 0.9 else rng.choice(("0000", "0", "none")),
            timestamp=rng.randrange(1 << 40),
        )
    )


def _steps(rng: Random, channel: int, count: int) -> Iterable[Step]:
    """The steps of one channel."""
    if channel == 0:
        for _ in range(count):
            if rng.random() < 0.7:
                yield [heartbeat()], [(HEARTBEAT, 0)]
            else:
                method = ConnectionUpdateSecret(b"s", "r")
                yield [method_frame(0, method)], [(METHOD, 0, method)]
        return
    while count > 0:
        what = rng.random()
        repeats = rng.choice((1, 1, 2, 3, 40, 80))
        count -= repeats
        if what < 0.7:
            route, props, size = rng.choice(ROUTES), rng.choice(PROPS), rng.choice(SIZES)
            differ, routes_differ = rng.random() < 0.5, rng.random() < 0.3
            for _ in range(repeats):
                if differ:
                    props = with_ids(rng)
                if routes_differ:
                    route = rng.choice(ROUTES)
                if rng.random() < 0.2:
                    size = rng.choice(SIZES)
                if rng.random() < 0.05:
                    props = rng.choice(PROPS)
                yield publish(rng, channel, route, props, size)
        elif what < 0.85:
            for _ in range(repeats):
                tag, multiple = rng.randrange(1 << 64), rng.random() < 0.5
                yield [method_frame(channel, BasicAck(tag, multiple))], [(ACKS, channel, [(tag, multiple)])]
        elif what < 0.95:
            method = rng.choice(OTHERS)
            yield [method_frame(channel, method)], [(METHOD, channel, method)]
        else:
            frames, _ = publish(rng, channel, ROUTES[0], PROPS[0], rng.choice(SIZES))
            frames[0] = method_frame(channel, BasicDeliver(consumer_tag="t"))
            yield frames, [(METHOD, channel, BasicDeliver(consumer_tag="t"))]


def conversation(rng: Random, length: int) -> tuple[bytes, list[Event]]:
    """About `length` steps on a few channels, interleaved frame by frame (AB-45), and the events they stand for."""
    channels = rng.sample((0, 1, 2, 3, 300, 0xCE), rng.randint(1, 4))
    threads = [list(_steps(rng, channel, length // len(channels) + 1)) for channel in channels]
    queues = [
        [(piece, last) for frames, events in thread for piece, last in _marked(frames, events)] for thread in threads
    ]
    data: list[bytes] = []
    expected: list[Event] = []
    alternate = rng.random()
    while queues:
        queue = rng.choice(queues)
        while queue:
            piece, events = queue.pop(0)
            data.append(piece)
            expected += events
            if rng.random() < alternate:
                break
        queues = [queue for queue in queues if queue]
    return b"".join(data), expected


def _marked(frames: list[bytes], events: list[Event]) -> Iterable[tuple[bytes, list[Event]]]:
    for piece in frames[:-1]:
        yield piece, []
    yield frames[-1], events


def normal(events: Iterable[Event]) -> list[Event]:
    """The same events with messages and acks one by one: how they were grouped is left to the reader."""
    single: list[Any] = []
    for event in events:
        if event[0] == RUN:
            _, channel, methods, key, contents, body_bytes, expirations = event
            if isinstance(methods, bytes):
                methods = [methods] * len(contents)
            if not isinstance(expirations, list):
                expirations = [expirations] * len(contents)
            assert len(methods) == len(expirations) == len(contents)
            assert body_bytes == sum(content_size(content) for content in contents)
            single += [(RUN, channel, key, *each) for each in zip(methods, contents, expirations)]
        elif event[0] == ACKS:
            single += [(ACKS, event[1], ack) for ack in event[2]]
        else:
            single.append(event)
    return single


def cut(rng: Random, data: bytes) -> list[bytes]:
    """`data` in pieces of random sizes."""
    most = rng.choice((1, 7, 30, 500, 5000, 1 << 20))
    pieces = []
    position = 0
    while position < len(data):
        step = rng.randint(1, most)
        pieces.append(data[position : position + step])
        position += step
    return pieces


def kept(reader: FrameReader) -> int:
    """Bytes that the reader holds: those it has not parsed, and those of unfinished contents."""
    return len(reader._buffer) - reader._position + reader._chunks_size + unfinished(reader)


def unfinished(reader: FrameReader) -> int:
    """Bytes that the reader holds of contents whose last body frame has not arrived."""
    held = reader.large.filled if reader.large is not None else 0
    for assembly in reader._assemblies.values():
        held += len(assembly.gathered or b"")
    return held


def read_all(reader: FrameReader, pieces: Iterable[bytes]) -> tuple[list[Event], AmqpError | None]:
    """All events, and the error that ended them. After the error it reads on as a closing connection does.

    Asserts that the reader keeps no more bytes than it was fed, and that it returns None in the end.
    """
    events: list[Event] = []
    fault: AmqpError | None = None
    fed = kept(reader)
    for piece in pieces:
        reader.feed(piece)
        fed += len(piece)
        for _ in range(fed // 8 + 2):
            try:
                event = reader.next()
            except AmqpError as error:
                if fault is None:
                    fault = error
                reader.phase = CLOSING
                continue
            if event is None:
                break
            if event[0] == RUN:
                assert 1 <= len(event[4]) <= max(1, reader.credit.get(event[1], 1))
            if fault is None:
                events.append(event)
        else:
            raise AssertionError("the reader returned more events than there were frames")
        assert kept(reader) <= fed
    # `kept` uses the reader's own count, because adding up thousands of chunks after each piece takes too long.
    assert reader._chunks_size == sum(map(len, reader._chunks))
    return events, fault
