"""The memory that a node which stands still costs the others is bounded (CL-15)."""

from __future__ import annotations

import threading
import time

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client
from warren.tests.cluster_system.nodes import linked_nodes, wait_for

#: `COUNT` such bodies are more than Linux buffers for a node that does not read, which is 33 MB there and 4 MB here.
BODY = b"x" * 400_000
COUNT = 250
#: If this many bytes of a link are unsent, the link is full, or was full and has been emptied to this point.
FULL = 4 * 1024 * 1024
#: How many bytes may be unsent: 8 MiB, and what the connection has read in the turn in which they are reached.
MOST = 40_000_000
#: Seconds after which a publisher that has published nothing more counts as stopped.
CALM_SECONDS = 1.0
#: While one of the two nodes is paused, the other one has no majority. It serves clients until its lease ends, after
#: three quarters of this, and then closes their connections with 320. With 60 a test fails if it pauses a node for more
#: than 45 s, as on a very busy machine. A new leader may wait as long as this for a sign of life of the other node, so
#: the nodes are ready in time only if this is less than `READY_SECONDS`.
TICKTIME = 240


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two nodes with so long a `net_ticktime` that one serves clients while a test pauses the other."""
    with linked_nodes(tmp_path_factory.mktemp("nodes"), 2, f"net_ticktime = {TICKTIME}") as nodes:
        nodes.start()
        yield nodes


@pytest.fixture
def clients(nodes):
    made = [Client(node.url, timeout=300) for node in nodes]
    yield made
    nodes.heal()
    for client in made:
        client.abort()


@pytest.fixture
def unsent(nodes, command):
    """`unsent()` is the number of bytes that wait in the first node for the second one."""
    first, _ = nodes
    return lambda: sum(row["unsent"] for row in command.json(first, "links", "unsent"))


def test_a_flood_of_publishes_for_a_node_that_stands_still_stops(nodes, clients, unsent):
    """The connection of the publisher is no longer read, and everything is confirmed when the paused node goes on."""
    _, second = nodes
    near, far = (client.channel() for client in clients)
    far.queue("flood")
    near.confirm()
    second.pause()
    published = []

    def flood():
        for _ in range(COUNT):
            near.publish(BODY, "flood")
            published.append(1)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    wait_for("the link to be full", lambda: unsent() >= FULL)
    before = -1
    while len(published) != before:
        before = len(published)
        time.sleep(CALM_SECONDS)
    assert unsent() < MOST
    assert len(published) < COUNT
    nodes.heal()
    thread.join(300.0)
    assert not thread.is_alive()
    assert near.confirms(1, COUNT) == (list(range(1, COUNT + 1)), [])
    assert far.purge("flood") == COUNT


def test_a_queue_keeps_what_a_node_that_stands_still_does_not_take(nodes, clients, unsent):
    _, second = nodes
    near, far = (client.channel() for client in clients)
    near.queue("kept")
    near.confirm()
    far.consume("kept", no_ack=True)
    second.pause()
    for number in range(1, COUNT + 1):
        # Wait for each confirm, because the queue delivers in one turn all it received in one turn, before the link is
        # full.
        near.publish(BODY, "kept")
        near.confirms(number, number)
    wait_for("the link to be full", lambda: unsent() >= FULL)
    waiting = near.ready("kept")
    assert waiting > COUNT - 200, f"the queue stopped at its limit of unsent deliveries; {unsent():,} bytes are unsent"
    nodes.heal()
    assert len(far.bodies(COUNT)) == COUNT
    assert not [event for event in far.pending if isinstance(event.method, m.BasicCancel)]
