"""The sink without Spark: how rows become frames, what confirms do, and what happens to rows that reach no queue."""

import re
from datetime import UTC, datetime

import hypothesis.strategies as st
import pamqp.frame
import pyarrow as pa
import pytest
from hypothesis import given

from warren.spark.errors import SparkSourceError
from warren.spark.options import SinkOptions
from warren.spark.outgoing import RowEncoder, check_columns, with_id
from warren.spark.writer import RowPublisher

TYPES = {
    "body": pa.binary(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "persistent": pa.bool_(),
    "priority": pa.int32(),
    "message_id": pa.string(),
    "queue_id": pa.string(),
    "seq": pa.int64(),
    "content_type": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.map_(pa.string(), pa.string()),
}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
ROWS = st.fixed_dictionaries(
    {"body": st.binary(max_size=300)},
    optional={
        "exchange": TEXT,
        "routing_key": TEXT,
        "persistent": st.booleans(),
        "priority": st.integers(0, 255),
        "message_id": TEXT,
        "content_type": TEXT,
        "timestamp": st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(
            lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
        ),
        "headers": st.dictionaries(TEXT, TEXT, max_size=3),
    },
)


def batch_of(rows):
    schema = pa.schema([(name, type) for name, type in TYPES.items()])
    return pa.RecordBatch.from_pylist([{**dict.fromkeys(TYPES), **row} for row in rows], schema=schema)


@given(st.lists(ROWS, max_size=5), st.sampled_from([4096, 64, 0]))
def test_another_library_reads_what_the_sink_writes(rows, frame_max):
    encoder = RowEncoder("x", "k", True, frame_max)
    for row, message in zip(rows, encoder.messages(batch_of(rows)), strict=True):
        data, frames = message.frames, []
        while data:
            size, _, frame = pamqp.frame.unmarshal(data)
            data = data[size:]
            frames.append(frame)
        publish, header, *bodies = frames
        assert (publish.exchange, publish.routing_key, publish.mandatory) == (
            row.get("exchange", "x"),
            row.get("routing_key", "k"),
            True,
        )
        assert b"".join(body.value for body in bodies) == row["body"]
        assert header.body_size == len(row["body"])
        found = header.properties
        assert found.delivery_mode == (1 if row.get("persistent") is False else 2)
        for name in ("priority", "message_id", "content_type", "timestamp"):
            assert getattr(found, name) == row.get(name), name
        assert found.headers == row.get("headers")


def test_ids_are_put_beside_a_message_id_that_a_row_has():
    encoder = RowEncoder("", "q", True, 4096, ("content_type",), "job")
    rows = [{"body": b"1", "content_type": "a"}, {"body": b"2", "content_type": "b", "message_id": "own"}]
    headers = []
    for message in encoder.messages(batch_of(rows)):
        size = pamqp.frame.unmarshal(message.frames)[0]
        headers.append(pamqp.frame.unmarshal(message.frames[size:])[2].properties)
    assert (headers[0].message_id, headers[0].headers) == ("job/a", None)
    assert (headers[1].message_id, headers[1].headers) == ("own", {"x-warren-dedup": "job/b"})
    with pytest.raises(SparkSourceError, match="longer than 255 bytes"):
        with_id(b"\0\0", "x" * 256)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([("text", "string")], "needs a column 'body'"),
        ([("body", "int")], "needs a column 'body'"),
        ([("body", "binary"), ("colour", "string")], "has no column 'colour'"),
        ([("body", "binary"), ("priority", "string")], "takes int"),
        ([("body", "binary"), ("headers", "string")], "takes map<string,string> or a struct"),
    ],
)
def test_columns_that_the_sink_does_not_take(columns, reason):
    with pytest.raises(SparkSourceError, match=reason):
        check_columns(columns, False, ())


def test_rows_that_were_read_from_warren_name_themselves(broker, queue):
    """A row that was read from warren gets the queue's id and its number as its id, so that a repeated row is dropped
    (SP-84).
    """
    options = SinkOptions.parse({"messageId": "SOURCE"})
    assert options.id_columns == ("queue_id", "seq")
    columns = [("body", "binary"), ("queue_id", "string"), ("seq", "bigint")]
    check_columns(columns, False, options.id_columns)
    with pytest.raises(SparkSourceError, match="has no column 'queue_id'"):
        check_columns(columns, False, ())
    with pytest.raises(
        SparkSourceError, match="needs a column 'seq', and the rows have none. They have body, queue_id"
    ):
        check_columns(columns[:2], False, options.id_columns)
    broker.declare_queue(queue, durable=True, arguments={"x-warren-deduplicate": 100})
    rows = [{"body": b"%d" % number, "queue_id": "9f", "seq": number} for number in range(20)]
    given = {"deliveryGuarantee": "exactly-once", "messageId": "source", "routingKey": queue}
    publish(broker, rows[:10], **given)
    publish(broker, rows, **given)
    found = [broker.get(queue) for _ in range(20)]
    assert [each.body for each in found] == [row["body"] for row in rows]
    assert found[7].properties["message_id"] == "job/9f/7" and broker.queue(queue).messages == 0
    with pytest.raises(SparkSourceError, match="column 'seq', which 'messageId' stands for, is null in a row"):
        publish(broker, [{"body": b"x", "queue_id": "9f", "seq": None}], **given)


def publish(broker, rows, **given):
    options = SinkOptions.parse({"url": broker.url} | given)
    return RowPublisher(options, 3, 1, "job").publish(iter([batch_of(rows[:2]), batch_of(rows[2:])]))


