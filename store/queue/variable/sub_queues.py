"""The five sub-queues of a variable queue, from head to tail: q4, q3, delta, q2, q1 (queue-and-store section 4).

    q1 --> q2 --> delta --> q3 --> q4 -->          most messages skip most of the way
    alpha  beta   disk      beta   alpha           (a beta message with an index entry is called gamma)

- q1 and q4 hold whole messages. q2 and q3 hold messages without their bodies if these are in a message store. Delta is
  a range of numbers whose messages are on disk only.
- A requeued message whose body was paged out returns to q4 without it, because reading the body would wait for the
  disk. This is the one exception from QS-2.
- The queue is empty when q4 and q3 are (QS-6): `take` refills q3 from delta, with q2 behind it, when it takes the last
  run of q3, or makes q1 the new q4.
- A lazy queue uses delta and q3 only; q3 is filled when the head is needed (QS-7).

All sub-queues hold runs. `check` asserts QS-1 to QS-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ....seams import seam
from ...messages.ascending_runs import AscendingRuns
from ...messages.pending_runs import PendingRuns
from ...messages.run import ABSENT, IN_STORE, INDEXED, TO_STORE, Run
from ...messages.run_queue import RunQueue
from .placement import Placement, recovered

#: Paging counts a run that it moves as at least this many messages, because moving a run of one message costs as much
#: as moving a run of many.
RUN_COUNTS_AS = 16

#: How many numbers of delta one load covers, at most.
DELTA_READ = 2048


class Delta:
    """The messages that are on disk only: `count` of the numbers `[start, end)`. The other numbers are holes."""

    __slots__ = ("start", "end", "count", "body_bytes", "transient", "transient_bytes")

    def __init__(self, start: int = 0, end: int = 0, count: int = 0, body_bytes: int = 0) -> None:
        self.start = start
        self.end = end
        self.count = count
        self.body_bytes = body_bytes
        self.transient = 0
        self.transient_bytes = 0

    @property
    def is_blank(self) -> bool:
        return self.start == self.end

    def extend(self, run: Run) -> None:
        if self.is_blank:
            self.start, self.end = run.first, run.end
        else:
            self.start, self.end = min(self.start, run.first), max(self.end, run.end)
        self._add(run, 1)

    def loaded(self, run: Run) -> None:
        self._add(run, -1)

    def _add(self, run: Run, sign: int) -> None:
        self.count += sign * len(run.contents)
        self.body_bytes += sign * run.body_bytes
        if not run.origin.persistent:
            self.transient += sign * len(run.contents)
            self.transient_bytes += sign * run.body_bytes


class SubQueues:
    """See the module. `pending` are the unacknowledged messages of the queue, which are holes of delta."""

    __slots__ = (
        "_index",
        "_pending",
        "_place",
        "delta",
        "is_lazy",
        "lost",
        "q1",
        "q2",
        "q3",
        "q4",
        "transient_threshold",
    )

    def __init__(self, place: Placement, pending: PendingRuns) -> None:
        self._place = place
        self._index = place.index
        self._pending = pending
        self.q1, self.q2, self.q3, self.q4 = RunQueue(), RunQueue(), RunQueue(), RunQueue()
        self.delta = Delta()
        self.is_lazy = False
        #: Transient messages below this number are left over from before the last start, and are dropped.
        self.transient_threshold = 0
        #: How many messages could not be read back. The owner logs them and sets this to 0.
        self.lost = 0

    def __len__(self) -> int:
        return self.q4.count + self.q3.count + self.delta.count + self.q2.count + self.q1.count

    @property
    def body_bytes(self) -> int:
        return self.q4.body_bytes + self.q3.body_bytes + self.delta.body_bytes + self.q2.body_bytes + self.q1.body_bytes

    def runs_in_memory(self) -> Iterator[Run]:
        """All runs except those of delta, from the head."""
        return chain(self.q4.runs, self.q3.runs, self.q2.runs, self.q1.runs)

    @property
    def ram_count(self) -> int:
        """Messages whose bodies are in memory."""
        return sum([queue.count - queue.absent for queue in (self.q4, self.q3, self.q2, self.q1)])

    @property
    def ram_bytes(self) -> int:
        return sum([queue.body_bytes - queue.absent_bytes for queue in (self.q4, self.q3, self.q2, self.q1)])

    @property
    def persistent(self) -> tuple[int, int]:
        """How many messages are persistent, and the bytes of their bodies."""
        delta, parts = self.delta, (self.q4, self.q3, self.q2, self.q1)
        return (
            sum([part.persistent for part in parts]) + delta.count - delta.transient,
            sum([part.persistent_bytes for part in parts]) + delta.body_bytes - delta.transient_bytes,
        )

    def runs_on_disk(self, delta: Delta) -> Iterator[Run]:
        """All runs of delta, or of a shelf, in order. Each is read and not kept. Waits for the disk."""
        start, end = delta.start, delta.end
        while start < end:
            stop = min(self._index.reach(start), start + DELTA_READ, end)
            yield from self._live(start, stop)
            start = stop

    # -- in and out

    def push(self, run: Run) -> None:
        """Add a run at the tail. On a lazy queue its bodies and index entries are written already."""
        if self.is_lazy:
            self.delta.extend(run)
        elif self.q3.count:
            self.q1.push(run)
        else:
            self.q4.push(run)  # q3 is empty, and so is every sub-queue behind it

    def head(self) -> Run | None:
        """The run at the head, which stays there. None if the queue is empty, or if the run is on disk."""
        source = self.q4 if self.q4.count else self.q3
        return source.runs.head if source.count else None

    def take(self, count: int) -> list[Run]:
        """Take up to `count` messages from the head, whether their bodies are in memory or not."""
        taken: list[Run] = []
        while count > 0 and self.head() is not None:
            source = self.q4 if self.q4.count else self.q3
            runs = source.take(count)
            count -= sum(len(run.contents) for run in runs)
            taken += runs
            if source is self.q3 and not source.count and not self.is_lazy:
                self._refill()
        return taken

    def take_last(self, limit: int) -> list[Run]:
        """Remove and return up to `limit` messages from the tail of the last sub-queue in memory that has any.

        The caller has emptied delta before messages in front of delta are taken.
        """
        for queue in (self.q1, self.q2, self.q3, self.q4):
            if queue.count:
                return queue.take_last(limit)
        return []

    def _refill(self) -> None:
        """Restore QS-5 and QS-6 after the last run of q3 was taken."""
        if self.delta.count:
            self.load_from_delta()
        if not self.q3.count:
            assert not self.q2.count and not self.q4.count
            self.q4, self.q1 = self.q1, self.q4  # q2, delta and q3 are empty, so the messages of q1 are the head now

    def available(self, limit: int) -> int:
        """How many messages at the head, up to `limit`, can be taken without the disk.

        The last message of q3 stays while delta has messages (QS-5).
        """
        count = 0
        for queue in (self.q4, self.q3):
            for run in queue.runs:
                readable = self._place.readable(run)
                count += readable
                if readable < len(run.contents) or count > limit:
                    return min(count, limit)
        return count - 1 if self.delta.count and self.q3.count and not self.is_lazy and count else count

    def unread(self) -> Iterator[Run]:
        """The runs before delta, whose bodies are read first."""
        return iter([*self.q4.runs, *self.q3.runs])

    def next_slice(self) -> range | None:
        """The numbers of delta that should be read next; None if enough messages are in memory."""
        delta = self.delta
        if not delta.count or self.q4.count + self.q3.count >= DELTA_READ:
            return None
        return self._first_slice()

    def drop_lost(self) -> None:
        """Remove messages at the head whose bodies the store does not have (D-19), so that `available` counts none of
        them.
        """
        for queue in (self.q4, self.q3):
            lost = {id(run): found for run in queue.runs if (found := self._place.lost_in(run))}
            if not lost:
                continue
            runs = list(queue.runs)
            queue.clear()
            for run in runs:
                start = 0
                for index in [*lost.get(id(run), ()), len(run.contents)]:
                    if start < index:
                        queue.push(run.part(start, index))
                    if index < len(run.contents):
                        self._place.forget([run.part(index, index + 1)])
                        self.lost += 1
                    start = index + 1
        if not self.q3.count and not self.is_lazy and (self.delta.count or self.q1.count):
            self._after_loss()

    def _after_loss(self) -> None:
        """Restore QS-5. This may wait for the disk, which is acceptable because lost bodies are rare."""
        if self.delta.count:
            self.load_from_delta()
        if not self.q3.count:
            while self.q1.count:
                self.q4.push(self.q1.take(len(self.q1.runs.head.contents))[0])

    def _first_slice(self) -> range:
        delta = self.delta
        return range(delta.start, min(self._index.reach(delta.start), delta.start + DELTA_READ, delta.end))

    def load_from_delta(self, slices: int | None = None) -> None:
        """Move the first messages of delta to q3, from at most that many slices. When delta ends, all of q2 follows."""
        delta = self.delta
        while not delta.is_blank:
            if slices == 0:
                return
            slices = None if slices is None else slices - 1
            stop = self._first_slice().stop
            kept = self._live(delta.start, stop)
            delta.count += self._index.reads.uncounted
            self._index.reads.uncounted = 0
            delta.start = stop
            for run in kept:
                delta.loaded(run)
                self.q3.push(run)
            if not delta.count:
                break
            if kept:
                return
        # D-7: messages that delta counts and the disk does not have are lost. Without this the queue would search for
        # ever.
        self.lost += delta.count
        self.delta = Delta()
        for run in self.q2.runs:
            self.q3.push(run)
        self.q2.clear()

    @seam("the order of messages that are read from the disk")
    def _live(self, start: int, stop: int) -> list[Run]:
        """The messages of a range within one segment, without pending ones and transient ones from before the last
        start.
        """
        live = []
        for run, is_stored in self._index.read(start, stop):
            if run.first < self.transient_threshold and not run.origin.persistent:
                self._index.ack(range(run.first, run.end), journaled=False)
                continue
            for piece in self._without_pending(run):
                live.append(recovered(piece, is_stored))
        return live

    def _without_pending(self, run: Run) -> Iterable[Run]:
        span = range(run.first, run.end)
        if not self._pending.count_in(span):
            return [run]
        return (
            [run.part(part.start - run.first, part.stop - run.first) for part in self._pending.missing(span)]
            if self._pending.count_in(span) < len(span)
            else []
        )

    def insert(self, runs: Iterable[Run]) -> None:
        """Put requeued runs back where their numbers belong (queue-and-store section 4.6)."""
        whole: list[Run] = []
        bare: list[Run] = []
        limit = None if self.is_lazy else self.q3.runs.head.first if self.q3.count else float("inf")
        for run in runs:
            if limit is not None and run.first < limit:
                whole.append(run)
                continue
            size = len(run.contents)
            below = size if self.delta.is_blank else min(max(0, self.delta.start - run.first), size)
            if 0 < below < size:
                bare.append(run.take(below))
                self.to_delta(run)
            elif below:
                bare.append(run)
            else:
                self.to_delta(run)
        for run in bare:
            self._place.trim(run)
        if whole:
            self.q4.insert(whole)
        if bare:
            self.q3.insert(bare)

    def to_delta(self, run: Run) -> None:
        """Move a run to delta: write it, and keep only its numbers in memory."""
        self._place.write_body(run)
        self._place.write_index(run)
        self.delta.extend(run)

    # -- paging (queue-and-store section 4.7)

    def alphas_to_betas(self, quota: int) -> int:
        """Take up to `quota` bodies out of memory, beginning with those farthest from the head.

        Returns the rest of the quota.
        """
        while quota > 0 and self.q1.count:
            (run,) = self.q1.take(min(quota, len(self.q1.runs.head.contents)))
            quota -= max(len(run.contents), RUN_COUNTS_AS)
            self._place.trim(run)
            (self.q3 if self.delta.is_blank else self.q2).push(run)
        while quota > 0 and self.q4.count:
            (run,) = self.q4.take_last(min(quota, len(self.q4.runs.tail.contents)))
            quota -= max(len(run.contents), RUN_COUNTS_AS)
            self._place.trim(run)
            self.q3.insert([run])
        return max(0, quota)

    def betas_to_deltas(self, quota: int) -> int:
        """Move up to `quota` messages to delta: from the rear of q3, except the segment at its head (QS-5), then from
        the front of q2. Returns how many it has moved.

        A lazy queue moves that segment as well.
        """
        kept_below = self._index.boundary_after(self.q3.runs.head.first) if self.q3.count and not self.is_lazy else 0
        moved = 0
        while quota > 0 and self.q3.count and self.q3.runs.tail.end > kept_below:
            last = self.q3.runs.tail
            (run,) = self.q3.take_last(min(quota, last.end - max(kept_below, last.first)))
            quota -= max(len(run.contents), RUN_COUNTS_AS)
            moved += len(run.contents)
            self.to_delta(run)
        while quota > 0 and self.q2.count:
            (run,) = self.q2.take(min(quota, len(self.q2.runs.head.contents)))
            quota -= max(len(run.contents), RUN_COUNTS_AS)
            moved += len(run.contents)
            self.to_delta(run)
        return moved

    def become_lazy(self, quota: int) -> bool:
        """Move up to `quota` messages of each kind towards q3 and delta (queue-and-store section 7.2).

        True once the queue is lazy.
        """
        self.alphas_to_betas(quota)
        self.is_lazy = not self.q1.count and not self.q4.count and self.q2.count <= quota
        if self.is_lazy:
            while self.q2.count:
                self.betas_to_deltas(self.q2.count + self.q3.count)
        else:
            self.betas_to_deltas(quota)
        return self.is_lazy

    def become_default(self) -> None:
        """Leave lazy mode, unless the head is in delta and must be read into q3 first (QS-5)."""
        if self.q3.count or not self.delta.count:
            self.is_lazy = False

    # -- inspection

    @property
    def lowest(self) -> int | None:
        """A number that no ready message is below: that of the head unless it is in delta. None without messages."""
        source = self.q4 if self.q4.count else self.q3
        return source.runs.head.first if source.count else self.delta.start if self.delta.count else None

    def on_disk(self, first: int, last: int, most: int) -> range:
        """The numbers at the beginning of `[first, last]`, up to `most`, that one read of the index gets; empty if
        `first` is in memory.
        """
        delta = self.delta
        if not delta.count or not delta.start <= first < delta.end:
            return range(first, first)
        return range(first, min(self._index.reach(first), first + most, delta.end, last + 1))

    def ready_from(self, first: int, last: int, most: int) -> tuple[Iterable[Run], int]:
        """Ready runs that include every ready message of `[first, stop)`, and `stop`.

        A job has brought the numbers of `on_disk` into memory before.
        """
        on_disk = self.on_disk(first, last, most)
        if on_disk:
            return self._live(on_disk.start, on_disk.stop), on_disk.stop
        stop = min(last + 1, self.delta.start) if self.delta.count and first < self.delta.start else last + 1
        return chain.from_iterable(
            queue.runs.from_number(first) for queue in (self.q4, self.q3, self.q2, self.q1)
        ), stop

    def detach(self) -> list[AscendingRuns[Run]]:
        """Remove everything, and return what was in memory to be freed in steps."""
        self.delta = Delta()
        return [queue.detach() for queue in (self.q1, self.q2, self.q3, self.q4)]

    def check(self) -> None:
        """Assert QS-1 to QS-10."""
        q1, q2, q3, q4, delta = self.q1, self.q2, self.q3, self.q4, self.delta
        at = -1
        for part in (q4, q3, delta, q2, q1):
            if isinstance(part, Delta):
                assert part.is_blank or part.start >= at, "QS-1"
                at = at if part.is_blank else part.end
                assert part.is_blank or part.start + part.count <= part.end, "QS-9"
                assert not part.is_blank or not part.count, "QS-9"
                assert min(part.count, part.body_bytes, part.transient, part.transient_bytes) >= 0, "QS-8"
                continue
            count = body_bytes = absent = absent_bytes = 0
            for run in part.runs:
                held = len(run.contents)
                count += held
                body_bytes += run.body_bytes
                assert run.first >= at, "QS-1"
                at = run.end
                assert not run.origin.persistent or run.kind & INDEXED, "QS-10"
                if run.kind & ABSENT:
                    absent += held
                    absent_bytes += run.body_bytes
                    assert run.kind & IN_STORE, "QS-10"
                    assert part is not q1, "QS-2"
                else:
                    assert not run.kind & TO_STORE or part is q1 or part is q4, "QS-2"
            assert (part.count, part.body_bytes, part.absent) == (count, body_bytes, absent), "QS-8"
            assert part.absent_bytes == absent_bytes, "QS-8"
        if self.is_lazy:
            assert not q1.count and not q2.count and not q4.count, "QS-7"
        else:
            assert not q1.count or q3.count, "QS-3"
            assert not q2.count or delta.count, "QS-4"
            assert not delta.count or q3.count, "QS-5"
            assert bool(len(self)) == bool(q3.count or q4.count), "QS-6"
        assert self.ram_count <= len(self) and self.ram_bytes <= self.body_bytes, "QS-8"
