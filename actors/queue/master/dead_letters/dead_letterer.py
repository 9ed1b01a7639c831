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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .....amqp.dead_letter_headers import (
    DELIVERY_LIMIT,
    EXPIRED,
    NEEDED_HEADERS,
    REJECTED,
    dead_letter,
)
from .....amqp.frames import with_properties
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
from .dead_runs import equal_runs, of_frames
from .death_counts import DeathCounts
from .death_steps import MADE_AS_SENT, MOST_SENT, DeathSteps
from .fan_outs import FanOut, LaterDeaths, Rows, WideHandOver
from .shipment import Shipment

if TYPE_CHECKING:
    from .....runtime.turn_work import TurnWork
    from ....contracts.queue import AtMostOnceEntry

    #: Completes the deaths of the next refused messages, in order. It is called with their number, and whether their
    #: dead letters are recorded in the journal; otherwise these are sent. `Intake.died` is one.
    Died = Callable[[int, bool], None]

    #: The queues that dead letters are routed to, by id, each with the entries for it.
    Targets = dict[str, tuple[QueueRow, list[AtMostOnceEntry]]]

#: A dead letter for more queues than this is sent, or handed over, to this many of them in each turn. 20,000 queues at
#: once would take 60 ms.
FAN_OUT = 256

#: How many dead messages may wait for targets that are kept elsewhere, and how many bytes of them.
SHIPPED_MOST, SHIPPED_BYTES = 4096, 8 << 20

