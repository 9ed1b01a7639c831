"""`Admission`: decides on arrival whether a message would have to wait for too long in a paced queue (QP-102, QP-103).

A message that has been accepted is not checked again, for example when it is requeued. The policy's `pace-overflow`
decides what happens to one that would wait too long, and `Intake` does it.

How long a message would wait depends on whether the queue shares its clocks with others, so each kind of pacing derives
from this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from ....routing.arguments.queue_settings import QueueSettings
from ....store.messages.message import body_size
from ....store.queue.backing_queue import BackingQueue
from ...contracts.pace import PACE_OUTCOMES
from ...pace.pace_clock import MILLISECOND, SECOND
from ..effects import Effects

if TYPE_CHECKING:
    from ...contracts.info_items import InfoItems

#: Bytes of a body that take one slot, if sizes decide.
KIB = 1024


class Admission(ABC):
    """See the module. `now` gives seconds of a monotonic clock; all other times are in ns."""

    __slots__ = ("_effects", "_now", "_settings", "backing", "outcomes")

    def __init__(
        self, backing: BackingQueue, effects: Effects, now: Callable[[], float], settings: QueueSettings
    ) -> None:
        self.backing = backing
        self._effects = effects
        self._now = now
        self._settings = settings
        #: How many messages would have had to wait too long, by what happened to them.
        self.outcomes = dict.fromkeys(PACE_OUTCOMES, 0)

    def now(self) -> int:
        return int(self._now() * SECOND)

    def apply(self, settings: QueueSettings) -> None:
        self._settings = settings

    @property
    def overflow(self) -> str:
        """What happens to a message that would have to wait too long: `hold`, `dead-letter`, `nack` or `drop`."""
        return self._settings.pace_overflow

    @property
    def counts_kib(self) -> bool:
        """Whether the size of its body decides how many slots a message takes."""
        return self._settings.pace_cost == "kib"

    def admit(self, contents: Sequence[bytes]) -> int:
        """How many of the messages that arrive now, from the first on, are accepted. The others take no slots."""
        count = len(contents)
        ends = list(accumulate(map(slots_of, contents))) if self.counts_kib else None
        free = self._places_for_arrivals(self._settings.pace_max_wait * MILLISECOND)
        # A message is accepted if its first slot is free.
        admitted = min(count, free if ends is None else bisect_left(ends, free) + 1 if free else 0)
        if admitted < count:
            self.outcomes[self.overflow] += count - admitted
        if self.overflow == "hold":
            admitted = count
        if admitted:
            self._admitted(admitted if ends is None else ends[admitted - 1])
        return admitted

    @abstractmethod
    def _places_for_arrivals(self, max_wait: int) -> int:
        """How many slots for messages that arrive now come within `max_wait`."""

    def _admitted(self, slots: int) -> None:
        """Note that messages were accepted which take this many slots."""
        return

    def purged(self) -> None:
        """Note that no ready message is left before those that arrive."""
        return

    def waiting_slots(self) -> int:
        """How many slots the ready messages take, or about as many if sizes decide."""
        waiting = len(self.backing)
        return max(waiting, -(-self.backing.totals().ready_bytes // KIB)) if self.counts_kib else waiting

    def info(self) -> InfoItems:
        """What listings show of the pace (QP-108)."""
        settings = self._settings
        next_in, wait = self._waits()
        return {
            "rate": settings.pace_rate,
            "period_ms": settings.pace_period,
            "scope": settings.pace_scope,
            "group": settings.pace_group,
            "overflow": settings.pace_overflow,
            "waiting": len(self.backing),
            "next_in_ms": next_in // MILLISECOND,
            "planned_wait_ms": wait // MILLISECOND,
            "refused_total": sum(self.outcomes.values()) - self.outcomes["hold"],
            "held_total": self.outcomes["hold"],
            "outcomes": dict(self.outcomes),
        }

    @abstractmethod
    def _waits(self) -> tuple[int, int]:
        """The time to the next slot, and how long a message that arrives now would wait."""


def slots_of(content: bytes) -> int:
    """The slots that a message takes by its size."""
    return -(-body_size(content) // KIB) or 1
