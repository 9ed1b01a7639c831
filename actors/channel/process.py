"""`Channel`: the process of one AMQP channel (AB sections 5, 7, 10 and 11).

It takes the reader's events from its connection, one after the other, and turns them into messages to Metadata and to queues; what queues send back it turns
into frames for the connection. Three parts share the work: `Publisher` (routing, confirms, transactions), `Subscriptions` (consumers, deliveries, settlement,
prefetch) and the functions of `declares` (exchanges, queues, bindings).

Order. A method that must wait for an answer runs as a coroutine; while it waits the channel is *busy*, and later events of the client wait in `backlog`, while
deliveries and confirms keep flowing. Replies therefore come in the order of the methods (AB-56). What is to be sent to queues is gathered by queue and goes out in
`after_batch`, or before the channel asks a queue something, so that a queue sees everything in the client's order.

States: `starting` (only channel.open is accepted), `running`, `closing` (a channel exception was sent: everything but close and close-ok is dropped, AB-54),
`closed` (the connection was told to forget the number).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Any

from ...amqp import methods
from ...amqp.channel_state import COMMITTING, RUNNING, check_method
from ...amqp.errors import AmqpError
from ...amqp.frames import method_frame
from ...amqp.reader import ACKS, METHOD, OVERSIZED, RUN
from ...routing.phrases import no_queue, queue_locked, queue_unavailable
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown, ProcessTimeout
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ..node.context import NodeContext
from . import declares
from .interception import Handler, Interception
from .publishing import Publisher
from .queue_restart import ATTEMPTS, restarted
from .subscriptions import Subscriptions

CONNECTION = "connection"  # the connection's name as a credit peer


class Channel(Process):
    __slots__ = (
        "acknowledge",
        "backlog",
        "busy",
        "cancel_notify",
        "channel_id",
        "connection",
        "connection_id",
        "connection_name",
        "context",
        "credit",
        "frame_max",
        "handlers",
        "input_paused",
        "last_queue",
        "metadata",
        "name",
        "notices",
        "number",
        "out",
        "publish",
        "publisher",
        "queues",
        "routing",
        "running_ids",
        "settings",
        "shut_down_for",
        "state",
        "subscriptions",
        "taken",
        "user",
        "vhost",
    )

    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.state = "starting"
        self.busy = False
        self.backlog: deque[tuple] = deque()
        self.input_paused = False
        self.shut_down_for: Any = None  # the connection's question, while it waits for the channel's end
        self.taken = 0  # publishes of this wake-up whose credit is due
        self.queues: dict[str, QueueRow] = {}  # queues this channel has dealt with and that live
        self.out: list[bytes] = []
        self.notices: list[tuple[Any, str, str, int]] = []  # queue, its id, this channel's id, deliveries in `out`
        self.last_queue = ""  # the most recently declared queue (AB-62)
        self.running_ids = (0, 0)

    def on_start(
        self,
        sender: Any,
        context: NodeContext,
        channel_id: str,
        connection_id: str,
        connection_name: str,
        number: int,
        vhost: str,
        user: str,
        frame_max: int,
        cancel_notify: bool,
    ) -> None:
        self.connection = sender
        self.context = context
        self.settings = context.settings
        self.routing = context.routing
        self.metadata = context.metadata
        self.channel_id = channel_id
        self.connection_id = connection_id
        self.connection_name = connection_name
        self.name = f"{connection_name} ({number})"
        self.number = number
        self.vhost = vhost
        self.user = user
        self.frame_max = frame_max
        self.cancel_notify = cancel_notify
        self.credit = CreditFlow(
            self.settings.credit_flow_default_credit,
            self._grant,
            clock=self.now,
            hold=self.settings.flow_hold_channel / 1000,
        )
        self.publisher = Publisher(self)
        self.subscriptions = Subscriptions(self)
        self.handlers = _HANDLERS
        self.publish = self.publisher.publish
        self.acknowledge = self.subscriptions.settle
        if context.extensions.interceptors:
            Interception(self, context.extensions.interceptors).set_up()

    # -- events of the client -----------------------------------------------------------------------------------------------------------------

    def on_input(self, sender: Any, events: list[tuple]) -> None:
        if self.busy or self.backlog:
            self.backlog.extend(events)
            if self.publisher.committing:
                self._check_committing()
            elif len(self.backlog) > self.settings.control_backlog_limit and not self.input_paused:
                self.input_paused = True  # FC-34
                self.send(self.connection, ("pause_input", self.number, True))
            return
        for at, event in enumerate(events):
            self._handle(event)
            if self.busy:
                self.backlog.extend(events[at + 1 :])
                if self.publisher.committing:
                    self._check_committing()
                return

    def resume(self) -> None:
        """The method that kept the channel busy is done: go on with what came meanwhile."""
        self.busy = False
        backlog = self.backlog
        while backlog and not self.busy:
            self._handle(backlog.popleft())
        if self.input_paused and len(backlog) <= self.settings.control_backlog_limit // 2:
            self.input_paused = False
            self.send(self.connection, ("pause_input", self.number, False))
        if self.shut_down_for is not None and not self.busy:
            self._begin_shut_down()

    def _check_committing(self) -> None:
        """While tx.commit is pending any method but close is an error (AB-56)."""
        for event in self.backlog:
            try:
                check_method(COMMITTING, event[2] if event[0] == METHOD else _stand_in(event))
            except AmqpError as error:
                self.backlog.clear()
                self.connection_error(error)
                return

    def _handle(self, event: tuple) -> None:
        kind = event[0]
        try:
            if kind == RUN:
                self.taken += len(event[4])
                self.running_ids = (60, 40)
                if self.state == "running":
                    self.publish(event[2], event[3], event[4], event[5])
            elif self.state != "running":
                if kind == OVERSIZED:
                    self.taken += 1
                self._handle_closed(event)
            elif kind == ACKS:
                self.running_ids = (60, 80)
                acknowledge = self.acknowledge
                for delivery_tag, multiple in event[2]:
                    acknowledge("ack", delivery_tag, multiple)
            elif kind == METHOD:
                method = event[2]
                self.running_ids = (method.CLASS_ID, method.METHOD_ID)
                check_method(RUNNING, method)
                waiting = self.handlers[type(method)](self, method)
                if waiting is not None:
                    self.busy = True
                    self.spawn(self._finish(waiting))
            elif kind == OVERSIZED:
                self.taken += 1
                self.running_ids = (60, 40)
                self.publisher.refuse_oversized(event[4])
        except AmqpError as error:
            self._fail(error)

    def _handle_closed(self, event: tuple) -> None:
        """An event before channel.open, or after our channel.close."""
        method = event[2] if event[0] == METHOD else None
        if self.state == "starting":
            # The connection lets nothing but channel.open through to a channel that it has just made.
            self.state = "running"
            self.reply_with(methods.ChannelOpenOk(b""))
        elif self.state == "closing" and type(method) in (methods.ChannelClose, methods.ChannelCloseOk):
            crossed = type(method) is methods.ChannelClose
            if crossed:
                self.reply_with(methods.ChannelCloseOk())
            self._end(crossed)

    async def _finish(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except AmqpError as error:
            self._fail(error)
        if self.state != "closing":  # else `_close_after_error` goes on, when the channel has given back what it holds
            self.resume()

    # -- errors and closing -------------------------------------------------------------------------------------------------------------------

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
            self.send(self.connection, ("channel_failed", self.number, error))

    def channel_error(self, error: AmqpError) -> None:
        """A channel exception: clean up first, then tell the client (AB-54)."""
        if self.state in ("closing", "closed"):
            return
        # What waits in the backlog is dropped one by one: its credit is due, or a blocked connection would never read the client's close-ok.
        self.state = "closing"
        self.send(self.connection, ("channel_error", self.number, error.code, error.reply_text))
        self.busy = True
        self.spawn(self._close_after_error(error))

    async def _close_after_error(self, error: AmqpError) -> None:
        await self._release()
        self.out.append(
            method_frame(
                self.number, methods.ChannelClose(error.code, error.reply_text, error.class_id, error.method_id)
            )
        )
        self.resume()

    def close(self, method: methods.ChannelClose) -> Awaitable[None]:
        return self._close_in_order()

    async def _close_in_order(self) -> None:
        self.state = "closing"
        await self._release()
        self.out.append(method_frame(self.number, methods.ChannelCloseOk()))
        self._end(crossed=False)

    def _end(self, crossed: bool) -> None:
        self.state = "closed"
        # In one message: a client that has our close-ok may use the number again at once.
        out, self.out = self.out, []
        notices, self.notices = self.notices, []
        self.send(self.connection, ("channel_closed", self.channel_id, crossed, b"".join(out), notices))
        self.stop("normal")

    def on_shut_down(self, sender: Any) -> None:
        """The connection ends: do what the client sent before, give back everything, then answer (AB-28)."""
        self.shut_down_for = sender
        if (
            not self.busy or self.state == "closed"
        ):  # closed: an error of its own, and what it was busy with may never end
            self._begin_shut_down()

    def _begin_shut_down(self) -> None:
        self.busy = True
        asked_by, self.shut_down_for = self.shut_down_for, None
        self.spawn(self._shut_down(asked_by))

    async def _shut_down(self, asked_by: Any) -> None:
        if self.state != "closed":
            self.state = "closed"
            await self._release()
        self._send_output()
        self.reply(asked_by, True)
        self.stop("normal")

    async def _release(self) -> None:
        """Cancels consumers, requeues what is unacknowledged, drops an unfinished transaction. Waits for the queues, but not for ever (AB-178)."""
        self.flush_to_queues()
        if self.subscriptions.reply_tag is not None:
            await self.subscriptions.drop_reply_consumer()
        for row in [self.queues[queue_id] for queue_id in self.subscriptions.queue_ids() if queue_id in self.queues]:
            try:
                await self.ask(
                    row.address,
                    ("channel_closing", self.channel_id),
                    timeout=self.settings.channel_operation_timeout / 1000,
                )
            except (ProcessDown, ProcessTimeout):
                pass

    # -- queues -------------------------------------------------------------------------------------------------------------------------------

    def last_queue_or(self, name: str) -> str:
        """`name`, or where it is empty the most recently declared queue (AB-62)."""
        if name or self.last_queue:
            return name or self.last_queue
        raise AmqpError(404, "no previously declared queue")

    def queue_row(self, name: str) -> QueueRow:
        """The queue's row; C404 if there is no such queue, or it cannot be used (AB-63)."""
        row = self.routing.queue(self.vhost, name)
        if row is None:
            raise no_queue(self.vhost, name)
        if row.state != "running":
            raise queue_unavailable(self.vhost, name, row.state, self.context.node_name)
        return row

    def check_owner(self, row: QueueRow) -> None:
        if row.exclusive_owner is not None and row.exclusive_owner != self.connection_id:
            raise queue_locked(row.vhost, row.name)

    def know(self, row: QueueRow) -> None:
        """Begins to watch a queue: its end settles its confirms, and cancels its consumers or has them consume again."""
        known = self.queues.get(row.queue_id)
        if known is not None and known.address != row.address:
            # It was restarted, and this is heard of before the end of its earlier life, which must come first.
            self.on_down(row.queue_id, ExitReason(ExitKind.CRASH, "restarted meanwhile"))
            known = None
        if known is None:
            self.queues[row.queue_id] = row
            self.monitor(row.address, row.queue_id)

    async def ask_queue(self, row: QueueRow, message: tuple, watched: bool = False) -> Any:
        """Asks a queue, after everything that was gathered for it has been sent; with `watched` it is known from then on. One that has crashed is asked again when it is
        restarted. C404 if it is gone, or stays down (AB-63)."""
        self.flush_to_queues()
        for _ in range(ATTEMPTS):
            if watched:
                self.know(row)
            try:
                return await self.ask(row.address, message)
            except ProcessDown:
                row = await restarted(self, row)
        raise queue_unavailable(self.vhost, row.name, "crashed", self.context.node_name)

    def on_down(self, queue_id: str, reason: ExitReason) -> None:
        row = self.queues.pop(queue_id, None)
        self.credit.peer_down(queue_id)
        # `noproc`: it was dead before it was watched. Only a queue that is out of the routing table went in good order.
        crashed = reason.is_fault or reason.is_noproc and row is not None and self.is_routed_to(row)
        self.publisher.queue_gone(queue_id, crashed)
        if self.state == "running":
            self.subscriptions.queue_gone(queue_id, row if crashed else None)

    def is_routed_to(self, row: QueueRow) -> bool:
        """Whether it is in the routing table, and not deleted, or deleted and declared again."""
        current = self.routing.queue(row.vhost, row.name)
        return current is not None and current.queue_id == row.queue_id

    def on_confirm(self, sender: Any, queue_id: str, ranges: list[tuple[int, int]]) -> None:
        self.publisher.confirms.confirm(queue_id, ranges)

    def on_refuse(self, sender: Any, queue_id: str, ranges: list[tuple[int, int]]) -> None:
        self.publisher.confirms.refuse(queue_id, ranges)

    def on_deliver(self, sender: Any, queue_id: str, consumer_tag: str, runs: list[tuple]) -> None:
        if self.state == "running":
            self.subscriptions.deliver(sender, queue_id, consumer_tag, runs)

    def on_reading_ended(self, sender: Any, queue_id: str, consumer_tag: str, error: AmqpError | None) -> None:
        """A consumer that reads by number has all it asked for, or cannot have it."""
        if self.state == "running":
            self.subscriptions.reading_ended(queue_id, consumer_tag, error)

    def on_reply_to(self, sender: Any, key: str, exchange: str, routing_key: str, contents: list[bytes]) -> None:
        if self.state == "running":
            self.subscriptions.deliver_reply(key, exchange, routing_key, contents)

    def on_has_reply_key(self, sender: Any, key: str) -> bool:
        """Whether the direct replies of that name reach somebody here (AB-143)."""
        return (
            self.state == "running" and self.subscriptions.reply_tag is not None and self.subscriptions.reply_key == key
        )

    def on_limiter_request(self, sender: Any, queue_id: str, wanted: int) -> None:
        self.subscriptions.limiter_request(sender, queue_id, wanted)

    def on_limiter_return(self, sender: Any, queue_id: str, count: int) -> None:
        self.subscriptions.limiter_return(queue_id, count)

    def on_bump(self, sender: Any, peer: str, amount: int) -> None:
        self.credit.bump(peer, amount)

    def _grant(self, peer: str, amount: int) -> None:
        self.send(self.connection, ("bump", self.channel_id, amount))

    def on_timer(self, payload: str) -> None:
        if self.state == "running":
            self.subscriptions.check_timeout()

    # -- sending ------------------------------------------------------------------------------------------------------------------------------

    def reply_with(self, method: Any) -> None:
        self.out.append(method_frame(self.number, method))

    def flush_to_queues(self) -> None:
        if self.subscriptions.settled:
            self.subscriptions.flush()
        if self.publisher.outgoing:
            self.publisher.flush()

    def after_batch(self) -> None:
        if self.subscriptions.settled:
            self.subscriptions.flush()
        publisher = self.publisher
        if publisher.outgoing:
            publisher.flush()
        if self.taken:
            # Only now: if these publishes have exhausted a queue the grant must wait, or the queue would get more than FC-59 allows.
            self.credit.take(CONNECTION, self.taken)
            self.taken = 0
        if publisher.numbering and publisher.confirms.has_settled and self.state == "running":
            publisher.flush_confirms()
        if self.out:
            self._send_output()

    def _send_output(self) -> None:
        out, self.out = self.out, []
        if out:
            notices, self.notices = self.notices, []
            self.send(self.connection, ("output", b"".join(out) if len(out) > 1 else out[0], notices))

    # -- small methods ------------------------------------------------------------------------------------------------------------------------

    def flow(self, method: methods.ChannelFlow) -> None:
        if not method.active:
            raise AmqpError(540, "active=false")
        self.reply_with(methods.ChannelFlowOk(True))

    def access_request(self, method: methods.AccessRequest) -> None:
        self.reply_with(methods.AccessRequestOk(1))

    def on_info(self, sender: Any) -> dict[str, Any]:
        """rabbitmqctl's info items of this channel."""
        subscriptions, publisher = self.subscriptions, self.publisher
        return {
            "name": self.name,
            "number": self.number,
            "user": self.user,
            "vhost": self.vhost,
            "connection": self.connection_id,
            "channel_id": self.channel_id,
            "state": "flow" if self.credit.in_flow() else self.state,
            "transactional": publisher.transaction is not None,
            "confirm": publisher.confirming,
            "consumer_count": len(subscriptions.consumers) + (subscriptions.reply_tag is not None),
            "messages_unacknowledged": len(subscriptions.unacked),
            "messages_unconfirmed": len(publisher.confirms),
            "prefetch_count": subscriptions.prefetch,
            "global_prefetch_count": subscriptions.limit or 0,
            "backlog": len(self.backlog),
        }


