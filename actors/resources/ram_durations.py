"""How long a stretch of its traffic each queue may keep in memory (QS 8.3): the rule, without doing it.

Queues report how many seconds what they have in memory would last. Below `paging_ratio` of the watermark there is no limit; above it every queue gets the same number of
seconds, the mean of what is reported divided by how full memory is. A queue that is idle reports INFINITE and takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INFINITE = float("inf")

SUM_THRESHOLD = 0.95  # of the watermark; below it queues that keep nothing in memory get a little
SUM_INCREMENT = 1.0  # s
LEAST = 1e-6  # s; a sum below is nothing


@dataclass(slots=True)
class _Report:
    address: Any
    duration: float
    sent: float


class RamDurations:
    """The reports of all queues; `desired` is what a queue is told now, in seconds."""

    def __init__(self, paging_ratio: float) -> None:
        self._paging_ratio = paging_ratio
        self._reports: dict[str, _Report] = {}
        self.desired = INFINITE

    def report(self, queue: str, address: Any, duration: float) -> float | None:
        """What the queue may keep, as of the last look at memory; None if that is what it was told last. A queue begins with INFINITE."""
        before = self._reports.get(queue)
        told = INFINITE if before is None or before.address != address else before.sent
        self._reports[queue] = _Report(address, duration, self.desired)
        return None if self.desired == told else self.desired

    def forget(self, queue: str) -> None:
        self._reports.pop(queue, None)

    def __contains__(self, queue: str) -> bool:
        return queue in self._reports

    def update(self, ratio: float, disk_alarm: bool) -> list[tuple[Any, float]]:
        """After a look at memory, `ratio` of the watermark is in use: which queues (addresses) must be told at once, and what.

        Those that are to keep less than they were told and than they have; while the disk is low, when nothing may be written to it, those that are to keep more.
        """
        self.desired = self._desired(ratio, disk_alarm)
        told = []
        for report in self._reports.values():
            is_less = self.desired < min(report.sent, report.duration)
            if self.desired > report.sent if disk_alarm else is_less:
                report.sent = self.desired
                told.append((report.address, self.desired))
        return told

    def _desired(self, ratio: float, disk_alarm: bool) -> float:
        durations = [report.duration for report in self._reports.values() if report.duration != INFINITE]
        if disk_alarm:
            return INFINITE
        if ratio == INFINITE:
            return 0.0
        if ratio < self._paging_ratio or not durations:
            return INFINITE
        total = sum(durations)
        total = 0.0 if total < LEAST else total
        extra = SUM_INCREMENT if ratio < SUM_THRESHOLD else 0.0
        return (total + extra) / len(durations) / ratio
