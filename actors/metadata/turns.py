"""`Turns`: runs the operations of `Metadata` that concern one queue, or one virtual host, one after the other, in the
order of the requests.

The log decides the order of commands, but a queue that is asked to end may refuse, and takes its time to answer. A
later declare of that name must find the queue either deleted or still there, so it waits. Operations on different names
do not wait for each other, so a slow queue delays only requests for its own name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable

from ...amqp.errors import AmqpError
from ...runtime.contract import Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ...runtime.signal import Signal

#: What operations take turns on: `(vhost,)` or `(vhost, queue)`.
TurnKey = tuple[str, ...]
Operation = Callable[..., Coroutine[object, None, object]]

#: How many operations of one `run_all` may run or wait at a time, and how many begin in one turn, each in 30 µs: the
#: operations that have begun need the turn as well.
RUN_AT_ONCE, BEGUN_AT_ONCE = 512, 16


class Turns:
    """Belongs to `process`. A key without operations takes no memory."""

    def __init__(self, process: Process) -> None:
        self._process = process
        #: The operations that wait, by key; an empty queue while the last one runs.
        self._waiting: dict[TurnKey, deque[tuple[Sender, Operation, tuple[object, ...]]]] = {}
        self._one_ended = Signal(process)

    def take(self, key: TurnKey, sender: Sender, operation: Operation, *arguments: object) -> None:
        """Run `operation` when the earlier ones with this key are done, and answer `sender` with its value or error."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append((sender, operation, arguments))
            return
        self._waiting[key] = deque([(sender, operation, arguments)])
        self._process.spawn(self._run(key))

    async def run_all(self, keys: Iterable[TurnKey], operation: Operation, *arguments: object) -> None:
        """Run `operation(*key, *arguments)` for each of any number of keys when its turn has come, and return when all
        are done. Nobody receives the value or the error of one of them.
        """
        running, one_ended = 0, Signal(self._process)

        async def run(key: TurnKey) -> None:
            nonlocal running
            try:
                await operation(*key, *arguments)
            finally:
                running -= 1
                one_ended.wake_all()

        def has_room() -> bool:
            return running < RUN_AT_ONCE

        for number, key in enumerate(keys, 1):
            await one_ended.wait_for(has_room)
            running += 1
            self.take(key, self._process.myAddress, run, key)
            if number % BEGUN_AT_ONCE == 0:
                await self._process.next_turn()
        await one_ended.wait_for(lambda: not running)

    def is_taken(self, key: TurnKey) -> bool:
        """Whether an operation with this key would have to wait."""
        return key in self._waiting

    async def _run(self, key: TurnKey) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                sender, operation, arguments = waiting.popleft()
                try:
                    answer = await operation(*arguments)
                except (AmqpError, ProcessError) as error:
                    self._process.reply_error(sender, error)
                else:
                    self._process.reply(sender, answer)
        finally:
            # If the process ends before, the operations that wait would keep the parts to which they belong in memory.
            del self._waiting[key]
        self._one_ended.wake_all()

    async def all_of(self, vhost: str) -> None:
        """Wait until every operation that has begun on a queue of this virtual host is done."""
        await self._one_ended.wait_for(lambda: not any(len(key) == 2 and key[0] == vhost for key in self._waiting))
