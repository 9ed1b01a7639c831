"""A query may begin at a time: it finds the number of the first message that arrived then or later, although messages
have left the queue.
"""

import json
import time
from datetime import UTC, datetime

import pika
import pytest

from warren.spark.errors import SparkSourceError
from warren.spark.options import BatchOptions, StreamOptions
from warren.spark.reading import arrivals
from warren.spark.reading.batch_reader import BatchReader
from warren.spark.reading.stream_reader import StreamReader
from warren.spark.wire import BrokerConnection


def batch_reader(broker, row_plan, queue, **given):
    options = BatchOptions.parse({"url": broker.url, "queues": queue, "columns": "queue,seq,arrived", **given})
    return BatchReader(options, row_plan(options))


def rows(reader):
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


def publish_at_times(broker, queue, count, at_a_time):
    """Publish `count` messages in bursts of `at_a_time`, which arrive at different times."""
    for number in range(count):
        broker.publish(b"x", queue)
        if number % at_a_time == at_a_time - 1:
            broker.wait_idle()
            time.sleep(0.002)  # the clock goes on, so the next burst arrives later
    broker.wait_idle()


def micros(moment):
    return int(moment.timestamp() * 1_000_000 + 0.5)


def found_at(broker, row_plan, queue, moment):
    iso = datetime.fromtimestamp(moment / 1_000_000, UTC).isoformat()
    return [row["seq"] for row in rows(batch_reader(broker, row_plan, queue, startingTimestamp=iso))]


def test_a_batch_begins_at_any_time(broker, queue, row_plan):
    """A query that begins at a time has the rows that a filter on `arrived` finds, for every time between two messages
    (SP-50).
    """
    broker.declare_queue(queue)
    publish_at_times(broker, queue, 60, 5)
    everything = rows(batch_reader(broker, row_plan, queue))
    times = sorted({micros(row["arrived"]) for row in everything})
    assert len(times) >= 10
    for moment in [0, *times, *(each + 1 for each in times)]:
        expected = [row["seq"] for row in everything if micros(row["arrived"]) >= moment]
        assert found_at(broker, row_plan, queue, moment) == expected


def test_numbers_that_are_gone_do_not_mislead(broker, queue, row_plan, monkeypatch):
    """The right number is found although consumers have taken a long stretch and single messages before."""
    monkeypatch.setattr(arrivals, "NEAR", 2)
    broker.declare_queue(queue)
    publish_at_times(broker, queue, 40, 2)
    before = rows(batch_reader(broker, row_plan, queue))
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    tags = {}
    for number in range(40):
        method, _, _ = channel.basic_get(queue)
        tags[number] = method.delivery_tag
    for number in [*range(0, 3), *range(8, 31), 34, 36]:
        channel.basic_ack(tags[number])
    for number in [3, 4, 5, 6, 7, 31, 32, 33, 35, 37, 38, 39]:
        channel.basic_nack(tags[number], requeue=True)
    connection.close()
    broker.wait_idle()
    there = {3, 4, 5, 6, 7, 31, 32, 33, 35, 37, 38, 39}
    for row in before:
        moment = micros(row["arrived"])
        expected = [each["seq"] for each in before if micros(each["arrived"]) >= moment and each["seq"] in there]
        assert found_at(broker, row_plan, queue, moment) == expected


def test_a_stream_begins_at_a_time_and_keeps_its_beginning(broker, queue, row_plan):
    broker.declare_queue(queue)
    broker.declare_queue(f"{queue}.empty")
    publish_at_times(broker, queue, 20, 5)
    all_rows = rows(batch_reader(broker, row_plan, queue))
    moment = micros(all_rows[10]["arrived"])
    first = min(row["seq"] for row in all_rows if micros(row["arrived"]) >= moment)
    given = {"url": broker.url, "queues": f"{queue},{queue}.empty", "columns": "queue,seq"}
    iso = datetime.fromtimestamp(moment / 1_000_000, UTC).replace(tzinfo=None).isoformat()
    options = StreamOptions.parse({**given, "startingTimestamp": iso})
    reader = StreamReader(options, row_plan(options))
    try:
        places = reader.initialOffset()["queues"]
        assert {name: place["next"] for name, place in places.items()} == {queue: first, f"{queue}.empty": 0}
        publish_at_times(broker, queue, 5, 5)
        assert json.dumps(reader.initialOffset()["queues"]) == json.dumps(places)
    finally:
        reader.stop()


def test_a_search_reads_few_messages(broker, queue, row_plan, monkeypatch):
    """The binary search opens as many readers as the number of messages has bits."""
    broker.declare_queue(queue)
    for _ in range(5000):
        broker.publish(b"x", queue)
    broker.wait_idle()
    opened = []
    consume = BrokerConnection.consume
    monkeypatch.setattr(
        BrokerConnection, "consume", lambda self, *given, **more: opened.append(given) or consume(self, *given, **more)
    )
    last = rows(batch_reader(broker, row_plan, queue, startingOffsets=json.dumps({queue: -1})))[0]
    opened.clear()
    reader = batch_reader(broker, row_plan, queue, startingTimestamp=str(micros(last["arrived"]) // 1000))
    reader.partitions()
    probes = [given for given in opened if "x-warren-read-from" in given[1]]
    assert 10 <= len(probes) <= 13


def test_a_broker_that_knows_no_times_is_named(broker, queue, row_plan, monkeypatch):
    broker.declare_queue(queue)
    publish_at_times(broker, queue, 1, 1)
    monkeypatch.setattr("warren.actors.connection.handshake.WARREN_FEATURES", ("read-blocks", "catalogue"))
    with pytest.raises(SparkSourceError, match="does not know when messages arrived") as caught:
        batch_reader(broker, row_plan, queue, startingTimestamp="0").partitions()
    assert caught.value.code == "E4"
