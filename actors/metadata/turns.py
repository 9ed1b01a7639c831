"""`Turns`: runs the operations of `Metadata` on one thing one after the other, in the order in which they were asked
for.

An operation that waits for a queue, its supervisor or the disk must not overlap with another one on the same thing: two
channels that declare the same name at once have to get the same queue. Operations on different things do not wait for
each other, so a slow declare delays only requests for the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from ...amqp.errors import AmqpError
from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from .contract import ToMetadata, TurnKey, to_metadata

Operation = Callable[..., Coroutine[Any, Any, object]]


class Turns:
    """Belongs to `process`, which passes `await_turn` on to `let_pass`. A key without operations takes no memory."""

    def __init__(self, process: Process) -> None:
        self._process = process
        #: The operations that wait, by key; an empty queue while the last one runs.
        self._waiting: dict[TurnKey, deque[tuple[Sender, Operation, tuple[Any, ...]]]] = {}

    def take(self, key: TurnKey, sender: Sender, operation: Operation, *arguments: Any) -> None:
        """Run `operation` when the earlier ones with this key are done, and answer `sender` with its value or error."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append((sender, operation, arguments))
            return
        self._waiting[key] = deque([(sender, operation, arguments)])
        self._process.spawn(self._run(key))

    async def _run(self, key: TurnKey) -> None:
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

    def let_pass(self, key: TurnKey, sender: Sender) -> None:
        """Answer `sender` when the earlier operations with this key are done."""
        self.take(key, sender, _do_nothing)

    async def all_of(self, vhost: str) -> None:
        """Wait until every operation that has begun in this virtual host is done."""
        me: Address[ToMetadata] = self._process.myAddress
        passes = [self._process.ask(me, to_metadata.await_turn(key)) for key in self._waiting if _is_within(key, vhost)]
        for passed in passes:
            await passed


async def _do_nothing() -> None:
    """The operation of someone who only waits for its turn."""


def _is_within(key: TurnKey, vhost: str) -> bool:
    """Whether `key` is that of a queue, an exchange or a binding in this virtual host."""
    return len(key) == 2 and key[0] == vhost or len(key) == 3 and key[1] == vhost
