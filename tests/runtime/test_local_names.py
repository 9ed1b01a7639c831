"""Names by which other nodes reach processes, and the end of a round of the loop."""

from __future__ import annotations

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessDown
from warren.runtime.process import Process
from warren.runtime.sim.world import SimWorld
from warren.runtime.system.address import LoopAddress
from warren.runtime.system.local_names import LocalNames

WAIT = 300


class Named(Process):
    def on_take(self, sender, name, address=None):
        self.register(name, address)
        return True

    def on_family(self, sender, family, address):
        self.register_family(family, lambda rest: address if rest == "1" else None)
        return True

    def on_who(self, sender):
        return self.myAddress.addressDetails

    def on_find(self, sender, node, name):
        found = self.named_address(node, name)
        return "nobody" if found is None else found.addressDetails

    def on_watch(self, sender, address):
        self.monitor(address, "it")
        self.asker = sender

    def on_down(self, name, reason):
        self.reply(self.asker, str(reason))

    def on_leave(self, sender):
        self.stop("tired")


def name(base, local):
    return LoopAddress(f"{base.name}/{local}")


def test_a_name_leads_to_the_process_that_has_it(base, client):
    first, second = base.newPrimaryActor(Named), base.newPrimaryActor(Named)
    client.ask(first, ("take", "meta"), WAIT)
    assert client.ask(name(base, "meta"), ("who",), WAIT) == first.addressDetails
    client.ask(first, ("take", "meta", second), WAIT)
    assert client.ask(name(base, "meta"), ("who",), WAIT) == second.addressDetails


def test_a_name_ends_with_its_process(base, client):
    """When a process ends, its name leads nowhere: later asks and monitors fail at once. If another process has taken
    the name over, the end of the first one does not take it away.
    """
    first, second = base.newPrimaryActor(Named), base.newPrimaryActor(Named)
    for process in (first, second):
        client.ask(process, ("take", "meta"), WAIT)
    client.tell(first, ("leave",))
    assert client.ask(name(base, "meta"), ("who",), WAIT) == second.addressDetails
    client.tell(second, ("leave",))
    for reason in ("tired|noproc", "noproc"):
        with pytest.raises(ProcessDown, match=reason):
            client.ask(name(base, "meta"), ("who",), WAIT)
    assert base.names.of_process == {}


def test_a_name_can_be_monitored(base, client):
    target, watcher = base.newPrimaryActor(Named), base.newPrimaryActor(Named)
    client.ask(target, ("take", "meta"), WAIT)
    base.post(base.enqueue, base.address, target, ("leave",))
    assert client.ask(watcher, ("watch", name(base, "meta")), WAIT) in ("tired", "noproc")
    assert client.ask(watcher, ("watch", name(base, "meta")), WAIT) == "noproc"


def test_a_family_of_names_is_looked_up(base, client):
    """Names of a family are looked up with a function, so that the system keeps nothing for each of them."""
    target = base.newPrimaryActor(Named)
    client.ask(target, ("family", "q", target), WAIT)
    assert client.ask(name(base, "q/1"), ("who",), WAIT) == target.addressDetails
    for unknown in ("q/2", "q", "p/1"):
        with pytest.raises(ProcessDown, match="noproc"):
            client.ask(name(base, unknown), ("who",), WAIT)


class Expecting(Process):
    """Has a family of names of which no process runs yet. It says of them that they are expected, until one runs, and
    records what comes to it.
    """

    def on_begin(self, sender):
        self.is_expecting, self.found, self.taken = True, None, []
        self.register_family("q", lambda rest: self.found, lambda rest: self.is_expecting and rest != "never")
        return True

    def on_runs(self, sender):
        """Say that the process behind `q/1` runs, and that nothing else will."""
        self.found, self.is_expecting = self.myAddress, False
        self.release_held("q/1")
        self.found = None
        self.release_held()
        return True

    def on_take(self, sender, what):
        self.taken.append(what)

    def on_taken(self, sender):
        return list(self.taken)


def test_messages_to_a_process_that_is_expected_are_held(base, client):
    """Messages to a process that is expected wait until it runs and then arrive in order; if it does not come, they are
    undeliverable.
    """
    process = base.newPrimaryActor(Expecting)
    client.ask(process, ("begin",), WAIT)
    with pytest.raises(ProcessDown, match="noproc"):
        client.ask(name(base, "q/never"), ("who",), WAIT)
    for what in "abc":
        base.post(base.enqueue, base.address, name(base, "q/1"), ("take", what))
    base.post(base.enqueue, base.address, name(base, "q/2"), ("take", "d"))
    assert client.ask(process, ("taken",), WAIT) == []
    assert base.undelivered.count == 0
    client.ask(process, ("runs",), WAIT)
    assert client.ask(process, ("taken",), WAIT) == ["a", "b", "c"]
    assert base.undelivered.count == 1
    with pytest.raises(ProcessDown, match="noproc"):
        client.ask(name(base, "q/1"), ("who",), WAIT)


