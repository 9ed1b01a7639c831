"""The routing table: finds the queues of a message (AB-64, AB-68 to AB-79).

Every channel and queue of the node reads the table directly, without sending a message, as RabbitMQ's processes read
ETS tables. Only the `Metadata` process writes it: it publishes the changes that a command made to the rows of its
state, all of them in one step, so that no reader sees half a change. Rows are immutable and replaced whole, and so are
the tuples of destinations under a routing key, so a reader may keep them. `version` is incremented by every change, so
a reader may cache results until the version differs. One change costs the same with ten bindings and with a hundred
thousand.

The table has what follows from the rows on this node: routers, which find the bindings that match a message, and the
addresses of the queues. A queue is in the table from the moment when its process runs.

Routing starts at the exchange of the publish and follows bindings between exchanges; it visits each exchange once and
finds each queue once (AB-74). From an exchange that has no destination of its own for the message, it continues at the
alternate exchange (AB-76).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from sys import maxsize
from typing import Any

from ..amqp.fields import Table
from .arguments.exchange_arguments import alternate_exchange, exchange_window
from .changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ExchangePut,
    ExchangeRemoved,
    QueuePut,
    QueueRemoved,
    VhostRemoved,
)
from .decorators import ExchangeDecorator, notify, notify_of
from .destinations import Destination, DestinationSet
from .exchanges.exchange_types import EXCHANGE_TYPES, HeadersRouter, TopicRouter, UnavailableRouter
from .exchanges.exchange_windows import ExchangeWindows, carried_windows, reached_through
from .following import VhostTable, following, reachable, visits
from .queue_types import GROUP
from .rows import Binding, ExchangeRow, QueueRow
from .vhost_rows import VhostRows
from .wide_route import WideRoute, add_queues, extra_queues, with_extra_queues

#: The rows of more destinations than this are looked up a part at a time, and the last result is kept. If a message
#: visits as many exchanges, they are visited a part at a time as well.
WIDE = 256

#: If bindings name more headers than this, messages are routed by all their headers: `header_names` takes 0.15 µs for
#: each name, and is called for every message with headers.
NAMED_HEADERS = 1_024


class RoutingTable:
    """Exchanges, queues and bindings of all virtual hosts, and the addresses of direct reply-to consumers.

    It calls the exchange decorators when it routes and after rows have changed.
    """

    __slots__ = (
        "version",
        "traced",
        "down",
        "recovering",
        "_decorators",
        "_last_wide",
        "_queue_watch",
        "_vhosts",
        "_reply_channels",
        "_wide",
    )

    def __init__(self, decorators: tuple[ExchangeDecorator, ...] = (), wide: int = WIDE) -> None:
        self._decorators = decorators
        self._wide = wide
        #: Called with the virtual host and the name of each queue that comes, goes or changes, if the host has groups.
        self._queue_watch: Callable[[str, str], None] = _watch_nothing
        self.version = 0
        #: Virtual hosts whose messages are traced (AB-81).
        self.traced: frozenset[str] = frozenset()
        #: Virtual hosts that have failed: they exist but cannot be opened (AB-171).
        self.down: frozenset[str] = frozenset()
        #: Virtual hosts of which recovery has not yet added all rows.
        self.recovering: set[str] = set()
        self._vhosts: dict[str, VhostTable] = {}
        self._reply_channels: dict[str, Any] = {}
        #: The route of the last message that went to more than `wide` destinations, and the table's version then.
        self._last_wide: tuple[int, WideRoute] | None = None

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
        found = self.begin_route(vhost, exchange, routing_keys, headers)
        if isinstance(found, WideRoute):
            found.look_up(maxsize)
            assert found.rows is not None
            return found.rows
        return found

    def begin_route(
        self, vhost: str, exchange: str, routing_keys: Iterable[str], headers: Table | None = None
    ) -> tuple[QueueRow, ...] | WideRoute:
        """As `route`, but the queues still have to be looked up if they, or the exchanges on the way, are very many."""
        host = self._vhosts.get(vhost)
        if host is None or exchange not in host.exchanges:
            return ()
        keys = routing_keys if isinstance(routing_keys, tuple) else tuple(routing_keys)
        if exchange == "":
            names: Iterable[str] = [key for key in keys if key not in host.unbound] if host.unbound else keys
        elif not self._decorators and exchange not in host.onward and host.exchanges[exchange].alternate is None:
            destinations = host.routers[exchange].route(keys, headers)
            if len(destinations) > self._wide:
                return self._wide_route(host, destinations)
            names = [name for _, name in destinations]
        else:
            way = visits(host, exchange, keys, headers, self._decorators)
            found: dict[str, None] = {}
            for number, (_, onward) in enumerate(way, 1):
                add_queues(found, onward)
                if number == self._wide:
                    return WideRoute((), host.queues, found, way)
            if len(found) > self._wide:
                return self._wide_route(host, [("queue", name) for name in found])
            names = found
        return _rows(host.queues, names)

    def begin_rows(self, vhost: str, names: Sequence[str]) -> tuple[QueueRow, ...] | WideRoute:
        """The queues that have these names now, each once. They still have to be looked up if they are very many."""
        host = self._vhosts.get(vhost)
        if host is None:
            return ()
        if len(names) > self._wide:
            return WideRoute([("queue", name) for name in names], host.queues)
        return tuple([row for row in map(host.queues.get, names) if row is not None])

    def _wide_route(self, host: VhostTable, destinations: Sequence[Destination]) -> WideRoute:
        """The route to many queues, kept for the next message that goes to the same ones."""
        if self._last_wide is not None:
            version, route = self._last_wide
            if version == self.version and (route.destinations is destinations or route.destinations == destinations):
                return route
        route = WideRoute(destinations, host.queues)
        self._last_wide = self.version, route
        return route

    def is_topic_bound(self, vhost: str, exchange: str) -> bool:
        """Whether anything is bound to this topic exchange."""
        host = self._vhosts.get(vhost)
        router = None if host is None else host.routers.get(exchange)
        return isinstance(router, TopicRouter) and router.is_bound()

    def has_topic_patterns(self, vhost: str, exchange: str, word: str) -> bool:
        """Whether any pattern bound to this topic exchange begins with this word itself, not with a wildcard."""
        host = self._vhosts.get(vhost)
        router = None if host is None else host.routers.get(exchange)
        return isinstance(router, TopicRouter) and router.has_patterns(word)

    def depends_on_headers(self, vhost: str, exchange: str) -> bool:
        """Whether the headers of a message published to this exchange may decide where it goes.

        True as well if the message may visit so many exchanges that a look at each would take too long.
        """
        host = self._vhosts.get(vhost)
        if host is None:
            return False
        near = self._near(host, exchange)
        return bool(self._decorators) or near is None or any(row.type == "headers" for row in near)

    def _near(self, host: VhostTable, exchange: str) -> list[ExchangeRow] | None:
        """Every exchange that some message published to this one could visit; None if they are very many."""
        near = list(islice(reachable(host, exchange), self._wide + 1))
        return None if len(near) > self._wide else near

    def header_names(self, vhost: str, exchange: str) -> frozenset[bytes] | None:
        """The encoded names of the headers that may decide where a message goes that is published to this exchange.

        None if any header may: an exchange decorator reads them, bindings name very many headers, or the message may
        visit very many exchanges.
        """
        if self._decorators:
            return None
        host = self._vhosts.get(vhost)
        if host is None:
            return frozenset()
        near = self._near(host, exchange)
        if near is None:
            return None
        routers = [host.routers[row.name] for row in near if row.type == "headers"]
        found: set[bytes] = set()
        for router in routers:
            if isinstance(router, HeadersRouter):
                names = router.header_names(NAMED_HEADERS - len(found))
                if names is None:
                    return None
                found.update([name.encode("utf-8", "surrogateescape") for name in names])
        return frozenset(found)

    def exchange_windows(self, vhost: str) -> ExchangeWindows | None:
        """The windows of exchanges and of their queues (SP-30); None if the virtual host does not exist."""
        found = self._vhosts.get(vhost)
        return None if found is None else found.windows

    def exchanges_behind(self, vhost: str, exchange: str) -> list[str]:
        """Every exchange that some message published to this one could visit, itself included."""
        host = self._vhosts.get(vhost)
        return [] if host is None else [row.name for row in reachable(host, exchange)]

    def queue_window(self, vhost: str, queue: str) -> int | None:
        """How many messages the exchanges that lead to this queue have it remember; None if they ask for nothing."""
        found = self._vhosts.get(vhost)
        return None if found is None else found.windows.queues.get(queue)

    def came_through(self, vhost: str, exchange: str, keys: tuple[str, ...], headers: Table | None, queue: str) -> bool:
        """Whether a message published to `exchange` reaches the queue through an exchange that deduplicates."""
        host = self._vhosts.get(vhost)
        if host is None or not host.windows.exchanges or exchange not in host.exchanges:
            return False
        windows = host.windows
        if exchange in windows.exchanges:
            return True
        message = self.version, exchange, keys, headers
        if windows.last_way is None or windows.last_way[0] != message:
            way = dict(visits(host, exchange, keys, headers, self._decorators))
            windows.last_way = message, reached_through(windows.exchanges, way)
        return queue in windows.last_way[1]

    def reply_channel(self, channel_id: str) -> Any:
        """The address of the channel that consumes direct replies under this id, or None (AB-142)."""
        return self._reply_channels.get(channel_id)

    def has_shards(self, vhost: str) -> bool:
        """Whether the virtual host has any sharded queue."""
        found = self._vhosts.get(vhost)
        return found is not None and bool(found.shards)

    def has_unbound(self, vhost: str) -> bool:
        """Whether the virtual host has any queue that the default exchange is not bound to."""
        found = self._vhosts.get(vhost)
        return found is not None and bool(found.unbound)

    def groups(self, vhost: str) -> tuple[QueueRow, ...]:
        """The groups of the virtual host (QP-75), in the order of their names: a simulation depends on the order."""
        found = self._vhosts.get(vhost)
        if found is None or not found.groups:
            return ()
        return tuple([found.queues[name] for name in sorted(found.groups) if name in found.queues])

    def has_vhost(self, vhost: str) -> bool:
        return vhost in self._vhosts

    def vhosts(self) -> tuple[str, ...]:
        return tuple(self._vhosts)

    def queues(self, vhost: str) -> tuple[QueueRow, ...]:
        found = self._vhosts.get(vhost)
        return () if found is None else tuple(found.queues.values())

    def exchanges(self, vhost: str) -> tuple[ExchangeRow, ...]:
        found = self._vhosts.get(vhost)
        return () if found is None else tuple(found.exchanges.values())

    def count_bindings(self, vhost: str, exchange: str) -> int:
        """How many bindings have this exchange as their source, without the implicit ones of the default exchange."""
        found = self._vhosts.get(vhost)
        return 0 if found is None else found.bindings.get(exchange, 0)

    # -- writing, by Metadata only ---

    def watch_queues(self, watch: Callable[[str, str], None]) -> None:
        """Call `watch(vhost, name)` behind each change of a queue in a virtual host that has groups."""
        self._queue_watch = watch

    def add_vhost(self, vhost: str, rows: VhostRows | None = None) -> None:
        """Add a virtual host with these exchanges and bindings, without `rows` those of a new one (AB-64).

        Its queues are added by `put_queue` when their processes run.
        """
        rows = rows or VhostRows(vhost)
        host = self._vhosts[vhost] = VhostTable()
        for exchange in rows.exchanges.values():
            _put_exchange(host, exchange)
        for binding, _ in rows.bindings():
            _add_binding(host, binding)
        self.version += 1
        for decorator in self._decorators:
            for exchange in rows.exchanges.values():
                notify(decorator.created, exchange)
            for binding, _ in rows.bindings():
                notify(decorator.bound, vhost, binding)

    def remove_vhost(self, vhost: str) -> None:
        """Remove a virtual host and everything that is still in it."""
        self._vhosts.pop(vhost, None)
        self.traced -= {vhost}
        self.down -= {vhost}
        self.recovering.discard(vhost)
        self.version += 1

    def publish(self, changes: Sequence[Change]) -> None:
        """Put all the changes of one command into the table, then notify the decorators. No reader runs in between.

        A virtual host that is not in the table yet is left out, because `add_vhost` shows it with all its rows later.
        The address of a queue does not change; a queue that has none yet is shown by `put_queue`.
        """
        shown = [change for change in changes if self._show(change)]
        self.version += 1
        for change in shown:
            if isinstance(change, (QueuePut, QueueRemoved)) and self.groups(change.row.vhost):
                self._queue_watch(change.row.vhost, change.row.name)
        for decorator in self._decorators:
            for change in shown:
                notify_of(decorator, change)

    def _show(self, change: Change) -> bool:
        if isinstance(change, (QueuePut, QueueRemoved)):
            host = self._vhosts.get(change.row.vhost)
            if host is not None:
                (_replace_queue if type(change) is QueuePut else _remove_queue)(host, change.row)
        elif isinstance(change, (BindingAdded, BindingRemoved)):
            host = self._vhosts.get(change.vhost)
            if host is not None:
                (_add_binding if type(change) is BindingAdded else _remove_binding)(host, change.binding)
        elif isinstance(change, (ExchangePut, ExchangeRemoved)):
            host = self._vhosts.get(change.row.vhost)
            if host is not None:
                (_put_exchange if type(change) is ExchangePut else _remove_exchange)(host, change.row)
        else:
            host = self._vhosts.get(change.vhost)
            if type(change) is VhostRemoved:
                self.remove_vhost(change.vhost)
        return host is not None

    def put_queue(self, row: QueueRow) -> None:
        """Add a queue whose process runs, or replace its row; `row` has the address."""
        host = self._vhosts[row.vhost]
        host.queues[row.name] = row
        if row.shard_of is not None:
            host.shards.add(row.name)
            host.unbound.add(row.name)
        elif row.type == GROUP.name:
            host.groups.add(row.name)
            host.unbound.add(row.name)
        self.version += 1
        if host.groups:
            self._queue_watch(row.vhost, row.name)

    def hide_exchange(self, vhost: str, name: str) -> None:
        """Take an exchange out of the table at once, before the changes that remove its bindings and then its row.

        Its router stays until then: freeing one with a hundred thousand bindings takes 8 ms.
        """
        host = self._vhosts.get(vhost)
        if host is not None and host.exchanges.pop(name, None) is not None:
            self.version += 1

    def hide_queue(self, vhost: str, name: str) -> None:
        """Take a queue out of the table at once, before the changes that remove its bindings and then its row."""
        host = self._vhosts.get(vhost)
        if host is not None:
            host.queues.pop(name, None)
            self.version += 1

    def set_traced(self, vhost: str, on: bool) -> None:
        self.traced = self.traced | {vhost} if on else self.traced - {vhost}
        self.version += 1

    def set_down(self, vhost: str, is_down: bool = True) -> None:
        self.down = self.down | {vhost} if is_down else self.down - {vhost}
        self.version += 1

    def set_policy_alternate(self, vhost: str, exchange: str, alternate: str | None) -> None:
        """Set the alternate exchange that policies define, None if none does. The exchange's argument wins (AB-158)."""
        host = self._vhosts.get(vhost)
        row = None if host is None else host.exchanges.get(exchange)
        if host is None or row is None:
            return
        given = alternate_exchange(row.arguments)
        effective = alternate if given is None else given
        if row.alternate != effective:
            host.exchanges[exchange] = replace(row, alternate=effective)
            self.version += 1

    def find_carried(self, vhost: str) -> bool:
        """Find out again which exchanges are reached from those with a deduplication window; True if that has
        changed.
        """
        host = self._vhosts.get(vhost)
        if host is None or not (host.windows.exchanges or host.windows.carried):
            return False
        before = host.windows.carried
        host.windows.carried = carried_windows(host.windows.exchanges, lambda name: following(host, name))
        return host.windows.carried != before

    def set_queue_window(self, vhost: str, queue: str, window: int | None) -> None:
        """Set what `queue_window` returns."""
        windows = self._vhosts[vhost].windows
        if window is None:
            windows.queues.pop(queue, None)
        else:
            windows.queues[queue] = window
        self.version += 1

    def register_reply(self, channel_id: str, address: Any) -> None:
        self._reply_channels[channel_id] = address
        self.version += 1

    def unregister_reply(self, channel_id: str) -> None:
        if self._reply_channels.pop(channel_id, None) is not None:
            self.version += 1


