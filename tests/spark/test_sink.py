"""The sink without Spark: how rows become frames, what confirms do, and what happens to rows that reach no queue."""

import logging
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import accumulate

import hypothesis.strategies as st
import pamqp.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.amqp.fields import table_from
from warren.amqp.properties import Properties, encode_properties
from warren.spark.errors import SparkSourceError
from warren.spark.options import SinkOptions
from warren.spark.outgoing import RowEncoder, check_columns, with_id
from warren.spark.unconfirmed import UnconfirmedRows
from warren.spark.writer import BatchWriter, RowPublisher

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
    "properties": pa.binary(),
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


MORE = ROWS.map(lambda row: row | {"seq": len(row["body"]), "queue_id": "9f"})
WITH_PROPERTIES = st.fixed_dictionaries(
    {"body": st.binary(min_size=1, max_size=90), "seq": st.integers(0, 1 << 62)},
    optional={
        "routing_key": TEXT,
        "properties": st.builds(
            lambda **values: encode_properties(Properties(**values)),
            content_type=st.none() | TEXT,
            delivery_mode=st.none() | st.integers(1, 2),
            headers=st.none() | st.just(table_from({"n": 1})),
            message_id=st.none() | st.just("own"),
            app_id=st.none() | TEXT,
        ),
    },
)


@given(
    st.lists(MORE, max_size=8) | st.lists(MORE.filter(lambda row: row["body"]), max_size=8) | st.lists(WITH_PROPERTIES),
    st.sampled_from([(), ("queue_id", "seq"), ("message_id",), ("timestamp",)]),
    st.sampled_from([4096, 64]),
)
def test_the_frames_of_many_rows_are_those_of_each_row(rows, id_columns, frame_max):
    """Whether the frames of a batch are made together or one row after the other, they have the same bytes (SP-85)."""
    encoder = RowEncoder("x", "k", True, frame_max, id_columns, "job")
    batch = batch_of(rows)
    try:
        each = list(encoder.messages(batch))
    except SparkSourceError as error:
        with pytest.raises(SparkSourceError, match=re.escape(str(error))):
            list(encoder.parts(batch))
        return
    parts = list(encoder.parts(batch))
    assert sum(map(len, parts)) == len(rows)
    found = [bytes(part.frames(place, place + 1)) for part in parts for place in range(len(part))]
    assert found == [message.frames for message in each]
    assert [int(size) for part in parts for size in part.joined.sizes] == [len(row["body"]) for row in rows]
    counted = sum((Counter(part.joined.destinations) for part in parts), Counter())
    assert counted == Counter((message.exchange, message.routing_key) for message in each)


@pytest.mark.parametrize(
    ("columns", "id_columns"),
    [
        ({}, ()),
        ({"routing_key": ["a", None, "b"], "persistent": [True, False, None]}, ()),
        ({"message_id": ["a", "b", "c"], "timestamp": [None, datetime(2026, 1, 1, tzinfo=UTC), None]}, ()),
        ({"headers": [{"a": "b"}, None, {}], "priority": [1, 2, None]}, ()),
        ({"queue_id": ["9f"] * 3, "seq": [7, 8, 9]}, ("queue_id", "seq")),
        ({"properties": [b"\x80\x00\x01a"] * 3, "seq": [7, 8, 9]}, ("seq",)),
    ],
)
def test_nothing_is_done_for_each_usual_row(columns, id_columns):
    """The frames of rows that each fit into one body frame are made together, whatever columns they have (SP-85)."""
    encoder = RowEncoder("x", "k", True, 4096, id_columns, "job")
    encoder.messages = None
    rows = [{"body": b"body", **{name: values[at] for name, values in columns.items()}} for at in range(3)]
    (part,) = encoder.parts(batch_of(rows))
    assert len(part) == 3


