"""A broker whose processes are crashed from within, and clients that show what their users would see."""

from __future__ import annotations

import itertools
import os

import pytest

from warren import Broker
from warren.tests.system.clients import connect
from warren.tests.system.witness import Witness

from .anatomy import Anatomy

__all__ = ["connect"]  # a fixture of this folder, too

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def anatomy(broker):
    return Anatomy(broker)


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
