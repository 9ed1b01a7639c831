"""How threads that are not actors send to actors and ask them.

A `Port` is a mailbox outside the system: it has an address, so actors can send to it, and threads wait for its
messages. An `OutsideClient` is a port that asks processes, for any number of threads at once. A `PrivateBase` is what
Thespian's `ActorSystem.private()` needs.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ActorSystem
from thespian.system import isInternalActorSystemMessage

from ..contract import Address, Answer, C, ProcessMessage
from ..errors import ProcessDown, ProcessTimeout
from ..exit_reason import SHUTDOWN, ExitKind, ExitReason
from ..system.address import LoopAddress

if TYPE_CHECKING:
    from .loop_base import LoopBase

#: The last message of every port.
_CLOSED = object()


class Port:
    """A mailbox that outside threads read. Any thread may call `tell` and `listen`, which have Thespian's names."""

    #: Keeps senders from putting the port on a run queue (see `address`).
    is_idle = False

    def __init__(self, base: LoopBase, kind: str) -> None:
        self.base = base
        self.ready = base.ready
        self.queue = self
        self.address = LoopAddress(f"{base.name}/{kind}-{next(base.port_numbers)}")
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.address._cell = self  # type: ignore[assignment]
        base.cells[self.address._aaddr] = self

    def append(self, envelope: tuple[ActorAddress, Any]) -> None:
        """Take a message that an actor sent. Called on the loop."""
        if not isInternalActorSystemMessage(envelope[1]):
            self._arrived.put(envelope[1])

    def tell(self, target: ActorAddress, message: Any) -> None:
        """Send `message` to the actor at `target`."""
        self.base.post(self.base.enqueue, self.address, target, message)

    def listen(self, timeout: timedelta | float | None) -> Any:
        """Wait for the next message; None after `timeout` (seconds or timedelta; None is no limit) or a shutdown."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None:
            seconds = max(0.0, seconds)
        base = self.base
        if base.is_running_here():
            raise RuntimeError("an actor cannot wait for its own system; use `await self.ask(...)`")
        if not base.is_running() and self._arrived.empty():
            base.run_until(lambda: not self._arrived.empty(), seconds)
            seconds = 0
        try:
            message = self._arrived.get(timeout=seconds) if seconds != 0 else self._arrived.get_nowait()
        except queue.Empty:
            return None
        if message is _CLOSED:
            self._arrived.put(_CLOSED)  # for the next thread that waits
            return None
        return message

    def fail(self, reason: ExitReason) -> None:
        """End the waiting of all threads, because the system has ended for `reason`."""
        self._arrived.put(_CLOSED)

    def close(self) -> None:
        """Take no more messages. What actors still send to this address counts as undelivered."""
        self.base.post(self._unregister)

    def _unregister(self) -> None:
        if self.base.cells.pop(self.address._aaddr, None) is not None:
            del self.address._cell


class PrivateBase:
    """The base behind Thespian's ExternalContext: a port of its own on the same system."""

    def __init__(self, base: LoopBase) -> None:
        self._base = base
        self._port = Port(base, "private")

    def tell(self, address: ActorAddress, message: Any) -> None:
        self._port.tell(address, message)

    def ask(self, address: ActorAddress, message: Any, timeout: timedelta | float | None) -> Any:
        self._port.tell(address, message)
        return self._port.listen(timeout)

    def listen(self, timeout: timedelta | float | None) -> Any:
        return self._port.listen(timeout)

    def newPrimaryActor(self, *args: Any) -> ActorAddress:
        return self._base.newPrimaryActor(*args)

    def exit_context(self) -> None:
        self._port.close()


Finish = Callable[[bool, Any], None]


class OutsideClient(Port):
    """Asks processes from outside their system. Any thread may use a client at any time; `close` it, or use `with`."""

    def __init__(self, system: ActorSystem) -> None:
        super().__init__(system._systemBase, "client")
        self._waiting: dict[int, Finish] = {}
        self._refs = itertools.count(1)

    def ask(self, address: Address[C], message: ProcessMessage[C, Answer], timeout: float | None = None) -> Answer:
        """Send `message` and wait for its answer.

        Raises the error that it was answered with, ProcessDown if the process ends or the system is shut down, or
        ProcessTimeout after `timeout` seconds.
        """
        base = self.base
        if base.is_running_here():
            raise RuntimeError("an actor cannot wait for its own system; use `await self.ask(...)`")
        outcome: list[tuple[bool, Any]] = []
        arrived = threading.Lock()
        arrived.acquire()
        asker = threading.get_ident()

        def finish(ok: bool, value: Any) -> None:
            outcome.append((ok, value))
            arrived.release()
            if base.threads.is_run_by(asker):
                # The asker runs the loop itself, in a server for as long as that runs. So the answer stops the loop: a
                # condition that is checked in each round would cost 2 % of the processor time of small messages.
                base.stop()

        ref = self._send(address, message, finish)
        if base.is_running():
            arrived.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        elif not outcome:
            base.run_for(timeout)
        if not outcome:
            if self._give_up(ref, address):
                raise ProcessTimeout(f"{address} did not answer within {timeout} s")
            arrived.acquire()  # the answer came after the timeout and before `_give_up`
        answer: Answer = _result(*outcome.pop())
        return answer

    def _send(self, address: Address[C], message: ProcessMessage[C, Any], finish: Finish) -> int:
        ref = next(self._refs)
        self._waiting[ref] = finish
        if self.base.is_closed():
            self._finish(ref, False, ProcessDown(SHUTDOWN))
        else:
            self.base.post(self.base.enqueue, self.address, address, ("ask", ref, message))
        return ref

    def _give_up(self, ref: int, address: Address[Any]) -> bool:
        """Drop the ask and notify the process that no answer is needed; False if it was answered before."""
        if self._waiting.pop(ref, None) is None:
            return False
        self.base.post(self.base.enqueue, self.address, address, ("$forget", ref))
        return True

    def _finish(self, ref: int, ok: bool, value: Any) -> None:
        finish = self._waiting.pop(ref, None)
        if finish is not None:
            finish(ok, value)

    def append(self, envelope: tuple[ActorAddress, Any]) -> None:
        message = envelope[1]
        if type(message) is tuple and message[:1] == ("$answer",):
            self._finish(*message[1:])
        else:
            super().append(envelope)

    def fail(self, reason: ExitReason) -> None:
        super().fail(reason)
        for ref in list(self._waiting):
            self._finish(ref, False, ProcessDown(reason))

    def close(self) -> None:
        super().close()
        self.fail(ExitReason(ExitKind.ORDERLY, "closed"))

    def __enter__(self) -> OutsideClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _result(ok: bool, value: Any) -> Any:
    """The value that an ask was answered with. Raises it if it is an error."""
    if ok:
        return value
    try:
        raise value
    finally:
        # The error refers to this frame by its traceback. A reference back would keep both, and the caller's objects,
        # alive until a garbage collection.
        del value
