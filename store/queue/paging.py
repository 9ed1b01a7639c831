"""How much of a variable queue stays in memory (section 4.7).

The owner says in **seconds** how much traffic may stay; times the smoothed rates that is a target in messages. A **round** takes what exceeds it
out of memory, at most 8000 messages of a kind (QS-14): bodies first (alpha to beta, and those of pending messages, whichever grows faster first), then positions
(beta to delta), of which the fewer may stay the smaller the target is. Relaxing the target loads nothing.
"""

from __future__ import annotations

from ..messages.pending_runs import PendingRuns
from .backing_queue import INFINITE
from .placement import ABSENT, TO_STORE, Placement
from .rates import Rates
from .sub_queues import SubQueues

PAGING_QUOTA = 8000
UNBOUNDED = 1 << 62
IO_BATCH_SIZE = 4096
"""Positions are written out in no smaller numbers than this."""


class Paging:
    """See the module. `target` is in messages, or INFINITE; `mode` is what the queue is or is to become; `is_due` when the last round had more to do."""

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
        """`default` or `lazy`, to be got to in steps by an owner who reads ahead. True if the index is to be flushed: entries of what left memory wait there."""
        self.mode = mode
        if mode == "lazy":
            return self._convert()
        if self._sub_queues.is_lazy:
            self._sub_queues.become_default()  # if the disk must be read first, `read_ahead` goes on with it
        return False

    def _convert(self) -> bool:
        """Go on becoming lazy."""
        if self.mode != "lazy" or self._sub_queues.is_lazy:
            return False
        is_done = self._sub_queues.become_lazy(PAGING_QUOTA if self._sub_queues.reads_ahead else UNBOUNDED)
        self.is_due = self.is_due or not is_done
        return True

    def set_duration(self, seconds: float) -> None:
        self.target = seconds if seconds == INFINITE else int(seconds * sum(self._rates.rates))

    def duration(self) -> float:
        """Refresh the rates; seconds of traffic in memory. Two samples, each message counted going in and out: hence the 4."""
        self._rates.update()
        now = (self._sub_queues.ram_count, self.ram_acks())
        previous, self._previous = self._previous, now  # D-6
        if self._rates.is_idle:
            return INFINITE
        return (sum(now) + sum(previous)) / (4 * sum(self._rates.rates))

    def ram_acks(self) -> int:
        """Pending messages whose bodies are in memory."""
        return sum(run.live for run in self._pending.runs if not run.kind & ABSENT)

    def page(self) -> bool:
        """A round, and a step towards being lazy. True if the index is to be flushed, as by `set_mode`."""
        has_paged = self._round()
        return self._convert() or has_paged

    def _round(self) -> bool:
        """False if there is no target."""
        self.is_due = False
        if self.target == INFINITE:
            return False
        sub = self._sub_queues
        pageable = sum(run.live for run in self._pending.runs if run.kind & (TO_STORE | ABSENT) == TO_STORE)
        need = max(0, sub.ram_count + pageable - int(self.target))
        quota = min(need, PAGING_QUOTA)
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
        if chunk >= (1 if sub.is_lazy else self._io_batch_size):
            sub.betas_to_deltas(min(chunk, PAGING_QUOTA))
        self.is_due = quota > 0 and not left and need > quota or chunk > PAGING_QUOTA
        return True

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
        """The youngest first; whole runs, so a round may exceed its quota by one."""
        for run in reversed(self._pending.runs):
            if quota <= 0:
                break
            if run.kind & (TO_STORE | ABSENT) == TO_STORE:
                self._place.trim(run)
                quota -= run.live
        return max(0, quota)
