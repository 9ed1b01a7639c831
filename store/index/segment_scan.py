"""Looking through an index segment after an unclean end: what is in it, united with what the journal replayed (section 5.5).

The contents are checked (CRC) but not taken apart, so a backlog of a million messages is looked through in about a second.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..disk.disk import Disk
from ..disk.walk_frames import DamagedPart, walk_frames
from ..journal.journal_engine import Replayed
from ..messages.message_ids import StoredSpan
from ..messages.records import Kind, RunHead, decode_spans, skim_runs
from .segment_file import BLOCK, mark
from .segment_salvage import log_salvaged, salvage

_MARKED = re.compile(b"\1+")


class ScannedSegment(NamedTuple):
    """size       of the file without its torn tail, which was cut off, and without what was damaged
    unacked    entries that are not acked, neither here nor in the journal, and persistent
    body_bytes of these
    acks       of entries here that the file does not know of yet
    stored     unacked entries whose bodies are in the message store, ascending
    next_number after the highest number seen, or that may have been in what is damaged
    """

    size: int
    unacked: int
    body_bytes: int
    acks: list[range]
    stored: list[StoredSpan]
    next_number: int
    may_expire: bool


def scan_segment(disk: Disk, path: str, base: int, entries: int, replayed: Replayed) -> ScannedSegment:
    """The segment whose lowest number is `base`. What it has is taken out of `replayed`: it need not be folded again. Waits for the disk."""
    acked = bytearray(entries)
    heads: list[RunHead] = []
    parts: list[DamagedPart] = []
    size = frames_behind = next_number = 0
    file = disk.open(path)
    try:
        for part in walk_frames(file):
            if isinstance(part, DamagedPart):
                if part.is_torn_tail:
                    file.truncate(part.offset)  # D-9
                else:
                    parts.append(part)
                continue
            size = part.end
            frames_behind += part.is_behind
            if part.kind == Kind.ENTRIES:
                heads += skim_runs(part.payload[BLOCK.size :])
            else:
                mark(acked, decode_spans(part.payload), base)
        # A killed process leaves bytes and names that nobody synced; the journal that still has them may be retired after this.
        file.sync()
    finally:
        file.close()
    if parts:
        log_salvaged(disk, path, parts, frames_behind)
        size = salvage(disk, path)
        # An acknowledgement of a message that is lost may be left: its number must not be given again.
        next_number = base + entries
    acked_before = acked[:]
    mark(acked, replayed.acked, base)
    seen = bytearray(entries)
    stored = bytearray(entries)
    unacked = body_bytes = 0
    for head in heads:
        low, high = head.first - base, head.first - base + head.count
        next_number = max(next_number, head.first + head.count)
        if not head.origin.persistent:
            acked[low:high] = b"\1" * head.count
        fresh = head.count - seen.count(1, low, high)
        gone = acked.count(1, low, high)
        if fresh == head.count and not gone:
            unacked += head.count
            body_bytes += head.body_sizes * head.count if isinstance(head.body_sizes, int) else sum(head.body_sizes)
            stored[low:high] = (b"\1" if head.stored else b"\0") * head.count
        elif fresh and gone < head.count:
            for index in range(head.count):
                if not seen[low + index] and not acked[low + index]:
                    unacked += 1
                    body_bytes += head.body_sizes if isinstance(head.body_sizes, int) else head.body_sizes[index]
                    stored[low + index] = bool(head.stored)
        seen[low:high] = b"\1" * head.count
        replayed.embedded.discard(range(head.first, head.first + head.count))
        replayed.stored.discard(range(head.first, head.first + head.count))
    newly = (
        bytes(now and is_here and not before for now, is_here, before in zip(acked, seen, acked_before, strict=True))
        if acked != acked_before
        else b""
    )
    return ScannedSegment(
        size,
        unacked,
        body_bytes,
        [range(base + gone.start(), base + gone.end()) for gone in _MARKED.finditer(newly)],
        _marked_of(heads, stored, base),
        next_number,
        any(head.expires for head in heads),
    )


def _marked_of(heads: list[RunHead], stored: bytearray, base: int) -> list[StoredSpan]:
    """The parts of what is stored that are marked, each once; the marks are used up."""
    found = []
    for numbers, id_base in (span for head in heads for span in head.stored):
        low, high = numbers.start - base, numbers.stop - base
        found += [
            StoredSpan(range(base + held.start(), base + held.end()), id_base)
            for held in _MARKED.finditer(stored, low, high)
        ]
        stored[low:high] = bytes(high - low)
    return sorted(found, key=lambda span: span.numbers.start)