#: The year 11476, which Python's datetime does not have.
FAR = pa.array([300_000_000_000 * 1_000_000], pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize("body", [b"x", b""], ids=["together", "row by row"])
def test_a_time_beyond_the_year_9999(body):
    """AMQP's timestamp is any number of seconds, so such a row is a message; a column that is ignored does not matter
    (SP-80).
    """
    encoder = RowEncoder("", "q", True, 4096, ("id",), "job")
    columns = {"body": pa.array([body]), "timestamp": FAR, "ignored": FAR, "id": FAR}
    (part,) = encoder.parts(pa.RecordBatch.from_pydict(columns))
    data = bytes(part.frames(0, 1))
    header = pamqp.frame.unmarshal(data[pamqp.frame.unmarshal(data)[0] :])
    assert (300_000_000_000).to_bytes(8, "big") in data
    assert header[2].properties.message_id == "job/300000000000000000"
    with pytest.raises(SparkSourceError, match="a row cannot be a message: column 'headers' has a time") as caught:
        headers = pa.StructArray.from_arrays([FAR], ["at"])
        list(RowEncoder("", "q", True, 4096).parts(pa.RecordBatch.from_pydict({"body": [body], "headers": headers})))
    assert caught.value.code == "E4"


def test_parts_of_a_batch_stay_small():
    """A task holds the frames of about a megabyte of rows at a time, however large the batches are."""
    encoder = RowEncoder("", "q", True, 131_072)
    sizes = [50_000] * 100 + [10] * 10_000
    parts = list(encoder.parts(pa.RecordBatch.from_pydict({"body": pa.array([bytes(size) for size in sizes])})))
    assert [size for part in parts for size in part.joined.sizes] == sizes
    assert max(part.joined.data.nbytes for part in parts) < 2 << 20
    assert [part.first for part in parts] == [0, *accumulate(map(len, parts))][:-1]


class Confirmations(RuleBasedStateMachine):
    """Rows are sent and confirmed in any order, and the counts are those of a plain set of publish numbers."""

    def __init__(self):
        super().__init__()
        self.encoder = RowEncoder("", "q", True, 4096)
        self.rows = UnconfirmedRows()
        self.bodies, self.left, self.part, self.at = [], set(), None, 0

    @precondition(lambda self: self.part is None)
    @rule(bodies=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6))
    def add(self, bodies):
        (self.part,) = self.encoder.parts(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}))
        self.rows.add(self.part)
        self.bodies += bodies
        self.at = 0

    @precondition(lambda self: self.part is not None)
    @rule(data=st.data())
    def send(self, data):
        count = data.draw(st.integers(1, len(self.part) - self.at))
        sent = len(self.bodies) - len(self.part) + self.at
        assert self.rows.sent(count) == sum(map(len, self.bodies[sent : sent + count]))
        self.left |= set(range(sent + 1, sent + count + 1))
        self.at += count
        if self.at == len(self.part):
            self.part = None

    @precondition(lambda self: self.left)
    @rule(data=st.data(), is_multiple=st.booleans())
    def confirm(self, data, is_multiple):
        number = data.draw(st.sampled_from(sorted(self.left)))
        self.rows.confirm(number, is_multiple)
        self.left -= {each for each in self.left if each == number or is_multiple and each < number}

    @invariant()
    def counts(self):
        assert (self.rows.rows, bool(self.rows)) == (len(self.left), bool(self.left))
        if self.left:
            # The bytes of early confirmed rows count until all rows before them are confirmed.
            sent = len(self.bodies) - (0 if self.part is None else len(self.part) - self.at)
            assert self.rows.body_bytes == sum(map(len, self.bodies[min(self.left) - 1 : sent]))
            assert self.rows.first().body == self.bodies[min(self.left) - 1]
            for number in self.left:
                found = self.rows.message(number)
                assert (found.row, found.body) == (number - 1, self.bodies[number - 1])
            assert self.bodies[self.rows.row_with(self.bodies[max(self.left) - 1])] == self.bodies[max(self.left) - 1]
            assert self.rows.row_with(b"no such body") == -1
        else:
            assert self.rows.body_bytes == 0


TestConfirmations = Confirmations.TestCase


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


def test_a_batch_with_ids_needs_a_name():
    """Without a name the ids of two batches would be the same, and a queue would drop the rows of the second one."""
    writer = BatchWriter(SinkOptions.parse({"messageId": "id", "routingKey": "q"}))
    with pytest.raises(
        SparkSourceError, match="option 'messageId' of format 'warren' needs 'job' in a batch"
    ) as caught:
        writer.write(iter(()))
    assert caught.value.code == "E4"


@pytest.mark.parametrize(
    "wrong", [{"routing_key": "k" * 256}, {"exchange": "x" * 256}, {"properties": b"\xff\xff\xff"}]
)
def test_a_row_that_cannot_be_a_message_is_explained(wrong):
    encoder = RowEncoder("", "q", True, 4096, ("body",), "job")
    rows = [{"body": b"1"} | wrong, {"body": b"2"} | dict.fromkeys(wrong)]
    for make in (encoder.parts, encoder.messages):
        with pytest.raises(SparkSourceError, match="a row cannot be a message") as caught:
            list(make(batch_of(rows)))
        assert caught.value.code == "E4"


def publish(broker, rows, **given):
    options = SinkOptions.parse({"url": broker.url} | given)
    return RowPublisher(options, 3, "job").publish(iter([batch_of(rows[:2]), batch_of(rows[2:])]))


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


def test_a_task_waits_for_a_broker_that_takes_no_messages(broker, queue, caplog):
    """The time in which the broker takes no messages does not count for `confirmTimeout`, and is in the log (SP-80)."""
    broker.declare_queue(queue, durable=True)

    class Clearing(logging.Handler):
        def emit(self, record):
            if "takes no messages" in record.getMessage():
                waits.append(record)
                if len(waits) == 2:
                    broker.set_alarm("memory", False)

    waits, handler = [], Clearing()
    logger = logging.getLogger("warren.spark")
    logger.addHandler(handler)
    broker.set_alarm("memory", True)
    try:
        rows = [{"body": bytes(100_000)} for _ in range(300)]
        assert publish(broker, rows, routingKey=queue, confirmTimeout="200ms").rows == 300
    finally:
        broker.set_alarm("memory", False)
        logger.removeHandler(handler)
    assert len(waits) == 2


def test_a_broker_that_confirms_nothing_is_named(broker, queue):
    """A silent broker is an error after `confirmTimeout`, which names the queue or the exchange."""
    broker.declare_queue(queue, durable=True)
    options = SinkOptions.parse({"url": broker.url, "routingKey": queue, "confirmTimeout": "200ms"})
    publisher = RowPublisher(options, 0, "job")
    broker.pause()
    try:
        with pytest.raises(SparkSourceError) as caught:
            publisher.publish(iter([batch_of([{"body": b"x"}])]))
    finally:
        broker.resume()
    assert caught.value.code == "E5"
    assert str(caught.value).startswith(f"queue '{queue}': 127.0.0.1:{broker.port} has sent nothing for 0.2 s. ")
