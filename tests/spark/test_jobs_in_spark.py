"""The jobs that study queues, inside Spark and as commands: one session for all tests of this file."""

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from warren import Broker
from warren.cli.failure import CommandFailure
from warren.cli.main import root
from warren.spark import read_archive, verify_archive
from warren.spark.archive.archive_reader import MESSAGE_SCHEMA
from warren.spark.archive.notes import ArchivedFile
from warren.spark.errors import SparkSourceError
from warren.spark.jobs import query as query_module
from warren.spark.jobs.analyse import analyse
from warren.spark.jobs.archive import archive
from warren.spark.jobs.capacity import capacity
from warren.spark.jobs.compact import compact
from warren.spark.jobs.flow_table import FlowTable
from warren.spark.jobs.flow_windows import Sums, WindowKey, Windows, consumed_rows
from warren.spark.jobs.query import find_messages, query

# The first query of a session starts Python workers, which may take long on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def broker(data_dir):
    """A broker on `data_dir`, for all tests of this file."""
    with Broker(port=0, data_dir=data_dir) as running:
        yield running


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data directory of the broker."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def places(spark, broker, tmp_path_factory):
    """Options for an archive and the broker: messages 0 to 99 are in both, 100 to 119 only in the broker."""
    target = str(tmp_path_factory.mktemp("archive") / "a")
    broker.declare_queue("orders", durable=True)
    broker.declare_queue("audit", durable=True)
    publish(broker, "orders", range(100))
    archive(spark, target, url=broker.url, queue="orders", keep=True)
    publish(broker, "orders", range(100, 120))
    broker.publish(b"\xff\x00", "audit", delivery_mode=2, message_id="m-5", headers={"x-keys": ["k-5", "k-x"]})
    return {"archive": target, "url": broker.url}


def publish(broker, queue, numbers):
    for number in numbers:
        broker.publish(
            f'{{"n": {number}}}',
            queue,
            delivery_mode=2,
            message_id=f"m-{number}",
            correlation_id=f"c-{number % 10}",
            headers={"x-keys": f"k-{number} all_of"},
        )


def found(spark, **sought):
    return [(row["queue"], row["seq"], row["place"]) for row in query(spark, **sought).messages]


def test_a_message_is_found_once_wherever_it_is(spark, broker, places):
    """A message that is in several places is found once, by queue id and number, and the newest come first (SP-96)."""
    assert found(spark, **places, message_id="m-5") == [("audit", 0, "live"), ("orders", 5, "archive")]
    assert found(spark, **places, key="k-100") == [("orders", 100, "live")]
    assert found(spark, **places, key="k-5") == [("audit", 0, "live"), ("orders", 5, "archive")]
    assert found(spark, **places, key="allxof") == []
    everything = find_messages(spark, **places, correlation_id="c-3", pattern="ord*s").collect()
    assert [(row.seq, row.place) for row in everything] == [
        *((number, "live") for number in (113, 103)),
        *((number, "archive") for number in range(93, 0, -10)),
    ]
    assert all((row.file or "").endswith(".parquet") == (row.place == "archive") for row in everything)
    limited = query(spark, archive=places["archive"], routing_key="?rd*", limit=2)
    assert [row["seq"] for row in limited.messages] == [99, 98] and limited.has_more
    assert broker.queue("orders").messages == 120


def test_conditions_may_name_bodies_and_times(spark, places):
    (row,) = query(spark, **places, where="seq > 50 and cast(body as string) = '{\"n\": 117}'").messages
    assert (row["seq"], bytes(row["body"])) == (117, b'{"n": 117}')
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert found(spark, **places, queues="orders", since=now + hour) == []
    assert found(spark, **places, queues="orders", until=now - hour) == []
    assert len(found(spark, **places, since=now - hour, until=now + hour, limit=500)) == 121
    with pytest.raises(SparkSourceError, match="cannot be 'sequ > 5': give a condition in Spark's SQL.*sequ"):
        query(spark, **places, where="sequ > 5")
    with pytest.raises(SparkSourceError, match=r"cannot be 'seq >'.*\(\[PARSE_SYNTAX_ERROR\]"):
        query(spark, archive=places["archive"], where="seq >")
    with pytest.raises(SparkSourceError, match="queue 'nowhere': there is no such queue"):
        query(spark, **places, queues="nowhere")
    with pytest.raises(SparkSourceError, match="needs an archive, a broker's URL or a data directory"):
        query(spark, message_id="m-5")


