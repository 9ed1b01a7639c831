"""A whole node in simulated time: its real processes, and scripted clients at the other end of simulated sockets.

Every scenario is run twice and must give the same complete trace, with all fields of messages and all bytes; also while
every clock, thread, random source and socket of the real world raises an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warren.actors.node.process import NodeSupervisor
from warren.amqp import methods
from warren.runtime.sim.choosing import DrawnChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.trace import digest, message_name, whole_message
from warren.runtime.sim.world import Conditions, SimWorld
from warren.settings import Settings

from .amqp_script import ScriptedClient, consumer, publisher
from .sealing import no_real_world

PORT = 5672
BODIES = [b"%d" % number for number in range(20)]
SEEDS = range(5)


class Node:
    """A node on machine `a`, and clients of it."""

    def __init__(self, seed, chooser=None, *, conditions=None, sweep_interval=None, describe=message_name, **settings):
        self.world = SimWorld(seed, chooser, conditions=conditions, sweep_interval=sweep_interval, describe=describe)
        self.settings = Settings(port=PORT, **settings)
        self.clients = []
        self.boot()

    def boot(self):
        self.machine = self.world.machine("a")
        self.port = SimPort(self.machine.boot())
        self.address = self.port.base.newPrimaryActor(NodeSupervisor)
        self.facts = self.port.request(self.address, ("start", self.settings))

    def connect(self, script=None, *, ack=False, heartbeat=0, **options):
        client = ScriptedClient(script, ack=ack, heartbeat=heartbeat)
        self.clients.append(client)
        client.stream = self.world.connect("a", PORT, client, **options)
        return client

    def until(self, condition, seconds=60.0):
        assert self.world.run_until(condition, seconds), "it did not come to pass"

    def list(self, kind):
        return self.port.request(self.address, ("list", kind, None))

    def processes(self, name):
        return [address for address in self.port.base.cells if f"/{name}-" in address]


# -- scenarios: from a seed and what a world may be given to a node at its end ---------------------------


def publish_and_consume(seed, **options):
    """Declare, publish with confirms, consume, acknowledge."""
    node = Node(seed, **options)
    giver = node.connect(publisher("q", BODIES))
    taker = node.connect(consumer("q", prefetch=3), ack=True)
    node.until(lambda: giver.is_done and len(taker.deliveries) == len(BODIES))
    assert taker.bodies == BODIES
    assert not any(method.redelivered for method, _ in taker.deliveries)
    node.until(lambda: node.list("queues")[0]["messages"] == 0)
    return node


def rude_consumers(seed, **options):
    """Consumers that leave with unacknowledged messages, one after the other, in any state."""
    node = Node(seed, **options)
    giver = node.connect(publisher("q", BODIES))
    for _ in range(4):
        rude = node.connect(consumer("q", prefetch=3))
        node.world.run_steps(20 + node.world.below(60))
        (rude.stream.reset if node.world.below(2) else rude.stream.close)()
    taker = node.connect(consumer("q"), ack=True)
    node.until(lambda: giver.is_done and set(taker.bodies) == set(BODIES))
    assert taker.bodies == BODIES
    node.until(lambda: len(node.list("connections")) == 2)
    return node


def stalled_consumer(seed, **options):
    """A consumer that stops reading, with small buffers; later it goes on."""
    node = Node(seed, conditions=Conditions(socket_buffer=2_000), output_buffer_limit=4_000, **options)
    bodies = [bytes([number]) * 500 for number in range(60)]
    taker = node.connect(consumer("q", no_ack=True), buffer=1_000)
    node.until(lambda: taker.is_done)
    taker.stream.stall()
    giver = node.connect(publisher("q", bodies, confirm=False))
    node.until(lambda: giver.is_done)
    node.world.run(seconds=1.0)
    assert len(taker.deliveries) < 10
    taker.stream.stall(False)
    node.until(lambda: len(taker.deliveries) == len(bodies))
    assert taker.bodies == bodies
    return node


def queue_crash(seed, **options):
    """The queue crashes at some message, is restarted empty, and its consumer goes on."""
    node = Node(seed, **options)
    taker = node.connect(consumer("q", no_ack=True))
    node.until(lambda: taker.is_done)
    node.port.base.crash_when(
        lambda address, message: "/Queue-" in address and message[0] == "publish", after=bool(node.world.below(2))
    )
    giver = node.connect(publisher("q", BODIES, confirm=False))
    node.until(lambda: giver.is_done and node.world.crashes)
    later = node.connect(publisher("q", [b"later"], confirm=False))
    node.until(lambda: b"later" in taker.bodies)
    assert [type(error).__name__ for _, error in node.world.crashes] == ["SimulatedCrash"]
    assert later.end is None
    return node


def memory_alarm(seed, **options):
    """While memory is low a publisher is blocked from its first content on (AB-33): only contents that came with the
    same read as that one are taken.
    """
    node = Node(seed, vm_memory_high_watermark=0.5, **options)
    node.machine.memory.used = node.machine.memory.size
    node.world.run(seconds=1.0)
    giver = node.connect(publisher("q", BODIES, window=1))
    node.world.run(seconds=5.0)
    assert not giver.is_done and node.list("queues")[0]["messages"] <= 1
    node.machine.memory.used = 0
    node.until(lambda: giver.is_done)
    return node


def node_crash(seed, **options):
    """A node without a disk dies with its messages; clients notice and the next node starts empty."""
    node = Node(seed, **options)
    giver = node.connect(publisher("q", BODIES))
    node.world.run_steps(node.world.below(120))
    node.machine.crash()
    node.until(lambda: giver.end in ("closed", "reset", "refused"))
    node.boot()
    assert node.list("queues") == []
    again = node.connect(publisher("q", BODIES))
    node.until(lambda: again.is_done)
    return node


def heartbeats(seed, **options):
    """A client cut off by the network is closed after missed heartbeats; an idle one that sends heartbeats is not."""
    node = Node(seed, heartbeat=2, **options)
    silent = node.connect(consumer("q"), heartbeat=2, host="far away")
    node.until(lambda: silent.is_done)
    node.world.partition(["far away"], ["a"])
    started = node.world.time
    node.until(lambda: not node.processes("Connection"))
    assert 4.0 <= node.world.time - started <= 6.5
    return node


def stop_in_order(seed, **options):
    """A stop sends connection.close to the clients, and no process is left."""
    node = Node(seed, **options)
    client = node.connect(consumer("q"))
    node.until(lambda: client.is_done)
    assert node.port.request(node.address, ("stop", "maintenance")) is True
    node.world.settle()
    [close] = [method for method in client.heard if isinstance(method, methods.ConnectionClose)]
    assert close.reply_code == 320 and "maintenance" in close.reply_text
    node.port.base.shutdown()
    assert not node.port.base.cells
    return node


SCENARIOS = [
    publish_and_consume,
    rude_consumers,
    stalled_consumer,
    queue_crash,
    memory_alarm,
    node_crash,
    heartbeats,
    stop_in_order,
]


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.__name__)
def scenario(request):
    return request.param


# -- what holds of all of them ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scenario_run_twice_leaves_the_same_trace(scenario, seed):
    """Every step, every field of each message and every byte is compared."""
    first, second = (scenario(seed, describe=whole_message).world for _ in range(2))
    assert len(first.trace) > 50
    for one, other in zip(first.trace, second.trace):
        assert one == other
    assert first.trace == second.trace and first.time == second.time


def test_other_seeds_leave_other_traces(scenario):
    assert len({digest(scenario(seed).world.trace) for seed in SEEDS}) == len(SEEDS)


def test_how_much_the_trace_says_changes_nothing(scenario):
    brief, full = (scenario(3, describe=describe).world for describe in (message_name, whole_message))
    assert (brief.steps, brief.time, len(brief.trace)) == (full.steps, full.time, len(full.trace))


def test_with_sweeps_too(scenario):
    first, second = (scenario(4, sweep_interval=50).world for _ in range(2))
    assert first.trace == second.trace


def test_the_plainest_choices_will_do(scenario):
    scenario(0, chooser=DrawnChooser(lambda count: 0))


def test_only_planned_crashes(scenario):
    """In none of these schedules does a process crash by itself."""
    for seed in range(20, 30):
        assert {type(error).__name__ for _, error in scenario(seed).world.crashes} <= {"SimulatedCrash"}


@pytest.fixture
def sealed(monkeypatch):
    with no_real_world(monkeypatch):
        yield


def test_nothing_of_the_real_world_is_used(scenario, sealed):
    assert len(scenario(1).world.trace) > 50


@pytest.fixture(scope="module")
def digests_elsewhere():
    """The digest of each scenario's trace in two processes, in which Python orders sets of texts differently."""
    code = f"""
import sys, logging
logging.disable(logging.CRITICAL)
from {__name__} import SCENARIOS
from warren.runtime.sim.trace import digest, whole_message
for scenario in SCENARIOS:
    print(scenario.__name__, digest(scenario(2, describe=whole_message).world.trace))
"""
    root = Path(__file__).parents[__name__.count(".")]
    found = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200, cwd=root
        )
        assert ran.returncode == 0, ran.stderr
        found.append(dict(line.split() for line in ran.stdout.splitlines()))
    return found


def test_the_trace_is_the_same_in_every_process(scenario, digests_elsewhere):
    """The trace does not depend on the hashes of strings or the addresses of objects, so other processes get the same
    one.
    """
    here = digest(scenario(2, describe=whole_message).world.trace)
    assert [found[scenario.__name__] for found in digests_elsewhere] == [here, here]


# -- what a simulation costs -----------------------------------------------------------------------------


def test_it_is_fast_enough_for_thousands_of_schedules_a_minute():
    """The limit is ten times what an idle machine takes (docs/internals/simulation.md): 1,500 a minute."""
    started = time.process_time()
    steps = [publish_and_consume(seed).world.steps for seed in range(30)]
    seconds = (time.process_time() - started) / len(steps)
    assert sum(steps) / len(steps) > 150
    assert seconds < 0.040
