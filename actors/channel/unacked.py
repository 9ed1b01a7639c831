"""Deliveries of one channel that await an acknowledgement (AB-130 to AB-137).

Deliveries are kept as runs: consecutive delivery tags that went to one consumer from one queue. A consumer that
acknowledges in order trims the first run; a consumer that picks single tags out of the middle splits a run in two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...seams import seam
from .contract import Outcome

#: Replaces the queue id of deliveries whose queue has ended.
NO_QUEUE = ""


@dataclass(slots=True)
class UnackedRun:
    """Delivery tags `first .. first + len(tags) - 1`; their messages have the ack tags `tags` in the queue."""

    first: int
    queue_id: str
    #: None for a message fetched with basic.get.
    consumer_tag: str | None
    tags: Sequence[int]
    #: Monotonic seconds.
    delivered_at: float

    @property
    def last(self) -> int:
        return self.first + len(self.tags) - 1


class Unacked:
    """The unacknowledged deliveries in delivery-tag order, and those that an open transaction has settled."""

    __slots__ = ("_head", "_runs", "count", "held_back")

    def __init__(self) -> None:
        self._runs: list[UnackedRun] = []
        #: Runs before this index are settled; they are cut off when they outnumber the rest.
        self._head = 0
        #: The unacknowledged deliveries, without those of `held_back`.
        self.count = 0
        #: Settlements that a transaction holds back until its commit (AB-115); None without a transaction.
        self.held_back: list[tuple[Outcome, list[UnackedRun]]] | None = None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[UnackedRun]:
        return iter(self._runs[self._head :])

    def add(self, run: UnackedRun) -> None:
        """Append a run, whose delivery tags must be larger than all before."""
        self._runs.append(run)
        self.count += len(run.tags)

    @property
    def oldest(self) -> UnackedRun | None:
        return self._runs[self._head] if self._head < len(self._runs) else None

    @seam("which deliveries an acknowledgement settles")
    def take(self, delivery_tag: int, multiple: bool) -> list[UnackedRun] | None:
        """Remove and return the deliveries that `delivery_tag` settles, in order; None if it is unknown (AB-132)."""
        if not multiple:
            return self._take_one(delivery_tag)
        if delivery_tag == 0:
            return self.take_all()
        if self._find(delivery_tag) is None:
            return None
        return self._take_up_to(delivery_tag)

    def take_range(self, first: int, last: int) -> list[UnackedRun] | None:
        """Remove and return the deliveries `first` to `last`; None, and nothing is removed, if one is unknown."""
        if first == last:
            return self._take_one(first)
        at = self._find(first)
        if at is None:
            return None
        runs = self._runs
        end = at
        while runs[end].last < last:
            end += 1
            if end == len(runs) or runs[end].first != runs[end - 1].last + 1:
                return None
        if at == self._head and runs[at].first == first:
            return self._take_up_to(last)
        taken = []
        rest = []
        for run in runs[at : end + 1]:
            start, stop = max(0, first - run.first), min(len(run.tags), last + 1 - run.first)
            taken.append(self._part(run, start, stop))
            if start:
                rest.append(self._part(run, 0, start))
            if stop < len(run.tags):
                rest.append(self._part(run, stop, len(run.tags)))
        runs[at : end + 1] = rest
        self.count -= last + 1 - first
        return taken

    @staticmethod
    def _part(run: UnackedRun, start: int, stop: int) -> UnackedRun:
        return UnackedRun(run.first + start, run.queue_id, run.consumer_tag, run.tags[start:stop], run.delivered_at)

    def has_range(self, first: int, last: int) -> bool:
        """Whether all deliveries from `first` to `last` are unacknowledged."""
        at = self._find(first)
        if at is None:
            return False
        runs = self._runs
        while runs[at].last < last:
            at += 1
            if at == len(runs) or runs[at].first != runs[at - 1].last + 1:
                return False
        return True

    def take_all(self) -> list[UnackedRun]:
        runs = self._runs[self._head :]
        self._runs, self._head, self.count = [], 0, 0
        return runs

    def _find(self, delivery_tag: int) -> int | None:
        runs = self._runs
        at = self._head
        # Consumers that settle in order settle in the first run: look there before searching.
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

    def held_back_count(self) -> int:
        """The deliveries settled in the open transaction."""
        if not self.held_back:
            return 0
        return sum([len(run.tags) for _, runs in self.held_back for run in runs])

    @seam("which deliveries can no longer be settled")
    def disown(self, queue_id: str) -> None:
        """The queue's process has ended: its deliveries may still be settled, without effect.

        A restarted queue keeps its id and numbers messages anew, so without this the settlement of a delivery of the
        dead process would settle another message of the new one.
        """
        held_back = [run for _, runs in self.held_back for run in runs] if self.held_back else []
        for run in (*self, *held_back):
            if run.queue_id == queue_id:
                run.queue_id = NO_QUEUE

    def put_back(self, runs: list[UnackedRun]) -> None:
        """Restore deliveries that a rolled-back transaction had settled (AB-117)."""
        merged = sorted(self._runs[self._head :] + runs, key=lambda run: run.first)
        self._runs, self._head = merged, 0
        self.count += sum(len(run.tags) for run in runs)
