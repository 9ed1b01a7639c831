"""What becomes of a message that dies (AB-147 to AB-153), and which keys a message is routed by (AB-75).

Header `x-death` is an array of tables, the most recent death first, one table for each (queue, reason). Dying again in the
same queue for the same reason counts that table up and moves it to the front. Arrays written by others are taken as they are
as far as possible: their doubles are merged, what is no table is ignored in comparisons and kept.

Pure functions of values; nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from .array_headers import prepend_to_array_header
from .constants import PRECONDITION_FAILED
from .errors import AmqpError
from .fields import TYPE_NAMES, Table
from .properties import Properties

NO_HEADERS = Table()

REJECTED = "rejected"
EXPIRED = "expired"
MAXLEN = "maxlen"


class DeadLetter(NamedTuple):
    """A dead-lettered message: its properties, and what it is routed by."""

    properties: Properties
    routing_keys: tuple[str, ...]


def dead_letter(
    properties: Properties,
    reason: str,
    queue: str,
    exchange: str,
    routing_keys: tuple[str, ...],
    seconds: int,
    dead_letter_routing_key: str | None,
) -> DeadLetter:
    """The message as it is published to the dead-letter exchange.

    `reason` is REJECTED, EXPIRED or MAXLEN; `exchange` and `routing_keys` (publish key, CC, BCC) are those it came with;
    `seconds` is the time of death since 1970.
    """
    headers = properties.headers or NO_HEADERS
    headers = _with_death(
        headers, _death(headers, reason, queue, exchange, routing_keys[0], seconds, properties.expiration)
    )
    if dead_letter_routing_key is not None:
        headers = headers.without("CC")
        routing_keys = (dead_letter_routing_key,)
    return DeadLetter(replace(properties, headers=headers, expiration=None), routing_keys)


def is_cycle(headers: Table | None, queue: str) -> bool:
    """Whether the message, this death already in its headers, came back to `queue` without a client's doing (AB-153).

    To be asked for every queue the dead letter is routed to, unless it was rejected.
    """
    found = (headers or NO_HEADERS).get("x-death")
    if found is None or found[0] != "A":
        return False
    for letter, death in found[1]:
        if letter != "F" or death.get("reason") == ("S", REJECTED.encode()):
            return False
        if death.get("queue") == ("S", _octets(queue)):
            return True
    return False


# --- keys the sender selected (AB-75) ---------------------------------------------------------------------------------


def sender_selected_keys(headers: Table | None) -> tuple[str, ...]:
    """The routing keys in headers CC and BCC, in this order. C406 if one of them is not an array."""
    if not headers:
        return ()
    keys: tuple[str, ...] = ()
    for name in ("CC", "BCC"):
        found = headers.get(name)
        if found is not None:
            letter, value = found
            if letter != "A":
                raise AmqpError(
                    PRECONDITION_FAILED,
                    f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[letter]}}}',
                )
            keys += _strings(value)
    return keys


def without_bcc(properties: Properties) -> Properties:
    """The properties as they are queued; the same object if there is no BCC header."""
    headers = properties.headers
    if headers is None or headers.get("BCC") is None:
        return properties
    return replace(properties, headers=headers.without("BCC"))


def _strings(array: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "surrogateescape") for letter, value in array if letter == "S")


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- x-death ----------------------------------------------------------------------------------------------------------


def _death(
    headers: Table, reason: str, queue: str, exchange: str, routing_key: str, seconds: int, expiration: str | None
) -> Table:
    carbon_copies = headers.get("CC")
    keys = [routing_key, *(_strings(carbon_copies[1]) if carbon_copies is not None and carbon_copies[0] == "A" else ())]
    fields: list[tuple[str, str, Any]] = [
        ("count", "l", 1),
        ("reason", "S", reason.encode()),
        ("queue", "S", _octets(queue)),
        ("time", "T", seconds),
        ("exchange", "S", _octets(exchange)),
        ("routing-keys", "A", tuple(("S", _octets(key)) for key in keys)),
    ]
    if expiration is not None:
        fields.append(("original-expiration", "S", _octets(expiration)))
    return Table(fields)


def _with_death(headers: Table, death: Table) -> Table:
    """The headers with this death in front of the others (AB-150 to AB-152)."""
    existing = headers.get("x-death")
    if existing is None:
        for part in ("reason", "queue", "exchange"):
            headers = headers.replaced(f"x-first-death-{part}", *_field(death, part))
        return prepend_to_array_header(headers, "x-death", death)
    letter, deaths = existing
    if letter != "A":
        return headers.replaced("x-death", "A", (("F", death),))
    key = _key(death)
    others = []
    for entry in _merged(deaths):
        if entry[0] == "F" and _key(entry[1]) == key:
            death = _counted_up(entry[1])
        else:
            others.append(entry)
    return headers.replaced("x-death", "A", (("F", death), *others))


def _field(death: Table, name: str) -> tuple[str, Any]:
    found = death.get(name)
    assert found is not None
    return found


def _key(death: Table) -> tuple[Any, Any]:
    queue, reason = death.get("queue"), death.get("reason")
    return (queue and queue[1]), (reason and reason[1])


def _merged(deaths: tuple[tuple[str, Any], ...]) -> list[tuple[str, Any]]:
    """One table for each (queue, reason), the first of them; one without `count` gets the number of its doubles (AB-150)."""
    if len(deaths) < 2:
        return list(deaths)
    doubles: dict[tuple[Any, Any], int] = {}
    for letter, death in deaths:
        if letter == "F":
            doubles[_key(death)] = doubles.get(_key(death), 0) + 1
    merged = []
    for letter, death in deaths:
        if letter != "F":
            merged.append((letter, death))
            continue
        number = doubles.pop(_key(death), None)
        if number is not None:
            merged.append(
                (letter, death if death.get("count") is not None else Table((("count", "l", number), *death)))
            )
    return merged


def _counted_up(death: Table) -> Table:
    count = death.get("count")
    number = count[1] + 1 if count is not None and isinstance(count[1], int) else 1
    return death.replaced("count", "l", number)
