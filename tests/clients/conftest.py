"""The broker that the client libraries connect to.

Each module gets an embedded broker on a free port. With `WARREN_TEST_URL=amqp://guest:guest@host:port/%2F` the same
tests run against that broker instead. Run against RabbitMQ, they show whether a test expects anything that AMQP clients
may not expect.
"""

import itertools
import os
from urllib.parse import urlsplit

import pytest

_numbers = itertools.count(1)


@pytest.fixture
def broker_address(broker_url):
    """`(host, port)` for clients that do not take a URL."""
    parts = urlsplit(broker_url)
    return parts.hostname, parts.port


@pytest.fixture
def name():
    """A name that no other test uses, even on a shared broker."""
    return f"test-{os.getpid()}-{next(_numbers)}"
