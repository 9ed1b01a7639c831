"""The publishing side of a simulated client's channel: publishes, their confirms and returns, and what a transaction holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.properties import Properties
from ..model import book
from ..model.book import Broken, Copy, PublishedMessage
from ..plan import CONFIRMING, Action
from .declaring import EXCHANGE
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel

NOWHERE = "nowhere"
"""A routing key that no queue has."""


class Publishing:
    def __init__(self, channel: SimChannel) -> None:
        self.channel = channel
        self.schedule = channel.schedule
        self.unconfirmed: dict[int, PublishedMessage] = {}
        self._published = 0
        self._lost: list[PublishedMessage] = []  # for certain, and mandatory: the next answer comes after their return
        # A transaction, until its commit: for each copy how often its queue had been deleted, and unbound; None: it may not be routed at all.
        self._held_back: list[tuple[PublishedMessage, list[tuple[int, int] | None]]] = []

    def do_publish(self, action: Action) -> None:
        for _ in range(action.number("count")):
            self._publish(action)

    def _publish(self, action: Action) -> None:
        channel, schedule = self.channel, self.schedule
        queue = schedule.queues[action.text("queue")]
        self._published += 1
        message = schedule.new_message(channel, self._published, action)
        message.is_mandatory = bool(action.number("mandatory"))
        by = action.text("by")
        by_exchange = message.by_exchange = by == "exchange" and schedule.has_exchange
        targets: list[tuple[Any, bool | None]] = [(queue, queue.exists)]
        if by_exchange:
            targets = [(one, one.is_bound) for one in schedule.queues.values()]
        elif by == NOWHERE:
            targets, message.is_lost = [], True
        certain: list[tuple[int, int] | None] = []
        for one, is_routed in targets:
            # Even where there is no way: it may be handled late, when there is one.
            one.published(message, is_routed is True)
            certain.append((one.deleted, one.unbinds) if is_routed is True else None)
        if channel.is_transactional:
            for copy in message.copies:
                copy.fate = book.BURIED  # as long as it is not committed
            self._held_back.append((message, certain))
        else:
            channel.published(message.copies)
            if message.is_lost and message.is_mandatory:
                self._lost.append(message)
        if channel.number == CONFIRMING:
            self.unconfirmed[self._published] = message
        self._tell(
            message,
            EXCHANGE if by_exchange else NOWHERE if message.is_lost else queue.kind.name,
            queue.kind.has_priorities,
        )
        expiration = action.number("expiration")
        properties = Properties(
            delivery_mode=2 if message.persistent else 1,
            priority=message.priority,
            expiration=str(expiration) if expiration else None,
        )
        method = methods.BasicPublish(
            exchange=EXCHANGE if by_exchange else "",
            routing_key=NOWHERE if message.is_lost else queue.kind.name,
            mandatory=message.is_mandatory,
        )
        channel.send(method, schedule.body(message), properties)

    def _tell(self, message: PublishedMessage, where: str, has_priorities: bool) -> None:
        details = [f"{'persistent' if message.persistent else 'transient'}, {message.size} octets"]
        details += [f"priority {message.priority}"] * has_priorities
        text = f"publishes message {message.number} to {where} ({', '.join(details)}"
        text += f", expires in {message.expiration * 1000:.0f} ms" if message.expiration else ""
        self.channel.tell(f"{text}{', mandatory' if message.is_mandatory else ''})")

    # -- what the broker says of them --------------------------------------------------------------

    def on_confirm(self, method: Any, is_ack: bool) -> None:
        channel = self.channel
        numbers = (
            [number for number in self.unconfirmed if number <= method.delivery_tag]
            if method.multiple
            else [method.delivery_tag]
        )
        for number in numbers:
            message = self.unconfirmed.pop(number, None)
            if message is None:
                raise Broken(f"{channel} got a confirm for its publish {number}, which is confirmed or was never made")
            self._check_returned(message)
            if is_ack:
                channel.tell(f"hears that message {message.number} is confirmed")
                book.confirmed(message, self.schedule.world.time)
                continue
            channel.tell(f"hears that message {message.number} is refused")
            # Of a queue that is being deleted nobody can say whether it went in good order.
            if not self.schedule.has_crashed and not any(
                copy.queue.kind.may_refuse or copy.queue.deleted for copy in message.copies
            ):
                raise Broken(f"message {message.number} was refused for no reason")
            book.refused(message)

    def on_return(self, method: Any, content: SimContent) -> None:
        message = self.schedule.messages[self.schedule.number_in(content.body)]
        self.channel.tell(f"gets message {message.number} back: {method.reply_text}")
        self.schedule.check_body(message, content.body)
        if message.channel is not self.channel or not message.is_mandatory or message.is_returned:
            raise Broken(
                f"message {message.number} was returned {'twice' if message.is_returned else 'though nobody had asked for that'}"
            )
        message.is_returned = True
        for copy in message.copies:
            if copy.fate not in (book.LOOSE, book.BURIED):
                raise Broken(f"{copy} was returned, though there was a way for it")
            copy.fate = book.BURIED

    def proven(self, heard: list[Copy]) -> None:
        """An answer has come: everything before it was handled."""
        lost, self._lost = self._lost, []
        for message in lost:
            self._check_returned(message)

    def _check_returned(self, message: PublishedMessage) -> None:
        if message.is_mandatory and message.is_lost and not message.is_returned:
            raise Broken(f"message {message.number} was mandatory, there is no way for it, and it was not returned")

    # -- transactions ------------------------------------------------------------------------------

    def do_commit(self, action: Action) -> None:
        channel = self.channel
        published, self._held_back = self._held_back, []
        held_settled = channel.consuming.take_held_settled()
        channel.tell(f"commits {len(published)} messages and {len(held_settled)} acknowledgements")
        for message, certain in published:
            for copy, then in zip(message.copies, certain):
                # It goes to the queue that there was when it was handled, if there was a way.
                queue = copy.queue
                now = queue.deleted, queue.unbinds if message.by_exchange else then and then[1]
                is_certain = queue.exists and then == now and not queue.may_lose
                copy.fate = book.SENT if is_certain else book.LOOSE
                copy.may_be_redelivered = copy.queue.is_shaken
                copy.queue.is_touched = True
            channel.published(message.copies)
        channel.consuming.settle_held(held_settled)
        may_be_refused = self.schedule.has_crashed or any(
            copy.queue.kind.may_refuse for message, _ in published for copy in message.copies
        )

        def committed(method: Any, content: SimContent | None) -> None:
            channel.tell("hears that it is committed")
            for message, _ in published:
                self._check_returned(message)
                book.confirmed(message, self.schedule.world.time)

        channel.ask(methods.TxCommit(), methods.TxCommitOk, committed, may_be_refused=may_be_refused)

    def do_rollback(self, action: Action) -> None:
        self.channel.tell("rolls back")
        self._held_back = []
        self.channel.ask(
            methods.TxRollback(), methods.TxRollbackOk, lambda method, content: self.channel.consuming.put_back()
        )
