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
    return {name: plain(value) for name, value in table_to_dict(table).items()}


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    return value
