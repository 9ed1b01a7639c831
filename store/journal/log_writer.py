"""What one queue says to its vhost's journal, encoded and gathered until it is sent.

Positions count this queue's own records, from 1: whoever appends them to the journal says `durable up to` in the same numbers.
The levels of a queue of priorities write through one writer, each under its own number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..messages.records import Type, encode_run, encode_spans, record
from ..messages.run import Run


class QueueRecords(NamedTuple):
    """Records of one number: `parts` are buffers, `messages` how many messages were published in them, the rest as for `Journal.append`."""

    queue: int
    parts: list[bytes]
    records: int
    messages: int
    next_number: int | None


class LogWriter:
    """See the module."""

    __slots__ = ("_gathered", "_messages", "_next", "has_gathered", "position")

    def __init__(self) -> None:
        self.has_gathered = False
        """There is something to take."""
        self.position = 0
        """Records ever made."""
        self._gathered: dict[int, list[list[bytes]]] = {}
        self._messages: dict[int, int] = {}
        self._next: dict[int, int | None] = {}

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int:
        """A run without holes was published; its contents are stubs if the bodies are in the message store."""
        self._next[queue] = run.end
        self._messages[queue] = self._messages.get(queue, 0) + len(run.contents)
        return self._add(queue, record(Type.PUBLISH, queue, encode_run(run, is_stored)))

    def ack(self, queue: int, spans: Sequence[range]) -> int:
        """Messages left the queue for good. `spans` as `run.spans` makes them."""
        return self._add(queue, record(Type.ACK, queue, [encode_spans(spans)]))

    def delete(self, queue: int) -> int:
        """The queue is gone, and nothing said of it before counts. A queue that never said anything need not take its leave."""
        if queue not in self._next:
            return self.position
        self._next[queue] = None
        return self._add(queue, record(Type.DELETE, queue, []))

    def resume(self, queue: int, next_number: int) -> None:
        """The journal may have records of `queue` from before."""
        self._next[queue] = next_number

    def skip_to(self, queue: int, next_number: int) -> None:
        """Messages were published that the journal does not hear of; whatever it hears next tells where the numbering stands."""
        self._next[queue] = next_number

    def reserve(self, queue: int, number: int) -> int:
        """After an unclean end the numbering goes on from there at the least."""
        self._next[queue] = number
        return self._add(queue, record(Type.STATE, queue, [number.to_bytes(8, "big")]))

    def _add(self, queue: int, parts: list[bytes]) -> int:
        self.has_gathered = True
        self._gathered.setdefault(queue, []).append(parts)
        self._next.setdefault(queue, 0)
        self.position += 1
        return self.position

    def take(self) -> list[QueueRecords]:
        """What has gathered since the last call."""
        self.has_gathered = False
        gathered, self._gathered = self._gathered, {}
        messages, self._messages = self._messages, {}
        return [
            QueueRecords(
                queue,
                [part for parts in records for part in parts],
                len(records),
                messages.get(queue, 0),
                self._next[queue],
            )
            for queue, records in gathered.items()
        ]
