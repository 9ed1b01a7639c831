"""`Cell`: the place of one actor in its system, with its mailbox, children, timers and watched descriptors.

Thespian calls this object `_myRef` and acts through it; for a `Process` it is also the host (`host.Host`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ActorSystemFailure, WakeupMessage

from ...parted_table import SPLIT_AT, Growing, PartedTable, in_parts
from ..coroutines import Pending, SlicedHandler
from ..long_turn import LongTurnRecord
from ..loop.poller import READ, WRITE
from ..loop.timers import PAYLOAD, Entry
from ..machine.memory import Memory
from ..machine.sockets import Sockets
from ..process import Process
from .address import LoopAddress, node_of
from .local_names import LocalNames
from .meter import Meter

if TYPE_CHECKING:
    from .actor_base import ActorBase
    from .remote_systems import RemoteSystems


#: The descriptors of all cells that watch none: an empty set takes 216 bytes.
_NO_FDS: frozenset[int] = frozenset()

#: The children of all cells that have never had any, as nearly all cells. Nobody may add to it.
NO_CHILDREN: PartedTable[str, Cell] = PartedTable()


class Lane(deque["Cell"]):
    """The run queue of one client (see `loop.lanes`). `owner.lane` is this lane while it has cells.

    `owed` counts the rounds in which the lane has no turn, because it had several in one round. `waiting` has the cells
    of a crowded lane that are not on the run queue yet, in their order; None while the lane is not crowded.
    """

    __slots__ = ("owed", "owner", "waiting")

    owed: int
    owner: Any
    waiting: OrderedDict[Cell, None] | None

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner, self.owed, self.waiting = owner, 0, None


class Cell:
    """A mailbox of (sender address, message), and what belongs to the actor that reads it.

    `actor` is None as soon as the actor takes no more messages. The cell itself stays until its last child has ended,
    because its parent is notified only then.
    """

    __slots__ = (
        "__weakref__",
        "actor",
        "address",
        "base",
        "children",
        "client",
        "dormant",
        "fds",
        "globalName",
        "group",
        "handlers",
        "is_idle",
        "lane",
        "light",
        "limit",
        "monitors",
        "parent",
        "queue",
        "ready",
        "requirements",
        "sliced",
        "timers",
        "turn_limit",
        "woken",
    )

    log = logging.getLogger("warren.runtime")

    def __init__(self, base: ActorBase, address: LoopAddress, actor: Any, parent: Cell | None) -> None:
        self.base = base
        self.ready = base.ready
        self.address = address
        self.actor = actor
        self.parent = parent
        self.queue: deque[tuple[ActorAddress, Any]] = deque()
        self.is_idle = True
        is_process = isinstance(actor, Process)
        self.handlers = actor._handlers if is_process else None
        #: Most messages that may wait; checked for processes only.
        self.limit: int = actor.mailbox_limit if is_process else 0
        #: Most messages of one turn; for processes only.
        self.turn_limit: int = actor.turn_limit if is_process else 0
        self.children = NO_CHILDREN
        #: The process with the descriptor of the client that this one serves: itself, an ancestor, or None.
        self.client: Cell | None = None if parent is None else parent.client
        #: Addresses of its dormant children; None while it has none, as nearly all actors.
        self.dormant: set[str] | None = None
        #: The descriptors that it watches.
        self.fds = _NO_FDS
        #: The lane of what follows from the descriptors of this actor, or from the timers of its children; None while
        #: that is nothing.
        self.lane: Lane | None = None
        #: How many processes wait, outside its lane, for a turn that counts for this client (see `loop.lanes`).
        self.light = 0
        #: The name of the processes with which this one shares its turns; empty if it shares them with none.
        self.group = ""
        self.timers: dict[int, Entry] = {}
        self.monitors: Growing[tuple[str, Any], ActorAddress] = {}
        #: What the next turn begins with: waits that are over, or None to have nothing but the turn. A list while there
        #: is any; thousands of idle cells share the empty tuple.
        self.woken: list[Pending | None] | tuple[()] = ()
        #: The handler that has slices left: turns go on with it and do nothing else.
        self.sliced: SlicedHandler | None = None
        self.globalName: str | None = None
        self.requirements: Any = None

    def own_children(self) -> PartedTable[str, Cell]:
        """The children by address, in a table that belongs to this cell alone."""
        if self.children is NO_CHILDREN:
            self.children = PartedTable()
        return self.children

    # -- sending: the hot path ---------------------------------------------------------------------

    def send(self, target: ActorAddress, message: Any) -> None:
        """Replaces `Actor.send` on the actor, which saves a call and two type checks for each message."""
        try:
            cell = target._cell
        except AttributeError:
            self.base.deliver_slowly(self.address, target, message)
            return
        ready = self.ready
        if cell.ready is not ready:
            self.base.deliver_slowly(self.address, target, message)
            return
        cell.queue.append((self.address, message))
        if cell.is_idle:
            cell.is_idle = False
            ready.append(cell)

    actor_send = send

    # -- Thespian's other calls --------------------------------------------------------------------

    def createActor(
        self, actor_class: Any, requirements: Any = None, global_name: str | None = None, source_hash: Any = None
    ) -> ActorAddress:
        return self.base.create(actor_class, self, requirements, global_name, source_hash)

    def create_dormant(self, process_class: type[Any], first: Any, name: Hashable) -> ActorAddress:
        return self.base.dormant.create(process_class, self, first, name)

    def is_dormant(self, address: ActorAddress) -> bool:
        return address._aaddr in self.base.dormant.by_address

    def has_no_work(self, address: ActorAddress) -> bool:
        cell = getattr(address, "_cell", None)
        return isinstance(cell, Cell) and cell.base is self.base and cell.actor is not None and not cell.has_work

    @property
    def has_work(self) -> bool:
        """Whether the actor has a message to handle, or anything to go on with."""
        return bool(self.queue or self.woken or self.sliced is not None)

    def wakeupAfter(self, period: timedelta | float, payload: Any = None) -> None:
        seconds = period.total_seconds() if isinstance(period, timedelta) else period
        self.start_timer(seconds, WakeupMessage(period, payload))

    def handleDeadLetters(self, address: ActorAddress, enable: bool) -> None:
        self.base.undelivered.register(address, enable)

    def updateCapability(self, name: str, value: Any = None) -> None:
        self.base.update_capability(name, value)

    def notifyOnSystemRegistrationChanges(self, address: ActorAddress, enable: bool) -> None:
        """Ignored: this system joins no Thespian convention, so no registration ever changes."""

    def registerSourceAuthority(self, address: ActorAddress) -> None:
        raise ActorSystemFailure("actor sources cannot be loaded into this system")

    def notifyOnSourceAvailability(self, address: ActorAddress, enable: bool) -> None:
        """Ignored: no actor source is ever loaded, so there is nothing to notify of."""

    def loadActorSource(self, fname: Any) -> str:
        raise ActorSystemFailure("actor sources cannot be loaded into this system")

    def unloadActorSource(self, source_hash: str) -> None:
        """Ignored, as Thespian ignores unknown source hashes: all are unknown here."""

    def preRegisterRemoteSystem(self, address: Any, capabilities: Any) -> None:
        raise ActorSystemFailure("this system joins no Thespian convention")

    def deRegisterRemoteSystem(self, address: Any) -> None:
        raise ActorSystemFailure("this system joins no Thespian convention")

    def actorSystemShutdown(self) -> None:
        self.base.request_shutdown()

    # -- the host of a Process ---------------------------------------------------------------------

    def now(self) -> float:
        return self.base.now()

    def wall_clock(self) -> float:
        return self.base.wall_clock()

    def clocks(self) -> tuple[Callable[[], float], Callable[[], float]]:
        return self.base.now, self.base.wall_clock

    def random_bytes(self, count: int) -> bytes:
        return self.base.random_bytes(count)

    @property
    def sockets(self) -> Sockets:
        return self.base.sockets

    @property
    def memory(self) -> Memory:
        return self.base.memory

    def longest_turns(self) -> list[LongTurnRecord]:
        return self.base.longest_turns()

    def meter(self) -> Meter | None:
        return Meter(self.base)

    def mailboxes(self) -> Iterator[tuple[str, int]]:
        return ((type(cell.actor).__name__, len(cell.queue)) for cell in self.base.waiting() if cell.actor is not None)

    def start_timer(self, seconds: float, payload: Any) -> int:
        entry = self.base.timers.start(self.base.now() + seconds, self, payload)
        number: int = entry[1]
        self.timers[number] = entry
        return number

    def cancel_timer(self, ref: int) -> None:
        entry = self.timers.pop(ref, None)
        if entry is not None:
            self.base.timers.cancel(entry)

    def take_timer(self, ref: int) -> tuple[Any] | None:
        entry = self.timers.pop(ref, None)
        if not self.timers:
            self.timers.clear()  # an empty dict keeps its table of 168 bytes until it is cleared
        return None if entry is None else (entry[PAYLOAD],)

    def watch(self, fd: int, read: bool, write: bool) -> None:
        self.client = self
        self.base.poller.watch(self, fd, (READ if read else 0) | (WRITE if write else 0))

    def unwatch(self, fd: int) -> None:
        self.base.poller.unwatch(self, fd)

    def share_turns(self, group: str) -> None:
        self.group = group

    def call_at_round_end(self) -> None:
        self.base.call_at_round_end(self)

    @property
    def systems(self) -> RemoteSystems:
        return self.base.remotes

    @property
    def names(self) -> LocalNames:
        return self.base.names

    def release_held(self, name: str | None) -> None:
        names = self.base.names
        for sender, target, message in names.release_unexpected() if name is None else names.release(name):
            self.base.enqueue(sender, target, message)

    def named_address(self, node: str, name: str) -> ActorAddress | None:
        base = self.base
        system = base.remotes.system_of_node(node)
        if system is not None:
            return LoopAddress(f"{system}/{name}")
        return base.names.get(name) if node == node_of(base.name) else None

    def run_blocking(
        self, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        self.base.run_blocking(self, ref, function, args, is_brief)

    def resume_later(self, pending: Pending | None) -> None:
        if self.actor is None:
            return
        if not self.woken:
            self.woken = [pending]
            self.base.schedule(self)
        elif pending is not None:
            self.woken.append(pending)

    def do_in_slices(self, sliced: SlicedHandler) -> None:
        if self.actor is not None:
            self.sliced = sliced
            self.base.schedule(self)

    def monitor(self, address: ActorAddress, ref: int) -> None:
        # A monitor of a process in this system is registered at once, so that the process cannot end before a request
        # arrives. A dormant target is woken for that: a request in its mailbox could be overtaken by a demonitor.
        cell = getattr(address, "_cell", None) or self.base.dormant.woken(address)
        if isinstance(cell, Cell) and cell.base is self.base:
            cell.add_monitor(self.address, ref)
        else:
            self.send(address, ("$monitor", ref))

    def demonitor(self, address: ActorAddress, ref: int) -> None:
        cell = getattr(address, "_cell", None)
        if isinstance(cell, Cell) and cell.base is self.base:
            cell.remove_monitor(self.address, ref)
        else:
            self.send(address, ("$demonitor", ref))

    def add_monitor(self, watcher: ActorAddress, ref: Any) -> None:
        self.monitors[watcher.actorAddressString, ref] = watcher
        if len(self.monitors) == SPLIT_AT:
            self.monitors = in_parts(self.monitors)

    def remove_monitor(self, watcher: ActorAddress, ref: Any) -> None:
        self.monitors.pop((watcher.actorAddressString, ref), None)

    def receive(self, message: Any, sender: ActorAddress) -> None:
        """Handle one message here and now, for a caller of `Process.receiveMessage`."""
        self.actor._dispatch(sender, message)
