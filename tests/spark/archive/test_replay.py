"""A replay publishes messages with the intervals at which they arrived, or with shorter ones (SP-97)."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from warren import Broker
from warren.cli.main import root
from warren.spark.archive.parquet_files import FileWriter
from warren.spark.errors import SparkSourceError
from warren.spark.jobs import replay as replay_module
from warren.spark.jobs.compact import compact
from warren.spark.jobs.replay import FINEST, _Notes, _Rhythm, replay
from warren.spark.pace import RowPace

FIRST = datetime(2026, 11, 24, 10, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        *(("seq", pa.int64()), ("exchange", pa.string()), ("routing_key", pa.string()), ("body", pa.binary())),
        *(("properties", pa.binary()), ("arrived", pa.timestamp("us", tz="UTC"))),
        *(("message_id", pa.string()), ("correlation_id", pa.string())),
    ]
)


def batch(seconds, first=0, key="k"):
    """Messages, each given by the seconds after `FIRST` at which it arrived; None if that is not known."""
    rows = [
        {"seq": first + n, "exchange": "", "routing_key": key, "body": b"%d" % (first + n), "properties": b"\0\0"}
        | {"arrived": None if each is None else FIRST + timedelta(seconds=each)}
        | {"message_id": f"m{first + n}", "correlation_id": f"c{first + n}"}
        for n, each in enumerate(seconds)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def write(folder, queues, cut=1 << 20, keys=lambda queue: "k", at=0):
    """Write an archive with these messages for each queue, at most `cut` in a file. `keys` gives their routing key."""
    entries = []
    for queue, seconds in queues.items():
        for first in range(0, len(seconds), cut):
            part = batch(seconds[first : first + cut], first, keys(queue))
            numbers = range(first, first + part.num_rows)
            writer = FileWriter(str(folder), queue, f"{queue:0<32}", numbers, numbers, at, "zstd")
            entries += [entry._asdict() for entry in writer.write(iter([part]))]
    log = Path(folder, "_warren", "files", "_spark_metadata")
    log.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(entries), log.parent / "part-0.parquet")
    (log / "0").write_text('v1\n{"path": "file:///part-0.parquet", "action": "add"}')
    return str(folder)


class Clock:
    """Replaces the clock: time passes only while the replay sleeps."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(replay_module, "time", found)
    return found


def published(rhythm, clock, batches):
    """The seconds after the beginning at which each message is published."""
    return [
        (number, clock.now - 100) for part in rhythm.parts(iter(batches)) for number in part.column("seq").to_pylist()
    ]


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_each_message_is_published_when_it_is_due(clock, speed):
    seconds = [0, 0, 1.5, 1.5 + 60, 1.5 + 60.0001, 7200]
    batches = [batch(seconds[:4]), batch(seconds[4:], 4)]
    rhythm = _Rhythm.of([iter(batches)], speed)
    found = published(rhythm, clock, batches)
    assert [number for number, _ in found] == list(range(6))
    assert [at for _, at in found] == pytest.approx([each / speed for each in seconds], abs=FINEST)


def test_what_arrived_in_another_order_or_is_not_known_keeps_its_place(clock):
    batches = [batch([None, 2, 1, None, 3])]
    rhythm = _Rhythm.of([iter(batches)], 1)
    # Time counts from the first arrival that is known, which is 1.
    assert published(rhythm, clock, batches) == [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2)]
    nothing_known = [batch([None, None])]
    clock.now = 100.0
    assert published(_Rhythm.of([iter(nothing_known)], 1), clock, nothing_known) == [(0, 0), (1, 0)]


def test_what_is_late_is_published_at_once(clock):
    batches = [batch([0, 1, 2, 3])]
    rhythm, found = _Rhythm.of([iter(batches)], 1), []
    for part in rhythm.parts(iter(batches)):
        found.append((part.num_rows, clock.now - 100))
        clock.now += 2.5  # publishing takes so long
    assert found == [(1, 0), (2, 2.5), (1, 5.0)]


