"""The store of a virtual host as a whole, in one thread and without actors: for programs that want the engines alone, and for looking at how they play together.

A node has processes instead (`actors.vhost`, `actors.journal`, `actors.message_store`, `actors.queue.durability`), on the same engines and in the same order; see
`vhost_dir` for what is where. Here everything that waits for the disk is in `Work`, to be run in another thread, one at a time:

    work = store.take_work()     # None if nothing waits
    work.run()                   # in another thread: bodies first, then segments, then the journal
    store.done(work)             # queues hear what is durable; drain their confirms

When the journal has closed files every queue is folded with the next work, and only then are the files retired. That waits until every queue is open: what only the
journal has of one that is not must not be given up. Reading is done where it is asked for.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..bodies.queue_bodies import QueueBodies, StoreBodies, StoreWork
from ..bodies.store_engine import FILE_LIMIT
from ..disk.disk import Disk
from ..index.queue_index import SEGMENT_ENTRIES, QueueIndex
from ..index.segment_jobs import FlushJob
from ..journal.journal_engine import Batch as JournalBatch
from ..journal.journal_engine import JournalEngine, Replayed
from ..journal.log_writer import LogWriter
from ..messages.run import Run
from ..queue.backing_queue import BackingQueue, Recover
from ..queue.placement import EMBED_BELOW
from ..queue.priority_queue import PriorityQueue
from ..queue.variable_queue import VariableQueue
from .vhost_dir import (
    JOURNAL,
    LEVEL_BITS,
    PERSISTENT,
    TRANSIENT,
    leave_vhost,
    open_vhost,
    queue_directory,
    queue_numbers,
)


class DirectLog:
    """The `queue_index.Log` of queues that share a thread with their journal: positions are the journal's."""

    def __init__(self, journal: JournalEngine) -> None:
        self._journal = journal
        self._writer = LogWriter()

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int:
        self._writer.publish(queue, run, is_stored)
        return self._passed_on()

    def ack(self, queue: int, spans: Sequence[range]) -> int:
        self._writer.ack(queue, spans)
        return self._passed_on()

    def skip_to(self, queue: int, next_number: int) -> None:
        self._writer.skip_to(queue, next_number)

    def reserve(self, queue: int, number: int) -> int:
        self._writer.reserve(queue, number)
        return self._passed_on()

    def delete(self, queue: int) -> int:
        self._writer.resume(queue, 0)
        self._writer.delete(queue)
        return self._passed_on()

    def _passed_on(self) -> int:
        for part in self._writer.take():
            self._journal.append(part.queue, part.parts, part.records, part.next_number)
        return self._journal.position


@dataclass
class Work:
    """What waits for the disk. `run` may be called again after an OSError that is not a failed sync."""

    journal: JournalEngine
    journal_batch: JournalBatch | None
    stores: list[tuple[StoreBodies, StoreWork]]
    flushes: list[tuple[VariableQueue, FlushJob]]
    folds: int
    """The journal's file below which all is folded once this is done; 0 = no fold."""

    def run(self) -> None:
        # A body before its index entry: an entry whose body is missing is dropped at recovery (C-3), which is only work wasted.
        for _, work in self.stores:
            work.write()
        for _, flush in self.flushes:
            flush.run()
        if self.journal_batch is not None:
            self.journal.commit(self.journal_batch)
            self.journal.unlink_retired(self.journal_batch)
        for _, work in self.stores:
            work.collect()


