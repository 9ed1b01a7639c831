"""`Connection`: the process of one client connection (AB section 2, FC section 4).

It owns the socket, the frame reader, the output and the table of channels. Input is read in pieces of up to 256 KB; what one wake-up brings for a channel goes there as one
message. It is the only process that turns "no credit" into not doing something: it stops reading (FC-22).

States are those of AB section 2.2, in `amqp.connection_state`: the handshake is `Handshake`'s work, the end of a connection is `Closing`'s, and this file is what happens between.

Two things stop the reading of the socket. *Reasons* (`flow`, `memory`, `disk`) do so from the next content on (AB-33, FC-24), and move the connection to `blocked`.
*Pauses* (output not taken by the client FC-35, too many waiting methods FC-34) do so at once. What was read before stays in the reader, unparsed and in order.
"""

from __future__ import annotations

import logging
from base64 import b32encode
from dataclasses import dataclass
from typing import Any

from ...amqp import methods
from ...amqp.connection_state import check_method
from ...amqp.constants import FRAME_MIN_SIZE
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.frames import heartbeat, method_frame
from ...amqp.reader import ACKS, METHOD, OVERSIZED, RUN, FrameReader
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ..channel import Channel
from ..channel.contract import ChannelConfig, to_channel
from ..node.context import NodeContext
from .closing import Closing
from .handshake import Handshake
from .heartbeats import HeartbeatMonitor, HeartbeatSender
from .log_text import one_line
from .output import SocketOutput, Transport
from .read_size import ReadSize
from .sasl import Certified

log = logging.getLogger("warren.connection")


@dataclass(slots=True)
class ChannelEntry:
    """A channel as its connection knows it. `events` are this wake-up's."""

    number: int
    channel_id: str
    address: Any
    events: list[tuple]
    closing: bool = False  # the client has sent channel.close for it
    ended: bool = False  # it has told us that it is done


