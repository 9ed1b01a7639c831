"""Messages that are in several queues: stored once, there as long as one of the queues has them, and no longer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from functools import cache
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.data_dir.vhost_store import VhostStore
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.messages.message import Origin
from warren.store.messages.message_ids import SharedIds, StoredSpan, as_bytes, is_shared, own_base, stored_spans

from ..one_queue import PERSISTENT, SEGMENT, Node, contents, page_all, tags

LARGE, SMALL = 100, 1
HIGHEST = {1: None, 2: None, 3: 2}
"""Highest priority of each queue. The second begins lazy."""


def content(mark: int, size: int) -> bytes:
    return (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + size.to_bytes(8, "big")
        + b"\x10\x00\x02\xce"
        + mark.to_bytes(8, "big")
        + bytes(size)
    )


@cache
def origin(persistent: bool = True, priority: int = 0) -> Origin:
    """Always the same: runs of one are joined."""
    return Origin("", ("q",), b"\x10\x00\x02", persistent=persistent, priority=priority)


class SharedMachine(RuleBasedStateMachine):
    """Queues that are given the same messages, on a disk that forgets. After each step the stores count just the references that the queues have.

    `confirmed` is what the store said is safe and nobody acked; `published` everything, by (queue, tag); `owed` what is to be confirmed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.random = Random(5)
        self.names = dict(enumerate(HIGHEST, 1))  # number -> which of HIGHEST
        self.published = {}
        self.confirmed = set()
        self.acked = set()
        self.mark = self.boot = 0
        self.are_transients_counted = True
        self.sources = [SharedIds(self.random.randbytes) for _ in range(2)]
        self.open()

    def teardown(self):
        try:
            self.consume_all()
        finally:
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
        self.store.recover(set(self.names))
        self.queues = {queue: self.open_queue(queue) for queue in self.names}
        self.work = None
        self.are_transients_counted = True
        self.owed = set()
        self.handed_out = {queue: [] for queue in self.names}

    def open_queue(self, queue):
        opened = self.store.open_queue(queue, HIGHEST[self.names[queue]])
        opened.set_queue_mode("lazy" if self.names[queue] == 2 else "default")
        return opened

    def queue_of(self, data):
        return data.draw(st.sampled_from(sorted(self.queues)))

    @rule(
        data=st.data(),
        sizes=st.lists(st.sampled_from([LARGE, LARGE, LARGE, SMALL]), min_size=1, max_size=12),
        priority=st.integers(0, 2),
        persistent=st.sampled_from([True, True, False]),
        source=st.integers(0, 1),
    )
    def publish(self, data, sizes, priority, persistent, source):
        targets = data.draw(st.lists(st.sampled_from(sorted(self.queues)), min_size=1, unique=True))
        run = [content(self.mark + index, size) for index, size in enumerate(sizes)]
        self.mark += len(sizes)
        shared = self.sources[source].take(run, 60) if len(targets) > 1 else 0
        for queue in targets:
            self.publish_to(queue, origin(persistent, priority), run, sum(sizes), shared)

    def publish_to(self, queue, how, run, body_bytes, shared):
        opened = self.queues[queue]
        if opened.is_empty() and self.mark % 2:
            tags = opened.publish_delivered(how, run, body_bytes, None, how.persistent, shared)
            self.handed_out[queue] += tags
        else:
            tags = opened.publish(how, run, body_bytes, None, how.persistent, shared=shared)
        if how.persistent:
            self.published.update(((queue, tag), c) for tag, c in zip(tags, run, strict=True))
            self.owed.update((queue, tag) for tag in tags)

    @rule(data=st.data(), count=st.integers(1, 20))
    def fetch(self, data, count):
        queue = self.queue_of(data)
        for delivery in self.queues[queue].fetch(count, True):
            for tag, got in zip(delivery.tags, delivery.contents, strict=True):
                assert not delivery.origin.persistent or self.published[queue, tag] == got
            self.handed_out[queue] += delivery.tags

    @rule(data=st.data(), is_ack=st.booleans())
    def settle(self, data, is_ack):
        queue = self.queue_of(data)
        tags = self.handed_out[queue]
        chosen = tags[data.draw(st.integers(0, 3)) :: data.draw(st.integers(1, 3))]
        if is_ack:
            self.queues[queue].ack(chosen)
            self.acked.update((queue, tag) for tag in chosen)
        else:
            self.queues[queue].requeue(chosen)
        self.handed_out[queue] = [tag for tag in tags if tag not in set(chosen)]

    @rule(data=st.data())
    def purge(self, data):
        queue = self.queue_of(data)
        self.queues[queue].purge()
        kept = set(self.handed_out[queue])
        self.acked.update(key for key in self.published if key[0] == queue and key[1] not in kept)

    @precondition(lambda self: self.work is None)
    @rule(data=st.data())
    def delete(self, data):
        """Deleted, and declared anew."""
        queue = self.queue_of(data)
        self.store.delete_queue(queue)
        self.published = {key: value for key, value in self.published.items() if key[0] != queue}
        self.confirmed = {key for key in self.confirmed if key[0] != queue}
        self.owed = {key for key in self.owed if key[0] != queue}
        del self.handed_out[queue]
        name = self.names.pop(queue)
        another = max((queue, *self.names)) + 1
        self.names[another] = name
        self.queues = {number: opened for number, opened in self.queues.items() if number != queue}
        self.queues[another] = self.open_queue(another)
        self.handed_out[another] = []

    @precondition(lambda self: self.work is None)
    @rule(data=st.data(), mode=st.sampled_from(["lazy", "default"]))
    def mode(self, data, mode):
        self.queues[self.queue_of(data)].set_queue_mode(mode)

    @precondition(lambda self: self.work is None)  # a queue that does not read ahead flushes at once
    @rule(data=st.data())
    def page(self, data):
        """Out of memory with everything."""
        queue = self.queue_of(data)
        opened = self.queues[queue]
        for number, level in self.store._variable.items():
            if number >> 8 == queue:
                level.paging._io_batch_size = 1
        opened.set_ram_duration_target(0)
        opened.handle_info("page")
        opened.set_ram_duration_target(float("inf"))

    @rule(steps=st.integers(1, 4))
    def work_on(self, steps):
        for _ in range(steps):
            if self.work is None:
                self.work = self.store.take_work()
            else:
                self.work.run()
                self.store.done(self.work)
                self.work = None
                self.drain_confirmed()

    def drain_confirmed(self):
        for queue, opened in self.queues.items():
            for first, last in opened.drain_confirmed():
                self.confirmed.update((queue, tag) for tag in range(first, last + 1))
        self.owed -= self.confirmed

    @precondition(lambda self: self.work is None)
    @rule()
    def stop(self):
        self.store.stop()
        self.drain_confirmed()
        self.disk.crash(Random(1))
        left = set(self.published) - self.acked
        self.open()
        assert self.found() == left

    @precondition(lambda self: self.work is None)
    @rule(data=st.data())
    def restart_one_queue(self, data):
        """Its process failed; the store and the other queues go on."""
        queue = self.queue_of(data)
        self.store.write_all()
        self.drain_confirmed()
        assert not self.owed
        self.are_transients_counted = False  # what it had of them stays until the next start
        self.queues[queue] = self.store.reopen_queue(queue, HIGHEST[self.names[queue]])
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
            self.abandon()
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
            self.abandon()
            self.disk.kill()
        self.sources = [SharedIds(self.random.randbytes) for _ in range(2)]
        self.open()
        found = self.found()
        assert self.confirmed - self.acked <= found, "QS-37"
        self.published = {key: value for key, value in self.published.items() if key in found}
        self.confirmed &= found
        self.acked = set()

    def abandon(self):
        self.store.persistent.engine.abandon()
        self.store.transient.engine.abandon()

    def found(self):
        """Everything there is, none of it delivered yet; every body is read."""
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
        """Each reference that a queue has is counted, and no other: nothing is lost that is wanted, nothing stays that is not."""
        self.store.persistent.engine.check()
        by_kind = {True: Counter(), False: Counter()}
        for level in self.store._variable.values():
            for persistent, message_id in level.references():
                by_kind[persistent][message_id] += 1
        assert self.store.persistent.engine.reference_counts() == by_kind[True]
        transient = Counter(self.store.transient.engine.reference_counts())
        assert transient == by_kind[False] if self.are_transients_counted else transient >= by_kind[False]

    def consume_all(self):
        """When every queue has let go of everything nothing is left."""
        if self.work is not None:
            self.work_on(1)
        for queue, opened in self.queues.items():
            opened.requeue(self.handed_out[queue])
            while len(opened):
                opened.fetch(50, False)
        self.store.write_all()
        self.drain_confirmed()
        assert not self.owed
        assert self.store.persistent.engine.file_sizes[1] == 0
        assert not self.store.persistent.engine.reference_counts()


