"""The file of an index segment: its layout, and how blocks are encoded, grouped and found again.

The file is a sequence of frames of two kinds, in any order; `records` describes frames, runs and spans. The version is
that of the frames.

    ENTRIES   u64 first number | u64 last number | u32 entries | runs       a **block**
    ACKS      spans

A block has at most 512 messages and about 256 KiB. A segment of an index with `E` entries a segment has only numbers of
`n * E .. (n + 1) * E - 1`, where `n` is the file's name. See `queue_index` for how segments are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ..disk.contents import Readable
from ..messages.records import (
    FRAME,
    Damaged,
    Kind,
    decode_runs,
    decode_spans,
    encode_run,
    encode_spans,
    frame,
    read_frame,
)
from ..messages.run import Run

SUFFIX = ".idx"

#: A block is closed before it would exceed one of these.
BLOCK_MESSAGES = 512
BLOCK_BYTES = 256 << 10
#: The head of a block.
BLOCK = Struct(">QQI")
_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


class Entries(NamedTuple):
    """A run of entries, and whether its contents are stubs of bodies in the message store."""

    run: Run
    is_stored: bool


class Block(NamedTuple):
    """A block of entries, at `offset` in the file. It may have entries of the numbers `first` to `last`."""

    first: int
    last: int
    offset: int


class BlockTable:
    """Where the blocks of a segment stand in its file, and which entries are acked: one byte each, 1 if acked."""

    __slots__ = ("blocks", "acked")

    def __init__(self, entries: int) -> None:
        self.blocks: list[Block] = []
        self.acked = bytearray(entries)

    def blocks_between(self, start: int, stop: int) -> list[Block]:
        """The blocks that may have entries from `start` to before `stop`."""
        return [block for block in self.blocks if block.first < stop and block.last >= start]


def segment_number(name: str) -> int | None:
    """The number of a segment's file name, None for any other name."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and _NUMBER.fullmatch(stem) else None


def segment_path(directory: str, number: int) -> str:
    """The path of a segment's file."""
    return f"{directory}/{number}{SUFFIX}"


def read_table(file: Readable, size: int, base: int, entries: int) -> BlockTable:
    """Read the table of the first `size` bytes of a segment's file, whose lowest number is `base`.

    Reads the heads of blocks and all acks. Raises Damaged. Waits for the disk.
    """
    table = BlockTable(entries)
    offset = 0
    while offset < size:
        head = file.read(offset, FRAME.size + BLOCK.size)
        if len(head) < FRAME.size:
            raise Damaged("the file is shorter than it was")
        _, _, kind, length, _ = FRAME.unpack_from(head)
        if offset + FRAME.size + length > size:
            raise Damaged(f"the file ends within the frame at {offset}")
        if kind == Kind.ENTRIES:
            if length < BLOCK.size:
                raise Damaged(f"the block at {offset} is shorter than its head")
            first, last, _ = BLOCK.unpack_from(head, FRAME.size)
            if not base <= first <= last < base + entries:
                raise Damaged(f"the block at {offset} has numbers of another segment")
            table.blocks.append(Block(first, last, offset))
        elif kind == Kind.ACKS:
            mark(table.acked, decode_spans(read_frame(file, offset)[1]), base)
        else:
            raise Damaged(f"the frame at {offset} has the unknown kind {kind}")
        offset += FRAME.size + length
    return table


def read_block(file: Readable, offset: int) -> list[Entries]:
    """The entries of the block at `offset`, acked or not. Raises Damaged. Waits for the disk."""
    _, payload, _ = read_frame(file, offset)
    return [Entries(run, is_stored) for run, is_stored in decode_runs(payload[BLOCK.size :])]


def cut(span: range, start: int, stop: int) -> range:
    """The part of an ascending range that lies in `[start, stop)`."""
    low = max(span.start, start)
    low += (span.start - low) % span.step
    return range(low, min(span.stop, stop), span.step)


def mark(flags: bytearray, spans: Iterable[range], base: int) -> None:
    """Set the flags of the numbers in `spans` to 1. `flags` has one byte a number from `base`; others are ignored."""
    for span in spans:
        part = cut(span, base, base + len(flags))
        if part:
            flags[part.start - base : part[-1] + 1 - base : part.step] = b"\1" * len(part)


def count_marked(flags: bytearray, span: range, base: int) -> int:
    """How many flags of an ascending range are 1; all its numbers have a flag."""
    return flags[span.start - base : span[-1] + 1 - base : span.step].count(1)


def grouped(pieces: list[Entries]) -> Iterator[list[Entries]]:
    """Cut and group pieces into blocks within the limits."""
    block: list[Entries] = []
    messages = size = 0
    for run, is_stored in pieces:
        each = max(1, run.body_bytes // len(run.contents))
        step = BLOCK_MESSAGES if is_stored else max(1, min(BLOCK_MESSAGES, BLOCK_BYTES // each))
        for start in range(0, len(run.contents), step):
            part = run.part(start, min(start + step, len(run.contents)))
            part_bytes = 0 if is_stored else part.body_bytes
            if block and (messages + len(part.contents) > BLOCK_MESSAGES or size + part_bytes > BLOCK_BYTES):
                yield block
                block, messages, size = [], 0, 0
            block.append(Entries(part, is_stored))
            messages += len(part.contents)
            size += part_bytes
    if block:
        yield block


def encode(pieces: list[Entries], acks: list[range], offset: int) -> tuple[list[bytes], list[Block], int]:
    """Encode entries and acks: (buffers to append at `offset`, the blocks among them, the offset behind them)."""
    buffers: list[bytes] = []
    added = []
    for block in grouped(pieces):
        first, last = block[0].run.first, max(entries.run.end for entries in block) - 1
        head = BLOCK.pack(first, last, sum(len(entries.run.contents) for entries in block))
        payload = b"".join([head, *(part for run, is_stored in block for part in encode_run(run, is_stored))])
        buffers += [frame(Kind.ENTRIES, payload), payload]
        added.append(Block(first, last, offset))
        offset += FRAME.size + len(payload)
    if acks:
        payload = encode_spans(acks)
        buffers += [frame(Kind.ACKS, payload), payload]
        offset += FRAME.size + len(payload)
    return buffers, added, offset