def test_a_condition_that_fails_for_a_message_is_explained(spark, places):
    for where, reason in (("size / 0 > 1", "DIVIDE_BY_ZERO"), ("cast(routing_key as int) = 1", "CAST_INVALID_INPUT")):
        with pytest.raises(SparkSourceError, match=rf"give a condition in Spark's SQL \(\[{reason}") as caught:
            query(spark, **places, where=where)
        assert caught.value.code == "E4"


def test_a_message_that_is_archived_during_a_search_is_found(spark, broker, queue, tmp_path, monkeypatch):
    """A message moves from its queue into the archive after the files of the archive were listed, and before the queue
    is read.
    """
    broker.declare_queue(queue, durable=True)
    target, given = str(tmp_path / "archive"), {"url": broker.url, "queue": queue}
    archive(spark, target, **given)
    publish(broker, queue, [1])
    moved = []

    def find_first(*args, **sought):
        rows = find_messages(*args, **sought)
        if not moved:
            moved.append(archive(spark, target, **given))
        return rows

    monkeypatch.setattr(query_module, "find_messages", find_first)
    assert found(spark, archive=target, url=broker.url, queues=queue) == [(queue, 0, "archive")]
    assert moved[0].messages == 1


def test_a_sharded_queue_means_its_shards(spark, broker, tmp_path):
    """A sharded queue has no messages of its own, so its name means its shards, wherever they are searched."""
    broker.declare_queue("parcels", durable=True, arguments={"x-warren-shards": 2})
    broker.declare_queue("parcels_x", durable=True)
    for number in range(8):
        broker.publish(b"%d" % number, "parcels", delivery_mode=2)
    broker.publish(b"x", "parcels_x", delivery_mode=2)
    target = str(tmp_path / "archive")
    archive(spark, target, url=broker.url, pattern="parcels*", keep=True)
    live, archived = {"url": broker.url}, {"archive": target}
    for place in (live, archived, live | archived):
        for chosen in ({"queues": "parcels"}, {"pattern": "*els"}):
            rows = find_messages(spark, **place, **chosen, with_body=True).collect()
            assert sorted(bytes(row.body) for row in rows) == [b"%d" % number for number in range(8)]
    shards = {"parcels_0", "parcels_1"}
    for place, queues, there in ((live, "parcels_x, parcels", shards | {"parcels_x"}), (archived, "parcels", shards)):
        tables = analyse(spark, **place, queues=queues).tables
        assert {row["queue"] for row in tables["sizes"]} == there
        assert {row["queue"] for row in tables["holes"]} == (shards if place is archived else set())
    assert read_archive(spark, target, queue="parcels").count() == 8
    broker.delete_queue("parcels")
    broker.delete_queue("parcels_x")


def test_a_queue_that_cannot_be_read_is_named_and_the_others_are_searched(spark, broker, places):
    broker.declare_queue("urgent", durable=True, arguments={"x-max-priority": 3})
    try:
        result = query(spark, url=broker.url, message_id="m-5")
        assert [row["queue"] for row in result.messages] == ["audit", "orders"]
        assert list(result.left_out) == ["urgent"] and "has priorities" in result.left_out["urgent"]
        with pytest.raises(SparkSourceError, match="queue 'urgent'.*cannot be read by number"):
            query(spark, url=broker.url, queues="urgent")
        sizes = analyse(spark, url=broker.url).tables["sizes"]
        assert [row["queue"] for row in sizes] == ["audit", "orders"]
    finally:
        broker.delete_queue("urgent")


