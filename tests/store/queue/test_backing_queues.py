"""Each backing queue against a plain list, operation by operation."""

from __future__ import annotations

import shutil
import tempfile
from copy import copy
from dataclasses import dataclass, replace
from itertools import cycle, islice
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin, any_of, body_size, each_of
from warren.store.queue.backing_queue import BackingQueue
from warren.store.queue.levels.level_tags import LEVEL_SHIFT
from warren.store.queue.levels.priority_queue import PriorityQueue
from warren.store.queue.memory_queue import MemoryQueue
from warren.store.queue.rates import INFINITE

from ..engines import DirectBodies, DirectLog, DirectQueue, recover, stored_ids, write_journal

MAX_PRIORITY = 3
ORIGINS = [Origin("", ("q",), persistent=bool(p % 2), priority=p) for p in range(MAX_PRIORITY + 2)]


def content(body: int, mark: int = 0) -> bytes:
    head = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + body.to_bytes(8, "big") + b"\x00\x00\xce"
    return (
        head + b"\x03\x00\x01" + body.to_bytes(4, "big") + mark.to_bytes(4, "big").ljust(body, b"\0")[:body] + b"\xce"
    )


def each_expiry(expiries, count):
    """One expiry for all of `count` messages, or a list in which some take turns."""
    return list(islice(cycle(expiries), count)) if isinstance(expiries, list) else expiries


@dataclass(frozen=True)
class Held:
    tag: int
    content: bytes
    origin: Origin
    expiry: int | None
    redelivered: bool

    @property
    def size(self) -> int:
        return body_size(self.content)


