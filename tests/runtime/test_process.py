"""`Process`: dispatch, asking and answering, coroutines, timers, descriptors."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from thespian.actors import Actor, ActorSystemMessage, PoisonMessage

from warren.portable import IS_PORTABLE
from warren.runtime.errors import ProcessDown, ProcessError, ProcessTimeout, UnknownMessage
from warren.runtime.process import ASKED_AT_ONCE, Process
from warren.runtime.signal import Signal

WAIT = 300


class NotToday(ProcessError):
    pass


class Desk(Process):
    """Has a handler of every kind in the table of process.py."""

    def __init__(self):
        self.kept = None
        self.batches = 0

    def after_batch(self):
        self.batches += 1

    def on_value(self, sender, value):
        return value

    def on_fields(self, sender, *fields):
        return fields

    def on_keep(self, sender):
        self.kept = sender

    def on_release(self, sender, value):
        self.reply(self.kept, value)
        self.reply(self.kept, "a second answer that nobody gets")

    def on_release_error(self, sender):
        self.reply_error(self.kept, NotToday("later"))

    async def on_nothing(self, sender):
        return None

    async def on_refuse_async(self, sender):
        raise NotToday("async")

    def on_refuse(self, sender):
        raise NotToday("plain")

    def on_crash(self, sender):
        raise ValueError("provoked")

    def on_silence(self, sender):
        """Never answers."""

    def on_who(self, sender):
        return sender.address

    async def on_early(self, sender):
        self.reply(sender, "early")
        return "late"

    def on_tell_me(self, sender, value):
        self.send(sender, value)

    def on_message(self, sender, message):
        return ("not a tuple", message)

    def on_batches(self, sender):
        return self.batches


class Customer(Process):
    """Asks other processes for the test."""

    desk = None

    def on_desk(self, sender):
        self.desk = self.createActor(Desk)
        return self.desk

    def on_forward_only(self, sender, message):
        self.send(self.desk, message)

    async def on_forward(self, sender, message, to):
        try:
            answer = await self.ask(self.desk, message)
        except NotToday as error:
            answer = str(error)
        self.send(to, ("answer", answer))

    async def on_pass_on(self, sender, message, timeout=None):
        return await self.ask(self.desk, message, timeout)


@pytest.fixture
def desk(system):
    return system.createActor(Desk)


class TestDispatch:
    @pytest.mark.parametrize("name", ["on_ask"])
    def test_a_handler_may_not_take_the_runtimes_messages(self, name):
        """A class that has a handler named like a message of the runtime raises TypeError at its definition."""
        with pytest.raises(TypeError, match="the runtime's own"):
            type("Wrong", (Process,), {name: lambda self, sender: None})

    @pytest.mark.parametrize("count", range(6))
    def test_fields_become_arguments(self, client, desk, count):
        """A message (name, *fields) calls on_name(sender, *fields), for any number of fields."""
        fields = tuple(range(count))
        assert client.ask(desk, ("fields", *fields), WAIT) == (fields or ())

    def test_fields_of_a_sent_message(self, system, desk):
        """A message that is sent, not asked, has its fields as arguments too, although the loop dispatches it without
        the wrapper of an ask.
        """
        system.tell(desk, ("tell_me", 5))
        assert system.listen(WAIT) == 5

    def test_handlers_are_inherited_and_overridden(self, system, client):
        """A subclass keeps its parents' handlers and replaces what it redefines."""

        class Mixin:
            def on_mixed(self, sender):
                return "mixed"

        class Sub(Mixin, Desk):
            def on_value(self, sender, value):
                return ("sub", value)

        address = system.createActor(Sub)
        assert client.ask(address, ("value", 1), WAIT) == ("sub", 1)
        assert client.ask(address, ("mixed",), WAIT) == "mixed"
        assert client.ask(address, ("fields", 1), WAIT) == (1,)

    @pytest.mark.parametrize("name", ["exit", "down", "timer", "child_exited", "$nothing"])
    def test_events_cannot_be_sent(self, client, desk, name):
        """Nobody can send a process one of its events: their names are no names of messages."""
        with pytest.raises(UnknownMessage):
            client.ask(desk, (name,), WAIT)

    def test_anything_but_a_tuple_goes_to_on_message(self, client, desk):
        """Whatever is not a tuple, such as a string or a dataclass, goes to on_message."""
        assert client.ask(desk, "text", WAIT) == ("not a tuple", "text")

    def test_the_error_names_the_message_but_not_its_fields(self, client, desk):
        """The error for an unknown message has its name, and not its fields, which may be secret."""
        with pytest.raises(UnknownMessage, match=r"Desk has no handler for \('nix', ...\) of 2") as caught:
            client.ask(desk, ("nix", "password"), WAIT)
        assert "password" not in str(caught.value)

    def test_a_batch_is_flushed_once(self, base, system, client, desk):
        """after_batch is called after all messages of a turn, not after each."""

        def send_ten():
            for number in range(10):
                base.enqueue(base.address, desk, ("value", number))

        before = client.ask(desk, ("batches",), WAIT)
        base.call(send_ten)
        assert client.ask(desk, ("batches",), WAIT) - before <= 3


