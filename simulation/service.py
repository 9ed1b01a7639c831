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

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..actors.contracts.node import to_node
from ..routing.queue_types import DEDUPLICATE
from ..runtime.sim.choosing import Chooser
from ..runtime.sim.world import Conditions, SimWorld
from .brokers import FAILURES, FAILURES_OF_ONE, MOST_NODES, Failure, cluster, single
from .programs import Handler, Producer, Program, RetryingPublisher, Service, Work

CONDITIONS = Conditions(link_delay=1e-3, blocking_delay=2e-3)


class Sim:
    """One run: a simulated world with a broker in it. A `chooser`, if given, makes the decisions of the world instead
    of the `seed`.

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
        #: The arguments with which all programs declare a queue, by its name.
        self.arguments: dict[str, dict[str, Any]] = {}
        #: The patterns of policies that have queues deduplicate.
        self._deduplicated: list[str] = []
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

    def __enter__(self) -> Sim:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        self.told.append((self.world.time, who, text))

    # -- queues ---

    def declare_queue(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """Have all programs declare this durable queue with `arguments`. Call this before the programs start."""
        self.arguments.setdefault(queue, {}).update(arguments)

    def set_policy(
        self, name: str, pattern: str, definition: Mapping[str, Any], *, priority: int = 0, apply_to: str = "all"
    ) -> None:
        """Set a policy, as `Broker.set_policy` does. Virtual time passes until it is in force on every node.

        Raises what the broker refuses it with.
        """
        if "deduplicate" in definition:
            self._deduplicated.append(pattern)
        node = self.brokers.serving
        text = json.dumps(dict(definition))
        self.tell("operator", f"sets the policy {name} for {pattern}: {text}")
        arguments = {"name": name, "pattern": pattern, "definition": text, "priority": priority, "apply_to": apply_to}
        node.port.request(node.address, to_node.operate("set_policy", {**arguments, "vhost": "/"}))

    def deduplicate(self, queue: str, window: int) -> None:
        """Have all programs declare this queue as one that deduplicates: it keeps a message once if it comes twice.

        It remembers the last `window` messages. Call this before the programs start.
        """
        self.declare_queue(queue, {DEDUPLICATE: window})

    def deduplicates(self, queue: str) -> bool:
        """Whether publishers give their messages ids, because this queue deduplicates, or has done so by a policy."""
        return DEDUPLICATE in self.arguments.get(queue, {}) or any(
            re.search(pattern, queue) for pattern in self._deduplicated
        )

    # -- programs ---

    def publish(
        self, queue: str, bodies: Iterable[bytes], name: str = "publisher", *, node: int = 0
    ) -> RetryingPublisher:
        """Start a program that publishes persistent messages to a durable queue until each is confirmed.

        `node` is the index of the node to which it connects first.
        """
        publisher = RetryingPublisher(self, name, queue, bodies, node)
        self._programs.append(publisher)
        return publisher

    def producer(self, name: str, queue: str, work: Work, *, node: int = 0) -> Producer:
        """Start a program of your own that publishes persistent messages to a durable queue, one after the other.

        `work` is a generator function that yields the bodies. Each yield returns what became of the publish:
        `confirmed`, `refused` (the broker's basic.nack), or `lost` if the connection was lost before the answer came.
        """
        producer = Producer(self, name, queue, work, node)
        self._programs.append(producer)
        return producer

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
            and all(queue.is_open and not queue.backing.totals().depth for queue in self.brokers.queues)
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
        """Have one failure that the seed chooses, and heal it after at most this many virtual seconds.

        A node is killed, loses power or stands still, or is cut off from all others.
        """
        node = self.world.below(len(self.brokers.nodes))
        kinds = FAILURES if len(self.brokers.nodes) > 1 else FAILURES_OF_ONE
        kind = kinds[self.world.below(len(kinds))]
        self.suffer([Failure(kind, node, 0.0, self.world.delay(seconds))])

    def suffer(self, failures: Sequence[Failure]) -> None:
        """Have these failures, each at its time from now on, and heal each of them after its time.

        Returns when the last one is healed. `warren.simulation.strategies.failures` draws them for Hypothesis.
        """
        begins = [(failure.after, True, at, failure) for at, failure in enumerate(failures)]
        ends = [(failure.after + failure.seconds, False, at, failure) for at, failure in enumerate(failures)]
        passed = 0.0
        # If one failure ends at the moment at which another one begins, the end comes first.
        for moment, is_begin, _, failure in sorted(begins + ends, key=lambda event: event[:3]):
            self.run(moment - passed)
            passed = moment
            if is_begin:
                self._begin(failure)
            else:
                self.brokers.end_failure(failure)
        self.heal()

    def _begin(self, failure: Failure) -> None:
        match failure.kind:
            case "kill":
                self.kill(failure.node)
            case "lose_power":
                self.lose_power(failure.node)
            case "pause":
                self.pause(failure.node)
            case "cut_off":
                for other in range(len(self.brokers.nodes)):
                    if other != failure.node:
                        self.partition(failure.node, other)

    # -- the end ---

    def close(self) -> None:
        """Remove the files of the broker's machines."""
        self.brokers.close()

    def story(self) -> str:
        """What the programs and the broker did and received, in order."""
        begin = self.told[0][0] if self.told else 0.0
        return "\n".join(f"{(time - begin) * 1000:10.2f} ms  {who:10} {text}" for time, who, text in self.told)
