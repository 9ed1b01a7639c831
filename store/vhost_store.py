"""What a virtual host has on disk, opened, kept and closed in the right order (section 10.1). No actors: whoever owns it lends it a thread.

    vhosts/<id>/config                    u16 segment entries: fixed at first use (D-2)
    vhosts/<id>/journal/<n>.wal           see `journal`
    vhosts/<id>/queues/<number>/<n>.idx   see `queue_index`; number is hexadecimal
    vhosts/<id>/persistent/<n>.rdq        see `rdq_file`, as for transient/
    vhosts/<id>/recovery, …-index         LMDB: see `recovery_terms`, `location_index`

A queue of priorities is several queues to everything below: its levels' **number** is `queue id << 8 | priority`.

Start: terms are read and durably cleared, so that a crash from then on is an unclean end; the journal is replayed; the persistent
store believes its index only if every queue has terms and the journal is empty, and else recounts its references from the queues'
indexes. Then `open_queue` recovers one queue after the other.

Work: everything that waits for the disk is in `Work`, to be run in another thread, one at a time:

    work = store.take_work()     # None if nothing waits
    work.run()                   # in another thread: bodies first, then segments, then the journal
    store.done(work)             # queues hear what is durable; drain their confirms

When the journal has closed files, `done` lets every queue fold; the segments are synced with the next work, and only then are the
files retired. That waits until every queue is open: what only the journal has of one that is not must not be given up.

Stop: queues, journal, stores, and the terms last of all: a crash anywhere in between leaves an unclean end (C-21).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .backing_queue import BackingQueue, Recover
from .bodies import StoreBodies, StoreWork
from .disk import Disk
from .journal import Batch as JournalBatch
from .journal import Journal, Replayed
from .placement import EMBED_BELOW
from .priority_queue import PriorityQueue
from .queue_index import SEGMENT_ENTRIES, QueueIndex, Unsynced
from .recovery_terms import RecoveryTerms
from .store_engine import FILE_LIMIT
from .variable_queue import VariableQueue

LEVEL_BITS = 8


@dataclass
class Work:
    """What waits for the disk. `run` may be called again after an OSError that is not a failed sync."""

    journal: Journal
    journal_batch: JournalBatch | None
    stores: list[tuple[StoreBodies, StoreWork]]
    unsynced: list[Unsynced]
    folds: int
    """The journal's file below which all is folded once this is done; 0 = no fold."""

    def run(self) -> None:
        # A body before its index entry: an entry whose body is missing is dropped at recovery (C-3), which is only work wasted.
        for _, work in self.stores:
            work.write()
        while self.unsynced:
            self.unsynced[-1].sync()
            self.unsynced.pop()
        if self.journal_batch is not None:
            self.journal.commit(self.journal_batch)
            self.journal.unlink_retired(self.journal_batch)
        for _, work in self.stores:
            work.collect()


