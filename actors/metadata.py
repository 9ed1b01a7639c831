"""`Metadata`: the only writer of the routing table.

Every change of exchanges, queues and bindings is one message to this process, which makes the checks of section 7 in their
order and answers. What touches the table alone is done within the message and therefore whole. What has to wait for a queue
or its supervisor goes through `_in_turn`: operations on one queue name run one after the other, those on different names
do not wait for each other. So two channels that declare the same name at once get the same queue (AB-82 to AB-88).

Rows carry their durability; what is to survive a restart is written where the table is written, in the handlers below.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import replace
from typing import Any

from ..amqp.constants import ACCESS_REFUSED, COMMAND_INVALID, INTERNAL_ERROR, PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import Table
from ..runtime.errors import ProcessDown, ProcessError
from ..runtime.process import Process
from . import resources
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
from .exchange_types import EXCHANGE_TYPES, Binding, check_binding
from .routing import ExchangeRow, QueueRow

Operation = Callable[..., Coroutine[Any, Any, Any]]


class Metadata(Process):
    """
    ('start', context, node)                            node answers ('start_vhost', name) with a queue supervisor
    ('create_vhost', name)                              -> None; an existing one is success (AB-169)
    ('declare_exchange', vhost, name, type, durable, auto_delete, internal, arguments)            -> None
    ('delete_exchange', vhost, name, if_unused)                                                   -> None
    ('bind', vhost, kind, destination, source, routing_key, arguments, connection_id), ('unbind', ...)    -> None
    ('declare_queue', vhost, name, durable, exclusive_owner, auto_delete, arguments, connection_id)
                                                        -> (QueueRow, created); an empty name is generated
    ('delete_queue', vhost, name, if_unused, if_empty, connection_id)                             -> ready messages
    ('delete_exclusive', connection_id)                 -> None, when all are gone
    ('register_reply', channel_id, address), ('unregister_reply', channel_id)                     -> None
    ('list', kind, vhost)                               -> list of dicts; kind: exchanges, bindings, queues, vhosts

    Refusals are AmqpErrors without class and method ids. From a connection: ('connection_opened', connection_id). From a
    queue: ('queue_gone', vhost, name, queue_id) -> None; from supervisors: queue_restarted, queue_crashed (see there),
    ('vhost_down', name).
    """

    reply_errors = (AmqpError, ProcessError)

    def __init__(self) -> None:
        super().__init__()
        self.supervisors: dict[str, Any] = {}  # virtual host -> address of its queue supervisor
        self.turns: dict[Hashable, deque[tuple[Any, Operation, tuple[Any, ...]]]] = {}
        self.exclusive: dict[str, dict[tuple[str, str], None]] = {}  # connection id -> (vhost, name) of its queues

    def on_start(self, sender: Any, context: NodeContext, node: Any) -> None:
        self.context = context
        self.routing = context.routing
        self.node = node

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
        self._in_turn(("vhost", name), sender, self._create_vhost, name)

    async def _create_vhost(self, name: str) -> None:
        if name not in self.supervisors:
            self.supervisors[name] = await self.ask(self.node, ("start_vhost", name))
            self.routing.add_vhost(name)

    def on_vhost_down(self, sender: Any, name: str) -> None:
        """Its queues are stopped and no new ones can be made (AB-63, AB-171)."""
        self.supervisors.pop(name, None)
        for row in self.routing.queues(name):
            self.routing.put_queue(replace(row, state="stopped"))

    def _check_vhost(self, name: str) -> None:
        if not self.routing.has_vhost(name):
            raise AmqpError(INTERNAL_ERROR, f"vhost '{name}' does not exist")

    # --- exchanges ----------------------------------------------------------------------------------------------------

    async def on_declare_exchange(
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
        self._check_vhost(vhost)
        if exchange_type not in EXCHANGE_TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{exchange_type}'")
        resources.check_not_default_exchange(name)
        row = self.routing.exchange(vhost, name)
        if row is None:
            resources.check_not_reserved("exchange", name)
            check_exchange_arguments(vhost, name, arguments)
            alternate = alternate_exchange(arguments)
            self.routing.put_exchange(
                ExchangeRow(vhost, name, exchange_type, durable, auto_delete, internal, arguments, alternate)
            )
            return
        old = row.type, row.durable, row.auto_delete, row.internal, row.arguments
        check_exchange_equivalence(vhost, name, old, (exchange_type, durable, auto_delete, internal, arguments))

    async def on_delete_exchange(self, sender: Any, vhost: str, name: str, if_unused: bool) -> None:
        self._check_vhost(vhost)
        resources.check_not_default_exchange(name)
        phrase = resources.exchange_phrase(vhost, name)
        if name.startswith("amq."):
            raise AmqpError(ACCESS_REFUSED, f"deletion of system {phrase} not allowed")
        if self.routing.exchange(vhost, name) is None:
            return
        if if_unused and self.routing.is_source(vhost, name):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        self.routing.remove_exchange(vhost, name)

    # --- bindings -----------------------------------------------------------------------------------------------------

    async def on_bind(
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
        _check_binding_names(kind, destination, source)
        source_row = self.routing.exchange(vhost, source)
        if source_row is None:
            raise resources.no_exchange(vhost, source)
        if kind == "exchange":
            if self.routing.exchange(vhost, destination) is None:
                raise resources.no_exchange(vhost, destination)
            check_binding(source_row.type, arguments)
        else:
            queue_row = self.routing.queue(vhost, destination)
            if queue_row is None:
                raise resources.no_queue(vhost, destination)
            check_binding(source_row.type, arguments)
            _check_owner(queue_row, connection_id)
        self.routing.add_binding(vhost, Binding.of(source, kind, destination, routing_key, arguments))

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
        _check_binding_names(kind, destination, source)
        binding = Binding.of(source, kind, destination, routing_key, arguments)
        if not self.routing.has_binding(vhost, binding):
            return
        if kind == "queue":
            queue_row = self.routing.queue(vhost, destination)
            assert queue_row is not None
            _check_owner(queue_row, connection_id)
        self.routing.remove_binding(vhost, binding)

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
        row = await self._ask_supervisor(vhost, ("start_queue", wanted, False))
        self.routing.put_queue(row)
        if row.exclusive_owner is not None:
            self.exclusive.setdefault(row.exclusive_owner, {})[vhost, name] = None
        return row, True

    def on_delete_queue(self, sender: Any, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> None:
        self._in_turn((vhost, name), sender, self._delete_queue, vhost, name, if_unused, if_empty, connection_id)

    async def _delete_queue(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> int:
        row = self.routing.queue(vhost, name)
        if row is None:
            return 0
        _check_owner(row, connection_id)
        ready = 0
        if row.state == "running":
            try:
                ready = await self.ask(row.address, ("delete", if_unused, if_empty))
            except ProcessDown:
                # It crashed or ended just now. Either way it is to go, and not to be restarted (AB-63).
                await self._ask_supervisor(vhost, ("forget_queue", row.queue_id))
        self._remove(vhost, name, row.queue_id)
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

    def on_queue_restarted(self, sender: Any, vhost: str, name: str, queue_id: str, address: Any) -> None:
        row = self.routing.queue(vhost, name)
        if row is not None and row.queue_id == queue_id:
            self.routing.put_queue(replace(row, address=address))

    def on_queue_crashed(self, sender: Any, vhost: str, name: str, queue_id: str) -> None:
        row = self.routing.queue(vhost, name)
        if row is not None and row.queue_id == queue_id:
            self.routing.put_queue(replace(row, state="crashed"))

    def _remove(self, vhost: str, name: str, queue_id: str) -> None:
        """Take a queue and its bindings out of the table (AB-86), unless the name has meanwhile passed to another queue."""
        row = self.routing.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            return
        self.routing.remove_queue(vhost, name)
        if row.exclusive_owner is not None:
            owned = self.exclusive[row.exclusive_owner]
            del owned[vhost, name]
            if not owned:
                del self.exclusive[row.exclusive_owner]

    async def _ask_supervisor(self, vhost: str, message: tuple[Any, ...]) -> Any:
        supervisor = self.supervisors.get(vhost)
        if supervisor is not None:
            try:
                return await self.ask(supervisor, message)
            except ProcessDown:
                pass  # the node hears of it too and calls `vhost_down`
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
            return self.on_delete_exclusive(None, name[1])
        self.routing.unregister_reply(name)
        return None

    # --- listings -----------------------------------------------------------------------------------------------------

    def on_list(self, sender: Any, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        vhosts = self.routing.vhosts() if vhost is None else (vhost,)
        if kind == "vhosts":
            return [{"name": name} for name in self.routing.vhosts()]
        if kind == "exchanges":
            return [_exchange_items(row) for name in vhosts for row in self.routing.exchanges(name)]
        if kind == "bindings":
            return [_binding_items(name, binding) for name in vhosts for binding in self.routing.bindings(name)]
        return [queue_items(row) for name in vhosts for row in self.routing.queues(name)]


def _check_binding_names(kind: str, destination: str, source: str) -> None:
    resources.check_not_default_exchange(*((destination, source) if kind == "exchange" else (source,)))


def _check_owner(row: QueueRow, connection_id: str) -> None:
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise resources.queue_locked(row.vhost, row.name)


def _exchange_items(row: ExchangeRow) -> dict[str, Any]:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": row.arguments,
        "policy": "",
    }


def _binding_items(vhost: str, binding: Binding) -> dict[str, Any]:
    return {
        "vhost": vhost,
        "source_name": binding.source,
        "source_kind": "exchange",
        "destination_name": binding.destination,
        "destination_kind": binding.kind,
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }


def queue_items(row: QueueRow) -> dict[str, Any]:
    """What is known of a queue without asking it: all there is to say of one that does not run."""
    return {
        "vhost": row.vhost,
        "name": row.name,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "arguments": row.arguments,
        "type": row.type,
        "policy": "",
        "state": row.state,
    }
