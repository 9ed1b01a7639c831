"""While a client is connected, each of warren's objects has all fields of the object that RabbitMQ 3.10.8 answered.

The client does what the recorded one did: it publishes five messages with confirms to a topic exchange with one queue,
and five to no queue, and holds three messages of a consumer with a prefetch of 3.
"""

import json
from urllib.parse import quote

import pika
import pytest

from ..conftest import until
from .answers import FOLDER, compare

RECORDED = json.loads((FOLDER / "rabbitmq-3.10.8-with-a-client.json").read_text("utf-8"))

RANGES = "&".join(f"{name}_age=60&{name}_incr=5" for name in ("msg_rates", "lengths", "data_rates", "node_stats"))

#: Counters of a node that are always 0 in warren, so that they have no `_details` (docs/management.md).
UNCOUNTED = (
    *("gc_bytes_reclaimed", "io_read_count", "io_read_avg_time", "io_write_count", "io_write_avg_time"),
    *("io_sync_avg_time", "io_seek_count", "io_seek_avg_time", "io_reopen_count"),
    *("mnesia_ram_tx_count", "mnesia_disk_tx_count", "queue_index_read_count", "queue_index_write_count"),
)

#: Keys of RabbitMQ's `backing_queue_status` that warren has as well.
BACKING = ("mode", "len", "next_seq_id", "q1", "q2", "delta", "q3", "q4")


@pytest.fixture(scope="module")
def names(broker, api):
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "named"}
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("rec.x", "topic", durable=True)
        channel.queue_declare("rec.q", durable=True, arguments={"x-max-length": 100})
        channel.queue_bind("rec.q", "rec.x", "a.#")
        channel.queue_declare("rec.ex", exclusive=True)
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume("rec.q", lambda *delivery: None, consumer_tag="tag")
        for _ in range(5):
            channel.basic_publish("rec.x", "a.b", b"x", pika.BasicProperties(delivery_mode=2))
            channel.basic_publish("", "nowhere", b"x")
        channel.basic_get("rec.ex")

        (row,) = until(lambda: api.get("/api/connections"))
        found = {
            "NAME": quote(row["name"], safe=""),
            "CHANNEL": quote(f"{row['name']} (1)", safe=""),
            "NODE": broker.settings.node_name,
            "RANGES": RANGES,
        }
        counters = {
            "overview": "publish",
            "queues/%2F/rec.q": "publish",
            "exchanges/%2F/rec.x": "publish_in",
            f"channels/{found['CHANNEL']}": "publish",
        }

        def is_seen():
            rows = {path: api("GET", f"/api/{path}?{RANGES}")[1] for path in counters}
            return all(
                "samples" in rows[path].get("message_stats", {}).get(f"{name}_details", {})
                for path, name in counters.items()
            )

        until(is_seen)
        yield found


def without(value, *keys):
    """The recorded object without the fields that warren lacks."""
    return {name: each for name, each in value.items() if name not in keys}


@pytest.mark.parametrize("recorded", RECORDED, ids=[each["request"] for each in RECORDED])
def test_what_rabbitmq_answers_while_a_client_is_connected(api, names, recorded):
    """Statuses, fields and their types are those of RabbitMQ, also with pages and samples (CM-251, CM-260 to CM-267,
    CM-270 to CM-286).
    """
    method, path = recorded["request"].split(" ", 1)
    for name, value in names.items():
        path = path.replace(name, value)
    status, answer = api(method, path)
    assert status == recorded["status"], answer
    theirs = recorded["answer"]
    if status >= 400:
        assert answer == theirs
        return
    if "/nodes" in path and isinstance(theirs, dict):
        theirs = without(theirs, *(f"{each}_details" for each in UNCOUNTED))
    compare(theirs, answer, recorded["request"])


def test_the_state_of_the_backing_queue(api, names):
    """`backing_queue_status` and the queue's counts have the values that RabbitMQ gave for the same state (CM-274)."""
    found = api.get("/api/queues/%2F/rec.q")
    theirs = next(each["answer"] for each in RECORDED if each["request"].startswith("GET /api/queues/%2F/rec.q?"))
    assert found["backing_queue_status"] == {key: theirs["backing_queue_status"][key] for key in BACKING}
    for key in ("messages", "messages_ready", "messages_unacknowledged", "message_bytes", "consumers"):
        assert found[key] == theirs[key], key
