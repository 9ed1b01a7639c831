"""`Homes`: which node a new queue gets as its home (CL-58)."""

from __future__ import annotations

import pytest

from warren.actors.metadata.queues.homes import Homes
from warren.actors.metadata.state.commands import AddNode, ChangeNodes, CreateVhost, DeclareQueue, PutRecords
from warren.actors.metadata.state.state import State, apply
from warren.amqp.fields import Table, table_from
from warren.definitions.records import Node, Policy
from warren.routing.rows import QueueRow

A, B, C = "warren@a", "warren@b", "warren@c"


def node(name, **fields):
    return Node(name, f"id of {name}", **fields)


@pytest.fixture
def state():
    state = State()
    apply(state, CreateVhost("/"))
    for name in (A, B, C):
        apply(state, AddNode(node(name)))
    apply(state, ChangeNodes(up=tuple(node(name, incarnation="1") for name in (A, B, C))))
    return state


@pytest.fixture
def numbers():
    """The numbers that the random generator returns next."""
    return []


@pytest.fixture
def homes(state, numbers):
    return Homes(B, "client-local", state, lambda count: numbers.pop(0).to_bytes(count, "big"))


def choose(homes, locator=None, name="q", is_exclusive=False):
    arguments = Table() if locator is None else table_from({"x-queue-master-locator": locator})
    home = homes.choose("/", name, "classic", arguments, is_exclusive)
    homes.declared(home)
    return home


def declare(state, home, name):
    apply(state, DeclareQueue(QueueRow("/", name, None, name, node=home, replicas=(home,)), False))


def test_a_queue_is_at_home_where_its_client_is(homes):
    assert choose(homes) == choose(homes, "client-local") == choose(homes, "elsewhere") == B


def test_min_masters(state, homes):
    """Of the nodes with the fewest queues, the client's is chosen, otherwise the first by name."""
    assert choose(homes, "min-masters") == B
    declare(state, B, "one")
    assert choose(homes, "min-masters") == A
    declare(state, A, "two")
    assert choose(homes, "min-masters") == C
    declare(state, C, "three")
    assert choose(homes, "min-masters") == B


def test_min_masters_counts_queues_that_are_being_declared(homes):
    """Queues that are being declared are counted, so that many declares at once do not all choose the same node."""
    arguments = table_from({"x-queue-master-locator": "min-masters"})
    assert [homes.choose("/", f"q{at}", "classic", arguments, False) for at in range(6)] == [B, A, C] * 2
    homes.declared(A)
    assert homes.choose("/", "more", "classic", arguments, False) == A


def test_random(homes, numbers):
    numbers += [0, 1, 2, 3]
    assert [choose(homes, "random") for _ in range(4)] == [A, B, C, A]


def test_argument_policy_setting(state, homes):
    """The argument overrides the policy, and the policy overrides the setting."""
    declare(state, B, "one")
    strict = Homes(B, "min-masters", state, lambda count: bytes(count))
    assert choose(strict) == A
    assert choose(strict, "client-local") == B
    policy = Policy("/", "p", "^local", '{"queue-master-locator":"client-local"}')
    apply(state, PutRecords((policy,)))
    assert choose(strict, name="local") == B
    assert choose(strict, "min-masters", name="local") == A
    assert choose(homes, "nonsense", name="other") == B


def test_an_exclusive_queue_stays_with_its_connection(state, homes):
    declare(state, B, "one")
    assert choose(homes, "min-masters", is_exclusive=True) == B


def test_only_nodes_that_can_have_queues(state, homes):
    """No queue is placed on a node that is down, on a witness, or on a node in maintenance."""
    declare(state, B, "one")
    apply(state, ChangeNodes(down=((A, "1"),)))
    assert choose(homes, "min-masters") == C
    apply(state, AddNode(node(C, role="witness")))
    assert choose(homes, "min-masters") == B


def test_a_node_that_is_alone_is_every_queues_home():
    assert choose(Homes(A, "random", State(), bytes), "min-masters") == A
