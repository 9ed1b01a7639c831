"""`Cluster`: several nodes inside your own process, which are one broker.

    with Cluster(3) as cluster:
        connection = pika.BlockingConnection(pika.URLParameters(cluster.urls[0]))
        cluster.declare_queue("orders")        # on any node that runs; `declare_queue` and the like are those of Broker
        cluster.kill(1)                        # as kill -9; the other two go on
        cluster.start_node(1)
        cluster.wait_healthy()

The nodes are real: each has a thread, sockets and a port of its own, and they are connected over TCP. So a test sees
what clients of a cluster see when a node dies, stands still or is cut off.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Unpack

from .actors.contracts.membership import MembershipStatus, to_membership
from .broker import Broker, running_node, start_in_thread
from .cluster.links.contract import to_links
from .cluster.links.links import NAME as LINKS
from .cluster.membership.peers import NAME as MEMBERS
from .messaging import Messaging
from .running_node import BrokerError, RunningNode
from .runtime.errors import ProcessTimeout
from .settings import NodeKeywords, Settings

#: Seconds between two looks at a cluster that is not healthy yet.
LOOK_SECONDS = 0.02

#: Ports of the nodes are chosen from here: below those that the system gives to connections, so that a node finds its
#: port free when it is started again.
PORTS = range(15_000, 32_000)


class Cluster(Messaging):
    """Nodes `warren1@localhost`, `warren2@localhost` and so on, in background threads of this process.

    `nodes` is their number. There are `witnesses` nodes more, `witness1@localhost` and so on, which only vote: they
    have neither queues nor clients. Keywords are settings of every node. With a `data_dir`, each node has a directory
    in it, and what is durable survives the end of a node. Without one, a node that has ended comes back empty.

    Use it in a `with` or `async with` block, or call `start` and `stop`. A node is named by its index, from 0, or by
    its name. Methods such as `declare_queue`, `publish` and `set_policy` are those of `Broker`, on the first node that
    serves clients.
    """

    def __init__(self, nodes: int = 3, *, witnesses: int = 0, **keywords: Unpack[NodeKeywords]) -> None:
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}; a cluster has at least one node")
        if witnesses < 0:
            raise ValueError(f"witnesses is {witnesses}; give 0 or more")
        self.nodes = [f"warren{number}@localhost" for number in range(1, nodes + 1)]
        self._witnesses = [f"witness{number}@localhost" for number in range(1, witnesses + 1)]
        self.nodes += self._witnesses
        #: How many nodes there have been that are no witness, so that no name is given twice.
        self._named = nodes
        self._keywords = keywords
        self._cookie = secrets.token_hex(32)
        self._brokers: dict[str, Broker] = {}
        #: Nodes that the program has ended, and nodes that it has paused.
        self._ended: set[str] = set()
        self._paused: set[str] = set()
        #: The directions between nodes that are cut: (node, other node) to (holds its output, holds its input).
        self._held: dict[tuple[str, str], tuple[bool, bool]] = {}
        self.settings = Settings.of(**keywords)

    # -- start and stop ---

    def start(self) -> Cluster:
        """Start all nodes that do not run; return once each accepts connections."""
        if not self._brokers:
            self._brokers = self._new_brokers(self.nodes)
        waiting = [broker for broker in self._brokers.values() if not broker.is_running]
        self._ended.clear()
        try:
            # All are started at the same time, because a node waits for a majority before it accepts connections.
            self._each(waiting, Broker.start)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all nodes."""
        self._paused.clear()
        for broker in self._running():
            node = running_node(broker)
            if node is not None:
                node.moves_masters = False  # no other node stays that could lead its mirrored queues
        self._each(list(self._brokers.values()), Broker.stop)

    def _each(self, brokers: list[Broker], call: Callable[[Broker], object]) -> None:
        """Call all at once. Raises the first error, when all have returned."""
        if brokers:
            with ThreadPoolExecutor(len(brokers)) as pool:
                for done in [pool.submit(call, broker) for broker in brokers]:
                    done.result()

    def _new_brokers(self, names: list[str]) -> dict[str, Broker]:
        """Nodes of these names, which find each other and the nodes that there are already."""
        count = len(names)
        ports = free_ports(2 * count)
        known = {name: broker.settings.cluster_port for name, broker in self._brokers.items()}
        known |= dict(zip(names, ports[count:], strict=True))
        addresses = {name: f"127.0.0.1:{port}" for name, port in known.items()}
        keywords: dict[str, Any] = dict(self._keywords)
        data_dir = keywords.pop("data_dir", None)
        formation = {"nodes": [*known], "replace_lost": data_dir is None}
        return {
            name: Broker(
                settings=Settings.of(
                    **{
                        "cluster_formation": formation,
                        **keywords,
                        "port": port,
                        "node_name": name,
                        "data_dir": None if data_dir is None else os.path.join(data_dir, name),
                        "cluster_port": known[name],
                        "cluster_role": "witness" if name in self._witnesses else "data",
                        "cluster_cookie": self._cookie,
                        "cluster_peer_addresses": {other: at for other, at in addresses.items() if other != name},
                    }
                )
            )
            for name, port in zip(names, ports[:count], strict=True)
        }

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        await start_in_thread(self.start, self.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        return f"<Cluster of {len(self.nodes)} nodes, {len(self._running())} running>"

    # -- nodes ---

    def broker(self, node: int | str) -> Broker:
        """The node, as a `Broker`."""
        return self._brokers[self._name(node)]

    @property
    def urls(self) -> list[str]:
        """The AMQP URLs of all nodes that run and have clients."""
        return [
            broker.url for name, broker in self._brokers.items() if broker.is_running and name not in self._witnesses
        ]

    def url_of(self, node: int | str, vhost: str | None = None) -> str:
        """The AMQP URL of a node, for the default virtual host or another one."""
        broker = self.broker(node)
        return broker.url if vhost is None else broker.url_of(vhost)

    @property
    def leader(self) -> str | None:
        """The name of the node that orders the changes of metadata; None if no node that runs has a leader.

        If nodes have different leaders, as after a partition, the one with the latest term is right.
        """
        known = [(status["term"], status["leader"]) for status in map(self._status, self.nodes) if status is not None]
        return max((each for each in known if each[1]), default=(0, None))[1]

    def home(self, queue: str, vhost: str | None = None) -> str:
        """The name of the node that has the queue's messages. Raises BrokerError 404 if there is no such queue."""
        return self.queue(queue, vhost).node

    # -- members ---

    def add_node(self) -> str:
        """Start one more node, which joins the cluster; returns its name, once it accepts connections."""
        self._named += 1
        name = f"warren{self._named}@localhost"
        self._brokers |= self._new_brokers([name])
        self.nodes.append(name)
        self.start_node(name)
        return name

    def remove_node(self, node: int | str, *, accept_loss: bool = False) -> None:
        """Stop the node, and have the others forget it. The indexes of the nodes behind it become lower by one.

        Durable queues that are at home there are deleted with their messages, which must be accepted: without
        `accept_loss` BrokerError names their number. The node is stopped then, and still a member.
        """
        name = self._name(node)
        self.stop_node(name)
        self._node.operate("forget_cluster_node", node=name, accept_loss=accept_loss)
        self.nodes.remove(name)
        self._ended.discard(name)
        del self._brokers[name]

    # -- faults ---

    def kill(self, node: int | str) -> None:
        """End the node as a process does that gets SIGKILL: nothing is written or announced, and connections break."""
        self._ends(node)
        self.broker(node).kill()

    def stop_node(self, node: int | str) -> None:
        """Stop the node in order."""
        self._ends(node)
        self.broker(node).stop()

    def _ends(self, node: int | str) -> None:
        self._paused.discard(self._name(node))
        self._ended.add(self._name(node))

    def start_node(self, node: int | str) -> None:
        """Start a node that has ended, on its former ports; return once it accepts connections."""
        name = self._name(node)
        self.broker(name).start()
        self._ended.discard(name)
        for (one, other), (sends, receives) in list(self._held.items()):
            if one == name:
                self._hold(one, other, sends, receives)

    def pause(self, node: int | str) -> None:
        """Let the node stand still, as a process that gets SIGSTOP, until `resume`."""
        self._paused.add(self._name(node))
        self.broker(node).pause()

    def resume(self, node: int | str) -> None:
        """Let the node go on after `pause`."""
        self.broker(node).resume()
        self._paused.discard(self._name(node))

    def partition(self, a: int | str, b: int | str, *, oneway: bool = False) -> None:
        """Cut two nodes off from each other until `heal`: nothing passes between them, and their connections stay open.

        With `oneway`, nothing that `a` sends reaches `b`, and what `b` sends still reaches `a`. Clients are not cut
        off.
        """
        first, second = self._name(a), self._name(b)
        self._hold(first, second, sends=True, receives=not oneway)
        self._hold(second, first, sends=not oneway, receives=True)

    def heal(self) -> None:
        """Let everything pass again that `partition` has cut."""
        for node in self.nodes:
            for other in self.nodes:
                if other != node:
                    self._hold(node, other, sends=False, receives=False)

    def _hold(self, node: str, other: str, sends: bool, receives: bool) -> None:
        """Have the node hold back what it sends to the other one, and what it receives from there."""
        self._held[node, other] = (sends, receives)
        running = running_node(self._brokers[node])
        if running is not None:
            running.ask_named(LINKS, to_links.hold(other, sends, receives))

    # -- waiting ---

    def wait_healthy(self, timeout: float = 30.0) -> None:
        """Wait until each node that runs is a member of the majority, and linked to all others that run.

        Raises TimeoutError, which says what was missing, after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while missing := self._missing():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster is not healthy after {timeout} s: {missing}")
            time.sleep(LOOK_SECONDS)

    def wait_in_sync(self, queue: str, vhost: str | None = None, timeout: float = 30.0) -> None:
        """Wait until the queue has a replica with all messages on every running node where its policy wants one.

        Raises TimeoutError, which says what was missing, after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            found = self.queue(queue, vhost)
            missing = [node for node in found.wanted_nodes if node not in found.in_sync]
            if found.state == "running" and not missing:
                return
            if time.monotonic() > deadline:
                there = f"{', '.join(missing)} have not got all messages" if missing else f"it is {found.state}"
                raise TimeoutError(f"queue '{queue}' is not in sync after {timeout} s: {there}")
            time.sleep(LOOK_SECONDS)

    def _missing(self) -> str:
        """What the nodes that run lack to be healthy, in words; empty if they lack nothing."""
        for name in self.nodes:
            if name in self._ended or name in self._paused:
                continue
            try:
                status = self._status(name)
            except ProcessTimeout:
                return f"{name} does not answer"
            if status is None:
                return f"{name} begins another run, because the cluster has declared it down"
            if status["stage"] != "running":
                return f"{name} is {status['stage']} {status['waits_for']}".rstrip()
            members = {member["node"]: member for member in status["members"]}
            for other in self.nodes:
                if other == name or other in self._ended or other in self._paused:
                    continue
                member = members.get(other)
                if member is None:
                    return f"{name} does not know {other}"
                if not member["is_linked"]:
                    return f"{name} is not linked to {other}"
                if not member["incarnation"]:
                    return f"{name} counts {other} as down"
        return ""

    def _status(self, name: str) -> MembershipStatus | None:
        """The cluster as the node sees it; None if the node does not run or stands still."""
        node = None if name in self._paused else running_node(self._brokers[name])
        try:
            return None if node is None else node.ask_named(MEMBERS, to_membership.membership())
        except BrokerError:
            return None

    # -- the rest ---

    def _name(self, node: int | str) -> str:
        """The name of a node. Raises ValueError if there is none of that index or name."""
        if isinstance(node, int) and 0 <= node < len(self.nodes):
            return self.nodes[node]
        if node in self._brokers:
            return str(node)
        raise ValueError(f"there is no node {node!r}; the nodes are {', '.join(self.nodes)}, with the indexes from 0")

    def _running(self) -> list[Broker]:
        return [broker for broker in self._brokers.values() if broker.is_running]

    @property
    def _node(self) -> RunningNode:
        for name, broker in self._brokers.items():
            node = running_node(broker)
            if node is not None and name not in self._paused and name not in self._witnesses:
                return node
        raise RuntimeError("no node of the cluster is running; call start(), or use it in a `with` block")


def free_ports(count: int) -> list[int]:
    """Ports of this machine on which no socket listens now."""
    ports: list[int] = []
    chooser = random.SystemRandom()
    while len(ports) < count:
        port = chooser.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in ports:
                ports.append(port)
    return ports
