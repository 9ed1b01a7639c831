"""Messages in several queues: the store has each body once, as long as one of the queues has the message, and no
longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.actors.contracts.queue import to_queue
from warren.store.messages.message_ids import SharedIds, StoredSpan, as_bytes, is_shared, own_base, stored_spans
from warren.store.queue.variable.variable_queue import VariableQueue

from ..one_queue import PERSISTENT, SEGMENT, Node, contents, page_all, tags
from ..sim_vhost import SimVhost, content

LARGE, SMALL = 100, 1
#: Highest priority of each queue. The second begins lazy.
HIGHEST = {1: None, 2: None, 3: 2}


class SharedMachine(RuleBasedStateMachine):
    """Queues that are given the same messages, on a disk that loses what was not synced. After each step the stores
    count exactly the references that the queues have.

    Messages are known by (queue, content). `published` are those the queues should hold, `confirmed` those that must
    survive any crash, `acked` those that were acknowledged since the last start, and `handed_out` the pending ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.vhost = SimVhost(self.root, HIGHEST)
        self.random = Random(5)
        self.names = dict(enumerate(HIGHEST, 1))  # number -> which of HIGHEST
        self.published = set()
        self.confirmed = set()
        self.acked = set()
        self.mark = 0
        self.sources = [SharedIds(self.random.randbytes) for _ in range(2)]
        self.open()

    def teardown(self):
        try:
            self.consume_all()
        finally:
            self.vhost.kill()
            shutil.rmtree(self.root)

    def open(self):
        self.vhost.start()
        for queue in self.names:
            self.opened(queue)
        self.is_counted = True
        self.handed_out = {queue: [] for queue in self.names}

    def opened(self, queue):
        self.vhost.queues[queue].set_mode("lazy" if self.names[queue] == 2 else "default")

    def queue_of(self, data):
        return data.draw(st.sampled_from(sorted(self.names)))

    @rule(
        data=st.data(),
        sizes=st.lists(st.sampled_from([LARGE, LARGE, LARGE, SMALL]), min_size=1, max_size=12),
        priority=st.integers(0, 2),
        persistent=st.sampled_from([True, True, False]),
        source=st.integers(0, 1),
    )
    def publish(self, data, sizes, priority, persistent, source):
        targets = data.draw(st.lists(st.sampled_from(sorted(self.names)), min_size=1, unique=True))
        run = [content(self.mark + index, size) for index, size in enumerate(sizes)]
        self.mark += len(sizes)
        shared = self.sources[source].take(run, 60) if len(targets) > 1 else 0
        for queue in targets:
            opened = self.vhost.queues[queue]
            if len(opened) or not self.mark % 2:
                opened.publish(run, None, persistent, priority, shared)
            else:  # a consumer waits, so the messages never enter the queue's own lists
                before = len(opened.channel.delivered)
                tag = opened.consume(len(run))
                opened.publish(run, None, persistent, priority, shared)
                opened.cancel(tag)
                self.handed_out[queue] += opened.channel.delivered[before:]
            if persistent:
                self.published.update((queue, got) for got in run)

    @rule(data=st.data(), count=st.integers(1, 20))
    def fetch(self, data, count):
        queue = self.queue_of(data)
        found = self.vhost.queues[queue].fetch(count)
        for got in found:
            assert not got.origin.persistent or (queue, got.content) in self.published
        self.handed_out[queue] += found

    @rule(data=st.data(), is_ack=st.booleans())
    def settle(self, data, is_ack):
        queue = self.queue_of(data)
        held = self.handed_out[queue]
        chosen = held[data.draw(st.integers(0, 3)) :: data.draw(st.integers(1, 3))]
        tags = [got.tag for got in chosen]
        self.vhost.queues[queue].settle("ack" if is_ack else "requeue", tags)
        if is_ack:
            self.acked.update((queue, got.content) for got in chosen)
        self.handed_out[queue] = [got for got in held if got.tag not in set(tags)]

    @rule(data=st.data())
    def purge(self, data):
        """The purge is answered after the journal has synced; the test goes on before."""
        queue = self.queue_of(data)
        self.vhost.queues[queue].begin(to_queue.purge())
        kept = {got.content for got in self.handed_out[queue]}
        self.acked.update(key for key in self.published if key[0] == queue and key[1] not in kept)

    @rule(data=st.data())
    def delete(self, data):
        """Delete a queue, and declare another one."""
        queue = self.queue_of(data)
        self.vhost.queues[queue].delete()
        self.note_confirms()
        del self.vhost.queues[queue], self.vhost.highest[queue], self.handed_out[queue]
        self.published, self.confirmed, self.acked = (
            {key for key in keys if key[0] != queue} for keys in (self.published, self.confirmed, self.acked)
        )
        name = self.names.pop(queue)
        another = max((queue, *self.names)) + 1
        self.names[another] = name
        self.vhost.declare(another, HIGHEST[name])
        self.opened(another)
        self.handed_out[another] = []

    @rule(data=st.data(), mode=st.sampled_from(["lazy", "default"]))
    def mode(self, data, mode):
        self.vhost.queues[self.queue_of(data)].set_mode(mode)

    @rule(data=st.data())
    def page(self, data):
        """Take everything out of memory."""
        self.vhost.queues[self.queue_of(data)].page_out()

    @precondition(lambda self: self.vhost.calls)
    @rule(data=st.data(), count=st.integers(1, 6))
    def make_calls(self, data, count):
        """Make some of the calls that wait, in any order, while publishes go on."""
        for _ in range(count):
            if self.vhost.calls:
                at = data.draw(st.integers(0, len(self.vhost.calls) - 1))
                self.vhost.make(self.vhost.calls[at])
                self.vhost.turn()

    @rule()
    def write_all(self):
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
        left = self.published - self.acked
        self.open()
        assert self.found() == left

    @rule(data=st.data())
    def restart_one_queue(self, data):
        """The process of one queue crashes; the store and the other queues go on."""
        queue = self.queue_of(data)
        self.vhost.write_all()
        self.note_confirms()
        self.is_counted = False  # some of its references stay until the next start counts them
        self.vhost.queues[queue].crash()
        self.opened(queue)
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
        self.sources = [SharedIds(self.random.randbytes) for _ in range(2)]
        self.open()
        found = self.found()
        assert self.confirmed - self.acked <= found, "QS-37"
        assert found <= self.published, "QS-38"
        self.published = found
        self.confirmed &= found
        self.acked = set()

    def found(self, *queues):
        """The persistent messages of all queues, or of those named, as consumers get them. Every body is read."""
        found = set()
        for queue in queues or self.names:
            found.update((queue, got.content) for got in self.vhost.queues[queue].look() if got.origin.persistent)
        return found

    @invariant()
    def references_agree(self):
        """Exactly the references that the queues have are counted: no body that has references is removed, and none
        without references stays.
        """
        self.vhost.persistent.check()
        levels = [level for opened in self.vhost.queues.values() for level in opened.levels.values()]
        if any(level.segment_writer.take_release() is not None for level in levels):
            return  # a purge may not have found out yet which bodies it no longer needs
        held = {True: Counter(), False: Counter()}
        for level in levels:
            for is_persistent, message_id in level.references():
                held[is_persistent][message_id] += 1
        for is_persistent, engine in ((True, self.vhost.persistent), (False, self.vhost.transient)):
            counted = Counter(engine.reference_counts())
            assert counted == held[is_persistent] if self.is_counted else counted >= held[is_persistent]

    def consume_all(self):
        """When no queue has a message left, the persistent store has none either."""
        if not self.is_counted:
            self.vhost.write_all()
            self.vhost.kill()
            self.open()
        for queue, opened in self.vhost.queues.items():
            opened.ack([got.tag for got in self.handed_out[queue]])
            opened.ack([got.tag for got in opened.fetch(1 << 30)])
        self.vhost.write_all()
        assert all(len(opened.confirmed) == len(opened.published) for opened in self.vhost.queues.values())
        assert self.vhost.wanted_bytes == 0
        assert not self.vhost.persistent.reference_counts()


