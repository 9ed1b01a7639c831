"""Merging the files of an archive gives the same rows in fewer files, even if a run is killed in the middle."""

import errno
import fcntl
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from warren.cli.failure import CommandFailure
from warren.cli.main import root
from warren.spark import verify_archive
from warren.spark.archive.notes import ArchivedFile, noted_files
from warren.spark.archive.parquet_files import FileWriter
from warren.spark.errors import SparkSourceError
from warren.spark.jobs import compact as compaction
from warren.spark.jobs.compact import compact
from warren.spark.jobs.replay import replay

NOW = datetime(2026, 11, 24, 10, tzinfo=UTC)
AT = int(NOW.timestamp() * 1000)
SCHEMA = pa.schema(
    [
        *(("seq", pa.int64()), ("exchange", pa.string()), ("routing_key", pa.string()), ("body", pa.binary())),
        *(("properties", pa.binary()), ("message_id", pa.string()), ("arrived", pa.timestamp("us", tz="UTC"))),
    ]
)
IDS = {"orders": "9f" * 16, "us": "1a" * 16}


def day(number):
    return datetime(2026, 11, number, 12, tzinfo=UTC)


class Archive:
    """An archive as the job `archive` leaves it; `write` adds a micro-batch with one range of a queue."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.batches = 0

    def write(self, numbers, arrived, *, covers=None, queue="orders", gaps=0):
        covers = covers or range(numbers.start, numbers.stop)
        rows = [
            {"seq": n, "exchange": "", "routing_key": queue, "body": b"%d" % n, "properties": b"\0\0"}
            | {"message_id": f"m-{n}", "arrived": arrived}
            for n in numbers
        ]
        batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA)] if rows else []
        writer = FileWriter(self.folder, queue, IDS[queue], covers, range(covers.start + gaps, covers.stop), AT, "zstd")
        entries = [entry._asdict() for entry in writer.write(iter(batches))]
        notes = Path(self.folder, "_warren", "files")
        log = notes / "_spark_metadata"
        log.mkdir(parents=True, exist_ok=True)
        name = f"part-{self.batches}.parquet"
        pa.parquet.write_table(pa.Table.from_pylist(entries), notes / name)
        (log / str(self.batches)).write_text("v1\n" + json.dumps({"path": f"file://{notes / name}", "action": "add"}))
        self.batches += 1

    def copy(self, folder):
        shutil.copytree(self.folder, folder)
        return str(folder)


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "archive")


def rows(target, queue="orders"):
    """All rows of a queue in the order of its files, as a reader finds them that uses the archive's notes."""
    paths = [file.path for file in noted_files(str(target)) if file.queue == queue and file.path is not None]
    return [row for path in paths for row in pa.parquet.ParquetFile(f"{target}/{path}").read().to_pylist()]


def files(target):
    """The files that any reader of Parquet finds, and the hidden ones."""
    return sorted(str(path.relative_to(target)) for path in Path(target).glob("queue=*/**/*") if path.is_file())


def names(target):
    return [name.rpartition("/")[2].partition("-")[2] for name in files(target)]


def span(first, stop):
    return f"{first:020}-{stop:020}.parquet"


def problems(target):
    return [problem for queue in verify_archive(str(target)) for problem in queue.problems]


def test_files_of_a_queue_and_day_that_adjoin_become_one(archive):
    """Files of one queue and day are merged if their ranges adjoin, or gaps and gone numbers explain what lies between
    them; a day that is not over is left alone (SP-94).
    """
    archive.write(range(0, 100), day(21))
    archive.write(range(105, 200), day(21), covers=range(100, 200), gaps=5)
    archive.write(range(0), None, covers=range(200, 210))
    archive.write(range(210, 300), day(21), covers=range(210, 300))
    archive.write(range(300, 350), day(22))
    archive.write(range(350, 400), day(22), covers=range(350, 420))
    archive.write(range(0, 10), day(21), queue="us")
    archive.write(range(20, 30), day(21), queue="us")
    archive.write(range(420, 430), day(24))
    archive.write(range(430, 440), day(24))
    before, was = rows(archive.folder), verify_archive(archive.folder)[0]
    seen = []
    result = compact(archive.folder, now=NOW, on_progress=lambda done, total: seen.append((done, total)))
    assert (result.files, result.into, result.problems) == (5, 2, ()) and seen == [(3, 5), (5, 5)]
    assert names(archive.folder) == [
        *(span(0, 300), span(300, 420), span(420, 430), span(430, 440)),
        *(span(0, 10), span(20, 30)),
    ]
    assert rows(archive.folder) == before and len(before) == 405
    now = verify_archive(archive.folder)[0]
    assert (now.first, now.next, now.rows, now.gone, now.gaps, now.problems) == (0, 440, 405, 30, 5, ())
    assert (now.rows, now.gone, now.gaps) == (was.rows, was.gone, was.gaps)
    assert result.bytes == sum(Path(archive.folder, name).stat().st_size for name in files(archive.folder)[:2])
    assert compact(archive.folder, now=NOW).files == 0


