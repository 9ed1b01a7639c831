"""`Publisher`: publishing on one channel, from the routing of a run to its confirms (amqp-broker section 10).

A publisher repeats itself, so everything that follows from the method frame and the fate of a message (see
`amqp/parser/skimmer.py`) is decided once, as a `Publication`, and kept until the routing table changes. A run of one
method frame costs one dictionary look-up; a run whose method frames differ costs one for each message, and travels on
as one run if all its messages go to the same queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

from ...amqp import methods
from ...amqp.decoding import publish_fields
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.frames import content_properties, rechannel_run, with_properties
from ...amqp.parser.skimmer import SPECIAL, has_headers, is_special
from ...amqp.properties import Properties, decode_properties, encode_properties
from ...routing.arguments import MAX_EXPIRY
from ...routing.group_arguments import check_not_group
from ...routing.phrases import no_exchange
from ...routing.rows import QueueRow
from ...routing.sender_selected_keys import sender_selected_keys
from ...routing.shards import check_not_shard
from ...runtime.process import Process
from ...runtime.turn_work import TurnWork
from ...seams import seam
from ...store.messages.message import Origin, Origins, body_size, slice_of
from ...store.messages.message_ids import SharedIds
from ...store.queue.placement import EMBED_BELOW
from ..node.context import NodeContext
from ..statistics.counts import MessageCounts
from .client_output import CONTENT_CHANNEL, ClientOutput
from .confirms import Confirms
from .contract import ChannelConfig, to_channel
from .direct_reply import REPLY_TO, REPLY_TO_PREFIX, ReplyConsumer, parse_reply_key
from .queue_links import QueueLinks
from .spreading import Spread, Spreading
from .tracing import Tracer

if TYPE_CHECKING:
    from ..queue.contract import PublishEntry

#: Publications that are kept at a time; properties that never repeat would otherwise pile up.
PUBLICATIONS_KEPT = 512

#: Fates that are kept at a time; a client that gives each message an expiration of its own would otherwise pile them
#: up.
FATES_KEPT = 512


class Fate(NamedTuple):
    """What follows from the properties of a message, for all messages with its key (see `amqp/parser/skimmer.py`)."""

    is_persistent: bool
    priority: int
    expiration: int | None
    #: The routing keys in its headers CC and BCC.
    selected_keys: tuple[str, ...]
    #: Its headers as they are queued, if the key is special: then no other message shares them.
    headers: Table | None
    #: The properties that replace the publisher's; None: they stay as they are.
    props: bytes | None


@dataclass(slots=True)
class Publication:
    """What one pair of method frame and fate means."""

    exchange: str
    routing_key: str
    is_mandatory: bool
    origin: Origin
    rows: tuple[QueueRow, ...]
    #: The properties that replace the publisher's; None: they stay as they are.
    props: bytes | None
    #: Names of direct reply-to consumers among the routing keys (AB-142).
    reply_keys: tuple[str, ...]
    #: A headers exchange may route these messages, so each must be routed by its own headers.
    is_by_headers: bool = False
    #: Publications of one group have the same queues, and may share a run. 0: the message needs a run of its own; so it
    #: is in a transaction, whose commit may find the queues gone and have to return each message with its own key.
    group: int = 0
    #: The version of the routing table for which `rows` were found.
    version: int = 0
    #: Set if some of the queues are sharded: each message goes to one shard of each of these.
    spread: Spread | None = None
    #: The queues if nobody can reach any of them, because their homes are down. Then `rows` is empty.
    down: tuple[QueueRow, ...] = ()


class Publisher:
    """The publishing half of a channel. It gathers what goes to queues in `QueueLinks`."""

    __slots__ = (
        "_config",
        "_context",
        "_counts",
        "_fates",
        "_group_numbers",
        "_groups",
        "_ids",
        "_last_group",
        "_last_rows",
        "_max_message_size",
        "_output",
        "_process",
        "_publications",
        "_queues",
        "_replies",
        "_rest",
        "_spreading",
        "_tracer",
        "_work",
        "_version",
        "awaits_confirms",
        "confirms",
        "held_back",
        "is_confirming",
        "waiting",
    )

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        output: ClientOutput,
        queues: QueueLinks,
        replies: ReplyConsumer,
        tracer: Tracer,
        work: TurnWork,
        spreading: Spreading,
        counts: MessageCounts,
    ) -> None:
        self._process = process
        self._work = work
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._replies = replies
        self._tracer = tracer
        self._spreading = spreading
        self._counts = counts
        self.confirms = Confirms()
        self.is_confirming = False
        #: Whether publishes await confirms: in confirm mode, and in a transaction, whose commit waits for them.
        self.awaits_confirms = False
        #: The runs that a transaction holds back until its commit (AB-115); None without a transaction.
        self.held_back: list[tuple[Publication, Origins, Sequence[bytes], int]] | None = None
        #: The runs that were published and wait for another turn, in their order, because this one has done enough.
        #: None stands for the rest of a run that goes to more queues than one turn may do.
        self.waiting: deque[tuple[Publication, Origins, Sequence[bytes], int] | None] = deque()
        #: The queues of that run, how many of them have got it, and what they get.
        self._rest: tuple[Sequence[QueueRow], int, PublishEntry]
        #: The limit that was set when the channel opened (AB-105).
        self._max_message_size = context.settings.max_message_size
        #: A large message that goes to several queues is stored once, under an id that they share.
        self._ids = SharedIds(process.random_bytes)
        self._publications: dict[tuple[bytes, bytes], Publication] = {}
        #: By the queue ids of remembered publications: the number of their group.
        self._groups: dict[tuple[str, ...], int] = {}
        #: The rows of the last group and its number, because the names of 20,000 queues take long to compare.
        self._last_rows: Sequence[QueueRow] = ()
        self._last_group = 0
        #: Numbers for groups. No number is used twice, because one run may have publications from before and after
        #: `_groups` was cleared.
        self._group_numbers = count(1)
        #: The remembered fates, by plain key.
        self._fates: dict[bytes, Fate] = {}
        #: The version of the routing table for which `_publications` were decided.
        self._version = -1

    # -- runs ---

    def publish(
        self, method_payloads: bytes | Sequence[bytes], key: bytes, contents: Sequence[bytes], body_bytes: int
    ) -> None:
        """Route contents that share the fate `key`; `body_bytes` is the sum of their body sizes.

        `method_payloads` is the payload of their method frame, or one for each content.
        """
        if body_bytes > self._max_message_size:
            contents = self._within_limit(contents, method_payloads, key)
        version = self._context.routing.version
        if version != self._version:
            self._publications.clear()
            self._groups.clear()
            self._last_rows = ()
            self._version = version
        if isinstance(method_payloads, bytes):
            publication = self._publications.get((method_payloads, key))
            if publication is None:
                publication = self._resolve(method_payloads, key, contents[0])
            if publication.is_by_headers:
                self._publish_by_headers(method_payloads, contents)
            else:
                self._publish_run(publication, publication.origin, contents, body_bytes)
        else:
            self._publish_column(method_payloads, key, contents, body_bytes)

    def _publish_column(
        self, method_payloads: Sequence[bytes], key: bytes, contents: Sequence[bytes], body_bytes: int
    ) -> None:
        """Publish messages whose method frames differ, in as few runs as their destinations allow."""
        known = self._publications
        publications = []
        error = None
        for at, payload in enumerate(method_payloads):
            publication = known.get((payload, key))
            if publication is None:
                try:
                    publication = self._resolve(payload, key, contents[at])
                except AmqpError as refused:
                    # The messages before the refused one are published; the later ones are not.
                    error = refused
                    contents = contents[:at]
                    break
            publications.append(publication)
        groups = {publication.group for publication in publications}
        if error is None and len(groups) == 1 and 0 not in groups:
            self._publish_run(publications[0], [one.origin for one in publications], contents, body_bytes)
            return
        at = 0
        for group, stretch in groupby(publications, key=_group):
            together = list(stretch)
            if group:
                part = contents[at : at + len(together)]
                self._publish_run(together[0], [one.origin for one in together], part, sum(map(body_size, part)))
                at += len(together)
                continue
            for publication in together:
                part = contents[at : at + 1]
                if publication.is_by_headers:
                    self._publish_by_headers(method_payloads[at], part)
                else:
                    self._publish_run(publication, publication.origin, part, body_size(part[0]))
                at += 1
        if error is not None:
            raise error

    def _publish_by_headers(self, method_payload: bytes, contents: Sequence[bytes]) -> None:
        """Publish messages that a headers exchange may route: each has a fate of its own."""
        for content in contents:
            key = SPECIAL + content_properties(content)
            publication = self._publications.get((method_payload, key))
            if publication is None:
                publication = self._resolve(method_payload, key, content)
            self._publish_run(publication, publication.origin, [content], body_size(content))

    def _publish_run(
        self, publication: Publication, origins: Origins, contents: Sequence[bytes], body_bytes: int
    ) -> None:
        """Publish contents with the fate and the destinations of `publication`."""
        if self._config.number != CONTENT_CHANNEL:
            contents = rechannel_run(contents, CONTENT_CHANNEL)
        if publication.props is not None:
            contents = [with_properties(content, publication.props) for content in contents]
        if self._context.routing.traced:
            self._tracer.trace_publish(publication.rows, origins, contents)
        if self.held_back is not None:
            self.held_back.append((publication, origins, contents, body_bytes))
            return
        self._send(publication, origins, contents, body_bytes)

    def _within_limit(
        self, contents: Sequence[bytes], method_payloads: bytes | Sequence[bytes], key: bytes
    ) -> Sequence[bytes]:
        """Return the contents if none is too large; else publish those before the first large one and raise."""
        for at, content in enumerate(contents):
            size = body_size(content)
            if size > self._max_message_size:
                if at:
                    payloads = method_payloads if isinstance(method_payloads, bytes) else method_payloads[:at]
                    self.publish(payloads, key, contents[:at], sum(map(body_size, contents[:at])))
                self.refuse_oversized(size)
        return contents

    def refuse_oversized(self, size: int) -> None:
        raise AmqpError(406, f"message size {size} is larger than configured max size {self._max_message_size}")

    def _send(self, publication: Publication, origins: Origins, contents: Sequence[bytes], body_bytes: int) -> None:
        """Gather a run for its queues. If this turn has done enough, the run waits in `waiting`.

        A run counts as many messages as it has queues.
        """
        if publication.spread is not None:
            self._send_to_shards(publication, publication.spread, origins, contents)
            return
        work = self._work
        if self.waiting or work.left <= 0:
            self.waiting.append((publication, origins, contents, body_bytes))
            return
        rows = publication.rows
        work.left -= len(rows) or 1
        count = len(contents)
        self._counts.publish += count
        self._context.counts.published(self._config.vhost, publication.exchange, count, len(rows))
        for key in publication.reply_keys:
            self._send_reply(key, publication, contents)
        if not rows:
            self._drop(publication, contents)
            return
        more = max(0, len(rows) - work.most)
        now = rows[: work.most] if more else rows
        confirms, awaits_confirms = self.confirms, self.awaits_confirms
        if awaits_confirms:
            first_number = confirms.publish(count, [row.queue_id for row in now], more)
        else:
            first_number = confirms.next_number
            confirms.next_number = first_number + count
        shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
        entry = (origins, contents, body_bytes, first_number, awaits_confirms, shared)
        self._gather(now, entry)
        if more:
            self._rest = rows, work.most, entry
            self.waiting.append(None)

    def _send_to_shards(
        self, publication: Publication, spread: Spread, origins: Origins, contents: Sequence[bytes]
    ) -> None:
        """Send a run in parts, each to the shards that are chosen for it."""
        stretch = spread.stretch
        known: dict[tuple[str, ...], Publication] = {}
        for start in range(0, len(contents), stretch):
            part = contents[start : start + stretch]
            rows = self._spreading.choose(spread)
            key = tuple([row.queue_id for row in rows])
            chosen = known.get(key)
            if chosen is None:
                chosen = known[key] = replace(publication, rows=rows, spread=None)
            self._send(chosen, slice_of(origins, slice(start, start + stretch)), part, sum(map(body_size, part)))

    def _gather(self, rows: Sequence[QueueRow], entry: PublishEntry) -> None:
        queues = self._queues
        publishes = queues.publishes
        for row in rows:
            batch = publishes.get(row.queue_id)
            if batch is None:
                if row.queue_id not in queues.rows:
                    if row.address is None:
                        # Its virtual host could not be started, so nobody takes responsibility for the messages.
                        first_number, count = entry[3], len(entry[1])
                        self.confirms.refuse(row.queue_id, [(first_number, first_number + count - 1)])
                        continue
                    queues.watch(row)
                batch = publishes[row.queue_id] = (row, [])
            batch[1].append(entry)

    async def send_all_waiting(self) -> None:
        """Send in the next turns the publishes that did not fit into theirs."""
        while self.waiting:
            await self._process.next_turn()
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Gather as many of the runs in `waiting` as this turn may, in their order."""
        waiting, self.waiting = self.waiting, deque()
        while waiting and self._work.left > 0:
            run = waiting.popleft()
            if run is None:
                self._send_rest()
            else:
                publication, origins, contents, body_bytes = run
                if publication.version != self._context.routing.version:
                    publication = self._with_queues_of_now(publication)
                self._send(publication, origins, contents, body_bytes)
            if self.waiting:
                break
        self.waiting.extend(waiting)

    def _send_rest(self) -> None:
        """Gather for the next of its queues a run that goes to more queues than one turn may do."""
        rows, done, entry = self._rest
        end = done + self._work.most
        now = rows[done:end]
        self._work.left -= len(now)
        if entry[4]:
            self.confirms.owe([row.queue_id for row in now], entry[3], entry[3] + len(entry[1]) - 1)
        self._gather(now, entry)
        self._rest = rows, end, entry
        if end < len(rows):
            self.waiting.append(None)

    def _drop(self, publication: Publication, contents: Sequence[bytes]) -> None:
        """No queue gets the messages: return them if they are mandatory, and confirm each before the next is returned.

        A client that gets a return does not expect confirms of earlier publishes behind it (AB-113). Messages for
        queues whose homes are down are refused instead of confirmed: these queues exist, and do not get them.
        """
        confirms, down = self.confirms, publication.down
        if not self.awaits_confirms:
            confirms.next_number += len(contents)
        if not publication.reply_keys:
            for counts in (self._counts, self._context.counts):
                if publication.is_mandatory:
                    counts.return_unroutable += len(contents)
                else:
                    counts.drop_unroutable += len(contents)
        for content in contents:
            if publication.is_mandatory:
                self._return(publication, content)
            if self.awaits_confirms:
                number = confirms.publish(1, [row.queue_id for row in down])
                for row in down:
                    confirms.refuse(row.queue_id, [(number, number)])
                if self.is_confirming:
                    self.flush_confirms()

    @seam("which unroutable messages are returned")
    def _return(self, publication: Publication, content: bytes) -> None:
        self._output.put_method(methods.BasicReturn(312, "NO_ROUTE", publication.exchange, publication.routing_key))
        self._output.put_content(content)

    def _send_reply(self, reply_key: str, publication: Publication, contents: Sequence[bytes]) -> None:
        system, channel_id, key = parse_reply_key(reply_key)
        address = self._replies.channel(system, channel_id)
        if address is not None:
            reply = to_channel.reply_to(key, publication.exchange, publication.routing_key, list(contents))
            self._process.send(address, reply)

    # -- what a publish means ---

    def _resolve(self, method_payload: bytes, key: bytes, content: bytes) -> Publication:
        """Make the checks of AB-105 in their order, route, and remember the result for messages like `content`."""
        exchange_name, routing_key, is_mandatory, is_immediate = publish_fields(method_payload)
        if is_immediate:
            raise AmqpError(540, "immediate=true")
        routing, vhost, access = self._context.routing, self._config.vhost, self._config.access
        access.check("write", "exchange", exchange_name)
        exchange = routing.exchange(vhost, exchange_name)
        if exchange is None:
            raise no_exchange(vhost, exchange_name)
        if exchange.internal:
            raise AmqpError(403, f"cannot publish to internal exchange '{exchange_name}' in vhost '{vhost}'")
        if exchange.type == "topic":
            access.check_topic("write", exchange_name, routing_key)
        fate = self._fates.get(key)
        if fate is None:
            fate = self._find_fate(key, content)
        keys = (routing_key, *fate.selected_keys)
        reply_keys = () if exchange_name else tuple([key for key in keys if key.startswith(REPLY_TO_PREFIX)])
        is_by_headers = has_headers(key) and routing.depends_on_headers(vhost, exchange_name)
        rows = () if is_by_headers else routing.route(vhost, exchange_name, keys, fate.headers)
        if not exchange_name and routing.has_unbound(vhost):
            row = routing.queue(vhost, routing_key)
            check_not_shard(row)
            check_not_group(row)
        rows, down = _reachable(rows)
        origin = Origin(exchange_name, keys, fate.is_persistent, fate.priority, fate.expiration)
        publication = Publication(
            exchange_name,
            routing_key,
            is_mandatory,
            origin,
            rows,
            fate.props,
            reply_keys,
            is_by_headers,
            version=routing.version,
            spread=self._spreading.spread(vhost, rows),
            down=down,
        )
        if len(self._publications) >= PUBLICATIONS_KEPT:
            self._publications.clear()
            self._groups.clear()
        if rows and not reply_keys and fate.props is None and self.held_back is None:
            publication.group = self._group_of(rows)
        self._publications[method_payload, key] = publication
        return publication

    @seam("which publications go to the same queues")
    def _group_of(self, rows: Sequence[QueueRow]) -> int:
        """The number that publications have in common whose messages go to exactly these queues."""
        if rows is self._last_rows:
            return self._last_group
        destinations = tuple([row.queue_id for row in rows])
        group = self._groups.get(destinations)
        if group is None:
            group = self._groups[destinations] = next(self._group_numbers)
        self._last_rows, self._last_group = rows, group
        return group

    def _find_fate(self, key: bytes, content: bytes) -> Fate:
        """Check the properties of a message (AB-105); remember what follows from them if others may have that key."""
        properties = decode_properties(content_properties(content))
        is_changed = self._check(properties)
        selected_keys: tuple[str, ...] = ()
        if properties.headers is not None:
            selected_keys = sender_selected_keys(properties.headers)
            if properties.headers.get("BCC") is not None:
                # No consumer may see the keys in BCC (AB-75).
                properties = replace(properties, headers=properties.headers.without("BCC"))
                is_changed = True
        if properties.delivery_mode not in (None, 1, 2):
            raise AmqpError(406, f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}")
        fate = Fate(
            properties.delivery_mode == 2,
            properties.priority or 0,
            int(properties.expiration) if properties.expiration is not None else None,
            selected_keys,
            properties.headers if is_special(key) else None,
            encode_properties(properties) if is_changed else None,
        )
        if not is_special(key):
            if len(self._fates) >= FATES_KEPT:
                self._fates.clear()
            self._fates[key] = fate
        return fate

    def _check(self, properties: Properties) -> bool:
        """Check reply-to, user-id and expiration; True if the reply-to was replaced (AB-141)."""
        is_changed = False
        if properties.reply_to == REPLY_TO:
            properties.reply_to = self._replies.name()
            is_changed = True
        user = self._config.user
        is_other = properties.user_id is not None and properties.user_id != user
        if is_other and not self._config.access.may_impersonate():
            raise AmqpError(406, f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'")
        if properties.expiration is not None:
            _check_expiration(properties.expiration)
        return is_changed

    # -- confirms ---

    def confirm_select(self, method: methods.ConfirmSelect) -> None:
        if self.held_back is not None:
            raise AmqpError(406, "cannot switch from tx to confirm mode")
        if not self.is_confirming:
            self.is_confirming = self.awaits_confirms = True
            self.confirms.begin()
        if not method.nowait:
            self._output.put_method(methods.ConfirmSelectOk())

    def flush_confirms(self) -> None:
        """Send the client the confirms and refusals that have arrived since the last call (AB-113)."""
        if self.is_confirming:
            confirmed = self.confirms.confirmed
            self._counts.confirm += confirmed
            self._context.counts.confirm += confirmed
        acks, nacks = self.confirms.flush()
        number, frames = self._output.number, self._output.frames
        for tag, is_multiple in acks:
            frames.append(
                b"\x01%b\x00\x00\x00\x0d\x00\x3c\x00\x50%b%b\xce"
                % (number.to_bytes(2, "big"), tag.to_bytes(8, "big"), b"\1" if is_multiple else b"\0")
            )
        for tag, is_multiple in nacks:
            self._output.put_method(methods.BasicNack(tag, is_multiple, False))

    # -- the publishing half of a transaction (AB-115 to AB-117) ---

    def begin_transaction(self) -> None:
        if self.is_confirming:
            raise AmqpError(406, "cannot switch from confirm to tx mode")
        if self.held_back is None:
            self.held_back = []
            self.awaits_confirms = True
            self._publications.clear()  # they have groups

    async def commit(self) -> None:
        """Publish what the transaction has held back; the commit waits until `confirms` is empty."""
        assert self.held_back is not None
        held_back, self.held_back = self.held_back, []
        held_back.reverse()
        while held_back:
            publication, origins, contents, body_bytes = held_back.pop()
            if publication.version != self._context.routing.version:
                publication = self._with_queues_of_now(publication)
            self._send(publication, origins, contents, body_bytes)
            if self._work.left <= 0:
                await self._process.next_turn()
        await self.send_all_waiting()

    def _with_queues_of_now(self, publication: Publication) -> Publication:
        """The publication with the queues that have the names of its queues now.

        The bindings count that there were at the publish (AB-115). But a queue may be gone since, or another one may
        have its name.
        """
        routing, vhost = self._context.routing, self._config.vhost
        found = [routing.queue(vhost, row.name) for row in publication.rows or publication.down]
        rows, down = _reachable(tuple([row for row in found if row is not None]))
        return replace(publication, rows=rows, spread=self._spreading.spread(vhost, rows), down=down)

    async def roll_back(self) -> None:
        """Drop what the transaction has held back, in steps, because its memory is freed."""
        held_back, self.held_back = self.held_back or [], self.held_back and []
        while held_back:
            held_back.pop()
            self._work.left -= 1
            if self._work.left <= 0:
                await self._process.next_turn()


def _reachable(rows: tuple[QueueRow, ...]) -> tuple[tuple[QueueRow, ...], tuple[QueueRow, ...]]:
    """The queues that a message goes to, and those that make it unroutable because their homes are all down.

    If one of the homes is up, the queues of the others are watched like all, and refuse the message by that.
    """
    is_down = bool(rows) and all([row.state == "down" for row in rows])
    return ((), rows) if is_down else (rows, ())


def _group(publication: Publication) -> int:
    return publication.group


def _check_expiration(text: str) -> None:
    """Raise AmqpError 406 unless `text` is a decimal number of milliseconds, at most ten years (AB-98)."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    length = next((at for at, character in enumerate(digits) if character not in "0123456789"), len(digits))
    if not length:
        reason = "no_integer"
    elif length < len(digits):
        reason = f'{{leftover_string,"{digits[length:]}"}}'
    elif int(text) < 0:
        reason = f"{{value_negative,{int(text)}}}"
    elif int(text) > MAX_EXPIRY:
        reason = f"{{value_too_large,{int(text)}}}"
    else:
        return
    raise AmqpError(406, f"invalid expiration '{text}': {reason}")
