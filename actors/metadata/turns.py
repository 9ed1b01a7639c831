"""Operations that must not meet: those with the same key run one after the other, in the order in which they were asked for.

Keys are `(vhost,)`, `(vhost, queue)`, `("exchange", vhost, name)` and `("binding", vhost, binding)`. Operations with different keys do not wait for each other,
so a declare that waits for its queue's supervisor, or for the disk, holds up nobody but who wants the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from ...amqp.errors import AmqpError
from ...runtime.errors import ProcessError
from ...runtime.process import Process

Operation = Callable[..., Coroutine[Any, Any, Any]]


class Turns:
    """Belongs to `process`, whose askers it answers, and which passes `('await_turn', key)` on to `let_pass`. Nothing is kept of a key whose operations are done."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: dict[Hashable, deque[tuple[Any, Operation, tuple[Any, ...]]]] = {}

    def take(self, key: Hashable, sender: Any, operation: Operation, *arguments: Any) -> None:
        """Run `operation` when the earlier ones with this key are done, and answer with its value or error."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append((sender, operation, arguments))
            return
        self._waiting[key] = deque([(sender, operation, arguments)])
        self._process.spawn(self._run(key))

    async def _run(self, key: Hashable) -> None:
        waiting = self._waiting[key]
        while waiting:
            sender, operation, arguments = waiting.popleft()
            try:
                answer = await operation(*arguments)
            except (AmqpError, ProcessError) as error:
                self._process.reply_error(sender, error)
            else:
                self._process.reply(sender, answer)
        del self._waiting[key]

    def let_pass(self, key: Hashable, sender: Any) -> None:
        """Answer when the earlier ones with this key are done."""
        self.take(key, sender, _pass)

    async def all_of(self, vhost: str) -> None:
        """Return when whatever has begun in this virtual host is done."""
        process = self._process
        for turn in [
            process.ask(process.myAddress, ("await_turn", key)) for key in self._waiting if _is_within(key, vhost)
        ]:
            await turn


async def _pass() -> None:
    """A turn in which nothing is done."""


def _is_within(key: Any, vhost: str) -> bool:
    """Whether a turn's key is that of a queue `(vhost, name)`, or of an exchange or binding `(kind, vhost, it)`, in this virtual host."""
    return len(key) == 2 and key[0] == vhost or len(key) == 3 and key[1] == vhost
