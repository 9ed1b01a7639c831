"""The jobs that study queues, inside Spark itself and as commands: one session for all tests of this file."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from warren import Broker
from warren.cli.failure import CommandFailure
from warren.cli.main import root
from warren.spark.errors import SparkSourceError
from warren.spark.jobs.analyse import analyse
from warren.spark.jobs.archive import archive
from warren.spark.jobs.query import find_messages, query

# The first query of a session starts workers of Python, which takes long on a machine that does much else.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def broker(data_dir):
    """A broker with the queues of `places`."""
    with Broker(port=0, data_dir=data_dir) as running:
        yield running


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data directory of the broker."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def places(spark, broker, tmp_path_factory):
    """Options for an archive and the broker: numbers 0 to 99 are in both, 100 to 119 only in the broker."""
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
    """SP-96: each message once, by queue id and number, the newest first."""
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


def test_a_queue_that_cannot_be_read_is_named_and_the_others_are_searched(spark, broker, places):
    broker.declare_queue("urgent", durable=True, arguments={"x-max-priority": 3})
    try:
        result = query(spark, url=broker.url, message_id="m-5")
        assert [row["queue"] for row in result.messages] == ["audit", "orders"]
        assert list(result.left_out) == ["urgent"] and "has priorities" in result.left_out["urgent"]
        with pytest.raises(SparkSourceError, match="queue 'urgent'.*cannot be read by number"):
            query(spark, url=broker.url, queues="urgent")
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
    """The last test of this file: it stops the broker, for a directory in use is not read."""
    broker.stop()
    sought = {"archive": places["archive"], "data_dir": str(data_dir), "queues": "orders"}
    assert found(spark, **sought, message_id="m-7") == [("orders", 7, "archive")]
    assert found(spark, **sought, where="body like '%117%'") == [("orders", 117, "offline")]
    (row,) = query(spark, **sought, key="k-118").messages
    assert (row["place"], row["size"]) == ("offline", 10)
