"""The messages of `Metadata`, the only writer of the routing table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ...amqp.fields import Table
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ..metadata.state.commands import DefinitionCommand, GroupCommand, NodeCommand
    from .channel import ToChannel
    from .info_items import InfoItems
    from .queue import ToQueue

    #: The name of a queue that is to be declared, whether it is durable, the id of the connection that is to own it or
    #: None, whether it is auto-delete, and its arguments.
    QueueDeclaration = tuple[str, bool, str | None, bool, Table]


class ToMetadata(Contract):
    """What `Metadata` receives. It refuses with AmqpErrors, which name neither class nor method of the AMQP request."""

    @message
    def write(self) -> None:
        """From queues and the node: answered when everything that was changed before is on the disk."""

    @message
    def create_vhost(self, name: str) -> None:
        """From the node: an existing virtual host is success (AB-169)."""

    @message
    def delete_vhost(self, name: str) -> bool:
        """From the node: answered True when nothing of the virtual host is left, False if there is none (AB-170)."""

    @message
    def change_definitions(self, command: DefinitionCommand | NodeCommand | GroupCommand) -> int:
        """From operations, Members and replicas: apply this command.

        Answered with how many rows and records changed, when this node has applied it: a command on groups that changes
        nothing was refused. Raises DefinitionError, and AmqpError 541 if the outcome of the command is unknown.
        """

    @message
    def revive_vhost(self, name: str) -> None:
        """From the node: try once more to start this virtual host, which could not be started before."""

    @message
    def vhost_down(self, name: str) -> None:
        """From the node: a process of this virtual host failed, so its queues are stopped (AB-171)."""

    @message
    def trace(self, vhost: str, on: bool) -> None:
        """From the node: trace the messages of this virtual host, or stop that; not kept on the disk (AB-81)."""

    @message
    def declare_exchange(
        self,
        vhost: str,
        name: str,
        exchange_type: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Table,
        by: str = "",
    ) -> None:
        """From channels and operations: exchange.declare (AB-65).

        `by` is in this message and others the user who asks, for events.
        """

    @message
    def delete_exchange(self, vhost: str, name: str, if_unused: bool, by: str = "") -> None:
        """From channels: exchange.delete (AB-66)."""

    @message
    def window_behind(self, vhost: str, exchange: str) -> tuple[int, str | None]:
        """From channels, for the catalogue: the number of messages published to this exchange that every queue behind
        it remembers at least, and the name of the queue that remembers the fewest (SP-83).

        It is 0 if a queue does not deduplicate them, and 0 and None if there is no queue.
        """

    @message
    def bind(
        self,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
        by: str = "",
    ) -> None:
        """From channels: queue.bind, exchange.bind (AB-73).

        `kind` is that of the destination, `queue` or `exchange`.
        """

    @message
    def unbind(
        self,
        vhost: str,
        kind: str,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Table,
        connection_id: str,
        by: str = "",
    ) -> None:
        """From channels: queue.unbind, exchange.unbind. A binding that does not exist is success."""

    @message
    def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool,
        exclusive_owner: str | None,
        auto_delete: bool,
        arguments: Table,
        connection_id: str,
        by: str = "",
        is_typed: bool = False,
    ) -> tuple[QueueRow, bool]:
        """From channels: queue.declare (AB-82 to AB-88). Answered with the queue's row and whether the queue is new.

        An empty name is generated. `exclusive_owner` is the id of the connection that is to own the queue, or None. If
        the arguments have no type, the queue gets the default type of its virtual host (AB-91), unless it `is_typed`:
        an import has decided on the type already.
        """

    @message
    def declare_queues(
        self, vhost: str, declares: list[QueueDeclaration], connection_id: str, by: str = ""
    ) -> list[tuple[QueueRow, bool]]:
        """From channels: several named queues in this order, whose commands may share a commit.

        Answered as `declare_queue`, with an answer for each queue before the first that is refused. No queue behind
        that one is declared, unless the disk has refused it or another client was about to declare a queue of its name.
        """

    @message
    def delete_queue(
        self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str, by: str = ""
    ) -> int:
        """From channels: queue.delete. Answered with the ready messages."""

    @message
    def connection_ending(self, connection_id: str) -> None:
        """From connections, before they end their channels: `delete_exclusive` will follow."""

    @message
    def await_owner_end(self, vhost: str, name: str) -> bool:
        """From channels that may not use an exclusive queue: answered True once its owner, which is ending, has ended.

        Answered False at once if the owner is not ending.
        """

    @message
    def delete_exclusive(self, connection_id: str) -> None:
        """From connections that end: answered when the exclusive queues of this connection are gone (AB-84)."""

    @message
    def queue_gone(self, vhost: str, name: str, queue_id: str) -> None:
        """From a queue that ends by itself (auto-delete, x-expires): answered when it is out of the routing table."""

    @message
    def queue_killed(self, vhost: str, name: str, queue_id: str) -> None:
        """From queue supervisors: the queue's process ended, neither by a fault nor because the queue was deleted."""

    @message
    def queue_restarted(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """From queue supervisors: the queue crashed and runs again, at `address`."""

    @message
    def queue_recovered(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """From queue supervisors: the queue could not be recovered before, and runs now, at `address`."""

    @message
    def queue_crashed(self, vhost: str, name: str, queue_id: str) -> None:
        """From queue supervisors: the queue crashed too often and is not restarted (AB-63)."""

    @message
    def await_restart(self, vhost: str, name: str, address: Address[ToQueue]) -> QueueRow:
        """From channels that found the queue dead at `address`: answered with its row once it runs at another address.

        Raises AmqpError 404 once the queue is gone or cannot be used.
        """

    @message
    def replica_ended(self, vhost: str, name: str, queue_id: str, generation: int) -> None:
        """From queue supervisors: the process of the member with this generation has ended by itself."""

    @message
    def replica_unfit(self, vhost: str, name: str, queue_id: str, generation: int) -> None:
        """From a learner with this generation: what its disk has of the queue cannot be made equal to what the others
        have. It ends, and the next replica here begins without messages.
        """

    @message
    def node_stops(self) -> None:
        """From the node, which stops in order: it gets no more replicas, since they would copy queues for nothing."""

    @message
    def await_replica(self, queue_id: str) -> bool:
        """From the Metadata of another node, which has declared a mirrored queue: answered True when this node has
        started its replica of it, or could not.
        """

    @message
    def await_vhost(self, name: str) -> bool:
        """From the Metadata of another node, which has created a virtual host: answered True when this node has tried
        to start it.
        """

    @message
    def await_queue(self, vhost: str, name: str, queue_id: str) -> bool:
        """From the Metadata of another node, which has declared a queue at home here.

        Answered True when the queue runs, False when it is gone. Raises AmqpError if it cannot be started.
        """

    @message
    def connection_opened(self, connection_id: str) -> None:
        """From connections: delete this connection's exclusive queues if it crashes.

        One that ends in order asks for that itself.
        """

    @message
    def register_reply(self, channel_id: str, address: Address[ToChannel]) -> None:
        """From channels: direct replies to `channel_id` go to `address` (AB-142).

        Answered when the routing table has it.
        """

    @message
    def unregister_reply(self, channel_id: str) -> None:
        """From channels: they receive no direct replies any more."""

    @message
    def list(self, kind: str, vhost: str | None) -> list[InfoItems]:
        """From the node: the rows of `exchanges`, `bindings`, `queues` or `vhosts`; of all virtual hosts if `vhost` is
        None.
        """


to_metadata = ToMetadata()
