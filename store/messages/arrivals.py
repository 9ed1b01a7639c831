"""When the messages of a run arrived (SP-28): microseconds since the epoch, which never decrease in a queue.

Messages that a queue accepts in one turn have the same time, so most runs have one time. A run to which later messages
were added has `Stretches`. A part that is cut off from a run takes only its own stretches along (`part_of`). If it took
all of them, a queue that is never empty would have more stretches with every message, because its runs are cut at the
head while messages are added at the tail.

The time 0 is unknown: queues that cannot be read by number keep no times, and files of earlier versions have none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

UNKNOWN = 0

_COUNT = Struct(">I")
_STRETCH = Struct(">QQ")


class Stretches:
    """The messages from the number `firsts[i]` on, up to the next such number, arrived at `times[i]`. Both ascend.

    Arrays take 16 bytes for a message that arrived alone; a list of pairs took 120.
    """

    __slots__ = ("firsts", "times")

    def __init__(self, firsts: array[int], times: array[int]) -> None:
        self.firsts = firsts
        self.times = times


#: One time for a run, or its stretches.
Arrived = int | Stretches


def part_of(arrived: Arrived, first: int, end: int) -> Arrived:
    """The times of the part `[first, end)` of a run. If they are stretches, these are new, and begin at `first`."""
    if isinstance(arrived, int):
        return arrived
    low = max(0, bisect_right(arrived.firsts, first) - 1)
    high = bisect_left(arrived.firsts, end, lo=low + 1)
    if high == low + 1:
        return arrived.times[low]
    firsts = arrived.firsts[low:high]
    firsts[0] = first
    return Stretches(firsts, arrived.times[low:high])


def extended(arrived: Arrived, first: int, added: Arrived, added_first: int) -> Arrived:
    """The times of a run from the number `first`, to which messages from `added_first` on are added at the end.

    Stretches `arrived` are extended in place.
    """
    if isinstance(arrived, int):
        if arrived == added:
            return arrived
        arrived = Stretches(array("Q", (first,)), array("Q", (arrived,)))
    firsts, times = arrived.firsts, arrived.times
    if isinstance(added, int):
        if times[-1] != added:
            firsts.append(added_first)
            times.append(added)
    else:
        known = 1 if times[-1] == added.times[0] else 0
        firsts += added.firsts[known:]
        times += added.times[known:]
    return arrived


def stretches(arrived: Arrived, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The parts of `[first, end)` with one time each, as (first, end, time)."""
    part = part_of(arrived, first, end)
    if isinstance(part, int):
        yield first, end, part
    else:
        yield from zip(part.firsts, [*part.firsts[1:], end], part.times)


def latest(arrived: Arrived) -> int:
    """The last time."""
    return arrived if isinstance(arrived, int) else arrived.times[-1]


def encode_arrived(arrived: Arrived, first: int, end: int) -> bytes:
    """The times of a run with the numbers `[first, end)`."""
    found = [_STRETCH.pack(start, time) for start, _, time in stretches(arrived, first, end)]
    return _COUNT.pack(len(found)) + b"".join(found)


def decode_arrived(data: bytes, at: int) -> tuple[Arrived, int]:
    """The times that `encode_arrived` wrote at an offset, and the offset behind them."""
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    end = at + count * _STRETCH.size
    if count == 1:
        return _STRETCH.unpack_from(data, at)[1], end
    firsts, times = zip(*_STRETCH.iter_unpack(data[at:end]))
    return Stretches(array("Q", firsts), array("Q", times)), end
