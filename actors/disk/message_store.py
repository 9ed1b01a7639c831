"""`MessageStore`: the process that owns the messages too large for the queue indexes of a vhost; one for persistent and one for transient ones.

It is a shell around `store.store_engine.StoreEngine`, which decides; here is who asks, who is told, and which thread works.

| message | from | meaning |
|---|---|---|
| ask `('start', settings)` | supervisor | recover; True if the store was left cleanly, by just the clients named |
| `('register', client, address)` | queue | it will write; `address` hears `stored` and `bump`; None: it wants to hear nothing |
| `('write', client, [(id, message)])` | queue | one reference more for each; a credit for each |
| `('remove', client, [id])` | queue | one reference less for each |
| `('remove_between', client, first, last, keep)` | queue | the same for all with ids from `first` to `last` but those to `keep` |
| ask `('read', id)`, ask `('read_many', [id])` | queue | the message or None; a list of such |
| ask `('contains', id)` | queue | whether anybody refers to it |
| ask `('missing', spans)` | queue | of these `StoredSpan`s the numbers to whose ids nobody refers |
| ask `('adopt', spans)` | queue | the same, and one reference more for each of the others |
| ask `('empty', first, last)` | supervisor | the ids from `first` to `last` are to be given anew: nothing may be left of them |
| `('forget', client)` | queue | it is gone and has removed what it wrote |
| ask `('detach', client)` | queue | all it sent before has been taken; its messages stay. Its end after this is no accident |
| `('doubt',)` | supervisor | what it was told of references may be too much |
| ask `('clients',)` | anybody | the clients that have registered and were neither forgotten nor lost |
| ask `('close',)` | supervisor | no more work; leave cleanly, then end |
| `('stored', kind, [id])` | to a queue | `written`: durable; `ignored`: removed before it was. Each write is answered by one of them (QS-30) |
| `('bump', store, amount)` | to a queue | credit, 800 after each 800 of 4000 |

Group commit: a sync starts as soon as something was written and none is under way; what is written meanwhile is the next one's. So an idle store syncs at
once, a busy one with every sync it can, and a write waits for two syncs at most. Only where consumers keep up, so that most of what is written is acked before it
would be on disk, does a sync wait a little (`DWELL_SECONDS`): what is acked meanwhile costs no disk at all, and is confirmed by the ack.

A full disk confirms nothing and is tried again; a sync that failed ends the process (`StoreBroken`), and with it the vhost, whose next start recovers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.bodies.garbage_collection import GcJob
from ...store.bodies.read_job import BodyReadJob
from ...store.bodies.store_engine import FILE_LIMIT, StoreEngine
from ...store.bodies.sync_job import SyncJob
from ...store.disk.disk import REFUSALS, Disk
from ...store.disk.progress import NO_PROGRESS, Progress
from ...store.messages.message_ids import StoredSpan
from .disk_retry import RETRY_SECONDS, DiskRetry
from .errors import StorageError

CREDIT = (4000, 800)
"""`msg_store_credit_disc_bound`: messages."""

REMOVED_AT_A_TIME = 4096
"""Messages that one turn removes of a queue that was purged or deleted."""
DWELL_SHARE = 0.5
DWELL_SECONDS = 0.002
DWELL_STEPS = 10
DWELL_BYTES = 8 << 20
"""When consumers keep up, most messages are acked before they would be on disk. Then a sync waits in steps for as long as acks come in, but for no more steps or bytes than these,
and writes what is left: 20 ms leave 5 of the 25 to the disk."""

log = logging.getLogger("warren.message_store")


def no_references() -> Iterable[Sequence[bytes]]:
    """Of a vhost without durable queues."""
    return ()


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a `MessageStore` is started with.

    name         'msg_store_persistent' or 'msg_store_transient': the folder on `disk`, and the store's name in `bump`
    disk         the vhost's directory
    root         the same, of the operating system, for the index alone
    alarms       address of that process, or None
    clients      the queues whose own state was left cleanly, None if not all were
    references   a module's function or a partial of one, called in another thread if references must be counted: the ids that queue indexes name, in portions
    boot_id      as of `StoreEngine`
    progress     hears of files that have to be scanned
    """

    name: str
    disk: Disk
    root: str
    alarms: Any = None
    is_durable: bool = True
    clients: Collection[str] | None = None
    references: Callable[[], Iterable[Sequence[bytes]]] = no_references
    file_limit: int = FILE_LIMIT
    boot_id: str | None = None
    progress: Progress = NO_PROGRESS