class QueueMachine(RuleBasedStateMachine):
    """`ready` and `pending` are the messages that the queue should hold. `level` is 0 for queues without priorities."""

    max_priority = 0

    def __init__(self) -> None:
        super().__init__()
        self.since_sync: list[Held] = []
        self.queue = self.make_queue()
        self.ready: list[Held] = []
        self.pending: dict[int, Held] = {}
        self.next = [0] * (MAX_PRIORITY + 1)
        self.unconfirmed: set[int] = set()
        self.published = 0

    def make_queue(self) -> BackingQueue:
        return MemoryQueue()

    def sync(self):
        """Do nothing: this queue waits for no disk."""

    def level(self, origin: Origin) -> int:
        return min(origin.priority, self.max_priority)

    def order(self, held: Held) -> tuple[int, int]:
        return -(held.tag >> LEVEL_SHIFT), held.tag

    def make_run(self, origin: Origin, sizes: list[int]) -> tuple[list[bytes], list[int]]:
        contents = []
        for size in sizes:
            self.published += 1
            contents.append(content(size, self.published))
        level = self.level(origin)
        first = (level << LEVEL_SHIFT) + self.next[level]
        self.next[level] += len(sizes)
        return contents, list(range(first, first + len(sizes)))

    def origins_of(self, origin: Origin, differ: bool, count: int) -> list[Origin]:
        """One origin for each message; with `differ` their routing keys take turns."""
        return [origin._replace(routing_keys=("rst"[n % 3],)) if differ else origin for n in range(count)]

    def expect_confirm(self, numbers: list[int], confirm: bool) -> None:
        if confirm:
            self.unconfirmed.update(numbers)

    expiry = st.one_of(st.none(), st.integers(0, 9))
    expiries = st.one_of(expiry, st.lists(expiry, min_size=2, max_size=5))
    runs = dict(
        origin=st.sampled_from(ORIGINS),
        differ=st.booleans(),
        confirm=st.booleans(),
        sizes=st.one_of(
            st.integers(1, 12).map(lambda n: [7] * n),
            st.lists(st.integers(0, 9), min_size=1, max_size=8),
            st.just([30] * 300),
        ),
    )

    @rule(expiries=expiries, **runs)
    def publish(self, origin, differ, sizes, expiries, confirm):
        contents, expected = self.make_run(origin, sizes)
        expiries = each_expiry(expiries, len(sizes))
        given_expiries = copy(expiries)
        given, origins = list(contents), self.origins_of(origin, differ, len(sizes))
        given_origins = list(origins) if differ else origin
        numbers = self.queue.publish(given_origins, given, sum(sizes), given_expiries, confirm)
        assert list(numbers) == expected
        assert given == contents
        given.clear()  # the queue must not depend on the caller's lists
        if differ:
            assert given_origins == origins
            given_origins.clear()
        if isinstance(expiries, list):
            assert given_expiries == expiries
            given_expiries.clear()
        self.expect_confirm(expected, confirm)
        columns = zip(expected, contents, origins, each_of(expiries, len(sizes)), strict=True)
        held = [Held(n, c, o, expiry, False) for n, c, o, expiry in columns]
        self.ready += held
        self.since_sync += held
        self.ready.sort(key=self.order)

    @precondition(lambda self: not self.ready)
    @rule(expiries=expiries, **runs)
    def publish_delivered(self, origin, differ, sizes, expiries, confirm):
        contents, expected = self.make_run(origin, sizes)
        expiries = each_expiry(expiries, len(sizes))
        origins = self.origins_of(origin, differ, len(sizes))
        column = list(origins) if differ else origin
        assert list(self.queue.publish_delivered(column, contents, sum(sizes), expiries, confirm)) == expected
        self.expect_confirm(expected, confirm)
        columns = zip(expected, contents, origins, each_of(expiries, len(sizes)), strict=True)
        held = {n: Held(n, c, o, expiry, False) for n, c, o, expiry in columns}
        self.pending.update(held)
        self.since_sync += held.values()

    @rule(**runs)
    def discard(self, origin, differ, sizes, confirm):
        _, expected = self.make_run(origin, sizes)
        column = self.origins_of(origin, differ, len(sizes)) if differ else origin
        assert list(self.queue.discard(column, len(sizes), confirm)) == expected
        self.expect_confirm(expected, confirm)

    @rule()
    def drain_confirmed(self):
        """Each number is confirmed once, and all of them when everything is synced (QS-18)."""
        self.sync()
        self.take_confirmed()
        assert not self.unconfirmed

    def take_confirmed(self):
        for first, last in self.queue.drain_confirmed():
            for number in range(first, last + 1):
                self.unconfirmed.remove(number)

    @rule(count=st.one_of(st.integers(0, 8), st.just(1000)), ack_required=st.booleans())
    def fetch(self, count, ack_required):
        got = [
            Held(tag, c, origin, None, d.redelivered)
            for d in self.queue.fetch(count, ack_required)
            for tag, c, origin in zip(d.tags, d.contents, each_of(d.origins, len(d.contents)), strict=True)
        ]
        taken, self.ready = self.ready[:count], self.ready[count:]
        assert got == [replace(held, expiry=None) for held in taken]
        if ack_required:
            self.pending.update((held.tag, held) for held in taken)

    @rule(count=st.integers(0, 8))
    def drop(self, count):
        taken, self.ready = self.ready[:count], self.ready[count:]
        assert self.queue.drop(count) == len(taken)

    @rule(now=st.integers(0, 9), limit=st.sampled_from([1, 3, 4096]), keep=st.booleans())
    def expire(self, now, limit, keep):
        taken = []
        while self.ready and len(taken) < limit and self.ready[0].expiry is not None and self.ready[0].expiry <= now:
            taken.append(self.ready.pop(0))
        if not keep:
            assert self.queue.drop_expired(now, limit) == len(taken)
            return
        messages = self.queue.fetch_expired(now, limit)
        assert [(m.tag, m.content, m.expiry) for m in messages] == [(h.tag, h.content, h.expiry) for h in taken]
        self.pending.update((held.tag, held) for held in taken)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), requeue=st.booleans())
    def settle(self, data, requeue):
        tags = sorted(self.pending)
        choice = data.draw(st.sampled_from(["prefix", "slice", "stride", "any", "unknown"]))
        if choice == "prefix":
            chosen = range(tags[0], data.draw(st.sampled_from(tags)) + 1)
        elif choice == "slice":
            start = data.draw(st.integers(0, len(tags) - 1))
            chosen = tags[start : start + data.draw(st.integers(1, 60))]
        elif choice == "stride":
            chosen = range(data.draw(st.sampled_from(tags[:20])) - 2, tags[-1] + 1, data.draw(st.integers(1, 4)))
        elif choice == "any":
            chosen = data.draw(st.permutations(data.draw(st.lists(st.sampled_from(tags), max_size=12))))
        else:
            chosen = [tags[-1] + 1, tags[0]]
        known = [tag for tag in tags if tag in chosen]
        assert sorted(message.tag for message in self.queue.pending_messages(chosen)) == known
        if requeue:
            assert self.queue.requeue(chosen) == len(known)
            self.ready += [replace(self.pending[tag], redelivered=True) for tag in known]
            self.ready.sort(key=self.order)
        else:
            assert self.queue.ack(chosen) == len(known)
        for tag in known:
            del self.pending[tag]

    @rule()
    def purge(self):
        assert self.queue.purge() == len(self.ready)
        self.ready = []

    @invariant()
    def figures_agree(self):
        queue = self.queue
        assert len(queue) == len(self.ready)
        assert queue.totals().depth == len(self.ready) + len(self.pending)
        assert queue.totals().ready_bytes == sum(held.size for held in self.ready)
        assert queue.totals().pending_bytes == sum(held.size for held in self.pending.values())
        head = queue.head()
        assert (head and (head.tag, head.content, head.redelivered)) == (
            (self.ready[0].tag, self.ready[0].content, self.ready[0].redelivered) if self.ready else None
        )
        assert queue.head_expiry() == (self.ready[0].expiry if self.ready else None)


