"""How publishes get into a queue, and what their publishers are told (AB-101, AB-111, AB-123; FC-33).

A publish waits in `delayed` where deliveries must come first, then in `arrivals` until the wake-up ends; then it is refused, handed straight to consumers, expired
or given to the backing queue. Confirms and refusals gather per channel and are sent together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ...store.messages.message import Origin, QueuedMessage, body_sizes
from .arrivals import Arrival, Part, split_parts
from .awaiting import AwaitingConfirms
from .consumers import Share

if TYPE_CHECKING:
    from .process import Queue

DELAY_SECONDS = 0.002  # seconds that publishes wait for a delivery to be written
ALLOWANCE_MOST = 1000


class Intake:
    """The publishing side of a queue.

    While a backlog is on its way to consumers, publishes are taken half as fast as deliveries are written (FC-33): publishing costs fewer turns than consuming, and a
    publisher that never pauses would otherwise grow the queue for ever. Where no socket takes anything for `DELAY_SECONDS` the consumers are *stalled*, and publishes
    no longer wait for them until one of them reads again.
    """

    __slots__ = (
        "_transient_of",
        "allowance",
        "arrivals",
        "awaiting",
        "confirmed",
        "delayed",
        "delay_timer",
        "queue",
        "refused",
        "stalled",
    )

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.delayed: deque[tuple[Any, str, list[tuple]]] = deque()
        self.arrivals: list[Arrival] = []
        self.delay_timer: Any = None
        self.stalled = False
        self.allowance = 0  # publishes that may be taken while deliveries wait for sockets
        self.awaiting = AwaitingConfirms()
        self.confirmed: dict[str, list[tuple[int, int]]] = {}
        self.refused: dict[str, list[tuple[int, int]]] = {}
        self._transient_of: tuple[Any, Any] = (None, None)

    # -- in which order -------------------------------------------------------------------------------------------------------------------------

    def publish(self, sender: Any, channel_id: str, entries: list[tuple]) -> None:
        if self.delayed or self.queue.dispatch.awaits_write and self.allowance <= 0 and not self.stalled:
            if self.delay_timer is None:
                self.delay_timer = self.queue.start_timer(DELAY_SECONDS, "delay")
            self.delayed.append((sender, channel_id, entries))
        else:
            self._take(sender, channel_id, entries)

    def delivered(self, count: int) -> None:
        """So many deliveries were written to a socket."""
        self.allowance = min(self.allowance + count // 2, ALLOWANCE_MOST) if len(self.queue.backing) else 0
        self.stalled = False

    def delay_is_over(self) -> None:
        self.delay_timer = None
        self.stalled = True
        self.take_delayed()

    def take_delayed(self) -> None:
        """Before the queue is asked anything, it takes what was published before."""
        while self.delayed:
            self._take(*self.delayed.popleft())
        self.absorb()

    def take_next(self) -> bool:
        """Takes the next of those that wait, if it need wait no longer."""
        if self.delayed and (not self.queue.dispatch.awaits_write or self.allowance > 0):
            self._take(*self.delayed.popleft())
            self.absorb()
            return True
        if self.delay_timer is not None and not self.delayed:
            self.queue.cancel_timer(self.delay_timer)
            self.delay_timer = None
        return False

    def _take(self, sender: Any, channel_id: str, entries: list[tuple]) -> None:
        queue = self.queue
        record = queue.channels.get(channel_id) or queue.channel(channel_id, sender)
        count = sum([len(entry[1]) for entry in entries])
        queue.credit.take(channel_id, count)
        if queue.dispatch.awaits_write:
            self.allowance -= count
        arrivals = self.arrivals
        for origin, contents, body_bytes, first_confirm, shared in entries:
            part = (record, first_confirm, len(contents))
            if not arrivals or not arrivals[-1].joins(origin, contents, body_bytes, part, shared):
                arrivals.append(Arrival(origin, contents, body_bytes, [part], shared))

    def publish_at_most_once(self, entries: list[tuple]) -> None:
        for origin, contents, body_bytes, shared in entries:
            self.arrivals.append(Arrival(origin, contents, body_bytes, [(None, 0, len(contents))], shared))

    # -- what becomes of a run --------------------------------------------------------------------------------------------------------------------

    def absorb(self) -> None:
        """Works on what arrived."""
        if not self.queue.is_open:
            return  # it is being deleted, and what it would write now nobody would remove
        arrivals, self.arrivals = self.arrivals, []
        if self.queue.durability is not None:
            self.queue.durability.grew()
        for arrival in arrivals:
            self._accept(arrival.origin, arrival.contents, arrival.body_bytes, arrival.parts, arrival.shared)

    def _accept(self, origin: Origin, contents: list[bytes], body_bytes: int, parts: list[Part], shared: int) -> None:
        queue = self.queue
        settings, limit, backing = queue.settings, queue.length_limit, queue.backing
        count = len(contents)
        if origin.persistent and not queue.row.durable:
            origin = self._as_transient(origin)
        if limit.rejects_publish and limit.exceeded_by(count, body_bytes):
            self._accept_within_limits(origin, contents, parts, shared)
            return
        expiry = None if settings.message_ttl is None and origin.expiration is None else queue.message_expiry.of(origin)
        consumers = queue.consumers
        if len(consumers) and backing.is_empty() and consumers.is_uniform:
            shares, taken = consumers.share(count)
            if taken == count:
                self._hand_over(shares, origin, contents, body_bytes, expiry, parts, shared)
                return
            if taken:
                head, contents = contents[:taken], contents[taken:]
                head_bytes = _body_bytes(head)
                head_parts, parts = split_parts(parts, taken)
                self._hand_over(shares, origin, head, head_bytes, expiry, head_parts, shared)
                body_bytes -= head_bytes
                shared = shared and shared + taken
        if expiry is not None and expiry <= queue.message_expiry.now():
            # TTL 0 and nobody ready (AB-96)
            self._confirm(parts)
            queue.dead_letterer.publish(
                "expired", [QueuedMessage(0, content, origin, expiry, False) for content in contents]
            )
            return
        self._took_over(
            backing.publish(origin, contents, body_bytes, expiry, origin.persistent, shared=shared), origin, parts
        )
        if limit.drops_head:
            limit.drop_overflow()
        queue.has_work = True

    def _accept_within_limits(self, origin: Origin, contents: list[bytes], parts: list[Part], shared: int) -> None:
        """reject-publish: one message after the other, as long as there is room (AB-101)."""
        limit = self.queue.length_limit
        for index, content in enumerate(contents):
            mine, parts = split_parts(parts, 1)
            size = _body_bytes([content])
            if not limit.exceeded_by(1, size):
                self._accept(origin, [content], size, mine, shared and shared + index)
                continue
            if limit.dead_letters_refused:
                self.queue.dead_letterer.publish("maxlen", [QueuedMessage(0, content, origin, None, False)])
            record, number, _ = mine[0]
            if record is not None and number:
                self.refused.setdefault(record.channel_id, []).append((number, number))

    def _as_transient(self, origin: Origin) -> Origin:
        """Persistence is the message's *and* the queue's; one remembered answer serves a publisher that repeats itself."""
        if self._transient_of[0] is not origin:
            self._transient_of = origin, origin._replace(persistent=False)
        return self._transient_of[1]

    def _hand_over(
        self,
        shares: list[Share],
        origin: Origin,
        contents: Sequence[bytes],
        body_bytes: int,
        expiry: int | None,
        parts: list[Part],
        shared: int,
    ) -> None:
        """Messages that go straight to consumers, all of one acknowledgement mode (AB-123)."""
        queue = self.queue
        put = queue.dispatch.outbox.put
        if shares[0][0].no_ack:
            self._confirm(parts)
            queue.backing.discard(origin, contents, body_bytes, False)
            for consumer, start, stop, step in shares:
                put(consumer, (origin, False, None, contents[start:stop:step]))
            return
        tags = queue.backing.publish_delivered(origin, contents, body_bytes, expiry, origin.persistent, shared)
        self._took_over(tags, origin, parts)
        for consumer, start, stop, step in shares:
            mine = tags[start:stop:step]
            consumer.channel.pending.update(zip(mine, repeat(consumer)))
            put(consumer, (origin, False, mine, contents[start:stop:step]))

    # -- what publishers are told -------------------------------------------------------------------------------------------------------------------

    def _took_over(self, tags: range, origin: Origin, parts: list[Part]) -> None:
        """The backing queue has the messages: persistent ones are confirmed when it says that they are safe, others at once (AB-111)."""
        if not origin.persistent:
            self._confirm(parts)
            return
        at = 0
        for record, first, count in parts:
            if first and record is not None:
                self.awaiting.add(tags[at : at + count], record.channel_id, first)
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

    def tell_publishers(self) -> None:
        queue = self.queue
        ranges = queue.backing.drain_confirmed()
        if ranges:
            for channel_id, numbers in self.awaiting.safe(ranges).items():
                self.confirmed.setdefault(channel_id, []).extend(numbers)
        if self.confirmed:
            for channel_id, numbers in self.confirmed.items():
                queue.send(queue.channels[channel_id].address, ("confirm", queue.queue_id, numbers))
            self.confirmed = {}
        if self.refused:
            for channel_id, numbers in self.refused.items():
                queue.send(queue.channels[channel_id].address, ("refuse", queue.queue_id, numbers))
            self.refused = {}

    def forget_channel(self, channel_id: str) -> None:
        self.awaiting.drop_channel(channel_id)
        self.confirmed.pop(channel_id, None)
        self.refused.pop(channel_id, None)


def _body_bytes(contents: Sequence[bytes]) -> int:
    sizes = body_sizes(contents)
    return sizes * len(contents) if isinstance(sizes, int) else sum(sizes)
