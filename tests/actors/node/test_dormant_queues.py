"""After a restart, durable queues without a message are dormant: they have no process until one is needed."""

from __future__ import annotations

import pytest

from warren.amqp.fields import table_from

from ..durable_node import DurableNode

V = "/"
WAIT = 300.0


def declare(node, name, **arguments):
    table = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
    node.meta.ask("declare_queue", V, name, True, None, False, table, "c")


def row(node, name="q"):
    return node.routing.queue(V, name)


def is_dormant(node, name="q"):
    return row(node, name).address.actorAddressString in node.base.dormant.by_address


def ask(node, message, name="q"):
    return node.client.ask(row(node, name).address, message, WAIT)


@pytest.fixture(params=["killed", "stopped"])
def end(request):
    """The ways in which a node ends."""
    return DurableNode.drop if request.param == "killed" else DurableNode.stop


def test_an_empty_queue_is_dormant_until_it_is_needed(tmp_path, end):
    """An empty queue counts as running, and answers the first request like any queue; the other queues stay dormant."""
    with DurableNode(tmp_path) as node:
        declare(node, "q")
        declare(node, "other")
        assert not is_dormant(node)
        end(node)
    with DurableNode(tmp_path) as node:
        assert row(node).state == "running" and is_dormant(node)
        assert ask(node, ("counts",)) == (0, 0)
        assert not is_dormant(node) and is_dormant(node, "other")


def test_a_dormant_queue_stays_dormant_over_several_starts(tmp_path, end):
    """A queue stays dormant over any number of starts, as long as nothing needs it."""
    with DurableNode(tmp_path) as node:
        declare(node, "q")
        end(node)
    for _ in range(3):
        with DurableNode(tmp_path) as node:
            assert is_dormant(node)
            end(node)
    with DurableNode(tmp_path) as node:
        assert ask(node, ("counts",)) == (0, 0)


def test_a_queue_that_expires_has_its_process(tmp_path, end, eventually):
    """A queue with `x-expires` gets its process at the start, because its timer must run."""
    with DurableNode(tmp_path) as node:
        declare(node, "q", x_expires=300_000)
        declare(node, "soon", x_expires=1)
        end(node)
    with DurableNode(tmp_path) as node:
        assert not is_dormant(node)
        eventually(lambda: row(node, "soon") is None)


def test_a_listing_has_the_counts_of_dormant_queues(tmp_path, end):
    with DurableNode(tmp_path) as node:
        declare(node, "q")
        end(node)
    with DurableNode(tmp_path) as node:
        [items] = node.ask_node("list", "queues", V)
        assert (items["name"], items["messages"], items["consumers"]) == ("q", 0, 0)


def test_a_dormant_queue_can_be_deleted(tmp_path, end):
    """A dormant queue can be deleted, and does not come back at the next start."""
    with DurableNode(tmp_path) as node:
        declare(node, "q")
        end(node)
    with DurableNode(tmp_path) as node:
        assert node.meta.delete("q") == 0
        end(node)
    with DurableNode(tmp_path) as node:
        assert row(node) is None


def test_settings_wake_a_dormant_queue(tmp_path, end):
    with DurableNode(tmp_path) as node:
        declare(node, "q")
        end(node)
    with DurableNode(tmp_path) as node:
        node.ask_node("set_queue_mode", V, "q", "lazy")
        assert ask(node, ("info",))["arguments"] is not None
        assert not is_dormant(node)
