"""The source inside Spark: one session for all tests of this file, because Java takes seconds to start."""

import contextlib
import functools
import inspect
import json
import math
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyspark.sql import functions

from warren import Broker, Cluster
from warren.actors.connection.handshake import WARREN_FEATURES
from warren.cli.failure import CommandFailure
from warren.cli.main import root
from warren.spark import read_archive, verify_archive
from warren.spark.archive.notes import last_committed
from warren.spark.jobs.analyse import analyse
from warren.spark.jobs.archive import archive
from warren.spark.jobs.compact import compact
from warren.spark.jobs.replay import replay
from warren.tests.spark.killing import (
    Killable,
    kill_driver,
    kill_workers,
    publish_rows,
    run_to_its_end,
    run_until,
    wait_for,
)

# The first query of a session starts Python workers, which may take long on a busy machine.
pytestmark = pytest.mark.timeout(900)

#: How many rounds each test of kills has; the variable sets more.
ROUNDS = int(os.environ.get("WARREN_SPARK_ROUNDS", "1"))


def load(spark, broker, queue, **options):
    return spark.read.format("warren").options(url=broker.url, queue=queue, **options).load()


def publish(broker, queue, count, start=0):
    for number in range(start, start + count):
        broker.publish(f'{{"id": {number}, "total": {number % 90}}}', queue, delivery_mode=2)


class Query:
    """A streaming query that writes Parquet files, with its checkpoint."""

    def __init__(self, spark, folder):
        self.spark, self.table, self.checkpoint = spark, f"{folder}/table", f"{folder}/checkpoint"

    def start(self, broker, queue, *, available_now=True, **options):
        stream = self.spark.readStream.format("warren").options(url=broker.url, queue=queue, **options).load()
        sink = stream.writeStream.format("parquet").options(path=self.table, checkpointLocation=self.checkpoint)
        return (sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime="0 seconds")).start()

    def run(self, broker, queue, **options):
        return run_to_its_end(lambda: self.start(broker, queue, **options))

    def numbers(self):
        rows = self.spark.read.parquet(self.table).select("seq").collect()
        return sorted(row.seq for row in rows)

    def committed(self):
        """The number of micro-batches in the commit log."""
        commits = Path(self.checkpoint, "commits")
        return len([name for name in os.listdir(commits) if name.isdigit()]) if commits.exists() else 0


def test_a_queue_as_a_table(spark, broker, queue):
    broker.declare_queue(queue, durable=True)
    assert load(spark, broker, queue).count() == 0
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


def test_headers_as_a_variant(spark, broker, queue):
    """Spark finds each header of a variant, whatever its name, with its type (SP-41)."""
    broker.declare_queue(queue)
    odd = {"\U0001f600": 1.5, "\uffee": b"\xff", "n": {"a": [True]}}
    broker.publish(b"x", queue, headers={f"h{number}": number for number in range(40)} | odd)
    read = load(spark, broker, queue, headersFormat="variant", columns="headers")
    paths = {f"$.h{number}": "int" for number in range(40)} | {"$['\U0001f600']": "double", "$.n.a[0]": "boolean"}
    found = read.selectExpr(*(f"""variant_get(headers, "{path}", "{type}")""" for path, type in paths.items())).first()
    assert list(found) == [*range(40), 1.5, True] and read.first().headers.toPython()["\uffee"] == b"\xff"


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
    assert (row.queue, row.messages, row.durable, row.first, row.next) == ("orders", 100, True, 0, 100)
    assert read.option("view", "damage").load().count() == 0
    files = read.option("view", "files").load().where("messages > 0").collect()
    assert sum(row.messages for row in files) == 100 and sum(row.garbage_bytes for row in files) == 0
    history = read.options(view="history", columns="seq,state,file").load()
    assert history.groupBy("state", "file").count().collect() == [("ready", files[0].path, 100)]


