"""The views `history` and `files` of a data directory show every message that is in a file, and what the
files contain.
"""

import collections
import os
import shutil

import pytest

from warren import Broker
from warren.spark.errors import SparkSourceError
from warren.spark.offline.directory_reader import DirectoryReader
from warren.spark.offline.offline_files import file_rows
from warren.spark.offline.offline_names import offline_vhosts
from warren.spark.options import DirectoryOptions
from warren.store.verify.verify import verify

SMALL, LARGE = 50, 9000  # sizes of a body in the index, and of one in the message store
COLUMNS = "queue,seq,body,properties,size,state,file"


def publish(broker, queue, numbers):
    for number in numbers:
        size = LARGE if number % 7 == 0 else SMALL
        body = f"{number}:".encode().ljust(size, b".")
        broker.publish(body, queue, delivery_mode=2, message_id=f"m{number:04}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory that a kill left, with messages of an earlier run in segments and of the killed run in the journal.

    orders    0 to 399 are in a segment, of which 0 to 49 are acknowledged; 400 to 499 are in the journal, and some of
              them in the segment, too
    quick     0 to 9 are in the journal, of which 0 to 3 are acknowledged
    """
    path = tmp_path_factory.mktemp("broker")
    with Broker(port=0, data_dir=path / "running") as broker:
        broker.declare_queue("orders", durable=True)
        publish(broker, "orders", range(400))
    with Broker(port=0, data_dir=path / "running") as broker:
        broker.declare_queue("quick", durable=True)
        publish(broker, "orders", range(400, 500))
        publish(broker, "quick", range(10))
        for queue, count in ("orders", 50), ("quick", 4):
            for _ in range(count):
                broker.get(queue)
        broker.wait_idle()
        shutil.copytree(path / "running", path / "killed")
    return path / "killed"


def history(row_plan, path, **given):
    options = DirectoryOptions.parse({"path": str(path), "view": "history", "columns": COLUMNS} | given)
    reader = DirectoryReader(options, row_plan(options))
    return [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]


def files(path, **given):
    options = DirectoryOptions.parse({"path": str(path), "view": "files"} | given)
    vhosts = offline_vhosts(str(path), options)
    return list(file_rows(options, str(path), vhosts, verify(str(path), lambda tables: ())))


def counted(rows, *names):
    return collections.Counter(tuple(row[name] for name in names) for row in rows)


def stored_size(row):
    """The bytes of a message in a segment or journal: two AMQP frames, or a stub if its body is in the
    message store.
    """
    return 28 + len(row["properties"]) + row["size"] if row["size"] == SMALL else 24


def test_each_message_in_a_file_has_one_row_with_its_state(directory, row_plan):
    found = history(row_plan, directory)
    assert max(counted(found, "queue", "seq").values()) == 1
    states = collections.defaultdict(set)
    for row in found:
        states[row["queue"], row["state"]].add(row["seq"])
    assert states == {
        ("orders", "acked"): set(range(50)),
        ("orders", "ready"): set(range(50, 500)),
        ("quick", "acked"): set(range(4)),
        ("quick", "ready"): set(range(4, 10)),
    }
    assert all(os.path.isfile(directory / row["file"]) for row in found)
    assert {row["file"].endswith(".idx") for row in found if row["queue"] == "orders" and row["seq"] < 400} == {True}
    assert {row["file"].endswith(".wal") for row in found if row["queue"] == "quick"} == {True}
    bodies = [row for row in found if row["body"] is not None]
    assert all(row["body"].startswith(b"%d:" % row["seq"]) and len(row["body"]) == row["size"] for row in bodies)
    assert {row["state"] for row in found if row["body"] is None} <= {"acked"}


def test_the_ready_ones_are_those_of_the_view_messages(directory, row_plan):
    ready = [row for row in history(row_plan, directory) if row["state"] == "ready"]
    messages = history(row_plan, directory, view="messages", columns="queue,seq,body,properties,size")
    of_messages = [{name: row[name] for name in messages[0]} for row in ready]
    in_order = [sorted(rows, key=lambda row: (row["queue"], row["seq"])) for rows in (of_messages, messages)]
    assert in_order[0] == in_order[1] and len(messages) == 456


@pytest.mark.parametrize("is_clean", [False, True])
def test_bodies_that_are_damaged_or_not_there(directory, row_plan, tmp_path, is_clean):
    """A body that is damaged or missing is reported. The location index is valid only after a clean stop, so the test
    is made with it and without it.
    """
    path = tmp_path / "data"
    shutil.copytree(directory, path)
    if is_clean:
        Broker(port=0, data_dir=path).start().stop()
    large = [row["seq"] for row in history(row_plan, path) if row["queue"] == "orders" and row["size"] == LARGE]
    store = next(file for file in path.rglob("*.rdq") if "persistent" in str(file))
    data = store.read_bytes()
    flipped, cut = data.index(b"350:..."), data.index(b"371:...")
    store.write_bytes(data[:flipped] + b"X" + data[flipped + 1 : cut])
    found = {row["seq"]: row for row in history(row_plan, path) if row["queue"] == "orders"}
    assert found[350]["state"] == "damaged_body" and found[350]["body"] is None and found[350]["size"] == LARGE
    behind = [seq for seq in large if seq >= 371]
    expected = {"damaged_body"} if is_clean else {"damaged_body", "no_body"}
    assert {found[seq]["state"] for seq in behind} == expected
    assert all(found[seq]["state"] == "ready" for seq in range(50, 500) if seq not in (350, *behind))


def test_without_bodies_no_file_of_the_store_is_read(directory, row_plan, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(directory, path)
    for file in path.rglob("*.rdq"):
        file.unlink()
    found = history(row_plan, path, bodies="none", queue="orders")
    assert counted(found, "state") == {("ready",): 450, ("acked",): 50}
    assert {row["size"] for row in found if row["body"] is None} == {LARGE}


def test_every_file_has_a_row(directory):
    found = {row.path: row for row in files(directory)}
    there = {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()}
    assert found.keys() == there
    assert all(row.bytes == os.path.getsize(directory / path) for path, row in found.items())
    kinds = {row.kind for row in found.values()}
    assert kinds == {"journal", "segment", "bodies", "index", "metadata", "other"}
    assert {row.vhost for row in found.values() if row.kind in ("journal", "segment", "bodies")} == {"/"}
    assert all(row.path.startswith("vhosts") for row in files(directory, vhost="/"))


def test_what_of_a_file_is_used_and_what_is_garbage(directory, row_plan):
    found = {row.path: row for row in files(directory)}
    by_file = collections.defaultdict(list)
    for row in history(row_plan, directory, bodies="none"):
        by_file[row["file"]].append(row)
    of_messages = {path: row for path, row in found.items() if row.kind in ("journal", "segment")}
    assert {path for path, row in of_messages.items() if row.messages} == by_file.keys()
    for path, rows in by_file.items():
        sizes = collections.Counter()
        for row in rows:
            sizes[row["state"]] += 24 if row["body"] is None else stored_size(row)
        seen = found[path]
        # A message in the journal that is also in a segment is garbage there; its only row is the one from the segment.
        twice = seen.garbage_bytes - sizes["acked"]
        assert seen.used_bytes == sizes["ready"] and (twice == 0 or seen.kind == "journal" and twice > 0)
        assert (seen.messages == len(rows)) == (twice == 0) and seen.damaged_parts == 0 and seen.frames > 0
    bodies = [row for row in found.values() if row.kind == "bodies" and row.messages]
    ready = [row for rows in by_file.values() for row in rows if row["size"] == LARGE and row["state"] == "ready"]
    assert sum(row.used_bytes for row in bodies) >= LARGE * len(ready)
    assert all(row.used_bytes + row.garbage_bytes == row.bytes for row in bodies)


def test_damaged_parts_are_counted(directory, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(directory, path)
    changed = set()
    for file in path.rglob("*"):
        if file.suffix in (".idx", ".wal") and file.stat().st_size > 2000:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
            changed.add(str(file.relative_to(path)))
    assert len(changed) == 2
    assert {row.path for row in files(path) if row.damaged_parts} == changed


@pytest.mark.parametrize("view", ["files", "damage"])
def test_a_queue_has_no_files_of_its_own(view):
    with pytest.raises(SparkSourceError, match="queues share files") as caught:
        DirectoryOptions.parse({"path": "data", "view": view, "queue": "orders"})
    assert caught.value.code == "E4"
