"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message
from ..channel.contract import ToChannelOwner
from ..resources.contract import ToAlarmListener

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..node.context import NodeContext


class ToListener(Contract):
    """What `Listener` (`actors/connection/listener.py`) receives."""

    @message
    def start(self, context: NodeContext, host: str, port: int, tls: bool = False) -> tuple[str, int]:
        """TODO"""

    @message
    def sibling(self, listener: Address[ToListener]) -> None:
        """TODO"""

    @message
    def connections_elsewhere(self, count: int) -> None:
        """TODO"""

    @message
    def connections(self) -> tuple[Any, ...]:
        """TODO"""

    @message
    def stop_accepting(self) -> bool:
        """TODO"""

    @message
    def close_connections(self, code: int, text: str) -> int:
        """TODO"""


class ToConnection(ToChannelOwner, ToAlarmListener):
    """What `Connection` (`actors/connection/process.py`) receives."""

    @message
    def start(self, context: NodeContext, fd: int, peer: tuple, local: tuple, is_refused: bool = False) -> None:
        """`is_refused`: the node has as many connections as it may have, which the client learns when it opens (AB-27)."""

    @message
    def force_close(self, code: int, text: str) -> None:
        """An operator, or the node's own stop, ends the connection (AB-31)."""

    @message
    def close_if_on(self, vhost: str, code: int, text: str) -> None:
        """A virtual host is deleted or down: as `force_close`, if this connection has opened it (AB-31)."""

    @message
    def info(self) -> dict[str, Any]:
        """rabbitmqctl's info items of this connection."""

    @message
    def channels_info(self) -> list[dict[str, Any]]:
        """TODO"""


to_listener = ToListener()
to_connection = ToConnection()
