"""`Alarms`: which listener gets a notice of which alarm, and when (AB-33)."""

from __future__ import annotations

import pytest
from thespian.actors import ActorExitRequest

from warren.actors.resources.alarms import Alarms, UnknownAlarm
from warren.runtime.errors import ProcessDown, UnknownMessage

WAIT = 300.0


def received(client, alarms, listener):
    """The notices that `listener` has got after `alarms` has handled everything sent before."""
    with pytest.raises(UnknownMessage):
        client.ask(alarms, ("no such message",), WAIT)
    return client.ask(listener, ("received",), WAIT)


def test_listeners_are_notified_of_every_change(client, alarms, listener):
    client.tell(alarms, ("register", listener))
    for source, on in (("memory", True), ("disk", True), ("memory", False), ("disk", False)):
        assert client.ask(alarms, ("set", source, on), WAIT) is True
    assert received(client, alarms, listener) == [("memory",), ("disk", "memory"), ("disk",), ()]


def test_listeners_are_not_notified_without_a_change(client, alarms, listener):
    client.tell(alarms, ("register", listener))
    for on in (False, True, True, False, False):
        client.tell(alarms, ("set", "memory", on))
    assert received(client, alarms, listener) == [("memory",), ()]


def test_a_source_is_active_while_any_origin_has_raised_it(client, alarms, listener):
    """A source is active while any origin has raised it: the alarms of an operator and of a monitor do not clear each
    other, and the second sends no notice.
    """
    client.tell(alarms, ("register", listener))
    for on, origin in (
        (True, "monitor"),
        (True, "operator"),
        (False, "monitor"),
        (False, "monitor"),
        (False, "operator"),
    ):
        client.tell(alarms, ("set", "memory", on, origin))
    assert received(client, alarms, listener) == [("memory",), ()]


def test_a_new_listener_is_notified_of_active_alarms(client, alarms, listener):
    client.ask(alarms, ("set", "disk", True), WAIT)
    client.tell(alarms, ("register", listener))
    assert received(client, alarms, listener) == [("disk",)]


def test_a_listener_that_ended_is_forgotten(client, alarms, listener, system, base):
    ended = system.createActor(Alarms)
    client.tell(alarms, ("register", ended))
    client.tell(ended, ActorExitRequest())
    with pytest.raises(ProcessDown):
        client.ask(ended, ("received",), WAIT)
    client.tell(alarms, ("set", "memory", True))
    received(client, alarms, listener)
    assert not base.cells[alarms.actorAddressString].actor.listeners


def test_an_unknown_source_is_refused(client, alarms, listener):
    client.tell(alarms, ("register", listener))
    with pytest.raises(UnknownAlarm, match="unknown alarm 'cpu'; it is one of: memory, disk"):
        client.ask(alarms, ("set", "cpu", True), WAIT)
    assert received(client, alarms, listener) == []


def test_an_alarm_with_an_address_ends_with_that_process(client, system, alarms, listener):
    """An alarm that a process has raised ends with the process, because nothing else would clear it, and publishers
    would be blocked for ever (QS-35).
    """
    client.tell(alarms, ("register", listener))
    doomed, other = system.createActor(Alarms), system.createActor(Alarms)
    client.ask(alarms, ("set", "disk", True, "the journal", doomed), WAIT)
    client.ask(alarms, ("set", "disk", True, "an index", other), WAIT)
    client.tell(doomed, ActorExitRequest())
    with pytest.raises(ProcessDown):
        client.ask(doomed, ("received",), WAIT)
    assert received(client, alarms, listener) == [("disk",)]
    client.ask(alarms, ("set", "disk", False, "an index", other), WAIT)
    assert received(client, alarms, listener) == [("disk",), ()]
    client.tell(other, ActorExitRequest())
    client.ask(alarms, ("set", "disk", True), WAIT)
    assert received(client, alarms, listener) == [("disk",), (), ("disk",)]


def test_the_alarms_of_a_node_end_with_its_run(client, alarms, listener, system):
    """The alarms of another node end with its run, also if its next run is met before the end of that run is noticed
    (CL-57).

    Such alarms once blocked the publishers of this node for ever.
    """
    before, after = system.createActor(Alarms), system.createActor(Alarms)
    client.ask(before, ("set", "disk", True), WAIT)
    client.tell(alarms, ("register", listener, True))
    client.tell(alarms, ("node_met", "warren@b", before))
    received(client, alarms, listener)
    received(client, before, listener)
    assert received(client, alarms, listener) == [("disk",)]
    client.tell(alarms, ("node_met", "warren@b", after))
    assert received(client, alarms, listener) == [("disk",), ()]
