"""The readers of a queue: those that get a delivery for each message, and those that get blocks (SP-10).

A reader keeps what it has read and what it may get. `RangeReaders` reads the batches for it, and delivers what is in
its buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from ....amqp.added_header import HeaderAdder
from ....amqp.fields import Table
from ....amqp.frames import build_content_of
from ....amqp.properties import Properties, encode_properties
from ....routing.arguments.range_read_arguments import BLOCK_CONTENT_TYPE, NEXT_HEADER, NUMBER_HEADER, NumberRange
from ....store.block import BlockBuilder
from ....store.messages.message import Origin
from ....store.queue.range_read import RANGE_BATCH_MESSAGES, RangeBatch, RunBatch, SupportsRangeRead, window_from
from ..consumers.consumer import Consumer

#: A message in a reader's buffer: origin, redelivered, the content as it is delivered.
Buffered = tuple[Origin, bool, bytes]

#: How many blocks a reader may have been given that are not written to its socket yet. With two of them the socket
#: always has something to write; with more, each slow reader would hold more blocks in memory.
UNSENT_BLOCKS = 2

#: Bytes of the frames that a block is cut into. Most clients accept so large a frame, and for the others the channel
#: cuts the block anew.
BLOCK_FRAME = 131_072


class RangeReader(ABC):
    """One reader. Its `consumer` counts its deliveries, and is not among the queue's consumers.

    `batches_per_turn` are read for it before other messages of the queue's mailbox get their turn. The number is
    bounded because batches may be empty, and those leave the room for deliveries as it is.
    """

    __slots__ = ("buffer", "consumer", "is_exact", "is_loading", "last", "number", "position")

    batches_per_turn = 16

    def __init__(self, number: int, consumer: Consumer, numbers: NumberRange) -> None:
        self.number = number
        self.consumer = consumer
        #: Everything below this number is read.
        self.position = numbers.first
        #: The last number of the range; None: the range has no end.
        self.last = numbers.last
        #: Whether every number of the range must still be in the queue when it is read.
        self.is_exact = numbers.is_exact
        self.buffer: deque[Buffered] = deque()
        self.is_loading = False

    @property
    def room(self) -> int:
        """How many deliveries the reader can take now."""
        return self.consumer.capacity

    @property
    @abstractmethod
    def window(self) -> int:
        """How many numbers the next batch is read from, if it is on the disk."""

    @abstractmethod
    def take(self, backing: SupportsRangeRead, last: int) -> RangeBatch | RunBatch:
        """The next batch, up to the number `last`. The caller has read into memory what this needs of the segments."""

    @abstractmethod
    def fill(self, batch: RangeBatch | RunBatch, stop: int) -> None:
        """Put a complete batch into the buffer. `position` is behind it, and `stop` is the queue's next number."""

    def complete_range(self) -> bool:
        """The range is read to its end: put what is left of it into the buffer. False: there is nothing left."""
        return False

    @abstractmethod
    def delivered(self, count: int) -> None:
        """Note that this many deliveries were put into the outbox."""

    @abstractmethod
    def count_sent(self, count: int) -> None:
        """Count deliveries of the queue to the channel that were written to the socket."""


class MessageReader(RangeReader):
    """Gets a delivery for each message, with its number in a header."""

    __slots__ = ("_numbering",)

    def __init__(self, number: int, consumer: Consumer, numbers: NumberRange, numbering: HeaderAdder) -> None:
        super().__init__(number, consumer, numbers)
        self._numbering = numbering

    @property
    def window(self) -> int:
        return RANGE_BATCH_MESSAGES

    def take(self, backing: SupportsRangeRead, last: int) -> RangeBatch:
        return backing.take_range(self.position, last)

    def fill(self, batch: RangeBatch | RunBatch, stop: int) -> None:
        assert isinstance(batch, RangeBatch)
        self.buffer.extend(
            (message.origin, message.redelivered, self._numbering.add(message.content, message.tag))
            for message in batch.messages
        )

    def delivered(self, count: int) -> None:
        """Do nothing: the channel bounds the messages that are not written yet, for all its consumers together."""

    def count_sent(self, count: int) -> None:
        """Do nothing; see `delivered`."""


class BlockReader(RangeReader):
    """Gets blocks. Batches gather in the builder until the block has its size, or nothing more can be read now."""

    __slots__ = ("_builder", "_origin", "_size", "_unsent", "_wanted")

    #: Every batch may be a block, and a block takes as long as thousands of messages.
    batches_per_turn = 2

    def __init__(
        self, number: int, consumer: Consumer, numbers: NumberRange, queue: str, size: int, has_bodies: bool
    ) -> None:
        super().__init__(number, consumer, numbers)
        self._builder = BlockBuilder(numbers.first, has_bodies)
        self._origin = Origin("", (queue,))
        self._wanted = size
        #: The size of what the builder has, in bytes.
        self._size = 0
        #: For each block that is not yet written to the socket: how many deliveries of the queue to the channel are
        #: still to be written, up to this block and counting it.
        self._unsent: deque[int] = deque()

    @property
    def room(self) -> int:
        return min(self.consumer.capacity, UNSENT_BLOCKS - len(self._unsent))

    @property
    def window(self) -> int:
        return window_from(self.position)

    def take(self, backing: SupportsRangeRead, last: int) -> RunBatch:
        return backing.take_runs(self.position, last, self.window, self._wanted - self._size)

    def fill(self, batch: RangeBatch | RunBatch, stop: int) -> None:
        assert isinstance(batch, RunBatch)
        for run in batch.runs:
            self._builder.add(run)
        self._size += batch.size
        if self._size >= self._wanted or self._builder.count and self.position >= stop:
            self._finish_block()

    def complete_range(self) -> bool:
        if self._builder.first >= self.position:
            return False
        self._finish_block()
        return True

    def _finish_block(self) -> None:
        headers = Table([(NUMBER_HEADER, "l", self._builder.first), (NEXT_HEADER, "l", self.position)])
        props = encode_properties(Properties(content_type=BLOCK_CONTENT_TYPE, headers=headers))
        content = build_content_of(1, props, self._builder.build(self.position), BLOCK_FRAME)
        self._size = 0
        self.buffer.append((self._origin, False, content))

    def delivered(self, count: int) -> None:
        unsent = self.consumer.channel.unsent
        self._unsent.extend(range(unsent - count + 1, unsent + 1))

    def count_sent(self, count: int) -> None:
        left = [unsent - count for unsent in self._unsent]
        self._unsent = deque(unsent for unsent in left if unsent > 0)
