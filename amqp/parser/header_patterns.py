"""Header patterns: content headers of one shape, recognised by one compiled regular expression.

Messages of one publisher usually have the same properties with other values of the same length: a message-id is always
36 characters, a timestamp always 8 bytes. A pattern is made from one message. The values that decide the message's
fate, and all lengths, names and types, stand in it literally; any other value may be any bytes of that length, and an
expiration any digits that are not all 0. So bytes that match need no further check: the header is sound, and its fate
is that of the message the pattern was made from.

A pattern covers the header frame and the head of the body frame, which must hold the whole body:

    02 channel length 003c 0000 | size u64 | flags, values | CE | 03 channel size u32

Matching takes 0.3 to 0.5 µs a message, independent of the number of headers.

If messages of one publisher have bodies of one size as well, each is as long as the one before, and they differ only in
values that do not decide the fate. So `count_alike` compares all other bytes of many messages with those of the first.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from ...seams import seam
from ..fields import value_size
from ..properties import PROPERTY_KINDS, property_flags
from .skimmer import DIRECT_REPLY_TO, fate, is_special, is_zero

#: Bytes of a header frame before the properties: head, class, weight and body size; and the head of a body frame.
_HEADER_START = 7 + 12
_BODY_START = 7

#: Properties whose values decide the fate of a message; the others are only passed on.
_DECIDING = {"delivery_mode", "priority", "expiration", "user_id"}


@seam("after how many headers a pattern is made")
def headers_before_a_pattern() -> int:
    """How many headers of one length are read value by value before a pattern is made: compiling takes up to 2 ms."""
    return 32


class _Stretch(NamedTuple):
    """Bytes of a header that stand together: how many, the regular expression for them, and whether they may differ
    from the same bytes of another header that matches too.
    """

    size: int
    expression: bytes
    is_carried: bool = False


class HeaderPattern:
    """`match(buffer, position)`: group 1 of the match is the body's size, u32; the body starts where the match ends.

    The expiration of the message that matches is group 2, or `expiration` if not `has_expirations`.
    """

    __slots__ = ("_alike", "_alike_for", "_stretches", "expiration", "has_expirations", "key", "match")

    def __init__(self, channel: int, props: bytes) -> None:
        """Make a pattern of sound property bytes whose key is not special. Compiling takes about a millisecond."""
        self.key, self.expiration = fate(props)
        self.has_expirations = self.expiration is not None and _may_differ(self.expiration)
        assert not is_special(self.key), "messages with a special key share nothing"
        self._stretches = _stretches(props)
        #: Takes out of a publish the bytes in which equal publishes agree, and the sizes of the method frame and of
        #: the body for which it does so.
        self._alike = struct.Struct("")
        self._alike_for = (0, 0)
        number = channel.to_bytes(2, "big")
        head = b"\x02" + number + (12 + len(props)).to_bytes(4, "big") + b"\x00\x3c\x00\x00\x00\x00\x00\x00"
        values = b"".join([stretch.expression for stretch in self._stretches])
        tail = re.escape(b"\xce\x03" + number)
        self.match = re.compile(re.escape(head) + b"(....)" + values + tail + rb"\1", re.DOTALL).match

    def count_alike(self, buffer: bytes, position: int, method_size: int, body_size: int, most: int) -> int:
        """How many publishes in a row, `most` at most, equal the first one except in values that are only passed on.

        The first one is at `position`, is sound and matches: its method frame has `method_size` bytes and its body
        `body_size`. All of them are in the buffer if they are as long as the first. So only the first one needs a match
        of its own, and each of the others 0.07 µs.
        """
        if self._alike_for != (method_size, body_size):
            self._alike_for = method_size, body_size
            self._alike = _alike(method_size, self._stretches, body_size)
        alike = self._alike
        found = list(alike.iter_unpack(memoryview(buffer)[position : position + most * alike.size]))
        first = found[0]
        if found.count(first) == most:
            return most
        return next(at for at, one in enumerate(found) if one != first)


def _alike(method_size: int, stretches: list[_Stretch], body_size: int) -> struct.Struct:
    """Takes out of a publish all bytes except the body and the values that are only passed on."""
    layout = ""
    fixed = method_size + _HEADER_START
    for stretch in stretches:
        if stretch.is_carried:
            layout += f"{fixed}s{stretch.size}x"
            fixed = 0
        else:
            fixed += stretch.size
    return struct.Struct(f"{layout}{fixed + 1 + _BODY_START}s{body_size}xc")


def _stretches(props: bytes) -> list[_Stretch]:
    """The property bytes, so that bytes with the same fate, lengths, names and types match the expressions."""
    flags = property_flags(props)
    found = [_literal(props[:2])]
    at = 2
    for flag, name, kind in PROPERTY_KINDS:
        if not flags & flag:
            continue
        if kind == "S":
            stop = at + 1 + props[at]
            if name == "expiration" and _may_differ(props[at + 1 : stop]):
                found += [_literal(props[at : at + 1]), _expiration(props[at])]
            elif name in _DECIDING:
                found.append(_deciding(props[at:stop]))
            elif name == "reply_to" and props[at] == len(DIRECT_REPLY_TO):
                # The channel replaces this one value, so messages that have it must not match.
                found.append(_literal(props[at : at + 1]))
                other = b"(?!" + re.escape(DIRECT_REPLY_TO) + b")" + _any(props[at])
                found.append(_Stretch(props[at], other))
            else:
                found += [_literal(props[at : at + 1]), _carried(props[at])]
        elif kind == "T":
            stop = at + 4 + int.from_bytes(props[at : at + 4], "big")
            found.append(_literal(props[at : at + 4]))
            found += _entries(props, at + 4, stop)
        elif kind == "o":
            stop = at + 1
            found.append(_deciding(props[at:stop]))
        else:
            stop = at + 8
            found.append(_carried(8))
        at = stop
    return found


def _entries(data: bytes, at: int, stop: int) -> list[_Stretch]:
    """The entries of a table: fixed names, types and lengths; nested values literally."""
    found = []
    while at < stop:
        value = at + 1 + data[at] + 1
        letter = chr(data[value - 1])
        size = value_size(letter)
        if size is not None:
            found += [_literal(data[at:value]), _carried(size)]
            at = value + size
            continue
        length = int.from_bytes(data[value : value + 4], "big")
        end = value + 4 + length
        if letter in "Sx":
            found += [_literal(data[at : value + 4]), _carried(length)]
        else:
            found.append(_literal(data[at:end]))
        at = end
    return found


def _literal(value: bytes) -> _Stretch:
    return _Stretch(len(value), re.escape(value))


def _deciding(value: bytes) -> _Stretch:
    return _Stretch(len(value), _exactly(value))


def _may_differ(expiration: bytes) -> bool:
    return expiration.isdigit() and not is_zero(expiration)


def _expiration(size: int) -> _Stretch:
    """A number of milliseconds above 0, as a group. Messages that `count_alike` finds alike have the same number."""
    return _Stretch(size, b"((?!0{%d})[0-9]{%d})" % (size, size))


def _carried(size: int) -> _Stretch:
    return _Stretch(size, _any(size), True)


@seam("which values of deciding properties match a header pattern")
def _exactly(value: bytes) -> bytes:
    """The regular expression for a value that decides the fate."""
    return re.escape(value)


def _any(size: int) -> bytes:
    return b".{%d}" % size if size else b""
