"""Which rows a node sends to its management process."""

import pika
import pytest

from warren import Broker
from warren.cli.node_client import NodeClient, Target

from ..conftest import PATIENCE, until


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "data", control_dir=str(tmp_path)) as broker:
        yield broker


@pytest.fixture
def counted(broker):
    """`counted()` reads the statistics once more, and returns the names of the queues in them."""
    with NodeClient(Target(broker.settings.node_name, control_dir=broker.settings.control_dir), PATIENCE) as node:

        def read():
            node.allow(PATIENCE)
            return [row["name"] for row in node.rows("statistics") if row["kind"] == "queue_stats"]

        yield read


def test_a_queue_that_had_a_turn_and_counts_the_same_is_not_sent_again(broker, counted):
    """Queues report to the memory monitor for some time after their last message. With 10,000 queues each of these
    turns had the management process fetch a row.
    """
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as client:
        channel = client.channel()
        channel.queue_declare("sent", durable=True)
        assert "sent" in counted()
        channel.queue_declare("sent", passive=True)
        assert counted() == []
        channel.basic_publish("", "sent", b"1")
        assert channel.queue_declare("sent", passive=True).method.message_count == 1
        until(counted, lambda names: names == ["sent"])
        until(counted, lambda names: not names)
        channel.queue_delete("sent")
        channel.queue_declare("sent", durable=True)
        assert counted() == ["sent"]
        channel.queue_delete("sent")
