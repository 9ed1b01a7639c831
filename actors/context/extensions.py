"""Extensions of an embedded broker: objects that observe, and may change, what it does (AB-80).

    Broker(extensions=[Audit(), Quarantine()])

An extension derives from `ChannelInterceptor`, `ExchangeDecorator` or `QueueDecorator`, or from several of them, and
overrides their methods. The broker calls these methods on its own thread, in the process that does the work. They must
return at once, and they must not call the `Broker`, because that call would wait for itself.

`intercept` and `route` may raise AmqpError to refuse what the client asked for, except in the `route` of a dead letter,
which no client waits for. The other methods only observe and cannot refuse anything. Any other exception ends the
process in which it is raised, like an error of the broker itself: a channel closes its connection with 541, a queue is
restarted, and `Metadata` takes the broker down with it.

Messages cost nothing more on a broker without extensions: a channel puts interceptors in front of its handlers once,
when it opens, and decorators add their destinations when a route is computed, which is then cached.
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
    """One of the objects is no extension, or two extensions exclude each other. The text names them and the reason."""


class Place(NamedTuple):
    """Where a client's method came from: `connection` is the connection's name, `channel` the channel's number."""

    vhost: str
    user: str
    connection: str
    channel: int


class Content(NamedTuple):
    """The message that belongs to a method."""

    properties: Properties
    body: bytes


class ChannelInterceptor:
    """Rewrites methods that clients send.

    Before the call the broker checks that the state of the channel allows the method. The checks of arguments and
    permissions follow, on the method that the interceptor returns.
    """

    #: The methods to intercept. No two interceptors may list the same one.
    methods: tuple[type[Method], ...] = ()

    def intercept(self, place: Place, method: Method, content: Content | None) -> tuple[Method, Content | None]:
        """The method to handle instead, of the same type, and its content if it has one.

        The interceptor may change and return the arguments. It is called for each message of basic.publish, except for
        messages that exceed `max_message_size` when they arrive.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Extensions:
    """All extensions of a node by kind, made with `of`. Decorators keep the order in which they were given."""

    interceptors: Mapping[type[Method], ChannelInterceptor]
    exchange_decorators: tuple[ExchangeDecorator, ...]
    queue_decorators: tuple[QueueDecorator, ...]

    @classmethod
    def of(cls, given: Iterable[object]) -> Extensions:
        """Sort the objects by kind.

        Raises ExtensionError for an object that is not an extension, for two interceptors of one method, and for an
        interceptor of a method that no client sends on an open channel.
        """
        given = tuple(given)
        interceptors: dict[type[Method], ChannelInterceptor] = {}
        for extension in given:
            if not isinstance(extension, (ChannelInterceptor, ExchangeDecorator, QueueDecorator)):
                raise ExtensionError(
                    f"{extension!r} is not an extension; derive its class from ChannelInterceptor, ExchangeDecorator "
                    "or QueueDecorator"
                )
            if isinstance(extension, ChannelInterceptor):
                for method in extension.methods:
                    if method not in CLIENT_METHODS or method is ChannelOpen:
                        raise ExtensionError(
                            f"{extension!r} cannot intercept {method!r}: clients do not send this method on an open "
                            "channel; remove it from `methods`"
                        )
                    other = interceptors.setdefault(method, extension)
                    if other is not extension:
                        raise ExtensionError(
                            f"{method.NAME} has two interceptors, {other!r} and {extension!r}; only one is allowed"
                        )
        return cls(
            interceptors,
            tuple(extension for extension in given if isinstance(extension, ExchangeDecorator)),
            tuple(extension for extension in given if isinstance(extension, QueueDecorator)),
        )


NO_EXTENSIONS = Extensions({}, (), ())
