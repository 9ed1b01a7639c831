"""What replicas cost when nothing happens, how long they take to have everything, and how long a failover takes, on
three nodes of warren.

    python -m warren.bench.replicas                     all parts
    python -m warren.bench.replicas --only idle --queues 10000
    python -m warren.bench.replicas --only sync --messages 1000000
    python -m warren.bench.replicas --only failover --masters 1000

idle    Many durable queues with `ha-mode: all` and no message. Before and afterwards: the resident memory of all nodes,
        and their processor time over some idle seconds. Then one node is killed and started again: the time until it
        serves clients, and until all queues have three replicas in sync.
sync    A queue with a backlog of messages of 1 KB gets a mirror while a client publishes with confirms as fast as it
        can. The time until the mirror is in sync, the share of its rate that the publisher has kept, and by how much
        each node has grown. Then the node of the mirror is killed, and started after 10 s of publishing at 5,000
        messages a second: the time until it is in sync again.

failover
        Many durable queues with `ha-mode: all`, whose masters are on one node; 100 of them have 1,000 messages each.
        That node is killed, and a client of another node publishes to each queue until all have confirmed: the time
        until the first and the last confirm.

The processor time of the nodes stands beside each time, because the time alone tells little on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

from ..amqp import methods
from ..amqp.frames import build_content, method_frame
from ..amqp.properties import Properties, encode_properties
from ..tests.cluster_system.nodes import Node, Nodes, linked_nodes, wait_for
from .load.broker import LoadClient, memory, processor_seconds

#: Methods that are sent before the first of their answers is read, and messages that await a confirm at a time.
PIPELINE = 500
IDLE_SECONDS = 10.0
#: Seconds for which the publisher's rate is measured before anything happens, and for which a node is away.
ALONE_SECONDS, AWAY_SECONDS = 5.0, 10.0
#: Queues that have messages when the node of their masters is killed, and how many.
USED_QUEUES, USED_MESSAGES = 100, 1_000
#: Seconds that any step may take.
MOST_SECONDS = 900.0

QUEUE = "replicas"
ALL = '{"ha-mode": "all"}'
ONE = '{"ha-mode": "exactly", "ha-params": 1}'
CONTENT = build_content(1, encode_properties(Properties(delivery_mode=2)), b"x" * 1024, 0)
PUBLISH = method_frame(1, methods.BasicPublish(exchange="", routing_key=QUEUE)) + CONTENT

#: So long that no pause of a busy machine makes the others declare a node down. A killed one is noticed all the same.
PATIENT = "net_ticktime = 20.0"


def client_of(node: Node, seconds: float = MOST_SECONDS) -> LoadClient:
    return LoadClient(f"127.0.0.1:{node.port}", seconds)


def resident(nodes: Sequence[Node]) -> list[float]:
    """The resident memory of each node in MiB."""
    return [memory(node.process.pid)["VmRSS"] / (1 << 20) for node in nodes]


def processor(nodes: Sequence[Node]) -> float:
    return sum(processor_seconds(node.process.pid) for node in nodes)


def busy(nodes: Sequence[Node]) -> float:
    """Processor time of all nodes over the next `IDLE_SECONDS`, in percent of one core."""
    before = processor(nodes)
    time.sleep(IDLE_SECONDS)
    return (processor(nodes) - before) / IDLE_SECONDS * 100


def told(node: Node, *arguments: str) -> str:
    ran = node.command(*arguments)
    if ran.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {ran.stderr.strip()}")
    return ran.stdout


def short_of(node: Node, replicas: int) -> int:
    """How many queues have fewer replicas in sync than this."""
    rows = json.loads(told(node, "list_queues", "name", "synchronised_slave_pids", "--formatter", "json"))
    return sum(len(row["synchronised_slave_pids"] or ()) + 1 < replicas for row in rows)


def timed(what: str, nodes: Sequence[Node], step: Callable[[], None]) -> float:
    began, before = time.monotonic(), processor(nodes)
    step()
    seconds = time.monotonic() - began
    print(f"  {what:58} {seconds:8.1f} s, {processor(nodes) - before:7.1f} s of the nodes' processors", flush=True)
    return seconds


def declare(node: Node, names: Sequence[str]) -> None:
    with client_of(node) as client:
        for start in range(0, len(names), PIPELINE):
            some = names[start : start + PIPELINE]
            client.pipeline([methods.QueueDeclare(queue=name, durable=True) for name in some])


def idle(nodes: Nodes, count: int) -> None:
    first, _, last = nodes
    everyone, others = list(nodes), list(nodes)[:2]
    told(first, "set_policy", "mirrors", f"^{QUEUE}", ALL)
    memory_before, busy_before = resident(everyone), busy(everyone)
    print(f"{count:,} idle queues with three replicas each")
    timed("declare them", everyone, lambda: declare(first, [f"{QUEUE}.{number}" for number in range(count)]))
    wait_for("all replicas", lambda: not short_of(first, 3), MOST_SECONDS)
    time.sleep(IDLE_SECONDS)
    grown = [now - then for now, then in zip(resident(everyone), memory_before)]
    more = busy(everyone) - busy_before
    each = ", ".join(f"{of_node:.0f}" for of_node in grown)
    kib = sum(grown) * 1024 / count / 3
    print(f"  {sum(grown):.0f} MiB more on all nodes together ({each}); {kib:.1f} KiB a replica")
    print(f"  {more:+.2f} % of a core for all nodes together; {busy_before:.2f} % without the queues")
    nodes.kill(last.name)
    wait_for("the queues to go on", lambda: short_of(first, 3) == count, MOST_SECONDS)
    nodes.start_node(last.name)
    before = processor(others)
    began = time.monotonic()
    last.wait_ready(MOST_SECONDS)
    print(f"  the killed node serves clients after {time.monotonic() - began:.1f} s")
    wait_for("all replicas", lambda: not short_of(first, 3), MOST_SECONDS)
    print(
        f"  all replicas are in sync after {time.monotonic() - began:.1f} s; the node has used"
        f" {processor_seconds(last.process.pid):.1f} s of its processor, the others {processor(others) - before:.1f} s"
    )
    told(first, "clear_policy", "mirrors")


class BackgroundPublisher:
    """Publishes with confirms to the queue on a thread of its own, with a rate at most `rate` if that is not 0."""

    def __init__(self, node: Node, rate: int = 0) -> None:
        self.confirmed = 0
        self._rate = rate
        self._is_over = Event()
        self._client = client_of(node)
        self._client.call(methods.ConfirmSelect())
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._is_over.is_set():
            self.publish(PIPELINE)
            if self._rate:
                self._is_over.wait(max(0.0, began + self.confirmed / self._rate - time.monotonic()))

    def publish(self, count: int) -> None:
        self._client.write(PUBLISH * count)
        wanted = self.confirmed + count
        while self.confirmed < wanted:
            answer = self._client.answers(1)[0]
            assert isinstance(answer, methods.BasicAck)
            self.confirmed = answer.delivery_tag

    def rate_over(self, seconds: float) -> float:
        before = self.confirmed
        time.sleep(seconds)
        return (self.confirmed - before) / seconds

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()


def sync(nodes: Nodes, messages: int) -> None:
    first, _, last = nodes
    everyone = list(nodes)
    told(first, "set_policy", "mirrors", f"^{QUEUE}", ONE)
    with client_of(first) as client:
        client.call(methods.QueueDeclare(queue=QUEUE, durable=True))
    print(f"a backlog of {messages:,} messages of 1 KB")
    filling = BackgroundPublisher(first)
    wait_for("the backlog", lambda: filling.confirmed >= messages, MOST_SECONDS)
    filling.end()
    publisher = BackgroundPublisher(first)
    alone = publisher.rate_over(ALONE_SECONDS)
    memory_before = resident(everyone)
    published = publisher.confirmed
    definition = {"ha-mode": "nodes", "ha-params": [first.name, last.name]}
    told(first, "set_policy", "mirrors", f"^{QUEUE}", json.dumps(definition))

    def in_sync() -> None:
        wait_for("the mirror", lambda: not short_of(first, 2), MOST_SECONDS)

    seconds = timed("copy it to another node while a client publishes", everyone, in_sync)
    rate = (publisher.confirmed - published) / seconds
    print(f"  the publisher kept {rate / alone:.0%} of its rate ({rate:,.0f} of {alone:,.0f} a second)")
    grown = [f"{now - then:.0f}" for now, then in zip(resident(everyone), memory_before)]
    print(f"  the nodes have grown by {', '.join(grown)} MiB, with what was published meanwhile")
    publisher.end()
    publisher = BackgroundPublisher(first, rate=5_000)
    nodes.kill(last.name)
    time.sleep(AWAY_SECONDS)
    nodes.start_node(last.name)
    began = time.monotonic()
    last.wait_ready(MOST_SECONDS)
    ready = time.monotonic()
    in_sync()
    seconds = time.monotonic() - began
    spent = processor_seconds(last.process.pid)
    publisher.end()
    print(
        f"  a node that was away for {AWAY_SECONDS:.0f} s at 5,000 messages a second serves clients after"
        f" {ready - began:.1f} s, and is in sync after {seconds:.1f} s and {spent:.1f} s of its processor"
    )


class Publishing:
    """A client that publishes to queues by name and counts the confirms."""

    def __init__(self, node: Node) -> None:
        self._client = client_of(node)
        self._client.call(methods.ConfirmSelect())
        self._published = 0
        #: The numbers of the publishes that are not answered.
        self._waiting: set[int] = set()

    def publish(self, names: Sequence[str]) -> None:
        """Publish one message to each queue."""
        first = self._published + 1
        self._published += len(names)
        self._waiting.update(range(first, self._published + 1))
        frames = [method_frame(1, methods.BasicPublish(exchange="", routing_key=name)) + CONTENT for name in names]
        self._client.write(b"".join(frames))

    def await_confirms(self) -> tuple[float, float, int]:
        """The moments of the first and the last answer to all publishes that are not answered, and how many of these
        were refused.
        """
        moments = list[float]()
        refused = 0
        while self._waiting:
            answer = self._client.answers(1)[0]
            assert isinstance(answer, methods.BasicAck | methods.BasicNack)
            moments.append(time.monotonic())
            tag = answer.delivery_tag
            answered = {each for each in self._waiting if each <= tag} if answer.multiple else {tag}
            self._waiting -= answered
            if isinstance(answer, methods.BasicNack):
                refused += len(answered)
        return moments[0], moments[-1], refused

    def close(self) -> None:
        self._client.close()


def failover(nodes: Nodes, count: int) -> None:
    first, second, _ = nodes
    others = list(nodes)[1:]
    names = [f"{QUEUE}.{number}" for number in range(count)]
    told(first, "set_policy", "mirrors", f"^{QUEUE}", ALL)
    declare(first, names)
    wait_for("all replicas", lambda: not short_of(first, 3), MOST_SECONDS)
    publisher = Publishing(second)
    for _ in range(USED_MESSAGES // 100):
        publisher.publish(names[:USED_QUEUES] * 100)
        publisher.await_confirms()
    publisher.publish(names)
    publisher.await_confirms()
    print(f"{count:,} queues with three replicas each, all with their master on one node, which is killed")
    before = processor(others)
    began = time.monotonic()
    nodes.kill(first.name)
    publisher.publish(names)
    first_at, last_at, refused = publisher.await_confirms()
    spent = processor(others) - before
    print(f"  the first queue confirms after {first_at - began:.2f} s, the last one after {last_at - began:.2f} s")
    print(f"  {refused} publishes were refused; the other nodes have used {spent:.1f} s of their processors")
    publisher.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.replicas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["idle", "sync", "failover"], help="one part")
    parser.add_argument("--queues", type=int, default=10_000, metavar="N", help="(default %(default)s)")
    parser.add_argument("--masters", type=int, default=1_000, metavar="N", help="(default %(default)s)")
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="(default %(default)s)")
    parser.add_argument("--directory", metavar="DIR", help="for the data (default: that of temporary files)")
    options = parser.parse_args()
    parts: dict[str, Callable[[Nodes], None]] = {
        "idle": lambda nodes: idle(nodes, options.queues),
        "sync": lambda nodes: sync(nodes, options.messages),
        "failover": lambda nodes: failover(nodes, options.masters),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="warren-replicas-", dir=options.directory) as directory:
                with linked_nodes(Path(directory), 3, PATIENT) as nodes:
                    nodes.start()
                    part(nodes)


if __name__ == "__main__":
    main()
