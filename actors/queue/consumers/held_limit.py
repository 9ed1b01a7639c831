"""`HeldLimit`: how much one consumer may hold without having acknowledged it, beside its prefetch (QP-115).

There are three limits: the number of messages, the bytes of their bodies, and the *span*, which is how far the next
message may be from the lowest one that the consumer holds. The broker checks them before each delivery, and an
acknowledgement lets the consumer get messages again. A consumer with no-ack holds nothing, so it has no such limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ....routing.arguments.consumer_arguments import max_unacked_bytes, max_unacked_span
from ....routing.arguments.queue_settings import QueueSettings
from ....runtime.turn_work import STEP
from ....store.messages.message import QueuedMessage, body_size
from .consumer import ChannelRecord, Consumer, Limit
from .consumers import Consumers

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices

#: Room of a consumer whose limit does not hold it back.
UNBOUNDED = 1 << 62


class Bounds(NamedTuple):
    """The limits of one consumer; 0 is none."""

    messages: int
    body_bytes: int
    span: int


def bounds_of(consumer: Consumer, settings: QueueSettings) -> Bounds:
    """The smaller of the limits in the consumer's arguments and in the policy of its queue."""
    if consumer.no_ack:
        return Bounds(0, 0, 0)
    arguments = consumer.arguments
    return Bounds(
        settings.consumer_max_unacked,
        _smaller(max_unacked_bytes(arguments), settings.consumer_max_bytes),
        # Each level of a queue with priorities numbers its messages by itself, so the distance between two numbers
        # means nothing.
        _smaller(max_unacked_span(arguments), settings.consumer_max_span) if settings.is_one_line else 0,
    )


def _smaller(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other


class HeldLimit(Limit):
    """The limit of one consumer. `head` returns the next message of the queue; its content is empty if it is on the
    disk. `held` are the ack tags of what the consumer holds already; the bytes of these do not count.
    """

    __slots__ = ("_body_bytes", "_bounds", "_count", "_head", "_sizes", "_tags")

    def __init__(self, bounds: Bounds, head: Callable[[], QueuedMessage | None], held: Iterable[int]) -> None:
        self._bounds = bounds
        self._head = head
        #: Ack tag and body size of each message that the consumer holds.
        self._sizes = dict.fromkeys(held, 0)
        self._body_bytes = 0
        self._count = len(self._sizes)
        #: A heap of these tags, and of tags that were settled since.
        self._tags = list(self._sizes)
        heapify(self._tags)

    @property
    def looks_at_head(self) -> bool:
        return bool(self._bounds.body_bytes or self._bounds.span)

    def apply(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def room(self) -> int:
        bounds = self._bounds
        room = bounds.messages - self._count if bounds.messages else UNBOUNDED
        if not self.looks_at_head or room <= 0 or not self._sizes:
            return min(room, 1) if self.looks_at_head else room
        head = self._head()
        return 0 if self._is_too_large(head) or self._is_too_far(head) else 1

    def _is_too_large(self, head: QueuedMessage | None) -> bool:
        size = body_size(head.content) if head is not None and head.content else 1
        return bool(self._bounds.body_bytes) and self._body_bytes + size > self._bounds.body_bytes

    def _is_too_far(self, head: QueuedMessage | None) -> bool:
        if not self._bounds.span or head is None:
            return False
        while self._tags[0] not in self._sizes:
            heappop(self._tags)
        return head.tag - self._tags[0] > self._bounds.span

    def took(self, count: int) -> None:
        self._count += count

    def delivered(self, tags: Sequence[int], contents: Sequence[bytes]) -> None:
        for tag, content in zip(tags, contents):
            size = body_size(content)
            self._sizes[tag] = size
            self._body_bytes += size
            heappush(self._tags, tag)

    def settled(self, tags: Sequence[int]) -> None:
        self._count -= len(tags)
        for tag in tags:
            self._body_bytes -= self._sizes.pop(tag, 0)
        if not self._sizes:
            self._tags.clear()

    def blocked_by(self) -> str:
        if self.room() > 0:
            return ""
        if self._bounds.messages and self._count >= self._bounds.messages:
            return "count"
        return "bytes" if self._is_too_large(self._head()) else "span"


def sets_bounds(settings: QueueSettings) -> bool:
    """Whether the policy of a queue limits what its consumers hold. Their arguments may limit it as well."""
    return bool(settings.consumer_max_unacked or settings.consumer_max_bytes or settings.consumer_max_span)


def give_limits(
    consumers: Consumers, settings: QueueSettings, head: Callable[[], QueuedMessage | None]
) -> Slices[None]:
    """Give the consumers the limits that their arguments and the settings of the queue ask for (QP-115)."""
    held: dict[Consumer, list[int]] = {}
    channels: dict[ChannelRecord, None] = {}
    for number, consumer in enumerate(consumers, 1):
        if consumer.limit is None:
            channels[consumer.channel] = None
        if number % STEP == 0:
            yield
    messages = chain.from_iterable(zip(channel.pending, channel.pending.owners()) for channel in channels)
    for number, (tag, owner) in enumerate(messages, 1):
        if isinstance(owner, Consumer) and owner.limit is None:
            held.setdefault(owner, []).append(tag)
        if number % STEP == 0:
            yield

    def change(consumer: Consumer) -> None:
        bounds = bounds_of(consumer, settings)
        if not any(bounds):
            consumer.limit = None
        elif type(consumer.limit) is HeldLimit:
            consumer.limit.apply(bounds)
        else:
            consumer.limit = HeldLimit(bounds, head, held.pop(consumer, ()))

    yield from consumers.set_bounds(change)
