"""A paced queue on virtual time: when each message reaches its consumer."""

from __future__ import annotations

import json

import pytest

from warren.actors.context.node_context import NodeContext
from warren.actors.queue.process import Queue
from warren.amqp.frames import build_content
from warren.definitions.records import Policy
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld
from warren.settings import Settings
from warren.store.messages.message import Origin

from ..stage import PROPS


class Client(Process):
    """A channel that publishes and consumes, and records when each message arrives."""

    def __init__(self):
        super().__init__()
        self.times = []

    def on_publish_all(self, sender, queue, count):
        contents = [build_content(1, PROPS, b"body", 4096)] * count
        self.send(queue, ("publish", "client", [(Origin("", ("q",)), contents, 4 * count, 1, False, 0)]))

    async def on_consume(self, sender, queue):
        address = self.myAddress
        await self.ask(queue, ("consume", "client", address, "c", True, False, 0, False, 0, (), "guest"))

    def on_deliver(self, sender, queue_id, tag, runs):
        count = sum(len(run[3]) for run in runs)
        self.times += [self.now()] * count
        self.send(sender, ("sent", "client", count))

    def on_bump(self, sender, peer, amount):
        pass

    def on_seen(self, sender):
        return self.times


def delivered(seed, count, **pace):
    """When each of `count` messages that are published at once is delivered, with the schedule of this seed."""
    world = SimWorld(0, SeedChooser(seed))
    port = SimPort(world.machine("a").boot())
    client, queue = port.base.newPrimaryActor(Client), port.base.newPrimaryActor(Queue)
    routing = RoutingTable()
    routing.add_vhost("/")
    context = NodeContext("warren@test", Settings(), routing, client, client, client)
    definition = {f"pace-{key.replace('_', '-')}": value for key, value in pace.items()}
    context.definitions.put(Policy("/", "paced", "^q$", json.dumps(definition), "queues", 0, False))
    row = QueueRow("/", "q", queue, "id of q")
    routing.put_queue(row)
    assert port.request(queue, ("start", context, row)) is True
    port.tell(client, ("publish_all", queue, count))
    port.tell(client, ("consume", queue))
    world.run(3.0)
    return port.request(client, ("seen",))


def test_a_burst_is_spread_on_every_schedule():
    """A burst of 50 messages at 100 a second is spread on every schedule: no two deliveries are closer than 10 ms, and
    the last comes not much later than it should.
    """
    for seed in range(20):
        times = delivered(seed, 50, rate=100)
        assert len(times) == 50
        gaps = [later - earlier for earlier, later in zip(times, times[1:])]
        assert min(gaps) >= 0.0099, seed
        assert times[-1] - times[0] < 2 * 0.49, seed


def test_high_rates_are_kept_on_average():
    """A rate of 1,000 a second is kept on average over half a second."""
    for seed in range(10):
        times = delivered(seed, 500, rate=1000)
        assert len(times) == 500
        assert 0.48 <= times[-1] - times[0] < 1.0, seed


@pytest.mark.parametrize(
    "pace",
    [
        {"rate": 1e-300},
        {"rate": 5e-324, "period_ms": 2**63 - 1, "warm_up_ms": 2**63 - 1, "burst": 2**63 - 1, "max_wait_ms": 2**63 - 1},
        {"rate": 1e-300, "scope": "consumer"},
    ],
)
def test_the_slowest_rates(pace):
    """A rate whose period no integer can express is a very slow one. Such a policy once crashed its queues."""
    assert delivered(1, 5, **pace) == []
