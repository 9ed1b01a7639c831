"""The messages that `Channel` and `DirectClient` receive, and those that a channel sends to its owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...runtime.contract import Address, Contract, message
from ...store.messages.message import Origins
from .membership import ToLinkSender

if TYPE_CHECKING:
    from ...amqp.errors import AmqpError
    from ...amqp.method import Method
    from ...amqp.parser.events import Event
    from ...definitions.access import Access
    from .info_items import InfoItems


class ChannelConfig(NamedTuple):
    """What stays the same for the whole life of a channel."""

    #: `<connection id>.<serial number>`, never used again; queues, credit and confirms name the channel by it.
    channel_id: str
    connection_id: str
    connection_name: str
    #: The channel's number on the wire; the client may use it again when the channel is closed.
    number: int
    vhost: str
    user: str
    #: The largest frame that the client takes, in bytes; 0 is no limit.
    frame_max: int
    #: Whether the client gets basic.cancel when the broker ends a consumer (AB-126).
    has_cancel_notify: bool
    #: What the user may do.
    access: Access
    #: Whether statistics show the channel. They show none of those that the program or an operator uses.
    is_listed: bool = True
    #: The address of this node to which the client has connected; None for the program that embeds the broker.
    reached: tuple[str, int] | None = None
    #: Whether the client has connected with TLS.
    with_tls: bool = False


class FetchedMessage(NamedTuple):
    """The answer of `ToDirectClient.get`; `props` are encoded properties, `messages_left` counts ready messages."""

    props: bytes
    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    messages_left: int


class Moved(NamedTuple):
    """The answer of `ToDirectClient.move`: how many messages the other queue has now, how many ready ones are left, and
    why no more were moved; empty if nothing was refused.
    """

    moved: int
    left: int
    failure: str


#: Counts the deliveries of one queue in an `output`: `(queue, queue id, channel id, deliveries, step)`. The queue gets
#: `sent` when at least `step` deliveries are on the socket (FC-32). A plain tuple, because a NamedTuple costs 0.2 µs
#: more for each delivery batch.
DeliveryNotice = tuple[Address["ToDeliverer"], str, str, int, int]

#: Publish numbers `(first, last)`, both included.
ConfirmRange = tuple[int, int]

#: Deliveries that share their fate: `(origins, redelivered, ack tags, contents)`. Ack tags number the messages within
#: the queue; they are None if the consumer does not acknowledge.
DeliveryRun = tuple[Origins, bool, Sequence[int] | None, Sequence[bytes]]

#: Bytes of a content up to which more deliveries may be unsent, and are reported in larger numbers (FC-32).
SMALL_CONTENT = 4_096

#: How a delivery is settled: `requeue` returns the message to the queue, `reject` drops or dead-letters it.
Outcome = Literal["ack", "requeue", "reject"]


class ToDeliverer(Contract):
    """What a process receives that delivers to channels, which is a queue."""

    @message
    def sent(self, channel_id: str, count: int) -> None:
        """From connections: `count` of this channel's deliveries were written to the socket (FC-32). From channels:
        they were returned, because their consumer is cancelled.
        """


class ToChannelOwner(Contract):
    """What the owner of a channel receives: a client's `Connection`, or the embedded program's `DirectClient`."""

    @message
    def output(self, pieces: list[bytes], notices: list[DeliveryNotice]) -> None:
        """From channels: frames for the client; each notice counts the deliveries of one queue in them."""

    @message
    def bump(self, channel_id: str, amount: int) -> None:
        """From channels: credit for `amount` more publishes (FC-4)."""

    @message
    def pause_input(self, number: int, is_paused: bool) -> None:
        """From channels: stop reading because too many methods wait, or go on because half of them are done (FC-34)."""

    @message
    def channel_error(self, number: int, code: int, text: str) -> None:
        """From channels: the channel ends with an error, for the log; its channel.close follows as output (AB-54)."""

    @message
    def channel_failed(self, number: int, error: AmqpError) -> None:
        """From channels: the channel raised a connection error, so the connection has to end (AB-55)."""

    @message
    def channel_closed(
        self, channel_id: str, is_crossed: bool, pieces: list[bytes], notices: list[DeliveryNotice]
    ) -> None:
        """From channels: the channel has ended, and `pieces` are its last output.

        `is_crossed`: both sides sent channel.close, so the client's close-ok comes after the channel's end.
        """


class ToDirectClient(ToChannelOwner):
    """What `DirectClient` (`actors/channel/direct_client.py`) receives."""

    @message
    def publish(self, vhost: str, exchange: str, routing_key: str, props: bytes, body: bytes) -> bool:
        """From the embedding program: publish one message; answered when it is safe. False: it reached no queue."""

    @message
    def get(self, vhost: str, queue: str, is_consumed: bool) -> FetchedMessage | None:
        """From the embedding program: the next message, None if the queue is empty; not `is_consumed` requeues it."""

    @message
    def fetch(self, vhost: str, queue: str, count: int, outcome: Outcome) -> list[FetchedMessage]:
        """From operations: up to `count` messages of the queue, fewer if they are large. All are settled with this
        outcome in the end.
        """

    @message
    def move(self, vhost: str, source: str, destination: str, count: int) -> Moved:
        """From operations: move up to `count` messages of a queue to another one, in their order."""

    @message
    def call(self, vhost: str, method: Method) -> Method:
        """From the embedding program: run a method that has a reply; the answer is the reply."""

    @message
    def forget_vhost(self, vhost: str) -> None:
        """From the node: the virtual host is deleted; refuse its requests and end its channel (AB-170)."""


class ToQueueUser(ToLinkSender):
    """What every process receives that consumes from queues: a channel, or a group of queues."""

    @message
    def deliver(self, queue_id: str, consumer_tag: str, runs: list[DeliveryRun]) -> None:
        """From queues: messages for one consumer."""

    @message
    def reading_ended(self, queue_id: str, consumer_tag: str, error: AmqpError | None) -> None:
        """From queues: a consumer that reads a range has all of it, or cannot have it because of `error`."""

    @message
    def limiter_request(self, queue_id: str, wanted: int) -> None:
        """From queues: the queue needs the limiter's grant before it delivers up to `wanted` messages (AB-127)."""

    @message
    def limiter_request_now(self, queue_id: str, wanted: int) -> None:
        """From queues: as `limiter_request`, but the grant comes at once, and is 0 if the limit leaves nothing.

        The queue has messages that it drops if no consumer can take them now.
        """

    @message
    def limiter_return(self, queue_id: str, count: int) -> None:
        """From queues: `count` granted deliveries are not used."""