class PriorityMachine(QueueMachine):
    max_priority = MAX_PRIORITY

    def make_queue(self) -> BackingQueue:
        return PriorityQueue(MAX_PRIORITY, lambda priority: MemoryQueue())


class VariableMachine(QueueMachine):
    """The same with segments of 16, bodies too large to embed, memory targets, modes, and every kind of end."""

    entries = 16
    embed_below = 40

    def make_queue(self) -> BackingQueue:
        self.disk = FaultyDisk()
        self.root = tempfile.mkdtemp()
        self.boot = 0
        self.certain = {}  # persistent messages held at the last sync
        self.since_sync = []  # all that was published after it
        return self.open_queue(may_trust=False)

    def teardown(self):
        shutil.rmtree(self.root)

    def open_queue(self, may_trust):
        self.disk.make_dir("journal")
        self.journal = JournalEngine(self.disk, "journal", file_limit=3000, frame_limit=500)
        self.replayed = self.journal.recover()
        index = QueueIndex(self.disk, "q", 1, DirectLog(self.journal), self.entries)
        self.stores = [
            DirectBodies(
                self.disk, kind, f"{self.root}/{kind}", kind == "persistent", file_limit=2000, boot_id=str(self.boot)
            )
            for kind in ("persistent", "transient")
        ]
        # Counted from the queue's index, as at the start of a vhost.
        replayed = self.replayed.get(1)
        assert (
            self.stores[0].recover(may_trust, lambda: [stored_ids(self.disk, "q", 1, self.entries, replayed)])
            == may_trust
        )
        self.stores[1].recover(may_trust=False)
        return DirectQueue(1, index, *self.stores, replayed, self.embed_below, 1, self.entries)

    def sync(self):
        """Do what the owner of the queue does: write everything, then pass on the durable positions."""
        for store in self.stores:
            store.write_all()
        self.queue.durable(write_journal(self.journal, [self.queue]), self.stores[0].durable)
        self.certain = {held.tag: held for held in self.all_held() if held.origin.persistent}
        self.since_sync = []

    def all_held(self):
        return sorted([*self.ready, *self.pending.values()], key=self.order)

    @rule(most=st.sampled_from([0, 0, 5, INFINITE]))
    def page(self, most):
        self.queue.paging.target = most
        self.queue.page()
        while self.queue.paging.is_due:
            self.queue.page()

    @rule(mode=st.sampled_from(["default", "lazy"]))
    def mode(self, mode):
        self.queue.set_queue_mode(mode)

    @rule()
    def fold_index(self):
        self.queue.segment_writer.flush()

    def restarted(self, terms, mark_all):
        """After a restart persistent messages are ready again, and after an unclean end all of them are redelivered."""
        watermark = self.queue._watermark
        kept = [held for held in self.all_held() if held.origin.persistent]
        is_lazy = self.queue.sub_queues.is_lazy
        self.queue = self.open_queue(may_trust=isinstance(terms, dict))
        recover(self.queue, self.stores[0], terms)
        self.queue.set_queue_mode("lazy" if is_lazy else "default")
        self.pending = {}
        self.unconfirmed = set()
        self.ready = [replace(held, redelivered=mark_all or held.redelivered or held.tag < watermark) for held in kept]

    @rule()
    def restart_cleanly(self):
        before = self.next[0]
        terms = self.queue.terminate()
        self.take_confirmed()
        self.journal.close_flushed()
        for store in self.stores:
            store.close()
        self.disk.crash(Random(1))
        self.restarted(terms, False)
        assert self.queue._next == before

    @rule(seed=st.integers(0, 1 << 16), kill=st.booleans())
    def crash_after_sync(self, seed, kill):
        """Crash after a sync, and check that no durable message is lost, whichever sub-queue it was in."""
        self.sync()
        self.end_life(seed, kill)
        self.restarted(None, True)
        assert self.queue._next > max((held.tag for held in self.ready), default=-1)
        self.next[0] = self.queue._next

    @rule(seed=st.integers(0, 1 << 16), kill=st.booleans(), at=st.integers(1, 12))
    def crash_during_sync(self, seed, kill, at):
        """Durable messages that were not acked are there (QS-37), no message that was never published is (QS-38), and
        all in order (QS-39).
        """
        certain = {tag for tag in self.certain if any(held.tag == tag for held in self.all_held())}
        possible = {held.tag: held for held in [*self.since_sync, *self.certain.values()] if held.origin.persistent}
        self.disk.fail_after(at, KeyboardInterrupt())
        try:
            self.sync()
        except KeyboardInterrupt:
            pass
        self.disk.heal()
        self.end_life(seed, kill)
        self.ready, self.pending = list(possible.values()), {}
        self.restarted(None, True)
        tags = [tag for delivery in self.queue.fetch(1 << 30, True) for tag in delivery.tags]
        found = self.queue.pending_messages(tags)
        self.queue.requeue(tags)
        assert certain <= {message.tag for message in found}
        for message in found:
            assert (message.content, message.expiry) == (possible[message.tag].content, possible[message.tag].expiry)
        assert [message.tag for message in found] == sorted(message.tag for message in found)
        self.ready = [replace(possible[message.tag], redelivered=True) for message in found]
        self.certain = {held.tag: held for held in self.ready}
        self.since_sync = []
        self.next[0] = self.queue._next

    def end_life(self, seed, kill):
        for store in self.stores:
            store.engine.abandon()
        if kill:
            self.disk.kill()
        else:
            self.boot += 1
            self.disk.crash(Random(seed))

    @invariant()
    def sub_queues_are_in_order(self):
        self.queue.check()
        assert self.queue.sub_queues.lost == 0


