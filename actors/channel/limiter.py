"""`Limiter`: the channel-wide prefetch of `basic.qos global=true` (AB-127 to AB-129).

The consumers of a channel may be on several queues, so no queue can count the channel-wide limit alone. While a limit
is set, a queue sends `limiter_request` before it delivers, and the limiter grants as many deliveries as the limit
leaves. The queue delivers them or returns them with `limiter_return`. So a message never leaves a queue for a channel
that may not have it. A queue that would drop the messages before a grant comes sends `limiter_request_now`, which is
answered at once.

    limit  >=  unacknowledged deliveries + granted deliveries that have not arrived (`granted`)

The other prefetch, a limit for each consumer, is counted by the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ...runtime.contract import Address
from ...runtime.process import Process
from ..queue.contract import ToQueue, to_queue
from .contract import ChannelConfig
from .queue_links import QueueLinks
from .unacked import Unacked, UnackedRun


class Request(NamedTuple):
    """A queue waits for the grant of up to `wanted` deliveries."""

    queue_id: str
    address: Address[ToQueue]
    wanted: int


class Limiter:
    """Grants deliveries to the queues of one channel, as long as a limit is set."""

    __slots__ = ("_config", "_process", "_queues", "_unacked", "exempt", "granted", "limit", "requests")

    def __init__(
        self, process: Process, config: ChannelConfig, queues: QueueLinks, unacked: Unacked, limit: int | None
    ) -> None:
        self._process = process
        self._config = config
        self._queues = queues
        self._unacked = unacked
        #: The channel-wide prefetch; None is no limit.
        self.limit = limit
        #: Delivery tags of basic.get, which the limit does not count (AB-128).
        self.exempt: set[int] = set()
        #: Deliveries granted to queues that have not arrived yet, by queue id.
        self.granted: dict[str, int] = {}
        #: Queues that wait for a grant, in the order of their requests.
        self.requests: deque[Request] = deque()

    @property
    def is_limited(self) -> bool:
        return self.limit is not None

    def set_limit(self, limit: int | None, consumed_from: Iterable[str]) -> None:
        """Set the limit of basic.qos, and notify the queues if there was none or there is none now.

        `consumed_from` are the ids of the queues that the channel consumes from.
        """
        was_limited, self.limit = self.is_limited, limit
        if not was_limited and limit is None:
            return
        if was_limited is not self.is_limited:
            # A queue whose consumer is gone may still wait for a grant, which does not come now.
            concerned = {*consumed_from, *[request.queue_id for request in self.requests], *self.granted}
            rows = self._queues.rows
            changed = to_queue.limiter_changed(self._config.channel_id, self.is_limited)
            for queue_id in concerned & rows.keys():
                self._process.send(rows[queue_id].address, changed)
            self.granted.clear()
            self.requests.clear()
            self.exempt.clear()
        self.grant()

    # -- queues ---

    def request(self, address: Address[ToQueue], queue_id: str, wanted: int) -> None:
        if self.is_limited:
            self.requests.append(Request(queue_id, address, wanted))
            self.grant()

    def request_now(self, address: Address[ToQueue], queue_id: str, wanted: int) -> None:
        """Grant what the limit leaves now, which may be nothing: the queue does not wait any longer."""
        count = max(0, min(wanted, self._free())) if self.is_limited else 0
        if count:
            self.granted[queue_id] = self.granted.get(queue_id, 0) + count
        self._process.send(address, to_queue.limiter_grant(self._config.channel_id, count))

    def take_back(self, queue_id: str, count: int) -> None:
        """The queue returns `count` granted deliveries."""
        self._use(queue_id, count)
        self.grant()

    def delivered(self, queue_id: str, count: int) -> None:
        """`count` deliveries of the queue have arrived. To be called only while there is a limit."""
        self._use(queue_id, count)
        if self.requests:
            self.grant()  # deliveries that need no ack used up grants, and do not count as unacknowledged

    def queue_gone(self, queue_id: str) -> None:
        if self.requests:
            self.requests = deque([request for request in self.requests if request.queue_id != queue_id])
        if self.granted.pop(queue_id, 0):
            self.grant()

    # -- deliveries ---

    def exempt_get(self, delivery_tag: int) -> None:
        """A message was fetched with basic.get, which the limit does not count (AB-128)."""
        if self.is_limited:
            self.exempt.add(delivery_tag)

    def settled(self, runs: list[UnackedRun]) -> None:
        """These deliveries are unacknowledged no longer. `grant` follows, after all that are settled together."""
        if self.exempt:
            self.exempt.difference_update([run.first for run in runs if run.consumer_tag is None])

    # -- grants ---

    def _use(self, queue_id: str, count: int) -> None:
        left = self.granted.get(queue_id, 0) - count
        if left > 0:
            self.granted[queue_id] = left
        else:
            self.granted.pop(queue_id, None)

    def _unacknowledged(self) -> int:
        """The deliveries that the limit counts; a settlement in a transaction counts from its commit on (AB-129)."""
        return self._unacked.count + self._unacked.held_back_count - len(self.exempt)

    def _free(self) -> int:
        """How many more deliveries the limit allows."""
        assert self.limit is not None
        return self.limit - self._unacknowledged() - sum(self.granted.values())

    def grant(self) -> None:
        """Grant what the limit leaves to the waiting queues, an even share each."""
        if self.limit is None:
            return
        requests = self.requests
        free = self._free()
        while requests and free > 0:
            share = max(1, free // len(requests))
            queue_id, address, wanted = requests.popleft()
            count = min(wanted, share)
            free -= count
            self.granted[queue_id] = self.granted.get(queue_id, 0) + count
            self._process.send(address, to_queue.limiter_grant(self._config.channel_id, count))
