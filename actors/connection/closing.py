"""`Closing`: the end of a connection, whatever causes it (AB-28 to AB-32, AB-38).

Every end consists of the same steps: the channels give back what they hold, the exclusive queues of the connection are
deleted, the client is sent the last frame if that is possible, and the socket is closed when the client has answered or
the close wait is over.

    client's close   channels, exclusive queues, close-ok; then the client hangs up, or the close wait ends
    broker's close   channels, exclusive queues, close; then the client sends close-ok, or the close wait ends
    lost             the socket is closed at once, then channels and exclusive queues
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ...amqp import methods
from ...amqp.connection_state import CLOSE_FRAME, DROP, LOG_ONLY, SLOW_DROP, choose_report
from ...amqp.errors import AmqpError
from ...amqp.method import Method
from ...amqp.parser.frame_meanings import CLOSING
from ...runtime.log_format import one_line
from ..contracts.metadata import to_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from ...amqp.parser.reader import FrameReader
    from ...runtime.contract import Address, Answer, C, ProcessMessage
    from ...runtime.exit_reason import ExitReason
    from ..context.node_context import NodeContext
    from .channels import ChannelTable
    from .handshake import Handshake, Negotiated
    from .output import SocketOutput, Transport

log = logging.getLogger("warren.connection")

#: The payload of the timer that closes the socket: at the end of the close wait, or after `SLOW_DROP_SECONDS`.
CLOSE_TIMER = "close"

#: Seconds of silence before the socket of a client that may be an attacker is closed (AB-38). The close wait is equally
#: short if the connection is not open yet, and after a `fatal` error, when the broker cannot read a close-ok.
SLOW_DROP_SECONDS = 3.0

#: The longest time in seconds that the broker waits for the client's close-ok, or for the client to hang up.
CLOSE_WAIT_MAX = 30.0


class EndingConnection(Protocol):
    """The connection that ends, as `Closing` sees it."""

    name: str
    connection_id: str
    context: NodeContext
    state: str
    #: None once the socket is closed.
    sock: Transport | None
    reader: FrameReader
    negotiated: Negotiated
    handshake: Handshake
    channels: ChannelTable
    output: SocketOutput
    #: Why nothing is read from the socket.
    pauses: dict[str, None]

    def put_method(self, number: int, method: Method) -> None: ...

    def refresh_watch(self) -> None: ...

    def close_socket(self) -> None: ...

    def report_closed(self) -> None: ...

    def send(self, address: Address[C], message: ProcessMessage[C, object]) -> None: ...

    def ask(self, address: Address[C], message: ProcessMessage[C, Answer]) -> Awaitable[Answer]: ...

    def spawn(self, coroutine: Coroutine[object, None, None]) -> None: ...

    def start_timer(self, seconds: float, payload: object) -> int: ...

    def stop(self, reason: ExitReason | str) -> None: ...


class Closing:
    """Ends one connection, once."""

    def __init__(self, connection: EndingConnection) -> None:
        self.connection = connection
        #: Whether the connection has stopped reading for good. Then it does not notice that the client has gone.
        self.ignores_input = False
        #: Whether close or close-ok has been sent, which no frame of a channel may follow.
        self.has_sent_last_frame = False
        self._is_cleaning = False
        self._is_clean = False
        #: Whether the socket is closed as soon as all output has been written.
        self.hangs_up_when_written = False
        self._awaits_close_ok = False
        #: The client's close and close-ok, kept while the broker's own close is not sent yet; None at any other time.
        self._early: dict[type[Method], Method] | None = None

    # -- causes ---

    def by_client(self) -> None:
        """End the connection because the client has sent connection.close."""
        connection = self.connection
        log.info("%s closed by the client", connection.name)
        connection.state = "closing"
        connection.reader.phase = CLOSING
        connection.spawn(self._answer_client())

    async def _answer_client(self) -> None:
        await self._clean_up()
        connection = self.connection
        connection.put_method(0, methods.ConnectionCloseOk())
        self.has_sent_last_frame = True
        connection.state = "closed"
        connection.start_timer(self._close_wait(), CLOSE_TIMER)
        connection.refresh_watch()

    def fail(self, error: AmqpError) -> None:
        """End the connection because of an error. The state decides how the client is notified (AB-38)."""
        connection = self.connection
        report = choose_report(connection.state, error, self._capabilities())
        if report != LOG_ONLY:
            log.error("%s in state %s: %s", connection.name, connection.state, one_line(error.reply_text))
        if report == DROP:
            self.lost("dropped")
        elif report == SLOW_DROP:
            self._ignore_input()
            connection.state = "closed"
            connection.start_timer(SLOW_DROP_SECONDS, CLOSE_TIMER)
        elif report == CLOSE_FRAME:
            self._close(error)

    def forced(self, error: AmqpError) -> None:
        """End the connection for an operator or because the node stops; at once if it is not open yet (AB-31)."""
        connection = self.connection
        if connection.state in ("running", "blocked"):
            log.warning("%s: %s", connection.name, one_line(error.reply_text))
            self._close(error)
        elif connection.state not in ("closing", "closed"):
            self.lost(error.text)

    def lost(self, reason: str) -> None:
        """Close the socket without a frame, because the TCP connection has ended or the broker drops it."""
        connection = self.connection
        if connection.sock is None:
            return
        if connection.state in ("running", "blocked"):
            log.warning("%s lost: %s", connection.name, reason)
        elif connection.state == "pre_init" and not connection.handshake.has_received:
            log.debug("%s was a health check", connection.name)  # AB-2
        elif connection.state not in ("closing", "closed"):
            log.warning("%s lost in state %s: %s", connection.name, connection.state, reason)
        self.hang_up()

    def _capabilities(self) -> frozenset[str]:
        name = "authentication_failure_close"
        return frozenset({name}) if self.connection.negotiated.has_capability(name) else frozenset()

    # -- the broker's close ---

    def _close(self, error: AmqpError) -> None:
        connection = self.connection
        is_open = connection.state in ("running", "blocked")
        wait = self._close_wait() if is_open and not error.fatal else SLOW_DROP_SECONDS
        if error.fatal:
            self._ignore_input()
        connection.state = "closed"
        connection.pauses.clear()
        connection.reader.phase = CLOSING
        self._awaits_close_ok = True
        self._early = {}
        connection.spawn(self._send_close(error, wait))

    async def _send_close(self, error: AmqpError, wait: float) -> None:
        await self._clean_up()
        connection = self.connection
        connection.put_method(0, methods.ConnectionClose(error.code, error.reply_text, error.class_id, error.method_id))
        self.has_sent_last_frame = True
        connection.start_timer(wait, CLOSE_TIMER)
        connection.refresh_watch()
        early, self._early = self._early, None
        for method in (early or {}).values():
            self.method(method)

    def method(self, method: Method) -> None:
        """Handle a method on channel 0 while the connection closes; all but close and close-ok are ignored."""
        kind = type(method)
        if kind is methods.ConnectionClose or kind is methods.ConnectionCloseOk and self._awaits_close_ok:
            if self._early is not None:
                self._early[kind] = method
            elif kind is methods.ConnectionClose:
                self.connection.put_method(0, methods.ConnectionCloseOk())  # AB-30
            else:
                self.hang_up_when_written()

    def _close_wait(self) -> float:
        heartbeat = self.connection.negotiated.heartbeat
        return min(heartbeat, CLOSE_WAIT_MAX) if heartbeat else CLOSE_WAIT_MAX

    # -- steps ---

    async def _clean_up(self) -> None:
        """End the channels, then delete the exclusive queues (AB-28). A second call returns at once."""
        if self._is_cleaning:
            return
        self._is_cleaning = True
        connection = self.connection
        is_logged_in = bool(connection.negotiated.user)
        if is_logged_in:
            connection.send(connection.context.metadata, to_metadata.connection_ending(connection.connection_id))
        await connection.channels.shut_down()
        if is_logged_in:
            delete = to_metadata.delete_exclusive(connection.connection_id)
            await connection.ask(connection.context.metadata, delete)
        self._is_clean = True
        self._end_when_clean()

    def hang_up_when_written(self) -> None:
        """Close the socket as soon as all output has been written."""
        self._ignore_input()
        self.hangs_up_when_written = True
        self.connection.state = "closed"
        if not self.connection.output.size:
            self.hang_up()

    def _ignore_input(self) -> None:
        """Stop reading for good. What was still read would pile up in the reader, as fast as the client sends it."""
        self.ignores_input = True
        self.connection.refresh_watch()

    def hang_up(self) -> None:
        """Close the socket; the process ends when its channels and queues are cleaned up."""
        connection = self.connection
        if connection.sock is None:
            return
        connection.close_socket()
        connection.state = "closed"
        connection.spawn(self._clean_up())
        self._end_when_clean()

    def _end_when_clean(self) -> None:
        if self._is_clean and self.connection.sock is None:
            self.connection.report_closed()
            self.connection.stop("normal")
