"""Scanning the segments of an index after an unclean end (queue-and-store section 5.5).

Recovery unites the entries of the segments with what the journal replayed. The contents are checked (CRC) but not
decoded, so that a backlog of a million messages is scanned in about a second.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..disk.contents import SMALL_FILE, Contents
from ..disk.damage_log import log_foreign
from ..disk.disk import Disk
from ..disk.progress import RecoveryProgress
from ..disk.walk_frames import DamagedPart, walk_frames
from ..journal.replay import Replayed
from ..messages.message import latest_expiry
from ..messages.message_ids import StoredSpan
from ..messages.records import Kind, RunHead, decode_spans, skim_runs
from .segment import Segment
from .segment_file import BLOCK, SUFFIX, mark, segment_number, segment_path
from .segment_salvage import NEW_SUFFIX, log_salvaged, log_shortened, salvage

_MARKED = re.compile(b"\1+")

#: A span of one segment ends when its bodies have this many bytes, so that a stream of large messages does not become a
#: few segments of gigabytes after a crash, and loses all of them at once.
SPAN_BYTES = 64 << 20


class ScannedSpan(NamedTuple):
    """Un-acked messages of one segment or run, whose numbers follow one another but for holes: their lowest number,
    their count, the bytes of their bodies, and the latest expiry (in a stream the time of publishing); 0 if they have
    none.
    """

    first: int
    messages: int
    body_bytes: int
    latest: int


class Scan(NamedTuple):
    """The result of a scan of the whole index.

    messages      un-acked messages, in segments or replayed from the journal
    body_bytes    the bytes of their bodies
    next_number   where the numbering continues
    end           the number after the highest one seen; no message has a number from there to `next_number`
    stored        un-acked messages whose bodies are in the message store
    may_expire    whether any message has an expiry
    spans         the un-acked messages of each segment, in several spans if their bodies are large, and of each run
                  that only the journal has, in no order
    arrived       the latest time of arrival
    unrecorded    messages whose publishes the journal has, and whose acks only a segment has
    """

    messages: int
    body_bytes: int
    next_number: int
    end: int
    stored: list[StoredSpan]
    may_expire: bool
    spans: list[ScannedSpan]
    arrived: int
    unrecorded: list[range]


class ScannedSegment(NamedTuple):
    """The result of a scan of one segment.

    size          size of the file, without its torn tail, which was cut off, and without damaged frames
    unacked       entries that are persistent and acked neither in the segment nor in the journal
    spans         these entries, in spans of about `SPAN_BYTES`
    body_bytes    the bytes of their bodies
    acks          acknowledged entries of the segment whose acks are not in its file
    stored        un-acked entries whose bodies are in the message store, ascending
    next_number   the number after the highest one seen, or after the highest one that damaged frames may have had
    latest        the latest expiry of an entry; 0 if none has one
    was_salvaged  the file was damaged, and was replaced by one with its whole frames (logged)
    arrived       the latest time of arrival
    was_synced    the file and its name were on the disk already, because the journal has recorded this size
    content       the bytes of a small and undamaged file
    unrecorded    entries that the journal has as well, and whose acks only the file has: a flush wrote them before the
                  journal, and then a crash came
    """

    size: int
    unacked: int
    spans: list[ScannedSpan]
    body_bytes: int
    acks: list[range]
    stored: list[StoredSpan]
    next_number: int
    latest: int
    was_salvaged: bool
    was_synced: bool
    content: bytes | None
    arrived: int
    unrecorded: list[range]


def scan_segments(
    disk: Disk, directory: str, entries: int, replayed: Replayed, progress: RecoveryProgress
) -> tuple[dict[int, Segment], Scan]:
    """Scan all segments of an index, each of `entries` numbers, and remove their entries from `replayed`. Waits for the
    disk.
    """
    segments: dict[int, Segment] = {}
    messages = body_bytes = 0
    may_expire = any(run.expiries is not None for runs in (replayed.embedded, replayed.stored) for run in runs.runs)
    end = replayed.end
    arrived = replayed.arrived
    stored: list[StoredSpan] = []
    spans: list[ScannedSpan] = []
    unrecorded: list[range] = []
    numbers = _segments_in(disk, directory)
    # If a file was removed and its name not synced, a power cut would bring it back with messages whose acks only the
    # journal has, and the journal may give them up after this scan.
    are_names_synced = not replayed.has_emptied
    for number in numbers:
        path = segment_path(directory, number)
        found = scan_segment(disk, path, number * entries, entries, replayed)
        progress.advance(found.size)
        are_names_synced = are_names_synced and found.was_synced
        least = replayed.sizes.get(number, 0)
        if found.size < least and not found.was_salvaged:
            log_shortened(disk, path, found.size, least)
            # An ack may have survived a message that was lost, so its number must not be given to another message.
            end = max(end, (number + 1) * entries)
        end = max(end, found.next_number)
        arrived = max(arrived, found.arrived)
        unrecorded += found.unrecorded
        if not found.size:
            disk.delete(path)  # a crash came before the file's first block was written
            continue
        # Keep the file's bytes only if no body must be looked up in the message store: then the queue is recovered in
        # the same call, which reads them again. Otherwise thousands of queues would keep theirs until the store runs.
        content = found.content if found.unacked and not found.stored else None
        segments[number] = Segment(found.size, found.unacked, found.acks, content)
        messages += found.unacked
        body_bytes += found.body_bytes
        stored += found.stored
        may_expire = may_expire or found.latest > 0
        spans += found.spans
    for number in replayed.sizes.keys() - set(numbers):
        log_shortened(disk, segment_path(directory, number), None, replayed.sizes[number])
        end = max(end, (number + 1) * entries)
    if not are_names_synced and disk.exists(directory):
        disk.sync_dir(directory)
    stored += replayed.stored_spans()
    for runs in (replayed.embedded, replayed.stored):
        spans += [
            ScannedSpan(run.first, run.live, run.body_bytes, latest_expiry(run.expiries) or 0) for run in runs.runs
        ]
    return segments, Scan(
        messages + replayed.embedded.count + replayed.stored.count,
        body_bytes + replayed.embedded.body_bytes + replayed.stored.body_bytes,
        max(end, replayed.next_number),
        end,
        stored,
        may_expire,
        spans,
        arrived,
        unrecorded,
    )


def _segments_in(disk: Disk, directory: str) -> list[int]:
    names = disk.list(directory)
    for name in names:
        if name.endswith(NEW_SUFFIX):
            disk.delete(f"{directory}/{name}")  # a crash came before the salvaged file was renamed
    foreign = (name for name in names if name.endswith(SUFFIX) and segment_number(name) is None)
    log_foreign(disk, directory, foreign, "a segment")
    return sorted(number for name in names if (number := segment_number(name)) is not None)


def segment_sizes(disk: Disk, directory: str, numbers: Iterable[int]) -> dict[int, int]:
    """The sizes of these segments' files, 0 for a file that does not exist. Waits for the disk."""
    sizes = {}
    for number in numbers:
        try:
            file = disk.open(segment_path(directory, number))
        except FileNotFoundError:
            sizes[number] = 0
            continue
        try:
            sizes[number] = file.size()
        finally:
            file.close()
    return sizes


