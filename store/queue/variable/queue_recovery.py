"""How a variable queue finds its messages at a start (queue-and-store section 10.1).

After a clean stop its recovery terms are enough. Otherwise it scans its segments, together with what the journal
replayed. A start has two halves, `scan` and `finish`, because between them the queue process asks the message store
which bodies exist. Counts made by a scan override those of the terms (D-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...disk.progress import RecoveryProgress
from ...index.queue_index import QueueIndex
from ...index.segment_scan import Scan, ScannedSpan
from ...journal.replay import Replayed
from ...messages.arrivals import UNKNOWN
from ...messages.lives import FIRST_LIFE, Lives, Numbering, lives_of
from ...messages.message_ids import StoredSpan
from ...messages.pending_runs import PendingRuns
from .shelf import Shelf
from .sub_queues import SubQueues


class RecoveredQueue(NamedTuple):
    """What a queue begins with.

    watermark    messages below this number were at the head before (D-5)
    has_shared   other queues may refer to bodies of this one
    gap          numbers that no message has
    is_scanned   the terms were not enough, so the segments were scanned
    spans        the un-acked messages that the scan found, by segment or run (`Scan.spans`)
    recorded     the journal keeps the numbering up to here
    lives        of the queue, without the one that the gap begins
    arrived      when the last message arrived
    """

    messages: int
    body_bytes: int
    next_number: int
    watermark: int
    may_expire: bool
    has_shared: bool
    gap: range
    is_scanned: bool
    recorded: int
    spans: Sequence[ScannedSpan] = ()
    lives: Lives = FIRST_LIFE
    arrived: int = UNKNOWN


def recovery_terms(index: QueueIndex, found: RecoveredQueue) -> dict[str, Any]:
    """The recovery terms for the next start. Waits for the disk."""
    has_any = found.messages > 0
    return {
        "next_seq_id": found.next_number,
        "next_deliver_seq_id": found.watermark,
        "persistent_count": found.messages,
        "persistent_bytes": found.body_bytes,
        "may_expire": found.may_expire and has_any,
        "has_shared": found.has_shared and has_any,
        "segments": index.terminate(),
        "lives": found.lives,
        "arrived": found.arrived,
    }


def empty_terms(numbering: Numbering) -> dict[str, Any]:
    """The recovery terms of a queue that has no message, see `numbering_of`."""
    next_number = numbering.stop
    return {
        "next_seq_id": next_number,
        "next_deliver_seq_id": next_number,
        "persistent_count": 0,
        "persistent_bytes": 0,
        "may_expire": False,
        "has_shared": False,
        "segments": {},
        "lives": numbering.lives,
        "passed_over_from": numbering.start,
    }


def numbering_of(terms: dict[str, Any]) -> Numbering | None:
    """The numbering of a queue that has neither message nor segment according to its `terms`; None for any other.

    A queue that was not needed between an unclean end and the clean stop begins its new life later, so the terms say
    from where on numbers were passed over.
    """
    if terms["persistent_count"] or terms["segments"]:
        return None
    next_number = terms["next_seq_id"]
    return Numbering(terms.get("passed_over_from", next_number), next_number, lives_of(terms))


def found_empty(numbering: Numbering) -> RecoveredQueue:
    """What a queue begins with if it has no message and no segment, only its numbering."""
    stop, gap, lives = numbering.stop, numbering.gap, numbering.lives
    return RecoveredQueue(0, 0, stop, stop, False, False, gap, False, stop, lives=lives)


def persistent(sub: SubQueues, pending: PendingRuns, shelf: Shelf | None) -> tuple[int, int]:
    """How many ready and pending messages are persistent, and their body bytes."""
    count, body_bytes = sub.persistent
    if shelf is not None:
        count += shelf.counts.count - shelf.counts.transient
        body_bytes += shelf.counts.body_bytes - shelf.counts.transient_bytes
    return count + pending.persistent, body_bytes + pending.persistent_bytes


class VariableQueueRecovery:
    """One start of a queue. `replayed` are the queue's records in the journal."""

    __slots__ = ("_index", "_lives", "_recorded", "_replayed", "_scan")

    def __init__(self, index: QueueIndex, replayed: Replayed | None) -> None:
        self._index = index
        self._replayed = replayed
        self._lives = FIRST_LIFE if replayed is None else replayed.lives
        self._recorded = 0 if replayed is None else replayed.next_number
        self._scan: Scan | None = None

    def scan(self, known: dict[str, Any] | None, progress: RecoveryProgress) -> list[StoredSpan]:
        """Return the messages whose bodies are in the persistent message store. Waits for the disk.

        `known` are the recovery terms, None after an unclean end.
        """
        replayed, self._replayed = self._replayed, None
        self._scan = self._index.scan(replayed, known.get("segments") if known is not None else None, progress)
        return [] if self._scan is None else self._scan.stored

    def finish(self, known: dict[str, Any] | None, missing: Sequence[int], is_copy: bool = False) -> RecoveredQueue:
        """Finish the start of a queue that existed before; the store has no body for the numbers `missing`.

        A copy passes over no numbers (`DiskQueue.recover`). Call it after `scan`.
        """
        known = known or {}
        # The journal and the terms have the same lives. But an earlier version wrote none to the terms, and the journal
        # need not have any record of this queue.
        lives = max(self._lives, lives_of(known))
        if self._scan is None:
            next_number = known["next_seq_id"]
            return RecoveredQueue(
                known["persistent_count"],
                known["persistent_bytes"],
                next_number,
                known["next_deliver_seq_id"],
                known["may_expire"],
                known.get("has_shared", False),
                range(0),
                False,
                next_number,
                lives=lives,
                arrived=known.get("arrived", UNKNOWN),
            )
        scan, self._scan = self._scan, None
        kept = self._index.drop_missing(scan, missing)
        least = known.get("next_seq_id", 0)
        end = max(scan.end, least)
        next_number = end if is_copy else max(kept.next_number, least)
        # Any of these messages may have been delivered before the crash, so all are marked redelivered (C-5, C-7).
        return RecoveredQueue(
            kept.messages,
            kept.body_bytes,
            next_number,
            next_number,
            scan.may_expire,
            any(span.is_shared for span in scan.stored),
            range(end, next_number),
            True,
            self._recorded,
            scan.spans,
            lives,
            max(scan.arrived, known.get("arrived", UNKNOWN)),
        )
