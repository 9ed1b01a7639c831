"""`SyncSource` answers learners: with the part of the queue that a learner copies next (`read_chunk`, CL-85), and with
what a learner must have of its messages from an earlier life (`read_held`, CL-86).

Both read ready and pending messages by their numbers and take nothing out of the queue, so the replica goes on
meanwhile. The position of a chunk is that of the moment in which its messages were found: the stream then has an
instruction for each message that has left since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...actors.queue.disk.disk_loader import DiskLoader
from ...amqp.errors import AmqpError
from ...routing.phrases import no_queue
from ...store.messages.message import expiries_of, slice_of
from ...store.messages.run import Run
from ...store.messages.spans import consecutive
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.levels.level_tags import LEVEL_SHIFT, NUMBER_MASK
from ...store.queue.levels.priority_queue import PriorityQueue
from ...store.queue.range_read import SupportsRangeRead, window_from
from .. import instructions
from ..policy import policy_of
from .held import Held, read_window
from .sync_target import END

if TYPE_CHECKING:
    from ...actors.queue.mirroring import Replica
    from ..backing.mirrored_queue import MirroredQueue

#: How many numbers a learner compares at a time: those of a segment of the index.
COMPARED_AT_ONCE = 16_384

#: Bytes of the messages of a chunk, unless a single one has more.
CHUNK_BYTES = 512 << 10


#: Seconds between two checks of a replica that must read its disk before it can remove messages that have left.
BEHIND_SECONDS = 0.02


class SyncSource:
    """Answers learners that follow the replica `replica`. `position` is that of the stream to which its messages
    belong.
    """

    def __init__(
        self,
        replica: Replica,
        mirrored: MirroredQueue,
        has_everything: Callable[[], bool],
        position: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._mirrored = mirrored
        self._has_everything = has_everything
        self._position = position

    async def chunk(self, first: int) -> tuple[int, int, list[bytes]]:
        """The messages from the number `first` on (`ToQueue.sync_chunk`)."""
        replica = self._replica
        if await self._may_read():
            most = policy_of(replica).get("ha-sync-batch-size", 1)
            # As in RabbitMQ, a batch size of 1 in a policy stands for the default.
            most = replica.context.settings.mirroring_sync_batch_size if most == 1 else most
            found = await read_chunk(self._mirrored.inner, replica.loader, first, self._position, most)
            if found is not None:
                return found.position, found.cursor, found.runs
        raise self._refusal

    async def held(self, first: int, limit: int) -> tuple[int, int, int, list[tuple[int, int]], bytes]:
        """Which messages there are below `limit` (`ToQueue.sync_held`)."""
        if await self._may_read():
            part = await read_held(self._mirrored.inner, self._replica.loader, first, limit, self._position)
            if part is not None:
                spans = [(span.start, span.stop - 1) for span in part.held.spans]
                return part.position, part.cursor, part.following, spans, part.held.digest()
        raise self._refusal

    def numbers(self) -> list[tuple[int, int, int]]:
        """The oldest numbers that the queue has, for a learner that waits (`ToQueue.sync_numbers`)."""
        if not self._has_everything():
            raise self._refusal
        return numbers_of(self._mirrored.inner)

    def floors(self) -> tuple[int, list[int]]:
        """Where the masters of this queue have begun to number (`ToQueue.sync_floors`)."""
        if not self._has_everything():
            raise self._refusal
        return self._mirrored.floors()

    def window(self, at: int) -> tuple[int, int, int, int, bytes, bytes]:
        """A part of what the queue remembers for deduplication (`ToQueue.sync_window`)."""
        deduplication = self._replica.state.deduplication
        if not self._has_everything():
            raise self._refusal
        if deduplication is None:
            return self._position(), 0, 0, 0, b"", b""
        window = deduplication.window
        following, persistent, transient = window.part(at)
        return self._position(), window.size, window.generation, following, b"".join(persistent), b"".join(transient)

    async def _may_read(self) -> bool:
        """Wait until all messages that have left are removed here; return whether this replica has all others."""
        while self._mirrored.is_behind and self._has_everything():
            await self._replica.sleep(BEHIND_SECONDS)
        return self._has_everything()

    @property
    def _refusal(self) -> AmqpError:
        row = self._replica.row
        return no_queue(row.vhost, row.name)


class SyncChunk(NamedTuple):
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
) -> SyncChunk | None:
    """At most `most` messages from the number `first` on; None if the queue cannot be read by number."""
    found = level_from(backing, first >> LEVEL_SHIFT)
    if found is None:
        return SyncChunk(position(), END, [])
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
        cursor = END if level_from(backing, number + 1) is None else number + 1 << LEVEL_SHIFT
    if not batch.is_complete:
        assert loader is not None, "a queue in memory has all bodies"
        batch.complete(*await loader.bodies(batch.missing))
    return SyncChunk(found_at, cursor, [part for run in batch.runs for part in _encoded(run, base)])


class HeldPart(NamedTuple):
    """Which messages of one level a learner must have, for a part of its numbers.

    following   the number that the next message of the level gets; 0 if the queue does not have this level
    """

    position: int
    cursor: int
    following: int
    held: Held


async def read_held(
    backing: BackingQueue, loader: DiskLoader | None, first: int, limit: int, position: Callable[[], int]
) -> HeldPart | None:
    """The messages from the number `first` on, of up to `COMPARED_AT_ONCE` numbers below `limit` of that level; None
    if the queue cannot be read by number.

    The position is that of the beginning. A message that leaves while the numbers are read may be among them or not:
    the stream has an instruction behind this position that removes it. If the level has no message from `limit` on, the
    cursor is in the next level.
    """
    number = first >> LEVEL_SHIFT
    found_at, held = position(), Held()
    found = level_from(backing, number)
    if found is None or found[0] != number:
        return HeldPart(found_at, END if found is None else found[0] << LEVEL_SHIFT, 0, held)
    level, base = found[1], number << LEVEL_SHIFT
    if not isinstance(level, SupportsRangeRead):
        return None
    at = max(level.numbers().start, first & NUMBER_MASK)
    end = min(limit, at + COMPARED_AT_ONCE)
    while at < end:
        batch = await read_window(level, loader, at, end)
        held.add(batch.runs, base)
        at = batch.next_number
    while limit <= at < level.numbers().stop:
        batch = await read_window(level, loader, at, level.numbers().stop, most_bytes=1)
        if batch.runs:
            at = batch.runs[0].first
            break
        at = batch.next_number
    cursor = base + at
    if at >= level.numbers().stop:
        cursor = END if level_from(backing, number + 1) is None else number + 1 << LEVEL_SHIFT
    return HeldPart(found_at, cursor, level.numbers().stop, held)


def numbers_of(backing: BackingQueue) -> list[tuple[int, int, int]]:
    """Each level of the queue, its oldest number, and the one that its next message gets.

    A level that cannot be read by number has 0 as its oldest number, so it always seems to have old messages.
    """
    found = []
    at = level_from(backing, 0)
    while at is not None:
        number, level = at
        numbers = level.numbers() if isinstance(level, SupportsRangeRead) else range(0, 1)
        found.append((number, numbers.start, numbers.stop))
        at = level_from(backing, number + 1)
    return found


def level_from(backing: BackingQueue, number: int) -> tuple[int, BackingQueue] | None:
    """The first level from this number on that there is."""
    if isinstance(backing, PriorityQueue):
        return backing.level_from(number)
    return (0, backing) if number == 0 else None


def _encoded(run: Run, base: int) -> Iterator[bytes]:
    """The messages of a run, but for those that have left while their bodies were read."""
    there = [index for index, content in enumerate(run.contents) if content]
    for piece in consecutive(there):
        part = slice(piece.start, piece.stop)
        contents = run.contents[part]
        origins = slice_of(run.origins, part)
        expiries = expiries_of(run.expiries, part)
        _, encoded = instructions.publish(base + run.first + piece.start, origins, contents, 0, expiries, ())
        yield encoded
