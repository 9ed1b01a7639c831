"""The files of an archive: their names, how a task writes them, and which of them count.

    TARGET/queue=<name>/date=<yyyy-mm-dd>/<id>-<first>-<next>.parquet
    TARGET/_warren/files/         a row for each file, written by Spark's own sink of files
    TARGET/_warren/checkpoint/    Spark's checkpoint of the query

The offsets of a micro-batch determine the names and contents of its files. So a micro-batch that runs again, or twice
at once, replaces its files by equal ones, and every reader of Parquet finds each message once.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet

from ..errors import archive_full

#: A row group ends with the record batch that brings it to so many rows or bytes.
GROUP_ROWS, GROUP_BYTES = 128 << 10, 64 << 20
#: Folders of an archive beside those of its queues.
OWN = "_warren"


class ArchivedFile(NamedTuple):
    """The archive's entry for a range of a queue. `path` is relative to the target; None if the range has no message.

    first, next    the range; rows + gone + gaps are the count of its numbers
    gone           numbers whose messages had left the queue before they were read
    gaps           numbers that no message was ever given
    bytes          the size of the file
    at             the trigger's time in milliseconds since the epoch
    """

    path: str | None
    queue: str
    queue_id: str
    first: int
    next: int
    rows: int
    gone: int
    gaps: int
    bytes: int
    arrived_least: datetime | None
    arrived_most: datetime | None
    at: int


#: The schema of `ArchivedFile` in Spark's DDL.
FILE_DDL = (
    "path string, queue string, queue_id string, first bigint, next bigint, rows bigint, gone bigint, gaps bigint, "
    "bytes bigint, arrived_least timestamp, arrived_most timestamp, at bigint"
)


def file_path(queue: str, queue_id: str, date: str, first: int, stop: int) -> str:
    """The path of a file below the target."""
    return f"queue={quote(queue, safe='')}/date={date}/{(queue_id or '0')[:8]:0>8}-{first:020}-{stop:020}.parquet"


def queue_of(path: str) -> str:
    """The queue in a path below the target."""
    return unquote(path.partition("/")[0].removeprefix("queue="))


def date_of(path: str) -> str:
    """The date in a path below the target."""
    return path.split("/")[1].removeprefix("date=")


class FileWriter:
    """Writes the messages of one range, in a file for each date of arrival. Raises SparkSourceError E14.

    covers    the numbers of the range, with the gaps before its first message
    """

    def __init__(
        self, target: str, queue: str, queue_id: str, covers: range, gaps: int, at: int, compression: str
    ) -> None:
        self._target = target
        self._queue, self._queue_id = queue, queue_id
        self._covers, self._gaps, self._at = covers, gaps, at
        self._compression = compression
        self._first = covers.start
        self._date = ""
        self._waiting: list[Any] = []
        self._rows = self._bytes = self._written = 0
        self._least: datetime | None = None
        self._most: datetime | None = None
        self._file: Any = None
        self._making = ""

    def write(self, batches: Iterator[Any]) -> Iterator[ArchivedFile]:
        """Write record batches, in the order of their numbers; yields what was written."""
        try:
            for batch in batches:
                for date, part in _by_date(batch, self._at):
                    if self._date and date != self._date:
                        yield self._finish(part.column("seq")[0].as_py())
                    self._date = date
                    self._add(part)
            yield self._finish(self._covers.stop)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise archive_full(f"{self._target}/queue={quote(self._queue, safe='')}", self._covers.start) from error
            raise
        finally:
            self._give_up()

    def _add(self, part: Any) -> None:
        if self._file is None:
            folder = f"{self._target}/queue={quote(self._queue, safe='')}/date={self._date}"
            os.makedirs(folder, exist_ok=True)
            self._making = f"{folder}/.{uuid.uuid4().hex}.making"
            self._file = pa.parquet.ParquetWriter(
                self._making, part.schema, compression=self._compression, use_dictionary=True
            )
        self._waiting.append(part)
        self._rows += part.num_rows
        self._bytes += part.nbytes
        times = [part.column("arrived")[place].as_py() for place in (0, part.num_rows - 1)]
        self._least = self._least or times[0]
        self._most = times[1] or self._most
        if sum(each.num_rows for each in self._waiting) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._file.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._bytes = [], 0

    def _finish(self, stop: int) -> ArchivedFile:
        """Close the current file, whose range ends before `stop`, and return its entry."""
        path, size = None, 0
        if self._file is not None:
            self._flush()
            self._file.close()
            path = file_path(self._queue, self._queue_id, self._date, self._first, stop)
            size = _publish(self._making, f"{self._target}/{path}")
        gaps, self._gaps = self._gaps, 0
        found = ArchivedFile(
            *(path, self._queue, self._queue_id, self._first, stop),
            *(self._rows, stop - self._first - self._rows - gaps, gaps, size),
            *(self._least, self._most, self._at),
        )
        self._file, self._rows, self._least, self._most, self._first = None, 0, None, None, stop
        return found

    def _give_up(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                pass
            Path(self._making).unlink(missing_ok=True)


def _publish(making: str, path: str) -> int:
    """Sync a file and give it its name; returns its size."""
    with open(making, "rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    os.replace(making, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def _by_date(batch: Any, at: int) -> Iterator[tuple[str, Any]]:
    """The parts of a batch by the date of arrival, in UTC; that of the trigger for messages without a time."""
    if not batch.num_rows:
        return
    instead = datetime.fromtimestamp(at / 1000, UTC)
    dates = [(moment or instead).astimezone(UTC).date().isoformat() for moment in batch.column("arrived").to_pylist()]
    start = 0
    for place in range(1, len(dates) + 1):
        if place == len(dates) or dates[place] != dates[start]:
            yield dates[start], batch.slice(start, place - start)
            start = place


def noted_files(target: str) -> list[ArchivedFile]:
    """The files of committed micro-batches, by queue and number. They need no Spark to be read."""
    found = []
    for path in _committed(f"{target}/{OWN}/files"):
        for row in pa.parquet.read_table(path).to_pylist():
            # Spark's files of Parquet have times in UTC, and do not state the zone.
            times = {name: row[name] and row[name].replace(tzinfo=UTC) for name in ("arrived_least", "arrived_most")}
            found.append(ArchivedFile(**row | times))
    return sorted(found, key=lambda file: (file.queue, file.queue_id, file.first))


def _committed(folder: str) -> list[str]:
    """The files that Spark's file sink has committed, by its log, which has a file for each micro-batch or for many."""
    log = Path(folder, "_spark_metadata")
    if not log.exists():
        return []
    batches: dict[int, Path] = {}
    compacted = -1
    for entry in log.iterdir():
        number, _, ending = entry.name.partition(".")
        if not number.isdigit() or ending not in ("", "compact"):
            continue
        if ending == "compact":
            compacted = max(compacted, int(number))
            batches[int(number)] = entry
        else:
            batches.setdefault(int(number), entry)
    paths = []
    for batch, entry in sorted(batches.items()):
        if batch >= compacted:
            for line in entry.read_text("utf-8").splitlines()[1:]:
                status = json.loads(line)
                if status.get("action", "add") == "add":
                    # The log has absolute paths; the archive may have been moved since.
                    paths.append(os.path.join(folder, os.path.basename(unquote(status["path"]))))
    return paths
