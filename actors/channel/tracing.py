"""Tracing: copies of what a channel publishes and delivers, for whoever listens at `amq.rabbitmq.trace` (AB-81).

A copy is routed from that exchange under `publish.<exchange>` or `deliver.<queue>`. It has the message's body, and these headers as RabbitMQ's `rabbit_trace` writes them:

    exchange_name   longstr     where the message was published            vhost           longstr
    routing_keys    array       of longstr; CC and BCC included            connection      longstr     its name
    properties      table       the message's own, `headers` among them    channel         signedint   its number
    node            longstr                                                user            longstr
    routed_queues   array       publish: of longstr                        redelivered     signedint   deliver: 0 or 1

Numbers among the properties are signedint; a timestamp that needs more bits is a long (RabbitMQ cuts it off). `routed_queues` names queues that exist
(RabbitMQ lists all routing keys if it was published to the default exchange). What was published to the trace exchange, or came through it, is not traced: it would never end.

At most once, like dead letters: no confirm, no credit, no mandatory. A copy of a run is one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ...amqp.fields import Table
from ...amqp.frames import with_properties
from ...amqp.properties import Properties, decode_properties, encode_properties
from ...store.messages.message import Origin

if TYPE_CHECKING:
    from .process import Channel
    from .publishing import Publication

TRACE_EXCHANGE = "amq.rabbitmq.trace"
KEY_OCTETS = 255  # a routing key's most; the prefix may make the key of a long name longer
_PROPERTIES = tuple(field.name for field in fields(Properties))


def trace_publish(channel: Channel, publication: Publication, contents: Sequence[bytes], body_bytes: int) -> None:
    """Copies a run that was published, if its virtual host is traced. `contents` carry the properties as they are queued."""
    if _is_traced(channel, publication.exchange):
        routed = ("routed_queues", "A", tuple([("S", _octets(row.name)) for row in publication.rows]))
        _trace(
            channel,
            f"publish.{publication.exchange}",
            publication.origin,
            [*_where(channel), routed],
            contents,
            body_bytes,
        )


def trace_delivery(
    channel: Channel, queue: str, origin: Origin, redelivered: bool, contents: Sequence[bytes], body_bytes: int
) -> None:
    """Copies a run that is delivered from `queue`, if its virtual host is traced."""
    if _is_traced(channel, origin.exchange):
        _trace(
            channel,
            f"deliver.{queue}",
            origin,
            [("redelivered", "I", int(redelivered)), *_where(channel)],
            contents,
            body_bytes,
        )


def _is_traced(channel: Channel, exchange: str) -> bool:
    return channel.vhost in channel.routing.traced and exchange != TRACE_EXCHANGE


def _where(channel: Channel) -> list[tuple[str, str, Any]]:
    return [
        ("vhost", "S", _octets(channel.vhost)),
        ("connection", "S", _octets(channel.connection_name)),
        ("channel", "I", channel.number),
        ("user", "S", _octets(channel.user)),
    ]


def _trace(
    channel: Channel,
    key: str,
    origin: Origin,
    special: list[tuple[str, str, Any]],
    contents: Sequence[bytes],
    body_bytes: int,
) -> None:
    headers = Table(
        [
            ("exchange_name", "S", _octets(origin.exchange)),
            ("routing_keys", "A", tuple([("S", _octets(routing_key)) for routing_key in origin.routing_keys])),
            ("properties", "F", _as_table(decode_properties(origin.props))),
            ("node", "S", _octets(channel.context.node_name)),
            *special,
        ]
    )
    keys = (_octets(key)[:KEY_OCTETS].decode("utf-8", "surrogateescape"),)
    rows = channel.routing.route(channel.vhost, TRACE_EXCHANGE, keys, headers)
    if not rows:
        return
    props = encode_properties(Properties(headers=headers))
    copies = [with_properties(content, props) for content in contents]
    for row in rows:
        channel.send(
            row.address, ("publish_at_most_once", [(Origin(TRACE_EXCHANGE, keys, props), copies, body_bytes, 0)])
        )


def _as_table(properties: Properties) -> Table:
    entries: list[tuple[str, str, Any]] = []
    for name in _PROPERTIES:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            entries.append((name, "F", value))
        elif isinstance(value, int):
            entries.append((name, "I" if value < 1 << 31 else "l", value))
        else:
            entries.append((name, "S", _octets(value)))
    return Table(entries)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
