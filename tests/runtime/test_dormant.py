"""Dormant processes: an address whose process the first message creates."""

from __future__ import annotations

import pytest
from thespian.actors import ActorExitRequest

from warren.runtime.errors import ProcessDown
from warren.runtime.process import Process
from warren.runtime.system.address import LoopAddress

WAIT = 300


class Sleeper(Process):
    """Notes what it receives, in order."""

    def __init__(self):
        self.received = []

    def on_begin(self, sender, value, parent):
        self.received.append((value, sender == parent))

    def on_note(self, sender, value):
        self.received.append(value)
        return self.received

    def on_crash(self, sender):
        raise ZeroDivisionError


class Watcher(Process):
    """Answers `ended` with the name of the next process that it monitors and that ends."""

    def __init__(self):
        self.waiting, self.ended = None, None

    def on_watch(self, sender, address):
        self.monitor(address, "it")
        return True

    def on_glance(self, sender, address):
        self.monitor(address, "glance")
        self.demonitor("glance")

    def on_ended(self, sender):
        self.waiting = sender
        return self.ended

    def on_down(self, name, reason):
        self.ended = (name, reason.is_fault)
        if self.waiting is not None:
            self.reply(self.waiting, self.ended)


class Parent(Watcher):
    def on_make(self, sender, count):
        return [self.create_dormant(Sleeper, ("begin", number, self.myAddress), number) for number in range(count)]

    def on_sleeps(self, sender, address):
        return self.is_dormant(address)

    def on_has_no_work(self, sender, address):
        return self.has_no_work(address)

    def on_has_no_work_after(self, sender, address, message):
        self.send(address, message)
        return self.has_no_work(address)


@pytest.fixture
def parent(system):
    return system.createActor(Parent)


def test_the_first_message_creates_the_process(client, base, parent):
    """The first message to a dormant address creates its process, which handles the message of its parent first and
    then that one.
    """
    one, two = client.ask(parent, ("make", 2), WAIT)
    assert len(base.dormant.by_address) == 2 and one._aaddr not in base.cells
    assert client.ask(one, ("note", "hello"), WAIT) == [(0, True), "hello"]
    assert client.ask(one, ("note", "again"), WAIT) == [(0, True), "hello", "again"]
    assert not client.ask(parent, ("sleeps", one), WAIT)
    assert client.ask(parent, ("sleeps", two), WAIT)


def test_a_process_has_no_work_while_it_runs_and_nothing_waits(client, parent):
    """`has_no_work` is true only of a process of this system that runs and for which nothing waits: not of a dormant
    one, one that has ended, or one in another program.
    """
    [one] = client.ask(parent, ("make", 1), WAIT)
    assert not client.ask(parent, ("has_no_work", one), WAIT)
    client.ask(one, ("note", 1), WAIT)
    assert client.ask(parent, ("has_no_work", one), WAIT)
    assert not client.ask(parent, ("has_no_work", LoopAddress("other-1/Sleeper-1")), WAIT)
    assert not client.ask(parent, ("has_no_work_after", one, ("note", 2)), WAIT)
    client.tell(one, ActorExitRequest())
    with pytest.raises(ProcessDown):
        client.ask(one, ("note", 3), WAIT)
    assert not client.ask(parent, ("has_no_work", one), WAIT)


def test_a_copy_of_the_address_wakes_it_too(client, parent):
    """A message to a copy of a dormant address wakes the process, and its parent's own address then leads to the same
    process.
    """
    [one] = client.ask(parent, ("make", 1), WAIT)
    copy = LoopAddress(one._aaddr)
    assert client.ask(copy, ("note", 1), WAIT) == [(0, True), 1]
    assert client.ask(one, ("note", 2), WAIT) == [(0, True), 1, 2]


def test_its_parent_monitors_it(client, parent):
    """The parent of a dormant process monitors it from its making on, under the name given there, and learns of a
    crash.
    """
    one, two = client.ask(parent, ("make", 2), WAIT)
    client.tell(two, ("crash",))
    assert client.ask(parent, ("ended",), WAIT) == (1, True)
    with pytest.raises(ProcessDown):
        client.ask(two, ("note", 1), WAIT)
    assert client.ask(parent, ("sleeps", one), WAIT)


def test_a_monitor_wakes_it(client, system, parent):
    """Whoever monitors a dormant process wakes it, and learns of its end as with any process."""
    [one] = client.ask(parent, ("make", 1), WAIT)
    watcher = system.createActor(Watcher)
    client.ask(watcher, ("watch", one), WAIT)
    assert not client.ask(parent, ("sleeps", one), WAIT)
    client.tell(one, ("crash",))
    assert client.ask(watcher, ("ended",), WAIT) == ("it", True)


def test_a_monitor_that_is_taken_back_at_once_is_gone(client, base, system, parent):
    """A monitor that is taken back at once is gone, even if the dormant process has not yet handled anything."""
    [one] = client.ask(parent, ("make", 1), WAIT)
    watcher = system.createActor(Watcher)
    client.tell(watcher, ("glance", one))
    client.ask(one, ("note", "awake"), WAIT)
    assert watcher not in base.cells[one._aaddr].monitors.values()


def test_it_ends_with_its_parent(client, base, system, parent):
    """A dormant process ends with its parent: no entry of it is left, and an asker learns that there is no such
    process.
    """
    [one] = client.ask(parent, ("make", 1), WAIT)
    watcher = system.createActor(Watcher)
    client.ask(watcher, ("watch", parent), WAIT)
    client.tell(parent, ActorExitRequest())
    assert client.ask(watcher, ("ended",), WAIT) == ("it", False)
    assert base.dormant.by_address == {}
    with pytest.raises(ProcessDown):
        client.ask(one, ("note", 1), WAIT)
