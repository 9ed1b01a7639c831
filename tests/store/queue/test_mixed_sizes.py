"""Messages whose sizes lie on both sides of the limit below which the index embeds bodies."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.journal.log_writer import LogWriter
from warren.store.messages.run import TO_STORE

from ..one_queue import PERSISTENT, TRANSIENT, Node, contents

LIMIT = 400


def publish(queue, sizes, origin=PERSISTENT, shared=0):
    messages = [contents(1, size, number)[0] for number, size in enumerate(sizes)]
    queue.publish(origin, messages, sum(sizes), None, True, shared=shared)


def runs(queue):
    return list(queue.sub_queues.runs_in_memory())


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_sizes_about_the_limit_make_one_run(tmp_path, in_one_batch):
    node = Node(tmp_path, LIMIT)
    sizes = [200, 600] * 20
    for batch in [sizes] if in_one_batch else [[size] for size in sizes]:
        publish(node.queue, batch)
    assert len(runs(node.queue)) == 1
    node.sync()
    assert node.queue.drain_confirmed()[-1][1] == 39


def test_large_messages_among_small_ones_go_to_the_store(tmp_path):
    node = Node(tmp_path, LIMIT)
    publish(node.queue, [200, 900, 200, 600, 900, 600])
    node.sync()
    found = [(run.first, len(run.contents), bool(run.kind & TO_STORE)) for run in runs(node.queue)]
    assert found == [(0, 1, False), (1, 1, True), (2, 1, False), (3, 3, True)]


def test_messages_that_other_queues_have_too_are_embedded_by_their_own_size(tmp_path):
    """Messages that other queues have too are embedded according to their own size: the publisher counted a reference
    to each body from the limit on, and the queue must have exactly those.
    """
    node = Node(tmp_path, LIMIT)
    publish(node.queue, [200, 600, 200, 600], shared=1 << 80 | 1 << 63)
    assert [bool(run.kind & TO_STORE) for run in runs(node.queue)] == [False, True, False, True]


def test_messages_above_the_limit_alone_go_to_the_store(tmp_path):
    node = Node(tmp_path, LIMIT)
    publish(node.queue, [600] * 5)
    assert [bool(run.kind & TO_STORE) for run in runs(node.queue)] == [True]


def acknowledgements(monkeypatch):
    made = []
    real = LogWriter.ack

    def ack(self, queue, spans):
        made.append(list(spans))
        return real(self, queue, spans)

    monkeypatch.setattr(LogWriter, "ack", ack)
    return made


@pytest.mark.parametrize("step", [1, 4])
def test_an_acknowledgement_of_embedded_and_stored_messages_is_one_record(tmp_path, monkeypatch, step):
    node = Node(tmp_path, LIMIT)
    publish(node.queue, [100, 2000] * 20)
    node.queue.fetch(40, True)
    made = acknowledgements(monkeypatch)
    for first in range(step):
        assert node.queue.ack(range(first, 40, step)) == len(range(first, 40, step))
    assert made == [[range(first, 40, step)] for first in range(step)]
    assert node.queue.totals().depth == 0
    node.sync()
    assert node.queue._index.unflushed.embedded.count == node.queue._index.unflushed.stored.count == 0


@given(
    st.lists(st.sampled_from([100, 600, 2000]), min_size=1, max_size=40),
    st.lists(st.integers(0, 39), max_size=40),
    st.integers(1, 5),
    st.sampled_from([PERSISTENT, TRANSIENT]),
    st.booleans(),
)
def test_each_message_is_settled_once_wherever_its_body_is(tmp_path_factory, sizes, order, step, origin, is_flushed):
    node = Node(tmp_path_factory.mktemp("q"), LIMIT)
    publish(node.queue, sizes, origin)
    node.queue.fetch(len(sizes), True)
    if is_flushed:
        node.queue.segment_writer.flush()
    left = set(range(len(sizes)))
    for first in order:
        span = range(first, len(sizes), step)
        assert node.queue.ack(span) == len(left & set(span))
        left -= set(span)
        node.queue.check()
        assert node.queue.totals().depth == len(left)
    node.sync()
    node.kill()
    survivors = left if origin is PERSISTENT else set()
    read = [c for d in node.queue.fetch(100, True) for c in d.contents]
    assert read == [contents(1, sizes[number], number)[0] for number in sorted(survivors)]
    assert list(node.queue.pending_numbers()) == sorted(survivors)
