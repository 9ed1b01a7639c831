"""Lanes: a client that causes much work gets no more turns than one that causes little."""

from __future__ import annotations

import os
import time

import pytest
from thespian.actors import ActorSystem

from warren.runtime.exit_reason import ExitKind, ExitReason
from warren.runtime.loop import descriptors, lanes, loop_base, threads
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process

WAIT = 300

KILLED = ExitReason(ExitKind.KILLED, "killed")


class Worker(Process):
    """Has `turns` turns for each message, and counts those of all workers."""

    total = 0

    def on_work(self, sender, turns):
        Worker.total += 1
        if turns > 1:
            self.send(self.myAddress, ("work", turns - 1))


class SlowWorker(Worker):
    """A worker whose turns are long."""

    def on_work(self, sender, turns):
        ends = time.thread_time() + 0.1  # processor time is what makes a turn long
        while time.thread_time() < ends:
            pass
        super().on_work(sender, turns)


class Client(Process):
    """Watches a pipe, as a connection watches its socket; each byte of input makes all its workers busy."""

    worker = Worker

    def on_open(self, sender, fd, workers, turns):
        self.workers = [self.createActor(self.worker) for _ in range(workers)]
        self.turns = turns
        self.watch(fd)
        return True

    def on_readable(self, fd):
        os.read(fd, 1)
        for worker in self.workers:
            self.send(worker, ("work", self.turns))


class SlowClient(Client):
    worker = SlowWorker


class Relay(Process):
    """Watches a pipe; input goes through `hops` processes, each of which notes how many turns the workers have had."""

    def on_open(self, sender, fd, hops, noted):
        self.noted = noted
        self.next = None
        if hops:
            self.next = self.createActor(Relay)
            self.send(self.next, ("open", None, hops - 1, noted))
        if fd is not None:
            self.watch(fd)
        return True

    def on_readable(self, fd):
        os.read(fd, 1)
        self.on_pass(None)

    def on_pass(self, sender):
        self.noted.append(Worker.total)
        if self.next is not None:
            self.send(self.next, ("pass",))


class Sleeper(Process):
    """Has a timer and counts the timers of all sleepers."""

    total = 0

    def on_start(self, sender, seconds):
        self.start_timer(seconds)

    def on_timer(self, payload):
        Sleeper.total += 1

    def on_total(self, sender):
        return Sleeper.total


class Caller(Process):
    """Watches a pipe; input makes it ask a process for `total`, the timers that have been handled."""

    def on_open(self, sender, fd, other, noted):
        self.other, self.noted = other, noted
        self.watch(fd)
        return True

    async def on_readable(self, fd):
        os.read(fd, 1)
        self.noted.append(await self.ask(self.other, ("total",)))


class Parent(Process):
    def on_start(self, sender, children, seconds):
        for _ in range(children):
            self.send(self.createActor(Sleeper), ("start", seconds))
        return True


class Lister(Process):
    """Watches a pipe; input makes it note the processes that wait for their turns."""

    def on_open(self, sender, fd, noted):
        self.noted = noted
        self.watch(fd)
        return True

    def on_readable(self, fd):
        os.read(fd, 1)
        self.noted.append(list(self.mailboxes()))


@pytest.fixture
def loop():
    base = LoopBase(thread=False)
    Worker.total = Sleeper.total = 0
    yield base
    base.shutdown()


@pytest.fixture
def pipes():
    made = [os.pipe() for _ in range(60)]
    yield made
    for pair in made:
        for fd in pair:
            os.close(fd)


def opened(loop, process, *arguments):
    """Create a process, have it handle `open` or `start`, wait until all that it has started has done so too, and
    return its address.
    """
    system = ActorSystem(systemBase=loop, transientUnique=True)
    address = system.createActor(process)
    loop.enqueue(loop.address, address, arguments)
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    return address


def test_a_client_does_not_wait_for_the_many_processes_of_another(loop, pipes, monkeypatch):
    """While one client keeps 1,000 processes busy, the message of another is through after a few of their turns."""
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", 600.0)
    noted: list[int] = []
    opened(loop, Client, "open", pipes[0][0], 1000, 5)
    opened(loop, Relay, "open", pipes[1][0], 6, noted)
    for _, writing in pipes[:2]:
        os.write(writing, b".")
    assert loop.run_until(lambda: len(noted) == 7, WAIT)
    assert noted[-1] <= 8, "each hop waits for one turn of the other client"
    assert loop.run_until(lambda: Worker.total == 5000, WAIT), "nothing of the other client is lost"


