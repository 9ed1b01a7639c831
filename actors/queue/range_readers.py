"""`RangeReaders`: consumers that read a queue by its numbers and take nothing from it (design section 5).

A **reader** stands beside the consumers of its queue. No count of consumers includes it, no consumer loses a message to
it, and its deliveries count towards its own prefetch alone. The messages of its range are read in batches
(`store/queue/range_read.py`), one at a time and only while the reader can take messages; they wait in its buffer until
it takes them. So a reader holds at most one batch, and when the disk is slow, only the reader waits. A reader that has
read everything reads new messages at the end of the turn in which they came.

Deliveries to a reader that acknowledges carry minus the reader's number as their ack tag. Settling them, with whatever
outcome, makes room in the reader's prefetch and does nothing else.

When a reader has the last message of a range that has an end, its channel receives `reading_ended` and cancels the
consumer. If the range is exact and a message of it left the queue before it was read, `reading_ended` has an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ...amqp.added_header import AddedHeader
from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, Table
from ...amqp.frames import build_content, content_properties, with_properties
from ...amqp.properties import NO_PROPERTIES, Properties, encode_properties
from ...routing.phrases import no_queue, queue_phrase
from ...routing.range_read_arguments import (
    FIRST_HEADER,
    NEXT_HEADER,
    NUMBER_HEADER,
    NumberRange,
    RangeReadArguments,
    check_ack_to,
    range_gone,
    resolve_range,
    skip_gap,
)
from ...routing.rows import QueueRow
from ...runtime.process import Process
from ...store.index.segment_jobs import SegmentReadJob
from ...store.messages.message import Origin, QueuedMessage
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.range_read import RANGE_BATCH_MESSAGES, RangeBatch, SupportsRangeRead
from ..channel.contract import to_channel
from .consumers import ChannelRecord, Consumer, Consumers
from .dispatch import Dispatch
from .durability import Durability
from .queue_expiry import QueueExpiry

if TYPE_CHECKING:
    from ..metadata.info_items import InfoItems

#: Batches read for one reader before other messages of the queue's mailbox get their turn. A batch may be empty, so
#: that the reader's prefetch alone would not end the loop.
BATCHES_PER_TURN = 16

#: Ready messages acknowledged before other messages of the queue's mailbox get their turn.
ACKS_PER_TURN = 4096

#: A message in a reader's buffer: origin, redelivered, the content as it is delivered.
_Buffered = tuple[Origin, bool, bytes]


@dataclass(slots=True, eq=False)
class RangeReader:
    """One reader. Its `consumer` counts its deliveries, and is not among the queue's consumers."""

    number: int
    consumer: Consumer
    #: Everything below this number is read.
    position: int
    #: The last number of the range; None: the range has no end.
    last: int | None
    #: Whether every number of the range must still be in the queue when it is read.
    is_exact: bool
    buffer: deque[_Buffered] = field(default_factory=deque)
    is_loading: bool = False


