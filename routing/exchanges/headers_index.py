"""`HeadersIndex`: the bindings of a headers exchange, found by the headers of a message (AB-71).

Comparing the message with each binding would cost more with every binding, so the index has dictionaries of what the
bindings require. A binding becomes one or more *requirements*, each a set of headers that must all be there:

    all     one requirement with every argument
    any     a requirement for each argument

The *shape* of a requirement is the names that it needs. For each shape there is a dictionary from the required values
to destinations. So a message costs one access to a dictionary for each shape whose names it has, however many bindings
share the shape; publishers and consumers agree on names, so there are few shapes. A shape is tried only if the message
has its *anchor*, one of its names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from ...amqp.fields import Table
from ..destinations import Destination, DestinationSet

#: The values that `x-match` may have.
MATCH_MODES = (b"all", b"any", b"all-with-x", b"any-with-x")

#: A required header: name, type letter and value.
_Argument = tuple[str, str, Any]
_Values = tuple[Hashable, ...]


class _Shape(NamedTuple):
    """The names of a requirement."""

    #: Headers whose values are compared. A name may repeat, because an argument may.
    compared: tuple[str, ...]
    #: Headers that need only be there, because their argument is void.
    present: tuple[str, ...]


class HeadersIndex:
    """Finds the destinations whose requirements a message meets."""

    __slots__ = ("_anchors", "_by_anchor", "_destinations", "_names", "_unconditional")

    def __init__(self) -> None:
        #: By shape: the destinations for each combination of values.
        self._destinations: dict[_Shape, dict[_Values, DestinationSet]] = {}
        #: The destinations of bindings that require nothing.
        self._unconditional = DestinationSet()
        self._anchors: dict[_Shape, str] = {}
        self._by_anchor: dict[str, dict[_Shape, None]] = {}
        #: How many shapes have each name. Other headers of a message are not compared with anything.
        self._names: Counter[str] = Counter()

    def add(self, arguments: Table, target: Destination) -> None:
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
            destinations.add(target)

    def remove(self, arguments: Table, target: Destination) -> None:
        """Undo one `add`."""
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

    def names(self) -> Iterable[str]:
        """The headers that bindings name. No other header of a message decides anything."""
        return self._names

    def _anchor(self, shape: _Shape) -> None:
        """Choose the anchor that has the fewest shapes yet: so a name that all shapes share becomes no long list."""
        names = dict.fromkeys(shape.compared + shape.present)
        anchor = min(names, key=lambda name: len(self._by_anchor.get(name, ())))
        self._anchors[shape] = anchor
        self._names.update(tuple(names))
        self._by_anchor.setdefault(anchor, {})[shape] = None

    def _drop_anchor(self, shape: _Shape) -> None:
        anchor = self._anchors.pop(shape)
        for name in dict.fromkeys(shape.compared + shape.present):
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        shapes = self._by_anchor[anchor]
        del shapes[shape]
        if not shapes:
            del self._by_anchor[anchor]


_NOTHING = _Shape((), ())


def _requirements(arguments: Table) -> list[tuple[_Shape, _Values]]:
    """What a message must have to match a binding with these arguments: the headers of one of these requirements."""
    mode = _match_mode(arguments)
    skips_x = mode in (b"all", b"any")
    required = [entry for entry in arguments if entry[0] != "x-match" and not (skips_x and entry[0].startswith("x-"))]
    if mode in (b"all", b"all-with-x"):
        return [_requirement(required)]
    return list(dict.fromkeys([_requirement([entry]) for entry in required]))


def _requirement(required: list[_Argument]) -> tuple[_Shape, _Values]:
    compared = sorted([(name, letter, value) for name, letter, value in required if letter != "V"], key=_name)
    present = sorted({name for name, letter, _ in required if letter == "V"})
    shape = _Shape(tuple([name for name, _, _ in compared]), tuple(present))
    return shape, tuple([_comparable(value) for _, _, value in compared])


def _name(entry: _Argument) -> str:
    return entry[0]


def _match_mode(arguments: Table) -> bytes:
    # A binding in the data directory may have a value that `check_binding` no longer accepts. It means the default.
    found = arguments.get("x-match")
    return found[1] if found is not None and found[1] in MATCH_MODES else b"all"


def _comparable(value: Any) -> Hashable:
    """Something that equals the same of another value exactly if the two values match.

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
