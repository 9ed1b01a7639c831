"""The engines of the store without processes, for tests that look at one of them: journal, message stores and queues
share a thread.

`DirectLog` and `DirectBodies` pass on at once what a process gathers and sends at the end of its turn. `DirectQueue`
runs its jobs itself where a queue process runs them in another thread. Recovery as a whole, with several queues and in
its real order, is tested with the processes instead: see `sim_vhost`.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from warren.store.bodies.store_client import StoreClient
from warren.store.bodies.store_engine import FILE_LIMIT, StoreEngine
from warren.store.bodies.store_recovery import References
from warren.store.disk.disk import Disk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.journal.log_writer import LogWriter
from warren.store.journal.replay import Replayed
from warren.store.messages.lives import Lives
from warren.store.messages.message import FetchedMessages, QueuedMessage
from warren.store.messages.run import Run
from warren.store.queue.backing_queue import UNLIMITED, Dispose
from warren.store.queue.variable.read_ahead import ReadAheadJob
from warren.store.queue.variable.variable_queue import VariableQueue

CLIENT = "queues"
IDS_AT_A_TIME = 4096


class DirectLog:
    """The `IndexLog` of queues that share a thread with their journal: positions are the journal's.

    Without `has_sizes` it records no sizes of segments.
    """

    def __init__(self, journal: JournalEngine, has_sizes: bool = True) -> None:
        self._journal = journal
        self._writer = LogWriter()
        self._has_sizes = has_sizes

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int:
        self._writer.publish(queue, run, is_stored)
        return self._pass_on()

    def ack(self, queue: int, spans: Sequence[range]) -> int:
        self._writer.ack(queue, spans)
        return self._pass_on()

    def skip_to(self, queue: int, next_number: int) -> None:
        self._writer.skip_to(queue, next_number)

    def reserve(self, queue: int, number: int) -> int:
        self._writer.reserve(queue, number)
        return self._pass_on()

    def lives(self, queue: int, lives: Lives) -> int:
        self._writer.lives(queue, lives)
        return self._pass_on()

    @property
    def durable(self) -> int:
        return self._journal.durable

    @property
    def position(self) -> int:
        return self._journal.position

    def sizes(self, queue: int, sizes: dict[int, int]) -> int:
        if not self._has_sizes:
            return 0
        self._writer.sizes(queue, sizes)
        position = self._pass_on()
        # So that the next flush removes the segments that have no message left.
        self._journal.write_all()
        return position

    def sizes_later(self, queue: int, sizes: dict[int, int]) -> None:
        self.sizes(queue, sizes)

    def returned(self, queue: int, returns: Mapping[int, int], is_repeated: bool = False) -> int:
        self._writer.returned(queue, returns, is_repeated)
        return self._pass_on()

    def delete(self, queue: int) -> int:
        self._writer.resume(queue, 0)
        self._writer.delete(queue)
        return self._pass_on()

    def _pass_on(self) -> int:
        for part in self._writer.take():
            self._journal.append(
                part.queue,
                part.parts,
                part.records,
                part.next_number,
                part.sizes,
                repeated=part.repeated,
                lives=part.lives,
            )
        return self._journal.position


class DirectBodies(StoreClient):
    """A message store and its only client, `CLIENT`. The arguments are those of `StoreEngine`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_path: str,
        is_durable: bool = True,
        file_limit: int = FILE_LIMIT,
        boot_id: str | None = None,
    ) -> None:
        super().__init__()
        self.engine = StoreEngine(disk, directory, index_path, is_durable, file_limit, boot_id)

    def recover(self, may_trust: bool, references: References = lambda: ()) -> bool:
        """Recover; return whether the store is as it was left. `references` are counted if it is not, or unless
        `may_trust`.
        """
        is_trusted = self.engine.recover({CLIENT} if may_trust else None, references)
        self.engine.register(CLIENT)
        return is_trusted

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        position = super().write(messages)
        self._pass_on()
        return position

    def remove(self, message_ids: Iterable[bytes]) -> None:
        super().remove(message_ids)
        self._pass_on()

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        super().remove_between(first, last, keep)
        self._pass_on()

    def contains(self, message_id: bytes) -> bool:
        return self.engine.contains(message_id)

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]:
        job = self.engine.read(message_ids)
        if not job.is_complete:
            job.run()
        self.engine.finish_read(job)
        return job.messages

    def _pass_on(self) -> None:
        sent = self.take()
        if sent is not None:
            self.engine.write(CLIENT, sent.writes)
            self.engine.remove(CLIENT, sent.removes)
            for first, last, keep in sent.ranges:
                after: bytes | None = first
                while after is not None:
                    after = self.engine.remove_between(CLIENT, after, last, keep, IDS_AT_A_TIME)
        self._take_reports()

    def _take_reports(self) -> None:
        for report in self.engine.take_reports():
            if report.client == CLIENT:
                self.answered(report.ids)

    def write_all(self) -> int:
        """Do all work that waits for the disk; returns `durable`."""
        while True:
            collection = self.engine.take_gc()  # first, since it may make a sync urgent
            sync = self.engine.take_sync()
            if sync is None and collection is None:
                return self.durable
            if sync is not None:
                sync.run()
            if collection is not None:
                collection.run()
            if sync is not None:
                self.engine.finish_sync(sync)
            if collection is not None:
                self.engine.finish_gc(collection)
            self._take_reports()

    def close(self) -> None:
        """Write everything, and leave cleanly."""
        self.write_all()
        self.engine.detach(CLIENT)
        self.engine.close()
        self._take_reports()


