"""The arguments of exchanges that the broker understands: `alternate-exchange` and `x-warren-deduplicate`."""

from __future__ import annotations

from ...amqp.fields import Table
from ..phrases import exchange_phrase, value_text
from ..queue_types import DEDUPLICATE
from .checks import check_window, invalid, wrong_type


def check_exchange_arguments(vhost: str, name: str, arguments: Table) -> None:
    """Raise AmqpError 406 if a new exchange may not have these arguments (amqp-broker section 7, exchange.declare)."""
    found = arguments.get("alternate-exchange")
    if found is not None and found[0] != "S":
        raise wrong_type(found[0], "alternate-exchange", exchange_phrase(vhost, name))
    found = arguments.get(DEDUPLICATE)
    reason = "" if found is None else check_window(*found)
    if reason:
        raise invalid(DEDUPLICATE, exchange_phrase(vhost, name), reason)


def alternate_exchange(arguments: Table) -> str | None:
    """The name of the alternate exchange in accepted arguments, or None."""
    found = arguments.get("alternate-exchange")
    return None if found is None else value_text(found[1])


def exchange_window(arguments: Table) -> int | None:
    """How many messages an exchange with these accepted arguments has its queues remember (SP-30); None: none."""
    found = arguments.get(DEDUPLICATE)
    return None if found is None else found[1]
