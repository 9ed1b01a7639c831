"""How runs, acknowledgements and the rest are laid out on disk; shared by the journal and the index segments.

All numbers are big-endian.

**Frame**, the unit of integrity (12 bytes and a payload):

    u8 magic 0x57 | u8 version 1 | u16 kind | u32 payload size | u32 CRC-32 of (version, kind, payload) | payload

What an interrupted append has left at the end of a file is cut off before anything is appended (D-9); zeros are no
frame, because of the magic. How a file is read that is damaged elsewhere says `walk_frames`.

**Record**, in a frame of kind RECORDS: `u8 type | u64 queue | u32 body size | body`

| type | body |
|---|---|
| PUBLISH | a run |
| ACK | spans |
| STATE | u64 next number: where the queue's numbering stood when the journal file began |
| DELETE | empty: the queue is gone with all that was said of it before |
| RETIRE | empty; `queue` is the lowest journal file that still counts |

**Run**: `u64 first | u32 count | u8 flags | i64 expiry (-1 none) | u32 origin size | origin | lengths | slots`

flags: 1 redelivered, 2 bodies are in the message store, 4 all slots are of one length. `origin` is msgpack of `Origin`.
`lengths` is one u32 if all are equal, else one each. A slot is the content, or a **stub** of 24 bytes if the body is in
the store: `id 0..11 | u64 body size | id 11..16`, which has the body size where a content has it, so that whatever
measures contents measures stubs.

**Spans**: `(u64 first, u32 count, u32 step)` one after the other; round robin over k consumers acknowledges in steps of
k.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack, unpack
from typing import NamedTuple
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from ..disk.disk import File
from .message import BODY_SIZE_END, Origin, Sizes, body_sizes
from .message_ids import SHARED_AT, SHARED_FROM, StoredSpan, stored_spans
from .run import Run

MAGIC = 0x57
VERSION = 1
FRAME = Struct(">BBHII")
RECORD = Struct(">BQI")
RUN = Struct(">QIBqI")
SPAN = Struct(">QII")
MAX_SPAN_COUNT = 0xFFFFFFFF
MAX_FRAME_SIZE = 1 << 30
"""No frame is larger; a size beyond is damage."""

STUB_SIZE = 24
_REDELIVERED, _STORED, _UNIFORM = 1, 2, 4


class Kind(enum.IntEnum):
    """Frames: of the journal, and of index segments."""

    RECORDS = 1
    ENTRIES = 2
    ACKS = 3


class Type(enum.IntEnum):
    """Records of the journal."""

    PUBLISH = 1
    ACK = 2
    STATE = 3
    DELETE = 4
    RETIRE = 5


class Damaged(Exception):
    """A frame is not what was written."""


class Record(NamedTuple):
    """`body` is undecoded."""

    type: Type
    queue: int
    body: bytes


def frame(kind: int, payload: bytes) -> bytes:
    """The head of a frame; the payload follows."""
    return FRAME.pack(MAGIC, VERSION, kind, len(payload), crc32(payload, checksum_start(kind)))


def checksum_start(kind: int) -> int:
    """What the CRC-32 of a payload goes on from."""
    return VERSION << 16 | kind


def read_frame(file: File, offset: int, file_size: int | None = None) -> tuple[int, bytes, int]:
    """(kind, payload, offset of the next frame); raises Damaged, also at the end of the file. With `file_size` nothing is read to find out that a frame leads out of it."""
    head = file.read(offset, FRAME.size)
    if len(head) < FRAME.size:
        raise Damaged("no frame head")
    magic, version, kind, size, checksum = FRAME.unpack(head)
    if magic != MAGIC or version != VERSION or size > MAX_FRAME_SIZE:
        raise Damaged("not a frame")
    end = offset + FRAME.size + size
    if file_size is not None and end > file_size:
        raise Damaged("the file ends within")
    payload = file.read(offset + FRAME.size, size)
    if len(payload) < size or crc32(payload, checksum_start(kind)) != checksum:
        raise Damaged("frame is torn")
    return kind, payload, end


@lru_cache(maxsize=4096)
def encode_origin(origin: Origin) -> bytes:
    packed: bytes = msgpack.packb(tuple(origin), unicode_errors="surrogateescape")
    return packed


@lru_cache(maxsize=4096)
def decode_origin(packed: bytes) -> Origin:
    exchange, keys, props, persistent, priority, expiration = msgpack.unpackb(packed, unicode_errors="surrogateescape")
    return Origin(exchange, tuple(keys), props, persistent, priority, expiration)


def encode_run(run: Run, is_stored: bool) -> list[bytes]:
    """The head of a run that has no holes, followed by its slots: 15 ns a message."""
    contents = run.contents
    sizes = list(map(len, contents))
    first = sizes[0]
    uniform = sizes.count(first) == len(sizes)
    lengths = pack(">I", first) if uniform else pack(f">{len(sizes)}I", *sizes)
    flags = (_REDELIVERED if run.redelivered else 0) | (_STORED if is_stored else 0) | (_UNIFORM if uniform else 0)
    origin = encode_origin(run.origin)
    head = RUN.pack(run.first, len(contents), flags, -1 if run.expiry is None else run.expiry, len(origin))
    return [head + origin + lengths, *contents]


def _walk_runs(data: bytes) -> Iterator[tuple[int, int, int, int, Origin, Sequence[int], Sequence[int]]]:
    """(first, count, flags, expiry, origin, where the slots begin, where they end) of every run in `data`."""
    offset = 0
    while offset < len(data):
        first, count, flags, expiry, origin_size = RUN.unpack_from(data, offset)
        offset += RUN.size
        origin = decode_origin(data[offset : offset + origin_size])
        offset += origin_size
        if flags & _UNIFORM:
            size = int.from_bytes(data[offset : offset + 4], "big")
            offset += 4
            bounds: Sequence[int] = range(offset, offset + (count + 1) * size, size) if size else [offset] * (count + 1)
        else:
            bounds = list(
                accumulate(unpack(f">{count}I", data[offset : offset + 4 * count]), initial=offset + 4 * count)
            )
        offset = bounds[-1]
        yield first, count, flags, expiry, origin, bounds[:-1], bounds[1:]


def decode_runs(data: bytes) -> Iterator[tuple[Run, bool]]:
    """(run, bodies are in the store) of every run in `data`."""
    for first, count, flags, expiry, origin, starts, ends in _walk_runs(data):
        contents = [data[start:end] for start, end in zip(starts, ends)]
        run = Run(first, contents, origin, None if expiry < 0 else expiry, bool(flags & _REDELIVERED), 0)
        sizes_of = run.measured()
        run.body_bytes = sizes_of * count if isinstance(sizes_of, int) else sum(sizes_of)
        yield run, bool(flags & _STORED)


class RunHead(NamedTuple):
    """A run without its contents."""

    first: int
    count: int  # type: ignore[assignment]  # tuple.count is not wanted of it
    origin: Origin
    stored: list[StoredSpan]
    """Its messages, if their bodies are in the message store; empty if they are embedded."""
    expires: bool
    body_sizes: Sizes


def skim_runs(data: bytes) -> Iterator[RunHead]:
    """The heads of the runs in `data`: what recovery wants to know of a backlog without making an object of every message."""
    for first, count, flags, expiry, origin, starts, ends in _walk_runs(data):
        stored: list[StoredSpan] = []
        if flags & _STORED and max(data[starts[0] + SHARED_AT : ends[-1] : STUB_SIZE]) < SHARED_FROM:
            base = int.from_bytes(stub_id(data[starts[0] : ends[0]]), "big") - first
            stored = [StoredSpan(range(first, first + count), base)]
        elif flags & _STORED:
            stored = stored_spans(first, (stub_id(data[start:end]) for start, end in zip(starts, ends)))
        yield RunHead(
            first, count, origin, stored, expiry >= 0, body_sizes([data[at : at + BODY_SIZE_END] for at in starts])
        )


def record(type_: Type, queue: int, parts: list[bytes]) -> list[bytes]:
    """A record around `parts`, as buffers; joined once, by whoever writes."""
    return [RECORD.pack(type_, queue, sum(map(len, parts))), *parts]


def records(payload: bytes) -> Iterator[Record]:
    offset = 0
    while offset < len(payload):
        type_, queue, size = RECORD.unpack_from(payload, offset)
        offset += RECORD.size
        yield Record(Type(type_), queue, payload[offset : offset + size])
        offset += size


def encode_spans(spans: Sequence[range]) -> bytes:
    """Ascending ranges of any step."""
    return b"".join(SPAN.pack(part.start, len(part), part.step) for span in spans for part in _bounded(span))


def _bounded(span: range) -> Iterator[range]:
    for start in range(0, len(span), MAX_SPAN_COUNT):
        yield span[start : start + MAX_SPAN_COUNT]


def decode_spans(data: bytes) -> list[range]:
    return [range(first, first + count * step, step) for first, count, step in SPAN.iter_unpack(data)]


def make_stub(message_id: bytes, size: int) -> bytes:
    """What stands for a body of `size` bytes that is in the message store."""
    return message_id[:11] + size.to_bytes(8, "big") + message_id[11:]


def make_stubs(message_ids: Sequence[bytes], sizes: Sizes) -> list[bytes]:
    """What stands for bodies of these sizes."""
    if isinstance(sizes, int):
        size = sizes.to_bytes(8, "big")
        return [message_id[:11] + size + message_id[11:] for message_id in message_ids]
    return list(map(make_stub, message_ids, sizes))


def stub_id(stub: bytes) -> bytes:
    return stub[:11] + stub[19:]
