"""The segments that a stream has after an unclean end, when the disk does not tell where they began before."""

from __future__ import annotations

import pytest

from warren.store.index import segment_scan
from warren.store.queue.streams import stream_queue
from warren.store.queue.streams.stream_queue import StreamQueue

from ... import one_queue
from ...one_queue import PERSISTENT, SEGMENT, Node

LARGE = 100


@pytest.fixture
def node(tmp_path, monkeypatch):
    for module in (segment_scan, stream_queue):
        monkeypatch.setattr(module, "SPAN_BYTES", 10 * LARGE)
    return Node(tmp_path, embed_below=LARGE, kind=StreamQueue)


def publish(node: Node, count: int, size: int = LARGE) -> None:
    """Publish messages at the times 1, 2 and so on, all into one segment of the stream."""
    queue = node.queue
    for time in range(queue.numbers().stop + 1, queue.numbers().stop + 1 + count):
        numbers = queue.publish(PERSISTENT, one_queue.contents(1, size, first=time), size, time, True)
        queue.segments.append(numbers, size, time, 1 << 30)


def flush(node: Node) -> None:
    node.queue.segment_writer.flush(True)
    node.sync()


@pytest.mark.parametrize("flushed", [40, 17, 0])
def test_large_messages_of_one_file_become_several_segments(node, flushed):
    """A file of the index may have 16,384 messages of many megabytes. If they became one segment, the next drop by the
    limits would lose all of them at once.
    """
    publish(node, flushed)
    flush(node)
    publish(node, 40 - flushed)
    node.sync()
    node.kill()
    segments = node.queue.segments
    assert segments.rows() == [(first, 10, 10 * LARGE, first + 10) for first in range(0, 40, 10)]
    assert segments.kept_from(30 * LARGE, 0) == 10 and segments.kept_from(None, 20) == 10
    assert node.queue.drop_before(10) == 10 and node.queue.numbers() == range(10, 40)


def test_small_messages_of_one_file_become_one_segment(node):
    publish(node, SEGMENT + 9, 5)
    flush(node)
    node.kill()
    assert node.queue.segments.rows() == [(0, SEGMENT, 5 * SEGMENT, SEGMENT), (SEGMENT, 9, 45, SEGMENT + 9)]
