"""`Failover`: what becomes of a channel's publishes to a mirrored queue whose master it has lost (CL-95, CL-96).

The channel asks the next master which of the unanswered publishes it has, and confirms those. The others are lost: the
channel publishes again those that it retains, and refuses the rest. Meanwhile newer publishes to the queue wait, so
that all publishes enter the queue in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....amqp.errors import AmqpError
from ....routing.rows import QueueRow
from ....runtime.credit import CreditFlow
from ....runtime.errors import ProcessDown, ProcessTimeout
from ....runtime.process import Process
from ...context.node_context import NodeContext
from ..queue_links import QueueLinks
from .confirms import Confirms
from .range_set import Range, RangeSet
from .retained import RetainedPublishes, numbers_of

if TYPE_CHECKING:
    from ...contracts.queue import PublishEntry


class Failover:
    """See the module."""

    __slots__ = ("_confirms", "_context", "_credit", "_process", "_queues", "_retained")

    def __init__(
        self, process: Process, context: NodeContext, queues: QueueLinks, confirms: Confirms, credit: CreditFlow
    ) -> None:
        self._process = process
        self._context = context
        self._queues = queues
        self._confirms = confirms
        self._credit = credit
        #: None until the channel publishes to a mirrored queue.
        self._retained: RetainedPublishes | None = None
        queues.floor_of = confirms.floor_of

    def keep(self, queue_id: str, entry: PublishEntry) -> None:
        """Retain an entry that the channel is about to send a mirrored queue, and for which it awaits confirms."""
        if self._retained is None:
            self._retained = RetainedPublishes(
                self._context.settings.channel_retain_limit, self._context.retained_bytes
            )
        self._retained.keep(queue_id, entry)

    def answered(self, queue_id: str) -> None:
        """Forget the publishes that the queue has confirmed or refused."""
        if self._retained:
            self._retained.answered(queue_id, self._confirms.floor_of(queue_id))

    def end(self) -> None:
        """Forget everything, because the channel has ended."""
        if self._retained is not None:
            self._retained.forget_all()

    def queue_gone(self, queue_id: str, row: QueueRow | None, unsent: list[PublishEntry], is_crashed: bool) -> None:
        """Handle that the process of a queue has ended or cannot be reached. `unsent` was gathered for it."""
        queues, confirms = self._queues, self._confirms
        if queue_id in queues.held:
            return  # handled already when the master was lost: the publishes wait for the next master
        owed = confirms.owed_by(queue_id)
        if is_crashed and row is not None and (owed or unsent) and queues.is_mirrored(row):
            queues.hold(queue_id)
            self._credit.relate(_peer(queue_id), kind="failover")
            self._credit.block(_peer(queue_id))
            self._process.spawn(self._go_on(row, owed, unsent))
            return
        confirms.queue_gone(queue_id, is_crashed)
        self.answered(queue_id)

    async def _go_on(self, row: QueueRow, owed: list[Range], unsent: list[PublishEntry]) -> None:
        """Ask the next master which publishes it has, and send it the others."""
        queues, queue_id = self._queues, row.queue_id
        again: QueueRow | None
        try:
            again, taken = await queues.reclaim(row, owed)
        except (AmqpError, ProcessDown, ProcessTimeout):
            # It cannot be found out whether the publishes are in the queue, so they are not repeated.
            again, taken = queues.usable(row), []
            repeated: Iterable[PublishEntry] = ()
        else:
            self._confirms.confirm(queue_id, taken)
            rest = RangeSet(*owed)
            for first, last in (*taken, *numbers_of(unsent)):
                rest.discard(first, last)
            repeated = () if self._retained is None else self._retained.of(queue_id, rest)
        repeated = [*repeated, *unsent]
        _, held = queues.publishes.pop(queue_id, (row, []))
        if again is None:
            self._confirms.queue_gone(queue_id, queues.is_routed_to(row))
        else:
            refused = RangeSet(*owed)
            for first, last in numbers_of(repeated):
                refused.discard(first, last)
            self._confirms.refuse(queue_id, list(refused))
            if repeated or held:
                if queue_id not in queues.rows:
                    queues.watch(again)
                queues.publishes[queue_id] = again, [*repeated, *held]
        self.answered(queue_id)
        self._credit.unblock(_peer(queue_id))
        self._credit.peer_down(_peer(queue_id))
        queues.go_on(queue_id, numbers_of(repeated)[-1][1] + 1 if repeated and again is not None else 0)


def _peer(queue_id: str) -> tuple[str, str]:
    """The credit peer that blocks the channel while it waits for the next master of this queue."""
    return "failover", queue_id
