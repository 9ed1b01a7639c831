"""How a variable queue finds what it had: from the terms of a clean stop, else by looking through its segments and what the journal replayed (section 10.1).

In two halves, for an owner who must ask elsewhere which bodies there are. Whatever terms say, a count made by looking overrides it (D-7).
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
    """What a queue begins with. Messages below `watermark` were at the head before (D-5); `gap` are numbers that nothing has; `is_scanned`: the terms did not do."""

    messages: int
    body_bytes: int
    next_number: int
    watermark: int
    may_expire: bool
    has_shared: bool
    gap: range
    is_scanned: bool


def terms(index: QueueIndex, found: RecoveredQueue) -> dict[str, Any]:
    """What the next start wants to know. Waits for the disk."""
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
    """See the module. `replayed` is what the journal recovered of the queue."""

    __slots__ = ("_index", "_replayed", "_scan")

    def __init__(self, index: QueueIndex, replayed: Replayed | None) -> None:
        self._index = index
        self._replayed = replayed
        self._scan: Scan | None = None

    def scan(self, recover: Recover | dict[str, Any], progress: Progress) -> list[StoredSpan]:
        """The messages whose bodies are wanted from a store. Waits for the disk."""
        if recover is Recover.NEW:
            return []
        replayed, self._replayed = self._replayed, None
        self._scan = self._index.scan(
            replayed, recover.get("segments") if isinstance(recover, dict) else None, progress
        )
        return [] if self._scan is None else self._scan.stored

    def finish(self, recover: Recover | dict[str, Any], missing: Sequence[int]) -> RecoveredQueue:
        """After `scan`, of a queue that was there before: all bodies are there but those of the numbers `missing`."""
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
        # All may have been delivered before (C-5, C-7).
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
