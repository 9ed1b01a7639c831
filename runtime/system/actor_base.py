"""`ActorBase`: the life of the actors of one system, from birth over turns to crash or exit.

Everything here happens on one thread. Sleeping, and finding out which descriptors are ready, are the subclass's part:
`loop.loop_base.LoopBase` runs in real time, `sim.sim_base.SimBase` in simulated time.

An actor has a **cell** (`cell`), which is its mailbox and more. The cell is in one of three states:

    alive    `cell.actor` is set, the cell is in `cells`, and the address leads to the mailbox
    exiting  the actor takes no more messages; its children were asked to exit, and the cell waits for them
    gone     the parent was sent ChildActorExited

A process may be dormant before that (`dormant`): it has an address and no cell.

A turn of a process begins with the coroutines that a `signal.Signal` of the process has woken, or that gave way to
other processes (`Process.next_turn`). Then it handles messages. A handler may work in slices: then the turn ends at its
`yield`, and the next turns of the process do one slice each and nothing else (`Process`).

An actor that is to end gets an ActorExitRequest, which waits in the mailbox like any other message, so that everything
sent before it is handled. Messages that wait behind it, and messages sent later, are undeliverable: an ask is answered
with ProcessDown, a monitor with `$down`, and anything else counts as undelivered.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    ChildActorExited,
    InvalidActorAddress,
    InvalidActorSourceHash,
    Thespian_StatusReq,
)
from thespian.system.utilis import actualActorClass

from ...parted_table import PartedTable
from ..coroutines import SlicedHandler
from ..exit_reason import NORMAL, ExitKind, ExitReason, crash_reason
from ..long_turn import LongTurnRecord
from ..loop.poller import HANG_UP, READ, WRITE, Watches
from ..loop.timers import OWNER, Timers
from ..machine.memory import Memory
from ..machine.sockets import Sockets
from .address import LoopAddress, system_of
from .cell import NO_CHILDREN, Cell
from .dormant import DormantProcesses
from .instance import instance_of
from .local_names import LocalNames
from .meter import Metering
from .plain_actors import plain_turn
from .remains import Remains
from .remote_systems import RemoteSystems
from .status import actor_status, system_status
from .undelivered import Undelivered

log = logging.getLogger("warren.runtime")

#: The masks with which a descriptor counts as readable, or as writable. After a hang-up it is both: the read or write
#: then raises the error.
READABLE, WRITABLE = READ | HANG_UP, WRITE | HANG_UP

#: The address of every system itself, as in Thespian (`ActorSystem.systemAddress`).
SYSTEM_ADDRESS = "/ActorSys"


class ActorBase:
    """The actors of one system. A subclass supplies clock, randomness, descriptors, sockets, memory and threads."""

    now: Callable[[], float]
    wall_clock: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    sockets: Sockets
    memory: Memory
    poller: Watches

    def __init__(self, name: str, capabilities: dict[str, Any], budget: int) -> None:
        self.name = name
        self.capabilities = capabilities
        #: Most messages that an actor handles in one turn, and most coroutines that a turn resumes before that.
        self.budget = self.resume_budget = budget
        self.address = LoopAddress(SYSTEM_ADDRESS)
        self.ready: deque[Cell] = deque()
        #: Everything that takes messages, by address: cells, and the ports of outside threads.
        self.cells: PartedTable[str, Any] = PartedTable()
        self.dormant = DormantProcesses(self)
        #: Cells without a parent, by address.
        self.roots: PartedTable[str, Cell] = PartedTable()
        #: Cells that are not gone yet.
        self.living = 0
        #: True while the whole system ends: then no child outlives its parent.
        self.is_ending = False
        self.timers = Timers()
        self.metering = Metering(self)
        self.remotes = RemoteSystems(name, self.enqueue, self.cells)
        self.names = LocalNames(name)
        self.undelivered = Undelivered(self)
        self.global_names: dict[str, ActorAddress] = {}
        self._last_number = 0

    # -- birth -------------------------------------------------------------------------------------

    def create(
        self, actor_class: Any, parent: Cell | None, requirements: Any, global_name: str | None, source_hash: Any
    ) -> ActorAddress:
        """Create an actor and return its address, or the address of the one that has `global_name` already.

        If the actor cannot be created, the error is raised when there is no parent. Otherwise, as in Thespian, the
        parent is sent ChildActorExited for the address returned.
        """
        if global_name and global_name in self.global_names:
            return self.global_names[global_name]
        try:
            if source_hash:
                raise InvalidActorSourceHash(source_hash)
            actor_class = actualActorClass(actor_class)
            actor = instance_of(actor_class, self.capabilities, requirements)
        except Exception:
            if parent is None:
                raise
            log.exception("%s could not create %s", parent.address, actor_class)
            stillborn = self.new_address(getattr(actor_class, "__name__", str(actor_class)))
            parent.queue.append((self.address, ChildActorExited(stillborn)))
            self.schedule(parent)
            return stillborn
        address = self.new_address(actor_class.__name__)
        cell = self.give_cell(address, actor, parent)
        cell.requirements = requirements
        if global_name:
            cell.globalName = global_name
            self.global_names[global_name] = address
        return address

    def give_cell(self, address: LoopAddress, actor: Any, parent: Cell | None) -> Cell:
        """Make the cell of a new actor; from now on the address leads to its mailbox."""
        cell = Cell(self, address, actor, parent)
        address._cell = cell
        actor._myRef = cell
        if type(actor).send is Actor.send:
            actor.send = cell.send
        if cell.handlers is not None:
            actor._attach(cell)
        self.cells[address._aaddr] = cell
        (self.roots if parent is None else parent.own_children())[address._aaddr] = cell
        self.living += 1
        return cell

    def new_address(self, class_name: str) -> LoopAddress:
        self._last_number += 1
        return LoopAddress(f"{self.name}/{class_name}-{self._last_number}")

    # -- turns -------------------------------------------------------------------------------------

    def schedule(self, cell: Cell) -> None:
        """Let `cell`, which has a message, have a turn, unless it waits for one already."""
        if cell.is_idle:
            cell.is_idle = False
            self.ready.append(cell)

    def turn(self, cell: Cell) -> Any:
        """Let the actor of `cell`, just taken from the run queue, handle at most `budget` messages; return the last."""
        actor = cell.actor
        if actor is None:
            return None
        handlers = cell.handlers
        if handlers is None:
            plain_turn(self, cell)
            return None
        queue = cell.queue
        count = len(queue)
        if count > 1:
            if count > cell.limit:
                self._overload(cell, count)
                return None
            if count > cell.turn_limit:
                count = cell.turn_limit
            if count > self.budget:
                count = self.budget
        if cell.sliced is not None:
            return self._sliced_turn(cell, cell.sliced)
        message: Any = None
        try:
            if cell.woken:
                message = ("resume",)
                self._resume_woken(cell)
                # In a simulation the budget is 0 in a turn that only resumes a coroutine.
                count = 0 if actor._stop_reason is not None else min(count, self.budget)
            while count:
                count -= 1
                sender, message = queue.popleft()
                if type(message) is tuple:
                    try:
                        handler = handlers[message[0]]
                    except KeyError:
                        result = actor.on_unknown(sender, message)
                    else:
                        # The common sizes have calls of their own, because unpacking a slice costs 80 ns more.
                        size = len(message)
                        if size == 3:
                            result = handler(actor, sender, message[1], message[2])
                        elif size == 2:
                            result = handler(actor, sender, message[1])
                        elif size == 4:
                            result = handler(actor, sender, message[1], message[2], message[3])
                        else:
                            result = handler(actor, sender, *message[1:])
                    if result is not None:
                        actor._returned(result, sender)
                        if cell.sliced is not None:
                            self.ready.append(cell)
                            return message
                elif isinstance(message, ActorExitRequest):
                    actor.after_batch()
                    self.end(cell, NORMAL, message.isRecursive)
                    return message
                elif isinstance(message, Thespian_StatusReq):
                    self.enqueue(cell.address, sender, actor_status(cell, self.address, self.now()))
                else:
                    actor._dispatch(sender, message)
                    if cell.sliced is not None:
                        self.ready.append(cell)
                        return message
                if actor._stop_reason is not None:
                    break
        except Exception as error:
            self.crash(cell, error, message)
            return message
        except SystemExit as leaving:
            self.end(cell, ExitReason(ExitKind.EXIT, str(leaving.code)))
            return message
        try:
            actor.after_batch()
        except Exception as error:
            self.crash(cell, error, ("after_batch",))
            return message
        except SystemExit as leaving:
            self.end(cell, ExitReason(ExitKind.EXIT, str(leaving.code)))
            return message
        if actor._stop_reason is not None:
            self.end(cell, actor._stop_reason)
        elif queue or cell.woken:
            self.ready.append(cell)
        else:
            cell.is_idle = True
        return message

    def _sliced_turn(self, cell: Cell, sliced: SlicedHandler) -> Any:
        """`turn` for a process one of whose handlers has slices left; return what it did."""
        actor = cell.actor
        last = ("slice of " + sliced.name,)
        try:
            actor._next_slice(sliced)
            if cell.sliced is None:
                actor.after_batch()
        except Exception as error:
            self.crash(cell, error, last)
            return last
        except SystemExit as leaving:
            self.end(cell, ExitReason(ExitKind.EXIT, str(leaving.code)))
            return last
        if actor._stop_reason is not None and cell.sliced is None:
            self.end(cell, actor._stop_reason)
        elif cell.queue or cell.woken or cell.sliced is not None:
            self.ready.append(cell)
        else:
            cell.is_idle = True
        return last

    def _resume_woken(self, cell: Cell) -> None:
        """Resume coroutines of `cell` whose waits are over: at most `resume_budget`, and no more than a turn may handle
        messages, because to go on takes as long. The others are resumed in its next turns.
        """
        woken, actor, most = cell.woken, cell.actor, min(self.resume_budget, cell.turn_limit)
        cell.woken = list(woken[most:]) or ()
        for pending in woken[:most]:
            if pending is not None and actor._stop_reason is None:
                actor._resume(pending)

    def descriptor_turn(self, cell: Cell, fd: int, mask: int, wanted: int) -> None:
        """Let a Process serve `fd`, which is ready for `mask` and watched by the process for `wanted`."""
        actor = cell.actor
        if cell.sliced is not None:
            return  # the descriptor stays ready
        try:
            if mask & READABLE and wanted & READ:
                result = actor.on_readable(fd)
                if result is not None:
                    actor._returned(result, None)
                if mask & WRITABLE:
                    # The handler may have stopped the process, or changed what it watches.
                    owner = self.poller.owners.get(fd)
                    wanted = owner[1] if owner is not None and owner[0] is cell else 0
            if mask & WRITABLE and wanted & WRITE and actor._stop_reason is None:
                result = actor.on_writable(fd)
                if result is not None:
                    actor._returned(result, None)
            # A cell on the run queue calls `after_batch` at the end of its turn.
            if cell.is_idle:
                actor.after_batch()
        except Exception as error:
            self.crash(cell, error, ("descriptor",))
            return
        except SystemExit as leaving:
            self.end(cell, ExitReason(ExitKind.EXIT, str(leaving.code)))
            return
        if actor._stop_reason is not None:
            if not cell.is_idle:
                actor.after_batch()
            self.end(cell, actor._stop_reason)

    def round_end_turn(self, cell: Cell) -> None:
        """Let a Process do what it has put off to the end of the round."""
        actor = cell.actor
        if actor is None:
            return
        try:
            actor.on_round_end()
        except Exception as error:
            self.crash(cell, error, ("round end",))
            return
        if actor._stop_reason is not None:
            self.end(cell, actor._stop_reason)

    # -- delivery ----------------------------------------------------------------------------------

    def enqueue(self, sender: ActorAddress, target: ActorAddress, message: Any) -> None:
        """Put a message into a mailbox of this system, or send it to the connected system that the receiver lives in.

        If there is neither, the message is undeliverable.
        """
        cell = getattr(target, "_cell", None)
        if cell is None or cell.ready is not self.ready:
            cell = self.cells.get(target._aaddr)
            if cell is None and (dormant := self.dormant.by_address.get(target._aaddr)) is not None:
                cell = self.dormant.wake(dormant)
        if cell is not None:
            cell.queue.append((sender, message))
            self.schedule(cell)
        elif target._aaddr == SYSTEM_ADDRESS:
            if isinstance(message, Thespian_StatusReq):
                status = system_status(
                    self.address, self.capabilities, self.roots.values(), self.global_names, self.undelivered.handler
                )
                self.enqueue(self.address, sender, status)
        elif (system := system_of(target)) == self.name:
            named = self.names.resolve(target)
            if named is not None:
                self.enqueue(sender, named, message)
            elif not self.names.hold(sender, target, message):
                self.undelivered.take(sender, target, message)
        elif (remote := self.remotes.connected(system)) is None:
            self.undelivered.take(sender, target, message, self.remotes.absence(target))
        elif remote.leaves(sender, target, message):
            remote.carry(sender, target, message)

    def deliver_slowly(self, sender: ActorAddress, target: Any, message: Any) -> None:
        """Send to an address that does not lead to a mailbox of this system directly.

        It may be a copy of an address, or belong to an actor that has ended or lives in another system. Raises
        InvalidActorAddress for anything that is no address.
        """
        if not isinstance(target, ActorAddress):
            raise InvalidActorAddress(target, "not a valid ActorAddress for sending messages to")
        self.enqueue(sender, target, message)

    def update_capability(self, name: str, value: Any = None) -> None:
        """Set a capability; None removes it. Actors whose requirements are no longer met are asked to exit."""
        if value is None:
            self.capabilities.pop(name, None)
        else:
            self.capabilities[name] = value
        for cell in list(self.cells.values()):
            check = getattr(getattr(cell, "actor", None), "actorSystemCapabilityCheck", None)
            if check is not None and not check(self.capabilities, cell.requirements or {}):
                self.enqueue(self.address, cell.address, ActorExitRequest())

    def fire_timers(self, now: float, most: int | None = None) -> None:
        """Put the messages of the timers due by `now` into their owners' mailboxes, or of the first `most` of them."""
        pop_due = self.timers.pop_due
        for _ in itertools.count() if most is None else range(most):
            entry = pop_due(now)
            if entry is None:
                return
            cell, payload = entry[OWNER], entry[3]
            entry[OWNER] = None
            if isinstance(payload, ActorSystemMessage):
                del cell.timers[entry[1]]
                message: Any = payload
            else:
                # The payload stays in the cell, so that `cancel_timer` still takes effect while this message waits.
                message = ("$timer", entry[1])
            cell.queue.append((cell.address, message))
            self.schedule(cell)

    # -- death -------------------------------------------------------------------------------------

    def crash(self, cell: Cell, error: BaseException, message: Any = None) -> None:
        """End the actor of `cell`, which raised `error` while it handled `message`."""
        name = message[0] if type(message) is tuple and message else type(message).__name__
        log.error("%s crashed handling %s", cell.address, name, exc_info=error)
        self.end(cell, crash_reason(error))

    def _overload(self, cell: Cell, count: int) -> None:
        reason = ExitReason(ExitKind.OVERLOAD, f"{count} messages wait, the limit is {cell.limit}")
        log.error("%s killed: %s", cell.address, reason)
        if cell.parent is not None and cell.parent.handlers is not None and cell.parent.actor is not None:
            self.enqueue(cell.address, cell.parent.address, ("$overload", cell.address))
        self.end(cell, reason)

    def end(self, cell: Cell, reason: ExitReason, recursive: bool = True) -> None:
        """End the actor of `cell` now, and notify its monitors and askers, the first of them at once (`remains`).

        Its children are asked to exit, unless `recursive` is False: then they live on without a parent. Its own parent
        is notified when its last child is gone.
        """
        actor = cell.actor
        if actor is None:
            return
        details = cell.address._aaddr
        if cell.handlers is not None:
            actor._close()
        cell.actor = cell.client = None  # a cell that refers to itself would not be freed
        cell.is_idle = False  # so that nothing puts the cell on the run queue again
        del cell.address._cell
        del self.cells[details]
        if cell.dormant is not None:
            self.dormant.drop_children_of(cell)
        if cell.globalName:
            self.global_names.pop(cell.globalName, None)
        if details in self.names.of_process:
            self.names.forget(details)
        if self.undelivered.handler is cell:
            self.undelivered.handler = None
        for entry in cell.timers.values():
            self.timers.cancel(entry)
        cell.timers.clear()
        for fd in list(cell.fds):
            self.poller.unwatch(cell, fd)
        cell.woken = ()
        cell.sliced = None
        if not (recursive or self.is_ending):
            for child in cell.children.values():
                child.parent = None
                self.roots[child.address._aaddr] = child
            cell.children = NO_CHILDREN
        is_childless = not cell.children
        Remains(self, cell, actor, reason).go_on()
        if is_childless:
            self._gone(cell)

    def _gone(self, cell: Cell) -> None:
        """Notify the parent of `cell`, which has ended and has no children left."""
        self.living -= 1
        parent, details = cell.parent, cell.address._aaddr
        if parent is None:
            self.roots.pop(details, None)
            return
        parent.children.pop(details, None)
        if parent.actor is not None:
            parent.queue.append((self.address, ChildActorExited(cell.address)))
            self.schedule(parent)
        elif not parent.children:
            self._gone(parent)

    # -- what a subclass supplies ------------------------------------------------------------------

    def longest_turns(self) -> list[LongTurnRecord]:
        """The longest turns, the longest one first; none where time is virtual."""
        return []

    def waiting(self) -> Iterator[Cell]:
        """The cells that wait for their turns."""
        return (cell for cell in self.cells.values() if cell.has_work)

    def run_blocking(
        self, cell: Cell, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        """Run `function(*args)` and send `("$answer", ref, ok, value or error)` to the actor of `cell`."""
        raise NotImplementedError

    def call_at_round_end(self, cell: Cell) -> None:
        """See `Process.call_at_round_end`. Where there are no rounds, the process has another turn."""
        cell.resume_later(None)

    def request_shutdown(self) -> None:
        """End all actors soon; returns at once."""
        raise NotImplementedError
