"""The expiry of a queue that nobody uses, decided without a process (AB-93)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.queue.effects import Effects
from warren.actors.queue.master.queue_expiry import QueueExpiry
from warren.routing.arguments.queue_settings import QueueSettings


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def effects():
    return Effects()


@pytest.fixture
def expiry(effects, clock):
    """The expiry of a queue with x-expires of one second."""
    expiry = QueueExpiry(effects, clock)
    expiry.apply(QueueSettings(expires=1000))
    return expiry


def taken(effects):
    timers, effects.timers = effects.timers, {}
    return timers


def test_it_runs_from_the_beginning_and_from_each_use(effects, clock, expiry):
    """The expiry is counted from the declare and from each use. A use starts no other timer: when the running one
    fires, it is started again for the rest.
    """
    assert taken(effects) == {"queue_expiry": pytest.approx(1.001)}
    clock.seconds += 0.6
    expiry.use()
    assert taken(effects) == {}
    clock.seconds += 0.401
    assert not expiry.timer_fired()
    assert taken(effects) == {"queue_expiry": pytest.approx(0.6)}
    clock.seconds += 0.6
    assert expiry.timer_fired()


def test_a_consumer_or_reader_keeps_it_from_running(effects, clock, expiry):
    taken(effects)
    expiry.enter(), expiry.enter()
    assert taken(effects) == {"queue_expiry": None}
    expiry.leave()
    assert taken(effects) == {}
    expiry.leave()
    assert taken(effects) == {"queue_expiry": pytest.approx(1.001)}


def test_it_begins_anew_with_new_settings(effects, clock, expiry):
    """New settings start the expiry anew, also if its time is the same, and end it if they have none (AB-93)."""
    taken(effects)
    clock.seconds += 0.9
    expiry.apply(QueueSettings(expires=1000))
    assert taken(effects) == {"queue_expiry": pytest.approx(1.001)}
    expiry.apply(replace(QueueSettings(), expires=None))
    assert taken(effects) == {"queue_expiry": None}
    clock.seconds += 10
    expiry.use()
    assert taken(effects) == {}
