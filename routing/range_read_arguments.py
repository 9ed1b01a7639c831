"""What a consumer asks for that reads a queue by its sequence numbers (design, section 5).

    x-warren-ack-to      number                         all messages up to there are acknowledged, before anything else
    x-warren-bounds      true                           the first delivery tells which numbers there are
    x-warren-read-from   number, -n, 'first', 'next'    where the range begins; -n: the last n numbers; left out: 'first'
    x-warren-read-to     number, 'last'                 its last number; left out: it has no end

Pure: arguments and a queue's numbers in, a range or an error out. Types are checked with all consumer arguments (`arguments`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import Table

ACK_TO, BOUNDS, READ_FROM, READ_TO = "x-warren-ack-to", "x-warren-bounds", "x-warren-read-from", "x-warren-read-to"

NUMBER_HEADER = "x-warren-seq"
FIRST_HEADER, NEXT_HEADER = "x-warren-first", "x-warren-next"


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """Accepted arguments; None: not given. Texts are octets, as in a table."""

    read_from: int | bytes | None
    read_to: int | bytes | None
    ack_to: int | None
    wants_bounds: bool


@dataclass(frozen=True, slots=True)
class NumberRange:
    """From `first` to `last`, both read; `last` None: without end. Of an `exact` one nothing may go before it was read, but what goes out of its middle."""

    first: int
    last: int | None
    is_exact: bool


def read_arguments(arguments: Table) -> ReadArguments | None:
    """None: an ordinary consumer."""
    read_from, read_to, ack_to = (_value(arguments, key) for key in (READ_FROM, READ_TO, ACK_TO))
    wants_bounds = bool(_value(arguments, BOUNDS))
    if read_from is None and read_to is None and ack_to is None and not wants_bounds:
        return None
    return ReadArguments(read_from, read_to, ack_to, wants_bounds)


def _value(arguments: Table, key: str) -> Any:
    found = arguments.get(key)
    return None if found is None else found[1]


def resolve(wanted: ReadArguments, numbers: range, queue: str) -> NumberRange:
    """The range in numbers. `numbers` are from the lowest in the queue to the next it will give, `queue` is its phrase. C406 if the range is gone, or begins so."""
    read_from, read_to = wanted.read_from, wanted.read_to
    if read_from is None and read_to is None:
        return NumberRange(numbers.stop, numbers.stop - 1, False)
    last = numbers.stop - 1 if read_to == b"last" else read_to
    assert last is None or isinstance(last, int)
    if isinstance(read_from, int) and read_from >= 0:
        first = read_from
        if isinstance(read_to, int) and read_to < first:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"numbers {first} to {read_to} of {queue}: a range may not end before it begins; of one number both ends are the same",
            )
    elif isinstance(read_from, int):
        first = max(numbers.start, numbers.stop + read_from)
    else:
        first = numbers.stop if read_from == b"next" else numbers.start
    asked_first = first if isinstance(read_to, bytes) or read_to is None else min(first, read_to)
    if asked_first < numbers.start:
        raise gone(asked_first, last, numbers, queue)
    return NumberRange(first, last, isinstance(read_from, int) and read_from >= 0 and isinstance(read_to, int))


def across(wanted: ReadArguments, numbers: range, gap: range) -> ReadArguments:
    """The last n numbers are counted without those of a gap, which no message has."""
    read_from = wanted.read_from
    if isinstance(read_from, int) and read_from < 0 and gap and numbers.stop + read_from < gap.stop:
        return replace(wanted, read_from=read_from - len(gap))
    return wanted


def gone(first: int, last: int | None, numbers: range, queue: str) -> AmqpError:
    asked = (
        f"numbers {first} and above"
        if last is None
        else f"number {first}"
        if first == last
        else f"numbers {first} to {last}"
    )
    there = (
        f"those below {numbers.start} are gone, it has {numbers.start} to {numbers.stop - 1}"
        if numbers
        else f"it is empty, and its next number is {numbers.stop}"
    )
    return AmqpError(PRECONDITION_FAILED, f"{asked} of {queue} cannot be read: {there}", 60, 20)


def check_ack_to(ack_to: int, numbers: range, queue: str) -> None:
    """C406 for a number that the queue has not given."""
    if ack_to >= numbers.stop:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot acknowledge up to {ack_to} of {queue}: no message has that number yet, the next will be {numbers.stop}",
        )
