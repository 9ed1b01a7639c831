"""`Tracer`: copies of what a channel publishes and delivers, for the consumers of `amq.rabbitmq.trace` (AB-81).

A copy is routed from that exchange under `publish.<exchange>` or `deliver.<queue>`. It has the message's body, and
these headers as RabbitMQ's `rabbit_trace` writes them:

    exchange_name   longstr     where the message was published            vhost           longstr
    routing_keys    array       of longstr; CC and BCC included            connection      longstr     its name
    properties      table       the message's own, with its `headers`      channel         signedint   its number
    node            longstr                                                user            longstr
    routed_queues   array       publish: of longstr                        redelivered     signedint   deliver: 0 or 1

Numbers among the properties are signedint; a timestamp that needs more bits is a long, or a timestamp if it needs all
64 bits (RabbitMQ cuts it off).
`routed_queues` names the queues that the message reached (RabbitMQ lists all routing keys of a publish to the default
exchange). Messages published to the trace exchange, and so all copies, are not traced: tracing would never end.

Copies are sent at most once, like dead letters: without confirm, credit or mandatory. Neighbours with equal properties
are copied as one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby

from ...amqp.fields import Table, TooDeep
from ...amqp.frames import content_properties, with_properties
from ...amqp.properties import Properties, decode_properties, encode_properties
from ...routing.rows import QueueRow
from ...routing.shards import with_shards
from ...runtime.process import Process
from ...store.messages.message import Origin, Origins, body_size, each_of
from ..context.node_context import NodeContext
from ..contracts.channel import ChannelConfig
from ..contracts.queue import to_queue

TRACE_EXCHANGE = "amq.rabbitmq.trace"

#: The longest routing key in bytes. The routing key of a copy, which has a prefix, is cut to this length.
KEY_MAX = 255

_PROPERTIES = tuple(field.name for field in fields(Properties))

#: A field of a table: its name, type letter and value.
Field = tuple[str, str, object]


class Tracer:
    """Copies runs of one channel. Its callers check first whether any virtual host is traced."""

    __slots__ = ("_config", "_context", "_process", "_sent")

    def __init__(self, process: Process, context: NodeContext, config: ChannelConfig) -> None:
        self._process = process
        self._context = context
        self._config = config
        #: How often copies were sent, so that they go to the shards of a sharded queue in turn.
        self._sent = 0

    def trace_publish(self, rows: Iterable[QueueRow], origins: Origins, contents: Sequence[bytes]) -> None:
        """Copy a published run if its virtual host is traced. `contents` carry the properties as they are queued."""
        routed = ("routed_queues", "A", tuple([("S", _encoded(row.name)) for row in rows]))
        for origin, props, alike in _alike(origins, contents):
            if self._is_traced(origin.exchange):
                self._send(f"publish.{origin.exchange}", origin, props, [*self._client(), routed], alike)

    def trace_delivery(self, queue: str, origins: Origins, is_redelivered: bool, contents: Sequence[bytes]) -> None:
        """Copy a run that is delivered from `queue` if its virtual host is traced."""
        for origin, props, alike in _alike(origins, contents):
            if self._is_traced(origin.exchange):
                special: list[Field] = [("redelivered", "I", int(is_redelivered)), *self._client()]
                self._send(f"deliver.{queue}", origin, props, special, alike)

    def _is_traced(self, exchange: str) -> bool:
        return self._config.vhost in self._context.routing.traced and exchange != TRACE_EXCHANGE

    def _client(self) -> list[Field]:
        config = self._config
        return [
            ("vhost", "S", _encoded(config.vhost)),
            ("connection", "S", _encoded(config.connection_name)),
            ("channel", "I", config.number),
            ("user", "S", _encoded(config.user)),
        ]

    def _send(self, key: str, origin: Origin, props: bytes, special: list[Field], contents: Sequence[bytes]) -> None:
        properties = decode_properties(props)
        headers = self._headers(origin, properties, special)
        routing, vhost = self._context.routing, self._config.vhost
        keys = (_encoded(key)[:KEY_MAX].decode("utf-8", "surrogateescape"),)
        rows = with_shards(routing, vhost, routing.route(vhost, TRACE_EXCHANGE, keys, headers), self._sent)
        self._sent += 1
        if not rows:
            return
        try:
            new_props = encode_properties(Properties(headers=headers))
        except TooDeep:
            # The message's headers are nested as deeply as a table may be, and in the copy two levels deeper.
            headers = self._headers(origin, replace(properties, headers=None), special)
            new_props = encode_properties(Properties(headers=headers))
        copies = [with_properties(content, new_props) for content in contents]
        entry = Origin(TRACE_EXCHANGE, keys), copies, sum(map(body_size, copies)), 0
        for row in rows:
            self._process.send(row.address, to_queue.publish_at_most_once([entry]))

    def _headers(self, origin: Origin, properties: Properties, special: list[Field]) -> Table:
        return Table(
            [
                ("exchange_name", "S", _encoded(origin.exchange)),
                ("routing_keys", "A", tuple([("S", _encoded(routing_key)) for routing_key in origin.routing_keys])),
                ("properties", "F", _as_table(properties)),
                ("node", "S", _encoded(self._context.node_name)),
                *special,
            ]
        )


def _alike(origins: Origins, contents: Sequence[bytes]) -> Iterator[tuple[Origin, bytes, list[bytes]]]:
    """Neighbours with one origin and equal properties: the origin, the property bytes, and their contents."""
    pairs = zip(each_of(origins, len(contents)), contents)
    for (origin, props), group in groupby(pairs, key=lambda pair: (pair[0], content_properties(pair[1]))):
        yield origin, props, [content for _, content in group]


def _as_table(properties: Properties) -> Table:
    entries: list[Field] = []
    for name in _PROPERTIES:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            entries.append((name, "F", value))
        elif isinstance(value, int):
            entries.append((name, "I" if value < 1 << 31 else "l" if value < 1 << 63 else "T", value))
        else:
            entries.append((name, "S", _encoded(value)))
    return Table(entries)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
