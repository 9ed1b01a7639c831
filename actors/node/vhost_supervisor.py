"""`VhostSupervisor`: the parent of everything that belongs to one virtual host.

With a data directory it brings up what the vhost has on disk, in the order that `store.vhost_dir` describes: journal, stores, queues; after an unclean end the
queues look through their indexes before the persistent store starts, for what they find is what it counts as referred to.

What fails here fails for this virtual host alone: if its queue supervisor, its journal or one of its stores ends, so does this process, and the node closes
the connections of the virtual host and no others (AB-171).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from ...routing.rows import QueueRow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir, queue_number
from ...store.data_dir.vhost_dir import (
    LEVEL_BITS,
    PERSISTENT,
    TRANSIENT,
    FoundVhost,
    index_bytes,
    leave_vhost,
    open_vhost,
    queue_directory,
)
from ...store.disk.disk import REFUSALS, Disk
from ...store.index.queue_index import QueueIndex
from ...store.journal.log_writer import LogWriter
from ...store.messages.message_ids import StoredSpan
from ..disk.errors import StorageError
from ..disk.journal import Journal, JournalSettings
from ..disk.message_store import MessageStore, StoreSettings
from ..queue.durability import VhostStorage
from .context import NodeContext
from .queue_supervisor import QueueSupervisor

log = logging.getLogger("warren.vhost")

IDS_AT_A_TIME = 4096

SAID_FROM = 1.0  # s; a recovery that takes no longer is not worth a line


class VhostSupervisor(Process):
    """
    ('start', context, name, rows)  -> (address of the queue supervisor, rows): the durable queues there were, as they are now; StorageError, and then it ends
    ('terminate',)                  -> None; everything is kept for the next start
    ('await_end',)                  never answered: the asker gets ProcessDown when this process ends
    """

    def __init__(self) -> None:
        super().__init__()
        self.storage: VhostStorage | None = None

    async def on_start(
        self, sender: Any, context: NodeContext, name: str, rows: list[QueueRow]
    ) -> tuple[Any, list[QueueRow]]:
        self.context = context
        self.name = name
        self.queues = self.createActor(QueueSupervisor)
        self.monitor(self.queues, "queues")
        if context.settings.data_dir is None:
            self.send(self.queues, ("start", context, None))
            return self.queues, rows
        try:
            return self.queues, await self._recover(rows)
        except (StorageError, *REFUSALS) as error:
            self.stop("its data directory cannot be used")
            raise StorageError(
                f"vhost '{name}' cannot use '{DataDir(context.settings.data_dir).vhost(name)}': {error}. "
                "Nothing is lost: see to that disk. A broker that runs tries again by itself; one that could not start wants to be started again"
            ) from error

    async def _recover(self, rows: list[QueueRow]) -> list[QueueRow]:
        context, name, progress = self.context, self.name, self.context.progress
        began = self.now()
        progress.enter(name)
        self.path = await self.run_blocking(DataDir(context.settings.data_dir).make_vhost, name)
        disk = context.open_disk(self.path)
        numbers = frozenset(queue_number(row.queue_id) for row in rows)
        found: FoundVhost = await self.run_blocking(
            open_vhost, disk, self.path, numbers, context.limits.segment_entries
        )
        journal = self._core(Journal)
        journaled = await self.ask(
            journal,
            (
                "start",
                JournalSettings(disk, numbers, found.segment_entries, name, context.alarms, context.limits.journal),
            ),
        )
        transient, persistent = self._core(MessageStore, TRANSIENT), self._core(MessageStore, PERSISTENT)
        await self.ask(
            transient,
            (
                "start",
                StoreSettings(
                    TRANSIENT,
                    disk,
                    self.path,
                    context.alarms,
                    is_durable=False,
                    file_limit=context.limits.store,
                    boot_id=context.boot_id,
                ),
            ),
        )
        self.storage = VhostStorage(
            journal,
            persistent,
            transient,
            context.memory_monitor,
            disk,
            found.segment_entries,
            context.limits.embed_below,
        )
        self.send(self.queues, ("start", context, self.storage))
        terms = {}
        is_clean = found.is_clean(journaled)
        if is_clean:
            clients = {f"{queue:x}" for queue in found.terms} if found.is_complete else None
            is_trusted = await self.ask(
                persistent,
                (
                    "start",
                    StoreSettings(
                        PERSISTENT,
                        disk,
                        self.path,
                        context.alarms,
                        clients=clients,
                        references=partial(_referred, disk, found.numbers, found.segment_entries),
                        file_limit=context.limits.store,
                        boot_id=context.boot_id,
                        progress=progress,
                    ),
                ),
            )
            if is_trusted:
                terms = found.terms  # else what the queues counted may not be there (D-7)
        if not terms:
            progress.begin("queue indexes", await self.run_blocking(index_bytes, disk, found.numbers))
        wanted = await self.ask(self.queues, ("recover", rows, terms))
        if not is_clean:
            spans: list[StoredSpan] = [
                span for of_queue in wanted.values() for of_level in of_queue.values() for span in of_level
            ]
            # A queue that cannot be recovered now may be at the next start, and must find its bodies then.
            lost = frozenset(queue_number(row.queue_id) for row in rows if row.queue_id not in wanted)
            if lost:
                spans += chain.from_iterable((await self.ask(journal, ("referred", lost))).values())
            on_disk = frozenset(number for number in found.numbers if number >> LEVEL_BITS in lost)
            await self.ask(
                persistent,
                (
                    "start",
                    StoreSettings(
                        PERSISTENT,
                        disk,
                        self.path,
                        context.alarms,
                        references=partial(_ids_and_referred, spans, disk, on_disk, found.segment_entries),
                        file_limit=context.limits.store,
                        boot_id=context.boot_id,
                        progress=progress,
                    ),
                ),
            )
        opened, messages = await self.ask(self.queues, ("open", wanted))
        if any(row.state != "running" for row in opened):
            # Of a queue that is not the store's client nobody says when it goes, and if it is recovered later it takes its references anew.
            self.send(persistent, ("doubt",))
        progress.leave()
        seconds = self.now() - began
        if seconds > SAID_FROM:
            log.info(
                "vhost '%s': recovered %d messages in %d queues in %.1f s, after %s stop",
                name,
                messages,
                len(opened),
                seconds,
                "a clean" if is_clean else "an unclean",
            )
        recovered: list[QueueRow] = opened
        return recovered

    def _core(self, process: type[Process], name: str = "") -> Any:
        address = self.createActor(process)
        self.monitor(address, name or process.__name__)
        return address

    async def on_terminate(self, sender: Any) -> None:
        if self.storage is not None:
            terms = await self.ask(self.queues, ("terminate",))
            for name, address in (
                (Journal.__name__, self.storage.journal),
                (PERSISTENT, self.storage.persistent),
                (TRANSIENT, self.storage.transient),
            ):
                self.demonitor(name)
                await self.ask(address, ("close",))
            await self.run_blocking(leave_vhost, self.path, terms)

    def on_await_end(self, sender: Any) -> None:
        """See above."""

    def on_down(self, name: Any, reason: ExitReason) -> None:
        self.stop(reason)


def _ids(spans: Iterable[StoredSpan]) -> Iterator[list[bytes]]:
    """The ids of bodies to which queues refer, in portions."""
    ids = (message_id for span in spans for message_id in span.ids())
    while portion := list(islice(ids, IDS_AT_A_TIME)):
        yield portion


def _ids_and_referred(
    spans: list[StoredSpan], disk: Disk, numbers: frozenset[int], segment_entries: int
) -> Iterator[list[bytes]]:
    """What running queues found, and what is in the segments of those that are down. There some may be counted twice, and be kept until it is counted again."""
    yield from _ids(spans)
    yield from _referred(disk, numbers, segment_entries)


def _referred(disk: Disk, numbers: frozenset[int], segment_entries: int) -> Iterator[list[bytes]]:
    """The same, from the segments alone: of queues that ended cleanly, whose store did not."""
    for number in sorted(numbers):
        found = QueueIndex(disk, queue_directory(number), number, LogWriter(), segment_entries).scan(None, None)
        yield from _ids(found.stored if found is not None else [])
