"""What a queue of a node with a data directory has to do with the disk: its backing queue, whom it writes to, and how much it keeps in memory.

A queue's entries go to the vhost's `Journal`, bodies too large for that to its `MessageStore`s; what a turn gathered is sent at its end. Segments are the queue's own: `flusher`
writes and `loader` reads them, each one job at a time in another thread. Without credit from the journal or a store the queue grants none to its channels.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.errors import ProcessTimeout
from ...store.bodies.store_client import Sent, StoreClient
from ...store.data_dir.data_dir import queue_number
from ...store.data_dir.vhost_dir import LEVEL_BITS, PERSISTENT, TRANSIENT, queue_directory
from ...store.disk.disk import Disk
from ...store.index.queue_index import QueueIndex
from ...store.journal.journal_engine import Replayed
from ...store.journal.log_writer import LogWriter
from ...store.messages.message_ids import StoredSpan
from ...store.queue.backing_queue import INFINITE, BackingQueue, Recover
from ...store.queue.placement import EMBED_BELOW
from ...store.queue.priority_queue import PriorityQueue
from ...store.queue.variable_queue import VariableQueue
from ..disk.journal import CREDIT as JOURNAL_CREDIT
from ..disk.message_store import CREDIT as STORE_CREDIT
from .disk_loader import DiskLoader
from .flusher import Flusher

if TYPE_CHECKING:
    from .process import Queue

log = logging.getLogger("warren.queue")

REPORT_SECONDS = 1.0  # between two reports of what is in memory (QS 8.3)
SYNC_SECONDS = 5.0  # a purge is answered then, even if a full disk has not taken it: it frees what it can all the same
MISSING_AT_A_TIME = 20_000  # ids that a store looks up in one turn


@dataclass(frozen=True, slots=True)
class VhostStorage:
    """Where the queues of a vhost keep their messages: addresses of its processes, and its directory."""

    journal: Any
    persistent: Any
    transient: Any
    memory_monitor: Any
    disk: Disk
    segment_entries: int
    embed_below: int = EMBED_BELOW


@dataclass(frozen=True, slots=True)
class Recovery:
    """For a queue that was there before; `terms` as it ended cleanly, None if it did not. `is_alone`: it crashed, and the stores go on."""

    terms: dict[str, Any] | None
    is_alone: bool = False


class Durability:
    """See the module."""

    __slots__ = (
        "_direct",
        "_direct_safe",
        "_durable",
        "_has_report_timer",
        "_is_alone",
        "_is_paging",
        "_is_transient_registered",
        "_journal",
        "_journaled",
        "_persistent",
        "_recover",
        "_replayed",
        "_sync_waiters",
        "_target",
        "_transient",
        "client",
        "flusher",
        "levels",
        "loader",
        "number",
        "queue",
        "storage",
    )

    def __init__(self, queue: Queue, storage: VhostStorage) -> None:
        self.queue = queue
        self.storage = storage
        self.number = queue_number(queue.queue_id)
        self.client = f"{self.number:x}"
        self.levels: dict[int, VariableQueue] = {}
        self.flusher = Flusher(queue, self.levels)
        self.loader = DiskLoader(queue, storage, self.send)
        self._journal = LogWriter()
        self._persistent = StoreClient()
        self._transient = StoreClient()
        self._durable = queue.row.durable
        self._is_transient_registered = False
        self._replayed: dict[int, Replayed] = {}
        self._is_alone = False
        self._sync_waiters: list[tuple[int, Any]] = []
        self._journaled = 0  # everything up to this position is on disk
        self._has_report_timer = self._is_paging = False
        self._target = INFINITE  # seconds of its traffic that may be in memory
        credit = queue.credit
        credit.relate("journal", JOURNAL_CREDIT, "journal")
        credit.relate("segments", JOURNAL_CREDIT, "segments")
        self._direct = self._direct_safe = 0
        for store in (PERSISTENT, TRANSIENT):
            credit.relate(store, STORE_CREDIT, "store")

    # -- opening ------------------------------------------------------------------------------------------------------------------------------

    def open_new(self) -> BackingQueue:
        if self._durable:
            self.queue.send(self.storage.journal, ("register", self.number, self.queue.myAddress))
            self._register(PERSISTENT)
        return self._opened()

    async def scan(self, recovery: Recovery) -> dict[int, list[StoredSpan]]:
        """The first half of recovering: by number, which messages need a body from the persistent store."""
        queue, storage = self.queue, self.storage
        self._is_alone = recovery.is_alone
        self.flusher.is_under_way = True  # until it is open: the journal may want to fold as soon as it has answered
        self._replayed = await queue.ask(storage.journal, ("open", self.number, queue.myAddress))
        self._recover: dict[int, Recover | dict[str, Any]] = {}
        levels = (recovery.terms or {}).get("levels")
        numbers = await queue.run_blocking(_numbers_on_disk, storage.disk, self.number, queue.settings.max_priority)
        for number in sorted(
            numbers | self._replayed.keys() | {self.number << LEVEL_BITS | int(level) for level in levels or ()}
        ):
            terms = recovery.terms if levels is None else levels.get(number & 255)
            self._recover[number] = terms or Recover.NON_CLEAN
        if not self._recover and recovery.terms is not None and levels is None:
            self._recover[self.number << LEVEL_BITS] = recovery.terms
        found = {}
        for number, recover in self._recover.items():
            level = self._make_level(number & 255)
            found[number] = await queue.run_blocking(level.scan, recover, queue.context.progress)
        return found

    async def open_recovered(self, stored: dict[int, list[StoredSpan]]) -> BackingQueue:
        """The second half, when the persistent store has been started.

        Beside a store that goes on nobody knows what of the crashed process's writes has reached it. If another queue has the same message it is there in any case, and to remove a
        reference that was never counted would take that queue's. So a new one is taken for what is shared; one that was counted before stays until the next start counts them all.
        """
        queue = self.queue
        self._register(PERSISTENT)
        for number, recover in self._recover.items():
            missing: list[int] = []
            for spans in _portions(stored.get(number, [])):
                for what, wanted in (
                    ("adopt", [span for span in spans if self._is_alone and span.is_shared]),
                    ("missing", [span for span in spans if not (self._is_alone and span.is_shared)]),
                ):
                    if wanted:
                        missing += await queue.ask(self.storage.persistent, (what, wanted))
            if missing:
                log.warning(
                    "queue '%s' in vhost '%s': %d messages are dropped, for their bodies are not in the message store. A crash leaves those whose bodies had not reached "
                    "the disk yet, so that they were never confirmed, or had gone already, being acknowledged. If files of the message store are damaged or missing, "
                    "confirmed messages may be among them",
                    queue.row.name,
                    queue.row.vhost,
                    len(missing),
                )
            await queue.run_blocking(self.levels[number & 255].init_without, recover, missing)
        self._recover = {}
        self._replayed = {}
        self.flusher.done()
        return self._opened()

    def _opened(self) -> BackingQueue:
        settings = self.queue.settings
        if settings.max_priority is None:
            backing: BackingQueue = (
                self.levels[0] if 0 in self.levels else self._make_level(0)
            )  # one that is empty is false
        else:
            by_priority = PriorityQueue(settings.max_priority, self._make_level)
            by_priority.adopt(dict(self.levels))
            backing = by_priority
        backing.set_queue_mode(settings.queue_mode)
        return backing

    def _make_level(self, priority: int) -> VariableQueue:
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
            clock=self.queue.now,
            reads_ahead=True,
            keeps_numbers=self._durable and self.queue.settings.max_priority is None,
        )
        return level

    def _register(self, store: str) -> None:
        address = self.storage.persistent if store == PERSISTENT else self.storage.transient
        self.queue.send(address, ("register", self.client, self.queue.myAddress))

    @property
    def may_expire(self) -> bool:
        """Something that was recovered has an expiry."""
        return any(level.may_expire for level in self.levels.values())

    # -- each turn ----------------------------------------------------------------------------------------------------------------------------

    def after_batch(self) -> None:
        self.send()
        for level in self.levels.values():
            if level.sub_queues.lost:
                self._say_lost(level)
            work = level.folding
            if (
                work.wants_flush or work.wants_removal or work.take_release() is not None
            ) and not self.flusher.is_under_way:
                self.flusher.begin()
            if level.paging.is_due and not self._is_paging and not self.queue.credit.blocked:
                self._is_paging = True
                self.queue.send(self.queue.myAddress, ("go_on_paging",))

    def _say_lost(self, level: VariableQueue) -> None:
        lost, level.sub_queues.lost = level.sub_queues.lost, 0
        log.error(
            "queue '%s' in vhost '%s': %d messages are lost: what the disk has of them is damaged or gone, as was said when it was found",
            self.queue.row.name,
            self.queue.row.vhost,
            lost,
        )

    def grew(self) -> None:
        """Messages came in: from now on the memory monitor hears of this queue, until it is idle again."""
        if not self._has_report_timer:
            self._has_report_timer = True
            self.queue.start_timer(REPORT_SECONDS, "report")

    def send(self) -> None:
        """What has gathered for journal and stores."""
        queue, storage, credit = self.queue, self.storage, self.queue.credit
        if self._journal.has_gathered:
            gathered = self._journal.take()
            queue.send(storage.journal, ("append", self.number, gathered, self._journal.position))
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
        direct = safe = 0
        for level in self.levels.values():
            unconfirmed = level.unconfirmed
            direct += unconfirmed.direct
            safe += unconfirmed.direct_safe
        if direct > self._direct:
            credit.spend("segments", direct - self._direct)
            self._direct = direct
        if safe > self._direct_safe:
            credit.bump("segments", safe - self._direct_safe)
            self._direct_safe = safe

    def _send_to_store(self, name: str, address: Any, sent: Sent | None) -> None:
        if sent is None:
            return  # what was written has been removed again
        queue = self.queue
        if sent.writes:
            queue.send(address, ("write", self.client, sent.writes))
            queue.credit.spend(name, len(sent.writes))
        if sent.removes:
            queue.send(address, ("remove", self.client, sent.removes))
        for first, last, keep in sent.ranges:
            queue.send(address, ("remove_between", self.client, first, last, keep))

    def durable(self, position: int) -> None:
        self._journaled = position
        if self._sync_waiters:
            waiting, self._sync_waiters = self._sync_waiters, []
            for wanted, sender in waiting:
                self.wait_synced(sender, wanted)
        # A body that was removed before it was sent is answered for as well, and no store comes to say so.
        stored = self._persistent.durable
        for level in self.levels.values():
            level.durable(position, stored)

    async def synced(self) -> None:
        """Return when all that this queue has said to the journal is on disk, or the disk has not taken it for `SYNC_SECONDS`."""
        self.send()
        if self._journal.position > self._journaled:
            with suppress(ProcessTimeout):
                await self.queue.ask(self.queue.myAddress, ("synced", self._journal.position), SYNC_SECONDS)

    def wait_synced(self, sender: Any, position: int) -> None:
        if position > self._journaled:
            self._sync_waiters.append((position, sender))
        else:
            self.queue.reply(sender, None)

    def stored(self, ids: list[bytes]) -> None:
        """A store has answered for the bodies of these; no id is in both."""
        self._transient.answered(ids)
        self._persistent.answered(ids)
        for level in self.levels.values():
            level.durable(self._journaled, self._persistent.durable)

    # -- memory -------------------------------------------------------------------------------------------------------------------------------

    def report(self) -> None:
        """Tell the memory monitor how long what is in memory would last, and take out what is too much (QS 8.3). If it may be another time now, the monitor says so."""
        duration = self.queue.backing.ram_duration()
        self.queue.send(self.storage.memory_monitor, ("duration", self.client, duration))
        self.set_target(self._target)
        self._has_report_timer = duration != INFINITE or self._target != INFINITE
        if self._has_report_timer:
            self.queue.start_timer(REPORT_SECONDS, "report")

    def set_target(self, seconds: float) -> None:
        self._target = seconds
        self.queue.backing.set_ram_duration_target(seconds)

    def go_on_paging(self) -> None:
        self._is_paging = False
        self.queue.backing.handle_info("page")

    # -- the end ------------------------------------------------------------------------------------------------------------------------------

    async def delete(self) -> None:
        """After `delete_and_terminate` of the backing queue."""
        queue, storage = self.queue, self.storage
        await self.flusher.release()
        self.send()
        if self._durable:
            queue.send(storage.journal, ("forget", self.number))
            queue.send(storage.persistent, ("forget", self.client))
        if self._is_transient_registered:
            queue.send(storage.transient, ("forget", self.client))
        await self.flusher.quiet()
        await queue.run_blocking(_delete_files, list(self.levels.values()))

    async def terminate(self) -> dict[str, Any] | None:
        """Everything in its place, and the terms for the next start; None of a queue that does not outlive the node, or that is to be looked through then."""
        queue = self.queue
        await self.flusher.stop()
        if not self._durable:
            return None
        await self.flusher.flush_last()
        terms: dict[str, Any] = queue.backing.terminate()  # there is nothing left to write
        self.send()
        queue.send(self.storage.journal, ("detach", self.number))
        await queue.ask(self.storage.persistent, ("detach", self.client))
        return None if any(level.has_lost_entries for level in self.levels.values()) else terms


def _delete_files(levels: list[VariableQueue]) -> None:
    for level in levels:
        level.folding.delete_files()


def _numbers_on_disk(disk: Disk, queue: int, max_priority: int | None) -> set[int]:
    numbers = (queue << LEVEL_BITS | priority for priority in range((max_priority or 0) + 1))
    return {number for number in numbers if disk.exists(queue_directory(number))}


def _portions(spans: list[StoredSpan]) -> list[list[StoredSpan]]:
    """The spans, cut so that a portion has no more numbers than a store looks up in one turn."""
    portions: list[list[StoredSpan]] = []
    left = 0
    for numbers, base in spans:
        while numbers:
            if not left:
                portions.append([])
                left = MISSING_AT_A_TIME
            piece, numbers = numbers[:left], numbers[left:]
            portions[-1].append(StoredSpan(piece, base))
            left -= len(piece)
    return portions
