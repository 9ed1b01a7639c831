"""What a channel does otherwise when there are interceptors (AB-80): each method they want goes to them first, then on as they rewrote it.

Set up when the channel opens, by replacing handlers; a channel without interceptors never comes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.decoding import decode_method
from ...amqp.frames import build_content, content_body
from ...amqp.method import Method
from ...amqp.properties import decode_properties, encode_properties
from ..node.extensions import ChannelInterceptor, Content, Place

if TYPE_CHECKING:
    from .process import Channel

Handler = Callable[["Channel", Any], "Awaitable[None] | None"]


class Interception:
    """The interceptors of one channel. TypeError if one makes another method of a method, or takes or adds a content: that is a fault of its own."""

    def __init__(self, channel: Channel, interceptors: Mapping[type[Method], ChannelInterceptor]) -> None:
        self.channel = channel
        self.interceptors = interceptors
        self.place = Place(channel.vhost, channel.user, channel.connection_name, channel.number)

    def set_up(self) -> None:
        """Publishes and acknowledgements, which come packed, have ways of their own through a channel; all others are in its table."""
        channel, wanted = self.channel, self.interceptors
        if methods.BasicPublish in wanted:
            channel.publish = self._publish
        if methods.BasicAck in wanted:
            channel.acknowledge = self._acknowledge
        channel.handlers = {
            kind: self._intercepted(handler) if kind in wanted else handler
            for kind, handler in channel.handlers.items()
        }

    def _intercepted(self, handler: Handler) -> Handler:
        return lambda channel, method: handler(channel, self._rewritten(method, None)[0])

    def _rewritten(self, method: Method, content: Content | None) -> tuple[Any, Content | None]:
        interceptor = self.interceptors[type(method)]
        new, new_content = interceptor.intercept(self.place, method, content)
        if type(new) is not type(method) or (new_content is None) is not (content is None):
            raise TypeError(
                f"{interceptor!r} may not make {new!r} of a {method.NAME}, and must return a content exactly if it was given one"
            )
        return new, new_content

    def _publish(self, method_payload: bytes, props: bytes, contents: Sequence[bytes], body_bytes: int) -> None:
        channel = self.channel
        for content in contents:
            method, new = self._rewritten(
                decode_method(method_payload), Content(decode_properties(props), content_body(content))
            )
            assert new is not None
            new_props = encode_properties(new.properties)
            rebuilt = build_content(channel.number, new_props, new.body, channel.frame_max)
            channel.publisher.publish(method.encode(), new_props, [rebuilt], len(new.body))

    def _acknowledge(self, outcome: str, delivery_tag: int, multiple: bool) -> None:
        method, _ = self._rewritten(methods.BasicAck(delivery_tag, multiple), None)
        self.channel.subscriptions.settle(outcome, method.delivery_tag, method.multiple)
