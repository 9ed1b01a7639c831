"""Range readers of messages on the disk (design section 5): beside consumers, across restarts, and on a slow disk."""

from __future__ import annotations

import threading

import pytest

from warren.actors.queue.master.range_reader import RangeReader
from warren.store.index.segment_jobs import SegmentReadJob
from warren.store.journal.number_reserve import AHEAD
from warren.store.queue.variable.paging import IO_BATCH_SIZE

from ..disk_stage import SEGMENT, DurableStage, Publisher, consumer
from ..stage import WAIT
from .test_range_readers import Channel, read

COUNT = IO_BATCH_SIZE + 2 * SEGMENT


class Greedy(Channel):
    """A stub of a channel whose socket takes everything at once."""

    def on_deliver(self, sender, queue_id, tag, runs):
        super().on_deliver(sender, queue_id, tag, runs)
        self.send(sender, ("sent", self.myAddress.actorAddressString, sum(len(contents) for _, _, _, contents in runs)))


def read_all(stage, queue, **arguments):
    """The deliveries of a reader as (number, body), until its range ends, and how it ended."""
    address = stage.create(Greedy)
    stub = stage.actor(address)
    assert read(stage, queue, address, **arguments) in (True, None)
    stage.until(lambda: stub.got and isinstance(stub.got[-1], str))
    *got, end = stub.take_got()
    return got, end


def expected(bodies, first=0):
    return [(first + index, body) for index, body in enumerate(bodies)]


def on_disk(stage, queue, in_memory=2 * SEGMENT):
    """Page out and flush all messages except `in_memory`."""
    stage.target = 0.0
    stage.until(lambda: delta(queue).count >= len(queue.actor.backing) - in_memory)
    stage.ask(queue.address, "flush_synced").answer()
    stage.quiet()


def delta(queue):
    return queue.actor.backing.sub_queues.delta


class HeldReads:
    """Makes reads of index segments wait from `hold` to `release`."""

    def __init__(self, monkeypatch, stage):
        self.stage, self.waiting, self._open = stage, 0, threading.Event()
        self._open.set()
        run = SegmentReadJob.run

        def held(job):
            self.waiting += 1
            assert self._open.wait(WAIT)
            self.waiting -= 1
            run(job)

        monkeypatch.setattr(SegmentReadJob, "run", held)

    def hold(self):
        self._open.clear()

    def wait(self):
        self.stage.until(lambda: self.waiting)
        self.stage.settle()

    def release(self):
        self._open.set()
        self.stage.quiet()


@pytest.fixture
def reads(monkeypatch, stage):
    reads = HeldReads(monkeypatch, stage)
    yield reads
    reads.release()


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("size, persistent", [(10, True), (5000, True), (5000, False)])
def test_a_backlog_on_disk_is_read_whole_and_stays_there(stage, mode, size, persistent):
    """A backlog on disk is read twice in full and once in part, and stays: a consumer then gets all of it, not
    redelivered.
    """
    queue, publisher = stage.declare(x_queue_mode=mode), Publisher(stage)
    bodies = publisher.publish(queue, COUNT, size, persistent)
    publisher.await_confirms()
    on_disk(stage, queue)
    for _ in range(2):
        assert read_all(stage, queue, read_from=0, read_to="last") == (expected(bodies), "end")
        assert read_all(stage, queue, read_from=123, read_to=321) == (expected(bodies[123:322], 123), "end")
    eater = consumer(stage, queue)
    stage.until(lambda: len(eater.got) == COUNT)
    assert eater.got == [(body, False) for body in bodies]


def test_a_reader_gets_everything_while_others_consume_and_publish(stage):
    """A reader gets everything while others consume and publish, and the consumer gets its messages in
    order as well.
    """
    queue, publisher = stage.declare(), Publisher(stage)
    bodies = publisher.publish(queue, COUNT, 5000)
    on_disk(stage, queue)
    address = stage.create(Greedy)
    read(stage, queue, address, read_from=0)
    eater = consumer(stage, queue, acks=False, prefetch=250)
    bodies += publisher.publish(queue, 50, 10)
    stub = stage.actor(address)
    stage.until(lambda: len(stub.got) == COUNT + 50)
    assert stub.got == expected(bodies)
    stage.until(lambda: len(eater.got) == 250)
    assert eater.got == [(body, False) for body in bodies[:250]]


