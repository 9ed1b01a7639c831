"""`SimWorld`: virtual time, any number of machines, the network between them, and one source of choice.

    world = SimWorld(seed=7)
    base = world.machine("a").boot()
    node = base.newPrimaryActor(NodeSupervisor)
    port = SimPort(base)
    port.request(node, to_new_node.start(Settings(port=5672)))
    stream = world.connect("a", 5672, client)
    world.run(seconds=2.0)

Everything that happens is a **step**: an actor's turn, a descriptor that is served, a blocking call, or an event of a
client. Among the steps that are possible now the chooser chooses one (`choosing`), which is taken to its end and
recorded in `trace` (`trace`). A step takes `STEP_SECONDS`. When no step is possible, time jumps to the next timer or
arrival. A delay is chosen when the delayed thing departs. A run depends on nothing else: the same scenario with the
same choices gives the same trace, in any process of the operating system.

**Fairness**: a chooser alone may keep a message waiting for very long. That is what a search for violated safety needs.
To check that something *does* happen, set `sweep_interval`: after that many steps there is a **sweep**, in which every
step that is possible is taken once, with whole mailboxes in order.

Logs are not part of the world: log records carry the real time, and no actor reads them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from ..system.cell import Cell
from .choosing import Chooser, SeedChooser
from .client import SimClient, SimStream
from .machine import SimMachine
from .network import DELAY_LEVELS, NetworkLink
from .sim_base import SimBase
from .sim_sockets import SimSocket
from .system_link import SystemLink
from .trace import Describe, Entry, message_name

#: Virtual seconds that a step takes.
STEP_SECONDS = 10e-6

#: The monotonic clock at the beginning of the world.
FIRST_NOW = 1_000.0

#: Seconds by which the wall clock is ahead of the monotonic clock.
WALL_CLOCK_OFFSET = 1_600_000_000.0

LOOPBACK = "127.0.0.1"

#: Client number n connects from this port plus n.
FIRST_CLIENT_PORT = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How long the world delays things, and how often it divides what arrives together or joins what arrives apart."""

    #: Longest delay from host to host, in seconds; `NetworkLink.max_delay` changes it for one link.
    link_delay: float = 1e-3
    #: Longest time after which a system of actors notices that another one cannot be reached, in seconds.
    detection_delay: float = 1.0
    #: Longest delay before a blocking call is made, in seconds.
    blocking_delay: float = 5e-3
    #: Most bytes of a connection that are in flight or unread by the receiver.
    socket_buffer: int = 65_536
    #: One in this many reads of an actor returns only a part of the data; 0 for none.
    cut_one_in: int = 4
    #: One in this many turns takes all messages of the mailbox instead of one; 0 for none.
    join_one_in: int = 4


