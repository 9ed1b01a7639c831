"""An archive that Spark itself writes, in one of its formats, with rows that the caller may change.

All messages pass through Java, which costs most of the time, and Spark alone chooses the files. So the jobs that rely
on `notes` refuse such an archive, and Spark reads it with its format. `_warren/through_spark` has the name of the
format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import wrong_options
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
    rows = rows.withColumn("date", functions.to_date(functions.coalesce("arrived", "archived_at")))
    if transform is not None:
        rows = transform(rows)
    os.makedirs(f"{target}/{OWN}", exist_ok=True)
    with open(f"{target}/{OWN}/{THROUGH_SPARK}", "w", encoding="utf-8") as file:
        file.write(form)
    writer = rows.writeStream.format(form).option("path", target)
    if {"queue", "date"} <= set(rows.columns):
        writer = writer.partitionBy("queue", "date")
    return writer.option("compression", compress) if form == "parquet" else writer


class SparkRows:
    """Counts the rows that a query has read."""

    def __init__(self) -> None:
        self._last_batch = -1
        self.count = 0

    def update(self, query: Any) -> int:
        """The rows of all micro-batches so far. Spark keeps the last hundred, so this must be called now and then."""
        for progress in query.recentProgress:
            if progress["batchId"] > self._last_batch and progress["numInputRows"]:
                self._last_batch = progress["batchId"]
                self.count += progress["numInputRows"]
        return self.count
