"""The programs that run in a `Sim`: those that publish, and those that consume.

A program is a Python object that stands for a process of its own. The broker sees no more of a process than its
connection, so the simulation lets a process crash by breaking the connection. The program connects again whenever it
has lost its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal, Protocol

from ..amqp import methods
from ..amqp.fields import table_from
from ..amqp.method import Method
from ..amqp.properties import Properties
from ..runtime.sim.client import SimStream
from ..runtime.sim.world import SimWorld
from .brokers import Brokers
from .clients.peer import Peer, SimContent
from .node import PORT

#: Virtual seconds after which a program connects again.
RESTART_SECONDS = 0.05
#: The longest time, in virtual seconds, that passes at a yield.
LONGEST_YIELD = 0.01

Handler = Callable[["ReceivedMessage"], Generator[Any, None, None] | None]

#: What became of a publish: the broker confirmed it, or refused it (basic.nack), or the connection was lost before the
#: answer came.
Answer = Literal["confirmed", "refused", "lost"]

#: Yields the bodies to publish, and gets the answer to each.
Work = Callable[[], Generator[bytes, Answer, None]]


class Surroundings(Protocol):
    """The part of `Sim` that programs use."""

    world: SimWorld
    brokers: Brokers
    arguments: dict[str, dict[str, Any]]

    def deduplicates(self, queue: str) -> bool: ...

    def tell(self, who: str, text: str) -> None: ...


class ReceivedMessage:
    """A message that a handler gets.

    Settling it after the handler's process has crashed does nothing, since its connection is gone.
    """

    def __init__(
        self, service: Service, connection: ProgramConnection, method: methods.BasicDeliver, body: bytes
    ) -> None:
        self.body = body
        self.redelivered: bool = method.redelivered
        self._service = service
        self._connection = connection
        self._tag: int = method.delivery_tag

    def ack(self) -> None:
        """Acknowledge the message, so that the broker removes it."""
        self._settle("acknowledges", methods.BasicAck(self._tag))

    def requeue(self) -> None:
        """Put the message back into the queue."""
        self._settle("requeues", methods.BasicNack(self._tag, False, True))

    def reject(self) -> None:
        """Reject the message, so that the broker drops or dead-letters it."""
        self._settle("rejects", methods.BasicNack(self._tag, False, False))

    def _settle(self, verb: str, method: Method) -> None:
        self._service.tell(f"{verb} {self.body[:40]!r}")
        self._connection.send(1, method)


class ProgramConnection(Peer):
    """A connection of a program."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def on_open(self) -> None:
        self.send(1, methods.ChannelOpen())

    def on_method(self, channel: int, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ConnectionClose):
            self.send(0, methods.ConnectionCloseOk())
        else:
            self._program.on_method(self, method, content)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        self._program.on_lost(self)


class Program:
    """A program with one connection and one queue, which it declares.

    It connects again whenever it loses the connection, or the broker refuses something or cancels its consumer. In a
    cluster it then connects to the next node, as a client library does that is given several addresses.

    node   the index of the node to which it connects first
    """

    def __init__(self, sim: Surroundings, name: str, queue: str, node: int) -> None:
        self.sim = sim
        self.name = name
        self.queue = queue
        self._at = node
        #: What the broker has refused last, so that each try does not add the same line to the story.
        self._refusal = ""
        self.connect()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.sim.tell(self.name, text)

    def connect(self) -> None:
        self.connection = ProgramConnection(self)
        machine = self.sim.brokers.node(self._at).name
        self.connection.stream = self.sim.world.connect(machine, PORT, self.connection)

    def on_lost(self, connection: ProgramConnection) -> None:
        if connection is self.connection:
            self.sim.world.at(self.sim.world.time + RESTART_SECONDS, self._reconnect, connection)

    def _reconnect(self, connection: ProgramConnection) -> None:
        if connection is self.connection:
            self._at = (self._at + 1) % len(self.sim.brokers.nodes)
            self.connect()

    def is_at(self, node: int) -> bool:
        """Whether it is connected, or connects, to that node."""
        return self._at == node

    def break_off(self) -> None:
        """Lose the connection, and connect again a moment later."""
        connection = self.connection
        connection.stream.reset()
        self.on_lost(connection)

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            arguments = table_from(self.sim.arguments.get(self.queue, {}))
            connection.send(1, methods.QueueDeclare(queue=self.queue, durable=True, arguments=arguments))
        elif isinstance(method, methods.QueueDeclareOk):
            self._refusal = ""
            self.on_declared(connection)
        elif isinstance(method, methods.ChannelClose):
            if method.reply_text != self._refusal:
                self._refusal = method.reply_text
                self.tell(f"is refused: {method.reply_text}")
            self.break_off()
        elif isinstance(method, methods.BasicCancel):
            self.tell("has its consumer cancelled by the broker")
            self.break_off()

    def on_declared(self, connection: ProgramConnection) -> None:
        """The channel is open and the queue declared."""

    @property
    def is_done(self) -> bool:
        """Whether it has no work left."""
        return True