class ToChannel(ToQueueUser):
    """What `Channel` (`actors/channel/process.py`) receives."""

    @message
    def input(self, events: list[Event]) -> None:
        """From the owner: reader events in wire order; each publish in them costs one credit."""

    @message
    def shut_down(self) -> bool:
        """From the owner: do what the client sent before, give back everything, then answer True and end (AB-28)."""

    @message
    def handled(self) -> bool:
        """From the connection: answer True when everything that the client sent before is handled (FC-34)."""

    @message
    def confirm(self, queue_id: str, ranges: list[ConfirmRange]) -> None:
        """From queues: these publishes are safe."""

    @message
    def refuse(self, queue_id: str, ranges: list[ConfirmRange], is_short: bool = False) -> None:
        """From queues: these publishes were not taken (x-overflow reject-publish).

        `is_short`: because too few replicas of the queue are in sync (CL-123).
        """

    @message
    def reply_to(self, key: str, exchange: str, routing_key: str, contents: list[bytes]) -> None:
        """From publishing channels: direct replies for the consumer with this key (AB-142)."""

    @message
    def has_reply_key(self, key: str) -> bool:
        """From declaring channels: whether a consumer of direct replies with this key is here (AB-143)."""

    @message
    def bump(self, peer: str, amount: int) -> None:
        """From queues: credit for `amount` more messages; `peer` is the queue's id."""

    @message
    def info(self) -> InfoItems:
        """From the connection: rabbitmqctl's info items of this channel."""


to_deliverer = ToDeliverer()
to_channel_owner = ToChannelOwner()
to_direct_client = ToDirectClient()
to_channel = ToChannel()
