"""Range reads against a dict, while the queue is paged, flushed, acked and added to."""

from __future__ import annotations

import shutil
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin
from warren.store.queue.memory_queue import MemoryQueue
from warren.store.queue.range_read import window_from
from warren.store.queue.rates import INFINITE
from warren.store.queue.variable.variable_queue import VariableQueue

from ..engines import DirectBodies, DirectLog, DirectQueue

SEGMENT = 16
ORIGINS = [Origin("", ("q",), persistent) for persistent in (False, True)]


def content(number: int, size: int) -> bytes:
    head = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00\xce"
    return head + number.to_bytes(4, "big").ljust(size, b"\0")


class RangeMachine(RuleBasedStateMachine):
    """`held` are the messages that the queue should hold, by number; `pending` are the numbers that await an ack."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.make_queue()
        self.held: dict[int, bytes] = {}
        self.pending: set[int] = set()
        self.next = 0
        self.under_way: tuple | None = None

    def make_queue(self):
        return MemoryQueue()

    @rule(count=st.integers(1, 20), size=st.sampled_from([4, 40]), persistent=st.integers(0, 1))
    def publish(self, count, size, persistent):
        contents = [content(self.next + index, size) for index in range(count)]
        numbers = self.queue.publish(ORIGINS[persistent], contents, count * size, None, False)
        assert numbers == range(self.next, self.next + count)
        self.held.update(zip(numbers, contents))
        self.next += count

    @rule(count=st.integers(1, 4))
    def discard(self, count):
        self.queue.discard(ORIGINS[0], count, False)
        self.next += count

    @rule(count=st.integers(1, 20))
    def fetch(self, count):
        self.pending |= {tag for delivery in self.queue.fetch(count, True) for tag in delivery.tags}

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), is_ack=st.booleans())
    def settle(self, data, is_ack):
        tags = data.draw(st.lists(st.sampled_from(sorted(self.pending)), unique=True, min_size=1))
        (self.queue.ack if is_ack else self.queue.requeue)(sorted(tags))
        self.pending.difference_update(tags)
        if is_ack:
            for tag in tags:
                del self.held[tag]

    @rule(data=st.data(), limit=st.integers(1, 30))
    def drop_to(self, data, limit):
        last = data.draw(st.integers(0, self.next + 5))
        ready = sorted(self.held.keys() - self.pending)
        gone = [number for number in ready if number <= last][: self.queue.drop_to(last, limit)]
        assert len(gone) <= limit
        for number in gone:
            del self.held[number]

    def read_all(self, first, last, most=7, most_bytes=100):
        found, at = [], first
        while at <= last:
            job = self.queue.prepare_range(at, last)
            while job is not None:
                job.run()
                job = self.queue.range_prepared(job, at, last)
            batch = self.queue.take_range(at, last, most, most_bytes)
            assert len(batch.messages) <= most and at < batch.next_number <= last + 1
            self.complete(batch)
            found += batch.messages
            at = batch.next_number
        return found

    def complete(self, batch):
        assert batch.is_complete

    @rule(data=st.data(), most_bytes=st.sampled_from([1, 100, 10_000]))
    def read(self, data, most_bytes):
        first = data.draw(st.integers(0, self.next))
        last = data.draw(st.integers(first, self.next + 5))
        found = self.read_all(first, last, most_bytes=most_bytes)
        assert [(message.tag, message.content) for message in found] == sorted(
            item for item in self.held.items() if first <= item[0] <= last
        )
        assert all(message.redelivered for message in found if message.tag in self.pending)

    @rule(data=st.data(), most_bytes=st.sampled_from([1, 200, 10_000]))
    def read_runs(self, data, most_bytes):
        """Read whole runs, as a reader of blocks does: they have the same messages."""
        first = data.draw(st.integers(0, self.next))
        last = data.draw(st.integers(first, self.next + 5))
        found, at = [], first
        while at <= last:
            window = window_from(at)
            job = self.queue.prepare_range(at, last, window)
            while job is not None:
                job.run()
                job = self.queue.range_prepared(job, at, last, window)
            batch = self.queue.take_runs(at, last, window, most_bytes)
            assert at < batch.next_number <= last + 1
            count = sum(len(run.contents) for run in batch.runs)
            assert batch.size == sum(run.body_bytes for run in batch.runs) + 64 * count
            assert count <= 1 or batch.size < most_bytes + 40 + 64, (
                "a batch ends with the message that reaches the size"
            )
            self.complete(batch)
            assert all(run.live == len(run.contents) for run in batch.runs)
            found += [(message, run.redelivered) for run in batch.runs for message in run.messages()]
            at = batch.next_number
        assert [(message.tag, message.content) for message, _ in found] == sorted(
            item for item in self.held.items() if first <= item[0] <= last
        )
        assert [redelivered for _, redelivered in found] == [
            message.redelivered for message in self.read_all(first, last)
        ]

    @rule(data=st.data())
    def begin(self, data):
        """Begin a batch that other calls complete later."""
        first = data.draw(st.integers(0, self.next))
        job = self.queue.prepare_range(first, self.next)
        if job is not None:
            job.run()
            if self.queue.range_prepared(job, first, self.next) is not None:
                return
        self.under_way = self.queue.take_range(first, self.next), first, dict(self.held)

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def finish(self):
        (batch, first, then), self.under_way = self.under_way, None
        self.complete(batch)
        found = {message.tag: message.content for message in batch.messages}
        assert found.items() <= then.items()
        assert found.keys() >= {
            number for number in self.held if first <= number < batch.next_number and number in then
        }

    @invariant()
    def numbers_are_bounds(self):
        numbers = self.queue.numbers()
        assert numbers.stop == self.next and numbers.start <= min(self.held, default=self.next)

    @invariant()
    def nothing_is_consumed(self):
        assert self.queue.totals().depth == len(self.held) and len(self.queue) == len(self.held) - len(self.pending)

    def teardown(self):
        assert [message.tag for message in self.read_all(0, self.next)] == sorted(self.held)


class MemoryRangeMachine(RangeMachine):
    @invariant()
    def the_lowest_is_exact(self):
        assert self.queue.numbers().start == min(self.held, default=self.next)


class PagedRangeMachine(RangeMachine):
    """A variable queue, whose messages are on disk in part."""

    kind: type[VariableQueue]

    def make_queue(self):
        self.directory = tempfile.mkdtemp()
        self.disk = FaultyDisk()
        self.disk.make_dir("journal")
        self.journal = JournalEngine(self.disk, "journal")
        self.journal.recover()
        self.persistent = DirectBodies(self.disk, "persistent", f"{self.directory}/p")
        self.transient = DirectBodies(self.disk, "transient", f"{self.directory}/t", is_durable=False)
        self.persistent.recover(False)
        self.transient.recover(False)
        index = QueueIndex(self.disk, "q", 1, DirectLog(self.journal), SEGMENT)
        self.flush = None
        return self.kind(
            1,
            index,
            self.persistent,
            self.transient,
            embed_below=30,
            io_batch_size=1,
            segment_entries=SEGMENT,
        )

    def sync(self):
        for store in (self.persistent, self.transient):
            store.write_all()
        self.queue.durable(self.journal.write_all(), self.persistent.durable)

    def complete(self, batch):
        batch.complete(self.persistent.read(batch.missing.persistent), self.transient.read(batch.missing.transient))

    @rule(ram_count=st.integers(0, 3))
    def page(self, ram_count):
        self.queue.paging.target = ram_count
        self.queue.page()
        while self.queue.paging.is_due:
            self.queue.page()
        self.queue.paging.target = INFINITE

    @rule(mode=st.sampled_from(["lazy", "default"]))
    def set_mode(self, mode):
        self.queue.set_queue_mode(mode)

    @rule()
    def write(self):
        self.sync()

    @invariant()
    def invariants_hold(self):
        self.queue.check()

    def teardown(self):
        super().teardown()
        self.persistent.engine.abandon()
        self.transient.engine.abandon()
        shutil.rmtree(self.directory)


class DirectRangeMachine(PagedRangeMachine):
    """Each method runs the queue's jobs to the end."""

    kind = DirectQueue

    @rule(is_synced=st.booleans())
    def flush_at_once(self, is_synced):
        self.queue.segment_writer.flush(is_synced)


