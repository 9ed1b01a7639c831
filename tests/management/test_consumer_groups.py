"""`/groups`: consumers that name the same group, over all queues of a virtual host (CM-268, QP-111)."""

from contextlib import ExitStack

import pika
import pytest

from .conftest import until


@pytest.fixture
def consume(broker):
    """`consume(queue, group, prefetch)` has a client consume, without acknowledging, and returns its channel."""
    with ExitStack() as stack:

        def start(queue, group=None, prefetch=0):
            connection = stack.enter_context(pika.BlockingConnection(pika.URLParameters(broker.url)))
            channel = connection.channel()
            channel.basic_qos(prefetch_count=prefetch)
            arguments = {} if group is None else {"x-consumer-group": group}
            channel.basic_consume(queue, lambda *_: None, arguments=arguments)
            return channel

        yield start


def row(name, **fields):
    return {"name": name, "vhost": "/", **fields}


def without_rates(rows):
    return [{key: value for key, value in each.items() if key != "deliver_details"} for each in rows]


def test_a_group_has_what_its_consumers_have(api, broker, consume):
    """A group has the sums of its consumers over all queues. Its lag is the distance from the oldest message that it
    holds to the newest of that queue, in the queue where that is largest.
    """
    for queue, messages in (("one", 10), ("other", 3)):
        broker.declare_queue(queue)
        for _ in range(messages):
            broker.publish(b"x", queue)
    assert api.get("/api/groups") == []
    name = "<b>/ü?#&"
    consume("one", name, prefetch=4)
    consume("other", name, prefetch=2)
    consume("one", "idle", prefetch=1)
    consume("one")
    held = row(name, queues=["one", "other"], consumers=2, messages_unacknowledged=6, deliver=6, lag=9)
    idle = row("idle", queues=["one"], consumers=1, messages_unacknowledged=1, deliver=1, lag=5)
    found = until(
        lambda: without_rates(api.get("/api/groups/%2F")),
        # The numbers of the queues' messages come with their statistics, which are older than those of the consumers.
        lambda rows: (
            [(each["messages_unacknowledged"], each["lag"] is None) for each in rows] == [(6, False), (1, False)]
        ),
    )
    assert found == [held, idle]
    assert without_rates(api.get("/api/groups?sort=consumers")) == [idle, held]
    assert api("GET", "/api/groups/nosuch")[0] == 404
    for queue in ("one", "other"):
        broker.delete_queue(queue)
    until(lambda: api.get("/api/groups") == [])


def test_a_rate_is_that_between_two_requests(api, broker, consume):
    """A group's rate of deliveries is 0 at the first request, and afterwards that since an earlier one."""
    broker.declare_queue("rated")
    consume("rated", "rated")
    (first,) = until(lambda: api.get("/api/groups/%2F"))
    assert (first["deliver"], first["deliver_details"]) == (0, {"rate": 0.0})
    for _ in range(20):
        broker.publish(b"x", "rated")
    until(lambda: api.get("/api/groups/%2F")[0]["deliver_details"]["rate"] > 0)
    assert api.get("/api/groups/%2F")[0]["deliver"] == 20
    broker.delete_queue("rated")


def test_a_queue_with_priorities_has_no_lag(api, broker, consume):
    """The lag is null if a queue numbers the messages of each priority by itself."""
    broker.declare_queue("levels", arguments={"x-max-priority": 3})
    broker.publish(b"x", "levels", priority=2)
    consume("levels", "ranked")
    (found,) = until(lambda: api.get("/api/groups/%2F"), lambda rows: rows and rows[0]["messages_unacknowledged"] == 1)
    assert found["lag"] is None
    broker.delete_queue("levels")


def test_only_who_monitors_sees_groups(user):
    assert user("monitoring").get("/api/groups") == []
    assert user("management")("GET", "/api/groups/%2F")[0] == 401
