"""The argument of exchanges that the broker understands: `alternate-exchange`."""

from __future__ import annotations

from ...amqp.fields import Table
from ..phrases import exchange_phrase, value_text
from .checks import wrong_type


def check_exchange_arguments(vhost: str, name: str, arguments: Table) -> None:
    """Raise AmqpError 406 if a new exchange may not have these arguments (amqp-broker section 7, exchange.declare)."""
    found = arguments.get("alternate-exchange")
    if found is not None and found[0] != "S":
        raise wrong_type(found[0], "alternate-exchange", exchange_phrase(vhost, name))


def alternate_exchange(arguments: Table) -> str | None:
    """The name of the alternate exchange in accepted arguments, or None."""
    found = arguments.get("alternate-exchange")
    return None if found is None else value_text(found[1])
