"""Thousands of connections that do nothing, and more than the operating system allows."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack

import pytest

from warren.amqp.constants import PROTOCOL_HEADER
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)

from ..child import ChildBroker
from ..oracle import ORACLE
from ..wire import PLAIN, Wire
from ..witness import Witness

pytestmark = pytest.mark.skipif(ORACLE is not None, reason="measures a broker of its own")

IDLE = 5000

#: A whole handshake and channel.open, sent at once.
EVERYTHING = b"".join(
    [
        PROTOCOL_HEADER,
        method_frame(0, ConnectionStartOk(mechanism="PLAIN", response=PLAIN, locale="en_US")),
        method_frame(0, ConnectionTuneOk(2047, 131072, 60)),
        method_frame(0, ConnectionOpen("/")),
        method_frame(1, ChannelOpen()),
    ]
)


def expect_open(wire: Wire) -> None:
    for method in (ConnectionStart, ConnectionTune, ConnectionOpenOk):
        wire.method(0, method)
    wire.method(1, ChannelOpenOk)


@pytest.fixture
def descriptors():
    """Raise the limit of open files, which counts both ends of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this system allows only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_five_thousand_idle_connections_are_cheap(descriptors):
    """A connection with one channel and heartbeats costs less than 64 KiB; all together use almost no processor
    time."""
    with ChildBroker() as child, Witness(child.address) as witness, ExitStack() as stack:
        witness.check()
        before = child.memory()
        for _ in range(IDLE // 100):
            opening = [stack.enter_context(Wire(child.address)) for _ in range(100)]
            for wire in opening:
                wire.send(EVERYTHING)
            for wire in opening:
                expect_open(wire)
        each = (child.memory() - before) / IDLE
        assert each < 64 * 1024, f"{each / 1024:.1f} KiB a connection"
        assert witness.round_trip() < 1.0
        used = child.processor_time()
        time.sleep(1)  # the time that is measured: an idle second
        assert child.processor_time() - used <= 0.05
        witness.check()


def test_an_idle_broker_is_small_and_uses_no_processor_time():
    """An idle broker uses less than 60 MB and no processor time that `top` would show."""
    with ChildBroker() as child, Witness(child.address) as witness:
        witness.check()
        assert child.memory() < 60_000_000
        used = child.processor_time()
        time.sleep(1)
        assert child.processor_time() - used < 0.015, "more than a tick"


def test_running_out_of_descriptors_stops_neither_the_listener_nor_anyone_else():
    """Clients beyond the limit wait in the backlog and are served when others leave; the broker does not spin
    meanwhile."""
    with (
        ChildBroker(descriptors=60, handshake_timeout=60_000) as child,
        Witness(child.address) as witness,
        ExitStack() as stack,
    ):
        crowd = [stack.enter_context(Wire(child.address)) for _ in range(100)]
        for wire in crowd:
            wire.send(EVERYTHING)
        for wire in crowd[:30]:
            expect_open(wire)
        with pytest.raises(TimeoutError):
            crowd[-1].frame(timeout=0.3)
        used = child.processor_time()
        for _ in range(20):
            witness.round_trip()
        with pytest.raises(TimeoutError):
            crowd[-1].frame(timeout=0.5)
        assert child.processor_time() - used < 0.25
        for wire in crowd[:70]:
            wire.hang_up()
        expect_open(crowd[-1])
        for wire in crowd[70:]:
            wire.hang_up()
        witness.check()


def test_connections_that_come_and_go_leave_nothing_behind():
    """Two thousand connections, which end in every way, leave no memory behind."""
    with ChildBroker() as child, Witness(child.address) as witness:

        def come_and_go(count: int) -> None:
            for number in range(count):
                wire = Wire(child.address)
                wire.send(EVERYTHING)
                if number % 4:
                    expect_open(wire)
                if number % 4 == 2:
                    wire.close()
                wire.hang_up()
            witness.check()

        come_and_go(400)
        before = child.memory()
        come_and_go(1600)
        assert child.memory() - before < 4 << 20
