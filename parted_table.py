"""`PartedTable`: a table that may have any number of entries, and of which no entry takes long to add.

A dict copies all its entries when it has no room for another one. That takes 1.5 ms with 43,690 strings as keys and
4 ms with twice as many, and a client that opens channels or binds a queue fills several dicts in the same turn. A
`PartedTable` divides its entries among 64 dicts as soon as it has `SPLIT_AT` of them. Each of these dicts copies a 64th
part, and hardly two of them do so in the same turn.

A look-up takes 0.2 µs, which is five times as long as in a dict. So the tables that are used for each batch of messages
stay dicts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Default = TypeVar("Default")
Group = TypeVar("Group", bound=Hashable)

#: Entries with which a table is divided. Dividing them takes 0.2 ms.
SPLIT_AT = 512
#: A power of two.
_PARTS = 64


class PartedTable(Generic[K, V]):
    """The part of a dict's interface that the broker uses for its large tables.

    As long as there are fewer than `SPLIT_AT` entries they are in the order in which they were added, as in a dict.
    With more they are in no particular order. As with a dict, nothing may be added or removed during an iteration.
    """

    __slots__ = ("_mask", "_parts", "_size")

    def __init__(self, entries: Iterable[tuple[K, V]] = ()) -> None:
        self._parts: list[dict[K, V]] = [dict(entries)]
        self._mask = 0
        self._size = len(self._parts[0])
        if self._size >= SPLIT_AT:
            self._split()

    # The part of a key follows from the hash of a tuple, because the hash of a number is the number itself: numbers
    # that follow each other would fill all parts alike, and all parts would copy their entries in the same turn.

    def __setitem__(self, key: K, value: V) -> None:
        part = self._parts[hash((key,)) & self._mask]
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._size += 1
            if self._size == SPLIT_AT and not self._mask:
                self._split()

    def _split(self) -> None:
        self._mask = mask = _PARTS - 1
        parts: list[dict[K, V]] = [{} for _ in range(_PARTS)]
        for key, value in self._parts[0].items():
            parts[hash((key,)) & mask][key] = value
        self._parts = parts

    def __getitem__(self, key: K) -> V:
        return self._parts[hash((key,)) & self._mask][key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: Default) -> V | Default: ...
    def get(self, key: K, default: Default | None = None) -> V | Default | None:
        return self._parts[hash((key,)) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash((key,)) & self._mask]

    def __delitem__(self, key: K) -> None:
        del self._parts[hash((key,)) & self._mask][key]
        self._size -= 1

    def pop(self, key: K, default: Default) -> V | Default:
        """Remove the entry and return its value; `default` if there is none."""
        part = self._parts[hash((key,)) & self._mask]
        if key not in part:
            return default
        self._size -= 1
        return part.pop(key)

    def popitem(self) -> tuple[K, V]:
        """Remove an entry, the one that was added last if there are fewer than `SPLIT_AT`, and return it."""
        for part in reversed(self._parts):
            if part:
                self._size -= 1
                return part.popitem()
        raise KeyError("the table is empty")

    def clear(self) -> None:
        self._parts, self._mask, self._size = [{}], 0, 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._parts)

    def values(self) -> Iterable[V]:
        """The values. Unlike the view of a dict, they can be iterated over only once."""
        return chain.from_iterable([part.values() for part in self._parts])

    def key_parts(self) -> Iterator[list[K]]:
        """The keys of one part after the other, like `parts`."""
        return map(list, self._parts)

    def parts(self) -> Iterator[list[V]]:
        """The values of one part after the other, as new lists.

        Between two of them entries may be added and removed. Making one list of 65,535 values takes 3 ms, because each
        value has to come from memory for its count of references.
        """
        return (list(part.values()) for part in self._parts)

    def items(self) -> Iterable[tuple[K, V]]:
        """The keys with their values. Unlike the view of a dict, they can be iterated over only once."""
        return chain.from_iterable([part.items() for part in self._parts])


#: A table that is a dict while it is small.
Growing = dict[K, V] | PartedTable[K, V]


def in_parts(table: Growing[K, V]) -> PartedTable[K, V]:
    """A dict with its entries in a `PartedTable`; a `PartedTable` stays as it is.

    Tables of which nearly every process has a small one, and for which a dict is smaller and quicker, are dicts until
    they have `SPLIT_AT` entries:

        table[key] = value
        if len(table) == SPLIT_AT:
            table = in_parts(table)
    """
    return table if isinstance(table, PartedTable) else PartedTable(table.items())


def put_in(tables: Growing[Group, Growing[K, V]], group: Group, key: K, value: V) -> None:
    """Put an entry into the table of its group, which is made if it is missing and grows as `in_parts` describes."""
    table = tables.get(group)
    if table is None:
        table = tables[group] = {}
    table[key] = value
    if len(table) == SPLIT_AT:
        tables[group] = in_parts(table)


def key_parts(table: Growing[K, V]) -> Iterator[list[K]]:
    """The keys of a table, as `PartedTable.key_parts`; those of a dict are one part."""
    return table.key_parts() if isinstance(table, PartedTable) else iter([list(table)])