class VariableUnembeddedMachine(VariableMachine):
    embed_below = 0


SETTINGS = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestMemoryQueue = QueueMachine.TestCase
TestMemoryQueue.settings = SETTINGS
TestPriorityQueue = PriorityMachine.TestCase
TestPriorityQueue.settings = SETTINGS
TestVariableQueue = VariableMachine.TestCase
TestVariableQueue.settings = SETTINGS
TestVariableQueueWithoutEmbedding = VariableUnembeddedMachine.TestCase
TestVariableQueueWithoutEmbedding.settings = SETTINGS


@pytest.fixture
def priorities() -> PriorityQueue:
    return PriorityQueue(MAX_PRIORITY, lambda priority: MemoryQueue())


def test_drop_takes_from_the_highest_level(priorities):
    """Of priorities 1, 2, 3 published three times, a limit of four leaves 2, 1, 1, 1 (AB-104)."""
    for priority in (1, 2, 3) * 3:
        priorities.publish(ORIGINS[priority], [content(1)], 1, None, False)
        priorities.drop(max(0, len(priorities) - 4))
    assert [any_of(d.origins).priority for d in priorities.fetch(9, False) for _ in d.contents] == [2, 1, 1, 1]


def test_expired_low_level_waits_behind_live_high_head(priorities):
    """A sweep stops at the first level whose head has not expired (AB-104)."""
    priorities.publish(ORIGINS[3], [content(1)], 1, None, False)
    priorities.publish(ORIGINS[1], [content(1)], 1, 5, False)
    assert (priorities.drop_expired(9, 10), len(priorities)) == (0, 2)


