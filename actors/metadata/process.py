"""`Metadata`: the only writer of the routing table.

Every change of virtual hosts, exchanges, queues and bindings is one message to this process, which makes the checks of
amqp-broker section 7 in their order and answers. A change of the table alone is done within its message, and therefore
whole. A change that waits for a queue, a supervisor or the disk takes its turn (`turns`): operations on one queue name
run one after the other, those on different names do not wait for each other. So two channels that declare the same name
at once get the same queue (AB-82 to AB-88).

This file receives the messages. `vhosts`, `exchanges`, `bindings` and `queues` do what they ask for; `table_writer`
keeps the durable part on the disk, and `recovery` brings it back at the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...routing.arguments import queue_type
from ...routing.phrases import generated_name
from ...routing.rows import Binding, ExchangeRow, QueueRow
from ...routing.table import RoutingTable
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import ReplyHandle
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.metadata_store import Change
from ..node.context import NodeContext
from .bindings import Bindings
from .contract import ToMetadata, TurnKey
from .exchanges import Exchanges
from .info_items import InfoItems, binding_items, exchange_items, queue_items
from .queues import Queues
from .recovery import Recovery
from .supervisors import QueueSupervisors
from .table_writer import TableWriter
from .turns import Turns
from .vhosts import VirtualHosts

if TYPE_CHECKING:
    from ..channel.contract import ToChannel
    from ..node.contract import ToNode
    from ..queue.contract import ToQueue

#: Names of monitors: of the connection with that id, and of the channel with that id that receives direct replies.
CONNECTION, REPLY_CHANNEL = "connection", "reply channel"


class Metadata(Process):
    """See the module."""

    contract = ToMetadata
    reply_errors = (AmqpError, ProcessError)

    routing: RoutingTable
    vhosts: VirtualHosts
    exchanges: Exchanges
    bindings: Bindings
    queues: Queues

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(self)
        self.table_writer = TableWriter(self)

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode]) -> None:
        routing, writer = context.routing, self.table_writer
        supervisors = QueueSupervisors(self, routing)
        queues = Queues(self, routing, context.node_name, writer, supervisors)
        self.routing = routing
        self.supervisors = supervisors
        self.queues = queues
        self.exchanges = Exchanges(routing, writer, supervisors)
        self.bindings = Bindings(routing, writer, supervisors)
        self.vhosts = VirtualHosts(self, node, routing, writer, supervisors, queues, self.turns)
        self.recovery = Recovery(self, node, routing, writer, supervisors, queues)
        if context.settings.data_dir is not None:
            await self.recovery.recover(DataDir(context.settings.data_dir))

    def on_exit(self) -> None:
        self.table_writer.close()

    # --- the disk ---

    def on_write(self, sender: Sender, changes: Sequence[Change]) -> None:
        self.table_writer.answer_when_written(sender, changes)

    def after_batch(self) -> None:
        self.table_writer.begin_commit()

    # --- virtual hosts ---

    def on_create_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.create, name)

    def on_delete_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.delete, name)

    def on_revive_vhost(self, sender: Sender, name: str) -> None:
        self.turns.take((name,), sender, self.recovery.revive, name)

    def on_await_turn(self, sender: Sender, key: TurnKey) -> None:
        self.turns.let_pass(key, sender)

    def on_vhost_down(self, sender: Sender, name: str) -> None:
        self.vhosts.went_down(name)

    async def on_trace(self, sender: Sender, vhost: str, on: bool) -> None:
        self.supervisors.check_vhost(vhost)
        self.routing.set_traced(vhost, on)

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
    ) -> None:
        wanted = ExchangeRow(vhost, name, exchange_type, durable, auto_delete, internal, arguments)
        self.turns.take(("exchange", vhost, name), sender, self.exchanges.declare, wanted)

    async def on_delete_exchange(self, sender: Sender, vhost: str, name: str, if_unused: bool) -> None:
        await self.exchanges.delete(vhost, name, if_unused)

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
    ) -> None:
        binding = Binding.of(source, kind, destination, routing_key, arguments)
        self.turns.take(("binding", vhost, binding), sender, self.bindings.bind, vhost, binding, connection_id)

    async def on_unbind(
        self,
        sender: Sender,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
    ) -> None:
        await self.bindings.unbind(vhost, Binding.of(source, kind, destination, routing_key, arguments), connection_id)

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
    ) -> None:
        server_named = not name
        if server_named:
            name = generated_name("amq.gen", self.random_bytes(16))
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
        self.turns.take((vhost, name), sender, self.queues.declare, row, server_named)

    def on_delete_queue(
        self, sender: Sender, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str
    ) -> None:
        self.turns.take((vhost, name), sender, self.queues.delete, vhost, name, if_unused, if_empty, connection_id)

    async def on_delete_exclusive(self, sender: Sender, connection_id: str) -> None:
        await self.queues.delete_exclusive(connection_id)

    async def on_queue_gone(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        address = sender.address if isinstance(sender, ReplyHandle) else sender
        self.queues.leaves(vhost, name, queue_id, address)

    def on_queue_killed(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        self.queues.was_killed(vhost, name, queue_id)

    def on_queue_restarted(
        self, sender: Sender, vhost: str, name: str, queue_id: str, address: Address[ToQueue]
    ) -> None:
        self.queues.update(vhost, name, queue_id, {"address": address})

    def on_queue_recovered(
        self, sender: Sender, vhost: str, name: str, queue_id: str, address: Address[ToQueue]
    ) -> None:
        self.queues.update(vhost, name, queue_id, {"address": address, "state": "running"})

    def on_queue_crashed(self, sender: Sender, vhost: str, name: str, queue_id: str) -> None:
        self.queues.update(vhost, name, queue_id, {"state": "crashed"})

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
            self.queues.owner_ended(ended)
            self.spawn(self.queues.delete_exclusive(ended))
        else:
            self.routing.unregister_reply(ended)

    # --- listings ---

    def on_list(self, sender: Sender, kind: str, vhost: str | None) -> list[InfoItems]:
        vhosts = self.routing.vhosts() if vhost is None else (vhost,)
        if kind == "vhosts":
            return [{"name": name} for name in self.routing.vhosts()]
        if kind == "exchanges":
            return [exchange_items(row) for name in vhosts for row in self.routing.exchanges(name)]
        if kind == "bindings":
            return [binding_items(name, binding) for name in vhosts for binding in self.routing.bindings(name)]
        return [queue_items(row) for name in vhosts for row in self.routing.queues(name)]
