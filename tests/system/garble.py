"""Conversations that no client should have: methods with random arguments, and bytes changed at random."""

from __future__ import annotations

from dataclasses import fields
from random import Random

from warren.amqp.channel_state import CLIENT_METHODS
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, frame, method_frame
from warren.amqp.method import Method
from warren.amqp.methods import METHODS, BasicConsume, BasicGet, BasicPublish, ChannelOpen, QueueBind, QueueDeclare
from warren.amqp.properties import Properties, encode_properties

QUEUES = (
    "fuzz-1",
    "fuzz-2",
    "",
    "fuzz-priority",
    "amq.gen-fuzz",
    "amq.rabbitmq.reply-to",
    "no-such-queue",
    "\r\nfuzz-1\n",
    "\xff" * 120,
)
EXCHANGES = (
    "",
    "fuzz-exchange",
    "amq.fanout",
    "amq.topic",
    "amq.headers",
    "amq.direct",
    "fuzz-alternate",
    "amq.fuzz",
    "x" * 255,
)
KEYS = ("fuzz-1", "fuzz-2", "", "#", "a.*.b", "a.x.b", "*.#.*.#", ".....", "fuzz-priority")
TYPES = ("direct", "fanout", "topic", "headers", "no-such-type", "")
NUMBERS = (0, 1, 2, 3, 5, 255)
TAGS = (1, 2, 0, 3, 7, 2**31, 2**63, 2**64 - 1)

ARGUMENTS = {
    "x-message-ttl": (0, 5, 60_000, -1, 2**62, "5", None, True),
    "x-expires": (200, 0, 60_000, "x"),
    "x-max-length": (0, 1, 3, -1, 2.5),
    "x-max-length-bytes": (0, 10, 1000),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx", "explode", 1),
    "x-dead-letter-exchange": ("", "fuzz-exchange", "no-such-exchange", 5),
    "x-dead-letter-routing-key": ("fuzz-1", "fuzz-2", 5),
    "x-max-priority": (0, 1, 10, 255, 256, -1),
    "x-single-active-consumer": (True, False, "yes"),
    "x-queue-mode": ("lazy", "default", "hasty"),
    "x-queue-type": ("classic", "quorum", "stream", 1),
    "x-priority": (0, 5, -5, "high"),
    "x-cancel-on-ha-failover": (True,),
    "x-match": ("all", "any", "all-with-x", "none", 1),
    "alternate-exchange": ("fuzz-alternate", "fuzz-exchange", 7),
    "a": (1, "x", None, [1, [2, {"b": []}]], {"c": {"d": b"\xff"}}),
}

PROPERTIES = {
    "headers": (
        None,
        {"CC": ["fuzz-1"], "BCC": ["fuzz-2"]},
        {"CC": "fuzz-1"},
        {"a": 1, "b": None},
        {"x-death": 5},
        {"x-death": [{"queue": 1, "count": "x"}]},
    ),
    "delivery_mode": (None, 1, 2, 3, 255),
    "priority": (None, 0, 9, 255),
    "expiration": (None, "0", "5", "60000", "-1", "soon", "9" * 30),
    "user_id": (None, "guest", "nobody"),
    "reply_to": (None, "amq.rabbitmq.reply-to", "fuzz-1"),
    "correlation_id": (None, "c"),
}

_ALL = list(METHODS.values())
_CLIENTS = (
    [kind for kind in _ALL if kind in CLIENT_METHODS and kind is not ChannelOpen]
    + [BasicPublish] * 5
    + [BasicConsume, BasicGet, QueueDeclare, QueueBind] * 2
)

# Values that end the connection, and so the conversation, are rare.
DEADLY = {"immediate": True, "requeue": False, "active": False, "prefetch_size": 1}

#: There are several channels, so that an error on one does not end the conversation.
CHANNELS = 6


def arguments(rng: Random) -> Table:
    names = rng.sample(sorted(ARGUMENTS), rng.choice((0, 0, 0, 0, 0, 1, 1, 2, 4)))
    return table_from({name: rng.choice(ARGUMENTS[name]) for name in names})


def properties(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return b"\x00\x00"
    if rng.random() < 0.05:
        return rng.randbytes(rng.choice((2, 3, 10, 40)))
    return encode_properties(
        Properties(**{name: _headers(rng.choice(values)) for name, values in PROPERTIES.items() if rng.random() < 0.3})
    )


def _headers(value: object) -> object:
    return table_from(value) if isinstance(value, dict) else value


def likely(rng: Random, values: tuple) -> object:
    """One of `values`; usually one of the first three."""
    return rng.choice(values[:3] if rng.random() < 0.8 else values)


def method(rng: Random) -> Method:
    """A method of clients, rarely one that only brokers send, with likely and unlikely arguments."""
    kind = rng.choice(_CLIENTS if rng.random() < 0.99 else _ALL)
    values: dict[str, object] = {}
    for field, letter in zip(fields(kind), kind.SIGNATURE, strict=True):
        name = field.name
        if name in DEADLY:
            values[name] = DEADLY[name] if rng.random() < 0.02 else type(DEADLY[name])(not DEADLY[name])
        elif letter == "b":
            values[name] = rng.random() < 0.25
        elif letter == "T":
            values[name] = arguments(rng)
        elif letter == "X":
            values[name] = rng.randbytes(rng.choice((0, 1, 10)))
        elif letter == "L":
            values[name] = likely(rng, TAGS)
        elif letter in "osl":
            values[name] = likely(rng, NUMBERS)
        elif "queue" in name:
            values[name] = likely(rng, QUEUES)
        elif name in ("exchange", "source", "destination"):
            values[name] = likely(rng, EXCHANGES)
        elif name == "type":
            values[name] = likely(rng, TYPES)
        elif name == "consumer_tag":
            values[name] = rng.choice(("", "t1", "t2"))
        else:
            values[name] = likely(rng, KEYS)
    return kind(**values)


def conversation(rng: Random, length: int) -> list[bytes]:
    """Frames, or groups of them, that a client might send once it is connected; each is well formed."""
    steps = [method_frame(number, ChannelOpen()) for number in range(1, CHANNELS + 1)]
    steps += [method_frame(1, QueueDeclare(queue=name)) for name in QUEUES[:2]]
    for _ in range(length):
        said = method(rng)
        channel = rng.randint(1, CHANNELS)
        if said.HAS_CONTENT:
            body = rng.randbytes(rng.choice((0, 1, 10, 10, 5000)))
            steps.append(method_frame(channel, said) + build_content(channel, properties(rng), body, 4096))
        else:
            steps.append(method_frame(channel, said))
        if rng.random() < 0.1:
            steps.append(frame(8, 0, b""))
    return steps


def mangle(rng: Random, octets: bytes) -> bytes:
    """`octets` with a few bits, bytes or slices changed, inserted, repeated or removed."""
    data = bytearray(octets)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        start = rng.randrange(len(data))
        stop = min(len(data), start + rng.choice((1, 2, 8, 40, 200)))
        what = rng.randrange(6)
        if what == 0:
            data[start] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[start] = rng.choice((0, 1, 2, 3, 8, 0xCE, 0xFF))
        elif what == 2:
            del data[start:]
        elif what == 3:
            data[start:start] = rng.randbytes(rng.choice((1, 2, 8, 30)))
        elif what == 4:
            data[start:start] = data[start:stop]
        else:
            del data[start:stop]
    return bytes(data)
