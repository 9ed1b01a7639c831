"""The exchange types: which of an exchange's own bindings a message follows (AB-69 to AB-72).

A router holds the bindings of one exchange in the shape its type wants:

    type      shape                                     route
    direct    routing key -> destinations               a dictionary lookup a key
    fanout    destinations                              all of them
    topic     trie of words                             `topic_trie`
    headers   binding -> its arguments, taken apart     every binding in turn

Walking on to other exchanges is `routing`'s. `Binding`s are values: equal means the same binding (AB-73).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import TYPE_NAMES, Table
from .destinations import Destination, DestinationSet
from .phrases import exchange_phrase, value_text
from .topic_trie import TopicTrie

NO_ARGUMENTS = Table()


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding. `arguments` are sorted by name, so that equal bindings are equal values: make it with `Binding.of`."""

    source: str
    kind: str  # of the destination: 'queue' or 'exchange'
    destination: str
    routing_key: str
    arguments: Table

    @classmethod
    def of(cls, source: str, kind: str, destination: str, routing_key: str, arguments: Table) -> Binding:
        return cls(source, kind, destination, routing_key, Table(sorted(arguments, key=_name)))

    @property
    def target(self) -> Destination:
        return self.kind, self.destination


def _name(entry: tuple[str, str, Any]) -> str:
    return entry[0]


class Router(Protocol):
    """The bindings of one exchange. `add` and `remove` are told of each binding once."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        """Destinations, each once."""


class DirectRouter:
    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, DestinationSet] = {}

    def add(self, binding: Binding) -> None:
        destinations = self._by_key.get(binding.routing_key)
        if destinations is None:
            destinations = self._by_key[binding.routing_key] = DestinationSet()
        destinations.add(binding.target)

    def remove(self, binding: Binding) -> None:
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding.target)
        if not destinations:
            del self._by_key[binding.routing_key]

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        if len(routing_keys) == 1:
            destinations = self._by_key.get(routing_keys[0])
            return () if destinations is None else destinations.cell
        found: dict[Destination, None] = {}
        for key in routing_keys:
            destinations = self._by_key.get(key)
            if destinations is not None:
                found.update(dict.fromkeys(destinations.cell))
        return tuple(found)


class FanoutRouter:
    __slots__ = ("_destinations",)

    def __init__(self) -> None:
        self._destinations = DestinationSet()

    def add(self, binding: Binding) -> None:
        self._destinations.add(binding.target)

    def remove(self, binding: Binding) -> None:
        self._destinations.remove(binding.target)

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        return self._destinations.cell


class TopicRouter:
    __slots__ = ("_trie",)

    def __init__(self) -> None:
        self._trie = TopicTrie()

    def add(self, binding: Binding) -> None:
        self._trie.insert(binding.routing_key, binding.target)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding.target)

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        return self._trie.match(routing_keys)


class HeadersRouter:
    __slots__ = ("_patterns",)

    def __init__(self) -> None:
        self._patterns: dict[Binding, tuple[bool, tuple[tuple[str, str, Any], ...]]] = {}

    def add(self, binding: Binding) -> None:
        mode = _match_mode(binding.arguments)
        skip_x = mode in (b"all", b"any")
        wanted = tuple(
            entry for entry in binding.arguments if entry[0] != "x-match" and not (skip_x and entry[0].startswith("x-"))
        )
        self._patterns[binding] = mode in (b"any", b"any-with-x"), wanted

    def remove(self, binding: Binding) -> None:
        del self._patterns[binding]

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        values: dict[str, Any] = {}
        for name, _, value in headers or ():
            values.setdefault(name, value)
        found: dict[Destination, None] = {}
        for binding, (any_suffices, wanted) in self._patterns.items():
            matches = (_matches(values, entry) for entry in wanted)
            if any(matches) if any_suffices else all(matches):
                found[binding.target] = None
        return tuple(found)


_MATCH_MODES = (b"all", b"any", b"all-with-x", b"any-with-x")


def _match_mode(arguments: Table) -> bytes:
    # Stored data may hold what a declaration no longer accepts; it then means the default (AB-71).
    found = arguments.get("x-match")
    return found[1] if found is not None and found[1] in _MATCH_MODES else b"all"


def _matches(values: dict[str, Any], entry: tuple[str, str, Any]) -> bool:
    name, letter, wanted = entry
    if name not in values:
        return False
    if letter == "V":
        return True
    value = values[name]
    # Types are not compared and numbers go by value, but to Python True is also the number 1, and to AMQP it is not.
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


class UnavailableRouter:
    """An exchange whose type this node does not have: it keeps its bindings and refuses messages (AB-78)."""

    __slots__ = ("_vhost", "_name", "_type")

    def __init__(self, vhost: str, name: str, exchange_type: str) -> None:
        self._vhost = vhost
        self._name = name
        self._type = exchange_type

    def add(self, binding: Binding) -> None:
        pass

    def remove(self, binding: Binding) -> None:
        pass

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"Cannot route message through {exchange_phrase(self._vhost, self._name)}: exchange type {self._type} not found",
        )


EXCHANGE_TYPES: dict[str, type[DirectRouter] | type[FanoutRouter] | type[TopicRouter] | type[HeadersRouter]] = {
    "direct": DirectRouter,
    "fanout": FanoutRouter,
    "topic": TopicRouter,
    "headers": HeadersRouter,
}


def check_binding(exchange_type: str, arguments: Table) -> None:
    """Whether an exchange of this type accepts a binding with these arguments, else C406 (AB-72)."""
    if exchange_type != "headers":
        return
    found = arguments.get("x-match")
    if found is None:
        return
    letter, value = found
    if letter != "S":
        raise AmqpError(
            PRECONDITION_FAILED,
            f"Invalid x-match field type {TYPE_NAMES[letter]} (value {value_text(value)}); expected longstr",
        )
    if value not in _MATCH_MODES:
        raise AmqpError(
            PRECONDITION_FAILED,
            f'Invalid x-match field value "{value_text(value)}"; expected all, any, all-with-x, or any-with-x',
        )
