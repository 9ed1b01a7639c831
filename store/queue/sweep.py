"""Taking from the head of a variable queue as long as messages are of a kind (section 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..messages.run import Run
from .backing_queue import Predicate, Swept
from .sub_queues import SubQueues


def sweep(
    sub_queues: SubQueues, take: Callable[[int], Iterable[Run]], pred: Predicate, limit: int
) -> tuple[Swept, list[Run]]:
    """`take` up to `limit` messages while `pred` holds. The next head is looked at where it is, so nothing needs putting back."""
    taken: list[Run] = []
    count = swept_bytes = 0
    while (head := sub_queues.head()) is not None:
        passing = 0
        most = min(len(head.contents), limit - count)
        while passing < most and pred(head.expiry, head.size_at(passing)):
            passing += 1
        is_done = passing < len(head.contents)
        expiry = head.expiry
        for run in take(passing):
            count += len(run.contents)
            swept_bytes += run.body_bytes
            taken.append(run)
        if is_done:
            return Swept(count, swept_bytes, expiry, False, passing == most), taken
    return Swept(count, swept_bytes, None, not len(sub_queues), bool(len(sub_queues))), taken
