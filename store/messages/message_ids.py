"""The ids of messages in a message store: 16 bytes, no two messages ever have the same.

They are reckoned with as numbers of 128 bits, so that the ids of messages that follow one another are a range, and a
run of them is named by one number, its **base**: the id of the message with number `n` in a queue is `base + n`. There
are two kinds:

    own      u64 number of the queue | u64 number of the message in it, below 2**63
    shared   u64 random              | 1 bit set | 15 bits random | u48 count

A message that is in one queue alone has its own id, which costs nothing, for its place says it. One that is routed to
several is named by whoever routes it, once for all of them, and is stored once: each queue takes a reference. A source
of shared ids (a channel) draws its 79 random bits when it first needs them, and again after 2**48 messages; it never
keeps them anywhere. So no crash can bring back an id: of a million sources that have messages in one store two would
have to draw the same bits, and that happens in one of 10**12 such stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

_SHARED_BIT = 1 << 63
_COUNT_BITS = 48
SHARED_AT, SHARED_FROM = 8, 0x80
"""The octet of an id that tells its kind, and its least value in a shared one."""


class StoredSpan(NamedTuple):
    """Messages of a queue whose bodies are in a message store: the ids are `base + number`."""

    numbers: range
    base: int

    def ids(self) -> Iterator[bytes]:
        return (as_bytes(self.base + number) for number in self.numbers)

    @property
    def is_shared(self) -> bool:
        return bool((self.base + self.numbers.start) & _SHARED_BIT)


def own_base(queue: int) -> int:
    """Of the messages that are in `queue` alone."""
    return queue << 64


def as_bytes(message_id: int) -> bytes:
    return message_id.to_bytes(16, "big")


def ids_from(first: int, count: int) -> list[bytes]:
    """So many ids that follow one another."""
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


def is_shared(message_id: bytes) -> bool:
    """Other queues may have the message as well."""
    return message_id[SHARED_AT] >= SHARED_FROM


def stored_spans(first: int, message_ids: Iterable[bytes]) -> list[StoredSpan]:
    """Of messages numbered from `first` on, by their ids."""
    based = (
        (number, int.from_bytes(message_id, "big") - number) for number, message_id in enumerate(message_ids, first)
    )
    spans = []
    for base, group in groupby(based, key=itemgetter(1)):
        numbers = [number for number, _ in group]
        spans.append(StoredSpan(range(numbers[0], numbers[-1] + 1), base))
    return spans


class SharedIds:
    """A source of shared ids; `random_bytes(count)` gives octets that nobody else gets."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._next = self._end = 0

    def take(self, contents: Sequence[bytes], embedded_below: int) -> int:
        """The id of the first of these messages, the others follow it; 0 if all are small enough for queue indexes, and need none."""
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
