"""Blocks: many messages of a queue as the body of one delivery (SP-10 to SP-14).

A reader that asks for blocks gets the messages as **runs**: numbers, expiry, arrival and origin are there once for all
messages of a run, and the contents follow one behind the other as the queue holds them. So a message costs the broker
a slice of a list and its share in the join of the delivery. All numbers are little-endian, and each table begins at a
multiple of 8:

| part | layout |
|---|---|
| head, 64 bytes | `WBK1`, u32 flags, u64 first, u64 next, u32 messages, u32 runs, u32 origins, u32 bytes of origins, u64 bytes of contents, u64 0, u32 CRC-32 of everything before the contents with 0 in this place, u32 0 |
| runs, 40 each | u64 first number, i64 arrived in µs (-1 unknown), i64 expires in µs (-1 never), u32 count, u32 origin, u32 flags, u32 0 |
| origins | u32 length of the rest; u16 + exchange; u16 count, u8 + routing key each; u8 priority; u32 + property flags and values as on the wire |
| sizes | u32 for each content; only one if the block has the flag 1 |
| contents | header frame and body frames of each message |

The flags of a run are 1 redelivered, 2 persistent, 4 each content has properties of its own, so that its origin has no
properties. "Bytes of origins" does not count the zeros that fill the table up. Numbers of `[first, next)` that no run
has are not in the queue.
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from struct import Struct, pack

from ..seams import seam
from .checksum import crc32
from .messages.arrivals import stretches
from .messages.message import Expiries, Origin, expiries_of, slice_of
from .messages.run import Run

MAGIC = b"WBK1"
HEAD = Struct("<4sIQQIIIIQQII")
RUN = Struct("<QqqIIII")
#: The offset of the CRC in the head.
CRC_AT = 56

#: Flag of a block: all contents have one size.
UNIFORM = 1
#: Flags of a run.
REDELIVERED, PERSISTENT, OWN_PROPERTIES = 1, 2, 4


class BlockBuilder:
    """Gathers runs, and makes blocks of them. The next block begins at the number `first`, and has `count` messages so
    far.

    If not `has_bodies`, each content ends behind the header frame.
    """

    __slots__ = ("_contents", "_has_bodies", "_origins", "_runs", "count", "first")

    def __init__(self, first: int, has_bodies: bool = True) -> None:
        self.first = first
        self._has_bodies = has_bodies
        self.count = 0
        #: [first, arrived, expires, count, origin, flags] of each run.
        self._runs: list[list[int]] = []
        #: By encoded origin: its place in the table of origins.
        self._origins: dict[bytes, int] = {}
        self._contents: list[bytes] = []

    @seam("which messages of a run a block has")
    def add(self, run: Run) -> None:
        """Add a run whose numbers are above all others. A slot that is None is left out."""
        for piece in run.without_holes():
            start = 0
            for origin, count in _groups(piece):
                first = piece.first + start
                for low, high, arrived in stretches(piece.arrived, first, first + count):
                    self._add(piece, low - piece.first, high - low, origin, arrived or -1)
                start += count

    def _add(self, run: Run, start: int, count: int, origin: Origin, arrived: int) -> None:
        contents = run.contents[start : start + count]
        head_end = 7 + int.from_bytes(contents[0][3:7], "big")
        flags = (REDELIVERED if run.redelivered else 0) | (PERSISTENT if origin.persistent else 0)
        props = b""
        if _have_equal_properties(contents, head_end, isinstance(run.sizes, int)):
            props = contents[0][19:head_end]
            if not self._has_bodies:
                contents = list(map(itemgetter(slice(0, head_end + 1)), contents))
        else:
            flags |= OWN_PROPERTIES
            if not self._has_bodies:
                contents = [content[: 8 + int.from_bytes(content[3:7], "big")] for content in contents]
        place = self._origins.setdefault(_encode_origin(origin, props), len(self._origins))
        first = run.first + start
        for expiry, size in _equal_expiries(expiries_of(run.expiries, slice(start, start + count)), count):
            expires = -1 if expiry is None else expiry
            last = self._runs[-1] if self._runs else None
            if (
                last is not None
                and first == last[0] + last[3]
                and last[1:3] == [arrived, expires]
                and last[4:] == [place, flags]
            ):
                last[3] += size
            else:
                self._runs.append([first, arrived, expires, size, place, flags])
            first += size
        self._contents += contents
        self.count += count

    def build(self, next_number: int) -> list[bytes]:
        """The block of the gathered runs: its tables, and then each content.

        It covers the numbers from `first` to before `next_number`, where the next block begins.
        """
        contents, runs = self._contents, self._runs
        sizes = list(map(len, contents))
        is_uniform = bool(sizes) and sizes.count(sizes[0]) == len(sizes)
        origins = b"".join(self._origins)
        head = HEAD.pack(
            MAGIC,
            UNIFORM if is_uniform else 0,
            self.first,
            next_number,
            len(contents),
            len(runs),
            len(self._origins),
            len(origins),
            sum(sizes),
            0,
            0,
            0,
        )
        tables = b"".join([RUN.pack(*run, 0) for run in runs])
        packed_sizes = pack("<I", sizes[0]) if is_uniform else pack(f"<{len(sizes)}I", *sizes)
        before = b"".join([head, tables, _padded(origins), _padded(packed_sizes)])
        checked = pack("<I", crc32(before))
        self.first, self.count = next_number, 0
        self._contents, self._runs, self._origins = [], [], {}
        return [before[:CRC_AT] + checked + before[CRC_AT + 4 :], *contents]


def _groups(run: Run) -> list[tuple[Origin, int]]:
    """The origins of a run, each with how many consecutive messages have it."""
    origins = slice_of(run.origins, slice(None))
    if not isinstance(origins, list):
        return [(origins, len(run.contents))]
    found = []
    for _, group in groupby(origins, key=id):
        equal = list(group)
        found.append((equal[0], len(equal)))
    return found


def _equal_expiries(expiries: Expiries, count: int) -> list[tuple[int | None, int]]:
    """The expiries of `count` messages, each with how many consecutive messages have it."""
    if not isinstance(expiries, list):
        return [(expiries, count)]
    return [(expiry, len(list(group))) for expiry, group in groupby(expiries)]


def _have_equal_properties(contents: list[bytes], head_end: int, have_one_size: bool) -> bool:
    """Whether all contents have the properties of the first one, whose properties end at `head_end`.

    It costs one slice for each message, or two if body sizes differ, because the body size is between the two fields
    that are compared.
    """
    if len(contents) == 1:
        return True
    for piece in (slice(3, head_end),) if have_one_size else (slice(3, 7), slice(19, head_end)):
        if b"".join(map(itemgetter(piece), contents)) != contents[0][piece] * len(contents):
            return False
    return True


def _encode_origin(origin: Origin, props: bytes) -> bytes:
    exchange = _encoded(origin.exchange)
    keys = [_encoded(key) for key in origin.routing_keys]
    parts = [
        pack("<H", len(exchange)),
        exchange,
        pack("<H", len(keys)),
        *[part for key in keys for part in (pack("<B", len(key)), key)],
        pack("<BI", origin.priority, len(props)),
        props,
    ]
    return b"".join([pack("<I", sum(map(len, parts))), *parts])


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _padded(table: bytes) -> bytes:
    """The table, filled up with zeros to a multiple of 8."""
    return table + bytes(-len(table) % 8)
