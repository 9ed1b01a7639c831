"""The planner of a stream, called as Spark calls it, without Spark: offsets, acknowledgements, losses, and that a queue
has one owner.
"""

import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from warren import Broker
from warren.actors.channel.queue_links import QueueLinks
from warren.actors.connection.handshake import WARREN_FEATURES
from warren.routing.phrases import queue_unavailable
from warren.spark.errors import SparkSourceError
from warren.spark.options import StreamOptions
from warren.spark.reading import planner, stream_reader
from warren.spark.reading.stream_reader import StreamReader

#: Without the broker's catalogue a query cannot know that a queue was declared again, or that a gap after a crash is no
#: loss.
needs_catalogue = pytest.mark.skipif("catalogue" not in WARREN_FEATURES, reason="this broker has no catalogue")


@pytest.fixture
def reader(broker, row_plan, monkeypatch):
    """Makes readers of the broker, which are stopped after the test."""
    monkeypatch.setattr(stream_reader, "IDLE_PAUSE", 0.0)
    monkeypatch.setattr(planner, "LEASE_SECONDS", 0.5)
    made = []

    def make(queue=None, **given):
        named = {} if queue is None else {"queue": queue}
        options = StreamOptions.parse({"url": broker.url, "columns": "queue,seq", **named, **given})
        made.append(StreamReader(options, row_plan(options)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def publish(broker, queue, count):
    for _ in range(count):
        broker.publish(b"x", queue, delivery_mode=2)
    broker.wait_idle()


def rows(reader, start, end):
    return [
        (row["queue"], row["seq"])
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def numbers(reader, start, end):
    return [number for _, number in rows(reader, start, end)]


def refusal(code, call):
    with pytest.raises(SparkSourceError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


def test_micro_batches_adjoin_and_an_idle_one_is_its_start(broker, queue, reader):
    broker.declare_queue(queue)
    publish(broker, queue, 25)
    stream = reader(queue)
    start = stream.initialOffset()
    one = stream.latestOffset(start, ReadMaxRows(10))
    two = stream.latestOffset(one, ReadAllAvailable())
    assert (numbers(stream, start, one), numbers(stream, one, two)) == (list(range(10)), list(range(10, 25)))
    assert stream.latestOffset(two, ReadAllAvailable()) == two and stream.partitions(two, two) == []
    assert stream.reportLatestOffset()["queues"][queue]["next"] == 25
    assert stream.getDefaultReadLimit() == ReadMaxRows(2_000_000)


def test_a_crash_in_the_first_micro_batch_repeats_its_range(broker, queue, reader):
    """After a crash in the first micro-batch the same range is read again. Spark has logged only its end, and asks for
    the beginning again when the head of the queue may have moved.
    """
    broker.declare_queue(queue)
    publish(broker, queue, 10)
    before = reader(queue)
    start = before.initialOffset()
    end = before.latestOffset(start, ReadAllAvailable())
    for _ in range(4):
        broker.get(queue)
    again = reader(queue, failOnDataLoss="false")
    moved = again.initialOffset()
    assert moved["queues"][queue]["next"] == 4
    assert sum(p.piece.next - p.piece.first for p in again.partitions(moved, end)) == 10
    refusal("E8", lambda: numbers(reader(queue), moved, end))


def test_starting_at_the_end(broker, queue, reader):
    broker.declare_queue(queue)
    publish(broker, queue, 5)
    stream = reader(queue, startingOffsets="latest")
    start = stream.initialOffset()
    publish(broker, queue, 2)
    assert stream.initialOffset() == start
    assert numbers(stream, start, stream.latestOffset(start, ReadAllAvailable())) == [5, 6]


def test_an_offset_of_a_queue_that_is_not_read_is_refused(broker, queue, reader):
    broker.declare_queue(queue)
    stream = reader(queue, startingOffsets='{"ordres": 120}')
    assert "names the queue 'ordres', which this query does not read" in refusal("E4", stream.initialOffset)


def test_acknowledgements(broker, queue, reader):
    """A commit acknowledges. So does a request for the next micro-batch, because Spark never commits the last one of a
    run.
    """
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 20)
    stream = reader(queue, deleteOnCommit="true")
    start = stream.initialOffset()
    one = stream.latestOffset(start, ReadMaxRows(5))
    assert broker.queue(queue).messages == 20
    stream.commit(one)
    assert broker.queue(queue).messages == 15
    two = stream.latestOffset(one, ReadMaxRows(5))
    assert broker.queue(queue).messages == 15
    stream.latestOffset(two, ReadMaxRows(5))
    assert broker.queue(queue).messages == 10
    stream.commit(one)  # an older commit that is repeated changes nothing
    keeping = reader(queue)
    keeping.commit(keeping.latestOffset(keeping.initialOffset(), ReadAllAvailable()))
    assert broker.queue(queue).messages == 10


@needs_catalogue
def test_a_queue_that_does_not_run_is_acknowledged_later(broker, queue, reader, monkeypatch):
    """An acknowledgement that a queue cannot take while its node is down is made up for, although the query has read
    nothing more, and other queues get theirs meanwhile.
    """
    for name in ("a", "b"):
        broker.declare_queue(f"{queue}.{name}")
        publish(broker, f"{queue}.{name}", 3)
    stream = reader(pattern=f"{queue}.*", deleteOnCommit="true")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    row = QueueLinks.row

    def unavailable(self, name):
        if name == f"{queue}.a":
            raise queue_unavailable("/", name, "down", "a")
        return row(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(QueueLinks, "row", unavailable)
        stream.commit(end)
    assert [broker.queue(f"{queue}.{name}").messages for name in ("a", "b")] == [3, 0]
    stream.latestOffset(end, ReadAllAvailable())
    assert broker.queue(f"{queue}.a").messages == 0


@needs_catalogue
def test_a_pattern_fits_no_lease(broker, queue, reader):
    """A query that deletes declares an exclusive queue for each queue that it reads. It must not read these queues,
    even if its pattern fits their names, because it would declare one for each of them as well, without end.
    """
    broker.declare_queue(queue)
    stream = reader(pattern="*", deleteOnCommit="true")
    for _ in range(2):
        assert not [name for name in stream.initialOffset()["queues"] if name.startswith(planner.LEASE)]
        stream._initial = None


def test_strict_acknowledges_commits_alone(broker, queue, reader):
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 4)
    stream = reader(queue, deleteOnCommit="strict")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.latestOffset(end, ReadAllAvailable())
    assert broker.queue(queue).messages == 4
    stream.commit(end)
    assert broker.queue(queue).messages == 0


@needs_catalogue
def test_a_commit_to_a_queue_that_was_declared_again_takes_nothing(broker, queue, reader):
    broker.declare_queue(queue)
    publish(broker, queue, 5)
    stream = reader(queue, deleteOnCommit="true")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    broker.delete_queue(queue)
    stream.commit(end)
    broker.declare_queue(queue)
    publish(broker, queue, 9)
    again = reader(queue, deleteOnCommit="true")
    again.commit(end)
    assert broker.queue(queue).messages == 9


def test_two_queries_that_delete_and_the_successor_of_one(broker, queue, reader):
    broker.declare_queue(queue)
    first = reader(queue, deleteOnCommit="true")
    first.initialOffset()
    text = refusal("E7", reader(queue, deleteOnCommit="true").initialOffset)
    assert "already has a query with deleteOnCommit" in text and "owns the queue 'warren.spark.lease." in text
    reader(queue).initialOffset()  # a query that does not delete may read the queue meanwhile
    first.stop()
    reader(queue, deleteOnCommit="true").initialOffset()


@needs_catalogue
def test_available_now_has_nothing_of_after(broker, queue, reader):
    for name in ("a", "b"):
        broker.declare_queue(f"{queue}.{name}")
        publish(broker, f"{queue}.{name}", 10)
    stream = reader(pattern=f"{queue}.*")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    publish(broker, f"{queue}.a", 5)
    broker.declare_queue(f"{queue}.c")
    publish(broker, f"{queue}.c", 5)
    one = stream.latestOffset(start, ReadMaxRows(12))
    two = stream.latestOffset(one, ReadMaxRows(12))
    assert stream.latestOffset(two, ReadMaxRows(12)) == two
    found = rows(stream, start, one) + rows(stream, one, two)
    assert sorted(found) == [(f"{queue}.{name}", number) for name in ("a", "b") for number in range(10)]


@needs_catalogue
def test_available_now_may_begin_behind_the_end_that_it_has_found(broker, queue, reader):
    """Spark asks for the first offset after it has prepared the run, so the query may begin behind the ends that the
    run has found, or with a queue that it has not found. That is no loss.
    """
    broker.declare_queue(f"{queue}.a")
    publish(broker, f"{queue}.a", 3)
    latest = reader(f"{queue}.a", startingOffsets="latest")
    every = reader(pattern=f"{queue}.*")
    for stream in (latest, every):
        stream.prepareForTriggerAvailableNow()
    publish(broker, f"{queue}.a", 2)
    broker.declare_queue(f"{queue}.b")
    publish(broker, f"{queue}.b", 2)
    start = latest.initialOffset()
    assert latest.latestOffset(start, ReadAllAvailable()) == start
    start = every.initialOffset()
    end = every.latestOffset(start, ReadAllAvailable())
    assert rows(every, start, end) == [(f"{queue}.a", number) for number in range(3)]
    assert every.latestOffset(end, ReadAllAvailable()) == end


@needs_catalogue
def test_a_queue_that_a_pattern_finds_later_is_read_from_its_first_number(broker, queue, reader):
    broker.declare_queue(f"{queue}.a")
    stream = reader(pattern=f"{queue}.*")
    start = stream.initialOffset()
    publish(broker, f"{queue}.a", 1)
    one = stream.latestOffset(start, ReadAllAvailable())
    broker.declare_queue(f"{queue}.b")
    publish(broker, f"{queue}.b", 3)
    broker.get(f"{queue}.b")
    two = stream.latestOffset(one, ReadAllAvailable())
    assert rows(stream, one, two) == [(f"{queue}.b", 1), (f"{queue}.b", 2)]
    three = stream.latestOffset(two, ReadAllAvailable())
    assert three == two


@needs_catalogue
def test_losses_are_named_or_passed_over(broker, queue, reader, caplog):
    broker.declare_queue(queue, arguments={"x-max-length": 50})
    publish(broker, queue, 10)
    strict, lenient = reader(queue), reader(queue, failOnDataLoss="false")
    start = strict.initialOffset()
    publish(broker, queue, 90)
    text = refusal("E8", lambda: strict.latestOffset(start, ReadAllAvailable()))
    assert "50 messages left unread (numbers 0 to 49); it has x-max-length=50" in text
    with caplog.at_level(logging.WARNING, "warren.spark"):
        end = lenient.latestOffset(start, ReadAllAvailable())
        assert numbers(lenient, start, end) == list(range(50, 100))
    assert "50 messages left unread" in caplog.text

    broker.delete_queue(queue)
    assert "it was deleted" in refusal("E8", lambda: strict.latestOffset(end, ReadAllAvailable()))
    assert lenient.latestOffset(end, ReadAllAvailable()) == end
    broker.declare_queue(queue)
    publish(broker, queue, 3)
    text = refusal("E8", lambda: strict.latestOffset(end, ReadAllAvailable()))
    assert "deleted and declared again" in text
    anew = lenient.latestOffset(end, ReadAllAvailable())
    assert numbers(lenient, end, anew) == [0, 1, 2]
    publish(broker, queue, 1)
    assert numbers(lenient, anew, lenient.latestOffset(anew, ReadAllAvailable())) == [3]


@needs_catalogue
@pytest.mark.parametrize("named", [{"queue": "b"}, {"pattern": "b*"}])
def test_a_checkpoint_of_a_queue_that_the_options_no_longer_name(broker, queue, reader, named):
    """Such a queue is neither waited for nor said to be deleted."""
    for name in ("a", "b"):
        broker.declare_queue(f"{name}.{queue}")
        publish(broker, f"{name}.{queue}", 2)
    before = reader(f"a.{queue}")
    start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    chosen = {key: value.replace("b", f"b.{queue}") for key, value in named.items()}
    text = refusal("E8", lambda: reader(**chosen).latestOffset(start, ReadAllAvailable()))
    assert f"queue 'a.{queue}': it was deleted, or the options do not name it any more. Use a new checkpoint" in text
    lenient = reader(**chosen, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert rows(lenient, start, end) == [(f"b.{queue}", 0), (f"b.{queue}", 1)]


@needs_catalogue
@pytest.mark.parametrize("how", ["purge", "TTL"])
def test_messages_that_leave_a_planned_range_are_a_loss_with_its_cause(broker, queue, reader, how):
    """When messages of a planned range leave the queue, by a purge or an expiry, the query fails and names the cause
    (SP-66).
    """
    broker.declare_queue(queue, arguments={"x-message-ttl": 600_000} if how == "TTL" else {})
    publish(broker, queue, 10)
    stream = reader(queue)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    broker.purge(queue)
    cause = "it has x-message-ttl=600000" if how == "TTL" else "they were acknowledged, purged or expired meanwhile"
    text = refusal("E8", lambda: numbers(stream, start, end))
    assert f"queue '{queue}': 10 messages left unread (numbers 0 to 9); {cause}" in text
    assert numbers(reader(queue, failOnDataLoss="false"), start, end) == []


@needs_catalogue
def test_transient_messages_that_a_restart_loses_are_a_loss(reader, row_plan, tmp_path):
    """When a restart of the broker loses transient messages, the query connects again, reads the persistent ones, and
    names the others as lost (SP-66).
    """
    with Broker(port=0, data_dir=str(tmp_path)) as first:
        first.declare_queue("orders", durable=True)
        for number in range(10):
            first.publish(b"x", "orders", delivery_mode=1 if 3 <= number < 5 else 2)
        first.wait_idle()
        url, port = first.url, first.port
        stream = reader("orders", url=url)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
    with Broker(port=port, data_dir=str(tmp_path)):
        text = refusal("E8", lambda: numbers(stream, start, end))
        assert "2 messages left unread (numbers 3 to 4)" in text and "were transient" in text
        kept = reader("orders", url=url, failOnDataLoss="false")
        assert numbers(kept, start, end) == [0, 1, 2, 5, 6, 7, 8, 9]


@needs_catalogue
@pytest.mark.parametrize("how", ["the permission is withdrawn", "the vhost is deleted"])
def test_a_broker_that_refuses_from_now_on_is_quoted(broker, reader, how):
    """When the broker begins to refuse the query, the error quotes the refusal (SP-66)."""
    broker.create_vhost("etl")
    broker.add_user("spark", "secret")
    broker.set_permissions("spark", vhost="etl", configure="", write="", read=".*")
    broker.declare_queue("orders", vhost="etl")
    for _ in range(3):
        broker.publish(b"x", "orders", vhost="etl")
    url = f"amqp://spark:secret@127.0.0.1:{broker.port}/etl"
    try:
        stream = reader("orders", url=url, reconnectTimeout="300ms")
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        if how == "the vhost is deleted":
            broker.delete_vhost("etl")
        else:
            broker.set_permissions("spark", vhost="etl", configure="", write="", read="^$")
        text = refusal("E5", lambda: numbers(stream, start, end))
        assert "the broker refused: " in text
        assert ("vhost etl not found" if how == "the vhost is deleted" else "ACCESS_REFUSED") in text
    finally:
        if how != "the vhost is deleted":
            broker.delete_vhost("etl")
        broker.delete_user("spark")


@needs_catalogue
def test_queries_that_delete_nothing_read_one_queue_together(broker, queue, reader):
    """Several queries that delete nothing can read one queue at the same time (SP-66)."""
    broker.declare_queue(queue)
    publish(broker, queue, 5)
    for stream in (reader(queue), reader(queue)):
        start = stream.initialOffset()
        assert numbers(stream, start, stream.latestOffset(start, ReadAllAvailable())) == [0, 1, 2, 3, 4]


@needs_catalogue
@pytest.mark.parametrize("kind", ["priorities", "a stream"])
def test_a_queue_that_cannot_be_read_by_number_is_refused_at_the_start(broker, queue, reader, kind):
    """A queue that cannot be read by number is refused at the start, such as one with priorities, which numbers each
    priority by itself (SP-66).
    """
    arguments = {"x-max-priority": 3} if kind == "priorities" else {"x-queue-type": "stream"}
    broker.declare_queue(queue, durable=True, arguments=arguments)
    assert f"queue '{queue}'" in refusal("E5", reader(queue).initialOffset)


def test_few_messages_wait_for_more(broker, queue, reader):
    broker.declare_queue(queue)
    publish(broker, queue, 3)
    stream = reader(queue, minMessagesPerTrigger="5")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(100)) == start
    publish(broker, queue, 2)
    assert numbers(stream, start, stream.latestOffset(start, ReadMaxRows(100))) == [0, 1, 2, 3, 4]
    impatient = reader(queue, minMessagesPerTrigger="50", maxTriggerDelay="0s")
    assert numbers(impatient, start, impatient.latestOffset(start, ReadMaxRows(100))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": "4"}, {"maxBytesPerTrigger": "4"}])
def test_many_messages_do_not_wait_for_more_than_a_micro_batch_may_have(broker, queue, reader, limit):
    """What counts for `minMessagesPerTrigger` is how many messages wait, and not how many the micro-batch may have."""
    broker.declare_queue(queue)
    publish(broker, queue, 10)
    stream = reader(queue, minMessagesPerTrigger="8", **limit)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert numbers(stream, start, end) == [0, 1, 2, 3]
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_an_offset_of_another_version_is_refused(broker, queue, reader):
    broker.declare_queue(queue)
    stream = reader(queue)
    newer = {"v": 2, "queues": {"orders": {"next": 1204882}}}
    text = refusal("E6", lambda: stream.latestOffset(newer, ReadAllAvailable()))
    assert "version 2" in text and text.endswith(
        'Use the newer warren, or a new checkpointLocation and startingOffsets={"orders": 1204882}'
    )
    older = refusal("E6", lambda: stream.partitions({"v": 0}, newer))
    assert "version 0" in older and older.endswith("knows 1. Use a new checkpointLocation")


def test_unknown_keys_of_an_offset_are_passed_on(broker, queue, reader):
    """A later warren may add keys to offsets of this version, and go on with them after this one has run (SP-51)."""
    broker.declare_queue(queue)
    publish(broker, queue, 3)
    stream = reader(queue)
    start = stream.latestOffset(stream.initialOffset(), ReadMaxRows(1))
    start["more"], start["queues"][queue]["more"] = [1], {"a": 2}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert (end["more"], end["queues"][queue]["more"], end["queues"][queue]["next"]) == ([1], {"a": 2}, 3)
    assert "from" not in end and numbers(stream, start, end) == [1, 2]


def test_a_queue_that_does_not_exist_ends_the_query_at_its_start(reader):
    assert "there is no such queue" in refusal("E5", reader("nowhere").initialOffset)


def test_subscriptions_read_what_is_published_to_an_exchange_beside_consumers(broker, queue, reader):
    """Each subscription to an exchange has a durable lazy queue of its own, which keeps messages while no query runs
    and takes none from other consumers (SP-50).
    """
    exchange = f"{queue}.x"
    broker.declare_exchange(exchange, "topic", durable=True)
    broker.declare_queue(queue)
    broker.bind(queue, exchange, "#")
    options = {"exchange": exchange, "deleteOnCommit": "true"}
    every, some = reader(**options, subscription="all"), reader(**options, subscription="eu", bindingKeys="eu.*, de")
    begins = [every.initialOffset(), some.initialOffset()]
    for key in ("eu.a", "us.a", "de", "eu.b"):
        broker.publish(key.encode(), key, exchange=exchange)
    broker.wait_idle()
    ends = [each.latestOffset(begin, ReadAllAvailable()) for each, begin in zip((every, some), begins)]
    assert rows(every, begins[0], ends[0]) == [("spark.all", number) for number in range(4)]
    assert rows(some, begins[1], ends[1]) == [("spark.eu", number) for number in range(3)]
    every.commit(ends[0])
    assert [broker.queue(name).messages for name in ("spark.all", "spark.eu", queue)] == [0, 3, 4]
    assert broker.queue("spark.all").durable and broker.queue("spark.all").arguments == {"x-queue-mode": "lazy"}
    some.stop()
    broker.publish(b"fr", "fr", exchange=exchange)
    # A query that is continued with other binding keys adds them.
    again = reader(**options, subscription="eu", bindingKeys="fr")
    assert again.latestOffset(ends[1], ReadAllAvailable()) == ends[1]
    for key in ("fr", "eu.c"):
        broker.publish(key.encode(), key, exchange=exchange)
    broker.wait_idle()
    assert numbers(again, ends[1], again.latestOffset(ends[1], ReadAllAvailable())) == [3, 4]


def test_a_subscription_to_a_missing_exchange_is_refused_with_its_name(reader):
    stream = reader(exchange="nowhere", subscription="s", reconnectTimeout="1s")
    assert "no exchange 'nowhere'" in refusal("E5", stream.initialOffset)


def test_a_queue_of_the_name_of_a_subscription_is_used_as_it_is(broker, queue, reader):
    broker.declare_queue(f"spark.{queue}", arguments={"x-max-length": 5})
    assert reader(exchange="amq.fanout", subscription=queue).initialOffset()["queues"].keys() == {f"spark.{queue}"}
    broker.publish(b"x", "", exchange="amq.fanout")
    broker.wait_idle()
    assert broker.queue(f"spark.{queue}").messages == 1