class SimWorld:
    """Any number of machines, the links between them, and virtual time.

    seed              decides what the chooser does not: the random bytes of machines, and everything without a chooser
    describe          shows a message in the trace: `trace.message_name` or `trace.whole_message`
    sweep_interval    steps after which every possible step is taken once; None for never
    """

    def __init__(
        self,
        seed: int = 0,
        chooser: Chooser | None = None,
        *,
        conditions: Conditions | None = None,
        describe: Describe = message_name,
        sweep_interval: int | None = None,
    ) -> None:
        self.seed = seed
        self.below = (chooser or SeedChooser(seed)).below
        self.conditions = conditions or Conditions()
        self.describe = describe
        self.time = FIRST_NOW
        self.steps = 0
        self.trace: list[Entry] = []
        self.record = self.trace.append
        #: (address, error) of every actor that crashed, by the scenario or by itself.
        self.crashes: list[tuple[str, BaseException]] = []
        #: Called after every step, to check invariants; `step` raises what it raises.
        self.after_step: Callable[[], None] | None = None
        #: The cell that had a turn or served a descriptor in the last step, if one did.
        self.acting_cell: Cell | None = None
        self.machines: dict[str, SimMachine] = {}
        #: The systems of all machines that run and are not paused.
        self._running: list[SimBase] = []
        #: Clients with an event to handle.
        self._active: dict[SimStream, None] = {}
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._last_event = 0
        self._links: dict[tuple[str, str], NetworkLink] = {}
        self._streams = 0
        self._sweep_interval = sweep_interval
        self._until_sweep = sweep_interval or 0
        #: The rest of the current sweep: (system or None, function, arguments...) of each step.
        self._sweep: deque[Any] = deque()

    # -- the clock ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return self.time

    def wall_clock(self, now: float) -> float:
        """Seconds since the epoch when a monotonic clock shows `now`, as long as nobody has set the wall clock."""
        return WALL_CLOCK_OFFSET + now

    def at(self, time: float, function: Callable[..., None], *args: Any) -> None:
        """Call `function(*args)` at `time`. This is no step: the function may only make steps possible."""
        self._last_event += 1
        heappush(self._events, (time, self._last_event, function, args))

    def advance(self, seconds: float) -> None:
        """Let time pass without any step, as if all machines were busy elsewhere."""
        self.time += seconds

    def has_due_events(self) -> bool:
        """Whether a call of `at` is due and not made yet, as between two steps after time has moved on."""
        return bool(self._events) and self._events[0][0] <= self.time

    @property
    def sweep_interval(self) -> int | None:
        """The steps between two sweeps; it may be changed while the world runs."""
        return self._sweep_interval

    @sweep_interval.setter
    def sweep_interval(self, steps: int | None) -> None:
        self._sweep_interval = steps
        self._until_sweep = steps or 0

    # -- choices -----------------------------------------------------------------------------------

    def chance(self, one_in: int) -> bool:
        """True once in `one_in` times; never if it is 0."""
        return one_in > 1 and self.below(one_in) == one_in - 1 or one_in == 1

    def delay(self, longest: float) -> float:
        """A chosen delay of 0 to `longest` seconds, one of `DELAY_LEVELS`."""
        return self.below(DELAY_LEVELS) * longest / (DELAY_LEVELS - 1) if longest else 0.0

    def takes_whole_mailbox(self) -> bool:
        """Whether the next turn takes all messages of a mailbox."""
        one_in = self.conditions.join_one_in
        return one_in == 1 or one_in > 1 and self.below(one_in) == 0

    def cut(self, size: int) -> int:
        """How many of `size` bytes a read returns."""
        if size > 1 and self.chance(self.conditions.cut_one_in):
            return 1 + self.below(size - 1) if size > 2 else 1
        return size

    # -- machines and links ------------------------------------------------------------------------

    def machine(self, name: str) -> SimMachine:
        """The machine of that name, made on the first call."""
        found = self.machines.get(name)
        if found is None:
            if "/" in name:
                raise ValueError(f"{name!r} cannot be the name of a machine: in addresses a name ends at '/'")
            found = self.machines[name] = SimMachine(self, name)
        return found

    def machines_changed(self) -> None:
        """Update the list of running systems after a machine was booted, crashed, paused or resumed."""
        self._running = []
        for machine in self.machines.values():
            if machine.base is not None and not machine.is_paused:
                self._running.append(machine.base)

    def link(self, source: str, target: str) -> NetworkLink:
        """The link from the host `source` to the host `target`, made on the first call."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = NetworkLink(self, self.conditions.link_delay)
        return found

    def partition(self, some: list[str], others: list[str]) -> None:
        """Cut all links between `some` hosts and `others`, in both directions."""
        for one in some:
            for other in others:
                self.link(one, other).cut()
                self.link(other, one).cut()

    def mend(self) -> None:
        """Mend every link that is cut."""
        for link in self._links.values():
            if link.is_cut:
                link.mend()

    def link_systems(self, one: str, other: str, follows_log: bool = False) -> SystemLink:
        """Connect the systems of actors on two machines, those that run now and each that is booted later."""
        return SystemLink(self, self.machine(one), self.machine(other), follows_log)

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
        """Connect `client` to `port` of a machine; it is refused if no process listens there.

        The client's end of the link is `host`, and the machine sees `address`. At most `buffer` bytes wait for the
        client; None is the `socket_buffer` of the conditions.
        """
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

    def connect_machines(self, machine: SimMachine, local_port: int, host: str, port: int) -> SimSocket:
        """The socket of a process on `machine` that connects to a port of the machine `host`.

        The attempt arrives as late as anything else between the two. While the way is cut, or if the other machine has
        no power, it is not answered.
        """
        here = SimSocket(
            self,
            f"{machine.name}:{local_port}",
            (machine.name, local_port),
            (host, port),
            self.conditions.socket_buffer,
            self.link(machine.name, host),
        )
        here.begin()
        link = self.link(machine.name, host)
        link.carry(here, self._arrive_at, here, machine, self.machine(host), port)
        return here

    def _arrive_at(self, here: SimSocket, source: SimMachine, target: SimMachine, port: int) -> None:
        """Have an attempt to connect reach the other machine."""
        if not target.is_up:
            return
        back = self.link(target.name, source.name)
        there = SimSocket(
            self,
            f"{here.name}@{target.name}",
            (target.name, port),
            here.getsockname(),
            self.conditions.socket_buffer,
            back,
        )
        listening = target.base.sockets.listening.get(port) if target.base is not None else None
        is_accepted = listening is not None and listening.connected(there)
        if is_accepted:
            there.peer = here
        back.carry(here, here.connect_to, is_accepted, there)

    def set_active(self, stream: SimStream, is_active: bool) -> None:
        """Make the next event of a client a possible step, or not."""
        if is_active:
            self._active.setdefault(stream)
        else:
            self._active.pop(stream, None)

    # -- steps -------------------------------------------------------------------------------------

    def step(self, until: float = math.inf) -> bool:
        """Take one step, before which time may jump as far as `until`. False if no step is possible until then."""
        while True:
            self._run_due_events()
            self.acting_cell = None
            if self._sweep:
                if self._take(*self._sweep.popleft()):
                    break
                continue
            count = len(self._active)
            for base in self._running:
                count += len(base.ready) + len(base.jobs) + len(base.poller.active)
            if not count:
                if not self._sleep(until):
                    return False
            elif self._sweep_interval is not None and self._until_sweep <= 0:
                self._begin_sweep(self._sweep_interval)
            elif self._choose(self.below(count) if count > 1 else 0):
                break
        self.steps += 1
        self._until_sweep -= 1
        self.time += STEP_SECONDS
        if self.after_step is not None:
            self.after_step()
        return True

    def _run_due_events(self) -> None:
        """Make the calls of `at` and fire the timers that are due."""
        now, events = self.time, self._events
        while events and events[0][0] <= now:
            _, _, function, args = heappop(events)
            function(*args)
        for base in self._running:
            heap = base.timers.heap
            if heap and heap[0][0] <= (shown := base.now()):
                base.fire_timers(shown)

    def _sleep(self, until: float) -> bool:
        """Let time jump to the next event or timer; False, with time at `until`, if there is none before."""
        due = self._events[0][0] if self._events else math.inf
        for base in self._running:
            deadline = base.timers.next_deadline()
            if deadline is not None:
                due = min(due, base.machine.time_of(deadline))
        if due > until or due == math.inf:
            if until != math.inf:
                self.time = max(self.time, until)
            return False
        self.time = max(self.time, due)
        return True

    def _choose(self, number: int) -> bool:
        """Take the `number`-th of all possible steps."""
        for base in self._running:
            here = len(base.ready) + len(base.jobs) + len(base.poller.active)
            if number < here:
                return self._take(base, base.act, number)
            number -= here
        return next(islice(self._active, number, None)).turn()

    def _take(self, base: SimBase | None, act: Callable[..., bool], *args: Any) -> bool:
        if base is not None and base.machine.is_paused:
            return False  # it was paused after the sweep began
        try:
            return act(*args)
        except BaseException as error:
            if base is None or not isinstance(error, base.machine.stopped_by):
                raise
            base.machine.crash(power=False)
            return True

    def _begin_sweep(self, sweep_interval: int) -> None:
        """Begin a sweep: every step that is possible now, once."""
        self._until_sweep = sweep_interval
        sweep = self._sweep
        for base in self._running:
            sweep.extend((base, base.whole_turn, cell) for cell in base.ready)
            sweep.extend((base, base.finish, job) for job in base.jobs)
            sweep.extend((base, base.serve, fd) for fd in base.poller.active)
        sweep.extend((None, stream.turn) for stream in self._active)

    # -- running -----------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Run for this many virtual seconds."""
        end = self.time + seconds
        while self.time < end and self.step(end):
            pass

    def run_steps(self, count: int) -> int:
        """Take `count` steps. Returns how many were taken, fewer only if nothing is left to happen."""
        for number in range(count):
            if not self.step():
                return number
        return count

    def run_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Run until `condition()`, which is checked before every step, is true.

        Returns its last value: False after `seconds`, or if nothing is left to happen.
        """
        end = math.inf if seconds is None else self.time + seconds
        while not condition():
            if self.time >= end or not self.step(end):
                return condition()
        return True

    def settle(self, seconds: float = 60.0) -> bool:
        """Run until only timers are left to wait for; False if that takes more than `seconds`."""
        return self.run_until(self.is_quiet, seconds)

    def is_quiet(self) -> bool:
        """Whether only timers are left to wait for. A paused machine counts as quiet."""
        return not (
            self._active
            or self._events
            or self._sweep
            or any(base.ready or base.jobs or base.poller.active for base in self._running)
        )