TestSharedBodies = SharedMachine.TestCase
TestSharedBodies.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)


# -- what only segments know

BACKLOG = SEGMENT + 10


def publish_shared(node, count=BACKLOG):
    """Publish messages that another client has as well. Returns their ids."""
    first = SharedIds(os.urandom).take(contents(count), 0)
    ids = [as_bytes(first + index) for index in range(count)]
    node.queue.publish(PERSISTENT, contents(count), 10 * count, None, False, shared=first)
    node.persistent.engine.register("another")
    node.persistent.engine.write("another", list(zip(ids, contents(count), strict=True)))
    return ids


def counts(node, ids):
    counted = node.persistent.engine.reference_counts()
    return [counted.get(message_id, 0) for message_id in ids]


@pytest.fixture
def node(tmp_path):
    """A node with a lazy queue."""
    node = Node(tmp_path)
    node.queue.set_queue_mode("lazy")
    return node


def test_a_purge_gives_back_each_reference_once(node):
    """A purge keeps the references of pending messages, and does not remove those of acked messages a second time."""
    ids = publish_shared(node)
    node.queue.segment_writer.flush(True)
    node.sync()
    assert counts(node, ids) == [2] * BACKLOG
    node.queue.fetch(6, True)
    node.queue.requeue([0])
    node.queue.ack([2, 3])
    page_all(node.queue)
    assert (node.queue.sub_queues.delta.start, node.queue.sub_queues.delta.count) == (0, BACKLOG - 5)
    assert node.queue.purge() == BACKLOG - 5
    assert counts(node, ids) == [1, 2, 1, 1, 2, 2, *[1] * (BACKLOG - 6)]
    node.queue.segment_writer.flush(True)
    node.queue.ack([1, 4, 5])
    assert counts(node, ids) == [1] * BACKLOG


