"""Arguments of declarations and consumers; the texts are RabbitMQ 3.10.8's, to the letter (AB-66, AB-87 to AB-90, AB-118)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.arguments import (
    FOREIGN_ARGUMENTS,
    QueueSettings,
    alternate_exchange,
    check_consumer_arguments,
    check_exchange_arguments,
    check_exchange_equivalence,
    check_queue_arguments,
    check_queue_equivalence,
    check_server_named,
    consumer_priority,
    queue_settings,
    queue_type,
)

RES = "queue 'q' in vhost '/'"

INVALID = [
    # arguments, key, reason
    ({"x-expires": 0}, "x-expires", "{value_zero,0}"),
    ({"x-expires": -1}, "x-expires", "{value_negative,-1}"),
    ({"x-expires": "a"}, "x-expires", '"expected integer, got longstr"'),
    ({"x-expires": [1]}, "x-expires", '"expected integer, got array"'),
    ({"x-expires": {"a": 1}}, "x-expires", '"expected integer, got table"'),
    ({"x-expires": None}, "x-expires", '"expected integer, got void"'),
    ({"x-expires": Decimal("1.5")}, "x-expires", '"expected integer, got decimal"'),
    ({"x-expires": 315_360_000_001}, "x-expires", "{value_too_large,315360000001}"),
    ({"x-message-ttl": -1}, "x-message-ttl", "{value_negative,-1}"),
    ({"x-message-ttl": 1.5}, "x-message-ttl", '"expected integer, got double"'),
    ({"x-message-ttl": True}, "x-message-ttl", '"expected integer, got bool"'),
    ({"x-message-ttl": b"x"}, "x-message-ttl", '"expected integer, got binary"'),
    ({"x-message-ttl": 315_360_000_001}, "x-message-ttl", "{value_too_large,315360000001}"),
    ({"x-dead-letter-routing-key": "a"}, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-routing-key": 1}, "x-dead-letter-routing-key", "{unacceptable_type,signedint}"),
    (
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 1},
        "x-dead-letter-routing-key",
        "{unacceptable_type,signedint}",
    ),
    ({"x-max-length": -1}, "x-max-length", "{value_negative,-1}"),
    ({"x-max-length": "a"}, "x-max-length", '"expected integer, got longstr"'),
    ({"x-max-length-bytes": -1}, "x-max-length-bytes", "{value_negative,-1}"),
    ({"x-overflow": "x"}, "x-overflow", "invalid_overflow"),
    ({"x-overflow": 1}, "x-overflow", "{unacceptable_type,signedint}"),
    ({"x-max-priority": 256}, "x-max-priority", "{max_value_exceeded,256}"),
    ({"x-max-priority": -1}, "x-max-priority", "{value_negative,-1}"),
    ({"x-max-priority": "q"}, "x-max-priority", '"expected integer, got longstr"'),
    ({"x-queue-mode": "x"}, "x-queue-mode", "\"unsupported queue mode 'x'\""),
    ({"x-queue-mode": 1}, "x-queue-mode", "{unacceptable_type,signedint}"),
    ({"x-queue-version": 3}, "x-queue-version", "\"unsupported queue version '3'\""),
    ({"x-queue-version": "a"}, "x-queue-version", '"expected integer, got longstr"'),
    ({"x-single-active-consumer": 1}, "x-single-active-consumer", "{unacceptable_type,signedint}"),
    ({"x-queue-type": "x"}, "x-queue-type", "\"unsupported queue type 'x'\""),
    ({"x-queue-type": 1}, "x-queue-type", "{unacceptable_type,signedint}"),
    # the first fault in RabbitMQ's order is the one reported
    ({"x-expires": 0, "x-queue-type": "bad"}, "x-queue-type", "\"unsupported queue type 'bad'\""),
    ({"x-max-length": -1, "x-expires": 0, "x-overflow": 1}, "x-expires", "{value_zero,0}"),
    ({"x-max-length-bytes": -1, "x-max-priority": -1}, "x-max-length-bytes", "{value_negative,-1}"),
    ({"x-overflow": 1, "x-max-priority": 256}, "x-max-priority", "{max_value_exceeded,256}"),
    ({"x-queue-mode": 1, "x-overflow": 1}, "x-overflow", "{unacceptable_type,signedint}"),
    ({"x-max-age": "1D", "x-single-active-consumer": 1}, "x-single-active-consumer", "{unacceptable_type,signedint}"),
]


def refusal(function, *arguments) -> tuple[int, str]:
    with pytest.raises(AmqpError) as caught:
        function(*arguments)
    return caught.value.code, caught.value.text


class TestQueueArguments:
    def check(self, **arguments):
        check_queue_arguments("/", "q", table_from(arguments), "warren@a")

    def refusal(self, arguments):
        return refusal(check_queue_arguments, "/", "q", table_from(arguments), "warren@a")

    @pytest.mark.parametrize(("arguments", "key", "reason"), INVALID)
    def test_invalid_values(self, arguments, key, reason):
        """AB-89."""
        assert self.refusal(arguments) == (406, f"invalid arg '{key}' for {RES}: {reason}")

    @pytest.mark.parametrize("value", [1, None, True])
    def test_dead_letter_exchange_has_a_text_of_its_own(self, value):
        letter = {1: "signedint", None: "void"}[value] if value is not True else "bool"
        text = f"invalid type '{letter}' for arg 'x-dead-letter-exchange' in {RES}"
        assert self.refusal({"x-dead-letter-exchange": value}) == (406, text)
        assert self.refusal({"x-expires": 0, "x-dead-letter-exchange": value}) == (406, text)

    @pytest.mark.parametrize("key", sorted(FOREIGN_ARGUMENTS))
    def test_arguments_of_other_queue_types(self, key):
        """AB-90; the value is not looked at, and arguments of the queue's own type are checked first."""
        text = f"invalid arg '{key}' for {RES} of queue type rabbit_classic_queue"
        assert self.refusal({key: -1}) == (406, text)
        assert self.refusal({key: -1, "x-expires": 0}) == (406, f"invalid arg 'x-expires' for {RES}: {{value_zero,0}}")

    @pytest.mark.parametrize("name", ["quorum", "stream"])
    def test_types_that_are_not_here(self, name):
        """AB-91: never silently a classic queue."""
        text = (
            f"Cannot declare a queue '{RES}' of type 'rabbit_{name}_queue' on node 'warren@a': "
            "the corresponding feature flag is disabled"
        )
        assert self.refusal({"x-queue-type": name}) == (541, text)
        arguments = table_from({"x-queue-type": name})
        assert queue_type(arguments) == name
        assert refusal(check_server_named, arguments) == (
            406,
            f"Cannot declare a server-named queue for type rabbit_{name}_queue",
        )

    def test_limits_are_inclusive(self):
        self.check(
            **{"x-expires": 1, "x-message-ttl": 0, "x-max-length": 0, "x-max-length-bytes": 0, "x-max-priority": 0}
        )
        self.check(**{"x-expires": 315_360_000_000, "x-message-ttl": 315_360_000_000, "x-max-priority": 255})

    def test_unknown_arguments_and_the_rest_of_the_table_are_accepted(self):
        self.check(**{"x-foo": [1], "foo": None, "x-queue-master-locator": "min-masters", "x-queue-type": "classic"})
        self.check(
            **{
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "",
                "x-queue-version": 2,
                "x-queue-mode": "lazy",
            }
        )
        for overflow in ("drop-head", "reject-publish", "reject-publish-dlx"):
            self.check(**{"x-overflow": overflow})
        check_server_named(table_from({"x-queue-type": "classic"}))

    @pytest.mark.parametrize("letter", "bBsuIilL")
    def test_every_integer_letter_is_an_integer(self, letter):
        check_queue_arguments("/", "q", Table((("x-max-length", letter, 5),)), "n")


