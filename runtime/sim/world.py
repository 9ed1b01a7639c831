"""`SimWorld`: virtual time, any number of machines, the network between them, and one source of choice.

    world = SimWorld(seed=7)
    base = world.machine("a").boot()
    node = base.newPrimaryActor(NodeSupervisor)
    port = SimPort(base)
    port.request(node, ("start", Settings(port=5672)))
    stream = world.connect("a", 5672, client)
    world.run(seconds=2.0)

Everything that happens is a **step**: an actor's turn, a descriptor served, a blocking call, something told to a client. Of all that could happen now one is
chosen (`sim_choosing`), done whole, and written into `trace` (`sim_trace`). A step takes `STEP_SECONDS`; when nothing can happen, time jumps to the next
timer or arrival. Delays are chosen when something sets out. There is nothing else that a run depends on: the same scenario with the same choices gives the
same trace, in any process of the operating system.

Starvation: with the seed alone a message may wait for very long, which is the point of a search for broken safety. For claims that something *does* happen,
`patience=n` has everything that can happen done once, whole mailboxes in order, after every n steps.

What actors log is not part of the world: log records carry the real time, and no actor reads them.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from thespian.actors import ActorAddress

from ..cell import Cell
from .choosing import Chooser, SeedChooser
from .client import SimClient, SimStream
from .machine import SimMachine
from .network import DELAY_LEVELS, Link
from .sim_base import SimBase
from .sim_sockets import SimSocket
from .trace import Describe, Entry, message_name

STEP_SECONDS = 10e-6
FIRST_NOW = 1_000.0  # of the monotonic clock
FIRST_WALL_CLOCK = 1_600_000_000.0
LOOPBACK = "127.0.0.1"
FIRST_CLIENT_PORT = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How rough the world is."""

    link_delay: float = 1e-3  # seconds from host to host at most; a single link may be given another
    blocking_delay: float = 5e-3  # seconds at most before a blocking call is made
    socket_buffer: int = 65_536  # octets that the receiver of a connection holds unread, and those on the way to it
    cut_one_in: int = 4  # reads of an actor that bring part of what there is; 0: none
    join_one_in: int = 4  # turns that take all that waits and not one message; 0: none


