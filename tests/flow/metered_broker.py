"""A broker that counts the work of each turn, and a client of it, for tests that turns do not grow."""

from __future__ import annotations

import pytest

from warren import Broker
from warren.amqp import methods as m
from warren.amqp.frames import method_frame
from warren.tests.behaviour.wire import Client
from warren.tests.turn_meter import metered

#: How many calls one turn may make, which take about 1.5 ms if they are not counted. A handler makes as many if it
#: visits 1,500 things in one turn and calls ten functions for each.
MOST = 15_000


#: Seconds that clients wait, because counting makes the broker several times slower.
PATIENCE = 180


@pytest.fixture(scope="module")
def metered_broker(tmp_path_factory):
    data, control = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("control")
    with metered() as turns, Broker(data_dir=data, control_dir=str(control), channel_max=0) as broker:
        yield broker, turns


@pytest.fixture
def broker(metered_broker):
    return metered_broker[0]


@pytest.fixture
def turns(metered_broker):
    metered_broker[1].forget()
    yield metered_broker[1]
    assert metered_broker[1].count
    assert metered_broker[1].most.calls < MOST, metered_broker[1].most


@pytest.fixture
def client(broker):
    client = Client(broker.url, timeout=PATIENCE)
    yield client
    client.abort()


def all_at_once(channel, sent):
    """Send methods that have no answer, and wait until the last one has taken effect."""
    channel.client.write(b"".join([method_frame(channel.number, method) for method in sent]))
    channel.call(m.BasicQos())
