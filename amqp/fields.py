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
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
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

#: A table with more entries than this has an index.
INDEXED_FROM = 64

#: Levels of tables and arrays. Each level costs 5 bytes or more on the wire. The functions here walk over a table
#: without recursion, but Python hashes and frees nested tuples by recursion in C, whose stack has an end.
MAX_DEPTH = 512

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
#: By the byte of a letter: the letter that the value gets, the function that reads it, and its size.
_FIXED_KINDS = [
    ("l" if letter == "L" else letter, form.unpack_from, form.size) if (form := _FIXED.get(letter)) else None
    for letter in map(chr, range(256))
]
_LONG_STRING, _TABLE, _ARRAY, _VOID, _BOOLEAN = b"SFAVt"
_DECIMAL = struct.Struct(">BI")
_LENGTH = struct.Struct(">I")


class FieldError(ValueError):
    """A table or array cannot be decoded, or a value cannot be encoded.

    `letter` is the type letter if the fault is that it is unknown, else the empty string.
    """

    def __init__(self, text: str, letter: str = "") -> None:
        super().__init__(text)
        self.letter = letter


class TooDeep(FieldError):
    """Tables and arrays are nested deeper than MAX_DEPTH levels."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


class Table(tuple):  # type: ignore[type-arg]
    """Entries `(name: str, letter: str, value)` in wire order. Names may repeat."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare as tuples do, but without recursion: a tuple that is nested 500 levels deep exhausts the stack.

        A table in which there are neither tables nor arrays is compared in C, so that thousands of entries take 0.5 ms.
        """
        waiting: list[tuple[Any, Any]] = [(self, other)]
        while waiting:
            one, two = waiting.pop()
            if not (isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two)):
                return False
            if _is_flat(one):
                if not tuple.__eq__(one, two):
                    return False
                continue
            for left, right in zip(one, two):
                if isinstance(left, tuple):
                    waiting.append((left, right))
                elif left is not right and left != right:
                    return False
        return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        # Encoded, because pickle walks over nested tuples by recursion.
        return decode_table, (encode_table(self)[4:],)

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


def _is_flat(entries: tuple[Any, ...]) -> bool:
    """Whether these are entries of a table or an array, and the value of none of them is a table or an array."""
    try:
        kinds = set(map(type, map(itemgetter(-1), entries)))
    except (TypeError, IndexError):
        return False
    return kinds.isdisjoint(_TUPLES)


class IndexedTable(Table):
    """A table with so many entries that a search through all of them takes long.

    A queue's arguments are looked up forty times when it is declared, which took 9 ms with 8,000 of them.
    """

    #: By name: the first entry of that name. Made by the first look-up.
    _index: dict[str, tuple[str, str, Any]]

    def get(self, name: str) -> tuple[str, Any] | None:
        if "_index" not in self.__dict__:
            self._index = {entry[0]: entry for entry in reversed(self)}
        found = self._index.get(name)
        return None if found is None else (found[1], found[2])


def table_of(entries: list[tuple[str, str, Any]]) -> Table:
    """A table of these entries, with an index if there are many."""
    return IndexedTable(entries) if len(entries) > INDEXED_FROM else Table(entries)


#: The types of values that are tuples.
_TUPLES = (tuple, Table, IndexedTable)


# --- decoding ---------------------------------------------------------------------------------------------------------


def value_size(letter: str) -> int | None:
    """Bytes that a value of this type takes behind its letter; None if a length or the letter's meaning decides."""
    return _SIZES.get(letter)


def decode_table(data: bytes) -> Table:
    """The table whose entries are exactly `data`, which has no length in front. Raises FieldError."""
    return _decode_entries(data, 0, len(data))


def decode_table_at(data: bytes, position: int) -> tuple[Table, int]:
    """The length-prefixed table at `position`, and where it ends. Raises FieldError."""
    start, end = _extent(data, position, len(data))
    return _decode_entries(data, start, end), end


def _extent(data: bytes, position: int, limit: int) -> tuple[int, int]:
    start = position + 4
    if start > limit:
        raise FieldError("length is cut off")
    end = start + int.from_bytes(data[position:start], "big")
    if end > limit:
        raise FieldError("length exceeds what is there")
    return start, end


def _decode_entries(data: bytes, position: int, end: int) -> Table:
    """The table whose entries are `data[position:end]`."""
    #: The entries of the innermost open table or array, as far as they are read.
    entries: list[Any] = []
    is_table = True
    #: For each table and array around that one: its entries, whether it is a table, its end, and the name of its entry
    #: that is being read.
    around: list[tuple[list[Any], bool, int, str]] = []
    name, fixed_kinds = "", _FIXED_KINDS
    value: Any
    while True:
        while position < end:
            if is_table:
                name_end = position + 1 + data[position]
                if name_end >= end:
                    raise FieldError("name is cut off")
                name = data[position + 1 : name_end].decode("utf-8", "surrogateescape")
                position = name_end
            kind = data[position]
            position += 1
            # Numbers and texts are read here, because a call for each would double the time for a long table.
            fixed = fixed_kinds[kind]
            if fixed is not None:
                letter, unpack, size = fixed
                if position + size > end:
                    raise FieldError("value is cut off")
                value = unpack(data, position)[0]
                position += size
            elif kind == _LONG_STRING:
                start = position + 4
                stop = start + int.from_bytes(data[position:start], "big")
                if start > end or stop > end:
                    start, stop = _extent(data, position, end)
                letter, value, position = "S", data[start:stop], stop
            elif kind == _VOID:
                letter, value = "V", None
            elif kind == _BOOLEAN:
                if position >= end:
                    raise FieldError("value is cut off")
                letter, value, position = "t", data[position] != 0, position + 1
            elif kind == _TABLE or kind == _ARRAY:
                if len(around) >= MAX_DEPTH:
                    raise TooDeep
                start, stop = _extent(data, position, end)
                around.append((entries, is_table, end, name))
                entries, is_table, position, end = [], kind == _TABLE, start, stop
                continue
            else:
                letter = chr(kind)
                value, position = _decode_scalar(data, letter, position, end)
            entries.append((name, letter, value) if is_table else (letter, value))
        if not around:
            return table_of(entries)
        whole: Any = Table(entries) if is_table else tuple(entries)
        letter = "F" if is_table else "A"
        entries, is_table, end, name = around.pop()
        entries.append((name, letter, whole) if is_table else (letter, whole))


