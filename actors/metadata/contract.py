"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ...amqp.fields import Table
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ...store.data_dir.metadata_store import Change
    from ..channel.contract import ToChannel
    from ..node.context import NodeContext
    from ..node.contract import ToNode
    from ..queue.contract import ToQueue


class ToMetadata(Contract):
    """What `Metadata` (`actors/metadata/process.py`) receives."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode]) -> None:
        """TODO"""

    @message
    def write(self, changes: Sequence[Change]) -> None:
        """TODO"""

    @message
    def create_vhost(self, name: str) -> bool:
        """TODO"""

    @message
    def delete_vhost(self, name: str) -> bool:
        """TODO"""

    @message
    def revive_vhost(self, name: str) -> None:
        """TODO"""

    @message
    def await_turn(self, key: Hashable) -> None:
        """TODO"""

    @message
    def vhost_down(self, name: str) -> None:
        """TODO"""

    @message
    def trace(self, vhost: str, on: bool) -> None:
        """TODO"""

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
    ) -> None:
        """TODO"""

    @message
    def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        """TODO"""

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
    ) -> None:
        """TODO"""

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
    ) -> None:
        """TODO"""

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
    ) -> tuple[QueueRow, bool]:
        """TODO"""

    @message
    def delete_queue(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> int:
        """TODO"""

    @message
    def delete_exclusive(self, connection_id: str) -> None:
        """TODO"""

    @message
    def queue_gone(self, vhost: str, name: str, queue_id: str) -> None:
        """TODO"""

    @message
    def queue_killed(self, vhost: str, name: str, queue_id: str) -> None:
        """TODO"""

    @message
    def queue_restarted(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """TODO"""

    @message
    def queue_recovered(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """TODO"""

    @message
    def queue_crashed(self, vhost: str, name: str, queue_id: str) -> None:
        """TODO"""

    @message
    def await_restart(self, vhost: str, name: str, address: Address[ToQueue]) -> QueueRow:
        """TODO"""

    @message
    def connection_opened(self, connection_id: str) -> None:
        """A connection deletes its exclusive queues when it ends; this is for one that crashes."""

    @message
    def register_reply(self, channel_id: str, address: Address[ToChannel]) -> None:
        """TODO"""

    @message
    def unregister_reply(self, channel_id: str) -> None:
        """TODO"""

    @message
    def list(self, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        """TODO"""


to_metadata = ToMetadata()
