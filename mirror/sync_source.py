"""`read_chunk`: the part of a queue that a learner copies next (CL-85).

It reads ready and pending messages by their numbers and takes nothing out of the queue, so the replica goes on
meanwhile. The position of a chunk is that of the moment in which its messages were found: the stream then has an
instruction for each message that has left since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..actors.queue.disk.disk_loader import DiskLoader
from ..store.messages.message import slice_of
from ..store.messages.run import Run
from ..store.messages.spans import consecutive
from ..store.queue.backing_queue import BackingQueue
from ..store.queue.levels.levelled_queue import LEVEL_SHIFT, NUMBER_MASK, LevelledQueue
from ..store.queue.range_read import SupportsRangeRead, window_from
from . import instructions
from .sync_target import END

#: Bytes of the messages of a chunk, unless a single one has more.
CHUNK_BYTES = 512 << 10


class Chunk(NamedTuple):
    """What a learner copies at a time.

    runs        messages from the requested number on, in the encoding of publishes in the ring's stream
    cursor      the number that the learner requests next; END if the queue has no more messages
    position    where the stream stood when the messages were found. Instructions behind it are still to be applied to
                these messages; instructions up to it must not be
    """

    position: int
    cursor: int
    runs: list[bytes]


async def read_chunk(
    backing: BackingQueue, loader: DiskLoader | None, first: int, position: Callable[[], int], most: int | None = None
) -> Chunk | None:
    """At most `most` messages from the number `first` on; None if the queue cannot be read by number."""
    found = _level_from(backing, first >> LEVEL_SHIFT)
    if found is None:
        return Chunk(position(), END, [])
    number, level = found
    if not isinstance(level, SupportsRangeRead):
        return None
    base = number << LEVEL_SHIFT
    numbers = level.numbers()
    at = max(numbers.start, first & NUMBER_MASK if first >> LEVEL_SHIFT == number else 0)
    last, window = numbers.stop - 1, window_from(at)
    if most is not None:
        last = min(last, at + most - 1)
    job = level.prepare_range(at, last, window) if at <= last else None
    while job is not None:
        assert loader is not None, "a queue in memory reads no segments"
        await loader.segments(job)
        job = level.range_prepared(job, at, last, window)
    batch = level.take_runs(at, last, window, CHUNK_BYTES)
    found_at = position()
    cursor = base + batch.next_number
    if batch.next_number >= level.numbers().stop:
        cursor = END if _level_from(backing, number + 1) is None else number + 1 << LEVEL_SHIFT
    if not batch.is_complete:
        assert loader is not None, "a queue in memory has all bodies"
        batch.complete(*await loader.bodies(batch.missing))
    return Chunk(found_at, cursor, [part for run in batch.runs for part in _encoded(run, base)])


def numbers_of(backing: BackingQueue) -> list[tuple[int, int, int]]:
    """Each level of the queue, its oldest number, and the one that its next message gets.

    A level that cannot be read by number has 0 as its oldest number, so it always seems to have old messages.
    """
    found = []
    at = _level_from(backing, 0)
    while at is not None:
        number, level = at
        numbers = level.numbers() if isinstance(level, SupportsRangeRead) else range(0, 1)
        found.append((number, numbers.start, numbers.stop))
        at = _level_from(backing, number + 1)
    return found


def _level_from(backing: BackingQueue, number: int) -> tuple[int, BackingQueue] | None:
    """The first level from this number on that there is."""
    if isinstance(backing, LevelledQueue):
        return backing.level_from(number)
    return (0, backing) if number == 0 else None


def _encoded(run: Run, base: int) -> Iterator[bytes]:
    """The messages of a run, but for those that have left while their bodies were read."""
    there = [index for index, content in enumerate(run.contents) if content]
    for piece in consecutive(there):
        part = slice(piece.start, piece.stop)
        contents = run.contents[part]
        origins = slice_of(run.origins, part)
        _, encoded = instructions.publish(base + run.first + piece.start, origins, contents, 0, run.expiry, ())
        yield encoded
