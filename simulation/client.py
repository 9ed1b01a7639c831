"""A simulated client: one connection at a time, made anew when it is gone and there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..amqp import methods
from ..runtime.sim_client import SimStream
from .book import Broken
from .channel import Channel
from .node import PORT
from .peer import Peer
from .plan import Action

if TYPE_CHECKING:
    from .schedule import Schedule


class Connection(Peer):
    """The octets' side of a client; tells it what comes."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.is_open = False

    def on_open(self) -> None:
        self.is_open = True
        self.client.opened()

    def on_method(self, channel: int, method: Any, body: bytes | None) -> None:
        self.client.on_method(channel, method, body)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        self.client.lost(reason)


class Client:
    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.connection: Connection | None = None
        self.channels: dict[int, Channel] = {}
        self.is_stalled = False
        self.is_closing = False
        self._todo: list[Action] = []

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    def _tell(self, text: str) -> None:
        self.schedule.tell(self.name, text)

    def waits_for(self) -> str:
        """What is still to come, if anything is."""
        if self.connection is None:
            return ""
        if self.is_closing or not self.connection.is_open:
            return f"{self.name} waits for its connection to {'close' if self.is_closing else 'open'}"
        return "; ".join(filter(None, (channel.waits_for() for channel in self.channels.values())))

    def connect(self) -> None:
        self.connection = Connection(self)
        self.connection.stream = self.schedule.world.connect(self.schedule.node.name, PORT, self.connection)
        self.is_closing = False
        self.stall(False)

    def send(self, channel: int, method: Any, *content: Any) -> None:
        if self.connection is not None:
            self.connection.send(channel, method, *content)

    # -- doing what the plan says ------------------------------------------------------------------

    def do(self, action: Action) -> None:
        if action.what == "close":
            self._close()
        elif action.what in ("reset", "hang-up"):
            self._leave_rudely(action.what)
        elif action.what == "stall":
            if self.connection is not None and not self.is_closing:
                self.stall(not self.is_stalled)
        elif self.is_closing:
            return
        else:
            if self.connection is None:
                self.connect()
            if self.connection is not None and self.connection.is_open:
                self._on_channel(action)
            else:
                self._todo.append(action)

    def _on_channel(self, action: Action) -> None:
        channel = self.channels.get(action.channel)
        if channel is None:
            channel = self.channels[action.channel] = Channel(self, action.channel)
        if not channel.is_leaving:
            channel.do(action)

    def opened(self) -> None:
        todo, self._todo = self._todo, []
        for action in todo:
            self._on_channel(action)

    def stall(self, is_stalled: bool) -> None:
        if is_stalled != self.is_stalled:
            self._tell("stops reading" if is_stalled else "reads again")
        self.is_stalled = is_stalled
        if self.connection is not None:
            self.connection.stream.stall(is_stalled)

    def _close(self) -> None:
        connection = self.connection
        if connection is None or self.is_closing:
            return
        if not connection.is_open:
            self._leave_rudely("hang-up")
            return
        self._tell("closes its connection")
        self.is_closing = True
        for channel in self.channels.values():
            channel.leave()
        self.send(0, methods.ConnectionClose(200, "done"))

    def _leave_rudely(self, how: str) -> None:
        if self.connection is not None:
            self._tell("resets its connection" if how == "reset" else "hangs up")
            stream = self.connection.stream
            self.gone(in_order=False)
            (stream.reset if how == "reset" else stream.close)()

    # -- what the broker says ----------------------------------------------------------------------

    def on_method(self, number: int, method: Any, body: bytes | None) -> None:
        if number:
            channel = self.channels.get(number)
            if channel is None:
                raise Broken(f"{self.name} got {type(method).__name__} on channel {number}, which it does not have")
            channel.on_method(method, body)
        elif type(method) is methods.ConnectionClose:
            self._tell(f"is sent away by the broker: {method.reply_code} {method.reply_text}")
            if not self.schedule.has_crashed:
                raise Broken(f"{self.name} was sent away for no reason: {method.reply_text}")
            self.send(0, methods.ConnectionCloseOk())
            stream = self.connection.stream if self.connection is not None else None
            self.gone(in_order=False)
            if stream is not None:
                stream.close()
        elif type(method) is methods.ConnectionCloseOk:
            stream = self.connection.stream if self.connection is not None else None
            self._tell("has closed its connection")
            self.gone(in_order=True)
            if stream is not None:
                stream.close()

    def channel_gone(self, channel: Channel, in_order: bool = True) -> None:
        channel.ended(in_order)
        del self.channels[channel.number]

    def lost(self, reason: str) -> None:
        if reason != "refused":
            self._tell(f"loses its connection: {reason}")
        if not (self.is_closing or self.schedule.has_crashed):
            raise Broken(f"{self.name} lost its connection for no reason: {reason}")
        self.gone(in_order=False)

    def gone(self, in_order: bool) -> None:
        """The connection is no more."""
        self.connection = None
        self.is_closing = False
        self._todo.clear()
        for channel in self.channels.values():
            channel.ended(in_order)
        self.channels.clear()
        self.is_stalled = False
