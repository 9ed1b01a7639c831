"""Sorting, choosing columns and paging of answers (CM-245 to CM-248)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

import regex  # type: ignore[import-untyped]

from ..call import ApiCall
from ..errors import HttpError, bad_request

Row = dict[str, Any]
Thing = TypeVar("Thing")

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500

#: How many objects are built before other requests have their turn.
SLICE = 200

#: Seconds that a regular expression may take with all names.
PATTERN_SECONDS = 2.0


class LongList(Generic[Thing]):
    """A list that is built while it is sent: ten thousand queues as objects take 50 MB."""

    def __init__(self, things: Sequence[Thing], build: Callable[[Thing], Row], exists: Callable[[Thing], bool]) -> None:
        self._things = things
        self._build = build
        self._exists = exists

    async def slices(self) -> AsyncIterator[list[Row]]:
        """The objects of all things that still exist, some at a time."""
        for start in range(0, len(self._things), SLICE):
            yield [self._build(thing) for thing in self._things[start : start + SLICE] if self._exists(thing)]
            await asyncio.sleep(0)

    async def rows(self) -> list[Row]:
        return [row async for rows in self.slices() for row in rows]


async def listed(
    call: ApiCall,
    things: Sequence[Thing],
    build: Callable[[Thing], Row],
    name_of: Callable[[Thing], str] | None = None,
    value_of: Callable[[str], Callable[[Thing], Any] | None] = lambda column: None,
    exists: Callable[[Thing], bool] = lambda thing: True,
) -> Any:
    """The answer for these things, which are in their default order: a list, a `LongList`, or one page of it.

    `build` makes the object of one thing; only those that are shown are built. `name_of` is what `name` filters by;
    without it the list has no pages (CM-251). `value_of` returns how to get the value of a column without building the
    object, or None. With it, the default order must be by virtual host and name. Things may go while others are built;
    `exists` returns whether one is still there.
    """
    page = _page(call) if name_of is not None else None
    total = len(things)
    if page is not None and name_of is not None:
        things = _named(call, things, name_of)
    sort, is_reverse = call.query("sort"), call.flag("sort_reverse")
    value = value_of(sort) if sort and page is not None else None
    if value is not None:
        # Sorting keeps the order of equals, which is that of their names.
        things = things[::-1] if is_reverse else things
        things = sorted(things, key=lambda thing: _kind(value(thing)), reverse=is_reverse)
    elif not sort and is_reverse:
        things = things[::-1]
    if not sort or value is not None:
        if page is None:
            long = LongList(things, lambda thing: _chosen(call, build(thing)), exists)
            return long if len(things) > SLICE else await long.rows()
        start, end = _bounds(page, len(things))
        rows = await LongList(things[start:end], build, exists).rows()
    else:
        rows = await LongList(things, build, exists).rows()
        rows.sort(key=lambda row: _sort_key(row, sort), reverse=is_reverse)
        if page is None:
            return [_chosen(call, row) for row in rows]
        start, end = _bounds(page, len(rows))
        rows = rows[start:end]
    number, size = page
    return {
        "filtered_count": len(things),
        "item_count": len(rows),
        "items": [_chosen(call, row) for row in rows],
        "page": number,
        "page_count": -(-len(things) // size),
        "page_size": size,
        "total_count": total,
    }


def chosen(call: ApiCall, row: Row) -> Row:
    """A single object with the columns that were asked for."""
    return _chosen(call, row)


def _page(call: ApiCall) -> tuple[int, int] | None:
    """Number and size of the page; None if the request asks for none. Raises HttpError."""
    number, size = call.query("page"), call.query("page_size")
    if number is None:
        return None
    try:
        page = int(number), int(size) if size else PAGE_SIZE
    except ValueError:
        raise bad_request("Pagination parameters are invalid") from None
    if page[0] < 1 or not 1 <= page[1] <= PAGE_SIZE_MAX:
        reason = f"Invalid pagination parameters: page number {page[0]}, page size {page[1]}"
        raise HttpError(400, "invalid_pagination_parameters", reason)
    return page


def _bounds(page: tuple[int, int], count: int) -> tuple[int, int]:
    number, size = page
    if number > 1 and (number - 1) * size >= count:
        reason = f"Page out of range, page: {number} page size: {size}, len: {count}"
        raise HttpError(400, "page_out_of_range", reason)
    return (number - 1) * size, number * size


def _named(call: ApiCall, things: Sequence[Thing], name_of: Callable[[Thing], str]) -> list[Thing]:
    """The things whose names have the wanted text in them, or match the wanted expression."""
    name = call.query("name")
    if not name:
        return list(things)
    if not call.flag("use_regex"):
        wanted = name.lower()
        return [thing for thing in things if wanted in name_of(thing).lower()]
    try:
        # `re` checks the syntax as strictly as RabbitMQ does; `regex` has a timeout.
        re.compile(name)
        pattern = regex.compile(name, regex.IGNORECASE)
        ends = time.monotonic() + PATTERN_SECONDS
        return [thing for thing in things if pattern.search(name_of(thing), timeout=_left(ends))]
    except (re.error, regex.error, RecursionError, TimeoutError):
        raise bad_request("Pagination parameters are invalid") from None


def _left(ends: float) -> float:
    """The seconds until `ends`. Raises TimeoutError if there are none."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _chosen(call: ApiCall, row: Row) -> Row:
    columns = call.query("columns")
    if not columns:
        return row
    found: Row = {}
    for column in columns.split(","):
        value: Any = row
        path = column.split(".")
        for name in path:
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            target = found
            for name in path[:-1]:
                inner = target.setdefault(name, {})
                if not isinstance(inner, dict):
                    break
                target = inner
            else:
                target[path[-1]] = value
    return found


def _sort_key(row: Row, column: str) -> tuple[Any, ...]:
    """Objects that lack the field come first; numbers before texts."""
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return (*_kind(value), str(row.get("vhost", "")), str(row.get("name", "")))


def _kind(value: Any) -> tuple[int, Any]:
    """What a value is sorted by: nothing before numbers, and numbers before texts."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, (int, float)) else (2, str(value))
