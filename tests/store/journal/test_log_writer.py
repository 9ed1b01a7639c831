"""`LogWriter`: the records that a queue gathers for its journal."""

from __future__ import annotations

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.journal.journal_engine import JournalEngine
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.message import Origin
from warren.store.messages.run import Run

ORIGIN = Origin("x", ("k",), persistent=True)
ONE, TWO = 0x100, 0x101


def run_of(first: int, count: int) -> Run:
    return Run(
        first,
        [bytes(11) + (5).to_bytes(8, "big") + b"%05d" % number for number in range(first, first + count)],
        ORIGIN,
        None,
        False,
        5 * count,
    )


def written(*gathered) -> dict:
    """What a journal replays after a restart when it was given these records."""
    disk = FaultyDisk()
    disk.make_dir("j")
    journal = JournalEngine(disk, "j")
    journal.recover()
    for portion in gathered:
        for part in portion:
            journal.append(part.queue, part.parts, part.records, part.next_number, part.sizes)
    journal.write_all()
    disk.kill()
    return JournalEngine(disk, "j").recover()


def numbers(replayed) -> list[int]:
    return [
        number
        for run in replayed.embedded.runs
        for piece in run.without_holes()
        for number in range(piece.first, piece.end)
    ]


def test_positions_count_records_across_all_numbers():
    """A position covers the records of all levels of a priority queue."""
    writer = LogWriter()
    assert [
        writer.publish(ONE, run_of(0, 3)),
        writer.publish(TWO, run_of(0, 1)),
        writer.ack(ONE, [range(0, 1)]),
        writer.position,
    ] == [1, 2, 3, 3]
    gathered = writer.take()
    assert sum(part.records for part in gathered) == 3
    assert {part.queue: (part.messages, part.next_number) for part in gathered} == {ONE: (3, 3), TWO: (1, 1)}
    assert writer.take() == []
    assert writer.position == 3


def test_what_is_taken_is_what_a_journal_replays():
    writer = LogWriter()
    writer.publish(ONE, run_of(0, 5))
    writer.publish(TWO, run_of(7, 2))
    first = writer.take()
    writer.ack(ONE, [range(1, 3), range(4, 5)])
    found = written(first, writer.take())
    assert {number: (numbers(replayed), replayed.next_number) for number, replayed in found.items()} == {
        ONE: ([0, 3], 5),
        TWO: ([7, 8], 9),
    }


def test_an_ack_says_where_numbering_stands_only_if_it_is_known():
    """An ack records where numbering stands only if that is known: after a clean stop a queue acks messages that have
    no record in the journal, and its numbering must not go back.
    """
    writer = LogWriter()
    writer.resume(ONE, 100)
    writer.ack(ONE, [range(40, 42)])
    (part,) = writer.take()
    assert (part.next_number, part.messages) == (100, 0)


def test_a_deleted_number_leaves_nothing():
    """C-16: neither records taken before the deletion nor records taken with it count."""
    writer = LogWriter()
    writer.publish(ONE, run_of(0, 2))
    first = writer.take()
    writer.publish(ONE, run_of(2, 2))
    assert writer.delete(ONE) == 3
    last = writer.take()
    assert last[0].next_number is None
    assert written(first, last) == {}


def test_one_that_never_said_anything_takes_no_leave():
    """A level that never recorded anything does not record its deletion: a queue of 256 priorities that used two would
    otherwise record 256 deletions.
    """
    writer = LogWriter()
    assert writer.delete(ONE) == 0
    assert writer.take() == []


def test_one_of_an_earlier_life_does():
    writer = LogWriter()
    writer.resume(ONE, 7)
    assert writer.delete(ONE) == 1
    (part,) = writer.take()
    assert (part.queue, part.next_number) == (ONE, None)


def test_a_queue_that_no_start_recovers_records_no_acknowledgement():
    """A queue that no start recovers records no acknowledgements: the journal drops the records of such a queue, so
    whoever waited for one would wait for ever.
    """
    log = LogWriter(is_journaled=False)
    assert log.ack(ONE, [range(0, 3)]) == log.sizes(ONE, {0: 0}) == log.position == 0
    assert log.take() == []


def test_sizes_that_wait_go_with_the_next_record():
    writer = LogWriter()
    writer.sizes_later(ONE, {0: 100})
    writer.sizes_later(ONE, {0: 200, 1: 50})
    assert writer.has_sizes_later and not writer.has_gathered
    writer.ack(TWO, [range(0, 1)])
    gathered = writer.take()
    assert {part.queue: part.sizes for part in gathered} == {ONE: {0: 200, 1: 50}, TWO: {}}
    assert writer.position == 2 and not writer.has_sizes_later and not writer.has_gathered


def test_sizes_that_wait_are_recorded_on_demand():
    writer = LogWriter()
    writer.sizes_later(ONE, {0: 100})
    writer.record_sizes()
    assert writer.has_gathered and not writer.is_awaited
    assert [part.sizes for part in writer.take()] == [{0: 100}]


def test_a_size_that_waits_does_not_follow_a_newer_one():
    """If the record that a file will be removed were followed by its size, a start would miss the file."""
    writer = LogWriter()
    writer.sizes_later(ONE, {0: 100, 1: 50})
    writer.sizes(ONE, {0: 0})
    (part,) = writer.take()
    assert part.sizes == {0: 0, 1: 50}


def test_sizes_that_wait_are_gone_with_the_queue():
    writer = LogWriter()
    writer.resume(ONE, 7)
    writer.sizes_later(ONE, {0: 100})
    writer.delete(ONE)
    (part,) = writer.take()
    assert (part.sizes, part.next_number) == ({}, None)


def test_a_queue_that_no_start_recovers_records_no_sizes():
    log = LogWriter(is_journaled=False)
    log.sizes_later(ONE, {0: 100})
    log.record_sizes()
    assert not log.has_sizes_later and log.take() == []
