"""The end of a connection, whoever wants it (AB-28 to AB-32, AB-38).

Whatever the cause, the same things happen in the same order: the channels give back what they hold, the exclusive queues of the connection are deleted, the
client is told (if it can be), and the socket is closed when the client has answered or the close wait is over.

    client's close   channels, exclusive queues, close-ok; then the client hangs up, or the close wait ends
    our close        channels, exclusive queues, close; then close-ok, or the close wait ends
    lost             the socket is closed at once; channels and exclusive queues after it
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.connection_state import CLOSE_FRAME, DROP, LOG_ONLY, SLOW_DROP, choose_report
from ...amqp.errors import AmqpError
from ...amqp.reader import CLOSING
from ...runtime.errors import ProcessDown, ProcessTimeout
from .log_text import one_line

if TYPE_CHECKING:
    from .process import Connection

log = logging.getLogger("warren.connection")

SLOW_DROP_SECONDS = 3.0
CLOSE_WAIT_MAX = 30.0


class Closing:
    """Ends one connection, once."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.deaf = False  # input is no longer wanted, its end neither
        self.has_spoken = False  # our close or close-ok is out, and nothing of any channel may follow it
        self._cleaning = False
        self._is_clean = False
        self._when_written = False
        self._awaits_close_ok = False
        self._early: dict[type, Any] | None = (
            None  # close and close-ok of the client while our own close is not out yet
        )

    # -- causes ---------------------------------------------------------------------------------------------------------------------------------

    def by_client(self, method: methods.ConnectionClose) -> None:
        connection = self.connection
        log.info("%s closed by the client", connection.name)
        connection.state = "closing"
        connection.reader.phase = CLOSING
        connection.spawn(self._answer_client())

    async def _answer_client(self) -> None:
        await self._clean_up()
        self.connection.put_method(0, methods.ConnectionCloseOk())
        self.has_spoken = True
        self._finished()

    def fail(self, error: AmqpError) -> None:
        """An error at connection level: reported as the state demands (AB-38)."""
        connection = self.connection
        how = choose_report(connection.state, error, _capabilities(connection))
        if how != LOG_ONLY:
            log.error("%s in state %s: %s", connection.name, connection.state, one_line(error.reply_text))
        if how == DROP:
            self.lost("dropped")
        elif how == SLOW_DROP:
            self.deaf = True
            connection.state = "closed"
            connection.start_timer(SLOW_DROP_SECONDS, "close")
        elif how == CLOSE_FRAME:
            self._tell(error)

    def forced(self, error: AmqpError) -> None:
        """An operator's or the node's wish; before `running` there is no frame, only a drop (AB-31)."""
        if self.connection.state in ("running", "blocked"):
            log.warning("%s: %s", self.connection.name, one_line(error.reply_text))
            self._tell(error)
        elif self.connection.state not in ("closing", "closed"):
            self.lost(error.text)

    def _tell(self, error: AmqpError) -> None:
        connection = self.connection
        wait = (
            SLOW_DROP_SECONDS if connection.state not in ("running", "blocked") or error.fatal else self._close_wait()
        )
        if error.fatal:
            self.deaf = True
        connection.state = "closed"
        connection.pauses.clear()
        connection.reader.phase = CLOSING
        self._awaits_close_ok = True
        self._early = {}
        connection.spawn(self._say_close(error, wait))

    async def _say_close(self, error: AmqpError, wait: float) -> None:
        await self._clean_up()
        connection = self.connection
        connection.put_method(0, methods.ConnectionClose(error.code, error.reply_text, error.class_id, error.method_id))
        self.has_spoken = True
        connection.start_timer(wait, "close")
        connection.refresh_watch()
        early, self._early = self._early, None
        for method in (early or {}).values():
            self.method(method)

    def lost(self, reason: str) -> None:
        """The TCP connection is gone, or is to be dropped now."""
        connection = self.connection
        if connection.sock is None:
            return
        if connection.state in ("running", "blocked"):
            log.warning("%s lost: %s", connection.name, reason)
        elif connection.state == "pre_init" and not connection.handshake.heard_anything:
            log.debug("%s was a health check", connection.name)  # AB-2
        elif connection.state not in ("closing", "closed"):
            log.warning("%s lost in state %s: %s", connection.name, connection.state, reason)
        self.hang_up()

    # -- channel 0 while closing ----------------------------------------------------------------------------------------------------------------

    def method(self, method: Any) -> None:
        kind = type(method)
        if kind is methods.ConnectionClose or kind is methods.ConnectionCloseOk and self._awaits_close_ok:
            if self._early is not None:
                self._early[kind] = method
            elif kind is methods.ConnectionClose:
                self.connection.put_method(0, methods.ConnectionCloseOk())  # AB-30
            else:
                self.hang_up_when_written()

    # -- steps ----------------------------------------------------------------------------------------------------------------------------------

    def _close_wait(self) -> float:
        heartbeat = self.connection.heartbeat
        return min(heartbeat, CLOSE_WAIT_MAX) if heartbeat else CLOSE_WAIT_MAX

    def _finished(self) -> None:
        """Our close-ok is on its way: the client hangs up, or we do when the close wait is over."""
        connection = self.connection
        connection.state = "closed"
        connection.start_timer(self._close_wait(), "close")
        connection.refresh_watch()

    async def _clean_up(self) -> None:
        """Ends the channels, then deletes the exclusive queues (AB-28). Once: who calls a second time does not wait for the first."""
        if self._cleaning:
            return
        self._cleaning = True
        connection = self.connection
        entries = list(connection.by_id.values())
        limit = connection.settings.channel_operation_timeout / 1000
        for entry in entries:
            entry.ended = True
        answers = [connection.ask(entry.address, ("shut_down",), timeout=limit) for entry in entries]
        for answer in answers:
            try:
                await answer
            except (ProcessDown, ProcessTimeout):
                pass
        if connection.user:
            await connection.ask(connection.context.metadata, ("delete_exclusive", connection.connection_id))
        self._is_clean = True
        self._end_when_clean()

    def hang_up_when_written(self) -> None:
        """Close the socket as soon as what is queued has been written."""
        self.deaf = True
        self._when_written = True
        self.connection.state = "closed"
        if not self.connection.output.size:
            self.hang_up()

    def written(self) -> None:
        """The connection has nothing left to write."""
        if self._when_written:
            self.hang_up()

    def hang_up(self) -> None:
        """Closes the socket; the process ends when its channels and queues are cleaned up."""
        connection = self.connection
        if connection.sock is None:
            return
        connection.on_exit()
        connection.state = "closed"
        connection.spawn(self._clean_up())
        self._end_when_clean()

    def _end_when_clean(self) -> None:
        if self._is_clean and self.connection.sock is None:
            self.connection.stop("normal")


def _capabilities(connection: "Connection") -> frozenset[str]:
    return frozenset(name for name in ("authentication_failure_close",) if connection.capability(name))
