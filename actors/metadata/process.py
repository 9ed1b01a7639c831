"""`Metadata`: keeps the rows of virtual hosts, exchanges, queues and bindings, and alone writes the routing table.

Every change is a command (`state/commands.py`). Metadata makes one from each request, proposes it to the log (`log`),
applies it when the log has committed it (`state/state.py`), shows what changed in the routing table, and performs what
has to happen because of it, such as starting a queue (`changing`). The checks of amqp-broker section 7 are made when a
command is applied, so the order of the log decides which of two requests finds what.

Conversations with processes take time, so requests for one queue name take turns (`turns`), and requests for one
virtual host do: a queue that is asked to end must not be declared again before it has answered. Requests for different
names do not wait for each other.

This file receives the messages. `queues` and `vhosts` hold these conversations, `exchanges` has the requests for
exchanges and bindings, `local_log` keeps the durable rows on the disk, and `recovery` brings them back at the start.
Commands of other nodes of a cluster are applied in the same way (`log`); those who proposed them wait on their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import proxy

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...definitions.changes import RecordPut, RecordRemoved
from ...definitions.errors import DefinitionError
from ...definitions.records import User
from ...routing.changes import Change, ExchangePut, QueuePut, QueueRemoved, VhostRemoved
from ...routing.rows import Binding, ExchangeRow, QueueRow
from ...routing.table import RoutingTable
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import ReplyHandle, Slices
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.system.address import system_of
from ...store.data_dir.data_dir import DataDir
from ..context.events import watching_exchanges
from ..context.node_context import NodeContext
from ..context.peers import CHANNELS, METADATA_NAME, QUEUES, short_name
from ..context.sessions import limited_by
from ..context.starting import ToNewMetadata
from ..contracts.connection import to_connection, to_session_tracking
from ..contracts.info_items import InfoItems
from .changing import Changing
from .exchanges import Exchanges
from .info_items import binding_items, exchange_items, queue_items
from .live_policies import LivePolicies
from .log.local_log import LocalLog
from .log.log import CommandOutcome, Log
from .queue_windows import QueueWindows
from .queues.declarations import Declarations
from .queues.group_watch import GroupWatch
from .queues.homes import Homes
from .queues.owner_waiters import OwnerWaiters
from .queues.queues import Queues
from .queues.replicas import Replicas
from .recovery import Recovery
from .state.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DefinitionCommand,
    DeleteExchange,
    EndConnection,
    GroupCommand,
    NodeCommand,
    Unbind,
)
from .state.effects import Applied, StartQueue
from .state.state import State
from .turns import Turns
from .vhosts import VirtualHosts

if TYPE_CHECKING:
    from ..contracts.channel import ToChannel
    from ..contracts.metadata import QueueDeclaration
    from ..contracts.node import ToNode
    from ..contracts.queue import ToQueue

#: Names of monitors: of the connection with that id, and of the channel with that id that receives direct replies.
CONNECTION, REPLY_CHANNEL = "connection", "reply channel"

#: A request with more arguments than this has a turn of its own. With 8,000 of them it takes 3 ms.
MANY_ARGUMENTS = 256


class Metadata(Process):
    """See the module."""

    contract = ToNewMetadata
    reply_errors = (AmqpError, DefinitionError, ProcessError)
    #: How many messages one turn handles: a declare takes 50 µs, so a turn takes less than 1 ms.
    turn_limit = 16

    routing: RoutingTable
    policies: LivePolicies
    windows: QueueWindows
    changing: Changing
    vhosts: VirtualHosts
    queues: Queues
    exchanges: Exchanges
    homes: Homes
    declarations: Declarations
    owner_waiters: OwnerWaiters
    replicas: Replicas

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(self)
        self.state = State()
        #: The log of a node without a cluster. A node that may have a cluster gets another one before it starts.
        self.log: Log = LocalLog(self, self.state, self)

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode]) -> None:
        # Every process of the node reads the definitions, so the state has those of the node.
        self.state.definitions = context.definitions
        self.sessions, self.events, self.counts = context.sessions, context.events, context.counts
        routing, state, name, data_dir = context.routing, self.state, context.node_name, context.settings.data_dir
        self.routing = routing
        routing.watch_queues(GroupWatch(self, name, routing).queue_changed)
        self.homes = Homes(name, context.settings.queue_master_locator, state, self.random_bytes)
        self.policies = LivePolicies(self, name, routing, state.definitions, context.settings.queue_mode_precedence)
        self.windows = QueueWindows(self, routing, state, self.policies)
        self.changing = Changing(self, node, routing, state, self.log, self.policies, context)
        self.exchanges = Exchanges(self, state, self.log, self.changing, self._answer_with)
        is_durable = data_dir is not None
        self.queues = Queues(
            self, self.turns, routing, state, self.changing, self.policies, self.homes, name, is_durable
        )
        self.declarations = Declarations(self, self.turns, self.log, self.state, self.homes, self.queues)
        self.owner_waiters = OwnerWaiters(self, routing)
        waiters, replace_seconds = self.queues.restart_waiters, context.settings.mirror_replace_wait
        self.replicas = Replicas(self, name, routing, state, self.changing, waiters, context.peers, replace_seconds)
        # The parts of a process must not refer to each other in a circle.
        replicas, exchanges, windows = proxy(self.replicas), proxy(self.exchanges), proxy(self.windows)
        policies = proxy(self.policies)
        self.policies.mirror_of = lambda queue_id: replicas.address_of(queue_id)
        self.replicas.on_mirror = lambda row, version: policies.mirror_started(row, version)
        self.changing.cascades.on_free = lambda requests: exchanges.propose_all(requests)
        self.policies.on_alternates = lambda vhost: windows.exchanges_changed(vhost)
        self.changing.on_own = lambda row: replicas.own_runs(row)
        self.changing.lives.on_vhost = lambda vhost: replicas.vhost_started(vhost)
        self.vhosts = VirtualHosts(routing, self.changing, self.turns, watching_exchanges(context.settings))
        self.recovery = Recovery(self, node, routing, state, self.changing, self.queues, self.policies, name)
        self.changing.elsewhere.on_new_address = self.queues.restart_waiters.row_changed
        context.peers.own = short_name(system_of(self.myAddress))
        self.register(METADATA_NAME)
        self.register_family(QUEUES, self.changing.elsewhere.find, self.changing.elsewhere.is_expected)
        self.register_family(CHANNELS, routing.reply_channel)
        await self.recovery.recover(None if data_dir is None else DataDir(data_dir), self.log)

    def on_exit(self) -> None:
        self.log.close()

    # --- the log ---

    def applied(self, command: Command, applied: Applied, is_own: bool) -> None:
        """See `LogOwner`."""
        if self.recovery.is_reading:
            return  # the routing table gets all rows when there is nothing left to read
        if isinstance(command, DeclareQueue):
            self.counts.queue_created += sum(isinstance(change, QueuePut) for change in applied.changes)
        self._show(applied, is_own)
        if is_own and applied.changes:
            self.events.emit_applied(self, command, applied.changes)

    def replaced(self, applied: Applied) -> None:
        """See `LogOwner`."""
        if not self.recovery.is_reading:
            self._show(applied, False)

    def _show(self, applied: Applied, is_own: bool) -> None:
        """Show the changes in the routing table, and notify the parts of Metadata that follow them. Effects of another
        node's command are performed here.

        For a command of this node, the operation that has proposed it performs them.
        """
        self.changing.lives.note(applied.effects)
        for effect in applied.effects:
            if isinstance(effect, StartQueue) and effect.row.node == self.homes.here:
                self.changing.elsewhere.starts(effect.row)
        if applied.effects and not is_own:
            self.changing.elsewhere.perform(applied.effects)
        if not applied.changes:
            return
        rows = [change for change in applied.changes if not isinstance(change, (RecordPut, RecordRemoved))]
        self._count(rows)
        # The routing table's version changes for records too: what channels remember of a publish may follow from them.
        self.routing.publish(rows)
        self.changing.elsewhere.show(rows)
        self.policies.exchanges_added(change for change in rows if isinstance(change, ExchangePut))
        self.windows.published(rows)
        self.replicas.published(rows)
        self.queues.published(rows)
        if len(rows) < len(applied.changes):
            self._definitions_changed(applied)

    def _count(self, rows: Sequence[Change]) -> None:
        """Count the queues that are deleted, for the statistics."""
        for change in rows:
            if isinstance(change, QueueRemoved):
                self.counts.queue_deleted += 1
            elif isinstance(change, VhostRemoved):
                self.counts.queue_deleted += len(self.routing.queues(change.vhost))

    def _definitions_changed(self, applied: Applied) -> None:
        records = [change for change in applied.changes if isinstance(change, (RecordPut, RecordRemoved))]
        for change in records:
            if isinstance(change, RecordRemoved) and isinstance(change.record, User):
                for session in self.sessions.of_user(change.record.name):
                    text = f"user '{session.user}' is deleted"
                    self.send(session.address, to_connection.force_close(CONNECTION_FORCED, text))
        limited = tuple(counted for change in records for counted in limited_by(change.record))
        if limited and self.sessions.tracking is not None:
            self.send(self.sessions.tracking, to_session_tracking.limits_changed(limited))
        if any(isinstance(change, VhostRemoved) for change in applied.changes):
            # The queues of the virtual host are deleted with it, so no policy is applied to them.
            return
        self.policies.changed(records)

    def on_write(self, sender: Sender) -> None:
        self.log.flush(partial(self._answer_with, sender))

    def _answer_with(self, sender: Sender, outcome: CommandOutcome) -> None:
        if outcome.error is not None:
            self.reply_error(sender, outcome.error)
        else:
            self.reply(sender, None)

    def after_batch(self) -> None:
        self.log.begin()

    # --- virtual hosts ---

    def on_create_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.create, name)

    def on_delete_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.delete, name)

    def on_revive_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.recovery.revive, name)

    async def on_vhost_down(self, sender: Sender, name: str) -> None:
        self.events.emit_vhost_down(self, name)
        self.vhosts.went_down(name)
        await self.replicas.vhost_down(name)
        # Afterwards, because the last member of a ring gets another generation when it leaves, and its queue runs then.
        await self.queues.all_stopped(name)

    async def on_trace(self, sender: Sender, vhost: str, on: bool) -> None:
        self.state.rows(vhost)
        self.routing.set_traced(vhost, on)

    def on_change_definitions(self, sender: Sender, command: DefinitionCommand | NodeCommand | GroupCommand) -> None:
        self.log.propose(command, partial(self._answer_with_count, sender))

    def _answer_with_count(self, sender: Sender, outcome: CommandOutcome) -> None:
        if outcome.error is not None:
            self.reply_error(sender, outcome.error)
        else:
            self.reply(sender, len(outcome.applied.changes) if outcome.applied is not None else 0)

    # --- exchanges and bindings ---

    def on_declare_exchange(
        self,
        sender: Sender,
        vhost: str,
        name: str,
        exchange_type: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
        by: str = "",
    ) -> Slices[None] | None:
        row = ExchangeRow(vhost, name, exchange_type, durable, auto_delete, internal, arguments)
        return _paced(arguments, lambda: self.exchanges.propose(sender, DeclareExchange(row, by)))

    def on_delete_exchange(self, sender: Sender, vhost: str, name: str, if_unused: bool, by: str = "") -> None:
        self.exchanges.propose(sender, DeleteExchange(vhost, name, if_unused, by))

    def on_window_behind(
        self, sender: Sender, vhost: str, exchange: str
    ) -> Coroutine[object, None, tuple[int, str | None]]:
        return self.windows.behind(vhost, exchange)

    def on_bind(
        self,
        sender: Sender,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
        by: str = "",
    ) -> Slices[None] | None:
        def bind() -> None:
            binding = Binding.of(source, kind, destination, routing_key, arguments)
            self.exchanges.propose(sender, Bind(vhost, binding, connection_id, by))

        return _paced(arguments, bind)

    def on_unbind(
        self,
        sender: Sender,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
        by: str = "",
    ) -> Slices[None] | None:
        def unbind() -> None:
            binding = Binding.of(source, kind, destination, routing_key, arguments)
            self.exchanges.propose(sender, Unbind(vhost, binding, connection_id, by))

        return _paced(arguments, unbind)

    # --- queues ---

    def on_declare_queue(
        self,
        sender: Sender,
        vhost: str,
        name: str,
        durable: bool,
        exclusive_owner: str | None,
        auto_delete: bool,
        arguments: Table,
        connection_id: str,
        by: str = "",
        is_typed: bool = False,
    ) -> None:
        declared = name, durable, exclusive_owner, auto_delete, arguments
        self.declarations.declare(sender, vhost, declared, by, is_typed)

    async def on_declare_queues(
        self, sender: Sender, vhost: str, declares: list[QueueDeclaration], connection_id: str, by: str = ""
    ) -> list[tuple[QueueRow, bool]]:
        return await self.declarations.declare_all(vhost, declares, by)

    def on_delete_queue(
        self, sender: Sender, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str, by: str = ""
    ) -> None:
        self.turns.take((vhost, name), sender, self.queues.delete, vhost, name, if_unused, if_empty, connection_id, by)

    def on_connection_ending(self, sender: Sender, connection_id: str) -> None:
        self.owner_waiters.owner_ending(connection_id)

    def on_await_owner_end(self, sender: Sender, vhost: str, name: str) -> None:
        self.owner_waiters.wait(sender, vhost, name)

    async def on_delete_exclusive(self, sender: Sender, connection_id: str) -> None:
        await self.queues.delete_exclusive(connection_id)
        self.owner_waiters.owner_ended(connection_id)

    async def on_queue_gone(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        address = sender.address if isinstance(sender, ReplyHandle) else sender
        await self.queues.leaves(vhost, name, queue_id, address)

    def on_queue_killed(
        self, sender: Sender, vhost: str, name: str, queue_id: str
    ) -> Coroutine[object, None, None] | None:
        return self.queues.was_killed(vhost, name, queue_id)

    async def on_queue_restarted(
        self, sender: Sender, vhost: str, name: str, queue_id: str, address: Address[ToQueue]
    ) -> None:
        await self.queues.restarted(vhost, name, queue_id, address)

    async def on_queue_recovered(
        self, sender: Sender, vhost: str, name: str, queue_id: str, address: Address[ToQueue]
    ) -> None:
        await self.queues.restarted(vhost, name, queue_id, address)

    def on_await_vhost(self, sender: Sender, name: str) -> None:
        self.changing.elsewhere.await_vhost(sender, name)

    def on_await_queue(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        self.changing.elsewhere.await_queue(sender, vhost, name, queue_id)

    async def on_replica_ended(self, sender: Sender, vhost: str, name: str, queue_id: str, generation: int) -> None:
        await self.replicas.ended(vhost, name, queue_id, generation)

    async def on_replica_unfit(self, sender: Sender, vhost: str, name: str, queue_id: str, generation: int) -> None:
        await self.replicas.unfit(vhost, name, queue_id, generation)

    def on_node_stops(self, sender: Sender) -> None:
        self.replicas.is_stopping = True

    def on_await_replica(self, sender: Sender, queue_id: str) -> None:
        self.replicas.await_started(sender, queue_id)

    async def on_queue_crashed(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        await self.queues.crashed(vhost, name, queue_id)

    def on_await_restart(self, sender: Sender, vhost: str, name: str, address: Address[ToQueue]) -> None:
        self.queues.restart_waiters.wait(sender, vhost, name, address)

    # --- connections, and channels that receive direct replies ---

    def on_connection_opened(self, sender: Sender, connection_id: str) -> None:
        self.monitor(sender, (CONNECTION, connection_id))

    async def on_register_reply(self, sender: Sender, channel_id: str, address: Address[ToChannel]) -> None:
        self.routing.register_reply(channel_id, address)
        self.monitor(address, (REPLY_CHANNEL, channel_id))

    async def on_unregister_reply(self, sender: Sender, channel_id: str) -> None:
        self.demonitor((REPLY_CHANNEL, channel_id))
        self.routing.unregister_reply(channel_id)

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        kind, ended = name
        if kind == CONNECTION:
            self.spawn(self._connection_crashed(ended))
        else:
            self.routing.unregister_reply(ended)

    async def _connection_crashed(self, connection_id: str) -> None:
        """Delete the exclusive queues of a connection, and refuse its further declares: one may still be on its way."""
        await self.changing.note(EndConnection(connection_id))
        await self.queues.delete_exclusive(connection_id)
        self.owner_waiters.owner_ended(connection_id)

    # --- listings ---

    async def on_list(self, sender: Sender, kind: str, vhost: str | None) -> list[InfoItems]:
        if kind == "vhosts":
            return [{"name": name} for name in self.state.vhosts]
        found: list[InfoItems] = []
        definitions = self.state.definitions
        for rows in [rows for name, rows in self.state.vhosts.items() if vhost is None or name == vhost]:
            if kind == "exchanges":
                found += await self.in_steps(
                    partial(exchange_items, definitions=definitions), tuple(rows.exchanges.values())
                )
            elif kind == "bindings":
                found += await self.in_steps(partial(binding_items, rows.vhost), rows.all_bindings())
            else:
                found += await self.in_steps(partial(queue_items, definitions=definitions), tuple(rows.queues.values()))
        return found


def _paced(arguments: Table, handle: Callable[[], None]) -> Slices[None] | None:
    """Handle a request, in a turn of its own if it has very many arguments."""
    if len(arguments) <= MANY_ARGUMENTS:
        handle()
        return None
    return _alone(handle)


def _alone(handle: Callable[[], None]) -> Slices[None]:
    yield
    handle()
    yield
