"""The invariants of the variable queue (queue-and-store section 4.3: QS-1 to QS-13, QS-15 and QS-20) hold in every
state.

The model tests rely on `check`, so a test breaks each invariant by hand and expects `check` to fail.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warren.store.index.queue_index import QueueIndex
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.run import ABSENT, IN_STORE, INDEXED
from warren.store.queue.variable.sub_queues import Delta, SubQueues

from ..one_queue import SEGMENT, TRANSIENT, Node, page_all, tags

HALF = SEGMENT // 2


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path)


def everywhere(node) -> SubQueues:
    """Put messages in each of the five sub-queues, with their bodies in the store."""
    node.publish(3 * SEGMENT)
    page_all(node.queue)  # q3, delta
    node.publish(HALF)
    page_all(node.queue)  # delta
    node.queue.paging.target = 3 * SEGMENT
    node.publish(HALF)
    node.queue.sub_queues.alphas_to_betas(HALF)  # q2
    node.publish(HALF)  # q1
    node.queue.requeue(tags(node.queue.fetch(2, True)))  # q4
    sub = node.queue.sub_queues
    assert all((sub.q1.count, sub.q2.count, sub.delta.count, sub.q3.count, sub.q4.count))
    return sub


def test_qs_1_to_5_messages_go_through_all_sub_queues_in_order(node):
    """QS-1 to QS-5 hold with messages in each sub-queue, and after each message that is taken."""
    everywhere(node)
    taken = []
    while len(node.queue):
        node.queue.check()
        taken += tags(node.queue.fetch(1, True))
    assert taken == list(range(3 * SEGMENT + 3 * HALF))


@pytest.mark.parametrize("paged", [True, False])
def test_qs_6_empty_is_what_has_neither_q3_nor_q4(node, paged):
    """QS-6: a queue with neither q3 nor q4 is empty, because taking the last message of q3 refills it or makes q1 the
    new q4.
    """
    node.publish(2 * SEGMENT + HALF)
    if paged:
        page_all(node.queue)
    node.publish(HALF)
    sub = node.queue.sub_queues
    for left in range(3 * SEGMENT - 1, -1, -1):
        assert sub.q3.count or sub.q4.count
        node.queue.fetch(1, False)
        assert len(node.queue) == left
        node.queue.check()
    assert not (sub.q1.count or sub.q2.count or sub.delta.count or sub.q3.count or sub.q4.count)


def test_qs_8_what_is_in_memory_is_part_of_what_there_is(node):
    """Counts and bytes agree, with some messages pending and some paged."""
    everywhere(node)
    node.queue.fetch(5, True)
    sub = node.queue.sub_queues
    assert 0 < sub.ram_count < len(node.queue)
    assert 0 < sub.ram_bytes < node.queue.totals().ready_bytes
    node.queue.check()
    assert node.queue.terminate()["persistent_count"] == node.queue.totals().depth


def test_qs_9_delta_does_not_count_its_holes(node):
    """Pending and acknowledged messages leave holes in delta."""
    node.publish(4 * SEGMENT)
    taken = tags(node.queue.fetch(4 * SEGMENT, True))
    node.queue.requeue(taken[::3])
    node.queue.ack(taken[1::3])
    page_all(node.queue)
    delta = node.queue.sub_queues.delta
    in_q3 = node.status("q3")[0]
    assert delta.count == len(taken[::3]) - in_q3
    assert delta.start + delta.count < delta.end
    node.queue.requeue(taken[2::3])
    node.queue.check()
    assert tags(node.queue.fetch(10_000, False)) == sorted([*taken[::3], *taken[2::3]])


def test_qs_10_what_is_not_in_memory_is_on_disk(node):
    """Messages that are not in memory are on disk, and persistent ones have an index entry from the start."""
    node.publish(HALF)
    node.publish(HALF, TRANSIENT)
    sub = node.queue.sub_queues
    assert [run.kind & INDEXED for run in sub.q4.runs] == [INDEXED, 0]
    page_all(node.queue)
    runs = [run for queue in (sub.q3, sub.q4) for run in queue.runs]
    assert runs and all(run.kind & ABSENT and run.kind & IN_STORE for run in runs)
    node.queue.check()


def indexed(node, start, stop) -> list[tuple[int, bool]]:
    """(number, is persistent) of each index entry that is not acknowledged, found by a scan as at a start."""
    node.queue.segment_writer.flush(True)
    index = QueueIndex(node.disk, "q", 1, LogWriter(), SEGMENT)
    index.scan(
        None,
        {
            number // SEGMENT: 1
            for number in range(start, stop, SEGMENT)
            if node.disk.exists(f"q/{number // SEGMENT}.idx")
        },
    )
    return [
        (number, run.origin.persistent)
        for at in range(start - start % SEGMENT, stop, SEGMENT)
        for run, _ in index.read(max(at, start), min(at + SEGMENT, stop))
        for number in range(run.first, run.end)
    ]


def test_qs_11_every_entry_within_delta_is_in_one_place(node):
    """Every entry within delta belongs to a ready message, a pending one, or a transient one from before the last
    start.
    """
    node.publish(HALF, TRANSIENT)
    node.publish(SEGMENT)
    page_all(node.queue)
    node.queue = node.opened(node.stop())
    node.publish(2 * SEGMENT)
    node.publish(HALF, TRANSIENT)
    page_all(node.queue)
    pending = tags(node.queue.fetch(SEGMENT + HALF, True))
    node.queue.requeue(pending[::2])
    node.queue.ack(pending[1::4])
    page_all(node.queue)
    sub = node.queue.sub_queues
    entries = indexed(node, sub.delta.start, sub.delta.end)
    stale = [number for number, persistent in entries if number < sub.transient_threshold and not persistent]
    held = [number for number, _ in entries if node.queue._pending.count_in(range(number, number + 1))]
    assert not set(stale) & set(held)
    assert len(entries) == sub.delta.count + len(stale) + len(held)


def test_qs_12_numbers_are_for_life(node):
    """Messages keep their numbers when they are requeued, paged and switched between modes; no two have the same."""
    node.publish(3 * SEGMENT)
    bodies = {
        tag: content
        for delivery in node.queue.fetch(3 * SEGMENT, True)
        for tag, content in zip(delivery.tags, delivery.contents, strict=True)
    }
    node.queue.requeue(list(bodies)[1::2])
    page_all(node.queue)
    node.queue.set_queue_mode("lazy")
    node.queue.requeue(list(bodies)[::2])
    node.queue.set_queue_mode("default")
    node.publish(1)
    node.queue.check()
    got = [
        (tag, content)
        for delivery in node.queue.fetch(10_000, True)
        for tag, content in zip(delivery.tags, delivery.contents, strict=True)
    ]
    assert got[:-1] == list(bodies.items()) and got[-1][0] == 3 * SEGMENT


def test_qs_15_publishing_pages_nothing(node):
    """D-4: whatever the target, a publish writes only its own messages; the next round pages the backlog."""
    page_all(node.queue)
    sub = node.queue.sub_queues
    for turn in range(1, 21):
        node.publish(100, TRANSIENT)
        assert (sub.q4.count, sub.ram_count) == (100 * turn, 100 * turn)
    assert not bodies_of(node.transient)
    node.publish(100)
    assert len(bodies_of(node.persistent)) == 100, "the bodies of what was published now"
    assert not bodies_of(node.transient)
    page_all(node.queue)
    assert sub.ram_count == 0


def bodies_of(store):
    """The ids of the bodies that a store has been given."""
    return dict(store.engine.reference_counts())


# -- `check`


def out_of_order(sub: SubQueues) -> None:
    sub.q1.runs.blocks[0].reverse()
    sub.q1, sub.q4 = sub.q4, sub.q1


def body_missing_in_q1(sub: SubQueues) -> None:
    sub.q1.runs.head.kind |= ABSENT | IN_STORE


def whole_in_q3(sub: SubQueues) -> None:
    sub.q3.runs.head.kind &= ~ABSENT


def nothing_in_q3(sub: SubQueues) -> None:
    sub.q2.clear()
    sub.delta = Delta()
    sub.q3.clear()


def nothing_in_delta(sub: SubQueues) -> None:
    sub.delta = Delta()


def delta_behind_nothing(sub: SubQueues) -> None:
    for queue in (sub.q1, sub.q2, sub.q3):
        queue.clear()


def hidden(sub: SubQueues) -> None:
    for queue in (sub.q1, sub.q2, sub.q3, sub.q4):
        queue.clear()


def lazy_with_q1(sub: SubQueues) -> None:
    sub.is_lazy = True


def wrong_octets(sub: SubQueues) -> None:
    sub.q4.body_bytes += 1


def wrong_bytes_on_the_disk(sub: SubQueues) -> None:
    sub.q3.absent_bytes += 1


def negative(sub: SubQueues) -> None:
    sub.delta.transient = -1


def too_many_in_delta(sub: SubQueues) -> None:
    sub.delta.count = sub.delta.end - sub.delta.start + 1


def body_nowhere(sub: SubQueues) -> None:
    sub.q3.runs.head.kind &= ~IN_STORE


def no_entry(sub: SubQueues) -> None:
    sub.q1.runs.head.kind &= ~INDEXED


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (out_of_order, "QS-1"),
        (body_missing_in_q1, "QS-2"),
        (whole_in_q3, "QS-2"),
        (nothing_in_q3, "QS-3"),
        (nothing_in_delta, "QS-4"),
        (delta_behind_nothing, "QS-5"),
        (hidden, "QS-5|QS-6"),
        (lazy_with_q1, "QS-7"),
        (wrong_octets, "QS-8"),
        (wrong_bytes_on_the_disk, "QS-8"),
        (negative, "QS-8"),
        (too_many_in_delta, "QS-9"),
        (body_nowhere, "QS-10"),
        (no_entry, "QS-10"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_violation_is_seen(node, broken: Callable[[SubQueues], None], named):
    sub = everywhere(node)
    node.queue.check()
    broken(sub)
    with pytest.raises(AssertionError, match=named):
        node.queue.check()


def test_a_number_that_is_ready_and_pending_is_seen(node):
    """QS-12: `check` fails if a number is both ready and pending."""
    node.publish(5)
    run = node.queue.sub_queues.q4.runs.head
    node.queue._pending.add(run.part(1, 2))
    with pytest.raises(AssertionError, match="QS-12"):
        node.queue.check()


# -- the records in the journal


class Listening:
    """A log that asserts the order of records of each number (QS-20), and passes them on."""

    def __init__(self, log) -> None:
        self.log = log
        self.published: set[int] = set()
        self.acked: set[int] = set()

    def publish(self, queue, run, is_stored=False):
        numbers = set(range(run.first, run.end))
        assert not numbers & (self.published | self.acked), "published twice, or after its ack"
        self.published |= numbers
        return self.log.publish(queue, run, is_stored)

    def ack(self, queue, spans):
        numbers = {number for span in spans for number in span}
        assert numbers <= self.published - self.acked, "acked before it was published, or twice"
        self.acked |= numbers
        return self.log.ack(queue, spans)

    def __getattr__(self, name):
        return getattr(self.log, name)


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("embed_below", [0, 1024])
def test_qs_20_and_13_of_each_number_its_publish_then_one_ack(tmp_path, mode, embed_below):
    """QS-20, QS-13: no record of a number follows its ack, because there is one stream to the journal and no cache
    before it.
    """
    node = Node(tmp_path, embed_below)
    node.queue._index._log = listening = Listening(node.queue._index._log)
    node.queue.set_queue_mode(mode)
    node.publish(2 * SEGMENT)
    page_all(node.queue)
    taken = tags(node.queue.fetch(SEGMENT, True))
    node.queue.ack(taken[::2])
    node.queue.requeue(taken[1::2])
    page_all(node.queue)
    node.queue.drop(3)
    node.publish(SEGMENT)
    node.queue.segment_writer.flush(True)
    node.queue.drop(5)
    node.queue.ack([*taken, *tags(node.queue.fetch(HALF, True))])
    node.queue.purge()
    assert listening.acked == listening.published == set(range(3 * SEGMENT))
    node.sync()
    node.kill()
    assert not len(node.queue)
