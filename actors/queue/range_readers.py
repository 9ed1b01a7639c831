"""Consumers that read a queue by its numbers and take nothing from it (design, section 5).

A **reader** stands beside the consumers of its queue: it is no consumer of the queue in any count, gets no message that they would get, and what it was given counts towards its
own prefetch alone. The messages of its range are read in portions (`store.range_read`), one at a time and only when it can take some, put in its buffer and given out from there;
so it holds no more than a portion, and waits for the disk by itself. What comes while it has read everything is read at the end of the turn in which it came.

Deliveries of a reader that acknowledges have minus the reader's number for an ack tag: whatever the outcome, settling them makes room and nothing else.

A range that has an end ends with a `reading_ended` to the channel, which cancels the consumer; so does a range of which something went before it was read, with the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...amqp.added_header import AddedHeader
from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, Table
from ...amqp.frames import build_content, with_properties
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
from ...store.index.segment_jobs import SegmentReadJob
from ...store.messages.message import Origin, QueuedMessage
from ...store.queue.range_read import RANGE_BATCH_MESSAGES, RangeBatch, SupportsRangeRead
from .consumers import ChannelRecord, Consumer

if TYPE_CHECKING:
    from .process import Queue

PORTIONS_A_TURN = 16  # looked at for one reader before others get their turn: all may be empty
ACKED_A_TURN = 4096  # ready messages acknowledged before other work gets its turn

_Given = tuple[Origin, bool, bytes]  # origin, redelivered, content as it is delivered


@dataclass(slots=True, eq=False)
class RangeReader:
    """`consumer` counts what it may be given; everything below `position` was read. `last` None: without end."""

    number: int
    consumer: Consumer
    position: int
    last: int | None
    is_exact: bool
    buffer: deque[_Given] = field(default_factory=deque)
    is_loading: bool = False


class RangeReaders:
    """The readers of one queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.readers: dict[int, RangeReader] = {}
        self._number = 0
        self._header = AddedHeader(NO_PROPERTIES, NUMBER_HEADER)

    # -- beginning ----------------------------------------------------------------------------------------------------------------------------

    async def begin(self, consumer: Consumer, wanted: RangeReadArguments) -> bool:
        """Acknowledges what is to be, and takes the reader in; its answer is that to the consume."""
        queue = self.queue
        phrase = queue_phrase(queue.row.vhost, queue.row.name)
        backing = self._backing(phrase)
        if consumer.exclusive:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"a consumer of {phrase} that reads by number cannot be exclusive: it takes nothing that others could get",
            )
        if wanted.ack_to is not None:
            if queue.consumers.has_exclusive():
                raise AmqpError(ACCESS_REFUSED, f"{phrase} in exclusive use")
            await self._ack_to(backing, wanted.ack_to, phrase)
        if queue.durability is not None:
            await queue.durability.loader.available()  # what is on disk does not tell its lowest number
            if backing.kept_numbers() != backing.numbers():
                await queue.durability.synced()
            self._check_is_there()
        numbers = backing.kept_numbers()
        wanted_range = resolve_range(skip_gap(wanted, numbers, backing.gap), numbers, phrase)
        record = consumer.channel
        if queue.channels.get(record.channel_id) is record:  # else it went meanwhile
            self._add(consumer, wanted_range, self._bounds(numbers) if wanted.includes_bounds else None)
        return True

    def _backing(self, phrase: str) -> SupportsRangeRead:
        backing = self.queue.backing
        if not isinstance(backing, SupportsRangeRead):
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{phrase} cannot be read or acknowledged by number: it has 'x-max-priority', and numbers each priority by itself",
            )
        return backing

    def _check_is_there(self) -> None:
        if self.queue.ending.has_begun:
            raise no_queue(self.queue.row.vhost, self.queue.row.name)

    def _add(self, consumer: Consumer, wanted: NumberRange, bounds: _Given | None) -> None:
        self._number += 1
        reader = self.readers[self._number] = RangeReader(
            self._number, consumer, wanted.first, wanted.last, wanted.is_exact
        )
        if bounds is not None:
            reader.buffer.append(bounds)
        self.queue.queue_expiry.suspend()

    def _bounds(self, numbers: range) -> _Given:
        headers = Table([(FIRST_HEADER, "l", numbers.start), (NEXT_HEADER, "l", numbers.stop)])
        props = encode_properties(Properties(headers=headers))
        return Origin("", (self.queue.row.name,), props), False, build_content(1, props, b"", 0)

    async def _ack_to(self, backing: SupportsRangeRead, number: int, phrase: str) -> None:
        """Acknowledges all up to `number`: what is ready, and what others have and have not acknowledged, whose own acknowledgements are nothing then."""
        queue = self.queue
        check_ack_to(number, backing.numbers(), phrase)
        while (lowest := backing.numbers().start) <= number:
            queue.backing.ack(range(lowest, number + 1))
            if backing.drop_to(number, ACKED_A_TURN):
                await queue.ask(queue.myAddress, ("next_turn",))
            elif queue.durability is not None and lowest == backing.numbers().start:
                await queue.durability.loader.available()
            self._check_is_there()

    # -- giving -------------------------------------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        for reader in list(self.readers.values()):
            self._serve(reader)

    def use_grant(self, record: ChannelRecord) -> None:
        """The channel let more messages through: its readers come first, its consumers on this queue get the rest."""
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._serve(reader)

    def _serve(self, reader: RangeReader) -> None:
        """Gives it what it can take, of what is read and of what can be read at once."""
        queue, consumer, backing = self.queue, reader.consumer, self.queue.backing
        assert isinstance(backing, SupportsRangeRead), "or it was refused"
        numbers = backing.kept_numbers()
        for _ in range(PORTIONS_A_TURN):
            if reader.buffer:
                self._give(reader)
            if not reader.buffer and reader.last is not None and reader.position > reader.last:
                self._end(reader, None)
                return
            if not reader.buffer and (reader.is_loading or reader.position >= numbers.stop):
                return
            if consumer.capacity <= 0:
                if consumer.awaits_grant and not consumer.channel.is_grant_requested:
                    consumer.channel.is_grant_requested = True
                    queue.send(
                        consumer.channel.address,
                        ("limiter_request", queue.queue_id, len(reader.buffer) or RANGE_BATCH_MESSAGES),
                    )
                return
            self._read(reader, numbers)
            if reader.number not in self.readers:
                return
        queue.send(queue.myAddress, ("next_turn",))

    def _give(self, reader: RangeReader) -> None:
        consumer, buffer = reader.consumer, reader.buffer
        given = [buffer.popleft() for _ in range(min(len(buffer), consumer.capacity))]
        if not given:
            return
        consumer.took(len(given))
        for _, run in groupby(given, key=_likeness):
            messages = list(run)
            origin, redelivered, _ = messages[0]
            tags = None if consumer.no_ack else [-reader.number] * len(messages)
            self.queue.dispatch.outbox.put(
                consumer, (origin, redelivered, tags, [content for _, _, content in messages])
            )

    def settled(self, tags: Sequence[int]) -> None:
        """Deliveries of one reader were acknowledged, or given back."""
        reader = self.readers.get(-tags[0])
        if reader is not None:
            reader.consumer.unacked -= len(tags)

    # -- reading ------------------------------------------------------------------------------------------------------------------------------

    def numbers(self) -> range | None:
        """From the lowest number in the queue to the next it will give; None if it numbers each priority by itself."""
        backing = self.queue.backing
        return backing.numbers() if isinstance(backing, SupportsRangeRead) else None

    def _read(self, reader: RangeReader, numbers: range) -> None:
        """Reads a portion into the empty buffer, or begins to."""
        queue = self.queue
        backing = queue.backing
        assert isinstance(backing, SupportsRangeRead)
        if reader.position < numbers.start:
            if reader.is_exact:
                self._end(
                    reader,
                    range_gone(reader.position, reader.last, numbers, queue_phrase(queue.row.vhost, queue.row.name)),
                )
                return
            reader.position = numbers.start
        last = numbers.stop - 1 if reader.last is None else min(reader.last, numbers.stop - 1)
        if reader.position > last:
            return
        job = backing.prepare_range(reader.position, last)
        if job is not None:
            reader.is_loading = True
            queue.spawn(self._load(reader, backing, job, last))
            return
        portion = backing.take_range(reader.position, last)
        if portion.is_complete:
            self._take_in(reader, portion)
        else:
            reader.is_loading = True
            queue.spawn(self._complete(reader, portion))

    async def _load(
        self, reader: RangeReader, backing: SupportsRangeRead, job: SegmentReadJob | None, last: int
    ) -> None:
        """What the index must be asked for."""
        while job is not None:
            await self.queue.run_blocking(job.run)
            if reader.number not in self.readers or self.queue.ending.has_begun:
                return
            job = backing.range_prepared(job, reader.position, last)
        await self._complete(reader, backing.take_range(reader.position, last))

    async def _complete(self, reader: RangeReader, portion: RangeBatch) -> None:
        """What the stores must be asked for."""
        if not portion.is_complete:
            durability = self.queue.durability
            assert durability is not None, "bodies are in memory, or there is a store"
            portion.complete(*await durability.loader.bodies(portion.wanted))
        reader.is_loading = False
        self._take_in(reader, portion)

    def _take_in(self, reader: RangeReader, portion: RangeBatch) -> None:
        reader.position = portion.next_number
        reader.buffer.extend(
            (message.origin, message.redelivered, self._numbered(message)) for message in portion.messages
        )

    def _numbered(self, message: QueuedMessage) -> bytes:
        """The content with its number in a header. Properties that no one can read make way for it: a client could not read them either."""
        content, props = message.content, message.origin.props
        if self._header.props != props:
            try:
                self._header = AddedHeader(props, NUMBER_HEADER)
            except FieldError:
                content = with_properties(content, NO_PROPERTIES)
                self._header = AddedHeader(NO_PROPERTIES, NUMBER_HEADER)
        return self._header.add(content, message.tag)

    def info(self) -> list[dict[str, Any]]:
        """Rows as those of consumers."""
        row = self.queue.row
        return [
            {
                "queue_name": row.name,
                "vhost": row.vhost,
                "channel": consumer.channel.channel_id,
                "consumer_tag": consumer.tag,
                "ack_required": not consumer.no_ack,
                "exclusive": False,
                "prefetch_count": consumer.prefetch,
                "priority": consumer.priority,
                "active": True,
                "activity_status": "reading",
                "arguments": consumer.arguments,
                "user": consumer.user,
            }
            for consumer in (reader.consumer for reader in self.readers.values())
        ]

    # -- ending -------------------------------------------------------------------------------------------------------------------------------

    def _end(self, reader: RangeReader, error: AmqpError | None) -> None:
        queue, consumer = self.queue, reader.consumer
        self._forget(reader)
        queue.dispatch.send()  # the end follows every delivery
        queue.send(consumer.channel.address, ("reading_ended", queue.queue_id, consumer.tag, error))

    def cancel(self, channel_id: str, tag: str) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.tag == tag and reader.consumer.channel.channel_id == channel_id:
                self.queue.dispatch.send()  # cancel-ok follows every delivery already sent
                self._forget(reader)

    def forget_channel(self, record: ChannelRecord) -> None:
        for reader in list(self.readers.values()):
            if reader.consumer.channel is record:
                self._forget(reader)

    def _forget(self, reader: RangeReader) -> None:
        del self.readers[reader.number]
        if not self.queue.is_in_use:
            self.queue.queue_expiry.restart()


def _likeness(given: _Given) -> tuple[int, bool]:
    return id(given[0]), given[1]