class Connection(Process):
    __slots__ = (
        "alarms",
        "beats_written",
        "by_id",
        "channel_max",
        "channel_serial",
        "channels",
        "client_properties",
        "closing",
        "connected_at",
        "connection_id",
        "context",
        "credit",
        "fd",
        "frame_max",
        "handshake",
        "heartbeat",
        "is_refused",
        "local",
        "monitor_beat",
        "name",
        "output",
        "pauses",
        "peer",
        "read_size",
        "reader",
        "received",
        "sender_beat",
        "settings",
        "sock",
        "state",
        "stray_close_ok",
        "told_blocked",
        "touched",
        "user",
        "vhost",
        "watching",
    )

    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.sock: Transport | None = None
        self.state = "pre_init"
        self.channels: dict[int, ChannelEntry] = {}
        self.by_id: dict[str, ChannelEntry] = {}
        self.stray_close_ok: set[int] = set()
        self.touched: list[ChannelEntry] = []
        self.alarms: frozenset[str] = frozenset()
        self.pauses: set[str] = set()
        self.watching = (False, False)
        self.told_blocked = False
        self.received = 0
        self.read_size = ReadSize()
        self.user = ""
        self.vhost = ""
        self.client_properties: Table = Table()
        self.heartbeat = 0
        self.beats_written = 0
        self.channel_max = 0
        self.frame_max = FRAME_MIN_SIZE
        self.channel_serial = 0

    def on_start(
        self, sender: Any, context: NodeContext, fd: int, peer: tuple, local: tuple, is_refused: bool = False
    ) -> None:
        """`is_refused`: the node has as many connections as it may have, which the client learns when it opens (AB-27)."""
        self.context = context
        self.is_refused = is_refused
        self.settings = context.settings
        self.sock = self.open_transport(self.sockets.adopt(fd))
        self.fd = fd
        self.peer, self.local = peer, local
        self.name = f"{_endpoint(peer)} -> {_endpoint(local)}"
        self.connection_id = b32encode(self.random_bytes(10)).decode("ascii").lower()
        self.connected_at = self.wall_clock()
        self.output = SocketOutput(self.sock)
        self.reader = FrameReader()
        self.credit = CreditFlow(
            self.settings.credit_flow_default_credit,
            self._no_grants,
            clock=self.now,
            hold=self.settings.flow_hold_connection / 1000,
            hold_from="end",
        )
        self.sender_beat, self.monitor_beat = HeartbeatSender(), HeartbeatMonitor()
        self.handshake = Handshake(self)
        self.closing = Closing(self)
        self.refresh_watch()

    def open_transport(self, sock: Transport) -> Transport:
        """What octets go through: the non-blocking socket itself, or what an heir puts around it."""
        return sock

    # -- input ----------------------------------------------------------------------------------------------------------------------------------

    def on_readable(self, fd: int) -> None:
        if self.state == "blocked" or self.pauses:
            self.refresh_watch()  # the watch is taken back only when input really comes
            return
        sock = self.sock
        if sock is None:
            return
        try:
            data = sock.recv(self.read_size.octets)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.closing.lost(error.strerror or str(error))
            return
        if not data:
            self.closing.lost("the client closed the TCP connection")
            return
        size = len(data)
        self.received += size
        self.read_size.got(size)
        if self.state == "pre_init":
            data = self.handshake.protocol_header(data)
        self.reader.feed(data)
        self.read_events()

    def read_events(self) -> None:
        """Handles what the reader has, until it has no more or reading must stop."""
        reader = self.reader
        while self.state != "blocked" and not self.pauses and not self.closing.deaf:
            try:
                event = reader.next()
                if event is not None:
                    self._handle(event)
            except AmqpError as error:
                # Reading goes on: behind the fault the client's close may be waiting (AB-30).
                self._send_events()
                self.closing.fail(error)
                continue
            if reader.content_started:
                self._content_seen()
            if event is None:
                break
        self._send_events()

    def _handle(self, event: tuple) -> None:
        kind, number = event[0], event[1]
        if number == 0:
            if kind == METHOD:
                self._method(event[2])
            return
        if self.state not in ("running", "blocked"):
            return  # closing: only channel 0 is listened to
        entry = self.channels.get(number)
        if entry is None:
            entry = self._open_channel(number, event)
            if entry is None:
                return
        if not entry.events:
            self.touched.append(entry)
        entry.events.append(event)
        if kind is RUN or kind is OVERSIZED:
            self.credit.spend(entry.channel_id, len(event[4]) if kind is RUN else 1)
            self.reader.credit[number] = self.credit.credit_from(entry.channel_id)
        elif kind is METHOD:
            self._note_closing(entry, type(event[2]))

    def _note_closing(self, entry: ChannelEntry, kind: type) -> None:
        """Keeps track of whose a number is while its channel closes: what follows in the same octets may be for the next one (AB-53, AB-54)."""
        if kind is methods.ChannelCloseOk:
            # The answer to the channel's own close: for the client the number is free from here on, and py-amqp uses it in the same breath.
            self._send_events()
            self._free_number(entry)
        elif kind is methods.ChannelClose:
            entry.closing = True
        elif kind is methods.ChannelOpen and entry.closing:
            raise AmqpError(504, "second 'channel.open' seen", 20, 10)

    def _send_events(self) -> None:
        for entry in self.touched:
            events, entry.events = entry.events, []
            self.send(entry.address, ("input", events))
        self.touched.clear()

    def _content_seen(self) -> None:
        """A content frame went by: if there is a reason to block, this is the moment (AB-33, FC-24)."""
        self.reader.content_started = False
        if self.state == "running" and (self.credit.blocked or self.alarms):
            self.state = "blocked"
            self._tell_blocked()

    # -- blocking -------------------------------------------------------------------------------------------------------------------------------

    def on_bump(self, sender: Any, channel_id: str, amount: int) -> None:
        entry = self.by_id.get(channel_id)
        if entry is None:
            return
        self.credit.bump(channel_id, amount)
        if self.channels.get(entry.number) is entry:
            self.reader.credit[entry.number] = self.credit.credit_from(channel_id)
        self._unblock_if_free()

    def on_alarms(self, sender: Any, sources: Any) -> None:
        """The resource alarms now active in the node: `memory`, `disk`, both or none (AB-33, AB-34)."""
        before, self.alarms = self.alarms, frozenset(sources)
        if self.state == "blocked":
            if self.alarms and not before:
                self._tell_blocked()
            elif before and not self.alarms:
                self._tell_unblocked()
        self._unblock_if_free()

    def _tell_blocked(self) -> None:
        if self.alarms and not self.told_blocked and self.capability("connection.blocked"):
            self.told_blocked = True
            self.put_method(
                0,
                methods.ConnectionBlocked(
                    " & ".join(f"low on {source}" for source in ("memory", "disk") if source in self.alarms)
                ),
            )

    def _tell_unblocked(self) -> None:
        if self.told_blocked:
            self.told_blocked = False
            self.put_method(0, methods.ConnectionUnblocked())

    def _unblock_if_free(self) -> None:
        if self.state == "blocked" and not self.alarms and not self.credit.blocked:
            self.state = "running"
            self.monitor_beat.restart()
            self._go_on_reading()

    def _go_on_reading(self) -> None:
        self.refresh_watch()
        self.read_events()

    def pause(self, reason: str) -> None:
        self.pauses.add(reason)

    def unpause(self, reason: str) -> None:
        if reason in self.pauses:
            self.pauses.discard(reason)
            if not self.pauses and self.state != "blocked" and self.sock is not None:
                self._go_on_reading()

    def on_pause_input(self, sender: Any, number: int, paused: bool) -> None:
        """A channel has too many methods waiting, or few again (FC-34)."""
        (self.pause if paused else self.unpause)(f"backlog of channel {number}")

    # -- channels -------------------------------------------------------------------------------------------------------------------------------

    def _open_channel(self, number: int, event: tuple) -> ChannelEntry | None:
        """The first frame on a number creates its channel (AB-52)."""
        method = event[2] if event[0] == METHOD else None
        if type(method) is methods.ChannelCloseOk and number in self.stray_close_ok:
            self.stray_close_ok.discard(number)
            return None
        if type(method) is not methods.ChannelOpen:
            refused = method or (methods.BasicAck if event[0] == ACKS else methods.BasicPublish)
            raise AmqpError(504, "expected 'channel.open'", refused.CLASS_ID, refused.METHOD_ID)
        if self.channel_max and len(self.channels) >= self.channel_max:
            raise AmqpError(
                530,
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max ({self.channel_max})",
            )
        self.channel_serial += 1
        channel_id = f"{self.connection_id}.{self.channel_serial}"
        address = self.createActor(Channel)
        config = ChannelConfig(
            channel_id,
            self.connection_id,
            self.name,
            number,
            self.vhost,
            self.user,
            self.frame_max,
            self.capability("consumer_cancel_notify"),
        )
        self.send(address, to_channel.start(self.context, config))
        self.monitor(address, channel_id)  # after start: where monitors are messages, it is not ready for them before
        entry = ChannelEntry(number, channel_id, address, [])
        self.channels[number] = self.by_id[channel_id] = entry
        self.reader.credit[number] = self.credit.credit_from(channel_id)
        return entry

    def on_channel_closed(self, sender: Any, channel_id: str, crossed: bool, data: bytes, notices: list) -> None:
        """The channel is done, and this is the last it has to say. `crossed`: both sides sent close, so the client still owes a close-ok, unless it has come already."""
        if data:
            self.on_output(sender, data, notices)
        entry = self.by_id.get(channel_id)
        if entry is not None:
            entry.ended = True
            if crossed and self.channels.get(entry.number) is entry:
                self.stray_close_ok.add(entry.number)
            self._forget_channel(entry)

    def _free_number(self, entry: ChannelEntry) -> None:
        if self.channels.get(entry.number) is entry:
            del self.channels[entry.number]
            self.reader.credit.pop(entry.number, None)
            self.unpause(f"backlog of channel {entry.number}")

    def _forget_channel(self, entry: ChannelEntry) -> None:
        self._free_number(entry)
        self.by_id.pop(entry.channel_id, None)
        if entry.events:
            entry.events = []
            self.touched.remove(entry)
        self.demonitor(entry.channel_id)
        self.credit.peer_down(entry.channel_id)
        self.output.forget_channel(entry.channel_id)
        self._unblock_if_free()

    def on_down(self, channel_id: str, reason: ExitReason) -> None:
        entry = self.by_id.get(channel_id)
        if entry is None:
            return
        self._forget_channel(entry)
        if not entry.ended and self.state in ("running", "blocked"):
            log.error("%s channel %d: %s", self.name, entry.number, reason)
            self.closing.fail(AmqpError(541))

    def on_overload(self, address: Any) -> None:
        """A channel's mailbox overflowed, which credit makes impossible for a sound broker (FC-60)."""
        self.closing.fail(AmqpError(506, "too many messages wait for a channel of this connection"))

    def on_channel_failed(self, sender: Any, number: int, error: AmqpError) -> None:
        """A connection exception raised by a channel (AB-55)."""
        self.closing.fail(error)

    def on_channel_error(self, sender: Any, number: int, code: int, text: str) -> None:
        log.error("%s channel %d: closing with %d, %s", self.name, number, code, one_line(text))

    # -- channel 0 ------------------------------------------------------------------------------------------------------------------------------

    def _method(self, method: Any) -> None:
        kind = type(method)
        if self.state in ("closing", "closed"):
            self.closing.method(method)
        elif self.state not in ("running", "blocked"):
            self.handshake.method(method)
        else:
            check_method(self.state, method)
            if kind is methods.ConnectionClose:
                self._send_events()
                self.closing.by_client(method)
            else:
                self.put_method(0, methods.ConnectionUpdateSecretOk())  # the one user's secret does not change (AB-37)

    def on_force_close(self, sender: Any, code: int, text: str) -> None:
        """An operator, or the node's own stop, ends the connection (AB-31)."""
        self.closing.forced(AmqpError(code, text))

    def on_close_if_on(self, sender: Any, vhost: str, code: int, text: str) -> None:
        """A virtual host is deleted or down: as `force_close`, if this connection has opened it (AB-31)."""
        if self.vhost == vhost:
            self.closing.forced(AmqpError(code, text))

    def opened(self) -> None:
        """The handshake is done."""
        self.state = "running"
        self.reader.max_body_size = self.settings.max_message_size
        self.send(self.context.alarms, ("register", self.myAddress))
        self.send(self.context.metadata, ("connection_opened", self.connection_id))
        log.info("%s opened by '%s' on vhost '%s'", self.name, self.user, self.vhost)

    def capability(self, name: str) -> bool:
        """Whether the client announced this capability as true (AB-10)."""
        capabilities = self.client_properties.get("capabilities")
        if capabilities is None or capabilities[0] != "F":
            return False
        return capabilities[1].get(name) == ("t", True)

    # -- output ---------------------------------------------------------------------------------------------------------------------------------

    def put_method(self, number: int, method: Any) -> None:
        self.output.put(method_frame(number, method))

    def on_output(self, sender: Any, data: bytes, notices: list) -> None:
        if self.sock is not None and not self.closing.has_spoken:
            self.output.put(data, notices)

    def on_writable(self, fd: int) -> None:
        """`after_batch` writes."""

    def after_batch(self) -> None:
        if self.sock is None or not self.output.size:  # without a socket it may not even have been started
            return
        output = self.output
        try:
            output.write()
        except OSError as error:
            self.closing.lost(error.strerror or str(error))
            return
        if output.due:
            for address, channel_id, count in output.due:
                self.send(address, ("sent", channel_id, count))
            output.due.clear()
        if output.size > self.settings.output_buffer_limit:
            self.pause("output")
        elif self.pauses and output.size <= self.settings.output_buffer_limit // 2:
            self.unpause("output")
        if bool(output.size) != self.watching[1]:
            self.refresh_watch()
        if not output.size:
            self.closing.written()

    def refresh_watch(self) -> None:
        """Watches the socket for what is wanted now."""
        if self.sock is None:
            return
        wanted = (self.state != "blocked" and not self.pauses and not self.closing.deaf, self.is_write_due())
        if wanted != self.watching:
            self.watching = wanted
            self.watch(self.fd, *wanted)

    def is_write_due(self) -> bool:
        """Whether there is something that the socket did not take."""
        return self.output.size > 0

    # -- who the client is ------------------------------------------------------------------------------------------------------------------------

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The login mechanisms it may use: EXTERNAL takes a certificate, so a connection without TLS never offers it (AB-13)."""
        return tuple(name for name in self.settings.auth_mechanisms if name != "EXTERNAL")

    def certified(self) -> Certified:
        """Who its certificate says the client is, for EXTERNAL."""
        raise AssertionError("EXTERNAL is not offered without TLS")

    # -- timers ---------------------------------------------------------------------------------------------------------------------------------

    def start_heartbeats(self) -> None:
        if self.heartbeat:
            self.start_timer(self.heartbeat / 2, "send heartbeat")
            self.start_timer(self.heartbeat, "check heartbeat")

    def on_timer(self, payload: str) -> None:
        if self.sock is None:
            return
        if payload == "send heartbeat":
            if self.sender_beat.step(self.output.total_written - self.beats_written):
                self.beats_written += 8
                self.output.put(heartbeat())
            self.start_timer(self.heartbeat / 2, payload)
        elif payload == "check heartbeat":
            if self.state == "blocked" or self.pauses:
                self.monitor_beat.restart()  # AB-26
            elif self.monitor_beat.step(self.received):
                self.closing.lost(f"missed heartbeats from client, timeout: {self.heartbeat}s")
                return
            self.start_timer(self.heartbeat, payload)
        elif payload == "handshake" and self.state in ("pre_init", "starting", "securing", "tuning", "opening"):
            self.closing.lost("handshake timeout")
        elif payload == "close":
            self.closing.hang_up()

    def on_exit(self) -> None:
        if self.sock is not None:
            self.unwatch(self.fd)
            self.sock.close()
            self.sock = None

    def _no_grants(self, peer: str, amount: int) -> None:
        raise AssertionError("nobody sends credited messages to a connection")

    # -- listings -------------------------------------------------------------------------------------------------------------------------------

    @property
    def reported_state(self) -> str:
        """AB-36."""
        if self.state == "blocked" and self.alarms:
            return "blocked"
        if self.alarms and self.state == "running":
            return "blocking"
        if self.credit.in_flow() and self.state in ("running", "blocked"):
            return "flow"
        return self.state

    def on_info(self, sender: Any) -> dict[str, Any]:
        """rabbitmqctl's info items of this connection."""
        named = self.client_properties.get("connection_name")
        return {
            "pid": self.connection_id,
            "name": self.name,
            "user": self.user,
            "vhost": self.vhost,
            "state": self.reported_state,
            "channels": len(self.channels),
            "peer_host": self.peer[0],
            "peer_port": self.peer[1],
            "host": self.local[0],
            "port": self.local[1],
            "protocol": (0, 9, 1),
            "auth_mechanism": self.handshake.mechanism,
            "frame_max": self.frame_max,
            "channel_max": self.channel_max,
            "timeout": self.heartbeat,
            "client_properties": self.client_properties,
            "connected_at": int(self.connected_at * 1000),
            "recv_oct": self.received,
            "send_oct": self.output.total_written,
            "send_pend": self.output.size,
            "user_provided_name": named[1].decode("utf-8", "replace") if named and named[0] == "S" else "",
            "ssl": False,
        }

    async def on_channels_info(self, sender: Any) -> list[dict[str, Any]]:
        answers = [self.ask(entry.address, ("info",)) for entry in self.channels.values()]
        found = []
        for answer in answers:
            try:
                found.append(await answer)
            except ProcessDown:
                pass  # it closed meanwhile
        return found


def _endpoint(address: tuple) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"