class TestAnswers:
    def test_a_value_returned_is_the_answer(self, client, desk):
        """A plain handler answers by returning a value that is not None."""
        assert client.ask(desk, ("value", [1]), WAIT) == [1]

    def test_none_from_a_plain_handler_is_no_answer(self, client, desk):
        """None from a plain handler is no answer: it may come later, and only the asker's timeout ends the wait."""
        with pytest.raises(ProcessTimeout):
            client.ask(desk, ("silence",), 0.02)

    @pytest.mark.parametrize("release, error", [(("release", "now"), None), (("release_error",), NotToday)])
    def test_an_answer_may_come_later_and_once(self, system, client, release, error):
        """A handler may keep the sender and answer later with reply or reply_error; a second answer is dropped."""
        customer = system.createActor(Customer)
        desk = client.ask(customer, ("desk",), WAIT)
        # On its way to the desk the question stays ahead of the release: both come from the customer.
        client.tell(customer, ("forward", ("keep",), system._systemBase._port.address))
        client.tell(customer, ("forward_only", release))
        assert system.listen(WAIT) == ("answer", "now" if error is None else "later")
        assert client.ask(desk, ("value", 1), WAIT) == 1

    def test_none_from_a_coroutine_is_an_answer(self, client, desk):
        """An async handler always answers."""
        assert client.ask(desk, ("nothing",), WAIT) is None

    def test_a_coroutine_may_answer_before_it_returns(self, client, desk):
        """A coroutine may answer before it returns; the value that it returns is then dropped."""
        assert client.ask(desk, ("early",), WAIT) == "early"

    @pytest.mark.parametrize("name, text", [("refuse", "plain"), ("refuse_async", "async")])
    def test_errors_of_the_listed_types_travel(self, client, desk, name, text):
        """An error of a type in `reply_errors` goes to the asker, and the process lives on."""
        with pytest.raises(NotToday, match=text):
            client.ask(desk, (name,), WAIT)
        assert client.ask(desk, ("value", 1), WAIT) == 1

    def test_reply_errors_may_name_other_types(self, system, client):
        """A class may list errors of its own in reply_errors."""

        class Strict(Desk):
            reply_errors = (ProcessError, ValueError)

        address = system.createActor(Strict)
        with pytest.raises(ValueError, match="provoked"):
            client.ask(address, ("crash",), WAIT)
        assert client.ask(address, ("value", 1), WAIT) == 1

    def test_the_handle_names_the_asker(self, client, desk):
        """The sender of an ask has the asker's address in `sender.address`."""
        assert client.ask(desk, ("who",), WAIT) == client.address

    def test_sent_messages_take_no_answer(self, system, client, desk):
        """The value that a handler returns for a message that was sent, not asked, is dropped."""
        system.tell(desk, ("value", 1))
        client.ask(desk, ("value", 2), WAIT)
        assert system.listen(0) is None

    def test_processes_ask_one_another(self, system, client):
        """Answers, errors and timeouts arrive at the await."""
        customer = system.createActor(Customer)
        client.ask(customer, ("desk",), WAIT)
        assert client.ask(customer, ("pass_on", ("value", 3)), WAIT) == 3
        with pytest.raises(NotToday):
            client.ask(customer, ("pass_on", ("refuse",)), WAIT)
        with pytest.raises(ProcessTimeout):
            client.ask(customer, ("pass_on", ("silence",), 0.01), WAIT)
        with pytest.raises(UnknownMessage):
            client.ask(customer, ("pass_on", ("nix",)), WAIT)
        assert client.ask(customer, ("pass_on", "text"), WAIT) == ("not a tuple", "text")

    def test_an_asker_that_gave_up_is_forgotten(self, base, system, client):
        """Neither side keeps anything of an ask that timed out."""
        customer = system.createActor(Customer)
        desk = client.ask(customer, ("desk",), WAIT)
        for _ in range(20):
            with pytest.raises(ProcessTimeout):
                client.ask(customer, ("pass_on", ("silence",), 0.001), WAIT)
        client.ask(desk, ("value", 1), WAIT)
        held = base.call(lambda: (desk._cell.actor._asked, customer._cell.actor._asks, customer._cell.timers))
        assert not any(held)


