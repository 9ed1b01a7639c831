"""The micro-batches of the job `archive`: whatever step of one the program dies behind, the next run goes on so that
each message is archived once and acknowledged. The tasks run here, without Spark.
"""

import errno
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from warren import Broker
from warren.spark import verify_archive
from warren.spark.archive import archive_run, notes
from warren.spark.archive.archive_reader import ArchiveOptions, ArchiveReader
from warren.spark.archive.archive_run import ArchiveRun
from warren.spark.archive.checkpoint import ArchiveCheckpoint
from warren.spark.archive.notes import ArchivedFile, commit_files, committed_files, last_committed
from warren.spark.errors import SparkSourceError


class Tasks:
    """Runs the tasks of an archive one after the other, as Spark would side by side."""

    def addTag(self, tag):
        pass

    interruptTag = addTag

    def range(self, first, stop, step, tasks):
        self.places = range(first, stop, step)
        return self

    def select(self, files):
        self.files = files
        return self

    def collect(self):
        return [(self.files(place),) for place in self.places]


class Function:
    """A function of a column of Spark."""

    def __init__(self, call, type, useArrow):
        self.call = call

    def asNondeterministic(self):
        return lambda column: self.call


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    monkeypatch.setattr(archive_run.functions, "udf", Function)


class Died(BaseException):
    """The program dies here."""


def run(broker, target, tasks=None, **given):
    options = {"url": broker.url, "queue": "orders", "target": str(target), "deleteOnCommit": "true", **given}
    made = ArchiveRun(tasks or Tasks(), ArchiveOptions.parse(options), None)
    assert made.wait(60)
    return made


def archived(target):
    """The numbers in all files of an archive, in the order of their names."""
    files = sorted(Path(target).glob("queue=*/*/*.parquet"))
    return [number for file in files for number in pa.parquet.read_table(file, columns=["seq"])["seq"].to_pylist()]


@pytest.fixture
def broker():
    with Broker(port=0) as running:
        running.declare_queue("orders", durable=True)
        yield running


def publish(broker, count):
    for _ in range(count):
        broker.publish(b"x", "orders", delivery_mode=2)


def dying(place, is_before, at):
    """A function of `place` that ends the program in call `at`, before or after it has done its work."""
    owner, name = place
    whole = getattr(owner, name)
    calls = 0

    def die(*arguments):
        nonlocal calls
        calls += 1
        if calls == at and is_before:
            raise Died
        found = whole(*arguments)
        if calls == at:
            raise Died
        return found

    return die


STEPS = [
    (ArchiveCheckpoint, "plan"),
    (ArchiveReader, "write"),
    (archive_run, "commit_files"),
    (ArchiveReader, "commit"),
]


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
def test_a_run_goes_on_behind_any_step(broker, tmp_path, step, at, is_before):
    publish(broker, 300)
    given = {"maxMessagesPerTrigger": "100", "maxMessagesPerPartition": "60", "minPartitions": "1"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*step, dying(step, is_before, at))
        with pytest.raises(Died):
            run(broker, tmp_path, **given)
    publish(broker, 50)
    # Other options than before: what was planned is written as it was planned.
    run(broker, tmp_path, maxMessagesPerPartition="1000", minPartitions="1")
    assert archived(tmp_path) == list(range(350))
    (checked,) = verify_archive(str(tmp_path))
    assert (checked.rows, checked.gone, checked.problems) == (350, 0, ())
    assert broker.queue("orders").messages == 0
    again = run(broker, tmp_path)
    assert (again.files, again.messages) == (0, 0)


@pytest.mark.parametrize("step", [STEPS[0], STEPS[2]], ids=lambda step: step[1])
def test_a_disk_without_room_for_a_note_is_named(broker, tmp_path, step):
    """A disk may be full when the checkpoint or the notes are written, too. Nothing is acknowledged then."""
    publish(broker, 10)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*step, full)
        with pytest.raises(SparkSourceError, match="no space left.*Free space") as caught:
            run(broker, tmp_path)
    assert caught.value.code == "E14" and broker.queue("orders").messages == 10
    run(broker, tmp_path)
    assert archived(tmp_path) == list(range(10)) and broker.queue("orders").messages == 0


def test_a_lost_checkpoint_is_noticed(broker, tmp_path):
    """Without its checkpoint a run would begin at the head of the queue again, under the numbers of micro-batches that
    are noted already.
    """
    publish(broker, 10)
    run(broker, tmp_path, deleteOnCommit="false")
    (tmp_path / "_warren" / "checkpoint" / "offsets" / "0").unlink()
    with pytest.raises(SparkSourceError, match="has files behind the end of its checkpoint"):
        run(broker, tmp_path, deleteOnCommit="false")
    assert len(committed_files(str(tmp_path))) == 1


def test_two_runs_at_once_are_refused(broker, tmp_path):
    with notes.alone(str(tmp_path), "archive"):
        with pytest.raises(SparkSourceError, match="another process writes the archive"):
            run(broker, tmp_path)


def test_a_micro_batch_whose_files_lack_a_part_is_not_committed(broker, tmp_path):
    class Losing(Tasks):
        def collect(self):
            return super().collect()[1:]

    publish(broker, 100)
    with pytest.raises(SparkSourceError, match="its files cover 50 of 100 numbers"):
        run(broker, tmp_path, Losing(), maxMessagesPerPartition="60", minPartitions="1")
    assert last_committed(str(tmp_path)) == -1 and broker.queue("orders").messages == 100


def test_a_checkpoint_of_spark_is_gone_on_with(broker, tmp_path):
    """Earlier versions had Spark keep the checkpoint and the notes."""
    publish(broker, 20)
    run(broker, tmp_path, deleteOnCommit="false")
    offset = tmp_path / "_warren" / "checkpoint" / "offsets" / "0"
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1_763_800_000_000, "conf": {}}
    offset.write_text("\n".join(["v1", json.dumps(metadata), offset.read_text().splitlines()[-1]]))
    (offset.parent / ".0.crc").write_bytes(b"crc")
    publish(broker, 5)
    assert run(broker, tmp_path, deleteOnCommit="false").messages == 5
    assert archived(tmp_path) == list(range(25))


def test_the_log_of_notes_is_repeated_now_and_then_and_does_not_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "REPEATED", 5)
    files = [ArchivedFile(None, "q", "id", n, n + 1, 0, 1, 0, 0, None, None, 0) for n in range(23)]
    reader, taken = notes.CommittedFiles(str(tmp_path)), []
    for batch, file in enumerate(files):
        commit_files(str(tmp_path), batch, [file])
        taken += reader.take()
        assert last_committed(str(tmp_path)) == batch
    assert taken == committed_files(str(tmp_path)) == files
    names = {path.name for path in (tmp_path / "_warren" / "files" / "_spark_metadata").iterdir()}
    assert names == {"14.compact", "15", "16", "17", "18", "19.compact", "20", "21", "22"}
