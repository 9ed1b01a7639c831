"""Where the planner and the tasks connect: endpoints of the catalogue and of the options (SP-57, SP-58)."""

import socket

import pytest

from warren import Broker
from warren.spark.options import BatchOptions
from warren.spark.reading.batch_reader import BatchReader
from warren.spark.wire import Away, BrokerConnection, Refused


@pytest.fixture
def nowhere():
    """An endpoint that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@pytest.fixture
def strange():
    """The endpoint of a broker that refuses the login of the tests."""
    with Broker(port=0) as other:
        other.change_password("guest", "another")
        yield "127.0.0.1", other.port


def connected(options, **endpoints):
    connection = BrokerConnection(options, "test", **endpoints)
    connection.close()
    return connection.endpoint


def test_known_endpoints_are_tried_before_and_after_those_of_the_url(broker, nowhere):
    here = ("127.0.0.1", broker.port)
    by_url = BatchOptions.parse({"url": broker.url, "queue": "q"})
    elsewhere = BatchOptions.parse({"url": f"amqp://127.0.0.1:{nowhere[1]}/%2F", "queue": "q"})
    assert connected(by_url) == connected(by_url, first=[nowhere]) == here
    assert connected(elsewhere, others=[nowhere, here]) == connected(elsewhere, first=[here]) == here
    with pytest.raises(Away, match="refused connections"):
        connected(elsewhere, first=[nowhere])


def test_another_broker_at_a_known_endpoint_is_passed_over(broker, strange):
    """The address of a node may be that of another broker on the machine of the client. The URL's broker is the one
    that the user has named, so its refusal is an error.
    """
    options = BatchOptions.parse({"url": broker.url, "queue": "q"})
    assert connected(options, first=[strange]) == ("127.0.0.1", broker.port)
    with pytest.raises(Refused, match="ACCESS_REFUSED"):
        connected(BatchOptions.parse({"url": f"amqp://127.0.0.1:{strange[1]}/%2F", "queue": "q"}))


def test_tasks_connect_to_the_node_of_the_planner_as_the_planner_has(broker, queue, row_plan):
    """Behind a port mapping the broker does not know the address by which the client has reached it."""
    broker.declare_queue(queue)
    broker.publish(b"x", queue)
    given = {"url": "amqp://broker.invalid:5672/%2F", "endpointMap": f"broker.invalid:5672=localhost:{broker.port}"}
    options = BatchOptions.parse({**given, "queue": queue})
    (partition,) = BatchReader(options, row_plan(options)).partitions()
    assert partition.endpoints == (("localhost", broker.port),)
