"""Consuming on one channel: consumers, deliveries, settlement, prefetch (AB section 11).

A delivery is `head + delivery tag + tail + content`: head and tail are made once per (consumer, exchange, routing key, redelivered), so that a run of deliveries is
one `join` over what is already there.

Prefetch. The limit per consumer is the queue's to count. The channel-wide limit (`basic.qos global=true`) is counted here, by the limiter: while it is set, queues request deliveries
before they deliver, and get as many as the limit leaves, so that a message is never taken from a queue for a channel that may not have it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal

from ...amqp import methods
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.frames import fit, method_frame, rechannel, rechannel_run
from ...routing.arguments import cancels_on_failover, check_consumer_arguments, consumer_priority
from ...routing.phrases import generated_name
from ...routing.rows import QueueRow
from ...runtime.errors import ProcessDown
from ...store.messages.message import body_size
from .direct_reply import REPLY_TO, reply_name
from .queue_restart import consume_again
from .tracing import trace_delivery
from .unacked import Unacked, UnackedRun

if TYPE_CHECKING:
    from .process import Channel

_TAG = Struct(">Q").pack
_DELIVER_IDS = b"\x00\x3c\x00\x3c"
_CONTENT_CHANNEL = 1
_HEADS_KEPT = 64
NO_QUEUE = ""  # in place of the id of a queue that is gone


@dataclass(slots=True)
class ChannelConsumer:
    """A consumer as its channel knows it; `heads` are the constant parts of its deliveries. `starting` is before consume-ok, `ending` after basic.cancel came.
    It begins another `life` with each restart of its queue."""

    tag: str
    queue_id: str
    row: QueueRow
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: Table
    stage: Literal["starting", "running", "ending"] = "starting"
    life: int = 0
    heads: dict[tuple[str, str, bool], tuple[bytes, bytes]] = field(default_factory=dict)


class Subscriptions:
    """The consuming half of a channel."""

    __slots__ = (
        "_timeout_timer",
        "channel",
        "consumers",
        "exempt",
        "got_from",
        "limit",
        "next_tag",
        "prefetch",
        "reply_key",
        "reply_tag",
        "reserved",
        "settled",
        "limiter_requests",
        "unacked",
    )

    def __init__(self, channel: "Channel") -> None:
        self.channel = channel
        self.consumers: dict[str, ChannelConsumer] = {}
        self.unacked = Unacked()
        self.next_tag = 1
        self.settled: dict[str, list[tuple[str, list[Sequence[int]]]]] = {}  # queue -> outcomes in order
        self.got_from: set[str] = set()  # queues that basic.get took unacknowledged messages from
        is_global, count = channel.settings.default_consumer_prefetch
        self.prefetch = 0 if is_global else count
        self.limit: int | None = count if is_global and count else None
        self.exempt: set[int] = set()  # tags of gets made under the limit, which they ignore (AB-128)
        self.reserved: dict[str, int] = {}  # deliveries granted to queues and not yet used
        self.limiter_requests: deque[tuple[str, Any, int]] = deque()
        self.reply_tag: str | None = None
        self.reply_key = ""
        self._timeout_timer: Any = None

    def queue_ids(self) -> set[str]:
        """Queues that hold something of this channel."""
        return (
            {consumer.queue_id for consumer in self.consumers.values()}
            | {run.queue_id for run in self.unacked}
            | self.got_from
        )

    # -- consume and cancel ---------------------------------------------------------------------------------------------------------------------

    def consume(self, method: methods.BasicConsume) -> Awaitable[None]:
        return self._consume(method)

    async def _consume(self, method: methods.BasicConsume) -> None:
        channel = self.channel
        if method.queue == REPLY_TO:
            await self._consume_replies(method)
            return
        name = channel.last_queue_or(method.queue)
        tag = method.consumer_tag or generated_name("amq.ctag", channel.random_bytes(16))
        if tag in self.consumers or tag == self.reply_tag:
            raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
        row = channel.queue_row(name)
        channel.check_owner(row)
        check_consumer_arguments(row.vhost, row.name, method.arguments)
        consumer = self.consumers[tag] = ChannelConsumer(
            tag, row.queue_id, row, method.no_ack, method.exclusive, self.prefetch, method.arguments
        )
        try:
            await channel.ask_queue(row, self.consume_message(consumer), watched=True)
        except AmqpError:
            self.consumers.pop(tag, None)
            raise
        consumer.stage = "running"
        if not method.nowait:
            channel.reply_with(methods.BasicConsumeOk(tag))

    def consume_message(self, consumer: ChannelConsumer) -> tuple[Any, ...]:
        """What registers the consumer with its queue."""
        channel = self.channel
        return (
            "consume",
            channel.channel_id,
            channel.myAddress,
            consumer.tag,
            consumer.no_ack,
            consumer.exclusive,
            consumer.prefetch,
            self.limit is not None,
            consumer_priority(consumer.arguments),
            consumer.arguments,
            channel.user,
        )

    def cancel(self, method: methods.BasicCancel) -> Awaitable[None]:
        return self._cancel(method)

    async def _cancel(self, method: methods.BasicCancel) -> None:
        channel, tag = self.channel, method.consumer_tag
        consumer = self.consumers.get(tag)
        if tag == self.reply_tag:
            await self.drop_reply_consumer()
        elif consumer is not None:
            consumer.stage = "ending"
            row = channel.queues.get(consumer.queue_id)
            if row is not None:  # else the queue went away first
                channel.flush_to_queues()
                with suppress(ProcessDown):
                    await channel.ask(row.address, ("cancel", channel.channel_id, tag))
            self.consumers.pop(tag, None)
        if not method.nowait:
            channel.reply_with(methods.BasicCancelOk(tag))

    def queue_gone(self, queue_id: str, crashed: QueueRow | None) -> None:
        """A queue went, and its consumers with it; or, with its row in `crashed`, it is to be restarted, and they consume again unless they do not want to (AB-126).
        Unacknowledged deliveries may still be settled, without effect."""
        self.settled.pop(queue_id, None)
        self.got_from.discard(queue_id)
        self._disown(queue_id)
        again = []
        for consumer in [
            consumer
            for consumer in self.consumers.values()
            if consumer.queue_id == queue_id and consumer.stage == "running"
        ]:
            if crashed is None or cancels_on_failover(consumer.arguments):
                self.cancel_by_broker(consumer)
            else:
                consumer.life += 1
                again.append(consumer)
        if crashed is not None and again:
            self.channel.spawn(consume_again(self.channel, crashed, again))
        if self.limiter_requests:
            self.limiter_requests = deque([place for place in self.limiter_requests if place[0] != queue_id])
        if self.reserved.pop(queue_id, 0):
            self._give_grants()

    def cancel_by_broker(self, consumer: ChannelConsumer) -> None:
        """The client is told, if it wants to know, and owes no answer."""
        del self.consumers[consumer.tag]
        if self.channel.cancel_notify:
            self.channel.reply_with(methods.BasicCancel(consumer.tag, True))

    def reading_ended(self, queue_id: str, tag: str, error: AmqpError | None) -> None:
        """A range was read to its end, or something of it is gone: the consumer ends, or the channel does."""
        consumer = self.consumers.get(tag)
        if consumer is None or consumer.queue_id != queue_id or consumer.stage != "running":
            return
        if error is not None:
            self.channel.channel_error(error)
        else:
            self.cancel_by_broker(consumer)

    def _disown(self, queue_id: str) -> None:
        """A queue that is restarted keeps its id and numbers anew: what its earlier life delivered must not be settled with it."""
        transaction = self.channel.publisher.transaction
        held_back = [run for _, runs in transaction.settlements for run in runs] if transaction is not None else []
        for run in (*self.unacked, *held_back):
            if run.queue_id == queue_id:
                run.queue_id = NO_QUEUE

    # -- deliveries -----------------------------------------------------------------------------------------------------------------------------

    def deliver(self, address: Any, queue_id: str, tag: str, runs: list[tuple]) -> None:
        """Runs `(origin, redelivered, ack tags or None, contents)` for consumer `tag`."""
        consumer = self.consumers.get(tag)
        if consumer is None or consumer.queue_id != queue_id:
            return
        channel, out = self.channel, self.channel.out
        number, frame_max = channel.number, channel.frame_max
        total = 0
        for origin, redelivered, tags, contents in runs:
            count = len(contents)
            if channel.routing.traced:
                trace_delivery(channel, consumer.row.name, origin, redelivered, contents, sum(map(body_size, contents)))
            parts = consumer.heads.get((origin.exchange, origin.routing_keys[0], redelivered))
            if parts is None:
                parts = self._deliver_parts(consumer, origin.exchange, origin.routing_keys[0], redelivered)
            if number != _CONTENT_CHANNEL:
                contents = rechannel_run(contents, number)
            if frame_max and max(map(len, contents)) > frame_max:
                contents = [fit(content, number, frame_max) for content in contents]
            first = self.next_tag
            self.next_tag = first + count
            if count == 1:
                out += (parts[0], _TAG(first), parts[1], contents[0])
            else:
                # 0.15 µs a message: everything inside runs in C.
                out.append(
                    b"".join(
                        chain.from_iterable(
                            zip(repeat(parts[0]), map(_TAG, range(first, first + count)), repeat(parts[1]), contents)
                        )
                    )
                )
            if not consumer.no_ack:
                self._expect_ack(UnackedRun(first, queue_id, tag, tags, channel.now()))
            total += count
        channel.notices.append((address, queue_id, channel.channel_id, total))
        if self.limit is not None:
            self._use_grant(queue_id, total)
            if self.limiter_requests:
                self._give_grants()  # deliveries without ack used up grants and leave the volume as it was

    def _deliver_parts(
        self, consumer: ChannelConsumer, exchange: str, routing_key: str, redelivered: bool
    ) -> tuple[bytes, bytes]:
        if len(consumer.heads) >= _HEADS_KEPT:
            consumer.heads.clear()
        tag = _shortstr(consumer.tag)
        tail = (b"\1" if redelivered else b"\0") + _shortstr(exchange) + _shortstr(routing_key)
        size = 4 + len(tag) + 8 + len(tail)
        head = b"\x01" + self.channel.number.to_bytes(2, "big") + size.to_bytes(4, "big") + _DELIVER_IDS + tag
        parts = consumer.heads[exchange, routing_key, redelivered] = head, tail + b"\xce"
        return parts

    def _expect_ack(self, run: UnackedRun) -> None:
        self.unacked.add(run)
        timeout = self.channel.settings.consumer_timeout
        if timeout and self._timeout_timer is None:
            self._timeout_timer = self.channel.start_timer(
                self.channel.settings.channel_tick_interval / 1000, "consumer_timeout"
            )

    def check_timeout(self) -> None:
        """AB-139; looks at the oldest delivery every `channel_tick_interval` while there is one."""
        channel = self.channel
        self._timeout_timer = None
        oldest = self.unacked.oldest
        timeout = channel.settings.consumer_timeout
        if oldest is None or not timeout:
            return
        if channel.now() - oldest.delivered_at > timeout / 1000:
            channel.channel_error(
                AmqpError(
                    406,
                    f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout} ms. "
                    "This timeout value can be configured, see consumers doc guide to learn more",
                )
            )
            return
        self._timeout_timer = channel.start_timer(channel.settings.channel_tick_interval / 1000, "consumer_timeout")

    # -- get ------------------------------------------------------------------------------------------------------------------------------------

    def get(self, method: methods.BasicGet) -> Awaitable[None]:
        return self._get(method)

    async def _get(self, method: methods.BasicGet) -> None:
        channel = self.channel
        row = channel.queue_row(channel.last_queue_or(method.queue))
        channel.check_owner(row)
        delivery, left = await channel.ask_queue(
            row, ("get", channel.channel_id, channel.myAddress, method.no_ack), watched=True
        )
        if delivery is None:
            channel.reply_with(methods.BasicGetEmpty(""))
            return
        origin, redelivered, tags, contents = delivery
        tag = self.next_tag
        self.next_tag += 1
        if channel.routing.traced:
            trace_delivery(channel, row.name, origin, redelivered, contents, body_size(contents[0]))
        channel.reply_with(methods.BasicGetOk(tag, redelivered, origin.exchange, origin.routing_keys[0], left))
        channel.out.append(fit(contents[0], channel.number, channel.frame_max))
        if not method.no_ack:
            self.got_from.add(row.queue_id)
            if self.limit is not None:
                self.exempt.add(tag)
            self._expect_ack(UnackedRun(tag, row.queue_id, None, tags, channel.now()))

    # -- settlement -----------------------------------------------------------------------------------------------------------------------------

    def settle(self, outcome: str, delivery_tag: int, multiple: bool) -> None:
        """`outcome`: ack, requeue or reject. C406 for a tag that is not outstanding (AB-132)."""
        runs = self.unacked.take(delivery_tag, multiple)
        if runs is None:
            raise AmqpError(406, f"unknown delivery tag {delivery_tag}")
        transaction = self.channel.publisher.transaction
        if transaction is not None:
            transaction.settlements.append((outcome, runs))
        else:
            self.settle_runs(outcome, runs)

    def settle_runs(self, outcome: str, runs: list[UnackedRun]) -> None:
        settled = self.settled
        for run in runs:
            outcomes = settled.get(run.queue_id)
            if outcomes is None:
                settled[run.queue_id] = [(outcome, [run.tags])]
            elif outcomes[-1][0] == outcome:
                outcomes[-1][1].append(run.tags)
            else:
                outcomes.append((outcome, [run.tags]))
        if self.limit is not None:
            if self.exempt:
                self.exempt.difference_update([run.first for run in runs if run.consumer_tag is None])
            self._give_grants()

    def flush(self) -> None:
        """Sends each queue the settlements gathered for it; a queue that is gone needs none (AB-86)."""
        channel = self.channel
        settled, self.settled = self.settled, {}
        for queue_id, outcomes in settled.items():
            row = channel.queues.get(queue_id)
            if row is None:
                continue
            for outcome, pieces in outcomes:
                channel.send(row.address, ("settle", channel.channel_id, outcome, pieces))

    def recover(self, method: Any, answer: bool) -> None:
        if not method.requeue:
            raise AmqpError(540, "requeue=false")
        self.settle_runs("requeue", self.unacked.take_all())
        if answer:
            self.channel.reply_with(methods.BasicRecoverOk())

    # -- prefetch -------------------------------------------------------------------------------------------------------------------------------

    def qos(self, method: methods.BasicQos) -> None:
        """AB-127."""
        if method.prefetch_size:
            raise AmqpError(540, f"prefetch_size!=0 ({method.prefetch_size})")
        had_limit = self.limit is not None
        if not method.global_:
            self.prefetch = method.prefetch_count
            self.limit = None
        else:
            self.limit = method.prefetch_count or None
        if had_limit or self.limit is not None:
            channel = self.channel
            if not had_limit or self.limit is None:
                # Also those whose consumer is gone: they may have requested deliveries that are not granted any more.
                concerned = (
                    {consumer.queue_id for consumer in self.consumers.values()}
                    | {queue_id for queue_id, _, _ in self.limiter_requests}
                    | self.reserved.keys()
                )
                for queue_id in concerned & channel.queues.keys():
                    channel.send(
                        channel.queues[queue_id].address,
                        ("limiter_changed", channel.channel_id, self.limit is not None),
                    )
                self.reserved.clear()
                self.limiter_requests.clear()
                self.exempt.clear()
            self._give_grants()
        self.channel.reply_with(methods.BasicQosOk())

    def limiter_request(self, address: Any, queue_id: str, wanted: int) -> None:
        if self.limit is not None:
            self.limiter_requests.append((queue_id, address, wanted))
            self._give_grants()

    def limiter_return(self, queue_id: str, count: int) -> None:
        self._use_grant(queue_id, count)
        self._give_grants()

    def _use_grant(self, queue_id: str, count: int) -> None:
        left = self.reserved.get(queue_id, 0) - count
        if left > 0:
            self.reserved[queue_id] = left
        else:
            self.reserved.pop(queue_id, None)

    def _volume(self) -> int:
        """What counts towards the limit: settlements of a transaction free nothing before its commit (AB-129)."""
        volume = self.unacked.count - len(self.exempt)
        transaction = self.channel.publisher.transaction
        if transaction is not None:
            volume += sum([len(run.tags) for _, runs in transaction.settlements for run in runs])
        return volume

    def _give_grants(self) -> None:
        """Gives what the limit leaves to the queues in line, an even share each."""
        if self.limit is None:
            return
        channel, line = self.channel, self.limiter_requests
        free = self.limit - self._volume() - sum(self.reserved.values())
        while line and free > 0:
            share = max(1, free // len(line))
            queue_id, address, wanted = line.popleft()
            count = min(wanted, share)
            free -= count
            self.reserved[queue_id] = self.reserved.get(queue_id, 0) + count
            channel.send(address, ("limiter_grant", channel.channel_id, count))

    # -- direct reply-to ------------------------------------------------------------------------------------------------------------------------

    async def _consume_replies(self, method: methods.BasicConsume) -> None:
        channel = self.channel
        if self.reply_tag is not None:
            raise AmqpError(406, "reply consumer already set")
        if not method.no_ack:
            raise AmqpError(406, "reply consumer cannot acknowledge")
        tag = method.consumer_tag or generated_name("amq.ctag", channel.random_bytes(16))
        if tag in self.consumers:
            raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
        self.reply_tag = tag
        self.reply_key = urlsafe_b64encode(channel.random_bytes(16)).decode("ascii").rstrip("=")
        await channel.ask(channel.metadata, ("register_reply", channel.channel_id, channel.myAddress))
        if not method.nowait:
            channel.reply_with(methods.BasicConsumeOk(tag))

    async def drop_reply_consumer(self) -> None:
        self.reply_tag, self.reply_key = None, ""
        await self.channel.ask(self.channel.metadata, ("unregister_reply", self.channel.channel_id))

    def reply_name(self) -> str:
        """The name that takes the place of the reply-to `amq.rabbitmq.reply-to` (AB-141)."""
        if self.reply_tag is None:
            raise AmqpError(406, "fast reply consumer does not exist")
        return reply_name(self.channel.channel_id, self.reply_key)

    def deliver_reply(self, key: str, exchange: str, routing_key: str, contents: list[bytes]) -> None:
        """A reply goes out at once; its delivery tag is the next one, which it does not use up (AB-142)."""
        if self.reply_tag is None or key != self.reply_key:
            return
        channel = self.channel
        head = method_frame(
            channel.number, methods.BasicDeliver(self.reply_tag, self.next_tag, False, exchange, routing_key)
        )
        for content in contents:
            channel.out += (head, fit(rechannel(content, channel.number), channel.number, channel.frame_max))


def _shortstr(text: str) -> bytes:
    octets = text.encode("utf-8", "surrogateescape")
    return bytes((len(octets),)) + octets