def test_a_stream_has_each_message_once_and_deletes_what_is_committed(spark, broker, queue, tmp_path):
    """A run with AvailableNow has all messages from before its start and none from after; the next run goes on from
    there, and each message is read once. Committed messages are deleted from the queue.
    """
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 3000)
    query = Query(spark, tmp_path)
    options = {"deleteOnCommit": "true", "maxMessagesPerTrigger": "2000"}
    run = query.run(broker, queue, **options)
    assert [progress["numInputRows"] for progress in run.recentProgress if progress["numInputRows"]] == [2000, 1000]
    assert query.numbers() == list(range(3000))
    # The end of a run acknowledges its last micro-batch as well.
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


def test_a_query_goes_on_with_other_columns_and_another_cut(spark, broker, queue, tmp_path):
    """A micro-batch that was not committed is read again in the partitions that it had, whatever the options are after
    the restart; only new micro-batches have the new size of partitions (SP-51, SP-67). A checkpoint of another
    version is refused (E6).
    """
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 3000)
    checkpoint = tmp_path / "checkpoint"
    seen = []

    def keep(rows, batch):
        spans = rows.groupBy(functions.spark_partition_id()).agg(functions.min("seq"), functions.max("seq")).collect()
        seen.append((batch, rows.columns, sorted((least, most) for _, least, most in spans)))

    def start(**options):
        given = {"url": broker.url, "queue": queue, "minPartitions": "1", **options}
        stream = spark.readStream.format("warren").options(**given).load()
        sink = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        return sink.trigger(availableNow=True).start()

    run_to_its_end(lambda: start(columns="core", maxMessagesPerPartition="1000"))
    spans = [(0, 999), (1000, 1999), (2000, 2999)]
    assert [(batch, found) for batch, _, found in seen] == [(0, spans)]
    # As if the driver had died before the micro-batch was committed.
    for name in ("commits/0", "commits/.0.crc"):
        (checkpoint / name).unlink()
    publish(broker, queue, 800, 3000)
    seen.clear()
    run_to_its_end(lambda: start(columns="seq,body", maxMessagesPerPartition="400"))
    assert seen == [(0, ["seq", "body"], spans), (1, ["seq", "body"], [(3000, 3399), (3400, 3799)])]

    log = checkpoint / "offsets" / "1"
    written = log.read_text()
    for version, way_out in ((2, "Use the newer warren, or a new checkpointLocation"), (0, "Use a new checkpoint")):
        changed, count = re.subn(r'"v": ?1\b', f'"v": {version}', written)
        assert count == 1, written
        log.write_text(changed)
        log.with_name(".1.crc").unlink(missing_ok=True)
        with pytest.raises(Exception, match=f"offset has version {version}, this warren .* knows 1. {way_out}"):
            run_to_its_end(start)


