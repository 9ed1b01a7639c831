"""The arguments of streams that need more than a check of their type: `x-max-age` and the consumer's `x-stream-offset`.

    x-stream-offset   'first', 'last', 'next', an offset, a timestamp, or an interval such as '1h'; default 'next'

`last` is the youngest message that the stream has, `next` the one that is published next. A timestamp, and an interval
before now, stand for the first message that was published at that time or later. All functions are pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from ...amqp.fields import TYPE_NAMES, Table
from ..phrases import value_text
from .checks import INTEGER_LETTERS, Reason, unacceptable

STREAM_OFFSET = "x-stream-offset"

#: The largest size of a segment that a declaration may ask for.
MAX_SEGMENT_BYTES = 3_000_000_000
#: The size of segments unless the declaration or a policy has another.
DEFAULT_SEGMENT_BYTES = 500_000_000

_SECONDS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
_AGE = re.compile(r"0*([1-9][0-9]*)([YMDhms])")

#: The longest age, in seconds: 30,000 years. A longer one, which may have any number of digits, means the same, because
#: no message is that old. Its exact value would be too large to subtract from the time.
_LONGEST_AGE = 10**12


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a consumer begins. `value` is an offset, a time in seconds since the epoch, or how many seconds `ago`."""

    kind: Literal["first", "last", "next", "number", "time", "ago"]
    value: int = 0


def max_age_seconds(text: str) -> int:
    """The seconds of an age such as '7D', at most `_LONGEST_AGE`; 0 if it is none."""
    found = _AGE.fullmatch(text)
    if found is None:
        return 0
    if len(found[1]) >= len(str(_LONGEST_AGE)):
        return _LONGEST_AGE
    return min(int(found[1]) * _SECONDS[found[2]], _LONGEST_AGE)


def check_max_age(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if max_age_seconds(value_text(value)) else "invalid_max_age"


def check_stream_offset(letter: str, value: Any, arguments: Table) -> Reason:
    if _parsed(letter, value) is not None:
        return ""
    shown = f'"{value_text(value)}"' if letter == "S" else value_text(value)
    return f"{{invalid_stream_offset_arg,{{{TYPE_NAMES[letter]},{shown}}}}}"


def stream_offset(arguments: Table) -> StreamOffset:
    """Where a consumer with these arguments, which were checked before, begins."""
    found = arguments.get(STREAM_OFFSET)
    offset = None if found is None else _parsed(found[0], found[1])
    return StreamOffset("next") if offset is None else offset


def _parsed(letter: str, value: Any) -> StreamOffset | None:
    if letter in INTEGER_LETTERS:
        return StreamOffset("number", value)
    if letter == "T":
        return StreamOffset("time", value)
    if letter != "S":
        return None
    text = value_text(value)
    if text in ("first", "last", "next"):
        return StreamOffset(text)  # type: ignore[arg-type]
    ago = max_age_seconds(text)
    return StreamOffset("ago", ago) if ago else None
