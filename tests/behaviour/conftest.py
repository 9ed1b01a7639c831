"""The broker under test, and clients for it.

All modules share one embedded broker. After each test it is looked at (`SharedBroker.check`): a test that has broken it
fails and is named, and the next one gets another broker. With `WARREN_TEST_URL=amqp://guest:guest@host:port/%2F` the
tests run against the broker at that URL instead. Run against RabbitMQ, they show that RabbitMQ behaves as the tests
require. Tests that need the processes or the settings of an embedded broker are then skipped.
"""

import itertools
import os

import pytest

from warren import Broker

pytest.register_assert_rewrite(f"{__package__}.wire")

from .inside import Inside
from .shared_broker import SharedBroker
from .wire import CAPABILITIES, Client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker():
    shared = SharedBroker()
    yield shared
    shared.stop()


@pytest.fixture(autouse=True)
def _shared_broker_outlives_the_test(shared_broker):
    yield
    shared_broker.check()


@pytest.fixture
def broker(shared_broker):
    """The embedded broker, or None if the tests run against another one."""
    return None if "WARREN_TEST_URL" in os.environ else shared_broker.running()


@pytest.fixture
def url(broker):
    return broker.url if broker else os.environ["WARREN_TEST_URL"]


@pytest.fixture
def inside(broker):
    """Access to the processes of the embedded broker."""
    if broker is None:
        pytest.skip("needs the processes of an embedded broker")
    return Inside(broker)


@pytest.fixture
def own_broker():
    """`own_broker(**settings)` starts another embedded broker with these settings."""
    if "WARREN_TEST_URL" in os.environ:
        pytest.skip("needs an embedded broker with its own settings")
    brokers = []

    def start(**settings):
        brokers.append(Broker(port=0, stop_timeout=0, **settings).start())
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.stop()


@pytest.fixture
def connect(url):
    """`connect()` opens another connection."""
    clients = []

    def connect(capabilities=CAPABILITIES, frame_max=131_072, to=url):
        clients.append(Client(to, capabilities, frame_max))
        return clients[-1]

    yield connect
    for client in clients:
        client.abort()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def channel(client):
    return client.channel()


@pytest.fixture
def name():
    """A name that no other test uses, even on a shared broker."""
    return f"b-{os.getpid()}-{next(_numbers)}"
