"""Checks that the arguments of several things share, and the errors that refuse an argument.

A check is given the letter of the argument's type, its value, and all arguments beside it. It returns why the argument
is refused, in RabbitMQ's words, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import TYPE_NAMES, Table

#: The letters of integer types.
INTEGER_LETTERS = frozenset("bBsuIilL")
#: The largest deduplication window, in messages.
MAX_WINDOW = 10_000_000
#: Why an argument is refused, in RabbitMQ's words; empty if it is accepted.
Reason = str
#: Checks one argument, given its letter, its value and all arguments.
Check = Callable[[str, Any, Table], Reason]


def check_integer(letter: str, value: Any) -> Reason:
    return "" if letter in INTEGER_LETTERS else f'"expected integer, got {TYPE_NAMES[letter]}"'


def unacceptable(letter: str) -> Reason:
    return f"{{unacceptable_type,{TYPE_NAMES[letter]}}}"


def check_any_integer(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value)


def check_not_negative(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value) or (f"{{value_negative,{value}}}" if value < 0 else "")


def check_positive(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value) or ("" if value > 0 else f'"expected a number from 1 on, got {value}"')


def check_bool(letter: str, value: Any, arguments: Table) -> Reason:
    return "" if letter == "t" else unacceptable(letter)


def check_window(letter: str, value: Any) -> Reason:
    """Check a deduplication window (SP-30)."""
    if letter in INTEGER_LETTERS and 1 <= value <= MAX_WINDOW:
        return ""
    return check_integer(letter, value) or f'"expected a number of messages from 1 to {MAX_WINDOW}, got {value}"'


def check_text(letter: str, value: Any, arguments: Table) -> Reason:
    return "" if letter == "S" else unacceptable(letter)


def accept(letter: str, value: Any, arguments: Table) -> Reason:
    return ""


def invalid(key: str, phrase: str, reason: Reason) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase}: {reason}")


def foreign(key: str, phrase: str, queue_type: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase} of queue type {queue_type}")


def wrong_type(letter: str, key: str, phrase: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid type '{TYPE_NAMES[letter]}' for arg '{key}' in {phrase}")
