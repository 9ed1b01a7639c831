"""`WideRoute`: the rows of the queues of a message that goes to very many queues, looked up a part at a time.

Finding the rows of 20,000 queues takes 10 ms, because neither the names nor the rows are in the processor's cache. A
channel looks up a few hundred of them in each of its turns. All channels that publish to the same destinations share
one `WideRoute`, so only the first message after a change of the routing table waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .destinations import Destination
from .rows import QueueRow


class WideRoute:
    """The rows of `destinations`, all of which are queues. `rows` is None until the last one is looked up.

    A queue that was deleted before its look-up is left out, and one that was declared again under its name is found, as
    if the message had been routed at that moment.
    """

    __slots__ = ("_extras", "_found", "_looked_up", "_queues", "destinations", "rows")

    def __init__(self, destinations: Sequence[Destination], queues: Mapping[str, QueueRow]) -> None:
        self.destinations = destinations
        self.rows: tuple[QueueRow, ...] | None = None
        #: The routing table's own rows by name, which may change between two calls of `look_up`.
        self._queues = queues
        self._found: list[QueueRow] = []
        self._extras: list[str] = []
        self._looked_up = 0

    def look_up(self, most: int) -> int:
        """Look up at most `most` further rows, and return how many were looked up."""
        if self.rows is not None:
            return 0
        begin = self._looked_up
        part = self.destinations[begin : begin + most]
        get = self._queues.get
        found = [row for _, name in part if (row := get(name)) is not None]
        self._found += found
        self._extras += extra_queues(found)
        self._looked_up += len(part)
        if self._looked_up == len(self.destinations):
            self.rows, self._found = with_extra_queues(self._queues, self._found, self._extras), []
        return len(part)


def extra_queues(rows: list[QueueRow]) -> list[str]:
    """The names of the extra queues of these queues (AB-79)."""
    return [row.extra_queue for row in rows if row.extra_queue is not None]


def with_extra_queues(queues: Mapping[str, QueueRow], rows: list[QueueRow], extras: list[str]) -> tuple[QueueRow, ...]:
    """These rows and those of their extra queues, which have the names `extras`, each once."""
    if extras:
        every = dict.fromkeys([row.name for row in rows] + [name for name in extras if name in queues])
        rows = [queues[name] for name in every]
    return tuple(rows)