def scan_segment(disk: Disk, path: str, base: int, entries: int, replayed: Replayed) -> ScannedSegment:
    """Scan the segment whose lowest number is `base`. Waits for the disk.

    Entries that the segment has are removed from `replayed`, so that the next flush does not write them again.
    """
    acked = bytearray(entries)
    heads: list[RunHead] = []
    parts: list[DamagedPart] = []
    size = frames_behind = next_number = 0
    content = None
    is_rewritten = False
    file = disk.open(path)
    try:
        file_size = file.size()
        if file_size <= SMALL_FILE:
            content = file.read(0, file_size)
        for part in walk_frames(file if content is None else Contents(content), file_size):
            if isinstance(part, DamagedPart):
                content = None
                if part.is_torn_tail:
                    file.truncate(part.offset)  # so that the next append begins where the last whole frame ends (D-9)
                    file_size = part.offset
                else:
                    parts.append(part)
                continue
            size = part.end
            frames_behind += part.is_behind
            if part.kind == Kind.ENTRIES:
                heads += skim_runs(part.payload[BLOCK.size :])
            else:
                mark(acked, decode_spans(part.payload), base)
        # A killed process leaves bytes and names that are not synced. The journal still has these entries, but its
        # files may be retired after this scan. A file whose size the journal has recorded is synced already. That is
        # so for most files of ten thousand small queues, and saves milliseconds for each.
        is_synced = file_size == replayed.sizes.get(base // entries)
        if not is_synced:
            try:
                file.sync()
            except OSError:
                # The operating system may have dropped the bytes that it could not write, and the next sync, which the
                # next attempt at this start would make, would succeed without them. So they are written to a new file.
                is_rewritten = True
    finally:
        file.close()
    if is_rewritten and not parts and salvage(disk, path) != size:
        raise OSError(errno.EIO, os.strerror(errno.EIO), disk.full_path(path))
    if parts:
        log_salvaged(disk, path, parts, frames_behind)
        size = salvage(disk, path)
        # An ack may have survived a message that was lost, so its number must not be given to another message.
        next_number = base + entries
    acked_in_file = acked[:]
    mark(acked, replayed.acked, base)
    seen = bytearray(entries)
    stored = bytearray(entries)
    unrecorded = bytearray(entries)
    unacked = body_bytes = 0
    for head in heads:
        low, high = head.first - base, head.first - base + head.count
        if acked_in_file.count(1, low, high):
            for runs in (replayed.embedded, replayed.stored):
                for run in runs.between(head.first, head.first + head.count):
                    start, end = run.first - base, run.end - base
                    unrecorded[start:end] = acked_in_file[start:end]
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
    acks_to_write = b""
    if acked != acked_in_file:
        acks_to_write = bytes(
            is_acked and is_here and not is_written
            for is_acked, is_here, is_written in zip(acked, seen, acked_in_file, strict=True)
        )
    latest = max((head.expiry or 0 for head in heads), default=0)
    spans = [ScannedSpan(base + _first_live(seen, acked), unacked, body_bytes, latest)] if unacked else []
    return ScannedSegment(
        size,
        unacked,
        spans if body_bytes < SPAN_BYTES else _split(heads, acked, base),
        body_bytes,
        _ranges(acks_to_write, base),
        _marked_spans(heads, stored, base),
        next_number,
        latest,
        bool(parts),
        is_synced,
        content,
        max((head.arrived for head in heads), default=0),
        _ranges(unrecorded, base),
    )


def _split(heads: list[RunHead], acked: bytearray, base: int) -> list[ScannedSpan]:
    """The entries that are not marked in `acked`, run by run, joined to spans of about `SPAN_BYTES`."""
    passed = acked[:]
    runs = []
    for head in heads:
        sizes, low = head.body_sizes, head.first - base
        live = [index for index in range(head.count) if not passed[low + index]]
        if live:
            body_bytes = sizes * len(live) if isinstance(sizes, int) else sum(sizes[index] for index in live)
            runs.append(ScannedSpan(head.first + live[0], len(live), body_bytes, head.expiry or 0))
        passed[low : low + head.count] = b"\1" * head.count
    found: list[ScannedSpan] = []
    for run in sorted(runs):
        last = found[-1] if found else None
        if last is None or last.body_bytes >= SPAN_BYTES:
            found.append(run)
        else:
            found[-1] = ScannedSpan(
                last.first,
                last.messages + run.messages,
                last.body_bytes + run.body_bytes,
                max(last.latest, run.latest),
            )
    return found


def _ranges(marked: bytes | bytearray, base: int) -> list[range]:
    return [range(base + found.start(), base + found.end()) for found in _MARKED.finditer(marked)]


def _first_live(seen: bytearray, acked: bytearray) -> int:
    """The first position that is marked in `seen` and not in `acked`; 0 if there is none."""
    at = acked.find(0)
    while at >= 0 and (found := seen.find(1, at)) != at:
        at = acked.find(0, found) if found >= 0 else -1
    return max(at, 0)


def _marked_spans(heads: list[RunHead], stored: bytearray, base: int) -> list[StoredSpan]:
    """The marked parts of the stored spans of `heads`, each number once: its mark is cleared when it is found."""
    found = []
    for numbers, id_base in (span for head in heads for span in head.stored):
        low, high = numbers.start - base, numbers.stop - base
        found += [
            StoredSpan(range(base + held.start(), base + held.end()), id_base)
            for held in _MARKED.finditer(stored, low, high)
        ]
        stored[low:high] = bytes(high - low)
    return sorted(found, key=lambda span: span.numbers.start)