def _watch_nothing(vhost: str, name: str) -> None:
    """Stands for the watch until Metadata has started."""


def _rows(queues: dict[str, QueueRow], names: Iterable[str]) -> tuple[QueueRow, ...]:
    """The rows of the named queues that exist, and of their extra queues (AB-79), each once."""
    rows = [row for row in map(queues.get, dict.fromkeys(names)) if row is not None]
    return with_extra_queues(queues, rows, extra_queues(rows))


# -- changes of one virtual host ---


def _put_exchange(host: VhostTable, row: ExchangeRow) -> None:
    router_class = EXCHANGE_TYPES.get(row.type)
    host.exchanges[row.name] = row
    window = exchange_window(row.arguments)
    if window is not None:
        host.windows.exchanges[row.name] = window
    host.routers[row.name] = router_class() if router_class else UnavailableRouter(row.vhost, row.name, row.type)
    host.bindings[row.name] = 0


def _remove_exchange(host: VhostTable, row: ExchangeRow) -> None:
    # An exchange that was hidden has been removed already.
    host.exchanges.pop(row.name, None)
    host.routers.pop(row.name, None)
    host.bindings.pop(row.name, None)
    host.windows.exchanges.pop(row.name, None)


def _replace_queue(host: VhostTable, row: QueueRow) -> None:
    shown = host.queues.get(row.name)
    if shown is not None:
        # A queue without an address does not run yet; `put_queue` shows it when it does.
        if shown.address is not None or row.state != "running":
            host.queues[row.name] = row.at(shown.address)
    elif row.state != "running":
        # Its process has ended before it was shown. Clients are refused with the state (AB-63).
        host.queues[row.name] = row


def _remove_queue(host: VhostTable, row: QueueRow) -> None:
    host.queues.pop(row.name, None)
    if row.name in host.unbound:
        host.unbound.discard(row.name)
        host.shards.discard(row.name)
        host.groups.discard(row.name)


def _add_binding(host: VhostTable, binding: Binding) -> None:
    host.routers[binding.source].add(binding)
    host.bindings[binding.source] += 1
    if binding.kind == "exchange":
        host.onward.setdefault(binding.source, DestinationSet()).add(binding.target)


def _remove_binding(host: VhostTable, binding: Binding) -> None:
    host.routers[binding.source].remove(binding)
    host.bindings[binding.source] -= 1
    if binding.kind == "exchange":
        onward = host.onward[binding.source]
        onward.remove(binding.target)
        if not onward:
            del host.onward[binding.source]