class AheadRangeMachine(PagedRangeMachine):
    """The queue's jobs run between its methods, as with a queue process."""

    kind = VariableQueue

    @precondition(lambda self: self.flush is None)
    @rule(is_synced=st.sampled_from([True, False, None]))
    def take_flush(self, is_synced):
        """Take a flush and run it, or only a part of it if `is_synced` is None."""
        writer = self.queue.segment_writer
        part = (2, 1000, 1000)
        self.flush = writer._index.take_flush(False, part) if is_synced is None else writer.take_flush(is_synced)

    @precondition(lambda self: self.flush is not None)
    @rule()
    def flushed(self):
        self.flush.run()
        self.queue.segment_writer.flushed(self.flush)
        self.flush = None

    @rule()
    def prepare(self):
        load = self.queue.prepare()
        if load is not None:
            load.run()
            load.reader.prepared(
                load, self.persistent.read(load.missing.persistent), self.transient.read(load.missing.transient)
            )


TestMemory = MemoryRangeMachine.TestCase
TestDirect = DirectRangeMachine.TestCase
TestReadsAhead = AheadRangeMachine.TestCase
TestMemory.settings = TestDirect.settings = TestReadsAhead.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("machine", [MemoryRangeMachine, AheadRangeMachine])
def test_a_portion_has_one_message_at_least_and_stops_at_its_bytes(machine):
    run = machine()
    run.publish(10, 40, 1)
    batch = run.queue.take_range(0, 9, most_bytes=1)
    run.complete(batch)
    assert ([message.tag for message in batch.messages], batch.next_number) == ([0], 1)
    batch = run.queue.take_range(4, 9, most_bytes=81)
    run.complete(batch)
    assert ([message.tag for message in batch.messages], batch.next_number) == ([4, 5, 6], 7)
    run.teardown()


def test_a_segment_is_read_once_for_several_batches():
    """One job reads an index segment for several batches."""
    run = AheadRangeMachine()
    run.set_mode("lazy")
    run.publish(16, 4, 1)
    run.publish(16, 4, 1)
    run.take_flush(False)
    run.flushed()
    job = run.queue.prepare_range(0, 31)
    job.run()
    assert run.queue.range_prepared(job, 0, 31) is None
    assert [run.queue.prepare_range(first, 31) for first in (0, 5, 15)] == [None] * 3
    assert run.queue.prepare_range(16, 31) is not None
    run.teardown()
