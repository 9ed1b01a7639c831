"""The arguments of sharded queues."""

from __future__ import annotations

from typing import Any

from ...amqp.fields import Table
from ..phrases import value_text
from .checks import INTEGER_LETTERS, Reason, check_integer, unacceptable

MAX_SHARDS = 256

#: The arguments of sharded queues. `x-shards` is a short name of the first.
SHARD_COUNTS = ("x-warren-shards", "x-shards")
SHARD_POLICY, SHARD_ORDER = "x-warren-shard-policy", "x-warren-shard-order"


def check_shards(letter: str, value: Any, arguments: Table) -> Reason:
    reason = check_integer(letter, value)
    if reason or 0 < value <= 1:
        return reason
    if not 0 < value <= MAX_SHARDS:
        return f'"expected a number from 1 to {MAX_SHARDS}, got {value}"'
    single_active = arguments.get("x-single-active-consumer")
    if single_active is not None and single_active[1]:
        return '"a single active consumer gains nothing from shards; leave out one of the two arguments"'
    for key in ("x-max-length", "x-max-length-bytes"):
        limit = arguments.get(key)
        if limit is not None and limit[0] in INTEGER_LETTERS and 0 < limit[1] < value:
            return f'"each shard needs its part of {key} ({limit[1]}); declare at most {limit[1]} shards"'
    return ""


def check_shard_policy(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    is_known = value in (b"sequence", b"random")
    return "" if is_known else f"\"expected 'sequence' or 'random', got '{value_text(value)}'\""


def check_shard_order(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    if value == b"strict":
        return (
            '"the broker keeps the order of each shard only; publish and consume with warren.sharding, which restores '
            'the order of all messages, or leave out the argument"'
        )
    return "" if value == b"relaxed" else f"\"expected 'relaxed', got '{value_text(value)}'\""
