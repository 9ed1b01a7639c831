"""While turns are long, a message of another client passes through all its processes between two of them, also through
those that clients share, such as queues.

The loop's clock is one of the test, by which only the turns of slow queues are long. By a real clock any turn may be,
because the system runs other programs meanwhile.
"""

from __future__ import annotations

import os

import pytest
from thespian.actors import ActorSystem

from warren.runtime.loop import descriptors, lanes, loop_base
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.watchdog import Watchdog
from warren.runtime.process import Process

WAIT = 300


class Clock:
    """Goes on by a microsecond each time that it is read. It is the clock of the processor's time as well."""

    seconds = 0.0

    def monotonic(self):
        self.seconds += 1e-6
        return self.seconds


class SlowQueue(Process):
    """Has as many long turns as it is asked for, and counts them."""

    turns = 0

    def on_work(self, sender, turns):
        SlowQueue.turns += 1
        SlowQueue.clock.seconds += 0.1
        if turns > 1:
            self.send(self.myAddress, ("work", turns - 1))


class Queue(Process):
    """Sends each message back."""

    def on_pass(self, sender, trips):
        self.send(sender, ("back", trips))


class Channel(Process):
    """Sends a message to a queue and gets it back, `trips` times, and notes the long turns before each of them."""

    def on_open(self, sender, queue, noted):
        self.queue, self.noted = queue, noted

    def on_back(self, sender, trips):
        self.noted.append(SlowQueue.turns)
        if trips:
            self.send(self.queue, ("pass", trips - 1))


class Connection(Process):
    """Watches a pipe; its input makes it send a message."""

    def on_open(self, sender, fd, to, message):
        self.to, self.message = to, message
        self.watch(fd)
        return True

    def on_readable(self, fd):
        os.read(fd, 1)
        self.send(self.to, self.message)


class ChannelConnection(Connection):
    """Its input makes its channel send a message to the queue and back."""

    def on_begin(self, sender, fd, queue, trips, noted):
        channel = self.createActor(Channel)
        self.send(channel, ("open", queue, noted))
        self.on_open(sender, fd, channel, ("back", trips))


@pytest.fixture
def loop(monkeypatch):
    clock = Clock()
    for module in (descriptors, lanes, loop_base):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(loop_base, "Watchdog", lambda: Watchdog(clock.monotonic, monotonic=clock.monotonic))
    base = LoopBase(thread=False)
    SlowQueue.turns, SlowQueue.clock = 0, clock
    yield base
    base.shutdown()


def test_a_message_passes_a_queue_between_two_long_turns_of_other_queues(loop):
    """Its input is read after one long turn, and then it waits for no further one."""
    system = ActorSystem(systemBase=loop, transientUnique=True)
    queue, noted = system.createActor(Queue), []
    pipes = [os.pipe() for _ in range(3)]
    for reading, _ in pipes[:2]:
        slow = system.createActor(SlowQueue)
        loop.enqueue(loop.address, system.createActor(Connection), ("open", reading, slow, ("work", 12)))
    loop.enqueue(loop.address, system.createActor(ChannelConnection), ("begin", pipes[2][0], queue, 3, noted))
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    for _, writing in pipes[:2]:
        os.write(writing, b".")
    assert loop.run_until(lambda: SlowQueue.turns >= 3, WAIT)
    before = SlowQueue.turns
    os.write(pipes[2][1], b".")
    assert loop.run_until(lambda: len(noted) == 4, WAIT)
    assert noted[-1] <= before + 1
    assert loop.run_until(lambda: SlowQueue.turns == 24, WAIT)
    for pair in pipes:
        for fd in pair:
            os.close(fd)


def test_after_a_long_turn_an_idle_client_is_served_before_busy_ones(loop, monkeypatch):
    """While turns are long, one descriptor may take all of the time for descriptors. It is not that of a client for
    which work waits already.
    """
    monkeypatch.setattr(descriptors, "ROUND_SECONDS", 0.0)
    system = ActorSystem(systemBase=loop, transientUnique=True)
    slow, queue, noted = system.createActor(SlowQueue), system.createActor(Queue), []
    pipes = [os.pipe() for _ in range(2)]
    loop.enqueue(loop.address, system.createActor(Connection), ("open", pipes[0][0], slow, ("work", 3)))
    loop.enqueue(loop.address, system.createActor(ChannelConnection), ("begin", pipes[1][0], queue, 0, noted))
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    os.write(pipes[0][1], b".")
    assert loop.run_until(lambda: SlowQueue.turns >= 1, WAIT)
    loop.lanes.follow_until = float("inf")
    for _, writing in pipes:
        os.write(writing, b".")
    loop.descriptors.serve()
    assert [fd for fd, _ in loop.descriptors.unserved] == [pipes[0][0]]
    assert loop.run_until(lambda: SlowQueue.turns == 6 and noted, WAIT)
    for pair in pipes:
        for fd in pair:
            os.close(fd)
