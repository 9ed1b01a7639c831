"""Processes on two nodes that send, ask and monitor each other, while the link breaks and nodes die and come back.

`Exchange` runs a schedule of such events, each chosen by a seed, and checks what processes rely on
(`runtime/remote_systems`):

- between two processes messages keep their order, none arrives twice, and within one session none is missing before one
  that arrives;
- each ask is answered or fails, once;
- each monitor fires once, after everything that the process had sent in the session;
- a process is reported as ended only if it has ended, and a lost connection only if there was one;
- in the end nothing is open across the link, and the two nodes work together as on the first day.
"""

from __future__ import annotations

import pickle
import random
from collections import defaultdict

import pytest

from warren.runtime.errors import ProcessDown
from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import Conditions, SimWorld

SEEDS = range(300)

#: Processes on each node.
PEERS = 3

#: Events of one schedule.
EVENTS = 40


def name_of(address):
    return address.addressDetails


class Peer(Process):
    """Does what `Exchange` asks for, and records in its log what comes of it. The log is the exchange's own."""

    def on_begin(self, sender, exchange):
        self.exchange = exchange.value
        self.last_sent = defaultdict(int)
        self.name = name_of(self.myAddress)

    def on_tell(self, sender, target):
        """Send the next number to `target`, with the session in which it leaves."""
        self.last_sent[name_of(target)] += 1
        self.send(target, ("hear", self.last_sent[name_of(target)], self.exchange.session_of(self.name)))

    def on_hear(self, sender, number, session):
        self.exchange.heard(name_of(sender), self.name, number, session)

    async def on_inquire(self, sender, target, question, is_slow):
        ask = self.exchange.began("ask", self.name, name_of(target))
        try:
            answer = await self.ask(target, ("slow" if is_slow else "echo", question))
        except ProcessDown as down:
            self.exchange.ended(ask, down.reason)
        else:
            assert answer == [name_of(target), question]
            self.exchange.ended(ask, None)

    def on_echo(self, sender, question):
        return [self.name, question]

    async def on_slow(self, sender, question):
        await self.sleep(0.5)
        return [self.name, question]

    def on_observe(self, sender, target):
        number = self.exchange.began("monitor", self.name, name_of(target))
        self.monitor(target, number)

    def on_ignore(self, sender, number):
        if self.exchange.withdrawn(number):
            self.demonitor(number)

    def on_down(self, name, reason):
        self.exchange.ended(name, reason)

    def on_leave(self, sender, crash):
        if crash:
            raise ValueError("provoked")
        self.stop("tired")

    def on_exit(self):
        self.exchange.died(self.name)


