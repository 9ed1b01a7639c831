"""The digests of publishes on the disk (SP-31)."""

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.deduplication.digest_log import EVERYTHING, FLUSH_BYTES, FLUSH_RECORDS, DigestLog
from warren.store.deduplication.digest_records import COPIED, decode_digests, encode_digests, remaining, taken_back
from warren.store.deduplication.ids_file import ids_numbers, read_ids
from warren.store.deduplication.window import NO_KEY, Window
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.job_guards import JobEnded
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.records import Type, records

DIGESTS = st.lists(st.binary(min_size=16, max_size=16), max_size=5)


def digest(number):
    return number.to_bytes(16, "big")


@given(st.integers(0, (1 << 64) - 1), DIGESTS)
def test_records_are_read_as_they_were_written(first, digests):
    assert decode_digests(encode_digests(first, digests)) == (first, digests)


@pytest.mark.parametrize("body", [b"", b"1234567", bytes(9), bytes(23)])
def test_a_record_that_is_cut_off_is_refused(body):
    with pytest.raises(ValueError, match="cannot have"):
        decode_digests(body)


def test_what_is_taken_back_is_gone():
    bodies = [encode_digests(7, [digest(1), NO_KEY, digest(2)]), encode_digests(10, [digest(3)]), *taken_back([9])]
    assert list(remaining(bodies)) == [digest(1), digest(3)]


def test_a_new_beginning_ends_what_came_before():
    bodies = [encode_digests(1, [digest(1)]), encode_digests(COPIED, []), encode_digests(COPIED + 1, [digest(2)])]
    assert list(remaining([*bodies, encode_digests(2, [digest(3)])])) == [digest(2), digest(3)]
    assert list(remaining([*bodies, encode_digests(COPIED + 2, [])])) == []


class Node:
    """The digests of a queue over several starts of a node. The journal is a list of records, which a flush empties."""

    def __init__(self, size=4):
        self.disk = FaultyDisk()
        self.size = size
        self.journal = []
        self.start()

    def start(self, missing=()):
        self.writer = LogWriter()
        self.log = DigestLog(self.disk, "queues/100", 0x100, self.writer, self.size)
        self.window = self.log.load(self.journal, missing)
        self.sync()

    def begin_anew(self, nonce):
        """The window ended and begins again; the files of the window before may be there yet."""
        self.log = DigestLog(self.disk, "queues/100", 0x100, self.writer, self.size)
        self.log.begin(nonce.to_bytes(7, "big"))
        self.window = Window(self.size)

    def resize(self, size):
        self.size = size
        self.log.resize(size)
        self.window.resize(size)

    def publish(self, first, *numbers):
        digests = [NO_KEY if number is None else digest(number) for number in numbers]
        self.log.record(first, digests)
        self.window.add_all(digests)

    def sync(self):
        for part in self.writer.take():
            self.journal += [entry.body for entry in records(b"".join(part.parts)) if entry.type is Type.DIGESTS]
        self.writer.durable = self.writer.position

    def flush(self, is_last=False):
        """Flush everything; returns how many records each flush has."""
        until, counts = EVERYTHING if is_last else self.log.synced, []
        while (flush := self.log.take_flush(until)) is not None:
            flush.run()
            self.log.flushed(flush)
            counts.append(len(flush.bodies))
        return counts

    def has(self, *numbers):
        return [digest(number) in self.window for number in numbers]


def test_a_kill_forgets_what_the_journal_had_not_synced():
    node = Node()
    node.publish(0, 1, None, 2)
    node.sync()
    node.publish(3, 3)
    node.start()
    assert node.has(1, 2, 3) == [True, True, False]


def test_a_flush_writes_only_what_the_journal_has_synced():
    """A flush writes no digest before the journal has synced the record of its message. Otherwise a crash could leave
    the digest without the message, which would be lost when it is published again.
    """
    node = Node()
    node.publish(0, 1)
    node.sync()
    node.publish(1, 2)
    node.flush()
    assert list(remaining(read_ids(node.disk, "queues/100", 0x100).bodies)) == [digest(1)]
    node.flush(is_last=True)
    node.journal = []
    node.disk.crash(Random(1))
    node.start()
    assert node.has(1, 2) == [True, True]


def test_a_flush_of_a_former_process_leaves_the_files_alone():
    """The process of a queue may end while its flush waits for a thread. If the flush ran later, it would cut the file
    to the size that it had before, and the queue would take duplicates of what its next process has accepted.
    """
    node = Node()
    node.publish(0, 1)
    node.sync()
    late = node.log.take_flush(node.log.synced)
    node.start()
    node.publish(1, 2, 3)
    node.sync()
    node.flush()
    with pytest.raises(JobEnded):
        late.run()
    node.journal = []
    node.start()
    assert node.has(1, 2, 3) == [True, True, True]


