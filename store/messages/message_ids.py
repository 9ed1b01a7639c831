"""The ids of messages in a message store: 16 bytes, never given to two messages.

As 128-bit numbers, the ids of consecutive messages are consecutive. So one number names a run of them, its **base**:
the id of the message with number `n` in a queue is `base + n`. There are two kinds:

    own      u64 number of the queue | u64 number of the message in it, below 2**63
    shared   u64 random              | 1 bit set | 15 bits random | u48 count

A message that is in one queue only has its own id, which needs no memory: it follows from queue and number. A message
that is routed to several queues gets one shared id from the process that routes it. It is stored once, and each queue
takes a reference.

A source of shared ids (a channel) draws its 79 random bits when it first needs them, and again after 2**48 messages. It
writes them nowhere, so no crash can bring an id back. Two sources would have to draw the same bits: with a million
sources that have messages in one store, that happens in one of 10**12 such stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ...seams import seam

_SHARED_BIT = 1 << 63
_COUNT_BITS = 48
#: The byte of an id that has its kind, and the lowest value of that byte in a shared id.
SHARED_AT, SHARED_FROM = 8, 0x80


class StoredSpan(NamedTuple):
    """Messages of a queue whose bodies are in a message store under the ids `base + number`."""

    numbers: range
    base: int

    def ids(self) -> Iterator[bytes]:
        """The id of each message."""
        return (as_bytes(self.base + number) for number in self.numbers)

    @property
    def is_shared(self) -> bool:
        """Whether other queues may have the messages as well."""
        return bool((self.base + self.numbers.start) & _SHARED_BIT)


def own_base(queue: int) -> int:
    """The base of the ids of messages that are in one queue only."""
    return queue << 64


def as_bytes(message_id: int) -> bytes:
    """An id as the message store keys it."""
    return message_id.to_bytes(16, "big")


def ids_from(first: int, count: int) -> list[bytes]:
    """`count` consecutive ids."""
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


def is_shared(message_id: bytes) -> bool:
    """Whether other queues may have the message as well."""
    return message_id[SHARED_AT] >= SHARED_FROM


def stored_spans(first: int, message_ids: Iterable[bytes]) -> list[StoredSpan]:
    """The spans of messages that are numbered from `first` on and have these ids."""
    based = (
        (number, int.from_bytes(message_id, "big") - number) for number, message_id in enumerate(message_ids, first)
    )
    spans = []
    for base, group in groupby(based, key=itemgetter(1)):
        numbers = [number for number, _ in group]
        spans.append(StoredSpan(range(numbers[0], numbers[-1] + 1), base))
    return spans


def batches(spans: Iterable[StoredSpan], most: int) -> Iterator[list[StoredSpan]]:
    """The spans, cut so that each batch has at most `most` messages."""
    batch: list[StoredSpan] = []
    left = most
    for numbers, base in spans:
        while numbers:
            piece, numbers = numbers[:left], numbers[left:]
            batch.append(StoredSpan(piece, base))
            left -= len(piece)
            if not left:
                yield batch
                batch, left = [], most
    if batch:
        yield batch


class SharedIds:
    """A source of shared ids; `random_bytes(count)` returns bytes that no other caller gets."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._next = self._end = 0

    @seam("which ids shared bodies get")
    def take(self, contents: Sequence[bytes], embedded_below: int) -> int:
        """The id of the first of these messages; the others follow it.

        0 if all contents are shorter than `embedded_below`: queue indexes hold them, so they need no id.
        """
        if max(map(len, contents)) < embedded_below:
            return 0
        count = len(contents)
        if self._next + count > self._end:
            high, low = self._random_bytes(8), self._random_bytes(2)
            self._next = (
                int.from_bytes(high, "big") << 64 | _SHARED_BIT | (int.from_bytes(low, "big") & 0x7FFF) << _COUNT_BITS
            )
            self._end = self._next + (1 << _COUNT_BITS)
        first = self._next
        self._next += count
        return first
