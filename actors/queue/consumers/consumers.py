"""The consumers of one queue, and the choice of the consumer that gets the next message (AB-121 to AB-128, FC-32).

Consumers of one priority stand in one line. Messages go round robin to the consumers of the line, one message each; a
lower priority gets messages only while every consumer of the higher ones is set aside. A consumer is **set aside**
while it cannot take a message: its prefetch is used up, its channel has as many deliveries that are not yet written to
the socket as it may have (`UNSENT_LIMIT`), or the limiter of its channel (the channel-wide prefetch) grants no more
deliveries. It enters the end of its line again as soon as it can take one.

The cost of a message does not grow with the number of consumers: sharing out reads only the front of a line, or a whole
line once for at least as many messages as it has consumers.

Pure: this module decides and counts. `Dispatch` fetches the messages and sends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, filterfalse
from typing import TYPE_CHECKING, Protocol

from ....runtime.credit import ACROSS_LINKS
from ....runtime.turn_work import STEP
from ....seams import seam
from ...contracts.channel import SMALL_CONTENT
from .pending_tags import NOT_PENDING, PendingTags

if TYPE_CHECKING:
    from ....amqp.fields import Table
    from ....runtime.contract import Address
    from ....runtime.coroutines import Slices
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

#: A consumer and the messages that it gets: start, stop and step into the messages that are shared out.
Share = tuple["Consumer", int, int, int]


def joined_pieces(pieces: list[Sequence[int]]) -> list[Sequence[int]]:
    """The ack tags of messages that a client settled one by one, out of order, as one piece; other pieces as they are.

    The backing queue sorts a piece into ranges. A thousand messages that were settled in random order are then mostly a
    few ranges, and cost little more than if they had been settled in order. Negative tags are those of readers.
    """
    if sum(map(len, pieces)) > 4 * len(pieces):
        return pieces
    tags = [tag for piece in pieces for tag in piece if tag >= 0]
    return [*([tags] if tags else []), *[piece for piece in pieces if piece[0] < 0]]


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
    #: What bounds it beside prefetch, socket and limiter. Only a `GatedConsumer` has one of these (`set_bounds`).
    gate: Gate | None = None
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
        """Count `count` messages that it was given."""
        channel = self.channel
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
        }


class Gate(Protocol):
    """Bounds what one consumer, or several together, can take. A policy or an argument asks for it."""

    def room(self) -> int:
        """How many messages may be delivered now."""

    def delivered(self, count: int) -> None:
        """Note that so many messages were delivered to the consumer."""


class Limit(Protocol):
    """A limit on the unacknowledged messages of one consumer: their count, bytes or span of numbers (QP-115)."""

    @property
    def looks_at_head(self) -> bool:
        """Whether the room depends on the next message of the queue, and is never more than 1."""

    def room(self) -> int:
        """How many messages the consumer may be given now."""

    def took(self, count: int) -> None:
        """Note that the consumer will get so many messages. `delivered` follows, with these messages."""

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


class Consumers:
    """The consumers of one queue. With `single_active` only the active one is given messages (AB-124)."""

    __slots__ = (
        "_all",
        "_bounded",
        "_counts",
        "_exclusive",
        "_full",
        "_has_gates",
        "_limited",
        "_lines",
        "_no_ack",
        "_only",
        "_priorities",
        "_waits_in_line",
        "active",
        "is_uniform",
        "looks_at_head",
        "single_active",
    )

    def __init__(self, single_active: bool = False) -> None:
        self.single_active = single_active
        self.active: Consumer | None = None
        #: By channel id and tag, in the order in which they came.
        self._all: dict[tuple[str, str], Consumer] = {}
        #: The consumer of a queue that has just one.
        self._only: Consumer | None = None
        #: The consumers that are not set aside, by priority.
        self._lines: dict[int, deque[Consumer]] = {}
        #: The keys of `_lines`, highest first.
        self._priorities: list[int] = []
        #: How many consumers each priority has, set aside or not.
        self._counts: dict[int, int] = {}
        #: How many consumers do not acknowledge, how many are exclusive, and how many have a prefetch of their own.
        self._no_ack = self._exclusive = self._bounded = 0
        #: Whether all acknowledge or none does, so that one fetch may serve several of them.
        self.is_uniform = True
        #: Whether some consumers have gates, which they may share, or limits.
        self._has_gates = False
        #: Whether the room of a consumer depends on the message at the head, as with a limit on bytes. Then one message
        #: is shared out at a time, and the room of all consumers is read again for the next one.
        self.looks_at_head = False
        #: All consumers count as set aside, though they are in their lines: see `_wait_for_one_channel`.
        self._waits_in_line = False
        #: Channels that have consumers and a limiter.
        self._limited: dict[ChannelRecord, None] = {}
        #: Channels whose socket kept one of their consumers from taking a message; some may have room again.
        self._full: dict[ChannelRecord, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all.values())

    @property
    def has_bounds(self) -> bool:
        """Whether a consumer has a gate or a limit, or had one since the queue was last without consumers."""
        return self._has_gates

    def find(self, channel_id: str, tag: str) -> Consumer | None:
        return self._all.get((channel_id, tag))

    def has_exclusive(self) -> bool:
        return self._exclusive > 0

    def can_any_take(self) -> bool:
        """Whether a message would reach a consumer: one can take it, or could if its channel's limiter granted it."""
        if self.single_active or self.looks_at_head:
            return any(consumer.capacity > 0 or consumer.awaits_grant for consumer in self)
        # Consumers that are set aside enter their lines as soon as they can take a message.
        return self._first_line() is not None or any(
            consumer.awaits_grant for channel in self._limited for consumer in channel.consumers
        )

    def awaits_write(self) -> bool:
        """Whether a consumer waits for its socket. Asked after `share` has found no consumer with room."""
        if self.single_active:
            return self.active is not None and self.active.channel.is_full
        full = self._full
        while full:
            channel = next(iter(full))
            if channel.is_full and channel.consumers:
                return True
            del full[channel]
        return False

    def info(self, queue: str, vhost: str) -> Iterator[InfoItems]:
        """A row for each in listings; `queue` and `vhost` are names."""
        for consumer in self:
            is_active = not self.single_active or consumer is self.active
            status = "up" if not self.single_active else "single_active" if is_active else "waiting"
            yield consumer.info_items(queue, vhost, is_active, status)

    # -- coming and going ---------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        channel = consumer.channel
        self._all[channel.channel_id, consumer.tag] = consumer
        self._only = consumer if len(self._all) == 1 else None
        channel.consumers[consumer] = None
        if channel.is_limited:
            self._limited[channel] = None
        self._counts[consumer.priority] = self._counts.get(consumer.priority, 0) + 1
        self._no_ack += consumer.no_ack
        self.is_uniform = self._no_ack in (0, len(self._all))
        self._exclusive += consumer.exclusive
        if consumer.gate is not None or consumer.limit is not None:
            consumer.__class__ = GatedConsumer
            self._has_gates = True
            if consumer.limit is not None:
                self.looks_at_head = self.looks_at_head or consumer.limit.looks_at_head
        self._bounded += consumer.is_bounded
        self._leave_lines()
        if self.single_active:
            if self._is_activated():
                self.active = consumer
        else:
            self._enter_line(consumer)

    def _leave_lines(self) -> None:
        """Set the consumers aside that wait in their lines (`_wait_for_one_channel`)."""
        if self._waits_in_line:
            self._waits_in_line = False
            for line in self._lines.values():
                if line:
                    channel = line[0].channel  # all are of this channel
                    channel.set_aside.update(dict.fromkeys(line))
                    line.clear()
                    if channel.is_full:
                        self._full[channel] = None

    def set_bounds(self, change: Callable[[Consumer], None]) -> Slices[None]:
        """Have `change` give each consumer its gate or limit, and let all that can take a message then return to their
        lines.
        """
        self._leave_lines()
        self._has_gates = looks_at_head = False
        channels: dict[ChannelRecord, None] = {}
        for number, consumer in enumerate(self, 1):
            self._bounded -= consumer.is_bounded
            change(consumer)
            has_bound = consumer.gate is not None or consumer.limit is not None
            consumer.__class__ = GatedConsumer if has_bound else Consumer
            self._bounded += consumer.is_bounded
            self._has_gates = self._has_gates or has_bound
            looks_at_head = looks_at_head or consumer.limit is not None and consumer.limit.looks_at_head
            channels[consumer.channel] = None
            if number % STEP == 0:
                yield
        self.looks_at_head = looks_at_head
        number = 0
        for consumer in chain.from_iterable(tuple(channel.set_aside) for channel in channels):
            if consumer.capacity > 0:
                del consumer.channel.set_aside[consumer]
                self._enter_line(consumer)
            number += 1
            if number % STEP == 0:
                yield

    def resume_all(self) -> None:
        """As `resume`, for all channels."""
        for channel in dict.fromkeys(consumer.channel for consumer in self):
            self.resume(channel)

    @seam("whether a new consumer becomes the single active one")
    def _is_activated(self) -> bool:
        """Whether the consumer that was added last becomes the single active one."""
        return self.active is None

    def remove(self, consumer: Consumer) -> None:
        self._withdraw(consumer.channel, (consumer,))
        self._drop(consumer)

    def remove_all_of(self, channel: ChannelRecord) -> Slices[int]:
        """Remove the consumers of a channel, and return how many there were. None of them gets a message meanwhile."""
        gone = list(channel.consumers)
        count = len(gone)
        self._withdraw(channel, gone)
        while gone:
            self._drop(gone.pop())
            if len(gone) % STEP == 0:
                yield
        return count

    def _withdraw(self, channel: ChannelRecord, gone: Sequence[Consumer]) -> None:
        """Give these consumers of a channel no more messages."""
        if self.single_active:
            if self.active in gone:
                leaving = frozenset(gone)
                # The next by priority, then age: `max` keeps the first of equals.
                others = filterfalse(leaving.__contains__, self)
                self.active = max(others, key=lambda other: other.priority, default=None)
        elif len(gone) == 1:
            if gone[0] in channel.set_aside:
                del channel.set_aside[gone[0]]
            else:
                self._lines[gone[0].priority].remove(gone[0])
        else:
            # A line is searched once for all of them: a thousand consumers of 20,000 would take 50 ms one by one.
            leaving = frozenset(gone)
            channel.set_aside.clear()
            for line in self._lines.values():
                staying = list(filterfalse(leaving.__contains__, line))
                line.clear()
                line.extend(staying)

    def _drop(self, consumer: Consumer) -> None:
        """Forget a consumer that gets no more messages."""
        channel, priority = consumer.channel, consumer.priority
        del self._all[channel.channel_id, consumer.tag]
        self._only = next(iter(self)) if len(self._all) == 1 else None
        if not self._all:
            self._has_gates = self.looks_at_head = False
        del channel.consumers[consumer]
        if not channel.consumers:
            self._limited.pop(channel, None)
            self._full.pop(channel, None)
        self._no_ack -= consumer.no_ack
        self.is_uniform = self._no_ack in (0, len(self._all))
        self._exclusive -= consumer.exclusive
        self._bounded -= consumer.is_bounded
        self._counts[priority] -= 1
        if not self._counts[priority]:
            del self._counts[priority]
            self._lines.pop(priority, None)
            self._priorities = sorted(self._lines, reverse=True)

    def _enter_line(self, consumer: Consumer) -> None:
        line = self._lines.get(consumer.priority)
        if line is None:
            line = self._lines[consumer.priority] = deque()
            self._priorities = sorted(self._lines, reverse=True)
        line.append(consumer)

    def resume(self, channel: ChannelRecord) -> bool:
        """Return consumers of `channel` to their lines if they can take messages again.

        True if one of them can take a message, or could if the channel's limiter granted it or its gate opened.
        """
        if self.single_active:
            active = self.active
            if active is None or active.channel is not channel:
                return False
            return active.capacity > 0 or active.awaits_grant or active.awaits_gate
        if self._waits_in_line and channel.consumers and next(iter(channel.consumers)).capacity > 0:
            self._waits_in_line = False
        if channel.set_aside:
            # The consumer that has waited longest comes first. In the order of their age, the oldest consumer of a
            # channel would get every message that a channel-wide prefetch of 1 lets through.
            for consumer in [consumer for consumer in channel.set_aside if consumer.capacity > 0]:
                del channel.set_aside[consumer]
                self._enter_line(consumer)
        for consumer in channel.consumers:
            if consumer.capacity > 0 or consumer.awaits_grant or consumer.awaits_gate:
                return True
        return False

    def limit_changed(self, channel: ChannelRecord) -> None:
        """The channel has a limiter now, or has none any more."""
        if channel.is_limited and channel.consumers:
            self._limited[channel] = None
        else:
            self._limited.pop(channel, None)

    # -- sharing out --------------------------------------------------------------------------------

    def share(self, count: int) -> tuple[list[Share], int]:
        """Share out up to `count` messages, and count them at the consumers.

        Returns the shares in order, and how many messages, from the first on, they cover. A step other than 1 occurs
        only while `is_uniform`.
        """
        only = self._only
        if only is not None and only.capacity >= count:
            # The usual queue has one consumer: no line is needed.
            only.took(count)
            return [(only, 0, count, 1)], count
        shares: list[Share] = []
        at = 0
        while at < count:
            line = None if self.single_active else self._first_line()
            first = self._active_with_room() if self.single_active else line[0] if line else None
            if first is None:
                break
            size = 1 if line is None else len(line)
            if line is None or size == 1:
                taken = min(count - at, first.capacity)
                shares.append((first, at, at + taken, 1))
                first.took(taken)
                at += taken
                continue
            rounds = (count - at) // size
            if (
                rounds > 1
                and not self._has_gates
                and self.is_uniform
                and all([len(consumer.channel.consumers) == 1 for consumer in line])
            ):
                rounds = min(rounds, min([consumer.capacity for consumer in line]))
                if rounds > 1:
                    for offset, consumer in enumerate(line):
                        shares.append((consumer, at + offset, at + rounds * size, size))
                        consumer.took(rounds)
                    at += rounds * size
                    continue
            # There are fewer messages than for two rounds, a consumer has room for one only, two consumers share the
            # room of one channel, or some have gates or limits.
            at = self._share_a_round(line, shares, at, count)
        return shares, at

    def _share_a_round(self, line: deque[Consumer], shares: list[Share], at: int, count: int) -> int:
        """Give each consumer of the line one message, from message `at` on, as long as there are any. Returns the
        number of the first message that is left.
        """
        for _ in range(len(line)):
            first = line[0]
            if first.capacity <= 0:
                if self._wait_for_one_channel(first.channel):
                    break
                self._set_aside(line)
                continue
            shares.append((first, at, at + 1, 1))
            first.took(1)
            line.rotate(-1)
            at += 1
            if at == count:
                break
        return at

    def _first_line(self) -> deque[Consumer] | None:
        """The line of the highest priority in which a consumer can take a message; that consumer stands first.

        Consumers before it that cannot take one are set aside.
        """
        for priority in self._priorities:
            line = self._lines[priority]
            while line:
                if line[0].capacity > 0:
                    return line
                if self._wait_for_one_channel(line[0].channel):
                    return None
                self._set_aside(line)
        return None

    def _wait_for_one_channel(self, channel: ChannelRecord) -> bool:
        """Whether all consumers are of this channel, which has no room, and nothing else keeps one from a message.

        Then they stay in their lines: set aside, they would all enter their lines again at the same time and in the
        same order. A consumer that is added before that must come first, so `add` sets them aside.
        """
        if self._bounded or channel.set_aside or len(channel.consumers) < len(self._all):
            return False
        self._waits_in_line = True
        if channel.is_full:
            self._full[channel] = None
        return True

    def _set_aside(self, line: deque[Consumer]) -> None:
        """Set the first consumer of the line aside."""
        consumer = line.popleft()
        channel = consumer.channel
        channel.set_aside[consumer] = None
        if channel.is_full:
            self._full[channel] = None

    def _active_with_room(self) -> Consumer | None:
        active = self.active
        return active if active is not None and active.capacity > 0 else None

    def channels_without_grant(self) -> list[ChannelRecord]:
        """Channels whose limiter must be asked for a grant before their consumers can take a message."""
        if self.single_active:
            active = self.active
            is_wanting = active is not None and active.awaits_grant and not active.channel.is_grant_requested
            return [active.channel] if active is not None and is_wanting else []
        return [
            channel
            for channel in self._limited
            if not channel.is_grant_requested and any(consumer.awaits_grant for consumer in channel.consumers)
        ]
