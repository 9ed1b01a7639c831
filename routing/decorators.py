"""Decorators of exchanges and queues (AB-80).

An embedding program overrides their methods to add routes and to observe changes. The routing table calls the exchange
decorators, and each queue process calls the queue decorators, all on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from ..amqp.errors import AmqpError
from ..amqp.fields import Table
from .changes import BindingAdded, BindingRemoved, Change, ExchangePut, ExchangeRemoved
from .destinations import Destination
from .rows import Binding, ExchangeRow, QueueRow


class ExchangeDecorator:
    """Adds destinations to exchanges, and is notified of changes to exchanges and bindings."""

    def route(
        self, exchange: ExchangeRow, routing_keys: tuple[str, ...], headers: Table | None
    ) -> Iterable[Destination]:
        """More destinations for a message, each `('queue', name)` or `('exchange', name)`. Missing ones are ignored.

        The table calls this for every exchange that a message reaches, except the default exchange. The result does not
        count as destinations of the exchange itself: if it has no others, its alternate exchange gets the message too
        (AB-76). The result must depend on the arguments only, because it is cached for messages with equal arguments
        until an exchange, queue or binding changes.
        """
        return ()

    def created(self, exchange: ExchangeRow) -> None:
        """An exchange was added: it was declared, is predefined, or was found in the data directory."""

    def deleted(self, exchange: ExchangeRow) -> None:
        """An exchange was removed. Its bindings were removed before."""

    def bound(self, vhost: str, binding: Binding) -> None:
        """A binding was added."""

    def unbound(self, vhost: str, binding: Binding) -> None:
        """A binding was removed, alone or together with its source or destination."""


class QueueDecorator:
    """Is notified of changes to queues."""

    def started(self, queue: QueueRow) -> None:
        """The process of a queue runs: the queue was declared, found in the data directory, or restarted."""

    def stopped(self, queue: QueueRow) -> None:
        """The process of a queue ends, for whatever reason. An exception raised here is only logged."""

    def consumers_changed(self, queue: QueueRow, consumers: list[dict[str, Any]]) -> None:
        """Consumers were added or removed.

        `consumers` are the present ones, with the names of `rabbitmqctl list_consumers`: consumer_tag, ack_required,
        active, user …
        """


def notify_of(decorator: ExchangeDecorator, change: Change) -> None:
    """Notify a decorator of a change of exchanges or bindings, which is in force. See `notify`."""
    if isinstance(change, BindingAdded):
        notify(decorator.bound, change.vhost, change.binding)
    elif isinstance(change, BindingRemoved):
        notify(decorator.unbound, change.vhost, change.binding)
    elif isinstance(change, ExchangePut):
        notify(decorator.created, change.row)
    elif isinstance(change, ExchangeRemoved):
        notify(decorator.deleted, change.row)


def notify(method: Callable[..., None], *arguments: Any) -> None:
    """Call a decorator's method. RuntimeError if it raises AmqpError.

    An AmqpError would be reported to the client as a refusal, although the change is already in force.
    """
    try:
        method(*arguments)
    except AmqpError as error:
        raise RuntimeError(f"{method!r} raised {error!r}, but a notification cannot refuse a change") from error


def notify_stopped(decorators: Sequence[QueueDecorator], queue: QueueRow) -> None:
    """Notify all decorators that the process of a queue ends, also if one raises an exception, which is raised then."""
    with ExitStack() as calls:
        for decorator in reversed(decorators):
            calls.callback(notify, decorator.stopped, queue)
