"""`LoadProducer`: publishes on the channels of one connection, as fast as rate, confirms and socket allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..amqp import methods
from ..amqp.constants import FRAME_METHOD
from ..amqp.frames import HEAD, build_content, content_body, method_frame
from ..amqp.properties import NO_PROPERTIES, Properties, encode_properties
from .connection import LoadConnection
from .deliveries import DeliveryBatch, DeliveryReader
from .options import STAMP_BYTES, Options
from .statistics import Statistics
from .topology import Topology

#: Bytes that are built and sent at a time. More of them would make latencies longer, fewer cost more calls.
BATCH_BYTES = 128 * 1024
BATCH_MESSAGES = 1000

_ACK_IDS, _NACK_IDS = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"


class MessageFrames:
    """The frames of one message for a channel and a routing key, around the time of its publish."""

    __slots__ = ("_after", "_before", "size")

    def __init__(self, channel: int, frame_max: int, exchange: str, routing_key: str, options: Options) -> None:
        publish = methods.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=options.mandatory)
        props = encode_properties(Properties(delivery_mode=2)) if options.persistent else NO_PROPERTIES
        content = build_content(channel, props, bytes(max(options.size, STAMP_BYTES)), frame_max)
        frames = method_frame(channel, publish)
        # The header frame ends where the first body frame begins; the body's first bytes are its stamp.
        body_at = len(frames) + 8 + HEAD.unpack_from(content, 0)[2] + 7
        frames += content
        self._before, self._after = frames[: body_at + 4], frames[body_at + STAMP_BYTES :]
        self.size = len(frames)
        assert len(content_body(content)) == max(options.size, STAMP_BYTES)

    def frames(self, count: int, nanoseconds: int) -> bytes:
        """The frames of `count` equal messages."""
        return (self._before + nanoseconds.to_bytes(8, "big") + self._after) * count


class OutstandingConfirms:
    """The publishes of one channel that wait for confirms."""

    __slots__ = ("_ahead", "_completed", "_low", "_times", "published")

    def __init__(self) -> None:
        self.published = 0
        #: All numbers up to this one are confirmed, and those in `_ahead`.
        self._low = 0
        self._ahead: set[int] = set()
        #: The last number of the last batch whose messages are all confirmed.
        self._completed = 0
        #: The last number of each later batch with the time of its publish, in nanoseconds.
        self._times: deque[tuple[int, int]] = deque()

    @property
    def outstanding(self) -> int:
        return self.published - self._low - len(self._ahead)

    def publish(self, count: int, nanoseconds: int) -> None:
        self.published += count
        self._times.append((self.published, nanoseconds))

    def confirmed(self, number: int, is_multiple: bool) -> tuple[int, list[tuple[int, int]]]:
        """How many publishes this confirms, and for each batch that it completes the messages of the batch and the time
        of their publish.
        """
        before = self.outstanding
        if is_multiple:
            self._low = max(self._low, number)
            self._ahead = {ahead for ahead in self._ahead if ahead > self._low}
        else:
            self._ahead.add(number)
        while self._low + 1 in self._ahead:
            self._low += 1
            self._ahead.remove(self._low)
        completed = []
        while self._times and self._times[0][0] <= self._low:
            last, published_at = self._times.popleft()
            completed.append((last - self._completed, published_at))
            self._completed = last
        return before - self.outstanding, completed


class LoadProducer:
    """See the module. `clock` gives nanoseconds."""

    def __init__(
        self,
        options: Options,
        connection: LoadConnection,
        topology: Topology,
        statistics: Statistics,
        clock: Callable[[], int],
    ) -> None:
        self._options = options
        self.connection = connection
        self._statistics = statistics
        self._clock = clock
        self.sent = 0
        self._started = 0
        self._reader = DeliveryReader(self._returned, self._frame)
        self._confirms: list[OutstandingConfirms] = []
        self._messages: list[list[MessageFrames]] = []
        for channel in range(1, options.producer_channels + 1):
            connection.call(channel, methods.ChannelOpen(), methods.ChannelOpenOk)
            if options.confirm is not None:
                connection.call(channel, methods.ConfirmSelect(), methods.ConfirmSelectOk)
            self._confirms.append(OutstandingConfirms())
            self._messages.append(
                [
                    MessageFrames(channel, connection.frame_max, topology.exchange, key, options)
                    for key in topology.routing_keys
                ]
            )
        self._turn = 0

    def start(self) -> None:
        self._started = self._clock()
        self.connection.start()

    @property
    def is_done(self) -> bool:
        """Whether everything is published, and confirmed if confirms are on."""
        if not self._options.producer_messages or self.sent < self._options.producer_messages:
            return False
        if self.connection.unsent is not None:
            return False
        return self._options.confirm is None or not any(confirms.outstanding for confirms in self._confirms)

    def produce(self) -> int | None:
        """Publish a batch if nothing forbids it. Returns the nanoseconds until it may go on: 0 at once, None when
        something arrives or the socket is writable.
        """
        if self.connection.unsent is not None or self.connection.is_blocked:
            return None
        count, wait = self._allowed()
        if not count:
            return wait
        channels = len(self._messages)
        for _ in range(channels):
            channel = self._turn % channels
            messages = self._messages[channel][self._turn // channels % len(self._messages[channel])]
            self._turn += 1
            count = max(1, min(count, BATCH_MESSAGES, BATCH_BYTES // messages.size))
            confirms = self._confirms[channel]
            if self._options.confirm is not None:
                count = min(count, self._options.confirm - confirms.outstanding)
                if count <= 0:
                    count = self._allowed()[0]
                    continue
            now = self._clock()
            confirms.publish(count, now) if self._options.confirm is not None else None
            self.sent += count
            self._statistics.current.sent += count
            self.connection.send(messages.frames(count, now))
            return 0 if self.connection.unsent is None else None
        return None

    def _allowed(self) -> tuple[int, int | None]:
        """How many messages rate and total allow now; if none, the nanoseconds until one is allowed."""
        options = self._options
        count = BATCH_MESSAGES
        if options.producer_messages:
            count = min(count, options.producer_messages - self.sent)
            if count <= 0:
                return 0, None
        if options.rate is not None:
            if not options.rate:
                return 0, None
            due = int((self._clock() - self._started) * options.rate / 1e9) + 1 - self.sent
            if due <= 0:
                next_at = self._started + int(self.sent / options.rate * 1e9)
                return 0, max(next_at - self._clock(), 1)
            count = min(count, due)
        return count, 0

    # -- what arrives ---

    def receive(self) -> None:
        self._reader.receive(self.connection.receive_into)

    def _returned(self, batch: DeliveryBatch) -> None:
        self._statistics.current.returned += batch.messages

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        ids = payload[:4]
        if kind != FRAME_METHOD or ids not in (_ACK_IDS, _NACK_IDS):
            self.connection.handle(kind, payload)
            return
        number, is_multiple = int.from_bytes(payload[4:12], "big"), bool(payload[12] & 1)
        count, completed = self._confirms[channel - 1].confirmed(number, is_multiple)
        current = self._statistics.current
        if ids == _ACK_IDS:
            current.confirmed += count
        else:
            current.nacked += count
        if completed:
            now = self._clock()
            for messages, published_at in completed:
                current.confirm_latency.add(now - published_at, messages)
