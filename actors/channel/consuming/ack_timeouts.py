"""`AckTimeouts`: closes a channel whose client does not acknowledge a delivery in time (AB-139).

The timeout of a delivery is the smaller of two: the argument `x-consumer-timeout` of its consumer, and that of its
queue (its argument `x-consumer-timeout` or the policy key `consumer-timeout`). 0 is no limit. If neither is given, the
node's setting `consumer_timeout` applies. A cancelled consumer's argument no longer counts.

Every `channel_tick_interval` the channel checks its unacknowledged deliveries, from the oldest on, up to the first that
is younger than every timeout on the channel. If only the node's timeout applies, the check usually ends at the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....amqp.errors import AmqpError
from ....routing.arguments.consumer_arguments import consumer_timeout
from ....runtime.process import Process
from ....runtime.turn_work import TurnWork
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig
from ...queue.policed_settings import policed_settings
from ..queue_links import QueueLinks
from .channel_consumer import ChannelConsumer
from .unacked import Unacked


class AckTimeouts:
    """Belongs to the channel `process`. `consumers` returns its consumers by tag."""

    __slots__ = ("_config", "_consumers", "_context", "_process", "_queues", "_unacked", "_work", "is_timing")

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        queues: QueueLinks,
        unacked: Unacked,
        work: TurnWork,
        consumers: Callable[[], Mapping[str, ChannelConsumer]],
    ) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._queues = queues
        self._unacked = unacked
        self._work = work
        self._consumers = consumers
        #: Whether the timer runs.
        self.is_timing = False

    def start_timer(self) -> None:
        self.is_timing = True
        self._process.start_timer(self._context.settings.channel_tick_interval / 1000, "consumer_timeout")

    async def check(self) -> None:
        """Handle the timer. Raise AmqpError 406 if an acknowledgement is overdue."""
        self.is_timing = False
        if self._unacked.oldest is None:
            return
        self.start_timer()
        default = self._context.settings.consumer_timeout
        of_queues = {queue_id: self._of_queue(queue_id) for queue_id in self._unacked.sources}
        of_consumers = {
            tag: timeout
            for tag, consumer in self._consumers().items()
            if (timeout := consumer_timeout(consumer.arguments)) is not None
        }
        shortest = min(filter(None, [default, *of_queues.values(), *of_consumers.values()]), default=None)
        if shortest is None:
            return
        now = self._process.now()
        for block in self._unacked.blocks():
            for run in tuple(block):
                age = now - run.delivered_at
                if age <= shortest / 1000:
                    return
                given = [of_queues.get(run.source.queue_id), of_consumers.get(run.consumer_tag or "")]
                timeout = _smaller(given, default)
                if timeout and age > timeout / 1000:
                    raise AmqpError(
                        406,
                        f"delivery acknowledgement on channel {self._config.number} timed out. "
                        f"Timeout value used: {timeout} ms. "
                        "This timeout value can be configured, see consumers doc guide to learn more",
                    )
            self._work.left -= len(block)
            if self._work.left <= 0:
                await self._process.next_turn()

    def _of_queue(self, queue_id: str) -> int | None:
        row = self._queues.rows.get(queue_id)
        if row is None:
            return None
        return policed_settings(row, self._context.definitions, self._context.routing).consumer_timeout


def _smaller(given: list[int | None], default: int | None) -> int | None:
    """The smallest timeout that is given, `default` if none is; None or 0 is no limit."""
    found = [timeout for timeout in given if timeout is not None]
    return min(filter(None, found), default=None) if found else default
