"""Nodes with links, for tests: each is a system of actors with `Links` and one `Peer`, whose messages may cross."""

from __future__ import annotations

import time
from types import SimpleNamespace

from thespian.actors import ActorSystem

from warren import Settings
from warren.cluster.links.admission import ClusterMembership
from warren.cluster.links.contract import to_links
from warren.cluster.links.encoding.codecs import ADDRESS, BOOLEAN, INTEGER, PLAIN, RAW_LIST, TEXT
from warren.cluster.links.encoding.registry import Crossing, Registry
from warren.cluster.links.links import Links
from warren.runtime.contract import Contract, message
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process

WAIT = 300
SECRET = "a secret of a test, long enough"


class ToPeer(Contract):
    @message
    def hear(self, number: int) -> None: ...

    @message
    def take(self, contents: list[bytes]) -> int: ...

    @message
    def heard(self) -> list[int]: ...

    @message
    def never(self) -> None: ...

    @message
    def leave(self) -> None: ...

    @message
    def echo(self, address: object) -> bool: ...

    @message
    def name(self, text: str) -> str: ...


to_peer = ToPeer()
REGISTRY = Registry(
    [
        Crossing(100, to_peer.hear, INTEGER),
        Crossing(101, to_peer.take, RAW_LIST, answer=INTEGER, is_credited=True),
        Crossing(102, to_peer.heard, answer=PLAIN),
        Crossing(103, to_peer.never),
        Crossing(104, to_peer.leave),
        Crossing(105, to_peer.echo, ADDRESS, answer=BOOLEAN),
        Crossing(106, to_peer.name, TEXT, answer=TEXT),
    ],
    {"queen": "control", "copy": "bulk"},
)


class TestLinks(Links):
    registry = REGISTRY
    __test__ = False


class Peer(Process):
    """Sends what a test asks it to send, and records what it receives from other nodes and from Links."""

    def __init__(self):
        super().__init__()
        self.numbers, self.downs, self.events, self.taken = [], [], [], 0

    def on_start(self, sender):
        self.register("peer")
        return True

    # -- from other nodes --

    def on_hear(self, sender, number):
        self.numbers.append(number)

    def on_take(self, sender, contents):
        self.taken += sum(map(len, contents))
        return self.taken

    def on_heard(self, sender):
        return list(self.numbers)

    def on_never(self, sender):
        """Never answers."""

    def on_leave(self, sender):
        self.stop("tired")

    def on_echo(self, sender, address):
        self.send(address, to_peer.hear(77))
        return True

    def on_name(self, sender, text):
        return text[::-1]

    # -- from Links --

    def on_link_up(self, sender, node, incarnation, node_id, facts):
        self.events.append(("up", node, incarnation))

    def on_link_down(self, sender, node, reason):
        self.events.append(("down", node, reason))

    def on_link_refused(self, sender, node, sentence, is_gone):
        self.events.append(("refused", node, sentence, is_gone))

    def on_down(self, name, reason):
        self.downs.append((name, str(reason)))

    def on_link_full(self, sender, node):
        self.events.append(("full", node))

    def on_link_free(self, sender, node):
        self.events.append(("free", node))

    # -- from the test --

    def on_look(self, sender):
        return {
            "numbers": list(self.numbers),
            "downs": list(self.downs),
            "events": list(self.events),
            "taken": self.taken,
            "asked": len(self._asked) - 1,
            # Without the monitor that Links has on each of its watchers.
            "monitors": len(self._host.monitors) - 1,
        }

    def on_apply(self, sender, index):
        self.set_applied(index)
        return True

    def on_begin_applying(self, sender, index):
        self.begin_applying(index)
        return True

    def on_tell(self, sender, node, numbers, name="peer"):
        target = self.named_address(node, name)
        if target is None:
            return False  # the link has ended before this message was handled
        for number in numbers:
            self.send(target, to_peer.hear(number))
        return True

    def on_send(self, sender, node, message, name="peer"):
        self.send(self.named_address(node, name), message)
        return True

    async def on_inquire(self, sender, node, message, name="peer"):
        return await self.ask(self.named_address(node, name), message)

    def on_observe(self, sender, node):
        self.monitor(self.named_address(node, "peer"), node)
        return True

    async def on_introduce(self, sender, node):
        return await self.ask(self.named_address(node, "peer"), to_peer.echo(self.myAddress))


class Node:
    """A node named `name` in this process, with a loop of its own."""

    def __init__(self, name, incarnation="1", secret=SECRET, node_id=None, **settings):
        self.name = f"{name}@h"
        self.incarnation = incarnation
        self.settings = Settings(
            **{"node_name": self.name, "cluster_port": 0, "cluster_cookie": secret, "host": "127.0.0.1", **settings}
        )
        self.base = LoopBase(f"{self.name}-{incarnation}", shutdown_seconds=5.0)
        self.client = OutsideClient(ActorSystem(systemBase=self.base, transientUnique=True))
        self.peer = self.base.newPrimaryActor(Peer)
        self.client.ask(self.peer, ("start",), WAIT)
        self.links = self.base.newPrimaryActor(TestLinks)
        context = SimpleNamespace(node_name=self.name, settings=self.settings)
        try:
            start = to_links.start(context, node_id or f"id-{name}", incarnation)
            self.place = self.client.ask(self.links, start, WAIT)
        except Exception:
            self.stop()
            raise
        self.client.tell(self.links, to_links.subscribe(self.peer))

    def ask(self, *message):
        return self.client.ask(self.peer, message, WAIT)

    def look(self, key):
        return self.ask("look")[key]

    def set_peers(self, *nodes):
        self.client.tell(self.links, to_links.set_peers({node.name: node.place for node in nodes}))

    def set_membership(self, **membership):
        self.client.tell(self.links, to_links.set_membership(ClusterMembership(**membership)))

    def rows(self):
        return {row["node"]: row for row in self.client.ask(self.links, to_links.links(), WAIT)}

    def tell_links(self, message):
        self.client.tell(self.links, message)

    def stop(self):
        self.client.close()
        self.base.shutdown()


def until(condition, what):
    """Wait until `condition()` is true, and return its value."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"after {WAIT} s: {what}")


def until_linked(*nodes):
    for one in nodes:
        others = {node.name for node in nodes if node is not one}
        until(
            lambda one=one, others=others: others <= {name for name, row in one.rows().items() if row["state"] == "up"},
            f"{one.name} is not linked to {others}: {one.rows()}",
        )
