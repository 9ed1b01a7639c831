"""The loop: fairness, descriptors under load, sleeping, the caller's own thread."""

from __future__ import annotations

import os
import threading
import time

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessTimeout
from warren.runtime.loop.loop_base import BUDGET, LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process

WAIT = 300


class Flood(Process):
    """Sends itself another message for each message, so that its mailbox is never empty; counts them."""

    def __init__(self):
        self.count = 0
        self.going = False

    def on_start(self, sender, width):
        self.going = True
        for _ in range(width):
            self.send(self.myAddress, ("again",))
        return True

    def on_again(self, sender):
        self.count += 1
        if self.going:
            self.send(self.myAddress, ("again",))

    def on_finish(self, sender):
        self.going = False
        return self.count


class Witness(Process):
    def on_ping(self, sender):
        return "pong"


class Pipe(Process):
    def on_open(self, sender, fd):
        self.to = sender
        self.watch(fd)
        return True

    def on_readable(self, fd):
        self.send(self.to, os.read(fd, 100))


class TestFairness:
    def test_a_flooding_actor_lets_others_have_their_turn(self, system, client):
        """While one mailbox is never empty, other processes answer asks and timers fire."""
        flood, witness = system.createActor(Flood), system.createActor(Witness)
        assert client.ask(flood, ("start", 1000), WAIT)
        for _ in range(100):
            assert client.ask(witness, ("ping",), WAIT) == "pong"
        assert client.ask(flood, ("finish",), WAIT) > 0

    def test_a_turn_is_at_most_the_budget(self, base, system):
        """The messages of two busy actors are handled alternately, `BUDGET` at a time."""
        order: list[str] = []

        class Noted(Process):
            def on_note(self, sender, name):
                order.append(name)

        one, other = system.createActor(Noted), system.createActor(Noted)

        def fill():
            for _ in range(3 * BUDGET):
                base.enqueue(base.address, one, ("note", "one"))
            for _ in range(BUDGET):
                base.enqueue(base.address, other, ("note", "other"))

        base.call(fill)
        with OutsideClient(system) as client:
            while len(order) < 4 * BUDGET:
                client.ask(system.createActor(Witness), ("ping",), WAIT)
        assert order == ["one"] * BUDGET + ["other"] * BUDGET + ["one"] * (2 * BUDGET)

    def test_busy_actors_do_not_starve_descriptors(self, system, client):
        """Input is read while the run queue is never empty."""
        floods = [system.createActor(Flood) for _ in range(3)]
        for flood in floods:
            assert client.ask(flood, ("start", 100), WAIT)
        reading, writing = os.pipe()
        try:
            pipe = system.createActor(Pipe)
            system.tell(pipe, ("open", reading))
            for number in range(50):
                os.write(writing, b"%d" % number)
                assert system.listen(WAIT) == b"%d" % number
        finally:
            for flood in floods:
                client.ask(flood, ("finish",), WAIT)
            os.close(reading)
            os.close(writing)

    def test_a_busy_descriptor_does_not_starve_mailboxes(self, system, client):
        """While a descriptor is always ready, because its input is never read, processes still get their turns."""

        class Deaf(Process):
            seen = 0

            def on_open(self, sender, fd):
                self.watch(fd)
                return True

            def on_readable(self, fd):
                self.seen += 1

            def on_seen(self, sender):
                return self.seen

        reading, writing = os.pipe()
        os.write(writing, b"x")
        deaf, witness = system.createActor(Deaf), system.createActor(Witness)
        assert client.ask(deaf, ("open", reading), WAIT)
        for _ in range(50):
            assert client.ask(witness, ("ping",), WAIT) == "pong"
        assert client.ask(deaf, ("seen",), WAIT) > 0
        client.tell(deaf, ("nix",))
        os.close(reading)
        os.close(writing)


