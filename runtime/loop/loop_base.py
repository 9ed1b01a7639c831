"""`LoopBase`: a Thespian system base that runs all its actors on one thread, around epoll or its portable twin.

    base = LoopBase()                                     # in a thread of its own
    system = ActorSystem(systemBase=base, transientUnique=True)

    base = LoopBase(thread=False)                         # in the caller's thread
    base.run_forever()                                    # until stop() or shutdown

The loop goes round and round. In each round it runs the calls that other threads posted, fires the timers that are due,
gives each client its turns, and polls the descriptors. While actors are busy it polls without waiting. Otherwise it
sleeps in the poll until a timer is due, a descriptor is ready or another thread wakes it, so that an idle loop uses no
processor time.

    threads      calls from other threads (`threads`), which touch nothing else but the waker that ends the sleep
    ready        the cells that were woken since the last turn, each once
    lanes        the run queue, divided by clients (`lanes`)
    timers       a heap
    poller       the watched descriptors
    descriptors  those that are ready and not served yet (`descriptors`)

If the loop slept and few descriptors have become ready, few clients are busy. What follows from their input is then
done without rounds and lanes (`direct_turns`).

These are the bounds on waiting. A busy actor delays the other actors by at most `BUDGET` messages. An actor waits for
the actors in its own lane, and for at most `BURST` turns of each other lane at a time. Busy actors delay the
descriptors by at most one round or `POLL_INTERVAL`, whichever is longer, and by at most `ROUND_SECONDS` and one turn.
At most `MAX_EVENTS` descriptors are served before the mailboxes get their turns.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from thespian.actors import ActorAddress, ActorExitRequest, ThespianGeneration

from ..exit_reason import SHUTDOWN, ExitKind, ExitReason
from ..long_turn import LongTurnRecord
from ..machine.memory import SystemMemory
from ..machine.sockets import SystemSockets
from ..system.actor_base import ActorBase
from ..system.cell import Cell
from .blocking import BlockingPool
from .descriptors import Descriptors
from .direct_turns import MOST_DESCRIPTORS, POLL_INTERVAL, DirectTurns
from .lanes import Lanes
from .outside import Port, PrivateBase
from .poller import READ, WRITE, Poller, SystemPoller
from .threads import OtherThreads
from .watchdog import Watchdog

log = logging.getLogger("warren.runtime")

#: Most messages that an actor handles in one turn.
BUDGET = 64

#: Most threads for blocking calls.
BLOCKING_THREADS = 4

#: Processes that a warning names; a node may have a hundred thousand.
NAMED = 3

#: Seconds that the actors, and then the threads, may take to end.
SHUTDOWN_SECONDS = 5.0

#: Seconds that the threads may take to end at least, whatever the actors took.
THREADS_SECONDS = 0.5

#: Seconds between two calls of `housekeep` at least.
HOUSEKEEPING_SECONDS = 20e-3

#: Most timers that a round fires. A thousand clients may cause a thousand at once.
TIMERS = 256

#: Seconds for which a loop polls before it sleeps, if it would have slept for less than that lately. When a client and
#: the broker work in turns, each ends the other's sleep some 20,000 times a second, and the system then tends to run
#: both on one processor, one after the other. A loop that polls keeps its own: with messages of 1 KB it is a fifth
#: faster. A loop with longer sleeps does not poll, so that little traffic costs little.
POLLING_SECONDS = 60e-6

#: While more than one in `HITS_A_MISS` polls finds nothing, a loop polls only before one in `UNPOLLED_SLEEPS` short
#: sleeps. The program that it waits for may then need the processor that it polls on: two nodes and a client that
#: shared two processors spent a fifth of them on such polls.
HITS_A_MISS, UNPOLLED_SLEEPS = 8, 64

#: Longest sleep of a loop, in seconds. epoll counts milliseconds in a C int, so that a longer timer wakes the loop once
#: a day without need. On Windows nothing but the end of a sleep lets Python run its signal handlers, so that Ctrl-C
#: takes up to a second there.
LONGEST_SLEEP = 1.0 if sys.platform == "win32" else 86_400.0


class LoopBase(ActorBase):
    """One system of actors. Every public method may be called from any thread.

    name              prefix of the actors' addresses; random by default
    thread            whether the loop runs on a thread of its own; otherwise it runs while the caller is in
                      `run_forever`, `run_until` or a call that waits for an answer
    capabilities      checked by `requireCapability`; ActorSystem does not pass its own to a base that exists already
    shutdown_seconds  seconds that the actors, and then the threads, may take to end
    """

    now = staticmethod(time.monotonic)
    wall_clock = staticmethod(time.time)
    random_bytes = staticmethod(os.urandom)
    sockets = SystemSockets()
    memory = SystemMemory()
    poller: Poller

    def __init__(
        self,
        name: str | None = None,
        *,
        thread: bool = True,
        capabilities: dict[str, Any] | None = None,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        own = {
            "Python Version": tuple(sys.version_info),
            "Thespian Generation": ThespianGeneration,
            "Thespian ActorSystem Name": "warren LoopBase",
            "Thespian ActorSystem Version": 1,
            "Thespian Watch Supported": True,
            "AllowRemoteActorSources": "No",
        }
        super().__init__(name or f"loop-{secrets.token_hex(4)}", {**own, **(capabilities or {})}, BUDGET)
        self._shutdown_seconds = shutdown_seconds
        self.threads = OtherThreads(self.name, thread)
        #: See `OtherThreads.post`. A method here would cost a call for each result of a blocking call.
        self.post = self.threads.post
        #: A function of the program that the loop calls between two rounds, from time to time.
        self.housekeep: Callable[[], object] | None = None
        #: Whether to leave the loop after this round.
        self.is_stopping = False
        #: Whether to end all actors when the loop is left.
        self._is_shutdown_requested = False
        #: Whether to end them without a further turn.
        self._is_killed = False
        #: Whether every thread has ended as well.
        self._has_ended_entirely = False
        self._ended = threading.Event()
        #: Cells whose processes have called `call_at_round_end` in this round.
        self.round_end: list[Cell] = []
        self.poller = SystemPoller()
        self._wake_fd = self.threads.waker.fd
        #: Whether the last sleep was so short that it is worth polling before the next one.
        self._polls_first = False
        #: Falls with each poll that finds nothing, and rises with each that finds something. Below 0, and as long as
        #: `_unpolled` is not 0, the loop does not poll.
        self._poll_luck = 0
        self._unpolled = 0
        self.descriptors = Descriptors(self, self._wake_fd)
        self._direct = DirectTurns(self, self._wake_fd)
        self.poller.watch(self.descriptors, self._wake_fd, READ)
        self.watchdog = Watchdog()
        self.lanes = Lanes(self.ready, self.watchdog)
        self._pool = BlockingPool(BLOCKING_THREADS, self.name)
        self.port_numbers = itertools.count(1)
        self._port = Port(self, "outside")
        self._thread: threading.Thread | None = None
        if thread:
            started = threading.Event()
            self._thread = threading.Thread(target=self._thread_main, args=(started,), name=self.name, daemon=True)
            self._thread.start()
            started.wait()

    # -- the loop ----------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run in this thread until `stop`, or until an actor or another thread asks for shutdown."""
        self.run_for(None)

    def run_for(self, seconds: float | None) -> None:
        """Run in this thread until `stop`, until a shutdown, or for `seconds`; None is no limit."""
        self._run(None, None if seconds is None else time.monotonic() + seconds)

    def run_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run in this thread until `condition()` is true, which is checked once a round, or for `timeout` seconds.

        Returns the last value of the condition: False after the timeout or a `stop`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._run(condition, deadline)
        return condition()

    def stop(self) -> None:
        """Make `run_forever` or `run_for` return; the actors stay. May be called from a signal handler."""
        self.is_stopping = True
        self.threads.waker.wake()

    def _run(self, condition: Callable[[], bool] | None, deadline: float | None) -> None:
        threads = self.threads
        if not threads.running.acquire(blocking=False):
            raise RuntimeError(f"the loop of {self.name} is running already")
        try:
            if threads.is_closed:
                return
            threads.runner = threading.get_ident()
            self._rounds(condition, deadline)
            if self._is_shutdown_requested:
                self._close()
        finally:
            threads.runner = None
            # Reset at the end of a run, not at its beginning, so that a `stop` that came before the run takes effect.
            self.is_stopping = False
            threads.running.release()

    def _rounds(self, condition: Callable[[], bool] | None, deadline: float | None) -> None:
        threads, descriptors, ready, timers = self.threads, self.descriptors, self.ready, self.timers
        lanes, light, shared, active = self.lanes, self.lanes.light, self.lanes.shared, self.lanes.active
        calls, monotonic, watchdog, direct = threads.calls, time.monotonic, self.watchdog, self._direct
        next_poll = next_care = 0.0
        is_limited = condition is not None or deadline is not None
        now = monotonic()
        watchdog.mark(now)
        while not self.is_stopping:
            if now >= watchdog.next_mark:
                watchdog.mark(now)
            if calls:
                threads.make_calls()
            if timers.heap and timers.heap[0][0] <= now:
                self.fire_timers(now, TIMERS)
            if ready:
                if direct.goes_on and not is_limited:
                    if self.housekeep is not None and now >= next_care:
                        self.housekeep()
                        next_care = now + HOUSEKEEPING_SECONDS
                    now = direct.serve(self.poller.poll(0), now, timers.next_deadline())
                    continue
                direct.goes_on = False
                lanes.admit_each()
            if light or shared or active:
                now = lanes.have_turns(self.turn, now)  # a meter may have taken the place of `turn`
            while self.round_end:
                self.end_round()
                now = monotonic()
            if is_limited and ((condition is not None and condition()) or (deadline is not None and now >= deadline)):
                return
            if lanes.crowd:
                descriptors.serve_crowd()
                now = monotonic()
            if light or shared or active or ready or lanes.crowd or descriptors.unserved:
                # If there is nothing to do but descriptors that are left from the last poll, serve them now. Without a
                # turn `now` stays the same, so the time of the next poll would not come.
                if now >= next_poll or descriptors.unserved and not (light or shared or active):
                    if not is_limited and not descriptors.unserved and lanes.give_up(now):
                        direct.goes_on = True
                        continue
                    descriptors.serve()
                    if self.housekeep is not None and now >= next_care:
                        self.housekeep()
                        next_care = now + HOUSEKEEPING_SECONDS
                    now = monotonic()
                    next_poll = now + POLL_INTERVAL
                continue
            if self.housekeep is not None and now >= next_care:
                self.housekeep()
                next_care = now + HOUSEKEEPING_SECONDS
            wake_at = timers.next_deadline()
            if deadline is not None and (wake_at is None or deadline < wake_at):
                wake_at = deadline
            threads.is_asleep = True
            # A thread that posted a call before `is_asleep` was set did not wake the loop, so look for its call now.
            if calls or self.is_stopping:
                threads.is_asleep = False
                continue
            now = self._sleep(now, wake_at, is_limited)

    def call_at_round_end(self, cell: Cell) -> None:
        self.round_end.append(cell)

    def end_round(self) -> None:
        """Call `on_round_end` of the processes that have asked for it."""
        cells = list(self.round_end)
        self.round_end.clear()  # the same list stays, because the loop and `DirectTurns` refer to it
        for cell in cells:
            self.round_end_turn(cell)

    def _sleep(self, now: float, wake_at: float | None, is_limited: bool) -> float:
        """Wait until `wake_at` for a descriptor, serve those that are ready, and return the time.

        `is_limited`: the caller checks a condition after each round.
        """
        events, woke = self._wait(now, wake_at)
        self.threads.is_asleep = False
        is_alone = len(events) == 1 or now >= self.lanes.follow_until
        if len(events) <= MOST_DESCRIPTORS and is_alone and not is_limited:
            return self._direct.serve(events, woke, wake_at)
        self.descriptors.unserved = events
        self.descriptors.serve()
        return time.monotonic()

    def _wait(self, now: float, wake_at: float | None) -> tuple[list[tuple[int, int]], float]:
        """Wait until `wake_at` for a descriptor. Return those that are ready, as `Poller.poll` does, and the time."""
        poll, monotonic = self.poller.poll, time.monotonic
        # While the pool's threads work, polling would take the interpreter from them.
        if self._polls_first and not self._pool.is_busy():
            until = now + POLLING_SECONDS
            if wake_at is None or wake_at > until:
                while now < until:
                    events = poll(0)
                    now = monotonic()
                    if events:
                        self._poll_luck = min(self._poll_luck + 1, 2 * HITS_A_MISS)
                        return events, now
                self._poll_luck -= HITS_A_MISS
                if self._poll_luck < 0:
                    self._poll_luck, self._unpolled = 0, UNPOLLED_SLEEPS
        events = poll(None if wake_at is None else min(max(0.0, wake_at - now), LONGEST_SLEEP))
        woke = monotonic()
        slept = woke - now
        self.watchdog.slept += slept
        self._polls_first = slept < POLLING_SECONDS
        if self._polls_first and self._unpolled:
            self._unpolled -= 1
            self._polls_first = False
        return events, woke

    # -- other threads -----------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(*args)` on the loop and return its value or raise its error."""
        return self.threads.call(function, *args)

    def longest_turns(self) -> list[LongTurnRecord]:
        return list(self.watchdog.longest)

    def waiting(self) -> Iterator[Cell]:
        return self.lanes.waiting()

    def is_running_here(self) -> bool:
        """Whether the calling thread runs the loop."""
        return self.threads.is_run_by(threading.get_ident())

    def is_running(self) -> bool:
        """Whether any thread runs the loop."""
        return self.threads.runner is not None

    def is_closed(self) -> bool:
        """Whether every actor has ended; threads may still work on blocking calls whose results are dropped."""
        return self.threads.is_closed

    def busy_with(self) -> str:
        """Describe the work that the loop has now; empty if it has none. Call it on the loop: `call(self.busy_with)`.

        Timers that are not due yet are no work, except those that their processes count as work.
        """
        if (cell := next(self.waiting(), None)) is not None:
            return f"{cell.address} has messages to handle"
        for fd, _ in self.poller.poll(0):
            owner = self.poller.owners.get(fd)
            if owner is not None and fd != self._wake_fd:
                return f"{owner[0].address} has descriptor {fd} to serve"
        for fd, (watcher, mask) in self.poller.owners.items():
            if mask & WRITE:
                return f"{watcher.address} cannot write all it has to descriptor {fd}"
        for _, _, owner, payload in self.timers.entries():
            if owner is not None and owner.handlers is not None and payload in owner.actor.work_timers:
                return f"{owner.address} goes on with its work ({payload}) soon"
        return "a blocking call is under way" if self._pool.is_busy() else ""

    def deliver_slowly(self, sender: ActorAddress, target: Any, message: Any) -> None:
        cell = getattr(target, "_cell", None)
        if cell is not None and cell.ready is not self.ready:
            # The receiver lives in another system of this process, whose own thread must put it into the mailbox.
            cell.base.post(cell.base.enqueue, sender, target, message)
            return
        super().deliver_slowly(sender, target, message)

    def run_blocking(
        self, cell: Cell, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        address = cell.address

        def done(ok: bool, value: Any) -> None:
            self.post(self.enqueue, address, address, ("$answer", ref, ok, value))

        (self._pool.submit_brief if is_brief else self._pool.submit)(done, function, args)

    # -- the end -----------------------------------------------------------------------------------

    def request_shutdown(self) -> None:
        """End the whole system soon; returns at once."""
        self._is_shutdown_requested = True
        self.stop()

    def shutdown(self) -> bool:
        """End every actor, then the threads and descriptors, within about `shutdown_seconds`. May be called again.

        Returns whether everything has ended. On the loop's own thread it only requests the shutdown and returns False,
        because an actor cannot wait for its own end.
        """
        self.request_shutdown()
        if self.is_running_here():
            return False
        if self._thread is None and not self.is_running():
            self._run(None, None)
        if not self._ended.wait(self._shutdown_seconds * 2 + 1):
            log.error("%s: an actor does not return from a handler; its thread is left behind", self.name)
        elif self._thread is not None:
            self._thread.join()
        return self._has_ended_entirely

    def kill(self) -> bool:
        """End as a process does that is killed: no actor acts any more, and all descriptors are closed.

        A blocking call that runs already is finished, as the kernel finishes a write. Returns what `shutdown` returns.
        """
        self._is_killed = True
        return self.shutdown()

    def pause(self) -> Callable[[], None]:
        """Make the loop stand still, as in a process that gets SIGSTOP; return a function that lets it go on.

        Blocking calls in other threads go on; their results wait. Raises RuntimeError if the system is shut down.
        """
        return self.threads.pause()

    def _thread_main(self, started: threading.Event) -> None:
        self.post(started.set)
        try:
            self._run(None, None)
        except BaseException:
            log.critical("the loop of %s failed", self.name, exc_info=True)
            self._close()

    def _close(self) -> None:
        """End the actors, the threads and the descriptors. The last thing that happens on the loop's thread."""
        self.is_ending = True
        deadline = time.monotonic() + self._shutdown_seconds
        if self._is_killed:
            # The pool is closed before the actors end, because these close the files on which its calls work.
            self._pool.close(self._shutdown_seconds)
        else:
            self._ask_actors_to_exit(deadline)
        left = [cell for cell in self.cells.values() if isinstance(cell, Cell)]
        if left and not self._is_killed:
            # A node may have very many queues, so only some processes are named.
            named = ", ".join(str(cell.address) for cell in left[:NAMED])
            more = f" and {len(left) - NAMED} more processes" if len(left) > NAMED else ""
            log.warning("killed, because they did not end within %g s: %s%s", self._shutdown_seconds, named, more)
        for cell in left:
            self.end(cell, ExitReason(ExitKind.KILLED, "killed"))
        self.threads.is_closed = True
        # Threads without a call end within a moment. They get that moment even if the actors took all the time.
        self._has_ended_entirely = self._pool.close(max(THREADS_SECONDS, deadline - time.monotonic()))
        if not self._has_ended_entirely:
            log.error("%s: a blocking call does not return; its thread is left behind", self.name)
        for port in [port for port in list(self.cells.values()) if isinstance(port, Port)]:
            port.fail(SHUTDOWN)
        self.cells.clear()
        self.dormant.by_address.clear()
        self.threads.calls.clear()
        self.poller.close()
        self.threads.waker.close()
        self._ended.set()

    def _ask_actors_to_exit(self, deadline: float) -> None:
        """Run until all actors have ended in order, at the longest until `deadline`."""
        for cell in list(self.roots.values()):
            self.enqueue(self.address, cell.address, ActorExitRequest())
        self.is_stopping = False
        try:
            self._rounds(lambda: self.living == 0, deadline)
        except Exception:
            log.critical("%s failed while ending its actors", self.name, exc_info=True)

    # -- what thespian.actors.ActorSystem calls ----------------------------------------------------

    def newPrimaryActor(
        self, actor_class: Any, requirements: Any = None, global_name: str | None = None, source_hash: Any = None
    ) -> ActorAddress:
        return self.call(self.create, actor_class, None, requirements, global_name, source_hash)

    def tell(self, address: ActorAddress, message: Any) -> None:
        self._port.tell(address, message)

    def ask(self, address: ActorAddress, message: Any, timeout: timedelta | float | None) -> Any:
        self._port.tell(address, message)
        return self._port.listen(timeout)

    def listen(self, timeout: timedelta | float | None) -> Any:
        return self._port.listen(timeout)

    def external_clone(self) -> PrivateBase:
        return PrivateBase(self)

    def updateCapability(self, name: str, value: Any = None) -> None:
        self.call(self.update_capability, name, value)

    def _handleDeadLetters(self, address: ActorAddress, enable: bool) -> None:
        self.call(self.undelivered.register, address, enable)
