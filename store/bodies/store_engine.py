"""The message store: it keeps the messages too large for a queue index, once each, for all queues of a virtual host.

How it works
------------
A **client** is a queue. It writes messages and removes them; a message that was written n times stays until it was
removed n times. `client_reports` has the clients, and the answers to their writes.

A written message **waits** in memory. If it is removed while it waits, it never reaches the disk (queue-and-store
section 6.5). When a `SyncJob` is taken, the waiting messages, or those that came before a mark, get their places at the
end of the **current** file; a new file begins when that exceeds 16 MiB. Messages in the current file, and those in
flight to the disk, are also in a cache, since they are the most likely to be read.

Only `recover`, `close` and `abandon` wait for the disk. All other disk work is in **jobs**, which the owner takes
from the engine, runs in another thread, and hands back:

    job = engine.take_sync();   job.run();   engine.finish_sync(job)    # one at a time
    job = engine.take_gc();     job.run();   engine.finish_gc(job)      # one at a time, beside a sync
    job = engine.read(ids);     job.run();   engine.finish_read(job)    # any number

A job uses only what it was given. After an OSError from `run` it may be run again; after StoreBroken only a new start
helps.

`location_index` has the places and reference counts of messages, `file_summary` the sizes of files, and
`store_recovery` rebuilds both at a start.

It differs from RabbitMQ in two ways. A message that loses its last reference is subtracted from the sums of its file at
once, even if the file is being combined (`combine` says why this is safe); RabbitMQ subtracts it afterwards. And
clients never read files; the store does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Sequence

from ...seams import seam
from ..disk.disk import Disk
from ..disk.progress import NO_PROGRESS, RecoveryProgress
from ..disk.system.boot_id import this_boot
from . import store_recovery
from .client_reports import ClientReports, StoreClientState, StoreReport
from .file_summary import FileSummary
from .garbage_collection import GarbageCollection, GcJob
from .location_index import COMMIT_LEAST, BodyLocation, Checkpoint, LocationIndex
from .open_files import OpenFiles
from .owner_lock import OwnerEnded, OwnerLock
from .rdq_file import OVERHEAD
from .read_job import BodyReadJob, Cold
from .store_recovery import References, StoreState
from .sync_job import CurrentFile, FileAppend, SyncJob
from .waiting_bodies import WaitingBodies, WaitingMessage

#: Bytes; the current file is left for a new one when it is larger.
FILE_LIMIT = 16 << 20


class StoreEngine:
    """See the module. `recover` is called first.

    directory    of the data files, on `disk`
    index_path   a directory of the operating system, for the index alone
    is_durable   False if no message outlives the node: nothing is synced, and the store starts empty
    boot_id      identifies the present boot of the operating system; asked of the system if None
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_path: str,
        is_durable: bool = True,
        file_limit: int = FILE_LIMIT,
        boot_id: str | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._index_path = index_path
        self._is_durable = is_durable
        self._file_limit = file_limit
        self._boot_id = boot_id or this_boot()
        self._index: LocationIndex
        self._garbage: GarbageCollection
        self._summary = FileSummary(file_limit)
        self._files = OpenFiles(disk, directory)
        self._current = CurrentFile(disk, directory)
        self._owner_lock = OwnerLock(index_path)
        self._reports = ClientReports()
        self._is_tainted = False
        self.waiting = WaitingBodies()
        self._cache: dict[bytes, bytes] = {}
        # Ids of messages that lost their last reference while the sync under way wrote them. These are still in the
        # cache, and `finish_sync` removes them.
        self._gone_under_way: list[bytes] = []
        self._durable = Checkpoint(0, 0)
        self._syncing: SyncJob | None = None
        self._generation = 0
        self._is_open = False
        #: Ids of messages that were lost because their records are damaged. The owner logs them and clears the list.
        self.damaged: list[bytes] = []

    # -- start and stop

    def recover(
        self, clients: Collection[str] | None, references: References, progress: RecoveryProgress = NO_PROGRESS
    ) -> bool:
        """Open the store. Waits for the disk, and may take minutes. Returns whether it was left cleanly by exactly
        these `clients`.

        If not, `references` is called for the ids that queues refer to; see `store_recovery`.
        """
        self._disk.make_dir(self._directory)
        os.makedirs(os.path.dirname(self._index_path), exist_ok=True)
        self._owner_lock.take()
        with self._owner_lock.work():
            return self._recover(clients, references, progress)

    def _recover(self, clients: Collection[str] | None, references: References, progress: RecoveryProgress) -> bool:
        if not self._is_durable:
            store_recovery.erase(self._disk, self._directory, self._index_path)
        found = store_recovery.recover(
            self._disk, self._directory, self._index_path, self._boot_id, clients, references, progress
        )
        self._index, self._generation = found.locations, found.generation
        if self._owner_lock.is_ended:
            # The process of the store has crashed meanwhile, and its next one opens the index.
            self._index.close()
            raise OwnerEnded(self._index_path)
        self._garbage = GarbageCollection(
            self._disk, self._directory, self._owner_lock, self._index, self._summary, self._files
        )
        self._is_open = True
        for number, row in sorted(found.rows.items()):
            self._summary.add(number, *row)
        self._summary.changed.clear()
        if not found.rows:
            self._summary.add(1)
        self._durable = self._end()
        return found.is_trusted

    def close(self) -> None:
        """Write all waiting messages. Record a clean stop of a durable store if every client has detached and the
        reference counts are not in doubt. Waits for the disk.

        No job may be under way. If this fails, the store is abandoned, because the next start may open the index in
        this same operating-system process, and LMDB opens an environment only once in a process.
        """
        assert self._syncing is None and not self._garbage.is_running, "a job is under way"
        try:
            self._close()
        except BaseException:
            self.abandon()
            raise
        self._owner_lock.end()

    def _close(self) -> None:
        self._garbage.cancel()
        # Even if no message waits: the commit removes the intent of a cancelled plan.
        job = self._take_sync(self.waiting.take_all())
        job.run()
        self.finish_sync(job)
        self._garbage.unlink()
        self._is_open = False
        self._files.close()
        self._current.close()
        self._index.close(is_clean=True)
        clients = self._reports.clients.values()
        if self._is_durable and not self._is_tainted and all(client.is_detached for client in clients):
            state = StoreState(True, self._generation, self._boot_id, sorted(self.clients))
            store_recovery.write_state(self._disk, self._directory, state)

    def abandon(self) -> None:
        """Close all files without writing, as a crash does, if any are open. A job under way still ends in its thread;
        later ones do nothing.
        """
        is_idle = self._owner_lock.end()
        if self._is_open:
            self._is_open = False
            self._files.close()
            if is_idle:
                self._current.close()
                self._index.close()

    # -- clients

    def register(self, client: str, is_notified: bool = True) -> None:
        """Add a client, which may then write and remove. `is_notified`: its writes are reported."""
        self._reports.clients[client] = StoreClientState(is_notified)

    def detach(self, client: str) -> None:
        """Note that the client writes and removes nothing until it registers again, perhaps after the next start.

        Its messages stay.
        """
        if client in self._reports.clients:
            self._reports.clients[client].is_detached = True

    def forget(self, client: str) -> None:
        """Forget a client that is deleted and has removed its messages. It gets no more reports."""
        self._reports.forget(client)

    def lost(self, client: str) -> None:
        """Forget a client that has crashed.

        Its references may stay for ever, so the next start must recount (queue-and-store section 10.1).
        """
        known = self._reports.clients.get(client)
        if known is not None and not known.is_detached:
            self.doubt()
            self.forget(client)

    def doubt(self) -> None:
        """Have the next start recount the references, because there may be more of them than queues have."""
        self._is_tainted = True

    @property
    def clients(self) -> list[str]:
        return list(self._reports.clients)

    @seam("which references a message store counts")
    def write(self, client: str, messages: Iterable[tuple[bytes, bytes]]) -> None:
        """Add one reference to each (id, message). Does nothing if the client is not registered."""
        reports = self._reports
        known = reports.clients.get(client)
        if known is None:
            return
        report_next: list[bytes] = []
        report_now: list[bytes] = []
        written: list[bytes] = []
        of_waiting = self.waiting.messages.get
        for message_id, message in messages:
            waiting = of_waiting(message_id)
            if waiting is not None:
                waiting.ref_count += 1
                report_next.append(message_id)
                continue
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count and self._summary.rows[entry.file].locked:
                self.waiting.add(message_id, message)
                report_next.append(message_id)
                continue
            if not entry.ref_count:
                self._summary.wanted(entry.file, entry.total_size)
            self._index.count(message_id, entry._replace(ref_count=entry.ref_count + 1))
            # A message that has a place and is not on disk is part of the sync under way.
            (written if self._is_on_disk(entry) else report_now).append(message_id)
        if known.is_notified:
            for reported, ids in ((reports.next, report_next), (reports.now, report_now)):
                if ids:
                    reported.setdefault(client, {}).update(dict.fromkeys(ids))
            if written:
                reports.report(client, "written", written)

    def adopt(self, ids: Iterable[bytes]) -> list[bytes]:
        """Add one reference to each message that exists. Returns the ids of the others."""
        missing = []
        for message_id in ids:
            waiting = self.waiting.messages.get(message_id)
            if waiting is not None:
                waiting.ref_count += 1
                continue
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count:
                missing.append(message_id)
            else:
                self._index.count(message_id, entry._replace(ref_count=entry.ref_count + 1))
        return missing

    def remove(self, client: str, ids: Iterable[bytes]) -> None:
        """Remove one reference to each message. Unknown ids are skipped."""
        report_next, report_now = self._reports.next.get(client, {}), self._reports.now.get(client, {})
        ignored = []
        for message_id in ids:
            if message_id in report_next:
                del report_next[message_id]
                ignored.append(message_id)
            elif message_id in report_now:
                del report_now[message_id]
                ignored.append(message_id)
            waiting = self.waiting.messages.get(message_id)
            if waiting is not None:
                waiting.ref_count -= 1
                if not waiting.ref_count:
                    self.waiting.spare(message_id)
                continue
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count:
                continue
            self._index.count(message_id, entry._replace(ref_count=entry.ref_count - 1))
            if entry.ref_count == 1:
                self._summary.unwanted(entry.file, entry.total_size)
                if self._is_on_disk(entry):
                    self._cache.pop(message_id, None)
                else:
                    self._gone_under_way.append(message_id)
        if ignored:
            self._reports.report(client, "ignored", ignored)

    def remove_between(
        self, client: str, first: bytes, last: bytes, keep: Container[bytes], limit: int
    ) -> bytes | None:
        """`remove` about `limit` messages with ids from `first` to `last` that are not in `keep`.

        Returns the id at which to continue, None at the end.
        """
        found, end = self._index.between(first, last, limit)
        highest = last if end is None else end
        waiting = self.waiting.between(first, highest)
        self.remove(
            client,
            [message_id for message_id in {**dict.fromkeys(found), **dict.fromkeys(waiting)} if message_id not in keep],
        )
        return None if end is None else end + bytes(1)

    def forget_between(self, first: bytes, last: bytes, limit: int) -> bytes | None:
        """Delete about `limit` messages with ids from `first` to `last`, whatever refers to them.

        Returns the id at which to continue, None at the end. The owner uses this for ids that other messages may get
        later: a later write of such an id stores a new message, whereas after `remove` it would bring back the old one,
        as long as that is garbage in a file.
        """
        found, end = self._index.between(first, last, limit)
        highest = last if end is None else end
        for message_id in self.waiting.between(first, highest):
            self.waiting.spare(message_id)
        for message_id in found:
            entry = self._index.get(message_id)
            if entry is not None and entry.ref_count:
                self._summary.unwanted(entry.file, entry.total_size)
            self._index.drop(message_id)
            self._cache.pop(message_id, None)
        return None if end is None else end + bytes(1)

    def contains(self, message_id: bytes) -> bool:
        """Whether any queue refers to this message."""
        if message_id in self.waiting.messages:
            return True
        entry = self._index.get(message_id)
        return entry is not None and entry.ref_count > 0

    def read(self, ids: Sequence[bytes]) -> BodyReadJob:
        """Read the messages of `ids`. Run the job unless it is complete, and hand it to `finish_read` in both cases."""
        messages: list[bytes | None] = []
        cold = []
        for at, message_id in enumerate(ids):
            waiting = self.waiting.messages.get(message_id)
            if waiting is not None:
                messages.append(waiting.message)
                continue
            entry = self._index.get(message_id)
            wanted = entry if entry is not None and entry.ref_count else None
            messages.append(self._cache.get(message_id) if wanted else None)
            if wanted and messages[at] is None:
                cold.append(Cold(at, message_id, wanted, self._files.hold(wanted.file)))
        return BodyReadJob(ids, messages, cold)

    def finish_read(self, job: BodyReadJob) -> None:
        """Release the files of a read. Damaged messages are removed, and their ids added to `damaged` (D-19)."""
        for cold in job.cold:
            self._files.release(cold.held)
        for message_id, entry in job.damaged:
            now = self._index.get(message_id)
            if now is not None and now[1:] == entry[1:]:
                self._discard(message_id, now)

    def _discard(self, message_id: bytes, entry: BodyLocation) -> None:
        self.damaged.append(message_id)
        if entry.ref_count:
            self._index.count(message_id, entry._replace(ref_count=0))
            self._summary.unwanted(entry.file, entry.total_size)

    def take_reports(self) -> list[StoreReport]:
        """The reports for clients since the last call."""
        return self._reports.take()

    # -- writing

    def _end(self) -> Checkpoint:
        """The place behind the last record."""
        current = self._summary.current
        return Checkpoint(current, self._summary.rows[current].file_size)

    def _is_on_disk(self, entry: BodyLocation) -> bool:
        return (entry.file, entry.offset) < self._durable

    @property
    def is_urgent(self) -> bool:
        """Whether a sync is due: messages wait, garbage collection needs a commit, or much has changed."""
        return bool(self.waiting) or self._is_commit_due

    @property
    def _is_commit_due(self) -> bool:
        return self._garbage.needs_sync or self._index.changes >= COMMIT_LEAST

    def take_sync(self, everything: bool = False) -> SyncJob | None:
        """The next sync if one is due, or if `everything` and anything changed.

        None otherwise, or while one is under way.
        """
        if self._syncing is not None or not (self.is_urgent or everything and self._index.is_changed):
            return None
        return self._take_sync(self.waiting.take_all())

    def take_marked(self) -> SyncJob | None:
        """A sync of the messages that have waited since before the last mark. None if it would do nothing, or while one
        is under way.
        """
        if self._syncing is not None or not (self.waiting.has_marked or self._is_commit_due):
            return None
        return self._take_sync(self.waiting.take_marked())

    def _take_sync(self, taken: dict[bytes, WaitingMessage]) -> SyncJob:
        parts: list[FileAppend] = []
        rows = self._summary.rows
        for message_id, waiting in taken.items():
            if rows[self._summary.current].file_size >= self._file_limit:
                self._summary.add(self._summary.current + 1)
            total_size = len(waiting.message) + OVERHEAD
            offset = self._summary.appended(total_size)
            if not parts or parts[-1].file != self._summary.current:
                parts.append(FileAppend(self._summary.current, offset, []))
            parts[-1].messages.append((message_id, waiting.message))
            self._index.place(message_id, BodyLocation(waiting.ref_count, self._summary.current, offset, total_size))
            self._cache[message_id] = waiting.message
        self._reports.sync_taken(self.waiting.messages)
        changes = self._index.freeze(self._summary.take_changed(), self._garbage.sync_taken(), self._end())
        self._syncing = SyncJob(self._owner_lock, self._current, self._index, parts, changes, self._is_durable)
        return self._syncing

    def finish_sync(self, job: SyncJob) -> None:
        """Report the messages of a job that was run: they are on the disk."""
        assert job is self._syncing
        self._syncing = None
        self._index.committed()
        if job.parts:
            last = job.parts[-1]
            self._durable = Checkpoint(
                last.file, last.offset + sum(len(message) + OVERHEAD for _, message in last.messages)
            )
            if len(job.parts) > 1 or not last.offset:
                # A new file has begun, so only its messages stay in the cache.
                self._cache = {
                    message_id: self._cache[message_id] for message_id, _ in last.messages if message_id in self._cache
                }
        gone, self._gone_under_way = self._gone_under_way, []
        for message_id in gone:
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count:
                # No queue refers to the body any more; without this it would stay in memory until the next file begins.
                self._cache.pop(message_id, None)
        self._reports.synced()
        self._garbage.synced()

    # -- garbage

    def take_gc(self) -> GcJob | None:
        """The next job of garbage collection; None if there is none, or if it waits for a sync, which then is due."""
        return self._garbage.take()

    def finish_gc(self, job: GcJob) -> None:
        """Apply the result of a job of garbage collection."""
        self.damaged += self._garbage.finish(job)

    def fail_gc(self, job: GcJob) -> None:
        """Leave the files as they are, because `job.run` raised OSError. A later job may try them again."""
        self._garbage.fail(job)

    # -- inspection

    @property
    def file_sizes(self) -> tuple[int, int]:
        """Bytes in all files, and how many of them belong to messages with references."""
        return self._summary.sum_file_size, self._summary.sum_valid_data

    @property
    def is_tainted(self) -> bool:
        """Whether there may be more references than queues have, as after a crash: the next start recounts."""
        return self._is_tainted

    def reference_counts(self) -> dict[bytes, int]:
        """The reference count of every message, for checks. Reads the whole index."""
        counts = {message_id: entry.ref_count for message_id, entry in self._located().items() if entry.ref_count}
        return {**counts, **{message_id: waiting.ref_count for message_id, waiting in self.waiting.messages.items()}}

    def check(self) -> None:
        """As `FileSummary.check`, for checks. Reads the whole index."""
        self._summary.check(self._located().values())

    def _located(self) -> dict[bytes, BodyLocation]:
        index = self._index
        located = {message_id: entry for message_id, _ in index.all_located() if (entry := index.get(message_id))}
        located.update(index.changed_entries())
        return located
