"""The job `archive`: queues into files of Parquet, every message once; and reading and checking such an archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet

from ..archive.chosen_queues import queues_in_archive
from ..archive.notes import OWN, ArchivedFile, noted_files, require_archive
from ..archive.parquet_files import date_of
from ..archive.through_spark import SparkRun, Transform, check_writer, spark_writer
from ..errors import no_such_queue, refused, wrong_options
from ..options import StreamOptions
from ..reading.catalogue import covers, states
from ..wire import Away, BrokerConnection, Refused

#: Seconds between two looks at a run, and between two micro-batches of one that follows its queues.
LOOK, INTERVAL = 0.25, 10.0


@dataclass
class ArchiveProgress:
    """How far a run is: messages and bytes in files, and by queue where it has come and where it ends.

    in_hand         how many numbers the micro-batch has that is being written
    parts, ended    how many tasks it has, and how many of them have ended; 0 if that is not known
    """

    messages: int = 0
    bytes: int = 0
    queues: dict[str, tuple[int, int]] = field(default_factory=dict)
    in_hand: int = 0
    parts: int = 0
    ended: int = 0


@dataclass(frozen=True)
class ArchiveResult:
    """What a run has added: files, messages, bytes of files, and numbers whose messages were gone.

    If Spark writes the archive, only the messages that were read are counted.

    is_interrupted    whether `stop` ended it
    """

    files: int
    messages: int
    bytes: int
    gone: int
    is_interrupted: bool = False


@dataclass(frozen=True)
class CheckedQueue:
    """What an archive has of one declaration of a queue.

    `problems` is empty if its ranges adjoin and all rows are there.
    """

    queue: str
    queue_id: str
    first: int
    next: int
    files: int
    rows: int
    gone: int
    gaps: int
    problems: tuple[str, ...]


def archive(
    spark: Any,
    target: str,
    *,
    follow: bool = False,
    keep: bool = False,
    compress: str = "zstd",
    through_spark: str | None = None,
    transform: Transform | None = None,
    on_progress: Callable[[ArchiveProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> ArchiveResult:
    """Write the messages of queues into files below `target`, and acknowledge them when they are there.

    options          those of a stream in snake case or as they are: `url`, `queue`, `queues` or `pattern` and others
    follow           go on with what comes, every 10 s, until the program is interrupted; otherwise once over what is
                     there
    keep             acknowledge nothing
    through_spark    have Spark write in this format of its own, such as `delta`
    transform        makes the rows that Spark writes from a DataFrame of the messages, with the columns of an archive
                     and `date`; the format is `parquet` then, unless `through_spark` names another one
    stop             asked a few times a second; when it returns True, the run ends after the micro-batch in hand

    A run that was killed goes on where it was. Raises what Spark raises; its last line is that of a SparkSourceError.
    """
    from ..archive.archive_reader import ArchiveOptions
    from ..archive.archive_run import ArchiveRun

    target = os.path.abspath(target)
    form = "parquet" if through_spark is None and transform is not None else through_spark
    check_writer(target, form)
    os.makedirs(target, exist_ok=True)
    given = _stream_options(keep, options)
    every = INTERVAL if follow else None
    run: ArchiveRun | SparkRun
    if form is None:
        run = ArchiveRun(spark, ArchiveOptions.parse({**given, "target": target, "compress": compress}), every)
    else:
        run = SparkRun(spark_writer(spark, target, form, transform, compress, given), target, every)

    def show() -> None:
        if on_progress is not None:
            on_progress(ArchiveProgress(run.messages, run.bytes, run.places(), run.in_hand(), *_tasks(spark)))

    is_interrupted = False
    try:
        while not run.wait(LOOK):
            show()
            if stop is not None and stop():
                is_interrupted = True
                if run.end():
                    break
    finally:
        run.abort()
    show()
    return ArchiveResult(run.files, run.messages, run.bytes, run.gone, is_interrupted)


def _stream_options(keep: bool, options: Mapping[str, Any]) -> dict[str, str]:
    return {"deleteOnCommit": "false" if keep else "true", **spelt(options)}


def check_archive(target: str, *, keep: bool = False, through_spark: str | None = None, **options: Any) -> str | None:
    """Check the options of a run of `archive` as far as that needs no Spark: what they are, the login, and, if the run
    is the first one, that the queues exist.

    Returns why the broker does not answer, and None if it does. Raises SparkSourceError.
    """
    check_writer(os.path.abspath(target), through_spark)
    parsed = StreamOptions.parse(_stream_options(keep, options))
    shown = ", ".join(parsed.given_names) or str(parsed.pattern)
    try:
        connection = BrokerConnection(parsed, "spark/archive")
        try:
            connection.require_warren()
            is_first = not os.path.exists(f"{target}/{OWN}/checkpoint")
            if is_first and parsed.exchange is None:
                found = states(connection, parsed.given_names, parsed.pattern)
                missing = [name for name in parsed.given_names if not covers(found, name)]
                if missing:
                    raise no_such_queue(missing[0])
        finally:
            connection.close()
    except Away as away:
        return str(away)
    except Refused as refusal:
        raise refused(shown, str(refusal)) from refusal
    return None


def _tasks(spark: Any) -> tuple[int, int]:
    """The tasks of the stage that runs, and how many of them have ended. A session of Spark Connect reports neither."""
    tracker = spark.sparkContext.statusTracker() if hasattr(spark, "sparkContext") else None
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()] if tracker is not None else []
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numTasks for stage in known), sum(stage.numCompletedTasks for stage in known)


def spelt(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of Python as Spark's: `max_bytes_per_trigger` is `maxBytesPerTrigger`."""
    found = {}
    for name, value in options.items():
        if value is not None:
            first, *rest = name.split("_")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[first + "".join(part.capitalize() for part in rest)] = text
    return found


