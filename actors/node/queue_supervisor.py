"""`QueueSupervisor`: the parent of the queues of one virtual host.

After a start, a queue without a message is dormant until somebody needs it (`queue_recoveries`). Its process is created
by the first message to it, and finds out by itself whether it may let messages go.

A queue that ends by itself (deleted, expired, auto-deleted) is forgotten. A queue that crashes is started again from
what is on the disk; if it has nothing there, it starts empty. Metadata gets the address of the new process only when
that process has recovered the messages.

A queue that crashes too often (`restart_policy`) stays down and is marked crashed, so that clients learn why it cannot
be used (AB-63) until it is deleted. A queue that could not be recovered is tried again after longer and longer waits,
because its disk may have been full.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...routing.phrases import queue_phrase
from ...routing.queue_types import GROUP
from ...routing.rows import QueueRow
from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessDown, ProcessError
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ...runtime.turn_work import STEP
from ...store.data_dir.data_dir import queue_number
from ...store.data_dir.vhost_dir import LEVEL_BITS, remove_queue
from ...store.messages.lives import Numbering
from ..context.node_context import NodeContext
from ..context.starting import ToNewQueue, ToNewQueueSupervisor, to_new_queue
from ..contracts.disk import FoundJournal, ToDiskUser, to_journal, to_message_store
from ..contracts.metadata import to_metadata
from ..contracts.queue import QueueRecovery, VhostStorage, to_queue
from ..disk.disk_retry import FIRST_WAIT, Backoff
from ..queue.group.process import GroupQueue
from ..queue.process import Queue
from .queue_recoveries import may_be_dormant, queue_recoveries, terms_of_dormant
from .restart_policy import RestartIntensity

if TYPE_CHECKING:
    from ..contracts.queue import NeededBodies, Terms, ToQueue

log = logging.getLogger("warren.queue")


class VhostEnds(ProcessError):
    """The virtual host stops or is deleted, so none of its queues starts any more."""

    def __str__(self) -> str:
        return f"vhost '{self.args[0]}' stops on this node"


def _process_class(row: QueueRow) -> type[Queue]:
    return GroupQueue if row.type == GROUP.name else Queue


@dataclass(slots=True)
class _Supervised:
    row: QueueRow
    #: How often it was restarted, and how long to wait before it is tried again; most queues never need either.
    restarts: RestartIntensity | None = None
    backoff: Backoff | None = None
    is_starting: bool = False
    #: Why its process ended while it was starting. The coroutine that awaits its start handles that, not `on_down`.
    ended: ExitReason | None = None
    #: The numberings with which it was created dormant; None if it was not.
    numberings: dict[int, Numbering] | None = None

    @property
    def is_running(self) -> bool:
        return self.row.address is not None and self.row.state == "running"

    def may_restart(self, now: float) -> bool:
        """Count a restart; return False if it is one too many."""
        if self.restarts is None:
            self.restarts = RestartIntensity()
        return self.restarts.allows(now)

    def next_wait(self) -> float:
        """Seconds to wait before the next attempt to start it."""
        if self.backoff is None:
            self.backoff = Backoff()
        return self.backoff.next()

    @property
    def phrase(self) -> str:
        """How the log names the queue."""
        return queue_phrase(self.row.vhost, self.row.name)


#: Queues that a recovery goes through in one turn. One that gets its process at once counts as `STARTED_AS` others.
QUEUES_AT_A_TIME = 500
STARTED_AS = 8


class QueueSupervisor(Process):
    """See the module."""

    contract = ToNewQueueSupervisor
    #: How many messages one turn handles: starting or ending a queue takes 100 µs.
    turn_limit = 16

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, _Supervised] = {}
        #: Whether the virtual host is recovering its queues: from `recover` to the answer to `open`. The persistent
        #: store may not run yet then.
        self.is_recovering = False
        self.is_ending = False

    def on_start(self, sender: Sender, context: NodeContext, storage: VhostStorage | None) -> bool:
        self.context = context
        self.storage = storage
        return True

    # --- recovery ---

    async def on_recover(
        self,
        sender: Sender,
        rows: list[QueueRow],
        terms: dict[int, Terms],
        numbers: frozenset[int],
        journal: FoundJournal,
    ) -> dict[str, NeededBodies]:
        assert self.storage is not None
        self.is_recovering = True
        asked = []
        needed: dict[str, NeededBodies] = {}
        dormant: dict[int, Address[ToDiskUser]] = {}
        # Extensions are notified when a queue starts. So with such an extension each queue gets its process now.
        may_any = not self.context.extensions.queue_decorators
        definitions, routing = self.context.definitions, self.context.routing
        done = 0
        for row, recovery in queue_recoveries(rows, terms, numbers, journal, definitions, routing):
            supervised = self.queues[row.queue_id] = _Supervised(row)
            if recovery.numberings is not None and may_any and may_be_dormant(row, definitions, routing):
                supervised.numberings = recovery.numberings
                start = to_new_queue.start(self.context, row, self.storage, recovery)
                address = self.create_dormant(_process_class(row), start, row.queue_id)
                supervised.row = row.at(address)
                dormant[queue_number(row.queue_id)] = address
                needed[row.queue_id] = {}
                done += 1
            else:
                if recovery.numberings is not None:
                    recovery = replace(recovery, numberings=None)
                address = self._create(supervised)
                start = to_new_queue.start(self.context, supervised.row, self.storage, recovery)
                asked.append((supervised, self.ask(address, start)))
                done += STARTED_AS
            if done >= QUEUES_AT_A_TIME:
                done = 0
                await self.next_turn()
        if dormant:
            self.send(self.storage.journal, to_journal.dormant(dormant))
        for supervised, started in asked:
            try:
                answer = await started
            except ProcessDown as down:
                self._lost(supervised, down)
            else:
                needed[supervised.row.queue_id] = {} if answer is True else answer
        return needed

    async def on_open(self, sender: Sender, needed: dict[str, NeededBodies]) -> tuple[list[QueueRow], int]:
        rows = []
        messages = 0
        asked = []
        for supervised in list(self.queues.values()):
            if supervised.row.queue_id in needed and not self.is_dormant(supervised.row.address):
                asked.append(supervised)
            else:
                rows.append(supervised.row)
        opened = await self.ask_each(
            (supervised.row.address, to_queue.open(needed[supervised.row.queue_id])) for supervised in asked
        )
        for supervised, answer in zip(asked, opened):
            # The row is taken before `_started`, which restarts a queue that has crashed by now: Metadata must not get
            # the address of a process that is not open yet.
            if isinstance(answer, int):
                messages += answer
                rows.append(supervised.row)
                self._started(supervised)
            elif isinstance(answer, ProcessDown):
                self._lost(supervised, answer)
                rows.append(supervised.row)
            else:
                raise answer
        self.is_recovering = False
        return rows, messages

    async def on_recovered(self, sender: Sender) -> None:
        await self.in_steps(self._release, list(self.queues.values()))

    def _release(self, supervised: _Supervised) -> None:
        """Have the queue let messages go from now on. A dormant one looks at the routing table when it is created."""
        if supervised.is_running and not self.is_dormant(supervised.row.address):
            self.send(supervised.row.address, to_queue.recovered())

    def _lost(self, supervised: _Supervised, down: ProcessDown) -> None:
        """Mark a queue that could not be recovered stopped, and try again later."""
        row, wait = supervised.row, supervised.next_wait()
        log.error(
            "%s cannot be recovered: %s. What it has on disk stays there. The broker tries again in %g s",
            supervised.phrase,
            down,
            wait,
        )
        self.start_timer(wait, row.queue_id)
        # The row keeps the address of the dead process: what is routed there meanwhile is refused, as after any crash.
        supervised.row = replace(row, state="stopped")

    def on_timer(self, payload: str) -> None:
        """Try again to recover the queue with this id, which could not be recovered before."""
        supervised = self.queues.get(payload)
        if supervised is None or supervised.is_running or self.is_ending:
            return
        if self.is_recovering:
            self.start_timer(FIRST_WAIT, payload)
        else:
            self.spawn(self._recover_late(supervised))

    async def _recover_late(self, supervised: _Supervised) -> None:
        """Try once more to recover a queue, while the others run."""
        try:
            is_started = await self._start_from_disk(supervised)
        except ProcessDown as down:
            if self._may_start(supervised):
                self._lost(supervised, down)
            return
        if is_started:
            row = supervised.row
            log.info("%s is recovered", supervised.phrase)
            recovered = to_metadata.queue_recovered(row.vhost, row.name, row.queue_id, row.address)
            self.send(self.context.metadata, recovered)
            self._started(supervised)

    async def _start_from_disk(self, supervised: _Supervised, has_files: bool = True) -> bool:
        """Start a new process of the queue from what is on the disk. Raises ProcessDown if it cannot.

        Returns False if the queue may not run any more (`_may_start`). The process is created in the turn in which it
        is sent `start`, after everything that has to be awaited. Otherwise a supervisor that stops in between would ask
        a process to end that has not received `start`.
        """
        if self.storage is not None:
            await self._forget_transients(queue_number(supervised.row.queue_id))
        if not self._may_start(supervised):
            return False
        self._create(supervised)
        row = supervised.row = replace(supervised.row, state="running")
        is_empty = self.storage is None or not row.durable or not has_files
        recovery = None if is_empty else QueueRecovery(None, True, is_copy=self._is_learner(row))
        needed = await self.ask(row.address, to_new_queue.start(self.context, row, self.storage, recovery))
        if needed is not True:
            await self.ask(row.address, to_queue.open(needed))
        return self._may_start(supervised)

    def _is_learner(self, row: QueueRow) -> bool:
        """Whether the replica here copies the queue from another one."""
        member = None if row.group is None else row.group.member_on(self.context.node_name)
        return row.group is not None and member in row.group.learners

    # --- the lives of queues ---

    async def on_start_queue(self, sender: Sender, row: QueueRow) -> QueueRow:
        if self.is_ending:
            raise VhostEnds(row.vhost)
        supervised = self.queues[row.queue_id] = _Supervised(row)
        address = self._create(supervised)
        await self.ask(address, to_new_queue.start(self.context, supervised.row, self.storage))
        self._started(supervised)
        return supervised.row

    async def on_start_replica(self, sender: Sender, row: QueueRow, from_disk: bool) -> QueueRow:
        supervised = _Supervised(row)
        found = self.queues.get(row.queue_id)
        if found is not None:
            await self._end_process(found)
        if row.durable and not from_disk:
            await self._remove_files(row.queue_id, supervised.phrase)
        if self.is_ending:
            raise VhostEnds(row.vhost)
        self.queues[row.queue_id] = supervised
        try:
            is_started = await self._start_from_disk(supervised, has_files=from_disk)
        except ProcessDown:
            if self.queues.get(row.queue_id) is supervised:
                del self.queues[row.queue_id]
            raise
        if not is_started:
            raise VhostEnds(row.vhost)
        self._started(supervised)
        return supervised.row

    def on_mirror_queue(self, sender: Sender, row: QueueRow) -> None:
        supervised = self.queues.get(row.queue_id)
        if supervised is not None:
            supervised.row = replace(supervised.row, group=row.group)

    def on_restart_queue(self, sender: Sender, row: QueueRow) -> Coroutine[object, None, None] | None:
        if row.queue_id in self.queues or self.is_ending:
            return None
        supervised = self.queues[row.queue_id] = _Supervised(row)
        return self._restart(supervised, ExitReason(ExitKind.CRASH, "it crashed while its mirroring ended"))

    async def on_end_replica(self, sender: Sender, queue_id: str, keeps_files: bool) -> bool:
        supervised = self.queues.pop(queue_id, None)
        if supervised is not None:
            await self._end_process(supervised)
            if not keeps_files and supervised.row.durable:
                await self._remove_files(queue_id, supervised.phrase)
        return True

    async def _end_process(self, supervised: _Supervised) -> None:
        """Return when the process of this replica has ended. Whoever asks it something then learns that."""
        self.demonitor(supervised.row.queue_id)
        if supervised.row.address is not None:
            with suppress(ProcessDown):
                await self.ask(supervised.row.address, to_queue.dismiss())

    async def _remove_files(self, queue_id: str, phrase: str) -> None:
        """Remove what the disk has of a queue, which `phrase` names. Does nothing on a node without a disk."""
        if self.storage is None:
            return
        number = queue_number(queue_id)
        # Bodies in the message store that only this queue refers to stay until the next start counts the references.
        try:
            # The journal must have forgotten the queue before another process of it registers there.
            await self.ask(self.storage.journal, to_journal.forget(number))
            await self.run_blocking(remove_queue, self.storage.disk, number)
        except (OSError, ProcessDown) as error:
            # The journal has ended if the virtual host stops. A full disk delays that, so deletions still arrive.
            log.warning("files of %s stay until the next start: %s", phrase, error)

    async def on_forget_queue(self, sender: Sender, queue_id: str) -> bool:
        supervised = self.queues.pop(queue_id, None)
        if supervised is None:
            # Its process has ended here already, such as that of a replica which has crashed, and has left its files.
            await self._remove_files(queue_id, f"queue {queue_id}")
            return True
        if supervised.row.address is not None:
            self.request_exit(supervised.row.address)
        # Demonitor after the request, because the request wakes a dormant queue, which is monitored from then on.
        self.demonitor(queue_id)
        if supervised.row.durable:
            await self._remove_files(queue_id, supervised.phrase)
        return True

    def on_down(self, name: str, reason: ExitReason) -> Coroutine[object, None, None] | None:
        supervised = self.queues.get(name)
        if supervised is None:
            return None  # a replica that ended while it was starting
        row = supervised.row
        if supervised.is_starting:
            supervised.ended = reason
            return None
        group = row.group
        mine = None if group is None else group.member_on(self.context.node_name)
        if mine is not None:
            # A replica that starts again is a new member of the group, so Metadata decides whether one starts.
            del self.queues[name]
            ended = to_metadata.replica_ended(row.vhost, row.name, row.queue_id, mine.generation)
            self.send(self.context.metadata, ended)
            return None
        if not reason.is_fault:
            del self.queues[name]
            # A queue that is deleted has left the routing table before it ends; this message is for one that was
            # killed.
            self.send(self.context.metadata, to_metadata.queue_killed(row.vhost, row.name, row.queue_id))
            return None
        return self._restart(supervised, reason)

    async def _restart(self, supervised: _Supervised, reason: ExitReason) -> None:
        row, is_recovered = supervised.row, True
        while self._may_start(supervised) and supervised.may_restart(self.now()):
            log.error("%s is restarted; it ended with %s", supervised.phrase, reason)
            try:
                is_started = await self._start_from_disk(supervised)
            except ProcessDown as down:
                reason, is_recovered = down.reason, False
                continue
            if is_started:
                address = supervised.row.address
                restarted = to_metadata.queue_restarted(row.vhost, row.name, row.queue_id, address)
                self.send(self.context.metadata, restarted)
                self._started(supervised)
            return
        if self._may_start(supervised):
            supervised.row = replace(row, address=None)
            log.error("%s has crashed too often and stays down: %s", supervised.phrase, reason)
            self.send(self.context.metadata, to_metadata.queue_crashed(row.vhost, row.name, row.queue_id))
            if not is_recovered:
                # The last crash was during its recovery, perhaps because of a full disk.
                self.start_timer(supervised.next_wait(), row.queue_id)

    async def _forget_transients(self, queue: int) -> None:
        """Empty the transient store of this queue's bodies.

        Their ids contain message numbers that are not in the journal, so the new process gives them again, and must not
        find the old bodies.
        """
        assert self.storage is not None
        first = (queue << LEVEL_BITS).to_bytes(8, "big") + bytes(8)
        last = (queue << LEVEL_BITS | (1 << LEVEL_BITS) - 1).to_bytes(8, "big") + b"\xff" * 8
        await self.ask(self.storage.transient, to_message_store.empty(first, last))

    def _may_start(self, supervised: _Supervised) -> bool:
        """Whether the queue may start: it was not forgotten, and the virtual host does not stop.

        A queue that started while the virtual host stops could not be ended in order any more.
        """
        return not self.is_ending and self.queues.get(supervised.row.queue_id) is supervised

    def _create(self, supervised: _Supervised) -> Address[ToNewQueue]:
        """Create the process of the queue. The caller sends it `start` in the same turn."""
        address: Address[ToNewQueue] = self.createActor(_process_class(supervised.row))
        supervised.row = supervised.row.at(address)
        supervised.is_starting, supervised.ended = True, None
        self.monitor(address, supervised.row.queue_id)
        return address

    def _started(self, supervised: _Supervised) -> None:
        """Note that a queue's process has answered that it is open. If it has ended since, handle that now."""
        supervised.is_starting = False
        if supervised.ended is not None:
            restart = self.on_down(supervised.row.queue_id, supervised.ended)
            if restart is not None:
                self.spawn(restart)

    # --- the end ---

    async def on_end_queues(self, sender: Sender) -> bool:
        self.is_ending = True
        # The entries of the queues are freed one by one, because freeing ten thousand of them at once takes 10 ms.
        running: deque[Address[ToQueue]] = deque()
        while self.queues:
            for _ in range(min(STEP, len(self.queues))):
                queue_id, supervised = self.queues.popitem()
                self.demonitor(queue_id)
                if supervised.is_running and not self.is_dormant(supervised.row.address):
                    running.append(supervised.row.address)
            await self.next_turn()
        # A queue that ends anyway gives no answer, and one that crashes meanwhile has ended as well.
        await self.ask_each((running.popleft(), to_queue.delete(False, False)) for _ in range(len(running)))
        return True

    async def on_terminate(self, sender: Sender) -> dict[int, Terms]:
        self.is_ending = True
        # All queues are held before the first one ends, so that a dead letter never reaches a queue that has ended.
        running: dict[str, _Supervised] = {}
        # A dead letter may have woken a dormant queue, which is to be held as well.
        while woken := {
            queue_id: supervised
            for queue_id, supervised in self.queues.items()
            if supervised.is_running and queue_id not in running and not self.is_dormant(supervised.row.address)
        }:
            running |= woken
            await self.ask_each((supervised.row.address, to_queue.hold()) for supervised in woken.values())
        terms = await self._end_dormant()
        await self.in_steps(self.demonitor, running)
        answers = await self.ask_each((each.row.address, to_queue.terminate()) for each in running.values())
        for supervised, answer in zip(running.values(), answers):
            if isinstance(answer, ProcessDown):
                log.error(
                    "%s did not end cleanly, so the next start reads through its index: %s", supervised.phrase, answer
                )
            elif isinstance(answer, Exception):
                raise answer
            elif answer is not None:
                terms[queue_number(supervised.row.queue_id)] = answer
        return terms

    async def _end_dormant(self) -> dict[int, Terms]:
        """The terms of the queues that nobody has needed since the start."""
        terms = {}
        for supervised in self.queues.values():
            if supervised.numberings is not None and self.is_dormant(supervised.row.address):
                terms[queue_number(supervised.row.queue_id)] = terms_of_dormant(supervised.row, supervised.numberings)
        if terms and self.storage is not None:
            await self.ask(self.storage.persistent, to_message_store.dormant([f"{number:x}" for number in terms]))
        return terms
