"""`Exchanges`: proposes the commands that concern exchanges and bindings, and deletes exchanges with many bindings.

An exchange with 20,000 bindings is deleted in many turns. Clients see it vanish at once: it leaves the routing table
first, and requests that name it wait until its row is gone. So a message is routed by all of its bindings or refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...amqp.errors import AmqpError
from ...runtime.contract import Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from .changing import Changing
from .log.log import Log, Outcome
from .state.commands import Bind, DeclareExchange, DeleteExchange, Unbind

ExchangeCommand = DeclareExchange | DeleteExchange | Bind | Unbind


class Exchanges:
    """Belongs to `process`, the Metadata."""

    def __init__(
        self, process: Process, log: Log, changing: Changing, answer: Callable[[Sender, Outcome], None]
    ) -> None:
        self._process = process
        self._log = log
        self._changing = changing
        #: A method of the process and not of this object: what the log keeps refers to it, and would keep this object,
        #: and with it the log, alive after the process has ended.
        self._answer = answer
        #: By virtual host and name of each exchange that is being deleted: the requests that wait for its end.
        self._waiting: dict[tuple[str, str], list[tuple[Sender, ExchangeCommand]]] = {}

    def propose(self, sender: Sender, command: ExchangeCommand) -> None:
        """Carry out a request, and answer `sender`."""
        if self._waiting:
            for name in _exchanges(command):
                waiting = self._waiting.get(name)
                if waiting is not None:
                    waiting.append((sender, command))
                    return
        if isinstance(command, DeleteExchange) and self._is_wide(command):
            self._process.spawn(self._delete(sender, command))
        else:
            self._log.propose(command, partial(self._answer, sender))

    def _is_wide(self, command: DeleteExchange) -> bool:
        """Whether deleting the exchange would take too long for one turn, and is allowed."""
        vhost, name = command.vhost, command.name
        if name == "" or name.startswith("amq.") or command.if_unused and self._changing.is_source(vhost, name):
            return False
        return self._changing.is_wide(vhost, name) or self._changing.is_wide(vhost, ("exchange", name))

    async def _delete(self, sender: Sender, command: DeleteExchange) -> None:
        key = command.vhost, command.name
        self._waiting[key] = []
        try:
            await self._changing.delete_wide_exchange(command)
        except (AmqpError, ProcessError) as error:
            self._process.reply_error(sender, error)
        else:
            self._process.reply(sender, None)
        for request in self._waiting.pop(key):
            self.propose(*request)


def _exchanges(command: ExchangeCommand) -> list[tuple[str, str]]:
    """The virtual host and name of each exchange that the command names."""
    if isinstance(command, DeclareExchange):
        return [(command.row.vhost, command.row.name)]
    if isinstance(command, DeleteExchange):
        return [(command.vhost, command.name)]
    binding = command.binding
    names = [binding.source, binding.destination] if binding.kind == "exchange" else [binding.source]
    return [(command.vhost, name) for name in names]
