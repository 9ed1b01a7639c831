"""`Client`: a simulated client. It has one connection at a time, and connects again when there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.method import Method
from ...amqp.properties import Properties
from ...runtime.sim.client import SimStream
from ..model.copies import PromiseBroken
from ..model.queue_model import QueueModel
from ..node import PORT
from ..plan import Action
from .channel import SimChannel
from .peer import Peer, SimContent

if TYPE_CHECKING:
    from ..schedule import Schedule


class SimConnection(Peer):
    """A connection of a client. It passes to the client the methods that arrive, and the end of the connection."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.heartbeat)
        self.client = client
        self.is_open = False
        #: Whether the client has fallen silent and ignores this connection from now on.
        self.is_abandoned = False

    @property
    def name(self) -> str:
        return self.client.name

    def on_open(self) -> None:
        self.is_open = True
        if not self.is_abandoned:
            self.client.on_open()

    def on_method(self, channel: int, method: Method, content: SimContent | None) -> None:
        if not self.is_abandoned:
            self.client.on_method(channel, method, content)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        if not self.is_abandoned:
            self.client.on_lost(reason)


class Client:
    """A client of a schedule.

    heartbeat   in seconds, 0 for none. A client with a heartbeat can fall silent: its connection stays open, but the
                network loses what the client sends
    """

    def __init__(self, schedule: Schedule, name: str, heartbeat: int = 0) -> None:
        self.schedule = schedule
        self.name = name
        self.heartbeat = heartbeat
        #: Connections that have fallen silent, each with the time at which it did.
        self.silent: list[tuple[SimStream, float]] = []
        self.connection: SimConnection | None = None
        self.channels: dict[int, SimChannel] = {}
        #: Whether the client has stopped reading from its connection.
        self.is_stalled = False
        #: Whether it waits for the answer to its connection.close.
        self.is_closing = False
        #: Actions that wait until the connection is open.
        self._todo: list[Action] = []

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    def _tell(self, text: str) -> None:
        self.schedule.tell(self.name, text)

    def waits_for(self) -> str:
        """What has not arrived, as a text; empty if nothing is missing."""
        if self.connection is None:
            return ""
        if self.is_closing or not self.connection.is_open:
            return f"{self.name} waits for its connection to {'close' if self.is_closing else 'open'}"
        return "; ".join(filter(None, (channel.waits_for() for channel in self.channels.values())))

    def connect(self) -> None:
        self.end_silence()
        self.connection = SimConnection(self)
        self.connection.stream = self.schedule.world.connect(
            self.schedule.node.name, PORT, self.connection, host=self._host
        )
        self.is_closing = False
        self.stall(False)

    def send(
        self, channel: int, method: Method, body: bytes | None = None, properties: Properties | None = None
    ) -> None:
        if self.connection is not None:
            self.connection.send(channel, method, body, properties)

    # -- the actions of the plan ---

    def do(self, action: Action) -> None:
        if action.what == "close":
            self._close()
        elif action.what in ("reset", "hang-up"):
            self._drop_connection(action.what)
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
                self._do_on_channel(action)
            else:
                self._todo.append(action)

    def _do_on_channel(self, action: Action) -> None:
        channel = self.channels.get(action.channel)
        if action.number("any") and not (channel and channel.consuming.unacked):
            # The channel of the action has nothing to settle; another may have.
            channel = next((other for other in self.channels.values() if other.consuming.unacked), channel)
        if channel is None:
            channel = self.channels[action.channel] = SimChannel(self, action.channel)
        if not channel.is_leaving:
            channel.do(action)

    def on_open(self) -> None:
        """The connection is open."""
        todo, self._todo = self._todo, []
        for action in todo:
            self._do_on_channel(action)

    def stall(self, is_stalled: bool) -> None:
        """Stop reading, or read again."""
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
            self._drop_connection("hang-up")
            return
        self._tell("closes its connection")
        self.is_closing = True
        self.connection_leaving()
        for channel in self.channels.values():
            channel.leave()
        self.send(0, methods.ConnectionClose(200, "done"))

    def _drop_connection(self, how: str) -> None:
        """End the connection without a connection.close."""
        if self.connection is not None:
            self._tell("resets its connection" if how == "reset" else "hangs up")
            stream = self.connection.stream
            self.connection_ended(in_order=False)
            (stream.reset if how == "reset" else stream.close)()

    def connection_leaving(self, is_certain: bool = True) -> None:
        """The client or the broker ends the connection, or may end it if not `is_certain`, and its exclusive queues
        end with it.
        """
        for queue in self._exclusive_queues():
            queue.on_owner_leaving(is_certain)

    def is_closing_channel(self, number: int) -> bool:
        channel = self.channels.get(number)
        return channel is None or channel.is_leaving

    def _exclusive_queues(self) -> list[QueueModel]:
        return [
            queue
            for queue in self.schedule.queues.values()
            if queue.kind.exclusive and self.connection is not None and queue.owner is self.connection
        ]

    # -- silence ---

    @property
    def _host(self) -> str:
        """The host of the client's end. A client that can fall silent has a host, and so a link, of its own."""
        return self.name if self.heartbeat else "clients"

    def _fall_silent(self, both: bool) -> None:
        """Cut the link to the node; `both` cuts the link from it as well."""
        connection, world, node = self.connection, self.schedule.world, self.schedule.node.name
        if connection is None or not self.heartbeat or not connection.is_open or self.is_closing:
            return
        self._tell("falls silent")
        self.connection_ended(in_order=False)
        connection.is_abandoned = True
        self.silent.append((connection.stream, world.time))
        world.link(self._host, node).cut()
        if both:
            world.link(node, self._host).cut()

    def end_silence(self) -> None:
        """Mend the links. The connections that had fallen silent are reset."""
        world, node = self.schedule.world, self.schedule.node.name
        silent, self.silent = self.silent, []
        for stream, _ in silent:
            stream.reset()
        if silent:
            world.link(self._host, node).mend()
            world.link(node, self._host).mend()

    # -- methods from the broker ---

    def on_method(self, number: int, method: Method, content: SimContent | None) -> None:
        if number:
            channel = self.channels.get(number)
            if channel is None:
                raise PromiseBroken(
                    f"{self.name} received {type(method).__name__} on channel {number}, which it does not have"
                )
            channel.on_method(method, content)
        elif isinstance(method, methods.ConnectionClose):
            self._tell(f"is disconnected by the broker: {method.reply_code} {method.reply_text}")
            if not self.schedule.has_crashed:
                raise PromiseBroken(f"{self.name} was disconnected for no reason: {method.reply_text}")
            self.send(0, methods.ConnectionCloseOk())
            stream = self.connection.stream if self.connection is not None else None
            self.connection_ended(in_order=False)
            if stream is not None:
                stream.close()
        elif isinstance(method, methods.ConnectionCloseOk):
            stream = self.connection.stream if self.connection is not None else None
            self._tell("has closed its connection")
            self.connection_ended(in_order=True)
            if stream is not None:
                stream.close()

    def remove_channel(self, channel: SimChannel, in_order: bool = True) -> None:
        """The channel is closed; `in_order` if the client has closed it."""
        channel.ended(in_order)
        del self.channels[channel.number]

    def on_lost(self, reason: str) -> None:
        """The connection was closed or reset by the other side, or refused."""
        if reason != "refused":
            self._tell(f"loses its connection: {reason}")
        if not (self.is_closing or self.schedule.has_crashed):
            raise PromiseBroken(f"{self.name} lost its connection for no reason: {reason}")
        self.connection_ended(in_order=False)

    def connection_ended(self, in_order: bool) -> None:
        """The connection has ended; `in_order` if the broker has answered the client's connection.close."""
        for queue in self._exclusive_queues():
            queue.on_owner_left() if in_order and not self.schedule.has_crashed else queue.on_owner_leaving()
        self.connection = None
        self.is_closing = False
        self._todo.clear()
        for channel in self.channels.values():
            channel.ended(in_order)
        self.channels.clear()
        self.is_stalled = False
