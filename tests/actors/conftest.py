"""A system of actors, stubs of the processes around the one under test, and `eventually`, which waits for a
condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from thespian.actors import ActorExitRequest, ActorSystem

from warren.actors.context.node_context import NodeContext
from warren.actors.metadata.process import Metadata
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.actors.resources.alarms import Alarms
from warren.amqp.errors import AmqpError
from warren.routing.table import RoutingTable
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process
from warren.settings import Settings

WAIT = 300.0


@pytest.fixture
def base():
    base = LoopBase(shutdown_seconds=2.0)
    yield base
    base.shutdown()


@pytest.fixture
def system(base):
    return ActorSystem(systemBase=base, transientUnique=True)


@pytest.fixture
def client(system):
    with OutsideClient(system) as client:
        yield client


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], None]:
    def wait(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            time.sleep(0.002)

    return wait


class StubQueue(Process):
    """Answers as a queue does, crashes on request, and can delay its deletion."""

    reply_errors = (AmqpError,)

    def __init__(self):
        super().__init__()
        self.held = None
        self.is_held = False
        self.refusal = None

    def on_start(self, sender, context, row, storage=None, recovery=None):
        self.context, self.row, self.recovering = context, row, recovery is not None
        return {} if self.recovering else True

    def on_recovered(self, sender):
        """Ignored: the stub keeps no messages that could leave now."""

    def on_open(self, sender, wanted):
        return True

    def on_terminate(self, sender):
        self.reply(sender, None)
        self.stop()

    def on_row(self, sender):
        return self.row, self.recovering

    def on_info(self, sender):
        return {"name": self.row.name, "messages": 0}

    def on_consumers_info(self, sender):
        return [{"queue_name": self.row.name, "vhost": self.row.vhost}]

    def on_delete(self, sender, if_unused, if_empty):
        if self.refusal is not None:
            raise AmqpError(406, self.refusal)
        if self.is_held:
            self.held = sender
        else:
            self.reply(sender, 7)
            self.stop("deleted")

    def on_refuse(self, sender, text):
        self.refusal = text
        return True

    def on_hold(self, sender):
        self.is_held = True
        return True

    def on_release(self, sender):
        self.reply(self.held, 7)
        self.stop("deleted")

    def on_crash(self, sender):
        raise RuntimeError("the test has it crash")

    async def on_leave(self, sender):
        """End as a queue does by itself: have its row removed from the routing table first."""
        await self.ask(self.context.metadata, ("queue_gone", self.row.vhost, self.row.name, self.row.queue_id))
        self.stop("expired")


class StubNode(Process):
    """Stands for the part of a node that Metadata needs."""

    def on_start(self, sender, routing):
        metadata, alarms = self.createActor(Metadata), self.createActor(Alarms)
        self.context = NodeContext("warren@test", Settings(), routing, metadata, alarms, None)
        self.vhosts, self.queue_supervisors = {}, {}
        self.send(metadata, ("start", self.context, self.myAddress))
        return metadata

    async def on_start_vhost(self, sender, name, rows, kept):
        self.vhosts[name] = self.createActor(VhostSupervisor)
        start = "start", self.context, name, rows, kept
        self.queue_supervisors[name], rows = await self.ask(self.vhosts[name], start)
        return self.queue_supervisors[name], rows

    def on_stop_vhost(self, sender, name):
        self.send(self.vhosts.pop(name), ActorExitRequest())
        return True

    def on_queue_supervisor(self, sender, name):
        return self.queue_supervisors[name]


class Caller(Process):
    """Sends many asks at the same time, and answers with all results, errors included."""

    async def on_all(self, sender, address, messages):
        asked = [self.ask(address, message) for message in messages]
        answers = []
        for pending in asked:
            try:
                answers.append(await pending)
            except (AmqpError, Exception) as error:
                answers.append(error)
        return answers


@pytest.fixture
def stub_queues(monkeypatch):
    monkeypatch.setattr("warren.actors.node.queue_supervisor.Queue", StubQueue)


@pytest.fixture
def routing():
    return RoutingTable()


@pytest.fixture
def stub_node(system, client, routing, stub_queues):
    return system.createActor(StubNode)


@pytest.fixture
def metadata(client, stub_node, routing):
    """The address of a Metadata with virtual host `/` and stubs of queues."""
    metadata = client.ask(stub_node, ("start", routing), WAIT)
    client.ask(metadata, ("create_vhost", "/"), WAIT)
    return metadata


@pytest.fixture
def ask_all(system, client):
    caller = system.createActor(Caller)
    return lambda address, *messages: client.ask(caller, ("all", address, messages), WAIT)
