"""A message store as the queues of one process use it: told what to write, and asked up to where all is durable.

`StoreEngine` answers every write of its clients by a report; a queue's confirms wait for **positions**, as they do for the journal.
Here the one is made of the other: a write has the next position, and everything up to `durable` has been answered, be it that it is
on disk or that it was removed before it came there. Several queues may write the same message, so each has its `QueueBodies`; the next
start knows them as one client all the same, for they end together.

Reading is done at once, where it is asked for. All else that waits for the disk is in `StoreWork`, to be run in another thread:

    work = bodies.take_work()       # None if nothing waits
    work.write(); work.collect()    # in another thread
    bodies.done(work)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from ..disk.disk import Disk
from .garbage_collection import GcJob
from .store_engine import FILE_LIMIT, StoreEngine
from .store_recovery import References
from .sync_job import SyncJob

CLIENT = "queues"
IDS_AT_A_TIME = 4096


@dataclass
class StoreWork:
    """What waits for the disk. Either part may be run again after an OSError."""

    sync: SyncJob | None
    collection: GcJob | None
    _is_collected: bool = False

    def write(self) -> None:
        if self.sync is not None:
            self.sync.run()

    def collect(self) -> None:
        if self.collection is not None and not self._is_collected:
            self.collection.run()
            self._is_collected = True


class QueueBodies:
    """A store as one client of it sees it: a `placement.Bodies`. `hear` is called when there may be reports for anybody."""

    def __init__(self, engine: StoreEngine, client: str, hear: Callable[[], None]) -> None:
        self.engine = engine
        self._client = client
        self._hear = hear
        self._position = 0
        self._unanswered: dict[bytes, int] = {}
        """Position of each write that no report has answered, in their order."""

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """One reference more to each (id, content), none of which the client has; returns the position at which they are durable."""
        self._position += 1
        for message_id, _ in messages:
            self._unanswered[message_id] = self._position
        self.engine.write(self._client, messages)
        self._hear()
        return self._position

    def remove(self, message_ids: Iterable[bytes]) -> None:
        """One reference less to each; unknown ids are passed over."""
        self.engine.remove(self._client, message_ids)
        self._hear()

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """The same for every message with an id from `first` to `last` but those to `keep`."""
        after: bytes | None = first
        while after is not None:
            after = self.engine.remove_between(self._client, after, last, keep, IDS_AT_A_TIME)
        self._hear()

    def contains(self, message_id: bytes) -> bool:
        return self.engine.contains(message_id)

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]:
        """Contents; None for what is unknown or damaged."""
        job = self.engine.read(message_ids)
        if not job.is_complete:
            job.run()
        self.engine.finish_read(job)
        return job.messages

    def answered(self, message_ids: Iterable[bytes]) -> None:
        """The store reported these written or ignored."""
        for message_id in message_ids:
            self._unanswered.pop(message_id, None)

    @property
    def durable(self) -> int:
        """Everything up to here is durable, or was removed."""
        return next(iter(self._unanswered.values())) - 1 if self._unanswered else self._position


class StoreBodies(QueueBodies):
    """See the module. The arguments are those of `StoreEngine`. Where there is but one queue it may use this itself."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        index_path: str,
        is_durable: bool = True,
        file_limit: int = FILE_LIMIT,
        boot_id: str | None = None,
    ) -> None:
        super().__init__(
            StoreEngine(disk, directory, index_path, is_durable, file_limit, boot_id), CLIENT, self._hear_all
        )
        self._queues: dict[str, QueueBodies] = {CLIENT: self}

    def of(self, queue: str) -> QueueBodies:
        """The store for that queue; what it was before under this name says nothing any more."""
        self.engine.register(queue)
        bodies = self._queues[queue] = QueueBodies(self.engine, queue, self._hear_all)
        return bodies

    def forget(self, queue: str) -> None:
        """It is gone, and has removed what it wrote."""
        self.engine.forget(queue)
        del self._queues[queue]

    def recover(self, may_trust: bool, references: References = lambda: ()) -> bool:
        """Find what is there; True if it is as it was left, False if `references` had to be counted.

        They are counted in any case unless `may_trust`: of a queue that did not end cleanly, what it lost would be wanted for ever.
        """
        is_trusted = self.engine.recover({CLIENT} if may_trust else None, references)
        self.engine.register(CLIENT)
        return is_trusted

    def close(self) -> None:
        """Write everything, and leave cleanly."""
        self.write_all()
        for queue in self._queues.keys() - {CLIENT}:
            self.engine.forget(queue)
        self.engine.detach(CLIENT)
        self.engine.close()
        self._hear_all()

    # -- work

    def take_work(self) -> StoreWork | None:
        """What waits for the disk; None if nothing does. What was taken before must be done."""
        collection = self.engine.take_gc()  # first: it may make a sync urgent
        sync = self.engine.take_sync()
        return StoreWork(sync, collection) if sync is not None or collection is not None else None

    def done(self, work: StoreWork) -> None:
        if work.sync is not None:
            self.engine.finish_sync(work.sync)
        if work.collection is not None:
            self.engine.finish_gc(work.collection)
        self._hear_all()

    def write_all(self) -> int:
        """All work, here and now; returns `durable`."""
        while (work := self.take_work()) is not None:
            work.write()
            work.collect()
            self.done(work)
        return self.durable

    def _hear_all(self) -> None:
        for report in self.engine.take_reports():
            self._queues[report.client].answered(report.ids)
