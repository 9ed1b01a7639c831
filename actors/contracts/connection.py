"""What `Listener`, `Connection` and `TlsConnection` receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message
from .channel import ToChannelOwner
from .resources import ToAlarmListener

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from .info_items import InfoItems

#: The host and port of one end of a TCP connection.
SocketAddress = tuple[str, int]


class ToListener(Contract):
    """What `Listener` (`actors/connection/listener.py`) receives."""

    @message
    def sibling(self, listener: Address[ToListener]) -> None:
        """From the node, once: the node's other listener, whose connections count for `connection_max` as well."""

    @message
    def connections_elsewhere(self, count: int) -> None:
        """From the sibling: how many connections it has now."""

    @message
    def connections(self) -> tuple[Address[ToConnection], ...]:
        """From the node: all open connections that this listener has accepted."""

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


class ToSessionTracking(Contract):
    """What `SessionTracking` (`actors/connection/session_tracking.py`) receives."""

    @message
    def counts_changed(self) -> None:
        """From connections: counts have changed that other nodes must learn of. `Sessions` has them."""

    @message
    def limits_changed(self, counted: tuple[tuple[str, str], ...]) -> None:
        """From Metadata: a limit of each of these was set, changed or cleared, if it has any."""

    @message
    def node_met(self, address: Address[ToSessionTracking]) -> None:
        """From Metadata: this node is connected to another one, whose `SessionTracking` is there."""

    @message
    def track_sessions(self, address: Address[ToSessionTracking]) -> None:
        """From the `SessionTracking` of another node: send `session_counts` there, now and at each change."""

    @message
    def session_counts(self, counts: tuple[tuple[str, str, int], ...]) -> None:
        """From the `SessionTracking` of another node: what that node has of each kind and name. All other counts of the
        node are as they were.
        """


to_listener = ToListener()
to_connection = ToConnection()
to_session_tracking = ToSessionTracking()
