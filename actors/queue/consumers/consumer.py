"""One consumer of a queue, its channel, and what bounds how many messages it can take (AB-121 to AB-128, FC-32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ....runtime.credit import ACROSS_LINKS
from ....seams import seam
from ...contracts.channel import SMALL_CONTENT
from .pending_tags import NOT_PENDING, PendingTags

if TYPE_CHECKING:
    from ....amqp.fields import Table
    from ....runtime.contract import Address
    from ...contracts.channel import DeliveryRun, ToChannel
    from ...contracts.info_items import InfoItems

#: Deliveries that a channel may have from one queue without having written them to its socket (FC-32).
UNSENT_LIMIT = 200

#: The same as long as the contents are small (`SMALL_CONTENT`): as many as a channel may publish at once by its credit
#: (FC-1), so that a batch goes to the consumer whole. With the lower limit, the rest of a batch was stored, fetched and
#: sent separately, which doubled the cost of a message of 100 bytes.
UNSENT_LIMIT_SMALL = 400

#: The same for a channel of another node, as long as the contents are small. See `ACROSS_LINKS`.
UNSENT_LIMIT_ACROSS_LINKS = UNSENT_LIMIT * ACROSS_LINKS


@dataclass(slots=True, eq=False)
class ChannelRecord:
    """A channel that consumes from this queue, took messages from it with basic.get, or publishes to it."""

    channel_id: str
    address: Address[ToChannel]
    #: The user of the channel's connection; empty until the first publish, which carries the name.
    user: str = ""
    #: The channel may have sent publishes below this number to an earlier master, which may have delivered them.
    repeated_below: int = 0
    #: Deliveries sent to the channel that its connection has not reported as written to the socket.
    unsent: int = 0
    #: How many deliveries may be unsent. 0 while the link to a channel of another node is full.
    unsent_limit: int = UNSENT_LIMIT_SMALL
    #: Whether the channel is on another node.
    is_elsewhere: bool = False
    #: The channel has a channel-wide prefetch: its limiter must grant each delivery.
    is_limited: bool = False
    #: Deliveries that the limiter granted and that are not used yet.
    granted: int = 0
    #: A `limiter_request` is not answered yet.
    is_grant_requested: bool = False
    #: Ack tag of each unacknowledged message, with its consumer; None: basic.get took the message.
    pending: PendingTags[Consumer | None] = field(default_factory=PendingTags)
    #: The channel's consumers of this queue.
    consumers: dict[Consumer, None] = field(default_factory=dict)
    #: The consumers among them that are set aside, in the order in which that happened.
    set_aside: dict[Consumer, None] = field(default_factory=dict)
    #: The channel has ended, so it is no longer among the queue's channels.
    has_ended: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the channel must report written deliveries before it gets more (FC-32)."""
        return self.unsent >= self.unsent_limit

    def adapt_limit(self, runs: list[DeliveryRun]) -> None:
        """Adapt the limit to the size of what is sent, unless the link to the channel is full."""
        if not self.unsent_limit:
            return
        if len(runs[0][3][0]) > SMALL_CONTENT:
            self.unsent_limit = UNSENT_LIMIT
        else:
            self.unsent_limit = UNSENT_LIMIT_ACROSS_LINKS if self.is_elsewhere else UNSENT_LIMIT_SMALL

    def drop_consumers(self) -> None:
        """Drop all references to consumers, which refer back to this record, because the queue ends: only then
        reference counting frees the record and its consumers.
        """
        self.pending.clear()
        self.consumers.clear()
        self.set_aside.clear()

    def take_pending(self, tags: Sequence[int]) -> Sequence[int]:
        """Remove settled tags from `pending` and count them at their consumers. Returns those that were pending."""
        owners = self.pending.take(tags)
        first = owners[0]
        if owners.count(first) == len(owners):
            if isinstance(first, Consumer):
                first.settled(tags)
            return [] if first is NOT_PENDING else tags
        for tag, owner in zip(tags, owners):
            if isinstance(owner, Consumer):
                owner.settled((tag,))
        if NOT_PENDING in owners:
            tags = [tag for tag, owner in zip(tags, owners) if owner is not NOT_PENDING]
        return tags


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer. Its identity is its channel and its tag."""

    channel: ChannelRecord
    tag: str
    no_ack: bool
    exclusive: bool
    #: 0: unlimited.
    prefetch: int
    priority: int
    arguments: Table
    user: str
    #: Deliveries that await an ack; those to a `no_ack` consumer do not count.
    unacked: int = 0
    #: All messages that it was ever given, for listings.
    delivered: int = 0
    #: What bounds it beside prefetch, socket and limiter. `Consumers` makes a consumer with a gate or a limit a
    #: `GatedConsumer` (`add`, `set_bounds`).
    gate: ConsumerGate | None = None
    limit: Limit | None = None

    @property
    @seam("how many messages a consumer can take")
    def capacity(self) -> int:
        """How many messages it can take now."""
        channel = self.channel
        room = channel.unsent_limit - channel.unsent
        if channel.is_limited and channel.granted < room:
            room = channel.granted
        if self.prefetch and not self.no_ack and self.prefetch - self.unacked < room:
            room = self.prefetch - self.unacked
        return room

    @property
    def awaits_gate(self) -> bool:
        """Whether only its gate keeps it from taking a message, or from asking for a grant."""
        return False

    @property
    def is_bounded(self) -> bool:
        """Whether it has a prefetch of its own."""
        return self.prefetch > 0 and not self.no_ack

    @property
    def awaits_grant(self) -> bool:
        """Whether only the limiter of its channel keeps it from taking a message."""
        channel = self.channel
        return (
            channel.is_limited
            and channel.granted <= 0
            and not channel.is_full
            and (not self.prefetch or self.no_ack or self.unacked < self.prefetch)
        )

    def took(self, count: int) -> None:
        """Count `count` messages that the consumer is given."""
        channel = self.channel
        self.delivered += count
        channel.unsent += count
        if channel.is_limited:
            channel.granted -= count
        if not self.no_ack:
            self.unacked += count

    def settled(self, tags: Sequence[int]) -> None:
        """Note that messages that the consumer had were acknowledged, rejected or requeued."""
        self.unacked -= len(tags)

    @property
    def blocked_by(self) -> str:
        """What keeps it from taking a message, for listings (QP-116); empty if nothing does."""
        if self.prefetch and not self.no_ack and self.unacked >= self.prefetch:
            return "prefetch"
        return "credit" if self.channel.is_full else ""

    def info_items(self, queue: str, vhost: str, is_active: bool, activity_status: str) -> InfoItems:
        """Its row in listings (AB-176); `queue` and `vhost` are names."""
        return {
            "queue_name": queue,
            "vhost": vhost,
            "channel": self.channel.channel_id,
            "consumer_tag": self.tag,
            "ack_required": not self.no_ack,
            "exclusive": self.exclusive,
            "prefetch_count": self.prefetch,
            "priority": self.priority,
            "active": is_active,
            "activity_status": activity_status,
            "arguments": self.arguments,
            "user": self.user,
            "blocked_by": self.blocked_by,
            "unacked": self.unacked,
            "delivered": self.delivered,
        }


class ConsumerGate(Protocol):
    """Bounds what one consumer, or several together, can take. A policy or an argument asks for it."""

    def room(self) -> int:
        """How many messages may be delivered now."""

    def delivered(self, count: int) -> None:
        """Note that this many messages were delivered to the consumer."""


class Limit(Protocol):
    """A limit on the unacknowledged messages of one consumer: their count, bytes or span of numbers (QP-115)."""

    @property
    def looks_at_head(self) -> bool:
        """Whether the room depends on the next message of the queue, and is never more than 1."""

    def room(self) -> int:
        """How many messages the consumer may be given now."""

    def took(self, count: int) -> None:
        """Note that the consumer will get this many messages. `delivered` follows, with these messages."""

    def delivered(self, tags: Sequence[int], contents: Sequence[bytes]) -> None:
        """Note that these messages were delivered to the consumer."""

    def settled(self, tags: Sequence[int]) -> None:
        """Note that these messages were acknowledged, rejected or requeued."""

    def blocked_by(self) -> str:
        """Which limit leaves no room; empty if none does."""


class GatedConsumer(Consumer):
    """A consumer with a gate or a limit. It is a class of its own so that others do not ask whether they have one."""

    __slots__ = ()

    @property
    def _limit_room(self) -> int:
        return 1 if self.limit is None else self.limit.room()

    @property
    def _room(self) -> int:
        room = None if self.limit is None else self.limit.room()
        if self.gate is None:
            assert room is not None
            return room
        return self.gate.room() if room is None else min(room, self.gate.room())

    @property
    def blocked_by(self) -> str:
        blocked_by = super().blocked_by
        if not blocked_by and self.limit is not None:
            blocked_by = self.limit.blocked_by()
        if not blocked_by and self.gate is not None and self.gate.room() <= 0:
            return "pace"
        return blocked_by

    def settled(self, tags: Sequence[int]) -> None:
        super().settled(tags)
        if self.limit is not None:
            self.limit.settled(tags)

    @property
    def capacity(self) -> int:
        return min(super().capacity, self._room)

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def awaits_grant(self) -> bool:
        return super().awaits_grant and self._room > 0

    @property
    def awaits_gate(self) -> bool:
        if self.gate is None or self.gate.room() > 0 or self._limit_room <= 0:
            return False
        return super().capacity > 0 or super().awaits_grant

    def took(self, count: int) -> None:
        super().took(count)
        if self.gate is not None:
            self.gate.delivered(count)
        if self.limit is not None:
            self.limit.took(count)
