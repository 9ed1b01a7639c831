"""`StockHost`: the host of a process on Thespian's own system bases (`simpleSystemBase`, `multiprocTCPBase`, ...).

Those bases run a handler again after an error, and have no monitors, no timers that can be cancelled, and no readiness
for writing. This host adds what they lack:

    crash           the error is caught, the monitors are notified, and the process sends itself an ActorExitRequest
    timer           a Thespian wakeup with a number; it is dropped if that number was cancelled
    another turn    a message to itself
    slices          are done one after the other, because no other process shares the operating-system process
    monitor         messages between the two processes; for a child that was killed from outside, ChildActorExited
    blocking call   blocks, because no other process shares the operating-system process

Known limits: descriptors cannot be watched for writing, and a message to a process that has ended is lost, so asks need
a timeout.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from thespian.actors import ActorAddress, ActorExitRequest, ChildActorExited, ThespianWatch, WakeupMessage

from .coroutines import Pending, SlicedHandler
from .errors import ProcessDown
from .exit_reason import NORMAL, ExitKind, ExitReason, crash_reason
from .long_turn import LongTurnRecord
from .machine.memory import SystemMemory
from .machine.sockets import SystemSockets
from .system.local_names import LocalNames
from .system.meter import Meter

if TYPE_CHECKING:
    from .process import Process
    from .system.remote_systems import RemoteSystems

_TIMER = "$timer"

#: The message by which a process gives itself another turn.
_TURN: tuple[Literal["$turn"]] = ("$turn",)

#: Thespian reports that a child ended, but not why.
_EXITED = ExitReason(ExitKind.KILLED, "exited")

#: The multi-process bases report the exit of a child twice within milliseconds: once when it sends its last message and
#: once when its operating-system process is reaped. This many exits are remembered, so that the second is recognised.
_REMEMBERED_EXITS = 64


class StockHost:
    """`host.Host` for one process on one of Thespian's own bases."""

    log = logging.getLogger("warren.runtime")
    now = staticmethod(time.monotonic)
    wall_clock = staticmethod(time.time)

    def clocks(self) -> tuple[Callable[[], float], Callable[[], float]]:
        return self.now, self.wall_clock

    random_bytes = staticmethod(os.urandom)
    sockets = SystemSockets()
    memory = SystemMemory()
    sliced: SlicedHandler | None = None

    def longest_turns(self) -> list[LongTurnRecord]:
        return []

    def meter(self) -> Meter | None:
        return None

    def mailboxes(self) -> Iterator[tuple[str, int]]:
        return iter(())

    def __init__(self, process: Process) -> None:
        self._process = process
        #: Names that no other node can use.
        self._names = LocalNames("")
        self._timers: dict[int, Any] = {}
        self._last_timer = 0
        self._fds: set[int] = set()
        self._monitors: dict[tuple[str, Any], ActorAddress] = {}
        self._woken: list[Pending | None] = []
        self._end_reason: ExitReason | None = None
        self._exits: deque[ActorAddress] = deque(maxlen=_REMEMBERED_EXITS)

    def receive(self, message: Any, sender: ActorAddress) -> ThespianWatch | None:
        process = self._process
        if self._end_reason is not None:
            if type(message) is tuple and message[:1] == ("ask",):
                process.send(sender, ("$answer", message[1], False, ProcessDown(self._end_reason)))
            return None
        if isinstance(message, ActorExitRequest):
            self._end(NORMAL)
            return None
        if isinstance(message, ChildActorExited):
            if message.childAddress in self._exits:
                return self._watching()
            self._exits.append(message.childAddress)
        if isinstance(message, WakeupMessage) and type(message.payload) is tuple and message.payload[:1] == (_TIMER,):
            message = message.payload
        try:
            if type(message) is tuple and message == _TURN:
                self._resume_woken()
            else:
                process._dispatch(sender, message)
            if isinstance(message, ChildActorExited):
                self._child_gone(message.childAddress)
            process.after_batch()
        except Exception as error:
            self.log.exception("%s crashed", process)
            self._leave(crash_reason(error))
        else:
            if process._stop_reason is not None:
                self._leave(process._stop_reason)
        return self._watching()

    def create_dormant(self, process_class: type[Process], first: Any, name: Hashable) -> ActorAddress:
        process = self._process
        address: ActorAddress = process.createActor(process_class)
        process.send(address, first)
        process.monitor(address, name)
        return address

    def is_dormant(self, address: ActorAddress) -> bool:
        return False

    def has_no_work(self, address: ActorAddress) -> bool:
        return False  # the process may live in another program

    def _watching(self) -> ThespianWatch | None:
        return ThespianWatch(sorted(self._fds)) if self._fds else None

    def _leave(self, reason: ExitReason) -> None:
        self._end(reason)
        self._process.send(self._process.myAddress, ActorExitRequest())

    def _end(self, reason: ExitReason) -> None:
        self._end_reason = reason
        self._process._close()
        for _ in self._process._end_conversations(reason):
            pass
        self._timers.clear()
        self._woken.clear()
        self._fds.clear()
        for (_, ref), watcher in self._monitors.items():
            self._process.send(watcher, ("$down", ref, reason))
        self._monitors.clear()

    def _child_gone(self, address: ActorAddress) -> None:
        process = self._process
        for ref in [ref for ref, (_, target) in process._monitored.items() if target == address]:
            process._dispatch(address, ("$down", ref, _EXITED))

    def start_timer(self, seconds: float, payload: Any) -> int:
        self._last_timer += 1
        self._timers[self._last_timer] = payload
        self._process.wakeupAfter(timedelta(seconds=seconds), (_TIMER, self._last_timer))
        return self._last_timer

    def cancel_timer(self, ref: int) -> None:
        self._timers.pop(ref, None)

    def take_timer(self, ref: int) -> tuple[Any] | None:
        return (self._timers.pop(ref),) if ref in self._timers else None

    def watch(self, fd: int, read: bool, write: bool) -> None:
        if write:
            raise NotImplementedError("Thespian's own system bases watch descriptors for reading only")
        if read:
            self._fds.add(fd)
        else:
            self._fds.discard(fd)

    def unwatch(self, fd: int) -> None:
        self._fds.discard(fd)

    def share_turns(self, group: str) -> None:
        """Ignored: Thespian's own bases have no lanes."""

    def call_at_round_end(self) -> None:
        self.resume_later(None)

    @property
    def systems(self) -> RemoteSystems:
        raise NotImplementedError("Thespian's own system bases are connected to no other system")

    @property
    def names(self) -> LocalNames:
        return self._names

    def release_held(self, name: str | None) -> None:
        """Do nothing: only messages of other systems are held."""

    def named_address(self, node: str, name: str) -> ActorAddress | None:
        return None

    def run_blocking(
        self, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        try:
            value, ok = function(*args), True
        except Exception as error:
            value, ok = error, False
        self._process._answer(self._process.myAddress, ref, ok, value)

    def resume_later(self, pending: Pending | None) -> None:
        if self._end_reason is None:
            if not self._woken:
                self._process.send(self._process.myAddress, _TURN)
            self._woken.append(pending)

    def do_in_slices(self, sliced: SlicedHandler) -> None:
        self._process._next_slice(sliced)

    def _resume_woken(self) -> None:
        woken, self._woken = self._woken, []
        for pending in woken:
            if pending is not None and self._process._stop_reason is None:
                self._process._resume(pending)

    def monitor(self, address: ActorAddress, ref: int) -> None:
        self._process.send(address, ("$monitor", ref))

    def demonitor(self, address: ActorAddress, ref: int) -> None:
        self._process.send(address, ("$demonitor", ref))

    def add_monitor(self, watcher: ActorAddress, ref: Any) -> None:
        self._monitors[watcher.actorAddressString, ref] = watcher

    def remove_monitor(self, watcher: ActorAddress, ref: Any) -> None:
        self._monitors.pop((watcher.actorAddressString, ref), None)
