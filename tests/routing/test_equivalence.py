"""Equivalence of declarations. The texts are exactly those of RabbitMQ 3.10.8 (AB-66, AB-87, AB-88)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.arguments.equivalence import check_exchange_equivalence, check_queue_equivalence

RES = "queue 'q' in vhost '/'"


def refusal(function, *arguments) -> tuple[int, str]:
    with pytest.raises(AmqpError) as caught:
        function(*arguments)
    return caught.value.code, caught.value.text


EQUIVALENT = [
    ({}, {}),
    ({"x-queue-type": "classic"}, {}),
    ({}, {"x-queue-type": "classic"}),
    ({"x-foo": 1}, {"x-foo": 2}),
    ({}, {"x-max-age": "1D"}),
    # RabbitMQ refuses these for a new queue of the type, but does not look at them if the queue is there.
    ({}, {"x-delivery-limit": 3, "x-max-in-memory-length": 4, "x-queue-leader-locator": "balanced"}),
    ({"x-queue-type": "quorum"}, {"x-queue-type": "quorum", "x-max-priority": 5, "x-queue-mode": "lazy"}),
    ({"x-queue-type": "stream"}, {"x-queue-type": "stream", "x-message-ttl": 5, "x-max-length": 7}),
    ({"x-message-ttl": 5}, {"x-message-ttl": Decimal("5")}),
    ({"x-message-ttl": Decimal("1.50")}, {"x-message-ttl": Decimal("1.5")}),
]

INEQUIVALENT = [
    # existing, new, key, received, current
    ({"x-expires": 60000}, {}, "x-expires", "none", "the value '60000' of type 'signedint'"),
    ({}, {"x-expires": 60000}, "x-expires", "the value '60000' of type 'signedint'", "none"),
    ({"x-expires": 60000}, {"x-expires": 70000}, "x-expires", "'70000'", "'60000'"),
    ({"x-overflow": "drop-head"}, {"x-overflow": "reject-publish"}, "x-overflow", "'reject-publish'", "'drop-head'"),
    ({"x-overflow": "drop-head"}, {}, "x-overflow", "none", "the value 'drop-head' of type 'longstr'"),
    ({}, {"x-queue-type": "quorum"}, "x-queue-type", "the value 'quorum' of type 'longstr'", "none"),
    (
        {"x-single-active-consumer": True},
        {"x-single-active-consumer": False},
        "x-single-active-consumer",
        "'false'",
        "'true'",
    ),
    ({"x-single-active-consumer": True}, {}, "x-single-active-consumer", "none", "the value 'true' of type 'bool'"),
    ({"x-queue-mode": "lazy", "x-expires": 7}, {}, "x-expires", "none", "the value '7' of type 'signedint'"),
    ({}, {"x-expires": "a"}, "x-expires", "the value 'a' of type 'longstr'", "none"),
    ({"x-queue-master-locator": "m"}, {}, "x-queue-master-locator", "none", "the value 'm' of type 'longstr'"),
    ({"x-queue-version": 1}, {}, "x-queue-version", "none", "the value '1' of type 'signedint'"),
    ({}, {"x-dead-letter-exchange": 1}, "x-dead-letter-exchange", "the value '1' of type 'signedint'", "none"),
    ({"x-max-priority": 4}, {"x-max-priority": 5}, "x-max-priority", "'5'", "'4'"),
    ({"x-message-ttl": 1}, {"x-message-ttl": 1.0}, "x-message-ttl", "'1.0'", "'1'"),
    ({"x-message-ttl": 1}, {"x-message-ttl": "1"}, "x-message-ttl", "'1'", "'1'"),
]


class TestQueueEquivalence:
    @pytest.mark.parametrize(("old", "new"), EQUIVALENT)
    def test_equivalent_declarations_are_accepted(self, old, new):
        """Arguments without meaning, and the widths of numbers, may differ (AB-87)."""
        check_queue_equivalence("/", "q", (False, False, table_from(old)), (False, False, table_from(new)))

    @pytest.mark.parametrize(("old", "new", "key", "received", "current"), INEQUIVALENT)
    def test_the_first_difference_is_reported(self, old, new, key, received, current):
        """AB-88: the text has the argument, the new value and the old one."""
        declarations = (False, False, table_from(old)), (False, False, table_from(new))
        text = f"inequivalent arg '{key}' for {RES}: received {received} but current is {current}"
        assert refusal(check_queue_equivalence, "/", "q", *declarations) == (406, text)

    @pytest.mark.parametrize("letters", ["bI", "Il", "uB", "si"])
    def test_integer_letters_do_not_matter(self, letters):
        old, new = (Table((("x-max-length", letter, 5),)) for letter in letters)
        check_queue_equivalence("/", "q", (True, False, old), (True, False, new))

    def test_float_letters_do_not_matter(self):
        old, new = (Table((("x-max-length", letter, 5.5),)) for letter in "fd")
        check_queue_equivalence("/", "q", (True, False, old), (True, False, new))

    def test_flags_are_compared_before_arguments(self):
        arguments = table_from({"x-expires": 1})
        assert refusal(check_queue_equivalence, "/", "q", (False, False, Table()), (True, True, arguments)) == (
            406,
            f"inequivalent arg 'durable' for {RES}: received 'true' but current is 'false'",
        )
        assert refusal(check_queue_equivalence, "/", "q", (True, True, Table()), (True, False, arguments)) == (
            406,
            f"inequivalent arg 'auto_delete' for {RES}: received 'false' but current is 'true'",
        )


class TestExchangeEquivalence:
    @pytest.mark.parametrize(
        ("change", "key", "received", "current"),
        [
            ({"type": "fanout", "durable": True}, "type", "'fanout'", "'direct'"),
            ({"durable": True, "auto_delete": True}, "durable", "'true'", "'false'"),
            ({"auto_delete": True, "internal": True}, "auto_delete", "'true'", "'false'"),
            ({"internal": True, "arguments": {"alternate-exchange": "z"}}, "internal", "'true'", "'false'"),
            ({"arguments": {"alternate-exchange": "z"}}, "alternate-exchange", "'z'", "'y'"),
            ({"arguments": {}}, "alternate-exchange", "none", "the value 'y' of type 'longstr'"),
        ],
    )
    def test_parts_are_compared_in_order(self, change, key, received, current):
        """AB-66: of two parts that differ, the first is reported."""
        same = {"type": "direct", "durable": False, "auto_delete": False, "internal": False}
        old = (*same.values(), table_from({"alternate-exchange": "y", "other": 1}))
        arguments = change.get("arguments", {"alternate-exchange": "y"})
        new = (*(change.get(name, value) for name, value in same.items()), table_from(arguments))
        text = f"inequivalent arg '{key}' for exchange 'x' in vhost '/': received {received} but current is {current}"
        assert refusal(check_exchange_equivalence, "/", "x", old, new) == (406, text)

    def test_other_arguments_are_ignored(self):
        old = ("direct", True, False, False, table_from({"a": 1}))
        check_exchange_equivalence("/", "x", old, ("direct", True, False, False, Table()))
