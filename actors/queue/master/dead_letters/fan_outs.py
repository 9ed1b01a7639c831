"""What waits in a `DeadLetterer` for its later turns: dead letters for very many queues, and the deaths behind them.

`FanOut` are dead letters that are sent to their queues at most once, some queues in each turn.

`WideHandOver` are dead messages that the journal hands over to very many queues. One frame of the journal records that
the messages have left and names all these queues, so the messages stay in their queue, pending, while the queues are
looked up, some in each turn. A crash meanwhile leaves the messages where they are.

`LaterDeaths` are messages that died behind those of a `WideHandOver`. They wait, because their dead letters must not
overtake the earlier ones.

Both may have messages that were *refused*: they died on arrival and never enter the queue. Nobody has an answer about
them before their dead letters are handed over or sent, so after a crash they are messages that never arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .....routing.wide_route import WideRoute

if TYPE_CHECKING:
    from .....amqp.fields import Table
    from .....routing.rows import QueueRow
    from .....store.messages.message import Origin, QueuedMessage
    from ....contracts.queue import AtMostOnceEntry


class Rows:
    """The rows of very many queues, to be taken some in each turn.

    route      finds the rows; None when it has found them
    number     chooses a shard of each queue that is sharded
    headers    a queue that is in their x-death gets nothing, because the messages came back to it; None: every queue
               gets them
    """

    __slots__ = ("_rows", "_taken", "headers", "number", "route")

    def __init__(
        self, route: WideRoute | None, rows: Sequence[QueueRow], number: int = 0, headers: Table | None = None
    ) -> None:
        self.route = route
        self._rows = rows
        self._taken = 0
        self.number = number
        self.headers = headers

    def take(self, most: int) -> Sequence[QueueRow]:
        """The next rows, at most this many; none if they still have to be looked up."""
        if self.route is not None:
            self.route.look_up(most)
            if self.route.rows is None:
                return ()
            self._rows, self.route = self.route.rows, None
        first, self._taken = self._taken, self._taken + most
        return self._rows[first : self._taken]

    @property
    def are_taken(self) -> bool:
        return self.route is None and self._taken >= len(self._rows)


class FanOut(NamedTuple):
    """Dead letters that are sent to `rows` at most once; each of these queues gets `entries`."""

    rows: Rows
    entries: list[AtMostOnceEntry]


class WideHandOver(NamedTuple):
    """Dead messages that leave the queue when all `rows` are taken, as dead letters with `origin` and `contents`.

    targets      the numbers of the queues, of those taken so far, to which the journal hands the dead letters over
    far          those of the taken rows to which the dead letters are sent at most once
    are_refused  whether the messages have died on arrival, instead of being pending
    """

    rows: Rows
    messages: Sequence[QueuedMessage]
    origin: Origin
    contents: Sequence[bytes]
    body_bytes: int
    targets: list[int]
    far: list[QueueRow]
    are_refused: bool


class LaterDeaths(NamedTuple):
    """Dead messages, still pending or refused, which die for this reason when their turn has come."""

    reason: str
    messages: Sequence[QueuedMessage]
    are_refused: bool = False