def _decode_scalar(data: bytes, letter: str, position: int, end: int) -> tuple[Any, int]:
    """The value of one of the rarer types at `position`, and where it ends."""
    if letter == "x":
        start, stop = _extent(data, position, end)
        return data[start:stop], stop
    if letter == "D":
        if position + 5 > end:
            raise FieldError("value is cut off")
        return _DECIMAL.unpack_from(data, position), position + 5
    raise FieldError(f"unknown type letter {letter!r}", letter)


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_table(table: tuple[tuple[str, str, Any], ...]) -> bytes:
    """The encoded `table` with its length in front. Raises FieldError for a value that does not fit its letter."""
    out = bytearray(4)
    #: For each open table or array, the outermost first: its entries that are left, whether it is a table, and where
    #: its length stands.
    open_ones: list[tuple[Iterator[Any], bool, int]] = [(iter(table), True, 0)]
    while open_ones:
        entries, is_table, length_at = open_ones[-1]
        for entry in entries:
            if is_table:
                name, letter, value = entry
                try:
                    encoded = name.encode("utf-8", "surrogateescape")
                except (UnicodeEncodeError, AttributeError) as error:
                    raise FieldError(f"name cannot be encoded: {error}") from None
                if len(encoded) > 255:
                    raise FieldError(f"name of {len(encoded)} bytes; at most 255 are allowed")
                out.append(len(encoded))
                out += encoded
            else:
                letter, value = entry
            if letter == "F" or letter == "A":
                if len(open_ones) > MAX_DEPTH:
                    raise TooDeep
                out += letter.encode() + bytes(4)
                open_ones.append((_entries_of(letter, value), letter == "F", len(out) - 4))
                break
            out += _encode_scalar(letter, value)
        else:
            out[length_at : length_at + 4] = _LENGTH.pack(len(out) - length_at - 4)
            open_ones.pop()
    return bytes(out)


def _entries_of(letter: str, value: Any) -> Iterator[Any]:
    try:
        return iter(value)
    except TypeError as error:
        raise FieldError(f"{TYPE_NAMES[letter]} cannot be {value!r}: {error}") from None


def _encode_scalar(letter: str, value: Any) -> bytes:
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
    #: The entries made of the innermost open mapping or sequence, and its items that are left.
    entries: list[Any] = []
    left: Iterator[Any] = iter(mapping.items())
    is_table = True
    #: The mappings and sequences that enclose it, the outermost first. Of each: the entries made, the items left,
    #: whether it is a mapping, and the name of the entry that the inner ones belong to.
    around: list[tuple[list[Any], Iterator[Any], bool, str]] = []
    name = ""
    while True:
        for item in left:
            value = item
            if is_table:
                name, value = item
                if not isinstance(name, str):
                    raise FieldError(f"name must be a str, not {type(name).__name__}")
            if isinstance(value, (Mapping, list, tuple)) and not isinstance(value, Table):
                if len(around) >= MAX_DEPTH:
                    raise TooDeep
                around.append((entries, left, is_table, name))
                is_table = isinstance(value, Mapping)
                entries, left = [], iter(value.items() if isinstance(value, Mapping) else value)
                break
            letter, scalar = _scalar_from(value)
            entries.append((name, letter, scalar) if is_table else (letter, scalar))
        else:
            if not around:
                return Table(entries)
            whole: Any = Table(entries) if is_table else tuple(entries)
            letter = "F" if is_table else "A"
            entries, left, is_table, name = around.pop()
            entries.append((name, letter, whole) if is_table else (letter, whole))


def _scalar_from(value: Any) -> tuple[str, Any]:
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
        try:
            return "S", value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise FieldError(f"longstr cannot be encoded: {error}") from None
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
    raise FieldError(f"no type letter for {type(value).__name__}")


def table_to_dict(table: Table) -> dict[str, Any]:
    """The table as a dict of plain values. The first of repeated names counts; long strings become `str`."""
    whole: dict[str, Any] = {}
    #: Dicts and lists that are to be filled, each with the entries for it.
    waiting: list[tuple[Any, Any]] = [(whole, table)]
    while waiting:
        target, entries = waiting.pop()
        is_table = isinstance(target, dict)
        for entry in entries:
            letter, value = entry[-2:]
            if is_table and entry[0] in target:
                continue
            plain = _plain(letter, value)
            if letter == "F" or letter == "A":
                waiting.append((plain, value))
            if is_table:
                target[entry[0]] = plain
            else:
                target.append(plain)
    return whole


def _plain(letter: str, value: Any) -> Any:
    """The plain value; for a table or an array an empty dict or list, to be filled."""
    if letter == "S":
        return value.decode("utf-8", "surrogateescape")
    if letter == "F":
        return {}
    if letter == "A":
        return []
    if letter == "D":
        return Decimal(value[1]).scaleb(-value[0])
    return value
