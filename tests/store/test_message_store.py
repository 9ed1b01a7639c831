"""The message store: reference counts, garbage, and starts after every kind of end."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections import Counter
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.faulty_disk import FaultyDisk
from warren.store.message_store import MessageStore, StoreBroken

LIMIT = 400


def name(number: int) -> bytes:
    return number.to_bytes(16, 'big')


def body(number: int) -> bytes:
    return number.to_bytes(4, 'big') * (1 + number % 40)


class StoreMachine(RuleBasedStateMachine):
    """`references` is what the queues hold; a message whose write is durable is there for as long as they hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.references = Counter()
        self.positions = {}
        self.next = 0
        self.collection = self.moves = None
        self.store = self.opened()
        assert not self.store.recover()
        self.store.finish_count()

    def opened(self):
        return MessageStore(self.disk, 's', self.root + '/index', file_limit=LIMIT)

    def teardown(self):
        shutil.rmtree(self.root)

    @rule(count=st.integers(1, 6))
    def write(self, count):
        for number in range(self.next, self.next + count):
            self.positions[number] = self.store.write(name(number), body(number))
            self.references[number] += 1
        self.next += count

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def write_again(self, data):
        """Another queue has the same message."""
        number = data.draw(st.sampled_from(sorted(self.references)))
        self.positions[number] = min(self.positions[number], self.store.write(name(number), body(number)))
        self.references[number] += 1

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def remove(self, data):
        for number in data.draw(st.lists(st.sampled_from(sorted(self.references)), max_size=8, unique=True)):
            self.store.remove([name(number), name(10_000)])
            self.references[number] -= 1
            self.references += Counter()

    @rule(error=st.sampled_from([None, None, errno.ENOSPC]), data=st.data())
    def commit(self, error, data):
        batch = self.store.take_batch()
        if batch is None:
            return
        if error is not None and batch.pieces:
            self.disk.fail_after(1, OSError(error, 'injected'))
            with pytest.raises(OSError):
                self.store.commit(batch)
        if data.draw(st.booleans()):
            self.write(2)  # gathers while the batch is in flight
            self.remove(data) if self.references else None
        self.store.commit(batch)
        self.store.committed(batch)
        assert self.store.durable == batch.position

    @rule(step=st.integers(1, 3))
    def collect(self, step):
        """A collection takes its steps with anything between them."""
        for _ in range(step):
            if self.collection is None:
                self.collection = self.store.take_collection()
                self.moves = None
            elif self.moves is None:
                self.moves = self.store.collect(self.collection)
            else:
                self.store.collected(self.collection, self.moves)
                self.collection = self.moves = None

    @rule(seed=st.integers(0, 1 << 16), at=st.one_of(st.none(), st.integers(1, 6)), during=st.sampled_from(['commit', 'collect']),
          kill=st.booleans(), again=st.integers(1, 6))
    def crash(self, seed, at, during, kill, again):
        if at is not None:
            self.disk.fail_after(at, KeyboardInterrupt())
            try:
                self.store.write_all() if during == 'commit' else self.store.collect_all() if not self.collection else self.collect(3)
            except KeyboardInterrupt:
                pass
            self.disk.heal()
        durable = {n for n in self.references if self.positions[n] <= self.store.durable}
        self.disk.kill() if kill else self.disk.crash(Random(seed))
        self.store._index.close()
        if seed % 3 == 0:
            shutil.rmtree(self.root + '/index')  # QS-42
        self.disk.fail_after(again, KeyboardInterrupt())
        store = None
        try:
            store = self.opened()
            store.recover()
        except KeyboardInterrupt:
            pass
        if store:
            store._index.close()
        self.disk.crash(Random(seed + 1))
        self.store = self.opened()
        assert not self.store.recover()
        for number, references in self.references.items():
            for _ in range(references):
                self.store.count([name(number)])
        self.store.finish_count()
        there = {n for n in self.references if self.store.contains(name(n))}
        assert durable <= there
        self.references = Counter({n: self.references[n] for n in there})
        self.positions = dict.fromkeys(there, 0)
        self.collection = self.moves = None

    @precondition(lambda self: not self.collection)
    @rule()
    def restart_cleanly(self):
        self.store.terminate()
        self.disk.crash(Random(1))
        self.store = self.opened()
        assert self.store.recover()
        self.positions = dict.fromkeys(self.references, 0)

    @invariant()
    def holds_what_is_referred_to(self):
        numbers = sorted(self.references)
        assert self.store.read([name(n) for n in numbers]) == [body(n) for n in numbers]
        assert all(self.store.contains(name(n)) for n in numbers)
        assert self.store.damaged == []
        if not self.store._in_flight:
            deferred = Counter(int.from_bytes(i, 'big') for i in self.store._deferred)
            self.store.check(lambda i: self.references[int.from_bytes(i, 'big')] + deferred[int.from_bytes(i, 'big')])


