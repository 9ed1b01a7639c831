"""Extension points: objects given to an embedded broker that see, and may change, what it does (AB-80).

    Broker(extensions=[Audit(), Quarantine()])

An extension derives from one or more of the three classes here and overrides what it wants. Its methods are called on the broker's own thread, in the process that
does the work: they must return at once, and must not call the `Broker`, which would wait for itself. Methods that *decide* (`intercept`, `route`) may raise AmqpError:
what the client asked for is refused with it. Methods that *hear* are told what has happened and can refuse nothing. Whatever else is raised ends the process it is raised
in, as any fault there would: a channel (its client's connection is closed with 541), a queue (it is restarted), or Metadata, and with that the broker. In `route` of a dead
letter an AmqpError is such a fault too: there is no client to refuse it to.

Where there is none of a kind nothing is spent on it: handlers are replaced when a channel opens, and routes are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...amqp.channel_state import CLIENT_METHODS
from ...amqp.method import Method
from ...amqp.methods import ChannelOpen
from ...amqp.properties import Properties
from ...routing.decorators import ExchangeDecorator, QueueDecorator


class ExtensionError(ValueError):
    """Extensions that cannot be used, or not together; the text says which and why."""


class Place(NamedTuple):
    """Where a method came from: `connection` is the connection's name, `channel` the channel's number."""

    vhost: str
    user: str
    connection: str
    channel: int


class Content(NamedTuple):
    """A message that came with a method."""

    properties: Properties
    body: bytes


class ChannelInterceptor:
    """Rewrites methods of clients, before anything is checked but that they may come now. `methods` are those it is called for; no two interceptors share one."""

    methods: tuple[type[Method], ...] = ()

    def intercept(self, place: Place, method: Method, content: Content | None) -> tuple[Method, Content | None]:
        """The method, and its content if it has one, that shall be handled instead; the type of the method stays.

        Both are the interceptor's to change. It is called for each message of basic.publish but those that are too large when they arrive (`max_message_size`).
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Extensions:
    """All extensions of a node by kind, made with `of`; decorators in the order given."""

    interceptors: Mapping[type[Method], ChannelInterceptor]
    exchange_decorators: tuple[ExchangeDecorator, ...]
    queue_decorators: tuple[QueueDecorator, ...]

    @classmethod
    def of(cls, given: Iterable[object]) -> Extensions:
        """Raises ExtensionError for an object of no kind, for two interceptors of one method, and for a method that no client sends on an open channel."""
        given = tuple(given)
        interceptors: dict[type[Method], ChannelInterceptor] = {}
        for extension in given:
            if not isinstance(extension, (ChannelInterceptor, ExchangeDecorator, QueueDecorator)):
                raise ExtensionError(
                    f"{extension!r} is no extension: it must be an object of a ChannelInterceptor, ExchangeDecorator or QueueDecorator"
                )
            if isinstance(extension, ChannelInterceptor):
                for method in extension.methods:
                    if method not in CLIENT_METHODS or method is ChannelOpen:
                        raise ExtensionError(
                            f"{extension!r} cannot intercept {method!r}: it is no method that a client sends on an open channel"
                        )
                    other = interceptors.setdefault(method, extension)
                    if other is not extension:
                        raise ExtensionError(
                            f"{method.NAME} has two interceptors, {other!r} and {extension!r}; one is the most"
                        )
        return cls(
            interceptors,
            tuple(extension for extension in given if isinstance(extension, ExchangeDecorator)),
            tuple(extension for extension in given if isinstance(extension, QueueDecorator)),
        )


NO_EXTENSIONS = Extensions({}, (), ())
