"""`VhostRows`: the exchanges, queues and bindings of one virtual host, and what is removed with each of them.

These are the rows of Metadata's state. Each method that removes rows returns the changes; nothing here depends on a
clock, on chance or on a process. A removal takes with it the bindings of what is removed (AB-86), then the auto-delete
exchanges of which these were the last outgoing bindings (AB-77), then the bindings to those exchanges, and so on. One
change costs the same with ten bindings and with a hundred thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from ..parted_table import Growing, key_parts, put_in
from .changes import BindingRemoved, Change, ExchangeRemoved, QueueRemoved
from .destinations import Destination
from .rows import NO_ARGUMENTS, Binding, ExchangeRow, QueueRow

Key = TypeVar("Key")
Item = TypeVar("Item")
Value = TypeVar("Value")

#: Removing this many arguments of bindings is as much work as removing one binding without arguments.
ARGUMENTS_AS_ONE = 32

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

#: Their names.
DEFAULT_NAMES = frozenset(name for name, _, _ in DEFAULT_EXCHANGES)


def default_exchanges(vhost: str) -> list[ExchangeRow]:
    """The exchanges that every virtual host has (AB-64)."""
    return [ExchangeRow(vhost, name, type_, internal=internal) for name, type_, internal in DEFAULT_EXCHANGES]


class VhostRows:
    """The rows of one virtual host; at first it has the default exchanges. Readers must not change the dictionaries."""

    __slots__ = ("vhost", "exchanges", "queues", "by_owner", "shard_count", "homes", "_by_source", "_by_destination")

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost
        self.exchanges = {row.name: row for row in default_exchanges(vhost)}
        self.queues: dict[str, QueueRow] = {}
        #: How many of the queues are shards. A limit on queues does not count them (FC-89).
        self.shard_count = 0
        #: How many queues are at home on each node.
        self.homes: Counter[str] = Counter()
        #: By connection id: the names of its exclusive queues. Shards are left out: they go with their logical queue.
        self.by_owner: dict[str, Growing[str, None]] = {}
        # The value of a binding is whether it is durable. That never changes, because whether its source and its
        # destination are durable never changes: a client can only delete one of them, which removes the binding, and
        # declare it again.
        self._by_source: dict[str, Growing[Binding, bool]] = {}
        self._by_destination: dict[Destination, Growing[Binding, bool]] = {}

    # -- reading ---

    def binding(self, binding: Binding) -> bool | None:
        """Whether this binding is durable; None if there is no such binding."""
        found = self._by_source.get(binding.source)
        return None if found is None else found.get(binding)

    def is_source(self, exchange: str) -> bool:
        """Whether the exchange is the source of any binding."""
        return exchange in self._by_source

    def count_bindings(self, end: str | Destination) -> int:
        """How many bindings have this exchange as their source, or this destination."""
        return len(self._by_source.get(end, ()) if isinstance(end, str) else self._by_destination.get(end, ()))

    def bindings(self) -> Iterator[tuple[Binding, bool]]:
        """Each binding and whether it is durable, without the implicit ones to the default exchange."""
        for bindings in self._by_source.values():
            yield from bindings.items()

    def all_bindings(self) -> Iterator[Binding]:
        """All bindings; those of the queues to the default exchange, which are implicit, come first (AB-68).

        The caller may add and remove rows between two bindings. A binding that exists all the time comes once.
        """
        for name in tuple(self.queues):
            yield Binding("", "queue", name, name, NO_ARGUMENTS)
        for source in tuple(self._by_source):
            for part in key_parts(self._by_source.get(source, {})):
                yield from part

    def count(self) -> int:
        """How many rows there are, besides the default exchanges."""
        bindings = sum(map(len, self._by_source.values()))
        return bindings + len(self.queues) + len(self.exchanges) - len(DEFAULT_EXCHANGES)

    def bindings_of(self, end: str | Destination) -> Iterator[Binding]:
        """The bindings from an exchange, or to a destination. The caller may add and remove others between two."""
        for part in key_parts(self._of(end)):
            yield from part

    def is_more(self, end: str | Destination, most: int) -> bool:
        """Whether removing the bindings from an exchange, or to a destination, is more work than `most` bindings."""
        bindings = self._of(end)
        return len(bindings) > most or sum(map(_work, bindings)) > most

    def some_bindings(self, end: str | Destination, most: int) -> tuple[Binding, ...]:
        """Bindings from an exchange, or to a destination, at least one: as many as are as much work to remove as `most`
        bindings without arguments.
        """
        return _within(self._of(end), most)

    def _of(self, end: str | Destination) -> Growing[Binding, bool]:
        return self._by_source.get(end, {}) if isinstance(end, str) else self._by_destination.get(end, {})

    def is_large(self, most: int) -> bool:
        """Whether removing all rows is more work than removing `most` bindings without arguments."""
        return self.count() > most or sum(_work(binding) for binding, _ in self.bindings()) > most

    def some(self, count: int) -> tuple[tuple[Binding, ...], tuple[str, ...], tuple[str, ...]]:
        """`count` rows besides the default exchanges, or all if there are fewer: bindings, names of queues and of
        exchanges. A binding with very many arguments counts as several.
        """
        bindings = _within((binding for binding, _ in self.bindings()), count)
        count -= sum(map(_work, bindings))
        if count <= 0:
            return bindings, (), ()
        count += len(bindings)
        queues = tuple(islice(self.queues, count - len(bindings)))
        added = (name for name in self.exchanges if name not in DEFAULT_NAMES)
        return bindings, queues, tuple(islice(added, count - len(bindings) - len(queues)))

    # -- writing ---

    def put_exchange(self, row: ExchangeRow) -> None:
        """Add an exchange."""
        self.exchanges[row.name] = row

    def put_queue(self, row: QueueRow) -> None:
        """Add a queue, or replace its row and keep its bindings."""
        if row.shard_of is not None and row.name not in self.queues:
            self.shard_count += 1
        before = self.queues.get(row.name)
        if before is None or before.node != row.node:
            self.homes[row.node] += 1
            if before is not None:
                self.homes[before.node] -= 1
        self.queues[row.name] = row
        if row.exclusive_owner is not None and row.shard_of is None:
            put_in(self.by_owner, row.exclusive_owner, row.name, None)

    def add_binding(self, binding: Binding, durable: bool) -> None:
        """Add a binding that does not exist, between an exchange and a destination that do."""
        put_in(self._by_source, binding.source, binding, durable)
        put_in(self._by_destination, binding.target, binding, durable)

    def remove_binding(self, binding: Binding) -> list[Change]:
        """Remove a binding, which must exist, and what goes with it (AB-77)."""
        changes: list[Change] = [self._unlink(binding)]
        exchanges = self._without_bindings([binding.source], changes)
        return changes + exchanges

    def remove_queue(self, name: str) -> list[Change]:
        """Remove a queue, which must exist, with its bindings and what goes with them (AB-77, AB-86)."""
        row = self.queues.pop(name)
        self.homes[row.node] -= 1
        self.shard_count -= row.shard_of is not None
        if row.exclusive_owner is not None and row.shard_of is None:
            _discard(self.by_owner, row.exclusive_owner, name)
        changes: list[Change] = []
        exchanges = self._drop_bindings_to(("queue", name), changes)
        changes.append(QueueRemoved(row))
        return changes + exchanges

    def remove_exchange(self, name: str) -> list[Change]:
        """Remove an exchange, which must exist, with its bindings and what goes with them (AB-77)."""
        changes: list[Change] = [self._unlink(binding) for binding in tuple(self._by_source.get(name, ()))]
        row = self.exchanges.pop(name)
        exchanges = self._drop_bindings_to(("exchange", name), changes)
        changes.append(ExchangeRemoved(row))
        return changes + exchanges

    def trim(
        self, bindings: Iterable[Binding], queues: Iterable[str] = (), exchanges: Iterable[str] = ()
    ) -> list[Change]:
        """Remove these bindings, queues and exchanges, as far as they still exist, and what goes with them (AB-77)."""
        changes: list[Change] = []
        for binding in bindings:
            if self.binding(binding) is not None:
                changes += self.remove_binding(binding)
        for name in queues:
            if name in self.queues:
                changes += self.remove_queue(name)
        for name in exchanges:
            if name in self.exchanges:
                changes += self.remove_exchange(name)
        return changes

    def remove_transient(self) -> list[Change]:
        """Remove all queues, exchanges and bindings that are not durable, and what goes with them (AB-77)."""
        bindings = [binding for binding, durable in self.bindings() if not durable]
        queues = [row.name for row in self.queues.values() if not row.durable]
        return self.trim(bindings, queues, [row.name for row in self.exchanges.values() if not row.durable])

    def remove_everything(self) -> list[Change]:
        """Remove all rows."""
        changes: list[Change] = [BindingRemoved(self.vhost, *each) for each in self.bindings()]
        changes += [QueueRemoved(row) for row in self.queues.values()]
        changes += [ExchangeRemoved(row) for row in self.exchanges.values()]
        for rows in (self.exchanges, self.queues, self.by_owner, self._by_source, self._by_destination):
            rows.clear()
        self.homes.clear()
        self.shard_count = 0
        return changes

    def _unlink(self, binding: Binding) -> BindingRemoved:
        durable = _discard(self._by_source, binding.source, binding)
        _discard(self._by_destination, binding.target, binding)
        return BindingRemoved(self.vhost, binding, durable)

    def _drop_bindings_to(self, destination: Destination, changes: list[Change]) -> list[Change]:
        """Remove the bindings to `destination` and note that in `changes`; return the exchanges that go with them."""
        bindings = tuple(self._by_destination.get(destination, ()))
        changes += [self._unlink(binding) for binding in bindings]
        return self._without_bindings([binding.source for binding in bindings], changes)

    def _without_bindings(self, sources: Iterable[str], changes: list[Change]) -> list[Change]:
        """Remove the auto-delete exchanges among `sources` that are the source of no binding any more, then likewise
        those bound to them (AB-77). Note in `changes` the bindings that go with them, and return the exchanges.

        `sources` have just lost a binding. This is a work list instead of a recursion, because a chain of exchanges may
        be longer than the stack.
        """
        gone: list[Change] = []
        waiting = list(sources)
        while waiting:
            name = waiting.pop()
            row = self.exchanges.get(name)
            if row is None or not row.auto_delete or name in self._by_source:
                continue
            del self.exchanges[name]
            gone.append(ExchangeRemoved(row))
            incoming = tuple(self._by_destination.get(("exchange", name), ()))
            changes += [self._unlink(binding) for binding in incoming]
            waiting += [binding.source for binding in incoming]
        return gone


def _work(binding: Binding) -> int:
    """The work of removing a binding, where one without arguments is 1: its arguments are hashed and compared."""
    return 1 + len(binding.arguments) // ARGUMENTS_AS_ONE


def _within(bindings: Iterable[Binding], most: int) -> tuple[Binding, ...]:
    """The first of the bindings: as many as are as much work to remove as `most` bindings without arguments."""
    found = []
    for binding in bindings:
        if most <= 0:
            break
        found.append(binding)
        most -= _work(binding)
    return tuple(found)


def _discard(index: dict[Key, Growing[Item, Value]], key: Key, item: Item) -> Value:
    """Remove `item` from the items of `key`, and return its value."""
    items = index[key]
    value = items[item]
    del items[item]
    if not items:
        del index[key]
    return value
