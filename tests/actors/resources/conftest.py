"""`Alarms`, and a listener that keeps the notices it receives."""

from __future__ import annotations

import pytest

from warren.actors.resources.alarms import Alarms
from warren.runtime.process import Process

WAIT = 300.0


class Listener(Process):
    """Registers with `Alarms`, as a connection does, and keeps the notices it receives."""

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
    """The sources that are active, by the notices to a listener that registers now."""
    listener = system.createActor(Listener)
    client.ask(listener, ("listen_to", alarms), WAIT)
    return lambda: (client.ask(listener, ("received",), WAIT) or [()])[-1]
