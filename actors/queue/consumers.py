"""Who gets the next message: the consumers of one queue (AB-121 to AB-128, FC-32).

Pure: it decides and counts, it sends nothing. Consumers stand in one line per priority. A consumer that can take nothing now (its prefetch is used up, its
channel has `UNSENT_LIMIT` deliveries not yet written to the socket, or its channel-wide limiter grants nothing) is set aside, and enters the end of its line
again when it can. Within a line messages go round robin, one each; lower lines get something only while everybody above is set aside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

UNSENT_LIMIT = 200  # deliveries handed to one channel and not yet written to its socket (FC-32)
_UNLIMITED = 1 << 62

Share = tuple["Consumer", int, int, int]  # consumer, and start, stop, step into the messages at hand


@dataclass(slots=True, eq=False)
class ChannelRecord:
    """What the queue knows of one channel that consumes from it, got from it, or publishes to it."""

    channel_id: str
    address: Any
    unsent: int = 0
    is_limited: bool = False  # the channel has a channel-wide prefetch: it must grant each delivery
    granted: int = 0  # granted by the channel and not yet used
    is_grant_requested: bool = False
    pending: dict[int, "Consumer | None"] = field(default_factory=dict)  # ack tag -> consumer, None: basic.get
    consumers: int = 0


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer; `unacked` counts only deliveries that await an ack."""

    channel: ChannelRecord
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int  # 0: unlimited
    priority: int
    arguments: Any
    user: str
    unacked: int = 0
    aside: bool = False

    @property
    def capacity(self) -> int:
        """How many messages it may be given now."""
        channel = self.channel
        room = UNSENT_LIMIT - channel.unsent
        if channel.is_limited and channel.granted < room:
            room = channel.granted
        if self.prefetch and not self.no_ack and self.prefetch - self.unacked < room:
            room = self.prefetch - self.unacked
        return room

    @property
    def awaits_grant(self) -> bool:
        """Whether only the channel-wide limit keeps it from being given something."""
        channel = self.channel
        return (
            channel.is_limited
            and channel.granted <= 0
            and channel.unsent < UNSENT_LIMIT
            and (not self.prefetch or self.no_ack or self.unacked < self.prefetch)
        )

    def took(self, count: int) -> None:
        channel = self.channel
        channel.unsent += count
        if channel.is_limited:
            channel.granted -= count
        if not self.no_ack:
            self.unacked += count


class Consumers:
    """The consumers of one queue. With `single_active` only the active one is ever given anything (AB-124)."""

    __slots__ = ("single_active", "active", "_all", "_lines", "_top", "_no_ack")

    def __init__(self, single_active: bool = False) -> None:
        self.single_active = single_active
        self.active: Consumer | None = None
        self._all: list[Consumer] = []  # in order of arrival
        self._lines: dict[int, deque[Consumer]] = {}  # priority -> ready consumers
        self._top: list[int] = []  # priorities, highest first
        self._no_ack = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all)

    def find(self, channel_id: str, tag: str) -> Consumer | None:
        """The consumer's identity is channel and tag."""
        for consumer in self._all:
            if consumer.tag == tag and consumer.channel.channel_id == channel_id:
                return consumer
        return None

    def has_exclusive(self) -> bool:
        return any(consumer.exclusive for consumer in self._all)

    def add(self, consumer: Consumer) -> None:
        self._all.append(consumer)
        consumer.channel.consumers += 1
        self._no_ack += consumer.no_ack
        if self.single_active:
            if self.active is None:
                self.active = consumer
        else:
            self._enter(consumer)

    def remove(self, consumer: Consumer) -> None:
        self._all.remove(consumer)
        consumer.channel.consumers -= 1
        self._no_ack -= consumer.no_ack
        if self.single_active:
            if self.active is consumer:
                # The next by priority, then age; `max` keeps the first of equals.
                self.active = max(self._all, key=lambda other: other.priority, default=None)
        elif not consumer.aside:
            self._lines[consumer.priority].remove(consumer)
        if not any(other.priority == consumer.priority for other in self._all):
            self._lines.pop(consumer.priority, None)
            self._top = sorted(self._lines, reverse=True)

    def _enter(self, consumer: Consumer) -> None:
        line = self._lines.get(consumer.priority)
        if line is None:
            line = self._lines[consumer.priority] = deque()
            self._top = sorted(self._lines, reverse=True)
        consumer.aside = False
        line.append(consumer)

    def resume(self, channel: ChannelRecord) -> bool:
        """Brings back consumers of `channel` that can take something again; True if there is one, or one could if the limiter granted it."""
        if self.single_active:
            active = self.active
            return active is not None and active.channel is channel and (active.capacity > 0 or active.awaits_grant)
        found = False
        for consumer in self._all if channel.consumers else ():
            if consumer.channel is not channel:
                continue
            if consumer.capacity > 0:
                if consumer.aside:
                    self._enter(consumer)
                found = True
            elif consumer.awaits_grant:
                found = True
        return found

    def _front(self) -> deque[Consumer] | None:
        """The ready line of highest priority; sets aside those of it that turn out to be full."""
        for priority in self._top:
            line = self._lines[priority]
            for _ in range(len(line)):
                if line[0].capacity > 0:
                    return line
                line.popleft().aside = True
        return None

    def _first(self) -> Consumer | None:
        if self.single_active:
            active = self.active
            return active if active is not None and active.capacity > 0 else None
        line = self._front()
        return line[0] if line else None

    @property
    def is_uniform(self) -> bool:
        """Whether all consumers are of one acknowledgement mode, so that messages may be taken for several of them at once."""
        return self._no_ack in (0, len(self._all))

    def share(self, count: int) -> tuple[list[Share], int]:
        """Shares out up to `count` messages: the shares in order, and how many messages they cover (a prefix).
        The consumers' counts are moved. A step other than 1 occurs only when `is_uniform`."""
        if len(self._all) == 1:
            # The usual queue: no line, nobody to take turns with.
            only = self._all[0]
            if only.capacity >= count:
                only.took(count)
                return [(only, 0, count, 1)], count
        shares: list[Share] = []
        at = 0
        while at < count:
            if self.single_active:
                first, line = self._first(), None
            else:
                line = self._front()
                first = line[0] if line else None
            if first is None:
                break
            left = count - at
            if line is None or len(line) == 1:
                size = min(left, first.capacity)
                shares.append((first, at, at + size, 1))
                first.took(size)
                at += size
                continue
            k = len(line)
            rounds = min(left // k, min(consumer.capacity for consumer in line))
            if rounds > 1 and self.is_uniform and all(consumer.channel.consumers == 1 for consumer in line):
                for offset, consumer in enumerate(line):
                    shares.append((consumer, at + offset, at + rounds * k, k))
                    consumer.took(rounds)
                at += rounds * k
                continue
            # Fewer messages than consumers, one nearly full, or two consumers drawing on one channel's room: one at a time.
            shares.append((first, at, at + 1, 1))
            first.took(1)
            line.rotate(-1)
            at += 1
        return shares, at

    def channels_without_grant(self) -> list[ChannelRecord]:
        """Channels that must be asked for a grant of their limiter before their consumers can be given anything."""
        candidates = ([self.active] if self.active else []) if self.single_active else self._all
        return list(
            {
                id(consumer.channel): consumer.channel
                for consumer in candidates
                if consumer.awaits_grant and not consumer.channel.is_grant_requested
            }.values()
        )