class Waiter(Process):
    """Its slow work waits for `go`; it answers `quick` meanwhile."""

    def __init__(self):
        self.done = []
        self.gate = None
        self.is_open = False

    async def on_slow(self, sender, name):
        await self.ask(self.myAddress, ("gate",))
        self.done.append(name)
        return name

    def on_gate(self, sender):
        self.gate = sender
        if self.is_open:
            self.reply(sender, None)

    def on_go(self, sender):
        self.is_open = True
        if self.gate is not None:
            self.reply(self.gate, None)

    def on_quick(self, sender):
        return ("quick", list(self.done))

    def on_background(self, sender, to):
        self.spawn(self._background(to))

    async def _background(self, to):
        await self.ask(self.myAddress, ("gate",))
        self.send(to, "background done")

    async def on_both(self, sender, one, other):
        first = self.ask(one, ("value", 1))
        second = self.ask(other, ("value", 2))
        return (await second, await first)


class TestCoroutines:
    def test_a_waiting_coroutine_holds_up_no_other_message(self, system, client):
        """A process handles other messages while one of its coroutines waits."""
        waiter = system.createActor(Waiter)
        results = []
        thread = threading.Thread(target=lambda: results.append(client.ask(waiter, ("slow", "one"), WAIT)))
        thread.start()
        assert client.ask(waiter, ("quick",), WAIT) == ("quick", [])
        client.tell(waiter, ("go",))
        thread.join()
        assert results == ["one"]
        assert client.ask(waiter, ("quick",), WAIT) == ("quick", ["one"])

    def test_spawn_runs_a_coroutine_beside(self, system):
        """A plain handler may start a coroutine with `spawn`, which runs beside it."""
        waiter = system.createActor(Waiter)
        with system.private() as outside:
            outside.tell(waiter, ("background", outside._systemBase._port.address))
            outside.tell(waiter, ("go",))
            assert outside.listen(WAIT) == "background done"

    def test_asks_run_side_by_side(self, system, client):
        """`ask` sends at once, so several asks run side by side, and their awaits may come in any order."""
        waiter = system.createActor(Waiter)
        one, other = system.createActor(Desk), system.createActor(Desk)
        assert client.ask(waiter, ("both", one, other), WAIT) == (2, 1)

    def test_a_turn_resumes_no_more_coroutines_than_it_handles_messages(self, system, client):
        """Coroutines that are woken together go on in several turns, of at most `turn_limit` each."""

        class Slow(Process):
            turn_limit = 4

            def __init__(self):
                super().__init__()
                self.resumed, self.turns, self.wanted = 0, [], Signal(self)

            async def on_wait(self, sender):
                await self.wanted.wait()
                self.resumed += 1

            def on_wake(self, sender):
                self.wanted.wake_all()

            def on_turns(self, sender):
                return [turn for turn in self.turns if turn]

            def after_batch(self):
                self.turns.append(self.resumed)
                self.resumed = 0

        slow = system.createActor(Slow)
        for _ in range(10):
            client.tell(slow, ("wait",))
        client.tell(slow, ("wake",))
        while sum(turns := client.ask(slow, ("turns",), WAIT)) < 10:
            pass
        assert turns == [4, 4, 2]

    def test_awaiting_something_foreign_is_a_crash(self, system, client):
        """A coroutine that awaits anything but what ask and run_blocking return crashes its process."""

        class Foreign(Process):
            async def on_wrong(self, sender):
                import asyncio

                await asyncio.sleep(0)

        with pytest.raises(ProcessDown, match="TypeError"):
            client.ask(system.createActor(Foreign), ("wrong",), WAIT)


