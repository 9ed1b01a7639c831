"""Who hears of which alarm, and when (AB-33)."""

from __future__ import annotations

import pytest
from thespian.actors import ActorExitRequest

from warren.actors.resources.alarms import Alarms, UnknownAlarm
from warren.runtime.errors import ProcessDown
from warren.runtime.process import Process

WAIT = 5.0


class Listener(Process):
    """A connection that only listens."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_alarms(self, sender, sources):
        self.heard.append(sources)

    def on_heard(self, sender):
        return list(self.heard)


@pytest.fixture
def alarms(system):
    return system.createActor(Alarms)


@pytest.fixture
def listener(system):
    return system.createActor(Listener)


def heard(client, alarms, listener):
    client.ask(alarms, ("active",), WAIT)  # whatever it had to say is said
    return client.ask(listener, ("heard",), WAIT)


def test_every_change_is_told(client, alarms, listener):
    client.tell(alarms, ("register", listener))
    for source, on in (("memory", True), ("disk", True), ("memory", False), ("disk", False)):
        assert client.ask(alarms, ("set", source, on), WAIT) is True
    assert heard(client, alarms, listener) == [("memory",), ("disk", "memory"), ("disk",), ()]


def test_no_change_is_not(client, alarms, listener):
    client.tell(alarms, ("register", listener))
    for on in (False, True, True, False, False):
        client.tell(alarms, ("set", "memory", on))
    assert heard(client, alarms, listener) == [("memory",), ()]


def test_a_source_is_active_while_any_origin_says_so(client, alarms, listener):
    """A person's alarm and a monitor's do not clear each other, and one on top of the other is no news."""
    client.tell(alarms, ("register", listener))
    for on, origin in (
        (True, "monitor"),
        (True, "operator"),
        (False, "monitor"),
        (False, "monitor"),
        (False, "operator"),
    ):
        client.tell(alarms, ("set", "memory", on, origin))
    assert heard(client, alarms, listener) == [("memory",), ()]


def test_a_latecomer_hears_what_is_on(client, alarms, listener):
    client.ask(alarms, ("set", "disk", True), WAIT)
    client.tell(alarms, ("register", listener))
    assert heard(client, alarms, listener) == [("disk",)]
    assert client.ask(alarms, ("active",), WAIT) == ("disk",)


def test_who_left_hears_no_more(client, alarms, listener, system):
    ended = system.createActor(Listener)
    for address in (listener, ended):
        client.tell(alarms, ("register", address))
    client.tell(alarms, ("unregister", listener))
    client.tell(ended, ActorExitRequest())
    client.tell(alarms, ("set", "memory", True))
    assert heard(client, alarms, listener) == []


def test_an_unknown_source_is_refused(client, alarms):
    with pytest.raises(UnknownAlarm, match="unknown alarm 'cpu'; it is one of: memory, disk"):
        client.ask(alarms, ("set", "cpu", True), WAIT)
    assert client.ask(alarms, ("active",), WAIT) == ()


def test_what_a_process_has_set_ends_with_it(client, system, alarms, listener):
    """QS-35: nobody else would ever clear it, and publishers would be blocked for good."""
    client.tell(alarms, ("register", listener))
    doomed, other = system.createActor(Listener), system.createActor(Listener)
    client.ask(alarms, ("set", "disk", True, "the journal", doomed), WAIT)
    client.ask(alarms, ("set", "disk", True, "an index", other), WAIT)
    client.tell(doomed, ActorExitRequest())
    with pytest.raises(ProcessDown):
        client.ask(doomed, ("heard",), WAIT)
    assert client.ask(alarms, ("active",), WAIT) == ("disk",)
    client.ask(alarms, ("set", "disk", False, "an index", other), WAIT)
    assert heard(client, alarms, listener) == [("disk",), ()]
    client.tell(other, ActorExitRequest())
    client.ask(alarms, ("set", "disk", True), WAIT)
    assert heard(client, alarms, listener) == [("disk",), (), ("disk",)]
