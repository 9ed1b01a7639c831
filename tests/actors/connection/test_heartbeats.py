"""When a connection sends heartbeats, and when a client counts as dead, on a simulated clock (AB-23, AB-24, AB-26)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.actors.connection.heartbeats import HeartbeatMonitor, HeartbeatSender


@given(st.lists(st.integers(0, 3), min_size=1))
def test_the_sender_speaks_first_and_then_into_silence(traffic):
    """The first step sends a heartbeat in any case, and later steps only if nothing was written since the step before
    (AB-23).
    """
    sender, written = HeartbeatSender(), 0
    for step, octets in enumerate(traffic):
        written += octets
        assert sender.step(written) == (step == 0 or octets == 0)


@given(st.lists(st.integers(0, 1), min_size=1))
def test_two_silent_steps_in_a_row_are_death(traffic):
    """A client counts as dead after two steps in a row without a received byte (AB-24)."""
    monitor, received, silent = HeartbeatMonitor(), 0, 0
    for step, octets in enumerate(traffic):
        received += octets
        silent = 0 if octets or step == 0 else silent + 1
        assert monitor.step(received) == (silent >= 2)


@given(st.integers(1, 100_000), st.integers(10, 6000))
def test_death_is_noticed_between_two_and_three_intervals_after_the_last_octet(last_octet, interval):
    """A client that stops at any moment counts as dead two to three intervals after its last byte; steps come at
    multiples of the interval (AB-24).
    """
    monitor, now = HeartbeatMonitor(), interval
    while not monitor.step(min(now, last_octet)):
        now += interval
    assert 2 * interval <= now - last_octet < 3 * interval


def test_a_restart_begins_from_zero():
    """After a block, silence from before the block does not count (AB-26)."""
    monitor = HeartbeatMonitor()
    assert [monitor.step(7), monitor.step(7)] == [False, False]
    monitor.restart()
    assert [monitor.step(7), monitor.step(7), monitor.step(7)] == [False, False, True]
