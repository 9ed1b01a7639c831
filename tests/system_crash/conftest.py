"""A broker whose processes are crashed from within, and clients that show what their users would see."""

from __future__ import annotations

import itertools
import os

import pytest

from warren import Broker
from warren.tests.system.wire import Wire
from warren.tests.system.witness import Witness

from .anatomy import Anatomy

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def anatomy(broker):
    return Anatomy(broker)


@pytest.fixture
def connect(broker):
    """`connect()` is a running connection whose channel 1 is open."""
    wires = []

    def connect(**options):
        wires.append(Wire.open((broker.host, broker.port), **options))
        wires[-1].open_channel(1)
        return wires[-1]

    yield connect
    for wire in wires:
        wire.hang_up()


@pytest.fixture
def witness(broker):
    """A client that was there before and must not notice anything: checked when the test is over."""
    with Witness((broker.host, broker.port)) as witness:
        witness.check()
        yield witness
        witness.check()


@pytest.fixture
def name():
    return f"crash-{os.getpid()}-{next(_numbers)}"
