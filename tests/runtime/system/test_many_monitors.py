"""The end of a process that thousands monitor: each is notified, and no turn notifies all of them."""

from __future__ import annotations

import pytest
from thespian.actors import ActorExitRequest

from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process
from warren.runtime.system.end_notices import MONITORS
from warren.tests.turn_meter import metered

WATCHERS = 6 * MONITORS


class Watched(Process):
    def on_end(self, sender):
        self.stop("done")


class Watcher(Process):
    downs = ()

    def on_watch(self, sender, address):
        self.monitor(address, "watched")

    def on_down(self, name, reason):
        self.downs = (*self.downs, (name, str(reason)))


class Parent(Process):
    def on_create(self, sender):
        self.child = self.createActor(Watched)

    def on_leave(self, sender):
        self.stop("gone")

    def on_child_exited(self, address):
        """Nothing has to be done."""


@pytest.fixture
def base():
    base = LoopBase(thread=False)
    yield base
    base.shutdown()


def settle(base):
    assert base.run_until(lambda: not base.busy_with(), 60)


def watched(base):
    """A parent, its child, and the watchers of the child."""
    parent = base.newPrimaryActor(Parent)
    base.tell(parent, ("create",))
    watchers = [base.newPrimaryActor(Watcher) for _ in range(WATCHERS)]
    settle(base)
    child = base.cells[parent.addressDetails].actor.child
    for watcher in watchers:
        base.tell(watcher, ("watch", child))
    settle(base)
    return parent, child, [base.cells[watcher.addressDetails].actor for watcher in watchers]


def test_no_turn_notifies_all_monitors():
    with metered() as turns:
        base = LoopBase(thread=False)
        try:
            _, child, watchers = watched(base)
            turns.forget()
            base.tell(child, ("end",))
            settle(base)
            assert all(watcher.downs == (("watched", "done"),) for watcher in watchers)
            assert turns.most.calls < 10 * MONITORS, turns.most
        finally:
            base.shutdown()


def test_all_monitors_are_notified_although_the_parent_ends(base):
    """The parent has passed on no part of the notices, or one part, when it ends."""
    for between in ((), (("create",),)):
        parent, child, watchers = watched(base)
        base.tell(child, ("end",))
        for message in between:
            base.tell(parent, message)
        base.tell(parent, ActorExitRequest())
        settle(base)
        assert all(watcher.downs == (("watched", "done"),) for watcher in watchers)


def test_a_monitor_that_is_given_up_meanwhile_is_not_called(base):
    _, child, watchers = watched(base)
    base.tell(child, ("end",))
    base.run_until(lambda: any(watcher.downs for watcher in watchers), 60)
    waiting = [watcher for watcher in watchers if not watcher.downs]
    assert waiting
    for watcher in waiting:
        watcher.demonitor("watched")
    settle(base)
    assert not any(watcher.downs for watcher in waiting)
