"""Messages that are in several queues: stored once, there as long as one of the queues has them, and no longer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.faulty_disk import FaultyDisk
from warren.store.message import Origin
from warren.store.message_ids import SharedIds, StoredSpan, as_bytes, is_shared, own_base, stored_spans
from warren.store.placement import IN_STORE
from warren.store.variable_queue import VariableQueue
from warren.store.vhost_store import VhostStore

LARGE, SMALL = 100, 1
HIGHEST = {1: None, 2: None, 3: 2}
"""Highest priority of each queue. The second begins lazy."""


def content(mark: int, size: int) -> bytes:
    return b'\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00' + size.to_bytes(8, 'big') + b'\x10\x00\x02\xce' + mark.to_bytes(8, 'big') + bytes(size)


def origin(persistent: bool = True, priority: int = 0) -> Origin:
    return Origin('', ('q',), b'\x10\x00\x02', persistent=persistent, priority=priority)


def held(queue: VariableQueue) -> list[tuple[bool, bytes]]:
    """Persistent or not, and the id, of each body that the queue has a reference to."""
    runs = [*queue.sub_queues.in_order(0, queue.info('backing_queue_status')['next_seq_id']), *(piece for run in queue._pending.runs for piece in run.without_holes())]
    return [(run.origin.persistent, message_id) for run in runs if run.kind & IN_STORE for message_id in queue._place._ids(run)]


def counted(engine) -> Counter[bytes]:
    """The references that a store counts."""
    entries = {**dict(engine._index.all_located()), **engine._index._frozen, **engine._index._entries}
    found = Counter({message_id: entry.ref_count for message_id, entry in entries.items() if entry is not None and entry.ref_count})
    found.update({message_id: waiting.ref_count for message_id, waiting in engine._waiting.items()})
    return found


class SharedMachine(RuleBasedStateMachine):
    """Queues that are given the same messages, on a disk that forgets. After each step the stores count just the references that the queues have.

    `confirmed` is what the store said is safe and nobody acked; `published` everything, by (queue, tag).
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
        self.store = VhostStore(self.disk, self.root, segment_entries=16, embed_below=60, journal_file_limit=1500, store_file_limit=800, boot_id=str(self.boot))
        self.store.recover(set(self.names))
        self.queues = {queue: self.open_queue(queue) for queue in self.names}
        self.work = None
        self.are_transients_counted = True
        self.handed_out = {queue: [] for queue in self.names}

    def open_queue(self, queue):
        opened = self.store.open_queue(queue, HIGHEST[self.names[queue]])
        opened.set_queue_mode('lazy' if self.names[queue] == 2 else 'default')
        return opened

    def queue_of(self, data):
        return data.draw(st.sampled_from(sorted(self.queues)))

    @rule(data=st.data(), sizes=st.lists(st.sampled_from([LARGE, LARGE, LARGE, SMALL]), min_size=1, max_size=12), priority=st.integers(0, 2),
          persistent=st.sampled_from([True, True, False]), source=st.integers(0, 1))
    def publish(self, data, sizes, priority, persistent, source):
        targets = data.draw(st.lists(st.sampled_from(sorted(self.queues)), min_size=1, unique=True))
        contents = [content(self.mark + index, size) for index, size in enumerate(sizes)]
        self.mark += len(sizes)
        shared = self.sources[source].take(contents, 60) if len(targets) > 1 else 0
        for queue in targets:
            self.publish_to(queue, origin(persistent, priority), contents, sum(sizes), shared)

    def publish_to(self, queue, how, contents, body_bytes, shared):
        opened = self.queues[queue]
        if opened.is_empty() and self.mark % 2:
            tags = opened.publish_delivered(how, contents, body_bytes, None, how.persistent, shared)
            self.handed_out[queue] += tags
        else:
            tags = opened.publish(how, contents, body_bytes, None, how.persistent, shared=shared)
        if how.persistent:
            self.published.update(((queue, tag), c) for tag, c in zip(tags, contents, strict=True))

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
        chosen = tags[data.draw(st.integers(0, 3))::data.draw(st.integers(1, 3))]
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
        del self.handed_out[queue]
        name = self.names.pop(queue)
        another = max((queue, *self.names)) + 1
        self.names[another] = name
        self.queues = {number: opened for number, opened in self.queues.items() if number != queue}
        self.queues[another] = self.open_queue(another)
        self.handed_out[another] = []

    @precondition(lambda self: self.work is None)
    @rule(data=st.data(), mode=st.sampled_from(['lazy', 'default']))
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
        opened.handle_info('page')
        opened.set_ram_duration_target(float('inf'))

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
        self.are_transients_counted = False  # what it had of them stays until the next start
        self.queues[queue] = self.store.reopen_queue(queue, HIGHEST[self.names[queue]])
        self.handed_out[queue] = []
        assert {key for key in self.found() if key[0] == queue} == {key for key in set(self.published) - self.acked if key[0] == queue}

    @rule(seed=st.integers(0, 1 << 16), at=st.integers(1, 25), kill=st.booleans(), during=st.sampled_from(['work', 'stop', 'start']))
    def crash(self, seed, at, kill, during):
        self.disk.fail_after(at, KeyboardInterrupt())
        try:
            if during == 'work' or self.work:
                self.work_on(4)
            elif during == 'stop':
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
        assert self.confirmed - self.acked <= found, 'QS-37'
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
                    assert self.published[queue, message.tag] == message.content, 'QS-38'
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
            for persistent, message_id in held(level):
                by_kind[persistent][message_id] += 1
        assert counted(self.store.persistent.engine) == by_kind[True]
        transient = counted(self.store.transient.engine)
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
        assert self.store.persistent.engine.file_sizes[1] == 0
        assert not counted(self.store.persistent.engine)


TestSharedBodies = SharedMachine.TestCase
TestSharedBodies.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


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
