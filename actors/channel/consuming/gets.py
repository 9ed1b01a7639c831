"""`Gets`: basic.get in one channel (AB-139).

A client may send many basic.get without waiting for each answer. One by one, each would cost a question to the queue
and its answer, in turns of their own. So those that wait behind one that is handled now, for the same queue, are asked
together (`GOT_TOGETHER`), unless the queue is on another node, whose version may not have that message.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from ....amqp import methods
from ....amqp.errors import AmqpError
from ....amqp.parser.events import METHOD
from ....routing.queue_types import GROUP
from ....routing.rows import QueueRow
from ....runtime.process import Process
from ....store.messages.message import FetchedMessages, any_of
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig
from ...contracts.group import to_group
from ...contracts.queue import to_queue
from ..client_output import ClientOutput
from ..publishing.spreading import QUEUES_KEPT
from ..queue_links import QueueLinks
from ..tracing import Tracer
from .deliveries import Deliveries
from .limiter import Limiter
from .unacked import DeliverySource, UnackedRun

if TYPE_CHECKING:
    from ....amqp.parser.events import Event
    from ...contracts.queue import Got

#: Messages that one question asks for at most.
GOT_TOGETHER = 64


class Gets:
    """Answers basic.get from the queues of one channel, and hands what is unacknowledged to `deliveries`.

    backlog     the events that the client has sent behind the present one; empty on a channel with interceptors
    """

    __slots__ = (
        "_backlog",
        "_config",
        "_context",
        "_cursors",
        "_deliveries",
        "_limiter",
        "_output",
        "_process",
        "_queues",
        "_tracer",
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
        tracer: Tracer,
        backlog: deque[Event],
    ) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._deliveries = deliveries
        self._limiter = limiter
        self._tracer = tracer
        self._backlog = backlog
        #: By id of a logical queue: the shard at which the next basic.get begins.
        self._cursors: dict[str, int] = {}

    async def get(self, method: methods.BasicGet) -> None:
        name = self._queues.name_or_last_declared(method.queue)
        self._config.access.check("read", "queue", self._queues.read_name(name))
        row = self._queues.row(name)
        if row.type == GROUP.name and self._config.access.user:
            await self._queues.ask(row, to_group.check_reader(self._config.access.user))
        if row.shards:
            await self._get_from_shards(row, method.no_ack)
            return
        if self._backlog and row.type != GROUP.name and row.node in ("", self._context.node_name):
            following = self._following(method)
            if following:
                await self._get_together(row, method.no_ack, following)
                return
        self._answer(row, *await self._get_from(row, method.no_ack), method.no_ack)

    def _following(self, method: methods.BasicGet) -> list[Event]:
        """Take the gets that come next in the backlog and ask for the same."""
        found: list[Event] = []
        backlog = self._backlog
        while backlog and len(found) < GOT_TOGETHER - 1:
            event = backlog[0]
            if event[0] != METHOD or type(event[2]) is not methods.BasicGet:
                break
            if (event[2].queue, event[2].no_ack) != (method.queue, method.no_ack):
                break
            found.append(backlog.popleft())
        return found

    async def _get_together(self, row: QueueRow, no_ack: bool, following: list[Event]) -> None:
        """Answer a get and those that follow. Those for which the queue would wait come back to the backlog."""
        wanted = 1 + len(following)
        message = to_queue.get_several(self._config.channel_id, self._process.myAddress, no_ack, wanted)
        answers = await self._queues.ask(row, message, is_watched=True)
        for delivery, left in answers:
            self._answer(row, delivery, left, no_ack)
        self._deliveries.work.left -= len(answers)
        unanswered = following[len(answers) - 1 :]
        if answers[-1][0] is None:
            for _ in unanswered:
                self._answer(row, None, 0, no_ack)
        else:
            self._backlog.extendleft(reversed(unanswered))

    def _answer(
        self,
        row: QueueRow,
        delivery: FetchedMessages | None,
        messages_left: int,
        no_ack: bool,
        source: DeliverySource | None = None,
    ) -> None:
        """Answer a get. `source` is the process that has delivered, if the queue may have another one by now."""
        output, deliveries, count = self._output, self._deliveries, self._deliveries.count
        deliveries.note_type(row.queue_id, row.type)
        if delivery is None:
            count("get_empty", row.queue_id)
            output.put_method(methods.BasicGetEmpty(""))
            return
        origins, is_redelivered, tags, contents = delivery
        count("get_no_ack" if no_ack else "get", row.queue_id)
        if is_redelivered:
            count("redeliver", row.queue_id)
        origin = any_of(origins)
        tag = deliveries.next_tag
        deliveries.next_tag += 1
        if self._context.routing.traced:
            self._tracer.trace_delivery(row.shard_of or row.name, origin, is_redelivered, contents)
        output.put_method(
            methods.BasicGetOk(tag, is_redelivered, origin.exchange, origin.routing_keys[0], messages_left)
        )
        output.put_content(contents[0])
        if not no_ack:
            self._limiter.exempt_get(tag)
            source = source or deliveries.unacked.source(row.queue_id)
            deliveries.expect_ack(UnackedRun(tag, source, None, tags, self._process.now()))

    async def _get_from(self, row: QueueRow, no_ack: bool) -> Got:
        message = to_queue.get(self._config.channel_id, self._process.myAddress, no_ack)
        return await self._queues.ask(row, message, is_watched=True)

    async def _get_from_shards(self, row: QueueRow, no_ack: bool) -> None:
        """Answer with a message from the next shard that has one, and how many messages all shards have then.

        The search begins behind the shard that answered last, so N successive gets from N full shards take a message
        of each (FC-78, FC-92).
        """
        queues = self._queues
        await queues.ask(row, to_queue.counts())  # the logical queue is used, so it does not expire
        shards = queues.shards(row)
        start = self._cursors.get(row.queue_id, 0)
        for at in range(start, start + len(shards)):
            shard = shards[at % len(shards)]
            delivery, left = await self._get_from(shard, no_ack)
            if delivery is not None:
                # The shard may end while the others are asked, and its next process numbers its messages anew.
                source = None if no_ack else self._deliveries.unacked.source(shard.queue_id)
                if len(self._cursors) >= QUEUES_KEPT:
                    self._cursors.clear()  # most of these queues are deleted by now
                self._cursors[row.queue_id] = (at + 1) % len(shards)
                for other in shards:
                    if other is not shard:
                        with suppress(AmqpError):  # the message has left its shard, so the client must get it
                            left += (await queues.ask(other, to_queue.counts()))[0]
                self._answer(shard, delivery, left, no_ack, source)
                return
        self._answer(row, None, 0, no_ack)
