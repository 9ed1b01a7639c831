"""The headers and routing keys of dead-lettered messages (AB-147 to AB-153, AB-155).

The header `x-death` is an array of tables, one for each (queue, reason) of a death, the latest death first. When a
message dies again in the same queue for the same reason, the count in its table goes up and the table moves to the
front. Clients may have written the array too. Their tables are kept as far as possible: duplicates are merged, and
elements that are no tables stay where they are but are never compared.

Every table that gets a new value is sorted by name, as in RabbitMQ.

All functions are pure: they return new values and change no argument.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from .fields import Table, encode_table
from .properties import Properties

NO_HEADERS = Table()

REJECTED = "rejected"
EXPIRED = "expired"
MAXLEN = "maxlen"
#: A quorum queue gives the message up, because it was returned too often.
DELIVERY_LIMIT = "delivery_limit"

#: The message would have to wait longer in its queue than the policy that paces it allows. RabbitMQ has no such reason.
PACED = "paced"

INVALID_HEADERS = "x-invalid-headers"

#: The headers that `dead_letter` and `is_cycle` read or change. Others may be left out of the properties.
NEEDED_HEADERS = frozenset(
    (b"CC", b"x-death", b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason")
    + (INVALID_HEADERS.encode(),)
)

#: A value of a field table or an array: the letter of its type and the value.
Field = tuple[str, Any]
#: What identifies an entry of `x-death`: the values of its fields `queue` and `reason`, None where the field is
#: missing.
DeathKey = tuple[Any, Any]


class DeadLetter(NamedTuple):
    """A dead-lettered message: its properties and its routing keys."""

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
    """The message as the queue publishes it to the dead-letter exchange.

    `reason` is REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT or PACED; `exchange` and `routing_keys` (publish key, CC, BCC)
    are those of its publish; `seconds` is the time of death since 1970.
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
    """Whether dead-lettering to `queue` would close a cycle that no client takes part in (AB-153).

    `headers` already record the present death. The caller asks for each queue that the dead letter is routed to, unless
    the message was rejected.
    """
    found = (headers or NO_HEADERS).get("x-death")
    if found is None or found[0] != "A":
        return False
    for letter, death in found[1]:
        if letter != "F" or death.get("reason") == ("S", REJECTED.encode()):
            return False
        if death.get("queue") == ("S", _encoded(queue)):
            return True
    return False


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# -- x-death ---


def _death(
    headers: Table, reason: str, queue: str, exchange: str, routing_key: str, seconds: int, expiration: str | None
) -> Table:
    """The entry of a first death. Its routing keys are the publish key and the CC keys, not the BCC keys (AB-149)."""
    keys = [("S", _encoded(routing_key))]
    carbon_copies = headers.get("CC")
    if carbon_copies is not None and carbon_copies[0] == "A":
        keys += [(letter, key) for letter, key in carbon_copies[1] if letter == "S"]
    fields: list[tuple[str, str, Any]] = [
        ("count", "l", 1),
        ("reason", "S", reason.encode()),
        ("queue", "S", _encoded(queue)),
        ("time", "T", seconds),
        ("exchange", "S", _encoded(exchange)),
        ("routing-keys", "A", tuple(keys)),
    ]
    if expiration is not None:
        fields.append(("original-expiration", "S", _encoded(expiration)))
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
        return _with(headers, "x-death", "A", (("F", death),))
    key = _key(death)
    others = []
    for entry in _merged(deaths):
        if entry[0] == "F" and _key(entry[1]) == key:
            death = _counted_up(entry[1])
        else:
            others.append(entry)
    return _with(headers, "x-death", "A", (("F", death), *others))


def _with(headers: Table, name: str, letter: str, value: Any) -> Table:
    """`headers` with this value under `name`, sorted by name as RabbitMQ sorts every table that it changes."""
    changed = headers.replaced(name, letter, value)
    # RabbitMQ sorts by the bytes of the names. Names in ASCII have the same order as texts, so most need no encoding.
    is_ascii = all(map(str.isascii, map(itemgetter(0), changed)))
    return Table(sorted(changed, key=itemgetter(0) if is_ascii else _encoded_name))


def _encoded_name(entry: tuple[str, str, Any]) -> bytes:
    return _encoded(entry[0])


def _field(death: Table, name: str) -> Field:
    found = death.get(name)
    assert found is not None
    return found


def _key(death: Table) -> DeathKey:
    return _comparable(death.get("queue")), _comparable(death.get("reason"))


def _comparable(field: Field | None) -> Any:
    """The value of the field; encoded if it is a table or an array, because Python compares these by recursion."""
    if field is None:
        return None
    return encode_table((("", *field),)) if isinstance(field[1], tuple) else field[1]


def _merged(deaths: tuple[Field, ...]) -> list[Field]:
    """`deaths` with only the first table of each (queue, reason). Without a `count`, it gets their number (AB-150)."""
    if len(deaths) < 2:
        return list(deaths)
    numbers: dict[DeathKey, int] = {}
    for letter, death in deaths:
        if letter == "F":
            numbers[_key(death)] = numbers.get(_key(death), 0) + 1
    merged = []
    for letter, death in deaths:
        if letter != "F":
            merged.append((letter, death))
            continue
        number = numbers.pop(_key(death), None)
        if number is not None:
            merged.append(
                (letter, death if death.get("count") is not None else Table((("count", "l", number), *death)))
            )
    return merged


def _counted_up(death: Table) -> Table:
    count = death.get("count")
    number = count[1] + 1 if count is not None and isinstance(count[1], int) else 1
    return _with(death, "count", "l", number)


# -- headers that are arrays of tables ---


def prepend_to_array_header(headers: Table, name: str, entry: Table) -> Table:
    """`headers` with `entry` put in front of the array `name` (AB-155).

    If the value under `name` is no array, it moves to the table header `x-invalid-headers`, which holds for each name
    an array of the values found there, newest first. If `x-invalid-headers` itself is no table, its value is recorded
    in a new table under its own name.
    """
    existing = headers.get(name)
    if existing is None:
        return _with(headers, name, "A", (("F", entry),))
    letter, value = existing
    if letter == "A":
        return _with(headers, name, "A", (("F", entry), *value))
    return _with(_with_invalid(headers, name, existing), name, "A", (("F", entry),))


def _with_invalid(headers: Table, name: str, found: Field) -> Table:
    existing = headers.get(INVALID_HEADERS)
    if existing is None:
        invalid = Table()
    elif existing[0] == "F":
        invalid = existing[1]
    else:
        invalid = Table(((INVALID_HEADERS, "A", (existing,)),))
    before = invalid.get(name)
    earlier = before[1] if before is not None and before[0] == "A" else ()
    return _with(headers, INVALID_HEADERS, "F", _with(invalid, name, "A", (found, *earlier)))
