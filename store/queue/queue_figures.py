"""The statistics of a variable queue: the info items of queue-and-store section 3.1 and the counts in its recovery
terms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from ..messages.pending_runs import PendingRuns
from .paging import Paging
from .placement import ABSENT, Placement
from .rates import Rates
from .sub_queues import SubQueues


class QueueFigures:
    """Computes each figure when it is asked for; some of them visit every run in memory."""

    __slots__ = ("_paging", "_pending", "_place", "_rates", "_sub_queues")

    def __init__(
        self, sub_queues: SubQueues, pending: PendingRuns, place: Placement, paging: Paging, rates: Rates
    ) -> None:
        self._sub_queues = sub_queues
        self._pending = pending
        self._place = place
        self._paging = paging
        self._rates = rates

    def persistent(self) -> tuple[int, int]:
        """How many ready and pending messages are persistent, and their body bytes."""
        sub = self._sub_queues
        delta = sub.delta
        kept = [
            (run.live, run.body_bytes)
            for run in chain(sub.runs_in_memory(), self._pending.runs)
            if run.origin.persistent
        ]
        return (
            sum(count for count, _ in kept) + delta.count - delta.transient,
            sum(size for _, size in kept) + delta.body_bytes - delta.transient_bytes,
        )

    def status(self, next_number: int, watermark: int) -> dict[str, Any]:
        """The info item `backing_queue_status`."""
        sub = self._sub_queues
        delta = sub.delta
        return {
            "mode": "lazy" if sub.is_lazy else "default",
            "q1": sub.q1.count,
            "q2": sub.q2.count,
            "delta": ["delta", delta.start, delta.count, delta.transient, delta.end],
            "q3": sub.q3.count,
            "q4": sub.q4.count,
            "len": len(sub),
            "target_ram_count": self._paging.target,
            "next_seq_id": next_number,
            "next_deliver_seq_id": watermark,
            "rates": list(self._rates.rates),
        }

    def item(self, key: str) -> int | str:
        """Any other info item; "" for an unknown key."""
        sub, pending = self._sub_queues, self._pending
        items: dict[str, Callable[[], int]] = {
            "messages_ram": lambda: sub.ram_count + self._paging.ram_acks(),
            "messages_ready_ram": lambda: sub.ram_count,
            "messages_unacknowledged_ram": self._paging.ram_acks,
            "messages_persistent": lambda: self.persistent()[0],
            "message_bytes": lambda: sub.body_bytes + pending.body_bytes,
            "message_bytes_ready": lambda: sub.body_bytes,
            "message_bytes_unacknowledged": lambda: pending.body_bytes,
            "message_bytes_ram": lambda: (
                sub.ram_bytes + sum(run.body_bytes for run in pending.runs if not run.kind & ABSENT)
            ),
            "message_bytes_persistent": lambda: self.persistent()[1],
            "disk_reads": lambda: self._place.reads,
            "disk_writes": lambda: self._place.writes,
            "messages_paged_out": lambda: sub.delta.transient,
            "message_bytes_paged_out": lambda: sub.delta.transient_bytes,
        }
        return items[key]() if key in items else ""
