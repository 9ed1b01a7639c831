"""`Journal`: the process that owns the write-ahead journal of a vhost, one for all its queues. A shell around `store.journal.journal_engine.JournalEngine`, which decides.

| message | from | meaning |
|---|---|---|
| ask `('start', settings)` | supervisor | recover; the numbers of which the journal has messages or acks |
| `('register', queue, address)` | queue | a new queue will write; `address` hears `durable` and `bump`, and is asked to `flush_synced` |
| ask `('open', queue, address)` | queue | the same for one that recovers; what the journal has of it: number -> `Replayed` |
| ask `('referred', queues)` | supervisor | number -> `StoredSpan`s: which messages of theirs have bodies in the message store, as far as the journal knows |
| `('append', queue, gathered, position)` | queue | records of its numbers, as `LogWriter` gathered them; `position` is the writer's after them |
| `('detach', queue)` | queue | it ends, and has folded all it had |
| `('forget', queue)` | queue, supervisor | the queue is deleted: nothing said of it counts any more |
| ask `('close',)` | supervisor | every queue that runs has folded all it had; leave a journal that says nothing, then end |
| `('durable', position)` | to a queue | everything it wrote up to there is on disk |
| `('bump', 'journal', amount)` | to a queue | credit: 800 of 4000 messages are on disk |
| ask `('flush_synced',)` | to a queue | have everything in segments, and those synced |
| `('batch_lost', 'journal')` | to a queue | something it appended did not arrive; nothing of it counts from there on, and it must start again |

Group commit: a commit begins as soon as something was appended and none is under way; what comes meanwhile is the next one's (design, section 3.6). So an idle
journal syncs at once, and nobody waits for more than two syncs.

When a file is full and closed, all queues fold, and then it is given up; so is a file with more than a little in it when nobody has written for a second: what is idle
holds no disk. Of a queue that is down the journal folds itself what it has, from the files: one queue that crashed
for good must not keep the journal of all the others. A commit that fails is tried again; a sync that fails ends the process (`JournalBroken`), and with it the vhost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.vhost_dir import JOURNAL, LEVEL_BITS, queue_directory
from ...store.disk.disk import REFUSALS, Disk
from ...store.index.queue_index import QueueIndex
from ...store.journal.journal_engine import FILE_LIMIT, Batch, JournalEngine
from ...store.journal.log_writer import LogWriter, QueueRecords
from ...store.journal.replay import Replayed
from ...store.messages.message_ids import StoredSpan
from .disk_retry import RETRY_SECONDS, DiskRetry
from .errors import StorageError

CREDIT = (4000, 800)
"""Messages that a queue may have on their way to the disk."""

IDLE_SECONDS = 1.0
IDLE_BYTES = 1 << 20
"""A file with no more than this may stay."""

log = logging.getLogger("warren.journal")


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """`disk` is the vhost's directory; `queues` are the durable queues there are, `vhost` its name for people, `alarms` that process or None."""

    disk: Disk
    queues: frozenset[int]
    segment_entries: int
    vhost: str
    alarms: Any = None
    file_limit: int = FILE_LIMIT


