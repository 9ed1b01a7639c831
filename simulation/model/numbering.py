"""What readers by number rely on, whatever crashes (SP-25): no number is given twice, and a gap is remembered."""

from __future__ import annotations

from typing import NamedTuple

from ...actors.queue.inspection import QueueView
from ...store.messages.lives import Lives
from .copies import PromiseBroken


class Told(NamedTuple):
    """What a reader may have seen of a queue: messages had the numbers below `next`, except the gaps in `lives`."""

    next: int
    lives: Lives


class NumberingCheck:
    """What readers could have seen of each durable queue when the node was last at rest, by the queue's id."""

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}

    def check(self, queues: list[QueueView]) -> None:
        """Compare the queues with what readers could have seen of them before. Raises PromiseBroken."""
        for queue in queues:
            now = queue.told()
            if now is None:
                continue
            now_told = Told(*now)
            before = self._told.get(queue.queue_id)
            if before is not None:
                self._check(queue, before, now_told)
            self._told[queue.queue_id] = now_told

    @staticmethod
    def _check(queue: QueueView, before: Told, now: Told) -> None:
        name = f"queue '{queue.name}'"
        if now.next < before.next:
            raise PromiseBroken(f"{name} gives numbers from {now.next} on again, though {before.next} was its next one")
        kept = [gap for gap in now.lives.gaps if gap.life <= before.lives.life]
        # A queue keeps more gaps than a schedule has crashes, so none of them has been dropped.
        if now.lives.life < before.lives.life or tuple(kept) != before.lives.gaps:
            raise PromiseBroken(f"{name} has other gaps in its numbers than before: {before.lives}, then {now.lives}")
