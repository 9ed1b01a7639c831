"""The journal on a `FaultyDisk`: recovery finds every durable record, and of later records a prefix at most."""

from __future__ import annotations

import errno
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.real_disk import RealDisk
from warren.store.disk.walk_frames import walk_frames
from warren.store.journal.journal_engine import JournalBroken, JournalEngine
from warren.store.messages.message import Origin
from warren.store.messages.records import make_stub
from warren.store.messages.run import Run

from ..engines import DirectLog

ORIGIN = Origin("x", ("k",), persistent=True)
QUEUES = (1, 2)


def slot(number: int, size: int = 5) -> bytes:
    return bytes(11) + size.to_bytes(8, "big") + number.to_bytes(8, "big")


def run_of(first: int, count: int, stored: bool = False) -> Run:
    contents = [
        make_stub(number.to_bytes(16, "big"), 5) if stored else slot(number) for number in range(first, first + count)
    ]
    return Run(first, contents, ORIGIN, None, False, 5 * count)


def live(replayed) -> dict[int, bytes]:
    return {
        m.tag: m.content for runs in (replayed.embedded, replayed.stored) for run in runs.runs for m in run.messages()
    }


class JournalMachine(RuleBasedStateMachine):
    """Random operations and crashes.

    `history[p]` is the operation at position p + 1. A recovered journal must show a prefix of it, not shorter than
    `durable`. `flushed` is what the queues' segments hold, and `tagged` has the journal file and the content of every
    other message.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.disk.make_dir("j")
        self.begin({queue: {} for queue in QUEUES}, dict.fromkeys(QUEUES, 0))

    def begin(self, state, numbers):
        """A process starts; segments and journal together hold `state`."""
        self.journal = JournalEngine(self.disk, "j", file_limit=400, frame_limit=100)
        self.log = DirectLog(self.journal)
        self.replayed = self.journal.recover()
        self.state = state
        self.next = numbers
        self.history = []
        self.tagged = {}
        self.flushed = {queue: {} for queue in QUEUES}
        for queue, replayed in self.replayed.items():
            self.tagged.update({(queue, number): (0, content) for number, content in live(replayed).items()})
        for queue in QUEUES:
            self.flushed[queue] = {n: c for n, c in state[queue].items() if (queue, n) not in self.tagged}

    def after(self, count):
        """The messages that remain after the first `count` operations of this process."""
        state = {queue: dict(held) for queue, held in self.state.items()}
        for queue, published, acked in self.history[:count]:
            state[queue].update(published)
            for number in acked:
                state[queue].pop(number, None)
        return state

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 6), stored=st.booleans(), gap=st.integers(0, 2))
    def publish(self, queue, count, stored, gap):
        run = run_of(self.next[queue] + gap, count, stored)
        self.next[queue] = run.end
        published = dict(zip(range(run.first, run.end), run.contents, strict=True))
        self.tagged.update({(queue, n): (self.journal.current, c) for n, c in published.items()})
        self.history.append((queue, published, ()))
        assert self.log.publish(queue, run, stored) == len(self.history)

    @rule(queue=st.sampled_from(QUEUES), data=st.data())
    def ack(self, queue, data):
        held = sorted(self.after(len(self.history))[queue])
        if held:
            span = range(data.draw(st.sampled_from(held)), held[-1] + 1, data.draw(st.integers(1, 3)))
            spans = [range(n, n + 1) for n in held if n in span]
            self.history.append((queue, {}, [n for n in held if n in span]))
            for number in self.history[-1][2]:
                self.tagged.pop((queue, number), None)
            assert self.log.ack(queue, spans) == len(self.history)

    @rule(error=st.sampled_from([None, None, None, errno.ENOSPC, errno.EROFS]))
    def write(self, error):
        batch = self.journal.take_batch()
        if batch is None:
            return
        if error is not None:
            self.disk.fail_after(1, OSError(error, "injected"))
            with pytest.raises(OSError):
                self.journal.commit(batch)
            self.disk.heal()
        self.journal.commit(batch)
        self.journal.committed(batch)
        self.journal.unlink_retired(batch)
        assert self.journal.durable == len(self.history)

    @precondition(lambda self: self.journal.closed_files)
    @rule()
    def flush(self):
        """The queues flush: un-acked entries of closed files go to segments, which are durable before the files retire.

        Acks of entries that were flushed before go to the segments as well.
        """
        self.write(None)
        current = self.journal.current
        now = self.after(len(self.history))
        for queue in QUEUES:
            self.flushed[queue] = {n: c for n, c in self.flushed[queue].items() if n in now[queue]}
        for (queue, number), (file, content) in list(self.tagged.items()):
            if file < current:
                self.flushed[queue][number] = content
                del self.tagged[queue, number]
        self.history.append((QUEUES[0], {}, ()))
        assert self.journal.retire(current) == len(self.history)

    @rule(seed=st.integers(0, 1 << 16), at=st.one_of(st.none(), st.integers(1, 4)), kill=st.booleans())
    def crash(self, seed, at, kill):
        """A power cut or a kill, possibly in the middle of a commit."""
        durable = self.journal.durable
        if at is not None:
            self.disk.fail_after(at, KeyboardInterrupt())
            try:
                self.write(None)
            except KeyboardInterrupt:
                pass
            self.disk.heal()
            durable = max(durable, self.journal.durable)
        self.disk.kill() if kill else self.disk.crash(Random(seed))
        found = self.recovered()
        matching = [count for count in range(durable, len(self.history) + 1) if self.after(count) == found]
        assert matching, f"{found} is no prefix of history from {durable} of {self.history}"
        # Recovering twice gives the same (QS-24), even if a power cut comes between.
        self.disk.crash(Random(seed + 1))
        assert self.recovered() == found
        self.begin(found, {queue: self.next[queue] for queue in QUEUES})

    def recovered(self):
        """What segments and journal together hold: their union, without acked messages."""
        replayed = JournalEngine(self.disk, "j").recover()
        state = {queue: dict(self.flushed[queue]) for queue in QUEUES}
        for queue, known in replayed.items():
            state[queue].update(live(known))
            for span in known.acked:
                for number in span:
                    state[queue].pop(number, None)
        return state


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_dir("j")
    return disk


def opened(disk, **options) -> JournalEngine:
    journal = JournalEngine(disk, "j", **options)
    journal.recover()
    return journal


def test_one_sync_for_everything_gathered(disk):
    """One sync makes durable what a thousand queues have gathered (group commit)."""
    journal = opened(disk)
    for queue in range(1000):
        DirectLog(journal).publish(queue, run_of(0, 3))
    before = disk.syncs
    assert journal.write_all() == 1000
    assert disk.syncs == before + 1


def test_records_that_gather_during_a_commit_wait_for_the_next(disk):
    """Records that gather during a commit are not durable with it and wait for the next one."""
    journal = opened(disk)
    first = DirectLog(journal).publish(1, run_of(0, 1))
    batch = journal.take_batch()
    second = DirectLog(journal).publish(1, run_of(1, 1))
    journal.commit(batch)
    assert journal.committed(batch) == first
    assert journal.write_all() == second


def test_numbers_survive_messages(disk):
    """The journal keeps where a queue's numbering stands, even after its messages and their files are gone."""
    journal = opened(disk, file_limit=100)
    DirectLog(journal).publish(1, run_of(0, 10))
    DirectLog(journal).ack(1, [range(0, 10)])
    for _ in range(4):
        journal.write_all()
        DirectLog(journal).publish(2, run_of(0, 9))
    journal.retire(journal.current)
    batch = journal.take_batch()
    journal.commit(batch)
    journal.committed(batch)
    journal.unlink_retired(batch)
    assert journal.oldest > 1
    assert opened(disk).recover()[1].next_number == 10


