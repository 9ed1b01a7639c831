"""How processes end (crash, stop, exit request, overload), and how monitors, parents and askers are notified."""

from __future__ import annotations

import logging

import pytest
from thespian.actors import Actor, ActorAddress, ActorExitRequest

from warren.runtime.errors import ProcessDown, UnknownMessage
from warren.runtime.exit_reason import ExitKind, ExitReason
from warren.runtime.process import Process

WAIT = 300


class Mortal(Process):
    """Ends in every way that a process can end; its on_exit reports that."""

    report = None

    def on_report_to(self, sender, address):
        self.report = address

    def on_crash(self, sender):
        raise ValueError("provoked")

    async def on_crash_later(self, sender):
        await self.run_blocking(int)
        raise ValueError("provoked later")

    def on_stop(self, sender, reason="normal"):
        self.stop(reason)
        self.stop("a second reason that nobody hears")

    def on_leave(self, sender):
        raise SystemExit(3)

    def on_hang(self, sender):
        """An ask that is never answered."""

    async def on_wait(self, sender):
        try:
            await self.ask(self.myAddress, ("hang",))
        finally:
            if self.report is not None:
                self.send(self.report, "coroutine closed")

    async def on_stubborn(self, sender):
        while True:
            try:
                await self.ask(self.myAddress, ("hang",))
            except GeneratorExit:
                raise RuntimeError("provoked") from None

    def on_exit(self):
        if self.report is not None:
            self.send(self.report, "exit")

    def on_ping(self, sender):
        return "pong"

    def on_child(self, sender, report):
        child = self.createActor(Mortal)
        self.send(child, ("report_to", report))
        return child


class Small(Process):
    mailbox_limit = 10

    def on_item(self, sender, number):
        pass


class Supervisor(Process):
    """Has monitors and children, and sends all events to the first address that sent it a message."""

    to = None

    def on_start(self, sender):
        self.to = sender
        child = self.createActor(Mortal)
        self.monitor(child, "child")
        self.send(sender, child)

    def on_monitor(self, sender, address, name):
        self.to = sender
        self.monitor(address, name)
        return True

    def on_demonitor(self, sender, name):
        self.demonitor(name)
        return True

    def on_fill(self, sender, count):
        self.to = sender
        child = self.createActor(Small)
        for number in range(count):
            self.send(child, ("item", number))

    async def on_ask_child(self, sender, address, message):
        self.to = sender
        try:
            await self.ask(address, message)
        except ProcessDown as error:
            self.send(sender, ("process down", str(error.reason)))

    def on_down(self, name, reason):
        self.send(self.to, ("down", name, str(reason)))

    def on_child_exited(self, address):
        self.send(self.to, ("child exited", address))

    def on_overload(self, address):
        self.send(self.to, ("overload", isinstance(address, ActorAddress)))


@pytest.fixture
def outside(system):
    """The address the test listens on."""
    return system._systemBase._port.address


@pytest.fixture
def pair(system):
    """A supervisor and its monitored child."""
    supervisor = system.createActor(Supervisor)
    return supervisor, system.ask(supervisor, ("start",), WAIT)


WAYS = [
    (("crash",), "crash: ValueError: provoked"),
    (("crash_later",), "crash: ValueError: provoked later"),
    (("stop",), "normal"),
    (("stop", "tired"), "tired"),
    (("leave",), "exit: 3"),
    (ActorExitRequest(), "normal"),
    (("nix",), "crash: UnknownMessage: Mortal has no handler for ('nix', ...) of 1"),
]


