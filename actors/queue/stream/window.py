"""`StreamWindow`: the part of a stream that its consumers read now, in memory once for all of them.

Consumers of one stream mostly read the same messages shortly after each other: those at the tail as soon as they are on
the disk, those that have begun at the first message one chunk after the other. So what is read is kept as **chunks**
until the last consumer has passed them, within `WINDOW_BYTES`. A message in a chunk has its header `x-stream-offset`
already, which is added once, however many consumers get the message.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from ....amqp.added_header import HeaderAdder
from ....routing.arguments.stream_arguments import STREAM_OFFSET
from ....store.messages.message import Origins

#: Bytes of contents in a chunk, about.
CHUNK_BYTES = 1 << 20
#: Bytes of contents that a window keeps, beside the chunk that was added last.
WINDOW_BYTES = 4 << 20


@dataclass(slots=True)
class Piece:
    """Messages with consecutive offsets from `first` on, and when the first was published."""

    first: int
    origins: Origins
    contents: list[bytes]
    #: Microseconds since the epoch.
    published: int

    @property
    def stop(self) -> int:
        return self.first + len(self.contents)


@dataclass(slots=True, eq=False)
class Chunk:
    """All messages of the stream with offsets from `first` to before `stop`."""

    first: int
    stop: int
    pieces: list[Piece] = field(default_factory=list)
    #: The first offset of each piece.
    firsts: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, pieces: Iterable[Piece]) -> None:
        """Add pieces at the end. Neighbours with one origin, published at one time, become one piece."""
        for piece in pieces:
            self.size += sum(map(len, piece.contents))
            last = self.pieces[-1] if self.pieces else None
            if (
                last is not None
                and not isinstance(piece.origins, list)
                and last.stop == piece.first
                and last.origins == piece.origins
                and last.published == piece.published
            ):
                last.contents += piece.contents
            else:
                self.pieces.append(piece)
                self.firsts.append(piece.first)


class StreamWindow:
    """The chunks of one stream."""

    __slots__ = ("_chunks", "_header", "_size")

    def __init__(self) -> None:
        #: The chunks, in the order of their first offsets. They are few, so sorting costs nothing.
        self._chunks: list[Chunk] = []
        self._size = 0
        self._header = HeaderAdder(STREAM_OFFSET)

    def find(self, offset: int) -> Chunk | None:
        """The chunk whose offsets include this one; None if there is none."""
        at = bisect_right(self._chunks, offset, key=_first)
        chunk = self._chunks[at - 1] if at else None
        return chunk if chunk is not None and offset < chunk.stop else None

    def next_after(self, offset: int) -> int | None:
        """The first offset of the next chunk behind this offset."""
        at = bisect_right(self._chunks, offset, key=_first)
        return self._chunks[at].first if at < len(self._chunks) else None

    def add(self, span: range, pieces: Iterable[Piece], read_from: int) -> None:
        """Add the messages of a span as a chunk, and drop chunks that are not needed any more.

        No consumer reads below the offset `read_from` again.
        """
        chunk = Chunk(span.start, span.stop)
        chunk.add(self._stamped(pieces))
        self._size += chunk.size
        insort(self._chunks, chunk, key=_first)
        self._trim(chunk, read_from)

    def append(self, span: range, pieces: Iterable[Piece], read_from: int) -> None:
        """As `add`, for a span that follows everything that was published before. It goes into the last chunk if that
        has room.
        """
        last = self._chunks[-1] if self._chunks else None
        if last is None or last.stop != span.start or last.size >= CHUNK_BYTES:
            self.add(span, pieces, read_from)
            return
        before = last.size
        last.add(self._stamped(pieces))
        last.stop = span.stop
        self._size += last.size - before

    def _stamped(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """The pieces with the offset of each message in its headers."""
        add = self._header.add
        for piece in pieces:
            contents = [add(content, offset) for offset, content in enumerate(piece.contents, piece.first)]
            yield Piece(piece.first, piece.origins, contents, piece.published)

    def _trim(self, added: Chunk, read_from: int) -> None:
        chunks = self._chunks
        for chunk in [chunk for chunk in chunks if chunk.stop <= read_from and chunk is not added]:
            self._drop(chunk)
        while self._size - added.size > WINDOW_BYTES:
            # Drop the chunk of the consumer that is farthest behind, which then reads it from the disk again. Most
            # other consumers have passed it.
            self._drop(chunks[0] if chunks[0] is not added else chunks[1])

    def _drop(self, chunk: Chunk) -> None:
        self._chunks.remove(chunk)
        self._size -= chunk.size

    def clear(self) -> None:
        """Drop everything, because no consumer reads any more."""
        self._chunks.clear()
        self._size = 0


def _first(chunk: Chunk) -> int:
    return chunk.first
