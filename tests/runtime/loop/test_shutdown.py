"""Shutdown takes a bounded time and leaves no thread, no descriptor and no child."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import pytest
from thespian.actors import Actor, ActorExitRequest, ActorSystem

from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process

WAIT = 300


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


class Busy(Process):
    """Holds everything a process can hold: a descriptor, a timer, blocking work, a child, a coroutine."""

    def on_start(self, sender):
        self.reading, self.writing = os.pipe()
        self.watch(self.reading)
        self.start_timer(3600, "never")
        self.spawn(self._work())
        self.child = self.createActor(Looping)
        self.send(self.child, ("again",))
        return True

    async def _work(self):
        await self.run_blocking(time.sleep, 0.001)
        await self.ask(self.child, ("nothing",))

    def on_exit(self):
        os.close(self.reading)
        os.close(self.writing)


class Looping(Process):
    def on_again(self, sender):
        self.send(self.myAddress, ("again",))

    def on_nothing(self, sender):
        """Never answers."""


class Heartless(Actor):
    """Ends without its child: it makes its exit request not recursive."""

    def receiveMessage(self, message, sender):
        if message == "child":
            self.send(sender, self.createActor(Heartless))
        elif isinstance(message, ActorExitRequest):
            message.notRecursive()


def test_nothing_is_left_after_fifty_systems_in_a_row():
    """There are as many threads and descriptors afterwards as before."""
    gc.collect()  # closes now what earlier tests left, and not on the way
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    for number in range(50):
        base = LoopBase()
        system = ActorSystem(systemBase=base, transientUnique=True)
        with OutsideClient(system) as client:
            assert client.ask(system.createActor(Busy), ("start",), WAIT)
        system.shutdown() if number % 2 else base.shutdown()
    assert set(threading.enumerate()) == threads
    assert open_descriptors() == descriptors


def test_the_system_itself_is_garbage_afterwards():
    """After its shutdown nothing global refers to a system, so it is freed."""
    base = LoopBase()
    system = ActorSystem(systemBase=base, transientUnique=True)
    with OutsideClient(system) as client:
        client.ask(system.createActor(Busy), ("start",), WAIT)
    system.shutdown()
    ref = weakref.ref(base)
    del base, system, client
    gc.collect()
    assert ref() is None


def test_an_ended_process_is_freed_without_the_garbage_collector(base, system, client):
    """Reference counting alone frees a process that has ended; a broker with many connections depends on it."""
    gc.collect()
    gc.disable()
    try:
        address = system.createActor(Busy)
        client.ask(address, ("start",), WAIT)
        ref = weakref.ref(address._cell.actor)
        client.tell(address, ActorExitRequest())
        base.call(lambda: None)
        while base.call(lambda: base.living):
            pass
        base.call(lambda: None)
        assert ref() is None
    finally:
        gc.enable()


def test_children_that_were_spared_go_with_the_system(system, base):
    """notRecursive() spares children when their parent exits, but not at a shutdown, and does not delay it."""
    parent = system.createActor(Heartless)
    child = system.ask(parent, "child", WAIT)
    system.ask(child, "child", WAIT)
    system.tell(parent, ActorExitRequest())
    started = time.monotonic()
    base.shutdown()
    assert time.monotonic() - started < 30
    assert base.living == 0


def test_a_blocking_call_that_hangs_does_not_hold_up_shutdown(caplog):
    """A shutdown gives up a blocking call that hangs after `shutdown_seconds`, and logs that."""
    release = threading.Event()

    class Hanging(Process):
        async def on_hang(self, sender):
            await self.run_blocking(release.wait)

        def on_ping(self, sender):
            return True

    base = LoopBase(shutdown_seconds=0.1)
    system = ActorSystem(systemBase=base, transientUnique=True)
    with OutsideClient(system) as client:
        address = system.createActor(Hanging)
        client.tell(address, ("hang",))
        client.ask(address, ("ping",), WAIT)
        started = time.monotonic()
        base.shutdown()
        assert time.monotonic() - started < 30
    assert "blocking call does not return" in caplog.text
    left = [thread for thread in threading.enumerate() if thread.name.startswith(base.name)]
    release.set()
    for thread in left:
        thread.join(WAIT)


def test_one_warning_names_some_of_the_processes_that_did_not_end(caplog, monkeypatch):
    """Processes that did not end in time give one warning with a few names; a broker with 20,000 queues once wrote a
    line for each.
    """
    base = LoopBase(shutdown_seconds=0.0)
    # No process ends by itself in that time, however fast the machine is.
    monkeypatch.setattr(base, "_ask_actors_to_exit", lambda deadline: None)
    system = ActorSystem(systemBase=base, transientUnique=True)
    for _ in range(10):
        system.createActor(Looping)
    base.shutdown()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("killed, because they did not end within 0 s: ")
    assert warning.count("ActorAddr") == 3 and warning.endswith(" and 7 more processes")


def test_shutdown_twice_and_from_many_threads(base, system):
    """A second shutdown, from whichever thread, does nothing and returns."""
    system.createActor(Busy)
    threads = [threading.Thread(target=base.shutdown) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    base.shutdown()
    assert not any(thread.is_alive() for thread in threads)


def test_shutdown_ends_all_listening(base, system):
    """Several threads may wait at one port; all of them return."""
    heard = []
    threads = [threading.Thread(target=lambda: heard.append(system.listen(None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    base.shutdown()
    for thread in threads:
        thread.join(WAIT)
    assert heard == [None] * 3


def test_after_shutdown_calls_fail_or_do_nothing(base, system):
    """createActor raises, tell does nothing, listen returns None."""
    address = system.createActor(Busy)
    base.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        system.createActor(Busy)
    system.tell(address, ("start",))
    assert system.listen(WAIT) is None
    assert system.listen(WAIT) is None
