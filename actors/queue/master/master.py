"""`Master`: the role of the replica that serves a queue's clients (amqp-broker sections 9, 11 and 12).

The role owns AMQP's semantics, and its backing queue owns the messages. Each part of the role has a state of its own
and is given the few other parts that it needs:

    PublishDelay, Intake         publishes: whether they wait, and then where each run goes
    Consumers, Dispatch          who gets the next message, and its delivery
    RangeReaders                 consumers that read by number and take nothing
    PaceClocks                   when the next message may be delivered, in a queue whose policy has a pace
    MessageExpiry, LengthLimit   messages that leave at the head because of their age, or because there are too many
    Rejections, DeadLetterer     messages that consumers reject, and the dead letters of all that die
    DeliveryCounts               how often each message was returned, in a quorum queue
    QueueExpiry                  the end of a queue that is not used

The way of a publish: an empty queue hands it straight to a consumer that can take it, so that it never enters the
backing queue's lists. Otherwise it is stored, the length limits are applied, and `end_turn` delivers from the head
while a consumer can take a message.

Limits: sockets, delivery tags and channel numbers are matters of the channel; names, bindings and permissions are
matters of Metadata; timers, the disk and the life of the process are matters of the replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ....amqp.constants import ACCESS_REFUSED, NOT_IMPLEMENTED, RESOURCE_LOCKED
from ....amqp.dead_letter_headers import DELIVERY_LIMIT
from ....amqp.errors import AmqpError
from ....routing.arguments.group_arguments import GROUP_ARGUMENT
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.arguments.range_read_arguments import range_read_arguments
from ....routing.phrases import queue_phrase
from ....seams import seam
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.range_read import SupportsRangeRead
from ...contracts.pace import to_pacer
from ..batches import batches, settles_each
from ..consumers.consumer import ChannelRecord, Consumer
from ..consumers.consumers import Consumers
from ..consumers.held_limit import HeldLimit, bounds_of, give_limits, sets_bounds
from ..consumers.pending_tags import joined_pieces
from ..pacing.pace_clocks import PaceClocks
from ..role import Role, Steps, Wait
from .dead_letters.dead_letterer import DeadLetterer
from .dead_letters.rejections import Rejections
from .delivery_counts import DeliveryCounts
from .dispatch import Dispatch
from .intake import Intake
from .length_limit import LengthLimit
from .listing import lane_items, queue_items
from .message_expiry import EXPIRY_STEP, MessageExpiry
from .publish_delay import PublishDelay
from .queue_expiry import QueueExpiry
from .range_readers import RangeReaders
from .utilisation import Utilisation

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ....store.messages.message import FetchedMessages
    from ....store.queue.backing_queue import BackingQueue
    from ...contracts.channel import Outcome
    from ...contracts.disk import HandedEntry
    from ...contracts.info_items import InfoItems
    from ...contracts.pace import ClockName
    from ...contracts.queue import AtMostOnceEntry, PublishEntry
    from ..message_index.index_feed import IndexFeed
    from ..replica_state import ReplicaState
    from .deduplication import Deduplication

#: A number above that of every message.
NO_NUMBER = 1 << 63

#: Purging this many messages counts as much work as settling one.
PURGED_AS_ONE = 8


class Master(Role):
    """The master of one queue. `settings.single_active_consumer` cannot change later."""

    __slots__ = (
        "backing",
        "consumers",
        "dead_letterer",
        "delivery_counts",
        "dispatch",
        "effects",
        "had_consumer",
        "intake",
        "is_bounded",
        "length_limit",
        "message_expiry",
        "pace_clocks",
        "paces_get",
        "publish_delay",
        "queue_expiry",
        "range_readers",
        "rejections",
        "settings",
        "state",
    )

    def __init__(self, state: ReplicaState, settings: QueueSettings) -> None:
        self.state = state
        self.settings = settings
        backing, effects, head_read = state.backing, state.effects, state.head_read
        self.backing = backing
        self.effects = effects
        self.had_consumer = False
        self.consumers = Consumers(settings.single_active_consumer)
        self.dead_letterer = DeadLetterer(
            state.routing, state.row, backing, effects, state.wall_clock, state.random_bytes, state.transit, state.work
        )
        self.length_limit = LengthLimit(backing, self.dead_letterer, head_read, effects, state.work)
        self.message_expiry = MessageExpiry(backing, self.dead_letterer, head_read, effects, state.wall_clock)
        if state.may_expire:
            self.message_expiry.is_needed = self.message_expiry.is_uneven = True
        self.queue_expiry = QueueExpiry(effects, state.now)
        #: None for a queue that has never had a pace: it delivers as fast as it can.
        self.pace_clocks: PaceClocks | None = None
        #: Whether basic.get takes slots of the pace too. Before the next slot it is answered with get-empty.
        self.paces_get = False
        #: None for any other than a quorum queue.
        self.delivery_counts: DeliveryCounts | None = None
        persistence = None if state.row.durable else False
        if settings.is_quorum:
            assert isinstance(backing, SupportsRangeRead), "quorum queues have no priorities"
            self.delivery_counts = DeliveryCounts(backing)
            persistence = True
        self.dispatch = Dispatch(
            state.row.queue_id,
            backing,
            self.consumers,
            self.message_expiry,
            head_read,
            effects,
            self.delivery_counts,
            Utilisation(state.now),
            state.histograms,
            state.now,
        )
        self.intake = Intake(
            persistence,
            backing,
            self.consumers,
            self.dispatch,
            self.message_expiry,
            self.length_limit,
            self.dead_letterer,
            state.confirms,
            state.transit,
            state.deduplication,
            effects,
            state.credit,
            state.work,
        )
        self.publish_delay = PublishDelay(backing, self.dispatch, effects)
        self.rejections = Rejections(backing, self.dead_letterer, effects)
        self.range_readers = RangeReaders(state.row, backing, self.consumers, self.dispatch, self.queue_expiry, effects)

    # -- life ---------------------------------------------------------------------------------------

    def apply(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.dead_letterer.apply(settings)
        self.length_limit.apply(settings)
        self.is_bounded = settings.drops_head or settings.rejects_publish
        self.message_expiry.apply(settings)
        self.queue_expiry.apply(settings)
        if self.delivery_counts is not None:
            self.delivery_counts.limit = settings.delivery_limit
        self._apply_pace(settings)

    def deduplicate(self, deduplication: Deduplication | None) -> None:
        self.intake.deduplicate(deduplication)

    def _apply_pace(self, settings: QueueSettings) -> None:
        self.paces_get = settings.pace_get
        if settings.pace_rate is not None and self.pace_clocks is None:
            state = self.state
            self.pace_clocks = PaceClocks(state.row.vhost, self.backing, self.consumers, self.effects, state.now)
        clocks = self.pace_clocks
        if clocks is not None:
            clocks.apply(settings)
            self.dispatch.pacing, self.dispatch.group_pacing = clocks.pacing, clocks.groups
            self.intake.admission = clocks.admission

    def leased(self, clock: ClockName, first: int, last: int, count: int, sharers: int) -> None:
        if self.pace_clocks is None or not self.pace_clocks.leased(clock, first, last, count, sharers):
            # The policy has changed since the queue asked, or the pace group has no consumer any more, so the slots are
            # for other queues.
            self.effects.send_to_pacer(clock, to_pacer.give_back(*clock, first, last, count, 0))
            return
        self.dispatch.is_due = True

    def pacer_lost(self) -> None:
        if self.pace_clocks is not None:
            self.pace_clocks.pacer_lost()

    def apply_to_consumers(self) -> Slices[None]:
        consumers, groups = self.consumers, self.dispatch.group_pacing
        if groups is None and not consumers.has_bounds and not sets_bounds(self.settings):
            return
        if groups is not None:
            yield from groups.set_gates(consumers)
        elif consumers.has_bounds:
            yield from consumers.set_bounds(lambda consumer: setattr(consumer, "gate", None))
        if consumers.has_bounds or sets_bounds(self.settings):
            yield from give_limits(consumers, self.settings, lambda: self.backing.head())
        self.dispatch.is_due = True

    def use_backing(self, backing: BackingQueue) -> None:
        self.backing = backing
        self.dead_letterer.row = self.state.row
        for part in (
            self.dead_letterer,
            self.length_limit,
            self.message_expiry,
            self.dispatch,
            self.publish_delay,
            self.rejections,
            self.pace_clocks,
            self.intake.admission,
        ):
            if part is not None:
                part.backing = backing
        self.intake.use_backing(backing)
        self.range_readers.use_backing(backing)
        if self.delivery_counts is not None:
            assert isinstance(backing, SupportsRangeRead), "quorum queues have no levels"
            self.delivery_counts.backing = backing

    def release(self) -> None:
        if len(self.backing):
            self.dispatch.is_due = True
            if self.length_limit.drops_head:
                self.length_limit.drop_overflow()

    def rest(self) -> None:
        self.take_delayed()
        self.intake.give_up_asking()

    def leave(self) -> None:
        self.rest()
        self.dead_letterer.send_all(self.intake.died)
        while self.intake.arrivals:  # they waited for those dead letters
            self.intake.accept_arrivals()
            self.intake.give_up_asking()
            self.dead_letterer.send_all(self.intake.died)
        for record in self.state.channels.values():
            for _ in chain(self._forget_consumers(record), self._requeue(record)):
                pass

    def end(self) -> None:
        self.dead_letterer.send_all(self.intake.died)
        if self.awaits_targets:
            self.effects.end_shipping()
        if self.pace_clocks is not None:
            self.pace_clocks.end()

    @property
    def _phrase(self) -> str:
        row = self.state.row
        return queue_phrase(row.vhost, row.name)

    @property
    def is_quiet(self) -> bool:
        return not self.rejections.reads and self.dead_letterer.waiting is None

    @property
    def awaits_targets(self) -> bool:
        return self.dead_letterer.shipped > 0

    # -- turns --------------------------------------------------------------------------------------

    def end_turn(self, is_held: bool) -> None:
        """Do what the messages of this turn have made due, in this order:

        1. accept the publishes that arrived: refuse them, hand them to consumers, or store them
        2. deliver ready messages, if the turn may have made a delivery possible
        3. accept publishes that waited for deliveries, as far as they need not wait any longer, and deliver again
        4. let readers read what is new
        5. set the timer for the expiry of the new head

        Before step 2 a queue with fair lanes sorts some of the messages that are not in lanes yet.

        A queue with a disk that is held stores publishes, which its next start will find, and lets nothing leave. A
        queue in memory is lost when its node stops.
        """
        dispatch, delay = self.dispatch, self.publish_delay
        if self.dead_letterer.waiting is not None:
            self.dead_letterer.send_waiting(self.intake.died)
        if self.intake.arrivals:
            self.effects.messages_came = True
            self.intake.accept_arrivals()
        if is_held:
            return
        if self.length_limit.is_behind:
            self.length_limit.drop_overflow()
            if self.length_limit.is_behind:
                return
        backing = self.backing
        if isinstance(backing, FairQueue) and backing.is_behind:
            backing.sort()
            self.state.head_read.prepare()
            dispatch.is_due = True
            if backing.is_behind and not self.state.head_read.is_running:
                self.effects.need_turn()
        if dispatch.is_due:
            dispatch.deliver()
        while delay.delayed or delay.is_timing:
            publish = delay.take_next()
            if publish is None:
                break
            self._take(*publish)
            self._accept_arrivals()
            dispatch.deliver()
        if self.range_readers.readers:
            self.range_readers.deliver()
        if self.message_expiry.is_needed:
            self.message_expiry.set_timer()
            if self.effects.needs_turn:
                dispatch.is_due = True

    def timer_fired(self, name: str) -> None:
        if name == "delay":
            self.publish_delay.timer_fired()
            self.take_delayed()
        elif name == "expiry":
            self.message_expiry.timer_fired()
            self.dispatch.is_due = True
        elif name == "pace":
            if self.pace_clocks is not None:
                self.pace_clocks.timer_fired()
            self.dispatch.is_due = True
        elif name == "queue_expiry" and self.queue_expiry.timer_fired():
            self.effects.end("expired")

    def head_loaded(self) -> None:
        self.dispatch.is_due = True
        if self.length_limit.drops_head:
            self.length_limit.drop_overflow()

    # -- publishing ---------------------------------------------------------------------------------

    def make_room(self) -> None:
        if self.dispatch.is_due and not self.length_limit.is_behind:
            self._accept_arrivals()
            self.dispatch.deliver()

    def publish(self, record: ChannelRecord, entries: list[PublishEntry]) -> None:
        delay = self.publish_delay
        if delay.delayed or self.dispatch.awaits_write and delay.must_wait():
            delay.add((record, entries))
        else:
            self._take(record, entries)

    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None:
        self.intake.add_at_most_once(entries)

    def take_dead_letters(self, entries: list[AtMostOnceEntry], first: int, is_repeated: bool) -> None:
        self.intake.add_dead_letters(entries, first, is_repeated)

    def take_handed_over(self, entries: list[HandedEntry]) -> None:
        self.intake.add_handed_over(entries)

    def _take(self, record: ChannelRecord, entries: list[PublishEntry]) -> None:
        """Count a publish in the credit of its channel, and keep its runs until they are accepted."""
        count = len(entries[0][1]) if len(entries) == 1 else sum([len(entry[1]) for entry in entries])
        state = self.state
        state.credit.take(record.channel_id, count)
        state.counts.publish += count
        if self.dispatch.awaits_write:
            self.publish_delay.allowance -= count
        if state.is_short:
            entries = state.confirms.refuse_awaited(record, entries)
        self.intake.add(record, entries)

    def take_delayed(self) -> None:
        delayed = self.publish_delay.delayed
        while delayed:
            self._take(*delayed.popleft())
        self._accept_arrivals()

    def _accept_arrivals(self) -> None:
        self.effects.messages_came = True
        self.intake.accept_arrivals()

    # -- consuming ----------------------------------------------------------------------------------

    def deliver_due(self) -> None:
        if self.dispatch.is_due:
            self.dispatch.deliver()

    def consume(self, consumer: Consumer) -> Steps[bool]:
        wanted_range = range_read_arguments(consumer.arguments) if consumer.arguments else None
        consumers = self.consumers
        is_quorum = self.settings.is_quorum
        if is_quorum and consumer.channel.is_limited and not _is_group(consumer):
            raise AmqpError(NOT_IMPLEMENTED, f"{self._phrase} does not support global qos")
        if wanted_range is not None:
            return (yield from self.range_readers.begin(consumer, wanted_range))
        if (
            consumers.single_active
            and consumer.exclusive
            and not is_quorum
            or consumers.has_exclusive()
            or consumer.exclusive
            and len(consumers)
        ):
            raise AmqpError(ACCESS_REFUSED, f"{self._phrase} in exclusive use")
        # Set the limit of the new consumer alone. To set those of all consumers would cost n² steps for n of them.
        bounds = bounds_of(consumer, self.settings)
        if any(bounds):
            consumer.limit = HeldLimit(bounds, self.backing.head, ())
        if self.dispatch.group_pacing is not None:
            self.dispatch.group_pacing.enter(consumer, consumers)
        consumers.add(consumer)
        self.had_consumer = True
        self.queue_expiry.enter()
        self.effects.change_consumers()
        self.dispatch.is_due = True
        return True

    def cancel(self, channel_id: str, tag: str) -> None:
        consumer = self.consumers.find(channel_id, tag)
        if consumer is None:
            self.range_readers.cancel(channel_id, tag)
            return
        self.consumers.remove(consumer)
        if not consumer.channel.consumers:
            self.dispatch.grants.give_back(consumer.channel)
        self.dispatch.is_due = True
        self._consumers_left(1)

    def _consumers_left(self, count: int) -> None:
        """Handle that this many consumers have left. The queue may have to end now (AB-93)."""
        if count:
            self.queue_expiry.leave(count)
            self.effects.change_consumers()
        if self.state.row.auto_delete and self.had_consumer and not len(self.consumers):
            self.effects.end("auto-delete")

    def get(self, record: ChannelRecord | None) -> Steps[tuple[FetchedMessages | None, int]]:
        counts = self.delivery_counts
        if counts is not None and self.consumers.single_active:
            raise AmqpError(
                RESOURCE_LOCKED,
                f"cannot obtain access to locked {self._phrase}. basic.get operations are not supported by quorum "
                "queues with single active consumer",
            )
        work = self.state.work
        self.queue_expiry.use()
        while True:
            if record is not None and record.has_ended:
                return None, 0  # the channel ended while the head was read, so the message would never be settled
            backing = self.backing  # while this waited, the queue may have got lanes, and so another backing queue
            if self.length_limit.is_behind or work.left <= 0:
                yield Wait.NEXT_TURN
                continue
            if self.message_expiry.is_needed and not self.message_expiry.expire():
                # expired messages that this turn has no work left for are removed in another turn
                self.dispatch.is_due = True
                work.left -= EXPIRY_STEP
                if backing.available(1):
                    yield Wait.NEXT_TURN
                    continue
            pacing = self.dispatch.pacing if self.paces_get else None
            if pacing is not None and not pacing.due():
                self.state.counts.get_empty += 1
                pacing.await_slot()
                return None, len(backing)
            found = backing.fetch(1, record is not None)
            if found:
                if self.dispatch.followed is not None:
                    self.dispatch.left(found)
                if pacing is not None:
                    pacing.delivered(found)
                delivery = found[0]
                self._count_get(record is None, delivery.redelivered)
                if counts is not None:
                    tag = delivery.tags[0]
                    delivery = delivery._replace(contents=[counts.with_count(tag, delivery.contents[0])])
                    if record is None:
                        counts.left((tag,))
                if record is None and self.effects.index is not None:
                    self.effects.index.gone("acked", delivery.tags)
                if record is not None:
                    record.pending.add(delivery.tags, None)
                if self.message_expiry.is_uneven and not self.message_expiry.expire():
                    self.dispatch.is_due = True
                return delivery, len(backing)
            if not len(backing):
                self.state.counts.get_empty += 1
                return None, 0
            # The head must be read from the disk first; it may have expired when it is read.
            yield Wait.HEAD

    def _count_get(self, no_ack: bool, is_redelivered: bool) -> None:
        counts = self.state.counts
        if no_ack:
            counts.get_no_ack += 1
        else:
            counts.get += 1
        if is_redelivered:
            counts.redeliver += 1

    def settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        self._settle(record, outcome, pieces)
        self._settled(record, outcome)

    def settle_in_slices(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> Slices[None]:
        work, dead_letterer = self.state.work, self.dead_letterer
        become_dead_letters = outcome == "reject" and dead_letterer.is_enabled

        def most() -> int:
            return min(work.most, dead_letterer.steps.batch) if become_dead_letters else work.most

        for batch in batches(pieces, most, each=become_dead_letters or settles_each(self.backing)):
            yield from work.pause()
            work.left = 0
            self._settle(record, outcome, batch)
        self._settled(record, outcome)

    def _settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        for tags in joined_pieces(pieces) if outcome != "reject" and len(pieces) > 1 else pieces:
            if tags[0] < 0:
                self.range_readers.settle(tags)
                continue
            tags = record.take_pending(tags)
            if outcome == "requeue":
                self._take_back(tags)
                continue
            if self.delivery_counts is not None:
                self.delivery_counts.left(tags)
            if outcome == "ack":
                self.state.counts.ack += len(tags)
                if self.effects.index is not None:
                    self.effects.index.gone("acked", tags)
                self.backing.ack(tags)
            else:
                self.state.work.left -= self.rejections.reject(tags)

    def _settled(self, record: ChannelRecord, outcome: Outcome) -> None:
        """Do what has become due because all messages of a settlement are settled."""
        if outcome == "requeue" and self.length_limit.drops_head:
            self.length_limit.drop_overflow()  # AB-102
        if self.consumers.resume(record) or outcome == "requeue":
            self.dispatch.is_due = True

    def _take_back(self, tags: Sequence[int]) -> None:
        """Requeue messages. Those that have reached the delivery limit of a quorum queue are rejected instead."""
        if self.delivery_counts is not None:
            tags, exceeding = self.delivery_counts.returned(tags)
            if exceeding:
                self.rejections.reject(exceeding, DELIVERY_LIMIT)
        if tags:
            self.backing.requeue(tags)

    def sent(self, record: ChannelRecord, count: int) -> None:
        record.unsent -= count
        self.publish_delay.count_written(count)
        if self.range_readers.readers:
            self.range_readers.sent(record, count)
        if self.consumers.resume(record):
            self.dispatch.is_due = True

    def limiter_changed(self, record: ChannelRecord, is_limited: bool) -> None:
        self.dispatch.set_limited(record, is_limited)
        self.intake.answered(record)

    def limiter_grant(self, record: ChannelRecord, count: int) -> None:
        if record.is_limited:
            self.dispatch.grants.add(record, count)
            self.intake.answered(record)
            self.range_readers.use_grant(record)
            self.dispatch.use_or_return_grant(record)

    # -- channels that end --------------------------------------------------------------------------

    def forget_channel(self, record: ChannelRecord) -> Slices[None]:
        """Remove the consumers of a channel that ends, and requeue its unacknowledged messages."""
        gone = yield from self._forget_consumers(record)
        yield from self._requeue(record)
        self.intake.answered(record)
        self.dispatch.is_due = True
        self._consumers_left_with_channel(gone)

    @seam("whether a queue may end with the channel of its last consumer")
    def _consumers_left_with_channel(self, count: int) -> None:
        self._consumers_left(count)

    def _forget_consumers(self, record: ChannelRecord) -> Slices[int]:
        gone = yield from self.consumers.remove_all_of(record)
        self.range_readers.forget_channel(record)
        self.dispatch.forget_channel(record)
        return gone

    def _requeue(self, record: ChannelRecord) -> Slices[None]:
        work = self.state.work
        has_requeued = False
        while record.pending:
            yield from work.pause()
            returned = self._given_back_by(record, max(1, work.left))
            work.left -= len(returned)
            if returned:
                has_requeued = True
                self._take_back(returned)
        if has_requeued and self.length_limit.drops_head:
            self.length_limit.drop_overflow()  # AB-102

    @seam("which messages are requeued when a channel ends")
    def _given_back_by(self, record: ChannelRecord, limit: int) -> list[int]:
        """The numbers of the next messages, up to `limit`, that are requeued because this channel ends."""
        return record.pending.take_last(limit)

    def forget_consumers(self, most: int) -> bool:
        return self.consumers.forget(most)

    # -- the queue as a whole -----------------------------------------------------------------------

    def use(self) -> None:
        self.queue_expiry.use()

    def counts(self) -> tuple[int, int]:
        return len(self.backing), len(self.consumers)

    def purge(self) -> Slices[int]:
        work = self.state.work
        purged = 0
        while True:
            yield from work.pause()
            count = self.backing.purge(PURGED_AS_ONE * work.most)
            if not count:
                if self.intake.admission is not None:
                    self.intake.admission.purged()
                if purged and self.effects.index is not None:
                    self._report_purge(self.effects.index)
                return purged
            work.left = 0
            purged += count

    def _report_purge(self, index: IndexFeed) -> None:
        pending = frozenset(tag for record in self.state.channels.values() for tag in record.pending)
        index.rest_is_gone("purged", NO_NUMBER, pending)

    def info(self) -> InfoItems:
        items = queue_items(
            self.state,
            self.settings.queue_mode,
            self.consumers,
            self.range_readers,
            self.dead_letterer,
            self.dispatch.utilisation,
            None if self.state.deduplication is None else self.state.deduplication.dropped,
        )
        items["pace"] = None if self.intake.admission is None else self.intake.admission.info()
        items["lanes"] = lane_items(self.backing)
        return items

    def consumers_info(self) -> Iterator[InfoItems]:
        row = self.state.row
        return chain(self.consumers.info(row.name, row.vhost), self.range_readers.info())


def _is_group(consumer: Consumer) -> bool:
    """Whether the consumer is a group, which grants its members each delivery (QP-79)."""
    return bool(consumer.arguments) and consumer.arguments.get(GROUP_ARGUMENT) is not None
