"""Figures of RabbitMQ's backing_queue_SUITE (queue-and-store section 12.1), and cases of the variable queue alone."""

from __future__ import annotations

import pytest

from warren.store.data_dir.recovery_terms import RecoveryTerms
from warren.store.index import segment_jobs
from warren.store.queue.rates import INFINITE
from warren.store.queue.variable.variable_queue import VariableQueue

from ..one_queue import SEGMENT, TRANSIENT, Node, contents, page_all, tags


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path)


def test_partial_segments_delta_thing(node):
    """With one and a half segments paged out, q3 has one segment and delta half; a publish goes to q1; a fetch of a
    segment empties delta.
    """
    half = SEGMENT // 2
    node.publish(SEGMENT + half)
    page_all(node.queue)
    assert node.status("q1", "q2", "delta", "q3", "q4", "len") == (0, 0, half, SEGMENT, 0, SEGMENT + half)
    node.publish(1)
    assert node.status("q1", "delta", "q3") == (1, half, SEGMENT)
    assert tags(node.queue.fetch(SEGMENT, True)) == list(range(SEGMENT))
    assert node.status("q1", "delta", "q3", "q4", "len") == (1, 0, half, 0, half + 1)


def test_ack_limiting(node):
    """With half of 1024 messages fetched, 512 of each kind are in memory; paging leaves none there and loses none."""
    node.publish(1024)
    node.queue.fetch(512, True)
    sub, paging = node.queue.sub_queues, node.queue.paging
    assert (sub.ram_count, paging.ram_acks()) == (512, 512)
    page_all(node.queue)
    assert (sub.ram_count, paging.ram_acks()) == (0, 0)
    assert node.queue.requeue(range(512)) == 512
    node.queue.check()
    assert [c for d in node.queue.fetch(2000, True) for c in d.contents] == contents(1024)


def test_requeue_into_q3_and_delta(node):
    """Requeued messages return to their places among holes and are redelivered; others are not."""
    node.publish(3 * SEGMENT)
    taken = tags(node.queue.fetch(3 * SEGMENT, True))
    node.queue.requeue([tag for tag in taken if tag % 3])
    page_all(node.queue)
    node.queue.requeue([tag for tag in taken if not tag % 3])
    node.publish(5)
    node.queue.check()
    got = [(tag, delivery.redelivered) for delivery in node.queue.fetch(1000, True) for tag in delivery.tags]
    assert got == [(tag, tag < 3 * SEGMENT) for tag in range(3 * SEGMENT + 5)]


def test_bodies_of_pending_messages_are_read_from_the_disk(node):
    """Bodies of pending messages that are not in memory are read, and not kept."""
    node.publish(SEGMENT * 2)
    node.queue.fetch(3, True)
    page_all(node.queue)
    assert [message.content for message in node.queue.pending_messages([1])] == contents(1, first=1)
    assert node.queue.sub_queues.ram_count + node.queue.paging.ram_acks() == 0


def test_pending_bodies_are_read_together(tmp_path):
    """One job reads the bodies of pending messages, also if the read-ahead of the head has brought some into memory.

    Each job replaces the bodies of the one before: a job for the others alone would be followed by another one for the
    first, without end.
    """
    node = Node(tmp_path, kind=VariableQueue)
    queue = node.queue

    def run(job):
        job.run()
        job.reader.prepared(job, node.persistent.read(job.missing.persistent), [])

    for first in (0, 2):
        node.publish(2)
        page_all(queue)
        run(queue.prepare())
        assert tags(queue.fetch(2, True)) == [first, first + 1]
    run(queue.prepare_pending(range(4)))
    assert queue.prepare_pending(range(4)) is None
    assert [message.tag for message in queue.pending_messages(range(4))] == [0, 1, 2, 3]


@pytest.mark.parametrize("embed_below", [0, 1024])
def test_confirms_wait_for_body_and_entry(tmp_path, embed_below):
    """QS-17: a message with its body in the store is confirmed only when journal and store are synced."""
    node = Node(tmp_path, embed_below)
    queue = node.queue
    node.publish(3, confirm=True)
    assert queue.drain_confirmed() == []
    queue.durable(node.journal.write_all(), 0)
    assert queue.drain_confirmed() == ([(0, 2)] if embed_below else [])
    queue.durable(0, node.persistent.write_all())
    assert queue.drain_confirmed() == ([] if embed_below else [(0, 2)])


def test_transients_are_confirmed_at_once_and_do_not_survive(node):
    """Transient messages are confirmed at once, and are gone after a restart even if they were paged, fetched and
    requeued; persistent ones are back.
    """
    node.publish(10, TRANSIENT, confirm=True)
    node.publish(10)
    assert node.queue.drain_confirmed() == [(0, 9)]
    page_all(node.queue)
    node.queue.requeue(tags(node.queue.fetch(5, True)))
    terms = node.stop()
    node.queue = node.opened(terms)
    node.queue.check()
    assert len(node.queue) == 10
    assert tags(node.queue.fetch(20, True)) == list(range(10, 20))


