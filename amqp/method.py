"""The base class of all AMQP 0-9-1 methods, and how a method is encoded (AB-42).

The payload of a method frame is class u16, method u16, then the fields one after the other; nothing may follow. A
method class lists its fields as dataclass fields in wire order, and their kinds in `SIGNATURE`, one letter for each
field:

====== ========= ========================= ======================================================
letter kind      on the wire               in Python
====== ========= ========================= ======================================================
`o`    octet     u8                        int
`s`    short     u16                       int
`l`    long      u32                       int
`L`    longlong  u64                       int
`b`    bit       one bit of a shared u8    bool; consecutive bits share an octet, first in bit 0
`S`    shortstr  u8 length, octets         str (UTF-8, `surrogateescape`)
`X`    longstr   u32 length, octets        bytes
`T`    table     u32 length, entries       :class:`~warren.amqp.fields.Table`
====== ========= ========================= ======================================================
"""

from __future__ import annotations

import struct
from typing import ClassVar

from .fields import FieldError, encode_table

NUMBERS = {"o": struct.Struct(">B"), "s": struct.Struct(">H"), "l": struct.Struct(">I"), "L": struct.Struct(">Q")}


class Method:
    """Base class of all methods. `NAME` is the name in the specification, such as `basic.get-ok`."""

    __slots__ = ()

    NAME: ClassVar[str] = ""
    CLASS_ID: ClassVar[int] = 0
    METHOD_ID: ClassVar[int] = 0
    SIGNATURE: ClassVar[str] = ""
    HAS_CONTENT: ClassVar[bool] = False
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def encode(self) -> bytes:
        """The payload of the method's frame. Raises FieldError for a value out of range."""
        return _encode(self)


def _encode(method: Method) -> bytes:
    parts = [struct.pack(">HH", method.CLASS_ID, method.METHOD_ID)]
    bits = count = 0
    for name, kind in zip(method.FIELDS, method.SIGNATURE, strict=True):
        value = getattr(method, name)
        if kind == "b":
            if count == 8:
                parts.append(bytes((bits,)))
                bits = count = 0
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(bytes((bits,)))
            bits = count = 0
        if kind == "S":
            try:
                encoded = value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise FieldError(f"{method.NAME}: {name} cannot be encoded: {error}") from None
            if len(encoded) > 255:
                raise FieldError(f"{method.NAME}: {name} has {len(encoded)} bytes; at most 255 are allowed")
            parts.append(bytes((len(encoded),)) + encoded)
        elif kind == "X":
            parts.append(struct.pack(">I", len(value)) + value)
        elif kind == "T":
            parts.append(encode_table(value))
        else:
            try:
                parts.append(NUMBERS[kind].pack(value))
            except struct.error:
                raise FieldError(f"{method.NAME}: {name} cannot be {value!r}") from None
    if count:
        parts.append(bytes((bits,)))
    return b"".join(parts)
