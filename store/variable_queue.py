"""The variable queue: a backing queue whose backlog costs disk, and whose confirms mean that the message is there after any crash.

How it works
------------
Messages stand in the five sub-queues of `sub_queues`; `placement` moves them between memory, queue index and message stores. A
persistent message is written when it is published: its index entry to the journal, with the body in it if it is small, else the
body to the message store. Everything else is written only to free memory.

Durability comes back as positions: whoever writes the journal and the persistent store says `invoke('journal', position)` and
`invoke('store', position)` when everything up to there is durable; `unconfirmed` tells what that makes safe.

Paging happens in `set_ram_duration_target` and `handle_info` alone (QS-15).

Who waits for the disk
----------------------
Alone, a variable queue reads and writes segments when it has to. With `reads_ahead` it never does; its owner runs jobs in another thread instead:

    load = queue.prepare();                  load.run(), and read the bodies of load.wanted;     queue.prepared(load, bodies)
    flush = queue.take_flush(is_synced);     flush.run();                                        queue.flushed(flush)

What a lazy queue is sent in bulk will be in its segments anyway, so it goes there and nowhere else: it is confirmed by the next flush, which then is synced. Little at a
time goes to the journal all the same, where one sync serves all queues.

`available` tells what can be taken from the head as it is, and everything that takes from the head takes no more than that.
`wants_flush` tells that a flush would free memory; one that is synced must be made before the journal gives up a file.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from typing import Any

from .backing_queue import SWEEP_LIMIT, BackingQueue, Dropped, Duplicate, Predicate, Recover, Swept, T, Timeout
from .journal import Replayed
from .message import Delivery, Message, Origin
from .message_ids import StoredSpan
from .number_reserve import NumberReserve
from .paging import IO_BATCH_SIZE, PAGING_QUOTA, Paging
from .placement import ABSENT, EMBED_BELOW, IN_STORE, INDEXED, TO_STORE, Bodies, Placement, Wanted, recovered
from .progress import NO_PROGRESS, Progress
from .queue_index import SEGMENT_ENTRIES, QueueIndex, Scan
from .range_read import PORTION_BYTES, PORTION_MESSAGES, Portion, RangeReadable, count_to, take_portion
from .rates import Rates
from .run import PendingRuns, Run, spans
from .segment_jobs import Flush, Read, Release
from .sub_queues import DELTA_READ, Delta, SubQueues
from .unconfirmed import Unconfirmed

LAZY_UNFOLDED_BYTES = 512 << 10
"""A lazy queue keeps no more than this in memory between two flushes (D-12)."""
DIRECT_BYTES = 32 << 10
"""A lazy queue's runs of at least so many body bytes go to its segments directly."""
READ_BYTES = 4 << 20
"""Bodies that one load brings into memory."""
UNBOUNDED = 1 << 62


@dataclass
class Load:
    """What must be read so that the head of `queue` is in memory. `wanted` are ids of bodies in the stores."""

    queue: VariableQueue
    read: Read | None
    wanted: Wanted

    def run(self) -> None:
        """The part that concerns the index; in another thread."""
        if self.read is not None:
            self.read.run()


