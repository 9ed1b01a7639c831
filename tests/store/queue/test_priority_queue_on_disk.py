"""A priority queue over variable queues (queue-and-store section 9) against a plain list, while its levels page,
change mode and end.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import any_of
from warren.store.queue.backing_queue import BackingQueue
from warren.store.queue.levels.level_tags import LEVEL_SHIFT, NUMBER_MASK
from warren.store.queue.levels.priority_queue import PriorityQueue
from warren.store.queue.rates import INFINITE

from ..engines import DirectBodies, DirectLog, DirectQueue, recover, stored_ids, write_journal
from .test_backing_queues import MAX_PRIORITY, ORIGINS, PriorityMachine, content

SEGMENT = 16


class Priorities:
    """A priority queue on a disk, with small segments and bodies in the index and in the store."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.boot = 0
        self.open(is_new=True)

    def open(self, is_new: bool) -> BackingQueue:
        self.disk.make_dir("journal")
        self.journal = JournalEngine(self.disk, "journal", file_limit=3000)
        self.replayed = self.journal.recover()
        self.log = DirectLog(self.journal)
        self.persistent, self.transient = (
            DirectBodies(
                self.disk, kind, f"{self.root}/{kind}", kind == "persistent", file_limit=2000, boot_id=str(self.boot)
            )
            for kind in ("persistent", "transient")
        )
        self.persistent.recover(False, self.references)
        self.transient.recover(may_trust=False)
        levels = {} if is_new else {priority: self.make_level(priority) for priority in range(MAX_PRIORITY + 1)}
        for level in levels.values():
            recover(level, self.persistent, None)
        self.queue = PriorityQueue(MAX_PRIORITY, self.make_level, levels)
        return self.queue

    def references(self):
        """The ids that the indexes of all levels name."""
        return [
            stored_ids(self.disk, f"q{priority}", priority, SEGMENT, self.replayed.get(priority))
            for priority in range(MAX_PRIORITY + 1)
        ]

    def make_level(self, priority: int) -> DirectQueue:
        index = QueueIndex(self.disk, f"q{priority}", priority, self.log, SEGMENT)
        replayed = self.replayed.pop(priority, None)
        return DirectQueue(
            priority, index, self.persistent, self.transient, replayed, embed_below=40, segment_entries=SEGMENT
        )

    @property
    def levels(self):
        """The levels in use, by priority."""
        return self.queue._by_number

    def write_all(self) -> None:
        for store in (self.persistent, self.transient):
            store.write_all()
        journal = write_journal(self.journal, self.levels.values())
        for level in self.levels.values():
            level.durable(journal, self.persistent.durable)

    def page(self, most: float) -> None:
        for level in self.levels.values():
            level.paging._io_batch_size = 1
            level.paging.target = most
            level.page()
            while level.paging.is_due:
                level.page()

    def end(self, seed: int | None) -> BackingQueue:
        """Kill the process, or cut the power with a seed, after everything was written.

        Returns the queue of the next start.
        """
        self.write_all()
        for store in (self.persistent, self.transient):
            store.engine.abandon()
        if seed is None:
            self.disk.kill()
        else:
            self.disk.crash(Random(seed))
            self.boot += 1
        return self.open(is_new=False)

    def close(self) -> None:
        shutil.rmtree(self.root)


class PagedPriorityMachine(PriorityMachine):
    """The model of test_backing_queues with paging, modes and crashes."""

    def make_queue(self) -> BackingQueue:
        self.disk = Priorities()
        return self.disk.queue

    def teardown(self):
        self.disk.close()

    @rule()
    def drain_confirmed(self):
        self.disk.write_all()
        self.take_confirmed()
        assert not self.unconfirmed

    @rule(most=st.sampled_from([0, 0, 5, INFINITE]))
    def page(self, most):
        self.disk.page(most)

    @rule(mode=st.sampled_from(["default", "lazy"]))
    def mode(self, mode):
        self.queue.set_queue_mode(mode)

    @rule(priority=st.integers(0, MAX_PRIORITY))
    def fold_one_level(self, priority):
        if priority in self.disk.levels:
            self.disk.levels[priority].segment_writer.flush()

    @rule(seed=st.one_of(st.none(), st.integers(0, 1 << 16)))
    def end_uncleanly(self, seed):
        """Persistent messages are ready again, level by level, and redelivered."""
        self.queue = self.disk.end(seed)
        self.ready = sorted(
            (
                replace(held, redelivered=True)
                for held in [*self.ready, *self.pending.values()]
                if held.origin.persistent
            ),
            key=self.order,
        )
        self.pending = {}
        self.unconfirmed = set()
        for priority in range(MAX_PRIORITY + 1):
            level = self.disk.levels.get(priority)
            held = [held.tag & NUMBER_MASK for held in self.ready if held.tag >> LEVEL_SHIFT == priority]
            assert level is not None and level._next > max(held) if held else True
            self.next[priority] = level._next if level is not None else 0

    @invariant()
    def levels_are_in_order(self):
        """QS-36 holds, and QS-1 to QS-12 for each level."""
        priorities = [priority for priority, _ in self.queue._levels]
        assert priorities == sorted(set(priorities), reverse=True)
        for level in self.disk.levels.values():
            level.check()
            assert level.sub_queues.lost == 0


TestPagedPriorityQueue = PagedPriorityMachine.TestCase
TestPagedPriorityQueue.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@pytest.fixture
def priorities():
    priorities = Priorities()
    yield priorities
    priorities.close()


@pytest.mark.parametrize("size", [5, 100], ids=["embedded", "stored"])
def test_each_level_pages_by_itself(priorities, size):
    """Each level pages by itself: a message for a level that is paged out comes after the others of that level and
    before all lower levels.
    """
    for priority in (1, 3, 2):
        priorities.queue.publish(
            ORIGINS[priority], [content(size, number) for number in range(100)], 100 * size, None, False
        )
    priorities.page(0)
    assert {priority: len(level) for priority, level in priorities.levels.items()} == {3: 100, 2: 100, 1: 100}
    # A segment's worth at each head stays, with bodies that are embedded.
    in_memory = sum(level.sub_queues.ram_count for level in priorities.levels.values())
    assert in_memory == (3 * 16 if size == 5 else 0)
    priorities.queue.publish(ORIGINS[3], [content(size, 100)], size, None, False)
    got = [
        (any_of(delivery.origins).priority, number)
        for delivery in priorities.queue.fetch(400, True)
        for number in delivery.tags
    ]
    assert [priority for priority, _ in got] == [3] * 101 + [2] * 100 + [1] * 100
    assert [number & 0xFFFF for _, number in got] == [*range(101), *range(100), *range(100)]
