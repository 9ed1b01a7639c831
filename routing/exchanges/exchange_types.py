"""The exchange types: which bindings of one exchange match a message (AB-69 to AB-72).

A router holds the bindings of one exchange in the data structure that its type needs:

    type      data structure                            route
    direct    routing key -> destinations               one dictionary look-up for each key
    fanout    destinations                              all of them
    topic     trie of words                             see `topic_trie`
    headers   required headers -> destinations          see `headers_index`

A router returns destinations of its own exchange only; `table` continues through exchanges among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ...amqp.constants import COMMAND_INVALID, PRECONDITION_FAILED
from ...amqp.errors import AmqpError, binary_text
from ...amqp.fields import TYPE_NAMES, Table
from ...parted_table import SPLIT_AT, Growing, in_parts
from ..destinations import Destination, DestinationSet
from ..phrases import exchange_phrase, value_text
from ..rows import Binding
from .headers_index import MATCH_MODES, HeadersIndex
from .topic_trie import TopicTrie


class Router(Protocol):
    """The bindings of one exchange. The caller adds each binding only once, and removes only bindings that it added."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        """The destinations of the bindings that match a message, each once."""


class DirectRouter:
    """Follows the bindings whose key equals a routing key (AB-69)."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: Growing[str, DestinationSet] = {}

    def add(self, binding: Binding) -> None:
        destinations = self._by_key.get(binding.routing_key)
        if destinations is None:
            destinations = self._by_key[binding.routing_key] = DestinationSet()
            if len(self._by_key) == SPLIT_AT:
                self._by_key = in_parts(self._by_key)
        destinations.add(binding.target)

    def remove(self, binding: Binding) -> None:
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding.target)
        if not destinations:
            del self._by_key[binding.routing_key]

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        if len(routing_keys) == 1:
            destinations = self._by_key.get(routing_keys[0])
            return () if destinations is None else destinations.as_tuple
        found: dict[Destination, None] = {}
        for key in routing_keys:
            destinations = self._by_key.get(key)
            if destinations is not None:
                found.update(dict.fromkeys(destinations.as_tuple))
        return tuple(found)


class FanoutRouter:
    """Follows all bindings (AB-69)."""

    __slots__ = ("_destinations",)

    def __init__(self) -> None:
        self._destinations = DestinationSet()

    def add(self, binding: Binding) -> None:
        self._destinations.add(binding.target)

    def remove(self, binding: Binding) -> None:
        self._destinations.remove(binding.target)

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        return self._destinations.as_tuple


class TopicRouter:
    """Follows the bindings whose key is a pattern that matches a routing key (AB-70)."""

    __slots__ = ("_trie",)

    def __init__(self) -> None:
        self._trie = TopicTrie()

    def is_bound(self) -> bool:
        """Whether the exchange has any binding."""
        return bool(self._trie)

    def has_patterns(self, word: str) -> bool:
        """Whether any binding has a pattern that begins with this word."""
        return self._trie.has_branch(word)

    def add(self, binding: Binding) -> None:
        self._trie.insert(binding.routing_key, binding.target)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding.target)

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        return self._trie.match(routing_keys)


class HeadersRouter:
    """Follows the bindings whose arguments match the headers (AB-71)."""

    __slots__ = ("_index",)

    def __init__(self) -> None:
        self._index = HeadersIndex()

    def add(self, binding: Binding) -> None:
        self._index.add(binding.arguments, binding.target)

    def remove(self, binding: Binding) -> None:
        self._index.remove(binding.arguments, binding.target)

    def route(self, routing_keys: tuple[str, ...], headers: Table | None) -> tuple[Destination, ...]:
        return self._index.find(headers)

    def header_names(self, most: int) -> Iterable[str] | None:
        """The headers that may decide where a message goes; None if they may be more than `most`."""
        return self._index.names(most)


class UnavailableRouter:
    """Refuses all messages for an exchange whose type this node does not have (AB-78)."""

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
            f"Cannot route message through {exchange_phrase(self._vhost, self._name)}: "
            f"exchange type {self._type} not found",
        )


EXCHANGE_TYPES: dict[str, type[DirectRouter] | type[FanoutRouter] | type[TopicRouter] | type[HeadersRouter]] = {
    "direct": DirectRouter,
    "fanout": FanoutRouter,
    "topic": TopicRouter,
    "headers": HeadersRouter,
}


def check_binding(exchange_type: str, arguments: Table) -> None:
    """Raise AmqpError 406 if an exchange of this type does not accept a binding with these arguments (AB-72)."""
    if exchange_type != "headers":
        return
    found = arguments.get("x-match")
    if found is None:
        return
    letter, value = found
    if letter != "S":
        raise AmqpError(
            PRECONDITION_FAILED,
            f"Invalid x-match field type {TYPE_NAMES[letter]} (value {_term(value)}); expected longstr",
        )
    if value not in MATCH_MODES:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"Invalid x-match field value {_term(value)}; expected all, any, all-with-x, or any-with-x",
        )


def _term(value: Any) -> str:
    """The value as RabbitMQ prints it in these texts: a string as an Erlang binary."""
    return binary_text(value) if isinstance(value, bytes) else value_text(value)


def check_exchange_type(name: str) -> None:
    """Raise AmqpError 503 for an unknown exchange type."""
    if name not in EXCHANGE_TYPES:
        raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{name}'")
