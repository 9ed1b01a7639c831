"""Arguments of range readers, and the range of numbers that they request (design section 5)."""

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.routing.arguments.consumer_arguments import cancels_on_failover, check_consumer_arguments
from warren.routing.arguments.range_read_arguments import (
    NumberRange,
    RangeReadArguments,
    check_ack_to,
    range_gone,
    range_read_arguments,
    resolve_range,
)
from warren.routing.rows import QueueRow

HELD = range(10, 20)
EMPTY = range(20, 20)


def resolved(read_from, read_to, numbers=HELD):
    return resolve_range(RangeReadArguments(read_from, read_to, None, False), numbers, "queue 'q' in vhost '/'")


@pytest.mark.parametrize(
    "read_from, read_to, expected",
    [
        (12, 15, NumberRange(12, 15, True)),
        (10, 10, NumberRange(10, 10, True)),
        (15, 40, NumberRange(15, 40, True)),
        (25, 40, NumberRange(25, 40, True)),
        (12, None, NumberRange(12, None, False)),
        (12, b"last", NumberRange(12, 19, False)),
        (20, b"last", NumberRange(20, 19, False)),
        (None, 15, NumberRange(10, 15, False)),
        (b"first", b"last", NumberRange(10, 19, False)),
        (b"first", None, NumberRange(10, None, False)),
        (b"next", None, NumberRange(20, None, False)),
        (-3, None, NumberRange(17, None, False)),
        (-3, b"last", NumberRange(17, 19, False)),
        (-30, b"last", NumberRange(10, 19, False)),
        (None, None, NumberRange(20, 19, False)),
    ],
)
def test_the_requested_range_in_numbers(read_from, read_to, expected):
    assert resolved(read_from, read_to) == expected


@pytest.mark.parametrize("read_from", [None, b"first", b"next", -5, 20])
def test_in_an_empty_queue_a_range_begins_with_the_next_number(read_from):
    assert resolved(read_from, b"last", EMPTY) == NumberRange(20, 19, False)
    assert resolved(read_from, 25, EMPTY) == NumberRange(20, 25, read_from == 20)


@pytest.mark.parametrize(
    "read_from, read_to, numbers, text",
    [
        (
            9,
            12,
            HELD,
            "numbers 9 to 12 of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 10 to 19",
        ),
        (
            0,
            None,
            HELD,
            "numbers 0 and above of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 10 to 19",
        ),
        (
            5,
            5,
            HELD,
            "number 5 of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 10 to 19",
        ),
        (
            9,
            b"last",
            HELD,
            "numbers 9 to 19 of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 10 to 19",
        ),
        (
            b"first",
            9,
            HELD,
            "number 9 of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 10 to 19",
        ),
        (
            3,
            4,
            EMPTY,
            "numbers 3 to 4 of queue 'q' in vhost '/' cannot be read: the queue is empty, and its next number is 20",
        ),
        (
            7,
            5,
            HELD,
            (
                "numbers 7 to 5 of queue 'q' in vhost '/': the range ends before it begins; "
                "to read one number, set both ends to it"
            ),
        ),
    ],
)
def test_a_range_that_begins_with_a_lost_number_is_refused(read_from, read_to, numbers, text):
    with pytest.raises(AmqpError) as caught:
        resolved(read_from, read_to, numbers)
    assert (caught.value.code, caught.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_the_error_of_a_lost_range_has_the_ids_of_basic_consume():
    error = range_gone(5, 9, HELD, "queue 'q' in vhost '/'")
    assert (error.class_id, error.method_id) == (60, 20)


def test_only_numbers_of_past_messages_can_be_acknowledged():
    check_ack_to(0, HELD, "queue 'q'")
    check_ack_to(19, HELD, "queue 'q'")
    with pytest.raises(
        AmqpError, match="cannot acknowledge up to 20 of queue 'q': no message has that number yet, the next will be 20"
    ):
        check_ack_to(20, HELD, "queue 'q'")


def test_a_consumer_without_these_arguments_is_not_a_range_reader():
    for arguments in ({}, {"x-priority": 3}, {"x-warren-bounds": False}):
        assert range_read_arguments(table_from(arguments)) is None
        assert not cancels_on_failover(QueueRow("/", "q", None, "id"), table_from(arguments))
    assert range_read_arguments(table_from({"x-warren-read-from": 0})) == RangeReadArguments(0, None, None, False)
    assert range_read_arguments(
        table_from({"x-warren-read-to": "last", "x-warren-bounds": True})
    ) == RangeReadArguments(None, b"last", None, True)
    assert range_read_arguments(table_from({"x-warren-ack-to": 0})) == RangeReadArguments(None, None, 0, False)
    assert cancels_on_failover(QueueRow("/", "q", None, "id"), table_from({"x-warren-read-from": 0})), (
        "the reader would start its range again"
    )


@pytest.mark.parametrize(
    "key, value, reason",
    [
        ("x-warren-read-from", "last", "\"expected a number, 'first' or 'next', got 'last'\""),
        ("x-warren-read-from", True, "\"expected a number, 'first' or 'next', got bool\""),
        ("x-warren-read-to", "next", "\"expected a number or 'last', got 'next'\""),
        ("x-warren-read-to", -1, "{value_negative,-1}"),
        ("x-warren-ack-to", -1, "{value_negative,-1}"),
        ("x-warren-ack-to", "5", '"expected integer, got longstr"'),
        ("x-warren-bounds", 1, "{unacceptable_type,signedint}"),
    ],
)
def test_an_invalid_value_is_refused(key, value, reason):
    with pytest.raises(AmqpError) as caught:
        check_consumer_arguments(QueueRow("/", "q", None, "id"), table_from({key: value}))
    assert (caught.value.code, caught.value.text) == (406, f"invalid arg '{key}' for queue 'q' in vhost '/': {reason}")
