"""The variable queue: a backing queue with its backlog on disk. A message that it confirms survives any crash.

How it works
------------
Messages are in the five sub-queues of `sub_queues`; `placement` moves them between memory, queue index and message
stores. A persistent message is written when it is published: its index entry goes to the journal, with the body in it
if that is small; a large body goes to the message store. All other writes only free memory.

The owner calls `durable(journal, store)` when all records and writes up to these positions are on disk; `unconfirmed`
then finds the publishes that have become safe.

Messages leave memory only in `set_ram_duration_target` and `page` (QS-15), at a change to lazy mode, and in
`keep_in_lanes` of a queue with fair lanes. `publish` to a lazy queue adds messages to delta at once.

This module adds and removes messages. Its parts do the rest: `queue_recovery` finds the messages at a start,
`segment_writer` writes segments, `read_ahead` reads them before they are needed, `paging` decides what stays in
memory, `peek` reads without taking, and `shelf` has what fair lanes keep on the disk.

Who waits for the disk
----------------------
No method below waits for the disk unless its docstring says so. The owner runs the jobs of `segment_writer` and
`read_ahead` in another thread; `available` returns how many messages can be taken from the head before the next such
job, and no method takes more.

A lazy queue writes large runs to its segments only, since they would get there anyway; the next flush, which is then
synced, confirms them. Small runs go to the journal as well, where one sync serves all queues.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ....seams import seam
from ...disk.progress import NO_PROGRESS, RecoveryProgress
from ...index.queue_index import SEGMENT_ENTRIES, QueueIndex
from ...index.segment_jobs import SegmentReadJob
from ...journal.number_reserve import NumberReserve
from ...journal.replay import Replayed
from ...messages.arrivals import UNKNOWN
from ...messages.ascending_runs import AscendingRuns
from ...messages.lives import FIRST_LIFE, Lives, Numbering
from ...messages.message import (
    Expiries,
    FetchedMessages,
    Origin,
    Origins,
    QueuedMessage,
    any_of,
    expiries_of,
    have_same_fate,
    joined,
    slice_of,
)
from ...messages.message_ids import StoredSpan
from ...messages.parts import Part
from ...messages.pending_runs import PendingRuns, count_in
from ...messages.run import IN_STORE, INDEXED, TO_STORE, Run, free_last
from ...messages.spans import spans
from ..backing_queue import UNLIMITED, Dispose, Totals
from ..range_read import RANGE_BATCH_BYTES, RANGE_BATCH_MESSAGES, RangeBatch, RunBatch, SupportsRangeRead, count_to
from ..rates import INFINITE, Rates
from .disk_queue import DiskQueue
from .paging import IO_BATCH_SIZE, PAGING_QUOTA, Paging
from .peek import Peek
from .placement import EMBED_BELOW, Bodies, Placement
from .queue_recovery import RecoveredQueue, VariableQueueRecovery, found_empty, persistent, recovery_terms
from .read_ahead import ReadAhead, ReadAheadJob
from .segment_writer import SegmentWriter
from .shelf import ShelvingLevel
from .sub_queues import Delta, SubQueues
from .unconfirmed import Unconfirmed

#: Bytes of index entries that a lazy queue keeps in memory between two flushes, at most (D-12).
LAZY_UNFLUSHED_BYTES = 512 << 10
#: A start flushes the index entries that only the journal has if they take more bytes than this, to free their memory.
#: A flush takes three syncs, which would delay the start of ten thousand small queues by many seconds.
RECOVERED_UNFLUSHED_BYTES = 64 << 10
#: Runs of a lazy queue with at least this many body bytes go directly to its segments.
DIRECT_BYTES = 32 << 10


class VariableQueue(DiskQueue, SupportsRangeRead, ShelvingLevel):
    """See the module.

    queue           the number under which the journal has this queue
    replayed        its records in the journal, at a start
    embed_below     bytes of body and properties from which on a message goes to a message store (`Placement.split`)
    io_batch_size   the fewest index entries that paging writes at once
    clock           gives monotonic seconds
    keeps_numbers   whether no number is given again after a crash, so that the queue can be read by number
    """

    __slots__ = (
        "_index",
        "_journal_position",
        "_keeps_numbers",
        "_moved",
        "_peek",
        "_next",
        "_pending",
        "_place",
        "_rates",
        "_read_ahead",
        "_recovery",
        "_redelivered_below",
        "_reserve",
        "_watermark",
        "arrived",
        "is_journaled_only",
        "segment_writer",
        "lives",
        "may_expire",
        "paging",
        "returns",
        "shelf",
        "sub_queues",
        "unconfirmed",
    )

    def __init__(
        self,
        queue: int,
        index: QueueIndex,
        persistent: Bodies,
        transient: Bodies,
        replayed: Replayed | None = None,
        embed_below: int = EMBED_BELOW,
        io_batch_size: int = IO_BATCH_SIZE,
        segment_entries: int = SEGMENT_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
        keeps_numbers: bool = True,
    ) -> None:
        self._index = index
        self._recovery = VariableQueueRecovery(index, replayed)
        self._place = Placement(queue, index, persistent, transient, embed_below)
        self._pending = PendingRuns()
        #: Messages that were moved to other queues, and stay pending until the journal is durable up to the position.
        #: None before the first, because an empty deque takes 760 bytes.
        self._moved: deque[tuple[int, range]] | None = None
        self.sub_queues = SubQueues(self._place, self._pending)
        self._read_ahead = ReadAhead(self.sub_queues, self._pending, self._place)
        self._peek = Peek(self.sub_queues, self._pending, self._place)
        self.returns = {} if replayed is None else dict(replayed.returns)
        self.may_expire = False
        self._next = 0
        self._reserve = NumberReserve(index if keeps_numbers else None)
        self.lives = FIRST_LIFE
        self.arrived = UNKNOWN
        self._keeps_numbers = keeps_numbers
        self.is_journaled_only = False
        self._watermark = 0  # messages with lower numbers were at the head before (D-5)
        self._redelivered_below = 0  # messages with lower numbers were delivered before the start
        self.shelf = None
        self._rates = Rates(clock)
        self.unconfirmed = Unconfirmed()
        self._journal_position = 0
        self.segment_writer = SegmentWriter(self._place, self.unconfirmed)
        self.paging = Paging(self.sub_queues, self._pending, self._place, self._rates, io_batch_size, segment_entries)

    # -- life

    def scan(self, terms: dict[str, Any] | None, progress: RecoveryProgress = NO_PROGRESS) -> list[StoredSpan]:
        return self._recovery.scan(terms, progress)

    @property
    def needs_disk_to_recover(self) -> bool:
        return self._index.has_files or self._index.unflushed_bytes > RECOVERED_UNFLUSHED_BYTES

    def recover(self, terms: dict[str, Any] | None, missing: Sequence[int], is_copy: bool = False) -> None:
        self._begin(self._recovery.finish(terms, missing, is_copy))
        if terms is not None:
            # Terms have counts of returns only if an earlier version wrote them. Now the journal keeps these counts.
            self.returns |= terms.get("returns", {})
        if self.returns:
            # The journal may delete the file with the records of an earlier process.
            self.repeat_returns()

    def begin_empty(self, numbering: Numbering) -> None:
        """Begin without a message, with the numbering of an earlier process of the queue (`numbering_of`)."""
        self._begin(found_empty(numbering))

    def _begin(self, found: RecoveredQueue) -> None:
        self.may_expire = found.may_expire
        self._place.has_shared = found.has_shared
        self._next, self._watermark = found.next_number, found.watermark
        self._redelivered_below = found.watermark
        self._begin_life(found.lives, found.gap)
        self.arrived = found.arrived
        if found.is_scanned and self._index.unflushed_bytes > RECOVERED_UNFLUSHED_BYTES:
            self._flush_recovered()
        self._reserve.found(min(self._next, found.recorded))
        if found.recorded < self._next and self._keeps_numbers:
            # Only segments had the last numbers: a power cut has left a segment and lost the reservation. Without a
            # record the numbers would be given again after the next crash, since segments without messages are removed.
            self._journal_position = self._reserve.renew(self._next)
        self.sub_queues.transient_threshold = self._next
        self._find_messages(found)

    def _begin_life(self, lives: Lives, gap: range) -> None:
        """Begin a new life if the numbers in `gap` were passed over.

        The journal has the record of the life before a reader gets any number of it, and repeats it from then on. The
        terms of a clean stop cannot keep it, because they are deleted when the queue begins.
        """
        self.lives = lives.after(gap) if gap and self._keeps_numbers else lives
        if self.lives.life:
            self._index.begin_life(self.lives)

    def pass_over(self, count: int) -> range:
        numbers = self.discard(Origin("", ("",)), count, False)
        self.note_lives(self.lives.after(numbers))
        return numbers

    def note_lives(self, lives: Lives) -> None:
        if lives != self.lives:
            self.lives = lives
            if self._keeps_numbers:
                self._journal_position = self._index.begin_life(lives)

    def _find_messages(self, found: RecoveredQueue) -> None:
        """Begin with the messages on the disk."""
        if found.messages:
            self._place.has_bodies = True
            self.sub_queues.delta = Delta(self._index.bounds()[0], self._next, found.messages, found.body_bytes)
            self.sub_queues.load_from_delta()
            if not self.sub_queues.delta.count:
                self._index.reads.drop()  # all messages are in memory, as in most of ten thousand small queues

    def _flush_recovered(self) -> None:
        try:
            self._index.check_room(2 * self._index.unflushed_bytes)
        except OSError:
            return  # the entries stay in memory, so that the remaining space can be used for acknowledgements
        self.segment_writer.flush(True)

    def terminate(self) -> dict[str, Any]:
        count, body_bytes = persistent(self.sub_queues, self._pending, self.shelf)
        self._forget_returns()
        return recovery_terms(
            self._index,
            RecoveredQueue(
                count,
                body_bytes,
                self._next,
                self._watermark,
                self.may_expire,
                self._place.has_shared,
                range(0),
                False,
                self._next,
                lives=self.lives,
                arrived=self.arrived,
            ),
        )

    @property
    def has_lost_entries(self) -> bool:
        return self._index.has_lost_entries

    def delete_and_terminate(self) -> Dispose:
        """As in `BackingQueue`. The owner then also runs the releases of `segment_writer`, and its `delete_files`."""
        for on_disk in (self.sub_queues.delta, *([] if self.shelf is None else [self.shelf.counts])):
            self.segment_writer.release(on_disk, self._pending)
        self._place.forget_between(0, self._next)
        self.segment_writer.forget()
        detached = [*self.sub_queues.detach(), self._pending.detach()]
        self._moved = None
        self.returns.clear()
        return lambda limit: self._dispose(detached, limit)

    def _dispose(self, detached: list[AscendingRuns[Run]], limit: int) -> bool:
        runs = free_last(detached, limit)
        if runs and self._place.has_shared:
            self._place.forget_shared(runs)
        return bool(runs)

    # -- the disk

    def available(self, limit: int) -> int:
        return self.sub_queues.available(limit)

    def prepare(self) -> ReadAheadJob | None:
        return self._read_ahead.head(self.paging.mode == "default")

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        return self._read_ahead.pending(tags)

    # -- in

    def publish(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        first = self._next
        self._next = end = first + len(contents)
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += end - first
        if expiries is not None:
            self.may_expire = True
        for run in self._place.split(
            self._run(first, contents, origins, expiries, is_redelivered, body_bytes), shared, is_handed
        ):
            self._write(run, confirm, is_handed)
            self.sub_queues.push(run)
        if self.sub_queues.is_lazy and self._index.unflushed_bytes > LAZY_UNFLUSHED_BYTES:
            self.segment_writer.needs_flush = True
        return range(first, end)

    def publish_delivered(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        assert not len(self), "publish_delivered on a queue that is not empty"
        first = self._next
        self._next = self._watermark = end = first + len(contents)
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += end - first
        self._rates.out += end - first
        self._rates.acks_into += end - first
        if expiries is not None:
            self.may_expire = True
        for run in self._place.split(
            self._run(first, contents, origins, expiries, is_redelivered, body_bytes), shared, is_handed
        ):
            self._write(run, confirm, is_handed)
            self._pending.add(run)
        return range(first, end)

    def _run(
        self,
        first: int,
        contents: Sequence[bytes],
        origins: Origins,
        expiries: Expiries,
        redelivered: bool,
        body_bytes: int,
    ) -> Run:
        """The run of messages that are published."""
        whole = slice(None)
        columns = slice_of(origins, whole), expiries_of(expiries, whole)
        return Run(first, list(contents), *columns, redelivered, body_bytes, arrived=self.arrived)

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        first = self._next
        self._next = end = first + count
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += count
        if confirm and is_recorded:
            self.unconfirmed.journaled(first, end - 1, self._index.recorded, 0)
        elif confirm:
            self.unconfirmed.is_safe(first, end - 1)
        return range(first, end)

    def _write(self, run: Run, confirm: bool, must_be_journaled: bool) -> None:
        is_direct = False
        if run.origin.persistent or self.sub_queues.is_lazy:
            self._place.write_body(run)
            is_direct = not must_be_journaled and not self.is_journaled_only and self._goes_directly(run)
            position = self._place.write_index(run, not is_direct)
            if position:
                self._journal_position = position
                if must_be_journaled:
                    self._place.index.unflushed.hold(range(run.first, run.end), position)
        if is_direct:
            self.segment_writer.needs_flush = True
            self.unconfirmed.went_directly(run.first, run.end - 1, confirm)
        elif confirm and run.origin.persistent:
            self.unconfirmed.journaled(
                run.first, run.end - 1, self._journal_position, self._place.store_position if run.kind & TO_STORE else 0
            )
        elif confirm:
            self.unconfirmed.is_safe(run.first, run.end - 1)

    def _goes_directly(self, run: Run) -> bool:
        """Whether a run that was just published becomes durable through its segment instead of the journal."""
        return (
            self.sub_queues.is_lazy
            and run.origin.persistent
            and (run.body_bytes >= DIRECT_BYTES or self.unconfirmed.needs_sync or self.unconfirmed.is_flush_direct)
            and not run.kind & TO_STORE
        )

    def drain_confirmed(self) -> list[tuple[int, int]]:
        return self.unconfirmed.drain()

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        deliveries: list[FetchedMessages] = []
        for run in self._take(self.available(count)):
            for whole, contents in self._readable(run):
                last = deliveries[-1] if deliveries else None
                if (
                    last is not None
                    and have_same_fate(any_of(last.origins), whole.origin)
                    and last.redelivered == whole.redelivered
                    and last.tags[-1] + 1 == whole.first
                ):
                    origins = joined(last.origins, len(last.contents), whole.origins, len(contents))
                    last.contents.extend(contents)
                    deliveries[-1] = FetchedMessages(
                        origins, last.redelivered, range(last.tags[0], whole.end), last.contents
                    )
                else:
                    origins = slice_of(whole.origins, slice(None))
                    deliveries.append(
                        FetchedMessages(origins, whole.redelivered, range(whole.first, whole.end), contents[:])
                    )
                self._hand_out(whole, ack_required)
        return deliveries

    def _take(self, count: int) -> Iterator[Run]:
        """Take runs from the head, each with the redelivered flag that consumers will see."""
        watermark = self._watermark
        for run in self.sub_queues.take(count):
            self._watermark = max(self._watermark, run.end)
            if run.first < watermark < run.end and not run.redelivered:
                seen = run.take(watermark - run.first)
                seen.redelivered = True
                yield seen
            run.redelivered = run.redelivered or run.first < watermark
            yield run

    def _readable(self, run: Run) -> Iterator[tuple[Run, list[bytes]]]:
        """The run with its contents. Messages whose bodies are lost are left out, and removed from the queue (D-19)."""
        contents = self._place.read(run)
        if None not in contents:
            yield run, contents  # type: ignore[misc]
            return
        for index, content in enumerate(contents):
            part = run.part(index, index + 1)
            if content is None:
                self.sub_queues.lost += 1
                self._place.forget([part])
            else:
                yield part, [content]

    def _hand_out(self, run: Run, ack_required: bool) -> None:
        self._rates.out += len(run.contents)
        if ack_required:
            self._rates.acks_into += len(run.contents)
            self._pending.add(run)
        else:
            self._place.forget([run])

    def drop(self, count: int) -> int:
        return self._forget_handed_out(self._take(self.available(count)))

    def _forget_handed_out(self, runs: Iterable[Run]) -> int:
        """Count messages that were taken from the head as handed out, and forget them; returns how many."""
        count = 0
        for run in runs:
            count += len(run.contents)
            self._hand_out(run, False)
        return count

    def drop_expired(self, now: int, limit: int) -> int:
        return self._forget_handed_out(self._take_expired(now, limit))

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        messages = []
        for run in self._take_expired(now, limit):
            for whole, contents in self._readable(run):
                messages += [
                    QueuedMessage(
                        whole.first + index,
                        content,
                        whole.origin_at(index),
                        whole.expiry_at(index),
                        whole.redelivered,
                    )
                    for index, content in enumerate(contents)
                ]
                self._hand_out(whole, True)
        return messages

    def _take_expired(self, now: int, limit: int) -> Iterator[Run]:
        """Take up to `limit` messages that expire no later than `now`."""
        left = self.available(limit)
        while left and (head := self.sub_queues.head()) is not None and (count := head.expired(now, left)):
            left -= count
            yield from self._take(count)

    def ack(self, tags: Sequence[int]) -> int:
        pending = self._pending
        oldest = pending.oldest(tags)
        if oldest is not None and oldest.kind & INDEXED and oldest.origin.persistent:
            # The most common case on the disk, persistent messages that are settled in order.
            assert type(tags) is range
            self._journal_position = self._index.ack(tags)
            if oldest.kind & IN_STORE:
                self._place.forget_bodies([(oldest, slice(0, len(tags), 1), len(tags))])
            known = pending.discard_oldest(oldest, len(tags))
            self.unconfirmed.acked(tags[0], tags[-1])
            self._rates.acks_out += known
            return known
        known = 0
        for span in spans(tags):
            pieces = pending.pieces(span)
            kinds = {(run.origin.persistent, run.kind) for run, _, _ in pieces}
            if kinds <= _MEMORY_ONLY:
                known += pending.discard_pieces(pieces)
            elif all([is_persistent and kind & INDEXED for is_persistent, kind in kinds]) and (
                count_in(pieces) == len(span)
            ):
                # A span of persistent messages costs one ack record here too, although it may lie in several runs, and
                # have its bodies in a store.
                self._journal_position = self._index.ack(span)
                self._place.forget_bodies(pieces)
                known += pending.discard_pieces(pieces)
                if span.step == 1:
                    self.unconfirmed.acked(span.start, span.stop - 1)
            else:
                runs = pending.take(span)
                self._place.forget(runs)
                for run in runs:
                    self.unconfirmed.acked(run.first, run.end - 1)
                known += sum(len(run.contents) for run in runs)
        self._rates.acks_out += known
        return known

    def move(self, tags: Sequence[int]) -> int:
        pending = self._pending
        known = 0
        for span in spans(tags):
            pieces = pending.pieces(span)
            if all(run.origin.persistent for run, _, _ in pieces) and count_in(pieces) == len(span):
                known += len(span)
                self._record_moved(span)
                continue
            for number, is_persistent in [
                (run.first + index, run.origin.persistent) for run, index in pending.find(span)
            ]:
                if is_persistent:
                    known += 1
                    self._record_moved(range(number, number + 1))
                else:
                    known += self.ack([number])
        return known

    def _record_moved(self, span: range) -> None:
        self._journal_position = self._index.record_ack(span)
        if self._moved is None:
            self._moved = deque()
        self._moved.append((self._journal_position, span))

    def _forget_moved(self, journal: int) -> None:
        """Forget the messages whose move the journal has up to this position."""
        moved = self._moved
        while moved and moved[0][0] <= journal:
            runs = self._pending.take(moved.popleft()[1])
            self._place.forget(runs, is_recorded=True)
            self._rates.acks_out += sum(len(run.contents) for run in runs)

    @property
    def awaits_journal_to_end(self) -> bool:
        index = self._place.index
        return bool(self._moved) or index.unflushed.is_holding or index.has_damaged_empty_file

    @seam("which messages are requeued")
    def requeue(self, tags: Sequence[int]) -> int:
        runs = self._pending.take(tags)
        if not runs:
            return 0
        known = sum(len(run.contents) for run in runs)
        self.sub_queues.insert(runs)
        self._rates.into += known
        self._rates.acks_out += known
        return known

    def purge(self, limit: int = UNLIMITED) -> int:
        """Purge from the tail on, so that QS-3 to QS-6 hold in between. Delta is purged at once, without being read."""
        purged = 0
        while purged < limit and (count := self._purge_last(limit - purged)):
            purged += count
        return purged

    def _purge_last(self, limit: int) -> int:
        """Purge delta if it is the last sub-queue, and then up to `limit` messages of the last one in memory."""
        sub = self.sub_queues
        count = 0
        if sub.delta.count and not sub.q1.count and not sub.q2.count:
            count = sub.delta.count
            self.segment_writer.release(sub.delta, self._pending)
            keep = self._pending.numbers_in(range(sub.delta.start, sub.delta.end))
            self._place.forget_between(sub.delta.start, sub.delta.end, keep)
            self._index.ack_between(sub.delta.start, sub.delta.end, keep)
            sub.delta = Delta()
        runs = sub.take_last(limit)
        self._place.forget(runs)
        return count + sum([len(run.contents) for run in runs])

    # -- inspection

    def __len__(self) -> int:
        return len(self.sub_queues)

    def totals(self) -> Totals:
        sub, pending = self.sub_queues, self._pending
        return Totals(len(sub), pending.count, sub.body_bytes, pending.body_bytes)

    def head(self) -> QueuedMessage | None:
        return self._peek.head(self._watermark)

    def head_expiry(self) -> int | None:
        run = self.sub_queues.head()
        return None if run is None else run.expiry

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return self._peek.pending_messages(tags)

    def pending_numbers(self) -> Iterator[int]:
        return self._pending.numbers()

    # -- by number

    def record_returns(self, numbers: Iterable[int]) -> None:
        self._index.returned({number: self.returns[number] for number in numbers})

    def repeat_returns(self) -> None:
        self._forget_returns()
        if self.returns:
            self._index.returned(self.returns, True)

    def _forget_returns(self) -> None:
        """Forget the counts of messages that have left."""
        lowest = self.numbers().start
        for number in [number for number in self.returns if number < lowest]:
            del self.returns[number]

    def numbers(self) -> range:
        lowest = self._peek.lowest(self._next)
        if self.shelf is not None and self.shelf.counts.count:
            lowest = min(lowest, self.shelf.counts.start)
        return range(lowest, self._next)

    def kept_numbers(self) -> range:
        numbers = self.numbers()
        kept = self._reserve.kept(numbers.stop)
        return range(min(numbers.start, kept), kept)

    def prepare_range(self, first: int, last: int, window: int = RANGE_BATCH_MESSAGES) -> SegmentReadJob | None:
        return self._peek.prepare_range(first, last, window)

    def range_prepared(
        self, job: SegmentReadJob, first: int, last: int, window: int = RANGE_BATCH_MESSAGES
    ) -> SegmentReadJob | None:
        return self._peek.range_prepared(job, first, last, window)

    def take_range(
        self, first: int, last: int, most: int = RANGE_BATCH_MESSAGES, most_bytes: int = RANGE_BATCH_BYTES
    ) -> RangeBatch:
        return self._peek.take_range(first, last, self._watermark, most, most_bytes)

    def take_runs(self, first: int, last: int, window: int, most_bytes: int) -> RunBatch:
        return self._peek.take_runs(first, last, window, self._watermark, most_bytes)

    def drop_to(self, last: int, limit: int) -> int:
        sub = self.sub_queues
        in_memory = sub.q4.count + sub.q3.count
        if sub.delta.count and not sub.is_lazy:
            in_memory -= 1  # the last of q3 stays (QS-5)
        count = count_to(chain(sub.q4.runs, sub.q3.runs), last, min(limit, in_memory))
        return self._forget_handed_out(self._take(count))

    # -- memory

    def set_queue_mode(self, mode: str) -> None:
        if self.paging.set_mode(mode):
            self.segment_writer.needs_flush = True

    def set_ram_duration_target(self, seconds: float) -> None:
        self.paging.set_duration(seconds)
        self.page()

    def ram_duration(self) -> float:
        return self.paging.duration()

    @property
    def is_paging_due(self) -> bool:
        return self.paging.is_due or self.shelf is not None and self.shelf.is_due

    def page(self) -> None:
        has_paged = self.paging.page()
        shelf, target = self.shelf, self.paging.target
        if shelf is not None and target != INFINITE:
            has_paged = shelf.page(int(target), PAGING_QUOTA) or has_paged
        if has_paged:
            self.segment_writer.needs_flush = True

    # -- the disk side

    def durable(self, journal: int, store: int) -> None:
        unconfirmed = self.unconfirmed
        if journal > unconfirmed.journal_durable:
            unconfirmed.journal_durable = journal
            self._reserve.durable(journal)
            if self._moved:
                self._forget_moved(journal)
        if store > unconfirmed.store_durable:
            unconfirmed.store_durable = store

    def direct_counts(self) -> tuple[int, int]:
        return self.unconfirmed.direct, self.unconfirmed.direct_safe

    @property
    def is_active(self) -> bool:
        return bool(self.unconfirmed.is_waiting or self._moved or self.segment_writer.has_work or self.is_paging_due)

    def take_lost(self) -> int:
        lost = self.sub_queues.lost
        if lost:
            self.sub_queues.lost = 0
        return lost

    def references(self) -> Iterator[tuple[bool, bytes]]:
        sub = self.sub_queues
        on_shelf = sub.runs_on_disk(Delta() if self.shelf is None else self.shelf.counts)
        return (
            (run.origin.persistent, message_id)
            for run in chain(sub.runs_in_memory(), sub.runs_on_disk(sub.delta), on_shelf, self._pending.runs)
            if run.kind & IN_STORE
            for message_id in self._place.ids(run)
        )

    def check(self) -> None:
        """Assert QS-1 to QS-10 and QS-12. Tests and the simulation call it after each step."""
        self._peek.check()


_MEMORY_ONLY = frozenset({(False, 0), (False, TO_STORE)})