def stored_ids(disk: Disk, directory: str, queue: int, segment: int, replayed: Replayed | None) -> list[bytes]:
    """The ids in a message store that a queue's index names.

    `replayed`, which the queue itself recovers from later, is left as it is.
    """
    found = QueueIndex(disk, directory, queue, LogWriter(), segment).scan(copy.deepcopy(replayed), None)
    return [message_id for span in (found.stored if found is not None else []) for message_id in span.ids()]


def recover(queue: VariableQueue, persistent: DirectBodies, terms: dict[str, Any] | None) -> None:
    """Both halves of a recovery. `terms` are those of a clean end; None after an unclean one."""
    needed = queue.scan(terms)
    queue.recover(
        terms,
        [
            number
            for span in needed
            for number, message_id in zip(span.numbers, span.ids())
            if not persistent.contains(message_id)
        ],
    )


def status(queue: VariableQueue) -> dict[str, Any]:
    """Where the ready messages of a queue are, by the names of queue-and-store section 4.9."""
    sub = queue.sub_queues
    return {
        **{name: getattr(sub, name).count for name in ("q1", "q2", "q3", "q4")},
        "delta": sub.delta.count,
        "len": len(sub),
        "mode": "lazy" if sub.is_lazy else "default",
        "target_ram_count": queue.paging.target,
        "next_deliver_seq_id": queue._watermark,
        "rates": queue._rates.rates,
    }


def write_journal(journal: JournalEngine, levels: Iterable[VariableQueue]) -> int:
    """Commit what was appended; if the journal has closed files, flush every level and give them up.

    Returns the durable position.
    """
    durable = journal.write_all()
    if journal.closed_files:
        current = journal.current
        for level in levels:
            level.segment_writer.flush(True)
        journal.retire(current)
        batch = journal.take_batch()
        assert batch is not None
        journal.commit(batch)
        durable = journal.committed(batch)
        journal.unlink_retired(batch)
    return durable


class DirectQueue(VariableQueue):
    """A variable queue that runs its jobs itself, at once, so that every method reaches all messages.

    Both stores are `DirectBodies`.
    """

    # -- jobs

    def _run_read(self, job: ReadAheadJob) -> None:
        job.run()
        place, missing = self._place, job.missing
        job.reader.prepared(job, place._persistent.read(missing.persistent), place._transient.read(missing.transient))

    def _load_head(self) -> bool:
        """Read the head of the queue until a message can be taken. Returns False if the queue is empty."""
        while not self.available(1) and (job := self.prepare()) is not None:
            self._run_read(job)
        return self.available(1) > 0

    def _write_segments(self) -> None:
        """Run the releases, and then the flush if one is due."""
        writer = self.segment_writer
        while (release := writer.take_release()) is not None:
            release.run()
            writer.released(release)
        if writer.needs_flush:
            flush = writer.take_flush()
            if flush is not None:
                flush.run()
                writer.flushed(flush)

    # -- methods that read the head first

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        deliveries: list[FetchedMessages] = []
        while count > 0 and self._load_head():
            found = super().fetch(count, ack_required)
            count -= sum(len(delivery.contents) for delivery in found)
            deliveries += found
        return deliveries

    def drop(self, count: int) -> int:
        dropped = 0
        while dropped < count and self._load_head():
            dropped += super().drop(count - dropped)
        return dropped

    def drop_expired(self, now: int, limit: int) -> int:
        dropped = 0
        while self._load_head() and (more := super().drop_expired(now, limit - dropped)):
            dropped += more
        return dropped

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        messages: list[QueuedMessage] = []
        while self._load_head() and (more := super().fetch_expired(now, limit - len(messages))):
            messages += more
        return messages

    def head(self) -> QueuedMessage | None:
        self._load_head()
        return super().head()

    def head_expiry(self) -> int | None:
        self._load_head()
        return super().head_expiry()

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        while (job := self.prepare_pending(tags)) is not None:
            self._run_read(job)
        return super().pending_messages(tags)

    # -- methods that make jobs due

    def publish(self, *args: Any, **options: Any) -> range:
        numbers = super().publish(*args, **options)
        self._write_segments()
        return numbers

    def purge(self, limit: int = UNLIMITED) -> int:
        count = super().purge(limit)
        self._write_segments()
        return count

    def delete_and_terminate(self) -> Dispose:
        dispose = super().delete_and_terminate()
        while dispose(3):
            pass
        self._write_segments()
        self.segment_writer.delete_files()
        return dispose

    def set_queue_mode(self, mode: str) -> None:
        """Complete the change of mode, which a queue process does in steps."""
        super().set_queue_mode(mode)
        sub = self.sub_queues
        while mode == "lazy" and not sub.is_lazy:
            self.page()
        while mode == "default" and sub.is_lazy:
            job = self.prepare()
            if job is not None:
                self._run_read(job)
        self._write_segments()

    def set_ram_duration_target(self, seconds: float) -> None:
        super().set_ram_duration_target(seconds)
        self._write_segments()

    def page(self) -> None:
        super().page()
        self._write_segments()
