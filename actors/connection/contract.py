"""What the processes of this folder receive."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message
from ..channel.contract import ToChannelOwner
from ..resources.contract import ToAlarmListener

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..metadata.info_items import InfoItems
    from ..node.context import NodeContext

#: The host and port of one end of a TCP connection.
SocketAddress = tuple[str, int]


class ToListener(Contract):
    """What `Listener` (`actors/connection/listener.py`) receives."""

    @message
    def start(self, context: NodeContext, host: str, port: int, tls: bool = False) -> SocketAddress:
        """From the node: listen, and answer with the address in use. Port 0 lets the system choose one.

        With `tls` clients must speak TLS. ListenError and TlsError if it cannot be done.
        """

    @message
    def sibling(self, listener: Address[ToListener]) -> None:
        """From the node, once: the node's other listener, whose connections count for `connection_max` as well."""

    @message
    def connections_elsewhere(self, count: int) -> None:
        """From the sibling: how many connections it has now."""

    @message
    def connections(self) -> tuple[Address[ToConnection], ...]:
        """From the node: all connections that came in by this listener."""

    @message
    def stop_accepting(self) -> bool:
        """From the node: close the listening socket, so that new clients are refused."""

    @message
    def accept_again(self) -> bool:
        """From the node: open the listening socket again, at the address that it had; ListenError if that is in use."""

    @message
    def reload_certificate(self) -> str:
        """From the node: read the files of the certificate again, for clients that connect from now on.

        Answered with an empty text, or with the reason why the certificate in use stays.
        """

    @message
    def close_connections(self, code: int, text: str) -> bool:
        """From the node: close each connection as `force_close` does; answered when all have ended."""


class ToConnection(ToChannelOwner, ToAlarmListener):
    """What `Connection` and `TlsConnection` (`actors/connection/`) receive."""

    @message
    def start(
        self,
        context: NodeContext,
        fd: int,
        peer: SocketAddress,
        local: SocketAddress,
        is_refused: bool = False,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        """From the listener: serve the accepted socket `fd`.

        `is_refused`: the node has too many connections; connection.open is answered with that error (AB-27). Only a
        `TlsConnection` has a `tls_context`. It and `fd` mean nothing in another process of the operating system.
        """

    @message
    def force_close(self, code: int, text: str) -> None:
        """From the listener and the node: close the connection, for an operator or because the node stops (AB-31)."""

    @message
    def close_if_on(self, vhost: str, code: int, text: str) -> None:
        """From the node: close the connection if it uses this virtual host, which is deleted or down (AB-31)."""

    @message
    def info(self) -> InfoItems:
        """From the node: rabbitmqctl's info items of this connection."""

    @message
    def channels_info(self) -> list[InfoItems]:
        """From the node: rabbitmqctl's info items of each of its channels."""


to_listener = ToListener()
to_connection = ToConnection()
