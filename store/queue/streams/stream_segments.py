"""The segments of a stream, and what a stream's backing queue offers beside the operations of every queue.

A stream keeps its messages when consumers have read them. They leave with their **segment**, the oldest one first, when
the stream is larger or its segment is older than it may be. A segment ends when it has a given number of body bytes, so
what leaves is always a run of whole publishes. These segments are bookkeeping only: in the files of the index, the
messages of several segments may share a file, and a file goes when its last message does. Clients choose the size of
segments, and each costs memory, so a stream has `MOST_SEGMENTS` at most: with more, neighbours are joined.

In the fields for a message's expiry a stream keeps the time when it was published, since its messages do not expire.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from ...index.segment_jobs import SegmentReadJob
from ...messages.run import Run
from ..backing_queue import BackingQueue

#: How many segments a stream has at most; each takes about 200 bytes.
MOST_SEGMENTS = 10_000


@dataclass(slots=True)
class StreamSegment:
    """One segment: its first number, its messages and their body bytes, and when the youngest was published, in
    microseconds since the epoch.
    """

    first: int
    messages: int
    body_bytes: int
    published: int


class StreamSegments:
    """The segments of one stream, the oldest first. The last one grows."""

    __slots__ = ("_begins", "_body_bytes", "_segments")

    def __init__(self, segments: Iterable[tuple[int, int, int, int]] = ()) -> None:
        self._segments = deque(StreamSegment(*segment) for segment in segments)
        self._body_bytes = sum(segment.body_bytes for segment in self._segments)
        #: Whether the next messages begin a segment.
        self._begins = False

    def __len__(self) -> int:
        return len(self._segments)

    def rows(self) -> list[tuple[int, ...]]:
        """What the constructor needs to make these segments again."""
        return [astuple(segment) for segment in self._segments]

    def first(self, otherwise: int) -> int:
        """The first number; `otherwise` if there is no segment."""
        return self._segments[0].first if self._segments else otherwise

    @property
    def published(self) -> int:
        """When the youngest message was published, in microseconds since the epoch; 0 if there is none."""
        return self._segments[-1].published if self._segments else 0

    def is_full(self, most_bytes: int) -> bool:
        """Whether the last segment has `most_bytes`."""
        return bool(self._segments) and self._segments[-1].body_bytes >= most_bytes

    def begin(self) -> None:
        """Let the next messages begin a segment, however large the last one is."""
        self._begins = True

    def append(self, numbers: range, body_bytes: int, published: int, most_bytes: int) -> bool:
        """Add messages, to a new segment if the last one has `most_bytes`. True if a new one was begun."""
        self._body_bytes += body_bytes
        last = self._segments[-1] if self._segments else None
        if last is None or last.body_bytes >= most_bytes or self._begins:
            self._begins = False
            while len(self._segments) >= MOST_SEGMENTS:
                self._join_neighbours()
            self._segments.append(StreamSegment(numbers.start, len(numbers), body_bytes, published))
            return last is not None
        last.messages += len(numbers)
        last.body_bytes += body_bytes
        last.published = published
        return False

    def _join_neighbours(self) -> None:
        """Make one segment of each two neighbours."""
        segments = list(self._segments)
        for segment, following in zip(segments[::2], segments[1::2], strict=False):
            segment.messages += following.messages
            segment.body_bytes += following.body_bytes
            segment.published = following.published
        self._segments = deque(segments[::2])

    def kept_from(self, most_bytes: int | None, oldest: int) -> int:
        """The first number to keep, so that the stream has at most `most_bytes`, and no segment whose youngest message
        was published before `oldest`. The last segment always stays.
        """
        left, segments = self._body_bytes, iter(self._segments)
        segment = next(segments)
        for following in segments:
            if segment.published >= oldest and (most_bytes is None or left <= most_bytes):
                break
            left -= segment.body_bytes
            segment = following
        return segment.first

    def published_from(self, time: int) -> range:
        """The numbers to search for the first message that was published at `time` or later: those of the first segment
        with such a message; empty if there is none.
        """
        for at, segment in enumerate(self._segments):
            if segment.published >= time:
                stop = self._segments[at + 1].first if at + 1 < len(self._segments) else None
                return range(segment.first, stop if stop is not None else segment.first + segment.messages)
        return range(0)

    def drop_before(self, number: int) -> tuple[int, int]:
        """Remove the segments whose messages are all below `number`; returns how many messages and body bytes these
        had.
        """
        messages = body_bytes = 0
        while len(self._segments) > 1 and self._segments[1].first <= number:
            segment = self._segments.popleft()
            messages += segment.messages
            body_bytes += segment.body_bytes
        self._body_bytes -= body_bytes
        return messages, body_bytes


class StreamBacking(BackingQueue):
    """A backing queue of a stream. Messages are published with `expiry` as the time of publishing, and never fetched.

    To read, a stream's process asks for the numbers that one read covers, and then for their runs:

        span = backing.span_from(first, most)
        job = backing.prepare_runs(span)                        # None if nothing must be read from the disk
        while job is not None:
            job.run()                                           # in another thread
            job = backing.runs_prepared(job, span)
        runs = backing.runs(span)

    A run that is ABSENT (see `placement`) has stubs in the place of its contents, which are in the message store.
    """

    #: The owner adds the messages that it publishes.
    segments: StreamSegments

    #: Whether another replica of the stream was the master when the last segment began: then that master has already
    #: dropped the segments that the limits did not allow.
    is_inherited = False

    @abstractmethod
    def numbers(self) -> range:
        """From the first number of the stream to the next one that will be given."""

    @abstractmethod
    def span_from(self, first: int, most: int) -> range:
        """The numbers from `first` on, up to `most`, that one read covers."""

    @abstractmethod
    def prepare_runs(self, span: range) -> SegmentReadJob | None:
        """The job that reads what `runs` needs; None if that is in memory."""

    @abstractmethod
    def runs_prepared(self, job: SegmentReadJob, span: range) -> SegmentReadJob | None:
        """Take the result of a job. Returns the next one, or None if `runs` can be called, in the same turn."""

    @abstractmethod
    def runs(self, span: range) -> list[Run]:
        """The messages of a span, ascending. Numbers without a message are left out: their data was damaged."""

    def begin_segment(self) -> None:
        """Let the next publish begin a segment."""
        self.segments.begin()

    def committed(self) -> int:
        """Messages below this number may be delivered at once; later ones when `drain_confirmed` reports them."""
        return self.numbers().stop

    @abstractmethod
    def drop_before(self, number: int) -> int:
        """Remove the segments whose messages are all below `number`; returns how many messages left."""
