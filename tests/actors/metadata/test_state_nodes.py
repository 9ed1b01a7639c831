"""What the commands about members of the cluster do to the state (CL-33, CL-42, CL-45)."""

from __future__ import annotations

import pytest

from warren.actors.metadata.state.commands import (
    AddNode,
    Bind,
    ChangeNodes,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    RemoveNode,
    TrimBindings,
    TrimVhost,
)
from warren.actors.metadata.state.state import State, apply
from warren.amqp.errors import AmqpError
from warren.definitions.errors import DefinitionError
from warren.definitions.features import LIVE_HOMES
from warren.definitions.records import EnabledFeature, Node
from warren.routing.rows import NO_ARGUMENTS, Binding, ExchangeRow, QueueRow

A, B = (Node(name, name * 32, address=f"{name}:25672") for name in "ab")


def run(node: Node, incarnation: str) -> Node:
    return Node(node.name, node.node_id, address=node.address, incarnation=incarnation)


@pytest.fixture
def state():
    """A state with two nodes that run; each is the home of a durable, a transient and an exclusive queue."""
    state = State()
    apply(state, CreateVhost("/"))
    for node in (A, B):
        apply(state, AddNode(node))
    apply(state, ChangeNodes(up=(run(A, "1"), run(B, "1"))))
    for name in "ab":
        for kind, durable, owner in (("durable", True, None), ("transient", False, None), ("own", False, "connection")):
            row = QueueRow("/", f"{kind}-{name}", None, f"{kind}{name}", durable, exclusive_owner=owner, node=name)
            apply(state, DeclareQueue(row, False))
    return state


def queues(state: State) -> dict[str, str]:
    return {name: row.state for name, row in state.vhosts["/"].queues.items()}


def test_each_node_has_a_number_of_its_own_for_ever(state):
    apply(state, RemoveNode("a"))
    apply(state, AddNode(A))
    assert [state.definitions.node(name).number for name in "ab"] == [3, 2]


def test_another_data_directory_under_the_name_of_a_member_is_refused(state):
    before = dict(state.definitions.nodes)
    with pytest.raises(DefinitionError, match="a is a member of this cluster with another data directory"):
        apply(state, AddNode(Node("a", "other")))
    with pytest.raises(DefinitionError, match="c is no member"):
        apply(state, ChangeNodes(up=(Node("c", "c"),)))
    assert state.definitions.nodes == before


def test_a_member_that_is_added_again_keeps_its_number_and_its_run(state):
    assert apply(state, AddNode(A)).changes == []
    apply(state, AddNode(Node("a", A.node_id, address="elsewhere:1")))
    found = state.definitions.node("a")
    assert (found.address, found.number, found.incarnation) == ("elsewhere:1", 1, "1")


def test_transient_queues_go_with_the_run_of_their_home_and_durable_ones_wait_for_it(state):
    apply(state, ChangeNodes(down=(("a", "1"),)))
    assert queues(state) == {"durable-a": "down", "durable-b": "running", "transient-b": "running", "own-b": "running"}
    assert state.definitions.node("a").incarnation == ""
    apply(state, ChangeNodes(up=(run(A, "2"),)))
    assert queues(state)["durable-a"] == "running"
    assert state.definitions.node("a").incarnation == "2"


def declare_on_b(state, durable):
    row = QueueRow("/", "late", None, "late", durable, node="b", replicas=("b",))
    return apply(state, DeclareQueue(row, False))


@pytest.mark.parametrize("durable", [True, False])
def test_no_queue_is_declared_at_a_home_that_has_ended_since_it_was_chosen(state, durable):
    """It would have the state `running` without a process, and a transient one would never go (CL-58)."""
    state.definitions.put(EnabledFeature(LIVE_HOMES))
    apply(state, ChangeNodes(down=(("b", "1"),)))
    with pytest.raises(AmqpError, match="cannot declare queue 'late' in vhost '/': node 'b', .* is down") as refused:
        declare_on_b(state, durable)
    assert refused.value.code == 404
    assert state.queue("/", "late") is None
    apply(state, ChangeNodes(up=(run(B, "2"),)))
    assert len(declare_on_b(state, durable).effects) == 1


def test_a_cluster_with_older_nodes_declares_queues_as_they_do(state):
    """All nodes must make the same of a command, also while a cluster is upgraded (CL-26)."""
    apply(state, ChangeNodes(down=(("b", "1"),)))
    declare_on_b(state, True)
    assert queues(state)["late"] == "running"


def test_the_end_of_a_run_that_was_followed_by_another_changes_nothing(state):
    apply(state, ChangeNodes(up=(run(A, "2"),)))
    assert apply(state, ChangeNodes(down=(("a", "1"),))).changes == []


def test_a_node_that_returns_before_its_end_was_noticed_loses_what_went_with_its_last_run(state):
    apply(state, ChangeNodes(up=(run(A, "2"),)))
    assert queues(state) == {
        "durable-a": "running",
        "durable-b": "running",
        "transient-b": "running",
        "own-b": "running",
    }


def test_transient_exchanges_and_bindings_go_when_no_node_is_left(state):
    for name, durable in (("kept", True), ("gone", False)):
        apply(state, DeclareExchange(ExchangeRow("/", name, "direct", durable)))
        apply(state, Bind("/", Binding.of(name, "queue", "durable-a", "k", NO_ARGUMENTS), ""))
    rows = state.vhosts["/"]
    apply(state, ChangeNodes(down=(("a", "1"),)))
    assert "gone" in rows.exchanges
    apply(state, ChangeNodes(down=(("b", "1"),)))
    assert "gone" not in rows.exchanges and "kept" in rows.exchanges
    assert [(binding.source, durable) for binding, durable in rows.bindings()] == [("kept", True)]


def test_a_removed_node_takes_the_queues_whose_home_it_was(state):
    apply(state, RemoveNode("a"))
    assert list(queues(state)) == ["durable-b", "transient-b", "own-b"]
    assert apply(state, RemoveNode("a")).changes == []
    with pytest.raises(DefinitionError, match="b is the last node"):
        apply(state, RemoveNode("b"))


def test_trims_name_what_they_remove(state):
    """A command that trims rows lists them, because nodes that were started at different times find rows in different
    orders.
    """
    apply(state, DeclareExchange(ExchangeRow("/", "x", "direct")))
    bindings = [Binding.of("x", "queue", "durable-a", key, NO_ARGUMENTS) for key in "kl"]
    for binding in bindings:
        apply(state, Bind("/", binding, ""))
    apply(state, TrimBindings("/", (bindings[1],)))
    assert apply(state, TrimBindings("/", (bindings[1],))).changes == []
    rows = state.vhosts["/"]
    assert [binding for binding, _ in rows.bindings()] == bindings[:1]
    apply(state, TrimVhost("/", tuple(bindings), ("own-a", "nowhere"), ("x",)))
    assert list(queues(state))[:2] == ["durable-a", "transient-a"] and len(queues(state)) == 5
    assert "x" not in rows.exchanges and list(rows.bindings()) == []