class MessageStore(Process):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._engine: StoreEngine | None = None
        self._addresses: dict[str, Any] = {}
        self._credit = CreditFlow(CREDIT, self._grant, key="msg_store_credit_disc_bound")
        self._is_open = False
        self._is_syncing = self._is_collecting = False
        self._dwell_steps = 0  # that the next sync has waited for, 0 if it does not wait
        self._is_collection_paused = False
        self._reading = self._removals = 0
        self._closers: list[Any] = []

    async def on_start(self, sender: Any, settings: StoreSettings) -> bool:
        self._name = settings.name
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
        except REFUSALS as error:
            raise StorageError(f"{settings.name} cannot be opened: {error}") from error
        self._engine = engine
        self._is_open = True
        return is_clean

    @property
    def engine(self) -> StoreEngine:
        assert self._engine is not None, "not started"
        return self._engine

    # -- clients

    def on_register(self, sender: Any, client: str, address: Any) -> None:
        self.engine.register(client, is_told=address is not None)
        if address is not None:
            self._addresses[client] = address
            self.monitor(address, client)

    def on_write(self, sender: Any, client: str, messages: list[tuple[bytes, bytes]]) -> None:
        self._credit.take(client, len(messages))
        if self._engine is not None:  # else it is closing, and what comes now is not confirmed
            self._engine.write(client, messages)

    def on_remove(self, sender: Any, client: str, ids: list[bytes]) -> None:
        if self._engine is not None:
            self._engine.remove(client, ids)

    def on_remove_between(self, sender: Any, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """A portion; the rest follows in a message to itself, so that others get their turn."""
        if self._engine is None:
            return
        after = self._engine.remove_between(client, first, last, keep, REMOVED_AT_A_TIME)
        if after is not None:
            self._removals += 1
            self.send(self.myAddress, ("go_on_removing", client, after, last, keep))

    def on_go_on_removing(self, sender: Any, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        self._removals -= 1
        self.on_remove_between(sender, client, first, last, keep)
        self._close_when_quiet()

    async def on_empty(self, sender: Any, first: bytes | None, last: bytes) -> bool:
        while first is not None and self._engine is not None:
            first = self._engine.forget_between(first, last, REMOVED_AT_A_TIME)
            await self.ask(self.myAddress, ("next_turn",))
        return True

    def on_next_turn(self, sender: Any) -> bool:
        """To itself, for what goes on when others have had their turn."""
        return True

    def on_contains(self, sender: Any, message_id: bytes) -> bool:
        return self.engine.contains(message_id)

    def on_missing(self, sender: Any, spans: list[StoredSpan]) -> list[int]:
        contains = self.engine.contains
        return [
            number for span in spans for number, message_id in zip(span.numbers, span.ids()) if not contains(message_id)
        ]

    def on_adopt(self, sender: Any, spans: list[StoredSpan]) -> list[int]:
        numbers = {message_id: number for span in spans for number, message_id in zip(span.numbers, span.ids())}
        return [numbers[message_id] for message_id in self.engine.adopt(numbers)]

    async def on_read(self, sender: Any, message_id: bytes) -> bytes | None:
        return (await self._read([message_id]))[0]

    async def on_read_many(self, sender: Any, ids: list[bytes]) -> list[bytes | None]:
        return await self._read(ids)

    async def _read(self, ids: Sequence[bytes]) -> list[bytes | None]:
        job: BodyReadJob = self.engine.read(ids)
        if not job.is_complete:
            self._reading += 1
            await self.run_blocking(job.run)
            self._reading -= 1
        self.engine.finish_read(job)
        self._name_damaged()
        self._close_when_quiet()
        return job.messages

    def on_forget(self, sender: Any, client: str) -> None:
        if self._engine is not None:
            self._engine.forget(client)
        self._leave(client)

    def on_doubt(self, sender: Any) -> None:
        self.engine.doubt()

    def on_detach(self, sender: Any, client: str) -> bool:
        self.engine.detach(client)
        return True

    def on_clients(self, sender: Any) -> list[str]:
        return self.engine.clients

    def on_down(self, name: Any, reason: ExitReason) -> None:
        if self._engine is not None:
            self._engine.lost(name)
        self._leave(name)

    def _leave(self, client: str) -> None:
        self.demonitor(client)
        self._credit.peer_down(client)
        self._addresses.pop(client, None)

    def _grant(self, client: str, amount: int) -> None:
        if client in self._addresses:
            self.send(self._addresses[client], ("bump", self._name, amount))

    # -- work in other threads

    def after_batch(self) -> None:
        if self._is_open:
            self._tell(self.engine)
            self._collect()
            self._sync()

    def _tell(self, engine: StoreEngine) -> None:
        for client, kind, ids in engine.take_reports():
            if client in self._addresses:
                self.send(self._addresses[client], ("stored", kind, ids))

    def _sync(self) -> None:
        if self._is_syncing or not self._is_open or self._dwell_steps:
            return
        engine = self.engine
        if engine.spared_share > DWELL_SHARE and 0 < engine.waiting_bytes < DWELL_BYTES:
            self._dwell(1)
        else:
            self._sync_now()

    def _dwell(self, step: int) -> None:
        self._dwell_steps = step
        self._spared_before = self.engine.spared
        self.start_timer(DWELL_SECONDS, "dwelt")

    def _dwelt(self) -> None:
        step, self._dwell_steps = self._dwell_steps, 0
        if self._is_syncing or not self._is_open:
            return
        engine = self.engine
        if step < DWELL_STEPS and engine.spared > self._spared_before and 0 < engine.waiting_bytes < DWELL_BYTES:
            self._dwell(step + 1)
        else:
            self._sync_now()

    def _sync_now(self) -> None:
        job = self.engine.take_sync()
        if job is not None:
            self._is_syncing = True
            self.spawn(self._run_sync(job))

    async def _run_sync(self, job: SyncJob) -> None:
        # A node that stops does not wait for room on the disk: the next start finds what the files have by now.
        await self._disk_retry.run(job.run, is_given_up=lambda: bool(self._closers))
        self.engine.finish_sync(job)
        self._tell(self.engine)
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
            log.warning("%s: garbage of files %s stays for now: %s", self._name, job.files, error)
            self.engine.fail_gc(job)
            self._is_collection_paused = True
            self.start_timer(RETRY_SECONDS, "collect")
        else:
            self.engine.finish_gc(job)
            self._name_damaged()
        self._is_collecting = False
        self._sync()
        self._collect()
        self._close_when_quiet()

    def on_timer(self, payload: Any) -> None:
        if payload == "dwelt":
            self._dwelt()
        elif payload == "collect":
            self._is_collection_paused = False

    def _name_damaged(self) -> None:
        for message_id in self.engine.damaged:
            log.error("%s: message %s is damaged on disk and gone", self._name, message_id.hex())
        self.engine.damaged.clear()

    # -- the end

    def on_close(self, sender: Any) -> None:
        """Answered True when the store is closed."""
        self._is_open = False
        self._closers.append(sender)
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        if self._closers and not (self._is_syncing or self._is_collecting or self._reading or self._removals):
            closers, self._closers = self._closers, []
            engine, self._engine = self.engine, None
            self.spawn(self._finish(engine, closers))

    async def _finish(self, engine: StoreEngine, closers: list[Any]) -> None:
        try:
            await self.run_blocking(engine.close)
        except OSError:
            engine.abandon()  # the next start may be in this very process
            raise
        self._tell(engine)
        for closer in closers:
            self.reply(closer, True)
        self.stop()

    def on_exit(self) -> None:
        if self._engine is not None:
            self._engine.abandon()
