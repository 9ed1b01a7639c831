"""Converts values of field tables to values that JSON and the control protocol can carry."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

from ....amqp.fields import Table, table_to_dict


def plain_table(table: Table) -> dict[str, object]:
    """A field table as a dict: bytes become text, decimals floats, and timestamps whole numbers (CM-295).

    JSON has no infinity and no NaN; they become text.
    """
    found: dict[str, object] = table_to_dict(table)
    _make_plain(found)
    return found


def plain(value: object) -> object:
    """The value, and whatever is nested in it."""
    whole = {"": value}
    _make_plain(whole)
    return whole[""]


def _make_plain(whole: dict[str, object]) -> None:
    """Replace the values in a dict, without recursion: a client may nest tables 512 levels deep, and a function that
    calls itself for each level runs out of Python's stack.
    """
    waiting: list[dict[str, object] | list[object]] = [whole]

    def replaced(value: object) -> object:
        if isinstance(value, (dict, list)):
            copy: dict[str, object] | list[object] = value.copy()
            waiting.append(copy)
            return copy
        return _plain_scalar(value)

    while waiting:
        container = waiting.pop()
        if isinstance(container, dict):
            for name, value in container.items():
                container[name] = replaced(value)
        else:
            container[:] = map(replaced, container)


def _plain_scalar(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    return value