def test_times_are_those_of_utc_wherever_the_driver_is(spark, places, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        (row,) = query(spark, url=places["url"], queues="audit").messages
        tables = analyse(spark, url=places["url"], queues="audit", bucket="1d").tables
    finally:
        monkeypatch.undo()
        time.tzset()
    assert abs(datetime.now(UTC) - row["came"]) < timedelta(hours=1) and row["came"].utcoffset() == timedelta(0)
    assert tables["rates"][0]["bucket"] == row["came"].replace(hour=0, minute=0, second=0, microsecond=0)


def test_dates_are_those_of_utc_in_every_session(spark, broker, places, queue, tmp_path):
    """`since`, and the folders that Spark writes for days, do not depend on the time zone of the user's session."""
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, [1])
    zone = spark.conf.get("spark.sql.session.timeZone")
    # In one of these zones it is another day than in Greenwich at any time.
    for zone_there in ("Pacific/Kiritimati", "Etc/GMT+12"):
        spark.conf.set("spark.sql.session.timeZone", zone_there)
        try:
            today = datetime.now(UTC).date()
            tables = analyse(spark, archive=places["archive"], since=(today - timedelta(days=1)).isoformat()).tables
            soon = (datetime.now(UTC) + timedelta(minutes=1)).replace(tzinfo=None)
            later = analyse(spark, archive=places["archive"], since=soon.isoformat()).tables
            target = tmp_path / zone_there.replace("/", "-")
            archive(spark, str(target), url=broker.url, queue=queue, keep=True, through_spark="parquet")
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        assert (len(tables["sizes"]), later["sizes"]) == (1, [])
        (folder,) = target.glob("queue=*/date=*")
        assert folder.name.removeprefix("date=") in (today.isoformat(), datetime.now(UTC).date().isoformat())


def seeded_archive(folder):
    """An archive of two queues with figures that are easy to compute by hand; each message was archived 10 to 30 s
    after it arrived.
    """
    began = datetime(2026, 11, 20, tzinfo=UTC)
    rows = {"busy": [], "quiet": []}
    for second in range(10):
        for _ in range(100 + second):
            moment = began + timedelta(seconds=second)
            rows["busy"].append((moment, moment + timedelta(seconds=10)))
    for day in range(5):
        moment = began + timedelta(hours=12 * day)
        rows["quiet"].append((moment, moment + timedelta(seconds=30)))
    return archive_of(rows, folder)


def archive_of(rows, folder):
    """An archive of messages that are given by queue, each as the times at which it arrived and was archived."""
    schema = pyarrow.schema([*MESSAGE_SCHEMA, ("archived_at", pyarrow.timestamp("us", tz="UTC"))])
    entries = []
    for queue, times in rows.items():
        path = f"queue={queue}/date=2026-11-20/00000000-{0:020}-{len(times):020}.parquet"
        messages = [
            {"queue": queue, "seq": n, "size": 1000, "properties": bytes(80), "arrived": came, "archived_at": taken}
            for n, (came, taken) in enumerate(times)
        ]
        (folder / path).parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(messages, schema=schema), folder / path)
        numbers = (0, len(times), len(times), 0, 0, (folder / path).stat().st_size)
        entries.append(ArchivedFile(path, queue, "", *numbers, times[0][0], times[-1][0], 0)._asdict())
    notes = folder / "_warren" / "files"
    (notes / "_spark_metadata").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(entries), notes / "part-0.parquet")
    (notes / "_spark_metadata" / "0").write_text('v1\n{"path": "file:///part-0.parquet", "action": "add"}')
    return str(folder), sum(entry["bytes"] for entry in entries)


