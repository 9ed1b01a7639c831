"""How the job `archive` reads queues: a task writes what it reads into files itself, and returns a note of each file.

So no message passes through Java, where most of the time would go. Offsets, loss and acknowledgements are those of a
stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..endpoints import Endpoint
from ..option_values import parse_text
from ..options import StreamOptions, option
from ..reading.batch_reader import RangePartition
from ..reading.offsets import QueueRange, QueueState, plan, ranges
from ..reading.stream_reader import StreamReader
from ..rows.columns import COLUMNS, RowPlan
from .hidden_file import SOUGHT
from .notes import ArchivedFile
from .parquet_files import FileWriter

_MOMENT = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())
_DEATH = pa.struct(
    [
        *((name, pa.string()) for name in ("queue", "reason", "exchange")),
        *(("routing_keys", _TEXTS), ("count", pa.int64()), ("time", _MOMENT)),
    ]
)
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": _MOMENT,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "array<string>": _TEXTS,
    COLUMNS["x_death"].type: pa.list_(_DEATH),
}
#: The columns of an archive as its readers get them: all of a message, and when it was archived.
MESSAGE_SCHEMA = pa.schema([(name, _TYPES[column.type]) for name, column in COLUMNS.items()])
#: The same as tasks make them: a string that messages share is there once, and a number for each message. Columns by
#: which messages are sought differ from message to message.
MADE_SCHEMA = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string()))
        if field.type == pa.string() and field.name not in SOUGHT
        else field
        for field in MESSAGE_SCHEMA
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveOptions(StreamOptions):
    """The options of a stream, and where its files go."""

    target: str = option(parse_text, "", "the folder of the archive")
    compress: str = option(parse_text, "zstd", "how the files are compressed")


class ArchivePartition(RangePartition):
    """`covers`: the numbers that the files of this task stand for; those outside the piece are gaps. `at`: the
    trigger's time.
    """

    def __init__(self, piece: QueueRange, endpoints: Sequence[Endpoint], covers: range, at: int) -> None:
        super().__init__(piece, endpoints)
        self.covers = covers
        self.at = at


class ArchiveReader(StreamReader):
    """Plans like any stream; its tasks write files."""

    def __init__(self, options: ArchiveOptions) -> None:
        super().__init__(options, RowPlan(MADE_SCHEMA, dataclasses.replace(options, columns=("all",))))
        self._target = options.target
        self._compress = options.compress

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ArchivePartition]:
        self._check_version(start)
        self._check_version(end)
        if start == end:
            return []
        spans = ranges(start, end)
        pieces = plan(start, end, self._options.min_partitions)
        at = {name: span.start for name, span in spans.items()}
        last = {piece.queue: piece for piece in pieces}
        nowhere = QueueState("", 0, 0)
        found: list[ArchivePartition] = []
        for piece in pieces:
            # The numbers between two pieces are a gap, which the later piece covers. A gap at the end belongs to the
            # last piece.
            stop = spans[piece.queue].stop if last[piece.queue] == piece else piece.next
            endpoints = self._states.get(piece.queue, nowhere).endpoints
            found.append(ArchivePartition(piece, endpoints, range(at[piece.queue], stop), end["at"]))
            at[piece.queue] = stop
        for name, span in spans.items():
            if span and name not in last:
                place = end["queues"][name]
                piece = QueueRange(name, span.stop, span.stop, place["id"], place["life"])
                found.append(ArchivePartition(piece, (), span, end["at"]))
        return found

    def write(self, partition: ArchivePartition, name: str) -> list[ArchivedFile]:
        """Write the files of a partition; the broker lists the task's connection under this name."""
        piece = partition.piece
        batches = partition.reading(self._options, self._rows, name).batches()
        given = range(piece.first, piece.next)
        writer = FileWriter(self._target, piece.queue, piece.id, partition.covers, given, partition.at, self._compress)
        return list(writer.write(_dated(batches, partition.at)))


def _dated(batches: Iterator[Any], at: int) -> Iterator[Any]:
    """The batches with the column `archived_at`."""
    moment = pa.scalar(at * 1000, pa.int64()).cast(_MOMENT)
    for batch in batches:
        yield batch.append_column("archived_at", pa.repeat(moment, batch.num_rows))
