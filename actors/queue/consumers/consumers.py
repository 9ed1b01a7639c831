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

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, filterfalse
from typing import TYPE_CHECKING

from ....runtime.turn_work import STEP
from ....seams import seam
from .consumer import ChannelRecord, Consumer, ConsumerGate, GatedConsumer

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ...contracts.info_items import InfoItems

#: A consumer and the messages that it gets: start, stop and step into the messages that are shared out.
Share = tuple[Consumer, int, int, int]


class Consumers:
    """The consumers of one queue. With `single_active` only the active one is given messages (AB-124)."""

    __slots__ = (
        "_all",
        "_bounded",
        "_counts",
        "_exclusive",
        "_full",
        "_has_gates",
        "_held",
        "_limited",
        "_lines",
        "_no_ack",
        "_only",
        "_priorities",
        "_waits_in_line",
        "active",
        "changed_gates",
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
        #: By gate: the consumers that it holds back. They are in no line, and not set aside at their channels.
        self._held: dict[ConsumerGate, OrderedDict[Consumer, None]] = {}
        #: The gates that `GroupPacing` has to look at again: since it last looked, they have begun or ceased to hold
        #: consumers back, or have let some go.
        self.changed_gates: dict[ConsumerGate, None] = {}
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
            if self._release(consumer):
                consumer.channel.set_aside[consumer] = None
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
            self._leave_set_aside(consumer)
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

    def forget(self, most: int) -> bool:
        """Forget up to `most` consumers of a queue that ends and delivers nothing any more. Whether there are more."""
        self._lines.clear()
        for _ in range(min(most, len(self._all))):
            self._all.popitem()
        return bool(self._all)

    def _withdraw(self, channel: ChannelRecord, gone: Sequence[Consumer]) -> None:
        """Give these consumers of a channel no more messages."""
        if self.single_active:
            if self.active in gone:
                leaving = frozenset(gone)
                # The next active consumer is the oldest one of the highest priority: `max` returns the first of equals.
                others = filterfalse(leaving.__contains__, self)
                self.active = max(others, key=lambda other: other.priority, default=None)
        elif len(gone) == 1:
            if gone[0] in channel.set_aside:
                del channel.set_aside[gone[0]]
            elif not self._release(gone[0]):
                self._lines[gone[0].priority].remove(gone[0])
        else:
            # Each line is searched once for all that leave: to remove a thousand consumers of 20,000 one by one would
            # take 50 ms.
            leaving = frozenset(gone)
            channel.set_aside.clear()
            for line in self._lines.values():
                staying = list(filterfalse(leaving.__contains__, line))
                line.clear()
                line.extend(staying)

    def _drop(self, consumer: Consumer) -> None:
        """Forget a consumer that gets no more messages."""
        channel, priority = consumer.channel, consumer.priority
        self._release(consumer)
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
            waiting = (
                channel.set_aside if self._has_gates else [each for each in channel.set_aside if each.capacity > 0]
            )
            for consumer in tuple(waiting):
                self._leave_set_aside(consumer)
        for consumer in channel.consumers:
            if consumer.capacity > 0 or consumer.awaits_grant or consumer.awaits_gate:
                return True
        return False

    def limit_changed(self, channel: ChannelRecord) -> None:
        """Note that the channel has a limiter from now on, or none any more."""
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
        # The gate may have got room since the capacity was read, because time has passed. Then the consumer waits for
        # its gate all the same, and `open_gate` lets it go at once.
        if self._has_gates and consumer.gate is not None and (consumer.awaits_gate or consumer.capacity > 0):
            self._hold(consumer, consumer.gate)
            return
        channel.set_aside[consumer] = None
        if channel.is_full:
            self._full[channel] = None

    def _leave_set_aside(self, consumer: Consumer) -> None:
        """Return a consumer that is set aside to its line if it can take a message, or have its gate hold it."""
        if consumer.capacity > 0:
            del consumer.channel.set_aside[consumer]
            self._enter_line(consumer)
        elif consumer.gate is not None and consumer.awaits_gate:
            del consumer.channel.set_aside[consumer]
            self._hold(consumer, consumer.gate)

    # -- gates --------------------------------------------------------------------------------------

    def is_held(self, gate: ConsumerGate) -> bool:
        """Whether consumers wait for this gate."""
        return gate in self._held

    def open_gate(self, gate: ConsumerGate) -> bool:
        """Return to their lines as many consumers as the gate has room for. True if others wait for it."""
        waiting, room = self._held[gate], gate.room()
        self.changed_gates[gate] = None
        while waiting and room > 0:
            consumer, _ = waiting.popitem(last=False)
            if consumer.capacity > 0:
                self._enter_line(consumer)
                room -= 1
            else:
                consumer.channel.set_aside[consumer] = None
        if not waiting:
            del self._held[gate]
        return bool(waiting)

    def _hold(self, consumer: Consumer, gate: ConsumerGate) -> None:
        """Have the consumer wait for its gate."""
        waiting = self._held.get(gate)
        if waiting is None:
            waiting = self._held[gate] = OrderedDict()
            self.changed_gates[gate] = None
        waiting[consumer] = None

    def _release(self, consumer: Consumer) -> bool:
        """Have the consumer no longer wait for its gate; False if it does not wait for one."""
        gate = consumer.gate
        waiting = None if gate is None else self._held.get(gate)
        if gate is None or waiting is None or consumer not in waiting:
            return False
        del waiting[consumer]
        if not waiting:
            del self._held[gate]
            self.changed_gates[gate] = None
        return True

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
