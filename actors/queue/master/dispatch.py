"""`Dispatch`: how messages leave a queue for its consumers (AB-122, AB-127, AB-128).

Messages are fetched from the head while a consumer can take one, and gathered in the `ChannelDeliveries` of the queue's
effects. The replica sends them at the end of its turn, one message for each run of neighbours that go to one consumer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from ....store.messages.message import FetchedMessages, slice_of
from ....store.messages.parts import Part
from ....store.queue.backing_queue import UNLIMITED, BackingQueue
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.levels.level_tags import LEVEL_SHIFT
from ...statistics.histograms import NodeHistograms
from ..consumers.consumer import ChannelRecord
from ..consumers.consumers import Consumers, Share
from ..consumers.grants import Grants
from ..disk.head_read import HeadRead
from ..effects import Effects
from ..pacing.group_pacing import GroupPacing
from ..pacing.queue_pacing import Pacing
from .delivery_counts import DeliveryCounts
from .message_expiry import MessageExpiry
from .utilisation import Utilisation

#: Numbers from here on are those of a level above 0 (`store/queue/levels`).
LEVELS_FROM = 1 << LEVEL_SHIFT

#: Messages that one turn delivers one by one, because the size of each decides when the next one may go.
SINGLES = 100

#: Messages that one turn delivers from several fair lanes: each of them is looked up by its number.
FROM_LANES = 100

#: Messages fetched from the backing queue at a time.
DELIVERY_BATCH = 1000


class Dispatch:
    """The consuming side of the queue `queue_id`."""

    __slots__ = (
        "backing",
        "_consumers",
        "_counts",
        "_effects",
        "_expiry",
        "_head_read",
        "_now",
        "_queue_id",
        "awaits_write",
        "followed",
        "grants",
        "group_pacing",
        "histograms",
        "is_due",
        "keeps_grants",
        "outbox",
        "pacing",
        "utilisation",
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
        utilisation: Utilisation,
        histograms: NodeHistograms,
        now: Callable[[], float],
    ) -> None:
        """`counts` are those of a quorum queue."""
        self.backing = backing
        self._consumers = consumers
        self._expiry = expiry
        self._head_read = head_read
        self._effects = effects
        self._counts = counts
        self._now = now
        self._queue_id = queue_id
        self.outbox = effects.outbox
        self.utilisation = utilisation
        self.histograms = histograms
        #: A stored message that is timed on its way to a consumer: its number, and when a channel received it.
        self.followed: tuple[int, float] | None = None
        #: Whether a delivery may have become possible: there is a new message, a new consumer, or a consumer with new
        #: room. The queue then calls `deliver` at the end of its turn.
        self.is_due = False
        #: Whether messages are ready and a consumer waits only for its socket.
        self.awaits_write = False
        #: Whether arrivals wait for the grants of several limiters: then a grant that came first is not returned.
        self.keeps_grants = False
        self.grants = Grants(queue_id, effects)
        #: None: messages are delivered as soon as a consumer can take them.
        self.pacing: Pacing | None = None
        #: None: the consumers have no clocks of their own.
        self.group_pacing: GroupPacing | None = None

    def deliver(self) -> None:
        """Give messages out from the head while a consumer can take one."""
        backing, consumers, expiry, pacing = self.backing, self._consumers, self._expiry, self.pacing
        self.is_due = False
        self.awaits_write = False
        if self.utilisation.is_held_back and consumers.can_any_take():
            self.utilisation.let_go()
        if expiry.is_needed and not expiry.expire():
            return
        singles = SINGLES
        left = FROM_LANES if isinstance(backing, FairQueue) and backing.is_in_turns else UNLIMITED
        while len(backing) and len(consumers):
            is_single = expiry.is_needed and expiry.is_uneven or consumers.looks_at_head
            if left <= 0:
                self.is_due = True
                self._effects.need_turn()
                return
            ready = backing.available(1 if is_single else min(left, DELIVERY_BATCH))
            if not ready:
                if consumers.can_any_take():
                    # The head is on the disk. The end of the read makes a delivery due again. But if nothing had to be
                    # read after all, no such event comes, so the loop must go on here. The expiry of the head was
                    # unknown while it was on the disk, so it is checked now.
                    self._head_read.prepare()
                    if backing.available(1) and (not expiry.is_needed or expiry.expire()):
                        continue
                elif self.group_pacing is not None:
                    self.group_pacing.await_slot(consumers)
                return
            if pacing is not None:
                ready = min(ready, pacing.due())
                if not ready:
                    self._await_slot(pacing)
                    return
                singles -= pacing.counts_kib
                if not singles:
                    self.is_due = True
                    self._effects.need_turn()
                    return
            if consumers.looks_at_head:
                consumers.resume_all()
            shares, taken = consumers.share(ready)
            if not taken:
                if self.group_pacing is not None:
                    self.group_pacing.await_slot(consumers)
                self.awaits_write = consumers.awaits_write()
                self.utilisation.hold_back()
                # No consumer can use the grants now, but the channels' consumers on other queues may.
                self._return_all_grants()
                self._request_grants()
                if pacing is not None:
                    pacing.rest()
                return
            left -= taken
            if consumers.is_uniform:
                fetched = backing.fetch(taken, not shares[0][0].no_ack)
                self._note(fetched)
                self._assign(shares, fetched)
            else:
                for consumer, start, stop, _ in shares:
                    fetched = backing.fetch(stop - start, not consumer.no_ack)
                    self._note(fetched)
                    self._assign([(consumer, 0, stop - start, 1)], fetched)
            # The next messages may be on the disk: they are read while these are sent.
            self._head_read.prepare()
            if expiry.is_needed and not expiry.expire():
                return
        if self.grants.unused and not len(backing):
            self._return_all_grants()
        if pacing is not None:
            pacing.rest()
        if self.group_pacing is not None:
            self.group_pacing.rest(consumers)

    def _note(self, fetched: Sequence[FetchedMessages]) -> None:
        """Note that these messages leave for consumers."""
        if self.pacing is not None:
            self.pacing.delivered(fetched)
        if self.followed is not None:
            self.left(fetched)

    def _await_slot(self, pacing: Pacing) -> None:
        """Wait for the slot of the next message. If no consumer can take it, the slot moves to when one can."""
        if self._consumers.can_any_take():
            pacing.await_slot()
        else:
            pacing.rest()
        # The channels' consumers on other queues may use the grants meanwhile.
        self._return_all_grants()

    def _assign(self, shares: list[Share], deliveries: list[FetchedMessages]) -> None:
        """Give the fetched messages to the consumers at which `Consumers.share` has counted them."""
        outbox = self.outbox
        counts = self._counts
        if counts is not None:
            deliveries = [
                delivery._replace(contents=counts.stamped(delivery.tags, delivery.contents))
                if delivery.redelivered
                else delivery
                for delivery in deliveries
            ]
        # The number of the first message of each delivery. By it each share finds the deliveries that have a part of
        # it, without a pass over all deliveries: a channel that has ended may give back a thousand messages as a
        # thousand deliveries, for a thousand consumers.
        firsts = [0, *accumulate([len(delivery.contents) for delivery in deliveries])]
        total = firsts.pop()
        for consumer, start, stop, step in shares:
            while start < stop and start < total:
                number = bisect_right(firsts, start) - 1
                origins, redelivered, tags, contents = deliveries[number]
                low, high = start - firsts[number], min(stop - firsts[number], len(contents))
                piece = slice(low, high, step)
                start += -(-(high - low) // step) * step
                taken = tags[piece]
                if consumer.no_ack:
                    outbox.put(consumer, (slice_of(origins, piece), redelivered, None, contents[piece]))
                    if counts is not None:
                        counts.left(taken)
                    if self._effects.index is not None:
                        self._effects.index.gone("acked", taken)
                    continue
                outbox.put_unacked(consumer, (slice_of(origins, piece), redelivered, taken, contents[piece]), taken)

    # -- how long messages take ---------------------------------------------------------------------

    def follow(self, parts: Sequence[Part], numbers: range) -> None:
        """Time the sampled message of these publishes, if one is among them, until a consumer gets it."""
        found = self.histograms.samples.arrived(self._queue_id, parts)
        # In a queue with levels or lanes, later deliveries do not show that the followed message has left in another
        # way, such as by expiring (`left`). So there a new sample replaces it.
        if found is not None and (self.followed is None or numbers[-1] > LEVELS_FROM or self._has_lanes):
            at, began = found
            self.followed = numbers[at], began

    def handed_over(self, parts: Sequence[Part]) -> None:
        """Count the sampled message of these publishes, which go to consumers at once."""
        found = self.histograms.samples.arrived(self._queue_id, parts)
        if found is not None:
            self.histograms.publish_to_deliver.observe(self._now() - found[1])

    def left(self, fetched: Sequence[FetchedMessages]) -> None:
        """Count the followed message if it is among these, and forget it if it has left the queue in another way."""
        assert self.followed is not None
        number, began = self.followed
        if any(number in delivery.tags for delivery in fetched):
            self.histograms.publish_to_deliver.observe(self._now() - began)
            self.followed = None
        elif fetched[-1].tags[-1] > number and number < LEVELS_FROM and not self._has_lanes:
            self.followed = None

    @property
    def _has_lanes(self) -> bool:
        return isinstance(self.backing, FairQueue)

    # -- limiters of channels -----------------------------------------------------------------------

    def set_limited(self, record: ChannelRecord, is_limited: bool) -> None:
        self.grants.set_limited(record, is_limited)
        self._consumers.limit_changed(record)
        self._consumers.resume(record)
        self.is_due = True

    def use_or_return_grant(self, record: ChannelRecord) -> None:
        """Deliver if a consumer of the channel can take a message, else return what is left of the grant."""
        if self._consumers.resume(record):
            self.is_due = True
        else:
            self.grants.give_back(record)

    def _return_all_grants(self) -> None:
        if not self.keeps_grants:
            self.grants.give_back_all()

    def _request_grants(self) -> None:
        for record in self._consumers.channels_without_grant():
            self.grants.request(record, len(self.backing))

    def forget_channel(self, record: ChannelRecord) -> None:
        self.outbox.forget_channel(record)
        self.grants.forget(record)
