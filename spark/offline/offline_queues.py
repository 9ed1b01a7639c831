"""The view `queues`: a row for each durable queue of a data directory, and what the next start would find of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...store.data_dir.vhost_dir import LEVEL_BITS
from ...store.verify.verify_report import QueueReport, VerifyReport
from .offline import Kept, OfflineSegment, descriptions, kept_of_journal
from .offline_names import OfflineQueue, OfflineVhost
from .offline_plan import Level, VhostContent

#: The bits of a number that are the priority.
_PRIORITY = (1 << LEVEL_BITS) - 1


class OfflineQueueRow(NamedTuple):
    """A row. Times are in microseconds.

    stored_messages               the messages whose bodies are in the message store; the others' are in the index
    first, next                   the lowest number, and that of the next message; null for a priority queue, which
                                  numbers each priority by itself
    oldest_arrived, next_expiry   of all messages; null if no message has such a time
    index_bytes                   the bytes of the segments
    """

    vhost: str
    queue: str
    queue_id: str | None
    durable: bool | None
    arguments: str | None
    messages: int
    body_bytes: int
    stored_messages: int
    first: int | None
    next: int | None
    oldest_arrived: int | None
    next_expiry: int | None
    segments: int
    index_bytes: int
    segment_messages: int
    journal_messages: int
    missing_bodies: int


def queue_rows(vhosts: Iterable[OfflineVhost], report: VerifyReport) -> Iterator[OfflineQueueRow]:
    """The queues of these virtual hosts, by name."""
    for vhost in vhosts:
        counted = {
            int(queue.number, 16): queue for each in report.vhosts if each.name == vhost.name for queue in each.queues
        }
        content = VhostContent.of(vhost)
        for number, queue in sorted(vhost.queues.items(), key=lambda item: item[1].name):
            yield _row(vhost.name, number, queue, content, counted.get(number) or QueueReport(queue.name, ""))


def _row(vhost: str, number: int, queue: OfflineQueue, content: VhostContent, counts: QueueReport) -> OfflineQueueRow:
    levels = [level for level in content.levels.values() if level.number >> LEVEL_BITS == number]
    terms = content.terms.get(number, {})
    found = _Found()
    for level in levels:
        found.add(level, content)
    # The journal may have reserved more numbers before a clean stop, which wrote the terms.
    after = terms.get("next_seq_id", found.next)
    has_priorities = (
        "levels" in terms
        or any(level.number & _PRIORITY for level in levels)
        or '"x-max-priority"' in (queue.arguments or "")
    )
    return OfflineQueueRow(
        vhost,
        queue.name,
        queue.id or None,
        queue.is_durable,
        queue.arguments,
        counts.messages,
        counts.message_bytes,
        found.stored,
        None if has_priorities else after if found.first is None else found.first,
        None if has_priorities else after,
        found.arrived,
        found.expiry,
        counts.segments,
        found.index_bytes,
        counts.segment_messages,
        counts.journal_messages,
        counts.missing_bodies,
    )


class _Found:
    """What the files of a queue have, all priorities together."""

    def __init__(self) -> None:
        self.stored = self.next = self.index_bytes = 0
        self.first: int | None = None
        self.arrived: int | None = None
        self.expiry: int | None = None

    def add(self, level: Level, content: VhostContent) -> None:
        for part in content.segments(level):
            segment = OfflineSegment(level, part.segment, part.acked)
            self.index_bytes += part.size
            self.next = max([self.next, *(span.stop for span in segment.published())])
            self._add(level, segment.kept())
        left = content.replayed.get(level.number)
        if left is not None:
            self.next = max(self.next, left.next_number)
            self._add(level, kept_of_journal(level, left))

    def _add(self, level: Level, kept: Iterable[Kept]) -> None:
        for run, is_stored, places in kept:
            slots = range(len(run.contents)) if places is None else places.tolist()
            self.stored += len(slots) if is_stored else 0
            self.first = _least(self.first, run.first + slots[0])
            for each in descriptions(level, run, slots):
                self.arrived = _least(self.arrived, each.arrived)
                self.expiry = _least(self.expiry, each.expires)


def _least(known: int | None, value: int) -> int | None:
    """The lesser of both; -1 stands for no value."""
    return known if value < 0 else value if known is None else min(known, value)
