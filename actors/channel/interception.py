"""`Interception`: puts the interceptors of an embedding program in front of the handlers of a channel (AB-80).

A channel with interceptors replaces its handlers when it starts; a channel without them does not use this module.
Publishes and acknowledgements arrive in batches and have handlers of their own; the table of handlers has all other
methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ...amqp import methods
from ...amqp.decoding import decode_method
from ...amqp.frames import build_content, content_body, content_properties
from ...amqp.method import Method
from ...amqp.parser.events import Expirations
from ...amqp.parser.skimmer import fate
from ...amqp.properties import decode_properties, encode_properties
from ..context.extensions import ChannelInterceptor, Content, Place
from ..contracts.channel import ChannelConfig

C = TypeVar("C")
M = TypeVar("M", bound=Method)

#: Handles a method on the channel `C`; returns what it waits for, None if it is done.
Handler = Callable[[C, M], "Awaitable[None] | None"]
#: Takes the method payload or payloads, the fate, contents, body bytes and expirations of a run.
Publish = Callable[["bytes | Sequence[bytes]", bytes, Sequence[bytes], int, Expirations], None]
#: Takes consecutive basic.ack, each a delivery tag and whether it is multiple; returns what it waits for, None if it is
#: done.
Acknowledge = Callable[[list[tuple[int, bool]]], "Awaitable[None] | None"]


class Interception:
    """The interceptors of one channel.

    Its handlers raise TypeError for an interceptor that turns a method into one of another type, or that drops or adds
    a content: that is a fault of the extension.
    """

    def __init__(self, config: ChannelConfig, interceptors: Mapping[type[Method], ChannelInterceptor]) -> None:
        self._config = config
        self._interceptors = interceptors
        self._place = Place(config.vhost, config.user, config.connection_name, config.number)

    def handlers(self, handlers: Mapping[type[Method], Handler[C, M]]) -> dict[type[Method], Handler[C, M]]:
        """The table of handlers with the interceptors in front."""
        return {
            kind: self._before(handler) if kind in self._interceptors else handler for kind, handler in handlers.items()
        }

    def _before(self, handler: Handler[C, M]) -> Handler[C, M]:
        return lambda channel, method: handler(channel, self._rewrite(method, None)[0])

    def publish(self, publish: Publish) -> Publish:
        """`publish` with the interceptor of basic.publish in front, which is called for each message."""
        if methods.BasicPublish not in self._interceptors:
            return publish

        def rewrite(
            method_payloads: bytes | Sequence[bytes],
            key: bytes,
            contents: Sequence[bytes],
            body_bytes: int,
            expirations: Expirations,
        ) -> None:
            count = len(contents)
            payloads = [method_payloads] * count if isinstance(method_payloads, bytes) else method_payloads
            for payload, content in zip(payloads, contents):
                properties = decode_properties(content_properties(content))
                method, new = self._rewrite(decode_method(payload), Content(properties, content_body(content)))
                assert new is not None
                new_props = encode_properties(new.properties)
                rebuilt = build_content(self._config.number, new_props, new.body, self._config.frame_max)
                new_key, expiration = fate(new_props)
                publish(method.encode(), new_key, [rebuilt], len(new.body), expiration)

        return rewrite

    def acknowledge(self, acknowledge: Acknowledge) -> Acknowledge:
        """`acknowledge` with the interceptor of basic.ack in front."""
        if methods.BasicAck not in self._interceptors:
            return acknowledge

        def rewrite(acks: list[tuple[int, bool]]) -> Awaitable[None] | None:
            for at, (delivery_tag, is_multiple) in enumerate(acks):
                method, _ = self._rewrite(methods.BasicAck(delivery_tag, is_multiple), None)
                waiting = acknowledge([(method.delivery_tag, method.multiple)])
                if waiting is not None:
                    return go_on(waiting, acks[at + 1 :])
            return None

        async def go_on(waiting: Awaitable[None] | None, acks: list[tuple[int, bool]]) -> None:
            if waiting is not None:
                await waiting
            waiting = rewrite(acks)
            if waiting is not None:
                await waiting

        return rewrite

    def _rewrite(self, method: M, content: Content | None) -> tuple[M, Content | None]:
        interceptor = self._interceptors[type(method)]
        new, new_content = interceptor.intercept(self._place, method, content)
        if type(new) is not type(method) or (new_content is None) is not (content is None):
            raise TypeError(
                f"{interceptor!r} returned {new!r} for a {method.NAME}: it must return a method of the same type, and "
                "a content if and only if it was given one"
            )
        return new, new_content
