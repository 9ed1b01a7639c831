"""Arguments of consumers that read a range of a queue by sequence number, without consuming (design section 5).

    x-warren-ack-to      number                         first acknowledge all messages up to this number
    x-warren-bounds      true                           the first delivery states which numbers the queue holds
    x-warren-read-from   number, -n, 'first', 'next'    where the range begins; -n: the last n numbers; default 'first'
    x-warren-read-to     number, 'last'                 the last number of the range; by default it has no end

All functions are pure. `check_consumer_arguments` has checked the types of the values before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import Table

ACK_TO, BOUNDS, READ_FROM, READ_TO = "x-warren-ack-to", "x-warren-bounds", "x-warren-read-from", "x-warren-read-to"

#: The header of a delivery with the sequence number of its message.
NUMBER_HEADER = "x-warren-seq"
#: The headers with the bounds: the first number that the queue holds, and the number of the next message.
FIRST_HEADER, NEXT_HEADER = "x-warren-first", "x-warren-next"


@dataclass(frozen=True, slots=True)
class RangeReadArguments:
    """The arguments as given; None means not given. Texts are `bytes`, as in a field table."""

    read_from: int | bytes | None
    read_to: int | bytes | None
    ack_to: int | None
    includes_bounds: bool


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers from `first` to `last`, both included; `last` None means that the range has no end.

    The reader of an `is_exact` range gets an error if the queue drops numbers at its front before they are read.
    Numbers that are missing in the middle are skipped in any range.
    """

    first: int
    last: int | None
    is_exact: bool


def range_read_arguments(arguments: Table) -> RangeReadArguments | None:
    """The arguments of a range reader, or None for an ordinary consumer."""
    read_from, read_to, ack_to = (_value(arguments, key) for key in (READ_FROM, READ_TO, ACK_TO))
    includes_bounds = bool(_value(arguments, BOUNDS))
    if read_from is None and read_to is None and ack_to is None and not includes_bounds:
        return None
    return RangeReadArguments(read_from, read_to, ack_to, includes_bounds)


def _value(arguments: Table, key: str) -> Any:
    found = arguments.get(key)
    return None if found is None else found[1]


def resolve_range(requested: RangeReadArguments, numbers: range, queue: str) -> NumberRange:
    """The requested range in numbers. Raises AmqpError 406 if it ends before it begins, or begins with a lost number.

    `numbers` go from the lowest number in the queue to the number of the next message; `queue` is the queue's phrase.
    """
    read_from, read_to = requested.read_from, requested.read_to
    if read_from is None and read_to is None:
        return NumberRange(numbers.stop, numbers.stop - 1, False)
    last = numbers.stop - 1 if read_to == b"last" else read_to
    assert last is None or isinstance(last, int)
    if isinstance(read_from, int) and read_from >= 0:
        first = read_from
        if isinstance(read_to, int) and read_to < first:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"numbers {first} to {read_to} of {queue}: the range ends before it begins; "
                "to read one number, set both ends to it",
            )
    elif isinstance(read_from, int):
        first = max(numbers.start, numbers.stop + read_from)
    else:
        first = numbers.stop if read_from == b"next" else numbers.start
    asked_first = first if isinstance(read_to, bytes) or read_to is None else min(first, read_to)
    if asked_first < numbers.start:
        raise range_gone(asked_first, last, numbers, queue)
    return NumberRange(first, last, isinstance(read_from, int) and read_from >= 0 and isinstance(read_to, int))


def skip_gap(requested: RangeReadArguments, numbers: range, gap: range) -> RangeReadArguments:
    """`requested`, with -n changed so that it does not count the numbers in `gap`, which no message has."""
    read_from = requested.read_from
    if isinstance(read_from, int) and read_from < 0 and gap and numbers.stop + read_from < gap.stop:
        return replace(requested, read_from=read_from - len(gap))
    return requested


def range_gone(first: int, last: int | None, numbers: range, queue: str) -> AmqpError:
    """The error of a basic.consume whose range the queue no longer holds."""
    requested = (
        f"numbers {first} and above"
        if last is None
        else f"number {first}"
        if first == last
        else f"numbers {first} to {last}"
    )
    held = (
        f"the queue holds only numbers {numbers.start} to {numbers.stop - 1}"
        if numbers
        else f"the queue is empty, and its next number is {numbers.stop}"
    )
    return AmqpError(PRECONDITION_FAILED, f"{requested} of {queue} cannot be read: {held}", 60, 20)


def check_ack_to(ack_to: int, numbers: range, queue: str) -> None:
    """Raise AmqpError 406 for a number that no message of the queue has had yet."""
    if ack_to >= numbers.stop:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot acknowledge up to {ack_to} of {queue}: "
            f"no message has that number yet, the next will be {numbers.stop}",
        )
