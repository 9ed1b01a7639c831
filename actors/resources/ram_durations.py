"""`RamDurations`: decides how many seconds of its traffic each queue may keep in memory (queue-and-store section 8.3).

Queues report how many seconds the messages that they have in memory would last. Below `paging_ratio` of the watermark
there is no limit. Above it every queue gets the same number of seconds: the mean of the reports, divided by how full
memory is. A queue without traffic reports INFINITE and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.contract import Address
from ..contracts.resources import ToMemoryUser

INFINITE = float("inf")

#: While memory use is below `SUM_THRESHOLD` of the watermark, `SUM_INCREMENT` seconds are added to the sum of all
#: reports, so that queues that keep nothing in memory may keep a little again.
SUM_THRESHOLD = 0.95
SUM_INCREMENT = 1.0

#: A sum of seconds below this counts as 0.
LEAST = 1e-6


@dataclass(slots=True)
class _Report:
    address: Address[ToMemoryUser]
    #: The duration of the queue's last report, and the target that the queue received last.
    duration: float
    target: float


class RamDurations:
    """The reports of all queues; `desired` is the present target in seconds."""

    def __init__(self, paging_ratio: float) -> None:
        self._paging_ratio = paging_ratio
        self._reports: dict[str, _Report] = {}
        self.desired = INFINITE

    def report(self, queue: str, address: Address[ToMemoryUser], duration: float) -> float | None:
        """Take a report, and return the target to send to this queue; None if it has that target already.

        A queue begins with the target INFINITE.
        """
        before = self._reports.get(queue)
        current = INFINITE if before is None or before.address != address else before.target
        self._reports[queue] = _Report(address, duration, self.desired)
        return None if self.desired == current else self.desired

    def forget(self, queue: str) -> None:
        self._reports.pop(queue, None)

    def __contains__(self, queue: str) -> bool:
        return queue in self._reports

    def update(self, ratio: float, disk_alarm: bool) -> list[tuple[Address[ToMemoryUser], float]]:
        """Set the target after a sample in which `ratio` of the watermark was in use.

        Returns the queues that get the new target now instead of with their next report: the queues whose new target is
        below both their last target and their last report. During a disk alarm queues must not page out to the disk,
        so then the queues whose target rises are returned instead.
        """
        self.desired = self._desired(ratio, disk_alarm)
        if self.desired == INFINITE and not disk_alarm:
            # No report is above the new target INFINITE, so no queue has to be notified. This spares a node with memory
            # left a loop over perhaps a hundred thousand queues, twice a second.
            return []
        notified = []
        for report in self._reports.values():
            is_less = self.desired < min(report.target, report.duration)
            if self.desired > report.target if disk_alarm else is_less:
                report.target = self.desired
                notified.append((report.address, self.desired))
        return notified

    def _desired(self, ratio: float, disk_alarm: bool) -> float:
        if disk_alarm or ratio < self._paging_ratio:
            return INFINITE
        if ratio == INFINITE:
            return 0.0
        durations = [report.duration for report in self._reports.values() if report.duration != INFINITE]
        if not durations:
            return INFINITE
        total = sum(durations)
        total = 0.0 if total < LEAST else total
        extra = SUM_INCREMENT if ratio < SUM_THRESHOLD else 0.0
        return (total + extra) / len(durations) / ratio
