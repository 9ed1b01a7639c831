"""Rounds of faults against nodes while clients work, and the checks after each.

A round: clients work for a moment, a fault happens to the nodes or the network, the clients go on, and everything is
healed. Then all nodes must serve again, every publish must be answered, the queues are drained, and the ledger is
compared. All choices follow from the seed, except how the threads interleave.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from warren.amqp import methods as m
from warren.simulation.cluster.ledger import Ledger, Violation
from warren.simulation.cluster.published import LedgerCopy
from warren.tests.behaviour.wire import Channel, Client, Refused

from ..nodes import LOOK_SECONDS, READY_SECONDS, Nodes, Waited, wait_for
from .clients import ANSWER_SECONDS, BINDINGS, Consumer, Declarer, Looker, PikaConsumer, Publisher, Worker, arrived

FANOUT = "ledger.fanout"
#: How many queues have their home on each node.
QUEUES_A_NODE = 2
#: The prefetch of the consumer that drains a queue.
DRAIN_PREFETCH = 1_000
#: The argument of a consumer that the broker cancels when its queue gets another master.
CANCELLED_BY_FAILOVER = {"x-cancel-on-ha-failover": True}
#: How often a check is tried, if nodes cannot be reached.
ATTEMPTS = 3
#: Seconds in which the clients of a round must end after they were asked to.
END_SECONDS = ANSWER_SECONDS + 60.0
#: The same after a failure, when the clients wait for no answers.
ABANDON_SECONDS = 60.0

Fault = Callable[["Rounds"], None]


class HomeDown(Violation):
    """A node answers that the home of a queue is down."""


class Rounds:
    """Runs rounds of faults against `nodes`, which run already.

    `seconds` is how long clients work before a fault and how long most faults last. `pause` is how long clients wait
    between two bursts of messages or two queues. With a short one, they and the nodes use all processors of a machine.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, seed: int, seconds: float = 0.5, pause: float = 0.02) -> None:
        self.nodes = nodes
        self.ledger = ledger
        self.chooser = random.Random(seed)
        self.seconds = seconds
        self.pause = pause
        self.queues: list[str] = []
        self.workers: list[Worker] = []

    def declare(self) -> None:
        """Declare the queues that are published to, some through each node, which becomes their home."""
        names = self.nodes.names
        for number, name in enumerate(names):
            client = Client(self.nodes[name].url, timeout=READY_SECONDS)
            channel = client.channel()
            channel.exchange(FANOUT, "fanout", durable=True)
            channel.exchange(BINDINGS, "direct", durable=True)
            for index in range(QUEUES_A_NODE):
                queue = f"ledger.{number + 1}.{index + 1}"
                sent_at = self.ledger.declaring(queue)
                channel.queue(queue, durable=True)
                self.ledger.declared(queue, name, sent_at)
                channel.bind(queue, FANOUT)
                self.queues.append(queue)
            client.close()

    def run(self, faults: Sequence[Fault]) -> None:
        """One round for each fault, in this order."""
        for number, fault in enumerate(faults, 1):
            self.ledger.note(f"round {number}: {fault.__name__}")
            with self.clients():
                time.sleep(self.seconds)
                self.ledger.raise_violation()
                fault(self)
                self.heal()
                time.sleep(self.seconds / 2)
            self.check()

    # -- clients ---

    @contextmanager
    def clients(self) -> Iterator[None]:
        """Run clients during the `with` block, and end them after it. A violation that one of them has
        found is raised.
        """
        self.workers = [*self._new_workers()]
        for worker in self.workers:
            worker.start()
        try:
            yield
        except BaseException:
            for worker in self.workers:
                worker.abandon()
            # A client may be waiting for an answer that no node can give while the fault lasts.
            self.nodes.heal()
            self._join_workers(ABANDON_SECONDS)
            raise
        for worker in self.workers:
            worker.is_over.set()
        self._join_workers(END_SECONDS)
        self.ledger.raise_violation()

    def _join_workers(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for worker in self.workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                raise Waited(f"waited {seconds:.0f} s for the client '{worker.name}' to end")

    def _new_workers(self) -> Iterator[Worker]:
        for number, node in enumerate(self.nodes.names, 1):

            def shared(name: str, number: int = number, node: str = node) -> tuple[object, ...]:
                chooser = random.Random(self.chooser.random())
                return f"{name} {number}", self.nodes, node, self.ledger, chooser, self.pause

            yield Publisher(*shared("publisher"), queues=self.queues, fanout=FANOUT)
            kind = PikaConsumer if number == 2 or len(self.nodes) == 1 else Consumer
            yield kind(*shared("consumer"), queues=self.queues)
            if kind is PikaConsumer and len(self.nodes) == 1:
                yield Consumer(*shared("other consumer"), queues=self.queues)
            yield Declarer(*shared("declarer"))

    # -- faults and their end ---

    def another(self) -> str:
        """A node, chosen at random."""
        return self.chooser.choice(self.nodes.names)

    def disturb(self, what: str) -> None:
        """Record that a fault is about to begin: from now on, acks that were sent may not have reached their queue."""
        self.ledger.note(what)
        self.ledger.acks_may_be_lost()

    def wait(self, least: float = 0.0) -> None:
        """Wait while a fault lasts."""
        time.sleep(max(least, self.chooser.uniform(0.5, 1.5) * self.seconds))
        self.ledger.raise_violation()

    def heal(self) -> None:
        """End cuts and pauses, start the nodes that do not run, and wait until the cluster is whole."""
        self.ledger.together()
        self.nodes.heal()
        for node in self.nodes:
            if not node.is_running:
                self.nodes.start_node(node.name)
        self.nodes.wait_ready()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until each node knows all queues, they answer, and the cluster counts the node as up.

        A node that was cut off answers passive declares from its own metadata until it learns that the others have
        declared it down, and then begins another run. It answers other declares only while it has a lease.
        """
        for node in self.nodes:
            missing: list[str] = []

            def has_all(url: str = node.url, missing: list[str] = missing) -> bool:
                try:
                    client = Client(url, timeout=5.0)
                except (OSError, Refused, AssertionError):
                    return False
                try:
                    channel = client.channel()
                    for queue in self.queues:
                        missing[:] = [queue]
                        channel.ready(queue)
                        channel.queue(queue, durable=True)
                except (OSError, Refused, AssertionError) as error:
                    missing.append(str(error))
                    return False
                finally:
                    client.abort()
                return True

            try:
                wait_for(f"{node.name} to reach all queues", has_all)
            except Waited as waited:
                waited.add_note(f"the last attempt failed at {missing}\n{node.log_end()}")
                raise

    # -- checks ---

    def check(self) -> None:
        """After the clients have ended: drain each queue through some node, and compare everything with the ledger."""
        drained = {}
        for number, queue in enumerate(self.queues):
            node = self.nodes.names[(number + self.chooser.randrange(len(self.nodes))) % len(self.nodes)]
            taken: list[LedgerCopy] = []
            again: set[LedgerCopy] = set()
            self._repeat(lambda: self._drain(queue, node, taken, again))  # noqa: B023
            drained[queue] = taken
        self.ledger.check_drained(drained)
        self._repeat(self._check_queues)
        counts = self.ledger.counts
        self.ledger.note("held: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))

    def _repeat(self, check: Callable[[], None]) -> None:
        """Make a check, and repeat it if a node could not be reached, because on a busy machine a node may lose its
        lease.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                check()
                return
            except (OSError, Refused, HomeDown) as error:
                if not left:
                    raise
                self.ledger.note(f"the check begins again: {type(error).__name__} {error}")
                self.wait_whole()

    def _drain(self, queue: str, node: str, taken: list[LedgerCopy], again: set[LedgerCopy]) -> None:
        """Take all messages out of the queue and ack them.

        The queue may fail over meanwhile, or the node may close the connection. Acks that were sent may be lost then,
        so the messages in `taken` may come `again`.
        """
        again.update(taken)
        client = Client(self.nodes[node].url, timeout=READY_SECONDS)
        reader = self.ledger.reader(f"the drain on {node}")
        try:
            channel = client.channel()
            channel.qos(DRAIN_PREFETCH)
            channel.consume(queue, arguments=CANCELLED_BY_FAILOVER)
            deadline = time.monotonic() + READY_SECONDS
            # A queue requeues the messages of channels that have ended only after a while.
            while not self._is_empty(channel, queue):
                if time.monotonic() > deadline:
                    raise Waited(f"waited {READY_SECONDS:.0f} s for {queue} to be empty; {len(taken)} were taken out")
                client.receive(LOOK_SECONDS)
                for event in arrived(client, channel, m.BasicDeliver, m.BasicCancel):
                    if isinstance(event.method, m.BasicCancel):
                        again.update(taken)
                        channel.consume(queue, arguments=CANCELLED_BY_FAILOVER)
                        continue
                    assert event.body is not None and event.properties is not None
                    copy = reader.delivered(
                        queue, event.body, event.properties.correlation_id, event.method.redelivered
                    )
                    if copy not in again:
                        taken.append(copy)
                    again.discard(copy)
                    reader.acking(copy)
                    channel.ack(event.tag)
            client.close()
        finally:
            client.abort()

    def _is_empty(self, channel: Channel, queue: str) -> bool:
        """Whether no message is left in the queue or has arrived here, and no other channel consumes from it."""
        declared = channel.declare(queue, passive=True)
        # The queue answers a declare after its earlier deliveries, so all of them are in `pending` now.
        return not declared.message_count and declared.consumer_count == 1 and not channel.pending

    def _check_queues(self) -> None:
        clients: dict[str, Client] = {}
        try:
            for node in self.nodes.names:
                clients[node] = Client(self.nodes[node].url, timeout=READY_SECONDS)
            lookers = {node: Looker(client, node) for node, client in clients.items()}
            self.ledger.check_queues(self.nodes.names, lambda node, queue: self._has(lookers[node], queue))
            channel = clients[self.another()].channel()
            for queue in self.ledger.queues():
                if queue not in self.queues:
                    sent_at = self.ledger.deleting(queue)
                    channel.delete(queue)
                    self.ledger.deleted(queue, "", sent_at)
            self.ledger.check_queues(self.nodes.names, lambda node, queue: self._has(lookers[node], queue))
        finally:
            for client in clients.values():
                client.abort()

    def _has(self, looker: Looker, queue: str) -> bool:
        is_there = looker.has(queue)
        if is_there is None:
            raise HomeDown(f"the cluster has healed, but {looker.node} says that the home of {queue} is down")
        return is_there