class Hidden:
    """Passes an object to a process of the same node, although it cannot be pickled."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        raise TypeError("this object belongs to one node")


class Exchange:
    """One schedule. A violation raises AssertionError after the step in which it happens."""

    def __init__(self, seed):
        self.random = random.Random(f"exchange {seed}")
        self.world = SimWorld(seed, conditions=Conditions(link_delay=0.02, detection_delay=0.3), sweep_interval=200)
        self.link = self.world.link_systems("a", "b")
        #: By node: the addresses of its peers, as another node knows them.
        self.peers = {"a": [], "b": []}
        self.ports = {}
        self.born_names = []
        self.dead = set()
        #: By (sender, receiver): the last number heard.
        self.last_heard = defaultdict(int)
        #: By (sender, receiver): the session of that number, and the number.
        self.heard_in = {}
        #: Asks and monitors without an outcome, by number: (kind, opener, target).
        self.open = {}
        self.outcomes = {}
        self.questions = 0
        self.world.after_step = self.check
        for node in "ab":
            self.boot(node)
        assert self.world.settle()

    def check(self):
        """Fail if a process has found a violation, which is recorded as a crash of that process."""
        for _, error in self.world.crashes:
            if str(error) != "provoked":
                raise error

    # -- called by the peers -----------------------------------------------------------------------------

    def session_of(self, name):
        return self.link.session(name[0])

    def heard(self, sender, receiver, number, session):
        pair = sender, receiver
        assert number > self.last_heard[pair], "a message arrived twice or out of order"
        assert session is not None, "a message arrived that was sent without a connection"
        if pair in self.heard_in and self.heard_in[pair][0] == session:
            assert number == self.heard_in[pair][1] + 1, "a message is missing within a session"
        self.heard_in[pair] = session, number
        self.last_heard[pair] = number

    def began(self, kind, opener, target):
        number = len(self.outcomes) + len(self.open) + 1
        self.open[number] = kind, opener, target
        return number

    def withdrawn(self, number):
        self.outcomes.setdefault(number, "withdrawn")
        return self.open.pop(number, None) is not None

    def ended(self, number, reason):
        assert number in self.open, f"ask or monitor {number} ended twice: {self.outcomes.get(number)}, then {reason}"
        kind, opener, target = self.open.pop(number)
        self.outcomes[number] = "answered" if reason is None else reason.kind.value
        if reason is None:
            return
        if reason.kind.value == "noconnection":
            assert self.was_disturbed, f"the {kind} of {target} failed without any trouble on the link"
        else:
            assert target in self.dead, f"{target} lives, and {opener} was told that it has ended: {reason}"

    def died(self, name):
        """Forget what a process has asked and monitored when it ends, since that has no outcome any more."""
        self.dead.add(name)
        for number, (_, opener, _) in list(self.open.items()):
            if opener == name:
                del self.open[number]
                self.outcomes[number] = "forgotten"

    # -- events ------------------------------------------------------------------------------------------

    def boot(self, node):
        port = self.ports[node] = SimPort(self.world.machine(node).boot())
        self.peers[node] = []
        for _ in range(PEERS):
            self.born(node)
        return port

    def born(self, node):
        port = self.ports[node]
        address = port.base.newPrimaryActor(Peer)
        port.tell(address, ("begin", Hidden(self)))
        self.born_names.append(name_of(address))
        # Another node knows an address only from a message.
        self.peers[node].append(pickle.loads(pickle.dumps(address)))

    @property
    def was_disturbed(self):
        return any(entry[1] == "link" and entry[4] == "down" for entry in self.world.trace) or bool(self.troubles)

    troubles = 0

    def is_up(self, node):
        return self.world.machine(node).base is not None

    def tell(self, node, index, *message):
        if self.is_up(node):
            address = self.peers[node][index]
            if name_of(address) not in self.dead:
                self.ports[node].tell(address, message)

    def event(self):
        draw = self.random
        here, there = draw.choice(("ab", "ba"))
        one, other = draw.randrange(PEERS), draw.choice(self.peers[there])
        kind = draw.choices(
            ("tell", "inquire", "observe", "ignore", "leave", "cut", "mend", "kill", "boot", "pause"),
            (20, 10, 8, 2, 3, 2, 4, 1, 3, 1),
        )[0]
        if kind == "tell":
            for _ in range(draw.randrange(1, 5)):
                self.tell(here, one, "tell", other)
        elif kind == "inquire":
            self.questions += 1
            self.tell(here, one, "inquire", other, self.questions, draw.random() < 0.5)
        elif kind == "observe":
            self.tell(here, one, "observe", other)
        elif kind == "ignore":
            mine = [n for n, (what, opener, _) in self.open.items() if what == "monitor"]
            if mine:
                number = draw.choice(mine)
                opener = self.open[number][1]
                for index, address in enumerate(self.peers[opener[0]]):
                    if name_of(address) == opener:
                        self.tell(opener[0], index, "ignore", number)
        elif kind == "leave":
            self.tell(here, one, "leave", draw.random() < 0.5)
        elif kind == "cut":
            self.troubles += 1
            for source, target in draw.choice(([here + there], [here + there, there + here])):
                self.world.link(source, target).cut()
        elif kind == "mend":
            self.world.mend()
        elif kind == "kill" and self.is_up(here):
            self.kill(here, draw.random() < 0.5)
        elif kind == "boot" and not self.is_up(here):
            self.boot(here)
        elif kind == "pause" and self.is_up(here):
            self.world.machine(here).pause()
            self.world.run(draw.choice((0.05, 1.0)))
            self.world.machine(here).resume()

    def kill(self, node, has_power):
        self.troubles += 1
        for name in [name for name in self.born_names if name[0] == node and name not in self.dead]:
            self.died(name)
        self.world.machine(node).crash(has_power)

    def run(self):
        for _ in range(EVENTS):
            self.event()
            self.world.run_steps(self.random.choice((0, 1, 5, 50)))
        self.heal()
        self.end()

    def heal(self):
        self.world.mend()
        for node in "ab":
            if not self.is_up(node):
                self.boot(node)
        self.world.run(10.0)
        assert self.world.is_quiet()
        assert self.link.session("a") == self.link.session("b") is not None
        assert [what for what in self.open.values() if what[0] == "ask"] == [], "an ask has no outcome"
        for _, _, target in self.open.values():
            assert target not in self.dead, "the process has ended, and its monitor has not fired"
        self.check_leftovers()

    def check_leftovers(self):
        """At rest a process knows of no asker, and of no monitor but those that are open."""
        for port in self.ports.values():
            for cell in port.base.cells.values():
                if isinstance(getattr(cell, "actor", None), Peer):
                    assert not cell.actor._asked, "an asker is not forgotten"
                    assert len(cell.monitors) == sum(
                        target == cell.address.addressDetails for _, _, target in self.open.values()
                    ), "a monitor is not forgotten"

    def end(self):
        """Fresh processes work together, and then b dies."""
        for node in "ab":
            self.peers[node] = []
            for _ in range(PEERS):
                self.born(node)
        for here, there in ("ab", "ba"):
            for one in range(PEERS):
                for other in self.peers[there]:
                    for _ in range(3):
                        self.tell(here, one, "tell", other)
                    self.tell(here, one, "inquire", other, 0, False)
                    self.tell(here, one, "observe", other)
        assert self.world.settle(3600.0)
        for here, there in ("ab", "ba"):
            for one in self.peers[here]:
                for other in self.peers[there]:
                    assert self.last_heard[name_of(one), name_of(other)] == 3
        assert [what for what in self.open.values() if what[0] == "ask"] == []
        monitors = len(self.open)
        (remote,) = self.ports["a"].base.remotes._by_name.values()
        assert remote.open_count() == monitors, "something of the past is open across the link"
        self.kill("b", True)
        assert self.world.settle(3600.0)
        assert self.open == {}, "a monitor has not fired"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_nodes_keep_their_promises(seed):
    Exchange(seed).run()