def test_a_flush_takes_a_part_of_very_many_records():
    """A flush has at most `FLUSH_RECORDS` records, and about `FLUSH_BYTES` bytes. Otherwise a queue that remembers
    millions of messages would gather all their digests in one turn.
    """
    node = Node(size=100_000)
    for number in range(2 * FLUSH_RECORDS):
        node.publish(number, number + 1)
    node.publish(20_000, *range(30_000, 30_000 + FLUSH_BYTES // 16))
    node.publish(30_000, 20_000)
    node.sync()
    assert node.flush() == [FLUSH_RECORDS, FLUSH_RECORDS, 1, 1]
    node.journal = []
    node.start()
    assert all(node.has(30_000, 30_000 + FLUSH_BYTES // 16 - 1, 20_000))


def test_what_is_in_a_file_and_in_the_journal_counts_once():
    node = Node()
    for number in range(3):
        node.publish(number, number + 1)
    node.sync()
    node.flush()
    node.start()
    node.flush(is_last=True)
    assert len(read_ids(node.disk, "queues/100", 0x100).bodies) == 3
    assert len(node.window) == 3


def test_files_that_the_window_has_left_behind_are_deleted():
    node = Node(size=4)
    for number in range(40):
        node.publish(number, number + 1)
        node.sync()
        node.flush()
        node.journal = []
    assert len(ids_numbers(node.disk, "queues/100")) == 2
    node.start()
    assert all(node.has(*range(37, 41)))
    assert len(node.window) <= 8


def test_lost_messages_may_be_published_again_after_any_number_of_starts():
    node = Node()
    node.publish(0, 1, 2)
    node.sync()
    node.flush()
    node.journal = []
    node.start(missing=[1])
    assert node.has(1, 2) == [True, False]
    node.start()
    assert node.has(1, 2) == [True, False]
    node.flush(is_last=True)
    node.journal = []
    node.start()
    assert node.has(1, 2) == [True, False]


@given(st.integers(0, 1 << 32), st.integers(1, 30))
def test_a_power_cut_at_any_operation_loses_no_synced_digest(seed, operations):
    node, synced = Node(size=100), []
    random = Random(seed)
    node.disk.fail_after(operations, OSError(5, "broken"))
    try:
        for number in range(1, 30):
            node.publish(number, number)
            node.sync()
            synced.append(number)
            if random.random() < 0.3:
                node.flush()
    except OSError:
        pass
    node.disk.heal()
    node.disk.crash(random)
    node.start()
    assert all(node.has(*synced))


def test_damage_costs_only_the_digests_in_it(caplog):
    node = Node(size=100)
    for number in range(3):
        node.publish(number, number + 1)
        node.sync()
        node.flush()
    node.journal = []
    content = node.disk._names["queues/100/1.ids"]
    content.data[20] ^= 1
    node.start()
    assert node.has(1, 2, 3) == [False, True, True]
    assert "are kept once more if they are published again" in caplog.text


def test_two_copies_that_are_alike_are_both_read():
    """A record of this queue that is both in a file and in the journal counts as one. Two equal copies of another
    replica's digests count as two, even if only the second one is still in the journal.
    """
    node = Node()
    node.publish(1, 1)
    node.log.copied([])
    node.log.copied([digest(5)])
    node.publish(2, 2)
    node.sync()
    node.flush()
    node.start()
    assert node.has(1, 2, 5) == [False, True, True]
    node.log.copied([])
    node.log.copied([digest(5)])
    node.sync()
    node.start()
    assert node.has(1, 2, 5) == [False, False, True]


@given(
    st.lists(
        st.one_of(st.sampled_from(["publish"] * 4 + ["sync and flush", "give up", "kill", "anew"]), st.integers(1, 6)),
        max_size=60,
    )
)
def test_a_window_that_ends_begins_and_is_resized_is_remembered(steps):
    """A number resizes the window. After each kill the queue has the last messages since the window began, as far as
    the window was wide enough all the time, and no message from before.
    """
    node, number, began, certain = Node(size=3), 0, 0, 0
    for at, step in enumerate(steps):
        if step == "publish":
            node.publish(number, number + 1)
            number, certain = number + 1, min(certain + 1, node.size)
            node.sync()
        elif step == "sync and flush":
            node.flush()
        elif step == "give up":
            node.flush()
            node.journal = []
        elif step == "anew":
            node.begin_anew(at)
            node.sync()
            began, certain = number, 0
        elif step == "kill":
            node.start()
        else:
            node.resize(step)
            certain = min(certain, step)
        assert all(node.has(*range(number - certain + 1, number + 1)))
        assert not any(node.has(*range(1, began + 1)))
