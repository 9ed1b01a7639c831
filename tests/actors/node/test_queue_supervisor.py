"""Queues that crash, end by themselves, or are deleted (AB-63)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from thespian.actors import ActorExitRequest

from warren.actors.node.queue_supervisor import QueueSupervisor, VhostEnds
from warren.actors.node.restart_policy import MAX_RESTARTS
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table
from warren.routing.rows import QueueRow
from warren.runtime.errors import ProcessDown

from ..durable_node import DurableNode

V = "/"
WAIT = 300.0


@pytest.fixture
def declare(client, metadata):
    return lambda name="q": client.ask(metadata, ("declare_queue", V, name, True, None, False, Table(), "c"), WAIT)


def crash(client, row):
    client.tell(row.address, ("crash",))


def test_a_crashed_queue_is_restarted(client, declare, routing, eventually):
    row, _ = declare()
    crash(client, row)
    eventually(lambda: routing.queue(V, "q").address != row.address)
    again = routing.queue(V, "q")
    assert (again.queue_id, again.state, again.durable) == (row.queue_id, "running", True)
    assert again.generation == row.generation + 1, "another node must be able to tell the processes apart"
    assert client.ask(again.address, ("row",), WAIT) == (replace(again, generation=0), False), (
        "everything is in memory, so there is nothing to recover"
    )
    assert declare() == (again, False)


def test_its_bindings_stay(client, metadata, declare, routing, eventually):
    row, _ = declare()
    client.ask(metadata, ("bind", V, "queue", "q", "amq.fanout", "", Table(), "c"), WAIT)
    crash(client, row)
    eventually(lambda: routing.queue(V, "q").address != row.address)
    assert routing.route(V, "amq.fanout", ("",)) == (routing.queue(V, "q"),)


def test_a_queue_that_crashes_too_often_stays_down(client, metadata, declare, routing, eventually):
    """After `MAX_RESTARTS` a crash leaves the queue down until a client deletes it (AB-63)."""
    declare()
    for _ in range(MAX_RESTARTS):
        before = routing.queue(V, "q").address
        crash(client, routing.queue(V, "q"))
        eventually(lambda before=before: routing.queue(V, "q").address != before)
    crash(client, routing.queue(V, "q"))
    eventually(lambda: routing.queue(V, "q").state == "crashed")
    with pytest.raises(AmqpError, match="has crashed and failed to restart"):
        declare()
    assert client.ask(metadata, ("delete_queue", V, "q", False, False, "c"), WAIT) == 0
    assert declare()[1] is True


def test_the_crashes_of_one_queue_are_not_anothers(client, declare, routing, eventually):
    for name in ("a", "b"):
        declare(name)
        for _ in range(MAX_RESTARTS):
            before = routing.queue(V, name).address
            crash(client, routing.queue(V, name))
            eventually(lambda name=name, before=before: routing.queue(V, name).address != before)


def test_a_killed_queue_is_gone(client, declare, routing, eventually):
    row, _ = declare()
    client.tell(row.address, ActorExitRequest())
    eventually(lambda: routing.queue(V, "q") is None)


def test_a_forgotten_queue_ends_and_is_not_restarted(client, stub_node, declare):
    row, _ = declare()
    supervisor = client.ask(stub_node, ("queue_supervisor", V), WAIT)
    assert client.ask(supervisor, ("forget_queue", row.queue_id), WAIT) is True
    with pytest.raises(ProcessDown):
        client.ask(row.address, ("row",), WAIT)
    assert client.ask(supervisor, ("forget_queue", "unknown"), WAIT) is True


@pytest.fixture
def supervisor(client, metadata, stub_node, base):
    return base.cells[client.ask(stub_node, ("queue_supervisor", V), WAIT).actorAddressString].actor


def test_a_queue_that_crashes_after_it_left_the_table_does_not_come_back(client, supervisor, eventually):
    row = client.ask(supervisor.myAddress, ("start_queue", QueueRow(V, "gone", None, "id")), WAIT)
    assert supervisor.queues
    crash(client, row)
    eventually(lambda: not supervisor.queues)


def test_a_queue_that_crashes_while_it_leaves_does_not_come_back(
    client, metadata, supervisor, declare, routing, eventually
):
    """A queue that crashes after it has asked Metadata to remove its row, and before it has ended, is not restarted."""
    row, _ = declare()
    crash(client, row)
    eventually(lambda: routing.queue(V, "q").address != row.address)
    assert client.ask(metadata, ("queue_gone", V, "q", row.queue_id), WAIT) is None
    assert routing.queue(V, "q") is None
    eventually(lambda: not supervisor.queues)


@pytest.mark.parametrize("start", [("start_queue",), ("start_replica", True)])
def test_no_queue_starts_while_the_virtual_host_stops(client, supervisor, start):
    """While a virtual host stops, no queue is started, because none would be stopped in order. A full disk delays a
    stop, so other nodes have time to send messages to dormant queues.
    """
    client.ask(supervisor.myAddress, ("terminate",), WAIT)
    name, *more = start
    with pytest.raises(VhostEnds, match="vhost '/' stops on this node"):
        client.ask(supervisor.myAddress, (name, QueueRow(V, "late", None, "id"), *more), WAIT)
    assert not supervisor.queues


def test_a_queue_is_forgotten_after_the_journal_has_ended(tmp_path):
    """A deletion that arrives while the virtual host stops, when the journal has ended, is answered, and the next start
    removes the files.
    """
    with DurableNode(tmp_path) as node:
        row, _ = node.meta.ask("declare_queue", V, "q", True, None, False, Table(), "c")
        (supervisor,) = [
            cell.actor for cell in node.base.cells.values() if type(getattr(cell, "actor", None)) is QueueSupervisor
        ]
        ended, _ = node.meta.ask("declare_queue", V, "ended", True, None, False, Table(), "c")
        node.meta.ask("delete_queue", V, "ended", False, False, "c")
        supervisor.storage = replace(supervisor.storage, journal=ended.address)
        assert node.client.ask(supervisor.myAddress, ("forget_queue", row.queue_id), WAIT) is True
        assert not supervisor.queues
