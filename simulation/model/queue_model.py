"""`QueueModel`: what is known of one queue and of the copies in it.

Clients and faults call its `on_…` methods for what they do to the queue and for the answers. Between a request and its
answer several outcomes are possible, and the model accepts each: a value of None means that it depends on the order in
which the broker handles the requests.

A crash and a channel that ends leave more open. The queue records them in three flags, which hold until the node is at
rest, because by then everything in flight has arrived:

    has_unseen_deliveries    A channel may have ended before it received all its deliveries. An unseen delivery comes to
                             another channel as redelivered, though no client has received the message.
    has_unseen_without_ack   Some unseen deliveries needed no acknowledgement, so their messages are lost.
    has_old_deliveries       The queue's process has crashed, and deliveries of that process may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from ...actors.channel.queue_links import ATTEMPTS
from ..queue_kinds import QueueKind
from .copies import Copy, CopyState, PromiseBroken, PublishedMessage
from .deaths import Deaths
from .delivery_checks import EXPIRY_SLACK, DeliveryChecks, Newest
from .protocols import ObservedChannel, ObservedConsumer, Owner

#: How many returns are allowed for a message that arrived while deliveries were unseen, since they cannot be counted.
UNKNOWN_RETURNS = 1000


class QueueModel:
    """See the module. `clock` returns seconds of the world."""

    def __init__(self, kind: QueueKind, has_store: bool, clock: Callable[[], float]) -> None:
        self.kind = kind
        #: Whether the queue and its persistent messages are there again after a start.
        self.survives_restart = kind.durable and has_store
        self.clock = clock
        self.deaths = Deaths(self)
        self.checks = DeliveryChecks(self)
        #: The queues whose dead letters come here, by name.
        self.dead_letter_sources: dict[str, QueueModel] = {}
        self.exists: bool | None = False
        #: Whether it is bound to the exchange of the schedule.
        self.is_bound: bool | None = False
        #: The connection that has declared it, if it is exclusive.
        self.owner: Owner | None = None
        #: By the number of the message and the name of the queue where it died, "" if it is no dead letter.
        self.copies: dict[tuple[int, str], Copy] = {}
        #: Consumers that the broker has confirmed and that are not about to leave.
        self.consumers: list[ObservedConsumer] = []
        self.had_consumer = False
        self.has_unseen_deliveries = False
        self.has_unseen_without_ack = False
        self.has_old_deliveries = False
        #: Whether messages may ever have left other than by a settlement or by their death: with the queue, by a purge,
        #: or to a consumer that does not acknowledge.
        self.may_have_leaked = False
        #: Whether a message came in, or came back, since the node was last at rest.
        self.has_new_messages = False
        #: Channels whose purge is in flight.
        self.purging: set[ObservedChannel] = set()
        #: Channels whose unbind is in flight.
        self.unbinding: set[ObservedChannel] = set()
        self.deletes_in_flight = 0
        self.declares_in_flight = 0
        self.binds_in_flight = 0
        #: How many declares were answered.
        self.declare_count = 0
        #: Grows whenever the queue may have been deleted: at each request, at each answer, at each end by itself.
        self.delete_count = 0
        self.unbind_count = 0
        self.crash_count = 0
        #: Whether a declare was answered while a delete was in flight, so that either may have come first.
        self.was_declared_during_delete = False
        #: Whether the broker may refuse requests because the queue's process is not running (AB-63).
        self.may_be_down = False
        #: Called when the queue may be gone, or down, from now on.
        self.on_may_be_gone: Callable[[QueueModel], None] = _ignore
        #: Set while the queue is about to end by itself: `declare_count` and `crash_count` at that time. The queue
        #: ends only if neither has grown. (-1, -1) if it may end or not.
        self._expected_end: tuple[int, int] | None = None
        #: The copies that an exclusive queue had when its owner began to leave.
        self._copies_before_end: list[Copy] = []
        #: `crash_count` when the node was last started or at rest.
        self._crashes_before = 0
        self._exists_since = 0.0
        #: When copies that no channel held last became uncertain.
        self._uncertain_at = -1.0
        #: When there last were unseen deliveries.
        self._unseen_at = -1.0

    # -- publishes and deliveries ---

    def on_publish(self, message: PublishedMessage, is_certain: bool) -> Copy:
        """A client publishes a message; `is_certain` as in `on_commit`."""
        copy = self.copies[message.number, ""] = Copy(message, self)
        message.copies.append(copy)
        self.on_commit(copy, is_certain)
        return copy

    def on_commit(self, copy: Copy, is_certain: bool) -> None:
        """The queue may get the copy from now on: its publish was sent, or the commit of its transaction.

        `is_certain` if it will certainly be routed here.
        """
        copy.state = CopyState.SENT if is_certain and not self.may_lose else CopyState.UNCERTAIN
        copy.may_be_redelivered = self.has_unseen_deliveries
        copy.returns_most = UNKNOWN_RETURNS if self.has_unseen_deliveries else 0
        self.has_new_messages = True

    @property
    def may_lose(self) -> bool:
        """Whether a message that comes in now may be gone at once."""
        return self.has_unseen_without_ack or self.has_old_deliveries or bool(self.purging)

    @property
    def keeps_returned(self) -> bool:
        """Whether a message that is requeued stays.

        The broker may still deliver it to a consumer without acknowledgement whose end it has not noticed, a purge may
        remove it, and a queue that ends takes it along.
        """
        return self.exists is True and not self.has_unseen_without_ack and not self.purging

    def on_delivery(
        self,
        channel: ObservedChannel,
        copy: Copy,
        redelivered: bool,
        consumer: ObservedConsumer,
        may_be_old: bool,
        newest: Newest,
    ) -> None:
        """A channel receives a copy.

        may_be_old   the channel is about to end or requeues everything, so others may have received the copy since
        newest       the channel's own record of order
        """
        if not may_be_old and not copy.is_ambiguous:
            self.checks.check(copy, redelivered, consumer, newest)
        copy.seen += 1
        if copy.arrived is None:
            copy.arrived = self.clock()
        if copy.state == CopyState.FORBIDDEN:
            return
        if self.has_old_deliveries or copy.is_ambiguous:
            copy.make_uncertain()  # it is unknown which process of the queue has sent this delivery
        elif not may_be_old:
            copy.state, copy.holder = (CopyState.REMOVED, None) if consumer.no_ack else (CopyState.UNACKED, channel)
        elif copy.state in (CopyState.SENT, CopyState.READY):
            copy.state = CopyState.REMOVED if consumer.no_ack else CopyState.READY

    def copy_of(self, number: int) -> Copy:
        """The copy of a message that was published to this queue. Raises PromiseBroken if there is none."""
        copy = self.copies.get((number, ""))
        if copy is None:
            raise PromiseBroken(f"message {number} came from queue '{self.kind.name}', to which it was never routed")
        return copy

    # -- dead letters of other queues ---

    def dead_letter_copy(self, number: int, source: str, reason: str) -> Copy:
        """The copy of a dead letter that a client receives from here. Raises PromiseBroken if it cannot have died."""
        queue = self.dead_letter_sources.get(source)
        origin = queue.copies.get((number, "")) if queue is not None else None
        if queue is None or origin is None:
            raise PromiseBroken(
                f"message {number} came as a dead letter of queue '{source}', "
                f"{'to which it was never routed' if queue is not None else 'which has no dead letters'}"
            )
        return queue.deaths.on_dead_letter(origin, reason, not (self.has_old_deliveries or queue.has_old_deliveries))

    def add_dead_letter(self, copy: Copy, state: CopyState, since: float) -> Copy:
        """Add the dead letter of `copy`, which died at `since` or later."""
        if not self.has_kept_since(since):
            state = CopyState.UNCERTAIN
        added = self.copies[copy.message.number, copy.queue.kind.name] = Copy(copy.message, self, state, copy)
        added.may_be_redelivered = self.has_unseen_deliveries or self._unseen_at >= since
        self.has_new_messages = True
        return added

    def existed_at(self, time: float) -> bool:
        """Whether the queue, which exists, existed then."""
        return self._exists_since <= time

    def has_kept_since(self, time: float) -> bool:
        """Whether every message that came in since then must still be here, or have been delivered."""
        return (
            self.exists is True
            and self._exists_since <= time
            and self._uncertain_at < time
            and not self.may_lose
            and not self.deletes_in_flight
        )

    # -- events that concern all copies ---

    def add_unseen_deliveries(self, without_ack: bool = False) -> None:
        """From now on there may be deliveries that no client receives.

        `without_ack` if some of them need no acknowledgement.
        """
        self.has_unseen_deliveries = True
        self._unseen_at = self.clock()
        self.has_unseen_without_ack |= without_ack
        self.may_have_leaked |= without_ack
        for copy in self.copies.values():
            copy.may_be_redelivered = True
            copy.returns_most += 1
        if without_ack:
            self._make_unheld_uncertain()

    def _make_unheld_uncertain(self) -> None:
        """From now on the copies that no channel holds may be gone."""
        self._uncertain_at = self.clock()
        for copy in self.copies.values():
            if copy.state in (CopyState.SENT, CopyState.READY):
                copy.state = CopyState.UNCERTAIN

    def _make_all_uncertain(self) -> None:
        self._uncertain_at = self.clock()
        for copy in self.copies.values():
            if self.kind.has_dead_letters and copy.state != CopyState.FORBIDDEN:
                copy.may_have_died = True
                if copy.dead_letter is not None:
                    copy.dead_letter.make_ambiguous()  # the copy may have gone with the queue before it could die
            copy.make_uncertain()

    def on_purge(self, channel: ObservedChannel) -> None:
        """A channel purges the queue."""
        self.may_have_leaked = True
        self.purging.add(channel)
        self._make_unheld_uncertain()

    def on_purge_ok(self, channel: ObservedChannel) -> None:
        self.purging.discard(channel)
        self._make_unheld_uncertain()

    def _forbid_all(self) -> None:
        """The queue is gone with all its messages."""
        for copy in self.copies.values():
            copy.state = CopyState.FORBIDDEN

    # -- whether the queue and its binding exist ---

    def may_be_used_by(self, connection: Owner | None) -> bool:
        """Whether the queue certainly exists and is not another connection's."""
        return self.exists is True and (not self.kind.exclusive or self.owner is connection)

    def on_declare(self) -> None:
        """A channel declares the queue. If the channel ends before the answer, the declare stays in flight for ever."""
        self.declares_in_flight += 1
        if self.exists is False:
            self.exists = None

    def on_declare_ok(self, delete_count: int, is_leaving: bool, owner: Owner | None) -> None:
        """A declare is answered.

        delete_count   its value when the declare was sent
        is_leaving     the channel is about to end, so the answer may be old
        owner          the connection that has declared it
        """
        self.declares_in_flight -= 1
        self.declare_count += 1
        is_certain = self.delete_count == delete_count and not is_leaving
        if self.kind.exclusive and not is_leaving:
            if self.exists and self.owner is not owner:
                names = [one and one.name for one in (owner, self.owner)]
                raise PromiseBroken(
                    f"exclusive queue '{self.kind.name}' was given to {names[0]}, but {names[1]} has it"
                )
            if self._expected_end is not None:
                # Otherwise the broker would have refused the declare. Messages published since the old owner left may
                # be in the new queue already: it exists before its declare is answered.
                self._has_ended(self._copies_before_end)
                is_certain = True
            self.owner = owner
        if self.deletes_in_flight == 0 and is_certain and self._expected_end is None:
            self._exists_now()
        self.was_declared_during_delete |= self.deletes_in_flight > 0

    def _exists_now(self) -> None:
        if self.exists is not True:
            self.exists = True
            self._exists_since = self.clock()

    def on_unbind(self, channel: ObservedChannel) -> None:
        """A channel unbinds the queue."""
        self.is_bound = None
        self.unbinding.add(channel)
        self.unbind_count += 1
        for copy in self.copies.values():
            if copy.state == CopyState.SENT and copy.message.by_exchange:
                copy.state = CopyState.UNCERTAIN  # the broker may route it after the unbind

    def on_delete(self) -> list[Copy]:
        """A channel deletes the queue. Returns what `on_delete_ok` needs."""
        self.may_have_leaked = True
        self.deletes_in_flight += 1
        self.delete_count += 1
        self.exists = self.is_bound = None
        self.on_may_be_gone(self)
        deleted = self._arrived()
        self._make_all_uncertain()
        return deleted

    def _arrived(self) -> list[Copy]:
        """The copies that have certainly come in, so that no later queue of the same name can have them.

        Others may be in flight: those whose publish nothing proves yet, and those of transactions that are not
        committed, which are FORBIDDEN until then.
        """
        in_flight = (CopyState.SENT, CopyState.UNCERTAIN, CopyState.FORBIDDEN)
        return [copy for copy in self.copies.values() if copy.state not in in_flight]

    def on_delete_ok(self, deleted: list[Copy]) -> None:
        """A delete is answered. None of the copies `deleted` can be in a later queue of the same name."""
        self.deletes_in_flight -= 1
        self.delete_count += 1
        self._make_all_uncertain()
        for copy in deleted:
            copy.state = CopyState.FORBIDDEN
        is_open = self.deletes_in_flight or self.declares_in_flight or self.was_declared_during_delete
        self.exists = None if is_open else False
        # A bind in flight, which may wait for the disk, binds the queue that is declared under this name next.
        self.is_bound = None if self.exists is None or self.binds_in_flight else False
        self.was_declared_during_delete &= self.deletes_in_flight > 0

    def on_consumer_leaving(self, consumer: ObservedConsumer) -> None:
        """A consumer is about to leave, or has left. Only the first call counts."""
        is_known = consumer in self.consumers
        if is_known:
            self.consumers.remove(consumer)
        if not consumer.has_left:
            consumer.has_left = True
            # A stale consumer belonged to an earlier queue, unless it is unknown whether that was deleted (None).
            if not consumer.is_stale or self.exists is None:
                self.may_auto_delete(is_known and not consumer.is_stale)

    def may_auto_delete(self, is_certain: bool = False) -> None:
        """A consumer may have left; `is_certain` if there certainly was one and it has left."""
        if self.kind.auto_delete and self.had_consumer:
            self._may_end(is_certain)

    def on_owner_leaving(self, is_certain: bool = True) -> None:
        """The owning connection is about to end, or has ended without a close; if not `is_certain`, it may go on."""
        self._copies_before_end = self._arrived()
        self._may_end(is_certain)

    def on_owner_left(self) -> None:
        """The broker has closed the owner's connection in order, so the queue is gone."""
        self._has_ended(self._copies_before_end)

    def _may_end(self, is_certain: bool = True) -> None:
        """From now on the queue may end by itself."""
        self.may_have_leaked = True
        self.delete_count += 1
        self.exists = self.is_bound = None
        # After a crash the new process may never have had a consumer, and stays. The same holds for a queue that is
        # declared again while a delete is in flight: the consumer was then the deleted queue's.
        if is_certain and not self.has_old_deliveries and not self.deletes_in_flight:
            self._expected_end = self.declare_count, self.crash_count
        elif self._expected_end is None:
            self._expected_end = -1, -1
        self.on_may_be_gone(self)
        self._make_all_uncertain()

    def _has_ended(self, gone: list[Copy] | None = None) -> None:
        """The queue is gone, with the copies `gone`, by default all; others may be in a later queue of its name."""
        self.delete_count += 1
        self.exists = self.is_bound = False
        self.owner = self._expected_end = None
        self.had_consumer = False
        if gone is None:
            self._forbid_all()
            return
        for copy in self.copies.values():
            copy.make_uncertain()
        for copy in gone:
            copy.state = CopyState.FORBIDDEN

    # -- crashes and rest ---

    def on_crash(self, keeps_disk: bool, may_stay_down: bool = False) -> None:
        """The queue's process has crashed, or the whole node; `may_stay_down` if it may not be restarted at once."""
        self.has_old_deliveries = True
        self.checks.on_crash()
        self.crash_count += 1
        # The broker refuses a request that has met this many crashes, although the queue has a next process.
        if may_stay_down or self.crash_count - self._crashes_before >= ATTEMPTS:
            self.may_be_down = True
            self.on_may_be_gone(self)
        self._uncertain_at = self.clock()
        self.add_unseen_deliveries()
        # A purge that meets the crash is repeated on the next process (AB-63). There every message is ready, also
        # those that a channel holds now, so the purge removes them too.
        keeps_all = keeps_disk and not self.purging
        for copy in self.copies.values():
            copy.returns_least = copy.returns_kept
            may_have_died = (
                self.kind.has_dead_letters
                and copy.state != CopyState.FORBIDDEN
                and (copy.dead_letter is not None or self.deaths.may_have_died(copy))
            )
            if copy.state in (CopyState.READY, CopyState.UNACKED) and copy.is_safe and keeps_all and not may_have_died:
                copy.state, copy.holder = CopyState.READY, None
            else:
                copy.make_uncertain()
            if may_have_died:
                copy.may_have_died = True
                if copy.dead_letter is not None:
                    copy.dead_letter.make_ambiguous()

    def on_node_end(self) -> None:
        """The node has ended somehow. Nothing that arrives later was sent by it."""
        self.deletes_in_flight = self.declares_in_flight = self.unbind_count = self.binds_in_flight = 0
        self.was_declared_during_delete = False
        self.purging.clear()
        self.unbinding.clear()
        self.consumers.clear()
        if not self.survives_restart:
            self._has_ended()
            return
        if self.kind.auto_delete and self.had_consumer:
            self._may_end()
            self._expected_end = None  # the node may have ended before the queue could
        self.had_consumer = False
        self.on_crash(True)
        for copy in self.copies.values():
            if not copy.is_persistent:
                copy.state = CopyState.FORBIDDEN
        self.has_old_deliveries = False
        self._came_up()

    def on_rest(self) -> None:
        """The node is at rest and its disk takes writes: everything that was to be written is written."""
        now = self.clock()
        # Until now deliveries could be lost or unseen. That matters for dead letters: their messages may have died
        # since, and the dead letters went to a consumer that was about to leave, or came while this queue was down.
        if self.may_lose:
            self._uncertain_at = now
        if self.has_unseen_deliveries:
            self._unseen_at = now
        self.has_unseen_deliveries = self.has_unseen_without_ack = False
        self.has_old_deliveries = self.has_new_messages = False
        self._came_up()
        self.purging = {channel for channel in self.purging if not channel.is_leaving}
        self.unbinding = {channel for channel in self.unbinding if not channel.is_leaving}
        if self._expected_end is not None:
            self._decide_end(*self._expected_end)
        has_target = self.deaths.target is not None
        for copy in self.copies.values():
            if (
                copy.state == CopyState.READY
                and has_target
                and self.kind.ttl is not None
                and copy.arrived is not None
                and now > copy.arrived + self.kind.ttl + EXPIRY_SLACK
            ):
                self.deaths.die(copy, CopyState.READY)
                copy.state = CopyState.FORBIDDEN
            copy.returns_kept = copy.returns_least
            if copy.state == CopyState.READY and has_target and copy.is_returned_too_often(copy.returns_least):
                self.deaths.die(copy, CopyState.READY)
                copy.state = CopyState.FORBIDDEN
            if copy.state == CopyState.REMOVED:
                copy.state = CopyState.FORBIDDEN
            elif copy.state in (CopyState.READY, CopyState.UNACKED):
                if copy.arrived is None:
                    copy.arrived = now
                if self.survives_restart and copy.is_persistent:
                    copy.is_safe = True

    def _came_up(self) -> None:
        self.may_be_down = False
        self._crashes_before = self.crash_count

    def _decide_end(self, declare_count: int, crash_count: int) -> None:
        """The node is at rest, so the queue has ended by itself or will not."""
        self._expected_end = None
        if self.consumers:
            for consumer in self.consumers:
                consumer.delete_count = self.delete_count  # they have kept the queue alive, so they are not stale
            self._exists_now()
        elif (self.declare_count, self.crash_count) == (declare_count, crash_count):
            if not self.declares_in_flight and not self.deletes_in_flight:
                self._has_ended()

    def missing(self) -> list[Copy]:
        """The copies that should have been delivered, after every queue was emptied, the one for dead letters last."""
        if self.deletes_in_flight:
            return []  # the channel ended before the answer, so the queue may have been deleted or not
        return [
            copy for copy in self.copies.values() if copy.state == CopyState.READY and not self.deaths.may_be_gone(copy)
        ]


def _ignore(queue: QueueModel) -> None:
    """The default of `on_may_be_gone`."""
