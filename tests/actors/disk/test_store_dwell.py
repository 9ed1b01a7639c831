"""The message store waits for a moment before a sync while consumers keep up, because acknowledged bodies need no
write.

The tests use virtual time, so that waits are exact.
"""

from __future__ import annotations

import sys

import pytest

from warren.actors.context.disk_settings import StoreSettings
from warren.actors.disk import message_store
from warren.actors.disk.message_store import DWELL_SECONDS, ROUND_STEPS, MessageStore
from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import Conditions, SimWorld
from warren.store.bodies.store_engine import StoreEngine
from warren.store.bodies.sync_job import SyncJob
from warren.store.disk.faulty_disk import FaultyDisk

BODY = b"x" * 10_000
#: The most seconds that a sync takes.
SYNC = 5e-3
#: Seconds between two messages, and from the write of a message to its acknowledgement.
EVERY = 2e-4
HELD = 4e-4
#: Seconds that the turns of the processes may take.
SLACK = 1e-3
LATEST = DWELL_SECONDS * 2 * ROUND_STEPS + 2 * SYNC + SLACK


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


class BusyQueue(Process):
    """Writes message after message and removes each soon after, as if a consumer kept up, except for the
    `kept` ones.
    """

    def __init__(self):
        super().__init__()
        self.last = self.stop_at = 0
        self.kept = set()
        self.is_acking = True
        self.written_at = {}
        self.received = {}  # number -> (kind of the store's report, seconds from the write to the report)

    async def on_begin(self, sender, settings):
        self.store = self.createActor(MessageStore)
        await self.ask(self.store, ("start", settings))
        self.send(self.store, ("register", "q", self.myAddress))
        return True

    def on_publish(self, sender, count, kept, is_acking):
        self.stop_at, self.kept, self.is_acking = self.last + count, kept, is_acking
        self.start_timer(EVERY, ("write", 0))
        return True

    def on_timer(self, payload):
        what, number = payload
        if what == "ack":
            self.send(self.store, ("remove", "q", [name(number)]))
            return
        self.last += 1
        self.written_at[self.last] = self.now()
        self.send(self.store, ("write", "q", [(name(self.last), BODY)]))
        if self.is_acking and self.last not in self.kept:
            self.start_timer(HELD, ("ack", self.last))
        if self.last < self.stop_at:
            self.start_timer(EVERY, ("write", 0))

    def on_stored(self, sender, kind, ids):
        for message_id in ids:
            number = int.from_bytes(message_id, "big")
            self.received[number] = kind, self.now() - self.written_at[number]

    def on_bump(self, sender, store, amount):
        """Ignored: this queue writes whether it has credit or not."""

    def on_answers(self, sender):
        return dict(self.received)


class Stage:
    def __init__(self, root, sync=SYNC):
        self.world = SimWorld(seed=1, conditions=Conditions(blocking_delay=sync))
        self.base = self.world.machine("a").boot()
        self.port = SimPort(self.base)
        self.queue = self.base.newPrimaryActor(BusyQueue)
        self.ask("begin", StoreSettings("msg_store_persistent", FaultyDisk(), str(root)))

    def ask(self, *message):
        return self.port.request(self.queue, message)

    def publish(self, count, kept=frozenset(), is_acking=True):
        """Write `count` messages, wait for the store's reports on all of them, and return kind and seconds of each."""
        before = len(self.ask("answers"))
        self.ask("publish", count, kept, is_acking)
        self.world.run(count * EVERY + 0.1)
        answers = self.ask("answers")
        assert len(answers) == before + count
        return answers


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    yield stage
    stage.base.shutdown()


@pytest.fixture
def synced(monkeypatch):
    """The number of messages in each sync."""
    counts = []
    run = SyncJob.run

    def counted(job):
        counts.append(sum(len(part.messages) for part in job.parts))
        run(job)

    monkeypatch.setattr(SyncJob, "run", counted)
    return counts


