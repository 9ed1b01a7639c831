"""`MessageCounts`: how many messages were published, delivered, acknowledged and so on, for management and Prometheus.

Each channel counts for itself, for its node and for the exchange of each publish; each queue counts for itself. All of
them run in the node's one thread, so a count is an addition, made once for a run of messages and never for a message.

A count never falls: that of the node stays when a channel or a queue ends (CM-376).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING

from ...routing.queue_types import QUORUM, STREAM

if TYPE_CHECKING:
    from ...routing.rows import QueueRow

#: The counters of messages, with RabbitMQ's names (CM-271). `deliver_get` is their sum, which readers build.
MESSAGE_COUNTERS = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)

#: Counts messages that were published: their virtual host, exchange and number, and the rows of the queues that get
#: each of them.
Published = Callable[[str, str, int, Sequence["QueueRow"]], None]

#: What a node counts of connections, channels and queues that come and go (CM-270).
CHURN_COUNTERS = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)


class MessageCounts:
    """The counters of one channel, of one queue, or of a whole node."""

    __slots__ = MESSAGE_COUNTERS

    def __init__(self) -> None:
        self.publish = 0
        self.confirm = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.get_empty = 0
        self.redeliver = 0
        self.ack = 0

    def values(self) -> list[int]:
        """The counts, in the order of `MESSAGE_COUNTERS`."""
        return [
            self.publish,
            self.confirm,
            self.return_unroutable,
            self.drop_unroutable,
            self.deliver,
            self.deliver_no_ack,
            self.get,
            self.get_no_ack,
            self.get_empty,
            self.redeliver,
            self.ack,
        ]


class NodeCounts(MessageCounts):
    """What a node has counted since its start.

    `exchanges` has, by virtual host and name of an exchange, the messages published to it and the copies that it routed
    to queues. It is None while nobody reads statistics, because only readers remove the entries of deleted exchanges.
    """

    __slots__ = (*CHURN_COUNTERS, "exchanges", "index_queries", "of_type", "routed")

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: dict[tuple[str, str], list[int]] | None = None
        #: By type: what is delivered from, fetched from and acknowledged to queues that are not classic. The node's own
        #: counters include it.
        self.of_type = {name: MessageCounts() for name in (QUORUM.name, STREAM.name)}
        #: Messages that reached at least one queue.
        self.routed = 0
        #: Searches of message indexes.
        self.index_queries = 0
        self.connection_created = 0
        self.connection_closed = 0
        self.channel_created = 0
        self.channel_closed = 0
        self.queue_declared = 0
        self.queue_created = 0
        self.queue_deleted = 0

    def published(self, vhost: str, exchange: str, count: int, rows: Sized) -> None:
        """Count `count` messages that were published to the exchange, each of them routed to the queues of `rows`."""
        queues = len(rows)
        self.publish += count
        if queues:
            self.routed += count
        if self.exchanges is None:
            return
        found = self.exchanges.get((vhost, exchange))
        if found is None:
            self.exchanges[vhost, exchange] = [count, count * queues]
        else:
            found[0] += count
            found[1] += count * queues

    def churn(self) -> list[int]:
        """The counts of `CHURN_COUNTERS`, in their order."""
        return [getattr(self, name) for name in CHURN_COUNTERS]