def test_head_after_unclean_end_is_redelivered(node):
    """bq_queue_recover: two segments of confirmed messages survive; the head is redelivered; a later message is
    fresh.
    """
    node.publish(2 * SEGMENT, confirm=True)
    node.sync()
    assert node.queue.drain_confirmed() == [(0, 2 * SEGMENT - 1)]
    node.kill()
    assert len(node.queue) == 2 * SEGMENT
    node.publish(1)
    got = [(len(d.contents), d.redelivered) for d in node.queue.fetch(1000, False)]
    assert sum(count for count, redelivered in got if redelivered) == 2 * SEGMENT
    assert got[-1] == (1, False)


def test_watermark_gap(node):
    """D-5: gaps of transient messages that a restart has lost do not stop the watermark: messages behind them count
    as redelivered.
    """
    for _ in range(2):
        node.publish(5, TRANSIENT)
        node.publish(5)
    node.queue = node.opened(node.stop())
    first = node.queue.fetch(7, True)
    assert tags(first) == [*range(5, 10), 15, 16] and not any(delivery.redelivered for delivery in first)
    assert node.status("next_deliver_seq_id") == (17,)
    node.queue = node.opened(node.stop())
    found = [(tag, delivery.redelivered) for delivery in node.queue.fetch(20, True) for tag in delivery.tags]
    assert found == [(tag, tag < 17) for tag in (*range(5, 10), *range(15, 20))]


def test_clean_restart_after_drop(node):
    """variable_queue_dropwhile_restart: 5 of 1000 dropped, 995 after a clean stop with terms, then empty."""
    node.publish(1000)
    node.queue.drop(5)
    terms = node.stop()
    node.queue = node.opened(terms)
    assert len(node.queue) == 995
    assert len(tags(node.queue.fetch(2000, False))) == 995
    assert not len(node.queue)


def test_purge_of_a_backlog_reads_no_embedded_bodies(tmp_path):
    """A purge of delta costs one record for each segment and reads no body; pending messages stay and can be
    requeued.
    """
    node = Node(tmp_path, embed_below=4096)
    node.publish(20 * SEGMENT)
    node.queue.fetch(2, True)
    page_all(node.queue)
    assert node.status("delta")[0] > 15 * SEGMENT
    position = node.journal.position
    assert node.queue.purge() == 20 * SEGMENT - 2
    assert node.journal.position - position < 40
    assert node.queue.requeue([0, 1]) == 2
    node.queue.segment_writer.flush()
    assert node.disk.list("q") == ["0.idx"]


def test_emptied_stores_and_segments_give_their_space_back(node):
    """A queue that was filled, paged, drained and deleted leaves no file on disk."""
    node.publish(10 * SEGMENT, size=5000)
    page_all(node.queue)
    node.sync()
    node.queue.ack(tags(node.queue.fetch(10 * SEGMENT, True)))
    node.queue.segment_writer.flush()
    node.sync()
    assert node.disk.list("q") == []
    assert node.persistent.engine.file_sizes[1] == 0
    node.queue.delete_and_terminate()
    assert not node.disk.exists("q")


def test_lazy_backlog_is_not_in_memory(tmp_path):
    """Embedded bodies in memory stay within the byte bound until they are flushed (D-12)."""
    node = Node(tmp_path, embed_below=4096)
    node.queue.set_queue_mode("lazy")
    for _ in range(200):
        node.publish(25, size=1000)  # fewer bytes than a run that skips the journal
        assert node.queue._index.unflushed_bytes <= (512 << 10) + 25_000
    assert node.status("delta", "q3", "len") == (5000, 0, 5000)
    assert node.queue.sub_queues.ram_count + node.queue.paging.ram_acks() == 0
    node.queue.set_queue_mode("default")
    assert tags(node.queue.fetch(6000, False)) == list(range(5000))


def room_questions(monkeypatch) -> list[int]:
    """The sizes for which flushes ask whether the disk has room, from now on."""
    asked: list[int] = []
    check_room = segment_jobs.check_room
    monkeypatch.setattr(segment_jobs, "check_room", lambda disk, size: (asked.append(size), check_room(disk, size))[1])
    return asked


def test_a_lazy_backlog_asks_for_the_room_only_while_the_disk_may_lack_it(tmp_path, monkeypatch):
    """A flush of a lazy queue asks whether the disk has room, apart or in its job, only while the disk may lack it:
    each question is a switch of threads, of which workload W6 of compare.py would feel one for each flush.
    """
    node = Node(tmp_path, embed_below=4096, kind=VariableQueue)
    node.queue.set_queue_mode("lazy")
    writer = node.queue.segment_writer
    asked = room_questions(monkeypatch)

    def flushed() -> None:
        flush = writer.take_flush()
        flush.run()
        writer.flushed(flush)

    node.publish(100, size=1000)
    assert writer.may_lack_room, "nobody has seen how much room there is"
    node.disk.limit = node.disk.held + 16 * 250_000
    flushed()
    assert len(asked) == 1
    node.publish(100, size=1000)
    assert not writer.may_lack_room, "a sixteenth of the room was about 240 KB"
    flushed()
    assert len(asked) == 1
    node.publish(200, size=1000)
    assert writer.may_lack_room, "the flush before left 140 KB"
    flushed()
    assert len(asked) == 2


