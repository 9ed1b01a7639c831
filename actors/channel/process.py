"""`Channel`: the process of one AMQP channel (amqp-broker sections 5, 7, 10 and 11).

The channel handles the reader's events, which its owner sends, one after the other, and turns them into messages to
Metadata and to queues; it turns what queues send back into frames for the owner. Each part of the work owns its state:

    Publisher         routing, confirms, the publishes of a transaction
    Transaction       tx.select, tx.commit and tx.rollback
    ChannelConsumers  consumers and what is delivered to them
    Deliveries        delivery tags, settlement, the settlements of a transaction
    Gets              basic.get
    Limiter           the channel-wide prefetch
    AckTimeouts       how long a client may leave a delivery unacknowledged
    ReplyConsumer     the consumer of direct replies
    Declares          declares and deletes exchanges, queues and bindings; has no state
    QueueLinks        the queues that the channel uses, and the publishes and settlements gathered for them
    ClientOutput      the frames gathered for the client

**Order.** A method that waits for an answer runs as a coroutine; while it waits the channel is *busy*: later events of
the client wait in `backlog`, while deliveries and confirms keep flowing. Replies therefore come in the order of the
methods (AB-56). Publishes and settlements are gathered by queue and sent in `after_batch`, or before the channel asks a
queue or Metadata something, so that every process receives them in the client's order.

**States.** `starting` (only channel.open is accepted), `running`, `closing` (the channel sent channel.close after an
error, and drops everything but close and close-ok, AB-54), `closed` (the owner may give the number to another channel).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from ...amqp import methods
from ...amqp.channel_state import RUNNING, check_method
from ...amqp.errors import AmqpError
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, OVERSIZED, RUN, Event
from ...runtime.contract import Address, Sender
from ...runtime.credit import CreditFlow, link_peer
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.turn_work import TurnWork
from ..context.node_context import NodeContext
from ..context.starting import ToNewChannel
from ..contracts.channel import ChannelConfig, ConfirmRange, DeliveryRun, ToChannelOwner, to_channel_owner
from ..contracts.info_items import InfoItems
from ..contracts.queue import ToQueue
from ..events.credit_events import trace_credit
from ..statistics.counts import MessageCounts
from ..statistics.pair_counts import PairCounts
from .client_output import ClientOutput
from .consuming.ack_timeouts import AckTimeouts
from .consuming.consumers import ChannelConsumers
from .consuming.deliveries import Deliveries
from .consuming.gets import Gets
from .consuming.limiter import Limiter
from .consuming.unacked import Unacked
from .declares import Declares
from .direct_reply import ReplyConsumer
from .interception import Acknowledge, Handler, Interception, Publish
from .listing import channel_items
from .publishing.publisher import Publisher
from .publishing.spreading import Spreading
from .queue_links import QueueLinks
from .tracing import Tracer
from .transaction import Transaction

#: Methods that are handled together with those behind them in the backlog that continue them.
_TAKING_AHEAD = (methods.BasicReject, methods.BasicNack)

#: The kind of an entry of the backlog that is no event of the client: `(HANDLED, sender)` has the sender of `handled`
#: answered when everything in front of it is done.
HANDLED = "handled"

#: The owner's name as a credit peer.
CONNECTION = "connection"

#: One object for all channels, because each empty frozenset takes 216 bytes.
NO_LINKS: frozenset[str] = frozenset()


class Channel(Process):
    """The process of one channel; `ToChannel` lists the messages that it receives."""

    __slots__ = (
        "acknowledge",
        "backlog",
        "busy",
        "config",
        "connection",
        "consumers",
        "context",
        "counts",
        "credit",
        "declares",
        "deliveries",
        "gets",
        "handlers",
        "full_links",
        "input_paused",
        "is_backlog_long",
        "is_resuming",
        "limiter",
        "name",
        "output",
        "pairs",
        "publish",
        "publisher",
        "queues",
        "replies",
        "round",
        "running_ids",
        "settings",
        "shut_down_for",
        "state",
        "taken",
        "timeouts",
        "transaction",
        "unasked",
        "work",
    )

    contract = ToNewChannel
    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.state = "starting"
        self.busy = False
        self.backlog: deque[Event] = deque()
        #: Methods that the client did not ask for, such as basic.cancel. They are sent when the method that keeps the
        #: channel busy has been answered.
        self.unasked: list[Method] = []
        #: Whether the owner was asked to read no more: the backlog is long, or a link to another node is full.
        self.input_paused = False
        self.is_backlog_long = False
        #: Nodes the links to which are full.
        self.full_links = NO_LINKS
        #: The owner's unanswered `shut_down`.
        self.shut_down_for: Sender | None = None
        #: Publishes taken in this batch, for which the owner gets credit when the batch ends.
        self.taken = 0
        #: Class and method id of the event being handled, for the channel.close that an error in it causes.
        self.running_ids = (0, 0)
        #: Whether `resume` handles the backlog now.
        self.is_resuming = False
        self.counts = MessageCounts()
        #: `Activity.round` when the channel last noted that it was active.
        self.round = 0

    @property
    def label(self) -> str:
        return self.name if hasattr(self, "name") else ""

    def on_start(self, sender: Address[ToChannelOwner], context: NodeContext, config: ChannelConfig) -> None:
        self.connection = sender
        self.context = context
        self.config = config
        self.settings = settings = context.settings
        self.name = f"{config.connection_name} ({config.number})"
        self.credit = CreditFlow(
            settings.credit_flow_default_credit, self._grant, clock=self.now, hold=settings.flow_hold_channel / 1000
        )
        trace_credit(self, self.credit, context, f"channel {self.name}")
        self.work = TurnWork(settings.turn_messages)
        is_global, prefetch = settings.default_consumer_prefetch
        tracer = Tracer(self, context, config)
        unacked = Unacked()
        self.output = output = ClientOutput(config.number, config.frame_max)
        is_detailed = context.settings.management_rates_mode == "detailed" and config.is_listed
        self.pairs = PairCounts(context.counts) if is_detailed else None
        self.queues = queues = QueueLinks(self, context, config, self.credit)
        self.replies = replies = ReplyConsumer(self, context, config, output)
        self.limiter = Limiter(self, config, queues, unacked, prefetch if is_global and prefetch else None)
        self.timeouts = AckTimeouts(self, context, config, queues, unacked, self.work, lambda: self.consumers.by_tag)
        # Interceptors get each method by itself.
        taken_ahead = deque[Event]() if context.extensions.interceptors else self.backlog
        self.deliveries = Deliveries(
            self,
            context,
            config,
            output,
            queues,
            unacked,
            self.limiter,
            tracer,
            self.work,
            self.timeouts,
            self.counts,
            self.pairs,
            taken_ahead,
        )
        self.consumers = ChannelConsumers(
            self,
            context,
            config,
            output,
            queues,
            self.deliveries,
            self.limiter,
            replies,
            tracer,
            0 if is_global else prefetch,
            self._is_running,
            self._put_unasked,
        )
        spreading = Spreading(self, context, self.credit)
        self.publisher = Publisher(
            self,
            context,
            config,
            output,
            queues,
            replies,
            tracer,
            self.work,
            spreading,
            self.counts,
            (self.pairs or context.counts).published,
            self.credit,
        )
        self.transaction = Transaction(
            self.publisher, self.deliveries, output, self.backlog, self.channel_error, self.connection_error
        )
        self.gets = Gets(self, context, config, output, queues, self.deliveries, self.limiter, tracer, taken_ahead)
        self.declares = Declares(self, context, config, output, queues, replies, taken_ahead)
        self.handlers = _HANDLERS
        self.publish: Publish = self.publisher.publish
        self.acknowledge: Acknowledge = self.deliveries.acknowledge
        if context.extensions.interceptors:
            interception = Interception(config, context.extensions.interceptors)
            self.handlers = interception.handlers(self.handlers)
            self.publish = interception.publish(self.publish)
            self.acknowledge = interception.acknowledge(self.acknowledge)
        if config.is_listed:
            context.activity.enter(config.channel_id, "channel", self)

    def _is_running(self) -> bool:
        return self.state == "running"

    # -- events of the client ---

    def on_input(self, sender: Sender, events: list[Event]) -> None:
        if self.busy or self.backlog:
            self.backlog.extend(events)
            if self.transaction.is_committing:
                self.transaction.check_backlog()
            elif len(self.backlog) > self.settings.control_backlog_limit and not self.input_paused:
                self._refresh_input_pause()
            return
        for at, event in enumerate(events):
            if event[0] == METHOD and type(event[2]) in _TAKING_AHEAD:
                self.backlog.extend(events[at:])
                self.resume()
                if self.transaction.is_committing:
                    self.transaction.check_backlog()
                return
            self._handle(event)
            if self.busy:
                self.backlog.extend(events[at + 1 :])
                if self.transaction.is_committing:
                    self.transaction.check_backlog()
                return

    def on_handled(self, sender: Sender) -> bool | None:
        if not self.busy and not self.backlog:
            return True
        self.backlog.append((HANDLED, sender))
        return None

    def _refresh_input_pause(self) -> None:
        """Have the owner read while the backlog is short (FC-34) and no link of this channel is full (CL-15)."""
        length, limit = len(self.backlog), self.settings.control_backlog_limit
        self.is_backlog_long = length > (limit // 2 if self.is_backlog_long else limit)
        is_paused = self.is_backlog_long or bool(self.full_links)
        if is_paused != self.input_paused:
            self.input_paused = is_paused
            self.send(self.connection, to_channel_owner.pause_input(self.config.number, is_paused))

    def _put_unasked(self, method: Method) -> None:
        """Send the client a method that answers nothing, behind the answer to the method in progress.

        A client that waits for that answer may take no other method first: py-amqp raises if the basic.cancel of a
        consumer comes between queue.delete and its answer.
        """
        if self.busy:
            self.unasked.append(method)
        else:
            self.output.put_method(method)

    def resume(self) -> None:
        """Handle the events that have come in while a method kept the channel busy."""
        self.busy = False
        if self.unasked:
            unasked, self.unasked = self.unasked, []
            if self.state == "running":
                for method in unasked:
                    self.output.put_method(method)
        if self.is_resuming:
            return  # the method was done at once, and the loop below goes on
        backlog = self.backlog
        self.is_resuming = True
        while backlog and not self.busy:
            self._handle(backlog.popleft())
        self.is_resuming = False
        if self.input_paused:
            self._refresh_input_pause()
        if self.shut_down_for is not None and not self.busy:
            self._begin_shut_down(self.shut_down_for)

    def _handle(self, event: Event) -> None:
        kind = event[0]
        try:
            if kind == RUN:
                self.taken += len(event[4])
                self.running_ids = (60, 40)
                if self.state == "running":
                    self.publish(*event[2:])
                    if self.publisher.waiting:
                        self._wait_for(self.publisher.send_all_waiting())
            elif self.state != "running":
                if kind == OVERSIZED:
                    self.taken += 1
                self._handle_closed(event)
            elif kind == ACKS:
                self.running_ids = (60, 80)
                waiting = self.acknowledge(event[2])
                if waiting is not None:
                    self._wait_for(waiting)
            elif kind == METHOD:
                method = event[2]
                self.running_ids = (method.CLASS_ID, method.METHOD_ID)
                check_method(RUNNING, method)
                waiting = self.handlers[type(method)](self, method)
                self.work.left -= 1
                if waiting is not None:
                    self._wait_for(waiting)
                elif self.work.left <= 0 and not self.busy:
                    self._wait_for(self.next_turn())
            elif kind == OVERSIZED:
                self.taken += 1
                self.running_ids = (60, 40)
                self.publisher.refuse_oversized(event[4])
            elif kind == HANDLED:
                self.reply(event[1], True)
        except AmqpError as error:
            self._fail(error)

    def _handle_closed(self, event: Event) -> None:
        """Handle an event before channel.open, or after the channel has sent channel.close."""
        if event[0] == HANDLED:
            self.reply(event[1], True)
            return
        method = event[2] if event[0] == METHOD else None
        if self.state == "starting":
            # The first event of a channel is its channel.open: the connection creates it for nothing else (AB-52).
            self.state = "running"
            self.output.put_method(methods.ChannelOpenOk(b""))
        elif self.state == "closing" and type(method) in (methods.ChannelClose, methods.ChannelCloseOk):
            is_crossed = type(method) is methods.ChannelClose
            if is_crossed:
                self.output.put_close(methods.ChannelCloseOk())
            self._end(is_crossed)

    def _wait_for(self, waiting: Awaitable[None]) -> None:
        """Handle the next event of the client when `waiting` is done."""
        self.busy = True
        self.spawn(self._finish(waiting))

    async def _finish(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except AmqpError as error:
            self._fail(error)
        # A closing channel resumes in `_close_after_error`, once it has given back everything that it holds, and one
        # that commits when the last confirm has come.
        if self.state != "closing" and not self.transaction.is_committing:
            self.resume()

    # -- errors and closing ---

    def _fail(self, error: AmqpError) -> None:
        if not error.class_id:
            error.class_id, error.method_id = self.running_ids
        if error.is_connection_error:
            self.connection_error(error)
        else:
            self.channel_error(error)

    def connection_error(self, error: AmqpError) -> None:
        if self.state != "closed":
            self.state = "closed"
            self.send(self.connection, to_channel_owner.channel_failed(self.config.number, error))

    def channel_error(self, error: AmqpError) -> None:
        """Give back everything the channel holds, then send channel.close (AB-54)."""
        if self.state in ("closing", "closed"):
            return
        # The events in the backlog are still handled one by one, and dropped: their credit has to be returned, or a
        # blocked connection would never read the client's close-ok.
        self.state = "closing"
        self.send(self.connection, to_channel_owner.channel_error(self.config.number, error.code, error.reply_text))
        self.busy = True
        self.spawn(self._close_after_error(error))

    async def _close_after_error(self, error: AmqpError) -> None:
        await self._release()
        self.output.put_close(methods.ChannelClose(error.code, error.reply_text, error.class_id, error.method_id))
        self.resume()

    async def close(self, method: methods.ChannelClose) -> None:
        """Handle the client's channel.close."""
        self.state = "closing"
        await self._release()
        self.output.put_close(methods.ChannelCloseOk())
        self._end(is_crossed=False)

    def _end(self, is_crossed: bool) -> None:
        self.state = "closed"
        # The last output and the end go in one message, for a client that has our close-ok may use the number at once.
        self.send(
            self.connection,
            to_channel_owner.channel_closed(self.config.channel_id, is_crossed, *self.output.take()),
        )
        self.stop("normal")

    def on_shut_down(self, sender: Sender) -> None:
        self.shut_down_for = sender
        # Wait until the channel is no longer busy. But a channel that has failed with a connection error may be busy
        # with an ask that is never answered, so it does not wait.
        if not self.busy or self.state == "closed":
            self._begin_shut_down(sender)

    def _begin_shut_down(self, sender: Sender) -> None:
        self.busy = True
        self.shut_down_for = None
        self.spawn(self._shut_down(sender))

    async def _shut_down(self, sender: Sender) -> None:
        if self.state != "closed":
            self.state = "closed"
            await self._release()
        else:
            with suppress(AmqpError):
                await self.publisher.send_all_waiting()
        if self.output.frames or self.output.pieces:
            self._send_output()
        self.reply(sender, True)
        self.stop("normal")

    async def _release(self) -> None:
        """End the consumers, requeue unacknowledged messages and drop an open transaction."""
        with suppress(AmqpError):  # a publish that is refused now has no channel left to close
            await self.publisher.send_all_waiting()
        self.queues.flush()
        if self.replies.tag is not None:
            await self.replies.cancel()
        await self.queues.leave(self.consumers.queue_ids() | self.deliveries.queue_ids())
        await self.consumers.end()
        await self.deliveries.dispose()
        await self.publisher.roll_back()
        await self.in_steps(self._forget_queue, tuple(self.queues.rows))

    def _forget_queue(self, queue_id: str) -> None:
        """Watch a queue no longer, and owe the connection no grants because of it: if the queue ended now, nobody would
        tell the channel, and the connection would never read the client's close-ok.
        """
        self.demonitor(queue_id)
        self.credit.peer_down(queue_id)

    # -- messages from queues and other channels ---

    def on_down(self, queue_id: str, reason: ExitReason) -> None:
        row, unsent = self.queues.remove(queue_id)
        # A queue that was dead before the channel watched it counts as crashed if it is still in the routing table.
        is_crashed = reason.is_fault or reason.is_noproc and row is not None and self.queues.is_routed_to(row)
        self.publisher.failover.queue_gone(queue_id, row, unsent, is_crashed)
        if self.state == "running":
            self.deliveries.queue_gone(queue_id)
            # If the queue's node stops, or the link to it is lost, the queue may stay unreachable for any time. So its
            # consumers are cancelled, unless another node has the messages (AB-126).
            is_home_gone = reason.is_noconnection or reason.is_exit
            waits = row is not None and (not is_home_gone or self.queues.is_mirrored(row))
            self.consumers.queue_gone(queue_id, row if is_crashed and waits else None)
            self.limiter.queue_gone(queue_id)

    def on_confirm(self, sender: Sender, queue_id: str, ranges: list[ConfirmRange]) -> None:
        self.publisher.confirms.confirm(queue_id, ranges)
        self.publisher.failover.answered(queue_id)

    def on_refuse(self, sender: Sender, queue_id: str, ranges: list[ConfirmRange], is_short: bool = False) -> None:
        self.publisher.confirms.refuse(queue_id, ranges)
        self.publisher.failover.answered(queue_id)
        if is_short:
            self.transaction.meets_short_queue()

    def on_deliver(self, sender: Address[ToQueue], queue_id: str, consumer_tag: str, runs: list[DeliveryRun]) -> None:
        if self.state == "running":
            self.consumers.deliver(sender, queue_id, consumer_tag, runs)

    def on_reading_ended(self, sender: Sender, queue_id: str, consumer_tag: str, error: AmqpError | None) -> None:
        consumer = self.consumers.running(queue_id, consumer_tag)
        if consumer is None or self.state != "running":
            return
        if error is not None:
            self.channel_error(error)
        else:
            self.consumers.cancel_by_broker(consumer)

    def on_reply_to(self, sender: Sender, key: str, exchange: str, routing_key: str, contents: list[bytes]) -> None:
        if self.state == "running" and self.replies.has_key(key):
            self.replies.deliver(exchange, routing_key, contents, self.deliveries.next_tag)

    def on_has_reply_key(self, sender: Sender, key: str) -> bool:
        return self.state == "running" and self.replies.has_key(key)

    def on_limiter_request_now(self, sender: Address[ToQueue], queue_id: str, wanted: int) -> None:
        self.limiter.request_now(sender, queue_id, wanted)

    def on_limiter_request(self, sender: Address[ToQueue], queue_id: str, wanted: int) -> None:
        self.limiter.request(sender, queue_id, wanted)

    def on_limiter_return(self, sender: Sender, queue_id: str, count: int) -> None:
        self.limiter.take_back(queue_id, count)

    def on_bump(self, sender: Sender, peer: str, amount: int) -> None:
        self.credit.bump(peer, amount)

    def on_link_full(self, sender: Sender, node: str) -> None:
        """Stop the client's input at once. Deferring credit alone would let the client send hundreds of messages more,
        whatever their size.
        """
        peer = link_peer(node)
        self.credit.relate(peer, kind="link")
        self.credit.block(peer)
        self.full_links |= {node}
        self._refresh_input_pause()

    def on_link_free(self, sender: Sender, node: str) -> None:
        self.credit.unblock(link_peer(node))
        self.full_links -= {node}
        self._refresh_input_pause()

    def _grant(self, peer: str, amount: int) -> None:
        self.send(self.connection, to_channel_owner.bump(self.config.channel_id, amount))

    async def on_timer(self, payload: str) -> None:
        """Check the acknowledgement timeouts. The channel has no other timer."""
        try:
            await self.timeouts.check()
        except AmqpError as error:
            if self.state == "running":
                self.channel_error(error)

    def on_exit(self) -> None:
        if hasattr(self, "config"):
            self.context.activity.leave(self.config.channel_id)
            self.publisher.failover.end()

    # -- output ---

    def after_batch(self) -> None:
        work = self.work
        work.left = work.most
        queues = self.queues
        if queues.settlements or queues.publishes:
            queues.flush()
        publisher = self.publisher
        if self.taken and not publisher.waiting:
            # Only after the flush: if these publishes have exhausted a queue's credit, the grant to the connection must
            # be deferred, or the queue would get more than FC-59 allows.
            self.credit.take(CONNECTION, self.taken)
            self.taken = 0
        if publisher.awaits_confirms and publisher.confirms.has_settled and self.state == "running":
            transaction = self.transaction
            if transaction.is_committing or transaction.is_sending:
                if transaction.confirms_arrived() and self.state == "running":
                    self.resume()
            else:
                publisher.flush_confirms()
        output = self.output
        if output.frames or output.pieces:
            self.send(self.connection, to_channel_owner.output(*output.take()))
        activity = self.context.activity
        if activity.round != self.round and self.config.is_listed:
            self.round = activity.round
            activity.note(self.config.channel_id)

    def _send_output(self) -> None:
        self.send(self.connection, to_channel_owner.output(*self.output.take()))

    # -- other methods ---

    def flow(self, method: methods.ChannelFlow) -> None:
        if not method.active:
            raise AmqpError(540, "active=false")
        self.output.put_method(methods.ChannelFlowOk(True))

    def access_request(self, method: methods.AccessRequest) -> None:
        self.output.put_method(methods.AccessRequestOk(1))

    def statistics(self) -> InfoItems:
        pairs = self.pairs.items() if self.pairs is not None else {}
        return {**self.on_info(self.myAddress), "counts": self.counts.values(), **pairs}

    def on_info(self, sender: Sender) -> InfoItems:
        rows = self.queues.rows
        return {
            "name": self.name,
            "state": "flow" if self.credit.in_flow() else self.state,
            **channel_items(self.config, self.publisher, self.consumers, self.deliveries, self.limiter),
            "backlog": len(self.backlog),
            "blocked_by": [
                *[rows[peer].name for peer in map(str, self.credit.blockers()) if peer in rows],
                *map(link_peer, sorted(self.full_links)),
            ],
            **self.credit.flow_items(),
        }


