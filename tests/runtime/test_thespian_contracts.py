"""What Thespian promises an actor, on its own simple base and on the event loop."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from datetime import timedelta

import pytest
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    ActorSystemMessage,
    ActorTypeDispatcher,
    ChildActorExited,
    DeadEnvelope,
    InvalidActorAddress,
    NoCompatibleSystemForActor,
    PoisonMessage,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    Thespian_SystemStatus,
    ThespianWatch,
    WakeupMessage,
    WatchMessage,
    requireCapability,
)
from thespian.initmsgs import initializing_messages

from warren.runtime.loop.loop_base import LoopBase

WAIT = timedelta(seconds=60)
SOON = timedelta(seconds=0.2)


class Echo(Actor):
    def receiveMessage(self, message, sender):
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, message)


class Reporter(Actor):
    """Sends all messages on to the first address that it receives."""

    to = None

    def receiveMessage(self, message, sender):
        if isinstance(message, ActorAddress):
            self.to = message
        elif self.to is not None:
            self.send(self.to, message)


class Parent(Actor):
    """'child' creates a child, 'kill' ends it; exits and poison are reported to the last sender."""

    child = None
    asker = None

    def receiveMessage(self, message, sender):
        if message == "child":
            self.asker = sender
            self.child = self.createActor(Child)
            self.send(sender, self.child)
        elif message == "stillborn":
            self.asker = sender
            self.child = self.createActor(Stillborn)
            self.send(sender, self.child)
        elif message == "kill":
            self.send(self.child, ActorExitRequest())
        elif isinstance(message, ChildActorExited):
            self.send(self.asker, ("exited", message.childAddress == self.child))
        elif isinstance(message, PoisonMessage):
            self.send(self.asker, ("poisoned", message.poisonMessage))
        elif isinstance(message, tuple):
            self.asker = sender
            self.send(self.child, message)


class Child(Actor):
    def receiveMessage(self, message, sender):
        if message == ("bad",):
            raise ValueError("provoked")
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, message)


class Stillborn(Actor):
    def __init__(self):
        raise ValueError("provoked")


class FailsOnce(Actor):
    tries = 0

    def receiveMessage(self, message, sender):
        if isinstance(message, str):
            self.tries += 1
            if self.tries == 1:
                raise ValueError("provoked")
            self.send(sender, (message, self.tries))


def test_a_new_actor_takes_messages_at_once(any_system):
    """createActor returns an address that can be asked immediately."""
    assert any_system.ask(any_system.createActor(Echo), "hello", WAIT) == "hello"


def test_a_class_may_be_named_by_a_string(any_system):
    """createActor takes 'module.Class'."""
    address = any_system.createActor("thespian.system.simpleSystemBase.BadActor")
    assert isinstance(address, ActorAddress)


def test_addresses_print_compare_and_do_not_hash(any_system):
    """An address prints as `ActorAddr-…`, equals only addresses of the same actor, and cannot be hashed."""
    one, other = any_system.createActor(Echo), any_system.createActor(Echo)
    assert one == one and one != other and not one == "x" and one != None  # noqa: E711
    assert str(one).startswith("ActorAddr-")
    with pytest.raises(TypeError):
        hash(one)


def test_copies_of_an_address_lead_to_the_same_actor(any_system):
    """Addresses that were pickled or copied still work."""
    address = any_system.createActor(Echo)
    for other in (pickle.loads(pickle.dumps(address)), copy.deepcopy(address)):
        assert other == address
        assert any_system.ask(other, "hello", WAIT) == "hello"


class Counter(Actor):
    def receiveMessage(self, message, sender):
        if message == "burst":
            collector = self.createActor(Collector)
            for number in range(500):
                self.send(collector, number)
            self.send(collector, sender)


class Collector(Actor):
    def __init__(self):
        self.seen = []

    def receiveMessage(self, message, sender):
        if isinstance(message, int):
            self.seen.append(message)
        elif isinstance(message, ActorAddress):
            self.send(message, self.seen)


def test_messages_between_two_actors_keep_their_order(any_system):
    """For each pair of actors the message that was sent first is handled first."""
    assert any_system.ask(any_system.createActor(Counter), "burst", WAIT) == list(range(500))


def test_the_parent_is_notified_of_a_childs_exit(any_system):
    """ActorExitRequest to a child ends it; the parent gets ChildActorExited with its address."""
    parent = any_system.createActor(Parent)
    any_system.ask(parent, "child", WAIT)
    assert any_system.ask(parent, "kill", WAIT) == ("exited", True)


def test_a_child_that_cannot_be_created_has_exited(any_system):
    """createActor still returns an address, and the parent gets ChildActorExited for it."""
    parent = any_system.createActor(Parent)
    any_system.ask(parent, "stillborn", WAIT)
    assert any_system.listen(WAIT) == ("exited", True)


def test_a_top_actor_that_cannot_be_created_is_an_error(any_system):
    """Without a parent, createActor raises the error."""
    with pytest.raises(ValueError, match="provoked"):
        any_system.createActor(Stillborn)


def test_a_message_that_fails_twice_comes_back_as_poison(any_system):
    """Plain actors live on after an exception, and the sender gets a PoisonMessage."""
    parent = any_system.createActor(Parent)
    any_system.ask(parent, "child", WAIT)
    assert any_system.ask(parent, ("bad",), WAIT) == ("poisoned", ("bad",))


def test_the_outside_gets_poison_too(any_system):
    """ask returns the PoisonMessage, which contains the message."""
    answer = any_system.ask(any_system.createActor(Child), ("bad",), WAIT)
    assert isinstance(answer, PoisonMessage) and answer.poisonMessage == ("bad",)


def test_a_message_that_fails_once_is_tried_again(any_system):
    """A message whose handler raises is handled once more, and that answer reaches the sender."""
    assert any_system.ask(any_system.createActor(FailsOnce), "x", WAIT) == ("x", 2)


class Family(Actor):
    """Given n > 0 it creates a child with n - 1; it reports every exit request."""

    def receiveMessage(self, message, sender):
        if isinstance(message, tuple):
            self.report, depth = message
            if depth:
                self.child = self.createActor(Family)
                self.send(self.child, (self.report, depth - 1))
            else:
                self.send(self.report, "complete")
        elif isinstance(message, ActorExitRequest):
            self.send(self.report, "leaving")
        elif message == "spare your child":
            self.send(self.myAddress, Spare())
        elif isinstance(message, Spare):
            self.send(self.report, self.child)


class Spare:
    pass


class Merciful(Actor):
    """Clears the recursion flag of its exit request."""

    def receiveMessage(self, message, sender):
        if message == "child":
            self.send(sender, self.createActor(Echo))
        elif isinstance(message, ActorExitRequest):
            message.notRecursive()


def test_exit_reaches_all_descendants(any_system):
    """A recursive ActorExitRequest is passed on to children and grandchildren."""
    hub = any_system.createActor(Relay)
    any_system.tell(hub, "listen")
    family = any_system.createActor(Family)
    any_system.tell(family, (hub, 3))
    assert any_system.listen(WAIT) == "complete"
    any_system.tell(family, ActorExitRequest())
    assert [any_system.listen(WAIT) for _ in range(4)] == ["leaving"] * 4


class Relay(Actor):
    """Sends all messages on to the sender of 'listen'."""

    to = None

    def receiveMessage(self, message, sender):
        if message == "listen":
            self.to = sender
        elif self.to is not None and not isinstance(message, ActorSystemMessage):
            self.send(self.to, message)


def test_exit_may_spare_the_children(system):
    """An exit request that is notRecursive() leaves the children alive (Thespian's simple base forgets to)."""
    parent = system.createActor(Merciful)
    child = system.ask(parent, "child", WAIT)
    system.tell(parent, ActorExitRequest())
    assert system.ask(child, "still here", WAIT) == "still here"


class Undertaker(Actor):
    def receiveMessage(self, message, sender):
        if message == "start":
            self.asker = sender
            self.handleDeadLetters()
            self.send(sender, "ready")
        elif message == "stop":
            self.handleDeadLetters(False)
            self.send(sender, "stopped")
        elif isinstance(message, DeadEnvelope):
            self.send(self.asker, ("dead", str(message.deadAddress), message.deadMessage))


def test_dead_letters_reach_the_registered_handler(any_system):
    """The registered actor gets a DeadEnvelope with address and message until it deregisters."""
    undertaker = any_system.createActor(Undertaker)
    assert any_system.ask(undertaker, "start", WAIT) == "ready"
    dead = any_system.createActor(Echo)
    any_system.tell(dead, ActorExitRequest())
    kind, address, message = any_system.ask(dead, "hello", WAIT)
    assert (kind, message) == ("dead", "hello") and address in str(dead)
    assert any_system.ask(undertaker, "stop", WAIT) == "stopped"
    assert any_system.ask(dead, "hello", SOON) is None


class Sleeper(Actor):
    def receiveMessage(self, message, sender):
        if isinstance(message, WakeupMessage):
            self.send(self.asker, (message.payload, message.delayPeriod))
        elif isinstance(message, (timedelta, float)):
            self.asker = sender
            self.wakeupAfter(message, "first")
            self.wakeupAfter(message * 2, "second")


@pytest.mark.parametrize("period", [timedelta(milliseconds=5), 0.005])
def test_wakeups_come_in_order_with_their_payload(any_system, period):
    """wakeupAfter takes a timedelta or seconds; the message carries period and payload."""
    sleeper = any_system.createActor(Sleeper)
    payload, delay = any_system.ask(sleeper, period, WAIT)
    assert payload == "first" and delay == period
    assert any_system.listen(WAIT)[0] == "second"


def test_a_global_name_is_one_actor_until_it_ends(any_system):
    """createActor with a global name returns the actor that has it; after its exit, a new one."""
    one = any_system.createActor(Echo, globalName="name")
    assert any_system.createActor(Echo, globalName="name") == one
    assert any_system.createActor(Echo) != one
    any_system.tell(one, ActorExitRequest())
    any_system.ask(any_system.createActor(Echo), "after the exit", WAIT)
    assert any_system.createActor(Echo, globalName="name") != one


@requireCapability("Fish")
class NeedsFish(Echo):
    pass


@requireCapability("Fowl")
class NeedsFowl(Echo):
    pass


class NeedsRequirement(Echo):
    @staticmethod
    def actorSystemCapabilityCheck(capabilities, requirements):
        return bool(requirements.get("size"))


def test_capabilities_and_requirements_decide_which_actors_are_created(any_system):
    """A class may require capabilities of the system and check the creator's requirements."""
    assert any_system.ask(any_system.createActor(NeedsFish), "x", WAIT) == "x"
    assert any_system.ask(any_system.createActor(NeedsRequirement, {"size": 3}), "x", WAIT) == "x"


def test_a_missing_capability_is_an_error(system):
    """createActor on the loop raises NoCompatibleSystemForActor, as on Thespian's multi-process bases."""
    with pytest.raises(NoCompatibleSystemForActor):
        system.createActor(NeedsFowl)
    system.updateCapability("Fowl", True)
    fowl = system.createActor(NeedsFowl)
    assert system.ask(fowl, "x", WAIT) == "x"
    system.updateCapability("Fowl", None)
    assert system.ask(fowl, "x", SOON) is None


class Curious(Actor):
    def __init__(self, capabilities=None, requirements=None):
        self.given = (capabilities.get("Thespian ActorSystem Name"), requirements)

    def receiveMessage(self, message, sender):
        if message == "given":
            self.send(sender, self.given)


def test_init_gets_capabilities_and_requirements_if_it_names_them(any_system):
    """`__init__` may name either of Thespian's two optional arguments, and then gets it."""
    name, requirements = any_system.ask(any_system.createActor(Curious, {"size": 3}), "given", WAIT)
    assert name and requirements == {"size": 3}


class Dispatching(ActorTypeDispatcher):
    def receiveMsg_str(self, message, sender):
        self.send(sender, "str")

    def receiveMsg_int(self, message, sender):
        self.send(sender, "int")


@initializing_messages([("first", str)], "ready")
class Initialised(ActorTypeDispatcher):
    def ready(self):
        self.value = self.first

    def receiveMsg_int(self, message, sender):
        self.send(sender, (self.value, message))


def test_thespians_helpers_work(any_system):
    """ActorTypeDispatcher and initializing_messages are plain Python on top of receiveMessage."""
    dispatching = any_system.createActor(Dispatching)
    assert [any_system.ask(dispatching, message, WAIT) for message in ("x", 1)] == ["str", "int"]
    initialised = any_system.createActor(Initialised)
    any_system.tell(initialised, 7)
    assert any_system.ask(initialised, "init", WAIT) == ("init", 7)


def test_an_actor_reports_its_status(any_system):
    """A Thespian_StatusReq to an actor is answered by the system."""
    parent = any_system.createActor(Parent)
    child = any_system.ask(parent, "child", WAIT)
    status = any_system.ask(parent, Thespian_StatusReq(), WAIT)
    assert isinstance(status, Thespian_ActorStatus)
    assert status.actorClass == "Parent" and status.childActors == [child]


def test_the_system_reports_its_status(system):
    """A Thespian_StatusReq to the system lists top actors and global names."""
    address = system.createActor(Echo, globalName="echo")
    status = system.ask(system.systemAddress, Thespian_StatusReq(), WAIT)
    assert isinstance(status, Thespian_SystemStatus)
    assert status.childActors == [address] and status.globalActors == {"echo": address}


class Dormant(Actor):
    def receiveMessage(self, message, sender):
        if message == "sleep":
            self.wakeupAfter(timedelta(hours=1))
            self.send(sender, "zzz")


def test_status_shows_pending_wakeups(system):
    """The status of an actor lists its pending wakeups, and Thespian's own formatter can print it."""
    from io import StringIO

    from thespian.system.messages.status import formatStatus

    dormant = system.createActor(Dormant)
    system.ask(dormant, "sleep", WAIT)
    status = system.ask(dormant, Thespian_StatusReq(), WAIT)
    assert len(status.pendingWakeups) == 1
    text = StringIO()
    formatStatus(status, tofd=text)
    assert "Dormant" in text.getvalue()


class BadSender(Actor):
    def receiveMessage(self, message, sender):
        if message == "try":
            try:
                self.send("nobody", "x")
            except InvalidActorAddress:
                self.send(sender, "refused")


def test_sending_to_what_is_no_address_is_an_error(any_system):
    """`send` raises InvalidActorAddress for a value that is not an address."""
    assert any_system.ask(any_system.createActor(BadSender), "try", WAIT) == "refused"


def test_private_contexts_get_only_their_own_answers(system):
    """private() gives each thread an endpoint of its own."""
    echo = system.createActor(Echo)
    with system.private() as one, system.private() as other:
        one.tell(echo, 1)
        other.tell(echo, 2)
        assert (one.listen(WAIT), other.listen(WAIT)) == (1, 2)
        assert one.listen(timedelta(0)) is None


def test_listening_without_messages_returns_none(any_system):
    """`listen` returns None if no message arrives before the timeout."""
    assert any_system.listen(timedelta(milliseconds=10)) is None


class Killer(Actor):
    def receiveMessage(self, message, sender):
        if message == "end of the world":
            self.actorSystemShutdown()


def test_an_actor_may_shut_the_system_down():
    """After actorSystemShutdown all actors end, and later calls from outside return or fail at once."""
    base = LoopBase()
    system = ActorSystem(systemBase=base, transientUnique=True)
    system.tell(system.createActor(Killer), "end of the world")
    assert base._ended.wait(60)
    assert system.listen(WAIT) is None
    with pytest.raises(RuntimeError, match="shut down"):
        system.createActor(Echo)
    system.shutdown()


class Watcher(Actor):
    """Watches a descriptor and echoes what it reads, until the input ends."""

    fd = None

    def receiveMessage(self, message, sender):
        if isinstance(message, tuple):
            self.fd, self.asker = message[1], sender
        elif isinstance(message, WatchMessage):
            data = os.read(message.ready[0], 100)
            self.send(self.asker, data)
            if not data:
                return None
        if self.fd is not None:
            return ThespianWatch([self.fd])
        return None


def test_a_watched_descriptor_brings_watch_messages(system):
    """ThespianWatch returned by receiveMessage holds until the next return; returning none ends it."""
    reading, writing = os.pipe()
    try:
        watcher = system.createActor(Watcher)
        system.tell(watcher, ("watch", reading))
        os.write(writing, b"one")
        assert system.listen(WAIT) == b"one"
        os.write(writing, b"two")
        assert system.listen(WAIT) == b"two"
        os.close(writing)
        writing = None
        assert system.listen(WAIT) == b""
        # End of file is readable for ever: had the watch not ended, this would bring b"" again.
        assert system.listen(timedelta(milliseconds=30)) is None
    finally:
        os.close(reading)
        if writing is not None:
            os.close(writing)


def test_systems_in_one_process_share_nothing_but_may_talk():
    """Two loops have two threads; actors of one may send to addresses of the other."""
    one = ActorSystem(systemBase=LoopBase(), transientUnique=True)
    other = ActorSystem(systemBase=LoopBase(), transientUnique=True)
    try:
        a, b = one.createActor(Reporter), other.createActor(Echo)
        assert a != b
        bridge = one.createActor(Bridge)
        for number in range(200):
            one.tell(bridge, (b, number))
        assert [one.listen(WAIT) for _ in range(200)] == list(range(200))
        assert threading.active_count() >= 3
    finally:
        one.shutdown()
        other.shutdown()


class Bridge(Actor):
    """Sends the value of (address, value) to the address, and the answer back to the asker."""

    def receiveMessage(self, message, sender):
        if isinstance(message, tuple):
            self.asker = sender
            self.send(*message)
        elif not isinstance(message, ActorSystemMessage):
            self.send(self.asker, message)
