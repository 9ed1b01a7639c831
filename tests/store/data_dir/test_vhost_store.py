"""A virtual host's store as a whole: nothing confirmed is lost, wherever it ends."""

from __future__ import annotations

import errno
import shutil
import tempfile
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.bodies.rdq_file import OVERHEAD
from warren.store.data_dir.vhost_store import VhostStore
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.real_disk import RealDisk
from warren.store.messages.message import Origin

QUEUES = {1: None, 2: None, 3: 2}
"""Queue id -> highest priority."""


def content(mark: int, size: int) -> bytes:
    return (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + size.to_bytes(8, "big")
        + b"\x10\x00\x02\xce"
        + mark.to_bytes(8, "big")
        + bytes(size)
    )


def origin(priority: int = 0, persistent: bool = True) -> Origin:
    return Origin("", ("q",), b"\x10\x00\x02", persistent=persistent, priority=priority)


def abandon(store: VhostStore) -> None:
    """A process that ends lets go of its files and LMDB environments."""
    store.persistent.engine.abandon()
    store.transient.engine.abandon()


class VhostMachine(RuleBasedStateMachine):
    """`confirmed` is what the store said is safe and nobody acked; `published` everything, by (queue, tag)."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.published = {}
        self.confirmed = set()
        self.acked = set()
        self.mark = self.boot = 0
        self.open()

    def teardown(self):
        shutil.rmtree(self.root)

    def open(self):
        self.store = VhostStore(
            self.disk,
            self.root,
            segment_entries=16,
            embed_below=60,
            journal_file_limit=1500,
            store_file_limit=800,
            boot_id=str(self.boot),
        )
        self.store.recover(set(QUEUES))
        self.queues = {queue: self.store.open_queue(queue, highest) for queue, highest in QUEUES.items()}
        self.work = None
        self.handed_out = {queue: [] for queue in QUEUES}

    @rule(
        queue=st.sampled_from(sorted(QUEUES)),
        count=st.integers(1, 12),
        size=st.sampled_from([1, 100]),
        priority=st.integers(0, 2),
        persistent=st.sampled_from([True, True, False]),
    )
    def publish(self, queue, count, size, priority, persistent):
        contents = [content(self.mark + index, size) for index in range(count)]
        self.mark += count
        tags = self.queues[queue].publish(origin(priority, persistent), contents, count * size, None, persistent)
        if persistent:
            self.published.update(((queue, tag), c) for tag, c in zip(tags, contents, strict=True))

    @rule(queue=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 20))
    def fetch(self, queue, count):
        for delivery in self.queues[queue].fetch(count, True):
            for tag, got in zip(delivery.tags, delivery.contents, strict=True):
                assert not delivery.origin.persistent or self.published[queue, tag] == got
            self.handed_out[queue] += delivery.tags

    @rule(queue=st.sampled_from(sorted(QUEUES)), data=st.data())
    def settle(self, queue, data):
        tags = self.handed_out[queue]
        chosen = tags[: data.draw(st.integers(0, len(tags)))]
        if data.draw(st.booleans()):
            self.queues[queue].ack(chosen)
            self.acked.update((queue, tag) for tag in chosen)
        else:
            self.queues[queue].requeue(chosen)
        self.handed_out[queue] = tags[len(chosen) :]

    @rule(mode=st.sampled_from(["lazy", "default"]), queue=st.sampled_from(sorted(QUEUES)))
    def mode(self, mode, queue):
        self.queues[queue].set_queue_mode(mode)

    @rule(steps=st.integers(1, 4))
    def work_on(self, steps):
        """Publishing goes on between the steps."""
        for _ in range(steps):
            if self.work is None:
                self.work = self.store.take_work()
            else:
                self.work.run()
                self.store.done(self.work)
                self.work = None
                self.drain_confirmed()

    @rule(queue=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 12), keep=st.integers(2, 6))
    def pass_through(self, queue, count, keep):
        """Large messages are written, and most of them acked: garbage for the store."""
        for _ in range(count):
            self.publish(queue, 2, 100, 0, True)
            self.work_on(2)
        self.fetch(queue, 2 * count)
        chosen = [tag for tag in self.handed_out[queue] if tag % keep]
        self.queues[queue].ack(chosen)
        self.acked.update((queue, tag) for tag in chosen)
        self.handed_out[queue] = [tag for tag in self.handed_out[queue] if not tag % keep]
        self.work_on(4)

    def drain_confirmed(self):
        for queue, opened in self.queues.items():
            for first, last in opened.drain_confirmed():
                self.confirmed.update((queue, tag) for tag in range(first, last + 1))

    @precondition(lambda self: self.work is None)
    @rule()
    def stop(self):
        self.store.stop()
        self.drain_confirmed()
        self.disk.crash(Random(1))
        held = set(self.published) - self.acked
        self.open()
        assert self.found() == held

    @precondition(lambda self: self.work is None)
    @rule(queue=st.sampled_from(sorted(QUEUES)))
    def restart_one_queue(self, queue):
        """Its process failed; the store and the other queues go on."""
        self.store.write_all()
        self.drain_confirmed()
        self.queues[queue] = self.store.reopen_queue(queue, QUEUES[queue])
        self.handed_out[queue] = []
        assert {key for key in self.found() if key[0] == queue} == {
            key for key in set(self.published) - self.acked if key[0] == queue
        }

    @rule(
        seed=st.integers(0, 1 << 16),
        at=st.integers(1, 25),
        kill=st.booleans(),
        during=st.sampled_from(["work", "stop", "start"]),
    )
    def crash(self, seed, at, kill, during):
        self.disk.fail_after(at, KeyboardInterrupt())
        try:
            if during == "work" or self.work:
                self.work_on(4)
            elif during == "stop":
                self.store.stop()
                self.open()
        except KeyboardInterrupt:
            pass
        self.disk.heal()
        self.drain_confirmed()
        for _ in range(2):
            abandon(self.store)
            if kill:
                self.disk.kill()
            else:
                self.boot += 1
                self.disk.crash(Random(seed))
            self.disk.fail_after(at, KeyboardInterrupt())
            try:
                self.open()  # a crash inside recovery (C-22)
            except KeyboardInterrupt:
                pass
            self.disk.heal()
            abandon(self.store)
            self.disk.kill()
        self.open()
        found = self.found()
        assert self.confirmed - self.acked <= found, "QS-37"
        self.published = {key: value for key, value in self.published.items() if key in found}
        self.confirmed &= found
        self.acked = set()

    def found(self):
        """Everything there is, none of it delivered yet."""
        found = set()
        for queue, opened in self.queues.items():

            def visit(message, is_pending, acc, queue=queue):
                if message.origin.persistent:
                    assert self.published[queue, message.tag] == message.content, "QS-38"
                    acc.append((queue, message.tag))
                return acc, True

            found.update(opened.fold(visit, []))
        return found

    @invariant()
    def references_agree(self):
        self.store.persistent.engine.check()


TestVhostStore = VhostMachine.TestCase
TestVhostStore.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


def opened(disk, root, queues=(1,)) -> VhostStore:
    store = VhostStore(disk, str(root), segment_entries=16, embed_below=60, journal_file_limit=2000)
    store.recover(set(queues))
    return store


def fill(queue, count, size=1):
    return queue.publish(origin(), [content(n, size) for n in range(count)], count * size, None, True)


def test_on_a_real_disk(tmp_path):
    """Two starts and a backlog of small and large messages, through the operating system."""
    disk = RealDisk(str(tmp_path / "data"))
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    fill(queue, 100)
    fill(queue, 100, 100)
    store.write_all()
    assert queue.drain_confirmed() == [(0, 199)]
    store.stop()
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    assert [c for d in queue.fetch(300, False) for c in d.contents] == [
        content(n, size) for size in (1, 100) for n in range(100)
    ]
    store.stop()


def test_unknown_queues_are_removed_at_start(tmp_path):
    """C-17: a queue deleted in the metadata leaves nothing behind, neither files nor references."""
    disk = FaultyDisk()
    store = opened(disk, tmp_path, (1, 2))
    for queue in (1, 2):
        fill(store.open_queue(queue), 40, 100)
    store.stop()
    store = opened(disk, tmp_path, (2,))
    assert disk.list("queues") == ["200"]
    assert len(store.open_queue(2)) == 40
    store.persistent.engine.check()
    assert store.persistent.engine.file_sizes[1] == 40 * (len(content(0, 100)) + OVERHEAD)
    store.stop()


def test_deleted_queue_returns_its_space(tmp_path):
    """Content, index and references go with the queue; nothing returns after a crash."""
    disk = FaultyDisk()
    store = opened(disk, tmp_path)
    fill(store.open_queue(1), 40, 100)
    store.write_all()
    store.delete_queue(1)
    store.write_all()
    assert store.persistent.engine.file_sizes[1] == 0
    abandon(store)
    disk.crash(Random(3))
    store = opened(disk, tmp_path)
    assert len(store.open_queue(1)) == 0
    store.stop()


def test_segment_size_is_fixed_at_first_use(tmp_path):
    """D-2: a setting changed later does not change what the files mean."""
    disk = FaultyDisk()
    store = opened(disk, tmp_path)
    fill(store.open_queue(1), 40)
    store.stop()
    store = VhostStore(disk, str(tmp_path), segment_entries=2048)
    store.recover({1})
    assert store._segment_entries == 16
    assert len(store.open_queue(1).fetch(50, False)[0].contents) > 0
    store.stop()


@pytest.mark.parametrize("wiped", ["msg_store_persistent", "queues"])
def test_wiped_directories_leave_a_working_queue(tmp_path, wiped):
    """D-7: clean terms and a store or an index that is gone; what is there counts, nothing spins."""
    disk = FaultyDisk()
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    fill(queue, 20, 100)
    fill(queue, 20)
    store.stop()
    disk.delete_tree(wiped)
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    got = [c for d in queue.fetch(100, False) for c in d.contents]
    assert got == ([content(n, 1) for n in range(20)] if wiped == "msg_store_persistent" else [])
    assert queue.is_empty()
    store.stop()


def test_full_disk_confirms_nothing_and_loses_nothing(tmp_path):
    """QS-35: writes fail, nothing is confirmed; with room again the same work goes through, and all of it survives."""
    disk = FaultyDisk(limit=3000)
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    fill(queue, 10)
    store.write_all()
    assert queue.drain_confirmed() == [(0, 9)]
    fill(queue, 30)
    fill(queue, 10, 200)
    work = store.take_work()
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            work.run()
    assert queue.drain_confirmed() == []
    disk.limit = None
    work.run()
    store.done(work)
    store.write_all()
    assert queue.drain_confirmed() == [(10, 49)]
    abandon(store)
    disk.crash(Random(5))
    store = opened(disk, tmp_path)
    assert len(store.open_queue(1)) == 50
    store.stop()


def test_segments_that_cannot_be_written_keep_the_journal(tmp_path):
    """A fold that fails gives up no journal file; the next one that succeeds does."""
    disk = FaultyDisk()
    store = opened(disk, tmp_path)
    queue = store.open_queue(1)
    fill(queue, 60)
    store.write_all()
    fill(queue, 60)
    work = store.take_work()
    work.run()
    store.done(work)
    work = store.take_work()
    disk.fail_after(1, OSError(errno.EROFS, "read-only"))
    with pytest.raises(OSError, match="read-only"):
        work.run()
    assert store.journal.closed_files
    disk.heal()
    work.run()
    store.done(work)
    fill(queue, 1)
    store.write_all()
    assert not store.journal.closed_files
    assert queue.drain_confirmed() == [(0, 120)]
    store.stop()
