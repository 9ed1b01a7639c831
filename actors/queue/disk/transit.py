"""`Transit`: the dead letters that a durable queue hands over to others, and takes from them, by way of the journal.

`store.journal.in_transit` describes the way. One frame of the journal records that a dead letter has left its queue and
that the journal has it. Another frame records that the target has taken it from the journal and what it has made of it.
So no crash loses or doubles a dead letter.

**Out.** `hand_over` records dead letters. The caller records in the same turn that the dead messages are gone
(`BackingQueue.move`), and then calls `close`. Everything that is recorded between two calls of `close` is in one frame.

**In.** A message with a large body is an entry of the index that names a body in the message store, and the entry must
not be on the disk before the body is. So large bodies are written first, under the ids that the dead letters have in
transit, and only then does the queue take the dead letters. Dead letters that arrive meanwhile wait behind them.

Limits: `DeadLetterer` chooses the targets, and `Intake` stores or delivers the dead letters that arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....store.bodies.store_client import StoreClient
from ....store.data_dir.data_dir import queue_number
from ....store.data_dir.vhost_dir import LEVEL_BITS
from ....store.journal.in_transit import HandedOver
from ....store.journal.log_writer import LogWriter
from ....store.messages.message import Origin, body_size, properties_size
from ....store.messages.message_ids import SharedIds, as_bytes

if TYPE_CHECKING:
    from ....routing.rows import QueueRow
    from ...contracts.disk import HandedEntry


class Transit:
    """The dead letters of the queue `number`. `log` and `bodies` gather what the queue writes."""

    __slots__ = ("_bodies", "_embed_below", "_ids", "_log", "_queue", "_waiting")

    def __init__(
        self,
        number: int,
        log: LogWriter,
        bodies: StoreClient,
        embed_below: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        #: As `number_in_journal` has it.
        self._queue = number << LEVEL_BITS
        self._log = log
        self._bodies = bodies
        self._embed_below = embed_below
        self._ids = SharedIds(random_bytes)
        #: Dead letters that wait until their large bodies are on the disk, and later ones without large bodies. Each
        #: list comes with the position that `StoreClient.durable` must reach before its bodies are on the disk; 0 if it
        #: has no large bodies. None while no dead letter waits, because an empty deque takes 760 bytes.
        self._waiting: deque[tuple[int, list[HandedEntry]]] | None = None

    # -- out

    def hand_over(self, targets: Sequence[int], origin: Origin, contents: Sequence[bytes], body_bytes: int) -> None:
        """Record that the journal has these dead letters now, and passes them on to the durable queues with these
        numbers (`number_in_journal`).
        """
        first_id = self._ids.take(contents, 0)
        handed = HandedOver(tuple(targets), first_id, origin, contents, body_bytes, origin.persistent)
        self._log.hand_over(self._queue, handed)

    def close(self) -> None:
        """End the journal's frame, because everything that must be in one frame is recorded."""
        self._log.cut()

    # -- in

    def arrived(self, entries: list[HandedEntry], take: Callable[[list[HandedEntry]], None]) -> None:
        """Pass dead letters to `take`: at once, or in a later call of `stored` if they have to wait for bodies."""
        large = [
            (as_bytes(first_id + at), content)
            for _, contents, _, first_id, is_recorded, _ in entries
            if is_recorded
            for at, content in enumerate(contents)
            if self._is_large(content)
        ]
        if large or self._waiting:
            self._waiting = self._waiting or deque()
            self._waiting.append((self._bodies.write_at_once(large) if large else 0, entries))
        else:
            take(entries)

    def stored(self, take: Callable[[list[HandedEntry]], None]) -> None:
        """Pass dead letters to `take` whose bodies have reached the disk. Called when more bodies have."""
        while self._waiting and self._waiting[0][0] <= self._bodies.durable:
            take(self._waiting.popleft()[1])
        self._waiting = self._waiting or None

    def take_over(self, first_id: int, count: int) -> None:
        """Record that the queue has taken these dead letters from the journal.

        The queue calls this in the turn in which it records what it makes of them, so that one frame has both.
        """
        self._log.take_over(self._queue, first_id, count)

    def drop_bodies(self, first_id: int, contents: Sequence[bytes]) -> None:
        """Remove the bodies that were written for these dead letters, which the queue does not keep."""
        self._bodies.remove([as_bytes(first_id + at) for at, content in enumerate(contents) if self._is_large(content)])

    def give_up(self) -> None:
        """Drop the dead letters that wait, because the queue ends. The journal keeps them if the queue is kept."""
        for _, entries in self._waiting or ():
            for _, contents, _, first_id, is_recorded, _ in entries:
                if is_recorded:
                    self.drop_bodies(first_id, contents)
        self._waiting = None

    def _is_large(self, content: bytes) -> bool:
        return len(content) >= self._embed_below and body_size(content) + properties_size(content) >= self._embed_below


def number_in_journal(row: QueueRow) -> int:
    """The number of a durable queue in the journal, to which dead letters are handed over: that of its level 0."""
    return queue_number(row.queue_id) << LEVEL_BITS
