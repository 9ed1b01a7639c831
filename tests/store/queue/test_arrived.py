"""The times of arrival of a queue's messages: in memory, on the disk, over kills and clean stops (SP-28)."""

from __future__ import annotations

import pytest

from warren.store.messages.arrivals import stretches
from warren.store.queue.memory_queue import MemoryQueue
from warren.store.queue.range_read import window_from

from ..one_queue import PERSISTENT, Node, contents, page_all


def times(queue, first=0):
    """The time of each message from a number on, by number."""
    found, last = {}, queue.numbers().stop - 1
    while first <= last:
        job = queue.prepare_range(first, last, window_from(first))
        while job is not None:
            job.run()
            job = queue.range_prepared(job, first, last, window_from(first))
        batch = queue.take_runs(first, last, window_from(first), 1 << 20)
        for run in batch.runs:
            for low, high, time in stretches(run.arrived, run.first, run.end):
                found.update(dict.fromkeys(range(low, high), time))
        first = batch.next_number
    return found


def publish(queue, *when):
    for now in when:
        queue.stamp(now)
        queue.publish(PERSISTENT, contents(2), 20, None, False)


def test_times_never_decrease():
    queue = MemoryQueue()
    publish(queue, 1_000, 3_000, 2_000, 3_000, 4_000)
    assert list(times(queue).values()) == [1_000, 1_000, 3_000, 3_000, 3_000, 3_000, 3_000, 3_000, 4_000, 4_000]


@pytest.mark.parametrize("way", ["kill", "stop", "page", "flush and kill"])
@pytest.mark.parametrize("embed_below", [0, 4096])
def test_times_survive(tmp_path, way, embed_below):
    node = Node(tmp_path, embed_below=embed_below)
    publish(node.queue, 1_000, 2_000, 3_000)
    node.queue.fetch(1, ack_required=True)
    node.sync()
    if "flush" in way:
        node.queue.segment_writer.flush(True)
        node.sync()
    if "kill" in way:
        node.kill()
    elif way == "stop":
        node.queue = node.opened(node.stop())
    else:
        page_all(node.queue)
    assert list(times(node.queue).values()) == [1_000, 1_000, 2_000, 2_000, 3_000, 3_000]
    publish(node.queue, 500)
    assert set(times(node.queue, 6).values()) == {3_000}, "the clock was set back meanwhile"
