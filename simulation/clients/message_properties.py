"""The properties and routing keys of simulated messages, and the check that clients receive them as published.

In a plan with differing messages, no two messages have equal properties: each has ids, a timestamp and headers of its
own, and neighbours often differ in routing key, size or destination as well, and sometimes in priority; those that
expire differ in their expiration. The broker nevertheless joins them into few runs. If it mixes up the messages of a
run, a client receives properties or a routing key of another message.
"""

from __future__ import annotations

from ...amqp import methods
from ...amqp.fields import Table, table_from
from ...amqp.properties import Properties, decode_properties
from ..model.copies import PromiseBroken, PublishedMessage

#: The header in which a quorum queue counts how often a message was returned to it.
DELIVERY_COUNT = "x-delivery-count"
#: Headers that the broker adds to a dead letter. It also removes the expiration, and sorts the headers by name.
_DEATH_HEADERS = ("x-death", "x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")


def properties_of(message: PublishedMessage) -> Properties:
    """The properties that the message is published with."""
    properties = Properties(
        delivery_mode=2 if message.persistent else 1,
        priority=message.priority,
        expiration=str(round(message.expiration * 1000)) if message.expiration else None,
    )
    number = message.number
    if message.is_differing:
        properties.message_id = f"message {number:05}"
        properties.timestamp = 1_700_000_000 + number
        if number % 16 > 1:
            properties.correlation_id = str(number)
            properties.headers = table_from(
                {"trace": f"{number:08}", "CC?": number % 5, "more": "\x02CC" * (number % 16 == 5)}
            )
        if number % 7 == 0:
            properties.type, properties.app_id = f"type {number}", "app" * (number % 4)
    return properties


def delivery_count(props: bytes) -> int:
    """How often a message of a quorum queue was returned to it."""
    headers = decode_properties(props).headers
    found = headers.get(DELIVERY_COUNT) if headers is not None else None
    return 0 if found is None else int(found[1])


def check_properties(
    message: PublishedMessage,
    method: methods.BasicDeliver | methods.BasicGetOk | methods.BasicReturn,
    props: bytes,
    is_dead: bool,
) -> None:
    """Raise PromiseBroken unless a delivery or return has the properties and the origin of the published message."""
    expected, found = properties_of(message), decode_properties(props)
    if found.headers is not None:
        found.headers = Table([entry for entry in found.headers if entry[0] != DELIVERY_COUNT]) or None
    if is_dead:
        expected.expiration = None
        expected.headers = Table(sorted(expected.headers)) if expected.headers else None
        kept = [entry for entry in found.headers or () if entry[0] not in _DEATH_HEADERS]
        found.headers = Table(kept) if kept else None
    elif (method.exchange, method.routing_key) != (message.exchange, message.routing_key):
        raise PromiseBroken(
            f"message {message.number} was published to exchange '{message.exchange}' with routing key "
            f"'{message.routing_key}', and came from exchange '{method.exchange}' with routing key "
            f"'{method.routing_key}'"
        )
    if found != expected:
        raise PromiseBroken(f"the properties of message {message.number} are {found} instead of {expected}")