class TestEnds:
    @pytest.mark.parametrize("message, reason", WAYS)
    def test_monitors_and_the_parent_are_notified(self, system, pair, message, reason):
        """However a process ends, its monitors get the reason first, and then its parent is told that a child has
        exited.
        """
        _, child = pair
        system.tell(child, message)
        assert system.listen(WAIT) == ("down", "child", reason)
        assert system.listen(WAIT) == ("child exited", child)

    @pytest.mark.parametrize("message, reason", WAYS)
    def test_on_exit_is_called_once(self, system, pair, outside, message, reason):
        """`on_exit` is called once, however the process ends."""
        _, child = pair
        system.tell(child, ("report_to", outside))
        system.tell(child, message)
        heard = [system.listen(WAIT) for _ in range(3)]
        assert heard.count("exit") == 1

    def test_a_crash_is_logged_once_with_its_traceback(self, system, pair, caplog):
        """A crash is logged once with its traceback, and without the fields of the message."""
        _, child = pair
        with caplog.at_level(logging.ERROR, "warren.runtime"):
            system.tell(child, ("crash",))
            system.listen(WAIT)
        records = [record for record in caplog.records if record.name == "warren.runtime"]
        assert len(records) == 1 and records[0].exc_info[0] is ValueError
        assert "Mortal" in records[0].getMessage() and "crash" in records[0].getMessage()

    def test_descendants_exit_before_the_parent_is_notified(self, system, client, pair, outside):
        """The children of a crashed process exit; only then is its own parent notified."""
        _, child = pair
        grandchild = client.ask(child, ("child", outside), WAIT)
        great = client.ask(grandchild, ("child", outside), WAIT)
        system.tell(child, ("crash",))
        assert system.listen(WAIT)[0] == "down"
        assert [system.listen(WAIT), system.listen(WAIT)] == ["exit", "exit"]
        assert system.listen(WAIT) == ("child exited", child)
        for address in (child, grandchild, great):
            with pytest.raises(ProcessDown):
                client.ask(address, ("ping",), WAIT)

    def test_after_batch_runs_before_an_orderly_end(self, system, outside):
        """A stop and an exit request run after_batch; a crash does not."""

        class Flusher(Mortal):
            def after_batch(self):
                self.send(outside, "flushed")

        for message in (("stop",), ActorExitRequest()):
            system.tell(system.createActor(Flusher), message)
            assert system.listen(WAIT) == "flushed"
        system.tell(system.createActor(Flusher), ("crash",))
        assert system.listen(0.02) is None

    def test_a_crash_in_after_batch_is_a_crash(self, client, system):
        """An error in after_batch is handled like a crash in any handler."""

        class Hurt(Mortal):
            def after_batch(self):
                raise ValueError("after")

        with pytest.raises(ProcessDown, match="after"):
            client.ask(system.createActor(Hurt), ("hang",), WAIT)

    def test_on_exit_may_fail(self, system, caplog):
        """If `on_exit` fails, the error is logged, and monitors and parent are notified all the same."""

        class Clumsy(Mortal):
            def on_exit(self):
                raise ValueError("in on_exit")

        clumsy = system.createActor(Clumsy)
        assert system.ask(system.createActor(Supervisor), ("monitor", clumsy, "clumsy"), 0) is None
        system.tell(clumsy, ("stop",))
        assert system.listen(WAIT) == ("down", "clumsy", "normal")
        assert "failed in on_exit" in caplog.text

    def test_messages_after_the_end_are_undeliverable(self, system, outside):
        """Messages behind a stop are undelivered ones, in their order."""

        class Undertaker(Process):
            def on_start(self, sender):
                self.to = sender
                self.handleDeadLetters()
                self.send(sender, "ready")

            def on_dead_letter(self, address, message):
                self.send(self.to, message)

        undertaker = system.createActor(Undertaker)
        assert system.ask(undertaker, ("start",), WAIT) == "ready"
        victim = system.createActor(Mortal)
        system._systemBase.call(
            lambda: [
                system._systemBase.enqueue(outside, victim, message)
                for message in (("stop",), ("ping", 1), ("ping", 2), ("$down", 1, "x"))
            ]
        )
        assert [system.listen(WAIT), system.listen(WAIT)] == [("ping", 1), ("ping", 2)]
        assert system.listen(0.01) is None


class TestMonitors:
    def test_a_process_that_has_ended_is_reported_at_once(self, system, client, pair):
        """A monitor of a process that has ended already is notified at once, with the reason NOPROC."""
        supervisor, child = pair
        system.tell(child, ("stop",))
        assert [system.listen(WAIT)[0] for _ in range(2)] == ["down", "child exited"]
        system.tell(supervisor, ("monitor", child, "late"))
        assert system.listen(WAIT) == ("down", "late", "noproc")

    def test_no_on_down_after_demonitor(self, system, client, pair):
        """A monitor that was taken back with demonitor brings no on_down."""
        supervisor, child = pair
        client.ask(supervisor, ("demonitor", "child"), WAIT)
        client.ask(supervisor, ("demonitor", "unknown"), WAIT)
        system.tell(child, ("stop",))
        assert system.listen(WAIT)[0] == "child exited"

    def test_a_name_is_one_monitor(self, system, pair):
        """A process that monitors twice under one name has one monitor, the second."""
        supervisor, child = pair
        other = system.createActor(Mortal)
        system.tell(supervisor, ("monitor", other, "child"))
        system.tell(child, ("stop",))
        assert system.listen(WAIT) == ("child exited", child)
        system.tell(other, ("stop", "other"))
        assert system.listen(WAIT) == ("down", "child", "other")

    def test_several_may_monitor_one(self, system, client):
        """Several processes may monitor one, and each gets on_down with its own name for that process."""
        target = system.createActor(Mortal)
        for number in range(3):
            system.tell(system.createActor(Supervisor), ("monitor", target, number))
        client.ask(target, ("ping",), WAIT)
        system.tell(target, ("stop",))
        assert sorted(system.listen(WAIT) for _ in range(3)) == [("down", number, "normal") for number in range(3)]

    def test_a_monitoring_process_that_ended_leaves_no_trace(self, base, system, client):
        """When a process ends, its monitors are removed from the processes that it monitored."""
        target = system.createActor(Mortal)
        watcher = system.createActor(Supervisor)
        client.ask(watcher, ("monitor", target, "x"), WAIT)
        assert len(target._cell.monitors) == 1
        system.tell(watcher, ActorExitRequest())
        client.ask(target, ("ping",), WAIT)
        assert not base.call(lambda: len(target._cell.monitors))

    def test_plain_actors_can_be_monitored(self, system):
        """A plain Thespian actor can be monitored as well."""

        class Plain(Actor):
            def receiveMessage(self, message, sender):
                pass

        plain = system.createActor(Plain)
        system.tell(system.createActor(Supervisor), ("monitor", plain, "plain"))
        system.tell(plain, ActorExitRequest())
        assert system.listen(WAIT) == ("down", "plain", "normal")


