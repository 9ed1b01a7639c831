"""`SimBase`: a Thespian system base whose time, network, threads and randomness belong to a `SimWorld`.

The actors are the same as on `LoopBase`, and so are their births, turns and deaths (`actor_base`). Only the order of
events differs: the world takes one step at a time, and a step of a system of actors is one of these:

    a turn            an actor handles the oldest message of one sender, chosen among those in its mailbox, or
                      resumes a coroutine that was woken, or sometimes does all of that in order, as on the loop
    a descriptor      an actor serves a socket that is ready
    a blocking call   the function runs here and now, and its result goes into the mailbox of its process

Messages keep their order for each pair of sender and receiver. Nothing else is promised, as in Thespian, but for one
thing: the first message of a process, which its creator sends, is handled first. In Erlang likewise the creator of a
process waits until that is initialised.

When a machine crashes, its system ends in the middle of whatever it does. No `on_exit` is called. Messages, blocking
calls that have not been made, and bytes that the kernel has not taken are lost.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ActorExitRequest, ThespianGeneration, WatchMessage

from ..coroutines import Pending
from ..exit_reason import ExitReason
from ..process import Process
from ..system.actor_base import ActorBase
from ..system.address import LoopAddress
from ..system.cell import Cell
from ..system.plain_actors import handle_plainly
from .holds import HeldCalls, Hold, Holds
from .port import MACHINE_CRASHED, SimPort
from .sim_sockets import SimSockets

if TYPE_CHECKING:
    from .machine import SimMachine
    from .world import SimWorld

#: Most messages that an actor handles in one turn, as on the loop.
BUDGET = 64

#: Messages at the head of a mailbox among whose senders the next one is chosen.
LOOK_AHEAD = 16

#: Virtual seconds that the actors may take to end.
SHUTDOWN_SECONDS = 5.0

#: (address as text, message) -> whether to crash the actor at this message.
Match = Callable[[str, Any], bool]


class SimulatedCrash(Exception):
    """The error of an actor that a scenario crashes."""


@dataclass(slots=True)
class _Job:
    cell: Cell
    ref: int
    function: Callable[..., Any]
    args: tuple[Any, ...]


class SimBase(ActorBase):
    """The system of actors on one machine, from boot to crash; made by `SimMachine.boot`."""

    sockets: SimSockets
    poller: SimSockets

    def __init__(self, world: SimWorld, machine: SimMachine, name: str) -> None:
        capabilities = {
            "Python Version": tuple(sys.version_info),
            "Thespian Generation": ThespianGeneration,
            "Thespian ActorSystem Name": "warren SimBase",
            "Thespian ActorSystem Version": 1,
            "Thespian Watch Supported": True,
            "AllowRemoteActorSources": "No",
        }
        super().__init__(name, capabilities, BUDGET)
        self.world = world
        self.machine = machine
        self.now = machine.now
        self.wall_clock = lambda: world.wall_clock(machine.now()) + machine.clock_offset
        self.random_bytes = random.Random(f"{world.seed} {name}").randbytes
        self.memory = machine.memory
        self.sockets = self.poller = SimSockets(self)
        self.is_alive = True
        #: Blocking calls that can be made now.
        self.jobs: list[_Job] = []
        #: Blocking calls that are delayed, by number. The world's events hold only the number, so that after a crash
        #: nothing keeps alive what the calls refer to.
        self._calls: dict[int, _Job] = {}
        self._last_call = 0
        #: How many ports were ever made, from which the address of the next one follows.
        self.ports = 0
        self._traps: list[tuple[Match, bool]] = []
        self._holds = Holds()
        #: Blocking calls that are held.
        self._held_jobs: list[_Job] = []
        #: Addresses of actors that have not had a turn. Never iterated, because the order of a set may differ.
        self._newborn: set[str] = set()
        self._port = SimPort(self, "outside")

    # -- steps: each returns False if there was nothing to do --------------------------------------

    def act(self, number: int) -> bool:
        """Take the `number`-th of the steps that are possible here: turns, then blocking calls, then descriptors."""
        ready = self.ready
        if number < len(ready):
            cell = ready[number]
            del ready[number]
            return self._turn_of(cell, False)
        number -= len(ready)
        if number < len(self.jobs):
            return self.finish(self.jobs[number])
        number -= len(self.jobs)
        return self.serve(next(islice(self.poller.active, number, None)))

    def whole_turn(self, cell: Cell) -> bool:
        """Give `cell` a turn in which it handles all its messages in order."""
        if cell not in self.ready:
            return False
        self.ready.remove(cell)
        return self._turn_of(cell, True)

    def _turn_of(self, cell: Cell, whole: bool) -> bool:
        if cell.actor is None:
            return False
        world, queue = self.world, cell.queue
        name = cell.address._aaddr
        if cell.sliced is not None:
            world.record((world.time, "slice", name, cell.sliced.name))
            world.acting_cell = cell
            self.turn(cell)
            return True
        free = self._holds.bring_forward(name, queue)
        if not free and not cell.woken:
            cell.is_idle = True  # a message that is not held, or `release`, puts it on the run queue again
            return False
        limit = cell.turn_limit or BUDGET
        count, resumed = min(free, limit), min(len(cell.woken), limit)
        if count + resumed > 1 and (self._traps or not (whole or world.takes_whole_mailbox())):
            # One step: a coroutine that was woken, or a message.
            if resumed and not (count and world.below(2)):
                count, resumed = 0, 1
            else:
                count, resumed = 1, 0
                if free > 1 and name not in self._newborn:
                    self._bring_forward(queue, free)
        self._newborn.discard(name)
        time, record, describe = world.time, world.record, world.describe
        for pending in islice(cell.woken, resumed):
            record((time, "resume", name, _waiter(pending)))
        for sender, message in islice(queue, count):
            record((time, "turn", name, sender._aaddr, describe(message)))
        if self._traps and count and self._is_trapped(cell):
            return True
        self.budget, self.resume_budget = count, resumed
        world.acting_cell = cell
        self.turn(cell)
        return True

    def _bring_forward(self, queue: deque[tuple[ActorAddress, Any]], free: int) -> None:
        """Choose a sender, among those of the first `free` messages, and put its first message at the head."""
        seen = set()
        firsts = []
        for position, (sender, _) in enumerate(islice(queue, min(free, LOOK_AHEAD))):
            if sender._aaddr not in seen:
                seen.add(sender._aaddr)
                firsts.append(position)
        if len(firsts) > 1:
            position = firsts[self.world.below(len(firsts))]
            if position:
                envelope = queue[position]
                del queue[position]
                queue.appendleft(envelope)

    def serve(self, fd: int) -> bool:
        """Let the owner of `fd`, which is ready, serve it."""
        if fd not in self.poller.active:
            return False
        cell, wanted = self.poller.owners[fd]
        mask = self.sockets.open[fd].readiness()
        self.world.acting_cell = cell
        self.world.record((self.world.time, "serve", cell.address._aaddr, fd, mask))
        if cell.handlers is None:
            handle_plainly(self, cell, cell.address, WatchMessage([fd]))
        else:
            self.descriptor_turn(cell, fd, mask, wanted)
        return True

    def finish(self, job: _Job) -> bool:
        """Make a blocking call and send its result to the process that called it."""
        if job not in self.jobs:
            return False
        self.jobs.remove(job)
        try:
            value, ok = job.function(*job.args), True
        except Exception as error:
            value, ok = error, False
        address, world = job.cell.address, self.world
        world.record((world.time, "job", address._aaddr, job.function.__name__, ok))
        self.enqueue(address, address, ("$answer", job.ref, ok, value))
        return True

    # -- what is held ------------------------------------------------------------------------------

    def hold(self, hold: Hold | HeldCalls) -> None:
        """Hold these messages, or these blocking calls, until `release`."""
        if isinstance(hold, Hold):
            self._holds.messages.append(hold)
        else:
            self._holds.calls.append(hold)

    def release(self, hold: Hold | HeldCalls) -> None:
        """Make the messages or calls that this hold has held possible steps, unless another hold holds them too."""
        if isinstance(hold, Hold):
            self._holds.messages.remove(hold)
            for cell in list(self.cells.values()):
                if isinstance(cell, Cell) and cell.actor is not None and cell.queue:
                    self.schedule(cell)
        else:
            self._holds.calls.remove(hold)
            held, self._held_jobs = self._held_jobs, []
            for job in held:
                self._add_job(job)

    # -- crashes of actors -------------------------------------------------------------------------

    def crash_when(self, match: Match, after: bool = False) -> None:
        """Crash the first actor that is about to handle a message for which `match` returns True; only once.

        It crashes instead of handling the message. With `after`, which needs a Process, it crashes after the handler
        and before `after_batch`, so that the messages of the handler are sent and those of `after_batch` are not. Until
        the crash every turn takes one message.
        """
        self._traps.append((match, after))

    def crash_never(self) -> None:
        """Cancel every `crash_when` that has not led to a crash."""
        self._traps.clear()

    def _is_trapped(self, cell: Cell) -> bool:
        message = cell.queue[0][1]
        for trap in self._traps:
            match, after = trap
            if match(cell.address._aaddr, message):
                self._traps.remove(trap)
                if not after:
                    # The message stays in the mailbox, so that an asker gets ProcessDown.
                    self.crash(cell, SimulatedCrash("by the scenario"), message)
                    return True
                cell.actor.after_batch = _crash
        return False

    def crash(self, cell: Cell, error: BaseException, message: Any = None) -> None:
        self.world.crashes.append((cell.address._aaddr, error))
        super().crash(cell, error, message)

    # -- births and deaths -------------------------------------------------------------------------

    def give_cell(self, address: LoopAddress, actor: Any, parent: Cell | None) -> Cell:
        self._newborn.add(address._aaddr)
        return super().give_cell(address, actor, parent)

    def end(self, cell: Cell, reason: ExitReason, recursive: bool = True) -> None:
        if cell.actor is not None:
            self.world.record((self.world.time, "end", cell.address._aaddr, str(reason)))
            self._newborn.discard(cell.address._aaddr)
        super().end(cell, reason, recursive)

    def vanish(self, has_power: bool) -> None:
        """End all actors at once without any call to them, because the machine has crashed. Called by the machine."""
        self.is_alive = False
        self.remotes.disconnect_all()
        self.names.clear()
        self.sockets.end(has_power)
        self.ready.clear()
        self.jobs.clear()
        self._held_jobs.clear()
        self._calls.clear()
        actors: list[Any] = [
            cell.actor for cell in self.cells.values() if isinstance(cell, Cell) and isinstance(cell.actor, Process)
        ]
        for actor in actors:
            # Closed now, because a `finally` in a coroutine must not run whenever the garbage collector finds it. The
            # messages that it sends reach no process.
            for task in list(actor._tasks):
                with suppress(Exception):
                    task.close()
        for actor in actors:
            actor._delete_attributes()
        for cell in self.cells.values():
            if isinstance(cell, Cell):
                cell.woken = ()
                cell.sliced = None
                cell.queue.clear()  # the results of blocking calls in it may hold open files
        for port in [port for port in self.cells.values() if isinstance(port, SimPort)]:
            port.fail(MACHINE_CRASHED)
        self.cells.clear()
        self.dormant.by_address.clear()

    # -- what the host of a process asks for -------------------------------------------------------

    def run_blocking(
        self, cell: Cell, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        if self.is_alive:
            world = self.world
            self._last_call += 1
            self._calls[self._last_call] = _Job(cell, ref, function, args)
            longest = world.conditions.blocking_delay + self.machine.blocking_delay
            world.at(world.time + world.delay(longest), self._make_possible, self._last_call)

    def _make_possible(self, number: int) -> None:
        """Make a blocking call a possible step, because its delay is over."""
        job = self._calls.pop(number, None)
        if job is not None:  # otherwise the machine has crashed
            self._add_job(job)

    def _add_job(self, job: _Job) -> None:
        (self._held_jobs if self._holds.hold_call(job.cell.address._aaddr) else self.jobs).append(job)

    # -- what thespian.actors.ActorSystem calls ----------------------------------------------------

    def newPrimaryActor(
        self, actor_class: Any, requirements: Any = None, global_name: str | None = None, source_hash: Any = None
    ) -> ActorAddress:
        return self.create(actor_class, None, requirements, global_name, source_hash)

    def tell(self, address: ActorAddress, message: Any) -> None:
        self._port.tell(address, message)

    def ask(self, address: ActorAddress, message: Any, timeout: timedelta | float | None) -> Any:
        self._port.tell(address, message)
        return self._port.listen(timeout)

    def listen(self, timeout: timedelta | float | None) -> Any:
        return self._port.listen(timeout)

    def external_clone(self) -> SimPort:
        return SimPort(self, "private")

    def updateCapability(self, name: str, value: Any = None) -> None:
        self.update_capability(name, value)

    def _handleDeadLetters(self, address: ActorAddress, enable: bool) -> None:
        self.undelivered.register(address, enable)

    def request_shutdown(self) -> None:
        """Ask every actor to exit."""
        self.is_ending = True
        for cell in list(self.roots.values()):
            self.enqueue(self.address, cell.address, ActorExitRequest())

    def shutdown(self) -> None:
        """Run the world until every actor has ended, then end the process. May be called again."""
        if self.is_alive:
            self.request_shutdown()
            self.world.run_until(lambda: self.living == 0, SHUTDOWN_SECONDS)
            self.machine.crash()


def _waiter(pending: Pending | None) -> str | None:
    """The name of the coroutine that goes on; None for a turn that is only wanted for its `after_batch`."""
    task = None if pending is None else pending.task
    return None if task is None else task.name


def _crash() -> None:
    raise SimulatedCrash("by the scenario")
