"""`LoopBase`: a Thespian system base that runs all its actors on one thread around epoll.

    base = LoopBase()                                     # in a thread of its own
    system = ActorSystem(systemBase=base, transientUnique=True)

    base = LoopBase(thread=False)                         # in the caller's thread
    base.run_forever()                                    # until stop() or shutdown

One round of the loop: what other threads posted, timers that are due, one turn of each actor on the run queue, and a
look at the descriptors: with no timeout while actors are busy, otherwise asleep until a timer, a descriptor or another
thread needs it. There is nothing to poll when nothing happens.

    inbox    calls from other threads; the only thing they touch, besides the eventfd that ends the sleep
    ready    the run queue: actors with messages waiting, each once
    timers   a heap
    poller   descriptors, whose readiness is given to the actor directly, not through its mailbox: level
             triggered epoll would report it again and again while the message waited

A busy actor holds up the others for at most `budget` messages; busy actors hold up the descriptors for at
most a round; at most `MAX_EVENTS` descriptors are served before the mailboxes get their turn.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from thespian.actors import ActorAddress, ActorExitRequest, ThespianGeneration, WatchMessage

from ..actor_base import ActorBase
from ..cell import Cell
from ..exit_reason import SHUTDOWN, ExitKind, ExitReason
from ..machine.memory import SystemMemory
from ..machine.sockets import SystemSockets
from .blocking import BlockingPool
from .outside import Port, PrivateBase
from .poller import READ, WRITE, Poller, SystemPoller
from .waker import SystemWaker

log = logging.getLogger("warren.runtime")

BUDGET = 64
BLOCKING_THREADS = 4
SHUTDOWN_SECONDS = 5.0

# Looking at the descriptors costs a system call of about 1 us, a round of two actors playing ping-pong 0.8 us:
# while the run queue is never empty, a look every so many seconds is enough. A message's whole way through a broker takes
# less than this, so that none is held up by a look at sockets in the middle of it.
POLL_INTERVAL = 200e-6

#: Longest sleep of a loop, in seconds. epoll counts milliseconds in a C int, so that a longer timer wakes the loop once a
#: day without need. On Windows nothing but the end of a sleep lets Python run its signal handlers, so that Ctrl-C takes
#: up to a second there.
LONGEST_SLEEP = 1.0 if sys.platform == "win32" else 86_400.0


class LoopBase(ActorBase):
    """One system of actors. Every public method may be called from any thread.

    name              prefix of its addresses; a random one by default
    thread            False: the caller runs the loop (`run_forever`, `run_until`; asking runs it meanwhile)
    capabilities      what `requireCapability` looks at (ActorSystem does not pass its own to a ready-made base)
    budget            most messages an actor handles before others get their turn
    blocking_threads  most threads for `run_blocking`
    shutdown_seconds  how long actors, and then threads, may take to end
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
        budget: int = BUDGET,
        blocking_threads: int = BLOCKING_THREADS,
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
        super().__init__(name or f"loop-{secrets.token_hex(4)}", {**own, **(capabilities or {})}, budget)
        self._shutdown_seconds = shutdown_seconds
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._asleep = False
        self._stopping = False  # leave run()
        self._shutdown_wanted = False  # and end everything
        self._closed = False
        self._has_ended_whole = False
        self._ended = threading.Event()
        self._running = threading.Lock()  # held by whoever acts in the system: the loop, or a call while none runs
        self._runner: int | None = None  # ident of the thread that runs the loop, if one does
        self.poller = SystemPoller()
        self._waker = SystemWaker()
        self._wake_fd = self._waker.fd
        self.fds: set[int] = set()
        self.poller.watch(self, self._wake_fd, READ)
        self._pool = BlockingPool(blocking_threads, self.name)
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
        self._run(None, None)

    def run_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run in this thread until `condition()`, which is looked at once a round; its last value is returned.

        False after `timeout` seconds or a stop.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._run(condition, deadline)
        return condition()

    def stop(self) -> None:
        """Have `run_forever` return; the actors stay. May be called from a signal handler."""
        self._stopping = True
        self._waker.wake()

    def _run(self, condition: Callable[[], bool] | None, deadline: float | None) -> None:
        if not self._running.acquire(blocking=False):
            raise RuntimeError(f"the loop of {self.name} is running already")
        try:
            if self._closed:
                return
            self._runner = threading.get_ident()
            self._rounds(condition, deadline)
            if self._shutdown_wanted:
                self._close()
        finally:
            self._runner = None
            self._stopping = False  # not before: a stop that came first counts
            self._running.release()

    def _rounds(self, condition: Callable[[], bool] | None, deadline: float | None) -> None:
        inbox, ready, timers, turn = self._inbox, self.ready, self.timers, self.turn
        monotonic = time.monotonic
        next_poll = 0.0
        while not self._stopping:
            if inbox:
                self._drain_inbox()
            now = monotonic()
            if timers.heap and timers.heap[0][0] <= now:
                self.fire_timers(now)
            try:
                for _ in range(len(ready)):
                    cell = ready.popleft()
                    turn(cell)
            except BaseException:
                # Ctrl-C in the middle of a turn: the actor must still be able to hear that it shall end.
                if cell.actor is not None:
                    ready.append(cell)
                raise
            if condition is not None and (condition() or (deadline is not None and now >= deadline)):
                return
            if ready:
                if now >= next_poll:
                    self._serve_descriptors(0)
                    next_poll = monotonic() + POLL_INTERVAL
                continue
            wake_at = timers.next_deadline()
            if deadline is not None and (wake_at is None or deadline < wake_at):
                wake_at = deadline
            self._asleep = True
            # A thread that posted before it could see us asleep left its call in the inbox; look again.
            if inbox or self._stopping:
                self._asleep = False
                continue
            self._serve_descriptors(None if wake_at is None else min(max(0.0, wake_at - monotonic()), LONGEST_SLEEP))

    def _drain_inbox(self) -> None:
        inbox = self._inbox
        for _ in range(len(inbox)):
            function, args = inbox.popleft()
            function(*args)

    def _serve_descriptors(self, timeout: float | None) -> None:
        events = self.poller.poll(timeout)
        self._asleep = False
        if not events:
            return
        owners = self.poller.owners
        plain: dict[int, tuple[Cell, list[int]]] = {}
        for fd, mask in events:
            if fd == self._wake_fd:
                self._waker.drain()
                continue
            owner = owners.get(fd)
            if owner is None:
                self.poller.forget(fd)
                continue
            cell, wanted = owner
            if cell.handlers is None:
                plain.setdefault(id(cell), (cell, []))[1].append(fd)
            else:
                self.descriptor_turn(cell, fd, mask, wanted)
        for cell, fds in plain.values():
            self._plain_message(cell, cell.address, WatchMessage(fds))

    # -- other threads -----------------------------------------------------------------------------

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Have the loop call `function(*args)` soon, in the order of each thread's posts. Never waits.

        After shutdown it does nothing.
        """
        if self._closed:
            return
        self._inbox.append((function, args))
        if self._asleep:
            self._waker.wake()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(*args)` on the loop and return its value or raise its error."""
        if self.is_running_here():
            return function(*args)
        done = threading.Event()
        outcome: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                outcome.append((True, function(*args)))
            except BaseException as error:
                outcome.append((False, error))
            done.set()

        self.post(run)
        while not done.is_set():
            if self._closed:
                raise RuntimeError(f"the system {self.name} is shut down")
            if self._running.acquire(blocking=False):
                # Nobody runs the loop (thread=False): act here, in the loop's place.
                try:
                    self._drain_inbox()
                finally:
                    self._running.release()
            else:
                done.wait(0.1)  # again, because whoever runs the loop may leave it
        ok, value = outcome[0]
        if ok:
            return value
        raise value

    def is_running_here(self) -> bool:
        """True in the thread that runs the loop."""
        return self._runner == threading.get_ident()

    def is_running(self) -> bool:
        return self._runner is not None

    def is_closed(self) -> bool:
        """Every actor has ended; threads may still be at work for nobody."""
        return self._closed

    def busy_with(self) -> str:
        """What there is to do at this moment, in words; empty if nothing is. Call it on the loop: `base.call(base.busy_with)`.

        Timers that are not due yet are no work, nor are descriptors that nobody watches.
        """
        for cell in self.ready:
            return f"{cell.address} has messages to handle"
        for fd, _ in self.poller.poll(0):
            owner = self.poller.owners.get(fd)
            if owner is not None and fd != self._wake_fd:
                return f"{owner[0].address} has descriptor {fd} to serve"
        for fd, (cell, mask) in self.poller.owners.items():
            if mask & WRITE:
                return f"{cell.address} cannot write all it has to descriptor {fd}"
        return "a blocking call is under way" if self._pool.is_busy() else ""

    def deliver_slowly(self, sender: ActorAddress, target: Any, message: Any) -> None:
        cell = getattr(target, "_cell", None)
        if cell is not None and cell.ready is not self.ready:
            # Another system in this process: its own thread must put it into the mailbox.
            cell.base.post(cell.base.enqueue, sender, target, message)
            return
        super().deliver_slowly(sender, target, message)

    def run_blocking(self, cell: Cell, ref: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        address = cell.address

        def done(ok: bool, value: Any) -> None:
            self.post(self.enqueue, address, address, ("$answer", ref, ok, value))

        self._pool.submit(done, function, args)

    # -- the end -----------------------------------------------------------------------------------

    def request_shutdown(self) -> None:
        """End the whole system soon; returns at once."""
        self._shutdown_wanted = True
        self.stop()

    def shutdown(self) -> bool:
        """End every actor, then threads and descriptors. Takes at most about `shutdown_seconds`; idempotent. True if nothing of it runs any more.

        On the loop itself it only asks for that, as an actor cannot wait for its own end.
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
        return self._has_ended_whole

    def _thread_main(self, started: threading.Event) -> None:
        self.post(started.set)
        try:
            self._run(None, None)
        except BaseException:
            log.critical("the loop of %s failed", self.name, exc_info=True)
            self._close()

    def _close(self) -> None:
        """On the loop's thread, as the last thing it does."""
        self.ending = True
        for cell in list(self.roots.values()):
            self.enqueue(self.address, cell.address, ActorExitRequest())
        self._stopping = False
        deadline = time.monotonic() + self._shutdown_seconds
        try:
            self._rounds(lambda: self.living == 0, deadline)
        except Exception:
            log.critical("%s failed while ending its actors", self.name, exc_info=True)
        for cell in [cell for cell in self.cells.values() if isinstance(cell, Cell)]:
            log.warning("%s did not end in time and is killed", cell.address)
            self.end(cell, ExitReason(ExitKind.KILLED, "killed"))
        self._closed = True
        self._has_ended_whole = self._pool.close(max(0.0, deadline - time.monotonic()))
        if not self._has_ended_whole:
            log.error("%s: a blocking call does not return; its thread is left behind", self.name)
        for port in [port for port in list(self.cells.values()) if isinstance(port, Port)]:
            port.fail(SHUTDOWN)
        self.cells.clear()
        self._inbox.clear()
        self.poller.close()
        self._waker.close()
        self._ended.set()

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
        self.call(self.handle_dead_letters, address, enable)
