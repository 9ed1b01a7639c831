"""The same process classes on Thespian's own system bases: in one thread, and in an OS process each."""

from __future__ import annotations

import os
import time

import pytest
from thespian.actors import ActorAddress

from warren.runtime.errors import ProcessDown, ProcessError
from warren.runtime.process import Process

WAIT = 300


class Stock(ProcessError):
    pass


class Worker(Process):
    def __init__(self):
        self.batches = 0

    def after_batch(self):
        self.batches += 1

    def on_add(self, sender, one, other):
        return one + other

    def on_batches(self, sender):
        return self.batches

    def on_refuse(self, sender):
        raise Stock("refused")

    def on_crash(self, sender):
        raise ValueError("provoked")

    def on_stop(self, sender, reason):
        self.stop(reason)

    def on_die(self, sender):
        os._exit(1)

    async def on_blocking(self, sender):
        return await self.run_blocking(pow, 2, 10)


class Office(Process):
    """Has a worker as child, and reports its end to the address in `report`."""

    worker = None

    def on_hire(self, sender, report):
        self.report = report
        self.worker = self.createActor(Worker)
        self.monitor(self.worker, "worker")
        return True

    async def on_pass_on(self, sender, message, timeout=None):
        try:
            return await self.ask(self.worker, message, timeout)
        except ProcessError as error:
            return (type(error).__name__, str(error))

    def on_tell_worker(self, sender, message):
        self.send(self.worker, message)

    def on_timers(self, sender, report):
        self.report = report
        self.cancel_timer(self.start_timer(0.001, "cancelled"))
        self.started = self.now()
        self.start_timer(0.03, "second")
        self.start_timer(0.01, "first")

    def on_timer(self, payload):
        self.send(self.report, (payload, self.now() - self.started >= 0.01))

    def on_down(self, name, reason):
        self.send(self.report, ("down", name, str(reason)))

    def on_child_exited(self, address):
        self.send(self.report, ("child exited", isinstance(address, ActorAddress)))


class Hub(Process):
    """An address that exists on every base: it passes each message on to the sender of `listen`."""

    def __init__(self):
        self.heard = []

    def on_address(self, sender):
        return self.myAddress

    def on_message(self, sender, message):
        return self.heard

    def on_unknown(self, sender, message):
        self.heard.append(message)


def ask(system, address, message):
    """`OutsideClient.ask` by means of Thespian's own ask."""
    answer = system.ask(address, ("ask", 1, message), WAIT)
    assert answer[:2] == ("$answer", 1), answer
    if not answer[2]:
        raise answer[3]
    return answer[3]


def heard(system, hub, count):
    """The first `count` messages that the hub received."""
    deadline = time.monotonic() + WAIT
    while len(events := ask(system, hub, "heard")) < count:
        assert time.monotonic() < deadline, events
        time.sleep(0.01)
    return events


@pytest.fixture(params=["simpleSystemBase", "multiprocTCPBase"], scope="module")
def stock(request, running_stock_system):
    with running_stock_system(request.param) as system:
        yield system


@pytest.fixture
def hub(stock):
    address = stock.createActor(Hub)
    return address, ask(stock, address, ("address",))


@pytest.fixture
def office(stock, hub):
    address = stock.createActor(Office)
    assert ask(stock, address, ("hire", hub[1])) is True
    return address


def test_asks_and_answers(stock, office):
    """Values, listed errors, unknown messages and blocking calls work; after_batch follows each message."""
    assert ask(stock, office, ("pass_on", ("add", 2, 3))) == 5
    assert ask(stock, office, ("pass_on", ("refuse",))) == ("Stock", "refused")
    assert ask(stock, office, ("pass_on", ("nix",)))[0] == "UnknownMessage"
    assert ask(stock, office, ("pass_on", ("blocking",))) == 1024
    assert ask(stock, office, ("pass_on", ("batches",))) == 5  # five: the monitor that the office set was a message too


def test_timers(stock, office, hub):
    """They are not early, and not after a cancel. Their order is the base's: the simple base checks at each call."""
    stock.tell(office, ("timers", hub[1]))
    assert sorted(heard(stock, hub[0], 2)) == [("first", True), ("second", True)]


@pytest.mark.parametrize("message, reason", [(("stop", "tired"), "tired"), (("crash",), "crash: ValueError: provoked")])
def test_ends_are_reported(stock, office, hub, message, reason):
    """The monitor gets the reason, the parent the exit, and an open ask ProcessDown."""
    name, text = ask(stock, office, ("pass_on", message))
    assert (name, text) == (ProcessDown.__name__, reason)
    events = heard(stock, hub[0], 2)
    assert sorted(events) == [("child exited", True), ("down", "worker", reason)]


def test_a_killed_operating_system_process_is_down(stock, office, hub):
    """It cannot send its last messages, but its parent's monitor still fires."""
    if stock._systemBase.__class__.__module__.endswith("simpleSystemBase"):
        pytest.skip("there is no process to kill")
    stock.tell(office, ("tell_worker", ("die",)))
    assert sorted(heard(stock, hub[0], 2)) == [("child exited", True), ("down", "worker", "exited")]