TestMessageStore = StoreMachine.TestCase
TestMessageStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(disk, tmp_path) -> MessageStore:
    store = MessageStore(disk, 's', str(tmp_path / 'index'), file_limit=LIMIT)
    store.recover()
    store.finish_count()
    return store


def test_removed_before_written_costs_nothing(disk, store):
    """An empty queue delivers and gets its ack before the store has handled the write."""
    store.write(name(1), body(1))
    store.remove([name(1)])
    assert store.write_all() == 1
    assert disk.list('s') == []


def test_write_remove_write_stores_once(disk, store):
    """W R W leaves the message, in one copy, and both writes become durable."""
    store.write(name(1), body(1))
    store.remove([name(1)])
    position = store.write(name(1), body(1))
    assert store.write_all() == position
    assert store.read([name(1)]) == [body(1)]
    assert store.file_bytes == store.live_bytes


def test_disappears_after_as_many_removes_as_writes(store):
    """A message routed to three queues is stored once, and is there until the last lets go."""
    for _ in range(3):
        store.write(name(7), body(7))
    store.write_all()
    for left in (2, 1, 0):
        store.remove([name(7)])
        assert store.contains(name(7)) == bool(left)


def test_many_files_removed_from_the_young_end(disk, store):
    """A hundred files' worth written, read, removed in thirds; the store is empty at the end."""
    numbers = list(range(500))
    for number in numbers:
        store.write(name(number), bytes(100))
        store.write_all()
    assert len(disk.list('s')) >= 100
    for third in (numbers[333:], numbers[166:333], numbers[:166]):
        store.remove(map(name, reversed(third)))
        store.collect_all()
        store.check()
    assert store.live_bytes == 0
    assert len(disk.list('s')) <= 1


def test_half_of_the_space_is_given_back(store):
    """No more than about half of all bytes are garbage once collection has run (section 6.7)."""
    for number in range(200):
        store.write(name(number), bytes(100))
        store.write_all()
    store.remove([name(number) for number in range(200) if number % 4])
    assert store.file_bytes > 3 * store.live_bytes
    store.collect_all()
    assert store.file_bytes <= 2 * store.live_bytes + 2 * LIMIT
    assert store.read([name(number) for number in range(0, 200, 4)]) == [bytes(100)] * 50


def test_damaged_body_is_reported_not_returned(disk, store):
    """D-19."""
    store.write(name(3), body(3))
    store.write_all()
    disk._names['s/1.rdq'].data[35] ^= 1
    assert store.read([name(3)]) == [None]
    assert store.damaged == [name(3)]


def test_failed_sync_ends_the_store(disk, store):
    """Nothing is reported durable, and nothing more is taken in."""
    store.write(name(1), body(1))
    batch = store.take_batch()
    disk.fail_after(3, OSError(errno.EIO, 'injected'))
    with pytest.raises(StoreBroken):
        store.commit(batch)
    with pytest.raises(StoreBroken):
        store.write(name(2), body(2))


def test_transient_store_starts_empty(disk, tmp_path):
    """Content of the transient store is lost on restart, and it never syncs."""
    for _ in range(2):
        store = MessageStore(disk, 't', str(tmp_path / 'index'), is_durable=False)
        assert store.recover()
        assert not store.contains(name(1))
        store.write(name(1), body(1))
        before = disk.syncs
        store.write_all()
        assert disk.syncs == before
        store.terminate()