class Blocker(Process):
    async def on_run(self, sender, what):
        if what == "error":
            return await self.run_blocking(int, "no number")
        return await self.run_blocking(lambda: (threading.get_ident(), what))

    def on_here(self, sender):
        return threading.get_ident()

    reply_errors = (ValueError,)


class TestBlockingWork:
    def test_it_runs_in_another_thread(self, system, client):
        """The value comes back to the await."""
        blocker = system.createActor(Blocker)
        ident, what = client.ask(blocker, ("run", "x"), WAIT)
        assert what == "x" and ident not in (client.ask(blocker, ("here",), WAIT), threading.get_ident())

    def test_its_error_is_raised_at_the_await(self, system, client):
        """The error of a blocking call is raised at the await, with its type and text."""
        with pytest.raises(ValueError, match="no number"):
            client.ask(system.createActor(Blocker), ("run", "error"), WAIT)

    def test_many_calls_share_few_threads(self, base, system, client):
        """However many blocking calls there are, no more threads run than the limit."""
        blocker = system.createActor(Blocker)
        idents = {client.ask(blocker, ("run", number), WAIT)[0] for number in range(50)}
        assert len(idents) <= 4
        assert len(base._pool._workers) <= 4


class Clock(Process):
    """Reports its timers to the sender of 'start'."""

    def on_start(self, sender, timers):
        self.to = sender
        self.refs = {payload: self.start_timer(seconds, payload) for seconds, payload in timers}

    def on_start_and_cancel_twice(self, sender, timers, payload):
        self.on_start(sender, timers)
        self.on_cancel(sender, payload)
        self.on_cancel(sender, payload)

    def on_cancel(self, sender, payload):
        self.cancel_timer(self.refs[payload])

    def on_cancel_all_then(self, sender, seconds):
        for ref in self.refs.values():
            self.cancel_timer(ref)
        self.start_timer(seconds, "last")

    def on_set_and_cancel(self, sender, count):
        for _ in range(count):
            self.cancel_timer(self.start_timer(3600, "x"))
        return True

    def on_late_cancel(self, sender):
        """Cancel a timer that is due together with another one: the first cancels the second, whose message waits in
        the mailbox.
        """
        self.to = sender
        self.start_timer(0, "canceller")
        self.victim = self.start_timer(0, "victim")

    def on_timer(self, payload):
        if payload == "canceller":
            self.cancel_timer(self.victim)
            self.start_timer(0, "end")
        else:
            self.send(self.to, (payload, self.now(), self.wall_clock()))