class VariableQueue(BackingQueue, RangeReadable):
    """See the module. `queue` is the number that the journal knows this queue by; `replayed` is what the journal recovered of it.

    `sync` is called by `timeout`: it makes the journal and the stores durable, or sees to it that they will be. `clock` gives monotonic seconds.
    """

    __slots__ = (
        '_index', '_journal_position', '_mode', '_next', '_pending', '_persistent', '_place', '_rates', '_reads_ahead', '_releases', '_replayed', '_reserve',
        '_scan', '_sync', '_watermark', 'gap', 'may_expire', 'paging', 'sub_queues', 'unconfirmed', 'wants_flush',
    )

    def __init__(self, queue: int, index: QueueIndex, persistent: Bodies, transient: Bodies, replayed: Replayed | None = None,
                 sync: Callable[[], None] = lambda: None, embed_below: int = EMBED_BELOW, io_batch_size: int = IO_BATCH_SIZE,
                 segment_entries: int = SEGMENT_ENTRIES, clock: Callable[[], float] = time.monotonic, reads_ahead: bool = False,
                 keeps_numbers: bool = True) -> None:
        self._index = index
        self._persistent = persistent
        self._replayed = replayed
        self._sync = sync
        self._place = Placement(queue, index, persistent, transient, embed_below)
        self._pending = PendingRuns()
        self.sub_queues = SubQueues(self._place, self._pending)
        self.sub_queues.reads_ahead = reads_ahead
        self._reads_ahead = reads_ahead
        self._scan: Scan | None = None
        self._mode = 'default'
        self.may_expire = False
        """Some message has an expiry, or had."""
        self._next = 0
        self._reserve = NumberReserve(index.reserve if keeps_numbers else None)
        self.gap = range(0)
        self._watermark = 0  # everything below was at the head once (D-5)
        self._rates = Rates(clock)
        self.unconfirmed = Unconfirmed()
        self._journal_position = 0
        self._releases: deque[Release] = deque()
        self.wants_flush = False
        """A flush would free memory, or remove files."""
        self.paging = Paging(self.sub_queues, self._pending, self._place, self._rates, io_batch_size, segment_entries)
        """`paging.is_due`: the last round had more to do; call `handle_info`."""

    # -- life

    def scan(self, recover: Recover | dict[str, Any], progress: Progress = NO_PROGRESS) -> list[StoredSpan]:
        """The first half of `init`, for an owner who must ask elsewhere which bodies there are: those that are wanted. Waits for the disk."""
        if recover is Recover.NEW:
            return []
        replayed, self._replayed = self._replayed, None
        self._scan = self._index.scan(replayed, recover.get('segments') if isinstance(recover, dict) else None, progress)
        return [] if self._scan is None else self._scan.stored

    def init(self, recover: Recover | dict[str, Any]) -> None:
        self.init_without(recover, [number for span in self.scan(recover) for number, message_id in zip(span.numbers, span.ids())
                                    if not self._persistent.contains(message_id)])

    def init_without(self, recover: Recover | dict[str, Any], missing: Sequence[int]) -> None:
        """The second half: all bodies are there but those of the numbers `missing`. Waits for the disk."""
        if recover is Recover.NEW:
            return
        terms = recover if isinstance(recover, dict) else {}
        if self._scan is None:
            count, body_bytes, self.may_expire = terms['persistent_count'], terms['persistent_bytes'], terms['may_expire']
            self._place.has_shared = terms.get('has_shared', False)
            self._next, self._watermark = terms['next_seq_id'], terms['next_deliver_seq_id']
        else:
            # Whatever the terms say, a count made by looking overrides it (D-7); all may have been delivered before (C-5, C-7).
            self.may_expire = self._scan.may_expire
            self._place.has_shared = any(span.is_shared for span in self._scan.stored)
            found = self._index.without(self._scan, missing)
            end, self._scan = max(self._scan.end, terms.get('next_seq_id', 0)), None
            count, body_bytes = found.messages, found.body_bytes
            self._next = self._watermark = max(found.next_number, terms.get('next_seq_id', 0))
            self.gap = range(end, self._next)
            self.flush_index(True)
        self._reserve.found(self._next)
        self.sub_queues.transient_threshold = self._next
        if count:
            self._place.has_bodies = True
            self.sub_queues.delta = Delta(self._index.bounds()[0], self._next, count, body_bytes)
            self.sub_queues.load_from_delta()

    def terminate(self) -> dict[str, Any]:
        """Waits for the disk. Pending persistent messages are ready after the restart, and counted."""
        count, body_bytes = self._persistent_counts()
        return {'next_seq_id': self._next, 'next_deliver_seq_id': self._watermark, 'persistent_count': count, 'persistent_bytes': body_bytes,
                'may_expire': self.may_expire and count > 0, 'has_shared': self._place.has_shared and count > 0, 'segments': self._index.terminate()}

    @property
    def has_lost_entries(self) -> bool:
        """Damage was found in the index since the start. Bodies in the store may belong to nobody now, so the next start must look at everything: as after an unclean end."""
        return self._index.has_lost_entries

    def _queues(self) -> tuple[Any, ...]:
        sub = self.sub_queues
        return sub.q4, sub.q3, sub.q2, sub.q1

    def delete_and_terminate(self) -> None:
        """With `reads_ahead` the files stay for `delete_files`, and releases may have to be run before that."""
        for queue in (*self._queues(), self._pending) if self._place.has_shared else ():
            self._place.forget_shared(queue.runs)
        self._release_delta()
        self._place.forget_between(0, self._next)
        self._index.forget()
        self.sub_queues.clear()
        self._pending.clear()
        if not self._reads_ahead:
            self.delete_files()

    def delete_files(self) -> None:
        """Waits for the disk; after `delete_and_terminate`, and when no job is under way or waits to be taken."""
        self._index.delete_files()

    # -- the disk

    def flush_index(self, is_synced: bool = False) -> None:
        """Fold what the journal alone has into segments, here and now. After an OSError nothing is lost, and the next flush goes on with it."""
        self.wants_flush = False
        self._index.flush(is_synced)

    def take_flush(self, is_synced: bool = False) -> Flush | None:
        """The job that folds what the journal alone has into segments; None if there is nothing. One at a time."""
        assert not self._releases, 'they read what a flush may remove'
        flush = self._index.take_flush(is_synced or self.unconfirmed.wants_sync)
        self.wants_flush = False
        self.unconfirmed.flush_taken()
        if flush is None:
            self.unconfirmed.flush_done()
        return flush

    @property
    def wants_removal(self) -> bool:
        """There are files of which nothing is wanted."""
        return self._index.has_emptied

    def take_removal(self) -> Flush | None:
        """The job that removes them; as a flush, and not beside one."""
        assert not self._releases, 'they read what it may remove'
        return self._index.take_removal()

    def flushed(self, flush: Flush) -> None:
        self.unconfirmed.flush_done()
        self._index.flushed(flush)

    @property
    def is_flushing(self) -> bool:
        return self._index.is_flushing

    def _request_flush(self) -> None:
        if self._reads_ahead:
            self.wants_flush = True
        else:
            self.flush_index()

    def available(self, limit: int) -> int:
        return self.sub_queues.available(limit)

    def prepare_pending(self, tags: Sequence[int]) -> Load | None:
        """The job after which `ackfold` of the pending messages `tags` reads nothing, if it is called at once; None if none is needed."""
        found: list[Run] = []
        for run, index in self._pending.find(tags):
            if run.kind & ABSENT and not self._place.readable(slot := self._slot(run, index)):
                found.append(slot)
        wanted = self._place.wanted(found, UNBOUNDED)
        return Load(self, None, wanted) if wanted.persistent or wanted.transient else None

    def prepare(self) -> Load | None:
        """What is at hand without the disk is done at once; the job that reads the rest, None if there is nothing to read. One at a time."""
        sub = self.sub_queues
        read = None
        while (span := sub.slice_wanted()) is not None:
            read = self._index.take_read(span.start, span.stop)
            if read is not None:
                break
            sub.load_from_delta(1)
        if self._mode == 'default' and sub.is_lazy:
            sub.become_default()
        wanted = Wanted([], []) if sub.available(1) else self._place.wanted(sub.unread(), READ_BYTES)
        return Load(self, read, wanted) if read is not None or wanted.persistent or wanted.transient else None

    def prepared(self, load: Load, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]) -> None:
        """The job was run, and the bodies of `load.wanted` were read, in that order."""
        if load.wanted.persistent or load.wanted.transient:
            self._place.loaded(load.wanted, persistent, transient)
            if None in persistent or None in transient:
                self.sub_queues.drop_lost()
        if load.read is not None:
            self._index.loaded(load.read)
            span = self.sub_queues.slice_wanted()
            if span is not None and self._index.take_read(span.start, span.stop) is None:
                self.sub_queues.load_from_delta(1)

    # -- in

    def publish(self, origin: Origin, contents: Sequence[bytes], body_bytes: int, expiry: int | None,
                confirm: bool, redelivered: bool = False, shared: int = 0) -> range:
        first = self._next
        self._next = end = first + len(contents)
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += end - first
        if expiry is not None:
            self.may_expire = True
        for run in self._place.split(Run(first, list(contents), origin, expiry, redelivered, body_bytes), shared):
            self._write(run, confirm)
            self.sub_queues.push(run)
        if self.sub_queues.is_lazy and self._index.unfolded_bytes > LAZY_UNFOLDED_BYTES:
            self._request_flush()
        return range(first, end)

    def publish_delivered(self, origin: Origin, contents: Sequence[bytes], body_bytes: int, expiry: int | None,
                          confirm: bool, shared: int = 0) -> range:
        assert self.is_empty(), 'publish_delivered on a queue that is not empty'
        first = self._next
        self._next = self._watermark = end = first + len(contents)
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += end - first
        self._rates.out += end - first
        self._rates.acks_into += end - first
        if expiry is not None:
            self.may_expire = True
        for run in self._place.split(Run(first, list(contents), origin, expiry, False, body_bytes), shared):
            self._write(run, confirm)
            self._pending.add(run)
        return range(first, end)

    def discard(self, origin: Origin, contents: Sequence[bytes], body_bytes: int, confirm: bool) -> range:
        first = self._next
        self._next = end = first + len(contents)
        if end > self._reserve.renew_from:
            self._journal_position = self._reserve.renew(end)
        self._rates.into += end - first
        if confirm:
            self.unconfirmed.is_safe(first, end - 1)
        return range(first, end)

    def _write(self, run: Run, confirm: bool) -> None:
        is_direct = False
        if run.origin.persistent or self.sub_queues.is_lazy:
            self._place.write_body(run)
            is_direct = self._goes_directly(run)
            position = self._place.write_index(run, not is_direct)
            if position:
                self._journal_position = position
        if is_direct:
            self.wants_flush = True
            self.unconfirmed.went_directly(run.first, run.end - 1, confirm)
        elif confirm and run.origin.persistent:
            self.unconfirmed.journaled(run.first, run.end - 1, self._journal_position, self._place.store_position if run.kind & TO_STORE else 0)
        elif confirm:
            self.unconfirmed.is_safe(run.first, run.end - 1)

    def _goes_directly(self, run: Run) -> bool:
        """Whether a run just published is made durable by its segment rather than by the journal."""
        return (self._reads_ahead and self.sub_queues.is_lazy and run.origin.persistent
                and (run.body_bytes >= DIRECT_BYTES or self.unconfirmed.wants_sync or self.unconfirmed.is_flush_direct) and not run.kind & TO_STORE)

    def drain_confirmed(self) -> list[tuple[int, int]]:
        return self.unconfirmed.drain()

    def is_duplicate(self, number: int) -> Duplicate:
        return Duplicate.FRESH

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[Delivery]:
        deliveries: list[Delivery] = []
        if self._reads_ahead:
            count = self.available(count)
        for run in self._take(count):
            for whole, contents in self._readable(run):
                last = deliveries[-1] if deliveries else None
                if last is not None and last.origin == whole.origin and last.redelivered == whole.redelivered \
                        and last.tags[-1] + 1 == whole.first:
                    last.contents.extend(contents)
                    deliveries[-1] = last._replace(tags=range(last.tags[0], whole.end))
                else:
                    deliveries.append(Delivery(whole.origin, whole.redelivered, range(whole.first, whole.end), contents[:]))
                self._hand_out(whole, ack_required)
        return deliveries

    def _take(self, count: int) -> Iterator[Run]:
        """From the head, each run with its redelivered flag as it will be seen."""
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
        """The run with its contents; without messages whose bodies are lost, which are forgotten (D-19)."""
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

    def drop(self, count: int, ack_required: bool) -> Dropped:
        dropped = dropped_bytes = 0
        tags: list[int] = []
        if self._reads_ahead:
            count = self.available(count)
        for run in self._take(count):
            dropped += len(run.contents)
            dropped_bytes += run.body_bytes
            if ack_required:
                tags += range(run.first, run.end)
            self._hand_out(run, ack_required)
        return Dropped(dropped, dropped_bytes, tags)

    def dropwhile(self, pred: Predicate, limit: int = SWEEP_LIMIT) -> Swept:
        swept, runs = self._sweep(pred, limit)
        for run in runs:
            self._hand_out(run, False)
        return swept

    def fetchwhile(self, pred: Predicate, fun: Callable[[Message, T], T], acc: T,
                   limit: int = SWEEP_LIMIT) -> tuple[Swept, T]:
        swept, runs = self._sweep(pred, limit)
        messages = []
        for run in runs:
            for whole, contents in self._readable(run):
                messages += [Message(whole.first + index, content, whole.origin, whole.expiry, whole.redelivered)
                             for index, content in enumerate(contents)]
                self._hand_out(whole, True)
        for message in messages:
            acc = fun(message, acc)
        return swept, acc

    def _sweep(self, pred: Predicate, limit: int) -> tuple[Swept, list[Run]]:
        """Take from the head while `pred` holds. The next head is looked at where it is, so nothing needs putting back."""
        taken: list[Run] = []
        count = swept_bytes = 0
        if self._reads_ahead:
            limit = self.available(limit)
        while (head := self.sub_queues.head()) is not None:
            passing = 0
            most = min(len(head.contents), limit - count)
            while passing < most and pred(head.expiry, head.size_at(passing)):
                passing += 1
            is_done = passing < len(head.contents)
            expiry = head.expiry
            for run in self._take(passing):
                count += len(run.contents)
                swept_bytes += run.body_bytes
                taken.append(run)
            if is_done:
                return Swept(count, swept_bytes, expiry, False, passing == most), taken
        return Swept(count, swept_bytes, None, not len(self), bool(len(self))), taken

    def ack(self, tags: Sequence[int]) -> int:
        pending = self._pending
        known = 0
        for span in spans(tags):
            here, kinds = pending.survey(span)
            if here == len(span) and kinds <= _INDEXED_ONLY:
                # The common case in one piece: small persistent messages.
                self._journal_position = self._index.ack(span)
                known += pending.discard(span)
            elif here == len(span) and kinds <= _MEMORY_ONLY:
                known += pending.discard(span)
            elif here:
                runs = pending.take(span)
                self._place.forget(runs)
                known += sum(len(run.contents) for run in runs)
        self._rates.acks_out += known
        return known

    def requeue(self, tags: Sequence[int]) -> int:
        runs = self._pending.take(tags)
        if not runs:
            return 0
        known = sum(len(run.contents) for run in runs)
        self.sub_queues.insert(runs)
        self._rates.into += known
        self._rates.acks_out += known
        return known

    def purge(self) -> int:
        """Delta is not read."""
        sub = self.sub_queues
        count = len(sub)
        for queue in self._queues():
            self._place.forget(queue.runs)
        if sub.delta.count:
            self._release_delta()
            keep = [run.first + index for run, index in self._pending.slots()]
            self._place.forget_between(sub.delta.start, sub.delta.end, keep)
            self._index.ack_between(sub.delta.start, sub.delta.end, keep)
        sub.clear()
        return count

    def _release_delta(self) -> None:
        """Let go of the shared bodies of delta but those of pending messages; only the index knows which they are."""
        delta = self.sub_queues.delta
        if not delta.count or not self._place.has_shared:
            return
        known, jobs = self._index.shared_between(delta.start, delta.end, [run.first + index for run, index in self._pending.slots()])
        self._place.forget_shared(recovered(run, True) for run in known)
        self._releases += jobs
        while not self._reads_ahead and (release := self.take_release()) is not None:
            release.run()
            self.released(release)

    def take_release(self) -> Release | None:
        """The next job that finds out which bodies a purge, or the end of the queue, has let go; None if there is none. Before any flush or removal."""
        return self._releases[0] if self._releases else None

    def released(self, release: Release) -> None:
        first = self._releases.popleft()
        assert release is first, 'one after the other'
        self._index.released(release)
        self._place.released(release)

    def purge_acks(self) -> None:
        for run in self._pending.runs:
            self._place.forget(run.without_holes())
        self._pending.clear()

    # -- looking

    def __len__(self) -> int:
        return len(self.sub_queues)

    def depth(self) -> int:
        return len(self.sub_queues) + self._pending.count

    def is_empty(self) -> bool:
        return not len(self.sub_queues)

    @property
    def ready_bytes(self) -> int:
        return self.sub_queues.body_bytes

    @property
    def unacked_bytes(self) -> int:
        return self._pending.body_bytes

    def head(self) -> Message | None:
        """With an empty content if the body is on disk and the owner reads ahead."""
        run = self.sub_queues.head()
        if run is None:
            return None
        first = run.part(0, 1)
        content = self._place.read(first)[0] if not self._reads_ahead or self._place.readable(first) else b''
        return Message(run.first, content or b'', run.origin, run.expiry, run.redelivered or run.first < self._watermark)

    def head_expiry(self) -> int | None:
        run = self.sub_queues.head()
        return None if run is None else run.expiry

    def ackfold(self, fun: Callable[[Message, T], T], acc: T, tags: Sequence[int]) -> T:
        for run, index in list(self._pending.find(tags)):
            content = self._content(run, index)
            if content is not None:
                acc = fun(Message(run.first + index, content, run.origin, run.expiry, run.redelivered), acc)
        return acc

    def fold(self, fun: Callable[[Message, bool, T], tuple[T, bool]], acc: T) -> T:
        for message, is_pending in self._ordered(0, self._next - 1):
            acc, go_on = fun(message, is_pending, acc)
            if not go_on:
                break
        return acc

    def read(self, first: int, last: int) -> list[Message]:
        return [message for message, _ in self._ordered(first, last)]

    def _ordered(self, first: int, last: int) -> Iterator[tuple[Message, bool]]:
        """Ready and pending messages by number; bodies are read one at a time and not kept."""
        ready = ((run.first + index, run, index, False) for run in self.sub_queues.in_order(first, last)
                 for index in _indices(run, first, last))
        pending = ((run.first + index, run, index, True) for run in list(self._pending.runs)
                   for index in _indices(run, first, last) if run.contents[index] is not None)
        for number, run, index, is_pending in merge(ready, pending, key=lambda entry: entry[0]):
            content = self._content(run, index)
            if content is not None:
                seen = is_pending or run.redelivered or number < self._watermark
                yield Message(number, content, run.origin, run.expiry, seen), is_pending

    def _content(self, run: Run, index: int) -> bytes | None:
        if run.kind & ABSENT:
            return self._place.read(self._slot(run, index))[0]
        content: bytes = run.contents[index]
        return content

    def _slot(self, run: Run, index: int) -> Run:
        return Run(run.first + index, [run.contents[index]], run.origin, run.expiry, run.redelivered, 0, 0, run.kind)

    # -- by number

    def numbers(self) -> range:
        held = [number for number in (self.sub_queues.lowest, self._pending.lowest) if number is not None]
        return range(min(held, default=self._next), self._next)

    def kept_numbers(self) -> range:
        numbers = self.numbers()
        return range(numbers.start, max(numbers.start, self._reserve.kept(numbers.stop)))

    def prepare_range(self, first: int, last: int) -> Read | None:
        """Reads more than one portion wants: what follows is found in memory, unless somebody else reads meanwhile."""
        sub, index = self.sub_queues, self._index
        part = sub.on_disk(first, last, PORTION_MESSAGES)
        if not part or index.take_read(part.start, part.stop) is None:
            return None
        whole = sub.on_disk(first, last, DELTA_READ)
        return index.take_read(whole.start, whole.stop)

    def range_prepared(self, read: Read, first: int, last: int) -> Read | None:
        self._index.loaded(read)
        return self.prepare_range(first, last)

    def take_range(self, first: int, last: int, most: int = PORTION_MESSAGES, most_bytes: int = PORTION_BYTES) -> Portion:
        ready, stop = self.sub_queues.ready_from(first, last, PORTION_MESSAGES)
        return take_portion(ready, self._pending.runs, first, stop, self._watermark, most, most_bytes)

    def drop_to(self, last: int, limit: int) -> int:
        sub = self.sub_queues
        in_memory = sub.q4.count + sub.q3.count
        if self._reads_ahead and sub.delta.count and not sub.is_lazy:
            in_memory -= 1  # the last of q3 stays (QS-5)
        count = 0
        for run in self._take(count_to(chain(sub.q4.runs, sub.q3.runs), last, min(limit, in_memory))):
            count += len(run.contents)
            self._hand_out(run, False)
        return count

    def info(self, key: str) -> Any:
        sub = self.sub_queues
        if key == 'backing_queue_status':
            delta = sub.delta
            return {'mode': 'lazy' if sub.is_lazy else 'default', 'q1': sub.q1.count, 'q2': sub.q2.count,
                    'delta': ['delta', delta.start, delta.count, delta.transient, delta.end], 'q3': sub.q3.count, 'q4': sub.q4.count,
                    'len': len(self), 'target_ram_count': self.paging.target, 'next_seq_id': self._next,
                    'next_deliver_seq_id': self._watermark, 'rates': list(self._rates.rates)}
        items: dict[str, Callable[[], int]] = {
            'messages_ram': lambda: sub.ram_count + self.paging.ram_acks(),
            'messages_ready_ram': lambda: sub.ram_count,
            'messages_unacknowledged_ram': self.paging.ram_acks,
            'messages_persistent': lambda: self._persistent_counts()[0],
            'message_bytes': lambda: self.ready_bytes + self.unacked_bytes,
            'message_bytes_ready': lambda: self.ready_bytes,
            'message_bytes_unacknowledged': lambda: self.unacked_bytes,
            'message_bytes_ram': lambda: sub.ram_bytes + sum(run.body_bytes for run in self._pending.runs if not run.kind & ABSENT),
            'message_bytes_persistent': lambda: self._persistent_counts()[1],
            'disk_reads': lambda: self._place.reads,
            'disk_writes': lambda: self._place.writes,
            'messages_paged_out': lambda: sub.delta.transient,
            'message_bytes_paged_out': lambda: sub.delta.transient_bytes}
        return items[key]() if key in items else ''

    def _persistent_counts(self) -> tuple[int, int]:
        delta = self.sub_queues.delta
        kept = [(run.live, run.body_bytes) for queue in (*self._queues(), self._pending) for run in queue.runs if run.origin.persistent]
        return (sum(count for count, _ in kept) + delta.count - delta.transient,
                sum(size for _, size in kept) + delta.body_bytes - delta.transient_bytes)

    def msg_rates(self) -> tuple[float, float]:
        self._rates.update()
        return self._rates.rates[:2]

    # -- memory

    def set_queue_mode(self, mode: str) -> None:
        self._mode = mode
        if mode == 'lazy':
            self._convert()
        elif self.sub_queues.is_lazy:
            self.sub_queues.become_default()  # if the disk must be read first, `prepare` goes on with it

    def _convert(self) -> None:
        """Go on becoming lazy; an owner who reads ahead sees to it that this goes in steps."""
        if self._mode == 'lazy' and not self.sub_queues.is_lazy:
            is_done = self.sub_queues.become_lazy(PAGING_QUOTA if self._reads_ahead else UNBOUNDED)
            self._request_flush()
            self.paging.is_due = self.paging.is_due or not is_done

    def set_ram_duration_target(self, seconds: float) -> None:
        self.paging.set_duration(seconds)
        self._page()

    def ram_duration(self) -> float:
        return self.paging.duration()

    def _page(self) -> None:
        if self.paging.round():
            self._request_flush()
        self._convert()

    # -- events

    def needs_timeout(self) -> Timeout:
        if self.unconfirmed:
            return Timeout.TIMED
        return Timeout.IDLE if self._journal_position > self.unconfirmed.journal_durable else Timeout.NO

    def timeout(self) -> None:
        self._sync()

    def handle_pre_hibernate(self) -> None:
        self._request_flush()

    def resume(self) -> None:
        self._page()

    def handle_info(self, event: Any) -> None:
        """Any event of one's own means that paging goes on."""
        if self.paging.is_due:
            self._page()

    def invoke(self, owner: Any, event: Any) -> None:
        """`('journal', position)` and `('store', position)`: durable up to there."""
        if owner == 'journal':
            self.durable(event, 0)
        elif owner == 'store':
            self.durable(0, event)

    def durable(self, journal: int, store: int) -> None:
        """Everything up to these positions is on disk."""
        unconfirmed = self.unconfirmed
        if journal > unconfirmed.journal_durable:
            unconfirmed.journal_durable = journal
            self._reserve.durable(journal)
        if store > unconfirmed.store_durable:
            unconfirmed.store_durable = store

    def references(self) -> Iterator[tuple[bool, bytes]]:
        """Whether it is persistent, and the id, of each body that this queue has a reference to; for whoever checks. Reads all of delta."""
        runs = chain(self.sub_queues.in_order(0, self._next), self._pending.runs)
        return ((run.origin.persistent, message_id) for run in runs if run.kind & IN_STORE for message_id in self._place.ids(run))

    def check(self) -> None:
        """QS-1 to QS-10 and QS-12, for tests."""
        self.sub_queues.check()
        assert not any(self._pending.known(range(run.first, run.end)) for queue in self._queues() for run in queue.runs), 'QS-12'
        for run in self._pending.runs:
            assert not run.kind & ABSENT or run.kind & IN_STORE, 'QS-10'
            assert not run.origin.persistent or run.kind & INDEXED, 'QS-10'


_INDEXED_ONLY = frozenset({(True, INDEXED)})
_MEMORY_ONLY = frozenset({(False, 0), (False, TO_STORE)})


def _indices(run: Run, first: int, last: int) -> range:
    return range(max(0, first - run.first), min(len(run.contents), last + 1 - run.first))
