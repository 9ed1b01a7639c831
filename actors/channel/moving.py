"""`MessageMoving`: takes messages out of one queue and publishes them to another, over the channel of a `DirectClient`.

    basic.get, basic.publish  -->  basic.ack of the publish    -->  basic.ack of the delivery
                              -->  basic.return or basic.nack  -->  basic.nack, which requeues the message

A message is acknowledged in its queue only when the other queue has confirmed it. So whenever this ends, even by a
crash of the node, each message is in one of the two queues, or in both. Up to `WINDOW` messages are in flight,
because a confirm may have to wait for the disk.

The first refusal ends it: no more messages are fetched, and those that were not confirmed return to their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.frames import build_content
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, RUN, Event
from ...amqp.parser.skimmer import fate
from ..contracts.channel import Moved

if TYPE_CHECKING:
    from collections.abc import Callable

#: Messages in flight, and bytes of their bodies from which on no further message is fetched.
WINDOW, WINDOW_BYTES = 100, 4 << 20

REFUSED = "queue '{}' has refused a message"
RETURNED = "queue '{}' does not exist any more"


class MessageMoving:
    """Moves up to `count` messages from the queue `source` to the queue `destination`.

    number      of the channel
    published   how many messages were published on the channel before
    send        sends an event to the channel
    may_send    returns whether the channel has credit left for a publish
    """

    __slots__ = (
        "_body_bytes",
        "_count",
        "_destination",
        "_failure",
        "_fetched",
        "_frame_max",
        "_get",
        "_in_flight",
        "_is_empty",
        "_is_getting",
        "_is_returned",
        "_left",
        "_may_send",
        "_moved",
        "_number",
        "_published",
        "_requeued",
        "_send",
    )

    def __init__(
        self,
        source: str,
        destination: str,
        count: int,
        number: int,
        frame_max: int,
        published: int,
        send: Callable[[Event], None],
        may_send: Callable[[], bool],
    ) -> None:
        self._get: Event = (METHOD, number, methods.BasicGet(0, source, False))
        self._destination = destination
        self._count = count
        self._number = number
        self._frame_max = frame_max
        self._published = published
        self._send = send
        self._may_send = may_send
        #: By the number of its publish: the delivery tag of a message and the size of its body.
        self._in_flight: dict[int, tuple[int, int]] = {}
        self._body_bytes = self._fetched = self._moved = 0
        #: Ready messages behind the last fetch, which was sent before any message was requeued; and those requeued.
        self._left = self._requeued = 0
        self._is_getting = self._is_empty = self._is_returned = False
        self._failure = ""

    def go_on(self) -> bool:
        """Fetch the next message if there should be one. Return whether everything is over."""
        is_full = len(self._in_flight) >= WINDOW or self._body_bytes >= WINDOW_BYTES
        may_fetch = not (self._is_getting or self._is_empty or self._failure or is_full)
        if may_fetch and self._fetched < self._count and (not self._in_flight or self._may_send()):
            self._is_getting = True
            self._send(self._get)
        return not self._is_getting and not self._in_flight

    def fetched(self, method: methods.BasicGetOk, props: bytes, body: bytes) -> None:
        """Publish a message that the queue has given, with the properties that it has."""
        self._is_getting = False
        self._left = method.message_count
        if self._failure:
            self._requeue(method.delivery_tag)
            return
        self._fetched += 1
        self._published += 1
        self._in_flight[self._published] = method.delivery_tag, len(body)
        self._body_bytes += len(body)
        # Mandatory: a basic.return tells that the other queue was deleted meanwhile.
        publish = methods.BasicPublish(0, "", self._destination, True, False).encode()
        content = build_content(self._number, props, body, self._frame_max)
        key, expiration = fate(props)
        self._send((RUN, self._number, publish, key, [content], len(body), expiration))

    def replied(self, method: Method) -> None:
        """Take what the channel replies to a fetch from an empty queue or to a publish."""
        if isinstance(method, methods.BasicGetEmpty):
            self._is_getting, self._is_empty = False, True
            self._left = 0
        elif isinstance(method, methods.BasicReturn):
            self._is_returned = True
            self._failure = RETURNED.format(self._destination)
        elif isinstance(method, methods.BasicAck):
            settled = self._settled(method.delivery_tag, method.multiple)
            if self._is_returned:
                # A return comes before the confirm of its message, but does not say which of them it is.
                self._requeue(*settled)
            elif settled:
                self._moved += len(settled)
                self._send((ACKS, self._number, [(tag, False) for tag in settled]))
        elif isinstance(method, methods.BasicNack):
            self._failure = REFUSED.format(self._destination)
            self._requeue(*self._settled(method.delivery_tag, method.multiple))

    def result(self) -> Moved:
        return Moved(self._moved, self._left + self._requeued, self._failure)

    def _settled(self, number: int, is_multiple: bool) -> list[int]:
        """Take out the publish of this number, or all up to it, and return the delivery tags of their messages."""
        numbers = [each for each in self._in_flight if each <= number] if is_multiple else [number]
        found = [self._in_flight.pop(each) for each in numbers if each in self._in_flight]
        self._body_bytes -= sum([size for _, size in found])
        return [tag for tag, _ in found]

    def _requeue(self, *tags: int) -> None:
        self._requeued += len(tags)
        for tag in tags:
            self._send((METHOD, self._number, methods.BasicNack(tag, False, True)))