def test_a_deleted_queue_gives_back_all_it_had(node):
    ids = publish_shared(node)
    node.queue.segment_writer.flush(True)
    node.queue.fetch(6, True)
    node.queue.requeue([0])
    node.queue.ack([2, 3])
    page_all(node.queue)
    node.queue.delete_and_terminate()
    assert counts(node, ids) == [1] * BACKLOG


@pytest.mark.parametrize("end", ["purge", "delete_and_terminate"])
def test_a_flush_that_is_under_way_hides_nothing(tmp_path, end):
    """A purge during a flush removes every reference: of entries that the flush writes, of those that it acks, and of
    those that come later.
    """
    node = Node(tmp_path, kind=VariableQueue)
    node.queue.set_queue_mode("lazy")
    ids = publish_shared(node)
    node.queue.segment_writer.flush(True)
    load = node.queue.prepare()
    load.run()
    load.reader.prepared(load, [], [])
    load = node.queue.prepare()
    load.run()
    load.reader.prepared(load, node.persistent.read(load.missing.persistent), [])
    assert tags(node.queue.fetch(4, True)) == [0, 1, 2, 3]
    node.queue.requeue([0, 3])
    node.queue.ack([1])
    ids += publish_shared(node)
    flush = node.queue.segment_writer.take_flush(True)
    node.queue.ack([2])
    ids += publish_shared(node, 3)
    page_all(node.queue)
    assert (node.queue.sub_queues.delta.start, node.queue.sub_queues.delta.count) == (0, 2 * BACKLOG + 1)
    getattr(node.queue, end)()
    flush.run()
    node.queue.segment_writer.flushed(flush)
    while (release := node.queue.segment_writer.take_release()) is not None:
        release.run()
        node.queue.segment_writer.released(release)
    assert counts(node, ids) == [1] * (2 * BACKLOG + 3)


def test_messages_of_several_sources_that_come_back_together(tmp_path):
    """If messages of several sources of ids come back together, each keeps its id, also when runs are joined."""
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
def test_a_damaged_segment_releases_no_bodies(node, at):
    """A damaged segment releases no bodies until the next start counts references: acks in the damaged bytes are lost,
    so a reference might be removed twice, at the cost of another queue.
    """
    ids = publish_shared(node)
    node.queue.segment_writer.flush(True)
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


# -- ids


@given(st.lists(st.integers(1, 600), max_size=30), st.integers(1, 1 << 64))
def test_no_two_messages_have_the_same_id(counts, queue):
    """Ids differ within a source, between sources, and between shared ids and those of a queue."""
    sources = [SharedIds(os.urandom) for _ in range(2)]
    seen = {as_bytes(own_base(queue - 1) + number) for number in (0, 1, 1 << 20, (1 << 63) - 1)}
    assert not any(map(is_shared, seen))
    for at, count in enumerate(counts):
        first = sources[at % 2].take([bytes(5000)] * count, 4096)
        mine = {as_bytes(first + index) for index in range(count)}
        assert all(map(is_shared, mine)) and not mine & seen
        seen |= mine


def test_a_source_of_ids_that_runs_out():
    """A source without ids left draws a new first id."""
    source = SharedIds(os.urandom)
    first = source.take([bytes(10)], 10)
    source._next = source._end - 1
    assert source.take([bytes(10)] * 2, 10) >> 48 != first >> 48


def test_small_messages_need_no_id():
    assert SharedIds(os.urandom).take([bytes(9)] * 3, 10) == 0


@given(st.integers(0, 1 << 40), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=20))
def test_spans_of_ids(first, runs):
    """Spans give the same ids again, and consecutive ids are one span."""
    ids = [base << 70 | (first + at) for at, base in enumerate(base for base, count in runs for _ in range(count))]
    spans = stored_spans(first, map(as_bytes, ids))
    assert [message_id for span in spans for message_id in span.ids()] == [as_bytes(message_id) for message_id in ids]
    assert [number for span in spans for number in span.numbers] == list(range(first, first + len(ids)))
    assert all(one.base != other.base for one, other in zip(spans, spans[1:]))
    assert all(isinstance(span, StoredSpan) for span in spans)
