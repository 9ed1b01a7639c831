"""`BoundedConnection`: a connection of the HTTP server that ends if its client lets the server wait for too long.

uvicorn limits only the time between two requests. Without other limits, clients that connect and send nothing, that
stop in the middle of a request, or that do not read their answers keep their connections for ever, and with as many
such connections as `CLIENTS_MAX` nobody else is served. Each of these waits lasts at most `management_idle_timeout`:

    for a request    from the connection, or from the first bytes of a further request, to the end of its headers
    for its body     from one piece to the next
    for the client   to read what fills the buffers of the connection
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class BoundedConnection(H11Protocol):
    """See the module."""

    #: The timer that ends the connection; None while the server does not wait for the client.
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._go_on()
            if cycle.more_body:
                self._wait()
        elif self._deadline is None:
            self._wait()

    def on_response_complete(self) -> None:
        self._go_on()
        super().on_response_complete()  # begins to wait for the next request

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.timeout_keep_alive, self._end)

    def _go_on(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._deadline = None
        if self.flow.read_paused:
            self._wait()  # the body is not read, because the server is not ready for more of it
        else:
            self.transport.abort()
