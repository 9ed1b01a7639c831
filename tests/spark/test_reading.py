"""Reading queues of a running broker by the planner and the task, without Spark."""

import json
import threading

import pytest
from pyspark.sql.datasource import InputPartition

from warren import Broker
from warren.actors.channel.consuming.catalogue import Catalogue
from warren.actors.channel.queue_links import QueueLinks
from warren.amqp.fields import table_from
from warren.amqp.properties import Properties, encode_properties
from warren.routing.phrases import queue_unavailable
from warren.spark.errors import SparkSourceError
from warren.spark.options import BatchOptions
from warren.spark.reading import range_reading as reading
from warren.spark.reading.batch_reader import BatchReader, FilteringBatchReader, ask_states
from warren.spark.reading.offsets import QueueRange
from warren.spark.reading.plain_reading import NumberRemover
from warren.spark.reading.range_reading import RangeReading

BOTH = pytest.mark.parametrize("mode", ["plain", "blocks"])


@pytest.fixture(autouse=True)
def no_password(monkeypatch):
    monkeypatch.delenv("WARREN_PASSWORD", raising=False)


def options(broker, queue, **given):
    return BatchOptions.parse({"url": broker.url, "queue": queue} | given)


def rows(row_plan, found):
    """All rows of a reader, from one partition after the other."""
    reader = BatchReader(found, row_plan(found))
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


def everything_of(broker, queue):
    """Publish messages of all kinds, and return the rows that they must become."""
    broker.declare_queue(queue)
    broker.declare_exchange(f"{queue}.x", "topic")
    broker.bind(queue, f"{queue}.x", "#")
    big = bytes(range(256)) * 1200  # three frames
    published = [
        (b"", "", {}),
        (b"one", "", {"delivery_mode": 2}),
        (b"two", "a.b", {"headers": {"n": 1, "t": True, "s": "text", "d": {"x": [1, "y"]}, "v": None}}),
        (big, "a.c", {"content_type": "text/plain", "message_id": "m1", "priority": 3, "timestamp": 1_700_000_000}),
        (b"two", "a.b", {"headers": {}}),
    ]
    for body, key, properties in published:
        if key:
            broker.publish(body, key, exchange=f"{queue}.x", **properties)
        else:
            broker.publish(body, queue, **properties)
    return published


@BOTH
def test_every_column_of_every_kind_of_message(broker, queue, row_plan, mode):
    published = everything_of(broker, queue)
    found = rows(row_plan, options(broker, queue, columns="all", readMode=mode, minPartitions="1"))
    assert [row["seq"] for row in found] == [0, 1, 2, 3, 4]
    assert [row["body"] for row in found] == [body for body, _, _ in published]
    assert [row["size"] for row in found] == [len(body) for body, _, _ in published]
    assert [row["routing_key"] for row in found] == [key or queue for _, key, _ in published]
    assert [row["exchange"] for row in found] == [f"{queue}.x" if key else "" for _, key, _ in published]
    assert {row["queue"] for row in found} == {queue}
    assert [row["persistent"] for row in found] == [False, True, False, False, False]
    assert dict(found[2]["headers"]) == {"n": "1", "t": "true", "s": "text", "d": '{"x":[1,"y"]}', "v": None}
    assert found[0]["headers"] is None
    assert (found[3]["content_type"], found[3]["message_id"], found[3]["priority"]) == ("text/plain", "m1", 3)
    assert found[3]["timestamp"].timestamp() == 1_700_000_000
    assert found[3]["properties"] == encode_properties(
        Properties(content_type="text/plain", priority=3, message_id="m1", timestamp=1_700_000_000)
    )
    assert found[2]["properties"] == encode_properties(Properties(headers=table_from(published[2][2]["headers"])))
    assert {row["redelivered"] for row in found} == {False}
    # A message's arrival is known only if it is read in a block.
    assert [row["arrived"] is None for row in found] == [mode == "plain"] * 5
    assert found[3]["routing_keys"] == ["a.c"]


