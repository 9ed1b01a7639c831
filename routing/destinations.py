"""Destinations of bindings, and a set of them that is read far more often than it changes."""

from __future__ import annotations

from typing import Literal

from ..parted_table import SPLIT_AT, Growing, in_parts

Kind = Literal["queue", "exchange"]
#: Kind and name of a queue or exchange.
Destination = tuple[str, str]


class DestinationSet:
    """The destinations of some bindings, with the number of bindings of each. Fewer than `SPLIT_AT` are in the order in
    which they were added.

    `as_tuple` is made when it is first read after a change. Otherwise an exchange that gains 100,000 bindings one by
    one would copy the growing tuple each time.
    """

    __slots__ = ("_counts", "_tuple")

    def __init__(self) -> None:
        self._counts: Growing[Destination, int] = {}
        self._tuple: tuple[Destination, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, destination: Destination) -> None:
        self._counts[destination] = self._counts.get(destination, 0) + 1
        if len(self._counts) == SPLIT_AT:
            self._counts = in_parts(self._counts)
        self._tuple = None

    def remove(self, destination: Destination) -> None:
        """Undo one `add`. Raises KeyError if there was none."""
        if self._counts[destination] == 1:
            del self._counts[destination]
            self._tuple = None
        else:
            self._counts[destination] -= 1

    @property
    def as_tuple(self) -> tuple[Destination, ...]:
        """The destinations, each once."""
        if self._tuple is None:
            self._tuple = tuple(self._counts)
        return self._tuple
