"""The routing table: which queues a message goes to (AB-64, AB-68 to AB-79).

`Metadata` alone writes it; every channel and queue of the node reads it without a message, as RabbitMQ's processes read ETS
tables. Rows and bindings are immutable and replaced whole, so a reader may keep one; `version` moves with every change, so a
reader may keep what it computed until then. Single changes cost the same with ten bindings and with a hundred thousand.

A message walks from its exchange along bindings whose destination is an exchange; each exchange is visited once and each
queue found once (AB-74). An exchange that has no destination of its own for the message sends the walk on to its
alternate exchange (AB-76).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..amqp.fields import Table
from .decorators import ExchangeDecorator, notify
from .destinations import Destination, DestinationSet
from .exchange_types import EXCHANGE_TYPES, NO_ARGUMENTS, Binding, Router, UnavailableRouter
from .rows import ExchangeRow, QueueRow

DEFAULT_EXCHANGES = (
    # name, type, internal (AB-64)
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


class Removed(NamedTuple):
    """What went with something that was removed: auto-delete exchanges that lost their last binding (AB-77), and all bindings of everything that went."""

    exchanges: list[ExchangeRow]
    bindings: list[Binding]


class _Vhost:
    """Everything of one virtual host."""

    __slots__ = ("exchanges", "routers", "queues", "by_source", "by_destination", "onward")

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeRow] = {}
        self.routers: dict[str, Router] = {}
        self.queues: dict[str, QueueRow] = {}
        self.by_source: dict[str, dict[Binding, None]] = {}
        self.by_destination: dict[Destination, dict[Binding, None]] = {}
        # source -> the exchanges it is bound to: says in one look-up whether a walk can end at the first exchange
        self.onward: dict[str, DestinationSet] = {}


class RoutingTable:
    """Exchanges, queues and bindings of all virtual hosts, and the addresses of direct reply-to consumers.

    `decorators` are asked and told as `extensions` says.
    """

    __slots__ = (
        "version",
        "traced",
        "down",
        "recovering",
        "_decorators",
        "_vhosts",
        "_reply_channels",
        "_header_answers",
    )

    def __init__(self, decorators: tuple[ExchangeDecorator, ...] = ()) -> None:
        self._decorators = decorators
        self.version = 0
        self.traced: frozenset[str] = (
            frozenset()
        )  # virtual hosts whose messages are traced (AB-81); empty says so in one look
        self.down: frozenset[str] = (
            frozenset()
        )  # virtual hosts that have failed: they exist and cannot be opened (AB-171)
        self.recovering: set[str] = set()  # virtual hosts of which not all is in the table yet that was there before
        self._vhosts: dict[str, _Vhost] = {}
        self._reply_channels: dict[str, Any] = {}
        self._header_answers: tuple[int, dict[tuple[str, str], bool]] = (0, {})

    # --- what readers ask ---------------------------------------------------------------------------------------------

    def exchange(self, vhost: str, name: str) -> ExchangeRow | None:
        found = self._vhosts.get(vhost)
        return None if found is None else found.exchanges.get(name)

    def queue(self, vhost: str, name: str) -> QueueRow | None:
        found = self._vhosts.get(vhost)
        return None if found is None else found.queues.get(name)

    def route(
        self, vhost: str, exchange: str, routing_keys: Iterable[str], headers: Table | None = None
    ) -> tuple[QueueRow, ...]:
        """The queues that get the message, each once; none if the exchange does not exist.

        `routing_keys` is the publish key, then the CC and BCC keys (AB-75). Raises AmqpError 406 when the walk reaches an
        exchange of an unavailable type (AB-78).
        """
        host = self._vhosts.get(vhost)
        if host is None or exchange not in host.exchanges:
            return ()
        keys = routing_keys if isinstance(routing_keys, tuple) else tuple(routing_keys)
        if exchange == "":
            names: Iterable[str] = keys
        elif not self._decorators and exchange not in host.onward and host.exchanges[exchange].alternate is None:
            names = [name for _, name in host.routers[exchange].route(keys, headers)]
        else:
            names = _walk(host, exchange, keys, headers, self._decorators)
        return _rows(host.queues, names)

    def depends_on_headers(self, vhost: str, exchange: str) -> bool:
        """Whether a message published to this exchange may meet a headers exchange on its way."""
        host = self._vhosts.get(vhost)
        if host is None:
            return False
        if exchange not in host.onward:
            row = host.exchanges.get(exchange)
            if row is None or row.alternate is None:
                return row is not None and row.type == "headers"
        version, answers = self._header_answers
        if version != self.version:
            answers = {}
            self._header_answers = self.version, answers
        answer = answers.get((vhost, exchange))
        if answer is None:
            answer = answers[vhost, exchange] = any(row.type == "headers" for row in _reachable(host, exchange))
        return answer

    def reply_channel(self, channel_id: str) -> Any:
        """The address of the channel that consumes direct replies under this id, or None (AB-142)."""
        return self._reply_channels.get(channel_id)

    def has_vhost(self, vhost: str) -> bool:
        return vhost in self._vhosts

    def vhosts(self) -> tuple[str, ...]:
        return tuple(self._vhosts)

    def exchanges(self, vhost: str) -> tuple[ExchangeRow, ...]:
        found = self._vhosts.get(vhost)
        return () if found is None else tuple(found.exchanges.values())

    def queues(self, vhost: str) -> tuple[QueueRow, ...]:
        found = self._vhosts.get(vhost)
        return () if found is None else tuple(found.queues.values())

    def bindings(self, vhost: str) -> Iterator[Binding]:
        """All bindings, each queue's implicit one to the default exchange first (AB-68)."""
        host = self._vhosts.get(vhost)
        if host is not None:
            for name in host.queues:
                yield Binding("", "queue", name, name, NO_ARGUMENTS)
            for cell in host.by_source.values():
                yield from cell

    def has_binding(self, vhost: str, binding: Binding) -> bool:
        host = self._vhosts.get(vhost)
        return host is not None and binding in host.by_source.get(binding.source, ())

    def is_source(self, vhost: str, exchange: str) -> bool:
        """Whether any binding leads away from the exchange."""
        host = self._vhosts.get(vhost)
        return host is not None and exchange in host.by_source

    # --- what Metadata writes -----------------------------------------------------------------------------------------

    def add_vhost(self, vhost: str) -> bool:
        """A virtual host with the exchanges every one has (AB-64); False if it exists already (AB-169)."""
        if vhost in self._vhosts:
            return False
        self._vhosts[vhost] = _Vhost()
        for name, exchange_type, internal in DEFAULT_EXCHANGES:
            self.put_exchange(ExchangeRow(vhost, name, exchange_type, internal=internal))
        self.version += 1
        return True

    def remove_vhost(self, vhost: str) -> None:
        """Forget a virtual host and whatever is left in it."""
        del self._vhosts[vhost]
        self.traced -= {vhost}
        self.down -= {vhost}
        self.recovering.discard(vhost)
        self.version += 1

    def put_exchange(self, row: ExchangeRow) -> None:
        """Add an exchange, or replace its row; its type cannot change."""
        host = self._vhosts[row.vhost]
        is_new = row.name not in host.routers
        host.exchanges[row.name] = row
        if is_new:
            router_class = EXCHANGE_TYPES.get(row.type)
            host.routers[row.name] = (
                router_class() if router_class else UnavailableRouter(row.vhost, row.name, row.type)
            )
        self.version += 1
        if is_new:
            for decorator in self._decorators:
                notify(decorator.created, row)

    def remove_exchange(self, vhost: str, name: str) -> Removed:
        """Remove an exchange and its bindings; returns what went with it (AB-77)."""
        host = self._vhosts[vhost]
        row = host.exchanges[name]
        gone = _drop_exchange(host, name)
        self.version += 1
        self._notify_removed(vhost, gone.bindings, [row, *gone.exchanges])
        return gone

    def put_queue(self, row: QueueRow) -> None:
        """Add a queue, or replace its row; bindings stay."""
        self._vhosts[row.vhost].queues[row.name] = row
        self.version += 1

    def remove_queue(self, vhost: str, name: str) -> Removed:
        """Remove a queue and its bindings; returns what went with it (AB-77, AB-86)."""
        host = self._vhosts[vhost]
        del host.queues[name]
        gone = Removed([], [])
        _drop_bindings_to(host, ("queue", name), gone)
        self.version += 1
        self._notify_removed(vhost, gone.bindings, gone.exchanges)
        return gone

    def add_binding(self, vhost: str, binding: Binding) -> bool:
        """False if exactly that binding exists (AB-73). Source and destination must exist."""
        host = self._vhosts[vhost]
        cell = host.by_source.setdefault(binding.source, {})
        if binding in cell:
            return False
        cell[binding] = None
        host.by_destination.setdefault(binding.target, {})[binding] = None
        host.routers[binding.source].add(binding)
        if binding.kind == "exchange":
            host.onward.setdefault(binding.source, DestinationSet()).add(binding.target)
        self.version += 1
        for decorator in self._decorators:
            notify(decorator.bound, vhost, binding)
        return True

    def remove_binding(self, vhost: str, binding: Binding) -> Removed:
        """Remove a binding that exists; returns it and what went with it (AB-77)."""
        host = self._vhosts[vhost]
        gone = Removed([], [])
        _unlink(host, binding, gone)
        _drop_if_unbound(host, [binding.source], gone)
        self.version += 1
        self._notify_removed(vhost, gone.bindings, gone.exchanges)
        return gone

    def _notify_removed(self, vhost: str, bindings: Iterable[Binding], exchanges: Iterable[ExchangeRow]) -> None:
        for decorator in self._decorators:
            for binding in bindings:
                notify(decorator.unbound, vhost, binding)
            for row in exchanges:
                notify(decorator.deleted, row)

    def set_traced(self, vhost: str, on: bool) -> None:
        self.traced = self.traced | {vhost} if on else self.traced - {vhost}
        self.version += 1

    def set_down(self, vhost: str, is_down: bool = True) -> None:
        self.down = self.down | {vhost} if is_down else self.down - {vhost}
        self.version += 1

    def register_reply(self, channel_id: str, address: Any) -> None:
        self._reply_channels[channel_id] = address
        self.version += 1

    def unregister_reply(self, channel_id: str) -> None:
        if self._reply_channels.pop(channel_id, None) is not None:
            self.version += 1


