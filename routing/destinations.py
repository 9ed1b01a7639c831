"""Where a binding leads, and a set of such places that is read far more often than it changes."""

from __future__ import annotations

from typing import Literal

Kind = Literal["queue", "exchange"]
Destination = tuple[str, str]  # (kind, name)


class DestinationSet:
    """Destinations with the number of bindings that lead to each, in the order in which they came.

    `cell` is them as a tuple. It is made when it is first read after a change: an exchange that gains 100,000 bindings one
    by one would otherwise copy the growing tuple each time.
    """

    __slots__ = ("_counts", "_cell")

    def __init__(self) -> None:
        self._counts: dict[Destination, int] = {}
        self._cell: tuple[Destination, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, destination: Destination) -> None:
        self._counts[destination] = self._counts.get(destination, 0) + 1
        self._cell = None

    def remove(self, destination: Destination) -> None:
        """Undo one `add`. Raises KeyError if there was none."""
        if self._counts[destination] == 1:
            del self._counts[destination]
            self._cell = None
        else:
            self._counts[destination] -= 1

    @property
    def cell(self) -> tuple[Destination, ...]:
        if self._cell is None:
            self._cell = tuple(self._counts)
        return self._cell
