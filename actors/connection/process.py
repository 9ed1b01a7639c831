"""`Connection`: the process of one client connection (amqp-broker section 2, flow-control section 4).

It owns the socket, the frame reader, the input (`SocketInput`) and the output. It sends each channel all input of one
batch as one message. It is the only process that stops working when it has no credit: it does not read from the socket
(FC-22).

The states are those of amqp-broker section 2.2, see `amqp.connection_state`. `Handshake` decides the steps up to
`running`, `ChannelTable` keeps track of the channels, and `Closing` ends the connection. This file has the rest: input
and output, blocking, heartbeats, and the handlers of all messages.

Two things stop the reading of the socket. *Reasons* (no credit, a memory or disk alarm) stop it at the next content and
move the connection to `blocked` (AB-33, FC-24). *Pauses* (a client that does not take its output, FC-35; too many
waiting methods, FC-34; enough events for one turn) stop it at once. Input that was read before stays in the reader,
unparsed and in order.

A connection of a node whose lease has ended neither reads nor writes (CL-52): other nodes may have changed the metadata
on which its answers are based. It goes on when the node has a lease again; the node closes it if that takes long.
"""

from __future__ import annotations

import logging
import ssl
from base64 import b32encode
from contextlib import suppress
from typing import cast

from thespian.actors import ActorAddress

from ...amqp import methods
from ...amqp.connection_state import check_method
from ...amqp.constants import PROTOCOL_HEADER
from ...amqp.errors import AmqpError
from ...amqp.frames import method_frame
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, PARTS, RUN
from ...amqp.parser.frame_meanings import HANDSHAKE, RUNNING
from ...amqp.parser.reader import PARTS_MAX, FrameReader
from ...runtime.contract import Sender
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.log_format import one_line
from ...runtime.process import Process
from ...runtime.turn_work import END_OF_TURN, STEP
from ...seams import seam
from ..context.lease import FOREVER
from ..context.node_context import NodeContext
from ..context.sessions import ClientSession
from ..context.starting import ToNewConnection
from ..contracts.channel import DeliveryNotice, to_channel, to_deliverer
from ..contracts.connection import SocketAddress
from ..contracts.info_items import InfoItems
from ..contracts.metadata import to_metadata
from ..contracts.node import to_flow_reporter
from ..contracts.resources import to_alarms, to_memory_monitor
from ..events import client_events
from ..events.credit_events import trace_credit
from .channels import ChannelEntry, ChannelTable
from .closing import CLOSE_TIMER, Closing
from .handshake import Handshake, Negotiated
from .heartbeats import CHECK_HEARTBEAT, SEND_HEARTBEAT, Heartbeats
from .listing import connection_items, reported_state
from .output import SocketOutput, Transport
from .sasl import Certified
from .socket_input import SocketInput

log = logging.getLogger("warren.connection")

#: One object for all connections, because each empty frozenset takes 216 bytes.
NO_ALARMS: frozenset[str] = frozenset()

#: The payloads of the timers that this file starts. Others are `CLOSE_TIMER` and those of `Heartbeats`.
HANDSHAKE_TIMEOUT = "handshake"
LEASE_CHECK = "lease"

#: The connections that are not open yet share the turns of one client, and so do those whose client is gone: a thousand
#: clients may come or go at once, and each login may cost a TLS handshake.
NEWCOMERS, LEAVERS = "newcomers", "leavers"

#: The pause of a connection whose client does not take its output (FC-35).
OUTPUT_PAUSE = "output"

#: The most events of its client that a connection handles in one turn; the rest waits for the next turn. 512 KiB of
#: input may be 65,000 events. A run of messages or a group of acknowledgements counts as 1 or more, another method as
#: `METHOD_COUNTS` or more, because it may open a channel, a fault as that many, a frame that completes nothing as 1.
EVENTS_PER_TURN = 1024
METHOD_COUNTS = 16

#: If the channel must decode the properties of a message, the frame reader has read each of their values too, which
#: takes time. This many bytes of such properties count as one event.
KEY_COUNTS = 64

#: This many bytes of a method count as one event: the arguments of a declare, which are decoded, may fill a frame.
ARGUMENTS_COUNT = 64

#: Bytes of methods and acknowledgements that the channels of a connection may have received and not handled yet. With
#: more, the connection reads nothing until at most half of them are left (FC-34). Decoded arguments take 25 times as
#: much memory, and an acknowledgement five times.
UNHANDLED_MAX = 4 << 20
UNHANDLED_PAUSE = "input that channels have not handled"

