"""How messages leave a queue: fetched for consumers that can take them, sent by channel, and the grants of channel-wide limiters (AB-122, AB-127, AB-128).

A channel with a channel-wide prefetch grants deliveries, since its consumers may be on several queues: a queue asks for as many as it has messages, uses what it
gets, and returns the rest.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from ...store.messages.message import Delivery
from .consumers import UNSENT_LIMIT, ChannelRecord, Share
from .outbox import Outbox

if TYPE_CHECKING:
    from .process import Queue

DELIVERY_BATCH = 1000  # messages taken from the backing queue at a time


class Dispatch:
    """The consuming side of a queue."""

    __slots__ = ("_granted", "awaits_write", "outbox", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.outbox = Outbox()
        self.awaits_write = False  # messages are ready and a consumer waits only for its socket
        self._granted: dict[str, ChannelRecord] = {}  # channels with grants that were not used yet

    def deliver(self) -> None:
        """Gives out messages from the head while somebody can take one."""
        queue = self.queue
        backing, consumers, expiry = queue.backing, queue.consumers, queue.message_expiry
        self.awaits_write = False
        if expiry.is_needed and not expiry.expire():
            return
        while len(consumers) and len(backing):
            ready = backing.available(1 if expiry.is_needed and expiry.is_uneven else DELIVERY_BATCH)
            if not ready:
                if any(consumer.capacity > 0 or consumer.awaits_grant for consumer in consumers):
                    queue.prepare()  # the head is on disk; there is work again when it was read
                    if backing.available(1):
                        continue  # or it was at hand after all, and nobody comes back to say so
                return
            shares, taken = consumers.share(ready)
            if not taken:
                self.awaits_write = any(consumer.channel.unsent >= UNSENT_LIMIT for consumer in consumers)
                self.return_all_grants()  # its consumers cannot use them now, those on other queues might
                self._request_grants()
                return
            if consumers.is_uniform:
                self._assign(shares, backing.fetch(taken, not shares[0][0].no_ack))
            else:
                for consumer, start, stop, _ in shares:
                    self._assign([(consumer, 0, stop - start, 1)], backing.fetch(stop - start, not consumer.no_ack))
            queue.prepare()  # what comes next may be on disk, and is read while this is sent
            if expiry.is_needed and not expiry.expire():
                return
        if not len(backing):
            self.return_all_grants()

    def _assign(self, shares: list[Share], deliveries: list[Delivery]) -> None:
        """Gives the fetched messages to the consumers they were counted for."""
        put = self.outbox.put
        for consumer, start, stop, step in shares:
            at = 0
            for origin, redelivered, tags, contents in deliveries:
                low = start - at if start >= at else -(at - start) % step
                high = min(stop - at, len(contents))
                at += len(contents)
                if high <= 0:
                    break
                if low >= high:
                    continue  # none of its turns falls into this run
                if consumer.no_ack:
                    put(consumer, (origin, redelivered, None, contents[low:high:step]))
                    continue
                taken = tags[low:high:step]
                consumer.channel.pending.update(zip(taken, repeat(consumer)))
                put(consumer, (origin, redelivered, taken, contents[low:high:step]))

    def send(self) -> None:
        queue = self.queue
        for consumer, runs in self.outbox.take():
            queue.send(consumer.channel.address, ("deliver", queue.queue_id, consumer.tag, runs))

    # -- limiter ---------------------------------------------------------------------------

    def set_limited(self, record: ChannelRecord, is_limited: bool) -> None:
        record.is_limited = is_limited
        record.granted, record.is_grant_requested = 0, False
        self._granted.pop(record.channel_id, None)
        self.queue.consumers.resume(record)
        self.queue.has_work = True

    def add_grant(self, record: ChannelRecord, count: int) -> None:
        """The channel lets `count` more messages through; what is not used goes back."""
        if not record.is_limited:
            return
        record.granted += count
        record.is_grant_requested = False
        self._granted[record.channel_id] = record
        self.queue.range_readers.use_grant(record)
        if self.queue.consumers.resume(record):
            self.queue.has_work = True
        else:
            self.return_grant(record)

    def return_grant(self, record: ChannelRecord) -> None:
        self._granted.pop(record.channel_id, None)
        if record.granted > 0:
            self.queue.send(record.address, ("limiter_return", self.queue.queue_id, record.granted))
            record.granted = 0

    def return_all_grants(self) -> None:
        for record in list(self._granted.values()):
            self.return_grant(record)

    def _request_grants(self) -> None:
        queue = self.queue
        for record in queue.consumers.channels_without_grant():
            record.is_grant_requested = True
            queue.send(record.address, ("limiter_request", queue.queue_id, len(queue.backing)))

    def forget_channel(self, record: ChannelRecord) -> None:
        self.outbox.drop(record)
        self._granted.pop(record.channel_id, None)
