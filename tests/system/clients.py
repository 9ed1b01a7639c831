"""The fixture `connect`, for folders whose tests open connections to a `broker` of their own."""

from __future__ import annotations

import pytest

from warren.tests.system.wire import Wire


@pytest.fixture
def connect(broker):
    """`connect()` returns a running connection whose channel 1 is open."""
    wires = []

    def connect(**options):
        wires.append(Wire.open((broker.host, broker.port), **options))
        wires[-1].open_channel(1)
        return wires[-1]

    yield connect
    for wire in wires:
        wire.hang_up()