class TestOpenAsks:
    def test_a_crash_answers_the_asker(self, client, system):
        """If a process crashes at an ask, its asker gets ProcessDown with the reason."""
        with pytest.raises(ProcessDown) as caught:
            client.ask(system.createActor(Mortal), ("crash",), WAIT)
        assert caught.value.reason == ExitReason(ExitKind.CRASH, "ValueError: provoked")

    def test_so_does_every_other_end(self, system, pair):
        """Whatever the end of a process, askers get ProcessDown, for asks that were handled and for those still in the
        mailbox.
        """
        supervisor, child = pair
        system.tell(supervisor, ("ask_child", child, ("hang",)))
        system.tell(supervisor, ("ask_child", child, ("wait",)))
        system.tell(supervisor, ("ask_child", child, ("stop", "enough")))
        system.tell(supervisor, ("ask_child", child, ("ping",)))
        heard = [system.listen(WAIT) for _ in range(6)]
        reasons = [event[1] for event in heard if event[0] == "process down"]
        assert len(reasons) == 4 and reasons.count("enough") >= 3
        assert set(reasons) <= {"enough", "noproc"}  # the last ask may have come after the end

    def test_asking_a_process_that_has_ended(self, client, system):
        """An ask of a process that has ended gets ProcessDown with NOPROC at once."""
        target = system.createActor(Mortal)
        system.tell(system.createActor(Supervisor), ("monitor", target, "target"))
        system.tell(target, ("stop",))
        assert system.listen(WAIT)[0] == "down"
        with pytest.raises(ProcessDown, match="noproc"):
            client.ask(target, ("ping",), WAIT)

    def test_coroutines_of_an_ended_process_are_closed(self, system, client, outside):
        """When a process ends, the `finally` blocks of its coroutines run, and Python prints no warning."""
        target = system.createActor(Mortal)
        client.tell(target, ("report_to", outside))
        client.tell(target, ("wait",))
        client.tell(target, ("stop",))
        assert [system.listen(WAIT), system.listen(WAIT)] == ["exit", "coroutine closed"]

    def test_a_coroutine_that_fails_to_close_is_logged(self, system, client, caplog):
        """If a coroutine of a process that ends cannot be closed, the error is logged, and the process ends all the
        same.
        """
        target = system.createActor(Mortal)
        client.tell(target, ("stubborn",))
        client.tell(target, ("stop",))
        with pytest.raises(ProcessDown):
            client.ask(target, ("ping",), WAIT)
        assert "failed to close a coroutine" in caplog.text

    def test_a_monitor_of_nothing_ends_the_process_that_asks_for_it_and_no_other(self, system, client):
        """A process that monitors None ends, and no other. Once, it took that monitor back as it ended, and the error
        ended the loop with all processes.
        """
        bystander = system.createActor(Mortal)
        system.tell(system.createActor(Supervisor), ("monitor", None, "nothing"))
        assert client.ask(bystander, ("ping",), WAIT) == "pong"


class TestMailboxLimit:
    def test_the_limit_itself_is_allowed(self, base, system, client):
        """Exactly as many messages as the limit may wait."""
        small = system.createActor(Small)
        base.call(lambda: [base.enqueue(base.address, small, ("item", number)) for number in range(10)])
        with pytest.raises(UnknownMessage):  # only a living process raises this
            client.ask(small, ("nix",), WAIT)

    def test_beyond_the_limit_the_process_is_killed_and_its_parent_notified(self, system):
        """A process with more waiting messages than its limit is killed: its parent gets on_overload, and then
        on_child_exited.
        """
        system.tell(system.createActor(Supervisor), ("fill", 11))
        assert system.listen(WAIT) == ("overload", True)
        assert system.listen(WAIT)[0] == "child exited"

    def test_the_reason_has_the_numbers(self, base, system, client):
        """The reason for which an overloaded process ended has the number of waiting messages and the limit."""
        small = system.createActor(Small)
        supervisor = system.createActor(Supervisor)
        system.tell(supervisor, ("monitor", small, "small"))
        client.ask(supervisor, ("demonitor", "nobody"), WAIT)
        base.call(lambda: [base.enqueue(base.address, small, ("item", number)) for number in range(11)])
        assert system.listen(WAIT) == ("down", "small", "overload: 11 messages wait, the limit is 10")
