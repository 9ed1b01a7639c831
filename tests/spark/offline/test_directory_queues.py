"""The views `queues` and `damage` of a data directory, and reading one without its metadata (SP-76, SP-78)."""

import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from warren import Broker
from warren.spark.errors import SparkSourceError
from warren.spark.offline.directory_reader import DirectoryReader
from warren.spark.offline.offline_views import VIEWS, view_batches
from warren.spark.options import ConnectionOptions, DirectoryOptions
from warren.spark.reading.catalogue import states
from warren.spark.rows.columns import RowPlan
from warren.spark.wire import BrokerConnection
from warren.store.index.queue_index import SEGMENT_ENTRIES

SMALL, LARGE = 50, 9000  # sizes of a body in the index, and of one in the message store
HOUR = 3_600_000
TYPES = {
    **{"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()},
    "timestamp": pa.timestamp("us", tz="UTC"),
}
QUEUES = ("drained", "empty", "orders", "quick")


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A data directory that a clean stop left, and one that a kill left.

    orders    0 to 29 are acknowledged; some bodies are in the message store, and some messages expire
    quick     its messages are in the journal alone if the broker was killed
    drained   all messages are acknowledged
    empty     never had a message
    urgent    numbers each priority by itself
    """
    path = tmp_path_factory.mktemp("broker")
    with Broker(port=0, data_dir=path / "clean") as broker:
        for name in QUEUES:
            broker.declare_queue(name, durable=True, arguments={"x-max-length": 9999} if name == "orders" else {})
        broker.declare_queue("urgent", durable=True, arguments={"x-max-priority": 3})
        for number in range(300):
            size = LARGE if number % 7 == 0 else SMALL
            expiration = {"expiration": str(HOUR * (2 + number))} if number % 10 == 0 else {}
            broker.publish(b"x" * size, "orders", delivery_mode=2, **expiration)
        for number in range(12):
            broker.publish("urgent", "urgent", delivery_mode=2, priority=number % 4)
            broker.publish("drained", "drained", delivery_mode=2)
        for queue, count in ("orders", 30), ("drained", 12):
            for _ in range(count):
                broker.get(queue)
    with Broker(port=0, data_dir=path / "clean") as broker:
        for _ in range(9):
            broker.publish("quick", "quick", delivery_mode=2)
        broker.wait_idle()
        shutil.copytree(path / "clean", path / "killed")
    return path


def view(path, name, **given):
    options = DirectoryOptions.parse({"path": str(path), "view": name} | given)
    columns = [column.split() for column in VIEWS[name].split(", ")]
    schema = pa.schema([(column, TYPES[type]) for column, type in columns])
    (batch,) = view_batches(options, RowPlan(schema, options))
    return batch.to_pylist()


def messages(row_plan, path, **given):
    columns = "vhost,queue,queue_id,seq,size,body,arrived,expires"
    options = DirectoryOptions.parse({"path": str(path), "columns": columns} | given)
    reader = DirectoryReader(options, row_plan(options))
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


def least(times):
    return min((each for each in times if each is not None), default=None)


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_the_numbers_of_a_queue_are_those_of_the_next_start(directories, state, tmp_path):
    found = {row["queue"]: row for row in view(directories / state, "queues")}
    assert list(found) == [*QUEUES, "urgent"]
    shutil.copytree(directories / state, tmp_path / "copy")
    with Broker(port=0, data_dir=tmp_path / "copy") as broker:
        connection = BrokerConnection(ConnectionOptions.parse({"url": broker.url}), "test")
        try:
            expected = states(connection, QUEUES, None)
        finally:
            connection.close()
    for name in QUEUES:
        row, there = found[name], expected[name]
        assert (row["first"], row["next"]) == (there.first, there.next), name
        assert (row["queue_id"], row["messages"], row["body_bytes"]) == (there.id, there.messages, there.message_bytes)
    assert (found["orders"]["first"], found["drained"]["first"]) == (30, found["drained"]["next"])
    assert (found["urgent"]["first"], found["urgent"]["next"], found["urgent"]["messages"]) == (None, None, 12)


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_what_a_queue_has_is_counted(directories, state, row_plan):
    found = {row["queue"]: row for row in view(directories / state, "queues")}
    by_queue = {name: [] for name in found}
    for row in messages(row_plan, directories / state):
        by_queue[row["queue"]].append(row)
    for name, rows in by_queue.items():
        row = found[name]
        assert row["messages"] == len(rows) and row["stored_messages"] == sum(each["size"] == LARGE for each in rows)
        assert row["oldest_arrived"] == least(each["arrived"] for each in rows)
        assert row["next_expiry"] == least(each["expires"] for each in rows)
    orders = found["orders"]
    assert orders["stored_messages"] == 38 and orders["arguments"] == '{"x-max-length": 9999}' and orders["durable"]
    left = orders["next_expiry"] - datetime.now(UTC)
    assert timedelta(hours=1) < left <= timedelta(hours=32)
    segments = [file for file in (directories / state).rglob("*.idx")]
    assert sum(row["index_bytes"] for row in found.values()) == sum(file.stat().st_size for file in segments) > 0


def test_a_finding_names_bytes_queue_and_numbers(directories, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(directories / "clean", path)
    segment = max(path.rglob("*.idx"), key=lambda file: file.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    (path / "vhosts" / "other").mkdir()
    found = {row["place"]: row for row in view(path, "damage")}
    row = found[str(segment.relative_to(path))]
    assert (row["severity"], row["vhost"], row["queue"]) == ("error", "/", "orders")
    assert (row["first"], row["next"]) == (0, SEGMENT_ENTRIES)
    assert row["offset"] <= len(data) // 2 < row["offset"] + row["bytes"]
    other = found["vhosts/other"]
    assert (other["vhost"], other["queue"], other["bytes"], other["first"]) == (None, None, None, None)
    in_vhost = view(path, "damage", vhost="/")
    assert row in in_vhost and other not in in_vhost and {each["vhost"] for each in in_vhost} == {"/"}


@pytest.mark.parametrize("state", ["clean", "killed"])
@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_messages_are_read_without_metadata(directories, state, damage, row_plan, tmp_path):
    """Each message is there, in a queue that has the name of its number (SP-78)."""
    path = tmp_path / "data"
    shutil.copytree(directories / state, path)
    expected, counted = messages(row_plan, path), view(path, "queues")
    if damage == "damaged":
        (path / "metadata" / "data.mdb").write_bytes(bytes(8192))
    else:
        shutil.rmtree(path / "metadata")
    with pytest.raises(SparkSourceError, match="metadata=ignore") as caught:
        messages(row_plan, path)
    assert caught.value.code == "E11"
    ignored = messages(row_plan, path, metadata="ignore")
    numbers = {row["queue"]: f"#{int(row['queue_id'][:14], 16):x}" for row in counted}
    for row in expected:
        row.update(queue=numbers[row["queue"]], queue_id=None)
    in_order = [sorted(rows, key=lambda row: (row["queue"], row["seq"], row["size"])) for rows in (ignored, expected)]
    assert [row.items() for row in in_order[0]] == [row.items() for row in in_order[1]]
    found = {row["queue"]: row for row in view(path, "queues", metadata="ignore")}
    for row in counted:
        if row["messages"]:
            here = found[numbers[row["queue"]]]
            same = ("messages", "body_bytes", "stored_messages", "oldest_arrived", "index_bytes", "missing_bodies")
            assert [here[name] for name in same] == [row[name] for name in same]
            assert (here["queue_id"], here["durable"], here["arguments"], here["vhost"]) == (None, None, None, "/")
    only = numbers["orders"]
    assert {row["queue"] for row in messages(row_plan, path, metadata="ignore", queue=only)} == {only}
    assert {row["kind"] for row in view(path, "files", metadata="ignore")} >= {"bodies", "index"}
    severities = {row["place"]: row["severity"] for row in view(path, "damage", metadata="ignore")}
    assert severities["metadata"] == ("error" if damage == "damaged" else "note")
