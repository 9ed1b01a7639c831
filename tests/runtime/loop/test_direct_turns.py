"""Clients that are equally busy are served directly, without the work of lanes and rounds, and hold up nobody else."""

from __future__ import annotations

import os

import pytest
from thespian.actors import ActorSystem

from warren.runtime.loop import direct_turns, loop_base
from warren.runtime.loop.lanes import BURST, Lanes
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process

#: Turns after which a test fails, instead of running for ever.
TOO_MANY = 200_000


class Spinner(Process):
    """Has one turn after the other from its first input on, until `until()` is true or a limit is reached; then it
    stops the loop. `at_turn` maps the number of a turn to what the process does in it.
    """

    def on_open(self, sender, fd, until, at_turn):
        self.until = until
        self.at_turn = at_turn
        self.turns = 0
        self.watch(fd)

    def on_readable(self, fd):
        os.read(fd, 1)
        self.send(self.myAddress, ("spin",))

    def on_spin(self, sender):
        self.turns += 1
        if self.until() or self.turns == TOO_MANY:
            self._myRef.base.stop()
            return
        self.send(self.myAddress, ("spin",))
        if self.turns in self.at_turn:
            self.at_turn[self.turns](self)


class Busy(Process):
    """Is always ready from its first message on. `turns` counts the turns of all of them."""

    turns = 0

    def on_go(self, sender):
        Busy.turns += 1
        self.send(self.myAddress, ("go",))


class Tired(Process):
    """Is ready for three turns from its first message on."""

    turns = 0

    def on_go(self, sender):
        self.turns += 1
        if self.turns < 3:
            self.send(self.myAddress, ("go",))


class Relay(Process):
    """Sends itself a message for its input, and notes how many turns busy processes had until that message came."""

    def on_open(self, sender, fd, noted):
        self.noted = noted
        self.watch(fd)

    def on_readable(self, fd):
        os.read(fd, 1)
        self.send(self.myAddress, ("read", Busy.turns))

    def on_read(self, sender, before):
        self.noted.append(Busy.turns - before)


class Twice(Relay):
    """Calls `between` for its first input; for the second one it is a Relay, and stops the loop when it has noted."""

    def on_open(self, sender, fd, noted, between):
        super().on_open(sender, fd, noted)
        self.between = between

    def on_readable(self, fd):
        if self.between is None:
            super().on_readable(fd)
            return
        os.read(fd, 1)
        self.between()
        self.between = None

    def on_read(self, sender, before):
        super().on_read(sender, before)
        self._myRef.base.stop()


class Noter(Process):
    """Notes events in a list."""

    def on_open(self, sender, fd, noted):
        self.noted = noted
        if fd is not None:
            self.watch(fd)

    def on_readable(self, fd):
        self.noted.append(os.read(fd, 1))

    def on_want_timer(self, sender, seconds):
        self.start_timer(seconds)

    def on_timer(self, payload):
        self.noted.append("timer")

    def on_want_round_end(self, sender):
        self.call_at_round_end()

    def on_round_end(self):
        self.noted.append("round end")


@pytest.fixture
def loop():
    base = LoopBase(thread=False)
    yield base
    base.shutdown()


@pytest.fixture
def pipes():
    made = [os.pipe() for _ in range(2)]
    yield made
    for pair in made:
        for fd in pair:
            os.close(fd)


@pytest.fixture
def noted():
    return []


@pytest.fixture
def spin(loop, pipes, noted):
    """A function that has a Spinner spin until something is noted, and returns how many turns it had."""

    def spin(at_turn=()):
        address = opened(loop, Spinner, pipes[0][0], lambda: bool(noted), dict(at_turn))
        os.write(pipes[0][1], b".")
        loop.run_forever()
        return loop.cells[address.actorAddressString].actor.turns

    return spin


@pytest.fixture
def patient(loop, monkeypatch):
    """The loop does not poll on its own while a client is busy."""
    monkeypatch.setattr(loop_base, "POLL_INTERVAL", 600.0)
    monkeypatch.setattr(direct_turns, "POLL_INTERVAL", 600.0)
    loop.watchdog.floor = 600.0


def opened(loop, process, *arguments):
    address = ActorSystem(systemBase=loop, transientUnique=True).createActor(process)
    loop.enqueue(loop.address, address, ("open", *arguments))
    loop.run_until(lambda: not loop.lanes, 60)
    return address


def test_the_input_of_another_client_is_read(loop, pipes, noted, spin):
    """A client that never rests is interrupted for a poll, and the other client gets its turns."""
    opened(loop, Noter, pipes[1][0], noted)
    turns = spin({3: lambda spinner: os.write(pipes[1][1], b"x")})
    assert noted == [b"x"]
    assert turns < TOO_MANY


