"""Arguments of declarations and consumers. The texts are exactly those of RabbitMQ 3.10.8 (AB-89, AB-90, AB-118)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.routing.arguments.consumer_arguments import check_consumer_arguments, consumer_priority
from warren.routing.arguments.exchange_arguments import alternate_exchange, check_exchange_arguments
from warren.routing.arguments.queue_arguments import check_queue_declaration, check_server_named
from warren.routing.arguments.queue_settings import QueueSettings, queue_settings
from warren.routing.queue_types import CLASSIC, QUORUM, queue_type
from warren.routing.rows import QueueRow

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
    # of several faults, the first in RabbitMQ's order is reported
    ({"x-expires": 0, "x-queue-type": "bad"}, "x-queue-type", "\"unsupported queue type 'bad'\""),
    ({"x-max-length": -1, "x-expires": 0, "x-overflow": 1}, "x-expires", "{value_zero,0}"),
    ({"x-max-length-bytes": -1, "x-max-priority": -1}, "x-max-length-bytes", "{value_negative,-1}"),
    ({"x-overflow": 1, "x-max-priority": 256}, "x-max-priority", "{max_value_exceeded,256}"),
    ({"x-queue-mode": 1, "x-overflow": 1}, "x-overflow", "{unacceptable_type,signedint}"),
    ({"x-max-age": "1D", "x-single-active-consumer": 1}, "x-single-active-consumer", "{unacceptable_type,signedint}"),
]


INVALID_QUORUM = [
    ({"x-message-ttl": -1, "x-expires": 0}, "x-expires", "{value_zero,0}"),
    ({"x-max-priority": "a", "x-expires": 0}, "x-expires", "{value_zero,0}"),
    ({"x-delivery-limit": "a", "x-dead-letter-strategy": 1}, "x-dead-letter-strategy", "{unacceptable_type,signedint}"),
    ({"x-dead-letter-strategy": "odd"}, "x-dead-letter-strategy", "invalid_dlx_strategy"),
    ({"x-max-in-memory-length": -3, "x-max-length": -3}, "x-max-length", "{value_negative,-3}"),
    ({"x-max-in-memory-bytes": -5}, "x-max-in-memory-bytes", "{value_negative,-5}"),
    ({"x-quorum-initial-group-size": 0, "x-delivery-limit": "a"}, "x-quorum-initial-group-size", "{value_zero,0}"),
    ({"x-delivery-limit": "a"}, "x-delivery-limit", '"expected integer, got longstr"'),
    ({"x-queue-leader-locator": "odd"}, "x-queue-leader-locator", "invalid_queue_locator_arg"),
    ({"x-queue-leader-locator": 1}, "x-queue-leader-locator", "{unacceptable_type,signedint}"),
]


def declared(arguments, **flags):
    return QueueRow("/", "q", None, "id", arguments=arguments, type=queue_type(arguments), node="warren@a", **flags)


def refusal(function, *arguments) -> tuple[int, str]:
    with pytest.raises(AmqpError) as caught:
        function(*arguments)
    return caught.value.code, caught.value.text


class TestQueueArguments:
    def check(self, **arguments):
        check_queue_declaration(declared(table_from(arguments)))

    def refusal(self, arguments, **flags):
        return refusal(check_queue_declaration, declared(table_from(arguments), **flags))

    @pytest.mark.parametrize(("arguments", "key", "reason"), INVALID)
    def test_an_invalid_value_is_refused(self, arguments, key, reason):
        """AB-89: the text has the argument and the reason."""
        assert self.refusal(arguments) == (406, f"invalid arg '{key}' for {RES}: {reason}")

    @pytest.mark.parametrize("value", [1, None, True])
    def test_a_dead_letter_exchange_of_a_wrong_type_has_its_own_text(self, value):
        letter = {1: "signedint", None: "void"}[value] if value is not True else "bool"
        text = f"invalid type '{letter}' for arg 'x-dead-letter-exchange' in {RES}"
        assert self.refusal({"x-dead-letter-exchange": value}) == (406, text)
        assert self.refusal({"x-expires": 0, "x-dead-letter-exchange": value}) == (406, text)

    @pytest.mark.parametrize("key", sorted(QUORUM.arguments - CLASSIC.arguments) + ["x-max-age"])
    def test_an_argument_of_another_queue_type_is_refused(self, key):
        """An argument of another queue type is refused, whatever its value is. Arguments of classic queues are checked
        first (AB-90).
        """
        text = f"invalid arg '{key}' for {RES} of queue type rabbit_classic_queue"
        assert self.refusal({key: -1}) == (406, text)
        assert self.refusal({key: -1, "x-expires": 0}) == (406, f"invalid arg 'x-expires' for {RES}: {{value_zero,0}}")

    @pytest.mark.parametrize(("arguments", "key", "reason"), INVALID_QUORUM)
    def test_an_invalid_value_for_a_quorum_queue_is_refused(self, arguments, key, reason):
        """AB-89: of the arguments that the type accepts, the first wrong value in RabbitMQ's order is reported."""
        text = f"invalid arg '{key}' for {RES}: {reason}"
        assert self.refusal({"x-queue-type": "quorum", **arguments}, durable=True) == (406, text)

    @pytest.mark.parametrize("key", [*sorted(CLASSIC.arguments - QUORUM.arguments), "x-max-age"])
    def test_an_argument_that_no_quorum_queue_accepts_is_refused(self, key):
        text = f"invalid arg '{key}' for {RES} of queue type rabbit_quorum_queue"
        assert self.refusal({"x-queue-type": "quorum", key: "odd"}, durable=True) == (406, text)

    @pytest.mark.parametrize(
        ("flags", "text"),
        [
            ({"durable": False}, "non-durable"),
            ({"exclusive_owner": "me"}, "exclusive-owner"),
            ({"auto_delete": True}, "auto-delete"),
            ({"durable": False, "exclusive_owner": "me", "auto_delete": True}, "auto-delete"),
            ({"durable": False, "exclusive_owner": "me"}, "exclusive-owner"),
        ],
    )
    def test_a_quorum_queue_is_durable_and_belongs_to_nobody(self, flags, text):
        """A quorum queue must be durable, not exclusive and not auto-delete, which is checked after its arguments
        (AB-91).
        """
        flags = {"durable": True, **flags}
        assert self.refusal({"x-queue-type": "quorum"}, **flags) == (406, f"invalid property '{text}' for {RES}")
        assert self.refusal({"x-queue-type": "quorum", "x-expires": 0}, **flags)[1].endswith("{value_zero,0}")

    def test_a_quorum_queue_accepts_its_arguments(self):
        arguments = {
            "x-queue-type": "quorum",
            "x-delivery-limit": -1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-strategy": "at-least-once",
            "x-quorum-initial-group-size": 3,
            "x-queue-leader-locator": "balanced",
            "x-max-in-memory-length": 0,
            "x-single-active-consumer": True,
            "x-overflow": "reject-publish",
        }
        check_queue_declaration(declared(table_from(arguments), durable=True))

    def test_the_arguments_of_streams(self):
        """AB-91: RabbitMQ 3.10 accepts these and no others."""
        arguments = {
            "x-queue-type": "stream",
            "x-max-length-bytes": 0,
            "x-max-age": "1Y",
            "x-stream-max-segment-size-bytes": 0,
            "x-initial-cluster-size": 3,
            "x-queue-leader-locator": "balanced",
        }
        check_queue_declaration(declared(table_from(arguments), durable=True))
        assert self.refusal({"x-queue-type": "stream", "x-max-length": 1}) == (
            406,
            f"invalid arg 'x-max-length' for {RES} of queue type rabbit_stream_queue",
        )

    @pytest.mark.parametrize("name", ["quorum", "stream"])
    def test_the_server_names_classic_queues_only(self, name):
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

    def test_unknown_arguments_and_valid_values_are_accepted(self):
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
        check_queue_declaration(declared(Table((("x-max-length", letter, 5),))))


