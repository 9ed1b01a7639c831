"""`Deliveries`: the delivery tags of one channel, basic.get, and the settlement of deliveries (AB-130 to AB-139)."""

from __future__ import annotations

from itertools import repeat

from ...amqp import methods
from ...amqp.errors import AmqpError
from ...runtime.process import Process
from ...store.messages.message import any_of
from ..node.context import NodeContext
from ..queue.contract import to_queue
from .client_output import ClientOutput
from .contract import ChannelConfig, Outcome
from .limiter import Limiter
from .queue_links import QueueLinks
from .tracing import Tracer
from .unacked import Unacked, UnackedRun


class Deliveries:
    """What one channel has delivered. It gathers settlements in `QueueLinks`."""

    __slots__ = (
        "_config",
        "_context",
        "_limiter",
        "_output",
        "_process",
        "_queues",
        "_tracer",
        "got_from",
        "is_timer_running",
        "next_tag",
        "unacked",
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
    ) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._limiter = limiter
        self._tracer = tracer
        self.unacked = unacked
        #: The next delivery tag; `ChannelConsumers` and `get` use them up.
        self.next_tag = 1
        #: Ids of the queues that gave this channel messages to acknowledge by basic.get.
        self.got_from: set[str] = set()
        self.is_timer_running = False

    def expect_ack(self, run: UnackedRun) -> None:
        self.unacked.add(run)
        if not self.is_timer_running and self._context.settings.consumer_timeout:
            self._start_timer()

    def queue_ids(self) -> set[str]:
        """The queues that hold unacknowledged messages of this channel."""
        return {run.queue_id for run in self.unacked} | self.got_from

    def queue_gone(self, queue_id: str) -> None:
        self.got_from.discard(queue_id)
        self.unacked.disown(queue_id)

    # -- basic.get ---

    async def get(self, method: methods.BasicGet) -> None:
        process, output = self._process, self._output
        row = self._queues.row(self._queues.name_or_last_declared(method.queue))
        delivery, messages_left = await self._queues.ask(
            row, to_queue.get(self._config.channel_id, process.myAddress, method.no_ack), is_watched=True
        )
        if delivery is None:
            output.put_method(methods.BasicGetEmpty(""))
            return
        origins, is_redelivered, tags, contents = delivery
        origin = any_of(origins)
        tag = self.next_tag
        self.next_tag += 1
        if self._context.routing.traced:
            self._tracer.trace_delivery(row.name, origin, is_redelivered, contents)
        output.put_method(
            methods.BasicGetOk(tag, is_redelivered, origin.exchange, origin.routing_keys[0], messages_left)
        )
        output.put_content(contents[0])
        if not method.no_ack:
            self.got_from.add(row.queue_id)
            self._limiter.exempt_get(tag)
            self.expect_ack(UnackedRun(tag, row.queue_id, None, tags, process.now()))

    # -- settlement ---

    def settle(self, outcome: Outcome, delivery_tag: int, is_multiple: bool) -> None:
        """Settle one delivery, or with `is_multiple` all up to it. Raise AmqpError 406 for an unknown tag (AB-132)."""
        runs = self.unacked.take(delivery_tag, is_multiple)
        if runs is None:
            raise AmqpError(406, f"unknown delivery tag {delivery_tag}")
        self._settle(outcome, runs)

    def acknowledge(self, acks: list[tuple[int, bool]]) -> None:
        """Handle consecutive basic.ack, each a delivery tag and whether it is multiple.

        Consumers mostly acknowledge one delivery at a time, in order. Such acks are handled as one range.
        """
        count = len(acks)
        first, is_multiple = acks[0]
        last = first + count - 1
        if count > 1 and acks[-1][0] == last and acks == list(zip(range(first, last + 1), repeat(is_multiple))):
            if is_multiple and self.unacked.has_range(first, last):
                self.settle("ack", last, True)
                return
            runs = None if is_multiple else self.unacked.take_range(first, last)
            if runs is not None:
                self._settle("ack", runs)
                return
        for delivery_tag, is_multiple in acks:
            self.settle("ack", delivery_tag, is_multiple)

    def _settle(self, outcome: Outcome, runs: list[UnackedRun]) -> None:
        """Settle the deliveries, now or at the commit of the transaction."""
        if self.unacked.held_back is not None:
            self.unacked.held_back.append((outcome, runs))
        else:
            self._settle_runs(outcome, runs)

    def _settle_runs(self, outcome: Outcome, runs: list[UnackedRun]) -> None:
        self._gather(outcome, runs)
        self._limiter.settled(runs)

    def _gather(self, outcome: Outcome, runs: list[UnackedRun]) -> None:
        settle = self._queues.settle
        for run in runs:
            settle(run.queue_id, outcome, run.tags)

    def recover(self, is_requeue: bool) -> None:
        """Handle basic.recover: return all unacknowledged messages to their queues."""
        if not is_requeue:
            raise AmqpError(540, "requeue=false")
        self._settle_runs("requeue", self.unacked.take_all())

    # -- the consuming half of a transaction (AB-115 to AB-117) ---

    def begin_transaction(self) -> None:
        if self.unacked.held_back is None:
            self.unacked.held_back = []

    def commit(self) -> None:
        """Settle what the transaction has held back."""
        assert self.unacked.held_back is not None
        held_back, self.unacked.held_back = self.unacked.held_back, []
        for outcome, runs in held_back:
            self._gather(outcome, runs)
        # One call for all runs. After each of several calls the limiter would grant deliveries, while it still exempts
        # the basic.gets of the runs that follow, although these are settled: it would grant as many too many.
        self._limiter.settled([run for _, runs in held_back for run in runs])

    def roll_back(self) -> None:
        """Make the deliveries that were settled in the transaction unacknowledged again."""
        assert self.unacked.held_back is not None
        for _, runs in self.unacked.held_back:
            self.unacked.put_back(runs)
        self.unacked.held_back.clear()

    # -- consumer timeout (AB-139) ---

    def _start_timer(self) -> None:
        self.is_timer_running = True
        self._process.start_timer(self._context.settings.channel_tick_interval / 1000, "consumer_timeout")

    def check_timeout(self) -> None:
        """Check the oldest delivery every `channel_tick_interval`. Raise AmqpError 406 if its ack is overdue."""
        self.is_timer_running = False
        oldest = self.unacked.oldest
        timeout = self._context.settings.consumer_timeout
        if oldest is None or not timeout:
            return
        if self._process.now() - oldest.delivered_at > timeout / 1000:
            raise AmqpError(
                406,
                f"delivery acknowledgement on channel {self._config.number} timed out. "
                f"Timeout value used: {timeout} ms. "
                "This timeout value can be configured, see consumers doc guide to learn more",
            )
        self._start_timer()
