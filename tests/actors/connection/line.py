"""`Line`: one `Connection` on virtual time, between a client and stubs of the processes that it works with.

    line = Line(seed)
    line.open()                               the whole handshake
    line.send(ChannelOpen(), channel=1)
    line.settle()                             until only timers are left to wait for
    assert line.take() == [(1, ChannelOpenOk(b""))]
    line.channels[0].methods                  what the first channel got

The seed decides where reads are cut and in which order processes have their turns. A test must hold for all of them.
"""

from __future__ import annotations

from typing import Any

from warren.actors.connection import Connection
from warren.actors.connection import channels as channels_module
from warren.actors.context.node_context import NodeContext
from warren.actors.context.received_bytes import ReceivedBytes
from warren.actors.context.starting import to_new_connection
from warren.actors.node.first_user import first_user
from warren.amqp.constants import FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content, content_body, method_frame, split_frames
from warren.amqp.method import Method
from warren.amqp.methods import (
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from warren.amqp.parser.events import METHOD, RUN
from warren.definitions.definitions import Definitions
from warren.definitions.records import Permission
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import Conditions, SimWorld
from warren.settings import Settings

from ..stage import Stub

PORT = 5672
PLAIN = b"\0guest\0guest"
CAPABILITIES = {"authentication_failure_close": True, "connection.blocked": True, "consumer_cancel_notify": True}

#: Stands for a heartbeat in lists of methods.
HEARTBEAT = "heartbeat"


class ChannelEnd:
    """A channel as a test sees it: a stub takes the place of its process. This object outlives that process.

    The stub answers open, close and `shut_down` as a channel does, and keeps all other input in `methods` and `bodies`.
    """

    def __init__(self, process: StubChannel, owner: Any, config: Any) -> None:
        self._process, self._owner = process, owner
        self.config = config
        self.address = process.myAddress
        self.methods: list[Method] = []
        self.bodies: list[bytes] = []
        #: How many `input` messages the channel got.
        self.inputs = 0
        self.is_shut_down = False
        #: Whether the channel delays its answers to channel.close and `shut_down` until `release`.
        self.is_busy = False
        self.asked_by: Any = None
        #: The connection's latest `handled`, which a busy channel does not answer.
        self.handled_for: Any = None

    def input(self, events: list[Any]) -> None:
        self.inputs += 1
        for event in events:
            if event[0] == RUN:
                self.bodies += map(content_body, event[4])
            elif event[0] == METHOD:
                self._method(event[2])

    def _method(self, method: Method) -> None:
        if isinstance(method, ChannelOpen):
            self.put(ChannelOpenOk(b""))
        elif isinstance(method, ChannelClose):
            if not self.is_busy:
                self.end(False, ChannelCloseOk())
        elif isinstance(method, ChannelCloseOk):
            self.end(False)
        else:
            self.methods.append(method)

    # -- called by tests ---

    def release(self) -> None:
        """Answer `shut_down`, and end the channel."""
        self._process.reply(self.asked_by, True)
        self._process.stop()
        # A process ends at the end of a turn, and a message gives it one.
        self._process.send(self.address, ("nothing",))

    def handle(self) -> None:
        """Answer `handled`."""
        self._process.reply(self.handled_for, True)

    def put(self, *methods: Method, notices: Any = ()) -> None:
        """Send output."""
        self.tell("output", self._frames(methods), list(notices))

    def end(self, is_crossed: bool, *last: Method) -> None:
        """End the channel, with this last output. `is_crossed`: both sides have sent channel.close."""
        self.tell("channel_closed", self.config.channel_id, is_crossed, self._frames(last), [])
        self._process.stop()
        self._process.send(self.address, ("nothing",))

    def tell(self, name: str, *fields: Any) -> None:
        """Have the channel send the connection a message."""
        self._process.send(self._owner, (name, *fields))

    def _frames(self, methods: Any) -> list[bytes]:
        return [method_frame(self.config.number, method) for method in methods]


class StubChannel(Process):
    """The process of a stubbed channel; the test uses its `ChannelEnd`."""

    #: The channels that were made, in order. Each `Line` uses a subclass with a list of its own.
    made: list[ChannelEnd] = []

    def on_start(self, sender: Any, context: Any, config: Any) -> None:
        self.end = ChannelEnd(self, sender, config)
        self.made.append(self.end)

    def on_input(self, sender: Any, events: list[Any]) -> None:
        self.end.input(events)

    def on_shut_down(self, sender: Any) -> Any:
        self.end.is_shut_down = True
        if self.end.is_busy:
            self.end.asked_by = sender
            return None
        self.stop()
        return True

    def on_handled(self, sender: Any) -> Any:
        self.end.handled_for = sender
        return None if self.end.is_busy else True

    def on_info(self, sender: Any) -> Any:
        return {"number": self.end.config.number}

    def on_nothing(self, sender: Any) -> None:
        """Gives the process a turn; see `ChannelEnd.release`."""


class Acceptor(Process):
    """Stands for the listener: it accepts connections, and keeps the addresses of those that are open."""

    def on_start(self, sender: Any, context: NodeContext, is_refused: bool) -> bool:
        self.context, self.is_refused = context, is_refused
        self.socket = self.sockets.listen(2, ("127.0.0.1", PORT), 8)
        self.watch(self.socket.fileno())
        self.connections: list[Any] = []
        self.overloaded: list[Any] = []
        return True

    def on_readable(self, fd: int) -> None:
        sock, peer = self.socket.accept()
        address = self.createActor(Connection)
        self.connections.append(address)
        self.send(
            address, to_new_connection.start(self.context, sock.detach(), peer, sock.getsockname(), self.is_refused)
        )

    def on_child_exited(self, address: Any) -> None:
        self.connections.remove(address)


class Line:
    """One connection under test. This object is its client."""

    def __init__(self, monkeypatch: Any, seed: int = 0, is_refused: bool = False, **settings: Any) -> None:
        self.world = SimWorld(seed, conditions=Conditions(link_delay=1e-4))
        self.base = self.world.machine("a").boot()
        self.port = SimPort(self.base)
        self.channels: list[ChannelEnd] = []
        stub = type("StubChannel", (StubChannel,), {"made": self.channels})
        monkeypatch.setattr(channels_module, "Channel", stub)
        self.settings = Settings(**settings)
        self.routing = RoutingTable()
        self.routing.add_vhost("/")
        self._metadata, self._alarms, self._queue = [self.base.newPrimaryActor(Stub) for _ in range(3)]
        self.metadata, self.alarms = self.actor(self._metadata), self.actor(self._alarms)
        self.metadata.answers = {"delete_exclusive": True}
        self.definitions = Definitions()
        self.definitions.put(first_user(self.settings, b"salt"))
        self.definitions.put(Permission(self.settings.default_user, "/", ".*", ".*", ".*"))
        self._memory_monitor = self.base.newPrimaryActor(Stub)
        self.memory_monitor = self.actor(self._memory_monitor)
        self.received_bytes = ReceivedBytes()
        context = NodeContext(
            "warren@a",
            self.settings,
            self.routing,
            self._metadata,
            self._alarms,
            self._memory_monitor,
            definitions=self.definitions,
            received_bytes=self.received_bytes,
        )
        acceptor = self.base.newPrimaryActor(Acceptor)
        self.port.request(acceptor, ("start", context, is_refused))
        self.acceptor = self.actor(acceptor)
        #: What the client has received: channel and method, or HEARTBEAT.
        self.received: list[tuple[int, Any]] = []
        #: The broker's protocol header, which it sends to clients of other protocols.
        self.header = b""
        #: How the connection ended for the client: "closed" or "reset".
        self.end: str | None = None
        self._rest = b""
        self.stream = self.world.connect("a", PORT, self)
        self.world.run_until(lambda: bool(self.acceptor.connections))
        self.address = self.acceptor.connections[0]
        self.settle()

    # -- the client's end of the socket ---

    def on_connected(self, stream: Any) -> None:
        """Send nothing: each test sends what it needs."""

    def on_data(self, stream: Any, data: bytes) -> None:
        self._rest += data
        if self._rest.startswith(b"AMQP"):
            self.header = self._rest
            return
        frames, self._rest = split_frames(self._rest)
        for kind, channel, payload in frames:
            if kind == FRAME_METHOD:
                self.received.append((channel, decode_method(payload)))
            elif kind == FRAME_HEARTBEAT:
                self.received.append((channel, HEARTBEAT))

    def on_lost(self, stream: Any, reason: str) -> None:
        self.end = reason

    def write(self, data: bytes) -> None:
        self.stream.write(data)

    def send(self, *methods: Method, channel: int = 0) -> None:
        """Send methods in one write."""
        self.write(b"".join([method_frame(channel, method) for method in methods]))

    def publish(self, *bodies: bytes, channel: int = 1) -> None:
        method = method_frame(channel, BasicPublish(routing_key="q"))
        self.write(b"".join([method + build_content(channel, b"\0\0", body, 4096) for body in bodies]))

    def take(self) -> list[tuple[int, Any]]:
        """What the client has received since the last call."""
        received, self.received = self.received, []
        return received

    # -- the handshake ---

    def start(self) -> None:
        """Run until the broker has sent connection.start."""
        self.write(PROTOCOL_HEADER)
        assert isinstance(self.next_method(), ConnectionStart)

    def tune(self, mechanism: str = "PLAIN", response: bytes = PLAIN, **capabilities: bool) -> None:
        """Run until the broker has sent connection.tune."""
        self.start()
        self.start_ok(mechanism, response, **capabilities)
        assert isinstance(self.next_method(), ConnectionTune)

    def start_ok(self, mechanism: str = "PLAIN", response: bytes = PLAIN, **capabilities: bool) -> None:
        """Send start-ok, with CAPABILITIES unless others are given."""
        announced = {name.replace("__", "."): value for name, value in capabilities.items()} or CAPABILITIES
        self.send(ConnectionStartOk(table_from({"capabilities": announced}), mechanism, response, "en_US"))

    def open(self, channel_max: int = 2047, frame_max: int = 131_072, heartbeat: int = 0, **options: Any) -> None:
        """Perform the whole handshake."""
        self.tune(**options)
        self.send(ConnectionTuneOk(channel_max, frame_max, heartbeat))
        self.send(ConnectionOpen("/"))
        assert isinstance(self.next_method(), ConnectionOpenOk)
        self.settle()

    def next_method(self) -> Any:
        """Run until the broker sends a method on channel 0, and return it; None if the connection ends first."""
        self.world.run_until(lambda: bool(self.received) or self.end is not None)
        return self.received.pop(0)[1] if self.received else None

    def open_channel(self, number: int = 1) -> ChannelEnd:
        self.send(ChannelOpen(), channel=number)
        self.settle()
        assert self.take() == [(number, ChannelOpenOk(b""))]
        return self.channels[-1]

    # -- the world ---

    def actor(self, address: Any) -> Any:
        return self.base.cells[address.actorAddressString].actor

    def settle(self) -> None:
        """Run until only timers are left to wait for."""
        assert self.world.settle(0.5)

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def tell(self, name: str, *fields: Any) -> None:
        """Send the connection a message, as another process of the node does."""
        self.port.tell(self.address, (name, *fields))

    @property
    def has_ended(self) -> bool:
        """Whether the process of the connection has ended."""
        return not self.acceptor.connections

    def info(self) -> Any:
        return self.port.request(self.address, ("info",))

    @property
    def queue(self) -> Any:
        """The address of a stub in the place of a queue."""
        return self._queue

    def sent_to_queue(self) -> int:
        """How many deliveries the connection has reported to the stub queue as written."""
        return sum([count for _, count in self.actor(self._queue).take("sent")])