class VhostStore:
    """See the module. `index_root` is a directory of the operating system for the LMDB environments; `path` is on `disk`; `boot_id` as of `StoreEngine`."""

    def __init__(self, disk: Disk, path: str, index_root: str, segment_entries: int = SEGMENT_ENTRIES, embed_below: int = EMBED_BELOW,
                 clock: Callable[[], float] = time.monotonic, journal_file_limit: int | None = None, store_file_limit: int = FILE_LIMIT,
                 boot_id: str | None = None) -> None:
        self._disk = disk
        self._path = path
        self._embed_below = embed_below
        self._clock = clock
        for name in ('journal', 'queues'):
            disk.make_dir(f'{path}/{name}')
        self._segment_entries = self._configured(segment_entries)
        self._terms = RecoveryTerms(f'{index_root}/recovery')
        limits = {} if journal_file_limit is None else {'file_limit': journal_file_limit}
        self.journal = Journal(disk, f'{path}/journal', **limits)
        self.persistent = StoreBodies(disk, f'{path}/persistent', f'{index_root}/persistent-index', True, store_file_limit, boot_id)
        self.transient = StoreBodies(disk, f'{path}/transient', f'{index_root}/transient-index', False, store_file_limit)
        self._replayed: dict[int, Replayed] = {}
        self._known_terms: dict[int, dict[str, Any]] = {}
        self._queues: dict[int, BackingQueue] = {}
        self._variable: dict[int, VariableQueue] = {}
        self._fold = 0
        self._is_working = False

    def _configured(self, segment_entries: int) -> int:
        path = f'{self._path}/config'
        file = self._disk.open(path, create=True)
        try:
            if file.size() < 2:
                file.truncate(0)
                file.append([segment_entries.to_bytes(2, 'big')])
                file.sync()
                self._disk.sync_dir(self._path)
            return int.from_bytes(file.read(0, 2), 'big')
        finally:
            file.close()

    # -- start and stop

    def recover(self, durable_queues: set[int]) -> None:
        """Find what is there of the queues named, by id; what belongs to no other queue is deleted (C-17)."""
        terms = self._terms.take_all()
        self._known_terms = {queue: terms[queue] for queue in terms.keys() & durable_queues}
        root = f'{self._path}/queues'
        self._disk.sweep_tombstones(root)
        numbers = {int(name, 16) for name in self._disk.list(root)}
        for number in numbers:
            if number >> LEVEL_BITS not in durable_queues:
                self._disk.delete_tree(f'{root}/{number:x}')
        self._replayed = {number: replayed for number, replayed in self.journal.recover().items()
                          if number >> LEVEL_BITS in durable_queues}
        self.transient.recover(may_trust=False)
        is_clean = all(queue in self._known_terms for queue in {number >> LEVEL_BITS for number in numbers | self._replayed.keys()}
                       & durable_queues) and all(replayed.is_empty for replayed in self._replayed.values())
        if not is_clean:
            self._known_terms = {}  # counts in terms are believed only if everything ended cleanly (D-7)
        # Of a queue that is no more the store would keep the bodies for ever.
        is_complete = terms.keys() | {number >> LEVEL_BITS for number in numbers} <= durable_queues
        kept = sorted(number for number in numbers | self._replayed.keys() if number >> LEVEL_BITS in durable_queues)
        self.persistent.recover(is_clean and is_complete, lambda: self._references(kept))

    def _references(self, numbers: list[int]) -> Iterator[list[bytes]]:
        for number in numbers:
            yield list(self._index(number).stored_ids(self._replayed.get(number)))

    def open_queue(self, queue: int, max_priority: int | None = None) -> BackingQueue:
        """A queue, recovered with whatever there is of it; new if there is nothing."""
        terms = self._known_terms.pop(queue, None)
        numbers = {int(name, 16) for name in self._disk.list(f'{self._path}/queues')} | self._replayed.keys()
        recover = terms or (Recover.NON_CLEAN if any(number >> LEVEL_BITS == queue for number in numbers) else Recover.NEW)
        if max_priority is None:
            opened: BackingQueue = self._make(queue << LEVEL_BITS)
        else:
            opened = PriorityQueue(max_priority, lambda priority: self._make(queue << LEVEL_BITS | priority))
        opened.init(recover)
        self._queues[queue] = opened
        return opened

    def _make(self, number: int) -> VariableQueue:
        made = self._variable[number] = VariableQueue(
            number, self._index(number), self.persistent, self.transient, self._replayed.pop(number, None),
            embed_below=self._embed_below, segment_entries=self._segment_entries, clock=self._clock)
        return made

    def _index(self, number: int) -> QueueIndex:
        return QueueIndex(self._disk, f'{self._path}/queues/{number:x}', number, self.journal, self._segment_entries)

    def reopen_queue(self, queue: int, max_priority: int | None = None) -> BackingQueue:
        """A queue whose process failed, alone, from what is on disk (section 10.1)."""
        del self._queues[queue]
        for number in [number for number in self._variable if number >> LEVEL_BITS == queue]:
            for unsynced in self._variable.pop(number).take_unsynced():
                unsynced.sync()
        self.write_all()
        for number, replayed in self.journal.replay().items():
            if number >> LEVEL_BITS == queue:
                self._replayed[number] = replayed
        return self.open_queue(queue, max_priority)

    def delete_queue(self, queue: int) -> None:
        """A queue and all in it, all or nothing (QS-23)."""
        self._queues.pop(queue).delete_and_terminate()
        for number in [number for number in self._variable if number >> LEVEL_BITS == queue]:
            del self._variable[number]

    def stop(self) -> None:
        """Keep everything that is durable, and the terms that make the next start quick."""
        self.write_all()
        terms = {queue: opened.terminate() for queue, opened in self._queues.items()}
        self.journal.close_folded()
        self.persistent.close()
        self.transient.close()
        self._terms.put_all(terms)
        self._terms.close()

    # -- work

    def take_work(self) -> Work | None:
        """Everything that waits for the disk; None if nothing does, or while work is under way."""
        if self._is_working:
            return None
        stores = [(store, work) for store in (self.persistent, self.transient) if (work := store.take_work()) is not None]
        unsynced = [entry for queue in self._variable.values() for entry in queue.take_unsynced()]
        journal_batch = self.journal.take_batch()
        if not (stores or unsynced or journal_batch or self._fold):
            return None
        self._is_working = True
        folds, self._fold = self._fold, 0
        return Work(self.journal, journal_batch, stores, unsynced, folds)

    def done(self, work: Work) -> None:
        """The work has run: tell the queues what is durable, and go on with giving up journal files."""
        self._is_working = False
        for store, store_work in work.stores:
            store.done(store_work)
        if work.journal_batch is not None:
            self.journal.committed(work.journal_batch)
        for queue in self._variable.values():
            queue.invoke('store', self.persistent.durable)
            queue.invoke('journal', self.journal.durable)
        if work.folds:
            self.journal.retire(work.folds)
        elif self.journal.closed_files and all(replayed.is_empty for replayed in self._replayed.values()):
            current = self.journal.current
            if all([queue.flush_index() for queue in self._variable.values()]):
                self._fold = current

    def write_all(self) -> None:
        """All work, here and now."""
        while (work := self.take_work()) is not None:
            work.run()
            self.done(work)
