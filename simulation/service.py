"""A simulated broker for tests of one's own programs: services that consume, and publishers.

    def handle(message):
        yield "computing"            # time passes here: others act, or this process crashes
        ledger.add(message.body)
        message.ack()

    sim.publish("orders", [b"1", b"2"])
    sim.service("billing", "orders", handle)
    assert sim.until_done()

A **handler** is a function of a message, plain or a generator. Wherever it yields, time passes, and its process may
crash: its connection breaks, it loses its unfinished work, and it is started again a moment later. What must survive
that is kept outside of the handler, like a database. The broker delivers again what was not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from ..actors.queue.process import Queue
from ..amqp import methods
from ..amqp.method import Method
from ..amqp.properties import Properties
from ..runtime.sim.choosing import Chooser
from ..runtime.sim.client import SimStream
from ..runtime.sim.world import Conditions, SimWorld
from .clients.peer import Peer, SimContent
from .node import PORT, SimNode

#: Virtual seconds after which a program connects again.
RESTART_SECONDS = 0.05
#: The longest time, in virtual seconds, that passes at a yield.
LONGEST_YIELD = 0.01
CONDITIONS = Conditions(link_delay=1e-3, blocking_delay=2e-3)

Handler = Callable[["Message"], Generator[Any, None, None] | None]


class Message:
    """A message that a handler gets.

    Settling it after the handler's process has crashed does nothing, since its connection is gone.
    """

    def __init__(self, service: Service, connection: _Connection, method: methods.BasicDeliver, body: bytes) -> None:
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


class _Connection(Peer):
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
    """A program with one connection, which it makes again whenever it is lost, and one queue, which it declares."""

    def __init__(self, sim: Sim, name: str, queue: str) -> None:
        self.sim = sim
        self.name = name
        self.queue = queue
        self.connect()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.sim.tell(self.name, text)

    def connect(self) -> None:
        self.connection = _Connection(self)
        self.connection.stream = self.sim.world.connect(self.sim.node.name, PORT, self.connection)

    def on_lost(self, connection: _Connection) -> None:
        if connection is self.connection:
            self.sim.world.at(self.sim.world.time + RESTART_SECONDS, self._reconnect, connection)

    def _reconnect(self, connection: _Connection) -> None:
        if connection is self.connection:
            self.connect()

    def on_method(self, connection: _Connection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            connection.send(1, methods.QueueDeclare(queue=self.queue, durable=True))
        elif isinstance(method, methods.QueueDeclareOk):
            self.on_declared(connection)

    def on_declared(self, connection: _Connection) -> None:
        """The channel is open and the queue declared."""

    @property
    def is_done(self) -> bool:
        """Whether it has no work left."""
        return True


class Publisher(Program):
    """Publishes each body until it is confirmed.

    A body may be published twice, as by any publisher that must not lose messages.
    """

    def __init__(self, sim: Sim, name: str, queue: str, bodies: Iterable[bytes]) -> None:
        #: By publish number on this connection.
        self._unconfirmed: dict[int, bytes] = {}
        self._left = list(bodies)
        super().__init__(sim, name, queue)

    def on_declared(self, connection: _Connection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: _Connection, method: Method, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if isinstance(method, methods.ConfirmSelectOk):
            self._left = [*self._unconfirmed.values(), *self._left]
            self._unconfirmed = dict(enumerate(self._left, 1))
            for body in self._left:
                self.tell(f"publishes {body[:40]!r} to {self.queue}")
                connection.send(1, methods.BasicPublish(routing_key=self.queue), body, Properties(delivery_mode=2))
            self._left = []
        elif isinstance(method, methods.BasicAck):
            for number in [
                number
                for number in self._unconfirmed
                if number == method.delivery_tag or method.multiple and number < method.delivery_tag
            ]:
                self.tell(f"receives the confirm of {self._unconfirmed.pop(number)[:40]!r}")

    @property
    def is_done(self) -> bool:
        return not self._left and not self._unconfirmed


class Service(Program):
    """Consumes from a queue and passes each message to its handler.

    crash_one_in   one in so many yields of the handler ends the process; 0 for none
    """

    def __init__(self, sim: Sim, name: str, queue: str, handler: Handler, prefetch: int, crash_one_in: int) -> None:
        self._handler = handler
        self._prefetch = prefetch
        self._crash_one_in = crash_one_in
        #: The handlers that have yielded and not ended.
        self._working: list[Generator[Any, None, None]] = []
        super().__init__(sim, name, queue)

    def on_declared(self, connection: _Connection) -> None:
        connection.send(1, methods.BasicQos(prefetch_count=self._prefetch))
        connection.send(1, methods.BasicConsume(queue=self.queue, consumer_tag=self.name))

    def on_method(self, connection: _Connection, method: Method, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if isinstance(method, methods.BasicDeliver):
            assert content is not None
            self.tell(f"receives {content.body[:40]!r}{' (redelivered)' if method.redelivered else ''}")
            work = self._handler(Message(self, connection, method, content.body))
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
        self._working.clear()
        connection = self.connection
        connection.stream.reset()
        self.on_lost(connection)

    def on_lost(self, connection: _Connection) -> None:
        self._working.clear()
        super().on_lost(connection)

    @property
    def is_done(self) -> bool:
        return not self._working


class Sim:
    """One run: a simulated world with a broker in it. `seed` decides everything that `chooser` does not.

    with_store   whether the broker keeps durable queues on a simulated disk; if not, they are lost when it ends
    settings     of the broker, fields of `warren.settings.Settings`
    """

    def __init__(
        self, seed: int = 0, chooser: Chooser | None = None, *, with_store: bool = True, **settings: Any
    ) -> None:
        self.seed = seed
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS)
        #: The lines of the story: time, who, text.
        self.told: list[tuple[float, str, str]] = []
        self.node = SimNode(self.world, "broker", with_store=with_store, **settings)
        self._programs: list[Program] = []
        self.node.start()

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        self.told.append((self.world.time, who, text))

    def publish(self, queue: str, bodies: Iterable[bytes], name: str = "publisher") -> Publisher:
        """Start a program that publishes persistent messages to a durable queue until each is confirmed."""
        publisher = Publisher(self, name, queue, bodies)
        self._programs.append(publisher)
        return publisher

    def service(self, name: str, queue: str, handler: Handler, *, prefetch: int = 1, crash_one_in: int = 8) -> Service:
        """Start a program that consumes from a durable queue; one in `crash_one_in` yields ends its process."""
        service = Service(self, name, queue, handler, prefetch, crash_one_in)
        self._programs.append(service)
        return service

    def run(self, seconds: float) -> None:
        """Let that many virtual seconds pass."""
        self.world.run(seconds)

    def run_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Run until `condition` holds; False if it does not after that many virtual seconds."""
        return self.world.run_until(condition, seconds)

    def until_done(self, seconds: float = 600.0) -> bool:
        """Run until everything published is confirmed, handled and settled.

        False if it is not after that many virtual seconds.
        """
        return self.world.run_until(self._is_done, seconds)

    def _is_done(self) -> bool:
        return (
            all(program.is_done for program in self._programs)
            and self.node.is_up
            and all(queue.is_open and not queue.backing.depth() for queue in self._queues())
        )

    def _queues(self) -> list[Queue]:
        return self.node.processes("Queue")

    def kill(self) -> None:
        """Kill the broker's process, and start it again."""
        self.tell("broker", "is killed and starts again")
        self.node.kill()
        self.node.boot()

    def lose_power(self) -> None:
        """Cut the power of the broker's machine, and start it again.

        The connections are reset at once, since a program would otherwise not notice for a long time.
        """
        self.tell("broker", "loses power and starts again")
        self.node.lose_power()
        self.node.boot()
        for program in self._programs:
            program.connection.stream.reset()
            program.on_lost(program.connection)

    def close(self) -> None:
        """Remove the files of the broker's machine."""
        self.node.close()

    def story(self) -> str:
        """What the programs and the broker did and received, in order."""
        begin = self.told[0][0] if self.told else 0.0
        return "\n".join(f"{(time - begin) * 1000:10.2f} ms  {who:10} {text}" for time, who, text in self.told)
