"""The planner of a query that deletes warns of queues whose messages others take as well (SP-62)."""

import logging

from warren.amqp import methods
from warren.spark.options import ConnectionOptions, StreamOptions
from warren.spark.reading.planner import Planner
from warren.spark.wire import BrokerConnection


def test_consumers_of_a_queue_from_which_a_query_deletes(broker, queue, caplog):
    """The user is warned once of each queue with consumers, by a query that deletes only."""
    for name in ("a", "b", "c"):
        broker.declare_queue(f"{queue}.{name}")
    consumers = []
    planners = []
    try:
        for name, count in ("a", 2), ("b", 1):
            for _ in range(count):
                consumers.append(connection := BrokerConnection(ConnectionOptions.parse({"url": broker.url}), "test"))
                connection.call(methods.BasicConsume(queue=f"{queue}.{name}"), methods.BasicConsumeOk)
        with caplog.at_level(logging.WARNING, "warren.spark"):
            for delete in ("false", "true"):
                options = StreamOptions.parse({"url": broker.url, "pattern": f"{queue}.*", "deleteOnCommit": delete})
                planners.append(Planner(options))
                for _ in range(2):
                    assert len(planners[-1].states()) == 3
        found = [record.getMessage() for record in caplog.records if record.name.startswith("warren.spark")]
        assert [text.partition(", and")[0] for text in found] == [
            f"queue '{queue}.a' has 2 consumers",
            f"queue '{queue}.b' has 1 consumer",
        ]
    finally:
        for planner in planners:
            planner.close()
        for connection in consumers:
            connection.abort()
