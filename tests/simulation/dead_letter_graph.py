"""Queues whose dead letters go to one another, and where every message that was published to them must be in the end.

A graph has four durable queues. Each may send its dead letters to a queue, also to itself or to an earlier one, and may
have one or two causes of death: a TTL, a limit of length, a consumer that rejects. So each message has one way through
the graph, its *walk*, and the causes alone decide where on it the message stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warren.amqp import methods
from warren.amqp.fields import table_from, table_to_dict
from warren.amqp.method import Method
from warren.amqp.properties import Properties, decode_properties
from warren.simulation.clients.peer import SimContent
from warren.simulation.programs import Program, ProgramConnection
from warren.simulation.service import Sim

#: A rejecting consumer acknowledges a message that it has rejected this often; otherwise a cycle would go on for ever.
MOST_REJECTIONS = 2
#: Virtual seconds after which every TTL of a walk has passed, and every consumer is connected again.
REST = 4.0


@dataclass(frozen=True)
class GraphQueue:
    """A queue of a graph. `target` is the queue that gets its dead letters, or None if they are dropped."""

    name: str
    target: str | None
    ttl: int | None = None
    max_length: int | None = None
    overflow: str = "drop-head"
    is_rejected: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its queue.declare."""
        arguments: dict[str, Any] = {}
        if self.target is not None:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.target}
        if self.ttl is not None:
            arguments["x-message-ttl"] = self.ttl
        if self.max_length is not None:
            arguments |= {"x-max-length": self.max_length, "x-overflow": self.overflow}
        return arguments

    @property
    def reasons(self) -> set[str]:
        """The reasons for which messages of this queue may become dead letters."""
        found = {"expired"} if self.ttl is not None else set()
        if self.max_length is not None and self.overflow != "reject-publish":
            found.add("maxlen")
        return found | ({"rejected"} if self.is_rejected else set())


class Graph(dict[str, GraphQueue]):
    """The queues by name."""

    def walk(self, start: str) -> Iterator[GraphQueue]:
        """The queues that a message published to `start` may reach, each once."""
        seen: set[str] = set()
        name: str | None = start
        while name is not None and name not in seen:
            seen.add(name)
            queue = self[name]
            yield queue
            name = queue.target if queue.reasons else None

    def may_drop(self, start: str) -> bool:
        """Whether a message published to `start` may end in no queue, although it was confirmed."""
        walk = list(self.walk(start))
        last = walk[-1]
        if not last.reasons:
            return any(self._refuses(queue) for queue in walk[1:])
        if last.target is None:
            return True
        cycle = walk[[queue.name for queue in walk].index(last.target) :]
        # A message that returns to a queue without being rejected on the way is dropped (AB-153).
        is_automatic = all(queue.reasons - {"rejected"} for queue in cycle)
        return is_automatic or any(self._refuses(queue) for queue in (*walk[1:], self[last.target]))

    @staticmethod
    def _refuses(queue: GraphQueue) -> bool:
        return queue.max_length is not None and queue.overflow == "reject-publish"


@dataclass
class Found:
    """A message and where it was found; `path` has (queue, reason, count) for each death, the oldest first."""

    number: int
    start: str
    path: tuple[tuple[str, str, int], ...]
    first_death: tuple[str, str] | None


def found_in(content: SimContent) -> Found:
    """The message of a content."""
    headers = decode_properties(content.props).headers
    table = table_to_dict(headers) if headers is not None else {}
    deaths = [(death["queue"], death["reason"], death["count"]) for death in table.get("x-death", [])]
    first = table.get("x-first-death-queue")
    start, _, number = content.body.rstrip(b".").decode().partition(":")
    return Found(int(number), start, tuple(deaths[::-1]), first and (first, table["x-first-death-reason"]))


class Source(Program):
    """Declares the graph, and publishes each message once. It does not repeat publishes that were unanswered when a
    connection broke.
    """

    def __init__(self, sim: Sim, graph: Graph) -> None:
        self._graph = graph
        self._published = 0
        self._unanswered: dict[int, int] = {}
        self.starts: list[str] = []
        self.confirmed: set[int] = set()
        self.is_ready = False
        super().__init__(sim, "source", next(iter(graph)), 0)

    def on_declared(self, connection: ProgramConnection) -> None:
        connection.send(1, methods.ConfirmSelect())

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            for queue in self._graph.values():
                arguments = table_from(queue.arguments)
                connection.send(
                    1, methods.QueueDeclare(queue=queue.name, durable=True, arguments=arguments, nowait=True)
                )
            connection.send(1, methods.ConfirmSelect())
        elif isinstance(method, methods.ConfirmSelectOk):
            self._published, self._unanswered, self.is_ready = 0, {}, True
        elif isinstance(method, (methods.BasicAck, methods.BasicNack)):
            last, is_multiple = method.delivery_tag, method.multiple
            for tag in [tag for tag in self._unanswered if tag == last or is_multiple and tag < last]:
                number = self._unanswered.pop(tag)
                if isinstance(method, methods.BasicAck):
                    self.tell(f"receives the confirm of {number}")
                    self.confirmed.add(number)
        else:
            super().on_method(connection, method, content)

    def on_lost(self, connection: ProgramConnection) -> None:
        if connection is self.connection:
            self.is_ready = False
        super().on_lost(connection)

    def publish(self, start: str, count: int, size: int) -> None:
        """Publish `count` persistent messages to a queue."""
        for _ in range(count):
            number = len(self.starts)
            self.starts.append(start)
            self._published += 1
            self._unanswered[self._published] = number
            self.tell(f"publishes {number} to {start}")
            body = f"{start}:{number}".encode().ljust(size, b".")
            self.connection.send(1, methods.BasicPublish(routing_key=start), body, Properties(delivery_mode=2))

    @property
    def is_done(self) -> bool:
        return not self._unanswered


