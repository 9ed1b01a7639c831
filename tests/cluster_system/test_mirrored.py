"""Mirrored queues of three nodes, each a process, keep their promises whatever happens to one node or to
the network.
"""

from __future__ import annotations

from collections import Counter
from threading import Event, Thread

from warren.amqp import methods as m
from warren.simulation.cluster.ledger import Ledger, Promises
from warren.tests.behaviour.wire import Client, Refused
from warren.tests.cluster_system.nodes import linked_nodes, wait_for, warren_cluster
from warren.tests.cluster_system.operating import PATIENT
from warren.tests.cluster_system.rounds.faults import isolate_one, kill_and_start_at_once, kill_one, nothing, stop_one
from warren.tests.cluster_system.rounds.rounds import Rounds

SEED = 1

#: The queues whose nodes are restarted one after the other.
QUEUES = [f"ha-{number}" for number in range(4)]

#: Messages of a burst, and seconds between two bursts.
BURST, PAUSE = 20, 0.05


def test_mirrored_queues_keep_their_promises(tmp_path, command):
    """After each fault no confirmed message is lost and no promise broken, except that acked messages may come again
    after a failover. `await_online_synchronized_mirror` succeeds while each queue has a replica in sync besides its
    master, and times out with exit code 70 if one has none (CM-47).

    On a failure `tmp_path` keeps the account, and the log and the data of each node.
    """
    with (tmp_path / "account").open("w") as account, warren_cluster(tmp_path, 3) as nodes:
        ledger = Ledger(account, Promises(fails_over=True))
        nodes.start()
        ran = command(next(iter(nodes)), "set_policy", "mirrors", "^ledger", '{"ha-mode": "all"}')
        assert ran.code == 0, ran.err
        rounds = Rounds(nodes, ledger, SEED, seconds=0.3, pause=0.1)
        rounds.declare()
        check = "check_if_node_is_mirror_sync_critical"
        assert [command(node, check).code for node in nodes] == [0, 0, 0]
        wait = "await_online_synchronized_mirror"
        assert command(next(iter(nodes)), wait).code == 0
        rounds.run([kill_one, isolate_one, stop_one, kill_and_start_at_once])
        # Go on until the clients have done enough work to notice a broken promise, which takes longer on a busy
        # machine.
        while min(ledger.counts[done] for done in ("confirmed", "delivered", "acked", "drained")) <= 20:
            rounds.run([nothing])
        alone = '{"ha-mode": "exactly", "ha-params": 1}'
        assert command(next(iter(nodes)), "set_policy", "--priority", "9", "alone", "^ledger", alone).code == 0
        assert 69 in [command(node, check).code for node in nodes], "the only replica of a queue is on one of them"
        assert 70 in [command(node, wait, "--timeout", "1").code for node in nodes]


class Worker:
    """A client in a thread of its own. When its node is stopped, which closes the connection with 320, it connects to
    the next.
    """

    def __init__(self, nodes, at: int) -> None:
        self._nodes = list(nodes)
        self.at = at
        self.is_over = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def work(self, client: Client) -> None:
        """Work until the connection ends, or the work is over."""
        raise NotImplementedError

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a client waits for an answer for ever"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    client = Client(self._nodes[self.at % len(self._nodes)].url, timeout=300)
                    self.work(client)
                    client.abort()
                except (OSError, Refused) as error:
                    if isinstance(error, Refused) and error.close.reply_code != 320:
                        raise
                    self.at += 1
        except BaseException as error:
            self._error = error


class Publisher(Worker):
    """Publishes bursts with confirms to all queues, and repeats the publishes that were unanswered when a connection
    ended.
    """

    def __init__(self, nodes, at: int) -> None:
        self.name = at
        self.published = self.confirmed = 0
        self.refused: list[int] = []
        super().__init__(nodes, at)

    def work(self, client: Client) -> None:
        channel = client.channel()
        channel.confirm()
        first = self.confirmed + 1
        self.published = self.confirmed
        while not self.is_over.wait(PAUSE):
            with client.in_one_piece():
                for _ in range(BURST):
                    self.published += 1
                    queue = QUEUES[self.published % len(QUEUES)]
                    channel.publish(b"%d %d" % (self.name, self.published), queue, delivery_mode=2)
            open_tags = set(range(self.published - first + 2 - BURST, self.published - first + 2))
            while open_tags:
                answer = channel.wait(m.BasicAck, m.BasicNack).method
                if isinstance(answer, m.BasicNack):
                    self.refused.append(answer.delivery_tag)
                tag = answer.delivery_tag
                open_tags -= {each for each in open_tags if each <= tag} if answer.multiple else {tag}
            self.confirmed = self.published


class Consumer(Worker):
    """Consumes from all queues and acknowledges everything."""

    def __init__(self, nodes, at: int) -> None:
        self.received: Counter[bytes] = Counter()
        super().__init__(nodes, at)

    def work(self, client: Client) -> None:
        channel = client.channel()
        for queue in QUEUES:
            channel.call(m.BasicConsume(queue=queue, consumer_tag=queue))
        client.timeout = 0.1
        while not self.is_over.is_set():
            try:
                delivery = channel.wait(m.BasicDeliver)
            except AssertionError:
                continue  # nothing has come for a moment
            self.received[delivery.body] += 1
            channel.send(m.BasicAck(delivery.method.delivery_tag))


def test_a_rolling_restart_costs_no_client_a_refusal_or_a_message(tmp_path, command):
    """When the nodes are restarted one after the other, no client sees a refusal or loses a message: a node that stops
    moves the masters of its queues to other nodes first (CL-98).
    """
    with linked_nodes(tmp_path, 3, PATIENT) as nodes:
        nodes.start()
        first = next(iter(nodes))
        policy = '{"ha-mode": "all"}'
        assert command(first, "set_policy", "ha", "^ha", policy).code == 0
        declaring = Client(first.url).channel()
        for queue in QUEUES:
            declaring.queue(queue, durable=True)
        publishers = [Publisher(nodes, at) for at in range(3)]
        consumer = Consumer(nodes, 1)
        try:
            for node in nodes:
                before = [publisher.confirmed for publisher in publishers]
                wait_for(
                    "publishers to go on",
                    lambda before=before: all(now.confirmed > then for now, then in zip(publishers, before)),
                )
                nodes.stop_node(node.name)
                assert "not all masters have left" not in node.log_end(100_000)
                nodes.start_node(node.name)
                node.wait_ready()
                wait_for("all replicas to be in sync", lambda: _are_in_sync(command, first))
        finally:
            for publisher in publishers:
                publisher.end()
        confirmed = {b"%d %d" % (each.name, number) for each in publishers for number in range(1, each.confirmed + 1)}
        wait_for("all messages to be consumed", lambda: confirmed <= consumer.received.keys())
        consumer.end()
    assert [publisher.refused for publisher in publishers] == [[], [], []]


def _are_in_sync(command, node) -> bool:
    rows = command.json(node, "list_queues", "name", "synchronised_slave_pids")
    return all(len(row["synchronised_slave_pids"]) == 2 for row in rows)