def test_capacity_is_what_the_formulas_give_by_hand(own_session, spark, tmp_path):
    """The job `capacity` reports the figures that its formulas give by hand (SP-100)."""
    archive, file_bytes = seeded_archive(tmp_path)
    result = capacity(spark, archive, node_rate=150, growth=2, keep_for=86_400, memory=6_000_000)
    assert (result.messages, result.days) == (1050, 2.0)
    found = {(each.queue, each.setting): each for each in result.advice}
    values = {key: each.value for key, each in found.items()}
    # The busiest second of `busy` has 109 messages, and all its 1,045 messages are waiting when the first are archived.
    assert values == {
        ("busy", "x-warren-shards"): "2",
        ("busy", "x-message-ttl"): "20000",
        ("busy", "x-max-length"): "2090",
        ("quiet", "x-warren-shards"): "1",
        ("quiet", "x-message-ttl"): "60000",
        ("quiet", "x-max-length"): "2",
        ("", "x-queue-mode"): "lazy",
        ("", "disk"): "1,260,000 B",
        ("", "archive"): f"{file_bytes:,} B",
        ("", "files"): "warren pipeline compact",
    }
    assert "growth 2 × 109 messages/s" in found["busy", "x-warren-shards"].because
    assert "= 2,510,400 B, which is 41.8% of 6,000,000 B" in found["", "x-queue-mode"].because
    calm = capacity(spark, archive, node_rate=218, growth=1, memory=8_000_000)
    assert [each.value for each in calm.advice if each.setting == "x-queue-mode"] == ["default"]
    assert "close to" not in calm.advice[0].because
    near = capacity(spark, archive, node_rate=120, growth=1, memory=8_000_000)
    assert (near.advice[0].value, near.advice[0].because[-38:]) == ("1", "which is close to what one node can do")
    base = ["pipeline", "capacity", "--archive", archive, "--machine", "16g", "--keep-for", "2d"]
    shown = CliRunner().invoke(root, base)
    assert shown.exit_code == 0 and shown.stdout.splitlines()[1].startswith("busy\tx-warren-shards\t1\tgrowth 2 × 109")
    assert shown.stderr.endswith("Computed from 1,050 messages of 2.0 days.\n")
    answer = json.loads(CliRunner().invoke(root, [*base, "--formatter", "json"]).stdout)
    assert answer["advice"][1] == {"queue": "busy", "setting": "x-message-ttl", "value": "20000"} | {
        "because": found["busy", "x-message-ttl"].because
    }
    nothing = ["pipeline", "capacity", "--archive", str(tmp_path / "queue=busy")]
    failed = CliRunner().invoke(root, nothing, standalone_mode=False).exception
    assert isinstance(failed, CommandFailure) and failed.code == 64 and "is no archive" in failed.message


def test_capacity_counts_the_days_of_all_queues_together(spark, tmp_path):
    """Queues that had their messages on different days make no day busier than it was."""
    began = datetime(2026, 11, 20, tzinfo=UTC)
    times = {"first": [began, began + timedelta(days=1)], "last": [began + timedelta(days=each) for each in (9, 10)]}
    target, file_bytes = archive_of(
        {queue: [(at, at - timedelta(seconds=1)) for at in some] for queue, some in times.items()}, tmp_path
    )
    result = capacity(spark, target, growth=1, keep_for=86_400, memory=1 << 30)
    values = {each.setting: each.value for each in result.advice}
    assert (result.days, values["disk"]) == (10.0, "480 B") and values["archive"] == f"{-(-file_bytes // 10):,} B"
    # The archive's clock was behind the broker's, and a time to live of 0 would drop what no consumer waits for.
    assert "x-message-ttl" not in values


