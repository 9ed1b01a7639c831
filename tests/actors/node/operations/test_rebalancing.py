"""`rebalance` when a master cannot be moved (CM-65)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.actors.node.operations.operating import masters
from warren.actors.node.operations.registry import OperationError
from warren.definitions.definitions import Definitions
from warren.definitions.records import Node
from warren.routing.rows import Member, MirrorGroup, QueueRow
from warren.routing.table import RoutingTable

NODES = "ab"


@pytest.fixture
def operator():
    """An operator of a node that leads four mirrored queues, with a replica of each on another node."""
    routing, definitions = RoutingTable(), Definitions()
    routing.add_vhost("/")
    group = MirrorGroup(tuple(Member(name, "1", number) for number, name in enumerate(NODES, 1)))
    for number in range(4):
        routing.put_queue(QueueRow("/", f"q{number}", None, f"id{number}", node="a", replicas=("a", "b"), group=group))
    for name in NODES:
        definitions.put(Node(name, name, incarnation="1"))
    return SimpleNamespace(context=SimpleNamespace(routing=routing, definitions=definitions, node_name="a"))


@pytest.fixture
def moves(monkeypatch):
    """The queues of which a move was tried; each move fails."""
    tried = []

    async def fail(operator, row, to):
        tried.append(row.name)
        raise OperationError("unavailable", f"the master of {row.name} has not moved")

    monkeypatch.setattr(masters, "_move", fail)
    return tried


def rebalance(operator):
    masters.rebalance(operator).send(None)


def test_it_ends_when_the_node_has_no_majority(operator, moves, monkeypatch):
    """It tried each of the other queues for 15 s, though nothing can be agreed on."""

    async def has_none(operator):
        return False

    monkeypatch.setattr(masters, "has_majority", has_none)
    with pytest.raises(OperationError, match="the other masters have not been moved, .* a majority of its cluster"):
        rebalance(operator)
    assert moves == ["q0"]


def test_it_goes_on_after_a_queue_that_cannot_be_moved(operator, moves, monkeypatch):
    async def has_one(operator):
        return True

    monkeypatch.setattr(masters, "has_majority", has_one)
    with pytest.raises(StopIteration):
        rebalance(operator)
    assert moves == ["q0", "q1", "q2", "q3"]