#: The reasons of messages that consumers have returned.
_RETURNED = (REJECTED, DELIVERY_LIMIT)


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
        "_shipment",
        "_shipped_bytes",
        "_transit",
        "_wall_clock",
        "_work",
        "backing",
        "counts",
        "row",
        "shipped",
        "steps",
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
        work: TurnWork,
    ) -> None:
        self._routing = routing
        self.row = row
        self.backing = backing
        self._transit = transit
        self._work = work
        self._effects = effects
        self._wall_clock = wall_clock
        self._exchange: str | None = None
        self._routing_key: str | None = None
        self.counts = DeathCounts()
        self.steps = DeathSteps()
        self._ids = SharedIds(random_bytes)
        #: How often dead letters were routed, so that they go to the shards of a sharded queue in turn.
        self._routed = 0
        self._cycles = Cycles(row.vhost, row.name)
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
        self.counts.add(reason, number, self._existing_exchange() is not None)

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

        Returns how many acknowledgements would have taken as long.
        """
        self.report_gone(reason, [message.tag for message in messages])
        self.count(reason, len(messages))
        self._remove(LaterDeaths(reason, messages))
        return self.steps.cost(messages)

    def refuse(self, reason: str, messages: Sequence[QueuedMessage], died: Died) -> None:
        """Publish the dead letters of messages that do not enter the queue, in the order of all deaths.

        `died` is called at once, or in later turns: if other dead letters wait, if this turn has done enough, or while
        very many queues are looked up.
        """
        self.count(reason, len(messages))
        self._refuse(LaterDeaths(reason, messages, True), died)

    def _refuse(self, deaths: LaterDeaths, died: Died) -> None:
        reason, messages, _ = deaths
        at = 0
        while at < len(messages) and self.waiting is None and self._work.left > 0:
            some = messages[at : at + min(self.steps.batch, self._work.left)] if self.is_enabled else messages[at:]
            self.steps.sent = 0
            is_recorded, count, wide = self._publish(reason, some)
            at += count
            if count:
                died(count, is_recorded)
            if wide is not None:
                self._wait(wide._replace(are_refused=True))
                at += len(wide.messages)
            self._count_work(some)
        if at < len(messages):
            self._wait(LaterDeaths(reason, messages[at:], True))

    def _count_work(self, messages: Sequence[QueuedMessage]) -> None:
        """Subtract what it took to have these messages die from what this turn may do."""
        if self.is_enabled:
            self._work.left -= self.steps.cost(messages)

    def _remove(self, deaths: LaterDeaths) -> None:
        """Remove dead messages, and have their dead letters published. What goes by way of the journal does so in the
        same frame. Dead letters for very many queues wait for other turns, and so do the messages behind them.
        """
        reason, messages, _ = deaths
        if self.waiting is not None:
            self.waiting.append(deaths)
            return
        if self._is_full and reason in _RETURNED:
            self._held = self._held or deque()
            self._held.append(deaths)
            return
        backing, removed = self.backing, 0
        self.steps.sent = 0
        for some in of_frames(messages):
            shipment = Shipment(self.arrived)
            self._shipment = None if self._is_full else shipment
            is_recorded, count, wide = self._publish(reason, some)
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
            if wide is not None or count < len(some):
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

    def send_all(self, died: Died) -> None:
        """Send everything that waits, because the queue ends or gets another role."""
        self._is_bounded = False
        while self.waiting is not None:
            self._work.left = self._work.most
            self.send_waiting(died)
        while self._held:
            self._remove(self._held.popleft())

    def _wait(self, item: FanOut | WideHandOver | LaterDeaths) -> None:
        """Append `item` to `waiting`, and ask for another turn."""
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(item)
        self._effects.need_turn()

    def publish_first(self, reason: str, messages: Sequence[QueuedMessage]) -> tuple[bool, int]:
        """Count as many of these messages, from the first on, as may die in one step, and have their dead letters go to
        the dead-letter exchange, if there is one. End before a message whose dead letter the journal would hand over to
        very many queues, or that has to wait until its targets have the dead letter.

        Returns whether dead letters are recorded in the journal, and the number of messages.
        """
        some = messages[: min(self.steps.batch, self._work.left)] if self.is_enabled else messages
        self._must_ship, self.steps.sent = not self._is_full, 0
        is_recorded, count, _ = self._publish(reason, some)
        self._must_ship = False
        self.count(reason, count)
        self._count_work(some)
        return is_recorded, count

    @seam("which dead messages become dead letters")
    def _publish(self, reason: str, messages: Sequence[QueuedMessage]) -> tuple[bool, int, WideHandOver | None]:
        """Have the dead letters of these messages go to the dead-letter exchange, if there is one, in order.

        This ends when the step is over, and before the first message whose dead letter the journal hands over to very
        many queues. Returns whether dead letters are recorded in the journal, the number of messages before the end,
        and the hand-over that has to wait; None if none has to.
        """
        exchange = self._existing_exchange()
        if exchange is None:
            return False, len(messages), None
        targets: Targets = {}
        is_recorded, count = False, 0
        for props, run in equal_runs(messages):
            if self.steps.is_over:
                break
            found = self._route(reason, exchange, run, props, targets)
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

    def send_waiting(self, died: Died) -> None:
        """Send as many of the dead letters that wait as one turn may, and ask for another turn if some are left."""
        left = FAN_OUT
        while self.waiting and left > 0:
            first = self.waiting[0]
            if isinstance(first, LaterDeaths):
                left = 0
                self._die(first, died)
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
                    self._finish(first, died)
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

    def _die(self, deaths: LaterDeaths, died: Died) -> None:
        """Remove the dead messages at the head of `waiting`. If some of them have to wait again, they stay ahead of all
        others.
        """
        assert self.waiting is not None
        behind, self.waiting = self.waiting, None
        behind.popleft()
        if deaths.are_refused:
            self._refuse(deaths, died)
        else:
            self._remove(deaths)
        for item in behind:
            self._wait(item)

    def _finish(self, hand_over: WideHandOver, died: Died) -> None:
        """Remove dead messages whose target queues are all found, and hand over or send their dead letters."""
        transit, waiting = self._transit, self.waiting
        assert transit is not None and waiting is not None
        _, messages, origin, contents, body_bytes, targets, far, _ = hand_over
        is_recorded = bool(targets) and origin.persistent
        if targets:
            transit.hand_over(targets, origin, contents, body_bytes)
        if hand_over.are_refused:
            died(len(messages), is_recorded)
        elif is_recorded:
            self.backing.move([message.tag for message in messages])
            transit.close()
        else:
            self.backing.ack([message.tag for message in messages])
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
    ) -> bool | WideHandOver | None:
        """Hand over the dead letters of messages with one origin and equal properties, or add them to `targets`.

        Returns whether they are recorded in the journal. If the journal hands them over to very many queues, it does
        nothing yet and returns the hand-over that has to wait. It also does nothing, and returns None, if the messages
        must be kept until their targets have the dead letters.
        """
        self.steps.sent += MADE_AS_SENT
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
        if not is_wide:
            rows = tuple(self._next_rows(wide, FAN_OUT))
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
            self.steps.sent += MOST_SENT
            if self._transit is not None:
                return WideHandOver(wide, messages, new_origin, contents, body_bytes, [], [], False)
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
        self.steps.sent += len(rows)
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
