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

from ..amqp import methods
from ..amqp.fields import Table, table_from
from ..amqp.method import Method
from ..amqp.properties import Properties
from ..routing.queue_types import DEDUPLICATE
from ..runtime.sim.choosing import Chooser
from ..runtime.sim.client import SimStream
from ..runtime.sim.world import Conditions, SimWorld
from .brokers import MOST_NODES, cluster, single
from .clients.peer import Peer, SimContent
from .node import PORT

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
    """A program with one connection and one queue, which it declares.

    It connects again whenever it loses the connection, or the broker refuses something or cancels its consumer. In a
    cluster it then connects to the next node, as a client library does that is given several addresses.

    node   the index of the node to which it connects first
    """

    def __init__(self, sim: Sim, name: str, queue: str, node: int) -> None:
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
        self.connection = _Connection(self)
        machine = self.sim.brokers.node(self._at).name
        self.connection.stream = self.sim.world.connect(machine, PORT, self.connection)

    def on_lost(self, connection: _Connection) -> None:
        if connection is self.connection:
            self.sim.world.at(self.sim.world.time + RESTART_SECONDS, self._reconnect, connection)

    def _reconnect(self, connection: _Connection) -> None:
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

    def on_method(self, connection: _Connection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            window = self.sim.windows.get(self.queue)
            arguments = table_from({DEDUPLICATE: window}) if window else Table()
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

    def on_declared(self, connection: _Connection) -> None:
        """The channel is open and the queue declared."""

    @property
    def is_done(self) -> bool:
        """Whether it has no work left."""
        return True


class Publisher(Program):
    """Publishes each body until it is confirmed.

    A body may be published twice, as by any publisher that must not lose messages. If its queue deduplicates, each
    message has an id, which is the same when it is published again, so the queue keeps it once.
    """

    def __init__(self, sim: Sim, name: str, queue: str, bodies: Iterable[bytes], node: int) -> None:
        #: By publish number on this connection.
        self._unconfirmed: dict[int, tuple[int, bytes]] = {}
        self._published = 0
        #: What is to be published: the place among all bodies, and the body.
        self._left = list(enumerate(bodies))
        super().__init__(sim, name, queue, node)

    def on_declared(self, connection: _Connection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: _Connection, method: Method, content: SimContent | None) -> None:
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

    def _publish(self, connection: _Connection) -> None:
        """Publish the bodies that are left. An outdated connection publishes nothing, because its successor does."""
        if connection is not self.connection:
            return
        bodies, self._left = self._left, []
        has_ids = self.queue in self.sim.windows
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


class Service(Program):
    """Consumes from a queue and passes each message to its handler.

    crash_one_in   one in so many yields of the handler ends the process; 0 for none
    """

    def __init__(
        self, sim: Sim, name: str, queue: str, handler: Handler, prefetch: int, crash_one_in: int, node: int
    ) -> None:
        self._handler = handler
        self._prefetch = prefetch
        self._crash_one_in = crash_one_in
        #: The handlers that have yielded and not ended.
        self._working: list[Generator[Any, None, None]] = []
        super().__init__(sim, name, queue, node)

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
        self.break_off()

    def on_lost(self, connection: _Connection) -> None:
        self._working.clear()
        super().on_lost(connection)

    @property
    def is_done(self) -> bool:
        return not self._working


class Sim:
    """One run: a simulated world with a broker in it. `seed` decides everything that `chooser` does not.

    nodes        how many nodes the broker has; several are a cluster, and each has a simulated disk
    with_store   whether a single node keeps durable queues on a simulated disk; if not, they are lost when it ends
    settings     of the broker, fields of `warren.settings.Settings`
    """

    def __init__(
        self, seed: int = 0, chooser: Chooser | None = None, *, nodes: int = 1, with_store: bool = True, **settings: Any
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise ValueError(f"nodes is {nodes}; a simulated broker has 1 to {MOST_NODES} nodes")
        if nodes > 1 and not with_store:
            raise ValueError("the nodes of a simulated cluster have disks: leave out with_store=False, or nodes")
        self.seed = seed
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS)
        #: The queues that deduplicate, and how many messages each of them remembers.
        self.windows: dict[str, int] = {}
        #: The lines of the story: time, who, text.
        self.told: list[tuple[float, str, str]] = []
        self.brokers = (
            single(self.world, self.tell, with_store, **settings)
            if nodes == 1
            else cluster(self.world, self.tell, nodes, **settings)
        )
        self.world.after_step = self.brokers.after_step
        self._programs: list[Program] = []
        self.brokers.start_all()

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        self.told.append((self.world.time, who, text))

    # -- programs ---

    def deduplicate(self, queue: str, window: int) -> None:
        """Have all programs declare this queue as one that deduplicates: it keeps a message once if it comes twice.

        It remembers the last `window` messages. Call this before the programs start.
        """
        self.windows[queue] = window

    def publish(self, queue: str, bodies: Iterable[bytes], name: str = "publisher", *, node: int = 0) -> Publisher:
        """Start a program that publishes persistent messages to a durable queue until each is confirmed.

        `node` is the index of the node to which it connects first.
        """
        publisher = Publisher(self, name, queue, bodies, node)
        self._programs.append(publisher)
        return publisher

    def service(
        self, name: str, queue: str, handler: Handler, *, prefetch: int = 1, crash_one_in: int = 8, node: int = 0
    ) -> Service:
        """Start a program that consumes from a durable queue; one in `crash_one_in` yields ends its process."""
        service = Service(self, name, queue, handler, prefetch, crash_one_in, node)
        self._programs.append(service)
        return service

    # -- time ---

    def run(self, seconds: float) -> None:
        """Let that many virtual seconds pass."""
        self.world.run(seconds)

    def run_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Run until `condition` holds; False if it does not after that many virtual seconds."""
        return self.world.run_until(condition, seconds)

    def until_done(self, seconds: float = 600.0) -> bool:
        """Run until everything published is confirmed, handled and settled, with all nodes running.

        False if it is not after that many virtual seconds.
        """
        return self.world.run_until(self._is_done, seconds)

    def _is_done(self) -> bool:
        return (
            all(program.is_done for program in self._programs)
            and self.brokers.are_up
            and all(queue.is_open and not queue.backing.depth() for queue in self.brokers.queues)
        )

    # -- what goes wrong ---

    def kill(self, node: int | None = None) -> None:
        """Kill the process of a node, which stays down until `start` or `heal`.

        Without `node`, kill that of a broker with one node, and start it again.
        """
        self._end(node, self.brokers.kill)

    def lose_power(self, node: int | None = None) -> None:
        """Cut the power of a node's machine, which stays down until `start` or `heal`.

        Without `node`, cut that of a broker with one node, and start it again. Connections to the node are reset at
        once, since a program would otherwise not notice for a long time.
        """
        self._end(node, self.brokers.lose_power)
        for program in self._programs:
            if program.is_at(node or 0):
                program.break_off()

    def _end(self, node: int | None, end: Callable[[int], None]) -> None:
        if node is not None:
            end(node)
        elif len(self.brokers.nodes) > 1:
            raise ValueError(f"the broker has {len(self.brokers.nodes)} nodes: give the index of one of them, from 0")
        else:
            end(0)
            self.brokers.start(0)

    def start(self, node: int) -> None:
        """Start a node that was killed or has lost power."""
        self.brokers.start(node)

    def pause(self, node: int) -> None:
        """Let a node's machine stand still until `resume` or `heal`."""
        self.brokers.pause(node)

    def resume(self, node: int) -> None:
        """Let a machine go on that stands still."""
        self.brokers.resume(node)

    def partition(self, a: int, b: int, *, oneway: bool = False) -> None:
        """Let nothing pass between two nodes until `heal`; with `oneway`, only what `a` sends is lost."""
        self.brokers.partition(a, b, oneway)

    def heal(self) -> None:
        """Start and resume every node, and let everything pass again."""
        self.brokers.heal()

    def disturb(self, seconds: float = 3.0) -> None:
        """Have one failure that the seed chooses, and heal it after at most so many virtual seconds.

        A node is killed, loses power or stands still, or is cut off from all others.
        """
        node = self.world.below(len(self.brokers.nodes))
        others = [other for other in range(len(self.brokers.nodes)) if other != node]
        match self.world.below(4 if others else 3):
            case 0:
                self.kill(node)
            case 1:
                self.lose_power(node)
            case 2:
                self.pause(node)
            case _:
                for other in others:
                    self.partition(node, other)
        self.run(self.world.delay(seconds))
        self.heal()

    # -- the end ---

    def close(self) -> None:
        """Remove the files of the broker's machines."""
        self.brokers.close()

    def story(self) -> str:
        """What the programs and the broker did and received, in order."""
        begin = self.told[0][0] if self.told else 0.0
        return "\n".join(f"{(time - begin) * 1000:10.2f} ms  {who:10} {text}" for time, who, text in self.told)