def test_queues_share_one_rhythm(tmp_path):
    """All queues share one clock, so a queue whose first message arrived later begins later.

    A second lies between the messages, because other programs may delay the test.
    """
    target = write(tmp_path / "archive", {"a": [0, 4], "b": [2]})
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        result = replay(target, url=broker.url, to_queue="again", speed=2)
        found = [broker.get("again") for _ in range(3)]
        assert [(each.body, each.headers) for each in found] == [
            (body, {"x-warren-replay": "replay"}) for body in (b"0", b"0", b"1")
        ]
        assert (result.messages, result.queues, result.may_repeat) == (3, 2, 0)
        places = json.loads(Path(target, "_warren", "replay", "replay.json").read_text())
        assert sorted(places.values()) == [[1, False], [2, False]]
        assert replay(target, url=broker.url, to_queue="again", speed=2).messages == 0


@pytest.mark.parametrize("pace", [{"rate": 5}, {"speed": 0.001}, {}])
def test_a_run_that_is_asked_to_end_goes_on_where_it_stopped(tmp_path, monkeypatch, pace):
    """A run that is asked to end and a second run publish each message once together, with a rate, with the original
    intervals, and without either.
    """
    monkeypatch.setattr(replay_module, "PART", 3)
    target = write(tmp_path / "archive", {"a": [0, 0, 0, *range(1, 20)]})
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        sent = []
        first = replay(
            target, url=broker.url, to_queue="again", on_progress=sent.append, stop=lambda: bool(sent), **pace
        )
        assert first.is_interrupted and 0 < first.messages < 22
        assert broker.queue("again").messages == first.messages
        second = replay(target, url=broker.url, to_queue="again")
        assert (second.is_interrupted, second.messages, second.may_repeat) == (False, 22 - first.messages, 0)
        found = [broker.get("again").body for _ in range(22)]
        assert found == [b"%d" % number for number in range(22)]


def test_queues_share_one_rate(tmp_path, monkeypatch):
    """The rate is that of all queues together, so a queue has all of it when the others have ended (SP-97)."""
    target = write(tmp_path / "archive", {"a": [0], "b": [0] * 30, "c": [0, 0]})
    paces = []

    class Recorded(RowPace):
        def __init__(self, rate):
            super().__init__(rate)
            paces.append((rate, rows := []))
            self.rows = rows

        def due(self, rows, now):
            self.rows.append(rows)
            return now

    monkeypatch.setattr(replay_module, "RowPace", Recorded)
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        assert replay(target, url=broker.url, to_queue="again", rate=100).messages == 33
    ((rate, rows),) = paces
    assert (rate, sum(rows)) == (100, 33)


def test_only_some_queues_and_messages(tmp_path):
    """A replay of one order, or of some queues, publishes these messages alone."""
    seconds = {"a": [0, 1, 2], "b": [3, 4], "c": [5]}
    target = write(tmp_path / "archive", seconds)

    def counted(**given):
        return replay(target, to_queue="again", dry_run=True, **given).messages

    assert (counted(queue="a"), counted(queue=("a", "c")), counted()) == (3, 4, 6)
    assert counted(message_id="m1") == 2 and counted(message_id="m1", queue="b") == 1
    assert counted(correlation_id="c2") == 1 and counted(correlation_id="c1", message_id="m2") == 0
    with pytest.raises(SparkSourceError, match="has no message of queue 'd'"):
        counted(queue=("a", "d"))
    command = ["pipeline", "replay", "--from", target, "--to-queue", "x", "--dry-run", "--queue", "a", "--queue", "b"]
    assert CliRunner().invoke(root, command).output.startswith("5 messages of 2 queues would be published")
    assert CliRunner().invoke(root, [*command, "--id", "m2"]).output.startswith("1 message of 2 queues")


def test_a_dry_run_says_how_long_the_run_will_take(tmp_path):
    target = write(tmp_path / "archive", {"a": [0, 1, 120], "b": [60]})

    def seconds(**given):
        return replay(target, to_queue="again", dry_run=True, **given).seconds

    assert (seconds(rate=2), seconds(speed=4), seconds(), seconds(speed=1, queue="b")) == (2, 30, None, 0)
    command = ["pipeline", "replay", "--from", target, "--to-queue", "x", "--dry-run", "--speed", "2x"]
    assert "; that takes about 0:01:00" in CliRunner().invoke(root, command).output


