"""Cases of RabbitMQ's backing_queue_SUITE about the variable queue and its index (queue-and-store section 12.1),
under their names.

Each runs in both modes, with bodies in the index and in the store.

Cases about the message store are in test_message_store_cases.py; figures that hold for one mode only, in
test_variable_queue.py.
"""

from __future__ import annotations

import random

import pytest

from warren.store.queue.rates import INFINITE

from ..one_queue import PERSISTENT, SEGMENT, TRANSIENT, Node, contents, page_all, tags

HALF = SEGMENT // 2


@pytest.fixture(params=["default", "lazy"])
def mode(request):
    return request.param


@pytest.fixture(params=[0, 1024], ids=["stored", "embedded"])
def node(request, tmp_path, mode):
    node = Node(tmp_path, embed_below=request.param)
    node.queue.set_queue_mode(mode)
    return node


def drain(queue, ack=True):
    """Fetch every ready message, and ack it. Returns numbers and redelivered flags."""
    deliveries = queue.fetch(1_000_000, True)
    got = [(tag, delivery.redelivered) for delivery in deliveries for tag in delivery.tags]
    if ack:
        queue.ack([tag for tag, _ in got])
    return [tag for tag, _ in got], [redelivered for _, redelivered in got]


def restarted(node, terms):
    node.queue = node.opened(terms)
    node.queue.check()
    return node.queue


# -- the index


def files(node):
    return sorted(name for name in node.disk.list("q"))


@pytest.mark.parametrize("is_flushed", [False, True], ids=["journal", "segments"])
def test_bq_queue_index_bounds_and_reads(node, is_flushed):
    """With half-filled segments, bounds are those of whole segments and reads find every entry; no file is left when
    all are acked.
    """
    index = node.queue._index

    def numbers(start, stop):
        return [number for run, _ in index.read(start, stop) for number in range(run.first, run.end)]

    node.publish(HALF)
    node.queue.segment_writer.flush(is_flushed)
    assert index.bounds() == (0, SEGMENT)
    node.publish(SEGMENT)
    node.queue.segment_writer.flush(is_flushed)
    assert index.bounds() == (0, 2 * SEGMENT)
    assert (numbers(0, SEGMENT), numbers(SEGMENT, 2 * SEGMENT)) == (
        list(range(SEGMENT)),
        list(range(SEGMENT, SEGMENT + HALF)),
    )
    assert numbers(5, 9) == [5, 6, 7, 8]
    node.queue.ack(tags(node.queue.fetch(SEGMENT, True)))
    node.queue.segment_writer.flush(is_flushed)
    assert index.bounds() == (SEGMENT, 2 * SEGMENT)
    drain(node.queue)
    node.queue.segment_writer.flush(True)
    assert (index.bounds(), files(node)) == ((0, 0), [])


def test_bq_queue_index_restart(node):
    """A restart drops transient messages, and counts persistent ones and their bytes."""
    node.publish(SEGMENT + HALF)
    node.publish(10, TRANSIENT)
    terms = node.stop()
    assert (terms["persistent_count"], terms["persistent_bytes"]) == (SEGMENT + HALF, (SEGMENT + HALF) * 10)
    assert drain(restarted(node, terms))[0] == list(range(SEGMENT + HALF))
    node.kill()
    # The acks were not synced, so an unclean restart may have brought the messages back.
    assert (len(node.queue), node.queue.totals().ready_bytes) in (
        (0, 0),
        (SEGMENT + HALF, (SEGMENT + HALF) * 10),
    )