TestSharedBodies = SharedMachine.TestCase
TestSharedBodies.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


# -- what only segments know -----------------------------------------------------------------------------

BACKLOG = SEGMENT + 10


def publish_shared(node, count=BACKLOG):
    """Messages that another client has as well; their ids."""
    first = SharedIds(os.urandom).take(contents(count), 0)
    ids = [as_bytes(first + index) for index in range(count)]
    node.queue.publish(PERSISTENT, contents(count), 10 * count, None, False, shared=first)
    node.persistent.of("another").write(list(zip(ids, contents(count), strict=True)))
    return ids


def counts(node, ids):
    counted = node.persistent.engine.reference_counts()
    return [counted.get(message_id, 0) for message_id in ids]


@pytest.fixture
def node(tmp_path):
    """Of a lazy queue."""
    node = Node(tmp_path)
    node.queue.set_queue_mode("lazy")
    return node


def test_a_purge_gives_back_each_reference_once(node):
    """Not those of pending messages, nor, a second time, those of messages that were acked and stand in the segment all the same."""
    ids = publish_shared(node)
    node.queue.folding.flush(True)
    node.sync()
    assert counts(node, ids) == [2] * BACKLOG
    node.queue.fetch(6, True)
    node.queue.requeue([0])
    node.queue.ack([2, 3])
    page_all(node.queue)
    assert (node.queue.sub_queues.delta.start, node.queue.sub_queues.delta.count) == (0, BACKLOG - 5)
    assert node.queue.purge() == BACKLOG - 5
    assert counts(node, ids) == [1, 2, 1, 1, 2, 2, *[1] * (BACKLOG - 6)]
    node.queue.folding.flush(True)
    node.queue.ack([1, 4, 5])
    assert counts(node, ids) == [1] * BACKLOG