def test_both_ways_of_reading_make_equal_rows(broker, queue, row_plan):
    everything_of(broker, queue)
    # The two ways of reading differ in what only blocks contain: arrivals, message ids and empty tables.
    columns = ",".join(
        name for name in row_plan(options(broker, queue, columns="all")).schema.names if name != "arrived"
    )
    plain, blocks = (
        rows(row_plan, options(broker, queue, columns=columns, readMode=mode)) for mode in ("plain", "blocks")
    )
    for row in (*plain, *blocks):
        # An empty header table cannot be told from the one that the broker adds for the number.
        row["properties"] = row["properties"] if row["headers"] else b""
        row["headers"] = row["headers"] or None
    assert plain == blocks


def test_deliveries_of_one_form_are_taken_at_once(broker, queue, row_plan, monkeypatch):
    """Without blocks, messages that differ only in their bodies are not decoded one by one; all others are."""
    broker.declare_queue(queue)
    kinds = [{"message_id": "a"}, {"message_id": "b", "headers": {"k": "v"}}]
    sizes = [*range(1, 400), *[7] * 400, 0, *range(400, 1, -1), 300_000, *[9] * 300]
    for place, size in enumerate(sizes):
        broker.publish(bytes([place % 251]) * size, queue, **kinds[place // 500 % 2])
    for place in range(50):
        broker.publish(b"each its own", queue, message_id=f"m{place}")
    for _ in range(7):
        broker.get(queue)
    singles = []
    one = NumberRemover.__call__
    monkeypatch.setattr(NumberRemover, "__call__", lambda self, content: singles.append(1) or one(self, content))
    columns = "seq,body,message_id,headers,exchange,routing_key,redelivered"
    plain, blocks = (
        rows(row_plan, options(broker, queue, columns=columns, readMode=mode)) for mode in ("plain", "blocks")
    )
    assert plain == blocks and len(plain) == len(sizes) + 50 - 7
    assert len(singles) < 150


@BOTH
def test_a_dead_letter_says_why_it_died(broker, queue, row_plan, mode):
    broker.declare_queue(queue)
    broker.declare_queue(f"{queue}.a", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
    broker.publish("late", f"{queue}.a", expiration="0")
    broker.wait_idle()
    (row,) = rows(row_plan, options(broker, queue, columns="body,x_death", readMode=mode))
    (death,) = row["x_death"]
    assert (row["body"], death["queue"], death["reason"], death["count"]) == (b"late", f"{queue}.a", "expired", 1)
    assert death["routing_keys"] == [f"{queue}.a"] and death["time"] is not None


@BOTH
def test_what_was_consumed_meanwhile_is_passed_over(broker, queue, row_plan, mode):
    broker.declare_queue(queue)
    for number in range(30):
        broker.publish(str(number), queue)
    found = options(broker, queue, readMode=mode, columns="seq,body")
    reader = BatchReader(found, row_plan(found))
    partitions = reader.partitions()
    for _ in range(10):
        broker.get(queue)
    numbers = [row["seq"] for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    assert numbers == list(range(10, 30))


@BOTH
def test_strict_reading_names_what_is_gone(broker, queue, row_plan, mode):
    broker.declare_queue(queue)
    for number in range(30):
        broker.publish(str(number), queue)
    found = options(broker, queue, readMode=mode, columns="seq", failOnDataLoss="true")
    reader = BatchReader(found, row_plan(found))
    (partition,) = reader.partitions()
    for _ in range(10):
        broker.get(queue)
    with pytest.raises(SparkSourceError) as caught:
        list(reader.read(partition))
    assert caught.value.code == "E8"
    assert f"queue '{queue}': 10 messages left unread (numbers 0 to 9)" in str(caught.value)


@BOTH
def test_a_queue_that_was_declared_again_has_no_rows_of_the_range(broker, queue, row_plan, mode):
    """If a queue is declared again between planning and reading, the reader gets none of the new queue's messages."""
    broker.declare_queue(queue)
    broker.publish("old", queue)
    strict, lenient = (
        options(broker, queue, readMode=mode, columns="body", failOnDataLoss=flag) for flag in ("true", "false")
    )
    readers = [BatchReader(found, row_plan(found)) for found in (strict, lenient)]
    partitions = [reader.partitions() for reader in readers]
    broker.delete_queue(queue)
    broker.declare_queue(queue)
    for _ in range(3):
        broker.publish("new", queue)
    with pytest.raises(SparkSourceError, match="it was deleted and declared again"):
        list(readers[0].read(*partitions[0]))
    assert list(readers[1].read(*partitions[1])) == []


@BOTH
@pytest.mark.parametrize("flag", ["true", "false"])
def test_a_queue_that_does_not_run_is_waited_for(broker, queue, row_plan, monkeypatch, mode, flag):
    """A queue whose node is down still has its messages. So a task tries again until it runs, and neither reports a
    loss nor passes the messages over.
    """
    monkeypatch.setattr(reading, "PAUSES", (0.01, 0.01))
    broker.declare_queue(queue)
    broker.publish("x", queue)
    found = options(broker, queue, readMode=mode, columns="seq", failOnDataLoss=flag)
    reader = BatchReader(found, row_plan(found))
    (partition,) = reader.partitions()
    refusals, row = [queue_unavailable("/", queue, "down", "a")] * 2, QueueLinks.row

    def unavailable(self, name):
        if name == queue and refusals:
            raise refusals.pop()
        return row(self, name)

    monkeypatch.setattr(QueueLinks, "row", unavailable)
    assert [row["seq"] for batch in reader.read(partition) for row in batch.to_pylist()] == [0]
    refusals += [queue_unavailable("/", queue, "crashed", "a")] * 1000
    hasty = options(broker, queue, readMode=mode, columns="seq", failOnDataLoss=flag, reconnectTimeout="20ms")
    with pytest.raises(SparkSourceError, match="has crashed and failed to restart for 0.02 s") as caught:
        list(BatchReader(hasty, row_plan(hasty)).read(partition))
    assert caught.value.code == "E5"


def test_a_sharded_queue_is_not_read_without_one_of_its_shards(broker, queue, row_plan, monkeypatch):
    """The catalogue leaves out a shard whose node is down. The query must not read the other shards alone."""
    broker.declare_queue(queue, durable=True, arguments={"x-warren-shards": 2})
    found = options(broker, queue, columns="seq")
    assert len({row.shard_of for row in ask_states(found).values()}) == 1

    def without_one(self, row):
        raise queue_unavailable("/", f"{row.name} shard", "down", "a")

    async def wanted(self, request, wanted=Catalogue._wanted):
        return (await wanted(self, request))[1:]

    monkeypatch.setattr(Catalogue, "_wanted", wanted)
    monkeypatch.setattr(QueueLinks, "shards", without_one)
    with pytest.raises(SparkSourceError, match="is down or inaccessible") as caught:
        ask_states(found)
    assert caught.value.code == "E5"


@BOTH
@pytest.mark.parametrize("how", ["purged", "deleted", "declared again"])
def test_a_queue_with_a_long_name_that_lost_its_messages(broker, queue, row_plan, mode, how):
    """The broker cuts the text of a refusal behind a long name. A reader without `failOnDataLoss` still finds out that
    it must pass over the messages.
    """
    name = queue.ljust(240, "n")
    broker.declare_queue(name)
    broker.publish("x", name)
    found = options(broker, name, readMode=mode, columns="seq")
    reader = BatchReader(found, row_plan(found))
    (partition,) = reader.partitions()
    if how == "purged":
        broker.purge(name)
    else:
        broker.delete_queue(name)
    if how == "declared again":
        broker.declare_queue(name)
    assert list(reader.read(partition)) == []


@BOTH
def test_a_publisher_cannot_choose_the_number_of_its_message(broker, queue, row_plan, mode):
    """Properties that look like the header with which the broker numbers messages do not change the numbers."""
    broker.declare_queue(queue)
    number = "\x0cx-warren-seqlAAAAAAAA"
    for properties in ({}, {"message_id": number}, {"headers": {"x-warren-seq": 7, "a": number}}, {"app_id": number}):
        for _ in range(3):
            broker.publish("x", queue, **properties)
    found = rows(row_plan, options(broker, queue, readMode=mode, columns="seq,message_id", minPartitions="1"))
    assert [row["seq"] for row in found] == list(range(12))
    assert [row["message_id"] for row in found] == [*[None] * 3, *[number] * 3, *[None] * 6]


@BOTH
def test_ranges_and_columns_without_bodies(broker, queue, row_plan, mode):
    broker.declare_queue(queue)
    for number in range(100):
        broker.publish(str(number), queue, message_id=f"m{number}")
    given = {"columns": "seq,message_id,size", "readMode": mode}
    found = rows(row_plan, options(broker, queue, startingOffsets=f'{{"{queue}": -10}}', **given))
    assert [(row["seq"], row["message_id"], row["size"]) for row in found] == [(n, f"m{n}", 2) for n in range(90, 100)]
    found = rows(row_plan, options(broker, queue, endingOffsets=f'{{"{queue}": 5}}', **given))
    assert [row["seq"] for row in found] == [0, 1, 2, 3, 4]


def test_offsets_of_a_queue_that_is_not_read_are_refused(broker, queue, row_plan):
    """A wrong name in an offset would have the query read the queue that was meant from another number."""
    broker.declare_queue(queue)
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(SparkSourceError, match=f"'{name}'.*names the queue 'ordres'.*It reads ") as caught:
            rows(row_plan, options(broker, queue, **{name: f'{{"ordres": 5, "{queue}": 0}}'}))
        assert caught.value.code == "E4"


@BOTH
def test_many_partitions_have_every_message_once(broker, queue, row_plan, mode):
    broker.declare_queue(queue)
    for number in range(500):
        broker.publish(bytes(number), queue)
    found = rows(row_plan, options(broker, queue, maxMessagesPerPartition="37", readMode=mode, columns="seq,body"))
    assert [(row["seq"], len(row["body"])) for row in found] == [(number, number) for number in range(500)]


def test_bodies_as_text_and_json(broker, queue, row_plan):
    broker.declare_queue(queue)
    for body in (b'{"id": 1, "total": 2.5}', b"{\n}", b"broken", b'{"id": 4, "more": [1]}', b"\xff"):
        broker.publish(body, queue)
    json_options = {"bodyFormat": "json", "bodySchema": "id bigint, total double"}
    found = rows(row_plan, options(broker, queue, columns="body,body_error", **json_options))
    assert [row["body"] for row in found] == [
        {"id": 1, "total": 2.5},
        {"id": None, "total": None},
        None,
        {"id": 4, "total": None},
        None,
    ]
    assert [row["body_error"] is None for row in found] == [True, True, False, True, False]
    with pytest.raises(SparkSourceError) as caught:
        rows(row_plan, options(broker, queue, columns="body", badBodies="fail", **json_options))
    assert caught.value.code == "E9" and "number 2: the body is not JSON of 'id bigint, total double'" in str(
        caught.value
    )
    texts = rows(row_plan, options(broker, queue, columns="body,body_error", bodyFormat="text"))
    assert texts[4]["body"] == "\ufffd" and "not UTF-8" in texts[4]["body_error"]
    nulls = rows(row_plan, options(broker, queue, columns="body", bodyFormat="text", badBodies="null"))
    assert [row["body"] for row in nulls][2:] == ["broken", '{"id": 4, "more": [1]}', None]


def test_filters_shrink_the_ranges(broker, queue, row_plan):
    from pyspark.sql.datasource import EqualTo, GreaterThan, IsNull, LessThanOrEqual

    broker.declare_queue(queue)
    for number in range(50):
        broker.publish(str(number), queue)
    found = options(broker, queue, pushFilters="true", columns="seq")
    reader = FilteringBatchReader(found, row_plan(found))
    left = IsNull(("body",))
    taken = [GreaterThan(("seq",), 20), LessThanOrEqual(("seq",), 30), EqualTo(("queue",), queue), left]
    assert list(reader.pushFilters(taken)) == [left]
    assert sum(partition.piece.next - partition.piece.first for partition in reader.partitions()) == 10
    other = FilteringBatchReader(found, row_plan(found))
    assert list(other.pushFilters([EqualTo(("queue",), "another")])) == []
    assert other.partitions() == []


def test_a_restarted_broker_fails_no_task(tmp_path, row_plan):
    """When the broker is restarted, the task connects again and goes on after the last part that it has passed on."""
    with Broker(port=0, data_dir=tmp_path / "data") as first:
        first.declare_queue("orders", durable=True)
        for _ in range(5000):
            first.publish(bytes(500), "orders", delivery_mode=2)
        first.wait_idle()
        port = first.port
        found = options(first, "orders", readMode="plain", columns="seq,body", reconnectTimeout="120s")
        batches = RangeReading(found, QueueRange("orders", 0, 5000, "", 0), row_plan(found), True, "test").batches()
        numbers = next(batches).column("seq").to_pylist()
    again = threading.Thread(target=_run_again, args=(tmp_path / "data", port, done := threading.Event()))
    again.start()
    try:
        for batch in batches:
            numbers += batch.column("seq").to_pylist()
    finally:
        done.set()
        again.join()
    assert numbers == list(range(5000))


def _run_again(data_dir, port, done):
    with Broker(port=port, data_dir=data_dir):
        done.wait(180)


def test_a_broker_that_stays_away_is_named_with_how_far_the_task_came(row_plan, monkeypatch):
    monkeypatch.setattr(reading, "PAUSES", (0.01, 0.01))
    found = BatchOptions.parse(
        {"url": "amqp://127.0.0.1:1/,amqp://127.0.0.1:2/", "queue": "orders", "reconnectTimeout": "100ms"}
    )
    with pytest.raises(SparkSourceError) as caught:
        list(RangeReading(found, QueueRange("orders", 7, 9, "", 0), row_plan(found), True, "test").batches())
    assert caught.value.code == "E5"
    assert str(caught.value) == (
        "queue 'orders': 127.0.0.1:1 and 127.0.0.1:2 refused connections for 0.1 s. "
        "Start the query again when the broker is back"
    )


@BOTH
def test_a_broker_that_passes_over_a_number_is_at_fault(broker, queue, row_plan, monkeypatch, mode):
    """If the broker sends parts of a range that do not adjoin, the read fails with E10, and none of the parts is passed
    on (SP-59).
    """
    broker.declare_queue(queue)
    for number in range(5):
        broker.publish(str(number), queue)
    read = RangeReading._read
    monkeypatch.setattr(RangeReading, "_read", lambda self, connection, at: read(self, connection, at + 1))
    with pytest.raises(SparkSourceError) as caught:
        rows(row_plan, options(broker, queue, readMode=mode))
    assert caught.value.code == "E10" and f"queue '{queue}', [0, 5): a block begins at 1" in str(caught.value)
    assert "where 0 was due. This is a fault of warren; nothing was committed" in str(caught.value)


def test_another_product_is_named(broker, queue, row_plan, monkeypatch):
    broker.declare_queue(queue)
    monkeypatch.setattr("warren.spark.wire.table_to_dict", lambda _: {"product": "RabbitMQ", "version": "3.10.8"})
    with pytest.raises(SparkSourceError) as caught:
        rows(row_plan, options(broker, queue))
    assert (
        caught.value.code == "E3"
        and "is RabbitMQ 3.10.8, not warren, and cannot read a queue without consuming" in str(caught.value)
    )


def test_a_queue_that_does_not_exist_and_one_that_cannot_be_read(broker, queue, row_plan):
    with pytest.raises(SparkSourceError) as caught:
        rows(row_plan, options(broker, "nowhere"))
    assert caught.value.code == "E5" and "there is no such queue" in str(caught.value)
    broker.declare_queue(queue, arguments={"x-max-priority": 3})
    with pytest.raises(SparkSourceError) as caught:
        rows(row_plan, options(broker, queue))
    assert caught.value.code == "E5"


def test_a_partition_has_no_password(broker, queue, row_plan):
    broker.declare_queue(queue)
    broker.publish("x", queue)
    found = options(broker, queue, password="guest")
    (partition,) = BatchReader(found, row_plan(found)).partitions()
    assert "guest" not in json.dumps(vars(partition), default=repr)


def test_a_queue_without_messages_has_no_rows(broker, queue, row_plan):
    """Spark runs a task with a partition of its own if a reader plans none."""
    broker.declare_queue(queue)
    found = options(broker, queue)
    reader = BatchReader(found, row_plan(found))
    assert reader.partitions() == [] and list(reader.read(InputPartition(None))) == []
