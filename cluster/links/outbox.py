"""`Outbox`: the messages to one peer that a round of the loop has produced, and their frames."""

from __future__ import annotations

from collections.abc import Iterator

from .encoding.envelopes import Encoded, Envelopes, begin_size, body
from .encoding.frames import MAX_FRAME, MAX_HEADER, MSGPACK_TYPE, ONE_WAY, SEND, Buffer, encode_header, frame_head

#: The most bytes of messages in a frame; a larger message has a frame of its own.
FULL = 262_144

#: The buffers of a frame are joined before they are written if it has at most this many bytes, or if it has at most
#: `FULL` bytes in more than `FEW_BUFFERS` buffers.
JOINED = 16_384

#: Up to this many buffers, a system call with several buffers costs less than copying them into one.
FEW_BUFFERS = 16

#: The most bytes of a frame's body; the rest of a frame is for the head, the header and the sizes in the body.
MAX_BODY = MAX_FRAME - MAX_HEADER


class Outbox:
    """Gathers encoded messages by lane."""

    def __init__(self, envelopes: Envelopes) -> None:
        self.envelopes = envelopes
        self._waiting: dict[str, list[Encoded]] = {}
        #: The header of all frames with the same index.
        self._header = encode_header(SEND, 0, ONE_WAY)
        self._index = 0

    def add(self, encoded: Encoded) -> None:
        name = encoded[0]
        lane = self._waiting.get(name)
        if lane is None:
            self._waiting[name] = [encoded]
        else:
            lane.append(encoded)

    def take(self, index: int) -> list[tuple[str, list[list[Buffer]], int]]:
        """For each lane with messages: its name, its frames, and the number of messages.

        `index` is the one up to which this node has applied the log.
        """
        if index != self._index:
            self._index = index
            self._header = encode_header(SEND, 0, ONE_WAY, None, {"i": index})
        waiting, self._waiting = self._waiting, {}
        return [(name, self._frames(messages), len(messages)) for name, messages in waiting.items()]

    def _frames(self, messages: list[Encoded]) -> list[list[Buffer]]:
        if len(messages) == 1:
            return self._frame(messages, messages[0][3])
        frames = []
        batch: list[Encoded] = []
        size = 0
        for message in messages:
            if batch and size + message[3] > FULL:
                frames += self._frame(batch, size)
                batch, size = [], 0
            batch.append(message)
            size += message[3]
        return frames + self._frame(batch, size)

    def _frame(self, batch: list[Encoded], size: int) -> list[list[Buffer]]:
        """One frame, or one for each part of a message that is too large. The messages have `size` bytes."""
        size += begin_size(len(batch))
        if size > MAX_BODY:
            return self._parts(batch)
        buffers = body(batch, frame_head(MSGPACK_TYPE, len(self._header), size) + self._header)
        if len(buffers) > 1 and (size <= JOINED or (size <= FULL and len(buffers) > FEW_BUFFERS)):
            # A copy takes less time than the system call takes for each buffer.
            return [[b"".join(buffers)]]
        return [buffers]

    def _parts(self, batch: list[Encoded]) -> list[list[Buffer]]:
        parts = list(_cut(body(batch), MAX_BODY))
        frames = []
        for number, part in enumerate(parts):
            header = encode_header(SEND, 0, ONE_WAY, None, {"i": self._index, "p": [number, len(parts)]})
            head = frame_head(MSGPACK_TYPE, len(header), sum(map(len, part)))
            frames.append([head, header, *part])
        return frames


def _cut(buffers: list[Buffer], size: int) -> Iterator[list[Buffer]]:
    """Cut buffers that follow each other into pieces of `size` bytes; the last one may be shorter."""
    piece: list[Buffer] = []
    room = size
    for buffer in buffers:
        view = memoryview(buffer)
        while len(view) > room:
            piece.append(view[:room])
            yield piece
            view = view[room:]
            piece, room = [], size
        piece.append(view)
        room -= len(view)
    if piece:
        yield piece