def test_a_file_whose_head_exceeds_the_limit_takes_more_than_one_batch(disk):
    """A file whose head alone exceeds the limit takes more than one batch. If it took only one, the record that retires
    files would begin a file, which would have to be retired in its turn, and so on for ever.
    """
    journal = opened(disk, file_limit=100)
    for queue in range(1, 30):
        DirectLog(journal).publish(queue, run_of(0, 1))
    journal.write_all()
    journal.retire(journal.rotate())
    journal.write_all()
    assert (journal.current, journal.closed_files) == (2, 0)
    journal.retire(journal.current)
    journal.write_all()
    assert (journal.current, journal.closed_files) == (2, 0)


def test_what_queues_repeat_fills_no_file(disk):
    """When a file is given up, queues record once more how often their messages were returned. These records may have
    more bytes than the limit of a file, and do not count towards it.

    If they counted, the next file would be full at once, so that the queues had to repeat them again, and so on for
    ever. New records count as before.
    """
    journal = opened(disk, file_limit=1000)
    log, returns = DirectLog(journal), {number: 1 for number in range(0, 200, 2)}
    log.returned(1, returns)
    journal.write_all()
    for _ in range(3):
        file = journal.rotate()
        log.returned(1, returns, True)
        journal.write_all()
        journal.retire(file)
        journal.write_all()
        assert (journal.current, journal.closed_files) == (file, 0)
        assert journal.current_bytes < 200
    assert journal.replay()[1].returns == returns
    log.returned(1, {number: 2 for number in returns})
    journal.write_all()
    assert (journal.current, journal.closed_files) == (file + 1, 1)


def test_deleted_queue_does_not_come_back(disk):
    """After the deletion of a queue, its earlier records do not count, so it does not come back."""
    journal = opened(disk)
    DirectLog(journal).publish(1, run_of(0, 10))
    DirectLog(journal).delete(1)
    journal.write_all()
    assert 1 not in opened(disk).recover()


def test_failed_sync_ends_the_journal(disk):
    """After a failed fdatasync the kernel may have dropped the pages; nothing more is written or confirmed."""
    journal = opened(disk)
    DirectLog(journal).publish(1, run_of(0, 1))
    batch = journal.take_batch()
    disk.fail_after(3, OSError(errno.EIO, "injected"))
    with pytest.raises(JournalBroken):
        journal.commit(batch)
    with pytest.raises(JournalBroken):
        DirectLog(journal).publish(1, run_of(1, 1))
    assert journal.durable == 0


