"""The properties of a message, which end the payload of a content header frame (AB-43).

Encoded properties, `props` throughout the code, are flags u16, then the values of the flagged properties in the order
of this table; nothing may follow. Bits 1 and 0 of the flags mean nothing.

=== ================ ========= =================================
bit property         on wire   in Python
=== ================ ========= =================================
15  content_type     shortstr  str
14  content_encoding shortstr  str
13  headers          table     :class:`~warren.amqp.fields.Table`
12  delivery_mode    u8        int
11  priority         u8        int
10  correlation_id   shortstr  str
9   reply_to         shortstr  str
8   expiration       shortstr  str (of milliseconds)
7   message_id       shortstr  str
6   timestamp        u64       int, seconds since 1970
5   type             shortstr  str
4   user_id          shortstr  str
3   app_id           shortstr  str
2   cluster_id       shortstr  str
=== ================ ========= =================================

The hot path decodes no properties for each message: channels and queues decode them once per run, and test
:func:`property_flags` first, which often shows that nothing needs decoding.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .constants import INTERNAL_ERROR, SYNTAX_ERROR
from .encoded_table import Unsound, check_entries, split_entries
from .errors import AmqpError
from .fields import FieldError, Table, TooDeep, decode_table, decode_table_at, encode_table

NO_PROPERTIES = b"\x00\x00"

FLAG_CONTENT_TYPE = 1 << 15
FLAG_CONTENT_ENCODING = 1 << 14
FLAG_HEADERS = 1 << 13
FLAG_DELIVERY_MODE = 1 << 12
FLAG_PRIORITY = 1 << 11
FLAG_CORRELATION_ID = 1 << 10
FLAG_REPLY_TO = 1 << 9
FLAG_EXPIRATION = 1 << 8
FLAG_MESSAGE_ID = 1 << 7
FLAG_TIMESTAMP = 1 << 6
FLAG_TYPE = 1 << 5
FLAG_USER_ID = 1 << 4
FLAG_APP_ID = 1 << 3
FLAG_CLUSTER_ID = 1 << 2

#: Up to this many bytes of headers `decode_some` decodes all of them, which takes at most 2 ms.
ALL_HEADERS = 8192

PROPERTY_KINDS = (
    (FLAG_CONTENT_TYPE, "content_type", "S"),
    (FLAG_CONTENT_ENCODING, "content_encoding", "S"),
    (FLAG_HEADERS, "headers", "T"),
    (FLAG_DELIVERY_MODE, "delivery_mode", "o"),
    (FLAG_PRIORITY, "priority", "o"),
    (FLAG_CORRELATION_ID, "correlation_id", "S"),
    (FLAG_REPLY_TO, "reply_to", "S"),
    (FLAG_EXPIRATION, "expiration", "S"),
    (FLAG_MESSAGE_ID, "message_id", "S"),
    (FLAG_TIMESTAMP, "timestamp", "L"),
    (FLAG_TYPE, "type", "S"),
    (FLAG_USER_ID, "user_id", "S"),
    (FLAG_APP_ID, "app_id", "S"),
    (FLAG_CLUSTER_ID, "cluster_id", "S"),
)


@dataclass(slots=True)
class Properties:
    """The 14 properties; None means absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def property_flags(props: bytes) -> int:
    """The flags, to be tested with the `FLAG_…` constants."""
    return int.from_bytes(props[:2], "big")


def decode_properties(props: bytes, with_headers: bool = True) -> Properties:
    """Decode `props`. Raises AmqpError 541 without a text if they cannot be decoded (AB-38), 502 if their headers are
    nested too deep (AB-47).

    `with_headers` false leaves the headers out, of which there may be 26,000 in one message.
    """
    try:
        return _decode(props, with_headers)
    except TooDeep as error:
        raise AmqpError(SYNTAX_ERROR, f"field table: {error}") from None
    except (FieldError, IndexError) as error:
        raise AmqpError(INTERNAL_ERROR) from error


