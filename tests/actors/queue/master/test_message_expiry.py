"""The expiry of messages, decided without a process (AB-94 to AB-97, FC-36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.queue.master.message_expiry import EXPIRY_STEP
from warren.store.queue.memory_queue import MemoryQueue

from .core import Core


def test_the_timer_is_that_of_the_head():
    """The timer is set for the expiry of the head, at most a millisecond late and never early. While no message expires
    there is none (AB-95).
    """
    core = Core(x_message_ttl=500)
    core.turn()
    assert core.timers() == {}
    core.publish(1)
    core.turn()
    assert core.timers() == {"expiry": pytest.approx(0.501)}
    core.seconds += 0.2
    core.publish(1, first=1)
    core.turn()
    assert core.timers() == {}
    core.seconds += 0.301
    core.master.timer_fired("expiry")
    core.turn()
    assert core.timers() == {"expiry": pytest.approx(0.2)} and len(core.backing) == 1
    list(core.master.purge())
    core.turn()
    assert core.timers() == {"expiry": None}


def test_the_shorter_of_queue_ttl_and_expiration_counts():
    """The shorter of the queue's TTL and the message's expiration counts (AB-94). A message behind an unexpired one
    stays (AB-95).
    """
    core = Core(x_message_ttl=500)
    core.publish(1, expiration=10_000)
    core.publish(1, first=1, expiration=100)
    core.turn()
    core.seconds += 0.3
    core.consume()
    core.turn()
    assert core.bodies() == [0]
    assert core.master.dead_letterer.counts.dead["expired"] == 1


@pytest.mark.parametrize(("has_one_expiry", "runs"), [(False, 1), (True, 4)])
def test_messages_that_expire_at_different_times_are_one_run(has_one_expiry, runs):
    """Messages with different expiry times are one run. Each has its own time, and stays behind one that has not
    expired. If a replica runs a version that cannot read such runs, they are runs of their own (AB-94, AB-95).
    """
    core = Core()
    core.apply(replace(core.settings, has_one_expiry=has_one_expiry))
    core.publish(4, expiration=[100, 5_000, 50, None])
    core.turn()
    assert len(core.backing._ready.runs) == runs
    assert core.timers() == {"expiry": pytest.approx(0.101)}
    core.seconds += 0.2
    core.master.timer_fired("expiry")
    core.turn()
    assert len(core.backing) == 3
    core.consume()
    core.turn()
    assert core.bodies() == [1, 3]
    assert core.master.dead_letterer.counts.dead["expired"] == 2


def test_the_queue_ttl_bounds_each_of_several_expirations():
    """For each of several expirations the queue's TTL counts if it is shorter; if all times become the same, no list of
    times is kept (AB-94).
    """
    core = Core(x_message_ttl=500)
    core.publish(3, expiration=[600, 100, None])
    core.publish(2, first=3, expiration=[600, 700])
    core.turn()
    now = 1_000_000_000_000
    assert [run.expiries for run in core.backing._ready.runs] == [
        [now + 500_000, now + 100_000, now + 500_000, now + 500_000, now + 500_000]
    ]


def test_an_expiration_of_zero_joins_no_others():
    """A message with an expiration of 0 is dropped from an empty queue at once, and behind others when it is the head
    (AB-96).
    """
    core = Core()
    core.publish(1, expiration=0)
    core.publish(1, first=1, expiration=100)
    core.publish(1, first=2, expiration=0)
    core.turn()
    assert len(core.backing) == 2
    assert core.master.dead_letterer.counts.dead["expired"] == 1


def test_a_long_stretch_expires_in_steps():
    """Many messages expire in steps, between which other processes have turns, and no message is delivered before the
    last step (FC-36).
    """
    core = Core(x_message_ttl=100)
    core.publish(2 * EXPIRY_STEP + 1)
    core.turn()
    core.seconds += 1
    core.consume()
    left = []
    for _ in range(3):
        core.effects.needs_turn = False
        core.turn()
        left.append((len(core.backing), core.effects.needs_turn))
    assert left == [(EXPIRY_STEP + 1, True), (1, True), (0, False)] and core.bodies() == []


class PagedOut(MemoryQueue):
    """A queue whose messages are on the disk until `is_read`; only the expiry of its head is known."""

    is_read = False

    def available(self, limit: int) -> int:
        return super().available(limit) if self.is_read else 0

    def drop_expired(self, now: int, limit: int) -> int:
        return super().drop_expired(now, limit) if self.is_read else 0

    def prepare(self):
        return object()


def test_no_timer_runs_while_an_expired_head_is_read_from_the_disk():
    """No timer runs while an expired head is read from the disk. One was once set to the next millisecond again and
    again, however long the disk took.
    """
    backing = PagedOut()
    core = Core(backing, is_on_disk=True, x_message_ttl=100)
    core.publish(3)
    core.turn()
    core.seconds += 1
    core.timers()
    for _ in range(3):
        core.master.timer_fired("expiry")
        core.turn()
        assert core.timers().get("expiry") is None and len(backing) == 3
    assert core.effects.head_read is not None
    backing.is_read = True
    core.state.head_read.is_running = False
    core.master.head_loaded()
    core.publish(1, first=3)
    core.turn()
    assert len(backing) == 1 and core.timers() == {"expiry": pytest.approx(0.101)}


class Unflushed(PagedOut):
    """A queue with everything in the index and not flushed yet. `prepare` finds the messages in memory; before that
    their expiry is unknown.
    """

    def head_expiry(self) -> int | None:
        return super().head_expiry() if self.is_read else None

    def prepare(self):
        self.is_read = True


@pytest.mark.parametrize("needs_messages", [False, True])
def test_an_expired_head_is_not_delivered_when_its_expiry_was_unknown_until_now(needs_messages):
    """An expired head is not delivered, also when its expiry becomes known only now. A lazy queue once delivered it, if
    it was loaded just when a consumer was looked for.
    """
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "grave"} if needs_messages else {}
    core = Core(Unflushed(), is_on_disk=True, **arguments)
    core.grave("grave")
    core.publish(1, expiration=100)
    core.publish(1, first=1)
    core.turn()
    core.backing.is_read = False
    core.seconds += 1
    core.consume()
    core.turn()
    assert core.bodies() == [1] and core.master.dead_letterer.counts.dead["expired"] == 1


def test_no_timer_runs_between_the_steps_of_a_long_stretch():
    core = Core(x_message_ttl=100)
    core.publish(EXPIRY_STEP + 1)
    core.turn()
    core.seconds += 1
    core.timers()
    core.master.timer_fired("expiry")
    core.turn()
    assert core.effects.needs_turn and core.timers().get("expiry") is None


def test_expired_messages_become_dead_letters():
    core = Core(x_message_ttl=100, x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.publish(2)
    core.turn()
    core.seconds += 1
    core.master.timer_fired("expiry")
    core.turn()
    assert core.buried() == [("grave", [0, 1])] and not core.backing.totals().depth


def test_a_new_ttl_leaves_queued_messages_as_they_are():
    """With a new TTL, messages that are in the queue already never expire, and those behind them only when they are at
    the head (AB-94, AB-95).
    """
    core = Core()
    core.publish(2)
    core.turn()
    core.apply(replace(core.settings, message_ttl=100))
    core.publish(2, first=2)
    core.turn()
    core.seconds += 1
    core.turn()
    assert len(core.backing) == 4
    core.consume()
    core.turn()
    assert core.bodies() == [0, 1] and core.master.dead_letterer.counts.dead["expired"] == 2
