"""The routing table: finds the queues of a message (AB-64, AB-68 to AB-79).

Only the `Metadata` process writes the table. Every channel and queue of the node reads it directly, without sending a
message, as RabbitMQ's processes read ETS tables. Rows are immutable, so a reader may keep one. `version` is incremented
by every change, so a reader may cache results until the version differs. One change costs the same with ten bindings
and with a hundred thousand.

Routing starts at the exchange of the publish and follows bindings between exchanges; it visits each exchange once and
finds each queue once (AB-74). From an exchange that has no destination of its own for the message, it continues at the
alternate exchange (AB-76).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from ..amqp.fields import Table
from .decorators import ExchangeDecorator, notify
from .destinations import Destination, DestinationSet
from .exchange_types import EXCHANGE_TYPES, Router, UnavailableRouter
from .rows import NO_ARGUMENTS, Binding, ExchangeRow, QueueRow

Key = TypeVar("Key")

#: Name, type and whether internal, of the exchanges that every virtual host has (AB-64).
DEFAULT_EXCHANGES = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


class Removed(NamedTuple):
    """What was removed with a row: its bindings, auto-delete exchanges left without any (AB-77), and theirs."""

    exchanges: list[ExchangeRow]
    bindings: list[Binding]


class _Vhost:
    """The rows and routers of one virtual host."""

    __slots__ = ("exchanges", "routers", "queues", "by_source", "by_destination", "onward")

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeRow] = {}
        self.routers: dict[str, Router] = {}
        self.queues: dict[str, QueueRow] = {}
        self.by_source: dict[str, dict[Binding, None]] = {}
        self.by_destination: dict[Destination, dict[Binding, None]] = {}
        # Source -> exchanges among its destinations. An exchange without an entry needs no walk.
        self.onward: dict[str, DestinationSet] = {}


class RoutingTable:
    """Exchanges, queues and bindings of all virtual hosts, and the addresses of direct reply-to consumers.

    It calls the exchange decorators when it routes and when rows change.
    """

    __slots__ = (
        "version",
        "traced",
        "down",
        "recovering",
        "_decorators",
        "_vhosts",
        "_reply_channels",
    )

    def __init__(self, decorators: tuple[ExchangeDecorator, ...] = ()) -> None:
        self._decorators = decorators
        self.version = 0
        #: Virtual hosts whose messages are traced (AB-81).
        self.traced: frozenset[str] = frozenset()
        #: Virtual hosts that have failed: they exist but cannot be opened (AB-171).
        self.down: frozenset[str] = frozenset()
        #: Virtual hosts of which recovery has not yet added all rows.
        self.recovering: set[str] = set()
        self._vhosts: dict[str, _Vhost] = {}
        self._reply_channels: dict[str, Any] = {}

    # -- reading ---

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

        `routing_keys` are the publish key, then the CC and BCC keys (AB-75). Raises AmqpError 406 if the message
        reaches an exchange of an unavailable type (AB-78).
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
        """Whether the headers of a message published to this exchange may decide where it goes."""
        host = self._vhosts.get(vhost)
        if host is None:
            return False
        return bool(self._decorators) or any(row.type == "headers" for row in _reachable(host, exchange))

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
        """All bindings. Those of the queues to the default exchange, which are implicit, come first (AB-68)."""
        host = self._vhosts.get(vhost)
        if host is not None:
            for name in host.queues:
                yield Binding("", "queue", name, name, NO_ARGUMENTS)
            for bindings in host.by_source.values():
                yield from bindings

    def has_binding(self, vhost: str, binding: Binding) -> bool:
        host = self._vhosts.get(vhost)
        return host is not None and binding in host.by_source.get(binding.source, ())

    def is_source(self, vhost: str, exchange: str) -> bool:
        """Whether the exchange is the source of any binding."""
        host = self._vhosts.get(vhost)
        return host is not None and exchange in host.by_source

    # -- writing, by Metadata only ---

    def add_vhost(self, vhost: str) -> bool:
        """Add a virtual host with its default exchanges (AB-64). False if it exists already (AB-169)."""
        if vhost in self._vhosts:
            return False
        self._vhosts[vhost] = _Vhost()
        for name, exchange_type, internal in DEFAULT_EXCHANGES:
            self.put_exchange(ExchangeRow(vhost, name, exchange_type, internal=internal))
        self.version += 1
        return True

    def remove_vhost(self, vhost: str) -> None:
        """Remove a virtual host and everything that is still in it."""
        del self._vhosts[vhost]
        self.traced -= {vhost}
        self.down -= {vhost}
        self.recovering.discard(vhost)
        self.version += 1

    def put_exchange(self, row: ExchangeRow) -> None:
        """Add an exchange, or replace its row. The type of an exchange cannot change."""
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
        """Remove an exchange and its bindings; return what was removed with it (AB-77)."""
        host = self._vhosts[vhost]
        row = host.exchanges[name]
        gone = _drop_exchange(host, name)
        self.version += 1
        self._notify_removed(vhost, gone.bindings, [row, *gone.exchanges])
        return gone

    def put_queue(self, row: QueueRow) -> None:
        """Add a queue, or replace its row and keep its bindings."""
        self._vhosts[row.vhost].queues[row.name] = row
        self.version += 1

    def remove_queue(self, vhost: str, name: str) -> Removed:
        """Remove a queue and its bindings; return what was removed with it (AB-77, AB-86)."""
        host = self._vhosts[vhost]
        del host.queues[name]
        gone = Removed([], [])
        _drop_bindings_to(host, ("queue", name), gone)
        self.version += 1
        self._notify_removed(vhost, gone.bindings, gone.exchanges)
        return gone

    def add_binding(self, vhost: str, binding: Binding) -> bool:
        """Add a binding, whose source and destination must exist. False if an equal one exists (AB-73)."""
        host = self._vhosts[vhost]
        bindings = host.by_source.setdefault(binding.source, {})
        if binding in bindings:
            return False
        bindings[binding] = None
        host.by_destination.setdefault(binding.target, {})[binding] = None
        host.routers[binding.source].add(binding)
        if binding.kind == "exchange":
            host.onward.setdefault(binding.source, DestinationSet()).add(binding.target)
        self.version += 1
        for decorator in self._decorators:
            notify(decorator.bound, vhost, binding)
        return True

    def remove_binding(self, vhost: str, binding: Binding) -> Removed:
        """Remove a binding, which must exist; return it and what was removed with it (AB-77)."""
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


# -- following bindings between exchanges ---


def _walk(
    host: _Vhost, exchange: str, keys: tuple[str, ...], headers: Table | None, decorators: tuple[ExchangeDecorator, ...]
) -> Iterable[str]:
    """The names of the queues that the message reaches from `exchange`, each once."""
    found: dict[str, None] = {}
    seen = {exchange}
    waiting = [exchange]
    while waiting:
        name = waiting.pop()
        if name == "":
            # The default exchange is reached only as an alternate exchange. Its bindings are implicit.
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
    """The rows of the named queues that exist, and of their extra queues (AB-79), each once."""
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
            following += [destination for _, destination in host.onward[name].as_tuple]
        for destination in following:
            if destination not in seen:
                seen.add(destination)
                waiting.append(destination)


# -- removal ---


def _unlink(host: _Vhost, binding: Binding, gone: Removed) -> None:
    """Remove a binding from all indexes of the virtual host."""
    _discard(host.by_source, binding.source, binding)
    _discard(host.by_destination, binding.target, binding)
    host.routers[binding.source].remove(binding)
    if binding.kind == "exchange":
        onward = host.onward[binding.source]
        onward.remove(binding.target)
        if not onward:
            del host.onward[binding.source]
    gone.bindings.append(binding)


def _discard(index: dict[Key, dict[Binding, None]], key: Key, binding: Binding) -> None:
    bindings = index[key]
    del bindings[binding]
    if not bindings:
        del index[key]


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
    """Remove the auto-delete exchanges among `sources` that have no bindings left, then those bound to them (AB-77).

    `sources` have just lost a binding. This is a work list instead of a recursion, because a chain of exchanges may be
    longer than the stack.
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