def test_a_slow_disk_delays_only_the_reader(stage, reads):
    """While a reader waits for a slow disk, the queue answers, accepts publishes, and cancels the reader."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    bodies = publisher.publish(queue, COUNT, 10)
    publisher.await_confirms()
    on_disk(stage, queue)
    # The head is in memory now, so the reads that follow are those of the reader.
    assert read_all(stage, queue, read_from=0, read_to=0)[1] == "end"
    address = stage.create(Greedy)
    stub = stage.actor(address)
    reads.hold()
    read(stage, queue, address, read_from=300, read_to=301)
    reads.wait()
    assert stub.got == []
    assert stage.ask(queue.address, "counts").answer() == (COUNT, 0)
    publisher.publish(queue, 1)
    queue.tell(address, "cancel", "r")
    stage.settle()
    assert queue.actor.role.range_readers.readers == {}
    reads.release()
    assert stub.got == []
    assert read_all(stage, queue, read_from=300, read_to=301)[0] == expected(bodies[300:302], 300)


def test_a_queue_that_crashes_while_it_is_read_serves_readers_again(stage, reads):
    """A queue that crashes while it is read has the same numbers afterwards, so readers can go on."""
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    bodies = publisher.publish(queue, COUNT, 10)
    publisher.await_confirms()
    on_disk(stage, queue)
    reads.hold()
    read(stage, queue, stage.create(Greedy), read_from=200, read_to="last")
    reads.wait()
    stage.crash(queue.address)
    stage.settle()
    reads.release()
    queue = stage.restarted()
    assert read_all(stage, queue, read_from=0, read_to="last") == (expected(bodies), "end")


def test_a_number_is_shown_when_no_crash_can_bring_it_again(stage, disk):
    """A transient message is shown to readers only when the journal has synced the queue's reserve of numbers, because
    the message is not in the journal and a crash must not give its number to another one. Later messages within the
    reserve are shown at once.
    """
    queue, publisher = stage.declare(), Publisher(stage)
    disk.hold()
    bodies = publisher.publish(queue, 3, persistent=False)
    reader = stage.create(Greedy)
    assert read(stage, queue, reader, read_from="first") is None
    stage.is_held()
    assert publisher.confirmed == 3 and stage.actor(reader).got == []
    disk.release()
    stage.until(lambda: stage.actor(reader).got == expected(bodies))
    disk.hold()
    bodies += publisher.publish(queue, 100, persistent=False)
    stage.settle()
    assert stage.actor(reader).got == expected(bodies)


def test_numbers_seen_before_a_crash_are_not_given_again(tmp_path, disk):
    """Numbers that a reader saw before a crash are not given again, so a reader that goes on after the last number it
    saw misses no message.
    """
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        publisher.publish(queue, 5)
        publisher.publish(queue, 50, persistent=False)
        publisher.await_confirms()
        seen, _ = read_all(stage, queue, read_from="first", read_to="last")
        assert [number for number, _ in seen] == list(range(55))
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue, publisher = stage.recovered(), Publisher(stage)
        later = publisher.publish(queue, 7)
        got, _ = read_all(stage, queue, read_from=55, read_to="last")
        assert [body for _, body in got] == later
        assert [body for _, body in read_all(stage, queue, read_from=-3, read_to="last")[0]] == later[-3:]


@pytest.mark.parametrize("published", [0, 1, 4])
def test_the_last_numbers_are_counted_across_the_gap_of_a_crash(tmp_path, disk, published):
    """`read_from=-n` gives the last n messages, although a crash has left a gap in their numbers."""
    with DurableStage(tmp_path, disk) as stage:
        queue, publisher = stage.declare(), Publisher(stage)
        bodies = publisher.publish(queue, 10)
        publisher.await_confirms()
        rows = stage.rows
    with DurableStage(tmp_path, disk, rows) as stage:
        queue, publisher = stage.recovered(), Publisher(stage)
        if published:
            bodies += publisher.publish(queue, published)
            publisher.await_confirms()
        for count in range(1, len(bodies) + 1):
            got, _ = read_all(stage, queue, read_from=-count, read_to="last")
            assert [body for _, body in got] == bodies[-count:]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("size", [10, 5000])
def test_numbers_and_acknowledgements_survive_restarts(tmp_path, disk, is_clean, size):
    """Numbers and acknowledgements survive restarts, and after a clean stop the numbers go on without a gap."""
    rows, held, given = (), [], 0
    for life in range(4):
        with DurableStage(tmp_path, disk, rows) as stage:
            queue, publisher = stage.recovered() if life else stage.declare(), Publisher(stage)
            assert read_all(stage, queue, read_from="first", read_to="last") == (held, "end")
            info = queue.actor.on_info(None)
            following = info["next_number"]
            assert info["first_number"] == (held[0][0] if held else following)
            assert following == given if is_clean or not life else given < following <= given + AHEAD
            held += expected(publisher.publish(queue, 100, size), following)
            publisher.await_confirms()
            held = held[-50:] if life < 2 else []
            assert read_all(stage, queue, ack_to=held[0][0] - 1 if held else following + 99) == ([], "end")
            held += expected(publisher.publish(queue, 1, size), following + 100)
            publisher.await_confirms()  # the journal has the acknowledgement when it has these messages
            rows, given = stage.rows, following + 101
            if is_clean:
                stage.terminate()


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("size", [10, 5000])
def test_acknowledging_up_to_a_number_that_is_on_disk(stage, mode, size):
    """Before the queue acknowledges up to a number that is on disk, it reads what it needs of its head; then it removes
    all messages up to the number.
    """
    queue, publisher = stage.declare(x_queue_mode=mode), Publisher(stage)
    bodies = publisher.publish(queue, COUNT, size)
    publisher.await_confirms()
    on_disk(stage, queue)
    keeper = consumer(stage, queue, acks=False, prefetch=3)
    stage.until(lambda: len(keeper.got) == 3)
    on_disk(stage, queue, 4 * SEGMENT)  # the queue has read up to three segments for the consumer
    for number in (0, 1, 170, 299):
        assert read_all(stage, queue, ack_to=number, bounds=True) == ([(number + 1, COUNT, b"")], "end")
    assert read_all(stage, queue, ack_to=20, bounds=True) == ([(300, COUNT, b"")], "end")
    assert read_all(stage, queue, read_from=300, read_to="last") == (expected(bodies[300:], 300), "end")
    assert len(queue.actor.backing) == queue.actor.backing.totals().depth == COUNT - 300


def test_a_wide_hole_on_disk_is_skipped_in_several_turns(stage):
    """A wide gap on disk, in which everything was acknowledged, has more empty batches than one turn reads, so it is
    skipped in several turns.
    """
    count = 64 * (RangeReader.batches_per_turn + 4)
    queue, publisher = stage.declare(x_queue_mode="lazy"), Publisher(stage)
    bodies = publisher.publish(queue, count, 10)
    eater = consumer(stage, queue, acks=False)
    stage.until(lambda: len(eater.got) == count)
    queue.tell(eater.myAddress, "settle", "ack", [range(1, count - 1)])
    queue.tell(eater.myAddress, "cancel", "c")
    queue.tell(eater.myAddress, "settle", "requeue", [[0, count - 1]])
    stage.until(lambda: len(queue.actor.backing) == 2)
    on_disk(stage, queue, 0)
    found = delta(queue)
    assert (found.start, found.count, found.end) == (0, 2, count)
    assert read_all(stage, queue, read_from=0, read_to="last") == ([(0, bodies[0]), (count - 1, bodies[-1])], "end")
