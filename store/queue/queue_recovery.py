"""How a variable queue finds its messages at a start (queue-and-store section 10.1).

After a clean stop its recovery terms are enough. Otherwise it scans its segments, together with what the journal
replayed. A start has two halves, `scan` and `finish`, because between them the queue process asks the message store
which bodies exist. Counts made by a scan override those of the terms (D-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..disk.progress import Progress
from ..index.queue_index import QueueIndex
from ..index.segment_scan import Scan
from ..journal.replay import Replayed
from ..messages.message_ids import StoredSpan
from .backing_queue import Recover


class RecoveredQueue(NamedTuple):
    """What a queue begins with.

    watermark    messages below this number were at the head before (D-5)
    has_shared   other queues may refer to bodies of this one
    gap          numbers that no message has
    is_scanned   the terms were not enough, so the segments were scanned
    """

    messages: int
    body_bytes: int
    next_number: int
    watermark: int
    may_expire: bool
    has_shared: bool
    gap: range
    is_scanned: bool


def terms(index: QueueIndex, found: RecoveredQueue) -> dict[str, Any]:
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
    }


class QueueRecovery:
    """One start of a queue. `replayed` are the queue's records in the journal."""

    __slots__ = ("_index", "_replayed", "_scan")

    def __init__(self, index: QueueIndex, replayed: Replayed | None) -> None:
        self._index = index
        self._replayed = replayed
        self._scan: Scan | None = None

    def scan(self, recover: Recover | dict[str, Any], progress: Progress) -> list[StoredSpan]:
        """Return the messages whose bodies are in the persistent message store. Waits for the disk."""
        if recover is Recover.NEW:
            return []
        replayed, self._replayed = self._replayed, None
        self._scan = self._index.scan(
            replayed, recover.get("segments") if isinstance(recover, dict) else None, progress
        )
        return [] if self._scan is None else self._scan.stored

    def finish(self, recover: Recover | dict[str, Any], missing: Sequence[int]) -> RecoveredQueue:
        """Finish the start of a queue that existed before; the store has no body for the numbers `missing`.

        Call it after `scan`.
        """
        known: dict[str, Any] = recover if isinstance(recover, dict) else {}
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
            )
        scan, self._scan = self._scan, None
        kept = self._index.drop_missing(scan, missing)
        least = known.get("next_seq_id", 0)
        next_number = max(kept.next_number, least)
        # Any of these messages may have been delivered before the crash, so all are marked redelivered (C-5, C-7).
        return RecoveredQueue(
            kept.messages,
            kept.body_bytes,
            next_number,
            next_number,
            scan.may_expire,
            any(span.is_shared for span in scan.stored),
            range(max(scan.end, least), next_number),
            True,
        )
