"""Decides how much of a variable queue stays in memory (queue-and-store section 4.7).

The owner sets how many **seconds** of traffic may stay; multiplied by the smoothed rates that is a target in
messages. A **round** takes what exceeds the target out of memory, at most 8000 messages of a kind (QS-14), and fewer if
they are in many small runs. Bodies leave first: those of ready messages (alpha to beta) and those of pending ones,
beginning with the kind that grows faster. Then index entries leave (beta to delta); the smaller the target, the fewer
may stay. A larger target loads nothing.
"""

from __future__ import annotations

from ...messages.pending_runs import PendingRuns
from ...messages.run import ABSENT, TO_STORE
from ..rates import INFINITE, Rates
from .placement import Placement
from .sub_queues import RUN_COUNTS_AS, SubQueues

#: The most messages of a kind that one round takes out of memory (QS-14).
PAGING_QUOTA = 8000
UNBOUNDED = 1 << 62
#: The fewest index entries that leave memory in one round, since each write has a fixed cost.
IO_BATCH_SIZE = 4096


class Paging:
    """See the module.

    target   how many messages may stay in memory, or INFINITE
    mode     the mode that the queue has, or is changing to
    is_due   the last round had more to do: the owner calls `page`
    """

    __slots__ = (
        "_io_batch_size",
        "_pending",
        "_place",
        "_previous",
        "_rates",
        "_segment_entries",
        "_sub_queues",
        "is_due",
        "mode",
        "target",
    )

    def __init__(
        self,
        sub_queues: SubQueues,
        pending: PendingRuns,
        place: Placement,
        rates: Rates,
        io_batch_size: int,
        segment_entries: int,
    ) -> None:
        self._sub_queues = sub_queues
        self._pending = pending
        self._place = place
        self._rates = rates
        self._io_batch_size = io_batch_size
        self._segment_entries = segment_entries
        self._previous = (0, 0)
        self.target = INFINITE
        self.mode = "default"
        self.is_due = False

    def set_mode(self, mode: str) -> bool:
        """Change to `default` or `lazy`, in steps if much must be written or the head must be read first.

        Returns True if the index should be flushed, because it holds entries of messages that left memory.
        """
        self.mode = mode
        if mode == "lazy":
            return self._convert()
        if self._sub_queues.is_lazy:
            self._sub_queues.become_default()  # if the head must be read from disk first, `read_ahead` finishes this
        return False

    def _convert(self) -> bool:
        """Take the next step towards lazy mode, if that is the goal. True if one was taken."""
        if self.mode != "lazy" or self._sub_queues.is_lazy:
            return False
        is_done = self._sub_queues.become_lazy(PAGING_QUOTA)
        self.is_due = self.is_due or not is_done
        return True

    def set_duration(self, seconds: float) -> None:
        self.target = seconds if seconds == INFINITE else int(seconds * sum(self._rates.rates))

    def duration(self) -> float:
        """Refresh the rates. Returns the seconds of traffic in memory.

        The divisor 4 averages two samples, in each of which the rates count a message going in and coming out.
        """
        self._rates.update()
        now = (self._sub_queues.ram_count, self.ram_acks())
        previous, self._previous = self._previous, now  # unlike RabbitMQ, which never refreshes the sample (D-6)
        if self._rates.is_idle:
            return INFINITE
        return (sum(now) + sum(previous)) / (4 * sum(self._rates.rates))

    def ram_acks(self) -> int:
        """Pending messages whose bodies are in memory."""
        return self._pending.count - self._pending.absent

    def page(self) -> bool:
        """Do a round, and a step towards lazy mode. Returns True if the index should be flushed, as `set_mode` does."""
        has_paged = self._round()
        return self._convert() or has_paged

    def _round(self) -> bool:
        """Take messages out of memory until the target or the quota is reached. Returns False if there is no target."""
        # A round that goes on where another has stopped writes what is left, even if that is little.
        fewest = 1 if self._sub_queues.is_lazy or self.is_due else self._io_batch_size
        self.is_due = False
        if self.target == INFINITE:
            return False
        sub = self._sub_queues
        quota = min(self._excess(), PAGING_QUOTA)
        into, out, acks_into, acks_out = self._rates.rates
        steps = (
            (self._page_acks, sub.alphas_to_betas)
            if acks_into - acks_out > into - out
            else (sub.alphas_to_betas, self._page_acks)
        )
        left = quota
        for step in steps if not sub.is_lazy else (self._page_acks,):
            left = step(left)
        chunk = max(0, sub.q2.count + sub.q3.count - self._permitted_betas())
        moved = sub.betas_to_deltas(min(chunk, PAGING_QUOTA)) if chunk >= fewest else 0
        self.is_due = 0 < moved < chunk or quota > 0 and not left and self._excess() > 0
        return True

    def _excess(self) -> int:
        """How many messages have bodies in memory that the target does not allow there."""
        return max(0, self._sub_queues.ram_count + self._pending.movable - int(self.target))

    def _permitted_betas(self) -> int:
        sub = self._sub_queues
        if not len(sub):
            return UNBOUNDED
        target = int(self.target)
        if sub.is_lazy:
            return target
        if not target:
            return min(sub.q3.count, self._segment_entries)
        betas = len(sub) - sub.q1.count - sub.q4.count
        return max(self._segment_entries, betas - betas * betas // (betas + target))

    def _page_acks(self, quota: int) -> int:
        """Take bodies of pending messages out of memory, the youngest first.

        Only whole runs are paged, so a round may exceed its quota by one run.
        """
        pending = self._pending
        for run in reversed(pending.runs):
            if quota <= 0 or not pending.movable:
                break
            if run.kind & (TO_STORE | ABSENT) == TO_STORE:
                self._place.trim(run)
                pending.trimmed(run)
                quota -= max(run.live, RUN_COUNTS_AS)
        return max(0, quota)
