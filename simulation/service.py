"""One's own programs in a simulated world: services that consume, and publishers, with a simulated broker between them.

    def handle(message):
        yield "computing"            # time passes here: others act, or this process crashes
        ledger.add(message.body)
        message.ack()

    sim.publish("orders", [b"1", b"2"])
    sim.service("billing", "orders", handle)
    assert sim.until_done()

A **handler** is a function of a message, plain or a generator. Wherever it yields, time passes, and its process may crash: its connection breaks, what it had not
finished is lost, and it is started again a moment later. What must outlive that belongs outside of it, as a database does. The broker gives it again what was not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from ..actors.queue.process import Queue
from ..amqp import methods
from ..amqp.properties import Properties
from ..runtime.sim.choosing import Chooser
from ..runtime.sim.client import SimStream
from ..runtime.sim.world import Conditions, SimWorld
from .clients.peer import Peer, SimContent
from .node import PORT, SimNode

RESTART_SECONDS = 0.05
LONGEST_YIELD = 0.01  # virtual seconds
CONDITIONS = Conditions(link_delay=1e-3, blocking_delay=2e-3)

Handler = Callable[["Message"], Generator[Any, None, None] | None]


class Message:
    """What a handler gets. Settling it after its process has crashed does nothing, for the process that did it is no more."""

    def __init__(self, service: Service, connection: _Connection, method: methods.BasicDeliver, body: bytes) -> None:
        self.body = body
        self.redelivered: bool = method.redelivered
        self._service = service
        self._connection = connection
        self._tag: int = method.delivery_tag

    def ack(self) -> None:
        self._settle("acknowledges", methods.BasicAck(self._tag))

    def requeue(self) -> None:
        self._settle("requeues", methods.BasicNack(self._tag, False, True))

    def reject(self) -> None:
        self._settle("rejects", methods.BasicNack(self._tag, False, False))

    def _settle(self, what: str, method: Any) -> None:
        self._service.tell(f"{what} {self.body[:40]!r}")
        self._connection.send(1, method)


class _Connection(Peer):
    """Of a program; made anew when it is lost."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def on_open(self) -> None:
        self.send(1, methods.ChannelOpen())

    def on_method(self, channel: int, method: Any, content: SimContent | None) -> None:
        if type(method) is methods.ConnectionClose:
            self.send(0, methods.ConnectionCloseOk())
        else:
            self._program.on_method(self, method, content)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        self._program.lost(self)


class Program:
    """Something with a connection, which it makes again whenever that is lost."""

    def __init__(self, sim: Sim, name: str, queue: str) -> None:
        self.sim = sim
        self.name = name
        self.queue = queue
        self.connect()

    def tell(self, text: str) -> None:
        self.sim.tell(self.name, text)

    def connect(self) -> None:
        self.connection = _Connection(self)
        self.connection.stream = self.sim.world.connect(self.sim.node.name, PORT, self.connection)

    def lost(self, connection: _Connection) -> None:
        if connection is self.connection:
            self.sim.world.at(self.sim.world.time + RESTART_SECONDS, self._again, connection)

    def _again(self, connection: _Connection) -> None:
        if connection is self.connection:
            self.connect()

    def on_method(self, connection: _Connection, method: Any, content: SimContent | None) -> None:
        if type(method) is methods.ChannelOpenOk:
            connection.send(1, methods.QueueDeclare(queue=self.queue, durable=True))
        elif type(method) is methods.QueueDeclareOk:
            self.ready(connection)

    def ready(self, connection: _Connection) -> None:
        """The queue is there."""

    @property
    def is_done(self) -> bool:
        return True


