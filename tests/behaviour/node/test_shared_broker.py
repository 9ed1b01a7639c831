"""The broker that behaviour tests share is checked after each test: whatever breaks it is found and described."""

from __future__ import annotations

import os
import time

import pytest

from warren import Broker
from warren.actors.connection.listener import Listener
from warren.actors.node.process import NodeSupervisor
from warren.actors.resources.memory_monitor import MemoryMonitor
from warren.portable import IS_PORTABLE

from ..inside import PATIENCE, Inside
from ..shared_broker import SharedBroker, fault_of, fault_within


@pytest.fixture
def victim():
    with Broker(port=0, stop_timeout=0) as broker:
        yield broker


def crash(broker, kind):
    """Crash a process without which a node ends."""
    inside = Inside(broker)
    (actor,) = inside.call(lambda: inside._actors(kind))
    inside.call(lambda: inside._base.enqueue(actor.myAddress, actor.myAddress, ("nonsense",)))
    deadline = time.monotonic() + PATIENCE
    while inside.call(lambda: inside._actors(NodeSupervisor)):
        assert time.monotonic() < deadline, "the node has not ended"


def test_a_broker_that_runs_has_no_fault(victim):
    assert fault_of(victim) is None
    victim.declare_queue("q")
    assert fault_of(victim) is None


@pytest.mark.parametrize("kind", [Listener, MemoryMonitor])
def test_a_node_that_has_ended_is_found(victim, kind):
    crash(victim, kind)
    assert fault_of(victim) is not None


@pytest.mark.parametrize("which", ["listener", "epoll", "memory"])
@pytest.mark.skipif(IS_PORTABLE, reason="the portable twins have other descriptors")
def test_a_descriptor_that_is_closed_by_somebody_else_is_found(victim, which):
    """The number of each descriptor without which the broker does not work still stands for the same thing."""
    inside = Inside(victim)

    def replaced():
        actors = {type(cell.actor): cell.actor for cell in inside._base.cells.values() if hasattr(cell, "actor")}
        fd = {
            "listener": actors[Listener].socket.fileno(),
            "epoll": inside._base.poller._epoll.fileno(),
            "memory": actors[MemoryMonitor].memory._fd,
        }[which]
        kept, other = os.dup(fd), os.open(os.devnull, os.O_RDONLY)
        os.dup2(other, fd)
        os.close(other)
        try:
            return fault_within(victim)
        finally:
            os.dup2(kept, fd)
            os.close(kept)

    assert "its descriptor" in inside.call(replaced)


def test_the_test_that_breaks_it_fails_and_the_next_has_another():
    shared = SharedBroker()
    first = shared.running()
    shared.check()
    assert shared.running() is first
    crash(first, MemoryMonitor)
    with pytest.raises(pytest.fail.Exception, match="has broken the broker that all share"):
        shared.check()
    assert shared.running() is not first
    shared.check()
    shared.stop()
