"""`Durability`: everything about a queue that concerns the disk, on a node with a data directory.

It opens the queue's backing queue, a `VariableQueue` (one a priority level), recovers it after a restart, and passes on
what these variable queues write. Entries go to the journal of the virtual host, and bodies too large for the journal to
one of its message stores; both are gathered and sent at the end of the queue's turn. Segment files are the queue's own:
`Flusher` writes them, `DiskLoader` reads them.

Credit of the journal and the stores bounds what may be in flight to the disk. While the queue has none left, it grants
its channels no credit either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ...routing.phrases import queue_phrase
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessTimeout
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.bodies.store_client import Sent, StoreClient
from ...store.data_dir.data_dir import queue_number
from ...store.data_dir.vhost_dir import LEVEL_BITS, PERSISTENT, TRANSIENT, queue_directory
from ...store.index.queue_index import QueueIndex
from ...store.journal.log_writer import LogWriter
from ...store.journal.replay import Replayed
from ...store.messages.message_ids import StoredSpan
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.disk_queue import DiskQueue
from ...store.queue.priority_queue import PriorityQueue
from ...store.queue.rates import INFINITE
from ...store.queue.variable_queue import VariableQueue
from ..disk.contract import to_journal, to_message_store
from ..disk.journal import CREDIT as JOURNAL_CREDIT
from ..disk.message_store import CREDIT as STORE_CREDIT
from ..node.context import NodeContext
from ..resources.contract import to_memory_monitor
from .disk_loader import DiskLoader
from .flusher import Flusher

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ...store.disk.disk import Disk
    from ..disk.contract import ToMessageStore
    from .contract import NeededBodies, QueueRecovery, Terms, VhostStorage

log = logging.getLogger("warren.queue")

#: Seconds between two reports to the memory monitor (queue-and-store section 8.3).
REPORT_SECONDS = 1.0

#: A purge is answered after so many seconds even if a full disk has not taken it: it may free space all the same.
SYNC_SECONDS = 5.0

#: Ids that a message store looks up in one turn.
LOOKUP_BATCH = 20_000


class Durability:
    """The disk side of the queue `row`, whose process is `process`.

    `is_open` is false when the queue is being deleted.
    """

    __slots__ = (
        "_backing",
        "_context",
        "_credit",
        "_direct",
        "_direct_safe",
        "_has_report_timer",
        "_has_synced",
        "_is_alone",
        "_is_durable",
        "_is_paging",
        "_is_transient_registered",
        "_journal",
        "_max_priority",
        "_persistent",
        "_phrase",
        "_process",
        "_recover",
        "_replayed",
        "_synced_to",
        "_target",
        "_transient",
        "client",
        "flusher",
        "levels",
        "loader",
        "number",
        "storage",
    )

    loader: DiskLoader
    _backing: BackingQueue

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        row: QueueRow,
        max_priority: int | None,
        credit: CreditFlow,
        storage: VhostStorage,
        is_open: Callable[[], bool],
    ) -> None:
        self._process = process
        self._context = context
        self._phrase = queue_phrase(row.vhost, row.name)
        self._max_priority = max_priority
        self._credit = credit
        self._is_durable = row.durable
        self.storage = storage
        #: The queue's number in the journal and in the names of its directories.
        self.number = queue_number(row.queue_id)
        #: The queue's name at the message stores and the memory monitor.
        self.client = f"{self.number:x}"
        #: The queue's disk sides by priority; one with priority 0 if the queue has no priorities.
        self.levels: dict[int, DiskQueue] = {}
        self.flusher = Flusher(process, row, context.alarms, self.levels, is_open)
        self._journal = LogWriter(row.durable)
        self._persistent = StoreClient()
        self._transient = StoreClient()
        self._is_transient_registered = False
        # While the queue is recovered: what the journal has of it, and how each variable queue begins, by number.
        self._replayed: dict[int, Replayed] = {}
        self._recover: dict[int, Terms | None] = {}
        self._is_alone = False
        #: The journal has synced this queue's records up to this position.
        self._synced_to = 0
        self._has_synced = Signal(process)
        self._has_report_timer = self._is_paging = False
        #: Seconds of the queue's traffic that may be in memory.
        self._target = INFINITE
        # Messages written to segments directly, without the journal, and those of them that are synced. They count
        # against a credit of their own, from which no process grants.
        self._direct = self._direct_safe = 0
        credit.relate("journal", JOURNAL_CREDIT, "journal")
        credit.relate("segments", JOURNAL_CREDIT, "segments")
        for store in (PERSISTENT, TRANSIENT):
            credit.relate(store, STORE_CREDIT, "store")

    # -- opening ------------------------------------------------------------------------------------

    def open_new(self) -> BackingQueue:
        """Open a queue that has nothing on the disk."""
        if self._is_durable:
            self._process.send(self.storage.journal, to_journal.register(self.number, self._process.myAddress))
            self._register(PERSISTENT)
        return self._open()

    async def scan(self, recovery: QueueRecovery) -> NeededBodies:
        """The first half of a recovery: find out which messages need a body from the persistent store."""
        process, storage = self._process, self.storage
        self._is_alone = recovery.is_alone
        # Until the queue is open: the journal may ask for a flush as soon as it has answered.
        self.flusher.is_busy = True
        self._replayed = await process.ask(storage.journal, to_journal.open(self.number, process.myAddress))
        # The terms of a queue with priorities are by level. Every level that the disk, the journal or the terms have is
        # recovered.
        levels = (recovery.terms or {}).get("levels")
        numbers = recovery.on_disk
        if numbers is None:
            numbers = await process.run_blocking(_numbers_on_disk, storage.disk, self.number, self._max_priority)
        for number in sorted(
            numbers | self._replayed.keys() | {self.number << LEVEL_BITS | int(level) for level in levels or ()}
        ):
            terms = recovery.terms if levels is None else levels.get(number & 255)
            self._recover[number] = terms or None
        if not self._recover and recovery.terms is not None and levels is None:
            # A queue that was empty at a clean end has nothing but its terms, which have its next number.
            self._recover[self.number << LEVEL_BITS] = recovery.terms
        needed: NeededBodies = {}
        for number, terms in self._recover.items():
            level = self._make_level(number & 255)
            if number in numbers:
                needed[number] = await process.run_blocking(level.scan, terms, self._context.progress)
            else:
                # Nothing has to be read, so thousands of such queues start without a hop to another thread each.
                needed[number] = level.scan(terms, self._context.progress)
        return needed

    async def open_recovered(self, needed: NeededBodies) -> BackingQueue:
        """The second half of a recovery, when the persistent store runs.

        If only this queue crashed, its last process may have sent the store writes and removes that never arrived, so
        it is unknown which references of this queue the store has counted. For a body that other queues share, the
        queue takes a new reference: if it later removed a reference that was never counted, another queue would lose
        the body. A reference that was counted before stays until the next start of the store counts all anew.
        """
        process = self._process
        self._register(PERSISTENT)
        for number, terms in self._recover.items():
            missing: list[int] = []
            for spans in _batches(needed.get(number, [])):
                adopted = [span for span in spans if self._is_alone and span.is_shared]
                if adopted:
                    missing += await process.ask(self.storage.persistent, to_message_store.adopt(adopted))
                looked_up = [span for span in spans if not (self._is_alone and span.is_shared)]
                if looked_up:
                    missing += await process.ask(self.storage.persistent, to_message_store.missing(looked_up))
            if missing:
                log.warning(
                    "%s: %d messages are dropped, because their bodies are not in the message store. After a crash "
                    "these are messages that were never confirmed, since their bodies had not reached the disk, or "
                    "messages that were acknowledged. If files of the message store are damaged or missing, confirmed "
                    "messages may be among them",
                    self._phrase,
                    len(missing),
                )
            level = self.levels[number & 255]
            if missing or level.needs_disk_to_recover:
                await process.run_blocking(level.recover, terms, missing)
            else:
                level.recover(terms, missing)
        self._recover = {}
        self._replayed = {}
        self.flusher.done()
        return self._open()

    def _open(self) -> BackingQueue:
        if self._max_priority is None:
            # Not `or`: an empty backing queue is false.
            backing: BackingQueue = self.levels[0] if 0 in self.levels else self._make_level(0)
        else:
            backing = PriorityQueue(self._max_priority, self._make_level, self.levels)
        self._backing = backing
        self.loader = DiskLoader(self._process, backing, self.storage, self.send)
        return backing

    def _make_level(self, priority: int) -> DiskQueue:
        storage = self.storage
        number = self.number << LEVEL_BITS | priority
        replayed = self._replayed.pop(number, None)
        if replayed is not None:
            self._journal.resume(number, replayed.next_number)
        index = QueueIndex(storage.disk, queue_directory(number), number, self._journal, storage.segment_entries)
        level = self.levels[priority] = VariableQueue(
            number,
            index,
            self._persistent,
            self._transient,
            replayed,
            embed_below=storage.embed_below,
            segment_entries=storage.segment_entries,
            clock=self._process.now,
            keeps_numbers=self._is_durable and self._max_priority is None,
        )
        return level

    def _register(self, store: str) -> None:
        address = self.storage.persistent if store == PERSISTENT else self.storage.transient
        self._process.send(address, to_message_store.register(self.client, self._process.myAddress))

    @property
    def may_expire(self) -> bool:
        """Whether some recovered message has an expiry."""
        return any(level.may_expire for level in self.levels.values())

    # -- each turn ----------------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Send what the turn has gathered, and begin the jobs that it made due."""
        self.send()
        for level in self.levels.values():
            lost = level.take_lost()
            if lost:
                log.error(
                    "%s: %d messages are lost, because their data on the disk is damaged or missing; the log has an "
                    "earlier entry for each damage",
                    self._phrase,
                    lost,
                )
            if level.segment_writer.has_work and not self.flusher.is_busy:
                self.flusher.begin()
            if level.is_paging_due and not self._is_paging and not self._credit.blocked:
                self._is_paging = True
                self._process.spawn(self._page())

    def send(self) -> None:
        """Send the journal and the stores what has gathered for them."""
        process, storage, credit = self._process, self.storage, self._credit
        if self._journal.has_gathered:
            gathered = self._journal.take()
            process.send(storage.journal, to_journal.append(self.number, gathered, self._journal.position))
            messages = sum(part.messages for part in gathered)
            if messages:
                credit.spend("journal", messages)
        if self._persistent.has_gathered:
            self._send_to_store(PERSISTENT, storage.persistent, self._persistent.take())
        if self._transient.has_gathered:
            if not self._is_transient_registered:
                self._is_transient_registered = True
                self._register(TRANSIENT)
            self._send_to_store(TRANSIENT, storage.transient, self._transient.take())
        direct = direct_safe = 0
        for level in self.levels.values():
            all_direct, safe_direct = level.direct_counts()
            direct += all_direct
            direct_safe += safe_direct
        if direct > self._direct:
            credit.spend("segments", direct - self._direct)
            self._direct = direct
        if direct_safe > self._direct_safe:
            credit.bump("segments", direct_safe - self._direct_safe)
            self._direct_safe = direct_safe

    def _send_to_store(self, name: str, address: Address[ToMessageStore], sent: Sent | None) -> None:
        if sent is None:
            return  # what was written has been removed again
        process = self._process
        if sent.writes:
            process.send(address, to_message_store.write(self.client, sent.writes))
            self._credit.spend(name, len(sent.writes))
        if sent.removes:
            process.send(address, to_message_store.remove(self.client, sent.removes))
        for first, last, keep in sent.ranges:
            process.send(address, to_message_store.remove_between(self.client, first, last, keep))

    # -- what is durable ----------------------------------------------------------------------------

    def journal_synced(self, position: int) -> None:
        """The journal has synced this queue's records up to `position`."""
        self._synced_to = self._journal.durable = position
        self._has_synced.wake_all()
        # The position of the store is read again: a body that was removed before it was sent counts as durable, and no
        # report of the store moves the position then.
        stored = self._persistent.durable
        for level in self.levels.values():
            level.durable(position, stored)

    def bodies_stored(self, ids: list[bytes]) -> None:
        """One of the stores has reported these bodies; no id is in both stores."""
        self._transient.answered(ids)
        self._persistent.answered(ids)
        for level in self.levels.values():
            level.durable(self._synced_to, self._persistent.durable)

    async def synced(self) -> None:
        """Return when the journal has synced all records made so far, or the disk has not taken them for
        `SYNC_SECONDS`.
        """
        self.send()
        position = self._journal.position
        with suppress(ProcessTimeout):
            await self._has_synced.wait_for(lambda: self._synced_to >= position, SYNC_SECONDS)

    # -- memory -------------------------------------------------------------------------------------

    def start_reporting(self) -> None:
        """Messages came in: report to the memory monitor until the queue is idle again."""
        if not self._has_report_timer:
            self._has_report_timer = True
            self._process.start_timer(REPORT_SECONDS, "report")

    def report(self) -> None:
        """Report to the memory monitor how long the messages in memory would last, and page out what exceeds the target
        (queue-and-store section 8.3). If the target changes, the monitor sends the new one.
        """
        duration = self._backing.ram_duration()
        self._process.send(self.storage.memory_monitor, to_memory_monitor.duration(self.client, duration))
        self.set_target(self._target)
        self._has_report_timer = duration != INFINITE or self._target != INFINITE
        if self._has_report_timer:
            self._process.start_timer(REPORT_SECONDS, "report")

    def set_target(self, seconds: float) -> None:
        self._target = seconds
        self._backing.set_ram_duration_target(seconds)

    async def _page(self) -> None:
        """Write the next step of messages to the disk to free memory (FC-37)."""
        await self._process.next_turn()
        self._is_paging = False
        self._backing.continue_paging()

    # -- the end ------------------------------------------------------------------------------------

    async def delete(self) -> None:
        """Remove everything from the disk; after `delete_and_terminate` of the backing queue."""
        process, storage = self._process, self.storage
        await self.flusher.release()
        self.send()
        if self._is_durable:
            process.send(storage.journal, to_journal.forget(self.number))
            process.send(storage.persistent, to_message_store.forget(self.client))
        if self._is_transient_registered:
            process.send(storage.transient, to_message_store.forget(self.client))
        await self.flusher.quiet()
        await process.run_blocking(_delete_files, list(self.levels.values()))

    async def terminate(self) -> Terms | None:
        """Write everything where the next start looks for it, and return the terms.

        None if the queue is not durable, or if the next start has to scan it because entries of its index are lost.
        """
        await self.flusher.stop()
        if not self._is_durable:
            return None
        await self.flusher.flush_last()
        levels = {priority: level.terminate() for priority, level in self.levels.items()}
        terms: Terms = levels[0] if self._max_priority is None else {"levels": levels}
        self.send()
        self._process.send(self.storage.journal, to_journal.detach(self.number))
        await self._process.ask(self.storage.persistent, to_message_store.detach(self.client))
        return None if any(level.has_lost_entries for level in self.levels.values()) else terms


def _delete_files(levels: list[DiskQueue]) -> None:
    """Waits for the disk."""
    for level in levels:
        level.segment_writer.delete_files()


def _numbers_on_disk(disk: Disk, queue: int, max_priority: int | None) -> frozenset[int]:
    """The numbers of the priority levels of which there is a directory. Waits for the disk."""
    numbers = (queue << LEVEL_BITS | priority for priority in range((max_priority or 0) + 1))
    return frozenset(number for number in numbers if disk.exists(queue_directory(number)))


def _batches(spans: list[StoredSpan]) -> Iterator[list[StoredSpan]]:
    """The spans, cut so that a batch has at most `LOOKUP_BATCH` messages."""
    batch: list[StoredSpan] = []
    left = LOOKUP_BATCH
    for numbers, base in spans:
        while numbers:
            piece, numbers = numbers[:left], numbers[left:]
            batch.append(StoredSpan(piece, base))
            left -= len(piece)
            if not left:
                yield batch
                batch, left = [], LOOKUP_BATCH
    if batch:
        yield batch
