"""`ReconnectingLink`: one connection to the broker, which connects again when it is lost (FC-77)."""

from __future__ import annotations

from typing import Protocol

import pika
from pika.adapters.select_connection import IOLoop


class LinkUser(Protocol):
    """A shard, which has its channels on a link."""

    def link_opened(self, connection: pika.SelectConnection) -> None:
        """Open the channels on this connection."""

    def link_lost(self, reason: str) -> None:
        """Note that the connection has ended, and its channels with it."""


class ReconnectingLink:
    """One connection of a sharded queue. All its methods run on the thread of the loop."""

    def __init__(self, loop: IOLoop, parameters: pika.connection.Parameters, reconnect_delay: float) -> None:
        self._loop = loop
        self._parameters = parameters
        self._reconnect_delay = reconnect_delay
        self._users: list[LinkUser] = []
        self._connection: pika.SelectConnection | None = None
        self._is_closing = False
        #: Why the last attempt to connect failed, or why the last connection ended.
        self.trouble = "it is not connected yet"

    def add(self, user: LinkUser) -> None:
        self._users.append(user)

    def connect(self) -> None:
        if not self._is_closing:
            self._connection = pika.SelectConnection(
                self._parameters,
                on_open_callback=self._opened,
                on_open_error_callback=self._lost,
                on_close_callback=self._lost,
                custom_ioloop=self._loop,
            )

    def close(self) -> None:
        """Close the connection. One whose handshake is under way is closed once it is open: pika (1.4.4) fails an
        assertion if it is closed before, which would end the thread of the loop.
        """
        self._is_closing = True
        connection = self._connection
        if connection is not None and (connection.is_open or connection.connection_state == connection.CONNECTION_INIT):
            connection.close()

    @property
    def is_closed(self) -> bool:
        return self._connection is None or self._connection.is_closed

    def _opened(self, connection: pika.SelectConnection) -> None:
        if self._is_closing:
            connection.close()
            return
        for user in self._users:
            user.link_opened(connection)

    def _lost(self, connection: pika.SelectConnection, reason: BaseException) -> None:
        self.trouble = f"the connection to {self._parameters.host}:{self._parameters.port} ended: {reason!r}"
        self._connection = None
        for user in self._users:
            user.link_lost(self.trouble)
        if not self._is_closing:
            self._loop.call_later(self._reconnect_delay, self.connect)
