"""`Limiter`: the channel-wide prefetch of `basic.qos global=true` (AB-127 to AB-129).

The consumers of a channel may be on several queues, so no queue can count the channel-wide limit alone. While a limit
is set, a queue sends `limiter_request` before it delivers, and the limiter grants as many deliveries as the limit
leaves. The queue delivers them or returns them with `limiter_return`. So a message never leaves a queue for a channel
that may not have it. A queue whose messages expire unless they are delivered at once sends `limiter_request_now`, which
the limiter answers at once.

    limit  >=  unacknowledged deliveries + granted deliveries that have not arrived (`granted`)

The other prefetch, a limit for each consumer, is counted by the queue. A consumer of a sharded queue is at several
queues, so the limiter counts its prefetch as well (FC-93). The shards then need grants, like the queues of a channel
with a limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from ....runtime.contract import Address
from ....runtime.process import Process
from ...contracts.channel import ChannelConfig
from ...contracts.queue import ToQueue, to_queue
from ..queue_links import QueueLinks
from .unacked import Unacked, UnackedRun

#: More deliveries than any queue asks for.
UNLIMITED = 1 << 62


class GrantRequest(NamedTuple):
    """A queue waits for the grant of up to `wanted` deliveries."""

    queue_id: str
    address: Address[ToQueue]
    wanted: int


class SharedPrefetch:
    """The prefetch of a consumer of a sharded queue, for all shards together."""

    __slots__ = ("first_tag", "limit", "unacked")

    def __init__(self, queue_ids: Iterable[str], limit: int, first_tag: int) -> None:
        self.limit = limit
        #: The first delivery tag that it counts. Earlier ones are of consumers that were cancelled.
        self.first_tag = first_tag
        #: The unacknowledged deliveries of each shard.
        self.unacked = dict.fromkeys(queue_ids, 0)


class Limiter:
    """Grants deliveries to the queues of one channel, as long as there is a limit or a shared prefetch."""

    __slots__ = ("_config", "_process", "_queues", "_unacked", "exempt", "granted", "limit", "requests", "shared")

    def __init__(
        self, process: Process, config: ChannelConfig, queues: QueueLinks, unacked: Unacked, limit: int | None
    ) -> None:
        self._process = process
        self._config = config
        self._queues = queues
        self._unacked = unacked
        #: The channel-wide prefetch; None is no limit.
        self.limit = limit
        #: Delivery tags of basic.get, which the limit does not count (AB-128). A dict, because an empty set
        #: takes 216 bytes of each channel, an empty dict 64.
        self.exempt: dict[int, None] = {}
        #: Granted deliveries that have not arrived yet, by queue id.
        self.granted: dict[str, int] = {}
        #: Queues that wait for a grant, in the order of their requests; None if there are none, because an empty deque
        #: takes 760 bytes of each channel.
        self.requests: deque[GrantRequest] | None = None
        #: The prefetch of each consumer of a sharded queue, by the queue id of each of the shards.
        self.shared: dict[str, SharedPrefetch] = {}

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
            # Shards with a shared prefetch need grants anyway, so nothing changes for them.
            shared = self.shared
            concerned = {*consumed_from, *[request.queue_id for request in self.requests or ()], *self.granted}
            concerned -= shared.keys()
            rows = self._queues.rows
            changed = to_queue.limiter_changed(self._config.channel_id, self.is_limited)
            for queue_id in concerned & rows.keys():
                self._process.send(rows[queue_id].address, changed)
            self.granted = {queue_id: count for queue_id, count in self.granted.items() if queue_id in shared}
            self._keep_requests(shared)
            self.exempt.clear()
        self.grant()

    # -- consumers of sharded queues ---

    def needs_grants(self, queue_id: str) -> bool:
        """Whether this queue must ask before it delivers to the channel."""
        return self.limit is not None or queue_id in self.shared

    def share(self, queue_ids: Sequence[str], prefetch: int, next_tag: int) -> None:
        """Share the prefetch of a new consumer among the shards with these queue ids. `next_tag` is the lowest delivery
        tag that its first delivery may have.
        """
        self.shared.update(dict.fromkeys(queue_ids, SharedPrefetch(queue_ids, prefetch, next_tag)))

    def unshare(self, queue_ids: Iterable[str]) -> None:
        """Forget the prefetch of a consumer that has left these shards."""
        shared = next((self.shared[each] for each in queue_ids if each in self.shared), None)
        if shared is None:
            return
        for queue_id in shared.unacked:
            self.shared.pop(queue_id, None)
        if self.limit is not None:
            return
        gone = shared.unacked.keys()
        self._drop_requests(gone)
        for queue_id in gone:
            self.granted.pop(queue_id, None)
            row = self._queues.rows.get(queue_id)
            if row is not None:
                self._process.send(row.address, to_queue.limiter_changed(self._config.channel_id, False))

    # -- queues ---

    def _keep_requests(self, queue_ids: Container[str]) -> None:
        """Forget the requests of all other queues."""
        self.requests = deque([each for each in self.requests or () if each.queue_id in queue_ids]) or None

    def _drop_requests(self, queue_ids: Container[str]) -> None:
        """Forget the requests of these queues."""
        self.requests = deque([each for each in self.requests or () if each.queue_id not in queue_ids]) or None

    def request(self, address: Address[ToQueue], queue_id: str, wanted: int) -> None:
        if self.needs_grants(queue_id):
            if self.requests is None:
                self.requests = deque()
            self.requests.append(GrantRequest(queue_id, address, wanted))
            self.grant()

    def request_now(self, address: Address[ToQueue], queue_id: str, wanted: int) -> None:
        """Grant what the limit leaves now, which may be nothing: the queue does not wait any longer."""
        count = max(0, min(wanted, self._free_for(queue_id))) if self.needs_grants(queue_id) else 0
        if count:
            self.granted[queue_id] = self.granted.get(queue_id, 0) + count
        self._process.send(address, to_queue.limiter_grant(self._config.channel_id, count))

    def take_back(self, queue_id: str, count: int) -> None:
        """Take back `count` granted deliveries that the queue returns."""
        self._use(queue_id, count)
        self.grant()

    def delivered(self, queue_id: str, count: int, unacked: int) -> None:
        """Count `count` deliveries that have arrived from the queue. `unacked` of them await an acknowledgement.

        To be called only while there is a limit or a shared prefetch.
        """
        self._use(queue_id, count)
        shared = self.shared.get(queue_id)
        if shared is not None:
            shared.unacked[queue_id] += unacked
        if self.requests:
            self.grant()  # deliveries that need no ack used up grants, and do not count as unacknowledged

    def queue_gone(self, queue_id: str) -> None:
        self._drop_requests((queue_id,))
        shared = self.shared.get(queue_id)
        if shared is not None:
            shared.unacked[queue_id] = 0  # the queue has these messages again, or they are gone
        if self.granted.pop(queue_id, 0) or shared is not None:
            self.grant()

    # -- deliveries ---

    def exempt_get(self, delivery_tag: int) -> None:
        """Note the delivery of a basic.get, which the limit does not count (AB-128)."""
        if self.is_limited:
            self.exempt[delivery_tag] = None

    def settled(self, runs: list[UnackedRun]) -> None:
        """Count these deliveries as settled. When all that are settled together are counted, `grant` must follow."""
        if self.exempt:
            for run in runs:
                if run.consumer_tag is None:
                    self.exempt.pop(run.first, None)
        if self.shared:
            for run in runs:
                shared = self.shared.get(run.source.queue_id)
                if shared is not None and run.consumer_tag is not None and run.first >= shared.first_tag:
                    shared.unacked[run.source.queue_id] -= len(run.tags)

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

    def _free_in(self, shared: SharedPrefetch) -> int:
        """How many more deliveries the shared prefetch allows."""
        granted = sum([self.granted.get(queue_id, 0) for queue_id in shared.unacked])
        return shared.limit - sum(shared.unacked.values()) - granted

    def _free_for(self, queue_id: str) -> int:
        """How many more deliveries this queue may make."""
        shared = self.shared.get(queue_id)
        if shared is None:
            return self._free()
        free = self._free_in(shared)
        return free if self.limit is None else min(free, self._free())

    def grant(self) -> None:
        """Grant what the limit and each shared prefetch leave to the waiting queues, an even share each."""
        requests = self.requests
        if not requests:
            return
        free = UNLIMITED if self.limit is None else self._free()
        if free > 0:
            # Send the settlements that made room before the grants. Otherwise a queue would use a grant for the message
            # behind those that it gets back.
            self._queues.send_settlements()
        full: deque[GrantRequest] = deque()
        used_up: set[SharedPrefetch] = set()
        while requests and free > 0:
            share = max(1, free // len(requests))
            request = requests.popleft()
            queue_id, address, wanted = request
            count = min(wanted, share)
            shared = self.shared.get(queue_id)
            if shared is not None:
                left = 0 if shared in used_up else self._free_in(shared)
                if left <= 0:
                    used_up.add(shared)
                    full.append(request)
                    continue
                rivals = sum([other.queue_id in shared.unacked for other in requests])
                count = min(count, max(1, left // (rivals + 1)))
            free -= count
            self.granted[queue_id] = self.granted.get(queue_id, 0) + count
            self._process.send(address, to_queue.limiter_grant(self._config.channel_id, count))
        if full:
            full.extend(requests)
            self.requests = full
        elif not requests:
            self.requests = None
