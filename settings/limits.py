"""Limits on memory and disk, as people write them and in bytes (queue-and-store section 8).

    size                2000000000, "2GB", "512MiB"
    memory watermark    0.4 of the available memory, or a size
    disk limit          1.5 times the available memory, or a size

A `float` is always relative to the memory and an `int` always a number of bytes, so a value that these functions return
can be given to them again. The watermarks 0 and 1 are exceptions: they are shares, because RabbitMQ accepts whole
numbers for these shares too. RabbitMQ's dotted keys are tables in TOML and are understood:
`vm_memory_high_watermark.absolute = "2GB"`, `disk_free_limit.relative = 1.5`. If both keys are given, `relative` is
used, as in RabbitMQ.

The units are RabbitMQ's: `k`, `K` and `KiB` are 1024 bytes, `kB` is 1000 bytes, and likewise for M and G. RabbitMQ uses
its default for a limit that it cannot read, and 1.0 for a share above 1.0; here both are a `LimitError` that names what
is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SIZE = re.compile(r"(\d+)\s*(?:([kmg])(i?b)?)?", re.IGNORECASE | re.ASCII)
#: The most digits of a size: Python reads no more than 4,300.
DIGITS_MAX = 30
_POWERS = {"k": 1, "m": 2, "g": 3}

SIZE = "a whole number of bytes, alone or with a unit as in '512MiB' or '2GB'"
#: More bytes than the store, AMQP and the commands can carry are no size.
SIZE_MAX = 2**63 - 1
WATERMARK = f"a share of memory from 0.0 to 1.0, or {SIZE}"
#: A larger float is no multiple of the memory but a number of bytes that was written as `5e7`.
MAX_MEMORY_MULTIPLE = 1000.0
DISK_LIMIT = f"a multiple of memory such as 1.5, or {SIZE}"


class LimitError(ValueError):
    """A limit that cannot be read. `wanted` describes what is allowed."""

    def __init__(self, value: Any, wanted: str):
        super().__init__(value, wanted)
        self.wanted = wanted

    def __str__(self) -> str:
        return f"{self.args[0]!r} is not {self.wanted}"


def read_size(value: Any, wanted: str = SIZE) -> int:
    """The bytes of a size such as `2000000000`, `"2GB"` or `"512 MiB"`. Raises LimitError."""
    size = value if isinstance(value, int) and not isinstance(value, bool) else -1
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None and len(found[1]) <= DIGITS_MAX:
        number, unit, suffix = found.groups()
        base = 1000 if (suffix or "").lower() == "b" else 1024
        size = int(number) * (1 if unit is None else base ** _POWERS[unit.lower()])
    if not 0 <= size <= SIZE_MAX:
        raise LimitError(value, wanted)
    return size


def read_watermark(value: Any) -> float | int:
    """A watermark: a share of the memory as `float` or bytes as `int`. Raises LimitError."""
    name, limit = _of_table(value, ("relative", "absolute"), WATERMARK)
    if name == "absolute":
        return read_size(limit, WATERMARK)
    if type(limit) is float or (type(limit) is int and limit in (0, 1)):
        return _share(limit, 1.0, WATERMARK)
    if name == "relative":
        raise LimitError(limit, WATERMARK)
    return read_size(limit, WATERMARK)


def read_disk_limit(value: Any) -> float | int:
    """A disk limit: a multiple of the memory as `float` or bytes as `int`. Raises LimitError."""
    name, limit = _of_table(value, ("relative", "mem_relative", "absolute"), DISK_LIMIT)
    if type(limit) is float or (type(limit) is int and name in ("relative", "mem_relative")):
        return _share(limit, MAX_MEMORY_MULTIPLE, DISK_LIMIT)
    if name in ("relative", "mem_relative"):
        raise LimitError(limit, DISK_LIMIT)
    return read_size(limit, DISK_LIMIT)


def _of_table(value: Any, names: tuple[str, ...], wanted: str) -> tuple[str, Any]:
    """For a table, the first of `names` that is a key of it, and its value; for anything else, '' and the value."""
    if not isinstance(value, Mapping):
        return "", value
    if not value or not value.keys() <= set(names):
        raise LimitError(value, wanted)
    return next((name, value[name]) for name in names if name in value)


def _share(value: float, most: float, wanted: str) -> float:
    if not 0.0 <= value <= most:  # false for NaN as well
        raise LimitError(value, wanted)
    return float(value)


def memory_limit(watermark: float | int, total: int) -> int:
    """Bytes in use above which memory counts as low; at most `total`."""
    return int(watermark * total) if isinstance(watermark, float) else min(watermark, total)


def disk_limit(limit: float | int, total_memory: int) -> int:
    """Bytes of free disk space below which the disk counts as low."""
    return round(limit * total_memory) if isinstance(limit, float) else limit


def shown_size(count: int) -> str:
    """A number of bytes for people: `9.4 GiB`, `512 MiB`, `17 bytes`."""
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"
