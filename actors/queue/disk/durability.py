"""`Durability`: everything about a queue that concerns the disk, on a node with a data directory.

It opens the queue's backing queue, which consists of the variable queues of `DiskLevels`, recovers it after a restart,
and waits for the disk where that is necessary. `DiskLevels` sends what the variable queues write to the journal and the
message stores of the virtual host. Segment files are the queue's own: `Flusher` writes them, `DiskLoader` reads them.

Credit of the journal and the stores bounds what may be in flight to the disk. While the queue has none left, it grants
its channels no credit either.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, starmap
from typing import TYPE_CHECKING

from ....routing.arguments.fair_arguments import FAIR_BY
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.phrases import queue_phrase
from ....routing.rows import QueueRow
from ....runtime.credit import CreditFlow
from ....runtime.errors import ProcessTimeout
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....store.data_dir.vhost_dir import LEVEL_BITS, PERSISTENT, queue_directory
from ....store.deduplication.digest_log import DigestLog
from ....store.deduplication.window import Window
from ....store.messages.lives import Numbering
from ....store.messages.message_ids import batches
from ....store.messages.spans import consecutive
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.levels.level_tags import LEVEL_SHIFT
from ....store.queue.rates import INFINITE
from ....store.queue.variable.disk_queue import DiskQueue
from ....store.queue.variable.queue_recovery import empty_terms, numbering_of
from ...context.node_context import NodeContext
from ...contracts.disk import to_journal, to_message_store
from ...contracts.resources import to_memory_monitor
from ..replica.stage import Stage
from .disk_levels import DiskLevels
from .disk_loader import DiskLoader
from .flusher import Flusher
from .in_threads import delete_files, delete_levels, numbers_on_disk, scan
from .levels import levelled_queue
from .transit import Transit

if TYPE_CHECKING:
    from ....store.journal.replay import Replayed
    from ...contracts.info_items import InfoItems
    from ...contracts.queue import NeededBodies, QueueRecovery, Terms, VhostStorage

log = logging.getLogger("warren.queue")

#: Seconds between two reports to the memory monitor (queue-and-store section 8.3).
REPORT_SECONDS = 1.0

#: Seconds after which a purge is answered even if a full disk has not recorded it: the purge may be what frees space.
SYNC_SECONDS = 5.0

#: Ids that a message store looks up in one turn.
LOOKUP_BATCH = 20_000

#: No variable queues. Every empty set takes 216 bytes and every empty dict 64, so idle queues share them.
_NO_NUMBERS: frozenset[int] = frozenset()
_NO_TERMS: Mapping[int, Terms | None] = {}


class Durability:
    """The disk side of the queue `row`, whose process is `process`, and whose replica is at `stage`."""

    __slots__ = (
        "_context",
        "_credit",
        "_delivered",
        "_has_report_timer",
        "_has_synced",
        "_ids_directory",
        "_is_alone",
        "is_copy",
        "_is_durable",
        "_is_paging",
        "_levels",
        "_phrase",
        "_process",
        "_recover",
        "_recovered",
        "_settings",
        "_digests",
        "client",
        "digest_log",
        "flusher",
        "levels",
        "loader",
        "number",
        "storage",
        "transit",
        "window",
    )

    loader: DiskLoader
    #: The digests that `digest_log` records, of the last messages.
    window: Window

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        row: QueueRow,
        settings: QueueSettings,
        credit: CreditFlow,
        storage: VhostStorage,
        stage: Stage,
    ) -> None:
        self._process = process
        self._context = context
        self._phrase = queue_phrase(row.vhost, row.name)
        self._settings = settings
        self._credit = credit
        self._is_durable = row.durable
        self.storage = storage
        self._levels = DiskLevels(
            process,
            row,
            credit,
            storage,
            has_levels=settings.max_priority is not None or row.arguments.get(FAIR_BY) is not None,
            is_journaled_only=settings.window is not None,
        )
        #: The queue's number in the journal, and its name at the message stores and the memory monitor.
        self.number, self.client = self._levels.number, self._levels.client
        #: The queue's disk sides by priority; one with priority 0 if the queue has no priorities.
        self.levels: Mapping[int, DiskQueue] = self._levels.by_priority
        #: Keeps on the disk the digests by which the queue recognises a message that is published twice. None if the
        #: queue does not deduplicate, or ends with the node and so needs no digests after a restart.
        self.digest_log: DigestLog | None = None
        self._ids_directory = queue_directory(self.number << LEVEL_BITS)
        if row.durable and settings.window is not None:
            self.digest_log = self._new_digest_log(settings.window)
            self.window = Window(settings.window)
        #: The records for `digest_log` that the journal has returned, until the queue opens.
        self._digests: Sequence[bytes] = ()
        self.flusher = Flusher(process, self._phrase, context.alarms, self.levels, stage, self.digest_log)
        #: Dead letters in transit to other queues, and from them. None if the queue ends with the node.
        self.transit = (
            Transit(
                self.number, self._levels.journal, self._levels.persistent, storage.embed_below, process.random_bytes
            )
            if row.durable
            else None
        )
        #: While the queue is recovered: the terms with which each variable queue begins, by number.
        self._recover = _NO_TERMS
        #: The numbers of the variable queues that were recovered right after their scan, because they need no body from
        #: the persistent store.
        self._recovered: frozenset[int] = _NO_NUMBERS
        #: Of a queue with lanes, until it opens: the numbers of the messages that were delivered before its clean stop.
        self._delivered: Sequence[tuple[int, int]] = ()
        self._is_alone = self.is_copy = False
        self._has_synced = Signal(process)
        self._has_report_timer = self._is_paging = False

    # -- opening ------------------------------------------------------------------------------------

    def open_empty(self, numberings: Mapping[int, Numbering]) -> BackingQueue:
        """Open a queue without messages on the disk. `numberings` are those of its priorities, none for a new queue."""
        self._levels.numberings.update(numberings)
        if numberings and self.digest_log is not None:
            # A policy may have set the deduplication window while the queue was dormant. It then begins empty.
            self.digest_log.begin(self._process.random_bytes(7))
        if self._is_durable:
            self._process.send(self.storage.journal, to_journal.register(self.number, self._process.myAddress))
            self._levels.register(PERSISTENT)
        return self._open()

    async def scan(self, recovery: QueueRecovery) -> NeededBodies:
        """The first half of a recovery: find out which messages need a body from the persistent store."""
        process, storage, number = self._process, self.storage, self.number
        self._is_alone, self.is_copy = recovery.is_alone, recovery.is_copy
        # No flush may begin before the queue is open, and the journal may ask for one as soon as it has answered.
        self.flusher.is_busy = True
        replayed = await process.ask(storage.journal, to_journal.open(number, process.myAddress))
        self._levels.replayed = unread = dict(replayed)
        recover: dict[int, Terms | None] = {}
        if number << LEVEL_BITS in replayed:
            self._digests = replayed[number << LEVEL_BITS].digests
        # The terms of a queue with priorities are by level. Every level that the disk, the journal or the terms have is
        # recovered.
        levels = (recovery.terms or {}).get("levels")
        numbers = recovery.on_disk
        if numbers is None:
            numbers = await process.run_brief(numbers_on_disk, storage.disk, number)
        first = number << LEVEL_BITS
        wanted = numbers | replayed.keys() | {first | int(level) for level in levels or ()}
        if recovery.terms is not None and levels is None:
            # A queue that was empty at a clean end may have nothing but its terms, which have its next number.
            wanted |= {first}
        for variable in sorted(wanted):
            terms = recovery.terms if levels is None else levels.get(variable & 255)
            if terms and "delivered" in terms and self._settings.fair_by is not None and variable == first:
                # Lanes deliver out of the order of numbers, so that a watermark would flag too many as redelivered.
                self._delivered = terms["delivered"]
                terms = {**terms, "next_deliver_seq_id": 0}
            # A level with a noted numbering passes over its reserved numbers. A copy must not, because its next number
            # comes from the ring, so all its levels are recovered (`DiskQueue.recover`).
            numbering = None if self.is_copy else _numbering(unread.get(variable), terms, variable in numbers)
            if numbering is None:
                recover[variable] = terms or None
            else:
                # A level without a message costs nothing until it is used: most queues with priorities use two of 256.
                self._levels.numberings[variable & 255] = numbering
                unread.pop(variable, None)
        self._recover = recover
        needed: NeededBodies = {}
        for variable, terms in recover.items():
            level = self._levels.make(variable & 255)
            if variable in numbers:
                # A deduplication window that ended while the queue was down, or just before, may have left files.
                old_ids = self._ids_directory if variable == first and self.digest_log is None else None
                needed[variable] = await process.run_brief(
                    scan, level, terms, self.is_copy, storage.progress, storage.disk, old_ids
                )
                if not needed[variable]:
                    self._recovered |= {variable}
            else:
                # Nothing has to be read, so thousands of such queues start without a hop to another thread each.
                needed[variable] = level.scan(terms, storage.progress)
        return needed

    async def open_recovered(self, needed: NeededBodies) -> BackingQueue:
        """The second half of a recovery, when the persistent store runs.

        If only this queue crashed, its last process may have sent the store writes and removes that never arrived, so
        it is unknown which references of this queue the store has counted. For a body that other queues share, the
        queue takes a new reference: if it later removed a reference that was never counted, another queue would lose
        the body. A reference that was counted before stays until the next start of the store counts all anew.
        """
        process = self._process
        self._levels.is_restart = True
        self._levels.register(PERSISTENT)
        lost: list[int] = []
        for number, terms in self._recover.items():
            if number in self._recovered:
                continue
            missing: list[int] = []
            for spans in batches(needed.get(number, []), LOOKUP_BATCH):
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
            lost += [(number & 255) << LEVEL_SHIFT | each for each in missing]
            level = self.levels[number & 255]
            if missing or level.needs_disk_to_recover:
                await process.run_blocking(level.recover, terms, missing, self.is_copy)
            else:
                level.recover(terms, missing, self.is_copy)
        self._recover = _NO_TERMS
        self._recovered = _NO_NUMBERS
        self._levels.replayed = None
        if self.digest_log is not None:
            self.window = await process.run_blocking(self.digest_log.load, self._digests, lost)
            self._digests = ()
        self.flusher.done()
        backing = self._open()
        if isinstance(backing, FairQueue):
            backing.were_delivered(chain.from_iterable(starmap(range, self._delivered)))
            self._delivered = ()
        return backing

    def _open(self) -> BackingQueue:
        # A queue that has lost its lanes may still have messages in the levels that an earlier version wrote for them.
        if self._settings.is_one_line and not any(self.levels):
            # Not `self.levels.get(0) or ...`: a level without messages is falsy, and would be made again.
            backing: BackingQueue = self.levels[0] if 0 in self.levels else self._levels.make(0)
        else:
            backing = levelled_queue(self._settings, self._levels.make, self.levels)
        self.loader = DiskLoader(self._process, backing, self.storage, self._levels.send)
        return backing

    def use_backing(self, backing: BackingQueue, settings: QueueSettings) -> None:
        """Use another backing queue and settings, because the queue has got lanes or lost them."""
        self.loader.backing = backing
        self._settings = settings

    @property
    def may_expire(self) -> bool:
        """Whether some recovered message has an expiry."""
        return any(level.may_expire for level in self.levels.values())

    # -- each turn ----------------------------------------------------------------------------------

    def send(self) -> None:
        """Send journal and message stores what a slice of a long operation has gathered for them."""
        self._levels.send()

    def after_batch(self) -> None:
        """Send what the turn has gathered, and begin the jobs that it made due."""
        before = self._levels.direct_safe
        self._levels.send()
        if self._levels.direct_safe != before:
            self._has_synced.wake_all()
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

    # -- what is durable ----------------------------------------------------------------------------

    def items(self) -> InfoItems:
        """rabbitmqctl's info items about the disk: messages read and written since the queue's process started."""
        return {"disk_reads": self.loader.messages, "disk_writes": self._levels.written}

    def journal_synced(self, position: int) -> None:
        """Note that the journal has synced this queue's records up to `position`."""
        self._levels.journal_synced(position)
        self._has_synced.wake_all()

    def bodies_stored(self, kind: str, ids: list[bytes]) -> None:
        """Note that a store has reported these bodies as `written` or `ignored`. No id is in both stores."""
        self._levels.bodies_stored(kind, ids)

    async def flush_synced(self) -> bool:
        """Write to segments, and sync, everything that only the journal has.

        Segments have no place for how often a message was returned. So these counts are written to the journal once
        more. That happens before this returns, because the journal then deletes the files that have the counts now.
        """
        is_flushed = await self.flusher.flush_synced()
        for level in self.levels.values():
            level.repeat_returns()
        self._levels.send_all()
        return is_flushed

    async def synced(self) -> None:
        """Return when all that was written so far is synced, in the journal and in segments, but after `SYNC_SECONDS`
        even if the disk has not taken it by then.
        """
        is_safe = self._levels.hurry()
        with suppress(ProcessTimeout):
            await self._has_synced.wait_for(is_safe, SYNC_SECONDS)

    # -- what is remembered of publishes --------------------------------------------------------------

    def begin_digests(self, size: int) -> DigestLog | None:
        """Begin to record the digests of published messages. Returns None for a queue that ends with the node, which
        records none.
        """
        self._levels.set_journaled_only(True)
        if not self._is_durable:
            return None
        self.digest_log = self.flusher.digest_log = self._new_digest_log(size)
        self.digest_log.begin(self._process.random_bytes(7))
        return self.digest_log

    def end_digests(self) -> None:
        """Stop recording the digests of published messages, and delete the recorded ones."""
        self._levels.set_journaled_only(False)
        if self.digest_log is not None:
            self.digest_log = self.flusher.digest_log = None
            self._process.spawn(self.flusher.delete_digests(self.storage.disk, self._ids_directory))

    def _new_digest_log(self, size: int) -> DigestLog:
        disk, level = self.storage.disk, self.number << LEVEL_BITS
        return DigestLog(disk, self._ids_directory, level, self._levels.journal, size)

    # -- memory -------------------------------------------------------------------------------------

    def start_reporting(self) -> None:
        """Report to the memory monitor every `REPORT_SECONDS`, until the queue is idle and its target is lifted."""
        if not self._has_report_timer:
            self._has_report_timer = True
            self._process.start_timer(REPORT_SECONDS, "report")

    def report(self) -> None:
        """Report to the memory monitor how long the messages in memory would last, and page out what exceeds the target
        (queue-and-store section 8.3). If the target changes, the monitor sends the new one.
        """
        levels = self._levels
        duration = levels.ram_duration()
        self._process.send(self.storage.memory_monitor, to_memory_monitor.duration(self.client, duration))
        levels.set_target(levels.target)
        self._has_report_timer = duration != INFINITE or levels.target != INFINITE
        if self._has_report_timer:
            self._process.start_timer(REPORT_SECONDS, "report")

    def set_target(self, seconds: float) -> None:
        self._levels.set_target(seconds)

    def page_out(self) -> None:
        """Move messages to the disk that need not be in memory. The next report applies the target again."""
        self._levels.page_out()
        self.start_reporting()

    def resume_paging(self) -> None:
        """Go on with paging, because the journal or a store has granted credit again."""
        self._levels.page()

    async def _page(self) -> None:
        """Write the next step of messages to the disk to free memory (FC-37)."""
        await self._process.next_turn()
        self._is_paging = False
        self._levels.page_due()

    # -- the end ------------------------------------------------------------------------------------

    async def delete(self) -> None:
        """Remove everything of the queue from the disk. The backing queue has done `delete_and_terminate`."""
        process, storage = self._process, self.storage
        if self.transit is not None:
            self.transit.give_up()
        await self.flusher.release()
        self._levels.send()
        if self._is_durable:
            process.send(storage.journal, to_journal.forget(self.number))
            process.send(storage.persistent, to_message_store.forget(self.client))
        if self._levels.has_transient:
            process.send(storage.transient, to_message_store.forget(self.client))
        await self.flusher.quiet()
        await process.run_blocking(delete_files, list(self.levels.values()))
        if self.digest_log is not None:
            await process.run_blocking(self.digest_log.delete_files)

    async def terminate(self) -> Terms | None:
        """Write everything where the next start looks for it, and return the terms.

        None if the queue is not durable, or if the next start has to scan it because entries of its index are lost.
        """
        await self.flusher.stop()
        if self.transit is None:
            return None
        self.transit.give_up()
        if any(level.awaits_journal_to_end for level in self.levels.values()):
            self.flusher.is_busy = True  # no flush may begin before the last one
            await self.synced()
        await self.flusher.flush_last()
        levels = {priority: empty_terms(numbering) for priority, numbering in self._levels.numberings.items()}
        levels |= {priority: level.terminate() for priority, level in self.levels.items()}
        has_priorities = self._settings.max_priority is not None
        if not has_priorities and len(levels) > 1:
            # An earlier version had a level for each lane. These levels are gone with their last message.
            empty = [number for number, terms in levels.items() if number and numbering_of(terms) is not None]
            levels = {number: terms for number, terms in levels.items() if number not in empty}
            first = self.number << LEVEL_BITS
            await self._process.run_blocking(delete_levels, self.storage.disk, [first | number for number in empty])
        backing = self.loader.backing
        if isinstance(backing, FairQueue):
            levels[0]["delivered"] = [(span.start, span.stop) for span in consecutive(backing.delivered())]
        terms: Terms = {"levels": levels} if has_priorities or levels.keys() != {0} else levels[0]
        # Channels of other nodes may go on acknowledging. If the body of a message that the terms have were removed,
        # the next start would have the message again, and its second acknowledgement could remove a body that another
        # queue shares.
        self._levels.end()
        self._process.send(self.storage.journal, to_journal.detach(self.number, self._returns()))
        await self._process.ask(self.storage.persistent, to_message_store.detach(self.client))
        return None if any(level.has_lost_entries for level in self.levels.values()) else terms

    def _returns(self) -> dict[int, dict[int, int]]:
        """How often messages were returned, by level and number."""
        first = self.number << LEVEL_BITS
        return {first | priority: level.returns for priority, level in self.levels.items() if level.returns}


def _numbering(replayed: Replayed | None, terms: Terms | None, has_directory: bool) -> Numbering | None:
    """The numbering of a level that has no message, as far as that is known without its files; else None."""
    if terms:
        return numbering_of(terms) if replayed is None or replayed.is_empty else None
    if has_directory:
        return None
    return Numbering() if replayed is None else replayed.numbering
