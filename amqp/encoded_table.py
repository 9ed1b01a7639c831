"""Looks into an encoded field table without decoding it.

A message may have as many headers as fit into a frame of 131,072 bytes: 26,000 with names of three letters and without
values. Decoding them takes 7 ms and encoding them 5, in which all clients wait. So the broker checks them here, which
takes 1 ms, and decodes those that decide something.

How it works: a regular expression passes over all entries in a row whose names and texts have fewer than 64 bytes, and
whose values are texts, numbers or void. That takes 30 ns for an entry, where a loop in Python takes 90. The loop does
the other entries. In a short table it does all of them, because the expression takes 0.5 µs to begin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from .fields import MAX_DEPTH, value_size

#: Bytes of the shortest table or array for which the regular expressions are used.
_LONG = 512

#: The most names that are searched for in the bytes of a table, and the most places where they may be found. With more
#: of either, `split_entries` looks at one entry after the other.
_FEW = 32

#: Bytes that a value takes behind its type letter, for the letters of fixed size.
_FIXED = {letter: size for letter in range(256) if (size := value_size(chr(letter))) is not None}
_LONG_STRING, _BINARY, _TABLE, _ARRAY = b"SxFA"


def _bytes(count: int) -> bytes:
    return b".{%d}" % count if count else b""


#: A length of one byte, and that many bytes.
_SHORT = b"(?:%b)" % b"|".join([re.escape(bytes((count,))) + _bytes(count) for count in range(64)])
_VALUE = b"(?:S\0\0\0%b|%b)" % (
    _SHORT,
    b"|".join([b"%c%b" % (letter, _bytes(size)) for letter, size in _FIXED.items()]),
)
# Possessive, because the expression must not remember 26,000 places to return to.
_ENTRIES = re.compile(b"(?:%b%b)*+" % (_SHORT, _VALUE), re.DOTALL)
_VALUES = re.compile(b"%b*+" % _VALUE, re.DOTALL)


class Unsound(Exception):
    """Bytes that cannot be decoded."""


def check_entries(data: bytes, at: int, stop: int) -> None:
    """Raise Unsound or IndexError unless `data[at:stop]` are whole entries of a table."""
    fixed = _FIXED
    is_table = True
    #: The end of each table and array around the innermost open one, and whether it is a table.
    around: list[tuple[int, bool]] = []
    while True:
        if stop - at >= _LONG:
            at = _simple_end(data, at, stop, is_table)
        while at < stop:
            if is_table:
                at += 1 + data[at]
                if at >= stop:
                    raise Unsound
            letter = data[at]
            size = fixed.get(letter)
            if size is not None:
                at += 1 + size
                if at > stop:
                    raise Unsound
                continue
            start = at + 5
            end = start + int.from_bytes(data[at + 1 : start], "big")
            if start > stop or end > stop:
                raise Unsound
            if letter == _LONG_STRING or letter == _BINARY:
                at = end
                continue
            if letter != _TABLE and letter != _ARRAY or len(around) >= MAX_DEPTH:
                raise Unsound
            around.append((stop, is_table))
            at, stop, is_table = start, end, letter == _TABLE
            if stop - at >= _LONG:
                at = _simple_end(data, at, stop, is_table)
        if not around:
            return
        stop, is_table = around.pop()


def _simple_end(data: bytes, at: int, stop: int, is_table: bool) -> int:
    """Where the entries or values end that begin at `at`, and that a regular expression can pass over."""
    found = (_ENTRIES if is_table else _VALUES).match(data, at, stop)
    assert found is not None  # the expression also matches no entry at all
    return found.end()


def split_entries(data: bytes, at: int, stop: int, names: Collection[bytes]) -> tuple[bytes, bytes]:
    """The encoded entries of the table `data[at:stop]` that have one of these names, and the others, both in order.

    The entries must be sound. What is inside tables and arrays is not looked at.
    """
    found: list[bytes] = []
    others: list[bytes] = []
    others_at = at
    for begin, end in _entries_named(data, at, stop, names):
        others.append(data[others_at:begin])
        found.append(data[begin:end])
        others_at = end
    others.append(data[others_at:stop])
    return b"".join(found), b"".join(others)


def _entries_named(data: bytes, at: int, stop: int, names: Collection[bytes]) -> Iterator[tuple[int, int]]:
    """Where the entries begin and end that have one of these names."""
    places = _places(data, at, stop, names)
    if places is None:
        while at < stop:
            end = _entry_end(data, at)
            if data[at + 1 : at + 1 + data[at]] in names:
                yield at, end
            at = end
        return
    for place in places:
        if at < place:
            at = _simple_end(data, at, place, True)
        while at < place:
            at = _entry_end(data, at)
        if at == place:
            end = _entry_end(data, at)
            yield at, end
            at = end


def _places(data: bytes, at: int, stop: int, names: Collection[bytes]) -> list[int] | None:
    """Where the names stand with their lengths, in order: as names of entries, or by chance inside others.

    None if it takes as long to look at one entry after the other.
    """
    if len(names) > _FEW:
        return None
    found: list[int] = []
    for name in names:
        pattern = bytes((len(name),)) + name
        place = data.find(pattern, at, stop)
        while place >= 0:
            if len(found) == _FEW:
                return None
            found.append(place)
            place = data.find(pattern, place + 1, stop)
    found.sort()
    return found


def _entry_end(data: bytes, at: int) -> int:
    """Where the entry ends that begins at `at`."""
    at += 1 + data[at]
    size = _FIXED.get(data[at])
    return at + 1 + size if size is not None else at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