class TestQueueSettings:
    def test_defaults(self):
        assert queue_settings(Table()) == QueueSettings()
        assert not QueueSettings().drops_head and not QueueSettings().rejects_publish

    def test_all_arguments_are_decoded(self):
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

    def test_the_first_of_repeated_names_counts(self):
        assert queue_settings(Table((("x-max-length", "I", 1), ("x-max-length", "I", 2)))).max_length == 1

    def test_drops_head_only_with_a_limit(self):
        assert queue_settings(table_from({"x-max-length": 0})).drops_head
        assert queue_settings(table_from({"x-max-length-bytes": 0})).drops_head

    @pytest.mark.parametrize(
        ("argument", "of_policy", "in_force"),
        [(5, 3, 3), (3, 5, 3), (0, 3, 3), (3, 0, 3), (0, 0, 0), (None, 0, 0), (0, None, 0), (None, None, None)],
    )
    def test_a_consumer_timeout_of_0_is_no_limit(self, argument, of_policy, in_force):
        """The shorter timeout of argument and policy is in force, and 0 is no timeout (QP-115)."""
        arguments = table_from({} if argument is None else {"x-consumer-timeout": argument})
        policy = {} if of_policy is None else {"consumer-timeout": of_policy}
        assert queue_settings(arguments, policy).consumer_timeout == in_force

    @pytest.mark.parametrize("argument", [True, False])
    def test_a_boolean_argument_beats_that_of_a_policy(self, argument):
        arguments = table_from({"x-max-priority": 3, "x-drop-lowest": argument})
        assert queue_settings(arguments, {"drop-lowest": not argument}).drop_lowest == argument


