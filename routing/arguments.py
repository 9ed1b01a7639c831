"""Arguments of queues, exchanges and consumers: what they mean, which are refused, and when two declarations are the same.

A declaration is checked in the order of RabbitMQ, because only the first fault is reported: the queue type, then each
known argument in the order of `_CHECKS`, then arguments that belong to other queue types (AB-89, AB-90).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from ..amqp.constants import INTERNAL_ERROR, PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import TYPE_NAMES, Table
from .phrases import exchange_phrase, queue_phrase, value_text
from .range_read_arguments import ACK_TO, BOUNDS, READ_FROM, READ_TO, read_arguments

MAX_EXPIRY = 315_360_000_000  # ms; ten years
MAX_PRIORITY = 255

_INTEGERS = frozenset("bBsuIilL")

#: Arguments that mean something, but not to a classic queue (AB-90; the strategy is one of them in RabbitMQ 3.10).
FOREIGN_ARGUMENTS = frozenset(
    {
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-queue-leader-locator",
    }
)

_QUEUE_TYPE_MODULES = {
    "classic": "rabbit_classic_queue",
    "quorum": "rabbit_quorum_queue",
    "stream": "rabbit_stream_queue",
}


# --- what the arguments of a queue mean -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The arguments of a classic queue, decoded. None: not given. Times in ms, lengths in messages or octets."""

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"] = "drop-head"
    dead_letter_exchange: str | None = None  # '' is the default exchange
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    queue_mode: Literal["default", "lazy"] = "default"

    @property
    def rejects_publish(self) -> bool:
        """Whether an overflow refuses the newest message (AB-101)."""
        return self.overflow != "drop-head"

    @property
    def drops_head(self) -> bool:
        """Whether there is a limit and an overflow drops the oldest message (AB-100)."""
        return self.overflow == "drop-head" and (self.max_length is not None or self.max_length_bytes is not None)


def queue_settings(arguments: Table) -> QueueSettings:
    """The meaning of arguments that `check_queue_arguments` has accepted."""
    given: dict[str, Any] = {}
    for name, letter, value in reversed(arguments):  # the first of repeated names wins
        field = _SETTINGS.get(name)
        if field is not None:
            given[field] = value.decode("utf-8", "surrogateescape") if letter == "S" else value
    return QueueSettings(**given)


_SETTINGS = {
    "x-message-ttl": "message_ttl",
    "x-expires": "expires",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-overflow": "overflow",
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-max-priority": "max_priority",
    "x-single-active-consumer": "single_active_consumer",
    "x-queue-mode": "queue_mode",
}


def queue_type(arguments: Table) -> str:
    """`classic`, `quorum` or `stream`."""
    found = arguments.get("x-queue-type")
    return value_text(found[1]) if found is not None else "classic"


# --- which arguments of a queue are refused ---------------------------------------------------------------------------


def check_server_named(arguments: Table) -> None:
    """C406 if a queue of this type cannot be given a name by the server (AB-82)."""
    module = _QUEUE_TYPE_MODULES.get(queue_type(arguments), "")
    if module and module != _QUEUE_TYPE_MODULES["classic"]:
        raise AmqpError(PRECONDITION_FAILED, f"Cannot declare a server-named queue for type {module}")


def check_queue_arguments(vhost: str, name: str, arguments: Table, node: str) -> None:
    """Whether a new queue may have these arguments, else C406, or X541 for a type this node cannot host (AB-89 to AB-91)."""
    phrase = queue_phrase(vhost, name)
    dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    if dead_letter_exchange is not None and dead_letter_exchange[0] != "S":
        raise _wrong_type(dead_letter_exchange[0], "x-dead-letter-exchange", phrase)
    for key, check in _CHECKS:
        found = arguments.get(key)
        if found is not None:
            reason = check(found[0], found[1], arguments)
            if reason:
                raise _invalid(key, phrase, reason)
    module = _QUEUE_TYPE_MODULES[queue_type(arguments)]
    if module != _QUEUE_TYPE_MODULES["classic"]:
        raise AmqpError(
            INTERNAL_ERROR,
            f"Cannot declare a queue '{phrase}' of type '{module}' on node '{node}': the corresponding feature flag is disabled",
        )
    for key, _, _ in arguments:
        if key in FOREIGN_ARGUMENTS:
            raise _foreign(key, phrase)


