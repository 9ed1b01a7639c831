"""Messages of indexed queues are found by key and by id, also when they have left their queue."""

import time

import pika
import pytest

from warren import Broker, BrokerError
from warren.actors.message_index import process as indexer_module

#: Seconds that a test waits for the index to have a message, because a machine may be slow.
PATIENCE = 300.0


@pytest.fixture(params=["lmdb", "hash"])
def broker(request, tmp_path):
    """A broker with each engine of the index; the files of `hash` are so small that there are several."""
    small = {"message_index_slots": 4, "message_index_entries": 16}
    with Broker(data_dir=str(tmp_path / "data"), message_index_engine=request.param, **small) as broker:
        broker.set_policy("indexed", "^indexed", {"message-index": "key"}, apply_to="queues")
        yield broker


@pytest.fixture
def channel(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def publish(channel, queue, body, **properties):
    properties = pika.BasicProperties(delivery_mode=2, **properties)
    channel.basic_publish("", queue, body.encode(), properties)


def awaited(find, is_good):
    """Call `find()` until its result is good: the index is written shortly after a message has arrived."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = find()
        if is_good(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def states(broker, key, queue="indexed"):
    return [row["state"] for row in broker.query(queue=queue, key=key)]


def becomes(broker, key, wanted, queue="indexed"):
    assert awaited(lambda: states(broker, key, queue), lambda found: found == wanted) == wanted


def test_ready_message_is_found_by_each_of_its_keys(broker, channel):
    """A ready message is found by each of its keys and by its id, with its content (QP-20, QP-22, QP-51, QP-53)."""
    channel.queue_declare("indexed", durable=True)
    publish(channel, "indexed", "the body", message_id="m-1", headers={"x-keys": "order-4711 shop-9"})
    publish(channel, "indexed", "another", message_id="m-2")
    for key in ("m-1", "order-4711", "shop-9"):
        becomes(broker, key, ["ready"])
    (row,) = broker.query(queue="indexed", key="order-4711")
    assert row["payload"] == "the body"
    assert (row["exchange"], row["routing_key"], row["seq"]) == ("", "indexed", 0)
    assert row["keys"] == ["m-1", "order-4711", "shop-9"]
    assert row["properties"]["headers"] == {"x-keys": "order-4711 shop-9"}
    assert broker.find(row["id"]) == [row]
    assert broker.find("m-1") == [row]
    assert broker.query(queue="indexed", key="4711") == []
    assert broker.query(queue="other", key="m-1") == []


def test_what_exceeds_the_limits_of_keys_is_not_indexed(broker, channel):
    """At most 16 keys of at most 255 bytes are indexed, and numbers and booleans are keys by their text (QP-20)."""
    broker.set_policy("limits", "^limited$", {"message-index": ["header:n", "header:yes", "header:x-keys"]})
    channel.queue_declare("limited", durable=True)
    many = " ".join(f"k{number}" for number in range(16))
    publish(channel, "limited", "body", headers={"n": 42, "yes": True, "x-keys": f"{'x' * 256} {many}"})
    becomes(broker, "k13", ["ready"], "limited")
    for key, found in (("42", 1), ("true", 1), ("k14", 0), ("x" * 256, 0)):
        assert len(broker.query(queue="limited", key=key)) == found, key


def test_too_many_searches_at_once_are_refused(broker, channel, monkeypatch):
    """QP-52: a search waits for a while, and is then refused with a text that says so."""
    monkeypatch.setattr(indexer_module, "MOST_SEARCHES", 0)
    monkeypatch.setattr(indexer_module, "SEARCH_WAIT", 0.05)
    with pytest.raises(BrokerError, match="searches of vhost '/' are under way; try again in a moment"):
        broker.query(queue="indexed", key="m")


def test_a_search_leaves_the_message_as_it_is(broker, channel):
    """A search takes nothing, sets no redelivered flag, and the id of the index is not added to the message (QP-25,
    QP-27).
    """
    channel.queue_declare("indexed", durable=True)
    publish(channel, "indexed", "body", message_id="m")
    becomes(broker, "m", ["ready"])
    method, properties, body = channel.basic_get("indexed", auto_ack=True)
    assert (method.redelivered, body) == (False, b"body")
    assert (properties.message_id, properties.headers) == ("m", None), "the id of the index is not added"


def test_what_became_of_a_message(broker, channel):
    """Each way out of a queue is shown as the state of the message (QP-26)."""
    channel.exchange_declare("graves", "fanout")
    channel.queue_declare("indexed", durable=True)
    for key in ("acked", "rejected", "unacked", "taken", "purged"):
        publish(channel, "indexed", key, message_id=key)
    tags = {}
    for _ in range(3):
        method, properties, _ = channel.basic_get("indexed")
        tags[properties.message_id] = method.delivery_tag
    channel.basic_ack(tags["acked"])
    channel.basic_reject(tags["rejected"], requeue=False)
    channel.basic_get("indexed", auto_ack=True)
    becomes(broker, "unacked", ["unacked"])
    becomes(broker, "purged", ["ready"])
    channel.queue_purge("indexed")
    becomes(broker, "purged", ["purged"])
    becomes(broker, "acked", ["acked"])
    becomes(broker, "rejected", ["dropped"])
    becomes(broker, "taken", ["acked"])
    becomes(broker, "unacked", ["unacked"])
    (row,) = broker.query(queue="indexed", key="acked")
    assert row["gone_at"] >= row["stored_at"]
    assert "payload" not in row


def test_expired_and_dead_lettered_messages(broker, channel):
    """Expired, dead-lettered and dropped messages are shown as such, a dead letter with its exchange (QP-26)."""
    channel.exchange_declare("graves", "fanout")
    channel.queue_declare("indexed.ttl", durable=True)
    channel.queue_declare("indexed.dlx", durable=True, arguments={"x-dead-letter-exchange": "graves"})
    channel.queue_declare("indexed.short", durable=True, arguments={"x-max-length": 1})
    for queue in ("indexed.ttl", "indexed.dlx"):
        publish(channel, queue, "short-lived", message_id="m", expiration="1")
    publish(channel, "indexed.short", "first", message_id="first")
    publish(channel, "indexed.short", "second", message_id="second")
    becomes(broker, "m", ["expired"], "indexed.ttl")
    becomes(broker, "m", ["dead-lettered"], "indexed.dlx")
    becomes(broker, "first", ["dropped"], "indexed.short")
    becomes(broker, "second", ["ready"], "indexed.short")
    (row,) = broker.query(queue="indexed.dlx", key="m")
    assert row["detail"] == "expired, to exchange 'graves'"


def test_message_that_a_consumer_gets_at_once(broker, channel):
    """A message that goes directly to a consumer and never waits in the queue is found, with acknowledgement and
    without.
    """
    for queue, is_automatic in (("indexed.acks", False), ("indexed.none", True)):
        channel.queue_declare(queue, durable=True)
        got = []
        channel.basic_consume(
            queue, lambda ch, method, props, body, got=got: got.append(method.delivery_tag), auto_ack=is_automatic
        )
        publish(channel, queue, "body", message_id="m")
        while not got:
            channel.connection.process_data_events(time_limit=1)
        becomes(broker, "m", ["acked"] if is_automatic else ["unacked"], queue)
        if not is_automatic:
            channel.basic_ack(got[0])
            becomes(broker, "m", ["acked"], queue)


def test_policy_that_comes_and_goes(broker, channel):
    """QP-20, QP-31, QP-35: a queue reports what it has when it becomes indexed, and leaves the index when it is no
    longer.
    """
    channel.queue_declare("late", durable=True)
    for number in range(600):
        publish(channel, "late", "body", correlation_id=f"c-{number}")
    broker.set_policy("late", "^late$", {"message-index": ["correlation-id"]}, apply_to="queues")
    becomes(broker, "c-599", ["ready"], "late")
    becomes(broker, "c-0", ["ready"], "late")
    broker.clear_policy("late")
    becomes(broker, "c-0", [], "late")
    broker.set_policy("late", "^late$", {"message-index": ["correlation-id"]}, apply_to="queues")
    becomes(broker, "c-0", ["ready"], "late")


def test_deleted_queue(broker, channel):
    """The messages of a deleted queue are found as deleted (QP-26, QP-35)."""
    channel.queue_declare("indexed", durable=True)
    publish(channel, "indexed", "body", message_id="m")
    becomes(broker, "m", ["ready"])
    channel.queue_delete("indexed")
    becomes(broker, "m", ["deleted"])


def test_queue_with_priorities(broker, channel):
    """The messages of a queue with priorities are found; their content is not shown, because the queue cannot be read
    by number.
    """
    channel.queue_declare("indexed", durable=True, arguments={"x-max-priority": 3})
    for priority in (0, 2):
        publish(channel, "indexed", "body", message_id="m", priority=priority)
    becomes(broker, "m", ["ready", "ready"])
    channel.basic_get("indexed", auto_ack=True)
    assert sorted(awaited(lambda: states(broker, "m"), lambda found: "acked" in found)) == ["acked", "ready"]


def test_time_range_and_limit(broker, channel):
    """Results are the newest first, and limited by a range of times and a number (QP-12, QP-41, QP-50, QP-53)."""
    channel.queue_declare("indexed", durable=True)
    for _ in range(5):
        publish(channel, "indexed", "body", message_id="m")
    becomes(broker, "m", ["ready"] * 5)
    rows = broker.query(queue="indexed", key="m")
    assert [row["seq"] for row in rows] == [4, 3, 2, 1, 0]
    assert [row["seq"] for row in broker.query(queue="indexed", key="m", max_num=2)] == [4, 3]
    stored = rows[2]["stored_at"]
    within = [row["seq"] for row in broker.query(queue="indexed", key="m", begin=stored, end=stored)]
    assert within == [row["seq"] for row in rows if row["stored_at"] == stored]
    with pytest.raises(BrokerError, match="later than its end"):
        broker.query(queue="indexed", key="m", begin=2, end=1)
    with pytest.raises(BrokerError, match="from 1 to 64"):
        broker.query(queue="indexed", key="m", max_num=65)


def test_clean_stop_keeps_the_index(tmp_path):
    """After a clean stop and a start, messages are found, and those that had left as well."""
    for is_first in (True, False):
        with Broker(data_dir=str(tmp_path / "data")) as broker:
            if is_first:
                broker.set_policy("indexed", "^indexed", {"message-index": "key"}, apply_to="queues")
                connection = pika.BlockingConnection(pika.URLParameters(broker.url))
                channel = connection.channel()
                channel.queue_declare("indexed", durable=True)
                publish(channel, "indexed", "gone", message_id="gone")
                publish(channel, "indexed", "kept", message_id="kept")
                channel.basic_get("indexed", auto_ack=True)
                connection.close()
            else:
                becomes(broker, "kept", ["ready"])
                becomes(broker, "gone", ["acked"])


def test_node_in_memory_has_no_index():
    """A node that keeps everything in memory has no index, and refuses a query (QP-50)."""
    with Broker() as broker, pytest.raises(BrokerError, match="keeps everything in memory"):
        broker.query(queue="q", key="k")


def test_messages_of_a_stream(broker, channel):
    """The messages of a stream stay ready when consumers have read them, and are shown as dropped when their segment is
    deleted.
    """
    arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 100, "x-max-length-bytes": 300}
    channel.queue_declare("indexed", durable=True, arguments=arguments)
    publish(channel, "indexed", "first" * 30, message_id="m-1")
    publish(channel, "indexed", "second", message_id="m-2")
    becomes(broker, "m-2", ["ready"])
    (row,) = broker.query(queue="indexed", key="m-1")
    assert (row["state"], row["payload"], row["seq"]) == ("ready", "first" * 30, 0)
    for _ in range(3):
        publish(channel, "indexed", "more" * 30)
    becomes(broker, "m-1", ["dropped"])


def test_an_index_is_made_anew_by_another_engine(tmp_path, caplog):
    """When another engine is set, the index is made anew: the queue reports the messages that it has."""
    data = str(tmp_path / "data")
    for start, engine in enumerate(("lmdb", "hash", "hash-java", "lmdb")):
        sizes = {"message_index_slots": 1000, "message_index_entries": 4000}
        with Broker(data_dir=data, message_index_engine=engine, **sizes) as broker:
            broker.set_policy("indexed", "^indexed", {"message-index": "key"}, apply_to="queues")
            broker.declare_queue("indexed", durable=True)
            if start == 0:
                broker.publish("body", "indexed", delivery_mode=2, message_id="m-1")
            becomes(broker, "m-1", ["ready"])
    assert "is made anew: the engine 'hash-java' has made it, not 'lmdb'" in caplog.text
