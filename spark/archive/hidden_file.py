"""A file of an archive while it is written: under a hidden name, which no reader of Parquet looks at."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

#: A row group ends with the record batch that brings it to this many rows or bytes.
GROUP_ROWS, GROUP_BYTES = 128 << 10, 64 << 20
#: Columns by whose values messages are sought. Each row group has a Bloom filter of their values, so that a reader can
#: skip the row groups without the value that it seeks.
SOUGHT = ("message_id", "correlation_id")
#: The share of values outside a row group that its Bloom filter takes for values of the row group.
WRONG = 0.01

#: Columns of which row groups have neither the least and most value nor a dictionary: their values seldom repeat, may
#: be long, and nobody seeks a range of them.
CONTENTS = ("body", "properties")

_HAS_BLOOM_FILTERS = "bloom_filter_options" in inspect.signature(pa.parquet.ParquetWriter.__init__).parameters


class HiddenFile:
    """Collects record batches into row groups, and gets its name when it is complete and on the disk.

    like    a batch, whose schema the file has; a sought column that is null in all of it gets no Bloom filter
    most    the most rows that the file may have
    """

    def __init__(self, hidden: str, like: Any, compression: str, most: int) -> None:
        os.makedirs(os.path.dirname(hidden), exist_ok=True)
        self._hidden = hidden
        options: dict[str, Any] = {}
        if _HAS_BLOOM_FILTERS:
            sought = [name for name in SOUGHT if name in like.schema.names and like.column(name).null_count < len(like)]
            options["bloom_filter_options"] = {
                name: {"ndv": max(1, min(GROUP_ROWS, most)), "fpp": WRONG} for name in sought
            }
        names = [path for field in like.schema for path in _leaves(field.name, field.type)]
        self._file = pa.parquet.ParquetWriter(
            hidden,
            like.schema,
            compression=compression,
            # The numbers in `seq` never repeat, so a dictionary of them would only make the file larger.
            use_dictionary=[name for name in names if name not in (*CONTENTS, "seq")],
            write_statistics=[name for name in names if name not in CONTENTS],
            # Without Arrow's own schema every reader takes a dictionary of strings for a column of strings.
            store_schema=False,
            **options,
        )
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        """Append the rows of a batch."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._waiting:
            # Parquet writes dictionaries as they are if all batches of a row group have the same ones.
            table = pa.Table.from_batches(self._waiting).unify_dictionaries()
            self._file.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def publish(self, path: str) -> int:
        """Complete and sync the file, and give it this name in its folder; returns its size."""
        self._end_group()
        self._file.close()
        sync_file(self._hidden)
        size = os.stat(self._hidden).st_size
        os.replace(self._hidden, path)
        sync_folder(os.path.dirname(path))
        return size

    def give_up(self) -> None:
        """Close and remove what was written."""
        try:
            self._file.close()
        except OSError:
            pass
        Path(self._hidden).unlink(missing_ok=True)


def _leaves(path: str, type: Any) -> Iterator[str]:
    """The paths in Parquet of the columns that a column of this type becomes."""
    if pa.types.is_map(type):
        for name, each in (("key", type.key_type), ("value", type.item_type)):
            yield from _leaves(f"{path}.key_value.{name}", each)
    elif pa.types.is_list(type):
        yield from _leaves(f"{path}.list.element", type.value_type)
    elif pa.types.is_struct(type):
        for field in type:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path


def sync_file(path: str) -> None:
    """Make what was written to a file safe from a power cut."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Make what was created, renamed and removed in a folder safe from a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
