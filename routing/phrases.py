"""Reply texts about queues and exchanges: the phrases that name them, and errors with a fixed text.

Clients match these texts, so each is defined once. The errors have the class and method ids 0; the channel fills in
those of the method that failed (AB-51).
"""

from __future__ import annotations

import base64
from typing import Any

from ..amqp.constants import ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED
from ..amqp.errors import AmqpError
from ..amqp.fields import TYPE_NAMES, Table

_CR_LF = str.maketrans("", "", "\r\n")


def queue_phrase(vhost: str, name: str) -> str:
    return f"queue '{name}' in vhost '{vhost}'"


def exchange_phrase(vhost: str, name: str) -> str:
    return f"exchange '{name}' in vhost '{vhost}'"


def no_queue(vhost: str, name: str) -> AmqpError:
    return AmqpError(NOT_FOUND, f"no {queue_phrase(vhost, name)}")


def no_exchange(vhost: str, name: str) -> AmqpError:
    return AmqpError(NOT_FOUND, f"no {exchange_phrase(vhost, name)}")


def queue_locked(vhost: str, name: str) -> AmqpError:
    """The error for a queue that is exclusive to another connection (AB-84)."""
    return AmqpError(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {queue_phrase(vhost, name)}. "
        "It could be originally declared on another connection or "
        "the exclusive property value does not match that of the original declaration.",
    )


def queue_unavailable(vhost: str, name: str, state: str, node: str) -> AmqpError:
    """The error for a queue that exists but cannot be used; `state` is that of its `QueueRow` (AB-63)."""
    phrase = queue_phrase(vhost, name)
    texts = {
        "down": f"home node '{node}' of durable {phrase} is down or inaccessible",
        "crashed": f"{phrase} has crashed and failed to restart",
        "stopped": f"{phrase} process is stopped by supervisor",
    }
    return AmqpError(NOT_FOUND, texts.get(state, f"failed to perform operation on {phrase} due to timeout"))


def check_not_default_exchange(*names: str) -> None:
    """Raise AmqpError 403 if one of the exchange names is that of the default exchange (AB-68)."""
    if "" in names:
        raise AmqpError(ACCESS_REFUSED, "operation not permitted on the default exchange")


def check_not_system_exchange(vhost: str, name: str) -> None:
    """Raise AmqpError 403 for an exchange that clients may not delete (AB-65)."""
    if name.startswith("amq."):
        raise AmqpError(ACCESS_REFUSED, f"deletion of system {exchange_phrase(vhost, name)} not allowed")


def check_not_reserved(kind: str, name: str) -> None:
    """Raise AmqpError 403 for a name that clients may not declare; `kind` is `queue` or `exchange` (AB-65)."""
    if name.startswith("amq."):
        raise AmqpError(ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def without_cr_lf(name: str) -> str:
    """The name without CR and LF, as declare, delete, bind and unbind read names of queues and exchanges (AB-59)."""
    return name.translate(_CR_LF)


def generated_name(prefix: str, unpredictable: bytes) -> str:
    """`prefix`, a hyphen, and 16 unpredictable bytes as 22 URL-safe base64 characters: `amq.gen-…` (AB-82)."""
    return f"{prefix}-{base64.urlsafe_b64encode(unpredictable).rstrip(b'=').decode()}"


def value_text(value: Any, levels: int = 64) -> str:
    """A field value as RabbitMQ prints it in reply texts: `text`, `true`, `undefined`, `[{longstr,a}]`, `{2,314}`.

    What is inside more than `levels` tables and arrays is left out: a reply text has no room for it (AB-50).
    """
    if not levels:
        return "..."
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "undefined"
    if isinstance(value, Table):
        texts = [f"{{{name},{TYPE_NAMES[letter]},{value_text(item, levels - 1)}}}" for name, letter, item in value]
        return f"[{','.join(texts)}]"
    if isinstance(value, tuple):
        if value and isinstance(value[0], int):
            return f"{{{value[0]},{value[1]}}}"
        return f"[{','.join(f'{{{TYPE_NAMES[letter]},{value_text(item, levels - 1)}}}' for letter, item in value)}]"
    return str(value)