class VhostStore:
    """See the module. `disk` is the vhost's directory, `root` one of the operating system for the LMDB environments; `boot_id` as of `StoreEngine`."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        segment_entries: int = SEGMENT_ENTRIES,
        embed_below: int = EMBED_BELOW,
        clock: Callable[[], float] = time.monotonic,
        journal_file_limit: int | None = None,
        store_file_limit: int = FILE_LIMIT,
        boot_id: str | None = None,
    ) -> None:
        self._disk = disk
        self._root = root
        self._embed_below = embed_below
        self._clock = clock
        self._segment_entries = segment_entries
        limits = {} if journal_file_limit is None else {"file_limit": journal_file_limit}
        self.journal = JournalEngine(disk, JOURNAL, **limits)
        self._log = DirectLog(self.journal)
        self.persistent = StoreBodies(disk, PERSISTENT, f"{root}/{PERSISTENT}/index", True, store_file_limit, boot_id)
        self.transient = StoreBodies(disk, TRANSIENT, f"{root}/{TRANSIENT}/index", False, store_file_limit)
        self._replayed: dict[int, Replayed] = {}
        self._known_terms: dict[int, dict[str, Any]] = {}
        self._queues: dict[int, BackingQueue] = {}
        self._variable: dict[int, VariableQueue] = {}
        self._bodies: dict[int, QueueBodies] = {}
        self._fold = 0
        self._is_working = False

    # -- start and stop

    def recover(self, durable_queues: set[int]) -> None:
        """Find what is there of the queues named, by id; what belongs to no other queue is deleted (C-17)."""
        found = open_vhost(self._disk, self._root, durable_queues, self._segment_entries)
        self._segment_entries = found.segment_entries
        self._replayed = {
            number: replayed
            for number, replayed in self.journal.recover().items()
            if number >> LEVEL_BITS in durable_queues
        }
        self.transient.recover(may_trust=False)
        is_clean = found.is_clean([number for number, replayed in self._replayed.items() if not replayed.is_empty])
        kept = sorted(found.numbers | self._replayed.keys())
        # Of a queue that is no more the store would keep the bodies for ever.
        is_trusted = self.persistent.recover(is_clean and found.is_complete, lambda: self._references(kept))
        # Counts in terms are believed only if everything ended cleanly (D-7).
        self._known_terms = dict(found.terms) if is_clean and is_trusted else {}

    def _references(self, numbers: list[int]) -> Iterator[list[bytes]]:
        for number in numbers:
            # What is looked at here is looked at again by the queue, so it must be left as it was.
            found = self._index(number).scan(copy.deepcopy(self._replayed.get(number)), None)
            yield [message_id for span in (found.stored if found is not None else []) for message_id in span.ids()]

    def open_queue(self, queue: int, max_priority: int | None = None) -> BackingQueue:
        """A queue, recovered with whatever there is of it; new if there is nothing."""
        terms = self._known_terms.pop(queue, None)
        numbers = queue_numbers(self._disk) | self._replayed.keys()
        recover = terms or (
            Recover.NON_CLEAN if any(number >> LEVEL_BITS == queue for number in numbers) else Recover.NEW
        )
        if max_priority is None:
            opened: BackingQueue = self._make(queue << LEVEL_BITS)
        else:
            opened = PriorityQueue(max_priority, lambda priority: self._make(queue << LEVEL_BITS | priority))
        opened.init(recover)
        self._queues[queue] = opened
        return opened

    def _make(self, number: int) -> VariableQueue:
        name = f"{number:x}"
        bodies = self._bodies[number] = self.persistent.of(name)
        made = self._variable[number] = VariableQueue(
            number,
            self._index(number),
            bodies,
            self.transient.of(name),
            self._replayed.pop(number, None),
            embed_below=self._embed_below,
            segment_entries=self._segment_entries,
            clock=self._clock,
        )
        return made

    def _index(self, number: int) -> QueueIndex:
        return QueueIndex(self._disk, queue_directory(number), number, self._log, self._segment_entries)

    def reopen_queue(self, queue: int, max_priority: int | None = None) -> BackingQueue:
        """A queue whose process failed, alone, from what is on disk (section 10.1)."""
        del self._queues[queue]
        for number in [number for number in self._variable if number >> LEVEL_BITS == queue]:
            del self._variable[number]
        self.write_all()
        for number, replayed in self.journal.replay().items():
            if number >> LEVEL_BITS == queue:
                self._replayed[number] = replayed
        return self.open_queue(queue, max_priority)

    def delete_queue(self, queue: int) -> None:
        """A queue and all in it, all or nothing (QS-23)."""
        self._queues.pop(queue).delete_and_terminate()
        for number in [number for number in self._variable if number >> LEVEL_BITS == queue]:
            del self._variable[number], self._bodies[number]
            self.persistent.forget(f"{number:x}")
            self.transient.forget(f"{number:x}")

    def stop(self) -> None:
        """Keep everything that is durable, and the terms that make the next start quick."""
        self.write_all()
        terms = {queue: opened.terminate() for queue, opened in self._queues.items()}
        for number, level in self._variable.items():
            if level.has_lost_entries:
                terms.pop(number >> LEVEL_BITS, None)
        self.journal.close_flushed()
        self.persistent.close()
        self.transient.close()
        leave_vhost(self._root, terms)

    # -- work

    def take_work(self) -> Work | None:
        """Everything that waits for the disk; None if nothing does, or while work is under way."""
        if self._is_working:
            return None
        stores = [
            (store, work) for store in (self.persistent, self.transient) if (work := store.take_work()) is not None
        ]
        folds, self._fold = self._fold, 0
        flushes = (
            [
                (queue, flush)
                for queue in self._variable.values()
                if (flush := queue.folding.take_flush(True)) is not None
            ]
            if folds
            else []
        )
        journal_batch = self.journal.take_batch()
        if not (stores or flushes or journal_batch or folds):
            return None
        self._is_working = True
        return Work(self.journal, journal_batch, stores, flushes, folds)

    def done(self, work: Work) -> None:
        """The work has run: tell the queues what is durable, and go on with giving up journal files."""
        self._is_working = False
        for store, store_work in work.stores:
            store.done(store_work)
        for queue, flush in work.flushes:
            queue.folding.flushed(flush)
        if work.journal_batch is not None:
            self.journal.committed(work.journal_batch)
        for number, queue in self._variable.items():
            queue.invoke("store", self._bodies[number].durable)
            queue.invoke("journal", self.journal.durable)
        if work.folds:
            self.journal.retire(work.folds)
        elif self.journal.closed_files and all(replayed.is_empty for replayed in self._replayed.values()):
            self._fold = self.journal.current

    def write_all(self) -> None:
        """All work, here and now."""
        while (work := self.take_work()) is not None:
            work.run()
            self.done(work)
