"""`Host`: everything that a process reaches of the system on which it lives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from thespian.actors import ActorAddress

from .coroutines import Pending, SlicedHandler
from .long_turn import LongTurnRecord
from .machine.memory import Memory
from .machine.sockets import Sockets
from .system.local_names import LocalNames
from .system.meter import Meter
from .system.remote_systems import RemoteSystems


class Host(Protocol):
    """Implemented by `cell.Cell` (event loop and simulation) and `stock_host.StockHost` (Thespian's own bases).

    The methods without a docstring are those of `Process` with the same name.
    """

    log: logging.Logger
    #: The handler of the process that has slices left; None if there is none.
    sliced: SlicedHandler | None

    @property
    def sockets(self) -> Sockets: ...

    @property
    def memory(self) -> Memory: ...

    def longest_turns(self) -> list[LongTurnRecord]: ...
    def meter(self) -> Meter | None: ...
    def mailboxes(self) -> Iterator[tuple[str, int]]: ...

    def create_dormant(self, process_class: type[Any], first: Any, name: Hashable) -> Any: ...
    def is_dormant(self, address: ActorAddress) -> bool: ...
    def has_no_work(self, address: ActorAddress) -> bool: ...

    def now(self) -> float: ...
    def wall_clock(self) -> float: ...
    def clocks(self) -> tuple[Callable[[], float], Callable[[], float]]: ...
    def random_bytes(self, count: int) -> bytes: ...

    def start_timer(self, seconds: float, payload: Any) -> int: ...
    def cancel_timer(self, ref: int) -> None: ...
    def take_timer(self, ref: int) -> tuple[Any] | None:
        """The payload of a timer that is due, as a tuple of one, and forget the timer; None if it was cancelled."""

    def watch(self, fd: int, read: bool, write: bool) -> None: ...
    def unwatch(self, fd: int) -> None: ...

    def share_turns(self, group: str) -> None: ...
    def call_at_round_end(self) -> None: ...

    @property
    def systems(self) -> RemoteSystems:
        """What a process that keeps a connection to another system uses to pass on messages."""

    @property
    def names(self) -> LocalNames:
        """The names by which other nodes reach processes of this system."""

    def release_held(self, name: str | None) -> None: ...
    def named_address(self, node: str, name: str) -> ActorAddress | None: ...

    def run_blocking(
        self, ref: int, function: Callable[..., Any], args: tuple[Any, ...], is_brief: bool = False
    ) -> None:
        """Run `function(*args)`, then send the process `("$answer", ref, ok, value or error)`.

        `is_brief`: the call and its answer may wait for other brief calls.
        """

    def resume_later(self, pending: Pending | None) -> None:
        """Give the process another turn, which begins by resuming what waits for `pending`; None: only give it a turn.

        Does nothing once the process has ended.
        """

    def do_in_slices(self, sliced: SlicedHandler) -> None:
        """Set `sliced`, and call `Process._next_slice` in the next turns of the process, which do nothing else."""

    def monitor(self, address: ActorAddress, ref: int) -> None: ...
    def demonitor(self, address: ActorAddress, ref: int) -> None: ...
    def add_monitor(self, watcher: ActorAddress, ref: Any) -> None:
        """Send `("$down", ref, reason)` to `watcher` when this process ends."""

    def remove_monitor(self, watcher: ActorAddress, ref: Any) -> None: ...

    def receive(self, message: Any, sender: ActorAddress) -> Any:
        """Handle one message here and now, for a caller of `Process.receiveMessage`."""
