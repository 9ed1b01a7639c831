"""The longest turns of a loop: which of them are remembered, and which are logged."""

from __future__ import annotations

import logging
import os
import time
import weakref
from types import SimpleNamespace

import pytest
from thespian.actors import Actor, ActorSystem

from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.watchdog import FLOOR_SECONDS, QUIET_SECONDS, REMEMBERED, Watchdog
from warren.runtime.process import Process

WAIT = 300


class Labourer(Process):
    label = "labourer 'Jim'"

    def on_burn(self, sender, seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return True

    def on_wait(self, sender, seconds):
        time.sleep(seconds)
        return True

    def on_name(self, sender):
        return self.myAddress.actorAddressString.partition("/")[2]

    def on_take(self, sender, content):
        """Ignores the content."""

    def on_open(self, sender):
        self.ends = os.pipe()
        self.watch(self.ends[0])
        os.write(self.ends[1], b"x")

    def on_readable(self, fd):
        os.read(fd, 1)
        self.on_burn(None, 0.15)

    def on_exit(self):
        for end in getattr(self, "ends", ()):
            os.close(end)


class Plain(Actor):
    def receiveMessage(self, message, sender):
        if message == "burn":
            Labourer.on_burn(None, None, 0.02)
            self.send(sender, "done")


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Dog:
    """A watchdog with clocks that the test sets, and turns of one process."""

    def __init__(self):
        self.processor, self.wall, self.monotonic = Clock(), Clock(), Clock()
        self.watchdog = Watchdog(self.processor, self.wall, self.monotonic)
        self.cell = SimpleNamespace(
            handlers={}, actor=SimpleNamespace(label=""), address=SimpleNamespace(addressDetails="node-1/Queue-7")
        )

    def turn(self, seconds, used=None, message=("purge",)):
        self.watchdog.mark(self.monotonic.now)
        self.go_on(seconds, seconds if used is None else used)
        if seconds > self.watchdog.floor:
            self.note(seconds, message)

    def go_on(self, seconds, used):
        """The clocks go on by `seconds`, of which the loop has the processor for `used`."""
        self.processor.now += used
        self.wall.now += seconds
        self.monotonic.now += seconds

    def note(self, seconds, message=("purge",)):
        """A turn of `seconds` ends now."""
        return self.watchdog.note(self.cell, message, self.monotonic.now - seconds, self.monotonic.now)


def test_the_longest_turns_are_kept_the_longest_first():
    dog = Dog()
    for number in range(1, 31):
        dog.turn(number / 1000 * (1 if number % 2 else 0.5))
    kept = [round(turn.seconds, 6) for turn in dog.watchdog.longest]
    every = [number / 1000 * (1 if number % 2 else 0.5) for number in range(1, 31)]
    assert kept == [round(seconds, 6) for seconds in sorted(every, reverse=True)[:REMEMBERED]]
    assert dog.watchdog.floor == dog.watchdog.longest[-1].seconds


def test_short_turns_are_not_kept():
    dog = Dog()
    dog.turn(FLOOR_SECONDS / 2)
    assert dog.watchdog.longest == []


def test_time_that_other_programs_had_does_not_count():
    """A turn of a second, of which the process used 2 ms, counts as 2 ms."""
    dog = Dog()
    dog.turn(1.0, used=0.002)
    assert [round(turn.seconds, 6) for turn in dog.watchdog.longest] == [0.002]


def test_earlier_turns_do_not_count():
    """A turn is charged with no more processor time than it took: the processor's clock is not read before each turn,
    so a reading includes earlier turns.
    """
    dog = Dog()
    dog.watchdog.mark(dog.monotonic.now)
    dog.go_on(5.0, 5.0)
    dog.go_on(0.25, 0.25)
    assert dog.note(0.25) == 0.25
    assert [round(turn.seconds, 6) for turn in dog.watchdog.longest] == [0.25]


def test_a_turn_is_blamed_for_no_more_than_it_must_have_used():
    """Of 10 ms of processor time since the last mark, the 8 ms before the turn may have used up to 8: the turn of 6 ms,
    in which other programs had the processor, is charged with 2.
    """
    dog = Dog()
    dog.watchdog.mark(dog.monotonic.now)
    dog.go_on(0.008, 0.008)
    dog.go_on(0.006, 0.002)
    assert round(dog.note(0.006), 6) == 0.002
    assert [round(turn.seconds, 6) for turn in dog.watchdog.longest] == [0.002]


def test_a_turn_after_a_sleep_is_remembered_whole():
    """A loop that slept used no processor time meanwhile, so all that was used since the last mark is the turn's."""
    dog = Dog()
    dog.watchdog.mark(dog.monotonic.now)
    dog.go_on(0.009, 0.0)
    dog.watchdog.slept += 0.009
    dog.go_on(0.006, 0.005)
    assert round(dog.note(0.006), 6) == 0.005
    assert [round(turn.seconds, 6) for turn in dog.watchdog.longest] == [0.005]


def test_after_a_long_turn_the_next_one_is_measured_by_itself():
    dog = Dog()
    dog.watchdog.mark(dog.monotonic.now)
    for used in (0.004, 0.003):
        dog.go_on(0.004, used)
        dog.note(0.004)
    assert [round(turn.seconds, 6) for turn in dog.watchdog.longest] == [0.004, 0.003]


def test_a_warning_now_and_then(caplog):
    """Of many long turns one in `QUIET_SECONDS` is logged, with the number of the others."""
    dog = Dog()
    with caplog.at_level(logging.WARNING, logger="warren.runtime"):
        dog.turn(0.099)
        assert caplog.messages == []
        for _ in range(4):
            dog.turn(0.2, message=("ask", 1, ("purge",)))
        assert caplog.messages == [
            "Queue-7 had a turn of 200 ms, in which everybody else waited; it handled purge last"
        ]
        dog.monotonic.now += QUIET_SECONDS
        dog.turn(0.3)
    assert caplog.messages[1:] == [
        (
            "Queue-7 had a turn of 300 ms, in which everybody else waited; it handled purge last; "
            "3 more turns were too long since the last warning"
        )
    ]


def test_a_clock_that_is_set_back_delays_no_warning(caplog):
    dog = Dog()
    dog.turn(0.2)
    caplog.clear()
    dog.wall.now -= 3600
    dog.monotonic.now += QUIET_SECONDS
    dog.turn(0.2)
    assert len(caplog.messages) == 1


def test_every_long_turn_is_logged_however_many_longer_ones_there_were(caplog):
    dog = Dog()
    for _ in range(REMEMBERED):
        dog.turn(1.0)
    dog.monotonic.now += QUIET_SECONDS
    caplog.clear()
    dog.turn(0.2)
    assert len(caplog.messages) == 1


class TestOnALoop:
    def test_what_the_thread_did_before_it_ran_the_loop_does_not_count(self):
        """The first turn is charged with its own processor time. Until the loop had read the processor's clock once,
        all that the program had computed before counted as a part of that turn.
        """
        base = LoopBase(name="first", thread=False)
        try:
            labourer = ActorSystem(systemBase=base, transientUnique=True).createActor(Labourer)
            Labourer.on_burn(None, None, 0.3)
            base.enqueue(base.address, labourer, ("wait", 0.2))
            base.run_for(0.3)
            assert all(turn.seconds < 0.1 for turn in base.watchdog.longest), base.watchdog.longest
        finally:
            base.shutdown()

    def test_a_long_turn_is_recorded_and_logged(self, base, system, client, caplog):
        labourer = system.createActor(Labourer)
        name = client.ask(labourer, ("name",), WAIT)
        client.ask(labourer, ("burn", 0.15), WAIT)
        client.ask(labourer, ("name",), WAIT)
        turn = base.call(lambda: base.watchdog.longest[0])
        assert 0.14 < turn.seconds < 5 and abs(turn.ended_at - time.time()) < WAIT
        assert (turn.process, turn.message) == (f"labourer 'Jim' ({name})", "burn")
        assert any(f"labourer 'Jim' ({name}) had a turn of 1" in message for message in caplog.messages)

    def test_a_turn_that_sleeps_is_none(self, base, system, client, caplog):
        labourer = system.createActor(Labourer)
        client.ask(labourer, ("wait", 0.2), WAIT)
        client.ask(labourer, ("name",), WAIT)
        assert all(turn.message != "wait" or turn.seconds < 0.1 for turn in base.call(lambda: base.watchdog.longest))
        assert not any("had a turn" in message for message in caplog.messages)

    def test_a_descriptor_that_is_served_is_a_turn(self, base, system, client):
        labourer = system.createActor(Labourer)
        client.tell(labourer, ("open",))
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline and not base.call(lambda: base.watchdog.longest):
            time.sleep(0.01)
        assert base.call(lambda: base.watchdog.longest[0].message) == "a descriptor"

    def test_a_loop_that_sleeps_keeps_no_message(self, base, system, client):
        """A loop that sleeps keeps no reference to the last message, which may be large, while the sleep
        may be long.
        """

        class Content:
            pass

        labourer = system.createActor(Labourer)
        client.ask(labourer, ("name",), WAIT)
        content = Content()
        left = weakref.ref(content)
        base.post(base.enqueue, base.address, labourer, ("take", content))
        del content
        deadline = time.monotonic() + WAIT
        while left() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert left() is None

    def test_plain_actors_are_recorded_too(self, base, system):
        plain = system.createActor(Plain)
        assert system.ask(plain, "burn", WAIT) == "done"
        assert system.ask(plain, "burn", WAIT) == "done"
        assert base.call(lambda: base.watchdog.longest[0].process).startswith("Plain-")


@pytest.mark.parametrize("message", [None, "text", ("ask", 1, ("purge",)), ("purge", 1)])
def test_messages_are_named(message):
    dog = Dog()
    dog.turn(0.5, message=message)
    assert dog.watchdog.longest[0].message == {None: "no message", "text": "str"}.get(message, "purge")
