"""The message store: messages too large for a queue index, one store for all queues of a vhost, each message once however many
queues it is in.

How it works
------------
A **client** is a queue. It writes messages and removes them; a message written n times is there until it was removed n times.
Every write of a client that wants to be told is answered by exactly one report (QS-30): `written` once it is durable, `ignored`
if it was removed before that.

What is written **waits** in memory. A message that is removed while it waits never reaches the disk (section 6.5). What still
waits when a `SyncJob` is taken gets its place at the end of the **current** file, which is left for a new one when it exceeds 16
MiB. The bodies in the current file, and those on their way, are also kept in a cache, because they are the likeliest to be read.

Nothing here waits for a disk. All that does is a **job**: taken from the engine by its owner, run in another thread, and handed
back:

    job = engine.take_sync();   job.run();   engine.finish_sync(job)        one at a time; what gathers meanwhile is the next one's
    job = engine.take_gc();     job.run();   engine.finish_gc(job)          one at a time, beside the others (see `garbage_collection`)
    job = engine.read(ids);     job.run();   engine.finish_read(job)        any number

A job touches what it was given and nothing else of the engine. After an OSError from `run` it may be run again; `StoreBroken`
ends the store: only starting again helps.

`location_index` tells where messages are and how often they are wanted, `file_summary` what is in which file, `store_recovery`
how all of that is found again.

What differs from RabbitMQ: a message wanted no more is dropped from a locked file's count at once instead of after the combining
(`combine` says why that is safe); reads are always the store's.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..disk.disk import Disk
from ..disk.progress import NO_PROGRESS, Progress
from ..disk.system.boot_id import this_boot
from . import store_recovery
from .file_summary import FileSummary
from .garbage_collection import GarbageCollection, GcJob
from .lease import Lease
from .location_index import COMMIT_LEAST, Checkpoint, Entry, LocationIndex
from .open_files import OpenFiles
from .rdq_file import OVERHEAD
from .read_job import BodyReadJob, Cold
from .store_recovery import References, State
from .sync_job import FileAppend, SyncJob

FILE_LIMIT = 16 << 20


class StoreReport(NamedTuple):
    """`kind` is 'written' or 'ignored'."""

    client: str
    kind: str
    ids: list[bytes]


@dataclass
class _Client:
    is_told: bool
    is_detached: bool = False


class _Waiting:
    """A message that has no place yet."""

    __slots__ = ("ref_count", "message")

    def __init__(self, message: bytes) -> None:
        self.ref_count = 1
        self.message = message


class StoreEngine:
    """See the module. `recover` comes before anything else.

    directory    of the data files, on `disk`
    index_path   a directory of the operating system, for the index alone
    is_durable   False: nothing outlives the node, nothing is synced, the store starts empty
    boot_id      of this run of the operating system
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
        self._lease = Lease(index_path + ".lock")
        self._clients: dict[str, _Client] = {}
        self._is_tainted = False
        self._waiting: dict[bytes, _Waiting] = {}
        # By client, what it is to be told of when the next sync is done, and when the one under way is.
        self._told_next: dict[str, dict[bytes, None]] = {}
        self._told_now: dict[str, dict[bytes, None]] = {}
        self._cache: dict[bytes, bytes] = {}
        self._durable = Checkpoint(0, 0)
        self._syncing: SyncJob | None = None
        self._reports: dict[tuple[str, str], list[bytes]] = {}
        self._generation = 0
        self._is_open = False
        self.waiting_bytes = 0
        """Bytes of messages that wait for the next SyncJob."""
        self.spared = 0
        """Messages that were removed while they waited, since the last SyncJob."""
        self.spared_share = 0.0
        """Of the messages lately written, how many never had to reach the disk (smoothed, 0 to 1)."""
        self.damaged: list[bytes] = []
        """Ids whose records could not be read back, and are gone; whoever reports them clears the list."""

    # -- start and stop

    def recover(
        self, clients: Collection[str] | None, references: References, progress: Progress = NO_PROGRESS
    ) -> bool:
        """Find what is there; True if the store was left cleanly by just these `clients`.

        Otherwise `references` is asked for the ids that queues refer to. See `store_recovery`. May take long.
        """
        self._disk.make_dir(self._directory)
        os.makedirs(os.path.dirname(self._index_path), exist_ok=True)
        self._lease.wait()
        if not self._is_durable:
            store_recovery.erase(self._disk, self._directory, self._index_path)
        found = store_recovery.recover(
            self._disk, self._directory, self._index_path, self._boot_id, clients, references, progress
        )
        self._index, self._generation = found.locations, found.generation
        self._garbage = GarbageCollection(
            self._disk, self._directory, self._lease, self._index, self._summary, self._files
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
        """Write and sync what is left, and leave cleanly if no client was lost. No job may be under way."""
        assert self._syncing is None and not self._garbage.is_running, "a job is under way"
        self._garbage.cancel()
        job = self._take_sync()  # in any case: a plan that was cancelled has left its intent
        job.run()
        self.finish_sync(job)
        self._garbage.unlink()
        self._is_open = False
        self._files.close()
        self._index.close(is_clean=True)
        if self._is_durable and not self._is_tainted and all(client.is_detached for client in self._clients.values()):
            store_recovery.write_state(
                self._disk, self._directory, State(True, self._generation, self._boot_id, sorted(self._clients))
            )

    def abandon(self) -> None:
        """Let go of everything without writing, as a crash does. A job that is under way ends first, in its thread; others do nothing any more.

        A store that is closed, or was never recovered, has nothing.
        """
        if self._is_open:
            self._is_open = False
            self._files.close()
            if self._lease.end():
                self._index.close()

    # -- clients

    def register(self, client: str, is_told: bool = True) -> None:
        """`client` will write and remove; `is_told`: every write of it is to be reported."""
        self._clients[client] = _Client(is_told)

    def detach(self, client: str) -> None:
        """It will not write or remove until it registers again, perhaps after the next start; its messages stay."""
        if client in self._clients:
            self._clients[client].is_detached = True

    def forget(self, client: str) -> None:
        """It is gone, and has removed what it wrote. Nothing is reported to it any more."""
        self._clients.pop(client, None)
        self._told_next.pop(client, None)
        self._told_now.pop(client, None)

    def lost(self, client: str) -> None:
        """It ended without a word: what it wrote may be counted for ever, so the next start must recount (section 10.1)."""
        if client in self._clients and not self._clients[client].is_detached:
            self.doubt()
            self.forget(client)

    def doubt(self) -> None:
        """More may be counted than is referred to: the next start must recount."""
        self._is_tainted = True

    @property
    def clients(self) -> list[str]:
        return list(self._clients)

    def write(self, client: str, messages: Iterable[tuple[bytes, bytes]]) -> None:
        """One reference more for each (id, message). Ignored, and not reported, if the client is not registered."""
        known = self._clients.get(client)
        if known is None:
            return
        told_next: list[bytes] = []
        told_now: list[bytes] = []
        written: list[bytes] = []
        for message_id, message in messages:
            waiting = self._waiting.get(message_id)
            if waiting is not None:
                waiting.ref_count += 1
                told_next.append(message_id)
                continue
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count and self._summary.rows[entry.file].locked:
                self._waiting[message_id] = _Waiting(message)
                self.waiting_bytes += len(message)
                told_next.append(message_id)
                continue
            if not entry.ref_count:
                self._summary.wanted(entry.file, entry.total_size)
            self._index.count(message_id, entry._replace(ref_count=entry.ref_count + 1))
            # What has a place and is not on disk is on its way there.
            (written if self._is_on_disk(entry) else told_now).append(message_id)
        if known.is_told:
            for told, ids in ((self._told_next, told_next), (self._told_now, told_now)):
                if ids:
                    told.setdefault(client, {}).update(dict.fromkeys(ids))
            if written:
                self._report(client, "written", written)

    def adopt(self, ids: Iterable[bytes]) -> list[bytes]:
        """One reference more for each of these that is there; those that are not."""
        missing = []
        for message_id in ids:
            waiting = self._waiting.get(message_id)
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
        """One reference less for each; ids of messages that are not there are passed over."""
        told_next, told_now = self._told_next.get(client, {}), self._told_now.get(client, {})
        ignored = []
        for message_id in ids:
            if message_id in told_next:
                del told_next[message_id]
                ignored.append(message_id)
            elif message_id in told_now:
                del told_now[message_id]
                ignored.append(message_id)
            waiting = self._waiting.get(message_id)
            if waiting is not None:
                waiting.ref_count -= 1
                if not waiting.ref_count:
                    del self._waiting[message_id]
                    self.waiting_bytes -= len(waiting.message)
                    self.spared += 1
                continue
            entry = self._index.get(message_id)
            if entry is None or not entry.ref_count:
                continue
            self._index.count(message_id, entry._replace(ref_count=entry.ref_count - 1))
            if entry.ref_count == 1:
                self._summary.unwanted(entry.file, entry.total_size)
                if self._is_on_disk(entry):
                    self._cache.pop(message_id, None)
        if ignored:
            self._report(client, "ignored", ignored)

    def remove_between(
        self, client: str, first: bytes, last: bytes, keep: Container[bytes], limit: int
    ) -> bytes | None:
        """`remove` each message with an id from `first` to `last` but those to `keep`: a portion of about `limit`. Returns where to go on, None at the end."""
        found, end = self._index.between(first, last, limit)
        highest = last if end is None else end
        waiting = [message_id for message_id in self._waiting if first <= message_id <= highest]
        self.remove(
            client,
            [message_id for message_id in {**dict.fromkeys(found), **dict.fromkeys(waiting)} if message_id not in keep],
        )
        return None if end is None else end + bytes(1)

    def forget_between(self, first: bytes, last: bytes, limit: int) -> bytes | None:
        """Know nothing any more of messages with an id from `first` to `last`, whoever refers to them: a portion of about `limit`. Returns where to go on, None at the end.

        What is written under such an id after that is another message; after `remove` it would be taken for the one that was there.
        """
        found, end = self._index.between(first, last, limit)
        highest = last if end is None else end
        for message_id in [message_id for message_id in self._waiting if first <= message_id <= highest]:
            self.waiting_bytes -= len(self._waiting.pop(message_id).message)
            self.spared += 1
        for message_id in found:
            entry = self._index.get(message_id)
            if entry is not None and entry.ref_count:
                self._summary.unwanted(entry.file, entry.total_size)
            self._index.drop(message_id)
            self._cache.pop(message_id, None)
        return None if end is None else end + bytes(1)

    def contains(self, message_id: bytes) -> bool:
        """Whether any queue refers to it."""
        if message_id in self._waiting:
            return True
        entry = self._index.get(message_id)
        return entry is not None and entry.ref_count > 0

    def read(self, ids: Sequence[bytes]) -> BodyReadJob:
        """The messages of `ids`; run the job unless it is complete, and hand it to `finish_read` in either case."""
        messages: list[bytes | None] = []
        cold = []
        for at, message_id in enumerate(ids):
            waiting = self._waiting.get(message_id)
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
        """Messages that turned out damaged are removed, and named in `damaged` (D-19)."""
        for cold in job.cold:
            self._files.release(cold.held)
        for message_id, entry in job.damaged:
            now = self._index.get(message_id)
            if now is not None and now[1:] == entry[1:]:
                self._discard(message_id, now)

    def _discard(self, message_id: bytes, entry: Entry) -> None:
        self.damaged.append(message_id)
        if entry.ref_count:
            self._index.count(message_id, entry._replace(ref_count=0))
            self._summary.unwanted(entry.file, entry.total_size)

    def take_reports(self) -> list[StoreReport]:
        """What clients are to be told since the last call."""
        reports = [StoreReport(client, kind, ids) for (client, kind), ids in self._reports.items()]
        self._reports = {}
        return reports

    def _report(self, client: str, kind: str, ids: Iterable[bytes]) -> None:
        self._reports.setdefault((client, kind), []).extend(ids)

    # -- writing

    def _end(self) -> Checkpoint:
        """Behind the last record that has a place."""
        current = self._summary.current
        return Checkpoint(current, self._summary.rows[current].file_size)

    def _is_on_disk(self, entry: Entry) -> bool:
        return (entry.file, entry.offset) < self._durable

    @property
    def is_urgent(self) -> bool:
        """Whether a sync should be taken: messages wait, garbage collection needs a commit, or much has changed."""
        return bool(self._waiting) or self._garbage.wants_sync or self._index.changes >= COMMIT_LEAST

    def take_sync(self, everything: bool = False) -> SyncJob | None:
        """What is urgent, or `everything` that changed; None if that is nothing, or one is under way."""
        if self._syncing is not None or not (self.is_urgent or everything and self._index.is_changed):
            return None
        return self._take_sync()

    def _take_sync(self) -> SyncJob:
        total = self.spared + len(self._waiting)
        if total:
            self.spared_share = (self.spared_share + self.spared / total) / 2
            self.spared = 0
        parts: list[FileAppend] = []
        rows = self._summary.rows
        for message_id, waiting in self._waiting.items():
            if rows[self._summary.current].file_size >= self._file_limit:
                self._summary.add(self._summary.current + 1)
            total_size = len(waiting.message) + OVERHEAD
            offset = self._summary.appended(total_size)
            if not parts or parts[-1].file != self._summary.current:
                parts.append(FileAppend(self._summary.current, offset, []))
            parts[-1].messages.append((message_id, waiting.message))
            self._index.place(message_id, Entry(waiting.ref_count, self._summary.current, offset, total_size))
            self._cache[message_id] = waiting.message
        self._waiting = {}
        self.waiting_bytes = 0
        self._told_now, self._told_next = self._told_next, {}
        changes = self._index.freeze(self._summary.take_changed(), self._garbage.sync_taken(), self._end())
        self._syncing = SyncJob(self._lease, self._disk, self._directory, self._index, parts, changes, self._is_durable)
        return self._syncing

    def finish_sync(self, job: SyncJob) -> None:
        """The job was run: what it carried is durable, and reported."""
        assert job is self._syncing
        self._syncing = None
        self._index.committed()
        if job.parts:
            last = job.parts[-1]
            self._durable = Checkpoint(
                last.file, last.offset + sum(len(message) + OVERHEAD for _, message in last.messages)
            )
            if len(job.parts) > 1 or not last.offset:
                # A file was left: what is not in the new one is no longer kept in memory.
                self._cache = {
                    message_id: self._cache[message_id] for message_id, _ in last.messages if message_id in self._cache
                }
        for client, ids in self._told_now.items():
            if ids:
                self._report(client, "written", ids)
        self._told_now = {}
        self._garbage.synced()

    # -- garbage

    def take_gc(self) -> GcJob | None:
        """The next piece of work against garbage; None if there is none, or it waits for a sync (which is urgent then)."""
        return self._garbage.take()

    def finish_gc(self, job: GcJob) -> None:
        """The job was run: messages are where it put them."""
        self.damaged += self._garbage.finish(job)

    def fail_gc(self, job: GcJob) -> None:
        """`job.run` raised OSError: the files stay as they are. The same files may be tried again."""
        self._garbage.fail(job)

    # -- for whoever looks from outside

    @property
    def file_sizes(self) -> tuple[int, int]:
        """Bytes in all files, and how many of them are wanted."""
        return self._summary.sum_file_size, self._summary.sum_valid_data

    @property
    def is_tainted(self) -> bool:
        """More may be counted than is referred to, for a client was lost, perhaps; the next start counts again."""
        return self._is_tainted

    def reference_counts(self) -> dict[bytes, int]:
        """Of every message that is wanted; for whoever checks. Reads the whole index."""
        located = {message_id: self._index.get(message_id) for message_id, _ in self._index.all_located()}
        located.update(self._index.changed_entries())
        counts = {
            message_id: entry.ref_count
            for message_id, entry in located.items()
            if entry is not None and entry.ref_count
        }
        return {**counts, **{message_id: waiting.ref_count for message_id, waiting in self._waiting.items()}}

    def check(self) -> None:
        """Assert QS-26, QS-27 and QS-29: sums, chain, and that every entry leads into a file. Reads the whole index."""
        self._summary.check()
        entries = {
            message_id: entry for message_id, _ in self._index.all_located() if (entry := self._index.get(message_id))
        }
        entries.update(self._index.changed_entries())
        valid = dict.fromkeys(self._summary.rows, 0)
        for entry in entries.values():
            row = self._summary.rows[entry.file]
            assert entry.offset + entry.total_size <= row.file_size
            if entry.ref_count:
                valid[entry.file] += entry.total_size
        assert valid == {file: row.valid_total_size for file, row in self._summary.rows.items()}
