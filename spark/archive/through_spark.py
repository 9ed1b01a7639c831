"""An archive that Spark itself writes, in one of its formats, with rows that the caller may change.

All messages pass through Java, which costs most of the time, and Spark alone chooses the files. So the jobs that rely
on `notes` refuse such an archive, and Spark reads it with its format. `_warren/through_spark` has the name of the
format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import wrong_options
from .checkpoint import ArchiveCheckpoint
from .notes import OWN, THROUGH_SPARK, format_of

#: Takes the DataFrame of the queues' messages, and returns the one whose rows are written.
Transform = Callable[[Any], Any]


def check_writer(target: str, wanted: str | None) -> None:
    """Raise SparkSourceError E4 if the archive was begun in another way. `wanted` is a format of Spark; None for files
    that tasks write.
    """
    if not os.path.isdir(f"{target}/{OWN}/checkpoint"):
        return
    found = format_of(target)
    if found != wanted:
        begun = "files that warren writes" if found is None else f"Spark's format '{found}'"
        asked = "files that warren writes" if wanted is None else f"Spark's format '{wanted}'"
        raise wrong_options(f"the archive '{target}' was begun with {begun}. Use another folder for {asked}")


def spark_writer(
    spark: Any, target: str, form: str, transform: Transform | None, compress: str, options: Mapping[str, str]
) -> Any:
    """A `DataStreamWriter` of the queues' messages into `target`. Rows with the columns `queue` and `date` go into the
    folders of these, as in other archives.
    """
    from pyspark.sql import functions

    rows = spark.readStream.format("warren").options(**{"columns": "all", **options}).load()
    # The time of a micro-batch is in the checkpoint, so a micro-batch that runs again has the same rows.
    rows = rows.withColumn("archived_at", functions.current_timestamp())
    # Dates are those of UTC, as in other archives. Spark would take those of the session's time zone.
    micros = "unix_micros(coalesce(arrived, archived_at))"
    rows = rows.withColumn("date", functions.expr(f"date_from_unix_date(int(floor({micros} / 86400000000)))"))
    if transform is not None:
        rows = transform(rows)
    os.makedirs(f"{target}/{OWN}", exist_ok=True)
    with open(f"{target}/{OWN}/{THROUGH_SPARK}", "w", encoding="utf-8") as file:
        file.write(form)
    writer = rows.writeStream.format(form).option("path", target)
    if {"queue", "date"} <= set(rows.columns):
        writer = writer.partitionBy("queue", "date")
    return writer.option("compression", compress) if form == "parquet" else writer


class SparkRun:
    """Runs a streaming query that writes an archive: once over what is there, or with a micro-batch each `every`
    seconds.

    `messages` are those that the query has read. What its files contain is not known.
    """

    files = bytes = gone = 0

    def __init__(self, writer: Any, target: str, every: float | None) -> None:
        self.messages = 0
        self._checkpoint = ArchiveCheckpoint(target)
        self._commits = f"{target}/{OWN}/checkpoint/commits"
        #: The last micro-batch whose rows are counted.
        self._counted = -1
        #: The last micro-batch that must be complete before the query ends; None while it goes on.
        self._last: int | None = None
        sink = writer.queryName("archive").option("checkpointLocation", f"{target}/{OWN}/checkpoint")
        trigger = {"availableNow": True} if every is None else {"processingTime": f"{every:g} seconds"}
        self._query = sink.trigger(**trigger).start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the run; returns whether it has come. Raises what has ended the run."""
        has_ended: bool = self._query.awaitTermination(seconds)
        # Spark keeps the progress of the last hundred micro-batches.
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._counted and progress["numInputRows"]:
                self._counted = progress["batchId"]
                self.messages += progress["numInputRows"]
        return has_ended

    def end(self) -> bool:
        """Have the run end after the micro-batch that is being written. Returns True if none is being written."""
        if self._last is None:
            self._last = self._checkpoint.last_planned()
        return self._committed() >= self._last

    def abort(self) -> None:
        """End the run at once."""
        if self._query.isActive:
            self._query.stop()

    def places(self) -> dict[str, tuple[int, int]]:
        """For each queue the number to which it is archived, and its next number."""
        last = self._query.lastProgress
        found = {}
        for source in last["sources"] if last is not None else ():
            ends = source["endOffset"], source["latestOffset"]
            place, goal = (json.loads(each) if isinstance(each, str) else each for each in ends)
            if place and goal:
                for name, each in place["queues"].items():
                    found[name] = each["next"], goal["queues"].get(name, each)["next"]
        return found

    def in_hand(self) -> int:
        """How many numbers the micro-batch has that is being written."""
        planned = self._checkpoint.last_planned()
        if self._committed() >= planned:
            return 0
        try:
            end, *before = [self._checkpoint.offset(batch) for batch in (planned, planned - 1) if batch >= 0]
            begins = before[0]["queues"] | end.get("from", {}) if before else end.get("from", {})
            return sum(place["next"] - begins.get(name, place)["next"] for name, place in end["queues"].items())
        except (OSError, ValueError, KeyError, IndexError):
            # Spark is writing the file, or has just removed the earlier one, or a transformation reads other sources.
            return 0

    def _committed(self) -> int:
        """The number of the last micro-batch that has ended; -1 if there is none."""
        try:
            return max((int(name) for name in os.listdir(self._commits) if name.isdigit()), default=-1)
        except FileNotFoundError:
            return -1