def test_pending_messages_are_those_of_the_highest_level_first(priorities):
    """Pending messages come in the order of their levels, the highest first: a multiple reject dead-letters 3, 2, 1."""
    for priority in (1, 2, 3):
        priorities.publish(ORIGINS[priority], [content(1)], 1, None, False)
    tags = [tag for delivery in priorities.fetch(3, True) for tag in delivery.tags]
    assert [message.origin.priority for message in priorities.pending_messages(tags[::-1])] == [3, 2, 1]


@pytest.mark.parametrize("machine", [QueueMachine, PriorityMachine, VariableMachine])
def test_messages_that_were_delivered_elsewhere_before_are_redelivered(machine):
    """Messages that another replica, or an earlier process of the queue, may have delivered are redelivered (CL-95)."""
    queue = machine().queue
    origin = ORIGINS[0]
    queue.publish(origin, [content(1)], 1, None, False)
    queue.publish(origin, [content(2)], 2, None, False, is_redelivered=True)
    queue.publish(origin, [content(3)], 3, None, False)
    assert [(len(d.contents), d.redelivered) for d in queue.fetch(9, False)] == [(1, False), (1, True), (1, False)]
    tags = queue.publish_delivered(origin, [content(1)], 1, None, False, is_redelivered=True)
    assert [message.redelivered for message in queue.pending_messages(tags)] == [True]


@pytest.mark.parametrize("machine", [QueueMachine, PriorityMachine, VariableMachine])
def test_messages_that_are_marked_are_redelivered_and_later_ones_are_not(machine):
    """A new master of a mirrored queue marks all that it has, because an earlier master may have delivered it (P9).

    The later message is appended to the run of the earlier ones, and the flag ends between them.
    """
    queue = machine().queue
    origin = ORIGINS[0]
    queue.publish(origin, [content(1)], 1, None, False)
    (taken,) = queue.fetch(1, True)
    queue.publish(origin, [content(2), content(3)], 5, None, False)
    queue.mark_redelivered()
    queue.publish(origin, [content(4)], 4, None, False)
    assert [message.redelivered for message in queue.pending_messages(taken.tags)] == [True]
    assert queue.head().redelivered
    found = [(list(each.contents), each.redelivered) for each in queue.fetch(9, True)]
    assert found == [([content(2), content(3)], True), ([content(4)], False)]
    queue.publish(origin, [content(5)], 5, None, False)
    assert not queue.head().redelivered


def test_messages_of_every_level_are_marked(priorities):
    for priority in (0, 3):
        priorities.publish(ORIGINS[priority], [content(1)], 1, None, False)
    priorities.mark_redelivered()
    assert [delivery.redelivered for delivery in priorities.fetch(2, False)] == [True, True]
