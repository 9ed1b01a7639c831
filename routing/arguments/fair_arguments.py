"""The arguments of queues with fair lanes."""

from __future__ import annotations

from typing import Any

from ...amqp.fields import Table
from ..phrases import value_text
from .checks import INTEGER_LETTERS, Reason, check_integer, unacceptable

#: The argument that gives a queue fair lanes.
FAIR_BY = "x-fair-by"
#: How many lanes a queue can have at most, and how many if nothing else is asked for (QP-66).
MAX_LANES = 65_536
DEFAULT_LANES = 1024
#: The sources of a message's lane beside a header. `user` is the property user-id, which the broker verifies.
FAIR_SOURCES = frozenset({"routing-key", "exchange", "user"})


def check_fair_by(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    text = value_text(value)
    if text not in FAIR_SOURCES and not (text.startswith("header:") and len(text) > len("header:")):
        return f"\"expected 'routing-key', 'exchange', 'user' or 'header:NAME', got '{text}'\""
    if arguments.get("x-max-priority") is not None:
        return "\"a queue has either priorities or fair lanes; leave out 'x-max-priority' or 'x-fair-by'\""
    return ""


def check_lanes(letter: str, value: Any, arguments: Table) -> Reason:
    is_good = letter in INTEGER_LETTERS and 1 <= value <= MAX_LANES
    return check_integer(letter, value) or (
        "" if is_good else f'"expected a number from 1 to {MAX_LANES}, got {value}"'
    )


def check_fair_weight(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "F":
        return unacceptable(letter)
    for lane, weight_letter, weight in value:
        if weight_letter not in INTEGER_LETTERS or weight < 1:
            return f"\"the weight of '{lane}' must be an integer from 1 on\""
    return ""


def check_fair_cost(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    text = value_text(value)
    return "" if text in ("message", "bytes") else f"\"expected 'message' or 'bytes', got '{text}'\""