def decode_some(props: bytes, names: Collection[bytes] | None, are_sound: bool = False) -> tuple[Properties, bytes]:
    """Decode `props`, and of many headers only those with these names; the second value is the other headers, encoded.

    With at most `ALL_HEADERS` bytes of headers, or without `names`, all headers are decoded. Raises AmqpError as
    `decode_properties` does. `are_sound`: the headers were checked or decoded before, as those of all queued messages
    were, so they are not checked again.
    """
    begin, end = headers_extent(props)
    if names is None or end - begin - 4 <= ALL_HEADERS:
        return decode_properties(props), b""
    if not are_sound:
        try:
            check_entries(props, begin + 4, end)
        except (Unsound, IndexError):
            return decode_properties(props), b""  # raises the error that fits
    found, others = split_entries(props, begin + 4, end, names)
    properties = decode_properties(props, with_headers=False)
    properties.headers = decode_table(found)
    return properties, others


def headers_extent(props: bytes) -> tuple[int, int]:
    """The offsets in `props` of the u32 length of the headers and of their end, which is behind the end of `props` if
    the headers are cut off. Both offsets are the same if there are no headers.
    """
    flags = property_flags(props)
    at = 2
    for flag in (FLAG_CONTENT_TYPE, FLAG_CONTENT_ENCODING):
        if flags & flag:
            at += 1 + int.from_bytes(props[at : at + 1], "big")
    if not flags & FLAG_HEADERS:
        return at, at
    return at, at + 4 + int.from_bytes(props[at : at + 4], "big")


def _decode(props: bytes, with_headers: bool) -> Properties:
    if len(props) < 2:
        raise FieldError("flags are cut off")
    flags = property_flags(props)
    position = 2
    found = Properties()
    for flag, name, kind in PROPERTY_KINDS:
        if not flags & flag:
            continue
        value: object
        if kind == "S":
            start = position + 1
            position = start + props[position]
            value = props[start:position].decode("utf-8", "surrogateescape")
        elif kind == "T":
            if not with_headers:
                position += 4 + int.from_bytes(props[position : position + 4], "big")
                continue
            value, position = decode_table_at(props, position)
        elif kind == "o":
            value = props[position]
            position += 1
        else:
            value = int.from_bytes(props[position : position + 8], "big")
            position += 8
        setattr(found, name, value)
    if position != len(props):
        raise FieldError("values do not end where the frame does")
    return found


def encode_properties(properties: Properties, more_headers: bytes = b"") -> bytes:
    """Encode `properties`, flags first. Raises FieldError for a value out of range or of a wrong type.

    `more_headers` are encoded headers to put behind those of `properties`, whose `headers` must not be None then.
    """
    flags = 0
    parts = [b""]
    for flag, name, kind in PROPERTY_KINDS:
        value = getattr(properties, name)
        if value is None:
            continue
        flags |= flag
        if kind == "S":
            if not isinstance(value, str):
                raise FieldError(f"{name} must be a str, not {type(value).__name__}")
            try:
                encoded = value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise FieldError(f"{name} cannot be encoded: {error}") from None
            if len(encoded) > 255:
                raise FieldError(f"{name} has {len(encoded)} bytes; at most 255 are allowed")
            parts.append(bytes((len(encoded),)) + encoded)
        elif kind == "T":
            table = encode_table(value)
            if more_headers:
                table = (len(table) - 4 + len(more_headers)).to_bytes(4, "big") + table[4:] + more_headers
            parts.append(table)
        else:
            if not isinstance(value, int):
                raise FieldError(f"{name} must be an int, not {type(value).__name__}")
            try:
                parts.append(value.to_bytes(1 if kind == "o" else 8, "big"))
            except OverflowError:
                raise FieldError(f"{name} cannot be {value}") from None
    parts[0] = flags.to_bytes(2, "big")
    return b"".join(parts)