def test_clients_that_are_always_busy_get_the_same_number_of_turns(loop, pipes, monkeypatch):
    """Ten busy processes of one client get as many turns together as one process of another client, but for a burst."""
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", 600.0)  # on a busy machine turns may seem long
    turns = {}
    for name, workers, (reading, writing) in (("many", 10, pipes[0]), ("one", 1, pipes[1])):
        client = opened(loop, Client, "open", reading, workers, 2000 // workers)
        turns[name] = {address.actorAddressString for address in client_cell(loop, client).actor.workers}
        os.write(writing, b".")
    had = dict.fromkeys(turns, 0)
    plain_turn = loop.turn

    def counted(cell):
        for name, addresses in turns.items():
            had[name] += cell.address.actorAddressString in addresses
        return plain_turn(cell)

    loop.turn = counted
    assert loop.run_until(lambda: Worker.total >= 1000, WAIT)
    # A lane may owe the turns of one burst.
    assert abs(had["many"] - had["one"]) <= 2 * lanes.BURST


def test_what_a_process_sends_to_a_few_others_is_handled_in_one_go(loop, pipes):
    """The few processes of a client that one input makes busy have their turns before those of the next client."""
    order: list[str] = []
    names = {}
    for name, workers, (reading, writing) in (("a", lanes.BURST, pipes[0]), ("b", 3, pipes[1])):
        client = opened(loop, Client, "open", reading, workers, 2)
        names |= {address.actorAddressString: name for address in client_cell(loop, client).actor.workers}
        os.write(writing, b".")
    plain_turn = loop.turn

    def noted(cell):
        order.append(names.get(cell.address.actorAddressString, ""))
        return plain_turn(cell)

    loop.turn = noted
    assert loop.run_until(lambda: Worker.total == 2 * (lanes.BURST + 3), WAIT)
    assert "".join(order).count("ab") <= 2
    assert "".join(order).count("ba") <= 2


def test_a_client_that_is_alone_has_all_its_turns(loop, pipes):
    """A lane that had several turns in a round makes up for them only while another lane has something to do."""
    client = opened(loop, Client, "open", pipes[0][0], 10, 200)
    os.write(pipes[0][1], b".")
    rounds = iter(range(1_000_000))
    assert loop.run_until(lambda: next(rounds) >= 0 and Worker.total == 2000, WAIT)
    assert client_cell(loop, client).lane is None
    assert next(rounds) < 300


def client_cell(loop, address):
    return loop.cells[address.actorAddressString]


def test_the_timers_of_one_parent_s_children_are_one_client(loop, pipes):
    """A thousand timers that are due at once do not hold up a client."""
    noted: list[int] = []
    opened(loop, Relay, "open", pipes[1][0], 6, noted)
    opened(loop, Parent, "start", 1000, 3600)
    os.write(pipes[1][1], b".")
    loop.fire_timers(loop.now() + 3600)
    assert loop.run_until(lambda: len(noted) == 7, WAIT)
    assert 0 < Sleeper.total <= 8
    assert loop.run_until(lambda: Sleeper.total == 1000, WAIT)


def test_a_client_does_not_wait_where_its_process_has_met_a_crowd(loop, pipes):
    """A client is served at once although its process had joined the lane of a thousand others, because its timer was
    due together with theirs. Left there, it would have its turn behind them all.
    """
    noted: list[int] = []
    opened(loop, Parent, "start", 1000, 3600)
    parent = next(iter(loop.roots.values()))
    last = list(parent.children.values())[-1]
    opened(loop, Caller, "open", pipes[1][0], last.address, noted)
    loop.fire_timers(loop.now() + 3600)
    assert loop.run_until(lambda: Sleeper.total == 2, WAIT)
    os.write(pipes[1][1], b".")
    assert loop.run_until(lambda: noted, WAIT)
    assert noted[0] <= 8, "the process has its turn in the lane of the client"
    assert loop.run_until(lambda: Sleeper.total == 1000, WAIT), "and no other process has lost its turn"
    assert loop.run_until(lambda: not loop.lanes, WAIT) and parent.lane is None


def test_a_process_that_waits_in_a_crowd_may_end_there(loop, pipes):
    """Nothing is left of a crowded lane whose processes have ended before their turns."""
    opened(loop, Parent, "start", 100, 3600)
    parent = next(iter(loop.roots.values()))
    loop.fire_timers(loop.now() + 3600)
    assert loop.run_until(lambda: Sleeper.total == 2, WAIT)
    for cell in list(parent.children.values())[10:]:
        loop.end(cell, KILLED)
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    assert Sleeper.total == 10


def test_timers_and_calls_by_the_thousand_are_taken_in_several_rounds(loop, pipes, monkeypatch):
    """A client that is idle while thousands of timers and calls come waits for one round of them only."""
    monkeypatch.setattr(loop_base, "TIMERS", 10)
    monkeypatch.setattr(threads, "CALLS", 10)
    opened(loop, Parent, "start", 100, 0.0)
    assert loop.run_until(lambda: Sleeper.total == 100, WAIT)
    most = 0

    def called(number, calls=[0]):  # noqa: B006
        calls[0] += 1
        done.append(number)

    done: list[int] = []
    before = 0
    for number in range(100):
        loop.post(called, number)

    def look():
        nonlocal most, before
        most, before = max(most, len(done) - before), len(done)
        return len(done) == 100

    assert loop.run_until(look, WAIT)
    assert most == 10 and done == list(range(100))


def test_a_long_round_is_interrupted_for_a_poll(loop, pipes, monkeypatch):
    """While fifty clients are busy, the input of another is read before all of them had their turn."""
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", 600.0)  # on a busy machine turns may seem long
    monkeypatch.setattr(lanes, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(descriptors, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(loop_base, "POLL_INTERVAL", 0.0)
    noted: list[int] = []
    for reading, _ in pipes[:50]:
        opened(loop, Client, "open", reading, 1, 1000)
    opened(loop, Relay, "open", pipes[50][0], 0, noted)
    for _, writing in pipes[:50]:
        os.write(writing, b".")
    assert loop.run_until(lambda: Worker.total >= 500, WAIT)
    os.write(pipes[50][1], b".")
    before = Worker.total
    assert loop.run_until(lambda: noted, WAIT)
    assert noted[0] - before <= 5


def test_descriptors_that_were_left_out_are_served_next(loop, pipes, monkeypatch):
    """Descriptors that one round of the loop had no time for are served in the next one, although nothing else is to be
    done.
    """
    monkeypatch.setattr(descriptors, "ROUND_SECONDS", 0.0)
    noted: list[int] = []
    for reading, _ in pipes[:5]:
        opened(loop, Relay, "open", reading, 0, noted)
    for _, writing in pipes[:5]:
        os.write(writing, b".")
    assert loop.run_until(lambda: len(noted) == 5, WAIT)


def test_an_idle_client_has_no_lane(loop, pipes):
    """A client that is idle has no lane, which would take memory: most connections are idle most of the time."""
    clients = [opened(loop, Client, "open", reading, 1, 3) for reading, _ in pipes[:20]]
    for _, writing in pipes[:20]:
        os.write(writing, b".")
        assert loop.run_until(lambda: not loop.lanes and not loop.poller.poll(0), WAIT)
    assert Worker.total == 60
    assert all(client_cell(loop, client).lane is None for client in clients)


def test_clients_with_little_to_do_need_no_lanes(loop, pipes, monkeypatch):
    """Twenty messages of twenty clients go through five processes each, and no lane is made for any of them."""
    noted: list[int] = []
    clients = [opened(loop, Relay, "open", reading, 4, noted) for reading, _ in pipes[:20]]
    for _, writing in pipes[:20]:
        os.write(writing, b".")
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "Lane", None)
        assert loop.run_until(lambda: len(noted) == 100, WAIT)
        assert loop.run_until(lambda: not loop.lanes, WAIT)
    assert all(client_cell(loop, client).light == 0 for client in clients)


def test_a_light_client_gets_a_lane_when_it_causes_more(loop, pipes):
    """The third process that waits makes the lane; what is still in the queue of light clients joins it later."""

    class Splitter(Process):
        def on_open(self, sender, fd):
            self.workers = [self.createActor(Worker) for _ in range(6)]
            self.watch(fd)
            return True

        def on_readable(self, fd):
            os.read(fd, 1)
            self.send(self.myAddress, ("split", 0))
            self.send(self.workers[0], ("work", 4))

        def on_split(self, sender, at):
            for worker in self.workers[1 : 3 + 3 * at]:
                self.send(worker, ("work", 2))
            if not at:
                self.send(self.myAddress, ("split", 1))

    client = client_cell(loop, opened(loop, Splitter, "open", pipes[0][0]))
    os.write(pipes[0][1], b".")
    had = []
    assert loop.run_until(lambda: had.append((client.light, client.lane is not None)) or Worker.total == 18, WAIT)
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    assert max(light for light, _ in had) <= lanes.LIGHT
    assert any(has_lane for _, has_lane in had)
    assert (client.light, client.lane) == (0, None)


def test_a_turn_that_ends_the_loop_keeps_a_light_client(loop, pipes):
    """Ctrl-C in the turn of a light client: neither its process nor that of another client is lost."""

    class Interrupted(Process):
        def on_open(self, sender, fd):
            self.watch(fd)
            return True

        def on_readable(self, fd):
            os.read(fd, 1)
            self.send(self.myAddress, ("go", 2))

        def on_go(self, sender, times):
            Worker.total += 1
            if times:
                self.send(self.myAddress, ("go", times - 1))
            if times == 2:
                raise KeyboardInterrupt

    noted: list[int] = []
    client = opened(loop, Interrupted, "open", pipes[0][0])
    opened(loop, Relay, "open", pipes[1][0], 3, noted)
    for _, writing in pipes[:2]:
        os.write(writing, b".")
    with pytest.raises(KeyboardInterrupt):
        loop.run_until(lambda: Worker.total == 3, WAIT)
    assert loop.run_until(lambda: Worker.total == 3 and len(noted) == 4, WAIT)
    assert client_cell(loop, client).light == 0


def test_ctrl_c_in_a_turn_loses_no_process(loop, pipes):
    """After an exception that ends the loop, the process and its lane go on when the loop runs again."""

    class Interrupted(Process):
        def on_go(self, sender, times):
            if times == 2:
                self.send(self.myAddress, ("go", 1))
                raise KeyboardInterrupt
            Worker.total += 1

    address = ActorSystem(systemBase=loop, transientUnique=True).createActor(Interrupted)
    loop.enqueue(loop.address, address, ("go", 2))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until(lambda: False, WAIT)
    assert loop.run_until(lambda: Worker.total == 1, WAIT)


def test_a_busy_loop_keeps_house(loop, monkeypatch):
    """`housekeep`, the program's own work, is done between turns even while processes never pause."""
    monkeypatch.setattr(loop_base, "HOUSEKEEPING_SECONDS", 0.0)
    monkeypatch.setattr(loop_base, "POLL_INTERVAL", 0.0)
    done: list[int] = []
    loop.housekeep = lambda: done.append(Worker.total)
    worker = opened(loop, Worker, "work", 1)
    loop.enqueue(loop.address, worker, ("work", 1000))
    assert loop.run_until(lambda: Worker.total >= 500, WAIT)
    assert len(done) >= 400, "between two turns of the same process"
    assert loop.run_until(lambda: Worker.total == 1001, WAIT)


def test_what_a_client_sends_waits_for_one_long_turn_and_not_for_one_at_each_hop(loop, pipes, monkeypatch):
    """While the turns of one client are long, what follows from the input of another is done in one go."""
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", 0.05)
    monkeypatch.setattr(lanes, "FOLLOWED_SECONDS", 0.08)
    monkeypatch.setattr(lanes, "LONG_TURN_MEMORY", 1.0)
    noted: list[int] = []
    opened(loop, SlowClient, "open", pipes[0][0], 1, 12)
    opened(loop, Relay, "open", pipes[1][0], 6, noted)
    os.write(pipes[0][1], b".")
    assert loop.run_until(lambda: Worker.total == 3, WAIT)
    os.write(pipes[1][1], b".")
    assert loop.run_until(lambda: len(noted) == 7, WAIT)
    assert noted[-1] - noted[0] <= 1
    assert loop.run_until(lambda: Worker.total == 12, WAIT)


def test_a_client_that_goes_on_and_on_makes_up_for_it(loop, pipes, monkeypatch):
    """With long turns, too, two clients that are always busy get the same number of them but for a burst."""
    monkeypatch.setattr(lanes, "LONG_TURN_SECONDS", -1.0)
    monkeypatch.setattr(lanes, "FOLLOWED_SECONDS", WAIT)
    turns = [0, 0]
    workers = []
    for reading, writing in pipes[:2]:
        client = opened(loop, Client, "open", reading, 1, 1000)
        workers += [address.actorAddressString for address in client_cell(loop, client).actor.workers]
        os.write(writing, b".")
    plain_turn = loop.turn

    def counted(cell):
        if cell.address.actorAddressString in workers:
            turns[workers.index(cell.address.actorAddressString)] += 1
        return plain_turn(cell)

    loop.turn = counted
    assert loop.run_until(lambda: sum(turns) >= 500, WAIT)
    assert abs(turns[0] - turns[1]) <= 2 * lanes.BURST


def test_processes_that_wait_for_their_turns_are_listed(loop, pipes):
    """Whether a few or many wait, each is listed once with its messages, until they have all had their turns."""
    noted: list[list[tuple[str, int]]] = []
    lister = opened(loop, Lister, "open", pipes[0][0], noted)
    clients = [opened(loop, Client, "open", pipes[at][0], at, 1) for at in (2, 40)]
    assert len(clients) == 2 and lister is not None
    for at in (2, 40):
        os.write(pipes[at][1], b".")
    assert loop.run_until(lambda: bool(loop.lanes), WAIT)
    waiting = len(list(loop.waiting()))
    os.write(pipes[0][1], b".")
    assert loop.run_until(lambda: len(noted) == 1, WAIT)
    assert 0 < len(noted[0]) <= 42 and 0 < waiting <= 42
    assert set(noted[0]) == {("Worker", 1)}
    assert loop.run_until(lambda: not loop.lanes, WAIT)
    os.write(pipes[0][1], b".")
    assert loop.run_until(lambda: len(noted) == 2, WAIT)
    assert noted[1] == []
