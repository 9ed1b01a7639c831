"""`Publisher`: publishing on one channel, from the routing of a run to its confirms (amqp-broker section 10).

What a message means follows from its method frame and its fate, and `Publications` decides it once. A run of one method
frame costs one dictionary look-up; a run whose method frames differ costs one for each message, and travels on as one
run if all its messages go to the same queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple

from ....amqp import methods
from ....amqp.errors import AmqpError
from ....amqp.frames import content_properties, rechannel_run, with_properties
from ....amqp.parser.events import Expirations, Payloads
from ....amqp.parser.skimmer import SPECIAL
from ....routing.rows import QueueRow
from ....runtime.credit import CreditFlow
from ....runtime.process import Process
from ....runtime.turn_work import TurnWork
from ....seams import seam
from ....store.messages.message import Origins, body_size, slice_of
from ....store.messages.message_ids import SharedIds
from ....store.queue.variable.placement import EMBED_BELOW
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig, to_channel
from ...statistics.counts import MessageCounts, Published
from ...statistics.histograms import Sample
from ..client_output import CONTENT_CHANNEL, ClientOutput
from ..direct_reply import ReplyConsumer, parse_reply_key
from ..queue_links import QueueLinks
from ..tracing import Tracer
from .columns import decide_each
from .confirm_times import ConfirmTimes
from .confirms import Confirms
from .failover import Failover
from .publications import Publication, Publications, parts_of
from .spreading import Spread, Spreading

if TYPE_CHECKING:
    from ...contracts.queue import PublishEntry

#: Sending a run to one of very many queues takes as long as settling this many messages, 14 µs, since
#: neither the queue's row nor its mailbox, its credit and its monitor are in the processor's cache.
COLD_QUEUE = 4

#: Bytes of properties whose decoding takes as long as to settle one message. A table of 100 KB takes 5 ms.
PROPERTIES_AS_ONE = 32


class Undecided(NamedTuple):
    """Messages with one method frame whose properties must be decoded before they can be routed."""

    method_payload: bytes
    contents: Sequence[bytes]


#: What waits for another turn: a run, the rest of one that goes to more queues than a turn may do, or messages of which
#: nothing is decided.
Waiting = tuple[Publication, Origins, Sequence[bytes], int] | None | Undecided


class Publisher:
    """The publishing half of a channel. It gathers what goes to queues in `QueueLinks`."""

    __slots__ = (
        "_config",
        "_context",
        "_counts",
        "_ids",
        "_max_message_size",
        "_output",
        "_process",
        "_publications",
        "_published",
        "_queues",
        "_replies",
        "_rest",
        "_spreading",
        "_tracer",
        "_work",
        "_samples",
        "awaits_confirms",
        "confirm_times",
        "confirms",
        "failover",
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
        published: Published,
        credit: CreditFlow,
    ) -> None:
        self._process = process
        self._work = work
        self._context = context
        self._config = config
        self._output = output
        self._queues, self._replies = queues, replies
        self._tracer = tracer
        self._spreading = spreading
        self._counts, self._published = counts, published
        self._samples = context.histograms.samples
        self.confirms = Confirms()
        #: How long confirms take; None before confirm.select.
        self.confirm_times: ConfirmTimes | None = None
        self.failover = Failover(process, context, queues, self.confirms, credit)
        self.is_confirming = False
        #: Whether publishes await confirms: in confirm mode, and in a transaction, whose commit waits for them.
        self.awaits_confirms = False
        #: The runs that a transaction holds back until its commit (AB-115); None without a transaction.
        self.held_back: list[tuple[Publication, Origins, Sequence[bytes], int]] | None = None
        #: The runs that were published and wait for another turn, in their order, because this one has done enough.
        #: None stands for the rest of a run that goes to more queues than one turn may do. The deque is made when one
        #: waits, because an empty one takes 760 bytes of each channel.
        self.waiting: deque[Waiting] | None = None
        #: The queues of that run, how many of them have got it, and what they get.
        self._rest: tuple[Sequence[QueueRow], int, PublishEntry]
        #: The limit that was set when the channel opened (AB-105).
        self._max_message_size = context.settings.max_message_size
        #: A large message that goes to several queues is stored once, under an id that they share.
        self._ids = SharedIds(process.random_bytes)
        self._publications = Publications(context, config, replies, spreading)

    # -- runs ---

    def publish(
        self, payloads: Payloads, key: bytes, contents: Sequence[bytes], body_bytes: int, expirations: Expirations
    ) -> None:
        """Route contents that share the fate `key`; `body_bytes` is the sum of their body sizes.

        `payloads` is the payload of their method frame, or one for each content.
        """
        if body_bytes > self._max_message_size:
            contents = self._within_limit(payloads, key, contents, expirations)
        publications = self._publications
        if publications.version != self._context.routing.version:
            publications.forget()
        if isinstance(payloads, bytes) and not isinstance(expirations, list):
            publication = publications.known.get((payloads, key))
            if publication is None:
                publication = self._decide(payloads, key, contents[0])
            if publication.is_by_headers:
                self._publish_by_headers(payloads, contents)
            else:
                origin = publications.expiring(publication.origin, expirations)
                self._publish_run(publication, origin, contents, body_bytes)
        else:
            self._publish_column(payloads, key, contents, body_bytes, expirations)

    def _publish_column(
        self, payloads: Payloads, key: bytes, contents: Sequence[bytes], body_bytes: int, expirations: Expirations
    ) -> None:
        """Publish messages whose method frames or expirations differ, in as few runs as their destinations allow."""
        publications, origins, error = decide_each(
            self._publications, self._decide, payloads, key, contents, expirations
        )
        # The messages before a refused one are published; the later ones are not.
        contents = contents[: len(publications)]
        groups = {publication.group for publication in publications}
        if error is None and len(groups) == 1 and 0 not in groups:
            self._publish_run(publications[0], origins, contents, body_bytes)
            return
        at = 0
        for group, stretch in groupby(publications, key=attrgetter("group")):
            together = list(stretch)
            if group:
                end = at + len(together)
                part = contents[at:end]
                self._publish_run(together[0], origins[at:end], part, sum(map(body_size, part)))
                at = end
                continue
            for publication in together:
                part = contents[at : at + 1]
                if publication.is_by_headers:
                    self._publish_by_headers(payloads if isinstance(payloads, bytes) else payloads[at], part)
                else:
                    self._publish_run(publication, origins[at], part, body_size(part[0]))
                at += 1
        if error is not None:
            raise error

    def _publish_by_headers(self, method_payload: bytes, contents: Sequence[bytes]) -> None:
        """Publish messages that a headers exchange may route: each has a fate of its own."""
        for at, content in enumerate(contents):
            if self._work.left <= 0 and self.held_back is None:
                self._wait(Undecided(method_payload, contents[at:]))
                return
            key = SPECIAL + content_properties(content)
            publication = self._publications.known.get((method_payload, key))
            if publication is None:
                publication = self._decide(method_payload, key, content)
            self._publish_run(publication, publication.origin, [content], body_size(content))

    def _decide(self, method_payload: bytes, key: bytes, content: bytes) -> Publication:
        self._work.left -= len(key) // PROPERTIES_AS_ONE
        return self._publications.decide(method_payload, key, content, self.held_back is not None)

    def _publish_run(
        self, publication: Publication, origins: Origins, contents: Sequence[bytes], body_bytes: int
    ) -> None:
        """Publish contents with the fate and the destinations of `publication`."""
        if self._config.number != CONTENT_CHANNEL:
            contents = rechannel_run(contents, CONTENT_CHANNEL)
        if publication.props is not None:
            contents = [with_properties(content, publication.props) for content in contents]
        if self._context.routing.traced:
            if publication.wide is not None:
                self._publications.look_up(publication, maxsize)  # a traced copy names all queues
            self._tracer.trace_publish(publication.rows, origins, contents)
        if self.held_back is not None:
            self.held_back.append((publication, origins, contents, body_bytes))
            return
        self._send(publication, origins, contents, body_bytes)

    def _within_limit(
        self, payloads: Payloads, key: bytes, contents: Sequence[bytes], expirations: Expirations
    ) -> Sequence[bytes]:
        """Return the contents if none is too large; else publish those before the first large one and raise."""
        for at, content in enumerate(contents):
            size = body_size(content)
            if size > self._max_message_size:
                if at:
                    frames = payloads if isinstance(payloads, bytes) else payloads[:at]
                    part = contents[:at]
                    own = expirations[:at] if isinstance(expirations, list) else expirations
                    self.publish(frames, key, part, sum(map(body_size, part)), own)
                self.refuse_oversized(size)
        return contents

    def refuse_oversized(self, size: int) -> None:
        raise AmqpError(406, f"message size {size} is larger than configured max size {self._max_message_size}")

    def _send(self, publication: Publication, origins: Origins, contents: Sequence[bytes], body_bytes: int) -> None:
        """Gather a run for its queues. If this turn has done enough, the run waits in `waiting`.

        A run counts as many messages as it has queues, and so does the search for very many queues.
        """
        work = self._work
        if publication.wide is not None:
            if not self.waiting:
                work.left -= self._publications.look_up(publication, max(work.left, 1))
            if publication.wide is not None:
                self._wait((publication, origins, contents, body_bytes))
                return
            # All queues are found, so the run is sent to the first of them in this very turn. In a later one queues may
            # have been deleted and declared again, and the rows that were just found would be those of the old ones.
        elif publication.spread is None and (self.waiting or work.left <= 0):
            self._wait((publication, origins, contents, body_bytes))
            return
        if publication.spread is not None:
            self._send_to_shards(publication, publication.spread, origins, contents)
            return
        rows = now = publication.rows
        if not rows and len(contents) > work.most:
            for part in parts_of(publication, origins, contents, work.most):
                self._wait(part)
            return
        more = 0
        if len(rows) > 1:
            now = rows[: _queues_of_a_turn(work)]
            more = len(rows) - len(now)
            work.left -= work.most if more else len(rows)
        else:
            work.left -= 1 if rows else len(contents)
        count = len(contents)
        self._counts.publish += count
        self._published(self._config.vhost, publication.exchange, count, rows)
        for key in publication.reply_keys:
            self._send_reply(key, publication, contents)
        if not rows:
            self._drop(publication, contents)
            return
        confirms, awaits_confirms = self.confirms, self.awaits_confirms
        if awaits_confirms:
            if len(rows) == 1:
                first_number = confirms.publish_to_one(count, rows[0].queue_id)
            else:
                first_number = confirms.publish(count, [row.queue_id for row in now], more)
            times = self.confirm_times
            if times is not None:
                times.timed.left -= count
                if times.timed.left <= 0:
                    times.begin(first_number)
        else:
            first_number = confirms.next_number
            confirms.next_number = first_number + count
        shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
        samples = self._samples
        samples.left -= count
        if samples.left <= 0 and rows[0].address is not None:
            samples.follow(rows[0].queue_id, Sample(self._config.channel_id, first_number, self._process.now()))
        self._gather(now, entry := (origins, contents, body_bytes, first_number, awaits_confirms, shared))
        if more:
            self._rest = rows, len(now), entry
            self._wait(None)

    def _send_to_shards(
        self, publication: Publication, spread: Spread, origins: Origins, contents: Sequence[bytes]
    ) -> None:
        """Send a run in parts, each to the shards that are chosen for it."""
        known: dict[tuple[str, ...], Publication] = {}
        for start in range(0, len(contents), spread.stretch):
            part = contents[start : start + spread.stretch]
            rows = self._spreading.choose(spread, part[0])
            key = tuple([row.queue_id for row in rows])
            chosen = known.get(key)
            if chosen is None:
                chosen = known[key] = replace(publication, rows=rows, spread=None)
            self._send(chosen, slice_of(origins, slice(start, start + spread.stretch)), part, sum(map(body_size, part)))

    def _gather(self, rows: Sequence[QueueRow], entry: PublishEntry) -> None:
        queues = self._queues
        publishes = queues.publishes
        for row in rows:
            batch = publishes.get(row.queue_id)
            if batch is None:
                if row.queue_id not in queues.rows and row.queue_id not in queues.held:
                    if row.address is None:
                        # The queue has no process, because its virtual host could not be started. So the messages are
                        # refused.
                        first_number, count = entry[3], len(entry[1])
                        self.confirms.refuse(row.queue_id, [(first_number, first_number + count - 1)])
                        continue
                    queues.watch(row)
                batch = publishes[row.queue_id] = (row, [])
            batch[1].append(entry)
            if row.group is not None and entry[4]:
                self.failover.keep(row.queue_id, entry)

    def _wait(self, run: Waiting) -> None:
        """Put a run behind those that wait for another turn."""
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(run)

    async def send_all_waiting(self) -> None:
        """Send in the next turns the publishes that did not fit into theirs."""
        while self.waiting:
            await self._process.next_turn()
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Gather as many of the runs in `waiting` as this turn may, in their order."""
        waiting, self.waiting = self.waiting or deque(), None
        while waiting and self._work.left > 0:
            run = waiting.popleft()
            if run is None:
                self._send_rest()
            elif isinstance(run, Undecided):
                self._publish_by_headers(*run)
            else:
                publication, origins, contents, body_bytes = run
                if publication.version != self._context.routing.version:
                    publication = self._publications.with_queues_of_now(publication)
                self._send(publication, origins, contents, body_bytes)
            if self.waiting:
                break
        if self.waiting is None:
            self.waiting = waiting or None
        else:
            self.waiting.extend(waiting)

    def _send_rest(self) -> None:
        """Gather for the next of its queues a run that goes to more queues than one turn may do."""
        rows, done, entry = self._rest
        end = done + _queues_of_a_turn(self._work)
        now = rows[done:end]
        self._work.left -= self._work.most
        if entry[4]:
            self.confirms.owe([row.queue_id for row in now], entry[3], entry[3] + len(entry[1]) - 1)
        self._gather(now, entry)
        self._rest = rows, end, entry
        if end < len(rows):
            self._wait(None)

    def _drop(self, publication: Publication, contents: Sequence[bytes]) -> None:
        """Return mandatory messages that no queue gets, and confirm each before the next: a client that gets a return
        expects no confirms of earlier publishes behind it (AB-113). Messages for queues whose homes are down are
        refused instead of confirmed: these queues exist, and do not get them.
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

    # -- confirms ---

    def confirm_select(self, method: methods.ConfirmSelect) -> None:
        if self.held_back is not None:
            raise AmqpError(406, "cannot switch from tx to confirm mode")
        if not self.is_confirming:
            self.is_confirming = self.awaits_confirms = True
            self.confirms.begin()
            timed, now = self._context.histograms.timed_confirms, self._process.clocks()[0]
            self.confirm_times = ConfirmTimes(timed, now, self.confirms.next_number - 1)
        if not method.nowait:
            self._output.put_method(methods.ConfirmSelectOk())

    def flush_confirms(self) -> None:
        """Send the client the confirms and refusals that have arrived since the last call (AB-113)."""
        acks, nacks = self.confirms.flush()
        if self.is_confirming:
            confirmed = self.confirms.confirmed
            self._counts.confirm += confirmed
            self._context.counts.confirm += confirmed
            if self.confirm_times is not None and self.confirm_times.waiting:
                self.confirm_times.settled(acks, nacks)
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
            # remembered publications may have a group, and a publication in a transaction must not
            self._publications.forget()

    async def commit(self) -> None:
        """Publish what the transaction has held back; the commit waits until `confirms` is empty."""
        assert self.held_back is not None
        held_back, self.held_back = self.held_back, []
        held_back.reverse()
        while held_back:
            publication, origins, contents, body_bytes = held_back.pop()
            if publication.version != self._context.routing.version:
                publication = self._publications.with_queues_of_now(publication)
            self._send(publication, origins, contents, body_bytes)
            if self._work.left <= 0:
                await self._process.next_turn()
        await self.send_all_waiting()

    async def roll_back(self) -> None:
        """Drop what the transaction has held back, in steps, because its memory is freed."""
        held_back, self.held_back = self.held_back or [], self.held_back and []
        while held_back:
            held_back.pop()
            self._work.left -= 1
            if self._work.left <= 0:
                await self._process.next_turn()


def _queues_of_a_turn(work: TurnWork) -> int:
    """To how many queues a turn sends one run."""
    return max(1, work.most // COLD_QUEUE)