def test_later_files_are_merged_with_merged_ones_up_to_the_target_size(archive):
    for start in range(0, 400, 100):
        archive.write(range(start, start + 100), day(21))
    one = noted_files(archive.folder)[0].bytes
    assert compact(archive.folder, now=NOW, target_size=2 * one + one // 2).into == 2
    assert names(archive.folder) == [span(0, 200), span(200, 400)]
    archive.write(range(400, 500), day(21))
    assert compact(archive.folder, now=NOW).files == 3
    assert names(archive.folder) == [span(0, 500)] and [row["seq"] for row in rows(archive.folder)] == [*range(500)]
    (entry,) = [file for file in noted_files(archive.folder) if file.path is not None]
    assert isinstance(entry, ArchivedFile) and (entry.arrived_least, entry.arrived_most) == (day(21), day(21))
    assert replay(archive.folder, to_queue="x", dry_run=True, since=day(21), until=day(22)).messages == 500
    assert replay(archive.folder, to_queue="x", dry_run=True, since=day(22)).messages == 0


def test_a_run_that_is_killed_at_any_step_loses_and_doubles_nothing(archive, tmp_path):
    """A run may be killed at any call that changes the disk: the next run ends what was begun, and no row is lost or
    doubled (SP-94).
    """
    for start in range(0, 90, 30):
        archive.write(range(start, start + 30), day(21))
    archive.write(range(90, 100), day(22))
    archive.write(range(100, 110), day(22))
    expected = rows(archive.folder)
    step = ends = 0
    while not ends:
        step += 1
        target = archive.copy(tmp_path / f"killed-{step}")
        ends = not killed_at(step, target)
        assert rows(target) == expected and problems(target) == [], step
        assert compact(target, now=NOW).problems == ()
        assert rows(target) == expected and problems(target) == [], step
        assert names(target) == [span(0, 90), span(90, 110)], step
        assert sorted(os.listdir(f"{target}/_warren")) == ["compact.lock", "compacted.json", "files"], step
    assert step > 15


def killed_at(step, target):
    """Compact in a child process that ends at this step; return whether it got so far."""
    child = os.fork()
    if not child:
        left = step

        def ending(call):
            def called(*arguments, **options):
                nonlocal left
                left -= 1
                if not left:
                    os._exit(9)
                return call(*arguments, **options)

            return called

        try:
            for name in ("fsync", "replace", "unlink", "makedirs"):
                setattr(os, name, ending(getattr(os, name)))
            compact(target, now=NOW)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), code
    return code == 9


def test_a_full_disk_changes_nothing(archive, monkeypatch):
    archive.write(range(0, 10), day(21))
    archive.write(range(10, 20), day(21))
    before = files(archive.folder)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    places = [(pa.parquet.ParquetWriter, "write_table"), (compaction, "replace_text"), (compaction, "write_compacted")]
    for place in places:
        with monkeypatch.context() as patched:
            patched.setattr(*place, full)
            with pytest.raises(SparkSourceError, match="no space left to merge .* as they were") as caught:
                compact(archive.folder, now=NOW)
        assert caught.value.code == "E14" and files(archive.folder) == before
    assert compact(archive.folder, now=NOW).files == 2


def test_damaged_and_foreign_files_are_left_and_named(archive):
    archive.write(range(0, 10), day(21))
    archive.write(range(10, 20), day(21))
    archive.write(range(0, 10), day(21), queue="us")
    archive.write(range(10, 20), day(21), queue="us")
    broken = Path(archive.folder, files(archive.folder)[0])
    broken.write_bytes(b"PAR1")
    result = compact(archive.folder, now=NOW)
    assert (result.files, len(result.problems)) == (2, 1) and "cannot be read" in result.problems[0]
    assert names(archive.folder) == [span(0, 10), span(10, 20), span(0, 20)]


def test_the_command_compacts(archive, tmp_path):
    for start in range(0, 30, 10):
        archive.write(range(start, start + 10), day(1).replace(year=2025))
    base = ["pipeline", "compact", "--at", archive.folder]
    with open(f"{archive.folder}/_warren/compact.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = CliRunner().invoke(root, base, standalone_mode=False).exception
    assert isinstance(busy, CommandFailure) and busy.code == 75 and "another process compacts" in busy.message
    done = CliRunner().invoke(root, [*base, "--older-than", "2d", "--target-size", "1g", "--queue", "orders"])
    assert (done.exit_code, done.stderr) == (0, "") and done.stdout.startswith("3 files merged into 1, "), done.output
    assert json.loads(CliRunner().invoke(root, [*base, "--formatter", "json"]).stdout) == {
        **{"files": 0, "into": 0, "bytes": 0},
        "problems": [],
    }
    Path(archive.folder, files(archive.folder)[0]).write_bytes(b"")
    archive.write(range(30, 40), day(1).replace(year=2025))
    failed = CliRunner().invoke(root, base, standalone_mode=False).exception
    assert isinstance(failed, CommandFailure) and failed.code == 65 and "cannot be read" in failed.message
    for wrong, text in ((["--older-than", "soon"], "1d"), (["--target-size", "big"], "256m")):
        failed = CliRunner().invoke(root, [*base, *wrong])
        assert failed.exit_code == 2 and text in failed.stderr
    nothing = CliRunner().invoke(root, ["pipeline", "compact", "--at", str(tmp_path)], standalone_mode=False).exception
    assert nothing.code == 64 and "is no archive" in nothing.message


def test_days_are_those_that_are_over(archive):
    archive.write(range(0, 10), day(22))
    archive.write(range(10, 20), day(22))
    assert compact(archive.folder, now=datetime(2026, 11, 23, 23, 59, tzinfo=UTC)).files == 0
    assert compact(archive.folder, now=day(23), older_than=timedelta(0)).files == 2
