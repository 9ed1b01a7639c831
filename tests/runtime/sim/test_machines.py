"""Several machines in one world: paused, crashed, without power, booted again; and the links between them."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace

import pytest

from warren.runtime.errors import ProcessDown
from warren.runtime.process import Process
from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.sim.machine import PowerCut, SimMemory
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld

from .test_sim_sockets import Client, Server, Stage, Talker

SEEDS = range(30)


class Peer(Process):
    """Asks, monitors and answers processes on other machines."""

    def __init__(self):
        super().__init__()
        self.heard = []
        self.downs = []
        self.ticks = 0

    def on_tell(self, sender, target, count):
        for number in range(count):
            self.send(target, ("hear", number))

    def on_hear(self, sender, what):
        self.heard.append(what)

    def on_heard(self, sender):
        return list(self.heard)

    async def on_inquire(self, sender, target, timeout):
        return await self.ask(target, ("heard",), timeout)

    def on_watch_over(self, sender, target):
        self.monitor(target, "it")
        return True

    def on_down(self, name, reason):
        self.downs.append((name, str(reason)))

    def on_downs(self, sender):
        return list(self.downs)

    def on_end(self, sender):
        self.stop("tired")

    def on_tick(self, sender):
        self.start_timer(1.0)

    def on_timer(self, payload):
        self.ticks += 1
        self.start_timer(1.0)

    def on_ticks(self, sender):
        return self.ticks


class Careful(Process):
    """Has a coroutine that waits and an on_exit, neither of which may run when the machine crashes."""

    def on_wait(self, sender, log):
        self.log = log
        self.spawn(self.hold(log))

    async def hold(self, log):
        try:
            await self.run_blocking(log.append, "written")
            log.append("known")
        finally:
            log.append("closed")
            self.send(self.myAddress, ("wait", log))
            self.start_timer(1.0)
            self.run_blocking(log.append, "never")

    def on_exit(self):
        self.log.append("exit")


class Brink(Process):
    def on_step(self, sender):
        raise PowerCut

    async def on_write(self, sender):
        await self.run_blocking(self.fail)

    @staticmethod
    def fail():
        raise PowerCut


class Pair:
    """Two machines with a `Peer` on each, whose systems are connected."""

    def __init__(self, seed=1):
        self.world = SimWorld(seed)
        self.link = self.world.link_systems("a", "b")
        self.ports = [SimPort(self.world.machine(name).boot()) for name in "ab"]
        self.peers = [port.base.newPrimaryActor(Peer) for port in self.ports]
        assert self.world.settle()

    def ask(self, number, *message):
        return self.ports[number].request(self.peers[number], message)

    def tell(self, count=1):
        self.ports[0].tell(self.peers[0], ("tell", self.peers[1], count))
        assert self.world.settle()


def lost(world):
    return [entry for entry in world.trace if entry[1] == "lost"]


# -- messages between machines ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_travel_late_and_in_order(seed):
    pair = Pair(seed)
    pair.tell(10)
    assert pair.ask(1, "heard") == list(range(10))


def test_processes_ask_across_machines():
    pair = Pair()
    pair.tell(2)
    assert pair.ask(0, "inquire", pair.peers[1], None) == [0, 1]


def test_a_stranger_cannot_be_asked():
    """An ask to a process that has ended, on a machine that still runs, fails."""
    pair = Pair()
    pair.ports[1].tell(pair.peers[1], ("end",))
    pair.world.settle()
    with pytest.raises(ProcessDown, match="noproc"):
        pair.ask(0, "inquire", pair.peers[1], None)


def test_an_end_is_told_across_machines():
    pair = Pair()
    assert pair.ask(0, "watch_over", pair.peers[1])
    pair.world.settle()
    pair.ports[1].tell(pair.peers[1], ("end",))
    pair.world.settle()
    assert pair.ask(0, "downs") == [("it", "tired")]
    pair.ask(0, "watch_over", pair.peers[1])
    pair.world.settle()
    assert pair.ask(0, "downs") == [("it", "tired"), ("it", "noproc")]


def test_machines_share_nothing():
    """Messages between machines are copied, and one that cannot be pickled cannot be sent."""
    pair = Pair()
    secret = {"key": 1}
    pair.ports[0].tell(pair.peers[1], ("hear", secret))
    pair.world.settle()
    secret["key"] = 2
    assert pair.ask(1, "heard") == [{"key": 1}]
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pair.ports[0].tell(pair.peers[1], ("hear", lambda: None))


def test_a_link_that_is_cut_one_way_ends_the_connection_of_both_sides():
    """A link that is cut in one direction ends the session on both sides. What was sent into the cut is lost once one
    side has noticed it; after the mend they connect again.
    """
    pair = Pair()
    pair.world.link("a", "b").cut()
    pair.tell(3)
    assert [pair.link.session(name) for name in "ab"] == [None, None]
    pair.world.mend()
    assert pair.world.settle()
    assert pair.ask(1, "heard") == []
    assert [entry[2:] for entry in lost(pair.world)] == [
        (*(peer.actorAddressString for peer in pair.peers), "hear")
    ] * 3
    assert pair.link.session("a") == pair.link.session("b") == 2
    pair.tell(1)
    assert pair.ask(1, "heard") == [0]


def test_a_cut_that_nobody_notices_loses_nothing():
    pair = Pair()
    pair.world.conditions = replace(pair.world.conditions, detection_delay=1000.0)
    for seed in range(20):
        pair.world.below = SeedChooser(seed).below
        pair.world.partition(["a"], ["b"])
        pair.ports[0].tell(pair.peers[0], ("tell", pair.peers[1], 3))
        pair.world.run(0.001)
        pair.world.mend()
        pair.world.settle()
        if pair.link.session("a") == 1:
            break
    assert pair.link.session("a") == pair.link.session("b") == 1
    assert pair.ask(1, "heard")[-3:] == [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_side_that_gives_up_takes_the_other_one_along(seed):
    """If one side notices a cut and gives up the session before the mend, the other side, which noticed nothing, leaves
    it too.
    """
    pair = Pair(seed)
    pair.world.link("a", "b").cut()
    pair.world.run_until(lambda: None in [pair.link.session(name) for name in "ab"])
    pair.world.mend()
    assert pair.world.settle()
    assert pair.link.session("a") == pair.link.session("b") == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_loses_power_while_it_connects_is_noticed(seed):
    """A machine that loses power while it connects is noticed, although nobody tells the other side, not even if the
    network is cut and mended meanwhile.
    """
    world = SimWorld(seed)
    link = world.link_systems("a", "b")
    for name in "ab":
        world.machine(name).boot()
    world.run(world.below(5) * 1e-3)
    world.machine("a").crash(power=False)
    world.partition(["a"], ["b"])
    world.mend()
    assert world.settle()
    assert link.session("b") is None


def test_a_system_that_is_not_connected_is_noticed_at_once():
    """Asks and monitors of a system that is not connected get `noconnection` at once, and other messages are
    undelivered until the link is mended.
    """
    pair = Pair()
    pair.world.partition(["a"], ["b"])
    pair.world.settle()
    for here, there in ((0, 1), (1, 0)):
        with pytest.raises(ProcessDown, match="noconnection: the connection to its system is lost"):
            pair.ask(here, "inquire", pair.peers[there], None)
    assert pair.ask(0, "watch_over", pair.peers[1])
    pair.tell(2)
    assert pair.ask(0, "downs") == [("it", "noconnection: the connection to its system is lost")]
    assert pair.ports[0].base.undelivered.count == 2
    pair.world.mend()
    pair.world.settle()
    assert pair.ask(0, "inquire", pair.peers[1], 5.0) == []


# -- pauses ----------------------------------------------------------------------------------------------


def test_a_paused_machine_does_nothing_and_time_goes_on():
    pair = Pair()
    pair.ports[1].tell(pair.peers[1], ("tick",))
    pair.world.run(3.5)
    machine = pair.world.machine("b")
    machine.pause()
    pair.tell(2)
    pair.world.run(3600.0)
    assert pair.world.is_quiet()
    machine.resume()
    pair.world.settle()
    assert pair.ask(1, "heard") == [0, 1]
    assert pair.ask(1, "ticks") == 4, "a timer that rings late rings once"


def test_the_kernel_of_a_paused_machine_goes_on():
    """It accepts connections and keeps their data while the process does not run."""
    stage = Stage()
    machine = stage.world.machine("a")
    machine.pause()
    client, _ = stage.connect(b"anybody?")
    assert client.events == ["connected"]
    machine.resume()
    stage.world.settle()
    assert b"".join(stage.ask("told")[1]) == b"anybody?"


# -- crashes ---------------------------------------------------------------------------------------------


def test_a_machine_is_booted_once():
    world = SimWorld()
    base = world.machine("a").boot()
    with pytest.raises(RuntimeError, match="machine a already"):
        world.machine("a").boot()
    world.machine("a").crash()
    assert world.machine("a").boot().name == "a-2" and base.name == "a-1"


def test_what_lived_before_the_crash_is_dead_after_it():
    """The next run of the node is another system, so it is certain that a process of the earlier one has ended."""
    pair = Pair()
    pair.world.machine("b").crash()
    pair.world.settle()
    pair.tell(1)
    with pytest.raises(ProcessDown, match="noconnection"):
        pair.ask(0, "inquire", pair.peers[1], None)
    port = SimPort(pair.world.machine("b").boot())
    pair.world.settle()
    pair.tell(1)
    assert pair.ports[0].base.undelivered.count == 2
    with pytest.raises(ProcessDown, match="noproc"):
        pair.ask(0, "inquire", pair.peers[1], None)
    with pytest.raises(ProcessDown, match="noproc"):
        port.request(pair.peers[1], ("heard",))
    assert port.request(port.base.newPrimaryActor(Peer), ("heard",)) == []


def test_who_asked_a_machine_that_crashes_hears_of_it():
    pair = Pair()
    answer = pair.ports[1].begin(pair.peers[1], ("heard",))
    pair.world.machine("b").crash()
    for asked in (answer, pair.ports[1].begin(pair.peers[1], ("heard",))):
        with pytest.raises(ProcessDown, match="the machine crashed"):
            asked.value()


def crashed(seed, steps):
    """What `Careful` had written when its machine crashed after `steps` steps."""
    world = SimWorld(seed)
    port = SimPort(world.machine("a").boot())
    log = []
    port.tell(port.base.newPrimaryActor(Careful), ("wait", log))
    world.run_steps(steps)
    before = list(log)
    world.machine("a").crash()
    assert world.settle() and not world.step()
    assert log in (before, [*before, "closed"]), "nothing happens after the end"
    return tuple(before), log


def test_a_crash_loses_blocking_calls_and_calls_no_actor():
    """A crash of a machine calls no actor, and of a blocking call one of three things is true: it was not made, or its
    result did not arrive, or all was done before the crash.
    """
    outcomes = [crashed(seed, steps) for seed in range(20) for steps in (1, 2, 3)]
    assert {before for before, _ in outcomes} == {(), ("written",), ("written", "known", "closed")}
    gc.collect()
    assert all("exit" not in log and "never" not in log for before, log in outcomes if "known" not in before)


def test_a_power_cut_can_come_from_within():
    """A power cut can come from a disk operation, in a turn of a process or in a blocking call."""
    for message in ("step", "write"):
        world = SimWorld()
        machine = world.machine("a")
        port = SimPort(machine.boot())
        port.tell(port.base.newPrimaryActor(Brink), (message,))
        assert world.settle()
        assert machine.base is None and not machine.is_up
        assert world.trace[-1][1:] == ("machine", "a", "power cut")
        assert world.crashes == []
        machine.boot()
        assert machine.is_up


def test_other_errors_that_are_no_exceptions_come_out():
    world = SimWorld()
    port = SimPort(world.machine("a").boot())
    world.machine("a").stopped_by = ()
    port.tell(port.base.newPrimaryActor(Brink), ("step",))
    with pytest.raises(PowerCut):
        world.settle()


# -- and their connections -------------------------------------------------------------------------------


def test_the_kernel_closes_what_a_dead_process_had_open():
    stage = Stage()
    client, _ = stage.connect(b"hello")
    stage.world.machine("a").crash()
    stage.world.settle()
    assert client.events == ["connected", "closed"]
    assert stage.connect()[0].events == ["refused"]


def test_without_power_no_client_is_notified():
    """Clients of a machine without power are notified of nothing: they get a reset after its next boot, when it has no
    record of their connections.
    """
    stage = Stage()
    client, stream = stage.connect(b"hello")
    machine = stage.world.machine("a")
    machine.crash(power=False)
    stream.write(b"still there?")
    stage.world.settle()
    assert client.events == ["connected"]
    machine.boot()
    stream.write(b"hello?")
    stage.world.settle()
    assert client.events == ["connected", "reset"]


def test_a_machine_that_came_back_listens_when_its_actors_do():
    stage = Stage()
    machine = stage.world.machine("a")
    machine.crash()
    port = SimPort(machine.boot())
    assert stage.connect()[0].events == ["refused"]
    server = port.base.newPrimaryActor(Server)
    port.request(server, ("start", Talker))
    client = Client([b"again"])
    stage.world.connect("a", 7, client)
    stage.world.settle()
    assert b"".join(port.request(port.request(server, ("talkers",))[0], ("told",))[1]) == b"again"


def test_memory_is_what_the_scenario_says():
    memory = SimMemory(size=1000, used=10)
    meter = memory.meter()
    memory.used = 20
    assert (memory.total(), meter.anonymous(), memory.trimmer()) == (1000, 20, None)


def test_names_of_machines():
    with pytest.raises(ValueError, match="'a/b' cannot be the name of a machine"):
        SimWorld().machine("a/b")
