"""`ConfirmTimes`: how long the publishes of one channel wait for their confirms (CM-375).

`TimedConfirms` of the node chooses the publishes that are timed. The time of each one counts for all messages that were
published since the timed one before it. So the cost does not grow with the rate of messages, and yet the histogram
counts every message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...statistics.histograms import TimedConfirms

#: Publishes that are timed at one time. While this many wait, others only add to the weight of the next one.
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

    __slots__ = ("_now", "_uncounted", "timed", "waiting")

    def __init__(self, timed: TimedConfirms, now: Callable[[], float], uncounted: int) -> None:
        self.timed = timed
        self._now = now
        self._uncounted = uncounted
        self.waiting: list[Timed] = []

    def begin(self, number: int) -> None:
        """Time the publish of this number. Called when `TimedConfirms.left` has come to 0, so that the next publish is
        to be timed.
        """
        if len(self.waiting) < MOST:
            now = self._now()
            self.waiting.append(Timed(number - self._uncounted, self.timed.take(now), now))

    def settled(self, acks: Settled, nacks: Settled) -> None:
        """Count the timed publishes that these acks confirm, and forget those that are refused. To be called only while
        timed publishes wait.
        """
        if not nacks and len(acks) == 1:
            tag, is_multiple = acks[0]
            first = self.waiting[0]
            if tag < first.tag:
                return
            # the usual case if the client publishes one message at a time
            if len(self.waiting) == 1 and (is_multiple or tag == first.tag):
                self.timed.histogram.observe(self._now() - first.began, first.weight)
                self.waiting = []
                return
        acked_to, acked = _split(acks)
        nacked_to, nacked = _split(nacks)
        now = self._now()
        waiting = []
        for timed in self.waiting:
            if timed.tag <= acked_to or timed.tag in acked:
                self.timed.histogram.observe(now - timed.began, timed.weight)
            elif timed.tag > nacked_to and timed.tag not in nacked:
                waiting.append(timed)
        self.waiting = waiting


def _split(settled: Settled) -> tuple[int, set[int]]:
    """The tag up to which all are settled, 0 if there is none, and the tags that are settled one by one."""
    return max((tag for tag, is_multiple in settled if is_multiple), default=0), {tag for tag, _ in settled}
