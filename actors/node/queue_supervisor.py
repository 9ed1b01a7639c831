"""`QueueSupervisor`: the parent of the queues of one virtual host.

A queue that ends by itself (deleted, expired, auto-deleted) is forgotten. One that crashes is started again from what is on
disk: from nothing, if nothing is. Nobody hears of its new address before it has everything back. One that crashes too often
(`restarts`) is left alone and marked crashed, so that clients hear why it cannot be used (AB-63) until somebody deletes it. One that could not
be recovered is tried again later, after longer and longer waits: its disk may have been full.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from thespian.actors import ActorExitRequest

from ...routing.phrases import queue_phrase
from ...routing.rows import QueueRow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import queue_number
from ...store.data_dir.vhost_dir import LEVEL_BITS, remove_queue
from ..disk.disk_retry import FIRST_WAIT, Backoff
from ..queue.durability import Recovery, VhostStorage
from ..queue.process import Queue
from .context import NodeContext
from .restart_policy import RestartIntensity

log = logging.getLogger("warren.queue")


@dataclass(slots=True)
class _Supervised:
    row: QueueRow
    restarts: RestartIntensity = field(default_factory=RestartIntensity)
    is_starting: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    #: Why its process ended while it was starting. The coroutine that awaits its start handles that, not `on_down`.
    ended: ExitReason | None = None

    @property
    def is_running(self) -> bool:
        return self.row.address is not None and self.row.state == "running"


class QueueSupervisor(Process):
    """
    ('start', context, storage)         storage: `VhostStorage`, None if everything is in memory
    ('recover', rows, terms)            -> {queue id: {number: `StoredSpan`s}}: starts queues that were there before; what each wants of the persistent store.
                                        terms: by `queue_number`, of those that ended cleanly
    ('open', wanted)                    -> the rows of all of them, with addresses; a queue that cannot be recovered is 'stopped'; and the messages in them
    ('start_queue', row)                -> the row with the address of a new queue
    ('forget_queue', queue_id)          -> True; ends the queue if it runs, does not restart it, and removes what it has on disk
    ('terminate',)                      -> {queue number: terms}; every queue has kept what it had, and has ended

    To Metadata: ('queue_killed', vhost, name, queue_id), ('queue_restarted', vhost, name, queue_id, address),
    ('queue_recovered', vhost, name, queue_id, address), ('queue_crashed', vhost, name, queue_id).
    """

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, _Supervised] = {}
        self.is_recovering = (
            False  # from `recover` to the answer to `open`: the persistent store may not have been started
        )
        self.is_ending = False

    def on_start(self, sender: Any, context: NodeContext, storage: VhostStorage | None) -> None:
        self.context = context
        self.storage = storage

    # -- recovery

    async def on_recover(self, sender: Any, rows: list[QueueRow], terms: dict[int, dict[str, Any]]) -> dict[str, Any]:
        self.is_recovering = True
        asked = []
        for row in rows:
            supervised = self.queues[row.queue_id] = _Supervised(row)
            address = self._create(supervised)
            recovery = None if self.storage is None else Recovery(terms.get(queue_number(row.queue_id)))
            asked.append(
                (supervised, self.ask(address, ("start", self.context, supervised.row, self.storage, recovery)))
            )
        wanted = {}
        for supervised, answer in asked:
            try:
                wanted[supervised.row.queue_id] = await answer
            except ProcessDown as down:
                self._lost(supervised, down)
        return wanted

    async def on_open(self, sender: Any, wanted: dict[str, Any]) -> tuple[list[QueueRow], int]:
        rows = []
        messages = 0
        asked = []
        for supervised in list(self.queues.values()):
            if supervised.row.queue_id in wanted:
                spans = wanted[supervised.row.queue_id]
                asked.append(
                    (supervised, None if self.storage is None else self.ask(supervised.row.address, ("open", spans)))
                )
            else:
                rows.append(supervised.row)
        for supervised, answer in asked:
            try:
                if answer is not None:
                    messages += await answer
            except ProcessDown as down:
                self._lost(supervised, down)
                rows.append(supervised.row)
            else:
                # Before it is restarted, if it has crashed by now: nobody is to be given the address of a process that is not open.
                rows.append(supervised.row)
                self._started(supervised)
        self.is_recovering = False
        return rows, messages

    def _lost(self, supervised: _Supervised, down: ProcessDown) -> None:
        row, wait = supervised.row, supervised.backoff.next()
        log.error(
            "%s cannot be recovered: %s. What it has on disk stays there, and it is tried again in %g s",
            queue_phrase(row.vhost, row.name),
            down,
            wait,
        )
        self.start_timer(wait, row.queue_id)
        # With the address of the dead process: what is routed there meanwhile is refused, as with any queue that has crashed.
        supervised.row = replace(row, state="stopped")

    def on_timer(self, queue_id: str) -> None:
        supervised = self.queues.get(queue_id)
        if supervised is None or supervised.is_running or self.is_ending:
            return
        if self.is_recovering:
            self.start_timer(FIRST_WAIT, queue_id)
        else:
            self.spawn(self._recover_late(supervised))

    async def _recover_late(self, supervised: _Supervised) -> None:
        """Try once more to recover a queue while the others run."""
        row = supervised.row
        address = self._create(supervised)
        supervised.row = replace(supervised.row, state="running")
        try:
            await self._begin(supervised)
        except ProcessDown as down:
            if self._is_wanted(supervised):
                self._lost(supervised, down)
            return
        if self._is_wanted(supervised):
            log.info("%s is recovered", queue_phrase(row.vhost, row.name))
            self.send(self.context.metadata, ("queue_recovered", row.vhost, row.name, row.queue_id, address))
            self._started(supervised)

    async def _begin(self, supervised: _Supervised) -> None:
        """Have its new process start from what is on the disk. Raises ProcessDown if it cannot."""
        row = supervised.row
        if self.storage is not None:
            await self._forget_transients(queue_number(row.queue_id))
        wanted = await self.ask(
            row.address,
            (
                "start",
                self.context,
                row,
                self.storage,
                None if self.storage is None or not row.durable else Recovery(None, True),
            ),
        )
        if wanted is not True:
            await self.ask(row.address, ("open", wanted))

    # -- the queues' lives

    async def on_start_queue(self, sender: Any, row: QueueRow) -> QueueRow:
        supervised = self.queues[row.queue_id] = _Supervised(row)
        address = self._create(supervised)
        await self.ask(address, ("start", self.context, supervised.row, self.storage))
        self._started(supervised)
        return supervised.row

    def on_forget_queue(self, sender: Any, queue_id: str) -> Any:
        supervised = self.queues.pop(queue_id, None)
        if supervised is None:
            return True
        self.demonitor(queue_id)
        if supervised.row.address is not None:
            self.send(supervised.row.address, ActorExitRequest())
        if self.storage is None or not supervised.row.durable:
            return True
        number = queue_number(queue_id)
        # Its bodies in the message store stay there until the next start counts who refers to them.
        self.send(self.storage.journal, ("forget", number))
        return self._remove_files(supervised.row, number)

    async def _remove_files(self, row: QueueRow, number: int) -> bool:
        assert self.storage is not None
        try:
            await self.run_blocking(remove_queue, self.storage.disk, number)
        except OSError as error:
            log.warning("files of %s stay until the next start: %s", queue_phrase(row.vhost, row.name), error)
        return True

    def on_down(self, queue_id: Any, reason: ExitReason) -> Any:
        supervised = self.queues[queue_id]
        row = supervised.row
        if supervised.is_starting:
            supervised.ended = reason
            return None
        if not reason.is_fault:
            del self.queues[queue_id]
            # A queue that is to go says so itself before it ends; this is for one that was killed.
            self.send(self.context.metadata, ("queue_killed", row.vhost, row.name, queue_id))
            return None
        return self._restart(supervised, reason)

    async def _restart(self, supervised: _Supervised, reason: ExitReason) -> None:
        row, is_recovered = supervised.row, True
        while self._is_wanted(supervised) and supervised.restarts.allows(self.now()):
            log.error("%s is restarted; it ended with %s", queue_phrase(row.vhost, row.name), reason)
            address = self._create(supervised)
            try:
                await self._begin(supervised)
            except ProcessDown as down:
                reason, is_recovered = down.reason, False
                continue
            if self._is_wanted(supervised):
                self.send(self.context.metadata, ("queue_restarted", row.vhost, row.name, row.queue_id, address))
                self._started(supervised)
            return
        if self._is_wanted(supervised):
            supervised.row = replace(row, address=None)
            log.error("%s has crashed too often and stays down: %s", queue_phrase(row.vhost, row.name), reason)
            self.send(self.context.metadata, ("queue_crashed", row.vhost, row.name, row.queue_id))
            if not is_recovered:
                # It has not crashed at work: its disk may have been full, say.
                self.start_timer(supervised.backoff.next(), row.queue_id)

    async def _forget_transients(self, queue: int) -> None:
        """The numbers of messages that nobody wrote to the journal are given again: what the store has under them must not be taken for the new ones."""
        assert self.storage is not None
        first, last = (
            (queue << LEVEL_BITS).to_bytes(8, "big"),
            (queue << LEVEL_BITS | (1 << LEVEL_BITS) - 1).to_bytes(8, "big"),
        )
        await self.ask(self.storage.transient, ("empty", first + bytes(8), last + b"\xff" * 8))

    def _is_wanted(self, supervised: _Supervised) -> bool:
        """Not forgotten, nor is everything about to end: what would start now could not be ended in order any more."""
        return not self.is_ending and self.queues.get(supervised.row.queue_id) is supervised

    def _create(self, supervised: _Supervised) -> Any:
        address = self.createActor(Queue)
        supervised.row = replace(supervised.row, address=address)
        supervised.is_starting, supervised.ended = True, None
        self.monitor(address, supervised.row.queue_id)
        return address

    def _started(self, supervised: _Supervised) -> None:
        """It has answered; by now it may have ended all the same."""
        supervised.is_starting = False
        if supervised.ended is not None:
            restart = self.on_down(supervised.row.queue_id, supervised.ended)
            if restart is not None:
                self.spawn(restart)

    # -- the end

    async def on_terminate(self, sender: Any) -> dict[int, dict[str, Any]]:
        self.is_ending = True
        # Two steps, so that a dead letter never reaches a queue that has ended already.
        running = {queue_id: supervised.row for queue_id, supervised in self.queues.items() if supervised.is_running}
        for answer in [self.ask(row.address, ("hold",)) for row in running.values()]:
            with suppress(ProcessDown):
                await answer
        asked = []
        for queue_id, row in running.items():
            self.demonitor(queue_id)
            asked.append((row, self.ask(row.address, ("terminate",))))
        terms = {}
        for row, answer in asked:
            try:
                kept = await answer
            except ProcessDown as down:
                log.error(
                    "%s did not end cleanly, and will be looked through at the next start: %s",
                    queue_phrase(row.vhost, row.name),
                    down,
                )
            else:
                if kept is not None:
                    terms[queue_number(row.queue_id)] = kept
        return terms
