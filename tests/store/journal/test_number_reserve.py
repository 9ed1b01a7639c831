"""Message numbers are never given twice (`number_reserve`): a queue reserves them in the journal before use."""

from __future__ import annotations

from random import Random

import pytest

from warren.store.journal.number_reserve import AHEAD, NumberReserve

from ..one_queue import TRANSIENT, Node, page_all, tags


class Index:
    """Keeps the reservations that it is given; each is one record of the journal."""

    def __init__(self):
        self.reserved = []

    def reserve(self, number):
        self.reserved.append(number)
        return len(self.reserved)


def test_numbers_are_kept_once_their_reservation_is_durable():
    index = Index()
    reserved, reserve = index.reserved, NumberReserve(index)
    assert reserve.kept(0) == 0
    assert reserve.renew(1) == 1
    assert (reserved, reserve.kept(1)) == ([1 + AHEAD], 0)
    reserve.durable(1)
    assert (reserve.kept(1), reserve.kept(1 + AHEAD), reserve.kept(2 + AHEAD)) == (1, 1 + AHEAD, 1 + AHEAD)
    assert reserve.renew_from == 1 + AHEAD // 2
    reserve.renew(reserve.renew_from)
    reserve.renew(reserve.renew_from)
    reserve.durable(2)
    assert reserve.kept(1 << 40) == reserved[1]
    reserve.durable(3)
    assert reserve.kept(1 << 40) == reserved[2]


def test_a_queue_that_ends_with_its_process_keeps_none():
    reserve = NumberReserve(None)
    assert reserve.kept(1 << 50) == 1 << 50
    assert reserve.renew_from > 1 << 60


def test_numbers_of_an_earlier_process_are_kept():
    reserve = NumberReserve(Index())
    reserve.found(7)
    assert (reserve.kept(7), reserve.kept(8)) == (7, 7)


@pytest.mark.parametrize("way", ["kill", *range(5)])
@pytest.mark.parametrize("count", [1, 100, AHEAD // 2, AHEAD + 100])
def test_numbers_of_messages_without_a_record_are_not_given_again(tmp_path, way, count):
    """A message published after a crash gets a number behind all that a reader has seen, although the journal has no
    record of messages that were transient, discarded or delivered at once.
    """
    node = Node(tmp_path)
    for _ in range(count):
        node.publish(1, TRANSIENT)
    node.queue.discard(TRANSIENT, 1, False)
    node.sync()
    shown = node.queue.kept_numbers()
    assert shown.stop == count + 1
    node.persistent.engine.abandon()
    node.transient.engine.abandon()
    if way == "kill":
        node.disk.kill()
    else:
        node.disk.crash(Random(way))
    node.queue = node.opened(None)
    assert shown.stop <= node.publish(1).start <= shown.stop + AHEAD


def test_numbers_are_shown_only_when_they_are_kept(tmp_path):
    """A number is shown only when its reservation is on the disk: the first numbers wait for the journal, and later
    ones were reserved long before they are used.
    """
    node = Node(tmp_path)
    node.publish(5, TRANSIENT)
    assert (node.queue.numbers(), node.queue.kept_numbers()) == (range(0, 5), range(0, 0))
    node.sync()
    assert node.queue.kept_numbers() == range(0, 5)
    for _ in range(AHEAD // 1000):
        node.publish(1000, TRANSIENT)
        assert node.queue.kept_numbers() == node.queue.numbers()
        node.sync()


@pytest.mark.parametrize("is_consumed", [False, True])
def test_no_number_is_shown_before_its_reservation_is_kept(tmp_path, is_consumed):
    """Even if the queue is empty again before the journal has the reservation, the next number is not shown."""
    node = Node(tmp_path)
    node.publish(5, TRANSIENT)
    if is_consumed:
        node.queue.ack(tags(node.queue.fetch(5, True)))
    assert node.queue.kept_numbers().stop == 0
    node.sync()
    assert node.queue.kept_numbers().stop == node.queue.numbers().stop == 5


def test_numbers_that_only_a_segment_has_are_not_given_again(tmp_path):
    """Numbers are not given again after a power cut that left a segment with transient messages and lost the
    reservation of their numbers. The next start continued behind them, and once the segment was removed nothing
    recorded that.
    """
    node = Node(tmp_path)
    node.queue.set_queue_mode("lazy")
    node.publish(5, TRANSIENT)
    page_all(node.queue)
    node.queue.segment_writer.flush()
    node.disk.open("q/0.idx").sync()
    node.disk.sync_dir("q")
    node.persistent.engine.abandon()
    node.transient.engine.abandon()
    node.disk.crash(Random(0))
    node.queue = node.opened(None)
    assert (node.queue.numbers().stop, node.queue.kept_numbers().stop) == (5, 0)
    node.sync()
    assert node.queue.kept_numbers().stop == 5
    node.queue.segment_writer.flush(True)
    node.sync()
    node.queue.segment_writer.flush(True)
    assert node.disk.list("q") == []
    node.kill()
    assert node.queue.numbers().start >= 5


def test_after_a_clean_stop_numbers_continue_without_a_gap(tmp_path):
    node = Node(tmp_path)
    for start in range(3):
        node.publish(10)
        node.queue = node.opened(node.stop())
        assert node.queue.kept_numbers() == node.queue.numbers() == range(0, 10 * start + 10)
    assert tags(node.queue.fetch(100, True)) == list(range(30))
