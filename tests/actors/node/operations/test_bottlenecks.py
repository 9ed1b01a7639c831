"""Which stage holds a connection back (flow-control section 11, FC-66 to FC-71)."""

from __future__ import annotations

import pytest

from warren.actors.node.operations.observing.bottlenecks import ADVICE, verdict


def connection(**items):
    usual = {"name": "a -> b", "user": "guest", "vhost": "/", "state": "flow", "alarms": [], "pauses": []}
    return {**usual, "blocked_by": ["channel 1"], "blocked_share": 0.5, **items}


def channel(number, *queues, share=0.5):
    return {"number": number, "blocked_by": list(queues), "blocked_share": share}


def queue(name, *peers, share=0.0):
    return {"name": name, "blocked_by": list(peers), "blocked_share": share}


@pytest.mark.parametrize(
    ("held", "channels", "queues", "bottleneck", "subject", "evidence"),
    [
        (
            connection(),
            [channel(1)],
            {},
            "channel",
            "channel 1 of connection a -> b",
            "blocked the connection for 50% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders", share=0.25), channel(2, "orders", "bills", share=0.83), channel(3)],
            {"orders": queue("orders"), "bills": queue("bills")},
            "queue",
            "queues 'bills', 'orders' in vhost '/'",
            "blocked channels 1, 2 for 83% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders", "bills")],
            {"orders": queue("orders", "journal", share=0.4), "bills": queue("bills")},
            "message store",
            "the disk of vhost '/' on node warren@a",
            "its journal blocked queue 'orders' for 40% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders")],
            {"orders": queue("orders", "dead letters", share=0.5)},
            "queue",
            "queue 'orders' in vhost '/'",
            "blocked channel 1 for 50% of 5 s",
        ),
        (
            connection(state="blocked", alarms=["disk", "memory"]),
            [channel(1, "orders")],
            {"orders": queue("orders", "journal")},
            "resource alarm",
            "low disk and memory on node warren@a",
            "the connection is blocked",
        ),
        (
            connection(state="running", pauses=["output"]),
            [],
            {},
            "client",
            "the client of connection a -> b",
            "it does not read",
        ),
        (
            connection(),
            [channel(1, "link b@b", share=0.6)],
            {},
            "link",
            "the link to node 'b@b'",
            "blocked channel 1 for 60% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders")],
            {"orders": queue("orders", "link b@b", "link c@c", share=0.4)},
            "link",
            "the links to nodes 'b@b', 'c@c'",
            "blocked queue 'orders' for 40% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders")],
            {"orders": queue("orders", "journal", "link b@b", share=0.4)},
            "message store",
            "the disk of vhost '/' on node warren@a",
            "its journal and link blocked queue 'orders' for 40% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders")],
            {"orders": queue("orders", "ring", share=0.4)},
            "mirrors",
            "the mirrors of queue 'orders' in vhost '/'",
            "they lag, and blocked queue 'orders' for 40% of 5 s",
        ),
        (
            connection(),
            [channel(1, "orders")],
            {"orders": queue("orders", "copy", "ring", share=0.4)},
            "mirrors",
            "the mirrors of queue 'orders' in vhost '/'",
            "one copies, and blocked queue 'orders' for 40% of 5 s",
        ),
        (
            connection(pauses=["turn"]),
            [channel(1)],
            {},
            "channel",
            "channel 1 of connection a -> b",
            "blocked the connection for 50% of 5 s",
        ),
        (
            connection(pauses=["backlog of channel 1"]),
            [channel(1)],
            {},
            "client",
            "the client of connection a -> b",
            "it sends more methods than are answered",
        ),
    ],
)
def test_the_stage_that_is_too_slow(held, channels, queues, bottleneck, subject, evidence):
    """The slow stage is named, with the figures that show it (FC-66, FC-68)."""
    found = verdict(held, channels, queues.get, "warren@a")
    assert found == (bottleneck, subject, evidence)
    assert found.row(held)["advice"] == ADVICE[bottleneck]


@pytest.mark.parametrize("state", ["running", "closing", "blocking"])
def test_a_connection_that_is_not_held_back(state):
    """A connection is not held back by an alarm that is off, nor by the state `blocking` without an alarm, which lasts
    for a moment only.
    """
    assert verdict(connection(state=state), [channel(1, "orders")], {}.get, "warren@a") is None


def test_many_names_are_cut():
    queues = [f"q{number}" for number in range(10)]
    found = verdict(connection(), [channel(1, *queues)], {}.get, "warren@a")
    assert found.subject == "queues 'q0', 'q1', 'q2' and 7 others in vhost '/'"
