"""`HeadersIndex`: the bindings of a headers exchange, found by the headers of a message (AB-71).

Comparing the message with each binding would cost more with every binding, so the index has dictionaries of what the
bindings require. A binding becomes one or more *requirements*, each a set of headers that must all be there:

    all     one requirement with every argument
    any     a requirement for each argument

The *shape* of a requirement is the names that it needs. For each shape there is a dictionary from the required values
to destinations. So a message costs one access to a dictionary for each shape whose names it has, however many bindings
share the shape; publishers and consumers agree on names, so there are few shapes. A shape is tried only if the message
has its *anchor*, one of its names.

A client may bind with as many arguments as fit into a frame. With 8,000 of them, what the index would have to make
takes 30 ms, and nothing interrupts it. So a binding with more than `WIDE` arguments is *wide*: it has no entries in the
dictionaries, and each message is compared with it. That is quick: a message seldom has as many headers as a wide
binding with `all` requires, and for one with `any` it costs a look-up for each header of the message.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ...amqp.fields import Table
from ...parted_table import SPLIT_AT, Growing, in_parts, put_in
from ..destinations import Destination, DestinationSet

#: The values that `x-match` may have.
MATCH_MODES = (b"all", b"any", b"all-with-x", b"any-with-x")

#: A binding with more arguments than this is compared with each message.
WIDE = 128

#: A required header: name, type letter and value.
_Argument = tuple[str, str, Any]
_Values = tuple[Hashable, ...]


class _RequiredNames(NamedTuple):
    """The names of a requirement."""

    #: Headers whose values are compared. A name may repeat, because an argument may.
    compared: tuple[str, ...]
    #: Headers that need only be there, because their argument is void.
    present: tuple[str, ...]


class _WideBinding:
    """The headers that a binding with very many arguments requires, all of them or any."""

    __slots__ = ("_by_name", "_needs_all", "destinations")

    def __init__(self, arguments: Table) -> None:
        self._needs_all, required = _required(arguments)
        #: The requirements for each name. Nearly always there is one for each, and a dict display makes them in half
        #: the time.
        self._by_name: dict[str, list[_Argument]] = {entry[0]: [entry] for entry in required}
        if len(self._by_name) < len(required):
            self._by_name = {}
            for entry in required:
                self._by_name.setdefault(entry[0], []).append(entry)
        self.destinations = DestinationSet()

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def is_met(self, headers: Mapping[str, Any]) -> bool:
        """Whether a message has the required headers; `headers` has the value of each of its headers."""
        by_name = self._by_name
        if not self._needs_all:
            return any([_meets(headers[name], entry) for name in headers for entry in by_name.get(name, ())])
        if len(headers) < len(by_name):
            return False
        return all(
            name in headers and all([_meets(headers[name], entry) for entry in by_name[name]]) for name in by_name
        )


class HeadersIndex:
    """Finds the destinations whose requirements a message meets."""

    __slots__ = ("_anchors", "_by_anchor", "_destinations", "_names", "_unconditional", "_wide", "_wide_names")

    def __init__(self) -> None:
        #: By shape: the destinations for each combination of values.
        self._destinations: Growing[_RequiredNames, Growing[_Values, DestinationSet]] = {}
        #: The destinations of bindings that require nothing.
        self._unconditional = DestinationSet()
        self._anchors: Growing[_RequiredNames, str] = {}
        self._by_anchor: Growing[str, Growing[_RequiredNames, None]] = {}
        #: How many shapes have each name. Other headers of a message are not compared with anything, unless there are
        #: wide bindings.
        self._names: Growing[str, int] = {}
        #: The wide bindings by their arguments, and how many names they have.
        self._wide: dict[Table, _WideBinding] = {}
        self._wide_names = 0

    def add(self, arguments: Table, target: Destination) -> None:
        if len(arguments) > WIDE:
            wide = self._wide.get(arguments)
            if wide is None:
                wide = self._wide[arguments] = _WideBinding(arguments)
                self._wide_names += len(wide)
            wide.destinations.add(target)
            return
        for shape, values in _requirements(arguments):
            if shape == _NOTHING:
                self._unconditional.add(target)
                continue
            by_values = self._destinations.get(shape)
            if by_values is None:
                by_values = self._destinations[shape] = {}
                self._anchor(shape)
            destinations = by_values.get(values)
            if destinations is None:
                destinations = by_values[values] = DestinationSet()
                if len(by_values) == SPLIT_AT:
                    self._destinations[shape] = in_parts(by_values)
            destinations.add(target)
        if len(self._anchors) >= SPLIT_AT:
            self._destinations, self._anchors = in_parts(self._destinations), in_parts(self._anchors)

    def remove(self, arguments: Table, target: Destination) -> None:
        """Undo one `add`."""
        if len(arguments) > WIDE:
            wide = self._wide[arguments]
            wide.destinations.remove(target)
            if not wide.destinations:
                del self._wide[arguments]
                self._wide_names -= len(wide)
            return
        for shape, values in _requirements(arguments):
            if shape == _NOTHING:
                self._unconditional.remove(target)
                continue
            by_values = self._destinations[shape]
            destinations = by_values[values]
            destinations.remove(target)
            if not destinations:
                del by_values[values]
                if not by_values:
                    del self._destinations[shape]
                    self._drop_anchor(shape)

    def find(self, headers: Table | None) -> tuple[Destination, ...]:
        """The destinations for a message with these headers, each once. The first of repeated headers counts."""
        found = dict.fromkeys(self._unconditional.as_tuple)
        if self._wide:
            self._find_wide(headers or (), found)
        by_anchor = self._by_anchor
        if not by_anchor or not headers:
            return tuple(found)
        values: dict[str, Hashable] = {}
        names = self._names
        for name, _, value in headers:
            if name in names and name not in values:
                values[name] = _comparable(value)
        for name in values:
            for shape in by_anchor.get(name, ()):
                try:
                    key = tuple([values[needed] for needed in shape.compared])
                except KeyError:
                    continue
                destinations = self._destinations[shape].get(key)
                if destinations is not None and all([needed in values for needed in shape.present]):
                    found.update(dict.fromkeys(destinations.as_tuple))
        return tuple(found)

    def _find_wide(self, headers: Iterable[_Argument], found: dict[Destination, None]) -> None:
        values: dict[str, Any] = {}
        for name, _, value in headers:
            values.setdefault(name, value)
        for wide in self._wide.values():
            if wide.is_met(values):
                found.update(dict.fromkeys(wide.destinations.as_tuple))

    def names(self, most: int) -> Iterable[str] | None:
        """The headers that bindings name, None if that may be more than `most`.

        Any other header of a message has no effect on its route.
        """
        if len(self._names) + self._wide_names > most:
            return None
        return chain(self._names, chain.from_iterable(self._wide.values()))

    def _anchor(self, shape: _RequiredNames) -> None:
        """Choose the anchor that has the fewest shapes yet: so a name that all shapes share becomes no long list."""
        names = dict.fromkeys(shape.compared + shape.present)
        anchor = min(names, key=lambda name: len(self._by_anchor.get(name, ())))
        self._anchors[shape] = anchor
        for name in names:
            self._names[name] = self._names.get(name, 0) + 1
        if len(self._names) >= SPLIT_AT:
            self._names = in_parts(self._names)
        put_in(self._by_anchor, anchor, shape, None)
        if len(self._by_anchor) == SPLIT_AT:
            self._by_anchor = in_parts(self._by_anchor)

    def _drop_anchor(self, shape: _RequiredNames) -> None:
        anchor = self._anchors[shape]
        del self._anchors[shape]
        for name in dict.fromkeys(shape.compared + shape.present):
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        shapes = self._by_anchor[anchor]
        del shapes[shape]
        if not shapes:
            del self._by_anchor[anchor]


_NOTHING = _RequiredNames((), ())


def _requirements(arguments: Table) -> list[tuple[_RequiredNames, _Values]]:
    """The requirements of a binding with these arguments. A message matches if it has the headers of one of them."""
    needs_all, required = _required(arguments)
    if needs_all:
        return [_requirement(required)]
    return list(dict.fromkeys([_requirement([entry]) for entry in required]))


def _required(arguments: Table) -> tuple[bool, list[_Argument]]:
    """Whether a message must meet all arguments, or one is enough; and the arguments that are compared with headers."""
    mode = _match_mode(arguments)
    skips_x = mode in (b"all", b"any")
    required = [entry for entry in arguments if entry[0] != "x-match" and not (skips_x and entry[0].startswith("x-"))]
    return mode in (b"all", b"all-with-x"), required


def _meets(value: Any, required: _Argument) -> bool:
    """Whether a header has the required value; a void argument requires none."""
    return required[1] == "V" or _comparable(value) == _comparable(required[2])


def _requirement(required: list[_Argument]) -> tuple[_RequiredNames, _Values]:
    compared = sorted([(name, letter, value) for name, letter, value in required if letter != "V"], key=_name)
    present = sorted({name for name, letter, _ in required if letter == "V"})
    shape = _RequiredNames(tuple([name for name, _, _ in compared]), tuple(present))
    return shape, tuple([_comparable(value) for _, _, value in compared])


def _name(entry: _Argument) -> str:
    return entry[0]


def _match_mode(arguments: Table) -> bytes:
    # A binding in the data directory may have a value that `check_binding` no longer accepts. It means the default.
    found = arguments.get("x-match")
    return found[1] if found is not None and found[1] in MATCH_MODES else b"all"


def _comparable(value: Any) -> Hashable:
    """A value to compare in the place of this one: those of two values are equal if the two match, and only then.

    Type letters are not compared, so numbers match by value, but a bool matches only bools: True equals 1 in Python and
    not in AMQP. Tables and arrays become flat, because Python compares nested tuples by recursion.
    """
    if isinstance(value, bool):
        return "t", value
    if not isinstance(value, tuple):
        scalar: Hashable = value
        return scalar
    flat: list[Any] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        flat.append(type(item) if not isinstance(item, tuple) else len(item))
        if isinstance(item, tuple):
            waiting += reversed(item)
        else:
            flat.append(item)
    return tuple(flat)