class Rejecter(Program):
    """Rejects each message of a queue up to `MOST_REJECTIONS` times, and then acknowledges it."""

    def __init__(self, sim: Sim, queue: GraphQueue, prefetch: int) -> None:
        self._prefetch = prefetch
        self.taken: dict[int, Found] = {}
        super().__init__(sim, f"rejecter-{queue.name}", queue.name, 0)

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            connection.send(1, methods.BasicQos(prefetch_count=self._prefetch))
            connection.send(1, methods.BasicConsume(queue=self.queue, consumer_tag=self.name))
        elif isinstance(method, methods.BasicDeliver):
            assert content is not None
            found = found_in(content)
            if (self.queue, "rejected", MOST_REJECTIONS) in found.path:
                self.tell(f"takes {found.number}")
                self.taken[found.number] = found
                connection.send(1, methods.BasicAck(method.delivery_tag))
            else:
                self.tell(f"rejects {found.number}")
                connection.send(1, methods.BasicReject(method.delivery_tag, False))
        else:
            super().on_method(connection, method, content)


class Reader(Program):
    """Gets all messages of the graph's queues, in order."""

    def __init__(self, sim: Sim, graph: Graph) -> None:
        self._left = list(graph)
        self.found: dict[str, list[Found]] = {name: [] for name in graph}
        super().__init__(sim, "reader", self._left[0], 0)

    def on_method(self, connection: ProgramConnection, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.BasicGetOk):
            assert content is not None
            self.found[self._left[0]].append(found_in(content))
        elif isinstance(method, methods.BasicGetEmpty):
            self._left.pop(0)
        elif not isinstance(method, methods.ChannelOpenOk):
            super().on_method(connection, method, content)
        if self._left:
            connection.send(1, methods.BasicGet(queue=self._left[0], no_ack=True))

    @property
    def is_done(self) -> bool:
        return not self._left


@dataclass
class Story:
    """The result of one run."""

    graph: Graph
    source: Source
    taken: dict[str, dict[int, Found]]
    waiting: dict[str, list[Found]]

    def check(self) -> None:
        """Assert that each message is at one place, and came there on its walk; messages with one path must be in
        order.
        """
        places: dict[int, list[str]] = {}
        for name, found in (*self.waiting.items(), *((name, taken.values()) for name, taken in self.taken.items())):
            for message in found:
                places.setdefault(message.number, []).append(name)
                self._check_path(name, message)
        for number, names in places.items():
            assert len(names) == 1, f"message {number} is at {names}"
        for name, found in self.waiting.items():
            self._check_queue(self.graph[name], found)
        for number in sorted(self.source.confirmed - places.keys()):
            start = self.source.starts[number]
            assert self.graph.may_drop(start), f"message {number}, published to {start} and confirmed, is nowhere"

    def _check_queue(self, queue: GraphQueue, found: list[Found]) -> None:
        assert not found or queue.ttl is None and not queue.is_rejected, f"{queue.name} has {found} at the end"
        if queue.max_length is not None:
            assert len(found) <= queue.max_length, f"{queue.name} has {len(found)} messages"
        by_path: dict[Any, list[int]] = {}
        for message in found:
            by_path.setdefault((message.start, message.path), []).append(message.number)
        for path, numbers in by_path.items():
            assert numbers == sorted(numbers), f"{numbers} have come to {queue.name} by {path}"

    def _check_path(self, place: str, message: Found) -> None:
        assert self.source.starts[message.number] == message.start
        passed = [name for name, _, _ in message.path]
        for name, reason, _ in message.path:
            assert reason in self.graph[name].reasons, f"message {message.number} died in {name}: {reason}"
            # If the message came through a queue again, its entry is further on than the previous one.
            assert self.graph[name].target in (*passed, place)
        if not passed:
            assert place == message.start
        else:
            assert self.graph[passed[-1]].target == place
            assert message.first_death is not None and message.first_death[0] == message.start


def run_graph(sim: Sim, graph: Graph, steps: list[tuple[Any, ...]]) -> Story:
    """Play `steps`, which are ("publish", queue, count, size), ("wait", seconds), ("kill",) and ("lose power",)."""
    source = Source(sim, graph)
    assert sim.run_until(lambda: source.is_ready)
    rejecters = {
        queue.name: Rejecter(sim, queue, 1 + number % 3)
        for number, queue in enumerate(graph.values())
        if queue.is_rejected
    }
    programs = [source, *rejecters.values()]
    sim._programs += programs
    for step in steps:
        match step:
            case ("publish", queue, count, size):
                assert sim.run_until(lambda: source.is_ready)
                source.publish(queue, count, size)
            case ("wait", seconds):
                sim.run(seconds)
            case ("kill",):
                sim.kill()
            case ("lose power",):
                sim.lose_power()
    assert sim.run_until(lambda: source.is_ready and source.is_done), "the broker answers no more"
    sim.run(REST)
    reader = Reader(sim, graph)
    assert sim.run_until(lambda: reader.is_done), "the broker answers no more"
    return Story(graph, source, {name: rejecter.taken for name, rejecter in rejecters.items()}, reader.found)
