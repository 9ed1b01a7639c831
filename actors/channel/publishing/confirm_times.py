"""`ConfirmTimes`: how long the publishes of one channel wait for their confirms (CM-375).

At most one publish in each millisecond of the node is timed. It counts as often as its channel has published messages
since the one that it has timed before. So the cost grows neither with the rate of messages nor with the number of
channels, and the histogram is one of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...statistics.histograms import NodeHistograms

#: Seconds between two publishes of the node that are timed.
INTERVAL = 0.001

#: Publishes of a channel that are timed at one time. While so many wait, others only add to the weight of the next one.
MOST = 256

#: Acks or nacks of one flush: delivery tags, each with whether it stands for all before it as well.
Settled = Sequence[tuple[int, bool]]


class Timed(NamedTuple):
    """A publish that waits for its confirm. It counts as `weight` messages."""

    tag: int
    weight: int
    began: float


class ConfirmTimes:
    """See the module. `uncounted` publishes came before confirm.select, so delivery tags do not count them."""

    __slots__ = ("_histograms", "_now", "_uncounted", "_weight", "waiting")

    def __init__(self, histograms: NodeHistograms, now: Callable[[], float], uncounted: int) -> None:
        self._histograms = histograms
        self._now = now
        self._uncounted = uncounted
        #: Messages since the last one that is timed.
        self._weight = 0
        self.waiting: list[Timed] = []

    def published(self, number: int, count: int) -> None:
        """Note `count` publishes from this publish number on."""
        self._weight += count
        now = self._now()
        if now >= self._histograms.next_confirm and len(self.waiting) < MOST:
            self._histograms.next_confirm = now + INTERVAL
            self.waiting.append(Timed(number - self._uncounted, self._weight, now))
            self._weight = 0

    def settled(self, acks: Settled, nacks: Settled) -> None:
        """Count the timed publishes that these acks confirm, and forget those that are refused. Some must wait."""
        if not nacks and len(acks) == 1 and acks[0][0] < self.waiting[0].tag:
            return
        acked_to, acked = _split(acks)
        nacked_to, nacked = _split(nacks)
        now = self._now()
        waiting = []
        for timed in self.waiting:
            if timed.tag <= acked_to or timed.tag in acked:
                self._histograms.publish_to_confirm.observe(now - timed.began, timed.weight)
            elif timed.tag > nacked_to and timed.tag not in nacked:
                waiting.append(timed)
        self.waiting = waiting


def _split(settled: Settled) -> tuple[int, set[int]]:
    """The tag up to which all are settled, 0 if there is none, and the tags that are settled one by one."""
    return max((tag for tag, is_multiple in settled if is_multiple), default=0), {tag for tag, _ in settled}
