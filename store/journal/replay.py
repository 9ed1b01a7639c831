"""Replaying journal files: what the records in them leave of each queue.

A queue's records are applied in order: a publish adds messages, an ack removes them, DELETE removes the queue, and
STATE or any number seen advances its numbering. Messages that are published and not acked remain. Acks are kept too,
because the queue's segments may still have the entries. Dead letters that were handed over and not taken are in transit
(`in_transit`).

Recovery skips damage in a file (`walk_frames`) and reports it: the frames behind it are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..disk.disk import Disk
from ..disk.walk_frames import DamagedPart, walk_frames
from ..messages.arrivals import UNKNOWN, latest
from ..messages.lives import FIRST_LIFE, Lives, Numbering, decode_lives
from ..messages.message_ids import StoredSpan, stored_spans
from ..messages.pending_runs import PendingRuns
from ..messages.records import Record, Type, decode_returns, decode_runs, decode_sizes, decode_spans, records, stub_id
from .in_transit import InTransit, decode_handed_over, decode_taken
from .journal_file import file_name


@dataclass
class Replayed:
    """What the journal has of a queue.

    embedded      messages published and not acked, with their contents
    stored        messages published and not acked whose bodies are in the message store; the contents are stubs
    acked         every number acked in the journal: a segment may still have its entry
    next_number   where the numbering continues: the highest number published, acked or reserved, plus one
    end           the highest number published or acked, plus one
    sizes         the bytes that the queue's segments have at least
    has_emptied   a segment had no message left, so its file may be removed since, perhaps without a sync of the name
    returns       how often messages were returned to a quorum queue, by number; other messages never were
    lives         of the queue
    arrived       when the last message arrived that was published
    digests       the bodies of the DIGESTS records
    """

    embedded: PendingRuns = field(default_factory=PendingRuns)
    stored: PendingRuns = field(default_factory=PendingRuns)
    acked: list[range] = field(default_factory=list)
    next_number: int = 0
    end: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    has_emptied: bool = False
    returns: dict[int, int] = field(default_factory=dict)
    lives: Lives = FIRST_LIFE
    arrived: int = UNKNOWN
    digests: list[bytes] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the journal has no message and no ack of the queue, but at most its numbering and its returns."""
        return not (self.embedded.count or self.stored.count or self.acked)

    @property
    def numbering(self) -> Numbering | None:
        """Where the numbering stands, if the journal has no message of the queue and no size of a segment."""
        if self.embedded.count or self.stored.count or self.sizes:
            return None
        return Numbering(min(self.end, self.next_number), self.next_number, self.lives)

    def stored_spans(self) -> list[StoredSpan]:
        """The messages of `stored`, by the ids that their bodies have in the message store."""
        return [
            span
            for run in self.stored.runs
            for piece in run.without_holes()
            for span in stored_spans(piece.first, map(stub_id, piece.contents))
        ]

    def apply(self, entry: Record) -> None:
        """Apply a PUBLISH, ACK, STATE, SIZES, RETURNED, LIVES or DIGESTS record."""
        if entry.type is Type.PUBLISH:
            for run, is_stored in decode_runs(entry.body):
                (self.stored if is_stored else self.embedded).add(run)
                self.end = max(self.end, run.end)
                self.arrived = max(self.arrived, latest(run.arrived))
                self.next_number = max(self.next_number, self.end)
        elif entry.type is Type.ACK:
            self.ack(decode_spans(entry.body))
        elif entry.type is Type.SIZES:
            added = decode_sizes(entry.body)
            merge_sizes(self.sizes, added)
            self.has_emptied = self.has_emptied or not all(added.values())
        elif entry.type is Type.RETURNED:
            # Counts only grow, and a later record has the later count.
            self.returns.update(decode_returns(entry.body))
        elif entry.type is Type.LIVES:
            self.lives = decode_lives(entry.body)
        elif entry.type is Type.DIGESTS:
            self.digests.append(entry.body)
        else:
            self.next_number = max(self.next_number, int.from_bytes(entry.body, "big"))

    def ack(self, spans: Sequence[range]) -> None:
        """Remove messages; the numbers may be published in segments, or nowhere."""
        for span in spans:
            # A number that was acked once must not be given again: the next replay would drop the new message.
            self.end = max(self.end, span[-1] + 1)
            self.next_number = max(self.next_number, self.end)
            last = self.acked[-1] if self.acked else None
            if last is not None and last.step == span.step == 1 and last.stop == span.start:
                self.acked[-1] = range(last.start, span.stop)
            else:
                self.acked.append(span)
            self.embedded.discard(span)
            self.stored.discard(span)
            if self.returns:
                returns = self.returns
                for number in span if len(span) < len(returns) else [each for each in returns if each in span]:
                    returns.pop(number, None)


def merge_sizes(sizes: dict[int, int], added: dict[int, int]) -> None:
    """Apply the sizes of a SIZES record to those of the records before it."""
    for number, size in added.items():
        if size:
            sizes[number] = size
        else:
            sizes.pop(number, None)


class DamagedJournalFile(NamedTuple):
    """A journal file with damaged parts, and how many whole frames follow the first of them."""

    number: int
    parts: list[DamagedPart]
    frames_behind: int


@dataclass
class ReplayedFiles:
    """What a set of journal files leaves.

    queues       by the number of the queue
    in_transit   dead letters that were handed over and not taken
    retired      files below this number do not count: a RETIRE record gave them up
    damaged      files with damage other than a torn tail at the end of the last one
    """

    queues: dict[int, Replayed] = field(default_factory=dict)
    in_transit: InTransit = field(default_factory=InTransit)
    retired: int = 0
    damaged: list[DamagedJournalFile] = field(default_factory=list)


def replay_files(disk: Disk, directory: str, numbers: Sequence[int]) -> ReplayedFiles:
    """Replay the files of these ascending numbers; cuts the torn tail of the last one. Waits for the disk."""
    found = ReplayedFiles()
    for number in numbers:
        file = disk.open(f"{directory}/{file_name(number)}")
        try:
            parts: list[DamagedPart] = []
            frames_behind = 0
            for part in walk_frames(file):
                if isinstance(part, DamagedPart):
                    # Only the last file may end with an interrupted append: the others were synced before the next
                    # began.
                    if part.is_torn_tail and number == numbers[-1]:
                        file.truncate(part.offset)
                    else:
                        parts.append(part)
                    continue
                frames_behind += part.is_behind
                for entry in records(part.payload):
                    if entry.type is Type.RETIRE:
                        found.retired = max(found.retired, entry.queue)
                    elif entry.type is Type.DELETE:
                        found.queues.pop(entry.queue, None)
                    elif entry.type is Type.HANDED_OVER:
                        found.in_transit.add(decode_handed_over(entry.body), 0)
                    elif entry.type is Type.TAKEN:
                        found.in_transit.take(decode_taken(entry.queue, entry.body))
                    else:
                        found.queues.setdefault(entry.queue, Replayed()).apply(entry)
            if parts:
                found.damaged.append(DamagedJournalFile(number, parts, frames_behind))
            # A killed process leaves bytes that this replay reads although they were never synced. Recovery builds on
            # them, so a power cut must not take them back later.
            file.sync()
        finally:
            file.close()
    return found
