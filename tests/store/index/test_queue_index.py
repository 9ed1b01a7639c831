"""The queue index with its journal, on a `FaultyDisk`."""

from __future__ import annotations

import contextlib
import errno
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.walk_frames import walk_frames
from warren.store.index.queue_index import QueueIndex
from warren.store.index.segment_file import BLOCK
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin
from warren.store.messages.records import FRAME, Kind, make_stub
from warren.store.messages.run import Run

from ..engines import DirectLog

ENTRIES = 16
PERSISTENT = Origin("x", ("k",), persistent=True)
TRANSIENT = Origin("x", ("k",), persistent=False)


def slot(number: int, stored: bool) -> bytes:
    return (
        make_stub(number.to_bytes(16, "big"), 5)
        if stored
        else bytes(11) + (5).to_bytes(8, "big") + number.to_bytes(8, "big")
    )


def run_of(first: int, count: int, stored: bool = False, origin: Origin = PERSISTENT) -> Run:
    return Run(first, [slot(n, stored) for n in range(first, first + count)], origin, None, False, 5 * count)


def held(index: QueueIndex, low: int, high: int) -> dict[int, bytes]:
    found = {}
    start = low // ENTRIES * ENTRIES
    while start < high:
        stop = min(index.reach(start), -(-high // ENTRIES) * ENTRIES)
        numbers = [m for run, _ in index.read(start, stop) for m in run.messages()]
        assert [m.tag for m in numbers] == sorted({m.tag for m in numbers})
        found.update({m.tag: m.content for m in numbers})
        start = stop
    return found


def opened(disk, clean=None, has_sizes=True):
    disk.make_dir("j")
    journal = JournalEngine(disk, "j", file_limit=600, frame_limit=200)
    replayed = journal.recover()
    index = QueueIndex(disk, "q", 1, DirectLog(journal, has_sizes), ENTRIES)
    return journal, index, index.scan(replayed.get(1), clean)


class IndexMachine(RuleBasedStateMachine):
    """Random operations and crashes; `history` is as in the journal's test. Flushes change nothing for readers (QS-25).
    Records are counted here as positions, so the journal gets no sizes of segments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.next = 0
        self.begin({})

    def begin(self, state):
        self.journal, self.index, self.found = opened(self.disk, has_sizes=False)
        self.state = dict(state)
        self.now = dict(state)
        self.transient = set()
        self.history = []
        self.flushing = self.reading = None

    def note(self, published, acked, position):
        assert position == len(self.history) + 1
        self.history.append((published, acked))

    def after(self, count):
        state = dict(self.state)
        for published, acked in self.history[:count]:
            state.update(published)
            for number in acked:
                state.pop(number, None)
        return state

    @rule(count=st.integers(1, 40), stored=st.booleans(), gap=st.integers(0, 3))
    def publish(self, count, stored, gap):
        run = run_of(self.next + gap, count, stored)
        self.next = run.end
        published = dict(zip(range(run.first, run.end), run.contents, strict=True))
        self.note(published, (), self.index.publish(run, stored))
        self.now.update(published)

    @rule(count=st.integers(1, 9), stored=st.booleans())
    def page_transients(self, count, stored):
        run = run_of(self.next, count, stored, TRANSIENT)
        self.next = run.end
        self.index.page(run, stored)
        self.now.update(zip(range(run.first, run.end), run.contents, strict=True))
        self.transient.update(range(run.first, run.end))

    @rule(numbers=st.integers(1, 3 * ENTRIES))
    def continue_behind_a_gap(self, numbers):
        """Continue with higher numbers, as a queue does after a crash."""
        self.next += numbers

    @precondition(lambda self: self.now)
    @rule(data=st.data())
    def ack(self, data):
        numbers = sorted(self.now)
        start = data.draw(st.integers(0, len(numbers) - 1))
        tags = numbers[start : start + data.draw(st.integers(1, 50)) : data.draw(st.integers(1, 3))]
        self.note({}, tags, self.index.ack(tags))
        for tag in tags:
            del self.now[tag]

    @precondition(lambda self: self.now)
    @rule(data=st.data())
    def purge(self, data):
        keep = data.draw(st.sets(st.sampled_from(sorted(self.now)), max_size=4))
        start = data.draw(st.integers(0, min(self.now)))
        before = self.journal.position
        self.index.ack_between(start, self.next, keep)
        gone = set(self.now) - keep
        # A purge writes one record a segment or run. A crash between two records leaves a part of the purge, which was
        # not answered yet.
        for position in range(before, self.journal.position):
            last = position == self.journal.position - 1
            self.history.append(({}, gone) if last else ({}, self.purged_until(position, gone)))
        self.now = {number: self.now[number] for number in keep}

    def purged_until(self, position, gone):
        return ()

    @precondition(lambda self: self.flushing is None)
    @rule(
        sync=st.booleans(),
        only_remove=st.sampled_from([False, False, True]),
        most=st.sampled_from([None, None, (1, 1000, 1000), (9, 1, 1000), (9, 1000, 1)]),
    )
    def take_flush(self, sync, only_remove, most=None):
        """Begin a flush, during which publishes, acks, purges and reads go on."""
        self.journal.write_all()
        flush = self.index.take_removal() if only_remove else self.index.take_flush(sync, most)
        assert only_remove or most or not self.index.unflushed_bytes
        if flush is not None:
            self.flushing = flush, self.journal.current

    @precondition(lambda self: self.flushing is not None)
    @rule(error=st.sampled_from([None, None, errno.ENOSPC]), at=st.integers(1, 3))
    def finish_flush(self, error, at):
        flush, file = self.flushing
        if error is not None:
            self.disk.fail_after(at, OSError(error, "injected"))
            with contextlib.suppress(OSError):
                flush.run()
            self.disk.heal()
        flush.run()
        self.index.flushed(flush)
        self.flushing = None
        if flush.is_synced and file and self.journal.closed_files:
            self.note({}, (), self.journal.retire(file))

    @precondition(lambda self: self.reading is None and self.now)
    @rule(data=st.data())
    def take_read(self, data):
        start = data.draw(st.sampled_from(sorted(self.now)))
        stop = min(self.index.reach(start), self.next)
        self.reading = self.index.reads.take(start, stop)
        if self.reading is None:
            self.disk.fail_after(1, AssertionError("nothing was to be read"))
            self.index.read(start, stop)
            self.disk.heal()

    @precondition(lambda self: self.reading is not None)
    @rule()
    def finish_read(self):
        self.reading.run()
        self.index.reads.loaded(self.reading)
        self.reading = None

    @rule()
    def write(self):
        batch = self.journal.take_batch()
        if batch is not None:
            self.journal.commit(batch)
            self.journal.committed(batch)
            self.journal.unlink_retired(batch)

    @rule(
        seed=st.integers(0, 1 << 16),
        at=st.one_of(st.none(), st.integers(1, 8)),
        during=st.sampled_from(["write", "flush"]),
        kill=st.booleans(),
        again=st.integers(1, 9),
    )
    def crash(self, seed, at, during, kill, again):
        if at is not None:
            self.disk.fail_after(at, KeyboardInterrupt())
            try:
                if during == "write":
                    self.write()
                elif self.flushing is None:
                    self.take_flush(True, False)
                if self.flushing is not None:
                    self.finish_flush(None, 1)
            except KeyboardInterrupt:
                pass
            self.disk.heal()
        durable, history = self.journal.durable, len(self.history)
        self.disk.kill() if kill else self.disk.crash(Random(seed))
        # A crash inside recovery (QS-24).
        self.disk.fail_after(again, KeyboardInterrupt())
        try:
            _, index, _ = opened(self.disk, has_sizes=False)
            index.flush(True)
        except KeyboardInterrupt:
            pass
        self.disk.crash(Random(seed + 1))
        _, index, found = opened(self.disk, has_sizes=False)
        got = held(index, 0, self.next)
        matching = [
            count for count in range(durable, history + 1) if {n: c for n, c in self.after(count).items()} == got
        ]
        if not matching:
            # A part of a purge: the state is between those before and after it.
            matching = [
                count
                for count in range(durable, history)
                if self.after(count + 1).keys() <= got.keys() <= self.after(count).keys()
            ]
        assert matching, (sorted(got), durable, [sorted(self.after(count)) for count in range(durable, history + 1)])
        assert (found.messages, found.body_bytes) == (len(got), 5 * len(got))
        assert found.next_number > max(got, default=-1)
        self.begin(got)

    @precondition(lambda self: self.flushing is None)
    @rule()
    def restart_cleanly(self):
        terms = self.index.terminate()
        self.journal.retire(self.journal.current) if self.journal.current else None
        self.journal.close()
        self.disk.crash(Random(1))
        self.now = {number: content for number, content in self.now.items() if number not in self.transient}
        self.begin(self.now)
        assert sum(terms.values()) >= len(self.now)

    @invariant()
    def reads_what_was_published(self):
        assert held(self.index, 0, self.next) == self.now
        low, high = self.index.bounds()
        assert all(low <= number < high for number in self.now)


TestQueueIndex = IndexMachine.TestCase
TestQueueIndex.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_early_acks_touch_no_segment(disk):
    """A message acked before its journal file is flushed costs one sequential write."""
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 100))
    index.ack(range(0, 100))
    journal.write_all()
    assert index.take_flush() is None
    assert disk.list("q") == []


def test_segments_disappear_when_acked(disk):
    """Fully acked segments are deleted by the next flush, others stay (QS-22); holes do not matter."""
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 3 * ENTRIES))
    index.flush(True)
    index.ack(range(0, ENTRIES, 2))
    index.ack(range(2 * ENTRIES, 3 * ENTRIES))
    index.flush(True)
    assert disk.list("q") == ["0.idx", "1.idx"]
    index.ack(range(1, ENTRIES, 2))
    index.ack(range(ENTRIES, 2 * ENTRIES))
    index.flush(True)
    assert (disk.list("q"), index.bounds()) == ([], (0, 0))


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_segment_stays_removed_after_a_kill_and_a_power_cut(disk, seed):
    """A segment file that was removed stays removed, although the process was killed before it synced the directory.
    The next process found no file to sync, the journal gave up the acknowledgements, and a power cut would have brought
    the file back.
    """
    journal, index, _ = opened(disk)
    index.publish(run_of(0, ENTRIES))
    index.flush(True)
    journal.write_all()
    index.ack(range(ENTRIES))
    journal.write_all()
    index.flush()
    journal.write_all()
    index.flush()
    assert disk.list("q") == []
    disk.kill()
    journal, index, found = opened(disk)
    assert found.messages == 0
    index.flush(True)
    journal.rotate()
    index.publish(run_of(ENTRIES, 1))
    journal.write_all()
    journal.retire(journal.current)
    journal.write_all()
    disk.crash(Random(seed))
    _, index, found = opened(disk)
    assert sorted(held(index, 0, 2 * ENTRIES)) == [ENTRIES]


@pytest.mark.parametrize("stored", [False, True])
def test_an_ack_that_only_a_segment_had_survives_the_segment(disk, stored):
    """An ack that only a segment file had is not forgotten with that file. A flush had written the ack to the segment,
    and a kill came before the journal had it; the next process had all other messages of the segment acked, and removed
    the file while the journal still had the publishes.
    """
    journal, index, _ = opened(disk, has_sizes=False)
    index.publish(run_of(0, ENTRIES, stored), stored)
    journal.write_all()
    index.flush(True)
    index.ack(range(1, 3))
    index.flush(True)
    assert journal.gathered_bytes
    disk.kill()
    journal, index, found = opened(disk)
    assert found.messages == ENTRIES - 2
    index.ack([0, *range(3, ENTRIES)])
    journal.write_all()
    for _ in range(2):
        index.flush()
        journal.write_all()
    assert disk.list("q") == []
    disk.kill()
    _, index, found = opened(disk)
    assert (found.messages, held(index, 0, ENTRIES)) == (0, {})


def test_a_read_passes_over_a_gap_in_the_numbers(disk):
    """A read finds messages behind a gap in the numbers: after a crash numbers continue up to 16,384 later, which can
    be thousands of small segments.
    """
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 3))
    index.publish(run_of(10_000 * ENTRIES, 2))
    index.flush(True)
    index.publish(run_of(20_000 * ENTRIES, 2))
    assert (index.reach(1), index.reach(ENTRIES)) == (10_000 * ENTRIES, 10_000 * ENTRIES)
    assert [list(range(run.first, run.end)) for run, _ in index.read(1, 10_000 * ENTRIES)] == [[1, 2]]
    stop = 20_000 * ENTRIES + 1
    assert index.reach(10_000 * ENTRIES) > stop
    numbers = [range(run.first, run.end) for run, _ in index.read(10_000 * ENTRIES, stop)]
    assert numbers == [range(10_000 * ENTRIES, 10_000 * ENTRIES + 2), range(stop - 1, stop)], "one that has no file yet"


def test_a_purge_during_the_first_flush_of_a_segment_survives_a_clean_restart(disk):
    """QS-22: the journal gives up the record of a purge; the flush that it met had not written the segment yet."""
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 2 * ENTRIES))
    journal.write_all()
    flush = index.take_flush()
    index.ack_between(0, 2 * ENTRIES)
    flush.run()
    index.flushed(flush)
    for number in range(2 * ENTRIES, 3 * ENTRIES):
        index.publish(run_of(number, 1))
        journal.write_all()
    assert journal.current > 1
    clean = index.terminate()
    journal.retire(journal.current)
    journal.close()
    disk.crash(Random(0))
    _, index, _ = opened(disk, clean)
    assert sorted(held(index, 0, 3 * ENTRIES)) == list(range(2 * ENTRIES, 3 * ENTRIES))


def test_what_was_read_of_a_segment_goes_with_its_file(disk):
    """The blocks that were read of a segment are forgotten when its file is removed: the next file of the segment has
    others at the same offsets (QS-22, QS-25).
    """
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 3))
    index.flush(True)
    read = index.reads.take(0, ENTRIES)
    read.run()
    index.reads.loaded(read)
    assert sorted(held(index, 0, ENTRIES)) == [0, 1, 2]
    index.ack(range(3))
    index.flush(True)
    assert disk.list("q") == []
    index.publish(run_of(3, 2))
    index.flush(True)
    assert [sorted(held(index, 0, ENTRIES)) for _ in range(2)] == [[3, 4], [3, 4]]
    assert index.reads.take(0, ENTRIES) is not None


def test_expiry_and_size_survive(disk):
    """The index returns every property of a message unchanged."""
    journal, index, _ = opened(disk)
    run = run_of(0, 2)
    run.expiries, run.redelivered = [123456789, None], True
    index.publish(run)
    index.flush()
    ((got, is_stored),) = index.read(0, ENTRIES)
    assert (got.expiries, got.redelivered, got.body_bytes, got.contents, is_stored) == (
        [123456789, None],
        True,
        10,
        run.contents,
        False,
    )


def test_clean_start_reads_nothing(disk):
    """A start after a clean stop opens no segment before it is read."""
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 40))
    terms = index.terminate()
    assert terms == {0: 16, 1: 16, 2: 8}
    DirectLog(journal).delete(2)
    index = QueueIndex(disk, "q", 1, DirectLog(journal), ENTRIES)
    assert index.scan(None, terms) is None
    assert sorted(held(index, 0, 40)) == list(range(40))


def test_a_recovery_opens_a_small_file_once_and_keeps_nothing_of_it(disk, monkeypatch):
    """A start recovers ten thousand small queues, and reads the messages of each right after its scan. So a small file
    is opened once for both.

    Entries that a flush appends in between are read from the file.
    """
    opens, open_file = [], disk.open

    def recorded(path, create=False):
        opens.append(path)
        return open_file(path, create)

    monkeypatch.setattr(disk, "open", recorded)
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 3))
    index.flush(True)
    journal.write_all()
    for appended in (0, 2):
        _, index, found = opened(disk)
        assert found.messages == 3
        if appended:
            index.publish(run_of(3, appended))
            index.flush(True)
        opens.clear()
        assert sorted(held(index, 0, ENTRIES)) == list(range(3 + appended))
        assert opens == ["q/0.idx"] * bool(appended)
        index.reads.drop()
        assert sorted(held(index, 0, ENTRIES)) == list(range(3 + appended))
        assert opens == ["q/0.idx"] * (2 if appended else 1)


def test_bodies_the_store_does_not_have_are_dropped(disk):
    """C-3: entries in the journal and in a segment are durable, and half of their bodies are not."""
    journal, index, _ = opened(disk)
    index.publish(run_of(0, 4, stored=True), is_stored=True)
    index.flush(True)
    index.publish(run_of(4, 4, stored=True), is_stored=True)
    journal.write_all()
    journal = JournalEngine(disk, "j")
    replayed = journal.recover()
    index = QueueIndex(disk, "q", 1, DirectLog(journal), ENTRIES)
    found = index.scan(replayed[1], None)
    wanted = [number for span in found.stored for number in span.numbers]
    assert sorted(wanted) == list(range(8))
    found = index.drop_missing(found, [number for number in wanted if number % 2])
    assert found.messages == 4
    assert sorted(held(index, 0, 8)) == [0, 2, 4, 6]
    index.flush(True)
    assert sorted(held(index, 0, 8)) == [0, 2, 4, 6]


def flip(disk, path, offset, bits=1):
    """Damage one byte of a file, durably."""
    content = disk._names[path]
    content.data[offset] ^= bits
    content.durable = bytes(content.data)


def blocks_in(disk, path):
    """(offset, end, numbers) of each block of a segment."""
    found = []
    for part in walk_frames(disk.open(path)):
        if part.kind == Kind.ENTRIES:
            first, last, _ = BLOCK.unpack_from(part.payload)
            found.append((part.offset, part.end, range(first, last + 1)))
    return found


def in_blocks(disk, acked=()):
    """Write an index of one segment with three blocks of five numbers each, and acks; the journal is empty.

    Returns the segments of its terms.
    """
    journal, index, _ = opened(disk)
    for first in (0, 5, 10):
        index.publish(run_of(first, 5))
        index.flush(True)
    if acked:
        index.ack(sorted(acked))
    journal.write_all()
    terms = index.terminate()
    journal.close_flushed()
    return terms


class GatheringLog(DirectLog):
    """A log whose journal is behind: nothing of it is durable before `sync`."""

    def __init__(self, journal):
        super().__init__(journal, True)
        self._synced = 0

    @property
    def durable(self):
        return self._synced

    def sync(self):
        self._synced = self.position


class TestHolding:
    """Entries whose record must be on the disk first are left out of flushes."""

    def index(self, disk):
        disk.make_dir("j")
        journal = JournalEngine(disk, "j")
        journal.recover()
        log = GatheringLog(journal)
        return log, QueueIndex(disk, "q", 1, log, ENTRIES)

    def in_segments(self, disk):
        index = QueueIndex(disk, "q", 1, DirectLog(JournalEngine(disk, "j")), ENTRIES)
        index.scan(None, None)
        return sorted(held(index, 0, ENTRIES))

    def test_they_are_written_when_the_journal_has_synced(self, disk):
        log, index = self.index(disk)
        index.publish(run_of(0, 3))
        index.unflushed.hold(range(3, 5), index.publish(run_of(3, 2)))
        index.publish(run_of(5, 2))
        index.flush(True)
        assert self.in_segments(disk) == [0, 1, 2, 5, 6]
        assert sorted(held(index, 0, ENTRIES)) == list(range(7))
        assert index.unflushed.is_holding and index.take_flush(True) is None
        log.sync()
        assert not index.unflushed.is_holding
        index.flush(True)
        assert self.in_segments(disk) == list(range(7))

    def test_none_gather_until_the_next_flush(self, disk):
        """Entries that the journal has synced are not remembered until a flush asks, because that may take long."""
        log, index = self.index(disk)
        for number in range(50):
            index.unflushed.hold(range(number, number + 1), index.publish(run_of(number, 1)))
            log.sync()
        assert len(index.unflushed._held) == 1

    def test_an_ack_forgets_them(self, disk):
        log, index = self.index(disk)
        index.unflushed.hold(range(2), index.publish(run_of(0, 2)))
        index.flush(True)
        index.ack([0, 1])
        log.sync()
        index.flush(True)
        assert not disk.exists("q/0.idx") and not held(index, 0, ENTRIES)

    def test_the_last_flush_writes_them(self, disk):
        """The last flush writes even entries that await their record: the journal writes its records after that, and
        gives up all its files.
        """
        _, index = self.index(disk)
        index.unflushed.hold(range(2), index.publish(run_of(0, 2)))
        assert index.terminate() == {0: 2}


class TestDamage:
    """Whichever byte of a segment is damaged, its other frames are read and kept, and the damage is logged."""

    @pytest.mark.parametrize("is_clean", [True, False])
    @given(data=st.data())
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_costs_only_its_frame(self, is_clean, caplog, data):
        disk = FaultyDisk()
        terms = in_blocks(disk, acked=(1, 6, 11))
        blocks = blocks_in(disk, "q/0.idx")
        caplog.clear()
        at = data.draw(st.integers(0, len(disk._names["q/0.idx"].data) - 1))
        flip(disk, "q/0.idx", at, 1 << data.draw(st.integers(0, 7)))
        lost = {number for offset, end, numbers in blocks if offset <= at < end for number in numbers}
        expected = {number: slot(number, False) for number in range(15)}
        back = set() if lost else {1, 6, 11}
        for number in lost | {1, 6, 11} - back:
            del expected[number]
        _, index, found = opened(disk, terms if is_clean else None)
        assert held(index, 0, ENTRIES) == expected
        assert is_clean or found.messages == len(expected) and found.next_number == ENTRIES
        assert (
            len(
                [
                    record
                    for record in caplog.records
                    if record.name == "warren.store" and "q/0.idx is damaged" in record.getMessage()
                ]
            )
            == 1
        )
        # Entries appended later are found again, after a kill and after a clean stop.
        index.publish(run_of(ENTRIES - 1, 3))
        expected.update({number: slot(number, False) for number in range(ENTRIES - 1, ENTRIES + 2)})
        index.flush(True)
        for is_killed in (True, False, False, True):
            if is_killed:
                disk.crash(Random(1))
            _, index, _ = opened(disk, None if is_killed else index.terminate())
            assert held(index, 0, 2 * ENTRIES) == expected
        caplog.clear()
        opened(disk)
        assert not caplog.records

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_the_last_frame_becomes_a_block_too_short_for_its_head(self, is_clean):
        """The last frame holds acks and is shorter than the head of a block; one bit of its kind makes it a block."""
        disk = FaultyDisk()
        terms = in_blocks(disk, acked=(1, 6, 11))
        data = disk._names["q/0.idx"].data
        last = list(walk_frames(disk.open("q/0.idx"), len(data)))[-1]
        assert last.kind == Kind.ACKS and len(last.payload) < BLOCK.size
        assert FRAME.unpack_from(data, last.offset)[2] == Kind.ACKS
        flip(disk, "q/0.idx", last.offset + FRAME.size - 9, Kind.ACKS ^ Kind.ENTRIES)
        assert FRAME.unpack_from(data, last.offset)[2] == Kind.ENTRIES
        _, index, _ = opened(disk, terms if is_clean else None)
        assert sorted(held(index, 0, ENTRIES)) == list(range(15))

    def test_the_damaged_file_is_kept(self, disk):
        """The damaged file is kept, so that the operator may look at it."""
        in_blocks(disk)
        flip(disk, "q/0.idx", 30)
        was = bytes(disk._names["q/0.idx"].data)
        opened(disk)
        assert disk.list("q") == ["0.idx", "0.idx.damaged"]
        assert bytes(disk._names["q/0.idx.damaged"].data) == was

    def test_a_file_without_messages_is_removed_by_the_last_flush(self, disk):
        """A segment with damage found after a clean stop, and no message left, is removed by the last flush. A queue
        that ends at once waits for the journal first, because only then may the file be removed.
        """
        terms = in_blocks(disk)
        for offset, _, _ in blocks_in(disk, "q/0.idx"):
            flip(disk, "q/0.idx", offset + 5)
        journal = JournalEngine(disk, "j")
        journal.recover()
        log = GatheringLog(journal)
        index = QueueIndex(disk, "q", 1, log, ENTRIES)
        index.scan(None, terms)
        assert held(index, 0, ENTRIES) == {} and index.has_damaged_empty_file
        index.flush(True)
        assert disk.exists("q/0.idx")
        log.sync()
        index.flush(True)
        assert not disk.exists("q/0.idx") and not index.has_damaged_empty_file

    @pytest.mark.parametrize("at", range(1, 14))
    def test_a_crash_while_it_is_written_anew(self, disk, at):
        """C-22: at whatever step the crash comes, no whole frame is lost."""
        in_blocks(disk)
        flip(disk, "q/0.idx", blocks_in(disk, "q/0.idx")[1][0] + 30)
        disk.fail_after(at, KeyboardInterrupt())
        with contextlib.suppress(KeyboardInterrupt):
            opened(disk)
        disk.crash(Random(at))
        _, index, _ = opened(disk)
        assert sorted(held(index, 0, ENTRIES)) == [*range(5), *range(10, 15)]
        assert "0.idx.new" not in disk.list("q")

    def test_found_by_a_job_in_another_thread(self, disk):
        """Damage is found after a clean stop while a flush appends to the segment; the next flush rewrites it."""
        terms = in_blocks(disk)
        flip(disk, "q/0.idx", blocks_in(disk, "q/0.idx")[1][0] + 5)
        _, index, _ = opened(disk, terms)
        index.publish(run_of(15, 1))
        flush = index.take_flush()
        read = index.reads.take(0, ENTRIES)
        read.run()
        index.reads.loaded(read)
        expected = [*range(5), *range(10, 16)]
        assert sorted(held(index, 0, ENTRIES)) == expected
        flush.run()
        index.flushed(flush)
        assert sorted(held(index, 0, ENTRIES)) == expected
        index.flush(True)
        assert sorted(held(index, 0, ENTRIES)) == expected
        index.ack(expected)
        index.flush(True)
        assert disk.list("q") == ["0.idx.damaged"]

    def test_of_what_was_read_before(self, disk):
        """Damage in blocks that were read before is noticed as well; acks that come later, of messages that are lost by
        then, do no harm.
        """
        terms = in_blocks(disk)
        _, index, _ = opened(disk, terms)
        assert len(held(index, 0, ENTRIES)) == 15
        for offset, _, _ in blocks_in(disk, "q/0.idx"):
            flip(disk, "q/0.idx", offset + 40)
        assert held(index, 0, ENTRIES) == {}
        index.flush(True)
        index.ack(range(3, 9))
        index.flush(True)
        assert disk.list("q") == ["0.idx.damaged"]

    def test_a_file_that_somebody_removed(self, disk):
        """The queue goes on when an operator removes a segment file while the broker runs."""
        terms = in_blocks(disk)
        _, index, _ = opened(disk, terms)
        disk.delete("q/0.idx")
        assert held(index, 0, ENTRIES) == {}
        index.publish(run_of(15, 1))
        index.flush(True)
        assert sorted(held(index, 0, ENTRIES)) == [15]


def test_an_empty_segment_is_removed(disk):
    """A segment file that a crash left empty, because it came before the first block was written, is removed (C-11)."""
    disk.make_dir("q")
    disk.open("q/3.idx", create=True)
    opened(disk)
    assert disk.list("q") == []


def test_foreign_names_are_left_alone(disk, caplog):
    """Files with foreign names stay, and one line of the log names them."""
    disk.make_dir("q")
    for name in ("x.idx", "01.idx", "notes.txt", "\u0663.idx"):
        disk.open(f"q/{name}", create=True)
    opened(disk)
    assert disk.list("q") == ["01.idx", "notes.txt", "x.idx", "\u0663.idx"]
    (record,) = caplog.records
    assert record.getMessage() == "q: '01.idx', 'x.idx', '\u0663.idx' left alone: not the name of a segment"


def test_deletion_is_all_or_nothing(disk):
    """QS-23: a directory that is being removed has a tombstone's name, and the start finishes the removal."""
    disk.make_dir("queues/q")
    for name in "abc":
        disk.open(f"queues/q/{name}", create=True)
    disk.sync_dir("queues/q")
    disk.fail_after(4, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        disk.delete_tree("queues/q")
    disk.kill()
    assert "q" not in disk.list("queues")
    disk.sweep_tombstones("queues")
    assert disk.list("queues") == []
