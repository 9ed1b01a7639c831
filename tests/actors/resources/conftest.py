"""`Alarms`, and a listener that keeps the notices that it receives."""

from __future__ import annotations

import pytest

from warren.actors.resources.alarms import Alarms
from warren.runtime.process import Process

WAIT = 300.0


class Listener(Process):
    """Registers with `Alarms`, as a connection does, and keeps what it receives."""

    def __init__(self):
        super().__init__()
        self.received = []

    async def on_listen_to(self, sender, alarms):
        self.send(alarms, ("register", self.myAddress))
        return True

    def on_alarms(self, sender, sources):
        self.received.append(sources)

    def on_received(self, sender):
        return list(self.received)


@pytest.fixture
def alarms(system):
    return system.createActor(Alarms)


@pytest.fixture
def listener(system):
    """A listener that has not registered yet."""
    return system.createActor(Listener)


@pytest.fixture
def active_alarms(system, client, alarms):
    """Returns the sources that are active, as a registered listener was notified of them."""
    listener = system.createActor(Listener)
    client.ask(listener, ("listen_to", alarms), WAIT)
    return lambda: (client.ask(listener, ("received",), WAIT) or [()])[-1]