def test_a_process_finds_the_names_of_connected_nodes(client, base):
    process = base.newPrimaryActor(Named)
    own = base.name.rpartition("-")[0]
    assert client.ask(process, ("find", own, "meta"), WAIT) == "nobody"
    client.ask(process, ("take", "meta"), WAIT)
    assert client.ask(process, ("find", own, "meta"), WAIT) == process.addressDetails
    assert client.ask(process, ("find", "b", "meta"), WAIT) == "nobody"
    base.call(base.remotes.system_up, "b-2", print)
    assert client.ask(process, ("find", "b", "meta"), WAIT) == "b-2/meta"
    base.call(base.remotes.system_down, "b-2")
    assert client.ask(process, ("find", "b", "meta"), WAIT) == "nobody"


def test_no_process_is_its_own_name():
    with pytest.raises(ValueError, match="cannot stand for itself"):
        LocalNames("a-1").register("meta", LoopAddress("a-1/meta"))


class Gatherer(Process):
    """Gathers what it is given in a round of the loop and sends all of it on at the end of the round, as the links to
    other systems do.
    """

    def on_start(self, sender):
        self.given, self.lines = [], []
        self._host.systems.system_up("b-2", self.carry)
        return True

    def carry(self, sender, target, message):
        if not self.given:
            self.call_at_round_end()
        self.given.append(message[1])

    def on_round_end(self):
        self.lines.append(self.given)
        self.given = []

    def after_batch(self):
        if self.given:
            self.on_round_end()

    def on_lines(self, sender):
        return list(self.lines)


class Giver(Process):
    def on_give(self, sender, what):
        self.send(LoopAddress("b-2/Peer-1"), ("take", what))


def test_the_end_of_a_round_comes_after_all_that_are_ready(base, client):
    """The end of a round comes after the turns of all that are ready: what three processes send leaves as one."""
    gatherer = base.newPrimaryActor(Gatherer)
    client.ask(gatherer, ("start",), WAIT)
    parents = [base.cells[base.newPrimaryActor(Named).addressDetails] for _ in range(3)]
    givers = [base.call(base.create, Giver, parent, None, None, None) for parent in parents]

    def give():
        for giver, what in zip(givers, "abc"):
            base.enqueue(base.address, giver, ("give", what))

    for _ in range(2):
        base.call(give)
    assert client.ask(gatherer, ("lines",), WAIT) == [["a", "b", "c"]] * 2


def test_a_simulation_has_no_rounds():
    """In a simulation, which has no rounds, the end of a round is another turn of the process, and nothing is lost."""
    base = SimWorld(seed=3).machine("a").boot()
    system = ActorSystem(systemBase=base, transientUnique=True)
    gatherer, giver = base.newPrimaryActor(Gatherer), base.newPrimaryActor(Giver)
    system.tell(gatherer, ("start",))
    base.world.settle()
    for what in "abc":
        system.tell(giver, ("give", what))
    base.world.settle()
    assert [what for line in base.cells[gatherer.addressDetails].actor.lines for what in line] == ["a", "b", "c"]
    system.shutdown()


def test_a_name_that_was_taken_over_ends_once():
    names = LocalNames("a-1")
    first, second = LoopAddress("a-1/X-1"), LoopAddress("a-1/X-2")
    names.register("meta", first)
    names.register("meta", second)
    names.forget("a-1/X-2")
    names.forget("a-1/X-1")
    assert names.get("meta") is None and not names.of_process


def test_a_family_ends_with_its_process():
    """A family ends with its process: otherwise the system would keep its function, and what belongs to that, such as
    open files, for ever.
    """
    names = LocalNames("a-1")
    first, second = LoopAddress("a-1/X-1"), LoopAddress("a-1/X-2")
    names.register_family("q", lambda rest: first, first)
    names.register_family("q", lambda rest: second, second)
    names.forget("a-1/X-1")
    assert names.get("q/1") is second
    names.forget("a-1/X-2")
    assert names.get("q/1") is None and not names.of_process
