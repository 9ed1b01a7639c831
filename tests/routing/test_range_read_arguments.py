"""What a consumer asks for that reads by number: the arguments, and the range that follows from them and a queue's numbers."""

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.routing.arguments import cancels_on_failover, check_consumer_arguments
from warren.routing.range_read_arguments import NumberRange, ReadArguments, check_ack_to, gone, read_arguments, resolve

HELD = range(10, 20)
EMPTY = range(20, 20)


def resolved(read_from, read_to, numbers=HELD):
    return resolve(ReadArguments(read_from, read_to, None, False), numbers, "queue 'q' in vhost '/'")


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
def test_a_range_in_numbers(read_from, read_to, expected):
    assert resolved(read_from, read_to) == expected


@pytest.mark.parametrize("read_from", [None, b"first", b"next", -5, 20])
def test_of_an_empty_queue_there_is_nothing_but_what_will_come(read_from):
    assert resolved(read_from, b"last", EMPTY) == NumberRange(20, 19, False)
    assert resolved(read_from, 25, EMPTY) == NumberRange(20, 25, read_from == 20)


@pytest.mark.parametrize(
    "read_from, read_to, numbers, text",
    [
        (
            9,
            12,
            HELD,
            "numbers 9 to 12 of queue 'q' in vhost '/' cannot be read: those below 10 are gone, it has 10 to 19",
        ),
        (
            0,
            None,
            HELD,
            "numbers 0 and above of queue 'q' in vhost '/' cannot be read: those below 10 are gone, it has 10 to 19",
        ),
        (5, 5, HELD, "number 5 of queue 'q' in vhost '/' cannot be read: those below 10 are gone, it has 10 to 19"),
        (
            9,
            b"last",
            HELD,
            "numbers 9 to 19 of queue 'q' in vhost '/' cannot be read: those below 10 are gone, it has 10 to 19",
        ),
        (
            b"first",
            9,
            HELD,
            "number 9 of queue 'q' in vhost '/' cannot be read: those below 10 are gone, it has 10 to 19",
        ),
        (
            3,
            4,
            EMPTY,
            "numbers 3 to 4 of queue 'q' in vhost '/' cannot be read: it is empty, and its next number is 20",
        ),
        (
            7,
            5,
            HELD,
            "numbers 7 to 5 of queue 'q' in vhost '/': a range may not end before it begins; of one number both ends are the same",
        ),
    ],
)
def test_a_range_that_is_gone_or_begins_so_is_refused(read_from, read_to, numbers, text):
    with pytest.raises(AmqpError) as caught:
        resolved(read_from, read_to, numbers)
    assert (caught.value.code, caught.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_the_error_of_a_range_that_goes_while_it_is_read_belongs_to_the_consume():
    error = gone(5, 9, HELD, "queue 'q' in vhost '/'")
    assert (error.class_id, error.method_id) == (60, 20)


def test_only_numbers_that_were_given_are_acknowledged():
    check_ack_to(0, HELD, "queue 'q'")
    check_ack_to(19, HELD, "queue 'q'")
    with pytest.raises(
        AmqpError, match="cannot acknowledge up to 20 of queue 'q': no message has that number yet, the next will be 20"
    ):
        check_ack_to(20, HELD, "queue 'q'")


def test_consumers_without_these_arguments_are_ordinary():
    for arguments in ({}, {"x-priority": 3}, {"x-warren-bounds": False}):
        assert read_arguments(table_from(arguments)) is None
        assert not cancels_on_failover(table_from(arguments))
    assert read_arguments(table_from({"x-warren-read-from": 0})) == ReadArguments(0, None, None, False)
    assert read_arguments(table_from({"x-warren-read-to": "last", "x-warren-bounds": True})) == ReadArguments(
        None, b"last", None, True
    )
    assert read_arguments(table_from({"x-warren-ack-to": 0})) == ReadArguments(None, None, 0, False)
    assert cancels_on_failover(table_from({"x-warren-read-from": 0})), "it would begin anew"


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
def test_wrong_values_are_refused_by_name(key, value, reason):
    with pytest.raises(AmqpError) as caught:
        check_consumer_arguments("/", "q", table_from({key: value}))
    assert (caught.value.code, caught.value.text) == (406, f"invalid arg '{key}' for queue 'q' in vhost '/': {reason}")