def test_a_flush_that_finds_the_disk_full_asks_for_the_room_before_it_tries_again(tmp_path, monkeypatch):
    node = Node(tmp_path, embed_below=4096, kind=VariableQueue)
    node.queue.set_queue_mode("lazy")
    writer = node.queue.segment_writer
    node.publish(100, size=1000)
    flush = writer.take_flush()
    flush.run()
    writer.flushed(flush)
    node.publish(100, size=1000)
    flush = writer.take_flush()
    node.disk.limit = node.disk.held + 50_000
    with pytest.raises(OSError):
        flush.run()
    asked = room_questions(monkeypatch)
    with pytest.raises(OSError):
        flush.run()
    assert asked
    node.disk.limit = None
    flush.run()
    writer.flushed(flush)
    assert writer.take_flush() is None


def test_paging_round_is_bounded(node):
    """QS-14: a round moves at most 8000 messages of a kind, and reports that it has more to do."""
    for _ in range(10):
        node.publish(1000)
    node.queue.paging.target = 0
    node.queue.page()
    assert node.queue.sub_queues.ram_count == 2000
    assert node.queue.paging.is_due
    page_all(node.queue)
    assert node.queue.sub_queues.ram_count == 0


def test_lost_body_is_dropped_not_delivered(node):
    """A message whose body is damaged leaves the queue and is not delivered; no other message is lost (D-19)."""
    node.publish(3)
    page_all(node.queue)
    terms = node.stop()
    data = node.disk._names["persistent/1.rdq"].data
    data[len(data) // 2] ^= 1
    node.queue = node.opened(terms)
    assert tags(node.queue.fetch(3, True)) == [0, 2]
    assert (node.queue.sub_queues.lost, node.persistent.engine.damaged != []) == (1, True)


def test_memory_target_follows_rates(tmp_path):
    """A target in seconds becomes messages by the smoothed rates; an idle queue reports no duration (queue-and-store
    section 4.7).
    """
    now = [0.0]
    node = Node(tmp_path, clock=lambda: now[0])
    assert node.queue.ram_duration() == INFINITE
    node.publish(1000)
    now[0] += 5.0
    # 200 messages a second, of which the smoothed rate has half after one half-life
    assert node.queue.ram_duration() == pytest.approx(1000 / (4 * 100))
    node.queue.set_ram_duration_target(2.0)
    assert node.status("target_ram_count") == (200,)
    assert node.queue.sub_queues.ram_count == 200


def test_duration_is_the_mean_of_two_samples(tmp_path):
    """D-6: the duration averages the messages in memory now and at the last report."""
    now = [0.0]
    node = Node(tmp_path, clock=lambda: now[0])
    node.publish(1000)
    now[0] += 5.0
    node.queue.ram_duration()
    node.queue.drop(1000)
    now[0] += 5.0
    rates = node.queue.ram_duration(), node.status("rates")[0]
    assert rates[0] == pytest.approx((0 + 1000) / (4 * sum(rates[1])))
    now[0] += 5.0
    assert node.queue.ram_duration() == 0.0


def test_terms_are_read_once(tmp_path):
    """Reading the recovery terms clears them durably, so a crash after it is an unclean end (C-22)."""
    terms = RecoveryTerms(str(tmp_path / "terms"))
    terms.put_all({7: {"next_seq_id": 3, "segments": {0: 2}}})
    assert terms.take_all() == {7: {"next_seq_id": 3, "segments": {0: 2}}}
    terms.close()
    terms = RecoveryTerms(str(tmp_path / "terms"))
    assert terms.take_all() == {}
    terms.close()


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_ack_confirms_what_no_earlier_message_holds_back(node, size):
    """QS-17: an acked message need not be on disk. QS-18: each is confirmed once, with or without a sync."""
    node.publish(4, confirm=True, size=size)
    node.queue.fetch(3, True)
    assert node.queue.drain_confirmed() == []
    node.queue.ack([1])
    assert node.queue.drain_confirmed() == []
    node.queue.ack([0])
    assert node.queue.drain_confirmed() == [(0, 0)]
    node.queue.ack([2, 3])  # the fourth message was not delivered
    assert node.queue.drain_confirmed() == []
    node.queue.durable(1 << 40, 1 << 40)
    assert node.queue.drain_confirmed() == [(1, 3)]


def test_acks_confirm_several_runs_and_a_part_of_one(node):
    for _ in range(3):
        node.publish(2, confirm=True)
    node.queue.fetch(6, True)
    node.queue.ack(range(5))
    assert node.queue.drain_confirmed() == [(0, 4)]
    node.queue.durable(1 << 40, 1 << 40)
    assert node.queue.drain_confirmed() == [(5, 5)]


def test_a_message_that_is_not_delivered_is_not_confirmed_by_an_ack(node):
    """An ack of numbers that the queue has not handed out says nothing about their messages."""
    node.publish(2, confirm=True)
    node.queue.ack(range(2))
    assert node.queue.drain_confirmed() == []
