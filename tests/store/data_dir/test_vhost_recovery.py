"""The processes of a virtual host and its disk as a whole: no confirmed message is lost, whenever they end."""

from __future__ import annotations

import errno
import shutil
import tempfile
from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.data_dir.data_dir import DataDir
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.real_disk import RealDisk
from warren.store.index.segment_jobs import FlushJob

from ..sim_vhost import SMALL_FILES, SimVhost, content

#: Queue id -> highest priority.
QUEUES = {1: None, 2: None, 3: 2}


class VhostMachine(RuleBasedStateMachine):
    """Messages are known by (queue, content). `published` are the persistent ones that the queues should hold,
    `confirmed` those
    that must survive any crash, `acked` those acknowledged since the last start, and `handed_out` the pending ones."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.vhost = SimVhost(self.root, QUEUES)
        self.published = set()
        self.confirmed = set()
        self.acked = set()
        self.mark = 0
        self.open()

    def teardown(self):
        self.vhost.kill()
        shutil.rmtree(self.root)

    def open(self):
        self.vhost.start()
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
        self.vhost.queues[queue].publish(contents, None, persistent, priority)
        if persistent:
            self.published.update((queue, got) for got in contents)

    @rule(queue=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 20))
    def fetch(self, queue, count):
        found = self.vhost.queues[queue].fetch(count)
        for got in found:
            assert not got.origin.persistent or (queue, got.content) in self.published, "QS-38"
        self.handed_out[queue] += found

    @rule(queue=st.sampled_from(sorted(QUEUES)), data=st.data(), is_ack=st.booleans())
    def settle(self, queue, data, is_ack):
        count = data.draw(st.integers(0, len(self.handed_out[queue])))
        self.settle_these(queue, self.handed_out[queue][:count], is_ack)

    def settle_these(self, queue, chosen, is_ack):
        tags = [got.tag for got in chosen]
        self.vhost.queues[queue].settle("ack" if is_ack else "requeue", tags)
        if is_ack:
            self.acked.update((queue, got.content) for got in chosen)
        self.handed_out[queue] = [got for got in self.handed_out[queue] if got.tag not in set(tags)]

    @rule(mode=st.sampled_from(["lazy", "default"]), queue=st.sampled_from(sorted(QUEUES)))
    def mode(self, mode, queue):
        self.vhost.queues[queue].set_mode(mode)

    @precondition(lambda self: self.vhost.calls)
    @rule(data=st.data(), count=st.integers(1, 6))
    def make_calls(self, data, count):
        """Make some of the calls that wait, in any order, while publishes go on."""
        for _ in range(count):
            if self.vhost.calls:
                at = data.draw(st.integers(0, len(self.vhost.calls) - 1))
                self.vhost.make(self.vhost.calls[at])
                self.vhost.turn()

    @rule(queue=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 12), keep=st.integers(2, 6))
    def pass_through(self, queue, count, keep):
        """Write large messages and acknowledge most of them, so that the store has garbage."""
        for _ in range(count):
            self.publish(queue, 2, 100, 0, True)
            self.vhost.make_all()
        self.fetch(queue, 2 * count)
        self.settle_these(queue, [got for got in self.handed_out[queue] if got.tag % keep], True)
        self.vhost.write_all()

    def note_confirms(self):
        for queue, opened in self.vhost.queues.items():
            confirmed = {(queue, opened.published[number - 1]) for number in opened.confirmed}
            self.confirmed |= confirmed & self.published

    @rule()
    def stop(self):
        """Everything persistent is there after a clean stop, even if the power fails after it."""
        self.vhost.stop()
        self.note_confirms()
        self.vhost.lose_power(Random(1))
        held = self.published - self.acked
        self.open()
        assert self.found() == held

    @rule(queue=st.sampled_from(sorted(QUEUES)))
    def restart_one_queue(self, queue):
        """The process of one queue crashes; the store and the other queues go on."""
        self.vhost.write_all()
        self.note_confirms()
        self.vhost.queues[queue].crash()
        self.handed_out[queue] = []
        assert self.found(queue) == {key for key in self.published - self.acked if key[0] == queue}

    @rule(
        seed=st.integers(0, 1 << 16),
        at=st.integers(1, 25),
        kill=st.booleans(),
        during=st.sampled_from(["work", "stop", "start"]),
    )
    def crash(self, seed, at, kill, during):
        if during != "start":
            self.vhost.dies_in(self.vhost.write_all if during == "work" else self.vhost.stop, at)
        self.note_confirms()
        for _ in range(2):
            if kill:
                self.vhost.kill()
            else:
                self.vhost.lose_power(Random(seed))
            self.vhost.dies_in(self.vhost.start, at)  # a crash inside recovery (C-22)
            self.vhost.kill()
        self.open()
        found = self.found()
        assert self.confirmed - self.acked <= found, "QS-37"
        assert found <= self.published, "QS-38"
        self.published = found
        self.confirmed &= found
        self.acked = set()

    def found(self, *queues):
        """The persistent messages of all queues, or of those named, as consumers get them."""
        found = set()
        for queue in queues or QUEUES:
            found.update((queue, got.content) for got in self.vhost.queues[queue].look() if got.origin.persistent)
        return found

    @invariant()
    def references_agree(self):
        self.vhost.persistent.check()


TestVhost = VhostMachine.TestCase
TestVhost.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)


@pytest.fixture
def vhost(tmp_path):
    vhost = SimVhost(tmp_path)
    vhost.start()
    yield vhost
    vhost.kill()


def fill(vhost, count, size=1):
    """Publish that many messages; returns their contents."""
    contents = [content(number, size) for number in range(count)]
    vhost.queue.publish(contents)
    return contents


def contents_of(queue):
    return [got.content for got in queue.look()]


def restart(vhost, random=None):
    if random is None:
        vhost.kill()
    else:
        vhost.lose_power(random)
    vhost.start()


def test_on_a_real_disk(tmp_path):
    """A backlog of small and large messages goes through the operating system, and is there after a stop."""
    vhost = SimVhost(tmp_path, disk=RealDisk(DataDir(str(tmp_path)).vhost("/")))
    vhost.start()
    published = fill(vhost, 100) + fill(vhost, 100, 100)
    vhost.write_all()
    assert vhost.queue.confirmed == set(range(1, 201))
    vhost.stop()
    restart(vhost)
    assert contents_of(vhost.queue) == published
    vhost.stop()
    vhost.kill()


def test_deleted_queue_returns_its_space(vhost):
    """A deleted queue gives its space back: its bodies, segments and references are removed, and do not return after a
    crash.
    """
    fill(vhost, 40, 100)
    vhost.write_all()
    vhost.queue.delete()
    assert vhost.wanted_bytes == 0
    restart(vhost, Random(3))
    assert len(vhost.queue) == 0


@pytest.mark.parametrize("ends", ["stop", "kill", "power"])
def test_a_queue_without_a_process_keeps_what_the_disk_has(tmp_path, ends):
    """A durable queue that has no process on this node, because its master is elsewhere, keeps its messages on the
    disk: the node may be asked for them later (CL-100).
    """
    vhost = SimVhost(tmp_path, {1: None, 2: None})

    def end():
        if ends == "stop":
            vhost.stop()
        vhost.lose_power(Random(5)) if ends == "power" else vhost.kill()

    vhost.start()
    published = fill(vhost, 40, 100) + fill(vhost, 40)
    vhost.write_all()
    vhost.queue.ack([got.tag for got in vhost.queue.fetch(10)])
    vhost.write_all()
    end()
    vhost.not_started = frozenset({1})
    for _ in range(2):
        vhost.start()
        # The other queue makes files full, which are given up and written anew without those bodies that nobody has.
        other = vhost.queues[2]
        for _ in range(8):
            other.publish([content(1000 + number, 100) for number in range(20)])
            vhost.write_all()
            other.ack([got.tag for got in other.fetch(20)])
            vhost.write_all()
        vhost.persistent.check()
        end()
    vhost.not_started = frozenset()
    vhost.start()
    assert contents_of(vhost.queue) == published[10:]
    vhost.persistent.check()
    vhost.kill()


def test_segment_size_is_fixed_at_first_use(vhost):
    """D-2: a virtual host keeps the size with which it was created, so a changed setting harms no file."""
    published = fill(vhost, 40)
    vhost.stop()
    vhost.limits = replace(SMALL_FILES, segment_entries=2048)
    restart(vhost)
    assert vhost.queue.actor.durability.storage.segment_entries == 16
    assert contents_of(vhost.queue) == published


@pytest.mark.parametrize("wiped", ["msg_store_persistent", "queues"])
def test_wiped_directories_leave_a_working_queue(vhost, wiped):
    """D-7: the store or the indexes are deleted after a clean stop. The queue keeps the other messages, and works."""
    fill(vhost, 20, 100)
    small = fill(vhost, 20)
    vhost.stop()
    vhost.kill()
    vhost.disk.delete_tree(wiped)
    vhost.start()
    assert contents_of(vhost.queue) == (small if wiped == "msg_store_persistent" else [])
    later = fill(vhost, 3)
    assert contents_of(vhost.queue)[-3:] == later


def test_full_disk_confirms_nothing_and_loses_nothing(tmp_path):
    """QS-35: writes fail and nothing is confirmed; with room again the processes write it all, and all of it
    survives.
    """
    vhost = SimVhost(tmp_path, disk=FaultyDisk(limit=3000))
    vhost.start()
    fill(vhost, 10)
    vhost.write_all()
    assert len(vhost.queue.confirmed) == 10
    fill(vhost, 10, 200)
    fill(vhost, 30)
    for _ in range(2):
        vhost.make_all()
        vhost.world.run(seconds=2.0)  # so that the processes try again
        assert vhost.calls
    assert len(vhost.queue.confirmed) == 10
    vhost.disk.limit = None
    vhost.run_until(lambda: len(vhost.queue.confirmed) == 50)
    restart(vhost, Random(5))
    assert len(vhost.queue) == 50
    vhost.kill()


def test_segments_that_cannot_be_written_keep_the_journal(vhost):
    """While segments cannot be written, the journal keeps its files."""
    while not vhost.waits(FlushJob):
        fill(vhost, 5)
        vhost.make_all(type(vhost.journal))
    vhost.disk.fail_after(1, OSError(errno.EROFS, "read-only"))
    vhost.make_all(FlushJob)
    assert vhost.journal.files.closed_files
    vhost.disk.heal()
    vhost.run_until(lambda: not vhost.journal.files.closed_files)
    count = len(vhost.queue.published)
    vhost.run_until(lambda: len(vhost.queue.confirmed) == count)