class TestSleep:
    def test_an_idle_loop_does_nothing(self, base, system, client):
        """A loop without work uses no processor time."""
        address = system.createActor(Witness)
        client.ask(address, ("ping",), WAIT)

        def used() -> float:
            return time.clock_gettime(time.pthread_getcpuclockid(base._thread.ident))

        before = used()
        time.sleep(0.2)
        assert used() - before < 0.005

    def test_a_far_timer_does_not_overflow_the_sleep(self, system, client):
        """A timer that is due in a hundred years does not overflow the loop's longest sleep."""

        class Patient(Process):
            def on_wait(self, sender):
                self.start_timer(100 * 365 * 86400.0)
                return True

        assert client.ask(system.createActor(Patient), ("wait",), WAIT)
        assert client.ask(system.createActor(Witness), ("ping",), WAIT) == "pong"

    def test_busy_with_names_the_work(self, base, system, client):
        """`busy_with` names the processes that have work, and is empty when none has."""
        flood = system.createActor(Flood)
        assert base.call(base.busy_with) == ""
        assert client.ask(flood, ("start", 1), WAIT)
        assert "Flood" in base.call(base.busy_with)
        client.ask(flood, ("finish",), WAIT)

    def test_a_timer_is_work_if_its_process_says_so(self, base, system, client):
        class Writer(Process):
            work_timers = ("write",)

            def on_wait(self, sender, payload):
                return self.start_timer(86_400.0, payload)

            def on_stop_waiting(self, sender, ref):
                self.cancel_timer(ref)
                return True

        writer = system.createActor(Writer)
        client.ask(writer, ("wait", "expire"), WAIT)
        assert base.call(base.busy_with) == ""
        ref = client.ask(writer, ("wait", "write"), WAIT)
        assert "Writer" in base.call(base.busy_with)
        client.ask(writer, ("stop_waiting", ref), WAIT)
        assert base.call(base.busy_with) == ""


class TestCallersThread:
    @pytest.fixture
    def own(self):
        base = LoopBase(thread=False)
        yield base
        base.shutdown()

    def test_asking_runs_the_loop(self, own):
        """Without a thread of its own, the system runs while a thread waits for an answer."""
        system = ActorSystem(systemBase=own, transientUnique=True)
        address = system.createActor(Witness)
        with OutsideClient(system) as client:
            assert client.ask(address, ("ping",), WAIT) == "pong"
            with pytest.raises(ProcessTimeout):
                client.ask(system.createActor(Silent), ("hm",), 0.01)
        assert own.name not in [thread.name for thread in threading.enumerate()]

    def test_run_until(self, own):
        """`run_until` returns the last value of its condition, which is False after the timeout."""
        system = ActorSystem(systemBase=own, transientUnique=True)
        flood = system.createActor(Flood)
        system.tell(flood, ("start", 1))
        actor = flood._cell.actor
        assert own.run_until(lambda: actor.count > 1000, WAIT)
        assert not own.run_until(lambda: False, 0.01)

    def test_run_forever_until_stop(self, own):
        """Another thread may end `run_forever` with `stop`; the actors stay, and go on when the loop runs again."""
        system = ActorSystem(systemBase=own, transientUnique=True)
        address = system.createActor(Witness)
        timer = threading.Timer(0.02, own.stop)
        timer.start()
        own.run_forever()
        timer.join()
        with OutsideClient(system) as client:
            assert client.ask(address, ("ping",), WAIT) == "pong"

    def test_a_stop_before_the_loop_runs_takes_effect(self, own):
        """A stop before run_forever, such as that of a signal during the set-up, makes run_forever return."""
        own.stop()
        own.run_forever()

    def test_shutdown_from_another_thread(self):
        """A shutdown from another thread ends all actors, and then run_forever returns."""
        base = LoopBase(thread=False)
        threading.Timer(0.02, base.shutdown).start()
        base.run_forever()
        assert base.is_closed()

    def test_an_interrupt_leaves_the_loop_usable(self, own):
        """Ctrl-C in the middle of a handler is raised by run_forever, and the actor still ends in order."""
        ended = []

        class Interrupted(Witness):
            def on_interrupt(self, sender):
                raise KeyboardInterrupt

            def on_exit(self):
                ended.append(True)

        system = ActorSystem(systemBase=own, transientUnique=True)
        address = system.createActor(Interrupted)
        system.tell(address, ("interrupt",))
        with pytest.raises(KeyboardInterrupt):
            own.run_forever()
        with OutsideClient(system) as client:
            assert client.ask(address, ("ping",), WAIT) == "pong"
        started = time.monotonic()
        own.shutdown()
        assert ended == [True] and time.monotonic() - started < 1

    def test_a_running_loop_cannot_be_run_again(self, base):
        """While one thread runs the loop, another one that tries to run it gets an error."""
        with pytest.raises(RuntimeError, match="running already"):
            base.run_forever()


class Silent(Process):
    def on_hm(self, sender):
        """Never answers."""
