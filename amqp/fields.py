"""Field tables and arrays (AB-46 to AB-48).

A table is its length in octets as a u32, then entries `shortstr name, letter, value`. An array is the same without
names. RabbitMQ reads the type letters `s`, `l` and `D` in another way than the text of 0-9-1, and clients follow
RabbitMQ:

====== ============= ==================================== =========================
letter name          on the wire                          in Python
====== ============= ==================================== =========================
`t`    bool          u8, not zero is true                 bool
`b`    byte          i8                                   int
`B`    unsignedbyte  u8                                   int
`s`    short         i16                                  int
`u`    unsignedshort u16                                  int
`I`    signedint     i32                                  int
`i`    unsignedint   u32                                  int
`l`    long          i64                                  int
`L`    long          i64, only read; becomes `l`          int
`f`    float         IEEE 32                              float
`d`    double        IEEE 64                              float
`D`    decimal       scale u8, value u32                  `(scale, value)`
`S`    longstr       u32 length, octets                   bytes
`x`    binary        u32 length, octets                   bytes
`T`    timestamp     u64 seconds since 1970               int
`F`    table         table                                :class:`Table`
`A`    array         array                                tuple of `(letter, value)`
`V`    void          nothing                              None
====== ============= ==================================== =========================

Each value keeps its letter, so that a header that came as `I` is delivered as `I` (AB-47). Names are decoded from UTF-8
with `surrogateescape`, so any bytes survive a round trip.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

TYPE_NAMES = {
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "f": "float",
    "d": "double",
    "D": "decimal",
    "S": "longstr",
    "x": "binary",
    "T": "timestamp",
    "F": "table",
    "A": "array",
    "V": "void",
}

#: Levels of tables and arrays. Each level costs 5 bytes or more on the wire and a stack frame in the decoder, so
#: without a limit a client could exhaust the stack; no client nests this deep on purpose.
MAX_DEPTH = 100

_FIXED = {
    "b": struct.Struct(">b"),
    "B": struct.Struct(">B"),
    "s": struct.Struct(">h"),
    "u": struct.Struct(">H"),
    "I": struct.Struct(">i"),
    "i": struct.Struct(">I"),
    "l": struct.Struct(">q"),
    "L": struct.Struct(">q"),
    "f": struct.Struct(">f"),
    "d": struct.Struct(">d"),
    "T": struct.Struct(">Q"),
}
#: Bytes that a value takes behind its type letter, for the letters of fixed size.
_SIZES = {**{letter: form.size for letter, form in _FIXED.items()}, "t": 1, "D": 5, "V": 0}
_DECIMAL = struct.Struct(">BI")
_LENGTH = struct.Struct(">I")


class FieldError(ValueError):
    """A table or array cannot be decoded, or a value cannot be encoded.

    `letter` is the type letter if the fault is that it is unknown, else the empty string.
    """

    def __init__(self, text: str, letter: str = "") -> None:
        super().__init__(text)
        self.letter = letter


class Table(tuple):  # type: ignore[type-arg]
    """Entries `(name: str, letter: str, value)` in wire order. Names may repeat."""

    __slots__ = ()

    def get(self, name: str) -> tuple[str, Any] | None:
        """`(letter, value)` of the first entry of that name, or None (AB-46)."""
        for entry in self:
            if entry[0] == name:
                return entry[1], entry[2]
        return None

    def replaced(self, name: str, letter: str, value: Any) -> Table:
        """A table in which `name` occurs once, with this value, at the place of its first entry or at the end."""
        new = (name, letter, value)
        entries: list[tuple[str, str, Any]] = []
        found = False
        for entry in self:
            if entry[0] != name:
                entries.append(entry)
            elif not found:
                entries.append(new)
                found = True
        return Table(entries if found else [*entries, new])

    def without(self, *names: str) -> Table:
        """A table without any entry of these names."""
        return Table(entry for entry in self if entry[0] not in names)


# --- decoding ---------------------------------------------------------------------------------------------------------


def value_size(letter: str) -> int | None:
    """Bytes that a value of this type takes behind its letter; None if a length or the letter's meaning decides."""
    return _SIZES.get(letter)


def decode_table(data: bytes) -> Table:
    """The table whose entries are exactly `data`, which has no length in front. Raises FieldError."""
    return _decode_entries(data, 0, len(data), 0)


def decode_table_at(data: bytes, position: int) -> tuple[Table, int]:
    """The length-prefixed table at `position`, and where it ends. Raises FieldError."""
    start, end = _extent(data, position, len(data))
    return _decode_entries(data, start, end, 0), end


def _extent(data: bytes, position: int, limit: int) -> tuple[int, int]:
    start = position + 4
    if start > limit:
        raise FieldError("length is cut off")
    end = start + int.from_bytes(data[position:start], "big")
    if end > limit:
        raise FieldError("length exceeds what is there")
    return start, end


def _decode_entries(data: bytes, position: int, end: int, depth: int) -> Table:
    entries = []
    while position < end:
        name_end = position + 1 + data[position]
        if name_end >= end:
            raise FieldError("name is cut off")
        name = data[position + 1 : name_end].decode("utf-8", "surrogateescape")
        letter, value, position = _decode_value(data, name_end, end, depth)
        entries.append((name, letter, value))
    return Table(entries)


