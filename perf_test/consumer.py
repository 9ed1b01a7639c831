"""`LoadConsumer`: receives on the channels of one connection, measures latencies and acknowledges."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from ..amqp import methods
from ..amqp.frames import method_frame
from .connection import LoadConnection
from .deliveries import DeliveryBatch, DeliveryReader
from .options import STAMP_BYTES, Options
from .statistics import Statistics
from .topology import Topology

#: Latencies that are measured of a batch of equal deliveries, evenly spread.
SAMPLES = 16

_TIME = Struct(">Q")
_TAG = Struct(">Q").pack


class LoadConsumer:
    """See the module. `clock` gives nanoseconds."""

    def __init__(
        self,
        options: Options,
        connection: LoadConnection,
        topology: Topology,
        number: int,
        statistics: Statistics,
        clock: Callable[[], int],
    ) -> None:
        self._options = options
        self.connection = connection
        self._statistics = statistics
        self._clock = clock
        self.received = 0
        self._started = 0
        #: It reads nothing before this time, because it is still at work or would exceed its rate; 0: it reads.
        self.resumes_at = 0
        self._reader = DeliveryReader(self._deliver, self._frame)
        #: Messages that it has received since it last resumed reading.
        self._fresh = 0
        self._acks: list[bytes] = []
        self._ack_heads: list[tuple[bytes, bytes]] = []
        #: By channel: deliveries that are not acknowledged yet.
        self._unacked: list[int] = []
        for channel in range(1, options.consumer_channels + 1):
            connection.call(channel, methods.ChannelOpen(), methods.ChannelOpenOk)
            for count, is_global in ((options.qos, False), (options.global_qos, True)):
                if count:
                    qos = methods.BasicQos(prefetch_count=count, global_=is_global)
                    connection.call(channel, qos, methods.BasicQosOk)
            # Frames of an ack of tag 0, cut around the tag.
            frame = method_frame(channel, methods.BasicAck(0, options.multi_ack_every > 1))
            self._ack_heads.append((frame[:11], frame[19:]))
            self._unacked.append(0)
        self._queues = [
            topology.queues[(number + channel) % len(topology.queues)] for channel in range(options.consumer_channels)
        ]

    def start(self) -> None:
        """Send basic.consume on each channel. The answers arrive among the deliveries, so they are not awaited."""
        self._started = self._clock()
        self.connection.start()
        frames = [
            method_frame(channel, methods.BasicConsume(queue=queue, no_ack=self._options.auto_ack))
            for channel, queue in enumerate(self._queues, 1)
        ]
        self.connection.send(b"".join(frames))

    @property
    def is_done(self) -> bool:
        return 0 < self._options.consumer_messages <= self.received

    def receive(self) -> None:
        self._reader.receive(self.connection.receive_into)
        self._pace()
        if not self.resumes_at:
            self.send_acks()

    def _pace(self) -> None:
        """Set the time at which the consumer reads again: it works on each message for a while, or keeps to a rate."""
        options = self._options
        resumes_at = 0
        if options.consumer_rate is not None and self.received:
            resumes_at = self._started + int(self.received / options.consumer_rate * 1e9)
        if options.consumer_latency:
            resumes_at = max(resumes_at, self._clock() + int(options.consumer_latency * self._fresh * 1e9))
        self._fresh = 0
        self.resumes_at = resumes_at if resumes_at > self._clock() else 0

    def resume(self) -> None:
        self.resumes_at = 0
        self.send_acks()

    def send_acks(self) -> None:
        if self._acks and self.connection.unsent is None:
            acks, self._acks = self._acks, []
            self.connection.send(b"".join(acks))

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.connection.handle(kind, payload)

    def _deliver(self, batch: DeliveryBatch) -> None:
        count = batch.messages
        self.received += count
        self._fresh += count
        current = self._statistics.current
        current.received += count
        if batch.body_at is not None and batch.length - batch.body_at > STAMP_BYTES:
            now = self._clock()
            step = -(-count // SAMPLES)
            at = batch.start + batch.body_at + 4
            for index in range(0, count, step):
                published_at = _TIME.unpack_from(batch.data, at + index * batch.length)[0]
                current.consumer_latency.add(now - published_at, min(step, count - index))
        if not self._options.auto_ack:
            self._acknowledge(batch)

    def _acknowledge(self, batch: DeliveryBatch) -> None:
        before, after = self._ack_heads[batch.channel - 1]
        every = self._options.multi_ack_every
        if every == 1:
            tags = map(_TAG, range(batch.first_tag, batch.last_tag + 1))
            self._acks.append(before + (after + before).join(tags) + after)
            return
        unacked = self._unacked[batch.channel - 1] + batch.messages
        if unacked >= every:
            unacked %= every
            self._acks.append(before + _TAG(batch.last_tag - unacked) + after)
        self._unacked[batch.channel - 1] = unacked