class Journal(Process):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._addresses: dict[int, Any] = {}
        self._replayed: dict[int, Replayed] = {}
        self._absent: set[int] = set()  # queues of which the files may have something, and no process
        self._appended: dict[int, int] = {}  # queue -> position of the last that came from its process
        self._waiting: dict[
            int, tuple[int, int]
        ] = {}  # queue -> its position and messages appended since the last batch
        self._in_commit: dict[int, tuple[int, int]] = {}  # the same of the batch that is being written
        self._credit = CreditFlow(CREDIT, self._grant, key="journal credit")
        self._files: JournalEngine | None = None
        self._is_committing = self._is_folding = False
        self._wait_alone: list[
            tuple[Any, int]
        ] = []  # askers who want to read the files while nobody writes, when all up to a position is in them
        self._is_fold_paused = False
        self._idle_since: int | None = None  # position when the idle timer was started, if it runs
        self._folding_alone: list[tuple[Any, int, Any]] | None = (
            None  # while files are read: those who want to open a queue then
        )
        self._closer: Any = None

    async def on_start(self, sender: Any, settings: JournalSettings) -> set[int]:
        self._settings = settings
        self._disk_retry = DiskRetry(self, f"the journal of vhost '{settings.vhost}'", settings.alarms)
        files = JournalEngine(settings.disk, JOURNAL, settings.file_limit)
        try:
            found = await self.run_blocking(files.recover)
        except REFUSALS as error:
            raise StorageError(f"its journal cannot be opened: {error}") from error
        self._files = files
        self._replayed = {
            number: replayed for number, replayed in found.items() if number >> LEVEL_BITS in settings.queues
        }
        self._absent = {number >> LEVEL_BITS for number in self._replayed}
        return {number for number, replayed in self._replayed.items() if not replayed.is_empty}

    @property
    def files(self) -> JournalEngine:
        assert self._files is not None, "not started"
        return self._files

    # -- queues

    def on_register(self, sender: Any, queue: int, address: Any) -> None:
        self._addresses[queue] = address
        self._appended[queue] = 0
        self._absent.discard(queue)
        self.monitor(address, queue)

    def on_open(self, sender: Any, queue: int, address: Any) -> None:
        if self._folding_alone is not None:
            self._folding_alone.append((sender, queue, address))
        else:
            self.spawn(self._open(sender, queue, address))

    async def _open(self, sender: Any, queue: int, address: Any) -> None:
        if queue in self._addresses:
            self._lose(queue)  # its process crashed, and the message about that is still on its way
        found = {number: self._replayed.pop(number) for number in list(self._replayed) if number >> LEVEL_BITS == queue}
        if not found and queue in self._absent:
            # It was open before, and what it had not folded is in the files alone.
            found = {
                number: replayed for number, replayed in (await self._replay()).items() if number >> LEVEL_BITS == queue
            }
        self.on_register(None, queue, address)
        self.reply(sender, found)

    async def on_referred(self, sender: Any, queues: frozenset[int]) -> dict[int, list[StoredSpan]]:
        found = await self._replay()
        return {number: replayed.stored_spans() for number, replayed in found.items() if number >> LEVEL_BITS in queues}

    def on_append(self, sender: Any, queue: int, gathered: list[QueueRecords], position: int) -> None:
        if sender != self._addresses.get(queue):
            return  # it was forgotten, or another has taken its place, and this was still on its way
        if self._appended[queue] + sum(part.records for part in gathered) != position:
            self._miss(sender, queue)
            return
        self._appended[queue] = position
        messages = self._waiting.get(queue, (0, 0))[1]
        for part in gathered:
            self.files.append(part.queue, part.parts, part.records, part.next_number)
            messages += part.messages
        self._waiting[queue] = position, messages

    def _miss(self, address: Any, queue: int) -> None:
        """A transport drops what a sender has too much of on its way (section 6.10). Positions go on, and what is missing must not be taken for durable."""
        log.error(
            "the journal of vhost '%s' misses something of queue %x, which starts again", self._settings.vhost, queue
        )
        self._lose(queue)
        self.send(address, ("batch_lost", "journal"))

    def on_forget(self, sender: Any, queue: int) -> None:
        writer = LogWriter()
        for number in [number for number in self.files.numbers if number >> LEVEL_BITS == queue]:
            writer.resume(number, 0)
            writer.delete(number)
        for part in writer.take():
            self.files.append(part.queue, part.parts, part.records, part.next_number)
        for number in [number for number in self._replayed if number >> LEVEL_BITS == queue]:
            del self._replayed[number]
        self._leave(queue)
        self._absent.discard(queue)

    def on_detach(self, sender: Any, queue: int) -> None:
        self._leave(queue)

    def on_down(self, queue: Any, reason: ExitReason) -> None:
        self._lose(queue)

    def _lose(self, queue: int) -> None:
        """The queue's process has ended or must start again: what it appended is in the files alone."""
        self._leave(queue)
        self._absent.add(queue)

    def _leave(self, queue: int) -> None:
        self.demonitor(queue)
        self._credit.peer_down(queue)
        self._addresses.pop(queue, None)
        self._appended.pop(queue, None)
        # Its next process counts from the beginning: what is said of this one's records is not for it.
        self._waiting.pop(queue, None)
        self._in_commit.pop(queue, None)

    def _grant(self, queue: int, amount: int) -> None:
        address = self._addresses.get(queue)
        if address is not None:
            self.send(address, ("bump", "journal", amount))

    # -- commits

    def after_batch(self) -> None:
        if self._files is None or self._is_committing:
            return
        if self._wait_alone and self._wait_alone[0][1] <= self._files.durable:
            # Before the next batch, for there may always be one.
            self._is_committing = True
            self.reply(self._wait_alone.pop(0)[0], None)
            return
        batch = self._files.take_batch()
        if batch is not None:
            self._is_committing = True
            waiting, self._waiting = self._waiting, {}
            self._in_commit = waiting
            self.spawn(self._commit(batch, waiting))
        elif self._closer is not None and not self._is_folding:
            self._is_committing = True
            self.spawn(self._finish(self._closer))

    async def _commit(self, batch: Batch, waiting: dict[int, tuple[int, int]]) -> None:
        # A node that stops does not wait for room on the disk: the next start finds what the files have by now.
        await self._disk_retry.run(self._write, batch, is_given_up=lambda: self._closer is not None)
        self.files.committed(batch)
        for queue, (position, messages) in waiting.items():
            address = self._addresses.get(queue)
            if address is not None:
                self.send(address, ("durable", position))
                if messages:
                    self._credit.take(queue, messages)
        self._in_commit = {}
        self._is_committing = False
        if self.files.closed_files:
            self._begin_fold(self.files.current)
        if self._idle_since is None:
            self._idle_since = self.files.position
            self.start_timer(IDLE_SECONDS, "idle")

    def _write(self, batch: Batch) -> None:
        self.files.commit(batch)
        self.files.unlink_retired(batch)

    def on_timer(self, payload: Any) -> None:
        if payload == "fold":
            self._is_fold_paused = False
        elif payload == "idle":
            was_idle, self._idle_since = self._idle_since == self.files.position, None
            if not was_idle:
                self._idle_since = self.files.position
                self.start_timer(IDLE_SECONDS, "idle")
            elif self.files.current_bytes > IDLE_BYTES and not self._is_committing:
                self._begin_fold(self.files.rotate())

    # -- giving up files

    def _begin_fold(self, upto: int) -> None:
        if not self._is_folding and not self._is_fold_paused and self._closer is None:
            self._is_folding = True
            self.spawn(self._fold(upto))

    async def _fold(self, upto: int) -> None:
        """Give up the files before `upto`."""
        missing = self._addresses.keys() | self._absent
        try:
            # A queue that was down may be opened meanwhile, and then it has to be asked as well.
            while missing:
                running = {
                    queue: self.ask(address, ("flush_synced",))
                    for queue, address in self._addresses.items()
                    if queue in missing
                }
                for answer in running.values():
                    await answer
                missing -= running.keys()
                if not missing.isdisjoint(self._absent):
                    missing -= await self._fold_alone()
                missing &= self._addresses.keys() | self._absent
        except (ProcessDown, OSError) as error:
            # What a queue had not folded is still wanted; it starts again, or is found to be down.
            log.debug("files of the journal before %d stay for now: %s", upto, error)
            self._is_fold_paused = True
            self.start_timer(RETRY_SECONDS, "fold")
        else:
            self.files.retire(upto)
        self._is_folding = False

    async def _fold_alone(self) -> set[int]:
        """Do it for the queues that are down, and return them. Who wants to open one of them meanwhile waits."""
        self._folding_alone = []
        try:
            replayed = await self._replay()
            queues = set(self._absent)  # one may have been opened while this waited for its turn
            mine = {number: found for number, found in replayed.items() if number >> LEVEL_BITS in queues}
            await self.run_blocking(_fold_into_segments, self._settings.disk, self._settings.segment_entries, mine)
            return queues
        finally:
            waiting, self._folding_alone = self._folding_alone, None
            for sender, queue, address in waiting or ():
                self.spawn(self._open(sender, queue, address))

    async def _replay(self) -> dict[int, Replayed]:
        """What the files say when everything appended by now is written. No commit begins meanwhile."""
        await self.ask(self.myAddress, ("write_all",))
        try:
            return await self.run_blocking(self.files.replay)
        finally:
            self._is_committing = False

    def on_write_all(self, sender: Any) -> None:
        """Answered when everything appended by now is written; no commit begins until the asker says so."""
        self._wait_alone.append((sender, self.files.position))

    # -- the end

    def on_close(self, sender: Any) -> None:
        """Answered True when the journal is closed."""
        self._closer = sender

    async def _finish(self, closer: Any) -> None:
        # A queue that is down, or did not detach, has folded nothing: the next start has to find it here.
        await self.run_blocking(self.files.close if self._absent or self._addresses else self.files.close_flushed)
        self.reply(closer, True)
        self.stop()


def _fold_into_segments(disk: Disk, segment_entries: int, replayed: dict[int, Replayed]) -> None:
    for number, found in replayed.items():
        index = QueueIndex(disk, queue_directory(number), number, LogWriter(), segment_entries)
        index.scan(found, None)
        index.flush(True)