def _decode_value(data: bytes, position: int, end: int, depth: int) -> tuple[str, Any, int]:
    letter = chr(data[position])
    position += 1
    value: Any
    if letter == "S" or letter == "x":
        start, stop = _extent(data, position, end)
        return letter, data[start:stop], stop
    fixed = _FIXED.get(letter)
    if fixed is not None:
        stop = position + fixed.size
        if stop > end:
            raise FieldError("value is cut off")
        (value,) = fixed.unpack_from(data, position)
        return "l" if letter == "L" else letter, value, stop
    if letter == "t":
        if position >= end:
            raise FieldError("value is cut off")
        return letter, data[position] != 0, position + 1
    if letter == "V":
        return letter, None, position
    if letter == "D":
        if position + 5 > end:
            raise FieldError("value is cut off")
        return letter, _DECIMAL.unpack_from(data, position), position + 5
    if letter == "F" or letter == "A":
        if depth >= MAX_DEPTH:
            raise FieldError(f"nested deeper than {MAX_DEPTH} levels")
        start, stop = _extent(data, position, end)
        if letter == "F":
            return letter, _decode_entries(data, start, stop, depth + 1), stop
        items = []
        while start < stop:
            item_letter, value, start = _decode_value(data, start, stop, depth + 1)
            items.append((item_letter, value))
        return letter, tuple(items), stop
    raise FieldError(f"unknown type letter {letter!r}", letter)


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_table(table: tuple[tuple[str, str, Any], ...]) -> bytes:
    """The encoded `table` with its length in front. Raises FieldError for a value that does not fit its letter."""
    parts: list[bytes] = []
    for name, letter, value in table:
        encoded = name.encode("utf-8", "surrogateescape")
        if len(encoded) > 255:
            raise FieldError(f"name of {len(encoded)} bytes; at most 255 are allowed")
        parts.append(bytes((len(encoded),)) + encoded)
        parts.append(_encode_value(letter, value))
    entries = b"".join(parts)
    return _LENGTH.pack(len(entries)) + entries


def _encode_value(letter: str, value: Any) -> bytes:
    try:
        if letter == "S" or letter == "x":
            return b"".join((letter.encode(), _LENGTH.pack(len(value)), value))
        if letter == "L":
            letter = "l"
        fixed = _FIXED.get(letter)
        if fixed is not None:
            return letter.encode() + fixed.pack(value)
        if letter == "t":
            return b"t\x01" if value else b"t\x00"
        if letter == "V":
            return b"V"
        if letter == "F":
            return b"F" + encode_table(value)
        if letter == "A":
            items = b"".join([_encode_value(*item) for item in value])
            return b"A" + _LENGTH.pack(len(items)) + items
        if letter == "D":
            return b"D" + _DECIMAL.pack(*value)
    except (struct.error, OverflowError, TypeError) as error:
        raise FieldError(f"{TYPE_NAMES[letter]} cannot be {value!r}: {error}") from None
    raise FieldError(f"unknown type letter {letter!r}", letter)


# --- plain Python values ----------------------------------------------------------------------------------------------


def table_from(mapping: Mapping[str, Any]) -> Table:
    """A table of plain Python values, with the letters that Python clients choose. Raises FieldError.

    bool `t`; int `I` if it fits, else `l`; float `d`; str `S`; bytes `x`; None `V`; datetime `T`; Decimal `D`;
    a mapping `F`; a list or tuple `A`.
    """
    return Table((name, *_value_from(value)) for name, value in mapping.items())


def _value_from(value: Any) -> tuple[str, Any]:
    if value is None:
        return "V", None
    if isinstance(value, bool):
        return "t", value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise FieldError(f"{value} does not fit 64 bits")
        return ("I" if -(1 << 31) <= value < 1 << 31 else "l"), value
    if isinstance(value, float):
        return "d", value
    if isinstance(value, str):
        return "S", value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bytes, bytearray)):
        return "x", bytes(value)
    if isinstance(value, datetime):
        return "T", int(value.timestamp())
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or exponent > 0 or value < 0:
            raise FieldError(f"decimal cannot be {value}")
        return "D", (-exponent, int(value.scaleb(-exponent)))
    if isinstance(value, Table):
        return "F", value
    if isinstance(value, Mapping):
        return "F", table_from(value)
    if isinstance(value, (list, tuple)):
        return "A", tuple(_value_from(item) for item in value)
    raise FieldError(f"no type letter for {type(value).__name__}")


def table_to_dict(table: Table) -> dict[str, Any]:
    """The table as a dict of plain values. The first of repeated names counts; long strings become `str`."""
    plain: dict[str, Any] = {}
    for name, letter, value in table:
        if name not in plain:
            plain[name] = _plain(letter, value)
    return plain


def _plain(letter: str, value: Any) -> Any:
    if letter == "S":
        return value.decode("utf-8", "surrogateescape")
    if letter == "F":
        return table_to_dict(value)
    if letter == "A":
        return [_plain(*item) for item in value]
    if letter == "D":
        return Decimal(value[1]).scaleb(-value[0])
    return value