def test_full_disk_confirms_nothing_and_harms_nothing():
    """QS-35: the batch fails, is not durable, and goes through once there is room."""
    disk = FaultyDisk(limit=2000)
    disk.make_dir("j")
    journal = opened(disk)
    DirectLog(journal).publish(1, run_of(0, 200))
    batch = journal.take_batch()
    with pytest.raises(OSError, match="No space"):
        journal.commit(batch)
    assert journal.durable == 0
    disk.limit = None
    journal.commit(batch)
    assert journal.committed(batch) == 1
    assert len(live(opened(disk).recover()[1])) == 200


def test_on_a_real_disk(tmp_path):
    """The journal works on files of the operating system as on simulated ones."""
    disk = RealDisk(str(tmp_path))
    disk.make_dir("j")
    journal = opened(disk, file_limit=10_000)
    for first in range(0, 2000, 100):
        DirectLog(journal).publish(1, run_of(first, 100))
        DirectLog(journal).ack(1, [range(first, first + 90)])
        journal.write_all()
    journal.close()
    assert len(disk.list("j")) > 3
    assert sorted(live(opened(disk).recover()[1])) == [n for n in range(2000) if n % 100 >= 90]


class TestDamage:
    """Recovery skips damage; only what an interrupted append left at the very end is cut."""

    def written(self, disk, batches=5):
        journal = opened(disk)
        for first in range(0, 10 * batches, 10):
            DirectLog(journal).publish(1, run_of(first, 10))
            DirectLog(journal).ack(1, [range(first, first + 5)])
            journal.write_all()
        return journal

    @given(data=st.data())
    @settings(max_examples=50, deadline=None)
    def test_costs_only_its_frame(self, data):
        """Whichever byte is damaged, it costs only its frame: each start replays the other frames, and leaves the file
        as it is.
        """
        disk = FaultyDisk()
        disk.make_dir("j")
        self.written(disk)
        content = disk._names["j/000001.wal"]
        frames = list(walk_frames(disk.open("j/000001.wal")))
        at = data.draw(st.integers(0, len(content.data) - 1))
        content.data[at] ^= data.draw(st.integers(1, 255))
        content.durable = bytes(content.data)
        victim = next(number for number, part in enumerate(frames) if at < part.end)
        was_last = victim == len(frames) - 1
        expected = {
            first + number for first in range(0, 50, 10) for number in range(5, 10) if first != 10 * (victim - 1)
        }  # frame 0 has the states
        for _ in range(3):
            replayed = JournalEngine(disk, "j").recover()
            assert set(live(replayed[1])) == expected
            assert was_last or replayed[1].next_number >= 50
            assert was_last or bytes(content.data) == content.durable
            disk.crash(Random(at))
            content = disk._names["j/000001.wal"]

    def test_is_logged_in_one_line(self, disk, caplog):
        self.written(disk)
        disk._names["j/000001.wal"].data[300] ^= 1
        opened(disk)
        (record,) = caplog.records
        assert record.name == "warren.store" and record.levelname == "ERROR"
        assert record.getMessage().startswith(
            "j/000001.wal is damaged: bytes 33 to 394; behind that 4 whole frames, which are replayed. "
        )
        assert (
            "messages published there may be gone, confirmed ones too, and messages acknowledged there may come back. "
            "`warren store verify DATA_DIR` shows details" in record.getMessage()
        )

    def test_a_torn_tail_is_not_logged(self, disk, caplog):
        """C-15: the tail is cut, and later records are found."""
        self.written(disk)
        disk.open("j/000001.wal").truncate(1000)
        journal = opened(disk)
        assert not caplog.records
        DirectLog(journal).publish(1, run_of(60, 1))
        journal.write_all()
        replayed = opened(disk).recover()
        assert sorted(live(replayed[1])) == [n for n in range(20) if n % 10 >= 5] + [60]

    def test_numbers_in_damaged_bytes_are_not_given_again(self, disk):
        """Numbers that may have been in damaged bytes are not given again: the ack of a lost message may follow the
        damage, and must not apply to a message published later.
        """
        self.written(disk, 1)
        disk._names["j/000001.wal"].data[60] ^= 1
        journal = opened(disk)
        DirectLog(journal).publish(1, run_of(0, 1))
        journal.write_all()
        disk._names["j/000001.wal"].data[60] ^= 1
        assert opened(disk).recover()[1].next_number >= 10

    def test_foreign_names_are_left_alone(self, disk, caplog):
        self.written(disk)
        for name in ("x.wal", "1.wal", "notes.txt"):
            disk.open(f"j/{name}", create=True)
        assert len(live(opened(disk).recover()[1])) == 25
        assert caplog.records[0].getMessage() == "j: '1.wal', 'x.wal' left alone: not the name of a file of the journal"
        assert {"x.wal", "1.wal", "notes.txt"} <= set(disk.list("j"))
