"""The tables of the job `flow`: files of Parquet for each hour, which are replaced while windows of that hour change.

DIR/flow-2026-11-24T12.parquet
DIR/_warren/flow.json             the width of a window, and the sums of windows that may still change
DIR/_warren/checkpoint/           Spark's checkpoint
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet

from ..archive.notes import OWN, replace_text
from ..errors import wrong_option
from .flow_windows import ConsumedRow, FlowRow, Sums, WindowKey

_MOMENT = pa.timestamp("us", tz="UTC")
_FLOW_SCHEMA = pa.schema(
    [
        *((name, _MOMENT) for name in ("start", "end")),
        *((name, pa.string()) for name in ("node", "stage", "object")),
        *(("blocked_share", pa.float64()), ("verdict", pa.string()), ("connections", pa.int64()), ("since", _MOMENT)),
        *((name, pa.string()) for name in ("evidence", "advice")),
        *((name, pa.float64()) for name in ("published", "confirmed", "delivered", "acked")),
    ]
)
_CONSUMED_SCHEMA = pa.schema(
    [
        *((name, _MOMENT) for name in ("start", "end")),
        *((name, pa.string()) for name in ("node", "vhost", "queue")),
        *(("consumers", pa.int64()), ("acked", pa.float64()), ("unacked", pa.float64())),
    ]
)
_SCHEMAS: dict[type, Any] = {FlowRow: _FLOW_SCHEMA, ConsumedRow: _CONSUMED_SCHEMA}
_FLOW, _CONSUMED, _SUFFIX = "flow-", "consumed-", ".parquet"


class FlowTable:
    """The files below one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._notes = f"{folder}/{OWN}/flow.json"
        self._flow = _Hourly(folder, _FLOW, FlowRow)
        self._consumed = _Hourly(folder, _CONSUMED, ConsumedRow)

    def begin(self, width: int) -> list[tuple[WindowKey, Sums]]:
        """Make the folder, or go on with it; returns the sums that an earlier run kept. Raises SparkSourceError E4."""
        os.makedirs(os.path.dirname(self._notes), exist_ok=True)
        if not os.path.exists(self._notes):
            self.keep(width, ())
            return []
        found = json.loads(Path(self._notes).read_text("utf-8"))
        if found["width"] != width:
            raise wrong_option(
                "window",
                f"{width}s",
                f"{found['width']}s, which the windows in '{self._folder}' have, or another folder",
            )
        return [(WindowKey(*key), Sums(*sums)) for key, sums in found["sums"]]

    def keep(self, width: int, sums: Iterable[tuple[WindowKey, Sums]]) -> None:
        """Keep the sums of windows that may still change, for a run that goes on."""
        replace_text(self._notes, json.dumps({"width": width, "sums": list(sums)}))

    def put(
        self, rows: Mapping[tuple[int, str], list[FlowRow]], consumed: Mapping[tuple[int, str], list[ConsumedRow]]
    ) -> None:
        """Write the rows of windows, by start and node, instead of those that the table has of them."""
        self._flow.put(rows)
        self._consumed.put(consumed)

    def rows_from(self, since: datetime) -> list[FlowRow]:
        """The rows of windows that begin at this time or later, in order."""
        return read_flow(self._folder, since)


Row = TypeVar("Row", FlowRow, ConsumedRow)


class _Hourly(Generic[Row]):
    """Files of rows of one kind, one for each hour. It has the last two hours in memory."""

    def __init__(self, folder: str, prefix: str, row: type[Row]) -> None:
        self._folder, self._prefix = folder, prefix
        self._row: type[Row] = row
        #: By name of a file: its rows by start and node.
        self._hours: dict[str, dict[tuple[datetime, str], list[Row]]] = {}

    def put(self, windows: Mapping[tuple[int, str], list[Row]]) -> None:
        """Replace the rows of these windows."""
        changed = set()
        for rows in windows.values():
            name = self._name(rows[0].start)
            if name not in self._hours:
                self._hours[name] = {}
                for row in self._read(name):
                    self._hours[name].setdefault((row.start, row.node), []).append(row)
            self._hours[name][rows[0].start, rows[0].node] = rows
            changed.add(name)
        for name in changed:
            found = [dataclasses.asdict(row) for _, some in sorted(self._hours[name].items()) for row in some]
            path = f"{self._folder}/{name}"
            pa.parquet.write_table(pa.Table.from_pylist(found, _SCHEMAS[self._row]), f"{path}.new")
            os.replace(f"{path}.new", path)
        for name in sorted(self._hours)[:-2]:
            del self._hours[name]

    def read(self, since: datetime | None = None) -> list[Row]:
        """All rows in order, or those of windows that begin at this time or later."""
        names = sorted(
            name for name in os.listdir(self._folder) if name.startswith(self._prefix) and name.endswith(_SUFFIX)
        )
        rows = [row for name in names if since is None or name >= self._name(since) for row in self._read(name)]
        return [row for row in rows if since is None or row.start >= since]

    def _name(self, moment: datetime) -> str:
        return f"{self._prefix}{moment.astimezone(UTC):%Y-%m-%dT%H}{_SUFFIX}"

    def _read(self, name: str) -> list[Row]:
        path = f"{self._folder}/{name}"
        if not os.path.exists(path):
            return []
        with pa.parquet.ParquetFile(path) as file:
            return [self._row(**row) for row in file.read().to_pylist()]


def read_flow(folder: str, since: datetime | None = None) -> list[FlowRow]:
    """The rows of the stages, in order; those of windows that begin at this time or later."""
    return _Hourly(folder, _FLOW, FlowRow).read(since)


def read_consumed(folder: str) -> list[ConsumedRow]:
    """The rows of the queues with consumers, in order."""
    return _Hourly(folder, _CONSUMED, ConsumedRow).read()
