"""The job `archive`: queues into files of Parquet, every message once; and reading and checking such an archive."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet

from ..archive.notes import OWN, ArchivedFile, CommittedFiles, noted_files
from ..archive.parquet_files import date_of
from ..errors import wrong_options

#: Seconds between two looks at a query that runs.
LOOK = 0.25


@dataclass
class ArchiveProgress:
    """How far a run is: messages and bytes in files, and by queue where it has come and where it ends."""

    messages: int = 0
    bytes: int = 0
    queues: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ArchiveResult:
    """What a run has added: files, messages, bytes of files, and numbers whose messages were gone."""

    files: int
    messages: int
    bytes: int
    gone: int


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
    on_progress: Callable[[ArchiveProgress], None] | None = None,
    **options: Any,
) -> ArchiveResult:
    """Write the messages of queues into files below `target`, and acknowledge them when they are there.

    options    those of a stream in snake case or as they are: `url`, `queue`, `queues` or `pattern` and others
    follow     go on with what comes, every 10 s, until the program is interrupted; otherwise once over what is there
    keep       acknowledge nothing

    A run that was killed goes on where it was. Raises what Spark raises; its last line is that of a SparkSourceError.
    """
    from ..archive.archive_source import ArchiveSource

    target = os.path.abspath(target)
    os.makedirs(target, exist_ok=True)
    run = _Run(target)
    spark.dataSource.register(ArchiveSource)
    given = {"deleteOnCommit": "false" if keep else "true", **spelt(options), "target": target, "compress": compress}
    stream = spark.readStream.format("warren-archive").options(**given).load()
    sink = (
        stream.writeStream.format("parquet")
        .queryName("archive")
        .options(path=f"{target}/{OWN}/files", checkpointLocation=f"{target}/{OWN}/checkpoint")
    )
    query = (sink.trigger(processingTime="10 seconds") if follow else sink.trigger(availableNow=True)).start()
    try:
        while not query.awaitTermination(LOOK):
            if on_progress is not None:
                on_progress(run.progress(query.lastProgress))
    finally:
        if query.isActive:
            query.stop()
    last = run.progress(query.lastProgress)
    if on_progress is not None:
        on_progress(last)
    return ArchiveResult(run.files, last.messages, last.bytes, run.gone)


def spelt(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of Python as Spark's: `max_bytes_per_trigger` is `maxBytesPerTrigger`."""
    found = {}
    for name, value in options.items():
        if value is not None:
            first, *rest = name.split("_")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[first + "".join(part.capitalize() for part in rest)] = text
    return found


class _Run:
    """What a run has added to an archive. It reads each note once, however many there are."""

    def __init__(self, target: str) -> None:
        self._committed = CommittedFiles(target)
        self._committed.take()
        self.files = self.gone = 0
        self._messages = self._bytes = 0

    def progress(self, last: Any) -> ArchiveProgress:
        """How far the run is; `last` is the last progress of its query, None if it has none."""
        for file in self._committed.take():
            self.files += file.path is not None
            self.gone += file.gone
            self._messages += file.rows
            self._bytes += file.bytes
        found = ArchiveProgress(self._messages, self._bytes)
        for source in last["sources"] if last is not None else ():
            places = [json.loads(each) if isinstance(each, str) else each for each in _ends(source)]
            if all(places):
                for name, place in places[0]["queues"].items():
                    goal = places[1]["queues"].get(name, place)
                    found.queues[name] = place["next"], goal["next"]
        return found


def _ends(source: Any) -> tuple[Any, Any]:
    return source["endOffset"], source["latestOffset"]


def read_archive(
    spark: Any,
    target: str,
    columns: list[str] | None = None,
    queue: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Any:
    """The messages of an archive as a DataFrame: those of committed micro-batches.

    queue           only this queue
    since, until    dates, `2026-11-23`: files of other days are not opened
    """
    target = os.path.abspath(target)
    files = [
        file
        for file in noted_files(target)
        if file.path is not None
        and queue in (None, file.queue)
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
    """Check what an archive has of each queue: its ranges adjoin without overlap, rows, gone numbers and gaps are all
    numbers, and each file has its rows. Needs no Spark.
    """
    target = os.path.abspath(target)
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
