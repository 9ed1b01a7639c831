"""`PublishingSide`: publishes of a simulated client's channel, their confirms and returns, and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...amqp import methods
from ...amqp.method import Method
from ..model.copies import CopyState, PromiseBroken, PublishedMessage, mark_confirmed, mark_refused
from ..plan import CONFIRMING, Action
from ..queue_kinds import EXCHANGE
from .message_properties import check_properties, properties_of
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel

#: A routing key that no queue has.
NOWHERE = "nowhere"


class TxPublish(NamedTuple):
    """A publish in a transaction that is not committed yet.

    bound   for each copy `delete_count` and `unbind_count` of its queue at the publish, None if the message may not be
            routed to that queue at all. The bindings at the time of the publish decide, not those at the commit
    """

    message: PublishedMessage
    bound: list[tuple[int, int] | None]


class PublishingSide:
    def __init__(self, channel: SimChannel) -> None:
        self.channel = channel
        self.schedule = channel.schedule
        #: By publish number.
        self.unconfirmed: dict[int, PublishedMessage] = {}
        self._published = 0
        #: Mandatory messages that are certainly unroutable. The next answer must come after their return.
        self._unroutable: list[PublishedMessage] = []
        #: Publishes in the transaction that is not committed yet.
        self._tx_publishes: list[TxPublish] = []

    def do_publish(self, action: Action) -> None:
        for _ in range(action.number("count")):
            self._publish(action)

    def _publish(self, action: Action) -> None:
        channel, schedule = self.channel, self.schedule
        queue = schedule.queues[action.text("queue")]
        if schedule.plan.has_differing_messages and self._published % 4 > 1:
            # Two messages of four go to another queue, so that neighbours differ in their destinations.
            names = list(schedule.queues)
            queue = schedule.queues[names[names.index(queue.kind.name) - 1]]
        self._published += 1
        message = schedule.new_message(channel, self._published, action)
        message.is_mandatory = bool(action.number("mandatory"))
        by = action.text("by")
        by_exchange = message.by_exchange = by == "exchange" and schedule.has_exchange
        targets = [queue]
        if by_exchange:
            targets = list(schedule.queues.values())
        elif by == NOWHERE:
            targets, message.is_unroutable = [], True
        bound: list[tuple[int, int] | None] = []
        for target in targets:
            # Make a copy even for a queue that is not bound now: it may be bound by the time the broker routes the
            # message.
            is_routed = (target.is_bound if by_exchange else target.exists) is True
            target.on_publish(message, is_routed)
            bound.append((target.delete_count, target.unbind_count) if is_routed else None)
        if channel.is_transactional:
            for copy in message.copies:
                copy.state = CopyState.FORBIDDEN  # until the commit
            self._tx_publishes.append(TxPublish(message, bound))
        else:
            channel.sent(message.copies)
            if message.is_unroutable and message.is_mandatory:
                self._unroutable.append(message)
        if channel.number == CONFIRMING:
            self.unconfirmed[self._published] = message
        self._tell(
            message,
            EXCHANGE if by_exchange else NOWHERE if message.is_unroutable else queue.kind.name,
            queue.kind.has_priorities,
        )
        message.exchange = EXCHANGE if by_exchange else ""
        message.routing_key = NOWHERE if message.is_unroutable else queue.kind.name
        if message.is_differing and by_exchange:
            message.routing_key += f".{message.number}"
        method = methods.BasicPublish(
            exchange=message.exchange, routing_key=message.routing_key, mandatory=message.is_mandatory
        )
        channel.send(method, schedule.body(message), properties_of(message))

    def _tell(self, message: PublishedMessage, where: str, has_priorities: bool) -> None:
        details = [f"{'persistent' if message.persistent else 'transient'}, {message.size} bytes"]
        details += [f"priority {message.priority}"] * has_priorities
        text = f"publishes message {message.number} to {where} ({', '.join(details)}"
        text += f", expires in {message.expiration * 1000:.0f} ms" if message.expiration else ""
        self.channel.tell(f"{text}{', mandatory' if message.is_mandatory else ''})")

    # -- confirms and returns ---

    def on_confirm(self, method: methods.BasicAck | methods.BasicNack) -> None:
        channel = self.channel
        numbers = (
            [number for number in self.unconfirmed if number <= method.delivery_tag]
            if method.multiple
            else [method.delivery_tag]
        )
        for number in numbers:
            message = self.unconfirmed.pop(number, None)
            if message is None:
                raise PromiseBroken(
                    f"{channel} received a confirm for its publish {number}, which is confirmed or was never made"
                )
            self._check_returned(message)
            if isinstance(method, methods.BasicAck):
                channel.tell(f"receives the confirm of message {message.number}")
                mark_confirmed(message, self.schedule.world.time)
                continue
            channel.tell(f"receives a nack for message {message.number}")
            # While a queue is deleted, it may end before it has answered all publishes.
            if not self.schedule.has_crashed and not any(
                copy.queue.kind.may_nack or copy.queue.delete_count for copy in message.copies
            ):
                raise PromiseBroken(f"message {message.number} was refused for no reason")
            mark_refused(message)
            if not self.schedule.has_crashed and len(message.copies) == 1 and not message.copies[0].queue.delete_count:
                message.copies[0].queue.deaths.on_refuse(message.copies[0])

    def on_return(self, method: methods.BasicReturn, content: SimContent) -> None:
        message = self.schedule.messages[self.schedule.number_in(content.body)]
        self.channel.tell(f"receives the return of message {message.number}: {method.reply_text}")
        self.schedule.check_body(message, content.body)
        check_properties(message, method, content.props, False)
        if message.channel is not self.channel or not message.is_mandatory or message.is_returned:
            raise PromiseBroken(
                f"message {message.number} was returned {'twice' if message.is_returned else 'without being mandatory'}"
            )
        message.is_returned = True
        for copy in message.copies:
            if copy.state not in (CopyState.UNCERTAIN, CopyState.FORBIDDEN):
                raise PromiseBroken(f"{copy} was returned, though it was routable")
            copy.state = CopyState.FORBIDDEN

    def on_proof(self) -> None:
        """An answer has arrived, so the broker has handled every publish before the request."""
        unroutable, self._unroutable = self._unroutable, []
        for message in unroutable:
            self._check_returned(message)

    def _check_returned(self, message: PublishedMessage) -> None:
        if message.is_mandatory and message.is_unroutable and not message.is_returned:
            raise PromiseBroken(f"message {message.number} was mandatory and unroutable, but was not returned")

    # -- transactions ---

    def do_commit(self, action: Action) -> None:
        channel = self.channel
        publishes, self._tx_publishes = self._tx_publishes, []
        settlements = channel.consuming.take_tx_settlements()
        channel.tell(f"commits {len(publishes)} messages and {len(settlements)} acknowledgements")
        for message, bound in publishes:
            for copy, route in zip(message.copies, bound):
                # The broker looks up the queues only at the commit, so a message published to a queue by name also
                # reaches a queue that was declared after the publish. A message published to an exchange was routed at
                # the publish: it reaches a queue that was bound then, if neither the queue nor its binding was removed
                # since.
                queue = copy.queue
                is_bound = not message.by_exchange or route == (queue.delete_count, queue.unbind_count)
                queue.on_commit(copy, is_bound and queue.exists is True)
            channel.sent(message.copies)
        channel.consuming.settle_tx(settlements)
        may_be_refused = self.schedule.has_crashed or any(
            copy.queue.kind.may_nack for message, _ in publishes for copy in message.copies
        )

        def on_commit_ok(method: Method, content: SimContent | None) -> None:
            channel.tell("receives commit-ok")
            for message, _ in publishes:
                self._check_returned(message)
                mark_confirmed(message, self.schedule.world.time)

        channel.request(methods.TxCommit(), methods.TxCommitOk, on_commit_ok, may_be_refused=may_be_refused)

    def do_rollback(self, action: Action) -> None:
        self.channel.tell("rolls back")
        self._tx_publishes = []
        self.channel.request(
            methods.TxRollback(), methods.TxRollbackOk, lambda method, content: self.channel.consuming.on_rollback_ok()
        )
