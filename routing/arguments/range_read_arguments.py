"""Arguments of consumers that read a range of a queue by sequence number, without consuming (design section 5).

    x-warren-ack-to      number                         first acknowledge all messages up to this number
    x-warren-bounds      true                           the first delivery states which numbers the queue holds
    x-warren-read-from   number, -n, 'first', 'next'    where the range begins; -n: the last n numbers; default 'first'
    x-warren-read-to     number, 'last'                 the last number of the range; by default it has no end
    x-warren-blocks      bytes, true                    each delivery is a block of many messages (SP-10)
    x-warren-headers-only  true                         the messages in blocks end behind their header frame (SP-14)
    x-warren-lenient     true                           numbers that are gone at the low end are passed over (SP-14)
    x-warren-queue-id    text                           nothing is done if the queue has another id (SP-23)

All functions are pure. `check_consumer_arguments` has checked the types of the values before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import TYPE_NAMES, Table
from ..phrases import value_text
from .checks import INTEGER_LETTERS, Reason, check_not_negative

ACK_TO, BOUNDS, READ_FROM, READ_TO = "x-warren-ack-to", "x-warren-bounds", "x-warren-read-from", "x-warren-read-to"
BLOCKS, HEADERS_ONLY, LENIENT = "x-warren-blocks", "x-warren-headers-only", "x-warren-lenient"
QUEUE_ID = "x-warren-queue-id"
#: All of these arguments.
READER_ARGUMENTS: tuple[str, ...] = (ACK_TO, BOUNDS, READ_FROM, READ_TO, BLOCKS, HEADERS_ONLY, LENIENT, QUEUE_ID)

#: Bytes of a block: the fewest and the most that a reader may ask for, and what `true` means.
BLOCK_BYTES_MIN, BLOCK_BYTES_MAX, BLOCK_BYTES = 65_536, 16_777_216, 1_048_576

#: The header of a delivery with the sequence number of its message.
NUMBER_HEADER = "x-warren-seq"
#: The headers with the bounds: the first number that the queue holds, and the number of the next message.
FIRST_HEADER, NEXT_HEADER = "x-warren-first", "x-warren-next"
#: The content type of a block. Its headers are `NUMBER_HEADER`, the first number that it covers, and `NEXT_HEADER`.
BLOCK_CONTENT_TYPE = "application/x-warren-block"


@dataclass(frozen=True, slots=True)
class RangeReadArguments:
    """The arguments as given; None means not given. Texts are `bytes`, as in a field table."""

    read_from: int | bytes | None
    read_to: int | bytes | None
    ack_to: int | None
    includes_bounds: bool
    #: Bytes of a block; 0: each message is a delivery.
    block_size: int = 0
    has_bodies: bool = True
    is_lenient: bool = False
    #: The id that the queue must have; empty: any.
    queue_id: str = ""


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
    return RangeReadArguments(
        read_from,
        read_to,
        ack_to,
        includes_bounds,
        block_size(arguments),
        not _value(arguments, HEADERS_ONLY),
        bool(_value(arguments, LENIENT)),
        value_text(_value(arguments, QUEUE_ID) or b""),
    )


def block_size(arguments: Table) -> int:
    """Bytes of the blocks that a consumer asks for; 0 if it asks for single messages."""
    wanted = _value(arguments, BLOCKS)
    return BLOCK_BYTES if wanted is True else wanted or 0


def check_read_from(letter: str, value: Any, arguments: Table) -> Reason:
    return (
        ""
        if letter in INTEGER_LETTERS or value in (b"first", b"next")
        else f"\"expected a number, 'first' or 'next', got {_shown(letter, value)}\""
    )


def check_read_to(letter: str, value: Any, arguments: Table) -> Reason:
    if letter in INTEGER_LETTERS:
        return check_not_negative(letter, value, arguments)
    return "" if value == b"last" else f"\"expected a number or 'last', got {_shown(letter, value)}\""


def check_blocks(letter: str, value: Any, arguments: Table) -> Reason:
    if letter == "t" and value or letter in INTEGER_LETTERS and BLOCK_BYTES_MIN <= value <= BLOCK_BYTES_MAX:
        return ""
    shown = str(value) if letter in INTEGER_LETTERS else "false" if letter == "t" else _shown(letter, value)
    return f'"expected true or a number of bytes from {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}, got {shown}"'


def _shown(letter: str, value: Any) -> str:
    return f"'{value_text(value)}'" if letter == "S" else TYPE_NAMES[letter]


def misplaced_argument(arguments: Table) -> str:
    """Why an argument cannot stand beside the others; empty if all can."""
    has_range = _value(arguments, READ_FROM) is not None or _value(arguments, READ_TO) is not None
    for key in (BLOCKS, LENIENT):
        if arguments.get(key) is not None and not has_range:
            return f"'{key}' is only for a reader with '{READ_FROM}' or '{READ_TO}'"
    if _value(arguments, HEADERS_ONLY) and not block_size(arguments):
        return f"'{HEADERS_ONLY}' is only for a reader with '{BLOCKS}'"
    if arguments.get(QUEUE_ID) is not None and range_read_arguments(arguments) is None:
        return f"'{QUEUE_ID}' is only for a consumer with '{READ_FROM}', '{READ_TO}', '{ACK_TO}' or '{BOUNDS}'"
    return ""


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
    if asked_first < numbers.start and not requested.is_lenient:
        raise range_gone(asked_first, last, numbers, queue)
    is_exact = isinstance(read_from, int) and read_from >= 0 and isinstance(read_to, int)
    return NumberRange(first, last, is_exact and not requested.is_lenient)


def skip_gaps(requested: RangeReadArguments, numbers: range, gaps: Sequence[range]) -> RangeReadArguments:
    """`requested`, with -n changed so that it does not count the numbers in these ascending gaps, which no message
    has.
    """
    read_from = requested.read_from
    if not isinstance(read_from, int) or read_from >= 0:
        return requested
    for gap in reversed(gaps):
        if numbers.stop + read_from >= gap.stop:
            break
        read_from -= len(gap)
    return replace(requested, read_from=read_from)


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
