"""`Queue`: the process of one queue (AB sections 9, 11 and 12; queue-and-store section 3.3).

It owns AMQP's semantics (consumers, acknowledgements, expiry, length limits, dead letters); its backing queue owns the messages. What arrives in one wake-up
is handled message by message, and what must leave (deliveries, confirms, requests for slots) is gathered and sent in `after_batch`.

The way of a publish: an empty queue with a consumer that can take it hands it over at once (it never enters the backing queue's lists); otherwise it is
enqueued, the length limits and the expiry of the head are applied, and `after_batch` delivers from the head while somebody can take something.

Limits: the queue knows nothing of sockets, delivery tags or channel numbers; those are the channel's. Its name is bound, authorised and listed by Metadata.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

from ...amqp.errors import AmqpError
from ...runtime.credit import CreditFlow
from ...runtime.process import Process
from ...store.message import Delivery, Message, Origin, body_sizes
from ..arguments import QueueSettings, queue_settings
from ..context import NodeContext
from ..routing import QueueRow
from .arrivals import Arrival, Part, split_parts
from .awaiting import AwaitingConfirms
from .backing import open_backing_queue
from .consumers import UNSENT_LIMIT, ChannelRecord, Consumer, Consumers, Share
from .dead_letters import DeadLetterer
from .head import head_message_timestamp
from .outbox import Outbox

DELIVERY_BATCH = 1000       # messages taken from the backing queue at a time
EXPIRY_STEP = 400           # messages expired before other work gets its turn (FC-36)
PATIENCE = 0.002            # seconds that publishes wait for a delivery to be written
NOT_YET = object()


class Queue(Process):
    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, ChannelRecord] = {}
        self.awaiting = AwaitingConfirms()
        self.confirmed: dict[str, list[tuple[int, int]]] = {}
        self.refused: dict[str, list[tuple[int, int]]] = {}
        self.outbox = Outbox()
        self.transient_of: tuple[Any, Any] = (None, None)
        self.has_work = False               # a delivery may be possible
        self.ending = False
        self.had_consumer = False
        self.late: deque[tuple[Any, str, list[tuple]]] = deque()       # publishes that wait for deliveries, see `on_publish`
        self.arrivals: list[Arrival] = []
        self.patience_timer: Any = None
        self.stalled = False
        self.allowance = 0
        self.awaits_write = False           # messages are ready and a consumer waits only for its socket
        self.expiry_timer: Any = None
        self.expiry_at: int | None = None   # what the timer is set to, microseconds since the epoch
        self.any_expiry = False             # some message was published with an expiry
        self.uneven_expiry = False          # ... so that a later message may expire before an earlier one
        self.unused_timer: Any = None
        self.unused_since = 0.0

    def on_start(self, sender: Any, context: NodeContext, row: QueueRow, recovering: bool) -> None:
        self.context = context
        self.row = row
        self.queue_id = row.queue_id
        self.settings: QueueSettings = queue_settings(row.arguments)
        self.rejects_publish = self.settings.rejects_publish
        self.drops_head = self.settings.drops_head
        self.consumers = Consumers(self.settings.single_active_consumer)
        self.backing = open_backing_queue(self.settings, self.now)
        self.dead_letterer = DeadLetterer(self, context.routing, row, self.settings)
        self.credit = CreditFlow(context.settings.credit_flow_default_credit, self._grant, clock=self.now, hold=context.settings.flow_hold_queue / 1000)
        self.uneven_expiry = self.settings.max_priority is not None
        self.restart_unused_timer()

    # -- channels -----------------------------------------------------------------------------------------------------------------------------

    def channel(self, channel_id: str, address: Any) -> ChannelRecord:
        record = self.channels.get(channel_id)
        if record is None:
            record = self.channels[channel_id] = ChannelRecord(channel_id, address)
            self.monitor(address, channel_id)
        return record

    def _grant(self, channel_id: str, amount: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.send(record.address, ("bump", self.queue_id, amount))

    def on_bump(self, sender: Any, peer: str, amount: int) -> None:
        self.credit.bump(peer, amount)
        self.backing.resume()

    def on_sent(self, sender: Any, channel_id: str, count: int) -> None:
        """The connection wrote `count` of this channel's deliveries to its socket (FC-32)."""
        record = self.channels.get(channel_id)
        if record is not None:
            record.unsent -= count
            self.allowance = min(self.allowance + count // 2, DELIVERY_BATCH) if len(self.backing) else 0
            self.stalled = False
            if self.consumers.resume(record):
                self.has_work = True

    def on_channel_closing(self, sender: Any, channel_id: str) -> bool:
        """The channel ends in order: when it has the answer its messages are back in the queue (AB-53)."""
        self._take_late()
        self.forget_channel(channel_id)
        self.demonitor(channel_id)
        return True

    def on_down(self, channel_id: str, reason: str) -> None:
        self._take_late()
        self.forget_channel(channel_id)

    def forget_channel(self, channel_id: str) -> None:
        record = self.channels.pop(channel_id, None)
        self.credit.peer_down(channel_id)
        self.awaiting.drop_channel(channel_id)
        self.confirmed.pop(channel_id, None)
        self.refused.pop(channel_id, None)
        if record is None:
            return
        for consumer in [consumer for consumer in self.consumers if consumer.channel is record]:
            self.consumers.remove(consumer)
        self.outbox.drop(record)
        if record.pending:
            self.backing.requeue(list(record.pending))
            if self.drops_head:
                self._drop_overflow()       # AB-102
        self.has_work = True
        self._consumer_left()

    # -- publishing ---------------------------------------------------------------------------------------------------------------------------

    def on_publish(self, sender: Any, channel_id: str, entries: list[tuple]) -> None:
        """Entries `(origin, contents, body_bytes, first_confirm)`, one credit per content.

        While a backlog is on its way to consumers, publishes are taken half as fast as deliveries are written (FC-33): publishing costs fewer turns than
        consuming, and a publisher that never pauses would otherwise grow the queue for ever. Where no socket takes anything for `PATIENCE` the consumers are
        *stalled*, and publishes no longer wait for them until one of them reads again.
        """
        if self.late or self.awaits_write and self.allowance <= 0 and not self.stalled:
            if self.patience_timer is None:
                self.patience_timer = self.start_timer(PATIENCE, "patience")
            self.late.append((sender, channel_id, entries))
        else:
            self._take(sender, channel_id, entries)

    def _take_late(self) -> None:
        """Before the queue is asked anything, it takes what was published before."""
        while self.late:
            self._take(*self.late.popleft())
        self._absorb()

    def _take(self, sender: Any, channel_id: str, entries: list[tuple]) -> None:
        record = self.channels.get(channel_id) or self.channel(channel_id, sender)
        count = sum([len(entry[1]) for entry in entries])
        self.credit.take(channel_id, count)
        if self.awaits_write:
            self.allowance -= count
        arrivals = self.arrivals
        for origin, contents, body_bytes, first_confirm in entries:
            part = (record, first_confirm, len(contents))
            if not arrivals or not arrivals[-1].joins(origin, contents, body_bytes, part):
                arrivals.append(Arrival(origin, contents, body_bytes, [part]))

    def on_dead_letters(self, sender: Any, entries: list[tuple]) -> None:
        """Dead letters of another queue, or of this one: neither credited nor confirmed (AB-147)."""
        for origin, contents, body_bytes in entries:
            self.arrivals.append(Arrival(origin, contents, body_bytes, [(None, 0, len(contents))]))

    def _absorb(self) -> None:
        """Works on what arrived."""
        arrivals, self.arrivals = self.arrivals, []
        for arrival in arrivals:
            self._accept(arrival.origin, arrival.contents, arrival.body_bytes, arrival.parts)

    def _accept(self, origin: Origin, contents: list[bytes], body_bytes: int, parts: list[Part]) -> None:
        settings = self.settings
        count = len(contents)
        if origin.persistent and not self.row.durable:
            origin = self._as_transient(origin)
        if self.rejects_publish and self._exceeds(count, body_bytes):
            self._accept_within_limits(origin, contents, parts)
            return
        backing = self.backing
        expiry = None if settings.message_ttl is None and origin.expiration is None else self._expiry_of(origin)
        if len(self.consumers) and backing.is_empty() and self.consumers.is_uniform:
            shares, taken = self.consumers.share(count)
            if taken == count:
                self._hand_over(shares, origin, contents, body_bytes, expiry, parts)
                return
            if taken:
                head, contents = contents[:taken], contents[taken:]
                head_bytes = _body_bytes(head)
                head_parts, parts = split_parts(parts, taken)
                self._hand_over(shares, origin, head, head_bytes, expiry, head_parts)
                body_bytes -= head_bytes
        if expiry is not None and expiry <= self.wall_clock_us():
            # TTL 0 and nobody ready (AB-96)
            self._confirm(parts)
            self.dead_letterer.publish("expired", [Message(0, content, origin, expiry, False) for content in contents])
            return
        self._took_over(backing.publish(origin, contents, body_bytes, expiry, origin.persistent), origin, parts)
        if self.drops_head:
            self._drop_overflow()
        self.has_work = True

    def _accept_within_limits(self, origin: Origin, contents: list[bytes], parts: list[Part]) -> None:
        """reject-publish: one message after the other, as long as there is room (AB-101)."""
        for content in contents:
            mine, parts = split_parts(parts, 1)
            size = _body_bytes([content])
            if not self._exceeds(1, size):
                self._accept(origin, [content], size, mine)
                continue
            if self.settings.overflow == "reject-publish-dlx":
                self.dead_letterer.publish("maxlen", [Message(0, content, origin, None, False)])
            record, number, _ = mine[0]
            if record is not None and number:
                self.refused.setdefault(record.channel_id, []).append((number, number))

    def _as_transient(self, origin: Origin) -> Origin:
        """Persistence is the message's *and* the queue's; one remembered answer serves a publisher that repeats itself."""
        if self.transient_of[0] is not origin:
            self.transient_of = origin, origin._replace(persistent=False)
        return self.transient_of[1]

    def _hand_over(self, shares: list[Share], origin: Origin, contents: Sequence[bytes], body_bytes: int, expiry: int | None, parts: list[Part]) -> None:
        """Messages that go straight to consumers, all of one acknowledgement mode (AB-123)."""
        put = self.outbox.put
        if shares[0][0].no_ack:
            self._confirm(parts)
            self.backing.discard(origin, contents, body_bytes, False)
            for consumer, start, stop, step in shares:
                put(consumer, (origin, False, None, contents[start:stop:step]))
            return
        tags = self.backing.publish_delivered(origin, contents, body_bytes, expiry, origin.persistent)
        self._took_over(tags, origin, parts)
        for consumer, start, stop, step in shares:
            mine = tags[start:stop:step]
            consumer.channel.pending.update(zip(mine, repeat(consumer)))
            put(consumer, (origin, False, mine, contents[start:stop:step]))

    def _took_over(self, tags: range, origin: Origin, parts: list[Part]) -> None:
        """The backing queue has the messages: persistent ones are confirmed when it says that they are safe, others at once (AB-111)."""
        if not origin.persistent:
            self._confirm(parts)
            return
        at = 0
        for record, first, count in parts:
            if first and record is not None:
                self.awaiting.add(tags[at:at + count], record.channel_id, first)
            at += count

    def _confirm(self, parts: list[Part]) -> None:
        for record, first, count in parts:
            if not first or record is None:
                continue
            ranges = self.confirmed.setdefault(record.channel_id, [])
            if ranges and ranges[-1][1] == first - 1:
                ranges[-1] = (ranges[-1][0], first + count - 1)
            else:
                ranges.append((first, first + count - 1))

    # -- limits and expiry --------------------------------------------------------------------------------------------------------------------

    def _exceeds(self, count: int, body_bytes: int) -> bool:
        settings = self.settings
        return (settings.max_length is not None and len(self.backing) + count > settings.max_length
                or settings.max_length_bytes is not None and self.backing.ready_bytes + body_bytes > settings.max_length_bytes)

    def _drop_overflow(self) -> None:
        """drop-head: removes from the head until within the limits (AB-100)."""
        while len(self.backing) and self._exceeds(0, 0):
            over = 1
            if self.settings.max_length is not None:
                over = max(over, len(self.backing) - self.settings.max_length)
            if self.dead_letterer.is_enabled:
                deliveries = self.backing.fetch(min(over, DELIVERY_BATCH), True)
                self.dead_letterer.publish("maxlen", _messages(deliveries))
                for delivery in deliveries:
                    self.backing.ack(delivery.tags)
            else:
                self.dead_letterer.count("maxlen", self.backing.drop(min(over, DELIVERY_BATCH), False).count)

    def wall_clock_us(self) -> int:
        return int(self.wall_clock() * 1_000_000)

    def _expiry_of(self, origin: Origin) -> int:
        ttl = self.settings.message_ttl
        if origin.expiration is not None:
            self.uneven_expiry = True
            if ttl is None or origin.expiration < ttl:
                ttl = origin.expiration
        self.any_expiry = True
        assert ttl is not None              # asked only where the queue or the message sets one
        return self.wall_clock_us() + ttl * 1000

    def _expire(self) -> bool:
        """Removes expired messages from the head (AB-95). False if that was a step of a longer stretch: the rest follows in a message to itself."""
        now = self.wall_clock_us()
        head = self.backing.head_expiry()
        if head is None or head > now:
            return True

        def expired(expiry: int | None, size: int) -> bool:
            return expiry is not None and expiry <= now

        if self.dead_letterer.is_enabled:
            messages: list[Message] = []
            self.backing.fetchwhile(expired, _collect, messages, EXPIRY_STEP)
            self.dead_letterer.publish("expired", messages)
            self.backing.ack([message.tag for message in messages])
            count = len(messages)
        else:
            count = self.backing.dropwhile(expired, EXPIRY_STEP).count
            self.dead_letterer.count("expired", count)
        if count < EXPIRY_STEP:
            return True
        self.send(self.myAddress, ("expire_more",))
        return False

    def on_expire_more(self, sender: Any) -> None:
        self.has_work = True

    def _set_expiry_timer(self) -> None:
        head = self.backing.head_expiry()
        if head == self.expiry_at:
            return
        if self.expiry_timer is not None:
            self.cancel_timer(self.expiry_timer)
            self.expiry_timer = None
        self.expiry_at = head
        if head is not None:
            # One millisecond late rather than early (AB-95).
            self.expiry_timer = self.start_timer(max(0.0, head / 1e6 - self.wall_clock()) + 0.001, "expiry")

    def on_timer(self, payload: str) -> None:
        if payload == "patience":
            self.patience_timer = None
            self.stalled = True
            self._take_late()
        elif payload == "expiry":
            self.expiry_timer, self.expiry_at = None, None
            self.has_work = True
        elif payload == "unused" and not len(self.consumers) and not self.ending:
            self.unused_timer = None
            left = self.unused_since + (self.settings.expires or 0) / 1000 - self.now()
            if left > 0:
                self.unused_timer = self.start_timer(left + 0.001, "unused")
            else:
                self.spawn(self.end("expired"))

    def restart_unused_timer(self) -> None:
        """A use, or the last consumer's leaving, begins the queue's lease anew (AB-93)."""
        if self.settings.expires is not None:
            self.unused_since = self.now()
            if self.unused_timer is None and not len(self.consumers):
                self.unused_timer = self.start_timer(self.settings.expires / 1000 + 0.001, "unused")

    # -- consuming ----------------------------------------------------------------------------------------------------------------------------

    def on_consume(self, sender: Any, channel_id: str, address: Any, tag: str, no_ack: bool, exclusive: bool, prefetch: int, limited: bool,
                   priority: int, arguments: Any, user: str) -> bool:
        """Registers a consumer; the answer reaches the channel before the first delivery (AB-119)."""
        self._check_alive()
        row = self.row
        if self.settings.single_active_consumer and exclusive or self.consumers.has_exclusive() or exclusive and len(self.consumers):
            raise AmqpError(403, f"queue '{row.name}' in vhost '{row.vhost}' in exclusive use")
        record = self.channel(channel_id, address)
        record.limited = limited
        self.consumers.add(Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user))
        self.had_consumer = True
        if self.unused_timer is not None:
            self.cancel_timer(self.unused_timer)
            self.unused_timer = None
        self.has_work = True
        return True

    def on_cancel(self, sender: Any, channel_id: str, tag: str) -> bool:
        consumer = self.consumers.find(channel_id, tag)
        if consumer is not None:
            self._send_outbox()         # cancel-ok follows every delivery already sent
            self.consumers.remove(consumer)
            if not consumer.channel.consumers:
                self._return_slots(consumer.channel)
            self.has_work = True
            self._consumer_left()
        return True

    def _consumer_left(self) -> None:
        if len(self.consumers) or not self.had_consumer:
            return
        self.restart_unused_timer()
        if self.row.auto_delete and not self.ending:
            self.spawn(self.end("auto-delete"))

    def on_get(self, sender: Any, channel_id: str, address: Any, no_ack: bool) -> tuple:
        """`(delivery or None, ready messages left)`."""
        self._check_alive()
        self.restart_unused_timer()
        if self.any_expiry:
            self._expire()
        deliveries = self.backing.fetch(1, not no_ack)
        if not deliveries:
            return None, 0
        delivery = deliveries[0]
        if not no_ack:
            self.channel(channel_id, address).pending[delivery.tags[0]] = None
        return tuple(delivery), len(self.backing)

    def on_settle(self, sender: Any, channel_id: str, outcome: str, pieces: list[Sequence[int]]) -> None:
        """`pieces` are sequences of ack tags; outcome `ack`, `requeue` or `reject`."""
        record = self.channels.get(channel_id)
        if record is None:
            return
        pop = record.pending.pop
        for tags in pieces:
            owners: list[Any] = list(map(pop, tags, repeat(NOT_YET)))
            first = owners[0]
            if first is NOT_YET or owners.count(first) != len(owners):
                tags = [tag for tag, owner in zip(tags, owners) if owner is not NOT_YET]
                for owner in owners:
                    if owner is not None and owner is not NOT_YET:
                        owner.unacked -= 1
            elif first is not None:
                first.unacked -= len(owners)
            if outcome == "ack":
                self.backing.ack(tags)
            elif outcome == "requeue":
                self.backing.requeue(tags)
            else:
                self._reject(tags)
        if outcome == "requeue" and self.settings.drops_head:
            self._drop_overflow()       # AB-102
        if self.consumers.resume(record) or outcome == "requeue":
            self.has_work = True

    def _reject(self, tags: Sequence[int]) -> None:
        if self.dead_letterer.is_enabled:
            messages: list[Message] = []
            self.backing.ackfold(_collect, messages, tags)
            self.dead_letterer.publish("rejected", messages)
        else:
            self.dead_letterer.count("rejected", len(tags))
        self.backing.ack(tags)

    # -- the channel-wide limit (AB-127, AB-128) ----------------------------------------------------------------------------------------------

    def on_limited(self, sender: Any, channel_id: str, limited: bool) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            record.limited = limited
            record.slots, record.slots_asked = 0, False
            self.consumers.resume(record)
            self.has_work = True

    def on_slots(self, sender: Any, channel_id: str, count: int) -> None:
        """The channel lets `count` more messages through; what is not used goes back in `after_batch`."""
        record = self.channels.get(channel_id)
        if record is not None and record.limited:
            record.slots += count
            record.slots_asked = False
            if self.consumers.resume(record):
                self.has_work = True
            else:
                self._return_slots(record)

    def _return_slots(self, record: ChannelRecord) -> None:
        if record.slots > 0:
            self.send(record.address, ("slots_back", self.queue_id, record.slots))
            record.slots = 0

    # -- sending ------------------------------------------------------------------------------------------------------------------------------

    def after_batch(self) -> None:
        backing = self.backing
        if self.arrivals:
            self._absorb()
        if self.has_work:
            self.has_work = False
            self._deliver()
        while self.late and (not self.awaits_write or self.allowance > 0):
            self._take(*self.late.popleft())
            self._absorb()
            self.has_work = False
            self._deliver()
        if self.patience_timer is not None and not self.late:
            self.cancel_timer(self.patience_timer)
            self.patience_timer = None
        if self.outbox:
            self._send_outbox()
        ranges = backing.drain_confirmed()
        if ranges:
            for channel_id, numbers in self.awaiting.safe(ranges).items():
                self.confirmed.setdefault(channel_id, []).extend(numbers)
        if self.confirmed:
            for channel_id, numbers in self.confirmed.items():
                self.send(self.channels[channel_id].address, ("confirm", self.queue_id, numbers))
            self.confirmed = {}
        if self.refused:
            for channel_id, numbers in self.refused.items():
                self.send(self.channels[channel_id].address, ("refuse", self.queue_id, numbers))
            self.refused = {}
        if self.any_expiry:
            self._set_expiry_timer()

    def _deliver(self) -> None:
        backing, consumers = self.backing, self.consumers
        self.awaits_write = False
        if self.any_expiry and not self._expire():
            return
        while len(consumers) and len(backing):
            # Where messages expire in any order, each must be looked at when it becomes the head.
            shares, taken = consumers.share(1 if self.any_expiry and self.uneven_expiry else min(len(backing), DELIVERY_BATCH))
            if not taken:
                self.awaits_write = any(consumer.channel.unsent >= UNSENT_LIMIT for consumer in consumers)
                for record in self.channels.values():
                    if record.slots:
                        self._return_slots(record)      # its consumers cannot use them now, those on other queues might
                for record in consumers.waiting_for_slots():
                    record.slots_asked = True
                    self.send(record.address, ("ask_slots", self.queue_id, len(backing)))
                break
            if consumers.is_uniform:
                self._assign(shares, backing.fetch(taken, not shares[0][0].no_ack))
            else:
                for consumer, start, stop, _ in shares:
                    self._assign([(consumer, 0, stop - start, 1)], backing.fetch(stop - start, not consumer.no_ack))
            if self.any_expiry and not self._expire():
                return
        for record in self.channels.values() if not len(backing) else ():
            if record.slots:
                self._return_slots(record)

    def _assign(self, shares: list, deliveries: list[Delivery]) -> None:
        """Gives the fetched messages to the consumers they were counted for."""
        put = self.outbox.put
        for consumer, start, stop, step in shares:
            at = 0
            for origin, redelivered, tags, contents in deliveries:
                low = start - at if start >= at else -(at - start) % step
                high = min(stop - at, len(contents))
                at += len(contents)
                if high <= 0:
                    break
                if low >= high:
                    continue        # none of its turns falls into this run
                if consumer.no_ack:
                    put(consumer, (origin, redelivered, None, contents[low:high:step]))
                    continue
                taken = tags[low:high:step]
                consumer.channel.pending.update(zip(taken, repeat(consumer)))
                put(consumer, (origin, redelivered, taken, contents[low:high:step]))

    def _send_outbox(self) -> None:
        for consumer, runs in self.outbox.take():
            self.send(consumer.channel.address, ("deliver", self.queue_id, consumer.tag, runs))

    # -- the queue itself ---------------------------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        self._take_late()
        if self.ending:
            raise AmqpError(404, f"no queue '{self.row.name}' in vhost '{self.row.vhost}'")

    def on_counts(self, sender: Any) -> tuple[int, int]:
        """Ready messages and consumers, for a declare: a use of the queue (AB-93)."""
        self._take_late()
        self.restart_unused_timer()
        return len(self.backing), len(self.consumers)

    def on_purge(self, sender: Any) -> int:
        self._take_late()
        return self.backing.purge()

    def on_delete(self, sender: Any, if_unused: bool, if_empty: bool) -> int:
        """Ends the queue unless the conditions forbid it; Metadata takes it out of the routing table."""
        self._take_late()
        resource = f"queue '{self.row.name}' in vhost '{self.row.vhost}'"
        if if_empty and len(self.backing):
            raise AmqpError(406, f"{resource} not empty")
        if if_unused and len(self.consumers):
            raise AmqpError(406, f"{resource} in use")
        count = len(self.backing)
        self._delete("deleted")
        return count

    async def end(self, reason: str) -> None:
        """The queue's own end: out of the routing table first, so that nothing is routed to a process that is gone."""
        if self.ending:
            return
        self.ending = True
        await self.ask(self.context.metadata, ("queue_gone", self.row.vhost, self.row.name, self.queue_id))
        self._delete(reason)

    def _delete(self, reason: str) -> None:
        self.ending = True
        self.backing.delete_and_terminate()
        # Channels hear of it through their monitors: they cancel their consumers and take what is unconfirmed as confirmed (AB-86).
        self.stop(reason)

    def on_info(self, sender: Any) -> dict[str, Any]:
        """rabbitmqctl's info items of this queue (AB-176)."""
        backing, row = self.backing, self.row
        ready, unacked = len(backing), sum(len(record.pending) for record in self.channels.values())
        active = self.consumers.active
        return {
            "name": row.name, "vhost": row.vhost, "durable": row.durable, "auto_delete": row.auto_delete, "exclusive": row.exclusive_owner is not None,
            "owner": row.exclusive_owner, "arguments": row.arguments, "type": row.type, "messages_ready": ready, "messages_unacknowledged": unacked,
            "messages": ready + unacked, "consumers": len(self.consumers), "state": "flow" if self.credit.in_flow() else "running",
            "message_bytes_ready": backing.ready_bytes, "message_bytes_unacknowledged": backing.unacked_bytes,
            "message_bytes": backing.ready_bytes + backing.unacked_bytes,
            "head_message_timestamp": head_message_timestamp(backing, chain.from_iterable(record.pending for record in self.channels.values())),
            "single_active_consumer_tag": active.tag if active else "", "unsent": sum(record.unsent for record in self.channels.values()),
            "dead_lettered": dict(self.dead_letterer.counters),
        }

    def on_consumers_info(self, sender: Any) -> list[dict[str, Any]]:
        single = self.consumers.single_active
        return [{
            "queue_name": self.row.name, "vhost": self.row.vhost, "channel": consumer.channel.channel_id, "consumer_tag": consumer.tag,
            "ack_required": not consumer.no_ack, "exclusive": consumer.exclusive, "prefetch_count": consumer.prefetch, "priority": consumer.priority,
            "active": not single or consumer is self.consumers.active,
            "activity_status": "up" if not single else "single_active" if consumer is self.consumers.active else "waiting",
            "arguments": consumer.arguments, "user": consumer.user,
        } for consumer in self.consumers]


def _body_bytes(contents: Sequence[bytes]) -> int:
    sizes = body_sizes(contents)
    return sizes * len(contents) if isinstance(sizes, int) else sum(sizes)


def _collect(message: Message, messages: list[Message]) -> list[Message]:
    messages.append(message)
    return messages


def _messages(deliveries: list[Delivery]) -> list[Message]:
    return [Message(tag, content, origin, None, redelivered)
            for origin, redelivered, tags, contents in deliveries for tag, content in zip(tags, contents)]
