"""Two systems of actors on event loops of their own, which are connected and lose each other."""

from __future__ import annotations

import pickle
import threading

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessDown
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process

WAIT = 300


class Peer(Process):
    def __init__(self):
        super().__init__()
        self.heard = []
        self.downs = []

    def on_tell(self, sender, target, count):
        for number in range(count):
            self.send(target, ("hear", number))
        return True

    def on_hear(self, sender, number):
        self.heard.append(number)

    def on_heard(self, sender):
        return list(self.heard)

    async def on_inquire(self, sender, target, message):
        return await self.ask(target, message)

    def on_never(self, sender):
        """Never answers."""

    def on_observe(self, sender, target):
        self.monitor(target, "it")
        return True

    def on_down(self, name, reason):
        self.downs.append(str(reason))

    def on_downs(self, sender):
        return list(self.downs)

    def on_askers(self, sender):
        return len(self._asked) - 1, len(self._host.monitors)

    def on_leave(self, sender):
        self.stop("tired")


class Node:
    def __init__(self, name):
        self.base = LoopBase(name, shutdown_seconds=2.0)
        self.client = OutsideClient(ActorSystem(systemBase=self.base, transientUnique=True))
        self.peer = self.base.newPrimaryActor(Peer)
        #: The address as other nodes know it.
        self.address = pickle.loads(pickle.dumps(self.peer))

    def ask(self, *message):
        return self.client.ask(self.peer, message, WAIT)

    def connect(self, other):
        def carry(*envelope):
            letter = pickle.dumps(envelope)
            other.base.post(lambda: other.base.remotes.arrived(self.base.name, *pickle.loads(letter)))

        self.base.call(self.base.remotes.system_up, other.base.name, carry)

    def lose(self, other):
        self.base.call(self.base.remotes.system_down, other.base.name)


@pytest.fixture
def nodes():
    nodes = [Node("a-1"), Node("b-1")]
    yield nodes
    for node in nodes:
        node.client.close()
        node.base.shutdown()


@pytest.fixture
def connected(nodes):
    nodes[0].connect(nodes[1])
    nodes[1].connect(nodes[0])
    return nodes


def until(condition):
    waiting = threading.Event()
    for _ in range(1000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it does not happen")


def test_processes_work_together(connected):
    """Processes of two systems send, ask and monitor each other as on one node."""
    a, b = connected
    a.ask("tell", b.address, 5)
    assert a.ask("inquire", b.address, ("heard",)) == [0, 1, 2, 3, 4]
    a.ask("observe", b.address)
    until(lambda: b.ask("askers") == (0, 1))
    b.client.tell(b.peer, ("leave",))
    until(lambda: a.ask("downs") == ["tired"])


def test_a_lost_connection_fails_asks_and_fires_monitors(connected):
    """When a connection is lost, asks fail and monitors fire, and the side that was asked and monitored
    forgets both.
    """
    a, b = connected
    failed = []

    def inquire():
        with pytest.raises(ProcessDown) as down:
            a.ask("inquire", b.address, ("never",))
        failed.append(down.value.reason)

    thread = threading.Thread(target=inquire)
    thread.start()
    a.ask("observe", b.address)
    until(lambda: b.ask("askers") == (1, 1))
    a.lose(b)
    thread.join(WAIT)
    assert [str(reason) for reason in failed] == ["noconnection: the connection to its system is lost"]
    assert failed[0].is_fault and not failed[0].is_noproc
    assert a.ask("downs") == ["noconnection: the connection to its system is lost"]
    assert b.ask("askers") == (1, 1)
    b.lose(a)
    assert b.ask("askers") == (0, 0)


def test_messages_to_a_lost_system_are_undelivered(nodes):
    """Messages to a system that is not connected are counted as undelivered and are no error; asks and monitors fail at
    once.
    """
    a, b = nodes
    a.ask("tell", b.address, 3)
    assert a.base.undelivered.count == 3
    with pytest.raises(ProcessDown, match="noconnection"):
        a.ask("inquire", b.address, ("heard",))
    a.ask("observe", b.address)
    assert a.ask("downs") == ["noconnection: the connection to its system is lost"]
    a.lose(b)


def test_an_earlier_run_of_a_node_is_gone_for_certain(connected):
    """Asks of processes of an earlier run of a node, be it another node or this one, fail with `noproc`, because these
    processes have certainly ended.
    """
    a, b = connected
    for address in ("b-0/Peer-1", "a-0/Peer-1", "a-1/Peer-999"):
        with pytest.raises(ProcessDown, match="noproc"):
            a.ask("inquire", type(b.address)(address), ("heard",))


def test_a_connection_ends_before_the_next_one(connected):
    a, b = connected
    with pytest.raises(RuntimeError, match="the connection to b-1 has not ended"):
        a.connect(b)
