"""A broker whose processes the tests crash, and clients that observe it."""

from __future__ import annotations

import itertools
import os

import pytest

from warren import Broker
from warren.tests.system.clients import connect
from warren.tests.system.witness import Witness

from .anatomy import Anatomy

# An imported fixture is available in this folder.
__all__ = ["connect"]

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
    """A client that connects before the test and must not notice the crash; checked again after the test."""
    with Witness((broker.host, broker.port)) as witness:
        witness.check()
        yield witness
        witness.check()


@pytest.fixture
def name():
    return f"crash-{os.getpid()}-{next(_numbers)}"
