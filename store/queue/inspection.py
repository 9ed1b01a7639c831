"""Counts the messages that a backing queue has in memory, to check the queue's own counters or to show where it has
its messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..messages.message import body_size
from ..messages.pending_runs import PendingRuns
from ..messages.run_queue import RunQueue
from .backing_queue import UNLIMITED, BackingQueue
from .levels.fair_queue import FairQueue
from .levels.priority_queue import PriorityQueue
from .memory_queue import MemoryQueue
from .range_read import RANGE_BATCH_BYTES, SupportsRangeRead, window_from
from .variable.queue_recovery import persistent
from .variable.sub_queues import Delta
from .variable.variable_queue import VariableQueue


class Counts(NamedTuple):
    """Messages and the bytes of their bodies, of all messages and of the persistent ones."""

    messages: int
    body_bytes: int
    persistent: int
    persistent_bytes: int


def parts_in_memory(backing: BackingQueue) -> Iterator[RunQueue | PendingRuns]:
    """The parts of each level that keep messages in memory: the sub-queues, and the pending messages."""
    for level in _levels(backing):
        if isinstance(level, VariableQueue):
            sub = level.sub_queues
            yield from (sub.q1, sub.q2, sub.q3, sub.q4)
        elif isinstance(level, MemoryQueue):
            yield level._ready
        yield level._pending  # type: ignore[attr-defined]


def counts_of(part: RunQueue | PendingRuns) -> tuple[Counts, Counts]:
    """The counters of a part, and the same counted from its runs."""
    messages = body_bytes = persistent = persistent_bytes = 0
    for run in part.runs:
        contents = [content for content in run.contents if content is not None]
        run_bytes = sum(map(body_size, contents))
        messages += len(contents)
        body_bytes += run_bytes
        if run.origin.persistent:
            persistent += len(contents)
            persistent_bytes += run_bytes
    counted = Counts(part.count, part.body_bytes, part.persistent, part.persistent_bytes)
    return counted, Counts(messages, body_bytes, persistent, persistent_bytes)


def _on_disk(level: BackingQueue) -> list[Delta]:
    """What a level has on the disk only."""
    if not isinstance(level, VariableQueue):
        return []
    return [level.sub_queues.delta, *([] if level.shelf is None else [level.shelf.counts])]


def _as_lanes_have_them(backing: BackingQueue, ready: int, pending: int) -> tuple[int, int]:
    """How many messages in memory are ready and pending: in a queue with lanes most that are pending to its levels are
    ready in a lane.
    """
    if not isinstance(backing, FairQueue):
        return ready, pending
    unacked = min(pending, backing.totals().pending)
    return ready + pending - unacked, unacked


class Layers(NamedTuple):
    """How many ready messages the sub-queues of a backing queue have, from the youngest to the head (QS-1), and where
    its messages are.

    `delta` is on the disk alone; `paged_out` of its messages, with `paged_out_bytes` bytes of bodies, are transient.
    `ready_in_memory` and `pending_in_memory` messages have their bodies in memory, `bytes_in_memory` in all.
    `persistent` of the ready and pending messages are persistent, with `persistent_bytes` bytes of bodies.
    """

    q1: int = 0
    q2: int = 0
    delta: int = 0
    q3: int = 0
    q4: int = 0
    ready_in_memory: int = 0
    pending_in_memory: int = 0
    bytes_in_memory: int = 0
    persistent: int = 0
    persistent_bytes: int = 0
    paged_out: int = 0
    paged_out_bytes: int = 0


def layers(backing: BackingQueue) -> Layers:
    """The layers of a queue, those of all its levels added up. The counters of its parts have them, so it costs the
    same for a queue of any length. A queue without a disk has everything in `q4`; a stream has no layers.
    """
    found: list[Layers] = []
    for level in _levels(backing):
        if isinstance(level, VariableQueue):
            sub, pending, on_disk = level.sub_queues, level._pending, _on_disk(level)
            kept, kept_bytes = persistent(sub, pending, level.shelf)
            found.append(
                Layers(
                    *(sub.q1.count, sub.q2.count, sum([delta.count for delta in on_disk]), sub.q3.count, sub.q4.count),
                    ready_in_memory=sub.ram_count,
                    pending_in_memory=pending.count - pending.absent,
                    bytes_in_memory=sub.ram_bytes + pending.body_bytes - pending.absent_bytes,
                    persistent=kept,
                    persistent_bytes=kept_bytes,
                    paged_out=sum([delta.transient for delta in on_disk]),
                    paged_out_bytes=sum([delta.transient_bytes for delta in on_disk]),
                )
            )
        elif isinstance(level, MemoryQueue):
            ready, pending = level._ready, level._pending
            found.append(
                Layers(
                    q4=ready.count,
                    ready_in_memory=ready.count,
                    pending_in_memory=pending.count,
                    bytes_in_memory=ready.body_bytes + pending.body_bytes,
                    persistent=ready.persistent + pending.persistent,
                    persistent_bytes=ready.persistent_bytes + pending.persistent_bytes,
                )
            )
    all_levels = Layers(*map(sum, zip(*found)))
    in_memory = all_levels.ready_in_memory, all_levels.pending_in_memory
    ready_in_memory, pending_in_memory = _as_lanes_have_them(backing, *in_memory)
    # Messages in lanes are in no sub-queue; their place in memory is shown as that of the head.
    q4 = all_levels.q4 + ready_in_memory - in_memory[0]
    return all_levels._replace(q4=q4, ready_in_memory=ready_in_memory, pending_in_memory=pending_in_memory)


def held(backing: SupportsRangeRead) -> Iterator[tuple[int, int]]:
    """The number of each message, ready or pending, and the size of its body. Waits for the disk.

    The queue must not change meanwhile.
    """
    numbers = backing.numbers()
    first, last = numbers.start, numbers.stop - 1
    while first <= last:
        window = window_from(first)
        job = backing.prepare_range(first, last, window)
        while job is not None:
            job.run()
            job = backing.range_prepared(job, first, last, window)
        batch = backing.take_runs(first, last, window, RANGE_BATCH_BYTES)
        for run in batch.runs:
            for message in run.messages():
                yield message.tag, body_size(message.content)
        first = batch.next_number


def check(backing: BackingQueue) -> None:
    """Check QS-1 to QS-10 for each level that keeps messages on the disk, and that the totals of a queue with levels
    are the sums over its levels. Raises AssertionError.
    """
    levels = _levels(backing)
    for level in levels:
        if isinstance(level, VariableQueue):
            level.check()
    assert len(backing) == backing.totals().ready
    if isinstance(backing, FairQueue):
        _check_lanes(backing)
        return
    of_levels = [sum(column) for column in zip(*[level.totals() for level in levels])]
    assert list(backing.totals()) == (of_levels or [0] * 4), "a queue has what its levels have"


def _check_lanes(queue: FairQueue) -> None:
    """Assert that the counters of a queue with lanes are those of its lanes and sources."""
    lanes, sources = list(queue._table.round), list(queue._sources)
    for lane in lanes:
        assert lane.numbers.count == sum(map(len, lane.numbers.ahead(UNLIMITED))) > 0
    ready = sum(lane.numbers.count for lane in lanes)
    assert ready == queue._table.ready == sum(source.ready for source in sources)
    assert ready or not queue._ready_bytes
    unacked = Counter(known[0] for source in sources for known in source.unacked.values() if known is not None)
    assert all(lane.unacked == unacked[lane] for lane in {*unacked, *lanes})
    assert queue.totals().pending >= unacked.total()  # messages that were moved stay pending for a while


def _levels(backing: BackingQueue) -> list[BackingQueue]:
    return list(backing.levels) if isinstance(backing, (PriorityQueue, FairQueue)) else [backing]
