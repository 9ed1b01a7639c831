"""The reserved queue `amq.warren.catalogue`, and the arguments of its consumers (SP-20).

x-warren-queues     array of names      these queues
x-warren-pattern    text                the queues whose names fit this glob
"""

from __future__ import annotations

from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ..phrases import value_text

CATALOGUE = "amq.warren.catalogue"
QUEUES, PATTERN = "x-warren-queues", "x-warren-pattern"


def catalogue_arguments(arguments: Table) -> tuple[frozenset[str], str | None]:
    """The requested queue names, or the pattern. Raises AmqpError 406 unless there is exactly one valid argument."""
    names, pattern = arguments.get(QUEUES), arguments.get(PATTERN)
    if names is not None and pattern is None and names[0] == "A" and all(letter == "S" for letter, _ in names[1]):
        return frozenset(value_text(value) for _, value in names[1]), None
    if pattern is not None and names is None and pattern[0] == "S":
        return frozenset(), value_text(pattern[1])
    raise AmqpError(
        PRECONDITION_FAILED,
        f"a consumer of queue '{CATALOGUE}' needs either '{QUEUES}', an array of names, or '{PATTERN}', a text in "
        "which '*' stands for any text and '?' for one character",
    )


def refuse_catalogue() -> AmqpError:
    """The error 403 for every operation on this queue other than consuming."""
    return AmqpError(
        ACCESS_REFUSED, f"queue '{CATALOGUE}' can only be consumed from, with '{QUEUES}' or '{PATTERN}' as an argument"
    )
