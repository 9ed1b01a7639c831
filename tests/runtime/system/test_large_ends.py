"""The end of a process that thousands monitor, or that has thousands of children, asks or messages: everybody is
notified, and no turn notifies all of them.
"""

from __future__ import annotations

import pytest
from thespian.actors import ActorExitRequest

from warren.runtime.errors import ProcessDown
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process
from warren.runtime.turn_work import END_OF_TURN
from warren.tests.turn_meter import metered

WATCHERS = 6 * END_OF_TURN


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
            assert turns.most.calls < 12 * END_OF_TURN, turns.most
        finally:
            base.shutdown()


def test_all_monitors_are_notified_although_the_parent_ends(base):
    """All monitors of a process are notified, even if its parent, which passes on the notices in parts, ends after none
    or one of them.
    """
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


class Crowded(Process):
    """Has many children, monitors and asks all of them, and is asked by each of them."""

    def on_gather(self, sender):
        self.own = [self.createActor(Asking) for _ in range(WATCHERS)]
        for number, child in enumerate(self.own):
            self.monitor(child, number)
            self.send(child, ("ask_about", self.myAddress))
            self.spawn(self.wait_for(child))

    async def wait_for(self, child):
        await self.ask(child, ("never",))

    def on_question(self, sender):
        """Is not answered."""

    def on_end(self, sender):
        self.stop("done")


class Asking(Process):
    answers = 0

    async def on_ask_about(self, sender, address):
        try:
            await self.ask(address, ("question",))
        except ProcessDown:
            Asking.answers += 1

    def on_never(self, sender):
        """Is not answered."""


def test_no_turn_does_all_that_the_end_of_a_crowded_process_takes():
    Asking.answers = 0
    with metered() as turns:
        base = LoopBase(thread=False)
        try:
            parent = base.newPrimaryActor(Outer)
            base.tell(parent, ("create",))
            settle(base)
            child = base.cells[parent.addressDetails].actor.child
            base.tell(child, ("gather",))
            settle(base)
            before = base.living
            turns.forget()
            base.tell(child, ("end",))
            settle(base)
            # Each asker got its answer, and then ended with its parent.
            assert Asking.answers == WATCHERS
            assert base.living == before - WATCHERS - 1
            assert turns.most.calls < 20 * END_OF_TURN, turns.most
        finally:
            base.shutdown()


class Large(Process):
    """Has much in memory, which it frees in three steps."""

    steps = 3

    def on_end(self, sender):
        self.stop("done")

    def free_memory(self):
        Large.steps -= 1
        if Large.steps == 0:
            raise ValueError("a state in disorder")
        return True


def test_memory_is_freed_in_turns_of_the_parent(base, caplog):
    """The memory of a large process that ended is freed step by step, in turns of its parent; if a step raises an
    error, the rest is freed all the same.
    """
    Large.steps = 3
    parent = base.newPrimaryActor(Outer)
    base.tell(parent, ("create", Large))
    settle(base)
    child = base.cells[parent.addressDetails].actor.child
    actor = base.cells[child.addressDetails].actor
    base.tell(child, ("end",))
    settle(base)
    assert Large.steps == 0 and "failed in free_memory" in caplog.text
    assert not hasattr(actor, "_asks")


class Outer(Process):
    def on_create(self, sender, kind=Crowded):
        self.child = self.createActor(kind)

    def on_child_exited(self, address):
        """Nothing has to be done."""
