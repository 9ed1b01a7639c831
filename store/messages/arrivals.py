"""When the messages of a run arrived (SP-28): microseconds since the epoch, which never decrease in a queue.

Messages that a queue accepts in one turn have one time, and most runs have one. A run that took in others has a list
of **stretches**: the number from which on a time holds, and that time. A run that is cut off takes only its own
stretches along (`part_of`). If it took all of them, a queue that is never empty would have more stretches with every
message, because its runs are cut at the head while others are added at the tail.

The time 0 is unknown: queues that cannot be read by number keep no times, and files of earlier versions have none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from struct import Struct
from typing import Union

#: One time for a run, or its stretches, ascending.
Arrived = Union[int, "list[tuple[int, int]]"]

UNKNOWN = 0

_COUNT = Struct(">I")
_STRETCH = Struct(">QQ")
_first_of = itemgetter(0)


def part_of(arrived: Arrived, first: int, end: int) -> Arrived:
    """The times of the part `[first, end)` of a run. A list is a new one, and its first stretch begins at `first`."""
    if isinstance(arrived, int):
        return arrived
    low = max(0, bisect_right(arrived, first, key=_first_of) - 1)
    high = bisect_left(arrived, end, lo=low + 1, key=_first_of)
    time = arrived[low][1]
    return time if high == low + 1 else [(first, time), *arrived[low + 1 : high]]


def extended(arrived: Arrived, first: int, added: Arrived, added_first: int) -> Arrived:
    """The times of a run from the number `first`, to which messages from `added_first` on are added at the end.

    A list `arrived` is extended in place.
    """
    if isinstance(arrived, int):
        if arrived == added:
            return arrived
        arrived = [(first, arrived)]
    if isinstance(added, list):
        arrived += added[1:] if arrived[-1][1] == added[0][1] else added
    elif arrived[-1][1] != added:
        arrived.append((added_first, added))
    return arrived


def stretches(arrived: Arrived, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The parts of `[first, end)` with one time each, as (first, end, time)."""
    if isinstance(arrived, int):
        yield first, end, arrived
        return
    at = max(0, bisect_right(arrived, first, key=_first_of) - 1)
    while first < end:
        stop = min(end, arrived[at + 1][0]) if at + 1 < len(arrived) else end
        if stop > first:
            yield first, stop, arrived[at][1]
            first = stop
        at += 1


def latest(arrived: Arrived) -> int:
    """The last time."""
    return arrived if isinstance(arrived, int) else arrived[-1][1]


def encode_arrived(arrived: Arrived, first: int, end: int) -> bytes:
    """The times of a run with the numbers `[first, end)`."""
    if isinstance(arrived, int):
        return _COUNT.pack(1) + _STRETCH.pack(first, arrived)
    found = [_STRETCH.pack(start, time) for start, _, time in stretches(arrived, first, end)]
    return _COUNT.pack(len(found)) + b"".join(found)


def decode_arrived(data: bytes, at: int) -> tuple[Arrived, int]:
    """The times that `encode_arrived` wrote at an offset, and the offset behind them."""
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    end = at + count * _STRETCH.size
    if count == 1:
        return _STRETCH.unpack_from(data, at)[1], end
    return list(_STRETCH.iter_unpack(data[at:end])), end