def test_a_task_ends_when_each_row_is_confirmed(broker, queue):
    broker.declare_queue(queue, durable=True)
    rows = [{"body": b"x" * (number % 5000), "message_id": str(number)} for number in range(3000)]
    written = publish(broker, rows, routingKey=queue, confirmWindow="100")
    assert (written.rows, written.body_bytes) == (3000, sum(len(row["body"]) for row in rows))
    assert broker.queue(queue).messages == 3000
    first = broker.get(queue)
    assert (first.body, first.properties["message_id"], first.properties["delivery_mode"]) == (b"", "0", 2)


def test_a_row_that_reaches_no_queue_is_an_error_or_is_dropped(broker, queue):
    broker.declare_queue(queue)
    rows = [{"body": b"one", "routing_key": queue}, {"body": b'{"id": 4711}', "routing_key": "eu.nwe"}]
    with pytest.raises(SparkSourceError) as caught:
        publish(broker, rows)
    assert caught.value.code == "E12"
    assert str(caught.value) == (
        "partition 3, row 1: exchange '', key 'eu.nwe' reaches no queue; body {\"id\": 4711} "
        "Declare the queue 'eu.nwe', or mandatory=false drops such rows"
    )
    assert publish(broker, rows, mandatory="false").rows == 2


def test_a_refused_row_and_a_missing_exchange(broker, queue):
    broker.declare_queue(queue, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    with pytest.raises(SparkSourceError, match="was refused"):
        publish(broker, [{"body": b"1"}, {"body": b"2"}, {"body": b"3"}], routingKey=queue)
    with pytest.raises(SparkSourceError) as caught:
        publish(broker, [{"body": b"1"}], exchange="nowhere")
    assert caught.value.code == "E5" and "no exchange 'nowhere'" in str(caught.value)


ONCE = {"deliveryGuarantee": "exactly-once", "messageId": "message_id"}


def refused(broker, rows, **given):
    """The reason why the rows cannot be published exactly once."""
    with pytest.raises(SparkSourceError) as caught:
        publish(broker, rows, **ONCE, **given)
    assert caught.value.code == "E13"
    return str(caught.value)


def test_exactly_once_is_refused_where_it_cannot_be_kept(broker, queue):
    with pytest.raises(SparkSourceError, match="needs 'messageId'"):
        SinkOptions.parse({"deliveryGuarantee": "exactly-once"})
    row = {"body": b"1", "message_id": "1"}
    assert "does not exist" in refused(broker, [row], routingKey=queue)
    broker.declare_queue(queue, durable=True)
    assert "keeps messages that are published twice" in refused(broker, [row], routingKey=queue)
    broker.declare_exchange(queue, "fanout")
    try:
        assert "does not exist" in refused(broker, [row], exchange="nowhere")
        assert "leads to no queue" in refused(broker, [row], exchange=queue)
        broker.bind(queue, queue)
        assert f"queue '{queue}' of it does not deduplicate" in refused(broker, [row], exchange=queue)
    finally:
        broker.delete_exchange(queue)
    assert broker.queue(queue).messages == 0


@pytest.mark.parametrize("by", ["exchange", "queue"])
def test_rows_for_an_exchange_are_there_once(broker, queue, by):
    """Rows are published exactly once to an exchange if the exchange deduplicates, or each queue that it reaches does
    (SP-83).
    """
    window = {"x-warren-deduplicate": 100}
    broker.declare_exchange(queue, "fanout", arguments=window if by == "exchange" else {})
    try:
        broker.declare_queue(queue, durable=True, arguments=window if by == "queue" else {})
        broker.bind(queue, queue)
        rows = [{"body": b"%d" % number, "message_id": str(number)} for number in range(60)]
        assert publish(broker, rows[:30], exchange=queue, **ONCE).window == 100
        publish(broker, rows, exchange=queue, **ONCE)
        assert [broker.get(queue).body for _ in range(60)] == [row["body"] for row in rows]
        assert broker.queue(queue).messages == 0
        too_many = [{"body": b"1", "message_id": str(number)} for number in range(101)]
        assert f"a queue of exchange '{queue}' remembers 100 messages" in refused(broker, too_many, exchange=queue)
    finally:
        broker.delete_exchange(queue)


@pytest.mark.parametrize("by_policy", [False, True], ids=["argument", "policy"])
def test_rows_that_are_published_again_are_there_once(broker, queue, by_policy):
    if by_policy:
        broker.set_policy(queue, f"^{re.escape(queue)}$", {"deduplicate": 100})
    broker.declare_queue(queue, durable=True, arguments={} if by_policy else {"x-warren-deduplicate": 100})
    rows = [{"body": b"%d" % number, "message_id": str(number)} for number in range(60)]
    assert publish(broker, rows[:30], routingKey=queue, **ONCE).window == 100
    publish(broker, rows, routingKey=queue, **ONCE)
    assert [broker.get(queue).body for _ in range(60)] == [row["body"] for row in rows]
    assert broker.queue(queue).messages == 0


def test_a_task_with_more_rows_than_its_queue_remembers_is_refused(broker, queue):
    broker.declare_queue(queue, durable=True, arguments={"x-warren-deduplicate": 10})
    rows = [{"body": b"1", "message_id": str(number)} for number in range(11)]
    assert "remembers 10 messages" in refused(broker, rows, routingKey=queue)
    assert publish(broker, rows[:10], routingKey=queue, **ONCE).rows == 10


def test_each_row_needs_an_id(broker, queue):
    broker.declare_queue(queue, durable=True, arguments={"x-warren-deduplicate": 10})
    with pytest.raises(SparkSourceError, match="is null in a row"):
        publish(broker, [{"body": b"1"}], routingKey=queue, **ONCE)
