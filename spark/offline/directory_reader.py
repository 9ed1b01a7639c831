"""`DirectoryReader`: `spark.read` on a data directory, whose view decides what is read (`offline_plan`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..options import DirectoryOptions
from .offline import message_batches
from .offline_history import history_batches
from .offline_plan import DirectoryPartition, plan
from .offline_views import view_batches


class DirectoryReader(DataSourceReader):
    """Reads one view of a data directory."""

    def __init__(self, options: DirectoryOptions, rows: Any) -> None:
        self._options = options
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        if self._options.view in ("messages", "history"):
            return plan(self._options)
        return [DirectoryPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark runs a task with a partition of its own if there are none.
        if not isinstance(partition, DirectoryPartition):
            return iter(())
        if self._options.view == "messages":
            return message_batches(self._options, self._rows, partition.parts)
        if self._options.view == "history":
            return history_batches(self._options, self._rows, partition.parts)
        return view_batches(self._options, self._rows)