def test_a_dry_run_counts_what_the_run_would_publish(tmp_path, monkeypatch):
    """A dry run leaves out what earlier runs of its name have published, and publishes and notes nothing."""
    monkeypatch.setattr(replay_module, "PART", 3)
    target = write(tmp_path / "archive", {"a": list(range(10)), "b": [2]})
    notes = Path(target, "_warren", "replay", "replay.json")
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        counted = replay(target, to_queue="again", dry_run=True)
        assert (counted.queues, counted.messages) == (2, 11) and not notes.parent.exists()
        sent = []
        begun = replay(target, url=broker.url, to_queue="again", queue="a", on_progress=sent.append, stop=sent.copy)
        # As if the run had been killed behind its last note.
        notes.write_text(notes.read_text().replace("false", "true"))
        counted = replay(target, to_queue="again", dry_run=True)
        assert counted.messages == 11 - begun.messages < 11 and counted.may_repeat == 3
        assert replay(target, to_queue="again", dry_run=True, deduplicate=True).may_repeat == 0
        assert replay(target, to_queue="again", dry_run=True, name="other").messages == 11
        assert replay(target, url=broker.url, to_queue="again") == counted
        assert replay(target, to_queue="again", dry_run=True).messages == 0


def test_notes_are_safe_from_a_power_cut(tmp_path, monkeypatch):
    """The folder is synced behind the renaming, so that an older note cannot come back, and the folder above it when
    the notes' folder is new.
    """
    target = write(tmp_path / "archive", {"a": [0]})
    calls = []

    def recorded(name):
        call = getattr(os, name)

        def record(first, *others):
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            calls.append((name, os.path.basename(path)))
            return call(first, *others)

        monkeypatch.setattr(os, name, record)

    recorded("fsync"), recorded("replace")
    notes = _Notes(target, "run")
    notes.begin(("a", "0"), 7)
    notes.put(("a", "0"), 9)
    written = [("fsync", "run.json.new"), ("replace", "run.json.new"), ("fsync", "replay")]
    assert calls == [("fsync", "_warren"), *written, *written]
    assert _Notes(target, "run").get(("a", "0")) == (9, False)


def test_a_queue_that_does_not_exist_is_named_before_anything_is_published(tmp_path):
    target = write(tmp_path / "archive", {"a": [0]})
    with Broker(port=0) as broker:
        with pytest.raises(SparkSourceError, match="there is no queue 'nowhere' to publish into") as caught:
            replay(target, url=broker.url, to_queue="nowhere")
        assert caught.value.code == "E5"
        broker.declare_exchange("unbound", "topic")
        with pytest.raises(SparkSourceError, match="this run's messages of queue 'a', row 0: .*Bind a queue"):
            replay(target, url=broker.url, exchange="unbound")


def test_a_run_that_has_published_all_says_so(tmp_path, usual_priority):
    target = write(tmp_path / "archive", {"a": [0]})
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        command = ["pipeline", "replay", "--url", broker.url, "--from", target, "--to-queue", "again"]
        assert CliRunner().invoke(root, command).output.startswith("1 message of 1 queue published, 1 byte")
        assert "--name begins another run" in CliRunner().invoke(root, command).output
    # The command lets others go first.
    assert usual_priority == [os.getpid()] * 2


def test_wrong_speeds(tmp_path):
    target = write(tmp_path / "archive", {"a": [0]})
    with pytest.raises(SparkSourceError, match="either a rate or a speed"):
        replay(target, to_queue="q", rate=5, speed=1)
    with pytest.raises(SparkSourceError, match="'speed' of format 'warren' cannot be '0': give a number above 0"):
        replay(target, to_queue="q", speed=0)
    with pytest.raises(SparkSourceError, match="'rate' of format 'warren' cannot be '0': give a number above 0"):
        replay(target, to_queue="q", rate=0)
    base = ["pipeline", "replay", "--from", target, "--to-queue", "q", "--dry-run"]
    for text in ("fast", "0x", "-1", "infx"):
        failed = CliRunner().invoke(root, [*base, "--speed", text])
        assert failed.exit_code == 2 and "is not a speed such as 2x or 0.5x" in failed.output
    assert CliRunner().invoke(root, [*base, "--speed", "1.5x"]).exit_code == 0


