"""Equivalence: whether a declaration matches the queue or exchange that has the name already (AB-66, AB-87, AB-88).

The parts of a declaration are compared in RabbitMQ's order, because only the first difference is reported to the
client.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import TYPE_NAMES, Table
from ..phrases import exchange_phrase, queue_phrase, value_text
from ..queue_types import DEDUPLICATE, QUEUE_TYPES, queue_type
from .checks import INTEGER_LETTERS
from .queue_arguments import QUEUE_CHECKS


def check_queue_equivalence(
    vhost: str, name: str, old: tuple[bool, bool, Table], new: tuple[bool, bool, Table]
) -> None:
    """Raise AmqpError 406 unless two declarations `(durable, auto_delete, arguments)` are equivalent (AB-87, AB-88)."""
    phrase = queue_phrase(vhost, name)
    _check_equal("durable", phrase, old[0], new[0])
    _check_equal("auto_delete", phrase, old[1], new[1])
    # As in RabbitMQ, arguments that the type of the present queue does not accept are ignored. The type is compared
    # last, although it is checked first.
    accepted = QUEUE_TYPES[queue_type(old[2])].arguments
    for key in [key for key, _ in QUEUE_CHECKS[1:] if key in accepted] + ["x-queue-type"]:
        _check_argument_equal(key, phrase, old[2], new[2])


def check_exchange_equivalence(
    vhost: str,
    name: str,
    old: tuple[str, bool, bool, bool, Table],
    new: tuple[str, bool, bool, bool, Table],
) -> None:
    """Raise AmqpError 406 unless two `(type, durable, auto_delete, internal, arguments)` are equivalent (AB-66)."""
    phrase = exchange_phrase(vhost, name)
    _check_equal("type", phrase, old[0], new[0])
    _check_equal("durable", phrase, old[1], new[1])
    _check_equal("auto_delete", phrase, old[2], new[2])
    _check_equal("internal", phrase, old[3], new[3])
    for key in ("alternate-exchange", DEDUPLICATE):
        _check_argument_equal(key, phrase, old[4], new[4])


def _check_equal(key: str, phrase: str, old: Any, new: Any) -> None:
    if old != new:
        raise _inequivalent(key, phrase, f"'{value_text(new)}'", f"'{value_text(old)}'")


def _check_argument_equal(key: str, phrase: str, old_arguments: Table, new_arguments: Table) -> None:
    old, new = old_arguments.get(key), new_arguments.get(key)
    if old == new:
        return
    if key == "x-queue-type" and queue_type(old_arguments) == queue_type(new_arguments) == "classic":
        return
    if old is None or new is None:
        raise _inequivalent(key, phrase, _typed(new), _typed(old))
    if _comparable(*old) != _comparable(*new):
        raise _inequivalent(key, phrase, f"'{value_text(new[1])}'", f"'{value_text(old[1])}'")


def _comparable(letter: str, value: Any) -> tuple[str, Any]:
    """A value that is equal for equivalent arguments: integers of any width and decimals, or floats of any width."""
    if letter in INTEGER_LETTERS:
        return "number", value
    if letter == "D":
        return "number", Decimal(value[1]).scaleb(-value[0])
    if letter in "fd":
        return "float", value
    return letter, value


def _typed(found: tuple[str, Any] | None) -> str:
    return "none" if found is None else f"the value '{value_text(found[1])}' of type '{TYPE_NAMES[found[0]]}'"


def _inequivalent(key: str, phrase: str, new: str, old: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"inequivalent arg '{key}' for {phrase}: received {new} but current is {old}")
