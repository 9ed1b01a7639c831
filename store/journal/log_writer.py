"""Encoding and gathering one queue's journal records until they are sent to the journal.

Positions count this writer's own records, from 1. The journal confirms with the same numbers: `durable up to` a
position. The levels of a priority queue share one writer, each under its own queue number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...seams import seam
from ..messages.records import Type, encode_run, encode_sizes, encode_spans, record
from ..messages.run import Run


class QueueRecords(NamedTuple):
    """Gathered records of one queue number.

    parts         the encoded records, as buffers
    records       how many records
    messages      how many messages they publish
    next_number   where the queue's numbering stands after them, None if it was deleted
    sizes         the sizes of segments that they record
    """

    queue: int
    parts: list[bytes]
    records: int
    messages: int
    next_number: int | None
    sizes: dict[int, int]


class LogWriter:
    """Gathers records until `take`.

    has_gathered   there is something to take
    position       records ever made
    durable        the position up to which the journal has synced them
    is_journaled   False for a queue that no start recovers: the sizes of its segments are not recorded
    """

    __slots__ = ("_gathered", "_messages", "_next", "_sizes", "durable", "has_gathered", "is_journaled", "position")

    def __init__(self, is_journaled: bool = True) -> None:
        self.has_gathered = False
        self.is_journaled = is_journaled
        self.position = self.durable = 0
        self._gathered: dict[int, list[list[bytes]]] = {}
        self._messages: dict[int, int] = {}
        self._next: dict[int, int | None] = {}
        self._sizes: dict[int, dict[int, int]] = {}

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int:
        """Record the publish of a run without holes; returns the position.

        The contents are stubs if the bodies are in the message store (`is_stored`).
        """
        self._next[queue] = run.end
        self._messages[queue] = self._messages.get(queue, 0) + len(run.contents)
        return self._add(queue, record(Type.PUBLISH, queue, encode_run(run, is_stored)))

    @seam("which acknowledgements the journal records")
    def ack(self, queue: int, spans: Sequence[range]) -> int:
        """Record that messages left the queue for good; returns the position. `spans` as `run.spans` returns them."""
        return self._add(queue, record(Type.ACK, queue, [encode_spans(spans)]))

    def delete(self, queue: int) -> int:
        """Record that the queue was deleted; returns the position. A queue without a record needs none for that."""
        if queue not in self._next:
            return self.position
        self._next[queue] = None
        return self._add(queue, record(Type.DELETE, queue, []))

    def resume(self, queue: int, next_number: int) -> None:
        """Note that the journal may have records of the queue from before this writer."""
        self._next[queue] = next_number

    def skip_to(self, queue: int, next_number: int) -> None:
        """Note that the messages below `next_number` were published without a record.

        The journal learns where the numbering stands from the queue's next record.
        """
        self._next[queue] = next_number

    def reserve(self, queue: int, number: int) -> int:
        """Record that the numbering continues at `number` or above after an unclean end; returns the position."""
        self._next[queue] = number
        return self._add(queue, record(Type.STATE, queue, [number.to_bytes(8, "big")]))

    def sizes(self, queue: int, sizes: dict[int, int]) -> int:
        """Record the sizes of segments, so that a start notices a segment that was shortened; returns the position.

        The size is 0 for a segment that has no message left. Its file may be removed when the position is durable.
        """
        if not self.is_journaled:
            return 0
        self._sizes.setdefault(queue, {}).update(sizes)
        return self._add(queue, record(Type.SIZES, queue, [encode_sizes(sizes)]))

    def _add(self, queue: int, parts: list[bytes]) -> int:
        self.has_gathered = True
        self._gathered.setdefault(queue, []).append(parts)
        self._next.setdefault(queue, 0)
        self.position += 1
        return self.position

    def take(self) -> list[QueueRecords]:
        """The records gathered since the last call."""
        self.has_gathered = False
        gathered, self._gathered = self._gathered, {}
        messages, self._messages = self._messages, {}
        sizes, self._sizes = self._sizes, {}
        return [
            QueueRecords(
                queue,
                [part for parts in records for part in parts],
                len(records),
                messages.get(queue, 0),
                self._next[queue],
                sizes.get(queue, {}),
            )
            for queue, records in gathered.items()
        ]
