"""`Shard`: one queue of a logical queue, with a channel for publishing and one for consuming (FC-75 to FC-79)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker

from .errors import PublishFailed, PublishReturned

#: The headers that give a message its place among those of its publisher (FC-81).
NUMBER_HEADER, PUBLISHER_HEADER = "x-msg-seq", "x-publisher"


@dataclass(slots=True)
class Publish:
    """A message on its way to the broker, and the future that gets its outcome."""

    number: int
    body: bytes
    properties: pika.BasicProperties
    is_mandatory: bool
    future: Future[int]


@dataclass(slots=True)
class Delivery:
    """A message that the queue delivered. `ack` and `reject` answer on the channel that delivered it (FC-82)."""

    body: bytes
    properties: pika.BasicProperties
    #: The shard that delivered it.
    shard: int
    exchange: str
    #: The routing key of the logical queue, without the number of the shard.
    routing_key: str
    is_redelivered: bool
    #: The number that the publisher gave the message, and the publisher's name; None if another program published it.
    number: int | None
    publisher: str | None
    #: In strict order: whether a message with a higher number was handed over before.
    is_late: bool
    _settle: Callable[[str], None]

    def ack(self) -> None:
        self._settle("ack")

    def reject(self, requeue: bool = False) -> None:
        self._settle("requeue" if requeue else "reject")


class Shard:
    """One shard. Its methods run on the thread of the loop. Any thread may settle what it has delivered."""

    def __init__(
        self,
        index: int,
        queue: str,
        exchange: str,
        routing_key: str,
        reconnect_delay: float,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """`post` runs a function on the thread of the loop."""
        self.index = index
        self.queue = f"{queue}_{index}"
        self._exchange = exchange
        self._logical_key = routing_key
        self.routing_key = f"{routing_key}_{index}"
        self._reconnect_delay = reconnect_delay
        self._post = post
        self._connection: pika.SelectConnection | None = None
        self._publishing: Channel | None = None
        self._next_tag = 1
        #: The messages that await a confirm, by delivery tag, in the order of the tags.
        self._unconfirmed: dict[int, Publish] = {}
        #: The tags of unconfirmed messages, by message number, so that a return finds its message.
        self._tags: dict[int, int] = {}
        #: The messages that wait for the channel.
        self._waiting: deque[Publish] = deque()
        self._consuming: Channel | None = None
        #: Those who wait for a message by basic.get. A channel can have one basic.get at a time: that of the first one.
        self._gets: deque[Future[Delivery | None]] = deque()
        #: Whether the broker has, or is about to have, the consumer of this shard.
        self._is_consuming = False
        self._consume: tuple[str, int, Callable[[Shard, Delivery], None], Callable[[Shard], None]] | None = None
        self._started: Future[None] | None = None
        self._trouble = "it is not connected yet"

    @property
    def is_usable(self) -> bool:
        return self._publishing is not None

    @property
    def connection(self) -> pika.SelectConnection | None:
        """The open connection, or None."""
        return self._connection

    @property
    def trouble(self) -> str:
        """Why the shard cannot be used."""
        return self._trouble

    # -- the connection ---

    def link_opened(self, connection: pika.SelectConnection) -> None:
        self._connection = connection
        self._open_publishing()
        self._open_consuming(connection)

    def link_lost(self, reason: str) -> None:
        self._connection = None
        self._publishing_closed(None, reason)
        self._consuming_closed(None, reason)

    # -- publishing ---

    def _open_publishing(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.channel(on_open_callback=self._publishing_opened)

    def _publishing_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._publishing_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=partial(self._confirms_selected, channel))

    def _confirms_selected(self, channel: Channel, frame: Any) -> None:
        self._publishing, self._next_tag = channel, 1
        while self._waiting and self._publishing is channel:
            self._send(self._waiting.popleft())

    def _publishing_closed(self, channel: Channel | None, reason: object) -> None:
        """Fail the messages without a confirm, because it is unknown whether the broker has them."""
        self._publishing = None
        self._trouble = str(reason)
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        self._tags.clear()
        for publish in unconfirmed.values():
            publish.future.set_exception(PublishFailed(publish.number, self.index, str(reason)))
        if channel is not None:
            self._open_publishing()

    def publish(self, publish: Publish, waits: bool) -> None:
        """Send a message. Without a channel it waits for one if `waits` is true, and fails otherwise."""
        if self._publishing is not None:
            self._send(publish)
        elif waits:
            self._waiting.append(publish)
        else:
            publish.future.set_exception(PublishFailed(publish.number, self.index, self._trouble))

    def _send(self, publish: Publish) -> None:
        assert self._publishing is not None
        try:
            self._publishing.basic_publish(
                self._exchange, self.routing_key, publish.body, publish.properties, mandatory=publish.is_mandatory
            )
        except Exception as error:
            # pika sends nothing of a message that it cannot encode. An error would end the thread of the loop.
            publish.future.set_exception(PublishFailed(publish.number, self.index, f"it cannot be sent: {error!r}"))
            return
        tag = self._next_tag
        self._next_tag += 1
        self._unconfirmed[tag] = publish
        self._tags[publish.number] = tag

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        last = method.delivery_tag
        if method.multiple:
            tags = []
            for tag in self._unconfirmed:
                if tag > last:
                    break
                tags.append(tag)
        else:
            tags = [last]
        for tag in tags:
            publish = self._unconfirmed.pop(tag, None)
            if publish is None:
                continue  # it was returned
            self._tags.pop(publish.number, None)
            if isinstance(method, pika.spec.Basic.Ack):
                publish.future.set_result(publish.number)
            else:
                publish.future.set_exception(PublishFailed(publish.number, self.index, "the broker refused it"))

    def _returned(self, channel: Channel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        number: Any = (properties.headers or {}).get(NUMBER_HEADER)
        publish = self._unconfirmed.pop(self._tags.pop(number, 0), None)
        if publish is not None:
            publish.future.set_exception(
                PublishReturned(
                    publish.number, method.reply_code, method.reply_text, self._exchange, self._logical_key, body
                )
            )

    def fail_waiting(self, reason: str) -> None:
        """Fail what waits for a connection."""
        self._fail_start(reason)
        waiting, self._waiting = self._waiting, deque()
        for publish in waiting:
            publish.future.set_exception(PublishFailed(publish.number, self.index, reason))

    # -- consuming ---

    def _open_consuming(self, connection: pika.SelectConnection) -> None:
        if self._connection is not None and self._connection is connection and self._connection.is_open:
            self._connection.channel(on_open_callback=self._consuming_opened)

    def _consuming_opened(self, channel: Channel) -> None:
        self._consuming = channel
        channel.add_on_close_callback(self._consuming_closed)
        channel.add_on_cancel_callback(self._cancelled)
        channel.add_callback(self._got_nothing, [pika.spec.Basic.GetEmpty], one_shot=False)
        if self._consume is not None:
            self._begin_consuming()

    def _consuming_closed(self, channel: Channel | None, reason: object) -> None:
        if self._consuming is None:
            return
        self._consuming = None
        self._is_consuming = False
        if self._consume is not None:
            self._consume[3](self)
        if isinstance(reason, ChannelClosedByBroker):
            # The broker has refused the consumer. If the connection was lost, the consumer begins on the next one.
            self._fail_start(str(reason))
        gets, self._gets = self._gets, deque()
        for got in gets:
            got.set_exception(RuntimeError(f"Shard {self.index} could not be read: {reason}"))
        if channel is None or self._connection is None:
            return
        reopen = partial(self._open_consuming, self._connection)
        if self._consume is None:
            reopen()
        else:
            # Without a pause, basic.consume on a queue that was deleted would be repeated all the time.
            self._connection.ioloop.call_later(self._reconnect_delay, reopen)

    def _fail_start(self, reason: str) -> None:
        """If the consumer has not begun yet, report that it does not, and forget it."""
        started, self._started = self._started, None
        if started is not None:
            started.set_exception(RuntimeError(f"Shard {self.index} could not begin to consume: {reason}"))
            self._consume = None

    def get(self, answer: Future[Delivery | None]) -> None:
        """Fetch one message; the answer is None if the shard has none or has no channel.

        It is a RuntimeError if the channel ends before the broker has answered.
        """
        if self._consuming is None:
            answer.set_result(None)
            return
        self._gets.append(answer)
        if len(self._gets) == 1:
            self._consuming.basic_get(self.queue, self._got)

    def _got(self, channel: Channel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self._answer_get(self._delivery(channel, method, properties, body))

    def _got_nothing(self, frame: Any) -> None:
        self._answer_get(None)

    def _answer_get(self, delivery: Delivery | None) -> None:
        answer = self._gets.popleft()
        if self._gets and self._consuming is not None:
            self._consuming.basic_get(self.queue, self._got)
        answer.set_result(delivery)

    def consume(
        self,
        tag: str,
        prefetch: int,
        deliver: Callable[[Shard, Delivery], None],
        drop: Callable[[Shard], None],
        started: Future[None],
    ) -> None:
        """Consume, now and after each reconnection. If the broker closes the channel, for example because the queue is
        missing, the next attempt is after the reconnect delay.

        `drop` is called when the channel has ended, because its unsettled deliveries can no longer be settled.
        """
        self._consume, self._started = (tag, prefetch, deliver, drop), started
        if self._consuming is not None:
            self._begin_consuming()

    def _begin_consuming(self) -> None:
        assert self._consuming is not None and self._consume is not None
        tag, prefetch, deliver, _ = self._consume
        channel = self._consuming

        def delivered(channel: Channel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
            deliver(self, self._delivery(channel, method, properties, body))

        def begun(frame: Any) -> None:
            started, self._started = self._started, None
            if started is not None:
                started.set_result(None)

        self._is_consuming = True
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(self.queue, delivered, consumer_tag=f"{tag}{self.index}", callback=begun)

    def _cancelled(self, frame: Any) -> None:
        """Handle that the broker cancelled the consumer, because the queue of this shard was deleted, or cannot be
        reached. Consume again after the reconnect delay.
        """
        self._is_consuming = False
        if self._connection is not None:
            self._connection.ioloop.call_later(self._reconnect_delay, partial(self._consume_again, self._consuming))

    def _consume_again(self, channel: Channel | None) -> None:
        if self._consuming is channel is not None and self._consume is not None and not self._is_consuming:
            self._begin_consuming()

    def cancel(self, done: Future[None]) -> None:
        consume, self._consume, self._started = self._consume, None, None
        if consume is None or self._consuming is None or not self._consuming.is_open or not self._is_consuming:
            done.set_result(None)
            return
        self._is_consuming = False
        self._consuming.basic_cancel(f"{consume[0]}{self.index}", lambda frame: done.set_result(None))

    def _delivery(self, channel: Channel, method: Any, properties: pika.BasicProperties, body: bytes) -> Delivery:
        headers = properties.headers or {}
        number, publisher = headers.get(NUMBER_HEADER), headers.get(PUBLISHER_HEADER)
        is_ours = isinstance(number, int) and isinstance(publisher, str)
        key = method.routing_key
        return Delivery(
            body=body,
            properties=properties,
            shard=self.index,
            exchange=method.exchange,
            routing_key=self._logical_key if key == self.routing_key else key,
            is_redelivered=method.redelivered,
            number=number if is_ours else None,
            publisher=publisher if is_ours else None,
            is_late=False,
            _settle=partial(self._settle, channel, method.delivery_tag),
        )

    def _settle(self, channel: Channel, delivery_tag: int, outcome: str) -> None:
        self._post(partial(_settle_now, channel, delivery_tag, outcome))


def _settle_now(channel: Channel, delivery_tag: int, outcome: str) -> None:
    if not channel.is_open:
        return  # the broker has the message again, and delivers it once more
    if outcome == "ack":
        channel.basic_ack(delivery_tag)
    else:
        channel.basic_reject(delivery_tag, requeue=outcome == "requeue")
