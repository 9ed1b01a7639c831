"""`Deliveries`: the delivery tags of one channel, and the settlement of deliveries (AB-130 to AB-139)."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from itertools import repeat

from ....amqp import methods
from ....amqp.errors import AmqpError
from ....amqp.parser.events import METHOD, Event
from ....runtime.contract import Address
from ....runtime.process import Process
from ....runtime.turn_work import TurnWork
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig, DeliveryRun, Outcome
from ...contracts.queue import ToQueue, to_queue
from ...statistics.counts import MessageCounts
from ...statistics.pair_counts import PairCounts
from ..client_output import ClientOutput
from ..queue_links import QueueLinks, Settlement, gather
from ..tracing import Tracer
from .ack_timeouts import AckTimeouts
from .limiter import Limiter
from .unacked import NO_QUEUE, DeliverySource, Unacked, UnackedRun

#: The rest of an operation that takes several turns, to be awaited; None if the operation is done.
Waiting = Coroutine[object, None, None] | None


class Deliveries:
    """What one channel has delivered. It gathers settlements in `QueueLinks`."""

    __slots__ = (
        "_backlog",
        "_config",
        "_context",
        "_limiter",
        "_output",
        "_pairs",
        "_process",
        "_queues",
        "_timeouts",
        "_tracer",
        "counts",
        "next_tag",
        "of_type",
        "streams",
        "unacked",
        "work",
    )

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        output: ClientOutput,
        queues: QueueLinks,
        unacked: Unacked,
        limiter: Limiter,
        tracer: Tracer,
        work: TurnWork,
        timeouts: AckTimeouts,
        counts: MessageCounts,
        pairs: PairCounts | None,
        backlog: deque[Event],
    ) -> None:
        self._process = process
        #: The events that the client has sent behind the present one. Always empty on a channel with interceptors,
        #: which get each method by itself.
        self._backlog = backlog
        self._timeouts = timeouts
        self.work = work
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._limiter = limiter
        self._tracer = tracer
        self.unacked = unacked
        #: What the channel has delivered and got back, as the node counts it too.
        self.counts = counts
        self._pairs = pairs
        #: The next delivery tag; `ChannelConsumers` and `Gets` use them up.
        self.next_tag = 1
        #: The phrases of the streams that the channel has consumed from, by queue id.
        self.streams: dict[str, str] = {}
        #: By queue id: what the node counts of that type of queue. Classic queues are not among them.
        self.of_type: dict[str, MessageCounts] = {}

    def expect_ack(self, run: UnackedRun) -> None:
        self.unacked.add(run)
        if not self._timeouts.is_timing:
            self._timeouts.start_timer()

    def queue_ids(self) -> set[str]:
        """The queues that may hold unacknowledged messages of this channel."""
        return set(self.unacked.sources)

    def queue_gone(self, queue_id: str) -> None:
        self.unacked.disown(queue_id)

    def give_back(self, address: Address[ToQueue], queue_id: str, runs: list[DeliveryRun]) -> None:
        """Return deliveries to the queue process at `address`, because their consumer has ended.

        They count as sent: the queue delivers only so many messages to a channel that are not sent yet. A process that
        has ended needs nothing back, and ack tags of one mean other messages to the process that has replaced it.
        """
        if not self._queues.is_watched(queue_id, address):
            return
        for _, _, tags, _ in runs:
            if tags is not None:
                gather(self._queues.settlements, queue_id, "requeue", tags)
        count = sum([len(contents) for *_, contents in runs])
        self._process.send(address, to_queue.sent(self._config.channel_id, count))
        if self._limiter.limit is not None or self._limiter.shared:
            self._limiter.delivered(queue_id, count, 0)

    # -- settlement ---

    def settle(self, outcome: Outcome, delivery_tag: int, is_multiple: bool) -> Waiting:
        """Settle one delivery, or with `is_multiple` all up to it. Raise AmqpError 406 for an unknown tag (AB-132).

        Returns what to await if one turn may not settle that many.
        """
        unacked = self.unacked
        last = delivery_tag or unacked.last_tag
        runs = unacked.take(delivery_tag, is_multiple, self.work.most)
        if runs is None:
            raise AmqpError(406, f"unknown delivery tag {delivery_tag}")
        self.work.left -= len(runs)
        if self.streams and outcome != "ack":
            self._check_returnable(runs)
        if len(runs) == self.work.most and unacked.has_up_to(last):
            return self._settle_in_turns(outcome, runs, last, unacked.held_back is not None)
        if unacked.held_back is not None:
            unacked.hold_back(outcome, runs)
        else:
            self._settle_runs(outcome, runs)
        return None

    async def _settle_in_turns(
        self, outcome: Outcome, runs: list[UnackedRun], last: int | None, is_held_back: bool = False
    ) -> None:
        """Settle `runs`, and those up to the delivery tag `last`, in as many turns as it takes.

        If `last` is None, settle all deliveries, those included that are made meanwhile. The queues get everything at
        once, at the end. Otherwise a queue that has got the first part back would deliver it and then later messages
        of its own, before it has the other parts back: so out of order.
        """
        unacked = self.unacked
        settlements: dict[DeliverySource, Settlement] = {}
        while True:
            if is_held_back:
                unacked.hold_back(outcome, runs)
            else:
                self._gather_by_source(settlements, outcome, runs)
            if len(runs) < self.work.most:
                break
            await self._process.next_turn()
            runs = unacked.take_up_to(unacked.last_tag if last is None else last, self.work.most)
            self.work.left -= len(runs)
            if self.streams and outcome != "ack":
                self._check_returnable(runs)
        self._send_by_source(settlements)

    def _check_returnable(self, runs: list[UnackedRun]) -> None:
        """Raise AmqpError 540 if one of the deliveries is from a stream, which takes nothing back."""
        for run in runs:
            phrase = self.streams.get(run.source.queue_id)
            if phrase is not None:
                raise AmqpError(540, f"basic.nack and basic.reject not supported by stream queues {phrase}")

    def acknowledge(self, acks: list[tuple[int, bool]]) -> Waiting:
        """Handle consecutive basic.ack, each a delivery tag and whether it is multiple.

        Returns what to await if one turn may not settle that many.
        """
        if len(acks) > self.work.left:
            return self._settle_batches("ack", acks)
        if len(acks) == 1:
            delivery_tag, is_multiple = acks[0]
            return self.settle("ack", delivery_tag, is_multiple)
        return self._settle_batch("ack", acks)

    def _settle_batch(self, outcome: Outcome, acks: list[tuple[int, bool]]) -> Waiting:
        """Consumers mostly settle one delivery at a time, in order. Such settlements are handled as one range."""
        count = len(acks)
        first, is_multiple = acks[0]
        last = first + count - 1
        if count > 1 and acks[-1][0] == last and acks == list(zip(range(first, last + 1), repeat(is_multiple))):
            if is_multiple and self.unacked.has_range(first, last):
                return self.settle(outcome, last, True)
            runs = None if is_multiple else self.unacked.take_range(first, last)
            if runs is not None:
                self.work.left -= len(runs)
                if self.unacked.held_back is not None:
                    self.unacked.hold_back(outcome, runs)
                else:
                    self._settle_runs(outcome, runs)
                return None
        for at, (delivery_tag, is_multiple) in enumerate(acks):
            waiting = self.settle(outcome, delivery_tag, is_multiple)
            if waiting is not None:
                return self._settle_batches(outcome, acks[at + 1 :], waiting)
        return None

    async def _settle_batches(self, outcome: Outcome, acks: list[tuple[int, bool]], waiting: Waiting = None) -> None:
        """Handle the settlements behind those that `waiting` settles, in batches."""
        if waiting is not None:
            await waiting
        at = 0
        while at < len(acks):
            if self.work.left <= 0:
                await self._process.next_turn()
            end = at + max(1, self.work.left)
            waiting = self._settle_batch(outcome, acks[at:end])
            if waiting is not None:
                await waiting
            at = end

    def _settle_runs(self, outcome: Outcome, runs: list[UnackedRun]) -> None:
        settlements = self._queues.settlements
        if outcome == "ack":
            self._count_acks(runs)
        for run in runs:
            gather(settlements, run.source.queue_id, outcome, run.tags)
        limiter = self._limiter
        if limiter.exempt or limiter.shared:
            limiter.settled(runs)
        if limiter.requests:
            limiter.grant()

    def _gather_by_source(
        self, settlements: dict[DeliverySource, Settlement], outcome: Outcome, runs: list[UnackedRun]
    ) -> None:
        """Gather for `_send_by_source`, by the processes that delivered. One of them may end before that, and another
        process of the same queue must not get its ack tags.
        """
        if outcome == "ack":
            self._count_acks(runs)
        for run in runs:
            gather(settlements, run.source, outcome, run.tags)
        self._limiter.settled(runs)

    def delivered(self, queue_id: str, count: int, redelivered: int, no_ack: bool) -> None:
        """Count deliveries to a consumer."""
        of_channel, of_node = self.counts, self._context.counts
        if no_ack:
            of_channel.deliver_no_ack += count
            of_node.deliver_no_ack += count
        else:
            of_channel.deliver += count
            of_node.deliver += count
        if redelivered:
            of_channel.redeliver += redelivered
            of_node.redeliver += redelivered
        if self.of_type and queue_id in self.of_type:
            of_type = self.of_type[queue_id]
            if no_ack:
                of_type.deliver_no_ack += count
            else:
                of_type.deliver += count
            of_type.redeliver += redelivered
        of_pair = None if self._pairs is None else self._pairs.of_queue(queue_id)
        if of_pair is not None:
            of_pair.redeliver += redelivered
            if no_ack:
                of_pair.deliver_no_ack += count
            else:
                of_pair.deliver += count

    def _count_acks(self, runs: list[UnackedRun]) -> None:
        count = len(runs[0].tags) if len(runs) == 1 else sum([len(run.tags) for run in runs])
        self.counts.ack += count
        self._context.counts.ack += count
        if self.of_type:
            for run in runs:
                of_type = self.of_type.get(run.source.queue_id)
                if of_type is not None:
                    of_type.ack += len(run.tags)
        if self._pairs is not None:
            for run in runs:
                of_pair = self._pairs.of_queue(run.source.queue_id)
                if of_pair is not None:
                    of_pair.ack += len(run.tags)

    def note_type(self, queue_id: str, queue_type: str) -> None:
        """Have the node count what this queue delivers by the queue's type, unless it is a classic one."""
        of_type = self._context.counts.of_type.get(queue_type)
        if of_type is not None:
            self.of_type[queue_id] = of_type

    def count(self, counter: str, queue_id: str) -> None:
        """Count something of one message from this queue."""
        of_pair = None if self._pairs is None else self._pairs.of_queue(queue_id)
        for counts in (self.counts, self._context.counts, self.of_type.get(queue_id), of_pair):
            if counts is not None:
                setattr(counts, counter, getattr(counts, counter) + 1)

    def _send_by_source(self, settlements: dict[DeliverySource, Settlement]) -> None:
        gathered = self._queues.settlements
        for source, settlement in settlements.items():
            if source.queue_id != NO_QUEUE:
                gathered.setdefault(source.queue_id, []).extend(settlement)
        self._limiter.grant()

    def reject(self, method: methods.BasicReject) -> Waiting:
        return self._give_back(method, False)

    def nack(self, method: methods.BasicNack) -> Waiting:
        return self._give_back(method, method.multiple)

    def _give_back(self, method: methods.BasicReject | methods.BasicNack, is_multiple: bool) -> Waiting:
        outcome: Outcome = "requeue" if method.requeue else "reject"
        # A stream refuses messages that are given back. When one of a batch is refused, the messages before it must be
        # settled, so deliveries of streams are not taken together.
        following = 0 if is_multiple or self.streams or not self._backlog else self._take_following(method)
        if not following:
            return self.settle(outcome, method.delivery_tag, is_multiple)
        self.work.left -= following
        first = method.delivery_tag
        return self._settle_batch(outcome, [(tag, False) for tag in range(first, first + following + 1)])

    def _take_following(self, method: methods.BasicReject | methods.BasicNack) -> int:
        """Take the methods that come next in the backlog and do the same with the next deliveries. Returns how many."""
        backlog, kind, count = self._backlog, type(method), 0
        while backlog and count < self.work.left:
            event = backlog[0]
            following = event[2] if event[0] == METHOD else None
            if (
                type(following) is not kind
                or following.delivery_tag != method.delivery_tag + count + 1
                or following.requeue != method.requeue
                or isinstance(following, methods.BasicNack)
                and following.multiple
            ):
                break
            backlog.popleft()
            count += 1
        return count

    def recover(self, method: methods.BasicRecover) -> Waiting:
        """Return all unacknowledged messages to their queues, and answer when it is done."""
        waiting = self.recover_without_answer(method)
        if waiting is not None:
            return self._answer_recover(waiting)
        self._output.put_method(methods.BasicRecoverOk())
        return None

    async def _answer_recover(self, waiting: Coroutine[object, None, None]) -> None:
        await waiting
        self._output.put_method(methods.BasicRecoverOk())

    def recover_without_answer(self, method: methods.BasicRecover | methods.BasicRecoverAsync) -> Waiting:
        """Return all unacknowledged messages to their queues.

        Returns what to await if one turn may not return that many. Messages that are delivered during the wait are
        returned as well: to a client, all that it has received before basic.recover-ok is void. If it then acknowledged
        a later delivery with `multiple`, it would acknowledge messages that it has thrown away.
        """
        if not method.requeue:
            raise AmqpError(540, "requeue=false")
        runs = self.unacked.take_up_to(self.unacked.last_tag, self.work.most)
        self.work.left -= len(runs)
        if self.streams:
            self._check_returnable(runs)
        if len(runs) == self.work.most and self.unacked.has_up_to(self.unacked.last_tag):
            return self._settle_in_turns("requeue", runs, None)
        self._settle_runs("requeue", runs)
        return None

    # -- the consuming half of a transaction (AB-115 to AB-117) ---

    def begin_transaction(self) -> None:
        if self.unacked.held_back is None:
            self.unacked.held_back = []

    async def commit(self) -> None:
        """Settle what the transaction has held back.

        The limiter grants only at the end, when the queues get the settlements. Until then it counts all of these
        deliveries as unacknowledged, because a queue may ask for a grant in one of the turns that this takes.
        """
        unacked = self.unacked
        assert unacked.held_back is not None
        held_back, unacked.held_back = unacked.held_back, []
        settlements: dict[DeliverySource, Settlement] = {}
        held_back.reverse()
        while held_back:
            outcome, runs = held_back.pop()
            self._gather_by_source(settlements, outcome, runs)
            await self._after_work(len(runs))
        unacked.held_back_count = 0
        self._send_by_source(settlements)

    async def roll_back(self) -> None:
        """Make the deliveries that were settled in the transaction unacknowledged again."""
        unacked = self.unacked
        assert unacked.held_back is not None
        held_back, unacked.held_back = unacked.held_back, []
        while held_back:
            _, runs = held_back.pop()
            unacked.put_back(runs)
            unacked.held_back_count -= sum([len(run.tags) for run in runs])
            await self._after_work(len(runs))

    async def dispose(self) -> None:
        """Free what is left when the channel ends. At the end of the process it would be freed in one turn."""
        unacked = self.unacked
        while runs := unacked.take_up_to(unacked.last_tag, self.work.most):
            await self._after_work(len(runs))
        while unacked.held_back:
            await self._after_work(len(unacked.held_back.pop()[1]))

    async def _after_work(self, count: int) -> None:
        """Count the work on `count` runs, and wait for another turn if this one has done enough."""
        self.work.left -= count
        if self.work.left <= 0:
            await self._process.next_turn()
