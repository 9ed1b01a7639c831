"""A simulated client: one connection at a time, made anew when it is gone and there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...runtime.sim.client import SimStream
from ..model.book import Broken
from ..node import PORT
from ..plan import Action
from .channel import SimChannel
from .peer import Peer, SimContent

if TYPE_CHECKING:
    from ..model.queue_book import QueueBook
    from ..schedule import Schedule


class SimConnection(Peer):
    """The octets' side of a client; tells it what comes."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.heartbeat)
        self.client = client
        self.is_open = False
        self.is_forgotten = False  # nobody is here any more

    def on_open(self) -> None:
        self.is_open = True
        if not self.is_forgotten:
            self.client.opened()

    def on_method(self, channel: int, method: Any, content: SimContent | None) -> None:
        if not self.is_forgotten:
            self.client.on_method(channel, method, content)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        if not self.is_forgotten:
            self.client.lost(reason)


class Client:
    """`heartbeat` is in seconds; 0: none. Who has one can fall silent: its connection is as it was, and nothing comes through."""

    def __init__(self, schedule: Schedule, name: str, heartbeat: int = 0) -> None:
        self.schedule = schedule
        self.name = name
        self.heartbeat = heartbeat
        self.silent: list[tuple[SimStream, float]] = []  # connections that were left so, and when
        self.connection: SimConnection | None = None
        self.channels: dict[int, SimChannel] = {}
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
        self.speak_again()
        self.connection = SimConnection(self)
        self.connection.stream = self.schedule.world.connect(
            self.schedule.node.name, PORT, self.connection, host=self._host
        )
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
        elif action.what == "silence" or action.what == "stall" and self.heartbeat:
            self._fall_silent(bool(action.number("both")))
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
        if action.number("any") and not (channel and channel.consuming.unacked):
            # What one of its channels has nothing for another may have.
            channel = next((other for other in self.channels.values() if other.consuming.unacked), channel)
        if channel is None:
            channel = self.channels[action.channel] = SimChannel(self, action.channel)
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
        self.leaves()
        for channel in self.channels.values():
            channel.leave()
        self.send(0, methods.ConnectionClose(200, "done"))

    def _leave_rudely(self, how: str) -> None:
        if self.connection is not None:
            self._tell("resets its connection" if how == "reset" else "hangs up")
            stream = self.connection.stream
            self.gone(in_order=False)
            (stream.reset if how == "reset" else stream.close)()

    def leaves(self) -> None:
        """The connection is about to end, whoever wants it; what it has alone goes with it."""
        for queue in self._own():
            queue.owner_leaves()

    def _own(self) -> list[QueueBook]:
        return [
            queue
            for queue in self.schedule.queues.values()
            if queue.kind.exclusive and self.connection is not None and queue.owner is self.connection
        ]

    # -- silence -----------------------------------------------------------------------------------

    @property
    def _host(self) -> str:
        return self.name if self.heartbeat else "clients"

    def _fall_silent(self, both: bool) -> None:
        """Nothing that it says arrives from now on; with `both` it hears nothing either."""
        connection, world, node = self.connection, self.schedule.world, self.schedule.node.name
        if connection is None or not self.heartbeat or not connection.is_open or self.is_closing:
            return
        self._tell("falls silent")
        self.gone(in_order=False)
        connection.is_forgotten = True
        self.silent.append((connection.stream, world.time))
        world.link(self._host, node).cut()
        if both:
            world.link(node, self._host).cut()

    def speak_again(self) -> None:
        """The way is free again; what was left behind there is no more."""
        world, node = self.schedule.world, self.schedule.node.name
        silent, self.silent = self.silent, []
        for stream, _ in silent:
            stream.reset()
        if silent:
            world.link(self._host, node).mend()
            world.link(node, self._host).mend()

    # -- what the broker says ----------------------------------------------------------------------

    def on_method(self, number: int, method: Any, content: SimContent | None) -> None:
        if number:
            channel = self.channels.get(number)
            if channel is None:
                raise Broken(f"{self.name} got {type(method).__name__} on channel {number}, which it does not have")
            channel.on_method(method, content)
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

    def channel_gone(self, channel: SimChannel, in_order: bool = True) -> None:
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
        for queue in self._own():
            queue.owner_left() if in_order and not self.schedule.has_crashed else queue.owner_leaves()
        self.connection = None
        self.is_closing = False
        self._todo.clear()
        for channel in self.channels.values():
            channel.ended(in_order)
        self.channels.clear()
        self.is_stalled = False
