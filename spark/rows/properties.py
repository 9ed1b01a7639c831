"""The properties of messages as columns: each distinct value of the encoded properties is decoded once.

Messages of one publisher often have the same properties, and Arrow finds the distinct ones in C. Where each message has
its own, as a message id each, decoding costs microseconds a message, and `own_properties` does it instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.properties import Properties, decode_properties

#: The first second that is no time in a column: that of the year 10000.
TOO_LATE = 253_402_300_800
#: Distinct properties that are remembered from one batch to the next.
REMEMBERED = 4096


class Decoded(NamedTuple):
    """Properties as a row has them. Those that cannot be decoded have only None."""

    properties: Properties | None

    def text(self, name: str) -> str | None:
        """A property that is a short string."""
        value = getattr(self.properties, name, None)
        return None if value is None else as_utf8(value)

    def number(self, name: str) -> int | None:
        """A property that is a number."""
        value: int | None = getattr(self.properties, name, None)
        return value

    @property
    def table(self) -> Table | None:
        """The headers."""
        return None if self.properties is None else self.properties.headers

    @property
    def persistent(self) -> bool | None:
        """Whether the delivery mode is 2; None if the properties cannot be decoded."""
        return None if self.properties is None else self.properties.delivery_mode == 2

    @property
    def timestamp(self) -> int | None:
        """In microseconds. A number of seconds beyond the year 9999 is no time."""
        seconds = self.number("timestamp")
        return None if seconds is None or seconds >= TOO_LATE else seconds * 1_000_000


@lru_cache(maxsize=REMEMBERED)
def decoded(props: bytes) -> Decoded:
    """The properties in these bytes."""
    try:
        return Decoded(decode_properties(props))
    except AmqpError:
        return Decoded(None)


def headers_as_map(table: Table | None) -> list[tuple[str, str | None]] | None:
    """The headers as strings: strings as they are, other values as JSON, bytes that are no UTF-8 as `base64:…`.

    Of several headers with one name the first one counts, as in `Table.get`.
    """
    if table is None:
        return None
    return list({as_utf8(name): header_text(letter, value) for name, letter, value in reversed(table)}.items())[::-1]


def header_text(letter: str, value: Any) -> str | None:
    """One value of a header as a string; None for a void one."""
    if letter in "Sx":
        return _bytes_text(value)
    if letter == "V":
        return None
    return _as_json(letter, value)


def headers_as_json(table: Table | None) -> str | None:
    """The headers as one string of JSON, with their types as far as JSON has them."""
    return None if table is None else _as_json("F", table)


def x_death(table: Table | None) -> list[dict[str, Any]] | None:
    """The header `x-death` of a dead letter as a list of structs; None if there is none, or one of another form."""
    entry = None if table is None else table.get("x-death")
    if entry is None or entry[0] != "A":
        return None
    found = []
    for letter, death in entry[1]:
        if letter != "F":
            return None
        fields = {name: (kind, value) for name, kind, value in reversed(death)}
        found.append({name: convert(fields.get(_HEADER_NAMES.get(name, name))) for name, convert in _DEATH.items()})
    return found


def routing_keys(key: str, table: Table | None) -> list[str]:
    """The key of a delivery, and those in its header CC."""
    entry = None if table is None else table.get("CC")
    more = entry[1] if entry is not None and entry[0] == "A" else ()
    return [key, *(_bytes_text(value) for letter, value in more if letter == "S")]


def _as_json(letter: str, value: Any) -> str:
    """A value of a header as JSON. Tables and arrays may be nested so deep that recursion would exhaust the stack."""
    found: list[str] = []
    #: What comes next, the last item first: text of JSON, or a value with its letter.
    waiting: list[str | tuple[str, Any]] = [(letter, value)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
            continue
        letter, value = item
        if letter == "F":
            entries = {as_utf8(name): (kind, each) for name, kind, each in reversed(value)}
            parts: list[str | tuple[str, Any]] = [
                part for name, entry in entries.items() for part in (",", f"{_dumps(name)}:", entry)
            ]
        elif letter == "A":
            parts = [part for entry in value for part in (",", entry)]
        else:
            found.append(_dumps(_plain(letter, value)))
            continue
        begin, end = "{}" if letter == "F" else "[]"
        waiting += [end, *reversed(parts[1:]), begin]
    return "".join(found)


_dumps = json.JSONEncoder(ensure_ascii=False).encode


def _plain(letter: str, value: Any) -> Any:
    """A value that is neither a table nor an array, as a value that JSON has."""
    if letter in "Sx":
        return _bytes_text(value)
    if letter == "D":
        return value[1] / 10 ** value[0]
    return value


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def as_utf8(text: str) -> str:
    """A name as Arrow can hold it: bytes that are not UTF-8 become the replacement character."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _string(entry: tuple[str, Any] | None) -> str | None:
    return _bytes_text(entry[1]) if entry is not None and entry[0] in "Sx" else None


def _strings(entry: tuple[str, Any] | None) -> list[str] | None:
    if entry is None or entry[0] != "A":
        return None
    return [_bytes_text(value) for letter, value in entry[1] if letter in "Sx"]


#: The letters of integers that a column of 64 bits holds.
_INTEGERS = "bBsuIil"


def _integer(entry: tuple[str, Any] | None) -> int | None:
    return entry[1] if entry is not None and entry[0] in _INTEGERS else None


def _time(entry: tuple[str, Any] | None) -> int | None:
    return entry[1] * 1_000_000 if entry is not None and entry[0] == "T" and entry[1] < TOO_LATE else None


#: The fields of a death in the column `x_death`, with what makes them of an entry of the header.
_DEATH: Mapping[str, Callable[[tuple[str, Any] | None], Any]] = {
    "queue": _string,
    "reason": _string,
    "exchange": _string,
    "routing_keys": _strings,
    "count": _integer,
    "time": _time,
}
#: Fields whose names in the header differ.
_HEADER_NAMES = {"routing_keys": "routing-keys"}
