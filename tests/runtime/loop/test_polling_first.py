"""A loop whose sleeps are short polls for a moment before it sleeps (`LoopBase._wait`)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.runtime.loop import loop_base
from warren.runtime.loop.loop_base import HITS_A_MISS, POLLING_SECONDS, UNPOLLED_SLEEPS, LoopBase

EVENT = (7, 1)
#: Seconds that a poll without waiting takes here.
STEP = POLLING_SECONDS / 10


class Waiting:
    """A poller and a clock. `sleeps` are the seconds after which a descriptor becomes ready in the next sleeps."""

    def __init__(self):
        self.now = 100.0
        self.sleeps = []
        self.timeouts = []
        #: When a descriptor becomes ready while the loop polls.
        self.ready_at = None

    def poll(self, timeout):
        self.timeouts.append(timeout)
        if timeout == 0:
            self.now += STEP
            return [EVENT] if self.ready_at is not None and self.now >= self.ready_at else []
        self.now += self.sleeps.pop(0)
        return [EVENT]

    def monotonic(self):
        return self.now


@pytest.fixture
def waiting(monkeypatch):
    waiting = Waiting()
    monkeypatch.setattr(loop_base, "time", SimpleNamespace(monotonic=waiting.monotonic))
    return waiting


@pytest.fixture
def base(waiting, monkeypatch):
    base = LoopBase(thread=False)
    monkeypatch.setattr(base, "poller", waiting)
    yield base
    monkeypatch.undo()
    base.shutdown()


def polls(waiting):
    """How often the loop has polled without waiting since the last call."""
    count, waiting.timeouts = waiting.timeouts.count(0), []
    return count


def test_a_loop_polls_before_it_sleeps_after_a_short_sleep_only(base, waiting):
    waiting.sleeps = [POLLING_SECONDS / 2, 1.0, 1.0]
    assert base._wait(waiting.now, None) == ([EVENT], waiting.now) and polls(waiting) == 0
    base._wait(waiting.now, None)
    assert 10 <= polls(waiting) <= 11
    base._wait(waiting.now, None)
    assert polls(waiting) == 0


def test_polling_ends_when_a_descriptor_is_ready(base, waiting):
    waiting.sleeps = [POLLING_SECONDS / 2]
    base._wait(waiting.now, None)
    for _ in range(3):
        waiting.ready_at = waiting.now + 2.5 * STEP
        assert base._wait(waiting.now, None) == ([EVENT], waiting.now) and waiting.timeouts[-3:] == [0, 0, 0]


def test_a_timer_that_is_due_soon_is_not_late(base, waiting):
    waiting.sleeps = [POLLING_SECONDS / 2, STEP]
    base._wait(waiting.now, None)
    waiting.timeouts = []
    base._wait(waiting.now, waiting.now + STEP)
    assert waiting.timeouts == [pytest.approx(STEP)]


def test_a_loop_does_not_poll_while_other_threads_work_for_it(base, waiting, monkeypatch):
    """A loop does not poll while other threads work for it: it would take the interpreter from them again and again."""
    waiting.sleeps = [POLLING_SECONDS / 2, POLLING_SECONDS / 2]
    base._wait(waiting.now, None)
    polls(waiting)
    monkeypatch.setattr(base._pool, "is_busy", lambda: True)
    base._wait(waiting.now, None)
    assert polls(waiting) == 0


def test_a_loop_hardly_polls_while_that_finds_nothing(base, waiting):
    """A loop that polls in vain soon polls rarely, because polling takes the processor from what the loop waits for."""
    waiting.sleeps = [POLLING_SECONDS / 2] * 1000
    for _ in range(1000):
        base._wait(waiting.now, None)
    assert polls(waiting) <= 12 * 1000 / UNPOLLED_SLEEPS


def test_a_loop_polls_again_once_that_finds_something(base, waiting):
    waiting.sleeps = [POLLING_SECONDS / 2] * 1000
    for _ in range(100):
        base._wait(waiting.now, None)
    waiting.ready_at = 0.0
    while len(waiting.timeouts) < 300:
        base._wait(waiting.now, None)
    assert waiting.timeouts[-100:] == [0] * 100


def test_a_poll_in_vain_now_and_then_does_not_end_polling(base, waiting):
    waiting.sleeps = [POLLING_SECONDS / 2] * 100
    base._wait(waiting.now, None)
    for _ in range(50):
        for _ in range(HITS_A_MISS):
            waiting.ready_at = 0.0
            base._wait(waiting.now, None)
        waiting.ready_at, waiting.timeouts = None, []
        base._wait(waiting.now, None)
        assert len(waiting.timeouts) > 1
