"""`ChannelConsumers`: the consumers of one channel and what is delivered to them (amqp-broker section 11).

A delivery on the wire is `head + delivery tag + tail + content`. Head and tail are made once for each combination of
consumer, exchange, routing key and redelivered flag, so that a run of deliveries is one `join` of pieces that exist.

A queue that crashes is restarted. Its consumers are then registered again, silently and under the same tag: the client
sees only that messages are delivered once more. A consumer is cancelled with a notification instead if its arguments
have `x-cancel-on-ha-failover`, or if the queue does not accept it again (AB-126).

    crash -> on_down -> `_consume_again` asks Metadata for the new row -> consume, one consumer after the other
                                                                       -> another crash: on_down starts a new attempt,
                                                                          and this one ends (`ChannelConsumer.life`)

Unacknowledged deliveries do not survive the crash: the new process numbers its messages anew (`Unacked.disown`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, repeat
from struct import Struct

from ....amqp import methods
from ....amqp.errors import AmqpError
from ....amqp.frames import fit, rechannel_run
from ....amqp.method import Method
from ....routing.arguments.catalogue_arguments import CATALOGUE
from ....routing.arguments.consumer_arguments import (
    cancels_on_failover,
    check_consumer_arguments,
    consumer_priority,
    with_max_unacked_bytes,
)
from ....routing.phrases import generated_name, queue_phrase
from ....routing.queue_types import STREAM
from ....routing.rows import QueueRow
from ....runtime.contract import Address, ProcessMessage
from ....runtime.errors import ProcessDown
from ....runtime.process import Process
from ....runtime.turn_work import STEP
from ....seams import seam
from ....store.messages.message import Origin, any_of
from ...context.node_context import NodeContext
from ...contracts.channel import SMALL_CONTENT, ChannelConfig, DeliveryRun
from ...contracts.queue import ToQueue, to_queue
from ...events import client_events
from ..client_output import CONTENT_CHANNEL, LARGE_CONTENT, ClientOutput
from ..direct_reply import REPLY_TO, ReplyConsumer
from ..queue_links import QueueLinks
from ..tracing import Tracer
from .catalogue import Catalogue
from .channel_consumer import NOTICE_STEP, NOTICE_STEP_SMALL, ChannelConsumer, DeliveryHead, notice_step
from .consumer_table import ConsumerTable
from .deliveries import Deliveries
from .limiter import Limiter
from .unacked import UnackedRun

_TAG = Struct(">Q").pack
_DELIVER_IDS = b"\x00\x3c\x00\x3c"

#: Pairs of head and tail that a consumer keeps; routing keys that never repeat would otherwise pile up.
HEADS_KEPT = 512


class ChannelConsumers:
    """The consumers of one channel by tag, and their prefetch."""

    __slots__ = (
        "_config",
        "_context",
        "_deliveries",
        "_is_running",
        "_limiter",
        "_now",
        "_output",
        "_process",
        "_put_unasked",
        "_queues",
        "_replies",
        "_table",
        "_tracer",
        "by_tag",
        "prefetch",
        "prefetch_bytes",
    )

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        output: ClientOutput,
        queues: QueueLinks,
        deliveries: Deliveries,
        limiter: Limiter,
        replies: ReplyConsumer,
        tracer: Tracer,
        prefetch: int,
        is_running: Callable[[], bool],
        put_unasked: Callable[[Method], None],
    ) -> None:
        """`is_running` returns whether the channel is neither closing nor closed. `put_unasked` sends the client a
        method that answers nothing.
        """
        self._process = process
        self._now, _ = process.clocks()
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._deliveries = deliveries
        self._limiter = limiter
        self._replies = replies
        self._tracer = tracer
        self._is_running = is_running
        self._put_unasked = put_unasked
        self._table = ConsumerTable()
        self.by_tag = self._table.by_tag
        #: The prefetch of consumers registered from now on; 0 is no limit.
        self.prefetch = prefetch
        #: The bytes that these may hold; 0 is no limit.
        self.prefetch_bytes = 0

    def __len__(self) -> int:
        return len(self.by_tag) + (self._replies.tag is not None)

    def queue_ids(self) -> set[str]:
        """The queues that the channel consumes from."""
        return self._table.queue_ids()

    # -- basic.qos, basic.consume and basic.cancel ---

    def qos(self, method: methods.BasicQos) -> None:
        """Set the channel-wide limit if the method is global, else the prefetch of later consumers (AB-127, QP-117)."""
        size = method.prefetch_size
        if size and not self._context.settings.qos_prefetch_size:
            raise AmqpError(540, f"prefetch_size!=0 ({size})")
        if size and method.global_:
            # Queues count the bytes of their own consumers; the limiter, which counts for a channel, has no sizes.
            raise AmqpError(
                540, f"prefetch_size!=0 ({size}) with global=true: only each consumer can have a limit of bytes"
            )
        limit = None
        if method.global_:
            limit = method.prefetch_count or None
        else:
            self.prefetch, self.prefetch_bytes = method.prefetch_count, size
        self._limiter.set_limit(limit, self.queue_ids())
        self._output.put_method(methods.BasicQosOk())

    async def consume(self, method: methods.BasicConsume) -> None:
        if method.queue == REPLY_TO:
            await self._replies.consume(method, self.by_tag)
            return
        name = self._queues.name_or_last_declared(method.queue)
        tag = method.consumer_tag or generated_name("amq.ctag", self._process.random_bytes(16))
        if tag in self.by_tag or tag == self._replies.tag:
            raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
        if name == CATALOGUE:
            await self._consume_catalogue(method, tag)
            return
        self._config.access.check("read", "queue", self._queues.read_name(name))
        row = self._queues.row(name)
        arguments = method.arguments if method.no_ack else with_max_unacked_bytes(method.arguments, self.prefetch_bytes)
        check_consumer_arguments(row, arguments)
        shards = self._queues.shards(row)
        consumer = ChannelConsumer(
            tag,
            row.queue_id,
            row,
            method.no_ack,
            method.exclusive,
            self.prefetch,
            arguments,
            notice_step(row, arguments, self._process.myAddress),
        )
        if shards:
            self._table.check_alone(consumer)
        self._table.enter(consumer)
        try:
            await self._queues.ask(row, self._consume_message(consumer), is_watched=True)
            if shards:
                await self._consume_from(consumer, shards)
        except AmqpError:
            self._table.remove(tag)
            raise
        self._deliveries.note_type(row.queue_id, row.type)
        if row.type == STREAM.name:
            self._deliveries.streams[row.queue_id] = queue_phrase(row.vhost, row.name)
        consumer.stage = "running"
        self._report_created(consumer)
        if not method.nowait:
            self._output.put_method(methods.BasicConsumeOk(tag))
        if shards:
            early, consumer.early = consumer.early, []
            if consumer.is_lost:
                self.cancel_by_broker(consumer)
            for delivery in early:
                self.deliver(*delivery)

    async def _consume_catalogue(self, method: methods.BasicConsume, tag: str) -> None:
        catalogue = Catalogue(self._process, self._context, self._config, self._output, self._queues, self._put_unasked)
        delivery_tag = self._deliveries.next_tag
        self._deliveries.next_tag += 1
        await catalogue.consume(method, tag, delivery_tag)

    async def _consume_from(self, consumer: ChannelConsumer, shards: Sequence[QueueRow]) -> None:
        """Register the consumer of a sharded queue at each shard. Raise AmqpError if one refuses it (FC-93)."""
        parts = consumer.parts = {}
        if consumer.is_bounded:
            queue_ids = [shard.queue_id for shard in shards]
            self._limiter.share(queue_ids, consumer.prefetch, self._deliveries.next_tag)
        try:
            for shard in shards:
                step = notice_step(shard, consumer.arguments, self._process.myAddress)
                part = replace(consumer, queue_id=shard.queue_id, row=shard, notice_step=step, parts=None)
                parts[shard.queue_id] = part
                self._table.enter_part(part)
                await self._queues.ask(shard, self._consume_message(part), is_watched=True)
                part.stage = "running"
        except AmqpError:
            await self._leave(consumer)
            for address, queue_id, _, runs in consumer.early:
                self._deliveries.give_back(address, queue_id, runs)
            raise

    async def _leave(self, consumer: ChannelConsumer) -> None:
        """Have the consumer removed from its queue, and from the shards first: the last consumer to leave an
        auto-delete queue ends it with its shards.
        """
        parts = consumer.parts or {}
        for part in parts.values():
            part.stage = "ending"
        self._queues.flush()
        for queue_id in (*parts, consumer.queue_id):
            row = self._queues.rows.get(queue_id)
            if row is not None:  # otherwise the queue has ended already
                with suppress(ProcessDown):
                    message = to_queue.cancel(self._config.channel_id, consumer.tag)
                    await self._process.ask(row.address, message)
        self._limiter.unshare(parts)

    def _leave_at_once(self, consumer: ChannelConsumer, parts: Iterable[str]) -> None:
        """Have the queues remove a consumer that the broker cancels, and do not wait: its tag is free at once."""
        self._queues.flush()
        for queue_id in (*parts, consumer.queue_id):
            row = self._queues.rows.get(queue_id)
            if row is not None:
                self._process.send(row.address, to_queue.cancel(self._config.channel_id, consumer.tag))
        self._limiter.unshare(parts)

    def _consume_message(self, consumer: ChannelConsumer) -> ProcessMessage[ToQueue, bool]:
        return to_queue.consume(
            self._config.channel_id,
            self._process.myAddress,
            consumer.tag,
            consumer.no_ack,
            consumer.exclusive,
            consumer.prefetch,
            self._limiter.needs_grants(consumer.queue_id),
            consumer_priority(consumer.arguments),
            consumer.arguments,
            self._config.user,
        )

    async def cancel(self, method: methods.BasicCancel) -> None:
        tag = method.consumer_tag
        consumer = self.by_tag.get(tag)
        if tag == self._replies.tag:
            await self._replies.cancel()
        elif consumer is not None:
            consumer.stage = "ending"
            await self._leave(consumer)
            if self._table.remove(tag) is not None:
                self._report_deleted(consumer)
        if not method.nowait:
            self._output.put_method(methods.BasicCancelOk(tag))

    def cancel_by_broker(self, consumer: ChannelConsumer) -> None:
        """End a consumer, and notify the client if it supports that; the client sends no answer."""
        whole = self._table.remove(consumer.tag)
        assert whole is not None, "a consumer that is not there is cancelled"
        self._report_deleted(whole)
        if whole.parts is not None:
            self._leave_at_once(whole, whole.parts)
        if self._config.has_cancel_notify:
            self._put_unasked(methods.BasicCancel(consumer.tag, True))

    def running(self, queue_id: str, tag: str) -> ChannelConsumer | None:
        """The consumer `tag` if it consumes from that queue, and is neither starting nor ending."""
        consumer = self.by_tag.get(tag)
        if consumer is None or consumer.queue_id != queue_id or consumer.stage != "running":
            return None
        return consumer

    # -- events ---

    def _report_created(self, consumer: ChannelConsumer) -> None:
        """Report a consumer to those who watch events."""
        events = self._context.events
        if events.are_watched():
            fields = {
                **client_events.consumer_identity(
                    self._context.node_name, self._config, consumer.row.name, consumer.tag
                ),
                "exclusive": consumer.exclusive,
                "ack_required": not consumer.no_ack,
                "prefetch_count": consumer.prefetch,
                "arguments": consumer.arguments,
            }
            events.emit(self._process, "consumer.created", fields)

    def _report_deleted(self, consumer: ChannelConsumer) -> None:
        events = self._context.events
        if events.are_watched():
            fields = client_events.consumer_identity(
                self._context.node_name, self._config, consumer.row.name, consumer.tag
            )
            events.emit(self._process, "consumer.deleted", fields)

    async def end(self) -> None:
        """Report that all consumers have ended, because the channel has, and forget them, in steps."""
        while True:
            for tag in list(islice(self.by_tag, STEP)):
                consumer = self._table.remove(tag)
                if consumer is not None and consumer.stage != "starting":
                    self._report_deleted(consumer)
            if not self.by_tag:
                return
            await self._process.next_turn()

    # -- queues that end ---

    def queue_gone(self, queue_id: str, crashed: QueueRow | None) -> None:
        """Handle the end of a queue. `crashed` is its row if it crashed, so that its consumers consume again after the
        restart; None if it was deleted, which cancels them (AB-126).
        """
        consumers = self._table.of_queue(queue_id)
        if consumers and consumers[0].row.shard_of is not None:
            for whole in [self.by_tag[part.tag] for part in consumers]:
                # To the next process of the shard, the ack tags of its early deliveries mean other messages.
                whole.early = [delivery for delivery in whole.early if delivery[1] != queue_id]
        if consumers:
            self._process.spawn(self._lose_queue(consumers, crashed))

    async def _lose_queue(self, consumers: list[ChannelConsumer], crashed: QueueRow | None) -> None:
        """Cancel these consumers, or have them consume again. Empties the list as it goes, because freeing 50,000
        consumers at once takes 11 ms.
        """
        again = []
        consumers.reverse()
        while consumers:
            if len(consumers) % STEP == 0:
                await self._process.next_turn()
            if not self._is_running():
                return
            consumer = consumers.pop()
            if not consumer.is_registered or not self._table.has(consumer):
                continue
            if crashed is None and self.by_tag[consumer.tag] is not consumer:
                continue  # a shard is deleted with its logical queue, whose end cancels the consumer
            if crashed is None or cancels_on_failover(consumer.row, consumer.arguments):
                self._lose(consumer)
            else:
                consumer.life += 1
                again.append(consumer)
        if crashed is not None and again:
            await self._consume_again(crashed, again)

    async def _consume_again(self, row: QueueRow, consumers: Sequence[ChannelConsumer]) -> None:
        """Register the consumers with the queue's next process, in their order; `row` is that of the dead one."""
        lives = [(consumer, consumer.life) for consumer in consumers]
        try:
            row = await self._queues.restarted(row)
        except AmqpError:
            for consumer, life in lives:
                if self._attempt_goes_on(consumer, life):
                    self._lose(consumer)
            return
        for consumer, life in lives:
            if not self._attempt_goes_on(consumer, life):
                continue
            self._queues.watch(row)
            if not self._attempt_goes_on(consumer, life):
                # `watch` found that the channel still watched an earlier process of the queue, and handled the end of
                # that one: another attempt has begun.
                continue
            try:
                await self._process.ask(row.address, self._consume_message(consumer))
            except ProcessDown:
                return  # `on_down` starts another attempt
            except AmqpError:
                if self._attempt_goes_on(consumer, life):
                    self._lose(consumer)

    def _lose(self, consumer: ChannelConsumer) -> None:
        """Cancel a consumer that has lost its queue: while shards are asked to register it, after its consume-ok."""
        whole = self.by_tag[consumer.tag]
        whole.is_lost = whole.stage == "starting"
        if not whole.is_lost:
            self.cancel_by_broker(consumer)

    def _attempt_goes_on(self, consumer: ChannelConsumer, life: int) -> bool:
        """Whether an attempt to register the consumer again goes on: the client has not cancelled it, the channel is
        not closing, and the queue has not crashed once more, which begins another attempt.
        """
        return self._is_running() and consumer.is_registered and consumer.life == life and self._table.has(consumer)

    # -- deliveries ---

    @seam("which deliveries are flagged as redelivered")
    def deliver(self, address: Address[ToQueue], queue_id: str, tag: str, runs: list[DeliveryRun]) -> None:
        """Append deliveries for the consumer `tag` to the output, with a notice for their queue at `address`."""
        consumer = self.by_tag.get(tag)
        if consumer is not None and consumer.queue_id != queue_id:
            if consumer.parts is not None and consumer.stage == "starting":
                consumer.early.append((address, queue_id, tag, runs))
                return
            consumer = None if consumer.parts is None else consumer.parts.get(queue_id)
        if consumer is None:
            # The broker has cancelled the consumer of a sharded queue, because another shard has crashed.
            self._deliveries.give_back(address, queue_id, runs)
            return
        if queue_id not in self._deliveries.unacked.sources and not consumer.no_ack:
            if not self._queues.is_watched(queue_id, address):
                # `watch` has found a later process of the queue. To that one the ack tags mean other messages.
                return
        deliveries, output = self._deliveries, self._output
        frames, number, frame_max = output.frames, output.number, output.frame_max
        traced = self._context.routing.traced
        total = redelivered = largest = 0
        for origins, is_redelivered, tags, contents in runs:
            count = len(contents)
            if is_redelivered:
                redelivered += count
            if traced:
                self._tracer.trace_delivery(
                    consumer.row.shard_of or consumer.row.name, origins, is_redelivered, contents
                )
            heads = consumer.redelivered_heads if is_redelivered else consumer.heads
            if number != CONTENT_CHANNEL:
                contents = rechannel_run(contents, number)
            largest = len(contents[0]) if count == 1 else max(map(len, contents))
            if frame_max and largest > frame_max:
                contents = [fit(content, number, frame_max) for content in contents]
            is_large = largest >= LARGE_CONTENT
            first = deliveries.next_tag
            deliveries.next_tag = first + count
            if count == 1:
                origin = any_of(origins)
                head = heads.get(id(origin)) or self._make_head(consumer, heads, origin)
                if is_large:
                    output.put_deliveries((head.start + _TAG(first) + head.end,), contents)
                else:
                    frames += (head.start, _TAG(first), head.end, contents[0])
            else:
                starts: Iterable[bytes]
                ends: Iterable[bytes]
                if isinstance(origins, list):
                    each = [heads.get(id(origin)) or self._make_head(consumer, heads, origin) for origin in origins]
                    starts, ends = [head.start for head in each], [head.end for head in each]
                else:
                    head = heads.get(id(origins)) or self._make_head(consumer, heads, origins)
                    starts, ends = repeat(head.start), repeat(head.end)
                # 0.15 µs a message of one origin: everything inside runs in C.
                tag_bytes = map(_TAG, range(first, first + count))
                if is_large:
                    output.put_deliveries(map(b"".join, zip(starts, tag_bytes, ends)), contents)
                else:
                    parts = chain.from_iterable(zip(starts, tag_bytes, ends, contents))
                    output.put_run(parts, largest, count if consumer.is_far else 0)
            if tags is not None:
                source = deliveries.unacked.sources.get(queue_id) or deliveries.unacked.source(queue_id)
                deliveries.expect_ack(UnackedRun(first, source, tag, tags, self._now()))
            total += count
        deliveries.delivered(queue_id, total, redelivered, consumer.no_ack)
        step = consumer.notice_step
        if step == NOTICE_STEP and largest <= SMALL_CONTENT:
            step = NOTICE_STEP_SMALL
        output.notices.append((address, queue_id, self._config.channel_id, total, step))
        if self._limiter.limit is not None or self._limiter.shared:
            self._limiter.delivered(queue_id, total, 0 if consumer.no_ack else total)

    def _make_head(self, consumer: ChannelConsumer, heads: dict[int, DeliveryHead], origin: Origin) -> DeliveryHead:
        if len(heads) >= HEADS_KEPT:
            heads.clear()
        is_redelivered = heads is consumer.redelivered_heads
        tag = _shortstr(consumer.tag)
        end = (b"\1" if is_redelivered else b"\0") + _shortstr(origin.exchange) + _shortstr(origin.routing_keys[0])
        size = 4 + len(tag) + 8 + len(end)
        start = b"\x01" + self._output.number.to_bytes(2, "big") + size.to_bytes(4, "big") + _DELIVER_IDS + tag
        head = heads[id(origin)] = DeliveryHead(start, end + b"\xce", origin)
        return head


def _shortstr(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return bytes((len(encoded),)) + encoded
