"""`SimBase`: a Thespian system base whose time, network, threads and dice are a `SimWorld`'s.

The actors are the same as on `LoopBase`, and so is what happens to them (`actor_base`); what differs is who comes next. The world takes one step at
a time, and a step of a system of actors is one of:

    a turn            an actor handles one message, the oldest of any sender's that wait for it; sometimes all that wait, in order, as on the loop
    a descriptor      an actor serves a socket that is ready
    a blocking call   is made, here and now, and its end put into the mailbox of who wanted it

The order of messages is kept for each pair of sender and receiver, and nothing else is promised: what Thespian promises. One thing is Erlang's, where
who creates a process waits until it is initialised: the very first message, which is its creator's, comes first.

A system whose machine crashes ends in the middle of whatever it did. Its actors hear nothing of it (no `on_exit`); messages, calls that wait for
their turn and octets that were not given to the kernel are gone.
"""

from __future__ import annotations

import pickle
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

from ..actor_base import ActorBase
from ..cell import Cell
from ..exit_reason import ExitReason
from ..process import Process
from .port import MACHINE_CRASHED, SimPort
from .sim_sockets import SimSockets

if TYPE_CHECKING:
    from .machine import SimMachine
    from .world import SimWorld

BUDGET = 64  # messages a turn at most, as on the loop
LOOK_AHEAD = 16  # messages of a mailbox among which senders are looked for
SHUTDOWN_SECONDS = 5.0

#: (address as text, message) -> whether to crash the actor at this message.
Match = Callable[[str, Any], bool]


