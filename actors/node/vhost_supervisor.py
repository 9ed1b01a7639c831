"""`VhostSupervisor`: the parent of everything that belongs to one virtual host.

With a data directory it recovers what the virtual host has on the disk, in the order that `store.data_dir.vhost_dir`
describes: journal, message stores, queues. After an unclean end the queues read through their indexes before the
persistent store starts, because the store counts the references that they find.

A failure stays within the virtual host: if its queue supervisor, its journal or one of its stores ends, so
does this process, and the node closes the connections of this virtual host and no others (AB-171).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ...routing.rows import QueueRow
from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessDown, ProcessTimeout
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir, queue_number
from ...store.data_dir.vhost_dir import (
    LEVEL_BITS,
    PERSISTENT,
    TRANSIENT,
    DamagedConfig,
    FoundVhost,
    index_bytes,
    leave_vhost,
    open_vhost,
    queue_directory,
)
from ...store.disk.disk import REFUSALS, Disk
from ...store.index.queue_index import QueueIndex
from ...store.journal.log_writer import LogWriter
from ...store.message_index.message_index import Engine
from ...store.messages.message_ids import StoredSpan
from ..context.disk_settings import JournalSettings, StoreSettings
from ..context.node_context import NodeContext
from ..context.starting import (
    ToNewIndexer,
    ToNewJournal,
    ToNewMessageStore,
    ToNewQueueSupervisor,
    ToNewVhost,
    to_new_indexer,
    to_new_journal,
    to_new_message_store,
    to_new_queue_supervisor,
)
from ..contracts.disk import ToJournal, to_journal, to_message_store
from ..contracts.message_index import IndexerSettings, to_indexer
from ..contracts.node import ToQueueSupervisor, to_queue_supervisor
from ..contracts.queue import VhostStorage
from ..disk.errors import StorageError
from ..disk.journal import Journal
from ..disk.message_store import MessageStore
from ..message_index.process import Indexer
from .queue_supervisor import QueueSupervisor

if TYPE_CHECKING:
    from ..contracts.queue import NeededBodies

log = logging.getLogger("warren.vhost")

#: The name under which the indexer is monitored.
INDEXER = "indexer"

#: Seconds that a stop waits until the message index is closed. An index that is not closed loses nothing that was
#: committed.
INDEX_CLOSE_SECONDS = 10.0

#: Ids that a message store counts in one step.
IDS_AT_A_TIME = 4096

#: Seconds. Only a recovery that takes longer is logged.
LOGGED_FROM = 1.0


class VhostSupervisor(Process):
    """See the module."""

    contract = ToNewVhost

    def __init__(self) -> None:
        super().__init__()
        self.storage: VhostStorage | None = None
        #: The settings with which the indexer starts, when the first queue reports to it.
        self._indexer_settings: IndexerSettings | None = None

    async def on_start(
        self, sender: Sender, context: NodeContext, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        self.context = context
        self.name = name
        self.queues: Address[ToNewQueueSupervisor] = self.createActor(QueueSupervisor)
        self.monitor(self.queues, "queues")
        data_dir = context.settings.data_dir
        if data_dir is None:
            await self.ask(self.queues, to_new_queue_supervisor.start(context, None))
            # Nothing is left of earlier queues. These have been declared since the cluster counts this run as up.
            return self.queues, [await self.ask(self.queues, to_queue_supervisor.start_queue(row)) for row in rows]
        try:
            return self.queues, await self._recover(DataDir(data_dir), rows, kept)
        except (StorageError, DamagedConfig, *REFUSALS) as error:
            self.stop("its data directory cannot be used")
            raise StorageError(
                f"vhost '{name}' cannot use '{DataDir(data_dir).vhost(name)}': {error}. No data is lost. "
                "Free space on that disk or repair it. A running broker tries again by itself; otherwise start it again"
            ) from error

    async def _recover(self, data_dir: DataDir, rows: list[QueueRow], kept: frozenset[int]) -> list[QueueRow]:
        """Start all processes from what is on the disk, and return the queues' rows as they are then."""
        context = self.context
        progress = self.progress = context.progress.enter(self.name)
        began = self.now()
        self.path = await self.run_blocking(data_dir.make_vhost, self.name)
        disk = context.open_disk(self.path)
        numbers = kept.union(queue_number(row.queue_id) for row in rows)
        found: FoundVhost = await self.run_blocking(
            open_vhost, disk, self.path, numbers, context.limits.segment_entries
        )
        journal: Address[ToNewJournal] = self._create(Journal)
        settings = JournalSettings(
            disk,
            numbers,
            found.segment_entries,
            self.name,
            context.alarms,
            context.limits.journal,
            context.settings.msg_store_credit_disc_bound,
            context.histograms,
        )
        journaled = await self.ask(journal, to_new_journal.start(settings))
        transient: Address[ToNewMessageStore] = self._create(MessageStore, TRANSIENT)
        persistent: Address[ToNewMessageStore] = self._create(MessageStore, PERSISTENT)
        await self.ask(transient, to_new_message_store.start(self._store_settings(disk, TRANSIENT, is_durable=False)))
        self.storage = VhostStorage(
            journal,
            persistent,
            transient,
            context.memory_monitor,
            disk,
            found.segment_entries,
            context.limits.embed_below,
            context.settings.msg_store_credit_disc_bound,
            progress,
        )
        await self.ask(self.queues, to_new_queue_supervisor.start(context, self.storage))
        index = context.settings
        engine = Engine(index.message_index_engine, index.message_index_slots, index.message_index_entries)
        self._make_indexer(IndexerSettings(self.name, self.path, index.message_index_max_bytes, numbers, engine))
        is_clean = found.is_clean(journaled.levels)
        # A store that does not trust its index may lack bodies that the queues' terms count (D-7), so the terms are not
        # used.
        terms = found.terms if is_clean and await self._start_persistent_store(persistent, disk, found) else {}
        if not terms:
            progress.begin("queue indexes", await self.run_blocking(index_bytes, disk, found.numbers))
        needed = await self.ask(self.queues, to_queue_supervisor.recover(rows, terms, found.numbers, journaled))
        if not is_clean:
            lost = kept.union(queue_number(row.queue_id) for row in rows if row.queue_id not in needed)
            await self._count_references(journal, persistent, disk, found, lost, needed)
        recovered, messages = await self.ask(self.queues, to_queue_supervisor.open(needed))
        if kept or any(row.state != "running" for row in recovered):
            # A queue that was not recovered is not a client of the store. If it is deleted, the store is not notified
            # and keeps its bodies. If it is recovered later, it adds its references a second time. In both cases the
            # store counts too many references, so the next start must count them anew.
            self.send(persistent, to_message_store.doubt())
        progress.leave()
        seconds = self.now() - began
        if seconds > LOGGED_FROM:
            log.info(
                "vhost '%s': recovered %d messages in %d queues in %.1f s, after %s stop",
                self.name,
                messages,
                len(recovered),
                seconds,
                "a clean" if is_clean else "an unclean",
            )
        return recovered

    async def _start_persistent_store(self, store: Address[ToNewMessageStore], disk: Disk, found: FoundVhost) -> bool:
        """Start the persistent store after a clean end, and return whether it trusts its index."""
        settings = self._store_settings(
            disk,
            PERSISTENT,
            clients={f"{queue:x}" for queue in found.terms} if found.is_complete else None,
            references=partial(_ids_in_segments, disk, found.numbers, found.segment_entries),
        )
        return await self.ask(store, to_new_message_store.start(settings))

    async def _count_references(
        self,
        journal: Address[ToJournal],
        store: Address[ToNewMessageStore],
        disk: Disk,
        found: FoundVhost,
        lost: frozenset[int],
        needed: dict[str, NeededBodies],
    ) -> None:
        """Start the persistent store after an unclean end: it counts anew the references that queues found in their
        indexes, and those of the queues with the numbers `lost`, which have no process.
        """
        spans = [span for of_queue in needed.values() for of_level in of_queue.values() for span in of_level]
        # A queue that is not recovered now may be later, and must find its bodies then.
        if lost:
            spans += chain.from_iterable((await self.ask(journal, to_journal.referred(lost))).values())
        on_disk = frozenset(level for level in found.numbers if level >> LEVEL_BITS in lost)
        references = partial(_ids_in_spans_and_segments, spans, disk, on_disk, found.segment_entries)
        settings = self._store_settings(disk, PERSISTENT, references=references)
        await self.ask(store, to_new_message_store.start(settings))

    def _store_settings(
        self,
        disk: Disk,
        name: str,
        is_durable: bool = True,
        clients: Collection[str] | None = None,
        references: Callable[[], Iterable[Sequence[bytes]]] | None = None,
    ) -> StoreSettings:
        context = self.context
        settings = StoreSettings(
            name,
            disk,
            self.path,
            context.alarms,
            is_durable,
            clients,
            file_limit=context.limits.store,
            boot_id=context.boot_id,
            credit=context.settings.msg_store_credit_disc_bound,
        )
        return settings if references is None else replace(settings, references=references, progress=self.progress)

    def _create(self, process: type[Process], name: str = "") -> Address[Any]:
        address = self.createActor(process)
        self.monitor(address, name or process.__name__)
        return address

    async def on_end_queues(self, sender: Sender) -> bool:
        return await self.ask(self.queues, to_queue_supervisor.end_queues())

    async def on_terminate(self, sender: Sender) -> None:
        storage = self.storage
        if storage is None:
            return
        terms = await self.ask(self.queues, to_queue_supervisor.terminate())
        await self._close_index()
        self.demonitor(Journal.__name__)
        await self.ask(storage.journal, to_journal.close())
        for name, store in ((PERSISTENT, storage.persistent), (TRANSIENT, storage.transient)):
            self.demonitor(name)
            await self.ask(store, to_message_store.close())
        await self.run_blocking(leave_vhost, self.path, terms)

    def _make_indexer(self, settings: IndexerSettings) -> None:
        """Make the address of an indexer, whose process is created by the first message to it."""
        self._indexer_settings = settings
        self._indexer: Address[ToNewIndexer] = self.create_dormant(Indexer, to_new_indexer.start(settings), INDEXER)
        self.context.index_places.enter(self.name, self._indexer)

    async def _close_index(self) -> None:
        self._indexer_settings = None
        self.context.index_places.leave(self.name)
        if not self.is_dormant(self._indexer):
            # A full disk may keep the index from closing. Then the next start finds what was committed last.
            with suppress(ProcessDown, ProcessTimeout):
                await self.ask(self._indexer, to_indexer.close(), INDEX_CLOSE_SECONDS)

    def on_down(self, name: str, reason: ExitReason) -> None:
        if name != INDEXER:
            self.stop(reason)
        elif self._indexer_settings is not None:
            log.error(
                "the message index of vhost '%s' ended with %s. No message is lost or held back: it is opened again, "
                "and the queues report what it lacks",
                self.name,
                reason,
            )
            self._make_indexer(self._indexer_settings)

    def on_exit(self) -> None:
        if hasattr(self, "name"):
            self.context.index_places.leave(self.name)


def _ids(spans: Iterable[StoredSpan]) -> Iterator[list[bytes]]:
    """The ids of the bodies in `spans`, `IDS_AT_A_TIME` at a time."""
    ids = (message_id for span in spans for message_id in span.ids())
    while some := list(islice(ids, IDS_AT_A_TIME)):
        yield some


def _ids_in_spans_and_segments(
    spans: list[StoredSpan], disk: Disk, levels: frozenset[int], segment_entries: int
) -> Iterator[list[bytes]]:
    """Ids that running queues found, and those in the segments of queues that are down. Waits for the disk.

    The journal and the segments of a queue that is down may both name a body. It is then counted twice, and stays until
    it is counted again.
    """
    yield from _ids(spans)
    yield from _ids_in_segments(disk, levels, segment_entries)


def _ids_in_segments(disk: Disk, levels: frozenset[int], segment_entries: int) -> Iterator[list[bytes]]:
    """Ids in the segments of these levels, as queues left them that ended cleanly. Waits for the disk."""
    for level in sorted(levels):
        found = QueueIndex(disk, queue_directory(level), level, LogWriter(), segment_entries).scan(None, None)
        yield from _ids(found.stored if found is not None else [])