#: The handler of each method of a running channel. Publishes and acks arrive in batches and have handlers of their own.
_HANDLERS: dict[type[Method], Handler[Channel, Any]] = {
    methods.ChannelFlow: Channel.flow,
    methods.ChannelClose: Channel.close,
    methods.AccessRequest: Channel.access_request,
    methods.ExchangeDeclare: lambda channel, method: channel.declares.exchange_declare(method),
    methods.ExchangeDelete: lambda channel, method: channel.declares.exchange_delete(method),
    methods.ExchangeBind: lambda channel, method: channel.declares.exchange_bind(method),
    methods.ExchangeUnbind: lambda channel, method: channel.declares.exchange_unbind(method),
    methods.QueueDeclare: lambda channel, method: channel.declares.queue_declare(method),
    methods.QueueBind: lambda channel, method: channel.declares.queue_bind(method),
    methods.QueueUnbind: lambda channel, method: channel.declares.queue_unbind(method),
    methods.QueuePurge: lambda channel, method: channel.declares.queue_purge(method),
    methods.QueueDelete: lambda channel, method: channel.declares.queue_delete(method),
    methods.BasicQos: lambda channel, method: channel.consumers.qos(method),
    methods.BasicConsume: lambda channel, method: channel.consumers.consume(method),
    methods.BasicCancel: lambda channel, method: channel.consumers.cancel(method),
    methods.BasicGet: lambda channel, method: channel.gets.get(method),
    methods.BasicReject: lambda channel, method: channel.deliveries.reject(method),
    methods.BasicNack: lambda channel, method: channel.deliveries.nack(method),
    methods.BasicRecover: lambda channel, method: channel.deliveries.recover(method),
    methods.BasicRecoverAsync: lambda channel, method: channel.deliveries.recover_without_answer(method),
    methods.ConfirmSelect: lambda channel, method: channel.publisher.confirm_select(method),
    methods.TxSelect: lambda channel, method: channel.transaction.select(method),
    methods.TxCommit: lambda channel, method: channel.transaction.commit(method),
    methods.TxRollback: lambda channel, method: channel.transaction.roll_back(method),
}
