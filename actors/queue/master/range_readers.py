"""`RangeReaders`: consumers that read a queue by its numbers and take nothing from it (design section 5).

A **reader** stands beside the consumers of its queue. No count of consumers includes it, no consumer loses a message to
it, and its deliveries count towards its own prefetch alone. The messages of its range are read in batches
(`store/queue/range_read.py`), one at a time and only while the reader can take messages; they wait in its buffer until
it takes them. So a reader holds at most one batch, and when the disk is slow, only the reader waits. A reader that has
read everything reads new messages at the end of the turn in which they came. `range_reader.py` has the two kinds of
readers, those of messages and those of blocks.

To acknowledge a range and to find its first message may take several turns or a read from the disk. So `begin` is a
generator: it yields what it waits for (`Wait`), and the replica resumes it when that has happened.

Deliveries to a reader that acknowledges carry minus the reader's number as their ack tag. Settling them, with whatever
outcome, makes room in the reader's prefetch and does nothing else.

When a reader has the last message of a range that has an end, its channel receives `reading_ended` and cancels the
consumer. If the range is exact and a message of it left the queue before it was read, `reading_ended` has an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ....amqp.added_header import HeaderAdder
from ....amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....amqp.fields import Table
from ....amqp.frames import build_content
from ....amqp.properties import Properties, encode_properties
from ....routing.arguments.range_read_arguments import (
    FIRST_HEADER,
    NEXT_HEADER,
    NUMBER_HEADER,
    NumberRange,
    RangeReadArguments,
    check_ack_to,
    range_gone,
    resolve_range,
    skip_gaps,
)
from ....routing.phrases import queue_phrase
from ....routing.rows import QueueRow
from ....store.index.segment_jobs import SegmentReadJob
from ....store.messages.lives import Lives
from ....store.messages.message import Origin
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.range_read import RANGE_BATCH_MESSAGES, RangeBatch, RunBatch, SupportsRangeRead
from ...contracts.channel import to_channel
from ..consumers.consumer import ChannelRecord, Consumer
from ..consumers.consumers import Consumers
from ..disk.disk_loader import Bodies, BodyRead, SegmentRead
from ..effects import Effects
from ..role import Steps, Wait
from .dispatch import Dispatch
from .queue_expiry import QueueExpiry
from .range_reader import BlockReader, Buffered, MessageReader, RangeReader

if TYPE_CHECKING:
    from ...contracts.info_items import InfoItems

#: Ready messages acknowledged before other messages of the queue's mailbox get their turn.
ACKS_PER_TURN = 4096


class RangeReaders:
    """The readers of the queue `row`."""

    __slots__ = (
        "backing",
        "_consumers",
        "_dispatch",
        "_effects",
        "_last_number",
        "_numbering",
        "_phrase",
        "_queue",
        "_queue_expiry",
        "_row",
        "readers",
    )

    def __init__(
        self,
        row: QueueRow,
        backing: BackingQueue,
        consumers: Consumers,
        dispatch: Dispatch,
        queue_expiry: QueueExpiry,
        effects: Effects,
    ) -> None:
        self._row = row
        self._phrase = queue_phrase(row.vhost, row.name)
        #: None if the queue has priorities or lanes, which deliver out of the order of numbers.
        self.backing: SupportsRangeRead | None = backing if isinstance(backing, SupportsRangeRead) else None
        #: The backing queue, for what every backing queue can do.
        self._queue = backing
        self._consumers = consumers
        self._dispatch = dispatch
        self._queue_expiry = queue_expiry
        self._effects = effects
        self.readers: dict[int, RangeReader] = {}
        self._last_number = 0
        self._numbering = HeaderAdder(NUMBER_HEADER)

    def use_backing(self, backing: BackingQueue) -> None:
        """Use another backing queue, which has the messages now. Readers end if it cannot be read by number."""
        self.backing = backing if isinstance(backing, SupportsRangeRead) else None
        self._queue = backing
        if self.backing is None:
            for reader in list(self.readers.values()):
                self._end(reader, self._not_by_number())

    def _not_by_number(self) -> AmqpError:
        return AmqpError(
            PRECONDITION_FAILED,
            f"{self._phrase} cannot be read or acknowledged by number: it has priorities or fair lanes, which deliver "
            "out of the order of numbers",
        )

    # -- beginning ----------------------------------------------------------------------------------

    def begin(self, consumer: Consumer, wanted: RangeReadArguments) -> Steps[bool]:
        """Acknowledge the messages that `wanted` names, and register the reader. True is the answer to `consume`."""
        backing = self.backing
        if backing is None:
            raise self._not_by_number()
        if consumer.exclusive:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"a consumer of {self._phrase} that reads by number cannot be exclusive: it takes nothing that others "
                "could get",
            )
        if wanted.queue_id not in ("", self._row.queue_id):
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{self._phrase} has id '{self._row.queue_id}', not '{wanted.queue_id}': it was deleted and declared "
                "again",
            )
        if wanted.ack_to is not None:
            if self._consumers.has_exclusive():
                raise AmqpError(ACCESS_REFUSED, f"{self._phrase} in exclusive use")
            yield from self._ack_to(backing, wanted.ack_to)
        # The lowest number is known only when the head is in memory.
        yield Wait.HEAD
        if backing.kept_numbers().stop != backing.numbers().stop:
            yield Wait.SYNCED
        if self.backing is None:
            raise self._not_by_number()  # a policy has given the queue lanes in the meantime
        numbers = backing.kept_numbers()
        gaps = [range(gap.first, gap.next) for gap in backing.lives.gaps]
        wanted_range = resolve_range(skip_gaps(wanted, numbers, gaps), numbers, self._phrase)
        if not consumer.channel.has_ended:
            self._add(consumer, wanted, wanted_range, self._bounds(numbers) if wanted.includes_bounds else None)
        return True

    def _add(
        self, consumer: Consumer, wanted: RangeReadArguments, numbers: NumberRange, bounds: Buffered | None
    ) -> None:
        self._last_number = number = self._last_number + 1
        reader: RangeReader
        if wanted.block_size:
            reader = BlockReader(number, consumer, numbers, self._row.name, wanted.block_size, wanted.has_bodies)
        else:
            reader = MessageReader(number, consumer, numbers, self._numbering)
        self.readers[number] = reader
        if bounds is not None:
            reader.buffer.append(bounds)
        self._queue_expiry.enter()

    def _bounds(self, numbers: range) -> Buffered:
        """A message of the queue's own, whose headers give the first and the next number of the queue."""
        headers = Table([(FIRST_HEADER, "l", numbers.start), (NEXT_HEADER, "l", numbers.stop)])
        props = encode_properties(Properties(headers=headers))
        return Origin("", (self._row.name,)), False, build_content(1, props, b"", 0)

    def _ack_to(self, backing: SupportsRangeRead, number: int) -> Steps[None]:
        """Acknowledge all messages up to `number`: ready ones, and those that consumers have not acknowledged yet,
        whose own acknowledgements have no effect after that.
        """
        check_ack_to(number, backing.numbers(), self._phrase)
        if self._effects.index is not None:
            self._effects.index.rest_is_gone("acked", number + 1)
        while (lowest := backing.numbers().start) <= number:
            self._queue.ack(range(lowest, number + 1))
            if backing.drop_to(number, ACKS_PER_TURN):
                yield Wait.NEXT_TURN
            elif lowest == backing.numbers().start:
                yield Wait.HEAD

    # -- delivering ---------------------------------------------------------------------------------

    def deliver(self) -> None:
        for reader in list(self.readers.values()):
            self._serve(reader)

    def use_grant(self, record: ChannelRecord) -> None:
        """Let the readers of a channel use what its limiter has granted. Grants that they do not use are left to its
        consumers.
        """
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._serve(reader)

    def sent(self, record: ChannelRecord, count: int) -> None:
        """Count deliveries of this queue to the channel that its connection has written to the socket."""
        for reader in self.readers.values():
            if reader.consumer.channel is record:
                reader.count_sent(count)

    def _serve(self, reader: RangeReader) -> None:
        """Deliver what the reader can take, from its buffer and from what can be read without waiting."""
        backing, consumer = self.backing, reader.consumer
        assert backing is not None, "a queue with priorities refuses readers"
        numbers = backing.kept_numbers()
        for _ in range(reader.batches_per_turn):
            if reader.buffer:
                self._deliver_buffered(reader)
            if not reader.buffer and reader.last is not None and reader.position > reader.last:
                if reader.complete_range():
                    continue
                self._end(reader, None)
                return
            if not reader.buffer and (reader.is_loading or reader.position >= numbers.stop):
                return
            if reader.room <= 0:
                if consumer.awaits_grant and not consumer.channel.is_grant_requested:
                    self._dispatch.grants.request(consumer.channel, len(reader.buffer) or RANGE_BATCH_MESSAGES)
                return
            self._read(reader, backing, numbers)
            if reader.number not in self.readers:
                return
        self._effects.need_turn()

    def _deliver_buffered(self, reader: RangeReader) -> None:
        consumer, buffer = reader.consumer, reader.buffer
        taken = [buffer.popleft() for _ in range(min(len(buffer), reader.room))]
        if not taken:
            return
        consumer.took(len(taken))
        reader.delivered(len(taken))
        for _, run in groupby(taken, key=_run_key):
            messages = list(run)
            origin, redelivered, _ = messages[0]
            tags = None if consumer.no_ack else [-reader.number] * len(messages)
            # `put_unacked` is not used, because these tags are negative and not those of the backing queue.
            self._effects.outbox.put(consumer, (origin, redelivered, tags, [content for _, _, content in messages]))

    def settle(self, tags: Sequence[int]) -> None:
        """Count deliveries to one reader as settled, whether acknowledged, requeued or rejected."""
        reader = self.readers.get(-tags[0])
        if reader is not None:
            reader.consumer.unacked -= len(tags)

    # -- reading ------------------------------------------------------------------------------------

    def lives(self) -> Lives | None:
        """The lives of the queue, and the gaps in its numbers; None if each priority has numbers of its own."""
        return None if self.backing is None else self.backing.lives

    def numbers(self) -> range | None:
        """From the lowest number in the queue to the next one; None if each priority has numbers of its own."""
        return None if self.backing is None else self.backing.numbers()

    def _read(self, reader: RangeReader, backing: SupportsRangeRead, numbers: range) -> None:
        """Read a batch into the empty buffer. If it needs segments or stored bodies from the disk, start reading them
        and return without waiting.
        """
        if reader.position < numbers.start:
            if reader.is_exact:
                self._end(reader, range_gone(reader.position, reader.last, numbers, self._phrase))
                return
            reader.position = numbers.start if reader.last is None else min(numbers.start, reader.last + 1)
        last = numbers.stop - 1 if reader.last is None else min(reader.last, numbers.stop - 1)
        if reader.position > last:
            return
        job = backing.prepare_range(reader.position, last, reader.window)
        if job is not None:
            self._read_segments(reader, backing, last, job)
        else:
            self._take(reader, backing, last)

    def _read_segments(self, reader: RangeReader, backing: SupportsRangeRead, last: int, job: SegmentReadJob) -> None:
        """Have the segments read from the disk that have the entries of the batch."""
        reader.is_loading = True
        self._effects.run(SegmentRead(job, partial(self._segments_read, reader, backing, last)))

    def _segments_read(self, reader: RangeReader, backing: SupportsRangeRead, last: int, job: SegmentReadJob) -> None:
        reader.is_loading = False
        if reader.number in self.readers:
            more = backing.range_prepared(job, reader.position, last, reader.window)
            if more is not None:
                self._read_segments(reader, backing, last, more)
            else:
                self._take(reader, backing, last)

    def _take(self, reader: RangeReader, backing: SupportsRangeRead, last: int) -> None:
        """Take a batch whose entries are in memory; get those of its bodies that are in the message stores."""
        batch = reader.take(backing, last)
        if batch.is_complete:
            self._fill_buffer(reader, backing, batch)
        else:
            reader.is_loading = True
            self._effects.run(BodyRead(batch.missing, partial(self._bodies_read, reader, backing, batch)))

    def _bodies_read(
        self,
        reader: RangeReader,
        backing: SupportsRangeRead,
        batch: RangeBatch | RunBatch,
        persistent: Bodies,
        transient: Bodies,
    ) -> None:
        batch.complete(persistent, transient)
        reader.is_loading = False
        self._fill_buffer(reader, backing, batch)

    @staticmethod
    def _fill_buffer(reader: RangeReader, backing: SupportsRangeRead, batch: RangeBatch | RunBatch) -> None:
        reader.position = batch.next_number
        reader.fill(batch, backing.kept_numbers().stop)

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
        self._effects.send_after_deliveries(
            consumer.channel.address, to_channel.reading_ended(self._row.queue_id, consumer.tag, error)
        )

    def cancel(self, channel_id: str, tag: str) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.tag == tag and reader.consumer.channel.channel_id == channel_id:
                self._forget(reader)

    def forget_channel(self, record: ChannelRecord) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._forget(reader)

    def _forget(self, reader: RangeReader) -> None:
        del self.readers[reader.number]
        self._queue_expiry.leave()


def _run_key(message: Buffered) -> tuple[int, bool]:
    """Neighbours with the same key are delivered as one run."""
    return id(message[0]), message[1]