class TestTimers:
    def test_they_fire_in_order_of_their_time(self, system):
        """Timers fire by deadline, not by start, and never early."""
        clock = system.createActor(Clock)
        system.tell(clock, ("start", [(0.02, "b"), (0.001, "a"), (0.04, "c")]))
        heard = [system.listen(WAIT) for _ in range(3)]
        assert [payload for payload, _, _ in heard] == ["a", "b", "c"]
        assert heard[2][1] - heard[0][1] >= 0.019

    def test_cancelled_ones_do_not(self, system):
        """A second cancel, or one after the timer has fired, does nothing."""
        clock = system.createActor(Clock)
        system.tell(clock, ("start_and_cancel_twice", [(0.005, "a"), (0.01, "b")], "a"))
        assert system.listen(WAIT)[0] == "b"
        system.tell(clock, ("cancel", "b"))
        system.tell(clock, ("cancel_all_then", 0.0))
        assert system.listen(WAIT)[0] == "last"

    def test_a_cancel_reaches_a_timer_in_the_mailbox(self, system):
        """A cancel takes effect even if the timer is due and its message waits in the mailbox."""
        system.tell(system.createActor(Clock), ("late_cancel",))
        assert system.listen(WAIT)[0] == "end"

    def test_setting_and_cancelling_leaves_nothing(self, base, system, client):
        """The heap stays small however often that happens."""
        clock = system.createActor(Clock)
        client.ask(clock, ("set_and_cancel", 5000), WAIT)
        assert base.call(
            lambda: (len(base.timers), len(list(base.timers.entries())) < 200, len(clock._cell.timers))
        ) == (
            0,
            True,
            0,
        )


class Reader(Process):
    """Reports what it reads, and writes many bytes on request as the socket takes them."""

    sock = None

    def on_open(self, sender, descriptor):
        self.to = sender
        self.sock = socket.socket(fileno=descriptor)
        self.sock.setblocking(False)
        self.pending = b""
        self.watch(descriptor)

    def on_write(self, sender, count):
        self.pending = b"x" * count
        self.watch(self.sock.fileno(), read=False, write=True)

    def on_readable(self, fd):
        data = self.sock.recv(1000)
        self.send(self.to, data)
        if not data:
            self.unwatch(fd)

    def on_writable(self, fd):
        self.pending = self.pending[self.sock.send(self.pending) :]
        if not self.pending:
            self.watch(fd, read=True, write=False)

    def on_exit(self):
        if self.sock is not None:
            self.sock.close()


class TestDescriptors:
    def test_reading_and_writing(self, system):
        """watch changes what is watched, and unwatch ends it."""
        ours, theirs = socket.socketpair()
        with ours:
            reader = system.createActor(Reader)
            system.tell(reader, ("open", theirs.detach()))
            ours.send(b"one")
            assert system.listen(WAIT) == b"one"
            system.tell(reader, ("write", 1_000_000))
            left = 1_000_000
            while left:
                left -= len(ours.recv(65536))
            ours.send(b"two")
            assert system.listen(WAIT) == b"two"
            ours.shutdown(socket.SHUT_WR)
            assert system.listen(WAIT) == b""
            assert system.listen(0.02) is None

    def test_a_dead_process_watches_nothing(self, base, system, client):
        """When a process ends, the poller forgets its descriptors, which on_exit may close."""
        ours, theirs = socket.socketpair()
        number = theirs.detach()
        with ours:
            reader = system.createActor(Reader)
            system.tell(reader, ("open", number))
            ours.send(b"x")
            assert system.listen(WAIT) == b"x"
            system.tell(reader, ("nix",))
            with pytest.raises(ProcessDown):
                client.ask(reader, ("write", 1), WAIT)
            assert number not in base.poller.owners
            with pytest.raises(OSError):
                os.fstat(number)

    def test_a_number_used_again_belongs_to_its_new_owner(self, base, system, client):
        """A descriptor that was closed without unwatch does not keep events from the next one of that number."""
        first = system.createActor(Reader)
        ours, theirs = socket.socketpair()
        number = theirs.detach()
        system.tell(first, ("open", number))
        ours.send(b"x")
        assert system.listen(WAIT) == b"x"
        mine, again = socket.socketpair()

        def use_again() -> None:
            """Close the descriptor and get its number for a file, in one turn of the loop, which would otherwise log an
            error in between.
            """
            first._cell.actor.sock.close()
            os.dup2(again.fileno(), number)

        base.call(use_again)
        ours.close()
        again.close()
        with mine:
            second = system.createActor(Reader)
            system.tell(second, ("open", number))
            mine.send(b"y")
            assert system.listen(WAIT) == b"y"

    @pytest.mark.skipif(IS_PORTABLE, reason="only epoll refuses regular files")
    def test_a_regular_file_cannot_be_watched(self, system, client, tmp_path):
        """epoll refuses regular files, and so does `watch`: a file would be ready for ever."""

        class Filer(Process):
            reply_errors = (OSError,)

            def on_watch(self, sender, path):
                with open(path, "w") as file:
                    self.watch(file.fileno())

        with pytest.raises(PermissionError):
            client.ask(system.createActor(Filer), ("watch", str(tmp_path / "file")), WAIT)


