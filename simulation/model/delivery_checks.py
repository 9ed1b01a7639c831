"""`DeliveryChecks`: whether a queue may deliver a message to a client at this time, in this order and with this flag.

Where the model cannot be certain (`queue_model`), nothing is checked. A broken promise of the broker is raised as
PromiseBroken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .copies import Copy, CopyState, PromiseBroken
from .protocols import ObservedChannel, ObservedConsumer

if TYPE_CHECKING:
    from .queue_model import QueueModel

#: Seconds by which a message may outlive its expiry: the broker counts in milliseconds.
EXPIRY_SLACK = 0.002

#: The highest `PublishedMessage.order` that a channel has received, by queue, publishing channel and priority.
Newest = dict[tuple["QueueModel", ObservedChannel, int], int]


class DeliveryChecks:
    """The checks of one queue."""

    def __init__(self, queue: QueueModel) -> None:
        self._queue = queue
        #: The consumer that received the last message of a queue with a single active consumer.
        self._active: ObservedConsumer | None = None

    def on_crash(self) -> None:
        """The next process of the queue may choose another single active consumer."""
        self._active = None

    def check(self, copy: Copy, redelivered: bool, consumer: ObservedConsumer, newest: Newest) -> None:
        """Check a delivery that is certainly of this copy. `newest` is the receiving channel's own record."""
        self._check_copy(copy, redelivered, newest)
        self._check_expiry(copy, consumer.since)
        self._check_active(consumer)

    def check_returns(self, copy: Copy, returns: int) -> None:
        """Compare with the model how often the copy was returned, according to a header that a client received."""
        if self._queue.has_old_deliveries or copy.is_ambiguous:
            return
        if not copy.returns_least <= returns <= copy.returns_most:
            raise PromiseBroken(
                f"{copy} was delivered as returned {returns} times, but it was returned {copy.returns_least} to "
                f"{copy.returns_most} times"
            )

    def _check_copy(self, copy: Copy, redelivered: bool, newest: Newest) -> None:
        queue = self._queue
        if copy.state == CopyState.FORBIDDEN:
            raise PromiseBroken(f"{copy} was delivered again after it was gone for good")
        if queue.has_old_deliveries:
            return
        if copy.is_returned_too_often(copy.returns_least):
            raise PromiseBroken(f"{copy} was delivered after it had been returned {copy.returns_least} times")
        if copy.state == CopyState.REMOVED:
            raise PromiseBroken(
                f"{copy} was delivered again after its {'death' if copy.dead_letter is not None else 'acknowledgement'}"
            )
        if copy.is_held:
            raise PromiseBroken(f"{copy} was delivered while {copy.holder} has it")
        if copy.seen and not redelivered:
            raise PromiseBroken(f"{copy} was delivered for the second time, and not flagged as redelivered")
        if redelivered and not copy.seen and not copy.may_be_redelivered:
            raise PromiseBroken(f"{copy} was flagged as redelivered, though no client can have received it before")
        # Dead letters come in the order of the deaths, which need not be that of the publishes: a message that a
        # consumer holds does not expire until it comes back.
        if not redelivered and copy.source is None and not queue.kind.is_sharded:
            key = queue, copy.message.channel, copy.message.priority if queue.kind.has_priorities else 0
            if newest.get(key, 0) > copy.message.order:
                raise PromiseBroken(f"{copy} was delivered after a message that was published later")
            newest[key] = copy.message.order

    def _check_expiry(self, copy: Copy, requested_at: float) -> None:
        """A message that had expired before the consumer was requested must not be delivered to it."""
        lifetime = self._queue.deaths.lifetime(copy)
        if lifetime is None or copy.arrived is None:
            return
        late = requested_at - copy.arrived - lifetime
        if requested_at > copy.arrived + lifetime + EXPIRY_SLACK:
            raise PromiseBroken(
                f"{copy} was delivered, though it had expired {late * 1000:.0f} ms before the consumer was requested"
            )

    def _check_active(self, consumer: ObservedConsumer) -> None:
        """Only the single active consumer of a queue that has one receives its messages."""
        queue, active = self._queue, self._active
        if not queue.kind.is_single_active or queue.has_old_deliveries or not consumer.tag:
            return
        if (
            active is not None
            and active is not consumer
            and active in queue.consumers
            and not active.channel.may_be_closed
        ):
            raise PromiseBroken(
                f"{consumer} received a message of queue '{queue.kind.name}', whose single active consumer is {active}"
            )
        if consumer in queue.consumers:
            self._active = consumer
