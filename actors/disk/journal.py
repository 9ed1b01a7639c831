"""`Journal`: the process that owns the write-ahead journal of a virtual host, one for all its queues.

It is a shell around `store.journal.journal_engine.JournalEngine`, which decides what is written where. This process
receives the records of the queues, commits them, and reports to each queue up to where its records are on the disk
(`durable`).

**Group commit.** A commit begins as soon as something was appended for which somebody waits, and no commit is running;
what arrives meanwhile is for the next one (design section 3). So an idle journal syncs at once, and such a record waits
for two syncs at most. Nobody waits for acknowledgements, nor for publishes whose bodies the message store holds back
because consumers keep up. These records go with the next commit, or have one of their own after `UNAWAITED_SECONDS`:
with bodies of 16 KiB and consumers that keep up, a commit for each batch cost a third of the processor time. A commit
that fails is tried again. A sync that fails ends the process (`JournalBroken`) and with it the virtual host,
because it is then unknown which records are on the disk.

**Freeing files.** When a file is full and closed, every queue is asked to flush its entries to segments
(`flush_synced`), and then the file is deleted. The same happens to a file of more than `IDLE_BYTES` when nobody has
written for a second, so that an idle journal holds little disk. A queue that is down cannot be asked: the journal
itself writes that queue's records from the files into its segments, so that one queue that crashed for good does not
keep the journal of all the others.

**Dead letters in transit.** A dead letter that a queue hands over belongs to the journal from then on
(`store.journal.in_transit`). When its record is on the disk the journal sends it to its targets. A target that is down
gets it when it opens again, from the journal's memory, or from the files if the node was started anew. For all queues
that are down the journal keeps `DOWN_BYTES` of them. Further ones are dropped, as RabbitMQ drops all dead letters for a
queue that is down: a queue may stay down for ever, and memory and disk would be filled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...runtime.contract import Address, Sender
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.data_dir.vhost_dir import JOURNAL, LEVEL_BITS, queue_directory
from ...store.deduplication.ids_file import append_ids, read_ids
from ...store.disk.disk import REFUSALS, Disk
from ...store.index.queue_index import QueueIndex
from ...store.journal.in_transit import HandedOver
from ...store.journal.journal_engine import Batch, JournalEngine
from ...store.journal.log_writer import LogWriter, QueueRecords
from ...store.journal.replay import Replayed
from ...store.messages.message_ids import StoredSpan
from ..context.disk_settings import JournalSettings
from ..context.starting import ToNewJournal
from ..contracts.disk import FoundJournal, to_disk_user
from .disk_retry import RETRY_SECONDS, DiskRetry
from .errors import StorageError

if TYPE_CHECKING:
    from ..contracts.disk import HandedEntry, ToDiskUser

#: Records that nobody awaits are written after at most this many seconds, or as soon as they have this many bytes. So a
#: broker that is killed loses the acknowledgements of its last milliseconds, and clients get these messages again. No
#: confirm is held back for longer than the message store holds it back anyway.
UNAWAITED_SECONDS = 0.005
UNAWAITED_BYTES = 1 << 20

#: Seconds without an append after which the current file is freed, if it has more than `IDLE_BYTES`.
IDLE_SECONDS = 1.0
IDLE_BYTES = 1 << 20

#: The most bytes of dead letters in transit that are written again so that the file of an idle journal can be freed,
#: unless half a file is less. More of them wait for queues that are down, and keep the file until it is full or these
#: queues run: writing them again would make the next file large enough to be freed at once, and so on for ever.
REPEATED_BYTES = IDLE_BYTES // 2

#: Body bytes of dead letters that are kept for queues that are down. These must not keep the journal from freeing a
#: full file, in the place of which it writes them again: half a file at most.
DOWN_BYTES = 16 << 20

log = logging.getLogger("warren.journal")


class Appended(NamedTuple):
    """What a queue has appended for one batch: its position after that, and how many of the records are messages."""

    position: int
    messages: int


class Opener(NamedTuple):
    """A queue that asked for `open` and has to wait."""

    sender: Sender
    queue: int
    address: Address[ToDiskUser]


class Journal(Process):
    """See the module. `queue` is always a queue's number, `level` that of one of its priority levels."""

    contract = ToNewJournal
    #: Records have been appended that are not on the disk.
    work_timers = ("commit",)

    def __init__(self) -> None:
        super().__init__()
        self._addresses: dict[int, Address[ToDiskUser]] = {}
        #: Queues whose processes were not needed since the start: a dead letter creates them.
        self._dormant: dict[int, Address[ToDiskUser]] = {}
        #: By queue and level: what the files had at the start, until the queue opens.
        self._replayed: dict[int, dict[int, Replayed]] = {}
        #: Queues that have no process and may have records in the files.
        self._absent: set[int] = set()
        #: Queues that are down and for which the journal has dropped a dead letter. The log names each of them once.
        self._dropping: set[int] = set()
        #: By queue: the position up to which its process has appended.
        self._positions: dict[int, int] = {}
        #: By queue: what it has appended since the last batch, and what the running commit writes for it.
        self._waiting: dict[int, Appended] = {}
        self._in_commit: dict[int, Appended] = {}
        #: The durable queues that exist, running or not.
        self._queues: set[int] = set()
        #: Dead letters that are sent to their targets when the journal is durable up to a position.
        self._outgoing: deque[tuple[int, HandedOver]] = deque()
        self._files: JournalEngine | None = None
        self._is_committing = False
        #: Whether a process waits for a record that no batch has taken yet.
        self._is_awaited = False
        self._has_commit_timer = False
        #: One position for each coroutine that waits for `_may_read`, in the order in which they wait: before it reads
        #: the files, these must be written up to there. They are read only while no commit runs.
        self._read_positions: deque[int] = deque()
        self._may_read = Signal(self)
        self._is_freeing = self._is_freeing_paused = False
        #: Queues that asked to open while the journal flushes for queues that are down; None at other times.
        self._openers: list[Opener] | None = None
        #: The position when the idle timer was started; None if it is not running.
        self._idle_since: int | None = None
        #: The unanswered `close`. The journal then frees no more files, and ends after the last commit.
        self._closer: Sender | None = None

    async def on_start(self, sender: Sender, settings: JournalSettings) -> FoundJournal:
        self._settings = settings
        #: The credit of the queues: how many messages of each may be in flight to the disk.
        self._credit = CreditFlow(settings.credit, self._grant, key="msg_store_credit_disc_bound")
        self._disk_retry = DiskRetry(self, f"the journal of vhost '{settings.vhost}'", settings.alarms)
        files = JournalEngine(settings.disk, JOURNAL, settings.file_limit)
        try:
            found = await self.run_blocking(files.recover)
        except REFUSALS as error:
            raise StorageError(f"its journal cannot be opened: {error}") from error
        self._files = files
        for level, replayed in found.items():
            if queue_of(level) in settings.queues:
                self._replayed.setdefault(queue_of(level), {})[level] = replayed
        self._absent = set(self._replayed)
        self._queues = set(settings.queues)
        self._forget_deleted(list(files.in_transit.targets))
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
        self._add(queue, address)

    def _add(self, queue: int, address: Address[ToDiskUser]) -> None:
        self._queues.add(queue)
        self._dormant.pop(queue, None)
        self._addresses[queue] = address
        self._positions[queue] = 0
        self._absent.discard(queue)
        self.monitor(address, queue)

    def on_open(self, sender: Sender, queue: int, address: Address[ToDiskUser]) -> None:
        opener = Opener(sender, queue, address)
        if self._openers is not None:
            self._openers.append(opener)
        else:
            self.spawn(self._open(opener))

    async def _open(self, opener: Opener) -> None:
        queue = opener.queue
        if queue in self._addresses:
            # Its old process crashed, and the message about that has not arrived yet.
            self._lose(queue)
        found = self._replayed.pop(queue, {})
        if not found and queue in self._absent:
            # The queue was open before, and only the files have what its old process had not flushed.
            found = {level: replayed for level, replayed in (await self._replay()).items() if queue_of(level) == queue}
        self._add(queue, opener.address)
        self.reply(opener.sender, found)
        # Records that are not durable yet are reported with those of the other queues after their commit.
        self._dropping.discard(queue)
        again = [
            (item.origin, item.contents, item.body_bytes, item.first_id, True, True)
            for item in self.files.in_transit.of(queue << LEVEL_BITS)
            if item.position <= self.files.durable
        ]
        if again:
            self.send(opener.address, to_disk_user.handed_over(again))

    def on_dormant(self, sender: Sender, queues: dict[int, Address[ToDiskUser]]) -> None:
        for queue in queues:
            self._replayed.pop(queue, None)
            self._absent.discard(queue)
        self._dormant.update(queues)

    async def on_referred(self, sender: Sender, queues: frozenset[int]) -> dict[int, list[StoredSpan]]:
        found = await self._replay()
        return {level: replayed.stored_spans() for level, replayed in found.items() if queue_of(level) in queues}

    def on_append(
        self, sender: Sender, queue: int, gathered: list[QueueRecords], position: int, is_awaited: bool
    ) -> None:
        address = self._addresses.get(queue)
        if sender is not address and sender != address:
            return  # The queue was forgotten or has another process by now, and this append was in flight.
        if self._positions[queue] + sum([part.records for part in gathered]) != position:
            self._batch_lost(queue)
            return
        self._positions[queue] = position
        self._is_awaited = self._is_awaited or is_awaited
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
                if handed.is_recorded:
                    files.in_transit.add(handed, files.position)
                    self._forget_deleted(handed.targets)
                    if not self._absent.isdisjoint(map(queue_of, handed.targets)):
                        self._drop_for_down(handed)
                self._outgoing.append((files.position, handed))
        self._waiting[queue] = Appended(position, messages)
        if self._outgoing:
            self._send_outgoing()

    def _forget_deleted(self, targets: Sequence[int]) -> None:
        """Forget dead letters for queues that were deleted before these arrived."""
        for target in targets:
            if queue_of(target) not in self._queues:
                self.files.in_transit.forget(target)

    def _drop_for_down(self, handed: HandedOver) -> None:
        """Drop dead letters for queues that are down if more wait for such queues than the journal keeps."""
        in_transit, absent = self.files.in_transit, self._absent
        if (
            sum(in_transit.bytes_of(target) for target in in_transit.targets if queue_of(target) in absent)
            <= DOWN_BYTES
        ):
            return
        # Recorded as taken, so that they are gone after a crash too, and no file is kept for them.
        writer = LogWriter()
        for target in handed.targets:
            if queue_of(target) in absent:
                writer.take_over(target, handed.first_id, len(handed.contents))
                self._log_dropped(queue_of(target))
        for part in writer.take():
            self.files.append(part.queue, part.parts, part.records, part.next_number, part.sizes, part.is_joined)
            for taken in part.taken:
                in_transit.take(taken)

    def _log_dropped(self, queue: int) -> None:
        """Log once, until the queue opens again, that its dead letters are dropped."""
        if queue not in self._dropping:
            self._dropping.add(queue)
            log.warning(
                "vhost '%s': queue %x is down, and the journal keeps no more dead letters for such queues than %d MiB. "
                "Further ones are dropped until the queue runs again. If it cannot, delete it",
                self._settings.vhost,
                queue,
                DOWN_BYTES >> 20,
            )

    def _batch_lost(self, queue: int) -> None:
        """Have the queue start again: an append of it did not arrive.

        A multi-process transport drops messages of a sender that has too many in flight (queue-and-store section 6.10).
        The positions of later appends would make the missing records durable.
        """
        log.error(
            "the journal of vhost '%s' did not receive all records of queue %x, which starts again",
            self._settings.vhost,
            queue,
        )
        address = self._addresses[queue]
        self._lose(queue)
        self.send(address, to_disk_user.batch_lost("journal"))

    def on_forget(self, sender: Sender, queue: int) -> bool:
        writer = LogWriter()
        numbers = self.files.numbers
        for level in [level for level in range(queue << LEVEL_BITS, (queue + 1) << LEVEL_BITS) if level in numbers]:
            writer.resume(level, 0)
            writer.delete(level)
        for part in writer.take():
            self.files.append(part.queue, part.parts, part.records, part.next_number, part.sizes)
            self._is_awaited = True
        self._replayed.pop(queue, None)
        self._queues.discard(queue)
        self._dormant.pop(queue, None)
        self.files.in_transit.forget(queue << LEVEL_BITS)
        self._remove(queue)
        self._absent.discard(queue)
        return True

    def on_detach(self, sender: Sender, queue: int) -> None:
        self._remove(queue)

    def on_down(self, name: int, reason: ExitReason) -> None:
        self._lose(name)

    def _lose(self, queue: int) -> None:
        """The queue's process has ended or must start again: records that it has not flushed are in the files alone."""
        self._remove(queue)
        self._absent.add(queue)

    def _remove(self, queue: int) -> None:
        self.demonitor(queue)
        self._credit.peer_down(queue)
        self._addresses.pop(queue, None)
        self._positions.pop(queue, None)
        # The queue's next process numbers its records from 0, so acknowledgements of the old one's must not reach it.
        self._waiting.pop(queue, None)
        self._in_commit.pop(queue, None)

    def _grant(self, queue: int, amount: int) -> None:
        address = self._addresses.get(queue)
        if address is not None:
            self.send(address, to_disk_user.bump("journal", amount))

    # --- commits ---

    def after_batch(self) -> None:
        if self._files is None or self._is_committing:
            return
        if self._read_positions and self._read_positions[0] <= self._files.durable:
            # Readers go before the next batch, because while queues publish there is always a next batch.
            self._is_committing = True
            self._read_positions.popleft()
            self._may_read.wake()
            return
        if self._may_put_off(self._files):
            if not self._has_commit_timer:
                self._has_commit_timer = True
                self.start_timer(UNAWAITED_SECONDS, "commit")
            return
        self._is_awaited = False
        batch = self._files.take_batch()
        if batch is not None:
            self._is_committing = True
            appended, self._waiting = self._waiting, {}
            self._in_commit = appended
            self.spawn(self._commit(batch, appended))
        elif self._closer is not None and not self._is_freeing:
            self._is_committing = True
            self.spawn(self._finish(self._closer))

    def _may_put_off(self, files: JournalEngine) -> bool:
        """Whether there are records to write, and nobody waits for any of them."""
        is_awaited = self._is_awaited or self._read_positions or self._closer is not None
        return not is_awaited and 0 < files.gathered_bytes < UNAWAITED_BYTES

    async def _commit(self, batch: Batch, appended: dict[int, Appended]) -> None:
        # A node that stops does not wait for room on the disk: the next start finds what the files have by now.
        await self._disk_retry.run(self._write, batch, is_given_up=lambda: self._closer is not None)
        files = self.files
        files.committed(batch)
        if self._outgoing:
            self._send_outgoing()
        for queue, (position, messages) in appended.items():
            address = self._addresses.get(queue)
            if address is not None:
                self.send(address, to_disk_user.durable(position))
                if messages:
                    self._credit.take(queue, messages)
        self._in_commit = {}
        self._is_committing = False
        if files.closed_files:
            self._begin_freeing(files.current, self._settings.file_limit)
        if self._idle_since is None:
            self._start_idle_timer()

    def _send_outgoing(self) -> None:
        """Send the dead letters whose records are durable to their targets. One that is down gets them later."""
        outgoing, durable = self._outgoing, self.files.durable
        entries: dict[int, list[HandedEntry]] = {}
        while outgoing and outgoing[0][0] <= durable:
            targets, first_id, origin, contents, body_bytes, is_recorded = outgoing.popleft()[1]
            entry = (origin, contents, body_bytes, first_id, is_recorded, False)
            for target in targets:
                entries.setdefault(queue_of(target), []).append(entry)
        for queue, of_queue in entries.items():
            address = self._addresses.get(queue) or self._dormant.get(queue)
            if address is not None:
                self.send(address, to_disk_user.handed_over(of_queue))

    def _write(self, batch: Batch) -> None:
        """Waits for the disk."""
        files = self.files
        files.commit(batch)
        files.unlink_retired(batch)

    def _start_idle_timer(self) -> None:
        self._idle_since = self.files.position
        self.start_timer(IDLE_SECONDS, "idle")

    def on_timer(self, payload: str) -> None:
        if payload == "commit":
            self._has_commit_timer = False
            self._is_awaited = True
        elif payload == "free":
            self._is_freeing_paused = False
        elif payload == "idle":
            was_idle, self._idle_since = self._idle_since == self.files.position, None
            if not was_idle:
                self._start_idle_timer()
            elif self.files.current_bytes > IDLE_BYTES and not self._is_committing:
                self._begin_freeing(self.files.rotate(), REPEATED_BYTES)

    # --- freeing files ---

    def _begin_freeing(self, before: int, repeated: int) -> None:
        """Free the files with numbers lower than `before`, unless more bytes than `repeated` must be written again."""
        if self._is_freeing or self._is_freeing_paused or self._closer is not None:
            return
        if self.files.in_transit_before(before) > min(repeated, self._settings.file_limit // 2):
            self._pause_freeing()
            return
        self._is_freeing = True
        self.spawn(self._free_files(before))

    def _pause_freeing(self) -> None:
        self._is_freeing_paused = True
        self.start_timer(RETRY_SECONDS, "free")

    async def _free_files(self, before: int) -> None:
        """Free the files with numbers lower than `before`, once every queue has flushed its records in them."""
        unflushed = self._addresses.keys() | self._absent
        try:
            # A queue that is down in one round may be open in the next one, and has to be asked then.
            while unflushed:
                running = {
                    queue: self.ask(address, to_disk_user.flush_synced())
                    for queue, address in self._addresses.items()
                    if queue in unflushed
                }
                for answer in running.values():
                    await answer
                unflushed -= running.keys()
                if not unflushed.isdisjoint(self._absent):
                    unflushed -= await self._flush_absent()
                unflushed &= self._addresses.keys() | self._absent
        except (ProcessDown, OSError) as error:
            # The files are still needed: a queue that crashed starts again from them or is down in the next attempt.
            log.debug("files of the journal before %d stay for now: %s", before, error)
            self._pause_freeing()
        else:
            self.files.retire(before)
            self._is_awaited = True
        self._is_freeing = False

    async def _flush_absent(self) -> set[int]:
        """Write the records of queues that are down into their segments, and return those queues.

        A queue that asks to open meanwhile waits, because its segments are being written.
        """
        self._openers = []
        try:
            replayed = await self._replay()
            # `_replay` waited for its turn, and a queue may have opened before that.
            queues = set(self._absent)
            of_absent = {level: found for level, found in replayed.items() if queue_of(level) in queues}
            settings = self._settings
            for part in await self.run_blocking(_flush_to_segments, settings.disk, settings.segment_entries, of_absent):
                self.files.append(
                    part.queue, part.parts, part.records, part.next_number, part.sizes, repeated=part.repeated
                )
            return queues
        finally:
            openers, self._openers = self._openers, None
            for opener in openers or ():
                self.spawn(self._open(opener))

    async def _replay(self) -> dict[int, Replayed]:
        """Write everything appended by now, and return what the files have, by level. No commit runs meanwhile."""
        self._read_positions.append(self.files.position)
        await self._may_read.wait()
        try:
            return await self.run_blocking(self.files.replay)
        finally:
            self._is_committing = False

    # --- the end ---

    def on_close(self, sender: Sender) -> None:
        self._closer = sender

    async def _finish(self, closer: Sender) -> None:
        # A queue that is down, or did not detach, has not flushed: the next start has to find its records here.
        await self.run_blocking(self.files.close if self._absent or self._addresses else self.files.close_flushed)
        self.reply(closer, True)
        self.stop()


def queue_of(level: int) -> int:
    """The number of the queue to which this priority level belongs."""
    return level >> LEVEL_BITS


def priority_of(level: int) -> int:
    """The priority of a priority level."""
    return level & (1 << LEVEL_BITS) - 1


def _flush_to_segments(disk: Disk, segment_entries: int, replayed: dict[int, Replayed]) -> list[QueueRecords]:
    """Returns the records of the segments' sizes and of returned messages. Waits for the disk."""
    writer = LogWriter()
    for level, found in replayed.items():
        writer.resume(level, found.next_number)
        index = QueueIndex(disk, queue_directory(level), level, writer, segment_entries)
        index.scan(found, None)
        index.flush(True)
        if found.returns:
            # A segment cannot have these, so they are recorded once more.
            index.returned(found.returns, True)
        if found.digests:
            files = read_ids(disk, queue_directory(level), level)
            known = set(files.bodies)
            left = [body for body in found.digests if body not in known]
            if left:
                append_ids(disk, queue_directory(level), level, left, max(1, files.last), files.size)
    return writer.take()