@pytest.mark.parametrize(
    "counts", [(HALF,), (SEGMENT,), (SEGMENT + HALF,), (2 * SEGMENT, HALF)], ids=["partial", "whole", "next", "several"]
)
def test_bq_queue_index_files_disappear(node, counts):
    """When every entry is acked and flushed, no segment is left, for half and whole segments."""
    for count in counts:
        node.publish(count)
        node.queue.segment_writer.flush(True)
    assert len(files(node)) == -(-sum(counts) // SEGMENT)
    drain(node.queue)
    node.queue.segment_writer.flush(True)
    assert files(node) == []
    assert node.queue.fetch(1, True) == []


@pytest.mark.parametrize("flushes", range(8))
def test_bq_queue_index_journal_and_segment(node, flushes):
    """Publish and ack are in the journal or in a segment in every combination before a clean or an unclean restart."""
    node.publish(3)
    for step, act in enumerate((lambda: node.queue.fetch(2, True), lambda: node.queue.ack([0]), lambda: None)):
        if flushes >> step & 1:
            node.queue.segment_writer.flush(True)
        act()
    node.sync()
    node.kill()
    assert drain(node.queue, ack=False) == ([1, 2], [True, True])
    assert drain(restarted(node, node.stop())) == ([1, 2], [True, True])


def test_bq_queue_index_props(node):
    """Expiry and size survive a write and a read."""
    node.queue.publish(PERSISTENT, contents(1), 10, 123_456_789_000_000, False)
    page_all(node.queue)
    queue = restarted(node, node.stop())
    assert (queue.head_expiry(), queue.totals().ready_bytes) == (123_456_789_000_000, 10)


@pytest.mark.parametrize("count", [SEGMENT, HALF], ids=["completely", "partially"])
def test_v2_delete_segment_file_completely_or_partially_acked(node, count):
    """The next flush deletes a segment whose entries are all acked, full or not."""
    node.publish(count)
    node.queue.segment_writer.flush(True)
    assert files(node) == ["0.idx"]
    drain(node.queue)
    node.queue.segment_writer.flush(True)
    assert files(node) == []


def test_v2_delete_segment_file_partially_acked_with_holes(node):
    """A segment with gaps is deleted only after its last ack."""
    node.publish(HALF)
    node.queue.segment_writer.flush(True)
    taken = tags(node.queue.fetch(HALF, True))
    for gone in (taken[::2], taken[1:-1:2]):
        node.queue.ack(gone)
        node.queue.segment_writer.flush(True)
        assert files(node) == ["0.idx"]
    node.queue.ack(taken[-1:])
    node.queue.segment_writer.flush(True)
    assert files(node) == []


# -- the queue


def test_bq_queue_recover(node):
    """Two segments of confirmed messages survive a kill: the head is redelivered, the count is exact, and the queue
    works.
    """
    node.publish(2 * SEGMENT, confirm=True)
    node.sync()
    assert node.queue.drain_confirmed() == [(0, 2 * SEGMENT - 1)]
    node.kill()
    assert len(node.queue) == 2 * SEGMENT
    (first,) = node.queue.fetch(1, True)
    assert (tags([first]), first.redelivered) == ([0], True)
    node.queue.requeue([0])
    node.publish(1)
    numbers, flags = drain(node.queue)
    assert (numbers[:-1], flags) == (list(range(2 * SEGMENT)), [True] * 2 * SEGMENT + [False])


def test_variable_queue_dynamic_duration_change(node):
    """Publishes, fetches and acks continue while the memory target falls to 0, rises and is removed; then the queue
    drains.
    """
    node.publish(SEGMENT)
    held = []
    for target in (1.0, 0.25, 0.0, 0.25, INFINITE):
        node.queue.ram_duration()
        node.queue.set_ram_duration_target(target)
        for _ in range(5):
            node.publish(20)
            held += tags(node.queue.fetch(20, True))
            node.queue.ack(held[:15])
            del held[:15]
            node.queue.check()
    node.queue.ack(held)
    last = drain(node.queue)[0]
    assert (len(last), len(node.queue), node.queue.totals().depth) == (SEGMENT, 0, 0)


@pytest.mark.parametrize("mode", ["default"], indirect=True)
def test_variable_queue_partial_segments_delta_thing(node):
    """Messages keep their order through q1, q3 and delta, with bodies embedded or stored. test_variable_queue.py has
    the figures.
    """
    node.publish(SEGMENT + HALF)
    page_all(node.queue)
    node.publish(1)
    assert drain(node.queue)[0] == list(range(SEGMENT + HALF + 1))


def test_variable_queue_all_the_bits_not_covered_elsewhere_A(node):
    """After an unclean restart exactly the persistent messages are back, all redelivered; a later transient one is
    not.
    """
    page_all(node.queue)
    node.publish(HALF)
    node.publish(HALF, TRANSIENT)
    node.publish(HALF)
    page_all(node.queue)
    node.sync()
    node.kill()
    assert len(node.queue) == SEGMENT
    node.publish(1, TRANSIENT)
    numbers, flags = drain(node.queue)
    assert numbers[:-1] == [*range(HALF), *range(SEGMENT, SEGMENT + HALF)]
    assert flags == [True] * SEGMENT + [False]


def test_variable_queue_all_the_bits_not_covered_elsewhere_B(node):
    """Transient messages that were paged, fetched and requeued do not survive a restart."""
    node.publish(SEGMENT, TRANSIENT)
    page_all(node.queue)
    node.queue.requeue(tags(node.queue.fetch(HALF, True)))
    assert not len(restarted(node, node.stop()))


def test_variable_queue_drop(node):
    """Drop empties the queue, also of a message that was requeued. (The suite's drop with ack is a fetch here.)"""
    node.publish(1)
    page_all(node.queue)
    assert node.queue.requeue(tags(node.queue.fetch(1, True))) == 1
    assert (node.queue.drop(2), len(node.queue), node.queue.totals().depth) == (1, 0, 0)
    assert not len(node.queue)


def test_variable_queue_fold_msg_on_disk(node):
    """Ackfold reads the body of a pending message from disk."""
    node.publish(1)
    page_all(node.queue)
    taken = tags(node.queue.fetch(1, True))
    page_all(node.queue)
    assert [message.content for message in node.queue.pending_messages(taken)] == contents(1)


def numbered(node, count, origin=PERSISTENT):
    """Each message expires at its number."""
    for number in range(count):
        node.queue.publish(origin, contents(1, first=number), 10, number, False)


def test_variable_queue_dropfetchwhile(node):
    """Fetchwhile returns the first 5 in order; after a requeue dropwhile takes 5, and 5 remain in order."""
    numbered(node, 10)
    messages = [message.tag for message in node.queue.fetch_expired(4, 10)]
    assert (messages, node.queue.head_expiry()) == ([0, 1, 2, 3, 4], 5)
    node.queue.requeue(messages)
    assert (node.queue.drop_expired(4, 10), node.queue.head_expiry()) == (5, 5)
    assert drain(node.queue)[0] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("sweep", ["drop_expired", "fetch_expired"])
def test_variable_queue_dropwhile_and_fetchwhile_varying_ram_duration(node, sweep):
    """A head that has not expired stays in place, in memory and on disk."""
    for step in (lambda: page_all(node.queue), lambda: node.queue.set_ram_duration_target(INFINITE)):
        numbered(node, 3)
        step()
        for _ in range(3):
            assert not getattr(node.queue, sweep)(-1, 10)
        assert len(drain(node.queue)[0]) == 3


@pytest.mark.parametrize("is_flushed", [False, True], ids=["dropwhile_restart", "dropwhile_sync_restart"])
def test_variable_queue_dropwhile_restart(node, is_flushed):
    """Of 10,000 persistent messages 5 are dropped; after a clean restart 9,995 are left, then none."""
    for _ in range(10):
        node.publish(1000)
    node.queue.drop(5)
    if is_flushed:
        node.queue.segment_writer.flush(True)
    queue = restarted(node, node.stop())
    assert len(queue) == 9995
    assert drain(queue)[0] == list(range(5, 10_000))
    assert not len(queue)


def test_variable_queue_ack_limiting(node):
    """Half of 1024 messages are pending when all are paged out: every one is still there."""
    node.publish(1024)
    taken = tags(node.queue.fetch(512, True))
    page_all(node.queue)
    assert (len(node.queue), node.queue.totals().depth) == (512, 1024)
    node.queue.requeue(taken)
    assert drain(node.queue)[0] == list(range(1024))


def test_variable_queue_purge(node):
    """Purge counts the ready messages; the pending ones can be requeued."""
    assert node.queue.purge() == 0
    node.publish(10)
    taken = tags(node.queue.fetch(6, True))
    assert node.queue.purge() == 4
    node.queue.requeue(taken[:3])
    assert (len(node.queue), node.queue.totals().depth) == (3, 6)
    assert drain(node.queue)[0] == taken[:3]


def test_variable_queue_requeue(node):
    """After a requeue with holes, requeued messages are redelivered, others are not, and all come in the order of
    their numbers.
    """
    node.publish(3 * SEGMENT)
    taken = tags(node.queue.fetch(3 * SEGMENT, True))
    node.queue.requeue(taken[::2])
    page_all(node.queue)
    node.queue.requeue(taken[1::4])
    node.queue.ack(taken[3::4])
    node.publish(5)
    numbers, flags = drain(node.queue)
    assert (
        numbers
        == sorted(numbers)
        == [*(tag for tag in range(3 * SEGMENT) if tag % 4 != 3), *range(3 * SEGMENT, 3 * SEGMENT + 5)]
    )
    assert flags == [tag < 3 * SEGMENT for tag in numbers]


def requeue_one_by_one(node, after):
    """Requeue pending messages one by one, among messages that are paged out. `after` is called after each step."""
    count = 2 * SEGMENT + 2
    node.publish(count)
    taken = tags(node.queue.fetch(count, True))
    after()
    node.queue.requeue(taken[:SEGMENT])
    after()
    page_all(node.queue)
    after()
    for tag in random.Random(1).sample(taken[SEGMENT:], count - SEGMENT):
        node.queue.requeue([tag])
        after()
    assert drain(node.queue) == (list(range(count)), [True] * count)


def test_variable_queue_requeue_ram_beta(node):
    """Messages that are requeued one by one among messages that are paged out come back in order, as redelivered."""
    requeue_one_by_one(node, node.queue.check)


def test_variable_queue_mode_change(node):
    """Messages come back in order, as redelivered, even if the queue changes to a random mode after each one that is
    requeued.
    """
    choose = random.Random(2)

    def change():
        node.queue.set_queue_mode(choose.choice(["lazy", "default"]))
        node.queue.check()

    requeue_one_by_one(node, change)


def test_variable_queue_batch_publish(node):
    """After a batch of 10 publishes the queue's length is 10."""
    node.publish(10)
    assert len(node.queue) == 10


def test_variable_queue_batch_publish_delivered(node):
    """After a batch of 10 messages that are delivered at once the queue's depth is 10."""
    given = node.queue.publish_delivered(PERSISTENT, contents(10), 100, None, False)
    assert (list(given), len(node.queue), node.queue.totals().depth) == (list(range(10)), 0, 10)


def test_an_empty_queue_keeps_its_numbers(node):
    """An empty queue does not give numbers twice, because the journal may still have acks of them and the store
    bodies.
    """
    node.publish(5)
    drain(node.queue)
    node.sync()
    node.kill()
    assert node.publish(1).start >= 5
