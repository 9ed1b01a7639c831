"""Rows of Spark as dicts with times in UTC, and times as Spark compares them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of(moment: datetime) -> int:
    """The microseconds since the epoch of a time with a zone.

    They do not come from `timestamp()`, which is a float and may be a microsecond too small.
    """
    return (moment - _EPOCH) // timedelta(microseconds=1)


def rows_in_utc(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The columns of each row. Spark makes times of the driver's own zone, and does not state the zone."""
    return [{name: _in_utc(value) for name, value in row.asDict(recursive=True).items()} for row in rows]


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [_in_utc(each) for each in value]
    return {name: _in_utc(each) for name, each in value.items()} if isinstance(value, dict) else value