class SimulatedCrash(Exception):
    """An actor crashed because the scenario wanted it to."""


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
        self.now = world.now
        self.wall_clock = world.wall_clock
        self.random_bytes = random.Random(f"{world.seed} {name}").randbytes
        self.memory = machine.memory
        self.sockets = self.poller = SimSockets(self)
        self.is_alive = True
        self.jobs: list[_Job] = []  # blocking calls whose time has come
        self._calls: dict[
            int, _Job
        ] = {}  # those whose time has not; here alone, so that a crash lets go of all that they hold
        self._last_call = 0
        self.ports = 0
        self._traps: list[tuple[Match, bool]] = []
        self._newborn: set[str] = set()  # asked for membership only
        self._port = SimPort(self, "outside")

    # -- steps: each returns False if there was nothing to do after all ----------------------------

    def act(self, number: int) -> bool:
        """Do the `number`-th of what could be done here: turns, then blocking calls, then descriptors."""
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

    def turn_whole(self, cell: Cell) -> bool:
        """A turn with all that waits, in order."""
        if cell not in self.ready:
            return False
        self.ready.remove(cell)
        return self._turn_of(cell, True)

    def _turn_of(self, cell: Cell, whole: bool) -> bool:
        if cell.actor is None:
            return False
        world, queue = self.world, cell.queue
        name = cell.address._aaddr
        count = 1
        if len(queue) > 1:
            if not self._traps and (whole or world.joins()):
                count = min(len(queue), BUDGET)
            elif name not in self._newborn:
                self._bring_forward(queue)
        self._newborn.discard(name)
        time, record, describe = world.time, world.record, world.describe
        for sender, message in islice(queue, count):
            record((time, "turn", name, sender._aaddr, describe(message)))
        if self._traps and self._is_trapped(cell):
            return True
        self.budget = count
        world.acted = cell
        self.turn(cell)
        return True

    def _bring_forward(self, queue: deque[tuple[ActorAddress, Any]]) -> None:
        """Choose a sender, and put its first message in front."""
        seen = set()
        firsts = []
        for position, (sender, _) in enumerate(islice(queue, LOOK_AHEAD)):
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
        if fd not in self.poller.active:
            return False
        cell, wanted = self.poller.owners[fd]
        mask = self.sockets.open[fd].readiness()
        self.world.acted = cell
        self.world.record((self.world.time, "serve", cell.address._aaddr, fd, mask))
        if cell.handlers is None:
            self._plain_message(cell, cell.address, WatchMessage([fd]))
        else:
            self.descriptor_turn(cell, fd, mask, wanted)
        return True

    def finish(self, job: _Job) -> bool:
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

    # -- crashes of actors -------------------------------------------------------------------------

    def crash_when(self, match: Match, after: bool = False) -> None:
        """Crash the first actor that is about to handle a message for which `match` holds: instead of handling it, or just `after`, when what the handler
        sent is on its way and what `after_batch` would do is not done (of a `Process`). Once. Until then turns take one message each."""
        self._traps.append((match, after))

    def crash_never(self) -> None:
        """Take back every `crash_when` that has not come to pass."""
        self._traps.clear()

    def _is_trapped(self, cell: Cell) -> bool:
        message = cell.queue[0][1]
        for trap in self._traps:
            match, after = trap
            if match(cell.address._aaddr, message):
                self._traps.remove(trap)
                if not after:
                    # The message stays in the mailbox: who asked it is to hear of the crash.
                    self.crash(cell, SimulatedCrash("as the scenario wants"), message)
                    return True
                cell.actor.after_batch = _crash
        return False

    def crash(self, cell: Cell, error: BaseException, message: Any = None) -> None:
        self.world.crashes.append((cell.address._aaddr, error))
        super().crash(cell, error, message)

    # -- births and deaths -------------------------------------------------------------------------

    def create(
        self, actor_class: Any, parent: Cell | None, requirements: Any, global_name: str | None, source_hash: Any
    ) -> ActorAddress:
        last = self._last_number
        address = super().create(actor_class, parent, requirements, global_name, source_hash)
        if self._last_number > last:  # else it was there, by its global name
            self._newborn.add(address._aaddr)
        return address

    def end(self, cell: Cell, reason: ExitReason, recursive: bool = True) -> None:
        if cell.actor is not None:
            self.world.record((self.world.time, "end", cell.address._aaddr, str(reason)))
            self._newborn.discard(cell.address._aaddr)
        super().end(cell, reason, recursive)

    def vanish(self, has_power: bool) -> None:
        """The process died. Called by the machine."""
        self.is_alive = False
        self.sockets.end(has_power)
        self.ready.clear()
        self.jobs.clear()
        self._calls.clear()
        actors: list[Any] = [
            cell.actor for cell in self.cells.values() if isinstance(cell, Cell) and isinstance(cell.actor, Process)
        ]
        for actor in actors:
            # Now, and not when the collector finds them: what a `finally` in them does must not happen at any time. It reaches nobody.
            for task in list(actor._tasks):
                with suppress(Exception):
                    task.coroutine.close()
        for actor in actors:
            actor._let_go()
        for cell in self.cells.values():
            if isinstance(cell, Cell):
                cell.queue.clear()  # what a blocking call has opened may be in it
        for port in [port for port in self.cells.values() if isinstance(port, SimPort)]:
            port.fail(MACHINE_CRASHED)
        self.cells.clear()

    # -- messages ----------------------------------------------------------------------------------

    def enqueue(self, sender: ActorAddress, target: ActorAddress, message: Any) -> None:
        system = str(target._aaddr).partition("/")[0]
        # What lived here before the last crash is known to be dead; what lives elsewhere is not.
        if self.world.systems.get(system, self.machine.name) == self.machine.name:
            super().enqueue(sender, target, message)
        elif self.is_alive:
            self.world.send(self.machine.name, system, sender, target, message)

    def arrive(self, letter: bytes) -> None:
        """A message from another machine."""
        sender, target, message = pickle.loads(letter)
        super().enqueue(sender, target, message)

    # -- what the host of a process asks for -------------------------------------------------------

    def run_blocking(self, cell: Cell, ref: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.is_alive:
            world = self.world
            self._last_call += 1
            self._calls[self._last_call] = _Job(cell, ref, function, args)
            world.at(world.time + world.delay(world.conditions.blocking_delay), self._time_has_come, self._last_call)

    def _time_has_come(self, number: int) -> None:
        job = self._calls.pop(number, None)
        if job is not None:  # else the machine crashed
            self.jobs.append(job)

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
        self.handle_dead_letters(address, enable)

    def request_shutdown(self) -> None:
        """End every actor, each by a message."""
        self.is_ending = True
        for cell in list(self.roots.values()):
            self.enqueue(self.address, cell.address, ActorExitRequest())

    def shutdown(self) -> None:
        """End every actor in order, then the process. Runs the world meanwhile; idempotent."""
        if self.is_alive:
            self.request_shutdown()
            self.world.run_until(lambda: self.living == 0, SHUTDOWN_SECONDS)
            self.machine.crash()


def _crash() -> None:
    raise SimulatedCrash("as the scenario wants")
