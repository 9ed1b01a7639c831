"""`Dispatch`: how messages leave a queue for its consumers (AB-122, AB-127, AB-128).

Messages are fetched from the head while a consumer can take one, and gathered in the `Outbox` of the queue's effects.
The replica sends them at the end of its turn, one message for each run of neighbours that go to one consumer.

A channel with a channel-wide prefetch has a **limiter**: its consumers may be on several queues, so only the channel
can count. A queue requests as many deliveries as it has messages, uses what the limiter grants, and returns the rest.
"""

from __future__ import annotations

from ....store.messages.message import Delivery, slice_of
from ....store.queue.backing_queue import BackingQueue
from ...channel.contract import to_channel
from ..consumers import ChannelRecord, Consumers, Share
from ..effects import Effects
from ..head_read import HeadRead
from .delivery_counts import DeliveryCounts
from .message_expiry import MessageExpiry

#: Messages fetched from the backing queue at a time.
DELIVERY_BATCH = 1000


class Dispatch:
    """The consuming side of the queue `queue_id`."""

    __slots__ = (
        "_backing",
        "_consumers",
        "_counts",
        "_effects",
        "_expiry",
        "_granted",
        "_head_read",
        "_queue_id",
        "awaits_write",
        "is_due",
        "keeps_grants",
        "outbox",
    )

    def __init__(
        self,
        queue_id: str,
        backing: BackingQueue,
        consumers: Consumers,
        expiry: MessageExpiry,
        head_read: HeadRead,
        effects: Effects,
        counts: DeliveryCounts | None,
    ) -> None:
        """`counts` are those of a quorum queue."""
        self._queue_id = queue_id
        self._backing = backing
        self._consumers = consumers
        self._expiry = expiry
        self._head_read = head_read
        self._effects = effects
        self._counts = counts
        self.outbox = effects.outbox
        #: A delivery may have become possible: there is a new message, a new consumer, or a consumer with new room. The
        #: queue calls `deliver` at the end of its turn.
        self.is_due = False
        #: Messages are ready, and a consumer waits only for its socket.
        self.awaits_write = False
        #: Arrivals wait for the grants of several limiters, so the first of these must not be returned.
        self.keeps_grants = False
        #: Channels with grants that are not used yet.
        self._granted: dict[str, ChannelRecord] = {}

    def deliver(self) -> None:
        """Give messages out from the head while a consumer can take one."""
        backing, consumers, expiry = self._backing, self._consumers, self._expiry
        self.is_due = False
        self.awaits_write = False
        if expiry.is_needed and not expiry.expire():
            return
        while len(backing) and len(consumers):
            ready = backing.available(1 if expiry.is_needed and expiry.is_uneven else DELIVERY_BATCH)
            if not ready:
                if consumers.can_any_take():
                    # The head is on the disk. The end of the read makes a delivery due again; if nothing had to be
                    # read after all, no such event comes, so the loop must go on here.
                    self._head_read.prepare()
                    if backing.available(1):
                        continue
                return
            shares, taken = consumers.share(ready)
            if not taken:
                self.awaits_write = consumers.awaits_write()
                # No consumer can use the grants now, but the channels' consumers on other queues may.
                self._return_all_grants()
                self._request_grants()
                return
            if consumers.is_uniform:
                self._assign(shares, backing.fetch(taken, not shares[0][0].no_ack))
            else:
                for consumer, start, stop, _ in shares:
                    self._assign([(consumer, 0, stop - start, 1)], backing.fetch(stop - start, not consumer.no_ack))
            # The next messages may be on the disk: they are read while these are sent.
            self._head_read.prepare()
            if expiry.is_needed and not expiry.expire():
                return
        if self._granted and not len(backing):
            self._return_all_grants()

    def _assign(self, shares: list[Share], deliveries: list[Delivery]) -> None:
        """Give the fetched messages to the consumers at which they are counted."""
        outbox = self.outbox
        counts = self._counts
        if counts is not None:
            deliveries = [
                delivery._replace(contents=counts.stamped(delivery.tags, delivery.contents))
                if delivery.redelivered
                else delivery
                for delivery in deliveries
            ]
        for consumer, start, stop, step in shares:
            at = 0
            for origins, redelivered, tags, contents in deliveries:
                low = start - at if start >= at else -(at - start) % step
                high = min(stop - at, len(contents))
                at += len(contents)
                if high <= 0:
                    break
                if low >= high:
                    continue  # none of the consumer's messages is in this run
                piece = slice(low, high, step)
                taken = tags[piece]
                if consumer.no_ack:
                    outbox.put(consumer, (slice_of(origins, piece), redelivered, None, contents[piece]))
                    if counts is not None:
                        counts.left(taken)
                    continue
                outbox.put_unacked(consumer, (slice_of(origins, piece), redelivered, taken, contents[piece]), taken)

    # -- limiters of channels -----------------------------------------------------------------------

    def set_limited(self, record: ChannelRecord, is_limited: bool) -> None:
        """The channel has a limiter from now on, or no longer has one; earlier grants no longer count."""
        record.is_limited = is_limited
        record.granted, record.is_grant_requested = 0, False
        self._granted.pop(record.channel_id, None)
        self._consumers.limit_changed(record)
        self._consumers.resume(record)
        self.is_due = True

    def add_grant(self, record: ChannelRecord, count: int) -> None:
        """The limiter grants `count` more deliveries. `use_or_return_grant` follows, after readers have used theirs."""
        record.granted += count
        record.is_grant_requested = False
        self._granted[record.channel_id] = record

    def use_or_return_grant(self, record: ChannelRecord) -> None:
        """Deliver if a consumer of the channel can take a message, else return what is left of the grant."""
        if self._consumers.resume(record):
            self.is_due = True
        else:
            self.return_grant(record)

    def request_grant(self, record: ChannelRecord, wanted: int) -> None:
        """Ask the limiter of the channel for `wanted` deliveries; one request at a time."""
        record.is_grant_requested = True
        self._effects.send(record.address, to_channel.limiter_request(self._queue_id, wanted))

    def request_grant_now(self, record: ChannelRecord, wanted: int) -> None:
        """As `request_grant`, but the limiter answers at once, perhaps with a grant of 0."""
        record.is_grant_requested = True
        self._effects.send(record.address, to_channel.limiter_request_now(self._queue_id, wanted))

    def return_grant(self, record: ChannelRecord) -> None:
        """Return the unused rest of its grant to the limiter."""
        self._granted.pop(record.channel_id, None)
        if record.granted > 0:
            self._effects.send(record.address, to_channel.limiter_return(self._queue_id, record.granted))
            record.granted = 0

    def _return_all_grants(self) -> None:
        if self.keeps_grants:
            return
        for record in list(self._granted.values()):
            self.return_grant(record)

    def _request_grants(self) -> None:
        for record in self._consumers.channels_without_grant():
            self.request_grant(record, len(self._backing))

    def forget_channel(self, record: ChannelRecord) -> None:
        self.outbox.forget_channel(record)
        self._granted.pop(record.channel_id, None)
