"""`Exchanges`: proposes the commands that concern exchanges and bindings, and carries out the large ones in many turns.

An exchange with 20,000 bindings is deleted in many turns, and so are 5,000 auto-delete exchanges that go with another
exchange or binding (`Cascades`). Clients see the exchange that they delete vanish at once: it leaves the routing table
first, and requests that name it wait until its row is gone. So a message is routed by all of its bindings or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial

from ...amqp.errors import AmqpError
from ...runtime.contract import Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from .cascades import ExchangeCommand, ExchangeRequest
from .changing import Changing
from .log.log import CommandOutcome, Log
from .state.bindings import can_unbind
from .state.commands import DeclareExchange, DeleteExchange, Unbind
from .state.state import State


class Exchanges:
    """Belongs to `process`, the Metadata."""

    def __init__(
        self,
        process: Process,
        state: State,
        log: Log,
        changing: Changing,
        answer: Callable[[Sender, CommandOutcome], None],
    ) -> None:
        self._process = process
        self._state = state
        self._log = log
        self._changing = changing
        #: A method of the process and not of this object: what the log keeps refers to it, and would keep this object,
        #: and with it the log, alive after the process has ended.
        self._answer = answer

    def propose(self, sender: Sender, command: ExchangeCommand) -> None:
        """Carry out a request, and answer `sender`."""
        if self._changing.cascades.has_to_wait(ExchangeRequest(sender, command), _exchanges(command)):
            return
        if isinstance(command, DeleteExchange) and self._is_large_deletion(command):
            key = command.vhost, command.name
            self._changing.cascades.hold(key)
            self._process.spawn(self._carry_out(sender, self._changing.delete_large_exchange(command), [key]))
        elif isinstance(command, Unbind) and self._is_large_unbinding(command):
            self._process.spawn(self._carry_out(sender, self._changing.unbind_large(command), []))
        else:
            self._log.propose(command, self._changing.timed(partial(self._answer, sender)))

    def propose_all(self, requests: Iterable[ExchangeRequest]) -> None:
        """Carry out requests that had to wait."""
        for request in requests:
            self.propose(*request)

    def _is_large_deletion(self, command: DeleteExchange) -> bool:
        """Whether deleting the exchange would take too long for one turn, and is allowed."""
        vhost, name = command.vhost, command.name
        if name == "" or name.startswith("amq.") or command.if_unused and self._changing.is_source(vhost, name):
            return False
        return self._changing.is_large(vhost, name)

    def _is_large_unbinding(self, command: Unbind) -> bool:
        """Whether removing the binding would take too long for one turn, and is allowed."""
        vhost, binding = command.vhost, command.binding
        if not self._changing.cascades.is_large(vhost, binding):
            return False
        try:
            return can_unbind(self._state.rows(vhost), command)
        except AmqpError:
            return False

    async def _carry_out(
        self, sender: Sender, change: Coroutine[object, None, None], held: list[tuple[str, str]]
    ) -> None:
        try:
            await change
        except (AmqpError, ProcessError) as error:
            self._process.reply_error(sender, error)
        else:
            self._process.reply(sender, None)
        self._changing.cascades.free(held)


def _exchanges(command: ExchangeCommand) -> list[tuple[str, str]]:
    """The virtual host and name of each exchange that the command names."""
    if isinstance(command, DeclareExchange):
        return [(command.row.vhost, command.row.name)]
    if isinstance(command, DeleteExchange):
        return [(command.vhost, command.name)]
    binding = command.binding
    names = [binding.source, binding.destination] if binding.kind == "exchange" else [binding.source]
    return [(command.vhost, name) for name in names]
