"""Queues on several nodes share the rate of their pace group (QP-106)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from warren.actors.metadata.state.commands import PutRecords
from warren.actors.pace.holder import holder
from warren.amqp import methods as m
from warren.definitions.records import Policy

#: The node on which each queue has its home.
HOMES = {"x": "a", "y": "b", "z": "b"}


def group_of(nodes, node):
    """The name of a pace group whose clock this node holds."""
    context = nodes.nodes["a"].processes("Pacer")[0].context
    return next(name for name in map(str, range(100)) if holder(context, ("/", name)) == f"warren@{node}")


class Shop:
    """Three queues that share 100 messages a second, each with 3,000 messages and a consumer."""

    def __init__(self, nodes, holder_node, busy="xyz", rate=100, groups=()):
        """If `groups` are given, each queue has a consumer of each consumer group, and each consumer group has the
        rate.
        """
        self.nodes = nodes
        definition = {"pace-rate": rate, "pace-group": group_of(nodes, holder_node)}
        if groups:
            definition["pace-scope"] = "group"
        nodes.propose(PutRecords((Policy("/", "paced", "^[xyz]$", json.dumps(definition)),)))
        self.channels = {}
        for queue, home in HOMES.items():
            nodes.home(home)
            channel = nodes.channel(home)
            channel.queue(queue)
            self.channels[queue] = channel
        for queue in busy:
            for _ in range(3000):
                self.channels[queue].publish("m", queue)
            self.channels[queue].expect_ready(queue, 3000)
        for queue, channel in self.channels.items():
            for group in groups or ("",):
                arguments = {"x-consumer-group": group} if group else {}
                channel.consume(queue, f"of {group}", no_ack=True, arguments=arguments)
        nodes.world.run(1.0)
        self.delivered()

    def delivered(self):
        """How many messages each queue has delivered since the last call; `self.got` counts them by consumer."""
        self.got = Counter()
        found = {}
        for queue, channel in self.channels.items():
            while channel.client.receive(0.0):
                pass
            events = channel.client.events[channel.number]
            deliveries = [event.method for event in events if isinstance(event.method, m.BasicDeliver)]
            found[queue] = len(deliveries)
            self.got.update(method.consumer_tag for method in deliveries)
            events.clear()
        return found

    def run(self, seconds):
        self.nodes.world.run(seconds)
        return self.delivered()


@pytest.mark.parametrize("busy", ["xyz", "xz", "y"])
def test_the_sum_is_the_rate_whoever_is_busy(make, busy):
    shop = Shop(make("abc"), "c", busy)
    found = shop.run(10.0)
    assert sum(found.values()) == pytest.approx(1000, rel=0.02)
    for queue in busy:
        assert found[queue] == pytest.approx(1000 / len(busy), rel=0.1), "they take turns"


@pytest.mark.parametrize("busy", ["xyz", "y"])
def test_each_group_of_consumers_gets_the_rate_from_all_queues_together(make, busy):
    shop = Shop(make("abc"), "c", busy, groups=("one", "two"))
    shop.run(5.0)
    assert shop.got == {"of one": pytest.approx(500, rel=0.03), "of two": pytest.approx(500, rel=0.03)}


def test_a_high_rate_is_kept_on_average(make):
    shop = Shop(make("abc"), "c", rate=500)
    assert sum(shop.run(5.0).values()) == pytest.approx(2500, rel=0.02)


def test_another_node_goes_on_with_the_clock(make):
    """While the node that holds the clock cannot be reached, the queues deliver nothing. When it counts as down,
    another node takes the clock over, and both clocks together never exceed the rate.
    """
    nodes = make("abc")
    shop = Shop(nodes, "c")
    nodes.kill("c")
    began = nodes.world.now()
    held = sum(shop.run(0.5).values())
    assert held <= 100 * (nodes.world.now() - began) + 12, "what was leased, and no more"
    assert shop.run(0.5) == {"x": 0, "y": 0, "z": 0}
    nodes.down("c")
    assert sum(shop.run(1.0).values()) >= 70
    assert sum(shop.run(5.0).values()) == pytest.approx(500, rel=0.03)


def test_a_clock_moves_to_the_node_that_holds_it_from_now_on(make):
    """A node that comes back takes its clocks back while queues wait at the node that held them meanwhile."""
    nodes = make("abc")
    nodes.kill("c")
    nodes.down("c")
    context = nodes.nodes["a"].processes("Pacer")[0].context
    before = holder(context, ("/", "0"))
    shop = Shop(nodes, before.removeprefix("warren@"))
    nodes.restart("c")
    nodes.up("a", "b", "c")
    assert sum(shop.run(2.0).values()) >= 150
    assert sum(shop.run(5.0).values()) == pytest.approx(500, rel=0.03)
