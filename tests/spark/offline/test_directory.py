"""Reading the data directory of a stopped broker gives what a broker would deliver that starts on a copy of it."""

import os
import shutil

import pytest
from pyspark.sql.datasource import InputPartition

from warren import Broker
from warren.spark.errors import SparkSourceError
from warren.spark.offline import offline
from warren.spark.offline.directory_reader import DirectoryReader
from warren.spark.offline.offline_plan import DirectoryPartition, JournalPart
from warren.spark.options import BatchOptions, DirectoryOptions
from warren.spark.reading.batch_reader import BatchReader
from warren.store.bodies.rdq_file import file_name, record
from warren.store.data_dir.vhost_dir import PERSISTENT
from warren.store.verify.verify import opened, verify

SMALL, LARGE = 50, 9000  # sizes of a body in the index, and of one in the message store
COLUMNS = "queue,seq,exchange,routing_key,body,message_id,persistent,properties,redelivered,size,arrived"


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A data directory that a clean stop left, and one that a kill left."""
    path = tmp_path_factory.mktemp("broker")
    with Broker(port=0, data_dir=path / "clean") as broker:
        for name in ("orders", "audit", "empty"):
            broker.declare_queue(name, durable=True)
        broker.declare_queue("urgent", durable=True, arguments={"x-max-priority": 3})
        broker.declare_exchange("all", "fanout", durable=True)
        for name in ("orders", "audit"):
            broker.bind(name, "all")
        for number in range(400):
            size = LARGE if number % 7 == 0 else SMALL
            body = f"{number}:".encode().ljust(size, b".")
            broker.publish(body, f"k{number % 3}", exchange="all", delivery_mode=2, message_id=f"m{number}")
        for number in range(20):
            broker.publish("transient", "orders")
            broker.publish("urgent", "urgent", delivery_mode=2, priority=number % 4)
        for _ in range(30):
            broker.get("orders")
        broker.wait_idle()
        shutil.copytree(path / "clean", path / "killed")
        # Earlier messages are in segments by now, and this one is only in the journal.
    return path


def rows(row_plan, path, **given):
    options = DirectoryOptions.parse({"path": str(path), "columns": COLUMNS} | given)
    reader = DirectoryReader(options, row_plan(options))
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


def delivered(row_plan, path, copy, queues):
    """The rows of the messages that a broker delivers which runs on a copy of the directory."""
    shutil.copytree(path, copy)
    found = []
    with Broker(port=0, data_dir=copy) as broker:
        for queue in queues:
            options = BatchOptions.parse({"url": broker.url, "queue": queue, "columns": COLUMNS})
            reader = BatchReader(options, row_plan(options))
            found += [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]
    return found


def snapshot(path):
    """The bytes and times of every file."""
    return {
        place: (file.read_bytes(), os.stat(file).st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file() and (place := str(file.relative_to(path)))
    }


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_it_is_what_a_broker_delivers_and_nothing_is_touched(directories, state, row_plan, tmp_path):
    path = directories / state
    before = snapshot(path)
    found = rows(row_plan, path)
    assert snapshot(path) == before
    expected = delivered(row_plan, path, tmp_path / "copy", ["audit", "orders"])
    in_order = sorted((row for row in found if row["queue"] != "urgent"), key=lambda row: (row["queue"], row["seq"]))
    assert len(expected) == 400 + 370
    assert all(row["arrived"] is not None for row in in_order)
    assert in_order == expected
    assert sum(row["queue"] == "urgent" for row in found) == 20


def test_a_task_keeps_few_files_of_a_message_store_open(tmp_path, monkeypatch):
    """A store may have more files than a process may have open."""
    (tmp_path / PERSISTENT).mkdir()
    ids = [bytes([number]) * 16 for number in range(5)]
    for number, each in enumerate(ids):
        (tmp_path / PERSISTENT / file_name(number)).write_bytes(b"".join(record(each, b"%d" % number)))
    monkeypatch.setattr(offline, "OPEN_FILES", 2)
    bodies = offline.OfflineBodies(str(tmp_path))
    try:
        for number in (0, 1, 2, 3, 4, 4, 0, 3, 0):
            assert bodies.get(ids[number]) == b"%d" % number
            assert len(bodies._files) <= 2
    finally:
        bodies.close()


@pytest.mark.parametrize("view", ["messages", "history"])
def test_a_task_opens_a_message_store_once(directories, row_plan, monkeypatch, view):
    """Opening a store that was not closed cleanly means reading all of it, so a task must not do it for each part."""
    opens, open_store = [], offline.OfflineBodies._open
    monkeypatch.setattr(offline.OfflineBodies, "_open", lambda self: opens.append(1) or open_store(self))
    options = DirectoryOptions.parse({"path": str(directories / "killed"), "columns": COLUMNS, "view": view})
    reader = DirectoryReader(options, row_plan(options))
    ((journal,),) = [partition.parts for partition in reader.partitions()]
    parts = [JournalPart(journal.directory, (level,)) for level in journal.levels]
    found = [row for batch in reader.read(DirectoryPartition(parts)) for row in batch.to_pylist()]
    assert {"orders", "audit"} <= {row["queue"] for row in found if row["size"] == LARGE} and len(opens) == 1


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_the_counts_are_those_of_the_check(directories, state, row_plan):
    with opened(str(directories / state)) as path:
        report = verify(path, lambda tables: ())
    counted = {queue.name: queue.messages for vhost in report.vhosts for queue in vhost.queues}
    found = rows(row_plan, directories / state)
    assert {name: sum(row["queue"] == name for row in found) for name in counted} == counted


def test_only_some_queues_and_no_bodies(directories, row_plan):
    found = rows(row_plan, directories / "clean", queue="audit", bodies="none")
    assert {row["queue"] for row in found} == {"audit"} and len(found) == 400
    assert sorted(row["size"] for row in found) == [SMALL] * 342 + [LARGE] * 58
    assert all((row["body"] is None) == (row["size"] == LARGE) for row in found)


def test_damage_ends_no_query(directories, row_plan, tmp_path):
    path = tmp_path / "damaged"
    shutil.copytree(directories / "killed", path)
    for file in path.rglob("*.rdq"):
        if "persistent" in str(file) and file.stat().st_size > LARGE:
            data = bytearray(file.read_bytes())
            data[LARGE // 2] ^= 1
            file.write_bytes(data)
    for file in path.rglob("*.wal"):
        data = bytearray(file.read_bytes())
        if len(data) > 200_000:
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    found = rows(row_plan, path)
    expected = delivered(row_plan, path, tmp_path / "copy", ["audit", "orders"])
    assert 0 < len(expected) < 770
    in_order = sorted((row for row in found if row["queue"] != "urgent"), key=lambda row: (row["queue"], row["seq"]))
    assert in_order == expected


def test_directories_that_cannot_be_read(row_plan, tmp_path):
    def refusal(path):
        with pytest.raises(SparkSourceError) as caught:
            rows(row_plan, path)
        assert caught.value.code == "E11"
        return str(caught.value)

    assert "there is no directory" in refusal(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    assert "is not a data directory of warren" in refusal(tmp_path / "other")
    with Broker(port=0, data_dir=tmp_path / "data"):
        assert refusal(tmp_path / "data").endswith("Stop it, read a copy, or read the queue by url=amqp://…")


def test_a_directory_without_messages_has_no_rows(row_plan, tmp_path):
    """Spark runs a task with a partition of its own if a reader plans none."""
    with Broker(port=0, data_dir=tmp_path / "data"):
        pass
    found = DirectoryOptions.parse({"path": str(tmp_path / "data")})
    reader = DirectoryReader(found, row_plan(found))
    assert reader.partitions() == [] and list(reader.read(InputPartition(None))) == []
