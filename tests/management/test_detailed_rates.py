"""With `management_rates_mode` `detailed` the API has what goes between single exchanges, channels and queues (CM-275,
CM-278, CM-279). Without, these lists are empty.
"""

import pika
import pytest

from warren import Broker
from warren.actors.statistics import pair_counts
from warren.actors.statistics.counts import NodeCounts
from warren.actors.statistics.pair_counts import PairCounts

from .conftest import Api, ports, until

SETTINGS = {"management": True, "management_port": 0, "prometheus_port": 0, "management_interval": 100}


@pytest.fixture(scope="module")
def broker():
    with Broker(**SETTINGS, management_rates_mode="detailed") as broker:
        ports(broker)
        yield broker


@pytest.fixture
def channel(broker):
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "the client"}
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def published(rows, key):
    return {row[key]["name"]: row["stats"]["publish"] for row in rows}


def test_what_goes_between_exchanges_channels_and_queues(api, broker, channel):
    """A fanout exchange gets 3 messages and the default one 2; one queue has both, and is consumed from."""
    for name in ("both", "one"):
        channel.queue_declare(name)
    channel.exchange_declare("all", "fanout")
    for name in ("both", "one"):
        channel.queue_bind(name, "all")
    for _ in range(3):
        channel.basic_publish("all", "", b"x")
    for _ in range(2):
        channel.basic_publish("", "both", b"x")
    channel.basic_publish("all", "", b"x", mandatory=True)
    deliveries = channel.consume("both", inactivity_timeout=60)
    for _ in range(4):
        method, _, _ = next(deliveries)
    channel.basic_ack(method.delivery_tag, multiple=True)
    channel.connection.process_data_events(0)

    row = until(
        lambda: api.get("/api/queues/%2F/both"),
        lambda row: row["deliveries"] and row["deliveries"][0]["stats"].get("ack") == 4,
    )
    assert published(row["incoming"], "exchange") == {"": 2, "all": 4}
    ((stats, details),) = [(each["stats"], each["channel_details"]) for each in row["deliveries"]]
    assert (stats["deliver"], stats["deliver_get"], stats["ack"]) == (6, 6, 4)
    assert details["number"] == 1 and details["user"] == "guest" and details["peer_host"] == "127.0.0.1"
    assert published(api.get("/api/queues/%2F/one")["incoming"], "exchange") == {"all": 4}

    shown = api.get("/api/exchanges/%2F/all")
    assert published(shown["outgoing"], "queue") == {"both": 4, "one": 4}
    assert [(each["channel_details"]["name"], each["stats"]["publish"]) for each in shown["incoming"]] == [
        (details["name"], 4)
    ]
    (own,) = [each for each in api.get("/api/channels") if each["name"] == details["name"]]
    single = api.get(f"/api/channels/{own['name'].replace(' ', '%20').replace('>', '%3E')}")
    assert published(single["publishes"], "exchange") == {"": 2, "all": 4}
    assert [(each["queue"]["name"], each["stats"]["deliver"]) for each in single["deliveries"]] == [("both", 6)]
    assert api.get("/api/overview")["rates_mode"] == "detailed"


def test_what_a_closed_channel_has_counted_stays(api, broker, channel):
    """A queue keeps what came from each exchange when the channel is closed, and loses it when it is deleted."""
    channel.queue_declare("kept")
    channel.basic_publish("", "kept", b"x")
    until(lambda: published(api.get("/api/queues/%2F/kept")["incoming"], "exchange") == {"": 1})
    other = channel.connection.channel()
    other.basic_publish("", "kept", b"x")
    until(lambda: published(api.get("/api/queues/%2F/kept")["incoming"], "exchange") == {"": 2})
    other.close()
    until(lambda: len(api.get("/api/channels")) == 1)
    assert published(api.get("/api/queues/%2F/kept")["incoming"], "exchange") == {"": 2}
    channel.queue_delete("kept")
    channel.queue_declare("kept")
    until(lambda: api.get("/api/queues/%2F/kept")["incoming"] == [])


def test_rates_have_samples(api, broker, channel):
    """The rates of a pair have samples if a request asks for them (CM-249)."""
    channel.queue_declare("sampled")
    path = "/api/queues/%2F/sampled?msg_rates_age=60&msg_rates_incr=5"
    for _ in range(3):
        channel.basic_publish("", "sampled", b"x")

    def samples():
        incoming = api.get(path)["incoming"]
        return incoming and [each["sample"] for each in incoming[0]["stats"]["publish_details"].get("samples", ())]

    until(samples, lambda found: found and found[0] == 3)
    channel.queue_delete("sampled")


def test_a_channel_counts_a_bounded_number_of_pairs(monkeypatch):
    """Beyond the bound a channel still counts for the node, and its pairs go on counting."""
    monkeypatch.setattr(pair_counts, "MOST", 3)

    class Row:
        def __init__(self, queue_id):
            self.queue_id = queue_id

    node = NodeCounts()
    counts = PairCounts(node)
    for number in range(5):
        counts.published("/", "x", 2, [Row(f"q{number}")])
    counts.published("/", "x", 1, [Row("q0"), Row("q9")])
    assert counts.items()["publishes"] == [["x", "", 11], ["x", "q0", 3], ["x", "q1", 2]]
    assert node.publish == 11
    assert [counts.of_queue(f"q{number}") is None for number in range(4)] == [False, False, False, True]


def test_without_them_the_lists_are_empty(tmp_path):
    with Broker(**SETTINGS) as broker:
        api = Api(ports(broker)["http"])
        broker.declare_queue("plain")
        broker.publish(b"x", "plain")
        row = until(lambda: api.get("/api/queues/%2F/plain"), lambda row: row.get("messages") == 1)
        assert row["incoming"] == row["deliveries"] == []
        assert api.get("/api/overview")["rates_mode"] == "basic"
