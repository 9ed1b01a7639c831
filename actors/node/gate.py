"""`Gate`: whether a node lets clients in, and why not.

The listeners of a node are open as long as nothing closes them. Each *hold* closes them for one reason, and they open
again when the last one is released:

    majority      the node cannot reach a majority of its cluster (CL-54)
    maintenance   an operator has drained the node (CM-53)
    operator      an operator has suspended the listeners (CM-54); clients that are connected stay
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...amqp.constants import CONNECTION_FORCED
from ..connection.listener import ListenError
from ..contracts.connection import to_connection, to_listener

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ..contracts.connection import ToConnection, ToListener
    from ..contracts.node import Hold

log = logging.getLogger("warren.node")

#: Seconds until a listener whose address was in use tries again.
LISTEN_AGAIN_SECONDS = 1.0


class Gate:
    """Belongs to `process`, the supervisor of the node `name`."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name
        self.listeners: list[Address[ToListener]] = []
        #: What closes the listeners now.
        self.holds: set[Hold] = set()

    async def connections(self) -> list[Address[ToConnection]]:
        """The connections of all clients."""
        ask = self._process.ask
        return [one for listener in self.listeners for one in await ask(listener, to_listener.connections())]

    async def close(self, hold: Hold, text: str) -> None:
        """Close the listeners, then the connections of all clients with `text`; an empty text leaves them open."""
        self.holds.add(hold)
        for listener in self.listeners:
            await self._process.ask(listener, to_listener.stop_accepting())
        for address in await self.connections() if text else ():
            self._process.send(address, to_connection.force_close(CONNECTION_FORCED, text))

    async def release(self, hold: Hold) -> None:
        """Open the listeners if nothing else closes them."""
        self.holds.discard(hold)
        await self.open()

    async def open(self) -> None:
        """Open the listeners unless something closes them. Those whose address is in use try again later."""
        for listener in () if self.holds else self.listeners:
            try:
                await self._process.ask(listener, to_listener.accept_again())
            except ListenError as error:
                log.error("%s cannot serve clients again: %s", self._name, error)
                self._process.start_timer(LISTEN_AGAIN_SECONDS)
