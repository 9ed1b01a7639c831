"""The broker that the tests of whole nodes connect to over real sockets.

Each module gets its own embedded broker. With `WARREN_TEST_URL=amqp://guest:guest@host:port/%2F` the tests that need no
control over the broker run against that one, and the others are skipped: a RabbitMQ there shows that the tests assert
its behaviour.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from warren import Broker

from .oracle import ORACLE
from .wire import Wire
from .witness import Witness

_numbers = itertools.count(1)


class Target:
    """A broker to connect to; `embedded` is None if it is that of WARREN_TEST_URL."""

    def __init__(self, url: str, embedded: Broker | None) -> None:
        parts = urlsplit(url)
        self.url = url
        self.address = (parts.hostname or "", parts.port or 5672)
        self.embedded = embedded


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    if ORACLE:
        yield Target(ORACLE, None)
        return
    with Broker(port=0) as embedded:
        yield Target(embedded.url, embedded)


@pytest.fixture
def own(broker: Target) -> Broker:
    """The embedded broker, for tests that look inside it or change its state."""
    if broker.embedded is None:
        pytest.skip("needs control over the broker")
    return broker.embedded


@pytest.fixture
def start_broker() -> Iterator[Callable[..., Target]]:
    """Start a broker with the settings of the test."""
    if ORACLE:
        pytest.skip("needs a broker with settings of its own")
    with ExitStack() as stack:

        def start(**settings: Any) -> Target:
            embedded = stack.enter_context(Broker(port=0, **settings))
            return Target(embedded.url, embedded)

        yield start


@pytest.fixture
def address(broker: Target) -> tuple[str, int]:
    return broker.address


@pytest.fixture
def wire(broker: Target) -> Iterator[Wire]:
    """A running connection without heartbeats."""
    with Wire.open(broker.address) as opened:
        yield opened


@pytest.fixture
def channel(wire: Wire) -> Wire:
    """A running connection whose channel 1 is open."""
    wire.open_channel(1)
    return wire


@pytest.fixture(scope="module")
def witness(broker: Target) -> Iterator[Witness]:
    """A client that connected before the trouble and must not notice it."""
    with Witness(broker.address) as watching:
        yield watching


@pytest.fixture
def name() -> str:
    """A name that no other test uses, also on a shared broker."""
    return f"test-{os.getpid()}-{next(_numbers)}"