class Publisher(Program):
    """Publishes each body until it is confirmed; so one may be there twice, as with any publisher that does not want to lose."""

    def __init__(self, sim: Sim, name: str, queue: str, bodies: Iterable[bytes]) -> None:
        self._unconfirmed: dict[int, bytes] = {}
        self._left = list(bodies)
        super().__init__(sim, name, queue)

    def ready(self, connection: _Connection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: _Connection, method: Any, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if type(method) is methods.ConfirmSelectOk:
            self._left = [*self._unconfirmed.values(), *self._left]
            self._unconfirmed = dict(enumerate(self._left, 1))
            for body in self._left:
                self.tell(f"publishes {body[:40]!r} to {self.queue}")
                connection.send(1, methods.BasicPublish(routing_key=self.queue), body, Properties(delivery_mode=2))
            self._left = []
        elif type(method) is methods.BasicAck:
            for number in [
                number
                for number in self._unconfirmed
                if number == method.delivery_tag or method.multiple and number < method.delivery_tag
            ]:
                self.tell(f"hears that {self._unconfirmed.pop(number)[:40]!r} is confirmed")

    @property
    def is_done(self) -> bool:
        return not self._left and not self._unconfirmed


class Service(Program):
    """Consumes from a queue and has its handler work on what comes; `crash_one_in` yields end its process, 0: none."""

    def __init__(self, sim: Sim, name: str, queue: str, handler: Handler, prefetch: int, crash_one_in: int) -> None:
        self._handler = handler
        self._prefetch = prefetch
        self._crash_one_in = crash_one_in
        self._working: list[Generator[Any, None, None]] = []
        super().__init__(sim, name, queue)

    def ready(self, connection: _Connection) -> None:
        connection.send(1, methods.BasicQos(prefetch_count=self._prefetch))
        connection.send(1, methods.BasicConsume(queue=self.queue, consumer_tag=self.name))

    def on_method(self, connection: _Connection, method: Any, content: SimContent | None) -> None:
        super().on_method(connection, method, content)
        if type(method) is methods.BasicDeliver:
            assert content is not None
            self.tell(f"gets {content.body[:40]!r}{' (redelivered)' if method.redelivered else ''}")
            work = self._handler(Message(self, connection, method, content.body))
            if work is not None:
                self._working.append(work)
                self._go_on(work)

    def _go_on(self, work: Generator[Any, None, None]) -> None:
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
            world.at(world.time + world.delay(LONGEST_YIELD), self._go_on, work)

    def crash(self) -> None:
        """The process ends here; another one is started."""
        self.tell("crashes")
        self._working.clear()
        connection = self.connection
        connection.stream.reset()
        self.lost(connection)

    def lost(self, connection: _Connection) -> None:
        self._working.clear()
        super().lost(connection)

    @property
    def is_done(self) -> bool:
        return not self._working


class Sim:
    """One run: a world with a broker in it. `seed` decides everything that `chooser` does not.

    with_store   the broker keeps durable queues on a simulated disk; without, they are gone when it crashes
    settings     of the broker, as `warren.settings.Settings` has them
    """

    def __init__(
        self, seed: int = 0, chooser: Chooser | None = None, *, with_store: bool = True, **settings: Any
    ) -> None:
        self.seed = seed
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS)
        self.told: list[tuple[float, str, str]] = []
        self.node = SimNode(self.world, "broker", with_store=with_store, **settings)
        self._programs: list[Program] = []
        self.node.start()

    def tell(self, who: str, text: str) -> None:
        """A line for the story."""
        self.told.append((self.world.time, who, text))

    def publish(self, queue: str, bodies: Iterable[bytes], name: str = "publisher") -> Publisher:
        """A program that publishes persistent messages to a durable queue, until each is confirmed."""
        publisher = Publisher(self, name, queue, bodies)
        self._programs.append(publisher)
        return publisher

    def service(self, name: str, queue: str, handler: Handler, *, prefetch: int = 1, crash_one_in: int = 8) -> Service:
        """A program that consumes from that queue; see the module."""
        service = Service(self, name, queue, handler, prefetch, crash_one_in)
        self._programs.append(service)
        return service

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def run_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> bool:
        return self.world.run_until(condition, seconds)

    def until_done(self, seconds: float = 600.0) -> bool:
        """Run until everything published is confirmed, handled and settled; False if it is not so after that many virtual seconds."""
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
        """The broker's process is killed, and started again."""
        self.tell("broker", "is killed and starts again")
        self.node.kill()
        self.node.boot()

    def lose_power(self) -> None:
        """The broker's machine loses power, and starts again. Programs notice only because their connections are reset."""
        self.tell("broker", "loses power and starts again")
        self.node.lose_power()
        self.node.boot()
        for program in self._programs:
            program.connection.stream.reset()
            program.lost(program.connection)

    def close(self) -> None:
        """Let go of the machine's files."""
        self.node.close()

    def story(self) -> str:
        """What everybody did and saw."""
        begin = self.told[0][0] if self.told else 0.0
        return "\n".join(f"{(time - begin) * 1000:10.2f} ms  {who:10} {text}" for time, who, text in self.told)
