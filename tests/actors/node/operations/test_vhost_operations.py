"""Operations on virtual hosts, performed by a whole node."""

from __future__ import annotations

import pytest

from warren.actors.node.operations.registry import OperationError
from warren.actors.node.process import NodeSupervisor
from warren.settings import Settings

WAIT = 300.0


@pytest.fixture
def operate(client, system):
    """`operate(...)` performs an operation on a node without a data directory."""
    node = system.createActor(NodeSupervisor)
    client.ask(node, ("start", Settings(port=0)), WAIT)
    return lambda operation, /, **arguments: client.ask(node, ("operate", operation, arguments), WAIT)


def test_a_virtual_host_is_added_and_deleted(operate):
    operate("add_vhost", name="blue")
    operate("add_vhost", name="blue")
    operate("delete_vhost", name="blue")
    with pytest.raises(OperationError, match="Virtual host 'blue' does not exist") as refusal:
        operate("delete_vhost", name="blue")
    assert refusal.value.kind == "data"


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_that_no_client_could_open_is_refused(operate, name):
    with pytest.raises(OperationError, match="1 to 255 bytes"):
        operate("add_vhost", name=name)


def test_an_operation_that_answers_in_pieces_is_refused_and_the_node_goes_on(operate):
    with pytest.raises(OperationError, match="use 'warren list_queues'") as refusal:
        operate("list_queues", vhost="/")
    assert refusal.value.kind == "usage"
    assert operate("add_vhost", name="later") is None
