"""The source inside Spark itself: one session for all tests of this file, because a Java takes seconds to start."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from warren import Broker
from warren.spark.errors import SparkSourceError

# The first query of a session starts workers of Python, which takes long on a machine that does much else.
pytestmark = pytest.mark.timeout(900)

ROUNDS = int(os.environ.get("WARREN_SPARK_ROUNDS", "1"))


@pytest.fixture(scope="module")
def spark():
    from warren.spark import session

    try:
        found = session("tests", "local[2]", **{"spark.sql.streaming.pollingDelay": "50ms", "spark.log.level": "ERROR"})
    except SparkSourceError as error:
        if error.code != "E1" or "CI" in os.environ:
            raise
        pytest.skip(str(error))
    yield found
    found.stop()


def load(spark, broker, queue, **options):
    return spark.read.format("warren").options(url=broker.url, queue=queue, **options).load()


def publish(broker, queue, count, start=0):
    for number in range(start, start + count):
        broker.publish(f'{{"id": {number}, "total": {number % 90}}}', queue, delivery_mode=2)


class Query:
    """A streaming query into files of Parquet, with its checkpoint."""

    def __init__(self, spark, folder):
        self.spark, self.table, self.checkpoint = spark, f"{folder}/table", f"{folder}/checkpoint"

    def start(self, broker, queue, *, available_now=True, **options):
        stream = self.spark.readStream.format("warren").options(url=broker.url, queue=queue, **options).load()
        sink = stream.writeStream.format("parquet").options(path=self.table, checkpointLocation=self.checkpoint)
        return (sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime="0 seconds")).start()

    def run(self, broker, queue, **options):
        query = self.start(broker, queue, **options)
        query.awaitTermination()
        return query

    def numbers(self):
        rows = self.spark.read.parquet(self.table).select("seq").collect()
        return sorted(row.seq for row in rows)

    def committed(self):
        """How many micro-batches are in the commit log."""
        commits = Path(self.checkpoint, "commits")
        return len([name for name in os.listdir(commits) if name.isdigit()]) if commits.exists() else 0


def test_a_queue_as_a_table(spark, broker, queue):
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 1000)
    orders = load(spark, broker, queue, bodyFormat="json", bodySchema="id long, total double")
    (row,) = orders.groupBy("queue").agg({"body.total": "sum", "seq": "max"}).collect()
    assert tuple(row) == (queue, sum(number % 90 for number in range(1000)), 999)
    everything = load(spark, broker, queue, columns="all", headersFormat="json")
    assert everything.count() == 1000 and "x_death" in everything.columns
    few = load(spark, broker, queue, pushFilters="true", columns="seq,body").where("seq >= 990 and seq < 992")
    assert sorted(row.seq for row in few.collect()) == [990, 991]
    declared = spark.read.format("warren").schema("body binary, seq long").options(url=broker.url, queue=queue).load()
    assert declared.columns == ["body", "seq"] and declared.limit(3).count() == 3
    assert broker.queue(queue).messages == 1000


def test_wrong_options_and_schemas_are_refused_with_words(spark, broker, queue):
    broker.declare_queue(queue)
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        load(spark, broker, queue, startingOfsets="1")
    with pytest.raises(Exception, match="has no column 'boddy'"):
        spark.read.format("warren").schema("boddy binary").options(url=broker.url, queue=queue).load().collect()


def test_a_data_directory_as_a_table(spark, tmp_path):
    with Broker(port=0, data_dir=tmp_path / "data") as broker:
        broker.declare_queue("orders", durable=True)
        publish(broker, "orders", 100)
        broker.wait_idle()
    read = spark.read.format("warren").option("path", str(tmp_path / "data"))
    assert read.load().where("seq < 10").count() == 10
    (row,) = read.option("view", "queues").load().collect()
    assert (row.queue, row.messages, row.durable) == ("orders", 100, True)
    assert read.option("view", "damage").load().count() == 0


def test_a_stream_has_each_message_once_and_deletes_what_is_committed(spark, broker, queue, tmp_path):
    """AvailableNow ends with all of before and nothing of after; a later run goes on there."""
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 3000)
    query = Query(spark, tmp_path)
    options = {"deleteOnCommit": "true", "maxMessagesPerTrigger": "2000"}
    run = query.run(broker, queue, **options)
    assert [progress["numInputRows"] for progress in run.recentProgress if progress["numInputRows"]] == [2000, 1000]
    assert query.numbers() == list(range(3000))
    # The end of a run acknowledges its last micro-batch too.
    assert broker.queue(queue).messages == 0
    publish(broker, queue, 500, 3000)
    query.run(broker, queue, **options)
    assert query.numbers() == list(range(3500))
    offset = json.loads(run.lastProgress["sources"][0]["endOffset"])
    assert (offset["v"], offset["queues"][queue]["next"]) == (1, 3000)
    assert "guest" not in "".join(
        path.read_text("utf-8", "replace") for path in Path(query.checkpoint).rglob("*") if path.is_file()
    )


def test_messages_that_others_take_fail_the_query_or_are_passed_over(spark, broker, queue, tmp_path):
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 100)
    query = Query(spark, tmp_path)
    query.run(broker, queue)
    publish(broker, queue, 100, 100)
    broker.purge(queue)
    publish(broker, queue, 10, 200)
    with pytest.raises(Exception, match=r"100 messages left unread \(numbers 100 to 199\)"):
        query.run(broker, queue)
    query.run(broker, queue, failOnDataLoss="false")
    assert query.numbers() == [*range(100), *range(200, 210)]
    broker.delete_queue(queue)
    with pytest.raises(Exception, match="it was deleted"):
        query.run(broker, queue)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_killed_workers_and_a_restarted_broker_cost_no_message(spark, tmp_path, round):
    """The ledger: each number once, whatever dies in the middle of micro-batches."""
    count = 40_000
    query = Query(spark, tmp_path)
    with Broker(port=0, data_dir=tmp_path / "data") as broker:
        broker.declare_queue("orders", durable=True)
        publish(broker, "orders", count)
        broker.wait_idle()
        port = broker.port
        options = {"maxMessagesPerTrigger": "4000", "deleteOnCommit": "true", "reconnectTimeout": "300s"}
        running = query.start(broker, "orders", **options)
        wait_for(lambda: query.committed() >= 2, running)
    # The broker is gone now, and the query waits for it.
    with Broker(port=port, data_dir=tmp_path / "data") as broker:
        wait_for(lambda: query.committed() >= 4, running)
        kill_workers()
        try:
            running.awaitTermination()
        except Exception as error:
            # Local mode never repeats a task, so a killed worker may end the query; it goes on where it was.
            assert "crashed" in str(error) or "exited unexpectedly" in str(error) or "EOF" in str(error), error
            query.run(broker, "orders", **options)
        assert query.numbers() == list(range(count))
        assert broker.queue("orders").messages == 0


def wait_for(condition, running):
    deadline = time.monotonic() + 300
    while not condition():
        if running.exception() is not None:
            raise running.exception()
        if not running.isActive:
            return
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def kill_workers():
    """Kill what runs Python for Spark below this process with -9."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"pyspark.daemon" in command and descends(int(process.name)):
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue


def descends(pid):
    """Whether a process is below this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return False