#: This many acknowledgements of a group count as one event.
ACKS_AS_ONE = 8

#: The pause of a connection that has handled as many events as it may in one turn.
TURN_PAUSE = "turn"

#: The pause of a connection whose node has no lease, and the seconds between two checks whether it has one again.
LEASE_PAUSE = "lease"
LEASE_SECONDS = 0.05

#: The least seconds between two messages to the reporter of bottlenecks.
FLOW_REPORT_SECONDS = 5.0

#: While a large body arrives, a turn has at most this many reads, and none after this many bytes, so that other
#: processes have their turns. The bytes are bounded because a body of many megabytes is received into memory pages that
#: the system allocates only then: four reads of 2 MB took 4 to 6 ms.
READS_MAX = 4
READ_TURN = 4 << 20

_HANDSHAKE_STATES = ("pre_init", "starting", "securing", "tuning", "opening")


class Connection(Process):
    """The process of one client connection; `ToConnection` lists the messages that it receives."""

    __slots__ = (
        "alarms",
        "channels",
        "closing",
        "connected_at",
        "connection_id",
        "context",
        "credit",
        "fd",
        "flow_report_at",
        "handshake",
        "has_sent_blocked",
        "heartbeats",
        "input",
        "is_counted",
        "local",
        "name",
        "negotiated",
        "output",
        "pauses",
        "peer",
        "reader",
        "round",
        "settings",
        "sock",
        "state",
        "watching",
    )

    contract = ToNewConnection
    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        #: None before `start`, and when the socket is closed.
        self.sock: Transport | None = None
        self.state = "pre_init"
        self.negotiated = Negotiated()
        #: The resource alarms that are active in the node.
        self.alarms = NO_ALARMS
        #: From when on this connection may send the reporter of bottlenecks its address again.
        self.flow_report_at = 0.0
        #: Why reading is paused: the `..._PAUSE` constants, or backlogs of channels. A dict is smaller than a set.
        self.pauses: dict[str, None] = {}
        #: Whether the socket is watched for input, and for output.
        self.watching = (False, False)
        self.has_sent_blocked = False
        #: Whether the connection was open, so that its end is counted.
        self.is_counted = False
        #: `Activity.round` when the connection last noted that it was active.
        self.round = 0

    @property
    def label(self) -> str:
        return self.name if hasattr(self, "name") else ""

    def on_start(
        self,
        sender: Sender,
        context: NodeContext,
        fd: int,
        peer: SocketAddress,
        local: SocketAddress,
        is_refused: bool = False,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        self.context = context
        self.settings = context.settings
        self.sock = self.open_transport(self.sockets.adopt(fd), tls_context)
        self.fd = fd
        self.share_turns(NEWCOMERS)
        self.peer, self.local = peer, local
        self.name = f"{_endpoint(peer)} -> {_endpoint(local)}"
        self.connection_id = b32encode(self.random_bytes(10)).decode("ascii").lower()
        self.connected_at = self.wall_clock()
        self.output = SocketOutput(self.sock)
        self.reader = FrameReader()
        self.reader.phase = HANDSHAKE
        self.input = SocketInput(
            self.sock, self.reader, context.received_bytes, self._input_ended, self._take_protocol_header
        )
        self.credit = CreditFlow(
            self.settings.credit_flow_default_credit,
            _no_grants,
            clock=self.now,
            hold=self.settings.flow_hold_connection / 1000,
            hold_from="end",
        )
        trace_credit(self, self.credit, context, f"connection {self.name}")
        self.heartbeats = Heartbeats(self, self.input, self.output)
        self.handshake = Handshake(
            context,
            self.negotiated,
            self.name,
            str(peer[0]),
            self.mechanisms,
            self.certified,
            is_refused,
            self._report_login,
        )
        self.channels = ChannelTable(
            self,
            context,
            self.connection_id,
            self.name,
            local,
            tls_context is not None,
            self.negotiated,
            self.reader,
            self.credit,
            self._number_freed,
        )
        self.closing = Closing(self)
        self.start_timer(self.settings.handshake_timeout / 1000, HANDSHAKE_TIMEOUT)
        self.refresh_watch()

    def open_transport(self, sock: Transport, tls_context: ssl.SSLContext | None) -> Transport:
        """The transport of the connection's bytes: the socket itself. A subclass may return a wrapper around it."""
        return sock

    # -- input ---

    def on_readable(self, fd: int) -> None:
        if self.state == "blocked" or self.pauses:
            # the watch for input ends only when input comes while reading must stop, so a short block costs no system
            # call
            self.refresh_watch()
            return
        lease = self.context.lease
        if lease.until != FOREVER and lease.has_ended(self.now) and self._needs_lease():
            self._suspend()
            return
        source = self.input
        received = self.context.received_bytes
        if received.count >= received.due:
            received.count = 0
            self.send(self.context.memory_monitor, to_memory_monitor.look())
        until = source.received + READ_TURN
        for _ in range(READS_MAX):
            if not source.read():
                return
            self.read_events()
            if (
                self.reader.large is None
                or source.received >= until
                or not source.is_filling
                or self.state == "blocked"
                or self.pauses
                or self.sock is None
            ):
                return

    def _input_ended(self, reason: str) -> None:
        self.closing.lost(reason)

    def _take_protocol_header(self, data: bytes) -> bytes:
        """Answer the protocol header when it is complete, and return the input behind it."""
        header, rest = self.handshake.split_header(data)
        if header is None:
            return b""
        if not self.handshake.is_accepted(header):
            log.warning("%s sent protocol header %r, which is not that of AMQP 0-9-1", self.name, header)
            self.output.put(PROTOCOL_HEADER)
            self.closing.hang_up_when_written()
            return b""
        self.input.pass_on()
        self.state = "starting"
        self.output.put(self.handshake.start_frame())
        return rest

    def read_events(self) -> None:
        """Handle the events of the reader until there are no more, or reading must stop."""
        reader, channels, closing = self.reader, self.channels, self.closing
        left = EVENTS_PER_TURN
        while self.state != "blocked" and not self.pauses and not closing.ignores_input:
            try:
                event = reader.next()
                if event is None:
                    pass
                elif event[1] == 0:
                    if event[0] == METHOD:
                        self._handle_method(event[2])
                # before the connection is open, and while it closes, only channel 0 is handled (AB-6)
                elif self.state == "running" or self.state == "blocked":
                    channels.add_event(event)
            except AmqpError as error:
                # Reading goes on, because the client's close may follow the fault (AB-30).
                channels.flush()
                closing.fail(error)
                left -= METHOD_COUNTS
                if left <= 0:
                    self._end_turn()
                continue
            if reader.content_started:
                reader.content_started = False
                if self.alarms or self.credit.credit_blocked:
                    self._block()
            if event is None:
                break
            kind = event[0]
            if kind is RUN:
                left -= 1 + len(event[3]) // KEY_COUNTS
            else:
                if kind is ACKS:
                    left -= 1 + len(event[2]) // ACKS_AS_ONE
                elif kind is METHOD:
                    left -= METHOD_COUNTS + reader.frame_size // ARGUMENTS_COUNT
                elif kind is PARTS:
                    left -= PARTS_MAX
                else:
                    left -= 1
                if channels.unhandled > UNHANDLED_MAX:
                    channels.flush()
                    self.pause(UNHANDLED_PAUSE)
                    self.spawn(self._await_handling())
            if left <= 0:
                self._end_turn()
            if not reader.has_more:
                break
        channels.flush()

    async def _await_handling(self) -> None:
        """Ask the channels to answer when they have handled what they have received. Each answer counts by itself: a
        channel that is busy for long holds up the others only if most of the input waits in that channel.
        """
        asked = 0
        for part in self.channels.by_id.parts():
            for entry in part:
                if entry.unhandled and not entry.is_asked:
                    self.spawn(self._await_channel(entry))
                    asked += 1
                    if asked % STEP == 0:
                        await self.next_turn()

    async def _await_channel(self, entry: ChannelEntry) -> None:
        entry.is_asked = True
        while size := entry.unhandled:
            with suppress(ProcessDown):
                await self.ask(entry.address, to_channel.handled())
            self.channels.handled(entry, size)
            if self.channels.unhandled <= UNHANDLED_MAX // 2:
                self.unpause(UNHANDLED_PAUSE)
            if UNHANDLED_PAUSE not in self.pauses:
                break
        entry.is_asked = False

    def _end_turn(self) -> None:
        """Read no more events in this turn, because it has handled as many as it may."""
        self.pause(TURN_PAUSE)
        self.spawn(self._read_on())

    async def _read_on(self) -> None:
        await self.next_turn()
        self.unpause(TURN_PAUSE)

    def _block(self) -> None:
        """Block the connection, because there is a reason and the reader has read a content frame (AB-33, FC-24)."""
        if self.state == "running":
            self.state = "blocked"
            self._send_blocked()
            if self.credit.blocked:
                self._report_flow()

    def _report_flow(self) -> None:
        """Send the reporter of bottlenecks this connection's address, unless that happened a moment ago."""
        reporter, now = self.context.flow_reporter, self.now()
        if reporter is not None and now >= self.flow_report_at:
            self.flow_report_at = now + FLOW_REPORT_SECONDS
            self.send(reporter, to_flow_reporter.in_flow(self.myAddress))

    # -- blocking ---

    def on_bump(self, sender: Sender, channel_id: str, amount: int) -> None:
        entry = self.channels.by_id.get(channel_id)
        if entry is not None:
            self.channels.bump(entry, amount)
            self._unblock_if_free()

    def on_alarms(self, sender: Sender, sources: tuple[str, ...]) -> None:
        before, self.alarms = self.alarms, frozenset(sources)
        if self.state == "blocked":
            if self.alarms and not before:
                self._send_blocked()
            elif before and not self.alarms:
                self._send_unblocked()
        self._unblock_if_free()

    def _send_blocked(self) -> None:
        if self.alarms and not self.has_sent_blocked and self.negotiated.has_capability("connection.blocked"):
            self.has_sent_blocked = True
            reason = " & ".join(f"low on {source}" for source in ("memory", "disk") if source in self.alarms)
            self.put_method(0, methods.ConnectionBlocked(reason))

    def _send_unblocked(self) -> None:
        if self.has_sent_blocked:
            self.has_sent_blocked = False
            self.put_method(0, methods.ConnectionUnblocked())

    def _unblock_if_free(self) -> None:
        if self.state == "blocked" and not self.alarms and not self.credit.blocked:
            self.state = "running"
            self.heartbeats.reading_resumed()
            self._resume_reading()

    def _resume_reading(self) -> None:
        self.refresh_watch()
        self.read_events()

    def pause(self, reason: str) -> None:
        self.pauses[reason] = None

    def unpause(self, reason: str) -> None:
        if reason in self.pauses:
            del self.pauses[reason]
            if not self.pauses and self.state != "blocked" and self.sock is not None:
                self._resume_reading()

    def _suspend(self) -> None:
        """Neither read nor write, because the node has no lease."""
        if LEASE_PAUSE not in self.pauses:
            self.pause(LEASE_PAUSE)
            self.start_timer(LEASE_SECONDS, LEASE_CHECK)
        self.refresh_watch()

    def _check_lease(self) -> None:
        """Go on if the node has a lease again, or if the connection ends."""
        if self._needs_lease() and self.context.lease.has_ended(self.now):
            self.start_timer(LEASE_SECONDS, LEASE_CHECK)
        else:
            self.unpause(LEASE_PAUSE)

    @seam("cluster: whether a connection waits for a lease")
    def _needs_lease(self) -> bool:
        """Whether the connection needs a lease for what it may do now. Only the end of a connection needs none."""
        return self.state not in ("closing", "closed")

    def on_pause_input(self, sender: Sender, number: int, is_paused: bool) -> None:
        entry = self.channels.by_number.get(number)
        if entry is None or entry.address != sender:
            return  # the client has closed the channel, and nothing would end a pause for it
        (self.pause if is_paused else self.unpause)(_backlog_pause(number))

    # -- channels ---

    def _number_freed(self, number: int) -> None:
        self.unpause(_backlog_pause(number))

    def on_channel_closed(
        self, sender: Sender, channel_id: str, is_crossed: bool, pieces: list[bytes], notices: list[DeliveryNotice]
    ) -> None:
        if pieces:
            self.on_output(sender, pieces, notices)
        entry = self.channels.by_id.get(channel_id)
        if entry is not None:
            self.channels.closed(entry, is_crossed)
            self._forget_channel(entry)

    def _forget_channel(self, entry: ChannelEntry) -> None:
        self.channels.remove(entry)
        self.output.forget_channel(entry.channel_id)
        self._unblock_if_free()

    def on_down(self, channel_id: str, reason: ExitReason) -> None:
        entry = self.channels.by_id.get(channel_id)
        if entry is None:
            return
        self._forget_channel(entry)
        if not entry.is_ended and self.state in ("running", "blocked"):
            log.error("%s channel %d: %s", self.name, entry.number, reason)
            self.closing.fail(AmqpError(541))

    def on_overload(self, address: ActorAddress) -> None:
        """Close the connection, because the mailbox of a channel has overflowed. Credit prevents that, so the broker
        has a fault (FC-60).
        """
        self.closing.fail(AmqpError(506, "too many messages wait for a channel of this connection"))

    def on_channel_failed(self, sender: Sender, number: int, error: AmqpError) -> None:
        self.closing.fail(error)

    def on_channel_error(self, sender: Sender, number: int, code: int, text: str) -> None:
        log.error("%s channel %d: closing with %d, %s", self.name, number, code, one_line(text))

    # -- channel 0 ---

    def _handle_method(self, method: Method) -> None:
        if self.state in ("closing", "closed"):
            self.closing.method(method)
        elif self.state not in ("running", "blocked"):
            self._take_handshake_step(method)
        else:
            check_method(self.state, method)
            if isinstance(method, methods.ConnectionClose):
                self.channels.flush()
                self.closing.by_client()
            else:
                # The only other method is connection.update-secret, which is answered and changes nothing (AB-37).
                self.put_method(0, methods.ConnectionUpdateSecretOk())

    def _take_handshake_step(self, method: Method) -> None:
        self.state, reply = self.handshake.handle(self.state, method)
        if reply is not None:
            self.put_method(0, reply)
        if self.state == "opening":
            self.reader.frame_max = self.negotiated.frame_max
            self.heartbeats.start(self.negotiated.heartbeat)
        elif self.state == "running":
            self._opened()

    def _opened(self) -> None:
        self.share_turns("")
        self.reader.phase = RUNNING
        self.reader.max_body_size = self.settings.max_message_size
        self.send(self.context.alarms, to_alarms.register(self.myAddress, True))
        self.send(self.context.metadata, to_metadata.connection_opened(self.connection_id))
        user, vhost = self.negotiated.user, self.negotiated.vhost
        session = ClientSession(self.connection_id, self.myAddress, user, vhost)
        self.context.sessions.enter(session, self)
        self.context.activity.enter(self.connection_id, "connection", self)
        self.is_counted = True
        self.context.counts.connection_created += 1
        log.info("%s opened by '%s' on vhost '%s'", self.name, self.negotiated.user, self.negotiated.vhost)
        events = self.context.events
        if events.are_watched():
            items = self.on_info(self.myAddress)
            events.emit(self, "connection.created", client_events.connection_created(self.context.node_name, items))

    def report_closed(self) -> None:
        """Report to those who watch events that the connection has ended, if it was open."""
        events = self.context.events
        if self.negotiated.vhost and events.are_watched():
            items = self.on_info(self.myAddress)
            events.emit(self, "connection.closed", client_events.connection_closed(self.context.node_name, items))

    def on_force_close(self, sender: Sender, code: int, text: str) -> None:
        self.closing.forced(AmqpError(code, text))

    def on_close_if_on(self, sender: Sender, vhost: str, code: int, text: str) -> None:
        if self.negotiated.vhost == vhost:
            self.closing.forced(AmqpError(code, text))

    # -- output ---

    def put_method(self, number: int, method: Method) -> None:
        self.output.put(method_frame(number, method))

    def on_output(self, sender: Sender, pieces: list[bytes], notices: list[DeliveryNotice]) -> None:
        if self.sock is not None and not self.closing.has_sent_last_frame:
            self.output.put_all(pieces, notices)

    def on_writable(self, fd: int) -> None:
        """Do nothing: `after_batch` writes."""

    def after_batch(self) -> None:
        if self.sock is None:
            return  # there may have been no `start` yet
        activity = self.context.activity
        if activity.round != self.round:
            self.round = activity.round
            activity.note(self.connection_id)
        if not self.output.size:
            return
        lease = self.context.lease
        if lease.until != FOREVER and lease.has_ended(self.now) and self._needs_lease():
            self._suspend()
            return
        output = self.output
        try:
            output.write()
        except OSError as error:
            self.closing.lost(error.strerror or str(error))
            return
        if output.due:
            for queue, channel_id, count in output.due:
                self.send(queue, to_deliverer.sent(channel_id, count))
            output.due.clear()
        if output.size or self.pauses or self.watching[1]:
            self._refresh_output_pause()
        if not output.size and self.closing.hangs_up_when_written:
            self.closing.hang_up()

    def _refresh_output_pause(self) -> None:
        """Stop or resume reading by how much output waits, and watch for room in the socket while some does."""
        size, limit = self.output.size, self.settings.output_buffer_limit
        if size > limit:
            self.pause(OUTPUT_PAUSE)
        elif self.pauses and size <= limit // 2:
            self.unpause(OUTPUT_PAUSE)
        if bool(size) != self.watching[1]:
            self.refresh_watch()

    def refresh_watch(self) -> None:
        """Watch the socket for input unless reading must stop, and for output if some waits."""
        if self.sock is None:
            return
        wanted = (self.state != "blocked" and not self.pauses and not self.closing.ignores_input, self.is_write_due())
        if wanted != self.watching:
            self.watching = wanted
            self.watch(self.fd, *wanted)

    def is_write_due(self) -> bool:
        """Whether there is output that the socket has not taken and that may be written."""
        return self.has_unsent() and not (LEASE_PAUSE in self.pauses and self._needs_lease())

    def has_unsent(self) -> bool:
        """Whether the socket has not taken all output."""
        return self.output.size > 0

    # -- login ---

    def _report_login(self, user: str, refusal: str | None) -> None:
        self.context.login_counts.count(str(self.peer[0]), user, refusal is None)
        events = self.context.events
        if events.are_watched():
            name = f"user.authentication.{'success' if refusal is None else 'failure'}"
            events.emit(self, name, client_events.login(user, refusal, self.on_info(self.myAddress)))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The login mechanisms on offer. EXTERNAL needs a certificate, so only a TLS connection offers it (AB-13)."""
        return tuple(name for name in self.settings.auth_mechanisms if name != "EXTERNAL")

    def certified(self) -> Certified:
        """The user of the client's certificate, for EXTERNAL."""
        raise AssertionError("EXTERNAL is not offered without TLS")

    # -- timers ---

    def on_timer(self, payload: str) -> None:
        if self.sock is None:
            return
        if payload == SEND_HEARTBEAT:
            self.heartbeats.send_if_due()
        elif payload == CHECK_HEARTBEAT:
            missed = self.heartbeats.missed(is_reading=self.state != "blocked" and not self.pauses)
            if missed:
                self.closing.lost(missed)
        elif payload == HANDSHAKE_TIMEOUT and self.state in _HANDSHAKE_STATES:
            self.closing.lost("handshake timeout")
        elif payload == CLOSE_TIMER:
            self.closing.hang_up()
        elif payload == LEASE_CHECK:
            self._check_lease()

    def free_memory(self) -> bool:
        return hasattr(self, "channels") and self.channels.free(END_OF_TURN)

    def on_exit(self) -> None:
        if hasattr(self, "context"):
            self.context.activity.leave(self.connection_id)
            if self.is_counted:
                self.context.counts.connection_closed += 1
        self.close_socket()

    def close_socket(self) -> None:
        if self.sock is not None:
            self.share_turns(LEAVERS)
            self.unwatch(self.fd)
            self.sock.close()
            self.sock = None
            self.context.sessions.leave(self.connection_id, self)

    # -- listings ---

    def statistics(self) -> InfoItems:
        return self.on_info(self.myAddress)

    @property
    def reported_state(self) -> str:
        """The state that listings show (AB-36)."""
        return reported_state(self.state, bool(self.alarms), self.credit)

    def on_info(self, sender: Sender) -> InfoItems:
        return {
            "pid": self.connection_id,
            "name": self.name,
            "state": self.reported_state,
            **connection_items(self.negotiated, self.peer, self.local, self.input, self.output),
            "channels": len(self.channels.by_number),
            "connected_at": int(self.connected_at * 1000),
            "blocked_by": [
                f"channel {entry.number}"
                for peer in self.credit.blockers()
                if (entry := self.channels.by_id.get(cast(str, peer))) is not None
            ],
            **self.credit.flow_items(),
            "pauses": sorted(self.pauses),
            "alarms": sorted(self.alarms),
        }

    async def on_channels_info(self, sender: Sender) -> list[InfoItems]:
        channels = tuple(self.channels.by_number.values())
        answers = await self.ask_each((entry.address, to_channel.info()) for entry in channels)
        # A channel that has ended since is left out.
        return [answer for answer in answers if not isinstance(answer, Exception)]


def _backlog_pause(number: int) -> str:
    """The pause of a connection in whose channel too many methods wait (FC-34)."""
    return f"backlog of channel {number}"


def _endpoint(address: SocketAddress) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"


def _no_grants(peer: str, amount: int) -> None:
    raise AssertionError("no process sends credited messages to a connection")