def test_what_is_acked_soon_costs_no_disk(stage, synced):
    """A body that is acknowledged soon is never written: the store reports `ignored` with the ack, and writes only the
    few bodies that are unacknowledged at a sync (QS-30).
    """
    answers = stage.publish(2000)
    late = [answers[number] for number in range(1001, 2001)]
    assert sum(kind == "ignored" for kind, _ in late) > 850
    assert sum(synced[len(synced) // 2 :]) < 50
    assert max(seconds for _, seconds in late) < LATEST


def test_no_message_waits_longer_than_the_steps_allow(stage):
    """A message that is not acknowledged waits at most for the running sync, all steps and its own sync, even if others
    are acknowledged meanwhile.
    """
    kept = frozenset(range(1000, 2000, 50))
    answers = stage.publish(2000, kept)
    assert all(answers[number][0] == "written" for number in kept)
    waits = [answers[number][1] for number in kept]
    assert LATEST / 2 < max(waits) < LATEST


def test_what_was_written_last_is_left_to_the_next_sync(stage, synced, monkeypatch):
    """With 10 messages between a publisher and its consumer, those that a wait of 10 ms finds in the store are young,
    and acknowledged soon. None of them is written.
    """
    monkeypatch.setattr(sys.modules[__name__], "HELD", 10 * EVERY)
    stage.publish(2000)
    del synced[:]
    answers = stage.publish(2000)
    assert {answers[number][0] for number in range(3001, 3900)} == {"ignored"}
    assert sum(synced) < 50


def test_a_message_that_comes_during_a_sync_is_written_by_the_next_one(stage):
    """No message waits for three syncs, however many others are under way and whenever it comes."""
    kept = frozenset(range(1000, 5000, 13))
    answers = stage.publish(5000, kept)
    assert max(answers[number][1] for number in kept) < LATEST


def test_when_acks_stop_it_waits_one_step(stage):
    """A sync waits for another step only if the last one brought acknowledgements, so it waits for at most two steps in
    vain.
    """
    stage.publish(1000)
    answers = stage.publish(50, is_acking=False)
    fresh = [answers[number] for number in range(1001, 1051)]
    assert {kind for kind, _ in fresh} == {"written"}
    assert max(seconds for _, seconds in fresh) < 2 * DWELL_SECONDS + 2 * SYNC + SLACK


def test_so_many_bytes_do_not_wait(stage, synced, monkeypatch):
    """Bodies that wait are in memory, so a step that ends with more bytes than allowed is the last."""
    monkeypatch.setattr(message_store, "DWELL_BYTES", 3 * len(BODY))
    stage.publish(1000, frozenset(range(0, 1000, 3)))
    assert max(synced) <= 3 + ((DWELL_SECONDS + SYNC) / 3 + HELD) / EVERY + 1


def test_large_bodies_wait_no_longer_than_their_write_takes(stage, synced, monkeypatch):
    """A step is as long as the write of a large body. So a confirm waits for at most three steps, the running sync and
    its own, and most bodies are acknowledged before they are written.
    """
    monkeypatch.setattr(message_store, "DWELL_BODY_SIZE", len(BODY))
    monkeypatch.setattr(message_store, "BYTES_IN_STEP", len(BODY))
    answers = stage.publish(1000, frozenset(range(0, 1000, 50)))
    assert max(seconds for _, seconds in answers.values()) < 3 * DWELL_SECONDS + 2 * SYNC + SLACK
    assert sum(synced) < 500


@pytest.mark.parametrize("are_large", [False, True])
def test_large_bodies_are_written_all_together(stage, monkeypatch, are_large):
    """A wait for large bodies ends when it has taken as long as their write. If a sync left the youngest of them, these
    would wait longer than that.
    """
    divided = []
    take_marked = StoreEngine.take_marked
    monkeypatch.setattr(StoreEngine, "take_marked", lambda engine: (divided.append(1), take_marked(engine))[1])
    monkeypatch.setattr(sys.modules[__name__], "HELD", 10 * EVERY)
    if are_large:
        monkeypatch.setattr(message_store, "DWELL_BODY_SIZE", len(BODY))
        monkeypatch.setattr(message_store, "BYTES_IN_STEP", len(BODY) // 2)
    stage.publish(2000)
    assert bool(divided) is not are_large


def test_bodies_that_take_less_than_a_step_to_write_do_not_wait(stage, synced, monkeypatch):
    """Bodies whose write takes less than a step are written at once, whether or not earlier bodies were acknowledged in
    time.
    """
    monkeypatch.setattr(message_store, "DWELL_BODY_SIZE", len(BODY))
    monkeypatch.setattr(message_store, "BYTES_IN_STEP", 1000 * len(BODY))
    answers = stage.publish(1000, frozenset(range(0, 1000, 50)))
    assert max(seconds for _, seconds in answers.values()) < 2 * SYNC + SLACK
    assert sum(synced) > len(range(0, 1000, 50))


@pytest.mark.parametrize("has_trials", [True, False])
def test_a_fast_disk_tries_whether_waiting_is_worth_it(tmp_path, synced, monkeypatch, has_trials):
    """A sync that is faster than the consumers finds most bodies unacknowledged. Only a trial shows that a short wait
    would have saved their writes, so the store makes one now and then.
    """
    if not has_trials:
        monkeypatch.setattr(message_store, "TRIAL_SHARE", 1)
    stage = Stage(tmp_path, sync=HELD)
    stage.publish(1500)
    stage.base.shutdown()
    assert (sum(synced) < 1000) == has_trials