class RangeReaders:
    """The readers of the queue `row`. `is_ending` is true when the queue is being deleted."""

    __slots__ = (
        "_backing",
        "_channels",
        "_consumers",
        "_dispatch",
        "_durability",
        "_header",
        "_is_ending",
        "_last_number",
        "_phrase",
        "_process",
        "_queue",
        "_queue_expiry",
        "_row",
        "readers",
    )

    def __init__(
        self,
        process: Process,
        row: QueueRow,
        channels: Mapping[str, ChannelRecord],
        backing: BackingQueue,
        consumers: Consumers,
        dispatch: Dispatch,
        queue_expiry: QueueExpiry,
        durability: Durability | None,
        is_ending: Callable[[], bool],
    ) -> None:
        self._process = process
        self._row = row
        self._phrase = queue_phrase(row.vhost, row.name)
        self._channels = channels
        #: None if the queue has priorities: then each level numbers its messages by itself.
        self._backing = backing if isinstance(backing, SupportsRangeRead) else None
        #: The same queue, for what every backing queue can do.
        self._queue = backing
        self._consumers = consumers
        self._dispatch = dispatch
        self._queue_expiry = queue_expiry
        self._durability = durability
        self._is_ending = is_ending
        self.readers: dict[int, RangeReader] = {}
        self._last_number = 0
        self._header = AddedHeader(NO_PROPERTIES, NUMBER_HEADER)

    # -- beginning ----------------------------------------------------------------------------------

    async def begin(self, consumer: Consumer, wanted: RangeReadArguments) -> bool:
        """Acknowledge the messages that `wanted` names, and register the reader. True is the answer to `consume`."""
        backing = self._backing
        if backing is None:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{self._phrase} cannot be read or acknowledged by number: it has 'x-max-priority', and numbers each "
                "priority by itself",
            )
        if consumer.exclusive:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"a consumer of {self._phrase} that reads by number cannot be exclusive: it takes nothing that others "
                "could get",
            )
        if wanted.ack_to is not None:
            if self._consumers.has_exclusive():
                raise AmqpError(ACCESS_REFUSED, f"{self._phrase} in exclusive use")
            await self._ack_to(backing, wanted.ack_to)
        if self._durability is not None:
            # The lowest number is known only when the head is in memory.
            await self._durability.loader.available()
            if backing.kept_numbers() != backing.numbers():
                await self._durability.synced()
            self._check_not_ending()
        numbers = backing.kept_numbers()
        wanted_range = resolve_range(skip_gap(wanted, numbers, backing.gap), numbers, self._phrase)
        record = consumer.channel
        if self._channels.get(record.channel_id) is record:  # the channel may have ended meanwhile
            self._add(consumer, wanted_range, self._bounds(numbers) if wanted.includes_bounds else None)
        return True

    def _check_not_ending(self) -> None:
        if self._is_ending():
            raise no_queue(self._row.vhost, self._row.name)

    def _add(self, consumer: Consumer, wanted: NumberRange, bounds: _Buffered | None) -> None:
        self._last_number += 1
        reader = self.readers[self._last_number] = RangeReader(
            self._last_number, consumer, wanted.first, wanted.last, wanted.is_exact
        )
        if bounds is not None:
            reader.buffer.append(bounds)
        self._queue_expiry.suspend()

    def _bounds(self, numbers: range) -> _Buffered:
        """A message of the queue's own, whose headers give the first and the next number of the queue."""
        headers = Table([(FIRST_HEADER, "l", numbers.start), (NEXT_HEADER, "l", numbers.stop)])
        props = encode_properties(Properties(headers=headers))
        return Origin("", (self._row.name,)), False, build_content(1, props, b"", 0)

    async def _ack_to(self, backing: SupportsRangeRead, number: int) -> None:
        """Acknowledge all messages up to `number`: ready ones, and those that consumers have not acknowledged yet,
        whose own acknowledgements have no effect after that.
        """
        check_ack_to(number, backing.numbers(), self._phrase)
        while (lowest := backing.numbers().start) <= number:
            self._queue.ack(range(lowest, number + 1))
            if backing.drop_to(number, ACKS_PER_TURN):
                await self._process.next_turn()
            elif self._durability is not None and lowest == backing.numbers().start:
                await self._durability.loader.available()
            self._check_not_ending()

    # -- delivering ---------------------------------------------------------------------------------

    def deliver(self) -> None:
        for reader in list(self.readers.values()):
            self._serve(reader)

    def use_grant(self, record: ChannelRecord) -> None:
        """The limiter of the channel granted deliveries: its readers use them first, its consumers get the rest."""
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._serve(reader)

    def _serve(self, reader: RangeReader) -> None:
        """Deliver what the reader can take, from its buffer and from what can be read without waiting."""
        backing, consumer = self._backing, reader.consumer
        assert backing is not None, "a queue with priorities refuses readers"
        numbers = backing.kept_numbers()
        for _ in range(BATCHES_PER_TURN):
            if reader.buffer:
                self._deliver_buffered(reader)
            if not reader.buffer and reader.last is not None and reader.position > reader.last:
                self._end(reader, None)
                return
            if not reader.buffer and (reader.is_loading or reader.position >= numbers.stop):
                return
            if consumer.capacity <= 0:
                if consumer.awaits_grant and not consumer.channel.is_grant_requested:
                    self._dispatch.request_grant(consumer.channel, len(reader.buffer) or RANGE_BATCH_MESSAGES)
                return
            self._read(reader, backing, numbers)
            if reader.number not in self.readers:
                return
        self._process.request_turn()

    def _deliver_buffered(self, reader: RangeReader) -> None:
        consumer, buffer = reader.consumer, reader.buffer
        taken = [buffer.popleft() for _ in range(min(len(buffer), consumer.capacity))]
        if not taken:
            return
        consumer.took(len(taken))
        for _, run in groupby(taken, key=_run_key):
            messages = list(run)
            origin, redelivered, _ = messages[0]
            tags = None if consumer.no_ack else [-reader.number] * len(messages)
            # Not `put_unacked`: the tags are not the backing queue's.
            self._dispatch.outbox.put(consumer, (origin, redelivered, tags, [content for _, _, content in messages]))

    def settle(self, tags: Sequence[int]) -> None:
        """Deliveries to one reader were acknowledged, requeued or rejected."""
        reader = self.readers.get(-tags[0])
        if reader is not None:
            reader.consumer.unacked -= len(tags)

    # -- reading ------------------------------------------------------------------------------------

    def numbers(self) -> range | None:
        """From the lowest number in the queue to the next one; None if each priority has numbers of its own."""
        return None if self._backing is None else self._backing.numbers()

    def _read(self, reader: RangeReader, backing: SupportsRangeRead, numbers: range) -> None:
        """Read a batch into the empty buffer. If the disk or a message store has to be asked, only start that."""
        if reader.position < numbers.start:
            if reader.is_exact:
                self._end(reader, range_gone(reader.position, reader.last, numbers, self._phrase))
                return
            reader.position = numbers.start
        last = numbers.stop - 1 if reader.last is None else min(reader.last, numbers.stop - 1)
        if reader.position > last:
            return
        job = backing.prepare_range(reader.position, last)
        if job is not None:
            reader.is_loading = True
            self._process.spawn(self._load(reader, backing, job, last))
            return
        batch = backing.take_range(reader.position, last)
        if batch.is_complete:
            self._fill_buffer(reader, batch)
        else:
            reader.is_loading = True
            self._process.spawn(self._complete(reader, batch))

    async def _load(
        self, reader: RangeReader, backing: SupportsRangeRead, job: SegmentReadJob | None, last: int
    ) -> None:
        """Read a batch whose entries are in segments that must be read from the disk first."""
        while job is not None:
            await self._process.run_blocking(job.run)
            if reader.number not in self.readers or self._is_ending():
                return
            job = backing.range_prepared(job, reader.position, last)
        await self._complete(reader, backing.take_range(reader.position, last))

    async def _complete(self, reader: RangeReader, batch: RangeBatch) -> None:
        """Get the bodies of a batch that are in the message stores."""
        if not batch.is_complete:
            assert self._durability is not None, "without a data directory all bodies are in memory"
            batch.complete(*await self._durability.loader.bodies(batch.missing))
        reader.is_loading = False
        self._fill_buffer(reader, batch)

    def _fill_buffer(self, reader: RangeReader, batch: RangeBatch) -> None:
        reader.position = batch.next_number
        reader.buffer.extend(
            (message.origin, message.redelivered, self._numbered(message)) for message in batch.messages
        )

    def _numbered(self, message: QueuedMessage) -> bytes:
        """The content with the message's number in a header.

        Properties that cannot be decoded are replaced by that header: no client could decode them either.
        """
        content = message.content
        props = content_properties(content)
        if self._header.props != props:
            try:
                self._header = AddedHeader(props, NUMBER_HEADER)
            except FieldError:
                content = with_properties(content, NO_PROPERTIES)
                self._header = AddedHeader(NO_PROPERTIES, NUMBER_HEADER)
        return self._header.add(content, message.tag)

    def info(self) -> list[InfoItems]:
        """A row for each reader in the listing of consumers."""
        return [
            reader.consumer.info_items(self._row.name, self._row.vhost, True, "reading")
            for reader in self.readers.values()
        ]

    # -- ending -------------------------------------------------------------------------------------

    def _end(self, reader: RangeReader, error: AmqpError | None) -> None:
        consumer = reader.consumer
        self._forget(reader)
        self._dispatch.send()  # the end follows every delivery
        self._process.send(consumer.channel.address, to_channel.reading_ended(self._row.queue_id, consumer.tag, error))

    def cancel(self, channel_id: str, tag: str) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.tag == tag and reader.consumer.channel.channel_id == channel_id:
                self._dispatch.send()  # cancel-ok follows every delivery already sent
                self._forget(reader)

    def forget_channel(self, record: ChannelRecord) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._forget(reader)

    def _forget(self, reader: RangeReader) -> None:
        del self.readers[reader.number]
        self._queue_expiry.restart()


def _run_key(message: _Buffered) -> tuple[int, bool]:
    """Neighbours with the same key are delivered as one run."""
    return id(message[0]), message[1]
