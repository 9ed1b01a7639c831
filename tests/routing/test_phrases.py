"""Reply texts about queues and exchanges, and their names (AB-59, AB-63, AB-65, AB-82, AB-84)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.routing import phrases

TEXTS = [
    (phrases.no_queue("/", "q"), 404, "no queue 'q' in vhost '/'"),
    (phrases.no_exchange("v", "x"), 404, "no exchange 'x' in vhost 'v'"),
    (
        phrases.queue_locked("/", "q"),
        405,
        (
            "cannot obtain exclusive access to locked queue 'q' in vhost '/'. "
            "It could be originally declared on another connection or "
            "the exclusive property value does not match that of the original declaration."
        ),
    ),
    (
        phrases.queue_unavailable("/", "q", "down", "warren@a"),
        404,
        "home node 'warren@a' of durable queue 'q' in vhost '/' is down or inaccessible",
    ),
    (
        phrases.queue_unavailable("/", "q", "crashed", "n"),
        404,
        "queue 'q' in vhost '/' has crashed and failed to restart",
    ),
    (
        phrases.queue_unavailable("/", "q", "stopped", "n"),
        404,
        "queue 'q' in vhost '/' process is stopped by supervisor",
    ),
    (
        phrases.queue_unavailable("/", "q", "timeout", "n"),
        404,
        "failed to perform operation on queue 'q' in vhost '/' due to timeout",
    ),
]


@pytest.mark.parametrize(("error", "code", "text"), TEXTS)
def test_the_error_has_the_code_and_text_of_rabbitmq(error, code, text):
    assert (error.code, error.text) == (code, text)


def test_reserved_names_are_refused():
    """AB-65: names that begin with `amq.` are reserved."""
    for kind in ("queue", "exchange"):
        with pytest.raises(AmqpError) as caught:
            phrases.check_not_reserved(kind, "amq.x")
        assert (caught.value.code, caught.value.text) == (403, f"{kind} name 'amq.x' contains reserved prefix 'amq.*'")
        phrases.check_not_reserved(kind, "amqx")


def test_the_default_exchange_is_refused():
    with pytest.raises(AmqpError) as caught:
        phrases.check_not_default_exchange("x", "")
    assert (caught.value.code, caught.value.text) == (403, "operation not permitted on the default exchange")
    phrases.check_not_default_exchange("x")


def test_cr_and_lf_are_removed():
    """CR and LF are removed from the names of queues and exchanges (AB-59)."""
    assert phrases.without_cr_lf("\r\na\rb\nc\r\n") == "abc"


def test_generated_names_are_22_url_safe_characters():
    """A generated name is the prefix, a hyphen and 22 URL-safe characters (AB-82)."""
    assert phrases.generated_name("amq.gen", bytes(16)) == "amq.gen-" + "A" * 22
    assert phrases.generated_name("amq.ctag", b"\xff" * 16) == "amq.ctag-" + "_" * 21 + "w"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
        (None, "undefined"),
        ([1, "b"], "[{signedint,1},{longstr,b}]"),
        ([], "[]"),
        ({"a": {"b": None}}, "[{a,table,[{b,void,undefined}]}]"),
        (Decimal("3.14"), "{2,314}"),
    ],
)
def test_values_are_printed_as_rabbitmq_prints_them(value, text):
    [(_, _, encoded)] = table_from({"x": value})
    assert phrases.value_text(encoded) == text
