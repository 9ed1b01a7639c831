"""`SharedValues`: equal values of many rows, stored once.

Most of ten thousand quiet queues differ in their names and lengths alone. Their rows have the same texts, and the same
lists and dicts of zeros, which took half of the copy's memory.
"""

from __future__ import annotations

from sys import intern
from typing import Any

#: Values that are remembered, and the longest text that is one.
VALUES_MAX, TEXT_MAX = 2_000, 256


class SharedValues:
    """See the module. Nobody may modify a list or dict of a row that `share` has seen: other rows may have it, too."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def share(self, row: dict[str, Any]) -> None:
        """Replace the texts, lists and dicts of a row by equal ones of earlier rows."""
        for name, value in row.items():
            kind = type(value)
            if kind is str:
                row[name] = intern(value)
            elif kind is list or kind is dict:
                text = repr(value)
                if len(text) > TEXT_MAX:
                    continue
                known = self._known.get(text)
                if known is None:
                    if len(self._known) == VALUES_MAX:
                        self._known.clear()
                    self._known[text] = value
                else:
                    row[name] = known