class Plain(Actor):
    def receiveMessage(self, message, sender):
        if not isinstance(message, ActorSystemMessage):
            raise ValueError("provoked")


class PoisonTaster(Process):
    def on_feed(self, sender, message):
        self.to = sender
        self.send(self.createActor(Plain), message)

    def on_poison(self, address, message):
        self.send(self.to, ("poison", message))


def test_poison_from_a_plain_actor_is_an_event(system):
    """If a plain actor fails twice at a message, the sender gets it back in on_poison."""
    system.tell(system.createActor(PoisonTaster), ("feed", "x"))
    assert system.listen(WAIT) == ("poison", "x")
    assert issubclass(PoisonMessage, ActorSystemMessage)


class Dice(Process):
    def on_throw(self, sender):
        return (self.random_bytes(8), self.now(), self.wall_clock())


def test_clock_and_dice_come_from_the_base(base, system, client):
    """The clock and random bytes of a process come from the base, so that a simulation can replace them."""
    base.random_bytes = lambda count: b"\6" * count
    base.now = lambda: 42.0
    base.wall_clock = lambda: 1e9
    assert client.ask(system.createActor(Dice), ("throw",), WAIT) == (b"\6" * 8, 42.0, 1e9)


class Slow(Process):
    """Answers its asks together, when no more have come for a while; every hundredth with an error."""

    def __init__(self):
        self.waiting = []
        self.most = 0

    def on_double(self, sender, number):
        if not self.waiting:
            self.start_timer(0.1)
        self.waiting.append((sender, number))
        self.most = max(self.most, len(self.waiting))

    def on_timer(self, payload):
        waiting, self.waiting = self.waiting, []
        for sender, number in waiting:
            if number % 100:
                self.reply(sender, 2 * number)
            else:
                self.reply_error(sender, NotToday(str(number)))

    def on_most(self, sender):
        return self.most


class Asker(Process):
    async def on_ask_all(self, sender, target, count):
        answers = await self.ask_each((target, ("double", number)) for number in range(count))
        return [str(answer) if isinstance(answer, NotToday) else answer for answer in answers]


@pytest.mark.parametrize("count", [0, 1, 3 * ASKED_AT_ONCE + 5])
def test_any_number_of_asks_are_answered_in_order_and_few_wait_at_a_time(system, client, count):
    slow, asker = system.createActor(Slow), system.createActor(Asker)
    expected = [2 * number if number % 100 else str(number) for number in range(count)]
    assert client.ask(asker, ("ask_all", slow, count), 60) == expected
    assert client.ask(slow, ("most",), WAIT) <= ASKED_AT_ONCE