def test_many_busy_processes_of_one_client_do_not_hold_up_another(loop, pipes, noted, spin, monkeypatch):
    """A client that keeps 200 processes busy gets its share of the turns, not 200 for one of another client."""
    monkeypatch.setattr(Busy, "turns", 0)
    # However busy the machine is, direct turns end for no other reason.
    monkeypatch.setattr(direct_turns, "DIRECT_SECONDS", 600.0)
    monkeypatch.setattr(direct_turns, "LONG_TURN_SECONDS", 600.0)
    system = ActorSystem(systemBase=loop, transientUnique=True)
    workers = [system.createActor(Busy) for _ in range(200)]

    def flood(spinner):
        for worker in workers:
            spinner.send(worker, ("go",))

    opened(loop, Relay, pipes[1][0], noted)
    spin({3: flood, 20: lambda spinner: os.write(pipes[1][1], b"x")})
    (turns,) = noted
    assert turns <= BURST


def test_a_client_does_not_wait_for_what_a_call_has_woken(loop, pipes, noted, monkeypatch):
    """The end of a blocking call wakes 200 processes while one client alone is served. They are not counted to that
    client, so its next message is not the last of 201.
    """
    monkeypatch.setattr(Busy, "turns", 0)
    monkeypatch.setattr(direct_turns, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(direct_turns, "DIRECT_SECONDS", 600.0)
    monkeypatch.setattr(direct_turns, "LONG_TURN_SECONDS", 600.0)
    system = ActorSystem(systemBase=loop, transientUnique=True)
    workers = [system.createActor(Busy) for _ in range(200)]

    def wake_all():
        os.write(pipes[0][1], b".")
        for worker in workers:
            loop.enqueue(loop.address, worker, ("go",))

    opened(loop, Twice, pipes[0][0], noted, lambda: loop.post(wake_all))
    os.write(pipes[0][1], b".")
    loop.run_forever()
    (turns,) = noted
    assert turns <= BURST


@pytest.fixture
def rounds(monkeypatch):
    """A list with an entry for each time that lanes had turns."""
    had = []
    plain = Lanes.have_turns

    def have_turns(self, turn, now):
        had.append(now)
        return plain(self, turn, now)

    monkeypatch.setattr(Lanes, "have_turns", have_turns)
    return had


def test_twenty_busy_clients_need_no_lanes(loop, noted, rounds):
    """While each client has as little to do as any other, lanes would only cost time."""
    pipes = [os.pipe() for _ in range(20)]
    for reading, _ in pipes:
        opened(loop, Noter, reading, noted)
    last = opened(loop, Spinner, pipes[-1][0], lambda: len(noted) == 19, {})
    rounds.clear()
    for _, writing in pipes:
        os.write(writing, b".")
    loop.run_forever()
    assert noted == [b"."] * 19
    assert loop.cells[last.actorAddressString].actor.turns == 1
    assert rounds == []
    for pair in pipes:
        for fd in pair:
            os.close(fd)


def test_lanes_are_given_up_when_no_client_needs_them(loop, noted, rounds, spin, monkeypatch):
    """200 processes that a client keeps busy have lanes; when they rest, the loop goes on without lanes."""
    monkeypatch.setattr(loop_base, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(direct_turns, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(direct_turns, "LONG_TURN_SECONDS", 600.0)
    loop.watchdog.floor = 600.0
    system = ActorSystem(systemBase=loop, transientUnique=True)
    workers = [system.createActor(Tired) for _ in range(200)]

    def flood(spinner):
        for worker in workers:
            spinner.send(worker, ("go",))

    spin({3: flood, 5_000: lambda _: rounds.append("rested"), 6_000: noted.append})
    assert rounds[-1] == "rested"
    assert len(rounds) > 1


def test_a_call_from_another_thread_is_next(loop, noted, spin, patient):
    """What another thread posts to the loop, such as the end of a sync, is handled in the next turn and does not wait
    for a poll.
    """
    assert spin({5: lambda spinner: loop.post(noted.append, "called")}) == 6


def test_a_timer_is_not_late(loop, noted, spin, patient):
    """A timer that is due ends the direct turns, so that it fires in time."""
    noter = opened(loop, Noter, None, noted)
    loop.enqueue(loop.address, noter, ("want_timer", 0.01))
    loop.run_until(lambda: not loop.lanes, 60)
    turns = spin()
    assert noted == ["timer"]
    assert turns < TOO_MANY


def test_a_round_ends(loop, noted, spin, patient):
    """Direct turns, too, have an end of the round: what a process has put off until then is done once those that were
    ready had their turns.
    """
    noter = opened(loop, Noter, None, noted)
    turns = spin({5: lambda spinner: spinner.send(noter, ("want_round_end",))})
    assert noted == ["round end"]
    assert turns <= 8


def test_ctrl_c_in_a_turn_loses_no_process(loop, noted, spin):
    """The process whose turn was cut short, and those that were ready, go on when the loop runs again."""

    def interrupt(spinner):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spin({5: interrupt})
    noted.append("interrupted")
    (spinner,) = [cell.actor for cell in loop.cells.values() if isinstance(getattr(cell, "actor", None), Spinner)]
    loop.run_until(lambda: spinner.turns > 5, 5)
    assert spinner.turns == 6