def _stand_in(event: tuple) -> Any:
    """A method for an event that is not given as one."""
    return methods.BasicAck() if event[0] == ACKS else methods.BasicPublish()


_HANDLERS: dict[type, Handler] = {
    methods.ChannelFlow: Channel.flow,
    methods.ChannelClose: Channel.close,
    methods.AccessRequest: Channel.access_request,
    methods.BasicQos: lambda channel, method: channel.subscriptions.qos(method),
    methods.BasicConsume: lambda channel, method: channel.subscriptions.consume(method),
    methods.BasicCancel: lambda channel, method: channel.subscriptions.cancel(method),
    methods.BasicGet: lambda channel, method: channel.subscriptions.get(method),
    methods.BasicReject: lambda channel, method: channel.subscriptions.settle(
        "requeue" if method.requeue else "reject", method.delivery_tag, False
    ),
    methods.BasicNack: lambda channel, method: channel.subscriptions.settle(
        "requeue" if method.requeue else "reject", method.delivery_tag, method.multiple
    ),
    methods.BasicRecover: lambda channel, method: channel.subscriptions.recover(method, answer=True),
    methods.BasicRecoverAsync: lambda channel, method: channel.subscriptions.recover(method, answer=False),
    methods.ConfirmSelect: lambda channel, method: channel.publisher.confirm_select(method),
    methods.TxSelect: lambda channel, method: channel.publisher.tx_select(method),
    methods.TxCommit: lambda channel, method: channel.publisher.tx_commit(method),
    methods.TxRollback: lambda channel, method: channel.publisher.tx_rollback(method),
    **declares.HANDLERS,
}
