"""The values of options: each parser takes the text of an option, and raises Wrong if it does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from .endpoints import Endpoint, mapped_endpoints

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: Seconds of the longest timeout.
_LONGEST = 365 * 86400
#: A number that fits into 64 bits.
_DIGITS = "[0-9]{1,18}"


class Wrong(ValueError):
    """A value does not fit its option; the text describes the values that fit."""


def parse_text(text: str) -> str:
    return text


def parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise Wrong("names, several with commas")
    return names


def parse_subscription(text: str) -> str:
    if not 1 <= len(text.encode()) <= 200:
        raise Wrong("a name of at most 200 bytes")
    return text


def parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Wrong("true or false")
    return text.lower() == "true"


def parse_count(text: str) -> int:
    if re.fullmatch(_DIGITS, text.strip()) is None or int(text) < 1:
        raise Wrong("a number above 0 of at most 18 digits")
    return int(text)


def parse_limit(text: str) -> int | None:
    return None if text.lower() == "none" else parse_count(text)


def parse_bytes(text: str) -> int | None:
    """A size such as `4m`; None for `none`. Raises Wrong."""
    match = re.fullmatch(rf"({_DIGITS})\s*([kmgt]?)b?", text.strip().lower())
    if text.lower() == "none":
        return None
    if match is None or int(match[1]) < 1:
        raise Wrong("a number of bytes such as 4194304, 4m or 1g")
    return int(match[1]) * _UNITS[match[2]]


def parse_size(text: str) -> int:
    size = parse_bytes(text)
    if size is None:
        raise Wrong("a number of bytes such as 4194304, 4m or 1g")
    return size


def parse_seconds(text: str) -> float:
    """A time such as `10s`. Raises Wrong."""
    match = re.fullmatch(rf"({_DIGITS}(?:\.{_DIGITS})?)\s*(ms|s|m|h|d|)", text.strip().lower())
    if match is None:
        raise Wrong("a time such as 10s, 500ms or 15m")
    return float(match[1]) * _SECONDS[match[2]]


def parse_timeout(text: str) -> float:
    seconds = parse_seconds(text)
    if not 0 < seconds <= _LONGEST:
        raise Wrong("a time such as 10s, above 0 and at most 365d")
    return seconds


def parse_moment(text: str) -> int:
    """A time in microseconds since the epoch."""
    if re.fullmatch("[0-9]{1,15}", text.strip()):
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Wrong("milliseconds since 1970, or ISO 8601 in UTC such as 2026-11-23T08:00:00") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def parse_one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise Wrong(" or ".join(values))
        return text.lower()

    return parse


def parse_offsets(text: str) -> Any:
    """`earliest`, `latest`, or numbers by queue."""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    expected = Wrong('earliest, latest, or JSON such as {"orders": 120, "audit": "latest"}')
    try:
        found = json.loads(text)
    except ValueError:
        raise expected from None
    if not isinstance(found, dict) or not all(_is_place(place) for place in found.values()):
        raise expected
    return found


def _is_place(value: object) -> bool:
    return value in ("earliest", "latest") if isinstance(value, str) else type(value) is int


def parse_endpoints(text: str) -> dict[Endpoint, Endpoint]:
    try:
        return mapped_endpoints(text)
    except ValueError:
        raise Wrong("pairs such as node1:5672=10.0.0.5:5672, several with commas") from None
