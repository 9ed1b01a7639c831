"""Decorators of exchanges and queues: the extension points that an embedding program overrides to add routes and to follow changes (AB-80).

The routing table calls exchange decorators and each queue process calls queue decorators. Both calls happen on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..amqp.errors import AmqpError
from ..amqp.fields import Table
from .destinations import Destination
from .exchange_types import Binding
from .rows import ExchangeRow, QueueRow


class ExchangeDecorator:
    """Adds destinations to exchanges, and hears of them."""

    def route(
        self, exchange: ExchangeRow, routing_keys: tuple[str, ...], headers: Table | None
    ) -> Iterable[Destination]:
        """Where a message shall go besides, each `('queue', name)` or `('exchange', name)`; what does not exist is passed over.

        Asked for every exchange that a message reaches but the default one. They do not count as the exchange's own: where there are no others its alternate exchange gets
        the message too (AB-76). The answer must follow from the arguments: it is remembered for messages that equal in them until an exchange, queue or binding changes.
        """
        return ()

    def created(self, exchange: ExchangeRow) -> None:
        """There is a new exchange: declared, predefined, or found in the data directory."""

    def deleted(self, exchange: ExchangeRow) -> None:
        """An exchange is gone; its bindings have gone before."""

    def bound(self, vhost: str, binding: Binding) -> None:
        """There is a new binding."""

    def unbound(self, vhost: str, binding: Binding) -> None:
        """A binding is gone, by itself or with its source or destination."""


class QueueDecorator:
    """Hears of queues."""

    def started(self, queue: QueueRow) -> None:
        """The process of a queue runs: it was declared, found in the data directory, or is restarted after a crash."""

    def stopped(self, queue: QueueRow) -> None:
        """The process of a queue ends, for whatever reason; an error here is only logged."""

    def consumers_changed(self, queue: QueueRow, consumers: list[dict[str, Any]]) -> None:
        """Consumers came or went. `consumers` are those there are, with `rabbitmqctl list_consumers`' names: consumer_tag, ack_required, active, user …"""


def notify(hear: Callable[..., None], *news: Any) -> None:
    """Call a method that hears. RuntimeError if it raises AmqpError, which would be answered to a client although the change is in force."""
    try:
        hear(*news)
    except AmqpError as error:
        raise RuntimeError(f"{hear!r} can refuse nothing") from error