# --- the walk ---------------------------------------------------------------------------------------------------------


def _walk(
    host: _Vhost, exchange: str, keys: tuple[str, ...], headers: Table | None, decorators: tuple[ExchangeDecorator, ...]
) -> Iterable[str]:
    """The names of the queues found from `exchange`, each once."""
    found: dict[str, None] = {}
    seen = {exchange}
    waiting = [exchange]
    while waiting:
        name = waiting.pop()
        if name == "":
            # Its bindings are implicit: it gets here only as somebody's alternate exchange.
            found.update(dict.fromkeys(key for key in keys if key in host.queues))
            continue
        destinations = host.routers[name].route(keys, headers)
        alternate = host.exchanges[name].alternate
        if not destinations and alternate is not None:
            destinations = (("exchange", alternate),)
        for decorator in decorators:
            destinations = (*destinations, *decorator.route(host.exchanges[name], keys, headers))
        for kind, destination in destinations:
            if kind == "queue":
                found[destination] = None
            elif destination not in seen and destination in host.exchanges:
                seen.add(destination)
                waiting.append(destination)
    return found


def _rows(queues: dict[str, QueueRow], names: Iterable[str]) -> tuple[QueueRow, ...]:
    """The rows of those names that exist, and of their extra queues (AB-79), each once."""
    rows: dict[str, QueueRow] = {}
    extras = []
    for name in names:
        row = queues.get(name)
        if row is not None:
            rows[name] = row
            if row.extra_queue is not None:
                extras.append(row.extra_queue)
    for name in extras:
        extra = queues.get(name)
        if extra is not None:
            rows[name] = extra
    return tuple(rows.values())