class RetryingPublisher(Program):
    """Publishes each body until it is confirmed.

    A body may be published twice, as by any publisher that must not lose messages. If its queue deduplicates, each
    message has an id, which is the same when it is published again, so the queue keeps it once.
    """

    def __init__(self, sim: Surroundings, name: str, queue: str, bodies: Iterable[bytes], node: int) -> None:
        #: By publish number on this connection.
        self._unconfirmed: dict[int, tuple[int, bytes]] = {}
        self._published = 0
        #: What is to be published: the place among all bodies, and the body.
        self._left = list(enumerate(bodies))
        super().__init__(sim, name, queue, node)

    def on_declared(self, connection: ProgramConnection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if isinstance(method, methods.ConfirmSelectOk):
            self._left = [*self._unconfirmed.values(), *self._left]
            self._unconfirmed = {}
            self._published = 0
            self._publish(connection)
        elif isinstance(method, methods.BasicAck):
            for _, body in self._answered(method.delivery_tag, method.multiple):
                self.tell(f"receives the confirm of {body[:40]!r}")
        elif isinstance(method, methods.BasicNack):
            for at, body in self._answered(method.delivery_tag, method.multiple):
                self.tell(f"receives the refusal of {body[:40]!r}")
                self._left.append((at, body))
            self.sim.world.at(self.sim.world.time + RESTART_SECONDS, self._publish, connection)

    def _publish(self, connection: ProgramConnection) -> None:
        """Publish the bodies that are left. An outdated connection publishes nothing, because its successor does."""
        if connection is not self.connection:
            return
        bodies, self._left = self._left, []
        has_ids = self.sim.deduplicates(self.queue)
        for at, body in bodies:
            self.tell(f"publishes {body[:40]!r} to {self.queue}")
            self._published += 1
            self._unconfirmed[self._published] = at, body
            properties = Properties(delivery_mode=2, message_id=f"{self.name}/{at}" if has_ids else None)
            connection.send(1, methods.BasicPublish(routing_key=self.queue), body, properties)

    def _answered(self, tag: int, multiple: bool) -> list[tuple[int, bytes]]:
        """Take the bodies that a confirm or a refusal is for."""
        numbers = [number for number in self._unconfirmed if number == tag or multiple and number < tag]
        return [self._unconfirmed.pop(number) for number in numbers]

    @property
    def is_done(self) -> bool:
        return not self._left and not self._unconfirmed

    @property
    def has_published(self) -> bool:
        """Whether it has published messages that await confirms."""
        return bool(self._unconfirmed)


class Producer(Program):
    """Publishes what a generator yields, one body at a time, and sends it the answer to each.

    It publishes nothing twice by itself: that is for the generator to decide.
    """

    def __init__(self, sim: Surroundings, name: str, queue: str, work: Work, node: int) -> None:
        self._work = work()
        #: The body that is to be published, or whose answer has not come; None once the generator has ended.
        self._body: bytes | None = next(self._work, None)
        self._is_published = False
        super().__init__(sim, name, queue, node)

    def on_declared(self, connection: ProgramConnection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if isinstance(method, methods.ConfirmSelectOk):
            self._publish(connection)
        elif isinstance(method, (methods.BasicAck, methods.BasicNack)) and self._is_published:
            is_confirmed = isinstance(method, methods.BasicAck)
            self.tell(f"receives the {'confirm' if is_confirmed else 'refusal'} of {self._shown}")
            self._go_on("confirmed" if is_confirmed else "refused")
            world = self.sim.world
            world.at(world.time + world.delay(LONGEST_YIELD), self._publish, connection)

    def _publish(self, connection: ProgramConnection) -> None:
        """Publish the next body. An outdated connection publishes nothing, because its successor does."""
        if connection is self.connection and self._body is not None:
            self.tell(f"publishes {self._shown} to {self.queue}")
            self._is_published = True
            connection.send(1, methods.BasicPublish(routing_key=self.queue), self._body, Properties(delivery_mode=2))

    def _go_on(self, answer: Answer) -> None:
        """Let the generator run up to its next yield."""
        self._is_published = False
        try:
            self._body = self._work.send(answer)
        except StopIteration:
            self._body = None

    def on_lost(self, connection: ProgramConnection) -> None:
        if connection is self.connection and self._is_published:
            self.tell(f"loses the connection before the answer to {self._shown}")
            self._go_on("lost")
        super().on_lost(connection)

    @property
    def _shown(self) -> str:
        return repr((self._body or b"")[:40])

    @property
    def is_done(self) -> bool:
        return self._body is None


class Service(Program):
    """Consumes from a queue and passes each message to its handler.

    crash_one_in   one in this many yields of the handler ends the process; 0 for none
    """

    def __init__(
        self, sim: Surroundings, name: str, queue: str, handler: Handler, prefetch: int, crash_one_in: int, node: int
    ) -> None:
        self._handler = handler
        self._prefetch = prefetch
        self._crash_one_in = crash_one_in
        #: The handlers that have yielded and not ended.
        self._working: list[Generator[Any, None, None]] = []
        super().__init__(sim, name, queue, node)

    def on_declared(self, connection: ProgramConnection) -> None:
        connection.send(1, methods.BasicQos(prefetch_count=self._prefetch))
        connection.send(1, methods.BasicConsume(queue=self.queue, consumer_tag=self.name))

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if isinstance(method, methods.BasicDeliver):
            assert content is not None
            self.tell(f"receives {content.body[:40]!r}{' (redelivered)' if method.redelivered else ''}")
            work = self._handler(ReceivedMessage(self, connection, method, content.body))
            if work is not None:
                self._working.append(work)
                self._continue(work)

    def _continue(self, work: Generator[Any, None, None]) -> None:
        """Run a handler up to its next yield."""
        if work not in self._working:
            return
        world = self.sim.world
        try:
            next(work)
        except StopIteration:
            self._working.remove(work)
            return
        if world.chance(self._crash_one_in):
            self.crash()
        else:
            world.at(world.time + world.delay(LONGEST_YIELD), self._continue, work)

    def crash(self) -> None:
        """End the process; another one is started."""
        self.tell("crashes")
        self.break_off()

    def on_lost(self, connection: ProgramConnection) -> None:
        self._working.clear()
        super().on_lost(connection)

    @property
    def is_done(self) -> bool:
        return not self._working