def test_one_run_of_a_name_at_a_time(tmp_path):
    """A second run of the same name would publish everything a second time."""
    target = write(tmp_path / "archive", {"a": [0, 1]})
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        caught = []

        def other(sent):
            try:
                replay(target, url=broker.url, to_queue="again")
            except SparkSourceError as error:
                caught.append(error)
            replay(target, url=broker.url, to_queue="again", name="other")

        assert replay(target, url=broker.url, to_queue="again", on_progress=other).messages == 2
        (error,) = caught
        assert error.code == "E7" and "another process replays the archive" in str(error)
        assert "under the name 'replay'. Wait for its end, or stop it, or give another name" in str(error)
        assert broker.queue("again").messages == 4


def test_a_run_goes_on_while_its_files_are_merged(tmp_path):
    """The job `compact` replaces files that a run has yet to read; each message is published once all the same."""
    archive = tmp_path / "archive"
    target = write(archive, {"a": range(10)}, cut=2)
    with Broker(port=0) as broker:
        broker.declare_queue("again")
        merged = []

        def compact_once(sent):
            if not merged:
                merged.append(compact(target, now=FIRST + timedelta(days=9)))

        assert replay(target, url=broker.url, to_queue="again", on_progress=compact_once).messages == 10
        assert (merged[0].files, merged[0].into) == (5, 1)
        assert [broker.get("again").body for _ in range(10)] == [b"%d" % number for number in range(10)]
        lost = next(archive.glob("queue=a/*/*.parquet"))
        lost.unlink()
        with pytest.raises(FileNotFoundError):
            replay(target, url=broker.url, to_queue="again", name="other")


@pytest.mark.timeout(60)
def test_a_failure_of_one_queue_ends_the_others(tmp_path):
    """The user learns of a failure at once, and not when the last queue has ended, here after days."""
    target = write(tmp_path / "archive", {"a": [0, 3600], "b": [0]}, keys=str)
    with Broker(port=0) as broker:
        broker.declare_exchange("e", "direct")
        broker.declare_queue("again")
        broker.bind("again", "e", "a")
        with pytest.raises(SparkSourceError, match="messages of queue 'b', row 0: .*reaches no queue"):
            replay(target, url=broker.url, exchange="e", speed=0.01)


def test_a_pattern_for_keys_has_no_sets_of_characters(tmp_path):
    target = write(tmp_path / "archive", {"a": [0, 1]}, keys=lambda queue: "k[1]")
    assert replay(target, to_queue="again", routing_keys="k[1]", dry_run=True).messages == 2
    assert replay(target, to_queue="again", routing_keys="k[!x]", dry_run=True).messages == 0


def test_a_sharded_queue_means_its_shards(tmp_path):
    target = write(
        tmp_path / "archive", {"parcels_0": [0], "parcels_11": [0, 1], "parcels_2024": [0], "parcels_x": [0]}
    )
    assert replay(target, to_queue="again", queue="parcels", dry_run=True).messages == 3
    assert replay(target, to_queue="again", queue="parcels_11", dry_run=True).messages == 2
    assert replay(target, to_queue="again", queue=["parcels", "parcels_x"], dry_run=True).messages == 4
    both = write(tmp_path / "both", {"orders": [0], "orders_1": [0]})
    assert replay(both, to_queue="again", queue="orders", dry_run=True).messages == 1


def test_messages_whose_arrival_is_not_known_hide_no_others(tmp_path):
    """A file with messages of unknown arrival may have any others, whatever is known of these."""
    # They were archived on the day on which the others arrived, so that all are in one file.
    target = write(tmp_path / "archive", {"a": [None, 5, None, 9]}, at=int(FIRST.timestamp() * 1000))
    for since, until, count in ((4, None, 2), (6, None, 1), (None, 6, 1), (10, None, 0)):
        moments = {"since": since, "until": until}
        given = {name: FIRST + timedelta(seconds=at) for name, at in moments.items() if at is not None}
        result = replay(target, to_queue="again", dry_run=True, **given)
        assert result.messages == count
    result = replay(target, to_queue="again", dry_run=True)
    assert (result.first, result.last) == (FIRST + timedelta(seconds=5), FIRST + timedelta(seconds=9))
