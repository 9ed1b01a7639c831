"""Asking processes from threads."""

from __future__ import annotations

import threading

import pytest
from thespian.actors import ActorSystem

from warren.runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.process import Process

WAIT = 300


class Refused(ProcessError):
    pass


class Server(Process):
    def __init__(self):
        self.total = 0
        self.seen = {}

    def on_add(self, sender, number):
        self.total += number
        return number

    def on_total(self, sender):
        return self.total

    def on_in_order(self, sender, thread, number):
        assert number == self.seen.get(thread, 0)
        self.seen[thread] = number + 1

    async def on_slow(self, sender, value):
        await self.run_blocking(int)
        return value

    def on_refuse(self, sender):
        raise Refused("no")

    def on_silence(self, sender):
        """Never answers."""

    def on_open_asks(self, sender):
        return len(self._asked) - 1

    async def on_ask_own_system(self, sender, client):
        return client.ask(self.myAddress, ("total",))


def in_threads(count, work):
    """Run work(number) in `count` threads; re-raise what failed."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class TestThreads:
    def test_one_client_serves_eight_threads(self, system, client):
        """Every thread gets the answers to its own asks, and no answer is lost."""
        server = system.createActor(Server)

        def work(thread):
            for number in range(200):
                value = thread * 1000 + number
                assert client.ask(server, ("add" if number % 2 else "slow", value), WAIT) == value

        in_threads(8, work)
        expected = sum(thread * 1000 + number for thread in range(8) for number in range(1, 200, 2))
        assert client.ask(server, ("total",), WAIT) == expected

    def test_tells_of_each_thread_keep_their_order(self, system, client):
        """The tells of one thread arrive in order; the server checks that."""
        server = system.createActor(Server)
        in_threads(8, lambda thread: [client.tell(server, ("in_order", thread, number)) for number in range(300)])
        assert client.ask(server, ("total",), WAIT) == 0

    def test_actors_are_created_from_all_threads(self, base, system, client):
        """Several threads may call createActor at the same time."""
        addresses = []
        in_threads(8, lambda thread: addresses.extend(system.createActor(Server) for _ in range(50)))
        assert len({str(address) for address in addresses}) == 400
        assert base.call(lambda: base.living) == 400
        assert all(client.ask(address, ("add", 1), WAIT) == 1 for address in addresses[::50])

    def test_private_contexts_in_threads(self, system):
        """Thespian's own way of using a system from several threads, a private context for each, works."""
        server = system.createActor(Server)

        def work(thread):
            with system.private() as own:
                for number in range(50):
                    answer = own.ask(server, ("ask", number, ("add", thread)), WAIT)
                    assert answer == ("$answer", number, True, thread)

        in_threads(8, work)


class TestAnswers:
    def test_errors_are_raised_here(self, system, client):
        """An error that a process may answer with is raised in the thread that asked."""
        server = system.createActor(Server)
        with pytest.raises(Refused, match="no"):
            client.ask(server, ("refuse",), WAIT)

    def test_a_timeout_leaves_nothing_behind(self, system, client):
        """After an ask that timed out, neither the client nor the process keeps anything of it."""
        server = system.createActor(Server)
        for _ in range(10):
            with pytest.raises(ProcessTimeout):
                client.ask(server, ("silence",), 0.001)
        assert client.ask(server, ("open_asks",), WAIT) == 0
        assert not client._waiting

    def test_a_shutdown_ends_all_waiting(self):
        """Threads that wait for an answer get ProcessDown at once, and so does every later ask."""
        base = LoopBase()
        system = ActorSystem(systemBase=base, transientUnique=True)
        client = OutsideClient(system)
        server = system.createActor(Server)
        errors = []

        def wait():
            try:
                client.ask(server, ("silence",))
            except ProcessDown as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        while client.ask(server, ("open_asks",), WAIT) < 4:
            pass
        base.shutdown()
        for thread in threads:
            thread.join(WAIT)
        assert len(errors) == 4
        with pytest.raises(ProcessDown, match="shutdown"):
            client.ask(server, ("total",), WAIT)

    def test_an_actor_may_not_wait_for_its_own_system(self, system, client):
        """An actor that asks its own system as if from outside would wait for itself, so it gets a RuntimeError, of
        which it crashes here.
        """
        with pytest.raises(ProcessDown, match="cannot wait for its own system"):
            client.ask(system.createActor(Server), ("ask_own_system", client), WAIT)

    def test_a_closed_client_is_no_address_any_more(self, base, system):
        """Messages that are sent to it count as undelivered."""
        client = OutsideClient(system)
        assert client.address.actorAddressString in base.cells
        client.close()
        assert base.call(lambda: client.address.actorAddressString in base.cells) is False