class TestExchanges:
    def test_the_alternate_exchange_is_a_name(self):
        assert alternate_exchange(Table()) is None
        assert alternate_exchange(table_from({"alternate-exchange": "ae"})) == "ae"
        check_exchange_arguments("/", "x", table_from({"alternate-exchange": "ae", "other": 1}))
        text = "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
        assert refusal(check_exchange_arguments, "/", "x", table_from({"alternate-exchange": 1})) == (406, text)


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
    def test_an_invalid_argument_is_refused(self, arguments, text):
        """AB-118: the text has the argument and the reason."""
        assert refusal(check_consumer_arguments, declared(Table()), table_from(arguments)) == (406, text)

    @pytest.mark.parametrize("key", ["x-stream-offset", "x-cancel-on-ha-failover"])
    def test_an_argument_that_no_quorum_queue_accepts_is_refused(self, key):
        row = declared(table_from({"x-queue-type": "quorum"}), durable=True)
        text = f"invalid arg '{key}' for {RES} of queue type rabbit_quorum_queue"
        assert refusal(check_consumer_arguments, row, table_from({key: 1})) == (406, text)

    def test_the_first_foreign_argument_of_a_consumer_is_named(self):
        """RabbitMQ takes them in the order in which the client sent them."""
        row = declared(table_from({"x-queue-type": "quorum"}), durable=True)
        keys = ("x-stream-offset", "x-cancel-on-ha-failover")
        for first, second in (keys, reversed(keys)):
            text = f"invalid arg '{first}' for {RES} of queue type rabbit_quorum_queue"
            assert refusal(check_consumer_arguments, row, table_from({first: 1, second: 1})) == (406, text)

    def test_the_priority_is_an_integer_and_0_by_default(self):
        for arguments, priority in (({}, 0), ({"x-priority": -5}, -5), ({"x-priority": 10, "other": None}, 10)):
            check_consumer_arguments(declared(Table()), table_from(arguments))
            assert consumer_priority(table_from(arguments)) == priority
