"""Which queues `forget_cluster_node` says it would delete (CL-46)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.metadata.state.commands import RemoveNode
from warren.actors.node.operations.operating.cluster import forget_cluster_node
from warren.actors.node.operations.registry import OperationError
from warren.definitions.definitions import Definitions
from warren.definitions.records import Node
from warren.routing.rows import Member, MirrorGroup, QueueRow
from warren.routing.table import RoutingTable


class Asked:
    """Stub of the process that runs an operation of an operator. It keeps the command that was proposed."""

    def __init__(self):
        self.proposed = None

    def now(self):
        return 0.0

    async def in_steps(self, function, items):
        return [function(item) for item in items]

    async def ask(self, address, message, timeout=None):
        self.proposed = message[1]


def forgotten(*rows):
    """What the operation on b answers, of a cluster with these queues, and the command that it proposes."""
    routing, definitions = RoutingTable(), Definitions()
    routing.add_vhost("/")
    for row in rows:
        routing.put_queue(row)
    for name in "abc":
        definitions.put(Node(name, name, incarnation="1" if name == "a" else ""))
    process = Asked()
    context = SimpleNamespace(routing=routing, definitions=definitions, metadata=None)
    try:
        forget_cluster_node(SimpleNamespace(context=context, process=process), node="b").send(None)
    except StopIteration as stop:
        return stop.value, process.proposed
    raise AssertionError("it waits")


def mirrored(nodes):
    """A mirrored queue with these nodes in its ring, none of which runs."""
    group = MirrorGroup(tuple(Member(name, "1", number) for number, name in enumerate(nodes, 1)))
    return QueueRow("/", "mirrored", None, "id1", True, state="down", node=nodes[0], replicas=tuple(nodes), group=group)


def test_a_queue_of_which_another_node_has_all_messages_stays():
    """c has all messages too, and brings the queue back when it starts. The operation said that it would be deleted."""
    assert forgotten(mirrored("bc")) == ([], RemoveNode("b"))


@pytest.mark.parametrize("row", [QueueRow("/", "plain", None, "id2", True, node="b", state="down"), mirrored("b")])
def test_a_queue_that_only_this_node_has_needs_consent(row):
    with pytest.raises(OperationError, match="1 durable queues are at home on b, and no other node has") as refused:
        forgotten(row)
    assert refused.value.details == (f"queue '{row.name}' in vhost '/'",)