def test_a_deleted_queue_gives_back_all_it_had(node):
    ids = publish_shared(node)
    node.queue.folding.flush(True)
    node.queue.fetch(6, True)
    node.queue.requeue([0])
    node.queue.ack([2, 3])
    page_all(node.queue)
    node.queue.delete_and_terminate()
    assert counts(node, ids) == [1] * BACKLOG


@pytest.mark.parametrize("end", ["purge", "delete_and_terminate"])
def test_a_flush_that_is_under_way_hides_nothing(tmp_path, end):
    """Neither what it is about to write, nor the acks that it takes along; nor what comes behind it."""
    node = Node(tmp_path, reads_ahead=True)
    node.queue.set_queue_mode("lazy")
    ids = publish_shared(node)
    node.queue.folding.flush(True)
    load = node.queue.prepare()
    load.run()
    load.reader.prepared(load, [], [])
    load = node.queue.prepare()
    load.run()
    load.reader.prepared(load, node.persistent.read(load.wanted.persistent), [])
    assert tags(node.queue.fetch(4, True)) == [0, 1, 2, 3]
    node.queue.requeue([0, 3])
    node.queue.ack([1])
    ids += publish_shared(node)
    flush = node.queue.folding.take_flush(True)
    node.queue.ack([2])
    ids += publish_shared(node, 3)
    page_all(node.queue)
    assert (node.queue.sub_queues.delta.start, node.queue.sub_queues.delta.count) == (0, 2 * BACKLOG + 1)
    getattr(node.queue, end)()
    flush.run()
    node.queue.folding.flushed(flush)
    while (release := node.queue.folding.take_release()) is not None:
        release.run()
        node.queue.folding.released(release)
    assert counts(node, ids) == [1] * (2 * BACKLOG + 3)


