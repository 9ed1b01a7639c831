"""Heartbeats (AB-23 to AB-26): exact timing on the counters, everything else over a socket with a 1 s interval."""

from __future__ import annotations

import time

import pytest

from warren.actors.connection.heartbeats import HeartbeatMonitor, HeartbeatSender
from warren.amqp.constants import FRAME_HEARTBEAT
from warren.amqp.methods import (
    BasicGet,
    BasicGetEmpty,
    ConnectionBlocked,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)

from ..wire import Wire

INTERVAL = 1


def steps(counter, *counts):
    return [counter.step(count) for count in counts]


def test_the_sender_sends_at_its_first_step_and_then_only_in_silence():
    """A step sends a heartbeat unless other bytes were written since the step before (AB-23)."""
    assert steps(HeartbeatSender(), 500, 500, 500, 508, 508, 600, 700) == [True, True, True, False, True, False, False]


def test_the_receiver_needs_two_silent_steps_in_a_row():
    """A client counts as dead after two silent steps in a row, which is two to three intervals (AB-24)."""
    assert steps(HeartbeatMonitor(), 10, 10, 11, 11, 11) == [False, False, False, False, True]


def test_a_restarted_receiver_counts_from_zero():
    """After `restart` it takes two silent steps again until the client counts as dead (AB-26, QS-33)."""
    monitor = HeartbeatMonitor()
    assert steps(monitor, 10, 10) == [False, False]
    monitor.restart()
    assert steps(monitor, 10, 10, 10) == [False, False, True]


def test_a_silent_broker_sends_a_heartbeat_every_half_interval(address):
    """A broker with nothing to send writes a heartbeat every half of the negotiated interval (AB-23, AB-25)."""
    with Wire.open(address, heartbeat=INTERVAL) as wire:
        moments = []
        for _ in range(3):
            assert wire.frame() == (FRAME_HEARTBEAT, 0, b"")
            moments.append(time.monotonic())
        gaps = [late - early for early, late in zip(moments, moments[1:], strict=False)]
        assert all(0.2 < gap < 0.95 for gap in gaps), gaps


def test_silent_peers_are_dropped_and_talking_ones_are_not(address, name):
    """A silent client is dropped without a frame, two to three intervals after its last byte, and a client that sends
    anything, even parts of frames, is not (AB-20, AB-24).
    """
    silent = Wire.open(address, heartbeat=INTERVAL)
    began = time.monotonic()
    dribbling = Wire.open(address, heartbeat=INTERVAL)
    beating = Wire.open(address, heartbeat=INTERVAL)
    without = Wire.open(address, heartbeat=0)
    frame = b"\x08\x00\x00\x00\x00\x00\x00\xce" * 2
    with silent, dribbling, beating, without:
        position = 0
        while silent.sock.fileno() >= 0:
            try:
                while True:
                    found = silent.frame(timeout=0.35)
                    assert found.kind == FRAME_HEARTBEAT
            except TimeoutError:
                pass
            except Exception as end:
                assert type(end).__name__ == "HungUp", end
                break
            dribbling.send(frame[position : position + 1])
            position += 1
            beating.send_frame(FRAME_HEARTBEAT, 0)
            assert time.monotonic() - began < 30
        assert 2 * INTERVAL - 0.2 < time.monotonic() - began < 3 * INTERVAL + 20
        dribbling.send(frame[position:])
        for wire in (dribbling, beating, without):
            wire.open_channel(1)
            wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)


def test_replies_spare_heartbeats(address):
    """A broker that writes other frames sends no heartbeats but the first (AB-23)."""
    with Wire.open(address, heartbeat=INTERVAL) as wire:
        wire.open_channel(1)
        queue = wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
        heartbeats = 0
        deadline = time.monotonic() + 1.9 * INTERVAL
        while time.monotonic() < deadline:
            wire.send_method(1, BasicGet(queue=queue))
            while (found := wire.frame()).kind == FRAME_HEARTBEAT:
                heartbeats += 1
            assert found.payload == BasicGetEmpty().encode()
            with pytest.raises(TimeoutError):
                while wire.frame(timeout=0.1).kind == FRAME_HEARTBEAT:
                    heartbeats += 1
        assert heartbeats <= 1


def test_a_blocked_connection_is_not_dropped_for_its_silence(own, address):
    """A blocked client is not dropped for its silence, because it is not read, and its heartbeats neither; they count
    again once it is unblocked (AB-26, QS-33).
    """
    with Wire.open(address, heartbeat=INTERVAL) as wire:
        wire.open_channel(1)
        own.set_alarm("memory", True)
        try:
            wire.publish(1, b"x", routing_key="nowhere")
            wire.method(0, ConnectionBlocked)
            began = time.monotonic()
            while time.monotonic() - began < 3.5 * INTERVAL:
                assert wire.frame().kind == FRAME_HEARTBEAT
        finally:
            own.set_alarm("memory", False)
        wire.method(0, ConnectionUnblocked)
        wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)
        began = time.monotonic()
        wire.expect_hang_up()
        assert 2 * INTERVAL - 0.2 < time.monotonic() - began < 3 * INTERVAL + 20
