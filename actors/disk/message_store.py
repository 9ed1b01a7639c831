"""`MessageStore`: the process that owns the bodies too large for the queue indexes of a virtual host.

There are two of them, one for persistent and one for transient messages. Each is a shell around
`store.bodies.store_engine.StoreEngine`, which decides what is written where. This process receives the requests of the
queues, runs the engine's jobs in other threads, and reports to each queue which of its bodies are on the disk
(`stored`).

**Group commit.** A sync starts as soon as something was written and no sync is running; what is written meanwhile is
for the next one. So an idle store syncs at once, a busy one all the time, and a write waits for two syncs at most. A
sync waits a little (`DWELL_SECONDS`) only where consumers keep up, so that most bodies are acknowledged before they
would be on the disk: a body acknowledged meanwhile costs the disk nothing, and its publish is confirmed by the
acknowledgement. Such a sync writes only the bodies that have waited for `ROUND_STEPS` steps; it writes all as soon as a
step brings no acknowledgement. Large bodies wait no longer than it takes to write them, so a wait in vain at most
doubles the time until a confirm. Bodies of dead letters do not wait, because their queue takes them only when they are
on the disk.

On a full disk nothing is confirmed, and the sync is tried again. A sync that fails otherwise ends the process
(`StoreBroken`) and with it the virtual host, whose next start recovers.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import TYPE_CHECKING

from ...runtime.contract import Address, Sender
from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.bodies.garbage_collection import GcJob
from ...store.bodies.read_job import BodyReadJob
from ...store.bodies.store_engine import StoreEngine
from ...store.bodies.sync_job import SyncJob
from ...store.disk.disk import REFUSALS
from ...store.messages.message_ids import StoredSpan
from ..context.disk_settings import StoreSettings
from ..context.starting import ToNewMessageStore
from ..contracts.disk import to_disk_user
from .disk_retry import RETRY_SECONDS, DiskRetry
from .errors import StorageError

if TYPE_CHECKING:
    from ..contracts.disk import ToDiskUser

#: Bodies of a purged or deleted queue that one turn removes; more would hold up the other queues.
REMOVED_AT_A_TIME = 4096

#: A sync waits while consumers keep up: while more than `DWELL_SHARE` of the earlier bodies were acknowledged before
#: their sync. It waits in steps of `DWELL_SECONDS`, as long as each step brings acknowledgements, and while fewer than
#: `DWELL_BYTES` bytes wait. After each `ROUND_STEPS` steps it takes the bodies that have waited for that long at least,
#: or came before the end of the last sync. It leaves later ones, most of which are acknowledged soon. So a body waits
#: for at most twice as many steps, which take 20 ms and leave 5 of the 25 ms of QS-19 to the disk.
DWELL_SHARE = 0.5
DWELL_SECONDS = 0.002
ROUND_STEPS = 5
DWELL_BYTES = 16 << 20

#: Bodies are large if their mean size in bytes is at least `DWELL_BODY_SIZE`. A disk takes about one step to write
#: `BYTES_IN_STEP` bytes of them. A sync of large bodies waits for as many steps as their write takes, and
#: then writes all of them.
DWELL_BODY_SIZE = 512 * 1024
BYTES_IN_STEP = 512 * 1024

#: Where syncs do not wait, bodies wait only while the sync before runs. That time is so short that even consumers that
#: keep up may not acknowledge most of the bodies within it. So where they have acknowledged more than `TRIAL_SHARE` of
#: them, one sync in `TRIAL_EVERY` waits all the same, to find out whether waiting pays.
TRIAL_SHARE = 0.1
TRIAL_EVERY = 8

log = logging.getLogger("warren.message_store")


class MessageStore(Process):
    """See the module."""

    contract = ToNewMessageStore
    #: While this timer runs, confirms wait for a sync that is put off, so the loop counts as busy.
    work_timers = ("dwelt",)

    def __init__(self) -> None:
        super().__init__()
        self._engine: StoreEngine | None = None
        self._addresses: dict[str, Address[ToDiskUser]] = {}
        self._is_open = False
        self._is_syncing = self._is_collecting = False
        #: Whether the next sync does not wait for acknowledgements.
        self._is_urgent = False
        #: Steps that the next sync has waited for; 0 if it is not waiting.
        self._dwell_steps = 0
        #: Syncs since the last one that waited.
        self._prompt_syncs = 0
        self._is_collection_paused = False
        self._reading = self._removals = 0
        self._closers: list[Sender] = []

    async def on_start(self, sender: Sender, settings: StoreSettings) -> bool:
        self._name = settings.name
        self._credit = CreditFlow(settings.credit, self._grant, key="msg_store_credit_disc_bound")
        self._disk_retry = DiskRetry(self, f"{settings.name} in {settings.root}", settings.alarms)
        engine = StoreEngine(
            settings.disk,
            settings.name,
            f"{settings.root}/{settings.name}/index",
            settings.is_durable,
            settings.file_limit,
            settings.boot_id,
        )
        try:
            is_clean = await self.run_blocking(engine.recover, settings.clients, settings.references, settings.progress)
        except BaseException as error:
            # This process may be stopped while its recovery goes on in a thread. The thread then has to leave the files
            # to the next process.
            engine.abandon()
            if isinstance(error, REFUSALS):
                raise StorageError(f"{settings.name} cannot be opened: {error}") from error
            raise
        self._engine = engine
        self._is_open = True
        return is_clean

    @property
    def engine(self) -> StoreEngine:
        assert self._engine is not None, "not started"
        return self._engine

    # --- clients ---

    def on_register(
        self, sender: Sender, client: str, address: Address[ToDiskUser] | None, is_restart: bool = False
    ) -> None:
        if client in self._addresses and not is_restart:
            # The process that sent this has crashed, and the next one has registered before this message arrived. If
            # the old process were registered here, the notice of its end would end the registration of the new one.
            return
        self.engine.register(client, is_notified=address is not None)
        if address is not None:
            self._addresses[client] = address
            self.monitor(address, client)

    def on_write(
        self, sender: Sender, client: str, messages: list[tuple[bytes, bytes]], is_urgent: bool = False
    ) -> None:
        self._credit.take(client, len(messages))
        self._is_urgent = self._is_urgent or is_urgent
        # A write that comes while the store closes is dropped, and never confirmed.
        if self._engine is not None:
            self._engine.write(client, messages)

    def on_remove(self, sender: Sender, client: str, ids: list[bytes]) -> None:
        if self._engine is not None:
            self._engine.remove(client, ids)

    def on_remove_between(self, sender: Sender, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        if self._engine is None:
            return
        after = self._engine.remove_between(client, first, last, keep, REMOVED_AT_A_TIME)
        if after is not None:
            self.spawn(self._remove_rest(client, after, last, keep))

    async def _remove_rest(self, client: str, first: bytes | None, last: bytes, keep: Container[bytes]) -> None:
        self._removals += 1
        while first is not None:
            await self.next_turn()
            first = self.engine.remove_between(client, first, last, keep, REMOVED_AT_A_TIME)
        self._removals -= 1
        self._close_when_quiet()

    async def on_empty(self, sender: Sender, first: bytes | None, last: bytes) -> bool:
        while first is not None and self._engine is not None:
            first = self._engine.forget_between(first, last, REMOVED_AT_A_TIME)
            await self.next_turn()
        return True

    def on_missing(self, sender: Sender, spans: list[StoredSpan]) -> list[int]:
        contains = self.engine.contains
        return [
            number for span in spans for number, message_id in zip(span.numbers, span.ids()) if not contains(message_id)
        ]

    def on_adopt(self, sender: Sender, spans: list[StoredSpan]) -> list[int]:
        numbers = {message_id: number for span in spans for number, message_id in zip(span.numbers, span.ids())}
        return [numbers[message_id] for message_id in self.engine.adopt(numbers)]

    async def on_read_many(self, sender: Sender, ids: list[bytes]) -> list[bytes | None]:
        job: BodyReadJob = self.engine.read(ids)
        if not job.is_complete:
            self._reading += 1
            await self.run_blocking(job.run)
            self._reading -= 1
        self.engine.finish_read(job)
        self._log_damaged()
        self._close_when_quiet()
        return job.messages

    def on_forget(self, sender: Sender, client: str) -> None:
        if self._engine is not None:
            self._engine.forget(client)
        self._leave(client)

    def on_doubt(self, sender: Sender) -> None:
        self.engine.doubt()

    def on_detach(self, sender: Sender, client: str) -> bool:
        self.engine.detach(client)
        return True

    def on_down(self, name: str, reason: ExitReason) -> None:
        if self._engine is not None:
            self._engine.lost(name)
        self._leave(name)

    def on_dormant(self, sender: Sender, clients: list[str]) -> bool:
        for client in clients:
            self.engine.register(client, is_notified=False)
            self.engine.detach(client)
        return True

    def _leave(self, client: str) -> None:
        self.demonitor(client)
        self._credit.peer_down(client)
        self._addresses.pop(client, None)

    def _grant(self, client: str, amount: int) -> None:
        if client in self._addresses:
            self.send(self._addresses[client], to_disk_user.bump(self._name, amount))

    # --- work in other threads ---

    def after_batch(self) -> None:
        if self._is_open:
            self._report(self.engine)
            self._collect()
            self._sync()

    def _report(self, engine: StoreEngine) -> None:
        for client, kind, ids in engine.take_reports():
            if client in self._addresses:
                self.send(self._addresses[client], to_disk_user.stored(kind, ids))

    def _sync(self) -> None:
        if self._is_syncing or not self._is_open or self._dwell_steps and not self._is_urgent:
            return
        share = self.engine.waiting.spared_share
        is_due = share > DWELL_SHARE or share > TRIAL_SHARE and self._prompt_syncs >= TRIAL_EVERY
        if is_due and not self._is_urgent and self._may_dwell(1):
            self._dwell(1)
        else:
            self._sync_now()

    def _may_dwell(self, step: int) -> bool:
        """Whether there are bodies that wait for a sync, and they may wait for this step too."""
        size = self.engine.waiting.size
        if not 0 < size < DWELL_BYTES:
            return False
        return not self._has_large_bodies or step <= min(2 * ROUND_STEPS, size // BYTES_IN_STEP)

    @property
    def _has_large_bodies(self) -> bool:
        return self.engine.waiting.size >= DWELL_BODY_SIZE * len(self.engine.waiting)

    def _dwell(self, step: int) -> None:
        self._dwell_steps = step
        self._prompt_syncs = 0
        self._spared_before = self.engine.waiting.spared
        self.start_timer(DWELL_SECONDS, "dwelt")

    def _dwelt(self) -> None:
        step, self._dwell_steps = self._dwell_steps, 0
        if self._is_syncing or not self._is_open:
            return
        if self.engine.waiting.spared <= self._spared_before or not self._may_dwell(step + 1):
            self._sync_now()
        elif step < ROUND_STEPS or self._has_large_bodies:
            self._dwell(step + 1)
        else:
            self._sync_marked()

    def _sync_now(self) -> None:
        self._is_urgent = False
        self._begin(self.engine.take_sync())

    def _sync_marked(self) -> None:
        """Sync the bodies that have waited for `ROUND_STEPS` steps at least. If there are none, wait on."""
        job = self.engine.take_marked()
        if job is None:
            self.engine.waiting.mark()
            self._dwell(1)
        else:
            self._begin(job)

    def _begin(self, job: SyncJob | None) -> None:
        if job is not None:
            self._is_syncing = True
            self._prompt_syncs += 1
            self.spawn(self._run_sync(job))

    async def _run_sync(self, job: SyncJob) -> None:
        # A node that stops does not wait for room on the disk: the next start finds what the files have by now.
        await self._disk_retry.run(job.run, is_given_up=lambda: bool(self._closers))
        self.engine.finish_sync(job)
        # What has come during this sync is written by the next one, so that it waits for two syncs at most.
        self.engine.waiting.mark()
        self._report(self.engine)
        self._collect()
        self._is_syncing = False
        self._sync()
        self._close_when_quiet()

    def _collect(self) -> None:
        if not self._is_collecting and not self._is_collection_paused and self._is_open:
            job = self.engine.take_gc()
            if job is not None:
                self._is_collecting = True
                self.spawn(self._run_gc(job))

    async def _run_gc(self, job: GcJob) -> None:
        try:
            await self.run_blocking(job.run)
        except OSError as error:
            log.warning("%s: garbage in the files %s stays for now: %s", self._name, job.files, error)
            self.engine.fail_gc(job)
            self._is_collection_paused = True
            self.start_timer(RETRY_SECONDS, "collect")
        else:
            self.engine.finish_gc(job)
            self._log_damaged()
        self._is_collecting = False
        self._sync()
        self._collect()
        self._close_when_quiet()

    def on_timer(self, payload: str) -> None:
        if payload == "dwelt":
            self._dwelt()
        elif payload == "collect":
            self._is_collection_paused = False

    def _log_damaged(self) -> None:
        for message_id in self.engine.damaged:
            log.error("%s: message %s is damaged on the disk and lost", self._name, message_id.hex())
        self.engine.damaged.clear()

    # --- the end ---

    def on_close(self, sender: Sender) -> None:
        self._is_open = False
        self._closers.append(sender)
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        if self._closers and not (self._is_syncing or self._is_collecting or self._reading or self._removals):
            closers, self._closers = self._closers, []
            engine, self._engine = self.engine, None
            self.spawn(self._finish(engine, closers))

    async def _finish(self, engine: StoreEngine, closers: list[Sender]) -> None:
        await self.run_blocking(engine.close)
        self._report(engine)
        for closer in closers:
            self.reply(closer, True)
        self.stop()

    def on_exit(self) -> None:
        if self._engine is not None:
            self._engine.abandon()
