"""The files of an archive: their names, and how a task writes them.

    TARGET/queue=<name>/date=<yyyy-mm-dd>/<id>-<first>-<next>.parquet

The offsets of a micro-batch determine the names and contents of its files. So a micro-batch that runs again, or twice
at once, replaces its files by equal ones, and every reader of Parquet finds each message once. `notes` describes which
files count.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import numpy
import pyarrow as pa
import pyarrow.compute

from ..errors import archive_full, is_full
from .hidden_file import HiddenFile
from .notes import ArchivedFile

#: Microseconds of a day.
_DAY = 86_400_000_000


def file_path(queue: str, queue_id: str, date: str, first: int, stop: int) -> str:
    """The path of a file below the target."""
    return f"queue={quote(queue, safe='')}/date={date}/{(queue_id or '0')[:8]:0>8}-{first:020}-{stop:020}.parquet"


def date_of(path: str) -> str:
    """The date in a path below the target."""
    return path.split("/")[1].removeprefix("date=")


class FileWriter:
    """Writes the messages of one range, in a file for each date of arrival. Raises SparkSourceError E14.

    covers    the numbers of the range, with the gaps before and behind it
    given     the numbers of the range that are in no gap
    """

    def __init__(
        self, target: str, queue: str, queue_id: str, covers: range, given: range, at: int, compression: str
    ) -> None:
        self._target = target
        self._queue, self._queue_id = queue, queue_id
        self._covers, self._given, self._at = covers, given, at
        self._compression = compression
        self._first = covers.start
        self._date = ""
        self._rows = 0
        self._least: datetime | None = None
        self._most: datetime | None = None
        #: Whether the arrival of each message in the file is known.
        self._is_dated = True
        self._file: HiddenFile | None = None

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
            if is_full(error):
                raise archive_full(f"{self._target}/queue={quote(self._queue, safe='')}", self._covers.start) from error
            raise
        finally:
            self._give_up()

    def _add(self, part: Any) -> None:
        if self._file is None:
            folder = f"{self._target}/queue={quote(self._queue, safe='')}/date={self._date}"
            hidden = f"{folder}/.{uuid.uuid4().hex}.making"
            self._file = HiddenFile(hidden, part, self._compression, len(self._covers))
        self._file.add(part)
        self._rows += part.num_rows
        arrived = part.column("arrived")
        times = [arrived[place].as_py() for place in (0, part.num_rows - 1)]
        self._least = self._least or times[0]
        self._most = times[1] or self._most
        self._is_dated = self._is_dated and not arrived.null_count

    def _finish(self, stop: int) -> ArchivedFile:
        """Close the current file, whose range ends before `stop`, and return its entry."""
        path, size = None, 0
        if self._file is not None:
            path = file_path(self._queue, self._queue_id, self._date, self._first, stop)
            size = self._file.publish(f"{self._target}/{path}")
        gaps = stop - self._first - max(0, min(stop, self._given.stop) - max(self._first, self._given.start))
        found = ArchivedFile(
            *(path, self._queue, self._queue_id, self._first, stop),
            *(self._rows, stop - self._first - self._rows - gaps, gaps, size),
            *((self._least, self._most) if self._is_dated else (None, None)),
            self._at,
        )
        self._file, self._rows, self._least, self._most, self._first = None, 0, None, None, stop
        self._is_dated = True
        return found

    def _give_up(self) -> None:
        if self._file is not None:
            self._file.give_up()


def _by_date(batch: Any, at: int) -> Iterator[tuple[str, Any]]:
    """The parts of a batch by the date of arrival, in UTC; that of the trigger for messages without a time."""
    if not batch.num_rows:
        return
    moments = pa.compute.fill_null(batch.column("arrived").cast(pa.int64()), at * 1000).to_numpy()
    # By column: a date for each message in Python would take four fifths of the time of an archive of small messages.
    days = moments // _DAY
    bounds = [0, *(numpy.flatnonzero(numpy.diff(days)) + 1).tolist(), batch.num_rows]
    for start, stop in itertools.pairwise(bounds):
        date = datetime.fromtimestamp(int(days[start]) * 86_400, UTC).date()
        yield date.isoformat(), batch.slice(start, stop - start)
