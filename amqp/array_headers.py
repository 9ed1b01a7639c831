"""Headers that are arrays of tables and grow at the front, `x-death` and its like (AB-155)."""

from __future__ import annotations

from typing import Any

from .fields import Table

INVALID_HEADERS = "x-invalid-headers"


def prepend_to_array_header(headers: Table, name: str, entry: Table) -> Table:
    """`headers` with `entry` in front of the array `name`.

    A value that is no array is not lost: it moves to table header `x-invalid-headers`, which has for each name an array of
    the values found there, newest first. An `x-invalid-headers` that is no table is recorded in a new one under its own name.
    """
    existing = headers.get(name)
    if existing is None:
        return headers.replaced(name, "A", (("F", entry),))
    letter, value = existing
    if letter == "A":
        return headers.replaced(name, "A", (("F", entry), *value))
    return _with_invalid(headers, name, existing).replaced(name, "A", (("F", entry),))


def _with_invalid(headers: Table, name: str, found: tuple[str, Any]) -> Table:
    existing = headers.get(INVALID_HEADERS)
    if existing is None:
        invalid = Table()
    elif existing[0] == "F":
        invalid = existing[1]
    else:
        invalid = Table(((INVALID_HEADERS, "A", (existing,)),))
    before = invalid.get(name)
    earlier = before[1] if before is not None and before[0] == "A" else ()
    return headers.replaced(INVALID_HEADERS, "F", invalid.replaced(name, "A", (found, *earlier)))
