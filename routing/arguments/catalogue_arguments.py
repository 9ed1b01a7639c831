"""The reserved queue `amq.warren.catalogue`, and the arguments of its consumers (SP-20).

x-warren-queues     array of names      these queues
x-warren-pattern    text                the queues whose names fit this glob
x-warren-exchanges  array of names      instead of queues: these exchanges
"""

from __future__ import annotations

from typing import NamedTuple

from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ..phrases import value_text

CATALOGUE = "amq.warren.catalogue"
QUEUES, PATTERN, EXCHANGES = "x-warren-queues", "x-warren-pattern", "x-warren-exchanges"


class CatalogueRequest(NamedTuple):
    """What a consumer asks for: the queues with these names, those that fit the pattern, or these exchanges."""

    queues: frozenset[str] = frozenset()
    pattern: str | None = None
    exchanges: frozenset[str] | None = None


def catalogue_arguments(arguments: Table) -> CatalogueRequest:
    """Raises AmqpError 406 unless there is exactly one valid argument."""
    found = [(name, each) for name in (QUEUES, PATTERN, EXCHANGES) if (each := arguments.get(name)) is not None]
    if len(found) == 1:
        name, (letter, value) = found[0]
        if name == PATTERN and letter == "S":
            return CatalogueRequest(pattern=value_text(value))
        if name != PATTERN and letter == "A" and all(each == "S" for each, _ in value):
            names = frozenset(value_text(each) for _, each in value)
            return CatalogueRequest(queues=names) if name == QUEUES else CatalogueRequest(exchanges=names)
    raise AmqpError(
        PRECONDITION_FAILED,
        f"a consumer of queue '{CATALOGUE}' needs one of '{QUEUES}' and '{EXCHANGES}', an array of names, or "
        f"'{PATTERN}', a text in which '*' stands for any text and '?' for one character",
    )


def refuse_catalogue() -> AmqpError:
    """The error 403 for every operation on this queue other than consuming."""
    return AmqpError(
        ACCESS_REFUSED, f"queue '{CATALOGUE}' can only be consumed from, with '{QUEUES}' or '{PATTERN}' as an argument"
    )
