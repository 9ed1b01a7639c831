"""`Metadata`: the only writer of the routing table.

Every change of exchanges, queues and bindings is one message to this process, which makes the checks of section 7 in their
order and answers. What touches the table alone is done within the message and therefore whole. What has to wait for a queue,
its supervisor or the disk takes its turn (`turns`): operations on one queue name run one after the other, those on different names
do not wait for each other. So two channels that declare the same name at once get the same queue (AB-82 to AB-88).

This file is what it hears and answers. What is done then: `vhosts`, `exchanges`, `bindings` and `queues`. What of it is kept, and what is written before what,
says `durable_tables`; how all of that comes back at the start, `recovery`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...routing import phrases as resources
from ...routing.arguments import queue_type
from ...routing.exchange_types import Binding
from ...routing.rows import ExchangeRow, QueueRow
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.metadata_store import Change
from ..node.context import NodeContext
from .bindings import Bindings
from .exchanges import Exchanges
from .info_items import binding_items, exchange_items, queue_items
from .queues import Queues
from .recovery import recover, revive
from .restart_waiters import RestartWaiters
from .table_writer import TableWriter
from .turns import Turns
from .vhosts import VirtualHosts


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
    To itself: ('await_turn', key) -> None, when what began with that key is done.
    """

    reply_errors = (AmqpError, ProcessError)

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(self)
        self.durable = TableWriter(self)
        self.vhosts = VirtualHosts(self)
        self.exchanges = Exchanges(self)
        self.bindings = Bindings(self)
        self.queues = Queues(self)

    async def on_start(self, sender: Any, context: NodeContext, node: Any) -> None:
        self.context = context
        self.routing = context.routing
        self.restarts = RestartWaiters(self, context.routing, context.node_name)
        self.node = node
        if context.settings.data_dir is not None:
            await recover(self, DataDir(context.settings.data_dir))

    def on_exit(self) -> None:
        self.durable.close()

    # --- the disk -----------------------------------------------------------------------------------------------------

    def on_write(self, sender: Any, changes: Sequence[Change]) -> None:
        self.durable.answer_when_written(sender, changes)

    def after_batch(self) -> None:
        self.durable.begin_commit()

    # --- virtual hosts ------------------------------------------------------------------------------------------------

    def on_create_vhost(self, sender: Any, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.create, name)

    def on_delete_vhost(self, sender: Any, name: str) -> None:
        self.turns.take((name,), sender, self.vhosts.delete, name)

    def on_revive_vhost(self, sender: Any, name: str) -> None:
        self.turns.take((name,), sender, revive, self, name)

    def on_await_turn(self, sender: Any, key: Hashable) -> None:
        self.turns.let_pass(key, sender)

    def on_vhost_down(self, sender: Any, name: str) -> None:
        self.vhosts.went_down(name)

    async def on_trace(self, sender: Any, vhost: str, on: bool) -> None:
        self.vhosts.check(vhost)
        self.routing.set_traced(vhost, on)

    # --- exchanges and bindings ---------------------------------------------------------------------------------------

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
        self.turns.take(("exchange", vhost, name), sender, self.exchanges.declare, wanted)

    async def on_delete_exchange(self, sender: Any, vhost: str, name: str, if_unused: bool) -> None:
        await self.exchanges.delete(vhost, name, if_unused)

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
        self.turns.take(("binding", vhost, binding), sender, self.bindings.bind, vhost, binding, connection_id)

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
        await self.bindings.unbind(vhost, Binding.of(source, kind, destination, routing_key, arguments), connection_id)

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
        self.turns.take((vhost, name), sender, self.queues.declare, row, server_named)

    def on_delete_queue(
        self, sender: Any, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str
    ) -> None:
        self.turns.take((vhost, name), sender, self.queues.delete, vhost, name, if_unused, if_empty, connection_id)

    async def on_delete_exclusive(self, sender: Any, connection_id: str) -> None:
        await self.queues.delete_exclusive(connection_id)

    async def on_queue_gone(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        self.queues.ended(vhost, name, queue_id, sender.address)

    def on_queue_killed(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        self.queues.was_killed(vhost, name, queue_id)

    def on_queue_restarted(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        self.queues.changed(vhost, name, queue_id, {"address": address})

    def on_queue_recovered(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        self.queues.changed(vhost, name, queue_id, {"address": address, "state": "running"})

    def on_queue_crashed(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        self.queues.changed(vhost, name, queue_id, {"state": "crashed"})

    def on_await_restart(self, sender: Any, vhost: str, name: str, address: Any) -> None:
        self.restarts.wait(sender, vhost, name, address)

    # --- connections, and channels that wait for direct replies -------------------------------------------------------

    def on_connection_opened(self, sender: Any, connection_id: str) -> None:
        """A connection deletes its exclusive queues when it ends; this is for one that crashes."""
        self.monitor(sender, ("connection", connection_id))

    async def on_register_reply(self, sender: Any, channel_id: str, address: Any) -> None:
        self.routing.register_reply(channel_id, address)
        self.monitor(address, channel_id)

    async def on_unregister_reply(self, sender: Any, channel_id: str) -> None:
        self.demonitor(channel_id)
        self.routing.unregister_reply(channel_id)

    def on_down(self, name: Any, reason: ExitReason) -> Any:
        if type(name) is tuple:
            self.queues.owner_ended(name[1])
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
