"""`ChannelTable`: the channels of one connection, by number on the wire and by id.

The first frame on a free number creates the channel (AB-52). A number is free again when both sides have closed its
channel; the client may use it at once, while the old channel's process is still ending, so processes are identified by
channel id.

Reader events are gathered by channel and sent once a batch. Each publish costs one credit of the channel, and the
reader stops cutting runs where the credit ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...amqp import methods
from ...amqp.errors import AmqpError
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, OVERSIZED, RUN, Event
from ...amqp.parser.reader import FrameReader
from ...definitions.access import Access
from ...parted_table import PartedTable
from ...runtime.contract import Address, ProcessMessage
from ...runtime.credit import CreditFlow
from ...runtime.process import Process
from ...runtime.turn_work import STEP
from ..channel import Channel
from ..context.node_context import NodeContext
from ..context.starting import ToNewChannel, to_new_channel
from ..contracts.channel import ChannelConfig, ToChannel, to_channel
from ..contracts.connection import SocketAddress
from ..events import client_events
from .handshake import Negotiated

#: Bytes of the frame of an acknowledgement.
ACK_SIZE = 21


@dataclass(slots=True)
class ChannelEntry:
    """A channel and the events gathered for it."""

    number: int
    channel_id: str
    address: Address[ToChannel]
    #: The events of this batch.
    events: list[Event] = field(default_factory=list)
    #: Whether the client has sent channel.close for it.
    is_closing: bool = False
    #: Whether the channel has reported its end, or was asked to end.
    is_ended: bool = False
    #: Whether its end was counted, and reported as an event if somebody watches events.
    is_over: bool = False
    #: Bytes of methods and acknowledgements that it has received since it last reported that all were handled.
    unhandled: int = 0
    #: Whether it was asked to report that.
    is_asked: bool = False


class ChannelTable:
    """Creates channels, gathers the client's events for them, and keeps track of their numbers."""

    __slots__ = (
        "_access",
        "_connection_id",
        "_connection_name",
        "_context",
        "_credit",
        "_negotiated",
        "_on_number_freed",
        "_process",
        "_reached",
        "_reader",
        "_serial",
        "_stray_close_ok",
        "_with_events",
        "_with_tls",
        "by_id",
        "by_number",
        "unhandled",
    )

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        connection_id: str,
        connection_name: str,
        reached: SocketAddress,
        with_tls: bool,
        negotiated: Negotiated,
        reader: FrameReader,
        credit: CreditFlow,
        on_number_freed: Callable[[int], None],
    ) -> None:
        self._process = process
        self._context = context
        self._connection_id = connection_id
        self._connection_name = connection_name
        self._reached = reached
        self._with_tls = with_tls
        self._negotiated = negotiated
        self._reader = reader
        self._credit = credit
        self._on_number_freed = on_number_freed
        #: The channels that the client can use.
        self.by_number: dict[int, ChannelEntry] = {}
        #: All channels whose process has not ended; one that is ending may have lost its number.
        self.by_id: PartedTable[str, ChannelEntry] = PartedTable()
        #: Bytes of input that have been passed on to these channels, and that they have not handled.
        self.unhandled = 0
        self._with_events: list[ChannelEntry] = []
        #: Numbers of closed channels for which the client still owes a close-ok, because both sides sent close. A
        #: dict, because an empty set takes 152 bytes more of each connection.
        self._stray_close_ok: dict[int, None] = {}
        self._serial = 0
        #: What the user may do, shared by all channels. Made with the first channel, because this table is made before
        #: the user has logged in.
        self._access: Access | None = None

    # -- input ---

    def add_event(self, event: Event) -> None:
        """Gather an event for its channel, which is created if it is new."""
        kind, number = event[0], event[1]
        entry = self.by_number.get(number)
        if entry is None:
            method = event[2] if kind == METHOD else None
            if type(method) is methods.ChannelCloseOk and number in self._stray_close_ok:
                del self._stray_close_ok[number]
                return
            entry = self._open(number, kind, method)
        if not entry.events:
            self._with_events.append(entry)
        entry.events.append(event)
        if kind is RUN or kind is OVERSIZED:
            self._reader.credit[number] = self._credit.spend(entry.channel_id, len(event[4]) if kind is RUN else 1)
        elif kind is METHOD:
            self._note_closing(entry, type(event[2]))
            entry.unhandled += self._reader.frame_size
            self.unhandled += self._reader.frame_size
        else:
            size = ACK_SIZE * len(event[2])
            entry.unhandled += size
            self.unhandled += size

    def _note_closing(self, entry: ChannelEntry, kind: type[Method]) -> None:
        """Note that a channel closes: the next frames may be for another one with its number (AB-53, AB-54)."""
        if kind is methods.ChannelCloseOk:
            # The answer to the broker's channel.close frees the number for the client; py-amqp uses it in the same
            # packet.
            self.flush()
            self._free_number(entry)
        elif kind is methods.ChannelClose:
            entry.is_closing = True
        elif kind is methods.ChannelOpen and entry.is_closing:
            raise AmqpError(504, "second 'channel.open' seen", 20, 10)

    def handled(self, entry: ChannelEntry, size: int) -> None:
        """Note that a channel has handled `size` bytes, or has ended."""
        size = min(size, entry.unhandled)
        entry.unhandled -= size
        self.unhandled -= size

    def flush(self) -> None:
        """Send each channel its events of this batch."""
        for entry in self._with_events:
            events, entry.events = entry.events, []
            self._process.send(entry.address, to_channel.input(events))
        self._with_events.clear()

    def bump(self, entry: ChannelEntry, amount: int) -> None:
        """Add credit that the channel grants, for `amount` more publishes."""
        self._credit.bump(entry.channel_id, amount)
        if self.by_number.get(entry.number) is entry:
            self._reader.credit[entry.number] = self._credit.credit_from(entry.channel_id)

    # -- opening and closing ---

    def _open(self, number: int, kind: str, method: Method | None) -> ChannelEntry:
        if type(method) is not methods.ChannelOpen:
            refused = method or (methods.BasicAck if kind == ACKS else methods.BasicPublish)
            raise AmqpError(504, "expected 'channel.open'", refused.CLASS_ID, refused.METHOD_ID)
        negotiated = self._negotiated
        if negotiated.channel_max and len(self.by_number) >= negotiated.channel_max:
            raise AmqpError(
                530,
                f"number of channels opened ({len(self.by_number)}) "
                f"has reached the negotiated channel_max ({negotiated.channel_max})",
            )
        user = self._context.definitions.user(negotiated.user)
        limit = None if user is None else user.limit("max-channels")
        if limit is not None and self._context.sessions.channels_of_user(negotiated.user) >= limit:
            raise AmqpError(
                530,
                f"number of channels opened for user '{negotiated.user}' has reached the maximum allowed user limit of "
                f"({limit})",
            )
        if self._access is None:
            self._access = Access(self._context.definitions, negotiated.user, negotiated.vhost)
        self._serial += 1
        channel_id = f"{self._connection_id}.{self._serial}"
        address: Address[ToNewChannel] = self._process.createActor(Channel)
        config = ChannelConfig(
            channel_id,
            self._connection_id,
            self._connection_name,
            number,
            negotiated.vhost,
            negotiated.user,
            negotiated.frame_max,
            negotiated.has_capability("consumer_cancel_notify"),
            self._access,
            reached=self._reached,
            with_tls=self._with_tls,
        )
        self._process.send(address, to_new_channel.start(self._context, config))
        # After `start`: on Thespian's own bases a monitor is a message, which the channel cannot handle before `start`.
        self._process.monitor(address, channel_id)
        self._context.counts.channel_created += 1
        entry = ChannelEntry(number, channel_id, address)
        self.by_number[number] = self.by_id[channel_id] = entry
        self._context.sessions.channels_changed(self._connection_id, 1, self._process)
        events = self._context.events
        if events.are_watched():
            fields = client_events.channel_created(self._context.node_name, config)
            events.emit(self._process, "channel.created", fields)
        self._reader.credit[number] = self._credit.credit_from(channel_id)
        return entry

    async def shut_down(self) -> None:
        """End all channels, which first do what the client sent before and give back what they hold (AB-28).

        Waits for at most `channel_operation_timeout`.
        """
        entries: list[ChannelEntry] = []
        for part in self.by_id.parts():
            if entries:
                await self._process.next_turn()
            entries += part
        limit = self._context.settings.channel_operation_timeout / 1000
        await self._process.ask_each(map(_asked_to_end, entries), limit)
        # Free the entries in steps, a turn each, because there may be thousands. `entries` has the last references to
        # them.
        entries.reverse()
        while entries:
            for _ in range(min(STEP, len(entries))):
                self._report_end(entries.pop())
            if entries:
                await self._process.next_turn()

    def closed(self, entry: ChannelEntry, is_crossed: bool) -> None:
        """Note that the channel has ended. `is_crossed`: both sides sent channel.close."""
        entry.is_ended = True
        if is_crossed and self.by_number.get(entry.number) is entry:
            self._stray_close_ok[entry.number] = None

    def remove(self, entry: ChannelEntry) -> None:
        """Forget a channel whose process has ended."""
        self._report_end(entry)
        self._free_number(entry)
        self.by_id.pop(entry.channel_id, None)
        self.handled(entry, entry.unhandled)
        if entry.events:
            entry.events = []
            self._with_events.remove(entry)
        self._process.demonitor(entry.channel_id)
        self._credit.peer_down(entry.channel_id)

    def free(self, most: int) -> bool:
        """Drop up to `most` entries of a connection that has ended, and count their channels as closed: the connection
        may have been killed, and its channels with it. Return whether there were any.
        """
        had_any = bool(self.by_id or self.by_number)
        for _ in range(min(most, len(self.by_number))):
            self.by_number.popitem()
        for _ in range(min(most, len(self.by_id))):
            _, entry = self.by_id.popitem()
            if not entry.is_over:
                entry.is_over = True
                self._context.counts.channel_closed += 1
        return had_any

    def _report_end(self, entry: ChannelEntry) -> None:
        """Count the end of a channel, and report it to those who watch events, once."""
        events = self._context.events
        if not entry.is_over:
            self._context.counts.channel_closed += 1
        if not entry.is_over and events.are_watched():
            fields = client_events.channel_closed(self._context.node_name, entry.channel_id, self._negotiated.user)
            events.emit(self._process, "channel.closed", fields)
        entry.is_over = True

    def _free_number(self, entry: ChannelEntry) -> None:
        if self.by_number.get(entry.number) is entry:
            del self.by_number[entry.number]
            self._reader.credit.pop(entry.number, None)
            self._context.sessions.channels_changed(self._connection_id, -1, self._process)
            self._on_number_freed(entry.number)


def _asked_to_end(entry: ChannelEntry) -> tuple[Address[ToChannel], ProcessMessage[ToChannel, bool]]:
    entry.is_ended = True
    return entry.address, to_channel.shut_down()
