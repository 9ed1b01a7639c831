"""`WideRoute`: the rows of the queues of a message that goes to very many queues, or passes very many exchanges.

Finding the rows of 20,000 queues takes 10 ms, because neither the names nor the rows are in the processor's cache. A
channel looks up a few hundred of them in each of its turns. All channels that publish to the same destinations share
one `WideRoute`, so only the first message after a change of the routing table waits.

A message that passes 20,000 exchanges, each bound to the one before, would take 30 ms until its queues are known. Its
`WideRoute` visits a few hundred exchanges in each turn, then looks up the queues. Other messages do not share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from .destinations import Destination
from .rows import QueueRow


class WideRoute:
    """The rows of `destinations`, all of which are queues. `rows` is None until the last one is looked up.

    If `way` is given, `names` has the queues that were found so far, `way` goes on to the next exchanges, and
    `destinations` is empty until there are no more.

    A queue that was deleted before its look-up is left out, and one that was declared again under its name is found, as
    if the message had been routed at that moment.
    """

    __slots__ = ("_extras", "_found", "_looked_up", "_names", "_queues", "_way", "destinations", "rows")

    def __init__(
        self,
        destinations: Sequence[Destination],
        queues: Mapping[str, QueueRow],
        names: dict[str, None] | None = None,
        way: Iterator[tuple[str, Sequence[Destination]]] | None = None,
    ) -> None:
        self.destinations = destinations
        self.rows: tuple[QueueRow, ...] | None = None
        #: The routing table's own rows by name, which may change between two calls of `look_up`.
        self._queues = queues
        self._found: list[QueueRow] = []
        self._extras: list[str] = []
        self._looked_up = 0
        self._names = {} if names is None else names
        self._way = way

    def look_up(self, most: int) -> int:
        """Visit further exchanges and look up further rows, `most` together; return how many.

        Raises AmqpError 406 if an exchange is of an unavailable type (AB-78).
        """
        if self.rows is not None:
            return 0
        visited = 0 if self._way is None else self._go_on(self._way, most)
        if self._way is not None:
            return visited
        begin = self._looked_up
        part = self.destinations[begin : begin + most - visited]
        get = self._queues.get
        found = [row for _, name in part if (row := get(name)) is not None]
        self._found += found
        self._extras += extra_queues(found)
        self._looked_up += len(part)
        if self._looked_up == len(self.destinations):
            self.rows, self._found = with_extra_queues(self._queues, self._found, self._extras), []
        return visited + len(part)

    def _go_on(self, way: Iterator[tuple[str, Sequence[Destination]]], most: int) -> int:
        """Visit at most `most` further exchanges; return how many."""
        visited = 0
        for _, destinations in islice(way, most):
            add_queues(self._names, destinations)
            visited += 1
        if visited < most:
            self.destinations = [("queue", name) for name in self._names]
            self._names, self._way = {}, None
        return visited


def add_queues(names: dict[str, None], destinations: Iterable[Destination]) -> None:
    """Add to `names` those of the destinations that are queues."""
    for kind, name in destinations:
        if kind == "queue":
            names[name] = None


def extra_queues(rows: list[QueueRow]) -> list[str]:
    """The names of the extra queues of these queues (AB-79)."""
    return [row.extra_queue for row in rows if row.extra_queue is not None]


def with_extra_queues(queues: Mapping[str, QueueRow], rows: list[QueueRow], extras: list[str]) -> tuple[QueueRow, ...]:
    """These rows and those of their extra queues, which have the names `extras`, each once."""
    if extras:
        every = dict.fromkeys([row.name for row in rows] + [name for name in extras if name in queues])
        rows = [queues[name] for name in every]
    return tuple(rows)
