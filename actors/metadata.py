"""`Metadata`: the only writer of the routing table.

Every change of exchanges, queues and bindings is one message to this process, which makes the checks of section 7 in their
order and answers. What touches the table alone is done within the message and therefore whole. What has to wait for a queue
or its supervisor goes through `_in_turn`: operations on one queue name run one after the other, those on different names
do not wait for each other. So two channels that declare the same name at once get the same queue (AB-82 to AB-88).

With a data directory, virtual hosts, durable exchanges, durable queues and bindings between durable ends are also kept in a `MetadataStore`, and
an answer goes out only after the commit that makes it true; commits are grouped (`group_commit`). The order is this:

- **What is added is written first and put into the table after.** Nobody can be routed to, or through, what a crash would take back: a message confirmed by a queue whose
  declaration is lost would be lost with it. An addition that cannot be written is refused (541) and has no effect.
- **What is removed leaves the table at once, and is then written.** A queue that answered `delete` is gone whatever the disk says, and what a crash brings back had not been
  answered. A removal that cannot be written is refused too, but stays in force and is written when the disk allows: deleting queues is how one makes room on a full disk.

So everything durable in the table is on the disk, and of what is on the disk only removals that nobody was told of are missing in the table. What comes of itself (auto-delete,
expiry) is written without anybody waiting. RabbitMQ changes its tables within one transaction and writes them later; it can lose a declaration that was answered.

At its start, before it answers, it puts into the table what the store holds, and has the queues recovered with their vhost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ..amqp.constants import ACCESS_REFUSED, COMMAND_INVALID, CONNECTION_FORCED, INTERNAL_ERROR, PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import Table
from ..runtime.errors import ProcessDown, ProcessError
from ..runtime.process import Process
from ..store.data_dir import DataDir
from ..store.metadata_store import Change, MetadataError, MetadataStore
from . import durable_rows, resources
from .arguments import (
    alternate_exchange,
    check_exchange_arguments,
    check_exchange_equivalence,
    check_queue_arguments,
    check_queue_equivalence,
    check_server_named,
    queue_type,
)
from .context import NodeContext
from .durable_rows import removal
from .exchange_types import EXCHANGE_TYPES, Binding, check_binding
from .group_commit import GroupCommit
from .info_items import binding_items, exchange_items, queue_items
from .restart_waits import RestartWaits
from .restarts import is_fault
from .routing import ExchangeRow, QueueRow, Removed
from .storage import StorageError

log = logging.getLogger("warren.metadata")

ENDED_REMEMBERED = 1_000
"""Connections; the last so many."""

Operation = Callable[..., Coroutine[Any, Any, Any]]


class Metadata(Process):
    """
    ('start', context, node)                            -> None, when what the data directory holds is there; StorageError.
                                                        node answers ('start_vhost', name, rows) with a queue supervisor and the rows of the queues it
                                                        had, as they are now; and ('stop_vhost', name) when it has ended what belongs to one
    ('create_vhost', name)                              -> None; an existing one is success (AB-169)
    ('delete_vhost', name)                              -> True, when nothing of it is left; False if there is none (AB-170)
    ('declare_exchange', vhost, name, type, durable, auto_delete, internal, arguments)            -> None
    ('delete_exchange', vhost, name, if_unused)                                                   -> None
    ('bind', vhost, kind, destination, source, routing_key, arguments, connection_id), ('unbind', ...)    -> None
    ('declare_queue', vhost, name, durable, exclusive_owner, auto_delete, arguments, connection_id)
                                                        -> (QueueRow, created); an empty name is generated
    ('delete_queue', vhost, name, if_unused, if_empty, connection_id)                             -> ready messages
    ('await_restart', vhost, name, address)             -> the QueueRow, once the queue runs at another address than this dead one
    ('delete_exclusive', connection_id)                 -> None, when all are gone
    ('register_reply', channel_id, address), ('unregister_reply', channel_id)                     -> None
    ('trace', vhost, on)                                -> None; not kept on the disk (AB-81)
    ('list', kind, vhost)                               -> list of dicts; kind: exchanges, bindings, queues, vhosts
    ('write', changes)                                  -> None, when these and all before them are on the disk

    Refusals are AmqpErrors without class and method ids. From a connection: ('connection_opened', connection_id). From a
    queue: ('queue_gone', vhost, name, queue_id) -> None; from supervisors: queue_restarted, queue_recovered, queue_crashed, queue_killed (see
    there), ('vhost_down', name). From the node, when it is time to try again to start one: ('revive_vhost', name).
    """

    reply_errors = (AmqpError, ProcessError)

    def __init__(self) -> None:
        super().__init__()
        self.supervisors: dict[str, Any] = {}  # virtual host -> address of its queue supervisor
        self.turns: dict[Hashable, deque[tuple[Any, Operation, tuple[Any, ...]]]] = {}
        self.exclusive: dict[str, dict[tuple[str, str], None]] = {}  # connection id -> (vhost, name) of its queues
        self.ended: deque[str] = deque(maxlen=ENDED_REMEMBERED)  # connection ids; a declare of theirs may still be under way
        self.store: MetadataStore | None = None
        self.commits: GroupCommit | None = None  # None: everything is in memory
        self.early: list[tuple[Any, ...]] | None = None  # while recovering: what is heard of queues whose rows are not in the table yet

    async def on_start(self, sender: Any, context: NodeContext, node: Any) -> None:
        self.context = context
        self.routing = context.routing
        self.restarts = RestartWaits(self, context.routing, context.node_name)
        self.node = node
        if context.settings.data_dir is not None:
            await self._recover(DataDir(context.settings.data_dir))

    def on_exit(self) -> None:
        if self.store is not None:
            self.store.close()

    # --- the disk -----------------------------------------------------------------------------------------------------

    async def _recover(self, directory: DataDir) -> None:
        try:
            self.store = await self.run_blocking(MetadataStore, directory.metadata)
            tables = await self.run_blocking(self.store.load)
        except MetadataError as error:
            raise StorageError(str(error)) from None
        self.commits = GroupCommit(self, self.store)
        found = durable_rows.stored(tables)
        await self.run_blocking(directory.sweep_vhosts, list(found.vhosts))
        for name in found.vhosts:
            self.routing.add_vhost(name)
        for exchange in found.exchanges:
            self.routing.put_exchange(exchange)
        self.early = []
        self.routing.recovering.update(found.vhosts)
        for name in found.vhosts:
            rows = [row for row in found.queues if row.vhost == name]
            try:
                self.supervisors[name], rows = await self.ask(self.node, ("start_vhost", name, rows))
            except ProcessError as error:
                if isinstance(error, ProcessDown) and not is_fault(str(error)):
                    raise  # the node is ending
                log.error("vhost '%s' is down: %s", name, error)
                self.routing.set_down(name)
                rows = [replace(row, state="stopped") for row in rows]
            for row in rows:
                self.routing.put_queue(row)
        early, self.early = self.early, None
        for changed in early:
            self._queue_changed(*changed)
        for vhost, binding in found.bindings:
            self.routing.add_binding(vhost, binding)
        for name in found.vhosts:
            self._all_is_there(name)
        self.commits.note(found.stale)
        _say_recovered(directory.path, found)

    def _all_is_there(self, vhost: str) -> None:
        self.routing.recovering.discard(vhost)
        for row in self.routing.queues(vhost):
            if row.state == "running":
                self.send(row.address, ("recovered",))

    def on_revive_vhost(self, sender: Any, name: str) -> None:
        self._in_turn((name,), sender, self._revive_vhost, name)

    async def _revive_vhost(self, name: str) -> None:
        """Try once more to start one that could not be."""
        if not self.routing.has_vhost(name) or name in self.supervisors:
            return
        given = {row.queue_id: row for row in self.routing.queues(name) if row.durable}
        self.routing.recovering.add(name)
        try:
            supervisor, rows = await self.ask(self.node, ("start_vhost", name, [replace(row, address=None, state="running") for row in given.values()]))
        except ProcessError as error:
            log.info("vhost '%s' is still down: %s", name, error)
            return
        self.supervisors[name] = supervisor
        for row in rows:
            now = self.routing.queue(name, row.name)
            # One that has crashed since has said so, and that is newer.
            if now is given[row.queue_id]:
                self._change_queue(row)
            elif now is None or now.queue_id != row.queue_id:
                self.send(supervisor, ("forget_queue", row.queue_id))
            elif now.state == "stopped":
                self._change_queue(now, state="running")
        self.routing.set_down(name, False)
        self._all_is_there(name)
        log.info("vhost '%s' is up again, with %d queues", name, len(rows))

    async def _write(self, *changes: Change) -> None:
        """Return when these changes, and all noted before, are on the disk. Raises AmqpError 541."""
        await self.ask(self.myAddress, ("write", changes))

    def on_write(self, sender: Any, changes: Sequence[Change]) -> None:
        if self.commits is None:
            self.reply(sender, None)
        else:
            self.commits.note(changes)
            self.commits.wait(sender)

    async def _settled(self, change: Change) -> None:
        """Return when that row is not about to be written: what is not in the table is not on the disk either, or we do not say so."""
        if self.commits is not None and self.commits.has_unwritten(change):
            await self._write()

    def after_batch(self) -> None:
        if self.commits is not None:
            self.commits.begin()

    def on_timer(self, payload: Any) -> None:
        assert self.commits is not None
        self.commits.retry()

    # --- one after the other ------------------------------------------------------------------------------------------

    def _in_turn(self, key: Hashable, sender: Any, operation: Operation, *arguments: Any) -> None:
        """Run `operation` when the earlier ones with this key are done, and answer with its value or error."""
        waiting = self.turns.get(key)
        if waiting is not None:
            waiting.append((sender, operation, arguments))
            return
        self.turns[key] = deque([(sender, operation, arguments)])
        self.spawn(self._take_turns(key))

    async def _take_turns(self, key: Hashable) -> None:
        waiting = self.turns[key]
        while waiting:
            sender, operation, arguments = waiting.popleft()
            try:
                answer = await operation(*arguments)
            except (AmqpError, ProcessError) as error:
                self.reply_error(sender, error)
            else:
                self.reply(sender, answer)
        del self.turns[key]

    # --- virtual hosts ------------------------------------------------------------------------------------------------

    def on_create_vhost(self, sender: Any, name: str) -> None:
        self._in_turn((name,), sender, self._create_vhost, name)

    async def _create_vhost(self, name: str) -> None:
        if self.routing.has_vhost(name):
            return
        await self._write(durable_rows.vhost_change(name))
        self.supervisors[name], _ = await self.ask(self.node, ("start_vhost", name, []))
        self.routing.add_vhost(name)

    def on_delete_vhost(self, sender: Any, name: str) -> None:
        self._in_turn((name,), sender, self._delete_vhost, name)

    async def _delete_vhost(self, name: str) -> bool:
        if not self.routing.has_vhost(name):
            await self._settled(removal(durable_rows.vhost_change(name)))
            return False
        # First out of the table, in one go: nobody can open it, and nothing can be declared in it, from here on.
        for queue in self.routing.queues(name):
            self._remove(name, queue.name, queue.queue_id)
        for exchange in self.routing.exchanges(name):
            if self.routing.exchange(name, exchange.name) is not None:  # else it was auto-delete and went with another
                self._note_removed(name, self.routing.remove_exchange(name, exchange.name), exchange)
        self.routing.remove_vhost(name)
        self.supervisors.pop(name, None)
        if self.commits is not None:
            self.commits.note([removal(durable_rows.vhost_change(name))])
        await self.ask(self.node, ("stop_vhost", name))
        # What had begun before finds it gone and takes back what it wrote; a virtual host created under the same name must not inherit that.
        for turn in [self.ask(self.myAddress, ("await_turn", key)) for key in self.turns if _is_within(key, name)]:
            await turn
        await self._write()
        return True

    def on_await_turn(self, sender: Any, key: Hashable) -> None:
        self._in_turn(key, sender, self._pass)

    async def _pass(self) -> None:
        """A turn in which nothing is done."""

    def on_vhost_down(self, sender: Any, name: str) -> None:
        """Its queues are stopped and no new ones can be made (AB-63, AB-171)."""
        self.supervisors.pop(name, None)
        self.routing.set_down(name)
        for row in self.routing.queues(name):
            self._change_queue(row, state="stopped")

    async def on_trace(self, sender: Any, vhost: str, on: bool) -> None:
        self._check_vhost(vhost)
        self.routing.set_traced(vhost, on)

    def _check_vhost(self, name: str) -> None:
        if not self.routing.has_vhost(name):
            # Whoever asks had opened it; this says the same as what its connection is about to be told.
            raise AmqpError(CONNECTION_FORCED, f"vhost '{name}' is deleted")

    # --- exchanges ----------------------------------------------------------------------------------------------------

    def on_declare_exchange(
        self,
        sender: Any,
        vhost: str,
        name: str,
        exchange_type: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
    ) -> None:
        wanted = ExchangeRow(vhost, name, exchange_type, durable, auto_delete, internal, arguments)
        self._in_turn(("exchange", vhost, name), sender, self._declare_exchange, wanted)

    async def _declare_exchange(self, wanted: ExchangeRow) -> None:
        vhost, name = wanted.vhost, wanted.name
        self._check_vhost(vhost)
        if wanted.type not in EXCHANGE_TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{wanted.type}'")
        resources.check_not_default_exchange(name)
        row = self.routing.exchange(vhost, name)
        if row is not None:
            old, new = [(item.type, item.durable, item.auto_delete, item.internal, item.arguments) for item in (row, wanted)]
            check_exchange_equivalence(vhost, name, old, new)
            return
        resources.check_not_reserved("exchange", name)
        check_exchange_arguments(vhost, name, wanted.arguments)
        row = replace(wanted, alternate=alternate_exchange(wanted.arguments))
        if row.durable and self.commits is not None:
            change = durable_rows.exchange_change(row)
            await self._write(change)
            if not self.routing.has_vhost(vhost):
                self.commits.note([removal(change)])
        self._check_vhost(vhost)  # it may have been deleted meanwhile
        self.routing.put_exchange(row)

    async def on_delete_exchange(self, sender: Any, vhost: str, name: str, if_unused: bool) -> None:
        self._check_vhost(vhost)
        resources.check_not_default_exchange(name)
        phrase = resources.exchange_phrase(vhost, name)
        if name.startswith("amq."):
            raise AmqpError(ACCESS_REFUSED, f"deletion of system {phrase} not allowed")
        row = self.routing.exchange(vhost, name)
        if row is None:
            await self._settled(Change("exchanges", (vhost, name), None))
            return
        if if_unused and self.routing.is_source(vhost, name):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        await self._written_off(vhost, self.routing.remove_exchange(vhost, name), row)

    async def _written_off(self, vhost: str, gone: Removed, row: ExchangeRow | None = None) -> None:
        """Return when what has been removed from the table is not on the disk either. Raises AmqpError 541."""
        if self._note_removed(vhost, gone, row):
            await self._write()

    def _note_removed(self, vhost: str, gone: Removed, row: ExchangeRow | QueueRow | None = None) -> bool:
        """Have what has been removed from the table deleted on the disk; False if nothing of it was there."""
        if self.commits is None:
            return False
        changes = durable_rows.removals(self.routing, vhost, gone, row)
        self.commits.note(changes)
        return bool(changes)

    # --- bindings -----------------------------------------------------------------------------------------------------

    def on_bind(
        self,
        sender: Any,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
    ) -> None:
        binding = Binding.of(source, kind, destination, routing_key, arguments)
        self._in_turn(("binding", vhost, binding), sender, self._bind, vhost, binding, connection_id)

    async def _bind(self, vhost: str, binding: Binding, connection_id: str) -> None:
        is_durable = self._check_bind(vhost, binding, connection_id)
        if is_durable and self.commits is not None and not self.routing.has_binding(vhost, binding):
            change = durable_rows.binding_change(vhost, binding)
            await self._write(change)
            is_durable = False
            try:
                # What it binds may have gone meanwhile, or have passed its name on.
                is_durable = self._check_bind(vhost, binding, connection_id)
            finally:
                if not is_durable:
                    self.commits.note([removal(change)])
        self.routing.add_binding(vhost, binding)

    def _check_bind(self, vhost: str, binding: Binding, connection_id: str) -> bool:
        """Raises AmqpError if the binding may not be; else whether it is durable (AB-73)."""
        self._check_vhost(vhost)
        _check_binding_names(binding)
        source_row = self.routing.exchange(vhost, binding.source)
        if source_row is None:
            raise resources.no_exchange(vhost, binding.source)
        if binding.kind == "exchange":
            exchange_row = self.routing.exchange(vhost, binding.destination)
            if exchange_row is None:
                raise resources.no_exchange(vhost, binding.destination)
            check_binding(source_row.type, binding.arguments)
            return source_row.durable and exchange_row.durable
        queue_row = self.routing.queue(vhost, binding.destination)
        if queue_row is None:
            raise resources.no_queue(vhost, binding.destination)
        check_binding(source_row.type, binding.arguments)
        _check_owner(queue_row, connection_id)
        return source_row.durable and queue_row.durable

    async def on_unbind(
        self,
        sender: Any,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
    ) -> None:
        binding = Binding.of(source, kind, destination, routing_key, arguments)
        _check_binding_names(binding)
        if not self.routing.has_binding(vhost, binding):
            if self.commits is not None:
                await self._settled(durable_rows.binding_change(vhost, binding))
            return
        if kind == "queue":
            queue_row = self.routing.queue(vhost, destination)
            assert queue_row is not None
            _check_owner(queue_row, connection_id)
        await self._written_off(vhost, self.routing.remove_binding(vhost, binding))

    # --- queues -------------------------------------------------------------------------------------------------------

    def on_declare_queue(
        self,
        sender: Any,
        vhost: str,
        name: str,
        durable: bool,
        exclusive_owner: str | None,
        auto_delete: bool,
        arguments: Table,
        connection_id: str,
    ) -> None:
        server_named = not name
        if server_named:
            name = resources.generated_name("amq.gen", self.random_bytes(16))
        row = QueueRow(
            vhost,
            name,
            None,
            self.random_bytes(16).hex(),
            durable and exclusive_owner is None,  # AB-83
            auto_delete,
            exclusive_owner,
            arguments,
            queue_type(arguments),
        )
        self._in_turn((vhost, name), sender, self._declare_queue, row, server_named)

    async def _declare_queue(self, wanted: QueueRow, server_named: bool) -> tuple[QueueRow, bool]:
        vhost, name = wanted.vhost, wanted.name
        self._check_vhost(vhost)
        if server_named:
            check_server_named(wanted.arguments)
        else:
            resources.check_not_reserved("queue", name)
        row = self.routing.queue(vhost, name)
        if row is not None:
            if row.state != "running":
                raise resources.queue_unavailable(vhost, name, row.state, self.context.node_name)
            if row.exclusive_owner != wanted.exclusive_owner:
                raise resources.queue_locked(vhost, name)
            old = row.durable, row.auto_delete, row.arguments
            check_queue_equivalence(vhost, name, old, (wanted.durable, wanted.auto_delete, wanted.arguments))
            return row, False
        check_queue_arguments(vhost, name, wanted.arguments, self.context.node_name)
        is_kept = wanted.durable and self.commits is not None
        if is_kept:
            await self._write(durable_rows.queue_change(wanted))
        try:
            row = await self._ask_supervisor(vhost, ("start_queue", wanted))
            self._check_vhost(vhost)  # it may have been deleted meanwhile
        except AmqpError:
            if is_kept:
                self._note_removed(vhost, Removed([], []), wanted)
            raise
        self.routing.put_queue(row)
        if row.exclusive_owner is not None:
            self.exclusive.setdefault(row.exclusive_owner, {})[vhost, name] = None
            if row.exclusive_owner in self.ended:
                # Nobody else would ever delete it.
                await self._delete_queue(vhost, name, False, False, row.exclusive_owner)
                raise AmqpError(CONNECTION_FORCED, f"the connection that declared {resources.queue_phrase(vhost, name)} has ended")
        return row, True

    def on_delete_queue(self, sender: Any, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> None:
        self._in_turn((vhost, name), sender, self._delete_queue, vhost, name, if_unused, if_empty, connection_id)

    async def _delete_queue(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> int:
        row = self.routing.queue(vhost, name)
        if row is None:
            await self._settled(Change("queues", (vhost, name), None))
            return 0
        _check_owner(row, connection_id)
        ready = 0
        if row.state == "running":
            try:
                ready = await self.ask(row.address, ("delete", if_unused, if_empty))
            except ProcessDown:
                # It crashed or ended just now. Either way it is to go, and not to be restarted (AB-63).
                await self._ask_supervisor(vhost, ("forget_queue", row.queue_id))
        if self._remove(vhost, name, row.queue_id):
            await self._write()
        else:
            # The queue saw to it before it deleted its files, unless the disk is full.
            await self._settled(Change("queues", (vhost, name), None))
        return ready

    async def on_delete_exclusive(self, sender: Any, connection_id: str) -> None:
        # To itself, so that each waits its turn among what others do with the name.
        answers = [
            self.ask(self.myAddress, ("delete_queue", vhost, name, False, False, connection_id))
            for vhost, name in self.exclusive.get(connection_id, ())
        ]
        for answer in answers:
            try:
                await answer
            except AmqpError:
                pass  # the virtual host is down, and its queues with it

    def on_connection_opened(self, sender: Any, connection_id: str) -> None:
        """A connection deletes its exclusive queues when it ends; this is for one that crashes."""
        self.monitor(sender, ("connection", connection_id))

    async def on_queue_gone(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        self._remove(vhost, name, queue_id)

    def on_queue_killed(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        """It ended without having been asked to. Its messages, if they are on the disk, are not to be lost for that."""
        row = self.routing.queue(vhost, name)
        if row is not None and row.durable and self.commits is not None:
            if row.queue_id == queue_id:
                self._change_queue(row, state="stopped")
        else:
            self._remove(vhost, name, queue_id)

    def on_queue_restarted(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        self._queue_changed(vhost, name, queue_id, {"address": address})

    def on_queue_recovered(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        self._queue_changed(vhost, name, queue_id, {"address": address, "state": "running"})

    def on_queue_crashed(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        self._queue_changed(vhost, name, queue_id, {"state": "crashed"})

    def _queue_changed(self, vhost: str, name: str, queue_id: str, changes: dict[str, Any]) -> None:
        row = self.routing.queue(vhost, name)
        if row is not None and row.queue_id == queue_id:
            self._change_queue(row, **changes)
        elif self.early is not None:
            self.early.append((vhost, name, queue_id, changes))

    def _change_queue(self, row: QueueRow, **changes: Any) -> None:
        self.routing.put_queue(replace(row, **changes))
        self.restarts.look(row.vhost, row.name)

    def on_await_restart(self, sender: Any, vhost: str, name: str, address: Any) -> None:
        self.restarts.wait(sender, vhost, name, address)

    def _remove(self, vhost: str, name: str, queue_id: str) -> bool:
        """Take a queue and its bindings out of the table (AB-86), unless the name has meanwhile passed to another queue; True if something is to be written."""
        row = self.routing.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            return False
        gone = self.routing.remove_queue(vhost, name)
        self.restarts.look(vhost, name)
        if row.exclusive_owner is not None:
            owned = self.exclusive[row.exclusive_owner]
            del owned[vhost, name]
            if not owned:
                del self.exclusive[row.exclusive_owner]
        return self._note_removed(vhost, gone, row)

    async def _ask_supervisor(self, vhost: str, message: tuple[Any, ...]) -> Any:
        supervisor = self.supervisors.get(vhost)
        if supervisor is not None:
            try:
                return await self.ask(supervisor, message)
            except ProcessDown:
                pass  # the node hears of it too and calls `vhost_down`
        self._check_vhost(vhost)
        raise AmqpError(INTERNAL_ERROR, f"vhost '{vhost}' is down")

    # --- direct reply-to ----------------------------------------------------------------------------------------------

    async def on_register_reply(self, sender: Any, channel_id: str, address: Any) -> None:
        self.routing.register_reply(channel_id, address)
        self.monitor(address, channel_id)

    async def on_unregister_reply(self, sender: Any, channel_id: str) -> None:
        self.demonitor(channel_id)
        self.routing.unregister_reply(channel_id)

    def on_down(self, name: Any, reason: str) -> Any:
        if type(name) is tuple:
            self.ended.append(name[1])
            return self.on_delete_exclusive(None, name[1])
        self.routing.unregister_reply(name)
        return None

    # --- listings -----------------------------------------------------------------------------------------------------

    def on_list(self, sender: Any, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        vhosts = self.routing.vhosts() if vhost is None else (vhost,)
        if kind == "vhosts":
            return [{"name": name} for name in self.routing.vhosts()]
        if kind == "exchanges":
            return [exchange_items(row) for name in vhosts for row in self.routing.exchanges(name)]
        if kind == "bindings":
            return [binding_items(name, binding) for name in vhosts for binding in self.routing.bindings(name)]
        return [queue_items(row) for name in vhosts for row in self.routing.queues(name)]


def _is_within(key: Any, vhost: str) -> bool:
    """Whether a turn's key is that of a queue `(vhost, name)`, or of an exchange or binding `(kind, vhost, it)`, in this virtual host."""
    return len(key) == 2 and key[0] == vhost or len(key) == 3 and key[1] == vhost


def _check_binding_names(binding: Binding) -> None:
    names = (binding.destination, binding.source) if binding.kind == "exchange" else (binding.source,)
    resources.check_not_default_exchange(*names)


def _check_owner(row: QueueRow, connection_id: str) -> None:
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise resources.queue_locked(row.vhost, row.name)


def _say_recovered(path: str, found: durable_rows.Stored) -> None:
    counts = {"vhost": len(found.vhosts), "exchange": len(found.exchanges), "queue": len(found.queues), "binding": len(found.bindings)}
    said = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    if said:
        log.info("recovered from '%s': %s", path, ", ".join(said))
    else:
        log.info("data directory '%s' is new", path)