Reason = str  # empty: nothing wrong


def _integer(letter: str, value: Any) -> Reason:
    return "" if letter in _INTEGERS else f'"expected integer, got {TYPE_NAMES[letter]}"'


def _unacceptable(letter: str) -> Reason:
    return f"{{unacceptable_type,{TYPE_NAMES[letter]}}}"


def _check_expires(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or ("{value_zero,0}" if value == 0 else _in_time(value))


def _check_message_ttl(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or _in_time(value)


def _in_time(value: int) -> Reason:
    if value < 0:
        return f"{{value_negative,{value}}}"
    return f"{{value_too_large,{value}}}" if value > MAX_EXPIRY else ""


def _check_dead_letter_routing_key(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if arguments.get("x-dead-letter-exchange") is not None else "routing_key_but_no_dlx_defined"


def _check_not_negative(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or (f"{{value_negative,{value}}}" if value < 0 else "")


def _check_max_priority(letter: str, value: Any, arguments: Table) -> Reason:
    reason = _check_not_negative(letter, value, arguments)
    return reason or (f"{{max_value_exceeded,{value}}}" if value > MAX_PRIORITY else "")


def _check_overflow(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value in (b"drop-head", b"reject-publish", b"reject-publish-dlx") else "invalid_overflow"


def _check_queue_mode(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value in (b"default", b"lazy") else f"\"unsupported queue mode '{value_text(value)}'\""


def _check_queue_version(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or ("" if value in (1, 2) else f"\"unsupported queue version '{value}'\"")


def _check_bool(letter: str, value: Any, arguments: Table) -> Reason:
    return "" if letter == "t" else _unacceptable(letter)


def _check_queue_type(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value_text(value) in _QUEUE_TYPE_MODULES else f"\"unsupported queue type '{value_text(value)}'\""


def _check_consumer_priority(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value)


def _check_read_from(letter: str, value: Any, arguments: Table) -> Reason:
    return (
        ""
        if letter in _INTEGERS or value in (b"first", b"next")
        else f"\"expected a number, 'first' or 'next', got {_shown(letter, value)}\""
    )


def _check_read_to(letter: str, value: Any, arguments: Table) -> Reason:
    if letter in _INTEGERS:
        return _check_not_negative(letter, value, arguments)
    return "" if value == b"last" else f"\"expected a number or 'last', got {_shown(letter, value)}\""


def _shown(letter: str, value: Any) -> str:
    return f"'{value_text(value)}'" if letter == "S" else TYPE_NAMES[letter]


def _accept(letter: str, value: Any, arguments: Table) -> Reason:
    return ""


Check = Callable[[str, Any, Table], Reason]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-queue-type", _check_queue_type),
    ("x-expires", _check_expires),
    ("x-message-ttl", _check_message_ttl),
    ("x-dead-letter-exchange", _accept),  # its type is checked before everything else, with a text of its own
    ("x-dead-letter-routing-key", _check_dead_letter_routing_key),
    ("x-max-length", _check_not_negative),
    ("x-max-length-bytes", _check_not_negative),
    ("x-max-priority", _check_max_priority),
    ("x-overflow", _check_overflow),
    ("x-queue-mode", _check_queue_mode),
    ("x-queue-version", _check_queue_version),
    ("x-single-active-consumer", _check_bool),
    ("x-queue-master-locator", _accept),
)


# --- consumers --------------------------------------------------------------------------------------------------------

_CONSUMER_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-priority", _check_consumer_priority),
    ("x-cancel-on-ha-failover", _check_bool),
    (ACK_TO, _check_not_negative),
    (BOUNDS, _check_bool),
    (READ_FROM, _check_read_from),
    (READ_TO, _check_read_to),
)


def check_consumer_arguments(vhost: str, queue: str, arguments: Table) -> None:
    """Whether a classic queue accepts a consumer with these arguments, else C406 (AB-118)."""
    phrase = queue_phrase(vhost, queue)
    for key, check in _CONSUMER_CHECKS:
        found = arguments.get(key)
        if found is not None:
            reason = check(found[0], found[1], arguments)
            if reason:
                raise _invalid(key, phrase, reason)
    if arguments.get("x-stream-offset") is not None:
        raise _foreign("x-stream-offset", phrase)


def consumer_priority(arguments: Table) -> int:
    """`x-priority` of accepted consumer arguments, 0 if absent (AB-122)."""
    found = arguments.get("x-priority")
    return 0 if found is None else found[1]


def cancels_on_failover(arguments: Table) -> bool:
    """Whether a consumer with these accepted arguments wants to be told of a failure of its queue (AB-126), or must be: one that reads would begin anew."""
    return arguments.get("x-cancel-on-ha-failover") == ("t", True) or read_arguments(arguments) is not None


# --- exchanges --------------------------------------------------------------------------------------------------------


def check_exchange_arguments(vhost: str, name: str, arguments: Table) -> None:
    """Whether a new exchange may have these arguments, else C406 (section 7, exchange.declare)."""
    found = arguments.get("alternate-exchange")
    if found is not None and found[0] != "S":
        raise _wrong_type(found[0], "alternate-exchange", exchange_phrase(vhost, name))


def alternate_exchange(arguments: Table) -> str | None:
    """The alternate exchange of accepted arguments."""
    found = arguments.get("alternate-exchange")
    return None if found is None else value_text(found[1])


# --- equivalence ------------------------------------------------------------------------------------------------------


def check_queue_equivalence(
    vhost: str, name: str, old: tuple[bool, bool, Table], new: tuple[bool, bool, Table]
) -> None:
    """C406 unless an existing and a new declaration `(durable, auto_delete, arguments)` agree (AB-87, AB-88)."""
    phrase = queue_phrase(vhost, name)
    _check_equal("durable", phrase, old[0], new[0])
    _check_equal("auto_delete", phrase, old[1], new[1])
    # The type comes last here and first in a new declaration, as in RabbitMQ.
    for key in [key for key, _ in _CHECKS[1:]] + ["x-queue-type"]:
        _check_argument_equal(key, phrase, old[2], new[2])


def check_exchange_equivalence(
    vhost: str,
    name: str,
    old: tuple[str, bool, bool, bool, Table],
    new: tuple[str, bool, bool, bool, Table],
) -> None:
    """C406 unless two declarations `(type, durable, auto_delete, internal, arguments)` agree (AB-66)."""
    phrase = exchange_phrase(vhost, name)
    _check_equal("type", phrase, old[0], new[0])
    _check_equal("durable", phrase, old[1], new[1])
    _check_equal("auto_delete", phrase, old[2], new[2])
    _check_equal("internal", phrase, old[3], new[3])
    _check_argument_equal("alternate-exchange", phrase, old[4], new[4])


def _check_equal(key: str, phrase: str, old: Any, new: Any) -> None:
    if old != new:
        raise _inequivalent(key, phrase, f"'{value_text(new)}'", f"'{value_text(old)}'")


def _check_argument_equal(key: str, phrase: str, old_arguments: Table, new_arguments: Table) -> None:
    old, new = old_arguments.get(key), new_arguments.get(key)
    if old == new:
        return
    if key == "x-queue-type" and queue_type(old_arguments) == queue_type(new_arguments) == "classic":
        return
    if old is None or new is None:
        raise _inequivalent(key, phrase, _typed(new), _typed(old))
    if _comparable(*old) != _comparable(*new):
        raise _inequivalent(key, phrase, f"'{value_text(new[1])}'", f"'{value_text(old[1])}'")


def _comparable(letter: str, value: Any) -> tuple[str, Any]:
    """Equal for values that count as equal: integers of any width, decimals and integers, both float widths."""
    if letter in _INTEGERS:
        return "integer", value
    if letter == "D":
        return "integer", Decimal(value[1]).scaleb(-value[0])
    if letter in "fd":
        return "float", value
    return letter, value


def _typed(found: tuple[str, Any] | None) -> str:
    return "none" if found is None else f"the value '{value_text(found[1])}' of type '{TYPE_NAMES[found[0]]}'"


# --- the texts --------------------------------------------------------------------------------------------------------


def _invalid(key: str, phrase: str, reason: Reason) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase}: {reason}")


def _foreign(key: str, phrase: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase} of queue type rabbit_classic_queue")


def _wrong_type(letter: str, key: str, phrase: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid type '{TYPE_NAMES[letter]}' for arg '{key}' in {phrase}")


def _inequivalent(key: str, phrase: str, new: str, old: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"inequivalent arg '{key}' for {phrase}: received {new} but current is {old}")