class TestQueueSettings:
    def test_defaults(self):
        assert queue_settings(Table()) == QueueSettings()
        assert not QueueSettings().drops_head and not QueueSettings().rejects_publish

    def test_all_of_them(self):
        given = {
            "x-message-ttl": 1,
            "x-expires": 2,
            "x-max-length": 3,
            "x-max-length-bytes": 4,
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "dlx",
            "x-dead-letter-routing-key": "key",
            "x-max-priority": 5,
            "x-single-active-consumer": True,
            "x-queue-mode": "lazy",
            "x-foo": "ignored",
        }
        settings = queue_settings(table_from(given))
        assert settings == QueueSettings(1, 2, 3, 4, "reject-publish", "dlx", "key", 5, True, "lazy")
        assert settings.rejects_publish and not settings.drops_head

    def test_the_first_of_repeated_names_wins(self):
        assert queue_settings(Table((("x-max-length", "I", 1), ("x-max-length", "I", 2)))).max_length == 1

    def test_drops_head_only_with_a_limit(self):
        assert queue_settings(table_from({"x-max-length": 0})).drops_head
        assert queue_settings(table_from({"x-max-length-bytes": 0})).drops_head


EQUIVALENT = [
    ({}, {}),
    ({"x-queue-type": "classic"}, {}),
    ({}, {"x-queue-type": "classic"}),
    ({"x-foo": 1}, {"x-foo": 2}),
    ({}, {"x-max-age": "1D"}),
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
    def test_equal(self, old, new):
        """AB-87."""
        check_queue_equivalence("/", "q", (False, False, table_from(old)), (False, False, table_from(new)))

    @pytest.mark.parametrize(("old", "new", "key", "received", "current"), INEQUIVALENT)
    def test_texts(self, old, new, key, received, current):
        """AB-88."""
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

    def test_flags_come_first(self):
        arguments = table_from({"x-expires": 1})
        assert refusal(check_queue_equivalence, "/", "q", (False, False, Table()), (True, True, arguments)) == (
            406,
            f"inequivalent arg 'durable' for {RES}: received 'true' but current is 'false'",
        )
        assert refusal(check_queue_equivalence, "/", "q", (True, True, Table()), (True, False, arguments)) == (
            406,
            f"inequivalent arg 'auto_delete' for {RES}: received 'false' but current is 'true'",
        )


class TestExchanges:
    def test_alternate_exchange(self):
        assert alternate_exchange(Table()) is None
        assert alternate_exchange(table_from({"alternate-exchange": "ae"})) == "ae"
        check_exchange_arguments("/", "x", table_from({"alternate-exchange": "ae", "other": 1}))
        text = "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
        assert refusal(check_exchange_arguments, "/", "x", table_from({"alternate-exchange": 1})) == (406, text)

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
    def test_equivalence(self, change, key, received, current):
        """AB-66, in this order."""
        same = {"type": "direct", "durable": False, "auto_delete": False, "internal": False}
        old = (*same.values(), table_from({"alternate-exchange": "y", "other": 1}))
        arguments = change.get("arguments", {"alternate-exchange": "y"})
        new = (*(change.get(name, value) for name, value in same.items()), table_from(arguments))
        text = f"inequivalent arg '{key}' for exchange 'x' in vhost '/': received {received} but current is {current}"
        assert refusal(check_exchange_equivalence, "/", "x", old, new) == (406, text)

    def test_other_arguments_are_ignored(self):
        old = ("direct", True, False, False, table_from({"a": 1}))
        check_exchange_equivalence("/", "x", old, ("direct", True, False, False, Table()))


class TestConsumers:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"x-priority": "a"}, f"invalid arg 'x-priority' for {RES}: \"expected integer, got longstr\""),
            ({"x-priority": True}, f"invalid arg 'x-priority' for {RES}: \"expected integer, got bool\""),
            (
                {"x-cancel-on-ha-failover": 1},
                f"invalid arg 'x-cancel-on-ha-failover' for {RES}: {{unacceptable_type,signedint}}",
            ),
            ({"x-stream-offset": 1}, f"invalid arg 'x-stream-offset' for {RES} of queue type rabbit_classic_queue"),
            (
                {"x-stream-offset": 1, "x-priority": "a"},
                f"invalid arg 'x-priority' for {RES}: \"expected integer, got longstr\"",
            ),
        ],
    )
    def test_refusals(self, arguments, text):
        """AB-118."""
        assert refusal(check_consumer_arguments, "/", "q", table_from(arguments)) == (406, text)

    def test_priority(self):
        for arguments, priority in (({}, 0), ({"x-priority": -5}, -5), ({"x-priority": 10, "other": None}, 10)):
            check_consumer_arguments("/", "q", table_from(arguments))
            assert consumer_priority(table_from(arguments)) == priority
