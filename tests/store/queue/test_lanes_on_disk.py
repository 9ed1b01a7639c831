"""Fair lanes whose messages are on the disk, in part or all, with restarts and crashes (QP-66 to QP-70)."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin, body_size, each_of
from warren.store.queue.inspection import check
from warren.store.queue.levels import lane_picks, lane_source
from warren.store.queue.levels.fair_queue import FairQueue
from warren.store.queue.levels.lanes import FairRules
from warren.store.queue.memory_queue import MemoryQueue

from ..engines import DirectBodies, DirectLog, DirectQueue, recover, stored_ids, write_journal
from .test_backing_queues import content

ENTRIES = 16
#: Bodies of this size are in the message store, smaller ones in the index.
EMBED_BELOW = 40
VALUES = "abcdef"


def by_key(origin, body):
    return origin.routing_keys[0]


def mark_of(body):
    """The place of a message among all that were published."""
    return int.from_bytes(body[29:33], "big")


@dataclass(frozen=True)
class Message:
    mark: int
    number: int
    origin: Origin
    content: bytes
    expiry: int | None
    redelivered: bool = False


class LanesMachine(RuleBasedStateMachine):
    """A queue with a disk, and `twin` in memory, which gets the same operations: both deliver the same messages in the
    same order. `held` has the messages that the queue should have by their marks, and `tags` those of unacknowledged
    ones: the tag in the queue, and the one in the twin.
    """

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.disk = FaultyDisk()
        self.boot = 0
        self.marks = 0
        self.held: dict[int, Message] = {}
        self.tags: dict[int, tuple[int, int]] = {}
        #: The sizes of messages that were moved to other queues, and stay pending until the journal has that.
        self.moved: list[int] = []
        self.mode = "default"
        self.rules = FairRules()
        self.open(None, False, ())

    def teardown(self):
        shutil.rmtree(self.root)

    # -- life

    def open(self, terms, is_known, delivered):
        self.disk.make_dir("journal")
        self.journal = JournalEngine(self.disk, "journal", file_limit=3000, frame_limit=500)
        replayed = self.journal.recover().get(1)
        index = QueueIndex(self.disk, "q", 1, DirectLog(self.journal), ENTRIES)
        self.stores = [
            DirectBodies(
                self.disk, kind, f"{self.root}/{kind}", kind == "persistent", file_limit=2000, boot_id=str(self.boot)
            )
            for kind in ("persistent", "transient")
        ]
        self.stores[0].recover(terms is not None, lambda: [stored_ids(self.disk, "q", 1, ENTRIES, replayed)])
        self.stores[1].recover(may_trust=False)
        self.level = DirectQueue(1, index, *self.stores, replayed, EMBED_BELOW, 1, ENTRIES)
        if is_known:
            recover(self.level, self.stores[0], terms)
        self.queue = FairQueue(by_key, 4, {0: self.level})
        self.queue.were_delivered(delivered)
        self.twin = FairQueue(by_key, 4, {0: MemoryQueue()})
        for queue in (self.queue, self.twin):
            queue.rules = self.rules
        self.queue.set_queue_mode(self.mode)
        for message in sorted(self.held.values(), key=lambda message: message.number):
            self.publish_to_twin([message])
        while self.queue.is_behind:
            self.queue.sort()
            self.run(self.queue.prepare())

    def publish_to_twin(self, messages):
        for each in messages:
            size = body_size(each.content)
            self.twin.publish(each.origin, [each.content], size, each.expiry, False, is_redelivered=each.redelivered)

    def sync(self):
        for store in self.stores:
            store.write_all()
        self.level.durable(write_journal(self.journal, [self.level]), self.stores[0].durable)
        self.moved = []

    sync_now = rule()(sync)

    def run(self, job):
        """Run a job as the process of the queue does."""
        if job is not None:
            job.run()
            persistent, transient = self.stores
            job.reader.prepared(job, persistent.read(job.missing.persistent), transient.read(job.missing.transient))
        return job is not None

    def restarted(self, terms, delivered, mark_all):
        kept = {mark: message for mark, message in self.held.items() if message.origin.persistent}
        self.held = {
            mark: replace(message, redelivered=message.redelivered or mark_all) for mark, message in kept.items()
        }
        self.tags = {}
        self.open(terms, True, delivered)

    @rule()
    def stop_and_start(self):
        """A clean stop keeps which messages were delivered, and no other is flagged."""
        self.sync()
        delivered = self.queue.delivered()
        for mark in self.tags:
            self.held[mark] = replace(self.held[mark], redelivered=True)
        terms = self.level.terminate() | {"next_deliver_seq_id": self.level._redelivered_below}
        self.journal.close_flushed()
        for store in self.stores:
            store.close()
        self.disk.crash(Random(1))
        self.restarted(terms, delivered, False)

    @rule(seed=st.integers(0, 1 << 16), kill=st.booleans())
    def crash(self, seed, kill):
        """A crash loses no message that is synced, and all messages are flagged afterwards."""
        self.sync()
        for store in self.stores:
            store.close()
        if kill:
            self.disk.kill()
        else:
            self.boot += 1
            self.disk.crash(Random(seed))
        self.restarted(None, (), True)

    # -- messages

    @rule(
        values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=12),
        size=st.sampled_from([4, 4, 60]),
        persistent=st.booleans(),
        expiry=st.sampled_from([None, None, 5, 50]),
    )
    def publish(self, values, size, persistent, expiry):
        origins = [Origin("", (value,), persistent) for value in values]
        contents = [content(size, self.marks + at) for at in range(len(values))]
        numbers = self.queue.publish(origins, contents, size * len(values), expiry, False)
        messages = [
            Message(self.marks + at, number, origins[at], contents[at], expiry) for at, number in enumerate(numbers)
        ]
        self.marks += len(values)
        self.held |= {message.mark: message for message in messages}
        self.publish_to_twin(messages)

    def ready(self):
        return len(self.held) - len(self.tags)

    @rule(count=st.integers(1, 15))
    def fetch(self, count):
        while count and len(self.queue):
            here = self.queue.available(count)
            if not here:
                assert self.run(self.queue.prepare()) or self.queue.available(1), "the next message can be read"
                continue
            found, expected = self.queue.fetch(here, True), self.twin.fetch(here, True)
            self.take(found, expected)
            count -= here
            assert sum(len(each.contents) for each in found) == here

    def take(self, found, expected):
        def flat(deliveries):
            return [
                (tag, body, origin, delivery.redelivered)
                for delivery in deliveries
                for tag, body, origin in zip(
                    delivery.tags, delivery.contents, each_of(delivery.origins, len(delivery.tags)), strict=True
                )
            ]

        mine, theirs = flat(found), flat(expected)
        assert [each[1:] for each in mine] == [each[1:] for each in theirs]
        for (tag, body, _, redelivered), (twin, _, _, _) in zip(mine, theirs, strict=True):
            message = self.held[mark_of(body)]
            assert (tag, redelivered) == (message.number, message.redelivered)
            self.tags[message.mark] = tag, twin

    @rule(at=st.integers(0, 30), count=st.integers(1, 6), operation=st.sampled_from(["ack", "requeue", "move"]))
    def settle(self, at, count, operation):
        marks = sorted(self.tags)[at : at + count]
        pairs = [self.tags.pop(mark) for mark in marks]
        if not marks:
            return
        for queue, tags in zip((self.queue, self.twin), zip(*pairs, strict=True), strict=True):
            assert getattr(queue, operation)(list(tags)) == len(tags)
        for mark in marks:
            if operation == "requeue":
                self.held[mark] = replace(self.held[mark], redelivered=True)
                continue
            message = self.held.pop(mark)
            if operation == "move" and message.origin.persistent:
                self.moved.append(body_size(message.content))

    @rule()
    def ack_all(self):
        tags = sorted(tag for tag, _ in self.tags.values())
        if tags:
            assert self.queue.ack(range(tags[0], tags[-1] + 1)) == len(tags)
            self.twin.ack(sorted(twin for _, twin in self.tags.values()))
            for mark in self.tags:
                del self.held[mark]
            self.tags = {}

    @rule(count=st.integers(1, 5))
    def drop(self, count):
        while count and len(self.queue):
            if not self.queue.droppable():
                assert self.run(self.queue.prepare()) or self.queue.droppable()
                continue
            assert self.queue.drop(1) == 1
            [delivery] = self.twin.fetch_dropped(1)
            self.twin.ack(delivery.tags)
            del self.held[mark_of(delivery.contents[0])]
            count -= 1

    @rule(now=st.integers(0, 60))
    def expire(self, now):
        expired = self.twin.fetch_expired(now, 1000)
        self.twin.ack([message.tag for message in expired])
        left = len(expired)
        for _ in range(200):
            dropped = self.queue.drop_expired(now, 1000)
            left -= dropped
            if not left:
                break
            if not dropped:
                self.run(self.queue.prepare())
        assert not left, "every message that expires can be read"
        for message in expired:
            del self.held[mark_of(message.content)]
        assert self.queue.head_expiry() == self.twin.head_expiry()

    @rule()
    def purge(self):
        while self.queue.purge(3):
            assert self.twin.purge(3)
        while self.twin.purge(3):
            pass
        self.held = {mark: self.held[mark] for mark in self.tags}

    # -- memory

    @rule(most=st.sampled_from([0, 0, 3]))
    def shelve(self, most):
        self.level.keep_in_lanes(most)
        self.level._write_segments()

    @rule()
    def page(self):
        self.level.set_ram_duration_target(0)
        self.level.set_ram_duration_target(float("inf"))

    @rule(mode=st.sampled_from(["default", "lazy"]))
    def set_mode(self, mode):
        self.mode = mode
        self.queue.set_queue_mode(mode)

    @rule(batch=st.integers(1, 3), weight=st.integers(1, 3), counts_bytes=st.booleans())
    def set_rules(self, batch, weight, counts_bytes):
        self.rules = FairRules(batch, {"a": weight}, counts_bytes)
        for queue in (self.queue, self.twin):
            queue.rules = self.rules

    @rule()
    def flush(self):
        self.level.segment_writer.flush()

    @invariant()
    def has_what_it_should_have(self):
        assert not self.queue.is_behind
        assert len(self.queue) == self.ready()
        sizes = [body_size(message.content) for mark, message in self.held.items() if mark not in self.tags]
        pending = [*self.moved, *(body_size(self.held[mark].content) for mark in self.tags)]
        assert self.queue.totals() == (len(sizes), len(pending), sum(sizes), sum(pending))
        assert sorted(self.queue.pending_numbers()) == sorted(tag for tag, _ in self.tags.values())
        lengths = [[row[:2] for row in queue.longest(9)] for queue in (self.queue, self.twin)]
        assert lengths[0] == lengths[1]
        check(self.queue)


def test_a_message_that_was_moved_stays_pending_until_the_journal_has_that():
    """Whatever pages meanwhile, a message that became a dead letter is forgotten when its move is recorded."""
    machine = LanesMachine()
    machine.publish(["a", "b", "c"], 4, True, None)
    machine.fetch(2)
    machine.settle(0, 2, "move")
    machine.shelve(0)
    machine.has_what_it_should_have()
    machine.sync()
    machine.has_what_it_should_have()
    machine.teardown()


def test_only_messages_from_before_a_crash_are_flagged():
    """Messages from before and after a crash come back from the disk together. Only the former are redelivered."""
    machine = LanesMachine()
    machine.publish(["a"] * 7, 4, True, None)
    machine.crash(1, True)
    machine.publish(["a"] * 3, 4, True, None)
    machine.shelve(0)
    machine.fetch(10)
    machine.has_what_it_should_have()
    machine.teardown()


def test_a_long_backlog_is_sorted_into_lanes_and_stays_on_the_disk(monkeypatch):
    """A start sorts all messages into lanes, of which few have to be in memory (QP-70)."""
    monkeypatch.setattr(lane_source, "KEPT_IN_MEMORY", 20)
    monkeypatch.setattr(lane_source, "KEPT_BESIDES", 10)
    monkeypatch.setattr(lane_picks, "READ_AHEAD", 5)
    machine = LanesMachine()
    for _ in range(50):
        machine.publish([*"aabcaad"], 4, True, None)
    machine.stop_and_start()
    machine.has_what_it_should_have()
    assert machine.level.on_disk[0] > 250
    machine.fetch(350)
    machine.has_what_it_should_have()
    machine.teardown()


def test_reading_ahead_is_bounded_whatever_the_batch(monkeypatch):
    """Lanes with a large batch have no more messages read ahead than others. The list of them once had all messages of
    all lanes, and was made in one turn.
    """
    monkeypatch.setattr(lane_picks, "READ_AHEAD", 8)
    for batch in (1, 3, 8, 1000, 2**63 - 1):
        machine = LanesMachine()
        machine.publish([*"abcdef"] * 50, 4, True, None)
        machine.queue.rules = replace(machine.queue.rules, batch=batch)
        ((_, numbers),) = machine.queue._picks.read_first()
        assert 6 <= len(numbers) <= 8
        machine.teardown()


TestLanes = LanesMachine.TestCase
TestLanes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
