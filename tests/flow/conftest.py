"""A broker with short hold times, and clients that speak octets, for what flow control looks like over real sockets."""

from __future__ import annotations

import itertools
import os

import pytest

from warren import Broker
from warren.tests.system.clients import connect
from warren.tests.system_crash.anatomy import Anatomy

HOLD = 0.4  # s that a block of a connection stays visible here

__all__ = ["connect"]  # a fixture of this folder, too

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker():
    with Broker(flow_hold_channel=100, flow_hold_queue=100, flow_hold_connection=int(HOLD * 1000)) as broker:
        yield broker


@pytest.fixture
def anatomy(broker):
    return Anatomy(broker)


@pytest.fixture
def name():
    return f"flow-{os.getpid()}-{next(_numbers)}"