def _reachable(host: _Vhost, exchange: str) -> Iterator[ExchangeRow]:
    """Every exchange that some message published to this one could visit."""
    seen = {exchange}
    waiting = [exchange]
    while waiting:
        name = waiting.pop()
        row = host.exchanges.get(name)
        if row is None:
            continue
        yield row
        following = [] if row.alternate is None else [row.alternate]
        if name in host.onward:
            following += [destination for _, destination in host.onward[name].cell]
        for destination in following:
            if destination not in seen:
                seen.add(destination)
                waiting.append(destination)


# --- removal ----------------------------------------------------------------------------------------------------------


def _unlink(host: _Vhost, binding: Binding, gone: Removed) -> None:
    """Take a binding out of every place that knows it."""
    _discard(host.by_source, binding.source, binding)
    _discard(host.by_destination, binding.target, binding)
    host.routers[binding.source].remove(binding)
    if binding.kind == "exchange":
        onward = host.onward[binding.source]
        onward.remove(binding.target)
        if not onward:
            del host.onward[binding.source]
    gone.bindings.append(binding)


def _discard(cells: dict[Any, dict[Binding, None]], key: Any, binding: Binding) -> None:
    cell = cells[key]
    del cell[binding]
    if not cell:
        del cells[key]


def _drop_bindings_to(host: _Vhost, destination: Destination, gone: Removed) -> None:
    bindings = tuple(host.by_destination.get(destination, ()))
    for binding in bindings:
        _unlink(host, binding, gone)
    _drop_if_unbound(host, [binding.source for binding in bindings], gone)


def _drop_exchange(host: _Vhost, name: str) -> Removed:
    gone = Removed([], [])
    for binding in tuple(host.by_source.get(name, ())):
        _unlink(host, binding, gone)
    del host.exchanges[name]
    del host.routers[name]
    _drop_bindings_to(host, ("exchange", name), gone)
    return gone


def _drop_if_unbound(host: _Vhost, sources: list[str], gone: Removed) -> None:
    """AB-77: of exchanges that have just lost a binding, drop the auto-delete ones that have none left, and so on upward.

    A list of work and not recursion: a chain of exchanges may be longer than the stack.
    """
    waiting = sources
    while waiting:
        name = waiting.pop()
        row = host.exchanges.get(name)
        if row is None or not row.auto_delete or name in host.by_source:
            continue
        del host.exchanges[name]
        del host.routers[name]
        gone.exchanges.append(row)
        incoming = tuple(host.by_destination.get(("exchange", name), ()))
        for binding in incoming:
            _unlink(host, binding, gone)
        waiting += [binding.source for binding in incoming]
