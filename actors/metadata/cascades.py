"""`Cascades`: removes very many auto-delete exchanges in many turns, before the queue, binding or exchange to which
they lead is removed (`routing/cascade.py`).

The commands name the bindings that go, so each node of a cluster removes the same ones at the same place of the log,
also a node that gets a snapshot between two of these commands. The client is answered after the last one. Requests on
this node that name one of the exchanges wait until then: a binding that is added meanwhile would keep an exchange whose
own sources are gone already. Another node of the cluster may add such a binding between two commands; then it keeps its
exchange, without those that were bound to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...routing.cascade import Cascade
from ...routing.destinations import Destination
from ...routing.rows import Binding
from ...runtime.contract import Sender
from ...runtime.process import Process
from ...runtime.turn_work import STEP
from .state.commands import Bind, DeclareExchange, DeleteExchange, TrimBindings, Unbind
from .state.state import State

if TYPE_CHECKING:
    from ...routing.vhost_rows import VhostRows

ExchangeCommand = DeclareExchange | DeleteExchange | Bind | Unbind


class ExchangeRequest(NamedTuple):
    """A request for exchanges or bindings, and who waits for its answer."""

    sender: Sender
    command: ExchangeCommand


#: What is about to be removed: a binding, or a queue or exchange with all bindings to it.
End = Binding | Destination

#: Bindings that one command removes. Most of them take an exchange with them.
BINDINGS = STEP // 2

#: Virtual host and name of an exchange.
Key = tuple[str, str]


class Cascades:
    """Belongs to `process`, the Metadata; `note` proposes a command and waits until it is applied."""

    def __init__(self, process: Process, state: State, note: Callable[[TrimBindings], Awaitable[None]]) -> None:
        self._process = process
        self._state = state
        self._note = note
        #: Called with the requests that waited for exchanges.
        self.on_free: Callable[[Iterable[ExchangeRequest]], None] = lambda requests: None
        #: The requests that wait for each exchange that is being removed in many turns.
        self._waiting: dict[Key, list[ExchangeRequest]] = {}

    # -- requests that wait ---

    def has_to_wait(self, request: ExchangeRequest, names: Iterable[Key]) -> bool:
        """Whether one of these exchanges is being removed; then the request waits for it."""
        for name in names if self._waiting else ():
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.append(request)
                return True
        return False

    def hold(self, name: Key) -> bool:
        """Let requests for an exchange wait until `free`; False if they wait already."""
        if name in self._waiting:
            return False
        self._waiting[name] = []
        return True

    def free(self, held: Iterable[Key]) -> None:
        """Have the requests for these exchanges carried out."""
        self.on_free([request for name in held for request in self._waiting.pop(name)])

    # -- removals ---

    def is_large(self, vhost: str, end: End) -> bool:
        """Whether more rows may go with `end` than one turn should remove."""
        rows = self._state.vhosts.get(vhost)
        if rows is None:
            return False
        if isinstance(end, tuple) and rows.is_more(end, STEP):
            return True
        cascade = Cascade(rows, *_lost(rows, end))
        return not cascade.run(STEP) or len(cascade.bindings) > BINDINGS

    async def trim(self, vhost: str, end: End) -> list[Key]:
        """Remove what goes with `end`, but leave what leads to it directly.

        Return the exchanges that go. Requests for them wait until the caller has removed `end` and frees them.
        """
        rows = self._state.vhosts.get(vhost)
        return [] if rows is None else await self._trim(rows, *_lost(rows, end))

    async def trim_bindings(self, vhost: str, bindings: Iterable[Binding]) -> list[Key]:
        """Like `trim`, before several bindings are removed."""
        rows = self._state.vhosts.get(vhost)
        return [] if rows is None else await self._trim(rows, bindings, None)

    async def _trim(self, rows: VhostRows, lost: Iterable[Binding], but: str | None) -> list[Key]:
        vhost, held = rows.vhost, []

        def found(name: str) -> None:
            if self.hold((vhost, name)):
                held.append((vhost, name))

        cascade = Cascade(rows, lost, but, found)
        while not cascade.run(STEP):
            await self._process.next_turn()
        if len(cascade.bindings) > BINDINGS:
            for bindings in cascade.from_far_end(BINDINGS):
                await self._note(TrimBindings(vhost, bindings))
                await self._process.next_turn()
        return held


def _lost(rows: VhostRows, end: End) -> tuple[Iterable[Binding], str | None]:
    """The bindings that go with `end`, and the exchange that goes."""
    if isinstance(end, Binding):
        return (end,), None
    kind, name = end
    return rows.bindings_of(end), name if kind == "exchange" else None
