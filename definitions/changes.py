"""Changes of records: what a command did to the definitions."""

from __future__ import annotations

from typing import NamedTuple

from .records import Record


class RecordPut(NamedTuple):
    """A record was added, or replaced the one with its key, which is `before`."""

    record: Record
    before: Record | None = None


class RecordRemoved(NamedTuple):
    """A record was removed, alone or with its user or virtual host."""

    record: Record


RecordChange = RecordPut | RecordRemoved
