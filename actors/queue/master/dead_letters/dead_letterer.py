"""The dead letters of a queue (amqp-broker section 12).

`DeadLetterer` counts dead messages, makes dead letters of them and has these go to the queues that the dead-letter
exchange routes them to. There are three ways, none of which has credit or mandatory:

- From a durable queue to a durable queue on the same node, neither of them mirrored, they go by way of the journal
  (`Transit`), so that no crash loses or doubles a persistent one.
- If the target is on another node, or one of the two queues is mirrored, the dead messages stay here, pending, until
  all targets have their dead letters safe (`Shipment`). So none is lost; one may come twice if a node fails meanwhile.
- To any other queue they are sent at most once, and so is what goes to very many queues, which takes several turns
  (`fan_outs`), and what this queue has refused. So are messages that expire, or that are too many, while
  `SHIPPED_MOST` others wait for their targets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from sys import maxsize
from typing import TYPE_CHECKING

from .....amqp.dead_letter_headers import (
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    NEEDED_HEADERS,
    PACED,
    REJECTED,
    dead_letter,
)
from .....amqp.frames import content_properties, with_properties
from .....amqp.properties import decode_some, encode_properties
from .....routing.arguments.queue_settings import QueueSettings
from .....routing.rows import QueueRow
from .....routing.shards import with_shards
from .....routing.table import RoutingTable
from .....routing.wide_route import WideRoute
from .....seams import seam
from .....store.messages.message import Origin, QueuedMessage, body_size
from .....store.messages.message_ids import SharedIds
from .....store.queue.backing_queue import BackingQueue
from .....store.queue.variable.placement import EMBED_BELOW
from ....contracts.queue import to_queue
from ...disk.transit import Transit, number_in_journal
from ...effects import Effects
from .cycles import Cycles
from .fan_outs import FanOut, LaterDeaths, Rows, WideHandOver
from .shipment import Shipment

if TYPE_CHECKING:
    from ....contracts.queue import AtMostOnceEntry

    #: The queues that dead letters are routed to, by id, each with the entries for it.
    Targets = dict[str, tuple[QueueRow, list[AtMostOnceEntry]]]

#: Messages that die in one step, at first and at most.
FIRST_BATCH, LARGEST_BATCH = 8, 400

#: Bytes of dead messages that take as long as one small message, because the contents are copied and the headers
#: searched.
BYTES_AS_ONE = 2048

#: Bytes of dead messages that are handed over in one frame of the journal, unless a single message has more. Recovery
#: reads a frame as a whole.
FRAME_BYTES = 1 << 20

#: Entries (`AtMostOnceEntry`) that are made for queues in the time that one small dead message takes.
SENT_AS_ONE = 4

#: A dead letter for more queues than this is sent, or handed over, to this many of them in each turn. 20,000 queues at
#: once would take 60 ms.
FAN_OUT = 256

#: How many dead messages may wait for targets that are kept elsewhere, and how many bytes of them.
SHIPPED_MOST, SHIPPED_BYTES = 4096, 8 << 20

#: The reasons of messages that consumers have returned.
_RETURNED = (REJECTED, DELIVERY_LIMIT)

#: The counters of a queue of which no message has died yet. Nearly all queues share them.
_NONE_DEAD = {EXPIRED: 0, REJECTED: 0, MAXLEN: 0, DELIVERY_LIMIT: 0, PACED: 0}


class DeadLetterer:
    """The dead letters of the queue `row`. `wall_clock` gives seconds since the epoch."""

    __slots__ = (
        "_cycles",
        "_effects",
        "_exchange",
        "_held",
        "_ids",
        "_is_bounded",
        "_must_ship",
        "_routed",
        "_routing",
        "_routing_key",
        "_sent",
        "_shipment",
        "_shipped_bytes",
        "_transit",
        "_wall_clock",
        "backing",
        "batch",
        "counters",
        "dropped",
        "row",
        "shipped",
        "waiting",
    )

    def __init__(
        self,
        routing: RoutingTable,
        row: QueueRow,
        backing: BackingQueue,
        effects: Effects,
        wall_clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        transit: Transit | None,
    ) -> None:
        self._routing = routing
        self.row = row
        self.backing = backing
        self._transit = transit
        self._effects = effects
        self._wall_clock = wall_clock
        self._exchange: str | None = None
        self._routing_key: str | None = None
        #: Dead messages by reason, whether or not they became dead letters (AB-154), and those among them that had no
        #: exchange to go to.
        self.counters = self.dropped = _NONE_DEAD
        #: How many messages callers that remove dead messages should take at a time. It is small while messages are
        #: large, because the size of a message is known only when it is taken.
        self.batch = FIRST_BATCH
        self._ids = SharedIds(random_bytes)
        #: How often dead letters were routed, so that they go to the shards of a sharded queue in turn.
        self._routed = 0
        self._cycles = Cycles(row.vhost, row.name)
        #: How many entries for queues the present call of `remove` has made.
        self._sent = 0
        #: Collects the dead letters of messages that are removed now, and have to wait for their targets.
        self._shipment: Shipment | None = None
        #: How many dead messages wait for their targets, and how many bytes they have.
        self.shipped = self._shipped_bytes = 0
        self._is_bounded = True
        #: Messages that are about to die are kept if their dead letters have to be safe at their targets first.
        self._must_ship = False
        #: Deaths that wait until fewer do. None before the first.
        self._held: deque[LaterDeaths] | None = None
        #: What later turns send and hand over; None if nothing waits. While something waits, no further message should
        #: die, and later dead letters are appended here.
        self.waiting: deque[FanOut | WideHandOver | LaterDeaths] | None = None

    def apply(self, settings: QueueSettings) -> None:
        """Use the dead-letter exchange and routing key of `settings` for messages that die from now on."""
        self._exchange = settings.dead_letter_exchange
        self._routing_key = settings.dead_letter_routing_key

    @property
    def is_enabled(self) -> bool:
        return self._exchange is not None

    @property
    def needs_messages(self) -> bool:
        """Whether it must be known which messages die: they become dead letters, or the message index has them."""
        return self._exchange is not None or self._effects.index is not None

    def count(self, reason: str, number: int) -> None:
        if self.counters is _NONE_DEAD:
            self.counters, self.dropped = dict(_NONE_DEAD), dict(_NONE_DEAD)
        self.counters[reason] += number
        if self._existing_exchange() is None:
            self.dropped[reason] += number

    def _existing_exchange(self) -> str | None:
        """The name of the dead-letter exchange; None if the queue has none, or if there is no exchange of that name."""
        exchange = self._exchange
        return None if exchange is None or self._routing.exchange(self.row.vhost, exchange) is None else exchange

    def report_gone(self, reason: str, tags: Sequence[int]) -> None:
        """Report to the message index, if the queue is indexed, what became of dead messages."""
        index, exchange = self._effects.index, self._existing_exchange()
        if index is None:
            return
        if exchange is not None:
            index.gone("dead-lettered", tags, f"{reason}, to exchange '{exchange}'")
        elif reason == EXPIRED:
            index.gone("expired", tags)
        else:
            index.gone("dropped", tags, reason)

    def remove(self, reason: str, messages: Sequence[QueuedMessage]) -> int:
        """Remove dead messages, which are pending, and publish their dead letters in the order of the messages.

        Returns how many small messages would have taken as long.
        """
        count = len(messages)
        self._sent = 0
        self.report_gone(reason, [message.tag for message in messages])
        self.count(reason, count)
        self._remove(LaterDeaths(reason, messages))
        more = sum([len(message.content) for message in messages]) // BYTES_AS_ONE + self._sent // SENT_AS_ONE
        if more > LARGEST_BATCH:
            self.batch = max(1, min(FIRST_BATCH, LARGEST_BATCH * count // (count + more)))
        else:
            self.batch = min(2 * self.batch, LARGEST_BATCH)
        return count + more

    def _remove(self, deaths: LaterDeaths) -> None:
        """Remove dead messages, and have their dead letters published. What goes by way of the journal does so in the
        same frame. Dead letters for very many queues wait for other turns, and so do the messages behind them.
        """
        reason, messages = deaths
        if self.waiting is not None:
            self.waiting.append(deaths)
            return
        if self._is_full and reason in _RETURNED:
            self._held = self._held or deque()
            self._held.append(deaths)
            return
        backing, removed = self.backing, 0
        for some in _of_frames(messages):
            shipment = Shipment(self.arrived)
            self._shipment = None if self._is_full else shipment
            is_recorded, count, wide = self._publish(reason, some, True)
            self._shipment = None
            tags = [message.tag for message in some[:count] if message.tag not in shipment.sizes]
            if is_recorded and self._transit is not None:
                backing.move(tags)
                self._transit.close()
            else:
                backing.ack(tags)
            if shipment.sizes:
                self.shipped += len(shipment.sizes)
                self._shipped_bytes += sum(shipment.sizes.values())
                self._effects.ship(shipment)
            removed += count
            if wide is not None:
                self._wait(wide)
                removed += len(wide.messages)
                if removed < len(messages):
                    self._wait(LaterDeaths(reason, messages[removed:]))
                return

    @property
    def _is_full(self) -> bool:
        """Whether so many dead messages wait for their targets that no more may. Then messages that were returned stay
        pending, and die later. Others would be in the way of consumers, so their dead letters are sent at most once.
        """
        return self._is_bounded and (self.shipped >= SHIPPED_MOST or self._shipped_bytes >= SHIPPED_BYTES)

    def arrived(self, shipment: Shipment) -> None:
        """Remove the messages of a shipment, because all their dead letters are safe."""
        shipped = self.shipped = self.shipped - len(shipment.sizes)
        self._shipped_bytes -= sum(shipment.sizes.values())
        self.backing.ack(list(shipment.sizes))
        while self._held and self.shipped <= shipped:
            self._remove(self._held.popleft())

    def send_all(self) -> None:
        """Send everything that waits, because the queue ends or gets another role."""
        self._is_bounded = False
        while self.waiting is not None:
            self.send_waiting()
        while self._held:
            self._remove(self._held.popleft())

    def _wait(self, item: FanOut | WideHandOver | LaterDeaths) -> None:
        """Append `item` to `waiting`, and ask for another turn."""
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(item)
        self._effects.need_turn()

    def publish(self, reason: str, messages: Sequence[QueuedMessage]) -> bool:
        """Count dead messages and, if there is a dead-letter exchange, have their dead letters go there, in order.

        Returns whether some are recorded in the journal.
        """
        self.count(reason, len(messages))
        return self._publish(reason, messages, False)[0]

    def publish_first(self, reason: str, messages: Sequence[QueuedMessage]) -> tuple[bool, int]:
        """As `publish`, but end before the first message whose dead letter the journal would hand over to very many
        queues, or that has to wait until its targets have the dead letter. Returns the number of messages before that
        one as well.
        """
        self._must_ship = not self._is_full
        is_recorded, count, _ = self._publish(reason, messages, self._transit is not None)
        self._must_ship = False
        self.count(reason, count)
        return is_recorded, count

    @seam("which dead messages become dead letters")
    def _publish(
        self, reason: str, messages: Sequence[QueuedMessage], may_wait: bool
    ) -> tuple[bool, int, WideHandOver | None]:
        """Have the dead letters of these messages go to the dead-letter exchange, if there is one, in order.

        If messages `may_wait`, this ends before the first whose dead letter the journal hands over to very many queues.
        Returns whether dead letters are recorded in the journal, the number of messages before that first one, and its
        hand-over, which has to wait; None if none has to.
        """
        exchange = self._existing_exchange()
        if exchange is None:
            return False, len(messages), None
        targets: Targets = {}
        is_recorded, count = False, 0
        # Messages of one origin that die together with equal properties become equal dead letters (their time is in
        # seconds), so these are computed once for a run of them.
        for (_, props), group in groupby(messages, key=_origin_and_properties):
            run = list(group)
            found = self._route(reason, exchange, run, props, targets, may_wait)
            if found is None or isinstance(found, WideHandOver):
                self._send(targets)
                return is_recorded, count, found
            is_recorded, count = is_recorded or found, count + len(run)
        self._send(targets)
        return is_recorded, count, None

    def _send(self, targets: Targets) -> None:
        """Send dead letters now, or append them to `waiting` if others wait already."""
        for row, entries in targets.values():
            if self.waiting is None:
                self._effects.send(row.address, to_queue.publish_at_most_once(entries))
            else:
                self.waiting.append(FanOut(Rows(None, (row,)), entries))
        targets.clear()

    def send_waiting(self) -> None:
        """Send as many of the dead letters that wait as one turn may, and ask for another turn if some are left."""
        left = FAN_OUT
        while self.waiting and left > 0:
            first = self.waiting[0]
            if isinstance(first, LaterDeaths):
                left = 0
                self._die(first)
                continue
            rows = self._next_rows(first.rows, left)
            left -= max(1, len(rows))
            if isinstance(first, WideHandOver):
                for row in rows:
                    if self._is_near(row):
                        first.targets.append(number_in_journal(row))
                    else:
                        first.far.append(row)
            else:
                for row in rows:
                    self._effects.send(row.address, to_queue.publish_at_most_once(list(first.entries)))
            if first.rows.route is not None:
                break
            if first.rows.are_taken:
                self.waiting.popleft()
                if isinstance(first, WideHandOver):
                    self._finish(first)
        if self.waiting:
            self._effects.need_turn()
        else:
            self.waiting = None
            self._effects.report_quiet()

    def _next_rows(self, rows: Rows, most: int) -> Sequence[QueueRow]:
        """The next queues that get a dead letter, at most this many."""
        taken, headers = rows.take(most), rows.headers
        if headers is not None:
            taken = [row for row in taken if not self._cycles.has(headers, row.name)]
        return with_shards(self._routing, self.row.vhost, tuple(taken), rows.number)

    def _die(self, deaths: LaterDeaths) -> None:
        """Remove the dead messages at the head of `waiting`. If some of them have to wait again, they stay ahead of all
        others.
        """
        assert self.waiting is not None
        behind, self.waiting = self.waiting, None
        behind.popleft()
        self._remove(deaths)
        for item in behind:
            self._wait(item)

    def _finish(self, hand_over: WideHandOver) -> None:
        """Remove dead messages whose target queues are all found, and hand over or send their dead letters."""
        transit, waiting = self._transit, self.waiting
        assert transit is not None and waiting is not None
        _, messages, origin, contents, body_bytes, targets, far = hand_over
        tags = [message.tag for message in messages]
        if targets:
            transit.hand_over(targets, origin, contents, body_bytes)
        if targets and origin.persistent:
            self.backing.move(tags)
            transit.close()
        else:
            self.backing.ack(tags)
        if far:
            shared = self._ids.take(contents, EMBED_BELOW) if len(far) > 1 else 0
            waiting.appendleft(FanOut(Rows(None, far), [(origin, contents, body_bytes, shared)]))

    def _route(
        self,
        reason: str,
        exchange: str,
        messages: list[QueuedMessage],
        props: bytes,
        targets: Targets,
        may_wait: bool,
    ) -> bool | WideHandOver | None:
        """Hand over the dead letters of messages with one origin and equal properties, or add them to `targets`.

        Returns whether they are recorded in the journal. If they `may_wait` and the journal hands them over to very
        many queues, it does nothing yet and returns the hand-over that has to wait. It also does nothing, and returns
        None, if the messages must be kept until their targets have the dead letters.
        """
        origin = messages[0].origin
        names = self._routing.header_names(self.row.vhost, exchange)
        properties, more_headers = decode_some(props, None if names is None else names | NEEDED_HEADERS, True)
        dead, keys = dead_letter(
            properties,
            reason,
            self.row.shard_of or self.row.name,
            origin.exchange,
            origin.routing_keys,
            int(self._wall_clock()),
            self._routing_key,
        )
        found = self._routing.begin_route(self.row.vhost, exchange, keys, dead.headers)
        route, rows = (found, ()) if isinstance(found, WideRoute) else (None, found)
        is_wide = route is not None or len(rows) > FAN_OUT
        wide = Rows(route, rows, self._routed, None if reason == REJECTED else dead.headers)
        if not is_wide or self._transit is not None and not may_wait:
            # All queues are found now, because the record that hands the dead letter over names each of them.
            is_wide, rows = False, ()
            while not wide.are_taken:
                rows += tuple(self._next_rows(wide, maxsize))
            if not rows:
                return False
        is_far = not is_wide and any(map(self._is_far, rows))
        if is_far and self._must_ship:
            return None
        self._routed += 1
        new_props = encode_properties(dead, more_headers)
        contents = [with_properties(message.content, new_props) for message in messages]
        new_origin = Origin(exchange, keys, dead.delivery_mode == 2, origin.priority, None)
        body_bytes = sum(map(body_size, contents))
        if is_wide:
            self._sent += SENT_AS_ONE * LARGEST_BATCH
            if self._transit is not None:
                return WideHandOver(wide, messages, new_origin, contents, body_bytes, [], [])
        is_recorded = False
        if is_far and self._shipment is not None:
            shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
            self._shipment.add(messages, rows, (new_origin, contents, body_bytes, shared))
            return False
        if self._transit is not None:
            durable = [number_in_journal(row) for row in rows if self._is_near(row)]
            if durable:
                self._transit.hand_over(durable, new_origin, contents, body_bytes)
                is_recorded = new_origin.persistent
                rows = tuple(row for row in rows if not self._is_near(row))
                if len(rows) > FAN_OUT:
                    is_wide, wide = True, Rows(None, rows)
        shared = self._ids.take(contents, EMBED_BELOW) if is_wide or len(rows) > 1 else 0
        entry = new_origin, contents, body_bytes, shared
        if is_wide:
            self._send(targets)
            self._wait(FanOut(wide, [entry]))
            return is_recorded
        self._sent += len(rows)
        for row in rows:
            targets.setdefault(row.queue_id, (row, []))[1].append(entry)
        return is_recorded

    def _is_near(self, row: QueueRow) -> bool:
        """Whether the journal can hand dead letters over to this queue."""
        return row.durable and not self._is_far(row)

    def _is_far(self, row: QueueRow) -> bool:
        """Whether this queue is kept elsewhere than the one whose messages die, so that one may survive without the
        other.
        """
        return row.node != self.row.node or row.group is not None or self.row.group is not None


def _origin_and_properties(message: QueuedMessage) -> tuple[int, bytes]:
    return id(message.origin), content_properties(message.content)


def _of_frames(messages: Sequence[QueuedMessage]) -> Iterator[Sequence[QueuedMessage]]:
    """The messages, cut so that each part has `FRAME_BYTES` or a little more."""
    start = size = 0
    for at, message in enumerate(messages, 1):
        size += len(message.content)
        if size >= FRAME_BYTES:
            yield messages[start:at]
            start, size = at, 0
    if start < len(messages):
        yield messages[start:]
