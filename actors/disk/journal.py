"""`Journal`: the process that owns the write-ahead journal of a virtual host, one for all its queues.

It is a shell around `store.journal.journal_engine.JournalEngine`, which decides what is written where. This process
receives the records of the queues, commits them, and reports to each queue up to which position its records are on the
disk (`durable`).

**Group commit.** A commit begins as soon as a record was appended for which a process waits, and no commit is running;
what arrives meanwhile is for the next one (design section 3). So an idle journal syncs at once, and such a record waits
for two syncs at most. No process waits for the records of acknowledgements, nor for those of publishes whose bodies the
message store holds back because consumers keep up. These records go with the next commit, or have one of their own
after `UNAWAITED_SECONDS`: with bodies of 16 KiB and consumers that keep up, a commit for each batch cost a third of the
processor time. The sizes of segments wait for `SIZES_SECONDS`. If the disk refuses a write, the commit is tried again.
A sync that fails ends the process (`JournalBroken`) and with it the virtual host, because it is then unknown which
records are on the disk.

`JournalQueues` keeps track of the queues, `DeadLettersInTransit` of the dead letters in transit, and `FileFreeing`
deletes files. `Journal` itself commits, and reads the files: a read waits for the running commit, and the next commit
waits for the read.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...runtime.contract import Address, Sender
from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.data_dir.vhost_dir import JOURNAL, LEVEL_BITS
from ...store.disk.disk import REFUSALS, Disk
from ...store.journal.journal_engine import Batch, JournalEngine
from ...store.journal.log_writer import LogWriter, QueueRecords
from ...store.journal.replay import Replayed
from ...store.messages.message_ids import StoredSpan
from ..context.disk_settings import JournalSettings
from ..context.starting import ToNewJournal
from ..contracts.disk import FoundJournal, to_disk_user
from .absent_flush import ABSENT, flush_absent
from .dead_letters_in_transit import DeadLettersInTransit
from .disk_retry import DiskRetry
from .errors import StorageError
from .file_freeing import IDLE, RETRY, FileFreeing
from .journal_queues import JournalQueues, priority_of, queue_of

if TYPE_CHECKING:
    from ..contracts.disk import ToDiskUser

#: Records that nobody awaits are written after at most this many seconds, or as soon as they have this many bytes. So a
#: broker that is killed loses the acknowledgements of its last milliseconds, and consumers get these messages again. No
#: confirm is held back for longer than the message store holds it back anyway.
UNAWAITED_SECONDS = 0.005
UNAWAITED_BYTES = 1 << 20

#: Sizes of segments are written after at most this many seconds. If the broker is killed before that, the next start
#: notices a file that somebody shortened only if it is shorter than the size recorded before.
SIZES_SECONDS = 0.04

#: A commit is reported to at most this many queues in one turn, which takes 0.5 ms.
REPORTED_AT_ONCE = 250

#: The payload of a timer. The others are those of `FileFreeing`.
COMMIT = "commit"

log = logging.getLogger("warren.journal")


class Appended(NamedTuple):
    """What a queue has appended for one batch: its position after that, and how many of the records are messages."""

    position: int
    messages: int


_NOTHING = Appended(0, 0)


class Opener(NamedTuple):
    """A queue that asked for `open` and has to wait."""

    sender: Sender
    queue: int
    address: Address[ToDiskUser]


class Journal(Process):
    """See the module. `queue` is always a queue's number, `level` that of one of its priority levels."""

    contract = ToNewJournal
    #: While this timer runs, records wait for a commit that is put off, so the loop counts as busy.
    work_timers = (COMMIT,)

    def __init__(self) -> None:
        super().__init__()
        self._queues = JournalQueues()
        #: By queue and level: what the files had at the start, until the queue opens.
        self._replayed: dict[int, dict[int, Replayed]] = {}
        #: By queue: the position up to which its process has appended.
        self._positions: dict[int, int] = {}
        #: By queue: what its process has appended since the last batch was taken, and what the running commit writes
        #: for it.
        self._waiting: dict[int, Appended] = {}
        self._in_commit: dict[int, Appended] = {}
        #: By queue: what is on the disk and was not reported to its process yet.
        self._unreported: dict[int, Appended] = {}
        self._files: JournalEngine | None = None
        self._is_committing = False
        #: Whether a process waits for a record that no batch has taken yet.
        self._is_awaited = False
        #: Whether records wait that are not sizes of segments.
        self._has_urgent = False
        #: The timer of a commit that is put off, and after how many seconds it fires; None without one.
        self._commit_timer: tuple[int, float] | None = None
        #: One position for each coroutine that waits for `_may_read`, in the order in which they wait. A coroutine may
        #: read the files when they have all records up to its position, and no commit runs.
        self._read_positions: deque[int] = deque()
        self._may_read = Signal(self)
        #: Woken when the process of a queue has ended.
        self._has_lost = Signal(self)
        #: Queues that asked to open while the journal flushes for queues that are down; None at other times.
        self._openers: list[Opener] | None = None
        #: Woken at the end of such a flush.
        self._has_flushed = Signal(self)
        #: By level of the queues that have detached: how often their messages were returned.
        self._returns: dict[int, dict[int, int]] = {}
        #: The unanswered `close`. The journal then frees no more files, and ends after the last commit.
        self._closer: Sender | None = None

    async def on_start(self, sender: Sender, settings: JournalSettings) -> FoundJournal:
        self._settings = settings
        #: The credit of the queues: how many messages of each may be in flight to the disk.
        self._credit = CreditFlow(settings.credit, self._grant, key="msg_store_credit_disc_bound")
        self._disk_retry = DiskRetry(self, f"the journal of vhost '{settings.vhost}'", settings.alarms)
        files = JournalEngine(settings.disk, JOURNAL, settings.file_limit)
        try:
            found = await self.run_blocking(_recovered, files, settings.disk)
        except REFUSALS as error:
            raise StorageError(f"its journal cannot be opened: {error}") from error
        self._files = files
        for level, replayed in found.items():
            if queue_of(level) in settings.queues:
                self._replayed.setdefault(queue_of(level), {})[level] = replayed
        queues = self._queues
        queues.existing.update(settings.queues)
        queues.absent.update(self._replayed)
        self._in_transit = DeadLettersInTransit(self, files, queues, settings.vhost)
        self._freeing = FileFreeing(
            self, files, queues, settings.file_limit, self._flush_absent, self._report_to, retired=self._want_commit
        )
        self._in_transit.forget_deleted(list(files.in_transit.targets))
        return self._found()

    def _found(self) -> FoundJournal:
        found = FoundJournal(set(), {}, set())
        for queue, levels in self._replayed.items():
            numberings = {}
            for level, replayed in levels.items():
                if not replayed.is_empty:
                    found.levels.add(level)
                if (numbering := replayed.numbering) is not None:
                    numberings[priority_of(level)] = numbering
            if len(numberings) == len(levels):
                found.numberings[queue] = numberings
            else:
                found.occupied.add(queue)
        found.occupied.update(map(queue_of, self.files.in_transit.targets))
        return found

    @property
    def files(self) -> JournalEngine:
        assert self._files is not None, "not started"
        return self._files

    # --- queues ---

    def on_register(self, sender: Sender, queue: int, address: Address[ToDiskUser]) -> None:
        if queue not in self._queues.addresses:
            self._add(queue, address)
        # Otherwise the process that sent this has crashed, and the queue's next process has opened the queue before
        # this message arrived. If the old process were registered here, the notice of its end would end the
        # registration of the new one.

    def _add(self, queue: int, address: Address[ToDiskUser]) -> None:
        self._queues.opened(queue, address)
        self._positions[queue] = 0
        self.monitor(address, queue)

    def on_open(self, sender: Sender, queue: int, address: Address[ToDiskUser]) -> None:
        opener = Opener(sender, queue, address)
        if self._openers is not None:
            self._openers.append(opener)
        else:
            self.spawn(self._open(opener))

    async def _open(self, opener: Opener) -> None:
        queue, addresses = opener.queue, self._queues.addresses
        # If the queue's old process has crashed, the notice of its end (`on_down`) arrives behind the last records of
        # that process. Without these records the new process would give numbers again that the old one has given, and
        # the message store would return the bodies that the old one has written there under these numbers.
        await self._has_lost.wait_for(lambda: queue not in addresses)
        found = self._replayed.pop(queue, {})
        if not found and queue in self._queues.absent:
            # The queue was open before. The records that its old process had not flushed are in the files alone.
            found = {level: replayed for level, replayed in (await self._replay()).items() if queue_of(level) == queue}
        self._add(queue, opener.address)
        self.reply(opener.sender, found)
        self._in_transit.opened(queue)

    def on_dormant(self, sender: Sender, queues: dict[int, Address[ToDiskUser]]) -> None:
        for queue in queues:
            self._replayed.pop(queue, None)
        self._queues.sleeping(queues)

    async def on_referred(self, sender: Sender, queues: frozenset[int]) -> dict[int, list[StoredSpan]]:
        found = await self._replay()
        return {level: replayed.stored_spans() for level, replayed in found.items() if queue_of(level) in queues}

    def on_append(
        self, sender: Sender, queue: int, gathered: list[QueueRecords], position: int, is_awaited: bool
    ) -> None:
        address = self._queues.addresses.get(queue)
        if sender is not address and sender != address:
            return  # The queue was forgotten or has another process by now, and this append was in flight.
        if self._positions[queue] + sum([part.records for part in gathered]) != position:
            self._batch_lost(queue)
            return
        self._positions[queue] = position
        self._is_awaited = self._is_awaited or is_awaited
        self._has_urgent = self._has_urgent or not all([part.has_sizes_only for part in gathered])
        files = self.files
        messages = self._waiting[queue].messages if queue in self._waiting else 0
        for part in gathered:
            files.append(
                part.queue,
                part.parts,
                part.records,
                part.next_number,
                part.sizes,
                part.is_joined,
                part.repeated,
                part.lives,
            )
            messages += part.messages
            for taken in part.taken:
                files.in_transit.take(taken)
            for handed in part.handed_over:
                files.in_transit.hand_over(handed, files.position)
        self._waiting[queue] = Appended(position, messages)

    def _batch_lost(self, queue: int) -> None:
        """Have the queue start again, because one of its appends did not arrive.

        A multi-process transport drops messages of a sender that has too many in flight (queue-and-store section 6.10).
        If the journal took later appends, it would report their positions, and the queue would take the missing records
        for durable.
        """
        log.error(
            "the journal of vhost '%s' did not receive all records of queue %x, which starts again",
            self._settings.vhost,
            queue,
        )
        address = self._queues.addresses[queue]
        self._lose(queue)
        self.send(address, to_disk_user.batch_lost("journal"))

    async def on_forget(self, sender: Sender, queue: int) -> bool:
        # The queue supervisor deletes the files of a queue that is down after this answer. A flush for queues that are
        # down must have ended by then: it would create the files again, and record the sizes of deleted segments.
        await self._has_flushed.wait_for(lambda: self._openers is None)
        writer = LogWriter()
        numbers = self.files.numbers
        for level in [level for level in range(queue << LEVEL_BITS, (queue + 1) << LEVEL_BITS) if level in numbers]:
            writer.resume(level, 0)
            writer.delete(level)
        for part in writer.take():
            self.files.append(part.queue, part.parts, part.records, part.next_number, part.sizes)
            self._is_awaited = True
        self._replayed.pop(queue, None)
        self.files.in_transit.forget(queue << LEVEL_BITS)
        self._remove(queue)
        self._queues.deleted(queue)
        return True

    def on_detach(self, sender: Sender, queue: int, returns: dict[int, dict[int, int]]) -> None:
        self._remove(queue)
        self._returns |= returns

    def on_down(self, name: int, reason: ExitReason) -> None:
        self._lose(name)

    def _lose(self, queue: int) -> None:
        """Note that a queue's process has ended or must start again. What it has not flushed is in the files alone."""
        self._remove(queue)
        self._queues.absent.add(queue)

    def _remove(self, queue: int) -> None:
        self.demonitor(queue)
        self._credit.peer_down(queue)
        self._queues.addresses.pop(queue, None)
        self._positions.pop(queue, None)
        # The queue's next process numbers its records from 0, so reports about the old one's records must not reach it.
        self._waiting.pop(queue, None)
        self._in_commit.pop(queue, None)
        self._unreported.pop(queue, None)
        self._has_lost.wake_all()

    def _grant(self, queue: int, amount: int) -> None:
        address = self._queues.addresses.get(queue)
        if address is not None:
            self.send(address, to_disk_user.bump("journal", amount))

    # --- commits ---

    def after_batch(self) -> None:
        if self._files is None:
            return
        if self._unreported:
            self._report()
        if self._files.in_transit.unsent and self._in_transit.send():
            self.request_turn()
        if self._is_committing:
            return
        if self._read_positions and self._read_positions[0] <= self._files.durable:
            # A coroutine that waits to read the files goes before the next batch, because while queues publish there is
            # always a next batch.
            self._is_committing = True
            self._read_positions.popleft()
            self._may_read.wake()
            return
        if self._may_put_off(self._files):
            self._put_off()
            return
        self._is_awaited = self._has_urgent = False
        batch = self._files.take_batch()
        if batch is not None:
            self._is_committing = True
            appended, self._waiting = self._waiting, {}
            self._in_commit = appended
            self.spawn(self._commit(batch, appended))
        elif self._closer is not None and not self._freeing.is_running and not self._unreported:
            self._is_committing = True
            self.spawn(self._finish(self._closer))

    def _report(self) -> None:
        """Report to queues up to which position their records are on the disk. One turn reports to `REPORTED_AT_ONCE`
        of them, beginning with the queue that has waited longest.
        """
        for queue in list(islice(self._unreported, REPORTED_AT_ONCE)):
            self._report_to(queue)
        if self._unreported:
            self.request_turn()

    def _report_to(self, queue: int) -> None:
        """Report to a queue, unless everything of it that is on the disk was reported before."""
        position, messages = self._unreported.pop(queue, _NOTHING)
        address = self._queues.addresses.get(queue)
        if position and address is not None:
            self.send(address, to_disk_user.durable(position))
            if messages:
                self._credit.take(queue, messages)

    def _may_put_off(self, files: JournalEngine) -> bool:
        """Whether there are records to write, fewer than `UNAWAITED_BYTES`, and nobody waits for any of them."""
        is_awaited = self._is_awaited or self._read_positions or self._closer is not None
        return not is_awaited and 0 < files.gathered_bytes < UNAWAITED_BYTES

    def _put_off(self) -> None:
        """Start the timer of the next commit, unless the one that runs fires early enough."""
        seconds = UNAWAITED_SECONDS if self._has_urgent else SIZES_SECONDS
        if self._commit_timer is not None:
            timer, planned = self._commit_timer
            if planned <= seconds:
                return
            self.cancel_timer(timer)
        self._commit_timer = self.start_timer(seconds, COMMIT), seconds

    async def _commit(self, batch: Batch, appended: dict[int, Appended]) -> None:
        began = self.now()
        # A node that stops does not wait for room on the disk: the next start finds the records that are in the files.
        await self._disk_retry.run(self._write, batch, is_given_up=lambda: self._closer is not None)
        files = self.files
        files.committed(batch)
        histograms = self._settings.histograms
        histograms.journal_sync.observe(self.now() - began)
        histograms.journal_messages.observe(sum([queue.messages for queue in appended.values()]))
        unreported = self._unreported
        for queue, (position, messages) in appended.items():
            earlier = unreported.get(queue)
            unreported[queue] = Appended(position, messages if earlier is None else messages + earlier.messages)
        # Before `FileFreeing` asks the queues to flush: a flush takes time, and confirms must not wait for it.
        self._report()
        self._in_commit = {}
        self._is_committing = False
        if files.closed_files or self._freeing.idle_since is None:
            self._freeing.committed()

    def _write(self, batch: Batch) -> None:
        """Write a batch to the disk, and delete the files that are no longer needed. Waits for the disk."""
        files = self.files
        files.commit(batch)
        files.unlink_retired(batch)

    def _want_commit(self) -> None:
        """Begin a commit soon, even if nobody waits for a record."""
        self._is_awaited = True

    def on_timer(self, payload: str) -> None:
        if payload == COMMIT:
            self._commit_timer = None
            self._want_commit()
        elif payload == RETRY:
            self._freeing.retry()
        elif payload == IDLE:
            self._freeing.idle(self._is_committing)

    # --- reading the files ---

    async def _flush_absent(self) -> set[int]:
        """Write the records of queues that are down into their segments, and return those queues.

        A queue that asks to open meanwhile waits, because its segments are being written.
        """
        self._openers = []
        try:
            replayed = await self._replay()
            # While `_replay` waited, a queue may have opened that had asked to open before this flush began.
            queues = set(self._queues.absent)
            of_absent = {level: found for level, found in replayed.items() if queue_of(level) in queues}
            settings = self._settings
            guard = settings.disk.guards.begin(ABSENT)
            flushed = self.run_blocking(flush_absent, guard, settings.disk, settings.segment_entries, of_absent)
            for part in await flushed:
                self.files.append(
                    part.queue, part.parts, part.records, part.next_number, part.sizes, repeated=part.repeated
                )
            return queues
        finally:
            openers, self._openers = self._openers, None
            self._has_flushed.wake_all()
            for opener in openers or ():
                self.spawn(self._open(opener))

    async def _replay(self) -> dict[int, Replayed]:
        """Have everything written that was appended by now, and return what the files have, by level. No commit runs
        while the files are read.
        """
        self._read_positions.append(self.files.position)
        await self._may_read.wait()
        try:
            return await self.run_blocking(self.files.replay)
        finally:
            self._is_committing = False

    # --- the end ---

    def on_close(self, sender: Sender) -> None:
        self._closer = sender
        if self._files is not None:
            self._freeing.end()

    async def _finish(self, closer: Sender) -> None:
        # A queue that is down, or has not detached, has not written all of its messages to segments. So the journal
        # keeps its files, in which the next start finds that queue's records.
        if self._queues.unflushed():
            await self.run_blocking(self.files.close)
        else:
            await self.run_blocking(self.files.close_flushed, self._last_records())
        self.reply(closer, True)
        self.stop()

    def _last_records(self) -> list[QueueRecords]:
        """The records of how often messages were returned, for the journal's last file: segments have no place for
        these counts. The queues' recovery terms do not have them either, because the next start deletes the terms
        before the queues run, and a crash in between would lose the counts.
        """
        writer = LogWriter()
        for level, returns in self._returns.items():
            writer.resume(level, 0)
            writer.returned(level, returns)
        return writer.take()


def _recovered(files: JournalEngine, disk: Disk) -> dict[int, Replayed]:
    """Recover the journal, after ending the jobs of an earlier process of the virtual host. Waits for the disk."""
    disk.guards.end(ABSENT)
    return files.recover()
