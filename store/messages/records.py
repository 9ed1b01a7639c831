"""The layout of runs, acknowledgements and journal records on disk; journal files and index segments share it.

All numbers are big-endian.

**Frame**, the unit of integrity (12 bytes and a payload):

    u8 magic 0x57 | u8 version 1 | u16 kind | u32 payload size | u32 CRC-32 of (version, kind, payload) | payload

What an interrupted append has left at the end of a file is cut off before anything is appended (D-9). Zeros are no
frame, because of the magic. `walk_frames` describes how a file is read that is damaged elsewhere.

**Record**, in a frame of kind RECORDS: `u8 type | u64 queue | u32 body size | body`

| type | body |
|---|---|
| PUBLISH | a run |
| ACK | spans |
| STATE | u64 next number: where the numbering of the queue stands, or how far it is reserved |
| DELETE | empty; the queue was deleted, and its records before this one do not count |
| RETIRE | empty; `queue` is the lowest journal file that still counts |
| SIZES | pairs (u64 segment, u64 bytes): the segment has this many synced bytes; with 0 it may be removed |
| HANDED_OVER | u128 id, u32 count, as many u64 targets, a run: dead letters that the targets have to take |
| TAKEN | u128 id, u32 count: `queue` has taken this many dead letters |
| RETURNED | (u64 first, u32 count, u32 returns) one after the other: how often these messages were returned by now |
| LIVES | u32 life, then (u64 first, u64 next, u32 life) for each gap in the numbering of the queue (`lives`) |
| DIGESTS | u64 first, then 16 bytes for each message: its digest, which a repeated publish has too (`deduplication`) |

**Run**: `u64 first | u32 count | u8 flags | i64 expiry (-1 none) | u32 origin size | origin | arrived | expiries |
lengths | slots`

The flags are 1 redelivered, 2 bodies are in the message store, 4 all slots have one length, 8 the messages have several
origins, 16 it is known when they arrived, 32 they expire at different times. `origin` is msgpack of `Origin`. With flag
8 it is a column: `u32 count`, then each distinct origin as `u32 size | msgpack`, then for each message the place of its
origin among them, a u16, or a u32 if `count` is above 65,536. With flag 16 `arrived` is `u32 count`, then for each time
`u64 first number | u64 microseconds since the epoch` (`arrivals`); without it there is nothing. With flag 32 `expiries`
is an i64 for each message, and `expiry` the first of them; without it there is nothing. `lengths` is one u32 if all
slots have one length, else one each. A slot is the content, or a **stub** of 24 bytes if the body is in the store: `id
0..11 | u64 body size | id 11..16`. A stub has the body size where a content has it, so the same code measures both.

**Spans**: `(u64 first, u32 count, u32 step)` one after the other; round robin over k consumers acknowledges in steps of
k.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack, unpack
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from ..checksum import crc32
from ..disk.contents import Readable
from .arrivals import UNKNOWN, Arrived, decode_arrived, encode_arrived, latest
from .message import BODY_SIZE_END, Expiries, Origin, Origins, Sizes, any_of, body_sizes, latest_expiry, slice_of
from .message_ids import SHARED_AT, SHARED_FROM, StoredSpan, stored_spans
from .run import Run

MAGIC = 0x57
VERSION = 1
FRAME = Struct(">BBHII")
RECORD = Struct(">BQI")
RUN = Struct(">QIBqI")
SPAN = Struct(">QII")
SIZE = Struct(">QQ")
#: The most messages in one encoded span.
MAX_SPAN_COUNT = 0xFFFFFFFF
#: No payload is larger; a greater size in a frame's head is damage.
MAX_FRAME_SIZE = 1 << 30
#: Bytes after which a frame is closed; recovery reads one frame at a time.
FRAME_LIMIT = 1 << 20

STUB_SIZE = 24
_REDELIVERED, _STORED, _UNIFORM, _COLUMN, _ARRIVED, _EXPIRIES = 1, 2, 4, 8, 16, 32


class Kind(enum.IntEnum):
    """Kinds of frames: RECORDS in journal files, ENTRIES and ACKS in index segments, DIGESTS in `.ids` files."""

    RECORDS = 1
    ENTRIES = 2
    ACKS = 3
    DIGESTS = 4


class Type(enum.IntEnum):
    """Types of journal records."""

    PUBLISH = 1
    ACK = 2
    STATE = 3
    DELETE = 4
    RETIRE = 5
    SIZES = 6
    HANDED_OVER = 7
    TAKEN = 8
    RETURNED = 9
    LIVES = 10
    DIGESTS = 11


class Damaged(Exception):
    """The bytes are not a whole frame."""


class Record(NamedTuple):
    """A journal record; `body` is not decoded."""

    type: Type
    queue: int
    body: bytes


def frame(kind: int, payload: bytes) -> bytes:
    """The head of a frame; the payload follows."""
    return FRAME.pack(MAGIC, VERSION, kind, len(payload), crc32(payload, checksum_start(kind)))


def checksum_start(kind: int) -> int:
    """The value that the CRC-32 of a payload starts from."""
    return VERSION << 16 | kind


def read_frame(file: Readable, offset: int, file_size: int | None = None) -> tuple[int, bytes, int]:
    """Read the frame at `offset`: (kind, payload, offset of the next frame). Waits for the disk.

    Raises Damaged, also at the end of the file. With `file_size`, a frame that would end behind it is not read.
    """
    head = file.read(offset, FRAME.size)
    if len(head) < FRAME.size:
        raise Damaged("the file ends within the head of a frame")
    magic, version, kind, size, checksum = FRAME.unpack(head)
    if magic != MAGIC or version != VERSION or size > MAX_FRAME_SIZE:
        raise Damaged("the head of a frame is damaged")
    end = offset + FRAME.size + size
    if file_size is not None and end > file_size:
        raise Damaged("the file ends within a frame")
    payload = file.read(offset + FRAME.size, size)
    if len(payload) < size or crc32(payload, checksum_start(kind)) != checksum:
        raise Damaged("the frame is cut off or its checksum is wrong")
    return kind, payload, end


@lru_cache(maxsize=4096)
def encode_origin(origin: Origin) -> bytes:
    """An origin as msgpack."""
    packed: bytes = msgpack.packb(tuple(origin), unicode_errors="surrogateescape")
    return packed


@lru_cache(maxsize=4096)
def decode_origin(packed: bytes) -> Origin:
    """The origin in msgpack."""
    exchange, keys, *rest = msgpack.unpackb(packed, unicode_errors="surrogateescape")
    # Directories of format 2 repeat the property bytes here, which are in the contents as well.
    persistent, priority, expiration = rest[-3:]
    return Origin(exchange, tuple(keys), persistent, priority, expiration)


def _encode_column(origins: list[Origin]) -> bytes:
    """A column of origins, as the module describes it."""
    keys = list(map(id, origins))
    distinct = dict(zip(keys, origins))
    places = {key: place for place, key in enumerate(distinct)}
    packed = [encode_origin(origin) for origin in distinct.values()]
    return b"".join(
        [
            pack(">I", len(packed)),
            *[part for origin in packed for part in (pack(">I", len(origin)), origin)],
            pack(f">{len(keys)}{_place(len(packed))}", *map(places.__getitem__, keys)),
        ]
    )


def _decode_column(packed: bytes, count: int) -> list[Origin]:
    distinct = int.from_bytes(packed[:4], "big")
    origins = []
    at = 4
    for _ in range(distinct):
        stop = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        origins.append(decode_origin(packed[at + 4 : stop]))
        at = stop
    return list(map(origins.__getitem__, unpack(f">{count}{_place(distinct)}", packed[at:])))


def _place(distinct: int) -> str:
    """The letter for `struct` of a place in a table of this many origins, which are more than 65,536 if very many
    publishers share a run.
    """
    return "H" if distinct <= 1 << 16 else "I"


def encode_run(run: Run, is_stored: bool) -> list[bytes]:
    """Encode a run without holes: its head, followed by its slots as they are (15 ns a message)."""
    contents = run.contents
    sizes = list(map(len, contents))
    first = sizes[0]
    uniform = sizes.count(first) == len(sizes)
    lengths = pack(">I", first) if uniform else pack(f">{len(sizes)}I", *sizes)
    flags = (_REDELIVERED if run.redelivered else 0) | (_STORED if is_stored else 0) | (_UNIFORM if uniform else 0)
    if isinstance(run.origins, list):
        flags |= _COLUMN
        origin = _encode_column(run.origins)
    else:
        origin = encode_origin(run.origin)
    if isinstance(run.expiries, list):
        flags |= _EXPIRIES
        lengths = pack(f">{len(contents)}q", *[-1 if expiry is None else expiry for expiry in run.expiries]) + lengths
    if run.arrived:
        flags |= _ARRIVED
        lengths = encode_arrived(run.arrived, run.first, run.first + len(contents)) + lengths
    expiry = run.expiry
    head = RUN.pack(run.first, len(contents), flags, -1 if expiry is None else expiry, len(origin))
    return [head + origin + lengths, *contents]


def _walk_runs(data: bytes) -> Iterator[tuple[int, int, int, Expiries, Origins, Arrived, Sequence[int], Sequence[int]]]:
    """Every run in `data`: (first, count, flags, expiries, origins, when they arrived, offsets where the slots begin,
    where they end).
    """
    offset = 0
    while offset < len(data):
        first, count, flags, expiry, origin_size = RUN.unpack_from(data, offset)
        offset += RUN.size
        packed = data[offset : offset + origin_size]
        origins: Origins = _decode_column(packed, count) if flags & _COLUMN else decode_origin(packed)
        offset += origin_size
        arrived: Arrived = UNKNOWN
        if flags & _ARRIVED:
            arrived, offset = decode_arrived(data, offset)
        expiries: Expiries = None if expiry < 0 else expiry
        if flags & _EXPIRIES:
            stop = offset + 8 * count
            expiries = [None if each < 0 else each for each in unpack(f">{count}q", data[offset:stop])]
            offset = stop
        if flags & _UNIFORM:
            size = int.from_bytes(data[offset : offset + 4], "big")
            offset += 4
            bounds: Sequence[int] = range(offset, offset + (count + 1) * size, size) if size else [offset] * (count + 1)
        else:
            bounds = list(
                accumulate(unpack(f">{count}I", data[offset : offset + 4 * count]), initial=offset + 4 * count)
            )
        offset = bounds[-1]
        yield first, count, flags, expiries, origins, arrived, bounds[:-1], bounds[1:]


def decode_runs(data: bytes) -> Iterator[tuple[Run, bool]]:
    """Every run in `data`, and whether its bodies are in the message store."""
    for first, count, flags, expiries, origins, arrived, starts, ends in _walk_runs(data):
        contents = [data[start:end] for start, end in zip(starts, ends)]
        run = Run(
            first,
            contents,
            slice_of(origins, slice(None)),
            expiries,
            bool(flags & _REDELIVERED),
            0,
            arrived=arrived,
        )
        sizes_of = run.measured()
        run.body_bytes = sizes_of * count if isinstance(sizes_of, int) else sum(sizes_of)
        yield run, bool(flags & _STORED)


class RunHead(NamedTuple):
    """A run without its contents.

    stored    its messages if their bodies are in the message store, else empty
    expiry    the latest one of the messages; None if they never expire
    arrived   when the last of them arrived
    """

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    origin: Origin
    stored: list[StoredSpan]
    expiry: int | None
    body_sizes: Sizes
    arrived: int


def skim_runs(data: bytes) -> Iterator[RunHead]:
    """The heads of the runs in `data`, for recovery, which makes no object for each message of a backlog."""
    for first, count, flags, expiries, origins, arrived, starts, ends in _walk_runs(data):
        stored: list[StoredSpan] = []
        if flags & _STORED and max(data[starts[0] + SHARED_AT : ends[-1] : STUB_SIZE]) < SHARED_FROM:
            base = int.from_bytes(stub_id(data[starts[0] : ends[0]]), "big") - first
            stored = [StoredSpan(range(first, first + count), base)]
        elif flags & _STORED:
            stored = stored_spans(first, (stub_id(data[start:end]) for start, end in zip(starts, ends)))
        yield RunHead(
            first,
            count,
            any_of(origins),
            stored,
            latest_expiry(expiries),
            body_sizes([data[at : at + BODY_SIZE_END] for at in starts]),
            latest(arrived),
        )


def record(type_: Type, queue: int, parts: list[bytes]) -> list[bytes]:
    """A record with the body `parts`, as buffers, which are joined once when they are written."""
    return [RECORD.pack(type_, queue, sum(map(len, parts))), *parts]


def records(payload: bytes) -> Iterator[Record]:
    """The records in the payload of a frame."""
    offset = 0
    while offset < len(payload):
        type_, queue, size = RECORD.unpack_from(payload, offset)
        offset += RECORD.size
        yield Record(Type(type_), queue, payload[offset : offset + size])
        offset += size


def encode_sizes(sizes: Mapping[int, int]) -> bytes:
    """The body of a SIZES record: bytes by segment."""
    return b"".join([SIZE.pack(number, size) for number, size in sizes.items()])


def decode_sizes(data: bytes) -> dict[int, int]:
    """The bytes by segment in the body of a SIZES record."""
    return dict(SIZE.iter_unpack(data))


def encode_returns(returns: Mapping[int, int]) -> bytes:
    """The body of a RETURNED record: how often each message was returned, by number."""
    found: list[list[int]] = []
    for number in sorted(returns):
        times = returns[number]
        last = found[-1] if found else None
        if last is not None and number == last[0] + last[1] and times == last[2]:
            last[1] += 1
        else:
            found.append([number, 1, times])
    return b"".join([SPAN.pack(*each) for each in found])


def decode_returns(data: bytes) -> dict[int, int]:
    """How often each message was returned, by number, from the body of a RETURNED record."""
    return {number: times for first, count, times in SPAN.iter_unpack(data) for number in range(first, first + count)}


def encode_spans(spans: Sequence[range]) -> bytes:
    """Encode ascending ranges of any step."""
    return b"".join(SPAN.pack(part.start, len(part), part.step) for span in spans for part in _bounded(span))


def _bounded(span: range) -> Iterator[range]:
    for start in range(0, len(span), MAX_SPAN_COUNT):
        yield span[start : start + MAX_SPAN_COUNT]


def decode_spans(data: bytes) -> list[range]:
    """The ranges in `data`."""
    return [range(first, first + count * step, step) for first, count, step in SPAN.iter_unpack(data)]


def make_stub(message_id: bytes, size: int) -> bytes:
    """The stub of a body of `size` bytes that is in the message store."""
    return message_id[:11] + size.to_bytes(8, "big") + message_id[11:]


def make_stubs(message_ids: Sequence[bytes], sizes: Sizes) -> list[bytes]:
    """The stubs of bodies of these sizes."""
    if isinstance(sizes, int):
        size = sizes.to_bytes(8, "big")
        return [message_id[:11] + size + message_id[11:] for message_id in message_ids]
    return list(map(make_stub, message_ids, sizes))


def stub_id(stub: bytes) -> bytes:
    """The id in a stub."""
    return stub[:11] + stub[19:]