def read_archive(
    spark: Any,
    target: str,
    columns: list[str] | None = None,
    queue: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Any:
    """The messages of an archive as a DataFrame: those of committed micro-batches.

    queue           only this queue, or the shards of this one
    since, until    dates, `2026-11-23`: files of other days are not opened
    """
    target = require_archive(target)
    noted = noted_files(target)
    here = queues_in_archive(noted, None if queue is None else [queue])
    files = [
        file
        for file in noted
        if file.path is not None
        and file.queue in here
        and (since is None or date_of(file.path) >= since)
        and (until is None or date_of(file.path) <= until)
    ]
    if not files:
        raise wrong_options(f"the archive '{target}' has no message of that queue and time")
    found = read_files(spark, target, files)
    return found if columns is None else found.select(*columns)


def read_files(spark: Any, target: str, files: Sequence[ArchivedFile]) -> Any:
    """The messages of these files of an archive, at least one, as a DataFrame."""
    # The folders repeat the column `queue`, so they are not taken for partitions.
    return spark.read.option("recursiveFileLookup", "true").parquet(*(f"{target}/{file.path}" for file in files))


def verify_archive(target: str) -> list[CheckedQueue]:
    """Check what an archive has of each queue: its ranges adjoin without overlap; its rows, gone numbers and gaps
    together are all numbers of the ranges; and each file has its rows. Needs no Spark.
    """
    target = require_archive(target)
    groups: dict[tuple[str, str], list[Any]] = {}
    for file in noted_files(target):
        groups.setdefault((file.queue, file.queue_id), []).append(file)
    found = []
    for (queue, queue_id), files in sorted(groups.items()):
        problems = []
        for one, other in zip(files, files[1:]):
            if other.first != one.next:
                kind = "overlap" if other.first < one.next else "are missing"
                low, high = sorted((one.next, other.first))
                problems.append(f"numbers {low:,} to {high - 1:,} {kind}")
        for file in files:
            if file.rows + file.gone + file.gaps != file.next - file.first:
                problems.append(
                    f"{file.path}: {file.rows:,} rows do not account for {file.next - file.first:,} numbers"
                )
            if file.path is not None:
                problems += _file_problems(f"{target}/{file.path}", file.rows)
        found.append(
            CheckedQueue(
                *(queue, queue_id, files[0].first, files[-1].next, sum(file.path is not None for file in files)),
                *(sum(file.rows for file in files), sum(file.gone for file in files)),
                *(sum(file.gaps for file in files), tuple(problems)),
            )
        )
    return found


def _file_problems(path: str, rows: int) -> list[str]:
    try:
        there = pyarrow.parquet.read_metadata(path).num_rows
    except Exception as error:
        # pyarrow raises half a dozen types for what is no file of Parquet.
        return [f"{path} cannot be read: {error}"]
    return [] if there == rows else [f"{path} has {there:,} rows instead of {rows:,}"]