def test_a_table_of_flow_adds_prefetch_and_slow_queues(spark, tmp_path):
    """With a table of the job `flow`, `capacity` also reports a prefetch by Little's law and slow queues, from the
    figures of 99% of the windows (SP-100).
    """
    archive, _ = seeded_archive(tmp_path / "archive")
    folder, windows = str(tmp_path / "flow"), Windows(10)
    table, sums = FlowTable(folder), []
    table.begin(10)
    nobody = ("", "", 0, 0, 0)
    for at in range(0, 1000, 10):
        sums.append((WindowKey(at, "a@a", "node", "", ""), Sums(10, 10.0, 0, *nobody, 0)))
        # Two consumers acknowledge 30 messages a second and hold 12, except in one window, in which they are busier.
        acked, held = (9000, 9000.0) if at == 500 else (300, 120.0)
        sums.append((WindowKey(at, "a@a", "consumed", "/", "busy"), Sums(10, held, 2, *nobody, acked)))
        sums.append((WindowKey(at, "a@a", "consumed", "/", "quiet"), Sums(10, 10.0, 1, *nobody, 0)))
        sums.append((WindowKey(at, "a@a", "consumed", "/", "deep"), Sums(10, 500_000.0, 1, *nobody, 10)))
        if at < 30:
            slow = "queues 'quiet', 'other' in vhost '/'"
            sums.append((WindowKey(at, "a@a", "verdict", "queue", slow), Sums(10, 8.0, 1, *nobody, 0)))
    windows.update(sums)
    table.put(windows.rows(), consumed_rows(10, sums))
    advice = capacity(spark, archive, growth=1, memory=8_000_000, flow=folder).advice
    found = {(each.queue, each.setting): each for each in advice}
    # 15 messages a second for each consumer × 0.4 s = 6, rounded up to the next power of 2.
    assert (found["busy", "prefetch"].value, found["deep", "prefetch"].value) == ("8", "2000")
    assert found["busy", "prefetch"].because.startswith("15.0 messages/s of a consumer × 0.4 s from delivery")
    assert "= 6.0, up to the next power of 2" in found["busy", "prefetch"].because
    assert found["deep", "prefetch"].because.endswith("at most 2,000") and ("quiet", "prefetch") not in found
    assert [found[name, "x-warren-shards"].value for name in ("busy", "quiet")] == ["1", "2"]
    assert "the bottleneck in 3 of 100 windows" in found["quiet", "x-warren-shards"].because
    with pytest.raises(SparkSourceError, match="has no table of `warren pipeline flow`"):
        capacity(spark, archive, flow=str(tmp_path))


def test_ctrl_c_ends_an_archive_and_the_next_run_goes_on(own_session, broker, queue, tmp_path, interrupt_when):
    """After Ctrl-C the micro-batch that was being written is in the archive, and the next run goes on without doubling
    a row (SP-90).
    """
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, range(100))
    target = tmp_path / "archive"
    command = ["pipeline", "archive", "--url", broker.url, "--queue", queue, "--to", str(target)]
    # Ctrl-C comes when the micro-batch is in the checkpoint; its file may be complete or not.
    with interrupt_when(lambda: any(target.glob("_warren/checkpoint/offsets/0"))):
        ended = CliRunner().invoke(root, [*command, "--follow"])
    assert ended.exit_code == 130, (ended.output, ended.exception)
    assert ended.stdout.startswith("Interrupted after 100 messages in 1 file, ")
    assert ended.stdout.endswith("The same command goes on from there.\n")
    publish(broker, queue, range(100, 150))
    gone_on = CliRunner().invoke(root, [*command, "--formatter", "json"])
    assert gone_on.exit_code == 0 and json.loads(gone_on.stdout)["messages"] == 50
    (checked,) = verify_archive(str(target))
    assert (checked.rows, checked.gone, checked.problems) == (150, 0, ())


