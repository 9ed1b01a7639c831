"""Deliveries of one channel that await an acknowledgement (AB-130 to AB-137).

Deliveries are kept as runs: consecutive delivery tags that went to one consumer from one queue. A consumer that
acknowledges in order trims the first run; a consumer that picks single tags out of the middle splits a run in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....seams import seam
from ....store.messages.ascending_runs import AscendingRuns
from ...contracts.channel import Outcome

#: Replaces the queue id of deliveries whose queue has ended.
NO_QUEUE = ""

#: A limit on runs that no channel reaches.
EVERY_RUN = 1 << 62


class DeliverySource:
    """Where deliveries came from: the process of a queue. All deliveries of that process share this object."""

    __slots__ = ("queue_id",)

    def __init__(self, queue_id: str) -> None:
        #: NO_QUEUE once that process has ended.
        self.queue_id = queue_id


@dataclass(slots=True)
class UnackedRun:
    """Delivery tags `first .. first + len(tags) - 1`; their messages have the ack tags `tags` in the queue."""

    first: int
    source: DeliverySource
    #: None for a message fetched with basic.get.
    consumer_tag: str | None
    tags: Sequence[int]
    #: Monotonic seconds.
    delivered_at: float

    @property
    def end(self) -> int:
        """The delivery tag after the last one."""
        return self.first + len(self.tags)

    def part(self, start: int, stop: int) -> UnackedRun:
        """A copy of the deliveries from the position `start` to before `stop`."""
        return UnackedRun(self.first + start, self.source, self.consumer_tag, self.tags[start:stop], self.delivered_at)


class Unacked:
    """The unacknowledged deliveries in delivery-tag order, and those that an open transaction has settled."""

    __slots__ = ("_runs", "count", "held_back", "held_back_count", "sources")

    def __init__(self) -> None:
        #: By queue id, for each queue that lives and has ever delivered something to be acknowledged.
        self.sources: dict[str, DeliverySource] = {}
        self._runs: AscendingRuns[UnackedRun] = AscendingRuns()
        #: The unacknowledged deliveries, without those of `held_back`.
        self.count = 0
        #: Settlements that a transaction holds back until its commit (AB-115); None without a transaction.
        self.held_back: list[tuple[Outcome, list[UnackedRun]]] | None = None
        #: How many deliveries `held_back` has.
        self.held_back_count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[UnackedRun]:
        return iter(self._runs)

    def source(self, queue_id: str) -> DeliverySource:
        """The object that deliveries from this queue share until its process ends; it is made for the first of them."""
        found = self.sources.get(queue_id)
        if found is None:
            found = self.sources[queue_id] = DeliverySource(queue_id)
        return found

    def add(self, run: UnackedRun) -> None:
        """Append a run, whose delivery tags must be larger than all before."""
        self._runs.append(run)
        self.count += len(run.tags)

    def blocks(self) -> tuple[list[UnackedRun], ...]:
        """The runs in order, in lists that a caller may look at in several turns, although they change meanwhile."""
        return tuple(self._runs.blocks)

    @property
    def oldest(self) -> UnackedRun | None:
        return self._runs.head if self._runs else None

    @property
    def last_tag(self) -> int:
        """The delivery tag of the youngest; 0 if there is none."""
        return self._runs.tail.end - 1 if self._runs else 0

    def has_up_to(self, delivery_tag: int) -> bool:
        """Whether there are deliveries up to `delivery_tag`."""
        return bool(self._runs) and self._runs.head.first <= delivery_tag

    @seam("which deliveries an acknowledgement settles")
    def take(self, delivery_tag: int, multiple: bool, limit: int = EVERY_RUN) -> list[UnackedRun] | None:
        """Remove and return the deliveries that `delivery_tag` settles, in order; None if it is unknown (AB-132).

        With `multiple`, only the first `limit` runs are taken, and calls of `take_up_to` take the rest.
        """
        if not multiple:
            return self._take_one(delivery_tag)
        if delivery_tag == 0:
            return self.take_up_to(self.last_tag, limit)
        if self._runs.find(delivery_tag) is None:
            return None
        return self.take_up_to(delivery_tag, limit)

    def take_range(self, first: int, last: int) -> list[UnackedRun] | None:
        """Remove and return the deliveries `first` to `last`; None, and nothing is removed, if one is unknown."""
        if first == last:
            return self._take_one(first)
        found = self._found(first, last)
        if found is None:
            return None
        runs = self._runs
        if found[0].first == first and runs.head is found[0]:
            return self.take_up_to(last)
        taken = []
        for run in found:
            start, stop = max(0, first - run.first), min(len(run.tags), last + 1 - run.first)
            taken.append(run.part(start, stop))
            runs.replace(run, [run.part(low, high) for low, high in ((0, start), (stop, len(run.tags))) if low < high])
        self.count -= last + 1 - first
        return taken

    def has_range(self, first: int, last: int) -> bool:
        """Whether all deliveries from `first` to `last` are unacknowledged."""
        return self._found(first, last) is not None

    def _found(self, first: int, last: int) -> list[UnackedRun] | None:
        """The runs with the deliveries `first` to `last`; None if one of these is unknown or settled already."""
        found = self._runs.overlapping(first, last)
        if not found or found[0].first > first or found[-1].end <= last:
            return None
        if any([run.end != after.first for run, after in zip(found, found[1:])]):
            return None
        return found

    def take_up_to(self, delivery_tag: int, limit: int = EVERY_RUN) -> list[UnackedRun]:
        """Remove and return the first `limit` runs of the deliveries up to `delivery_tag`."""
        taken: list[UnackedRun] = []
        runs = self._runs
        block = runs.blocks[0]
        while block and block[0].first <= delivery_tag and len(taken) < limit:
            run = block[0]
            if run.end > delivery_tag + 1:
                size = delivery_tag + 1 - run.first
                taken.append(run.part(0, size))
                run.first += size
                run.tags = run.tags[size:]
                break
            taken.append(run)
            del block[0]
            if not block:
                runs.drop_empty()
                block = runs.blocks[0]
        self.count -= sum([len(run.tags) for run in taken])
        return taken

    def _take_one(self, delivery_tag: int) -> list[UnackedRun] | None:
        runs = self._runs
        run = runs.find(delivery_tag)
        if run is None:
            return None
        self.count -= 1
        size = len(run.tags)
        if size == 1:
            runs.remove(run)
            return [run]
        offset = delivery_tag - run.first
        taken = run.part(offset, offset + 1)
        if offset == 0:
            run.first += 1
            run.tags = run.tags[1:]
        else:
            rest = run.part(offset + 1, size) if offset + 1 < size else None
            run.tags = run.tags[:offset]
            if rest is not None:
                runs.insert(rest)
        return [taken]

    def hold_back(self, outcome: Outcome, runs: list[UnackedRun]) -> None:
        """Keep a settlement until the transaction is committed."""
        assert self.held_back is not None
        self.held_back.append((outcome, runs))
        self.held_back_count += sum([len(run.tags) for run in runs])

    @seam("which deliveries can no longer be settled")
    def disown(self, queue_id: str) -> None:
        """Have settlements of this queue's deliveries reach no queue any more, because its process has ended.

        A restarted queue keeps its id and numbers messages anew. So the settlement of a delivery of the dead process
        would settle another message in the new one.
        """
        source = self.sources.pop(queue_id, None)
        if source is not None:
            source.queue_id = NO_QUEUE

    def put_back(self, runs: list[UnackedRun]) -> None:
        """Restore deliveries that a rolled-back transaction had settled (AB-117)."""
        for run in runs:
            self._runs.insert(run)
            self.count += len(run.tags)