def test_messages_of_several_sources_that_come_back_together(tmp_path):
    """Each keeps its id, in one run or not."""
    node = Node(tmp_path)
    ids = []
    for source in [SharedIds(os.urandom), SharedIds(os.urandom)] * 2:
        first = source.take(contents(3), 0)
        node.queue.publish(PERSISTENT, contents(3, first=len(ids)), 30, None, False, shared=first)
        ids += [as_bytes(first + index) for index in range(3)]
        node.queue.publish(PERSISTENT, contents(1, first=len(ids)), 10, None, False)
        ids.append(as_bytes(own_base(1) + len(ids)))
    node.queue.fetch(16, True)
    node.queue.requeue(range(16))
    assert [message_id for _, message_id in node.queue.references()] == ids
    page_all(node.queue)
    assert [message_id for _, message_id in node.queue.references()] == ids
    assert tags_and_contents(node.queue.fetch(16, False)) == list(enumerate(contents(16)))
    assert not node.persistent.engine.reference_counts()


def tags_and_contents(deliveries):
    return [pair for delivery in deliveries for pair in zip(delivery.tags, delivery.contents, strict=True)]


@pytest.mark.parametrize("at", ["a byte", "the file"])
def test_what_is_damaged_gives_nothing_back(node, at):
    """What had been acked in the damaged bytes would be given back twice, and be another queue's. The next start counts."""
    ids = publish_shared(node)
    node.queue.folding.flush(True)
    if at == "a byte":
        file = node.disk.open("q/0.idx")
        data = bytearray(file.read(0, file.size()))
        data[40] ^= 1
        file.truncate(0)
        file.append([bytes(data)])
    else:
        node.disk.delete("q/0.idx")
    node.queue.purge()
    assert counts(node, ids)[:SEGMENT] == [2] * SEGMENT
    assert node.queue.has_lost_entries


# -- ids ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 600), max_size=30), st.integers(1, 1 << 64))
def test_no_two_messages_have_the_same_id(counts, queue):
    """Not from one source, not from two, not one that is shared and a queue's own."""
    sources = [SharedIds(os.urandom) for _ in range(2)]
    seen = {as_bytes(own_base(queue - 1) + number) for number in (0, 1, 1 << 20, (1 << 63) - 1)}
    assert not any(map(is_shared, seen))
    for at, count in enumerate(counts):
        first = sources[at % 2].take([bytes(5000)] * count, 4096)
        mine = {as_bytes(first + index) for index in range(count)}
        assert all(map(is_shared, mine)) and not mine & seen
        seen |= mine


def test_a_source_of_ids_that_runs_out():
    """It draws anew."""
    source = SharedIds(os.urandom)
    first = source.take([bytes(10)], 10)
    source._next = source._end - 1
    assert source.take([bytes(10)] * 2, 10) >> 48 != first >> 48


def test_small_messages_need_no_id():
    assert SharedIds(os.urandom).take([bytes(9)] * 3, 10) == 0


@given(st.integers(0, 1 << 40), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=20))
def test_spans_of_ids(first, runs):
    """They say the same ids again, and those that go on are one span."""
    ids = [base << 70 | (first + at) for at, base in enumerate(base for base, count in runs for _ in range(count))]
    spans = stored_spans(first, map(as_bytes, ids))
    assert [message_id for span in spans for message_id in span.ids()] == [as_bytes(message_id) for message_id in ids]
    assert [number for span in spans for number in span.numbers] == list(range(first, first + len(ids)))
    assert all(one.base != other.base for one, other in zip(spans, spans[1:]))
    assert all(isinstance(span, StoredSpan) for span in spans)