def test_an_archive_is_equal_to_the_queue_and_a_replay_to_the_archive(spark, tmp_path):
    target = str(tmp_path / "archive")
    with Broker(port=0, data_dir=tmp_path / "data") as broker:
        for name in ("eu/orders", "us", "again"):
            broker.declare_queue(name, durable=True)
        bodies = {"eu/orders": [bytes(number % 3000) for number in range(6000)], "us": [b"%d" % n for n in range(500)]}
        for name, each in bodies.items():
            for number, body in enumerate(each):
                broker.publish(body, name, delivery_mode=2, message_id=f"{name}-{number}", headers={"n": number % 5})
        options = {"url": broker.url, "queues": "eu/orders,us", "max_messages_per_trigger": 4000}
        result = archive(spark, target, max_messages_per_partition=1500, **options)
        assert (result.messages, result.gone) == (6500, 0)
        assert broker.queue("eu/orders").messages == broker.queue("us").messages == 0
        checked = verify_archive(target)
        assert [(each.queue, each.first, each.next, each.rows, each.problems) for each in checked] == [
            ("eu/orders", 0, 6000, 6000, ()),
            ("us", 0, 500, 500, ()),
        ]
        # Any other reader of Parquet finds the same rows.
        files = sorted(Path(target, "queue=eu%2Forders").rglob("*.parquet"))
        rows = [row for file in files for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()]
        assert [row["body"] for row in rows] == bodies["eu/orders"]
        assert [row["message_id"] for row in rows] == [f"eu/orders-{number}" for number in range(6000)]
        assert all(row["archived_at"] is not None for row in rows)
        assert read_archive(spark, target, queue="us", columns=["seq"]).count() == 500
        publish(broker, "us", 10)
        assert archive(spark, target, **options).messages == 10
        assert [each.next for each in verify_archive(target)] == [6000, 510]

        counted = replay(target, to_queue="again", dry_run=True)
        assert (counted.queues, counted.messages) == (2, 6510) and broker.queue("again").messages == 0
        hour, now = timedelta(hours=1), datetime.now(UTC)
        assert replay(target, to_queue="again", dry_run=True, since=now - hour, until=now).messages == 6510
        assert replay(target, to_queue="again", dry_run=True, since=now + hour).messages == 0
        sent = replay(target, url=broker.url, to_queue="again", queue="eu/orders")
        assert sent.messages == 6000
        assert replay(target, url=broker.url, to_queue="again", queue="eu/orders").messages == 0
        again = load(spark, broker, "again", columns="seq,body,message_id,headers").orderBy("seq").collect()
        assert [bytes(row.body) for row in again] == bodies["eu/orders"]
        assert [row.message_id for row in again] == [f"eu/orders-{number}" for number in range(6000)]
        assert again[7].headers == {"n": "2", "x-warren-replay": "replay"}
        check_analysis(spark, target, rows, tmp_path)

        assert compact(target, now=now + timedelta(days=2)).into == 2
        assert sorted(row.body for row in read_archive(spark, target, queue="eu/orders").collect()) == sorted(
            bodies["eu/orders"]
        )
        publish(broker, "us", 5)
        assert archive(spark, target, **options).messages == 5
        assert [(each.next, each.rows, each.problems) for each in verify_archive(target)] == [
            *((6000, 6000, ()), (515, 515, ())),
        ]
        files = sorted(Path(target, "queue=eu%2Forders").rglob("*.parquet"))
        assert len(files) == 1
        files[0].unlink()
        assert "cannot be read" in verify_archive(target)[0].problems[0]


def check_analysis(spark, target, rows, folder):
    """Assert that the tables are those which plain Python computes, and that the report loads nothing from
    elsewhere.
    """
    found = analyse(
        spark, archive=target, bucket="1d", report=str(folder / "report.html"), tables=str(folder / "tables")
    )
    sizes = sorted(row["size"] for row in rows)
    at = {share: sizes[math.ceil(share * len(sizes)) - 1] for share in (0.5, 0.9, 0.99)}
    (row,) = [row for row in found.tables["sizes"] if row["queue"] == "eu/orders"]
    assert (row["messages"], row["p50"], row["p90"], row["p99"], row["most"]) == (6000, *at.values(), sizes[-1])
    assert row["share_embedded"] == sum(size < 4096 for size in sizes) / 6000
    keys = [(row["exchange"], row["routing_key"], row["messages"]) for row in found.tables["keys"]]
    assert keys == [("", "eu/orders", 6000), ("", "us", 510)]
    assert sum(row["messages"] for row in found.tables["rates"]) == 6510
    assert [row["repeated_ids"] for row in found.tables["redelivery"]] == [0, 0]
    assert [(row["queue"], row["rows"], row["gone"]) for row in found.tables["holes"]] == [
        ("eu/orders", 6000, 0),
        ("us", 510, 0),
    ]
    page = (folder / "report.html").read_text()
    assert "6,510 messages of 2 queues" in page and page.count("<svg") >= 3 and len(page) < 2 << 20
    assert (
        not re.findall(r"""(?:src|href)=["'](?!#)""", page)
        and "@import" not in page
        and "url(" not in re.sub(r"url\(#", "", page)
    )
    assert spark.read.parquet(str(folder / "tables" / "keys")).count() == 2


