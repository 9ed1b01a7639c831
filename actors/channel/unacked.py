"""Deliveries of one channel that await an acknowledgement (AB-130 to AB-137).

Deliveries are kept as runs: so many consecutive delivery tags that went to one consumer from one queue. A consumer that acknowledges in order trims
the first run; one that picks single tags out of the middle splits a run in two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class UnackedRun:
    """Delivery tags `first .. first + len(tags) - 1`, whose acknowledgement tags at the queue are `tags`."""

    first: int
    queue_id: str
    consumer_tag: str | None  # None: basic.get
    tags: Sequence[int]
    delivered_at: float  # monotonic seconds

    @property
    def last(self) -> int:
        return self.first + len(self.tags) - 1


class Unacked:
    """The outstanding deliveries in delivery-tag order."""

    __slots__ = ("_runs", "_head", "count")

    def __init__(self) -> None:
        self._runs: list[UnackedRun] = []
        self._head = 0  # runs before it are settled; they are cut off when they outnumber the rest
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[UnackedRun]:
        return iter(self._runs[self._head :])

    def add(self, run: UnackedRun) -> None:
        """Appends; its tags must be larger than all before."""
        self._runs.append(run)
        self.count += len(run.tags)

    @property
    def oldest(self) -> UnackedRun | None:
        return self._runs[self._head] if self._head < len(self._runs) else None

    def take(self, delivery_tag: int, multiple: bool) -> list[UnackedRun] | None:
        """Removes and returns the deliveries that `delivery_tag` settles, oldest first; None when the tag is unknown (AB-132)."""
        if not multiple:
            return self._take_one(delivery_tag)
        if delivery_tag == 0:
            return self.take_all()
        if self._find(delivery_tag) is None:
            return None
        return self._take_up_to(delivery_tag)

    def take_all(self) -> list[UnackedRun]:
        runs = self._runs[self._head :]
        self._runs, self._head, self.count = [], 0, 0
        return runs

    def _find(self, delivery_tag: int) -> int | None:
        runs = self._runs
        at = self._head
        # In-order consumers settle in the first run: look there before searching.
        if at < len(runs) and runs[at].first <= delivery_tag <= runs[at].last:
            return at
        at = bisect_right(runs, delivery_tag, lo=self._head, key=lambda run: run.first) - 1
        if at < self._head or delivery_tag > runs[at].last:
            return None
        return at

    def _take_up_to(self, delivery_tag: int) -> list[UnackedRun]:
        runs, taken, at = self._runs, [], self._head
        while at < len(runs) and runs[at].last <= delivery_tag:
            taken.append(runs[at])
            at += 1
        if at < len(runs) and runs[at].first <= delivery_tag:
            run = runs[at]
            size = delivery_tag - run.first + 1
            taken.append(UnackedRun(run.first, run.queue_id, run.consumer_tag, run.tags[:size], run.delivered_at))
            run.first += size
            run.tags = run.tags[size:]
        self._head = at
        self._compact()
        self.count -= sum(len(run.tags) for run in taken)
        return taken

    def _take_one(self, delivery_tag: int) -> list[UnackedRun] | None:
        at = self._find(delivery_tag)
        if at is None:
            return None
        run = self._runs[at]
        offset = delivery_tag - run.first
        taken = UnackedRun(
            delivery_tag, run.queue_id, run.consumer_tag, run.tags[offset : offset + 1], run.delivered_at
        )
        self.count -= 1
        if len(run.tags) == 1:
            if at == self._head:
                self._head += 1
                self._compact()
            else:
                del self._runs[at]
        elif offset == 0:
            run.first += 1
            run.tags = run.tags[1:]
        else:
            rest = run.tags[offset + 1 :]
            run.tags = run.tags[:offset]
            if rest:
                self._runs.insert(
                    at + 1, UnackedRun(delivery_tag + 1, run.queue_id, run.consumer_tag, rest, run.delivered_at)
                )
        return [taken]

    def _compact(self) -> None:
        if self._head > 64 and self._head * 2 > len(self._runs):
            del self._runs[: self._head]
            self._head = 0

    def put_back(self, runs: list[UnackedRun]) -> None:
        """Restores deliveries that a rolled-back transaction had settled (AB-117)."""
        merged = sorted(self._runs[self._head :] + runs, key=lambda run: run.first)
        self._runs, self._head = merged, 0
        self.count += sum(len(run.tags) for run in runs)
