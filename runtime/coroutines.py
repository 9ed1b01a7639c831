"""The values behind a process's `await`: the coroutine that waits, the pending answer, and the asker's handle; and the
handler that works in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, TypeVar

from thespian.actors import ActorAddress

#: How often a coroutine that awaits again while it is closed is closed once more.
CLOSE_ATTEMPTS = 10

Value = TypeVar("Value")

#: What a handler returns that works in slices: it yields between two of them. `Value` is the answer.
Slices = Generator[None, None, Value]


class ReplyHandle:
    """The `sender` of an asked message: the asker's `address`, and the number `ref` of the ask among the asker's."""

    __slots__ = ("address", "key", "ref")

    def __init__(self, address: ActorAddress, ref: Any) -> None:
        self.address = address
        self.ref = ref
        self.key = (address.actorAddressString, ref)

    def __repr__(self) -> str:
        return f"<ask {self.ref} of {self.address}>"


class TimerCall:
    """The payload of a timer of the runtime's own: `call()` is called instead of `on_timer`."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


class Task:
    """A coroutine that a process runs, and the ask that its value answers, if there is one."""

    __slots__ = ("coroutine", "handle")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], handle: ReplyHandle | None) -> None:
        self.coroutine = coroutine
        self.handle = handle

    @property
    def name(self) -> str:
        """The qualified name of the function that the coroutine runs, for traces."""
        name: str = getattr(self.coroutine, "__qualname__", "")
        return name

    def close(self) -> None:
        """End the coroutine where it waits. Raises the error that it raises then."""
        try:
            self.coroutine.close()
        except RuntimeError:
            # It awaits again in a `finally`. Close it there as well; a suspended coroutine would keep alive all that
            # its frame refers to, such as the files of a process that has ended.
            for _ in range(CLOSE_ATTEMPTS):
                with suppress(RuntimeError):
                    self.coroutine.close()
                    break
            raise


class SlicedHandler:
    """A handler that works in slices, and the `sender` of its message."""

    __slots__ = ("generator", "sender")

    def __init__(self, generator: Slices[Any], sender: Any) -> None:
        self.generator = generator
        self.sender = sender

    @property
    def name(self) -> str:
        """The qualified name of the handler, for traces."""
        name: str = getattr(self.generator, "__qualname__", "")
        return name


class Pending:
    """What a coroutine waits for; `await` it once. `target` is the process asked, None if no other process answers."""

    __slots__ = ("_done", "_ok", "_value", "target", "task", "timer")

    def __init__(self, target: ActorAddress | None) -> None:
        self.target = target
        self.task: Task | None = None
        self.timer: int | None = None
        self._done = False
        self._ok = False
        self._value: Any = None

    def settle(self, ok: bool, value: Any) -> None:
        self._done, self._ok, self._value = True, ok, value

    def __await__(self) -> Generator[Pending, None, Any]:
        if not self._done:
            yield self
        value, self._value = self._value, None
        if self._ok:
            return value
        try:
            raise value
        finally:
            # The error refers to this frame by its traceback. A reference back would keep all frames of the traceback
            # alive until a garbage collection, and with them the files of a process that has ended.
            del value
