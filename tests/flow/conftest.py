"""A broker with short hold times of the state `flow`, and clients on raw sockets, for tests of flow control."""

from __future__ import annotations

import itertools
import os

import pytest

from warren import Broker
from warren.tests.system.clients import connect
from warren.tests.system_crash.anatomy import Anatomy

#: Seconds for which a connection is listed as `flow` after it was last blocked.
HOLD = 0.4

# An imported fixture is available in this folder.
__all__ = ["connect"]

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