def test_the_command_archives(own_session, broker, queue, tmp_path):
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, 20)
    base = ["pipeline", "archive", "--url", broker.url, "--to", str(tmp_path / "a"), "--formatter", "json"]
    done = CliRunner().invoke(root, [*base, "--queue", queue, "--keep"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)["messages"] == 20
    assert broker.queue(queue).messages == 20
    broker.purge(queue)
    publish(broker, queue, 5)
    assert CliRunner().invoke(root, [*base, "--queue", queue, "--keep"]).exit_code == 0
    broker.delete_queue(queue)
    failed = CliRunner().invoke(root, [*base, "--queue", queue], standalone_mode=False).exception
    assert isinstance(failed, CommandFailure) and failed.code == 65 and "it was deleted" in failed.message
    base[base.index("--to") + 1] = str(tmp_path / "exchange")
    exchange = ["--exchange", "amq.topic", "--subscription", queue, "--binding-key", "a.*", "--binding-key", "b"]
    assert CliRunner().invoke(root, [*base, *exchange]).exit_code == 0
    for key in ("a.1", "b", "c", "a.2"):
        broker.publish(b"x", key, exchange="amq.topic", delivery_mode=2)
    assert json.loads(CliRunner().invoke(root, [*base, *exchange]).stdout)["messages"] == 3
    assert broker.queue(f"spark.{queue}").messages == 0


#: Without the broker's catalogue a query cannot know that a queue was declared again, or that a gap after a crash is no
#: loss.
needs_catalogue = pytest.mark.skipif("catalogue" not in WARREN_FEATURES, reason="this broker has no catalogue")


@pytest.fixture
def killable(tmp_path):
    broker = Killable(tmp_path / "data")
    yield broker
    broker.kill()


def bodies(spark, query):
    return sorted(int(row.body) for row in spark.read.parquet(query.table).select("body").collect())


@needs_catalogue
@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_broker_and_killed_workers_cost_no_message(spark, tmp_path, killable, round):
    """Whatever is killed in the middle of micro-batches, each message is read once."""
    query = Query(spark, tmp_path)
    killable.publish(range(20_000))
    options = {"maxMessagesPerTrigger": "2000", "deleteOnCommit": "true", "reconnectTimeout": "300s"}
    running = run_until(lambda: query.start(killable, "orders", **options), lambda: query.committed() >= 2)
    killable.kill()
    killable.start()
    # After a crash the queue leaves out numbers that it may have promised before, so there is a gap.
    killable.publish(range(20_000, 25_000))
    wait_for(lambda: query.committed() >= 4, running)
    kill_workers()
    try:
        running.awaitTermination()
    except Exception as error:
        # Local mode does not repeat a task, so a killed worker may end the query; the query is started again from its
        # checkpoint.
        assert "SparkSourceError" not in str(error), error
    query.run(killable, "orders", **options)
    assert bodies(spark, query) == list(range(25_000))
    assert killable.count() == 0


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_master_of_a_mirrored_queue_costs_no_message(spark, tmp_path, round):
    """The node with the master of a queue is killed in the middle of a micro-batch, and the query goes on with another
    node, although its URL names only the dead one: each message is read once (SP-58).
    """
    query = Query(spark, tmp_path)
    options = {"maxMessagesPerTrigger": "2000", "deleteOnCommit": "true", "reconnectTimeout": "300s"}
    with Cluster(3, data_dir=tmp_path / "nodes", net_ticktime=20.0) as cluster:
        cluster.set_policy("mirrored", "^orders", {"ha-mode": "all"})
        cluster.broker(0).declare_queue("orders", durable=True)
        cluster.wait_in_sync("orders", timeout=300)
        master, *others = cluster.queue("orders").in_sync
        first, second = cluster.broker(master), cluster.broker(others[0])
        publish_rows(first.url, "orders", range(20_000))
        running = run_until(lambda: query.start(first, "orders", **options), lambda: query.committed() >= 2)
        cluster.kill(master)
        publish_rows(second.url, "orders", range(20_000, 25_000))
        running.awaitTermination()
        assert cluster.queue("orders").node != master
        assert bodies(spark, query) == list(range(20_000))
        query.run(second, "orders", **options)
        assert bodies(spark, query) == list(range(25_000))
        assert cluster.queue("orders").messages == 0


DRIVER = """
import sys
from warren.spark import session

url, folder = sys.argv[1:]
spark = session("driver", "local[2]", **{"spark.python.authenticate.socketTimeout": "5m"})
options = {"url": url, "queue": "orders", "deleteOnCommit": "true", "maxMessagesPerTrigger": "1000"}
stream = spark.readStream.format("warren").options(**options).load()
sink = stream.writeStream.format("parquet").options(path=f"{folder}/table", checkpointLocation=f"{folder}/checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_driver_costs_no_message(spark, tmp_path, killable, round):
    query = Query(spark, tmp_path)
    killable.publish(range(12_000))
    kill_driver(DRIVER, killable.url, tmp_path, lambda: query.committed() >= 2)
    query.run(killable, "orders", deleteOnCommit="true")
    assert bodies(spark, query) == list(range(12_000))
    assert killable.count() == 0


ARCHIVING_DRIVER = """
import sys
from warren.spark import session
from warren.spark.jobs.archive import archive

url, folder = sys.argv[1:]
spark = session("driver", "local[2]", **{"spark.python.authenticate.socketTimeout": "5m"})
archive(spark, f"{folder}/archive", url=url, queue="orders", max_messages_per_trigger=1000)
"""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_archive_has_each_message_once(spark, tmp_path, killable, round):
    """The driver is killed twice in the middle of micro-batches, and then a worker and the broker."""
    target = str(tmp_path / "archive")
    killable.publish(range(20_000))
    for batch in (2, 6):
        kill_driver(ARCHIVING_DRIVER, killable.url, tmp_path, lambda batch=batch: last_committed(target) >= batch)
    kills = [lambda: (killable.kill(), killable.start()), kill_workers]

    def kill(progress):
        if kills and progress.messages:
            kills.pop()()

    given = {"url": killable.url, "queue": "orders", "max_messages_per_trigger": 1000, "reconnect_timeout": "300s"}
    with contextlib.suppress(Exception):  # Local mode does not repeat a task, so a killed worker ends the job.
        archive(spark, target, on_progress=kill, **given)
    archive(spark, target, on_progress=kill, **given)
    assert not kills
    archive(spark, target, **given)
    (checked,) = verify_archive(target)
    assert (checked.rows, checked.gone, checked.problems) == (20_000, 0, ())
    rows = read_archive(spark, target, columns=["body"]).collect()
    assert sorted(int(row.body) for row in rows) == list(range(20_000))
    assert killable.count() == 0


def copy_rows(spark, url, folder):
    """Start a query that publishes each message of `orders` to `copies` exactly once."""
    source = {"url": url, "queue": "orders", "columns": "queue_id,seq,body", "maxMessagesPerTrigger": "4000"}
    rows = spark.readStream.format("warren").options(**source).load()
    sink = rows.writeStream.format("warren").options(
        url=url,
        routingKey="copies",
        deliveryGuarantee="exactly-once",
        messageId="source",
        confirmWindow="500",
        checkpointLocation=f"{folder}/copies",
    )
    return sink.trigger(availableNow=True).start()


COPYING_DRIVER = f"""
import sys
from warren.spark import session

{inspect.getsource(copy_rows)}

url, folder = sys.argv[1:]
spark = session("driver", "local[2]", **{{"spark.python.authenticate.socketTimeout": "5m"}})
copy_rows(spark, url, folder).awaitTermination()
"""


@needs_catalogue
@pytest.mark.parametrize("round", range(ROUNDS))
def test_rows_are_published_exactly_once_whatever_is_killed(spark, tmp_path, killable, round):
    """Each row is published exactly once, although driver, workers and broker are killed in the middle of
    micro-batches, which are then repeated.
    """
    count = 12_000
    killable.publish(range(count))
    killable.declare("copies", {"x-warren-deduplicate": 100_000})
    kill_driver(COPYING_DRIVER, killable.url, tmp_path, lambda: killable.count("copies") >= 1_000)
    kills = [(4_500, kill_workers), (8_500, lambda: (killable.kill(), killable.start()))]
    copy = functools.partial(copy_rows, spark, killable.url, tmp_path)
    for number, kill in kills:
        running = run_until(copy, lambda number=number: killable.count("copies") >= number)
        kill()
        with contextlib.suppress(Exception):  # Local mode does not repeat a task, so a killed worker ends the query.
            running.awaitTermination()
        running.stop()
    run_to_its_end(copy)
    found = [(int(body), message_id.partition("/")[2]) for body, message_id in killable.drained("copies")]
    assert sorted(body for body, _ in found) == list(range(count))
    assert len({message_id for _, message_id in found}) == count
