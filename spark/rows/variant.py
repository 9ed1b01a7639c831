"""Headers as a variant of Spark, which keeps the type of each value: `headersFormat=variant` (SP-41).

A variant is two byte strings. The *metadata* has the names of all fields, so that each is there once:

    head       1 in the lower 4 bits, the version; in the highest 2 bits the width of a number, less one
    number     how many names there are
    numbers    where each name begins, and where the last one ends
    names      in UTF-8, one behind the other

The *value* begins with a byte whose lowest 2 bits are its kind:

    0  primitive       the other bits are its type; then the value, little-endian
    1  short string    the other bits are its length; then the string
    2  object          count; by name the place of its name in the metadata; where the value of each field begins, and
                       where the last one ends; the values
    3  array           count; where each value begins, and where the last one ends; the values

The head of an object and of an array also has the widths of its numbers, less one, and whether the count has 4 bytes
instead of 1. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...amqp.fields import Table
from .properties import TOO_LATE, as_utf8

_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
_LONGEST_SHORT, _MOST_IN_BYTE = 63, 255
_NULL, _TRUE, _FALSE, _DOUBLE, _TIMESTAMP, _FLOAT, _BINARY, _STRING = 0, 1, 2, 7, 12, 14, 15, 16
#: By their bytes: the types of integers, and those of decimals with their most digits.
_INTEGERS = {1: 3, 2: 4, 4: 5, 8: 6}
_DECIMALS = {4: (8, 9), 8: (9, 18), 16: (10, 38)}


class _OpenHeader(NamedTuple):
    """A table or an array whose values are being made.

    names     the places of its fields' names in the metadata, in the order of the names; None for an array
    left      the values that are left, the next one last
    made      the values that are made
    """

    names: list[int] | None
    left: list[tuple[str, Any]]
    made: list[bytes]


def variant(table: Table) -> dict[str, bytes]:
    """Headers as Spark's two parts of a variant. Of several headers with one name the first one counts.

    Tables may be nested so deep that recursion would exhaust the stack.
    """
    places: dict[str, int] = {}
    opened = [_opened("F", table, places)]
    while True:
        innermost = opened[-1]
        if innermost.left:
            letter, value = innermost.left.pop()
            if letter in "FA":
                opened.append(_opened(letter, value, places))
            else:
                innermost.made.append(_scalar(letter, value))
            continue
        whole = _closed(opened.pop())
        if not opened:
            return {"value": whole, "metadata": _metadata(places)}
        opened[-1].made.append(whole)


def _opened(letter: str, value: Any, places: dict[str, int]) -> _OpenHeader:
    if letter == "A":
        return _OpenHeader(None, list(reversed(value)), [])
    fields = {as_utf8(name): (kind, each) for name, kind, each in reversed(value)}
    # Spark seeks a field as Java compares strings: by units of UTF-16.
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    return _OpenHeader(
        [places.setdefault(name, len(places)) for name in names], [fields[name] for name in reversed(names)], []
    )


def _closed(whole: _OpenHeader) -> bytes:
    names, _, values = whole
    count_width = 1 if len(values) <= _MOST_IN_BYTE else 4
    offsets, width = _offsets(values)
    if names is None:
        head = _ARRAY | width - 1 << 2 | (count_width == 4) << 4
        ids = b""
    else:
        id_width = _width(max(names, default=0))
        head = _OBJECT | width - 1 << 2 | id_width - 1 << 4 | (count_width == 4) << 6
        ids = _numbers(names, id_width)
    return b"".join((bytes((head,)), len(values).to_bytes(count_width, "little"), ids, offsets, *values))


def _metadata(places: dict[str, int]) -> bytes:
    names = [name.encode() for name in places]
    width = max(_width(len(names)), _width(sum(map(len, names))))
    offsets, _ = _offsets(names, width)
    return b"".join((bytes((1 | width - 1 << 6,)), len(names).to_bytes(width, "little"), offsets, *names))


def _offsets(parts: Sequence[bytes], width: int = 0) -> tuple[bytes, int]:
    """Where each part begins and the last one ends, as numbers of `width` bytes, and that width; by default the least
    that does.
    """
    places = [0]
    for part in parts:
        places.append(places[-1] + len(part))
    width = width or _width(places[-1])
    return _numbers(places, width), width


def _numbers(values: Sequence[int], width: int) -> bytes:
    return b"".join(value.to_bytes(width, "little") for value in values)


def _width(number: int) -> int:
    """The least bytes that an unsigned number needs."""
    return max(1, -(-number.bit_length() // 8))


def _scalar(letter: str, value: Any) -> bytes:
    """A value of a header that is neither a table nor an array."""
    if letter == "V":
        return _primitive(_NULL)
    if letter == "t":
        return _primitive(_TRUE if value else _FALSE)
    if letter == "f":
        return _primitive(_FLOAT, struct.pack("<f", value))
    if letter == "d":
        return _primitive(_DOUBLE, struct.pack("<d", value))
    if letter == "D":
        scale, number = value
        return _decimal(scale, number)
    if letter == "T" and value < TOO_LATE:
        return _primitive(_TIMESTAMP, (value * 1_000_000).to_bytes(8, "little"))
    if letter in "Sx":
        return _text(value) if letter == "S" and _is_utf8(value) else _sized(_BINARY, value)
    return _integer(value)


def _primitive(type: int, data: bytes = b"") -> bytes:
    return bytes((type << 2,)) + data


def _sized(type: int, data: bytes) -> bytes:
    return _primitive(type, len(data).to_bytes(4, "little") + data)


def _text(value: bytes) -> bytes:
    if len(value) <= _LONGEST_SHORT:
        return bytes((_SHORT_STRING | len(value) << 2,)) + value
    return _sized(_STRING, value)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _integer(value: int) -> bytes:
    for width, type in _INTEGERS.items():
        if -1 << 8 * width - 1 <= value < 1 << 8 * width - 1:
            return _primitive(type, value.to_bytes(width, "little", signed=True))
    return _decimal(0, value)


def _decimal(scale: int, number: int) -> bytes:
    """`number` divided by ten to the power of `scale`; a double if a variant has no decimal with so many digits."""
    for width, (type, digits) in _DECIMALS.items():
        if scale <= digits and number < 10**digits:
            return _primitive(type, bytes((scale,)) + number.to_bytes(width, "little"))
    return _primitive(_DOUBLE, struct.pack("<d", number / 10**scale))