class SimWorld:
    """
    seed       decides all that `chooser` does not: the machines' random octets, and everything if no chooser is given
    describe   what the trace says of a message: `sim_trace.message_name`, or `whole_message`
    patience   steps after which nothing is left waiting; None: no promise
    """

    def __init__(
        self,
        seed: int = 0,
        chooser: Chooser | None = None,
        *,
        conditions: Conditions | None = None,
        describe: Describe = message_name,
        patience: int | None = None,
    ) -> None:
        self.seed = seed
        self.below = (chooser or SeedChooser(seed)).below
        self.conditions = conditions or Conditions()
        self.describe = describe
        self.time = FIRST_NOW
        self.steps = 0
        self.trace: list[Entry] = []
        self.record = self.trace.append
        self.crashes: list[tuple[str, BaseException]] = []  # address, error: of actors, wanted or not
        self.after_step: Callable[[], None] | None = None  # invariants; what it raises comes out of `step`
        self.acted: Cell | None = None  # whose turn or descriptor the last step was
        self.machines: dict[str, SimMachine] = {}
        self.systems: dict[str, str] = {}  # name of each system of actors that ever was -> its machine
        self._running: list[SimBase] = []
        self._active: dict[SimStream, None] = {}  # clients with something to be told
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._last_event = 0
        self._links: dict[tuple[str, str], Link] = {}
        self._streams = 0
        self._patience = patience
        self._until_sweep = patience or 0
        self._sweep: deque[Any] = deque()  # of (system or None, what to do, with what)

    # -- the clock ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self.time

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return FIRST_WALL_CLOCK + self.time

    def at(self, time: float, function: Callable[..., None], *args: Any) -> None:
        """Call `function(*args)` at `time`. Not a step: it may put something into motion, and not act."""
        self._last_event += 1
        heappush(self._events, (time, self._last_event, function, args))

    def advance(self, seconds: float) -> None:
        """Let time pass in which nobody gets to do anything: the whole world was busy elsewhere."""
        self.time += seconds

    def is_behind(self) -> bool:
        """Whether something of `at` is due and not done yet: time has moved on, and no step has begun."""
        return bool(self._events) and self._events[0][0] <= self.time

    @property
    def patience(self) -> int | None:
        """As it was given; may be changed while the world runs."""
        return self._patience

    @patience.setter
    def patience(self, steps: int | None) -> None:
        self._patience = steps
        self._until_sweep = steps or 0

    # -- choices -----------------------------------------------------------------------------------

    def chance(self, one_in: int) -> bool:
        """True in one of `one_in`; 0 is never."""
        return one_in > 1 and self.below(one_in) == one_in - 1 or one_in == 1

    def delay(self, longest: float) -> float:
        """0 to `longest` seconds, in few steps."""
        return self.below(DELAY_LEVELS) * longest / (DELAY_LEVELS - 1) if longest else 0.0

    def joins(self) -> bool:
        """Whether a turn takes all that waits."""
        one_in = self.conditions.join_one_in
        return one_in == 1 or one_in > 1 and self.below(one_in) == 0

    def cut(self, size: int) -> int:
        """How many of the `size` octets that could be read are."""
        if size > 1 and self.chance(self.conditions.cut_one_in):
            return 1 + self.below(size - 1) if size > 2 else 1
        return size

    # -- machines and links ------------------------------------------------------------------------

    def machine(self, name: str) -> SimMachine:
        """The machine of that name, made when it is first asked for."""
        found = self.machines.get(name)
        if found is None:
            if "/" in name:
                raise ValueError(f"{name!r} cannot be the name of a machine: '/' ends it in addresses")
            found = self.machines[name] = SimMachine(self, name)
        return found

    def machines_changed(self) -> None:
        """One was booted, crashed, paused or resumed."""
        self._running = []
        for machine in self.machines.values():
            if machine.base is not None:
                self.systems[machine.base.name] = machine.name
                if not machine.is_paused:
                    self._running.append(machine.base)

    def link(self, source: str, target: str) -> Link:
        """The link from host to host in this direction."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self, self.conditions.link_delay)
        return found

    def partition(self, some: list[str], others: list[str]) -> None:
        """Cut all links between these hosts, both ways."""
        for one in some:
            for other in others:
                self.link(one, other).cut()
                self.link(other, one).cut()

    def mend(self) -> None:
        """Mend every link that is cut."""
        for link in self._links.values():
            if link.is_cut:
                link.mend()

    def send(self, source: str, target: str, sender: ActorAddress, receiver: ActorAddress, message: Any) -> None:
        """Carry a message from a machine to a system of actors on another; to a system that is no more, or by a link that loses it, it is lost."""
        machine = self.systems[target]
        link = self.link(source, machine)
        if link.is_losing():
            self._lost(sender, receiver, message)
        else:
            # A copy, as on a wire: nothing is shared between machines, and what does not pickle cannot travel.
            link.carry(link, self._arrive, self.machines[machine], target, pickle.dumps((sender, receiver, message)))

    def _arrive(self, machine: SimMachine, system: str, letter: bytes) -> None:
        if machine.base is not None and machine.base.name == system:
            machine.base.arrive(letter)
        else:
            self._lost(*pickle.loads(letter))

    def _lost(self, sender: ActorAddress, receiver: ActorAddress, message: Any) -> None:
        self.record((self.time, "lost", sender.addressDetails, receiver.addressDetails, self.describe(message)))

    # -- clients -----------------------------------------------------------------------------------

    def connect(
        self,
        machine: str,
        port: int,
        client: SimClient,
        *,
        host: str = "clients",
        address: str = LOOPBACK,
        buffer: int | None = None,
    ) -> SimStream:
        """A client that connects from `host`, a name for links, and shows itself as `address`; `buffer` octets wait for it at most, as Conditions has it
        if None. It is refused where nobody listens."""
        self._streams += 1
        number = self._streams
        stream = SimStream(self, number, host, client)
        link = self.link(host, machine)
        link.carry(
            link,
            self._connect,
            stream,
            self.machine(machine),
            port,
            (address, FIRST_CLIENT_PORT + number),
            buffer or self.conditions.socket_buffer,
        )
        return stream

    def _connect(
        self, stream: SimStream, machine: SimMachine, port: int, address: tuple[str, int], buffer: int
    ) -> None:
        listening = machine.base.sockets.listening.get(port) if machine.base is not None else None
        local = (LOOPBACK, port)
        there = SimSocket(
            self,
            f"{stream.name}@{machine.name}",
            local,
            address,
            self.conditions.socket_buffer,
            self.link(machine.name, stream.host),
        )
        if listening is None or not listening.connected(there):
            stream.refuse()
            return
        here = SimSocket(self, stream.name, address, local, buffer, self.link(stream.host, machine.name))
        here.peer, there.peer = there, here
        stream.attach(here)

    def set_active(self, stream: SimStream, is_active: bool) -> None:
        if is_active:
            self._active.setdefault(stream)
        else:
            self._active.pop(stream, None)

    # -- steps -------------------------------------------------------------------------------------

    def step(self, until: float = math.inf) -> bool:
        """Do one thing; time may jump before, though not beyond `until`. False if there is nothing to do till then."""
        while True:
            self._set_out()
            self.acted = None
            if self._sweep:
                if self._do(*self._sweep.popleft()):
                    break
                continue
            count = len(self._active)
            for base in self._running:
                count += len(base.ready) + len(base.jobs) + len(base.poller.active)
            if not count:
                if not self._sleep(until):
                    return False
            elif self._patience is not None and self._until_sweep <= 0:
                self._begin_sweep(self._patience)
            elif self._choose(self.below(count) if count > 1 else 0):
                break
        self.steps += 1
        self._until_sweep -= 1
        self.time += STEP_SECONDS
        if self.after_step is not None:
            self.after_step()
        return True

    def _set_out(self) -> None:
        """Put into motion what is due."""
        now, events = self.time, self._events
        while events and events[0][0] <= now:
            _, _, function, args = heappop(events)
            function(*args)
        for base in self._running:
            heap = base.timers.heap
            if heap and heap[0][0] <= now:
                base.fire_timers(now)

    def _sleep(self, until: float) -> bool:
        """Jump to the next moment at which something is due; False if there is none up to `until`, where time is then."""
        due = self._events[0][0] if self._events else math.inf
        for base in self._running:
            deadline = base.timers.next_deadline()
            if deadline is not None and deadline < due:
                due = deadline
        if due > until or due == math.inf:
            if until != math.inf:
                self.time = max(self.time, until)
            return False
        self.time = max(self.time, due)
        return True

    def _choose(self, number: int) -> bool:
        for base in self._running:
            here = len(base.ready) + len(base.jobs) + len(base.poller.active)
            if number < here:
                return self._do(base, base.act, number)
            number -= here
        return next(islice(self._active, number, None)).turn()

    def _do(self, base: SimBase | None, act: Callable[..., bool], *args: Any) -> bool:
        if base is not None and base.machine.is_paused:
            return False  # since the sweep began
        try:
            return act(*args)
        except BaseException as error:
            if base is None or not isinstance(error, base.machine.stopped_by):
                raise
            base.machine.crash(power=False)
            return True

    def _begin_sweep(self, patience: int) -> None:
        """All that could happen now, each once."""
        self._until_sweep = patience
        sweep = self._sweep
        for base in self._running:
            sweep.extend((base, base.turn_whole, cell) for cell in base.ready)
            sweep.extend((base, base.finish, job) for job in base.jobs)
            sweep.extend((base, base.serve, fd) for fd in base.poller.active)
        sweep.extend((None, stream.turn) for stream in self._active)

    # -- running -----------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Run for so long."""
        end = self.time + seconds
        while self.time < end and self.step(end):
            pass

    def run_steps(self, count: int) -> int:
        """Take at most so many steps; how many it was, less only if nothing is left that could happen."""
        for number in range(count):
            if not self.step():
                return number
        return count

    def run_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Run until `condition()`, looked at before every step; its last value, which is False after `seconds` or if nothing is left that could happen."""
        end = math.inf if seconds is None else self.time + seconds
        while not condition():
            if self.time >= end or not self.step(end):
                return condition()
        return True

    def settle(self, seconds: float = 60.0) -> bool:
        """Run until nothing happens any more but for timers; False if that is not so after `seconds`."""
        return self.run_until(self.is_quiet, seconds)

    def is_quiet(self) -> bool:
        """Whether only timers are left to wait for. A paused machine counts as quiet."""
        return not (
            self._active
            or self._events
            or self._sweep
            or any(base.ready or base.jobs or base.poller.active for base in self._running)
        )