def test_spark_itself_writes_an_archive_with_rows_that_the_caller_changes(spark, own_session, broker, queue, tmp_path):
    """Spark's own sink can write an archive with rows that the caller changes: each message is there once, the next run
    goes on, and jobs that rely on warren's own files refuse it (SP-93).
    """
    broker.declare_queue(queue, durable=True)
    publish(broker, queue, range(100))
    target = str(tmp_path / "archive")
    given = {"url": broker.url, "queue": queue, "maxMessagesPerTrigger": 40}

    def even(rows):
        return rows.where("seq % 2 = 0").selectExpr(
            "queue", "date", "seq", "cast(body as string) as text", "archived_at"
        )

    result = archive(spark, target, transform=even, **given)
    assert (result.messages, result.files, result.gone) == (100, 0, 0)
    publish(broker, queue, range(100, 110))
    assert archive(spark, target, through_spark="parquet", transform=even, **given).messages == 10
    found = spark.read.parquet(target).collect()
    assert sorted((row.seq, row.text) for row in found) == [(n, f'{{"n": {n}}}') for n in range(0, 110, 2)]
    assert {row.queue for row in found} == {queue} and all(row.archived_at is not None for row in found)
    for refused, text in (
        (lambda: archive(spark, target, **given), "was begun with Spark's format 'parquet'"),
        (lambda: read_archive(spark, target), "spark.read.format('parquet')"),
        (lambda: verify_archive(target), "spark.read.format('parquet')"),
        (lambda: compact(target), "spark.read.format('parquet')"),
    ):
        with pytest.raises(SparkSourceError, match=re.escape(text)) as caught:
            refused()
        assert caught.value.code == "E4"
    publish(broker, queue, range(110, 140))
    base = ["pipeline", "archive", "--url", broker.url, "--queue", queue, "--through-spark", "json"]
    shown = CliRunner().invoke(root, [*base, "--keep", "--to", str(tmp_path / "other")])
    assert (shown.exit_code, shown.stdout) == (0, "30 messages in the format json\n"), (shown.output, shown.exception)
    assert spark.read.json(str(tmp_path / "other")).select("seq", "queue").distinct().count() == 30
    failed = CliRunner().invoke(root, [*base, "--to", target], standalone_mode=False).exception
    assert isinstance(failed, CommandFailure) and failed.code == 64 and "Use another folder" in failed.message


def test_the_command_finds_messages(own_session, places):
    base = ["pipeline", "query", "--archive", places["archive"], "--url", places["url"]]
    shown = CliRunner().invoke(root, [*base, "--id", "m-5", "--body"])
    assert shown.exit_code == 0, (shown.output, shown.exception)
    head, first, second = shown.stdout.splitlines()
    assert head.split("\t")[1:4] == ["place", "queue", "seq"] and head.endswith("body")
    assert first.split("\t")[1:4] == ["live", "audit", "0"] and first.endswith("base64:/wA=")
    assert second.split("\t")[1:4] == ["archive", "orders", "5"] and second.endswith('{"n": 5}')
    answer = json.loads(CliRunner().invoke(root, [*base, "--key", "k-7", "--formatter", "json"]).stdout)
    (row,) = answer["messages"]
    assert (row["seq"], row["headers"]["x-keys"], answer["has_more"]) == (7, "k-7 all_of", False)
    assert "body" not in row and datetime.fromisoformat(row["came"]) == datetime.fromisoformat(row["arrived"])
    nothing = CliRunner().invoke(root, [*base, "--id", "m-1000"])
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "Nothing was found.\n")
    failed = CliRunner().invoke(root, ["pipeline", "query", "--id", "m-5"], standalone_mode=False).exception
    assert isinstance(failed, CommandFailure) and failed.code == 64


def test_a_data_directory_is_searched_as_well(spark, broker, places, data_dir):
    """A stopped broker's data directory is searched as well. This test must be the last of the file, because it stops
    the broker: a directory in use is not read.
    """
    broker.declare_queue("urgent", durable=True, arguments={"x-max-priority": 3})
    for priority in range(3):
        broker.publish(b"x", "urgent", delivery_mode=2, priority=priority)
    broker.stop()
    # Each priority numbers its messages by itself, so all three have the same number.
    sought = {"archive": places["archive"], "data_dir": str(data_dir), "queues": "urgent"}
    assert found(spark, **sought) == [("urgent", 0, "offline")] * 3
    sought = {"archive": places["archive"], "data_dir": str(data_dir), "queues": "orders"}
    assert found(spark, **sought, message_id="m-7") == [("orders", 7, "archive")]
    assert found(spark, **sought, where="body like '%117%'") == [("orders", 117, "offline")]
    (row,) = query(spark, **sought, key="k-118").messages
    assert (row["place"], row["size"]) == ("offline", 10)
