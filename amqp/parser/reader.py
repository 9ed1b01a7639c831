"""The frame parser of a connection: bytes in, events out.

The parser has two paths, which return the same events:

- **Frame by frame** (`_read_frame`, `frame_meanings`) reads any input. A method with content opens an *assembly* on its
  channel; the header and body frames that follow on that channel fill it (frames of other channels may come between,
  AB-45), and the last byte of the body completes it. Each frame is consumed as soon as it is complete, so the time for
  a body is proportional to its size, however small the pieces are in which it arrives.
- **By repetition** (`_read_run`) reads what a publisher sends again and again: publishes with a body in one frame. It
  compares their bytes with those of earlier messages instead of decoding them (see `shapes`, `known_headers` and
  `header_patterns`), and takes each content as one slice. Bodies, properties and method frames may differ; at the first
  message of another fate it stops without consuming any of it. It never raises; the frame-by-frame path reads the same
  bytes next and finds the fault.

A body too large for that is received *in place*, see `large_content`: once the head of its first frame has arrived,
`large` has room for the rest, and the caller may read the socket into it. The next publish that begins with the same
bytes is recognised by them.

`FrameReader(fast=False)` uses only the first path. A property test compares the events of both.

Nanoseconds per message, measured with `bench/reader.py` (CPython 3.11, one of two shared cores; 256 KiB pieces):

=============================================== ============== ===============
input                                           by repetition  frame by frame
=============================================== ============== ===============
100 B bodies                                    110            2,750
1 KiB bodies                                    220            2,900
bodies of changing size                         515            2,700
a message id of its own in each                 1,460          2,700
four alternating channels                       1,550          2,700
basic.ack                                       130            1,370
=============================================== ============== ===============

Which frames are accepted depends on the state of the connection (AB-5, AB-6, AB-38). The connection sets `phase`:

========== ==================================== ==========================================
phase      frames on channel 0                  frames on other channels
========== ==================================== ==========================================
HANDSHAKE  methods and heartbeats, else error   505
RUNNING    methods and heartbeats, else error   read
CLOSING    methods; other frames are skipped    skipped without decoding
========== ==================================== ==========================================
"""

from __future__ import annotations

import struct

from ..constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_ERROR,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    MAX_BODY_SIZE,
)
from ..errors import AmqpError
from ..frames import HEAD
from ..methods import BasicPublish
from .assembly import Assembly
from .events import ACKS, METHOD, PARTS, RUN, Event
from .frame_meanings import RUNNING, FrameMeanings, snippet
from .known_headers import KnownHeaders
from .large_content import LargeContent, LargeStart, fits, is_worth_it, large_start
from .shapes import NO_SHAPE, SHAPE_SIZE_MAX, KnownShapes, PublishShape, take_contents
from .skimmer import fate

#: Payload length, class and method id of basic.ack.
_ACK_HEAD = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
_ACK = struct.Struct(">11xQ?x")
_ACK_ENDS = (b"\x00\xce", b"\x01\xce")
_ACK_FRAME_SIZE = 21

#: The most acks of one event. A read of 512 KiB may have 25,000, which take 7 ms.
ACKS_MAX = 4096

#: Frames in a row without an event, behind which PARTS is returned. Such a frame takes 1 µs, and a read of 512 KiB may
#: have 65,000 of them: empty body frames, or frames of other channels while the connection closes.
PARTS_MAX = 256

#: Publishes that are compared with one that matches a header pattern, at first; see `HeaderPattern.count_alike`. They
#: are twice as many after each comparison that found all of them alike, up to `ALIKE_MOST`.
ALIKE_FIRST, ALIKE_MOST = 8, 1024

#: A piece of input of at most this many bytes is joined as a whole to the part of a frame before it. Of a larger piece
#: only the end of that frame is copied: copying 512 KiB takes 50 µs, and reading one message frame by frame 10 µs.
JOINED_WHOLE = 64 * 1024


class FrameReader:
    """Parses the input of one connection: `feed` it bytes, then call `next` until it returns None.

    The caller may set:

    - `frame_max`: the largest payload accepted (AB-39), at least 4096, or 0 for no limit.
    - `phase`: see the module.
    - `max_body_size` in bytes: a larger body is reported as OVERSIZED and skipped.
    - `credit`: channel -> most contents in one RUN. A missing entry, 0 or less counts as 1, because each call of `next`
      must make progress. The reader does not change it; the caller counts it down between calls.

    `has_more` is False once the latest event was the last one of the input; the next call of `next` may be saved then.

    `content_started` becomes True when a content header or body frame is consumed (AB-33); the caller clears it.
    """

    __slots__ = (
        "_assemblies",
        "_body_size_max",
        "_buffer",
        "_chunk_start",
        "_chunks",
        "_chunks_size",
        "_dead",
        "_fast",
        "_frame_max",
        "_headers",
        "_large_start",
        "_max_body_size",
        "_meanings",
        "_needed",
        "_position",
        "_shape",
        "_most_alike",
        "_varied",
        "_was_alone",
        "_shapes",
        "content_started",
        "credit",
        "frame_size",
        "has_more",
        "large",
        "phase",
    )

    def __init__(self, frame_max: int = FRAME_MIN_SIZE, fast: bool = True) -> None:
        self.phase = RUNNING
        self.credit: dict[int, int] = {}
        self.content_started = False
        self.has_more = False
        #: Bytes of the payload of the last frame that was read frame by frame; for a METHOD, of its method frame.
        self.frame_size = 0
        self._frame_max = frame_max
        self._max_body_size = MAX_BODY_SIZE
        #: The largest body that one frame may bring and that is kept.
        self._body_size_max = min(frame_max or MAX_BODY_SIZE, MAX_BODY_SIZE)
        self._fast = fast
        self._dead = False
        self._buffer = b""
        self._position = 0
        self._chunks: list[bytes] = []  # input behind the buffer; of the first piece, what begins at `_chunk_start`
        self._chunk_start = 0
        self._chunks_size = 0
        self._needed = 0  # size of the frame at `_position`, or of its head while that is incomplete
        self._meanings = FrameMeanings()
        self._assemblies = self._meanings.assemblies
        #: The content that is received in place. The buffer is empty as long as that has room.
        self.large: LargeContent | None = None
        #: How the latest publish began whose content was received in place.
        self._large_start: LargeStart | None = None
        self._shapes = KnownShapes()
        self._shape = NO_SHAPE  # the shape of the latest publish
        self._varied = NO_SHAPE  # the shape of the latest publish that a header pattern matched
        self._most_alike = ALIKE_FIRST
        #: Whether the latest publish was the only one in the input, as the next one will probably be.
        self._was_alone = False
        self._headers = KnownHeaders()

    @property
    def frame_max(self) -> int:
        """The largest frame payload that is accepted; 0 is no limit."""
        return self._frame_max

    @frame_max.setter
    def frame_max(self, value: int) -> None:
        self._frame_max = value
        self._forget_shapes()
        if self.large is not None:
            self._give_up_large(self.large)

    @property
    def max_body_size(self) -> int:
        """The largest body that is kept; a larger one is OVERSIZED."""
        return self._max_body_size

    @max_body_size.setter
    def max_body_size(self, value: int) -> None:
        self._max_body_size = value
        self._forget_shapes()

    def _forget_shapes(self) -> None:
        # The remembered shapes were checked against the old limits.
        self._body_size_max = min(self._frame_max or self._max_body_size, self._max_body_size)
        self._shapes.forget()
        self._shape = self._varied = NO_SHAPE
        self._large_start = None

    def feed(self, data: bytes) -> None:
        """Add input without parsing it. It is copied only if a part of a frame is still in the buffer."""
        if self._dead or not data:
            return
        self.has_more = True
        if self.large is not None:
            data = bytes(self.large.add(data))
            if not data:
                return
        if self._position == len(self._buffer) and not self._chunks:
            self._buffer = bytes(data)
            self._position = 0
        else:
            self._chunks.append(bytes(data))
            self._chunks_size += len(data)

    def next(self) -> Event | None:
        """The next event, or None if more input is needed.

        Raises AmqpError at a fault, after it has returned every event before the fault. After a `fatal` error the frame
        boundaries are lost, so `next` returns None for ever. After any other error the faulty frame has been consumed,
        and the caller can read on, as a connection that waits for close-ok must (AB-29).
        """
        if self.large is not None:
            event = self._read_large(self.large)
            if event is not None or self.large is not None:
                return event
        if self._position == len(self._buffer) and not self._chunks:
            return None  # the usual last call for each piece of input
        for _ in range(PARTS_MAX):
            if self._position == len(self._buffer) and self._chunks:
                self._next_chunk()
            if self._fast and self.phase == RUNNING:
                event = self._read_repeated()
                if event is not None:
                    return event
            before = self._position
            event = self._read_frame()
            if event is not None:
                return event
            if self._position == before and not self._join():
                return None
        return PARTS, 0

    def _next_chunk(self) -> None:
        """Go on in the next chunk, when the whole buffer has been consumed."""
        self._buffer, self._position = self._chunks.pop(0), self._chunk_start
        self._chunks_size -= len(self._buffer) - self._chunk_start
        self._chunk_start = 0

    def _join(self) -> bool:
        """Join the chunks to the rest of the buffer if they complete its frame or frame head. True if they do.

        Of a chunk of more than `JOINED_WHOLE` bytes only as much is joined as is needed.
        """
        missing = self._needed - (len(self._buffer) - self._position)
        if not self._chunks or self._chunks_size < missing:
            # Joining at every feed would copy a large frame once for each piece of it.
            return False
        parts = [self._buffer[self._position :]]
        # The chunks are removed together at the end: a client may send a frame of 128 KiB byte by byte, and to remove
        # each of 131,072 chunks from the front of the list took 1.4 s.
        chunks, count = self._chunks, 0
        while count < len(chunks) and (missing > 0 or len(chunks[count]) <= JOINED_WHOLE):
            chunk, start = chunks[count], self._chunk_start
            if missing < len(chunk) - start and len(chunk) > JOINED_WHOLE:
                self._chunk_start = start + missing
                parts.append(chunk[start : self._chunk_start])
                self._chunks_size -= missing
                break
            parts.append(chunk[start:])
            count += 1
            self._chunk_start = 0
            self._chunks_size -= len(parts[-1])
            missing -= len(parts[-1])
        del chunks[:count]
        self._buffer = b"".join(parts)
        self._position = 0
        return True

    # -- by repetition ---

    def _read_repeated(self) -> Event | None:
        """A RUN or ACKS found by comparing bytes. None if there is neither; then nothing has been consumed, except the
        beginning of a content that is received in place.
        """
        start = self._large_start
        if start is not None and self._is_next(start):
            self._begin_same(start)
            return None
        shape, buffer, position = self._shape, self._buffer, self._position
        if not buffer.startswith(shape.method_frame, position):
            if buffer.startswith(_ACK_HEAD, position + 3):
                return self._read_acks()
            known = self._shapes.find(buffer, position)
            if known is None:
                return None
            self._shape = shape = known
        if shape.channel in self._assemblies:
            return None
        if self._was_alone and buffer[-1] == FRAME_END:
            event = self._read_alone(shape, buffer, position)
            if event is not None:
                return event
        return self._read_run(shape, [], 0, None, None)

    def _read_alone(self, shape: PublishShape, buffer: bytes, position: int) -> Event | None:
        """What `_read_run` would return, at a third of its cost, if the rest of the buffer is one message like the one
        before it, or one with the same kinds of properties. Else None.
        """
        start = position + len(shape.method_frame)
        if len(buffer) - position == shape.stride and buffer.startswith(shape.prefix, position):
            key, size, expiration = shape.key, shape.size, shape.expiration
        else:
            headers = self._headers.by_channel.get(shape.channel)
            candidate = None if headers is None else headers.get(buffer[start + 3 : start + 7])
            if candidate is None or candidate.pattern is None:
                return None
            found = candidate.pattern.match(buffer, start)
            if found is None:
                return None
            pattern = candidate.pattern
            key, size = pattern.key, int.from_bytes(found[1], "big")
            expiration = found[2] if pattern.has_expirations else pattern.expiration
            if not 0 < size <= self._body_size_max or found.end() + size + 1 != len(buffer):
                return None
            shape.latest_size = size
            shape.varies = True
            self._varied = shape
        self._position = len(buffer)
        self.has_more = bool(self._chunks)
        self.content_started = True
        return RUN, shape.channel, shape.payload, key, [buffer[start:]], size, expiration

    def _read_run(
        self, shape: PublishShape, contents: list[bytes], body_bytes: int, key: bytes | None, expiration: bytes | None
    ) -> Event | None:
        """The RUN that begins with `contents`, which are consumed already, and goes on at the position.

        `key` and `expiration` are the fate of those contents, None if there are none. None if `contents` is empty and
        what is at the position is not a basic.publish with a whole content in at most one body frame.
        """
        buffer = self._buffer
        matches = buffer.startswith
        position = self._position
        channel = shape.channel
        method_size = len(shape.method_frame)
        size_max = self._body_size_max
        limit = max(1, self.credit.get(channel, 1))
        methods: list[bytes] | None = None  # one for each content, once two differ
        first = shape.payload
        # Where contents with another expiration begin than those before them, and that expiration.
        changes: list[tuple[int, bytes | None]] = [(0, expiration)] if contents else []
        latest: object = expiration if contents else changes  # an expiration never equals a list
        headers = self._headers.by_channel.get(channel) or self._headers.on(channel)
        known = self._shapes.by_method_frame
        most_alike = self._most_alike
        varied = self._varied
        while len(contents) < limit:
            before = len(contents)
            if matches(shape.prefix, position):
                # The bytes up to the body are those of the message before, so the body has the same size too. Each
                # comparison covers the end octet of one message and all of the next up to its body: 60 ns a message.
                if key is None:
                    key = shape.key
                elif key != shape.key:
                    break
                start = position
                stride = shape.stride
                repeated = shape.repeated
                for last in range(start + stride - 1, start + (limit - len(contents) - 1) * stride, stride):
                    if not matches(repeated, last):
                        break
                    position = last + 1
                if position + stride <= len(buffer) and buffer[position + stride - 1] == FRAME_END:
                    position += stride
                if position != start:
                    if shape.expiration != latest:
                        latest = shape.expiration
                        changes.append((before, shape.expiration))
                    body_bytes += shape.size * ((position - start) // stride)
                    take_contents(buffer, start, position, method_size, stride, contents)
                    if methods is not None:
                        methods += [shape.payload] * (len(contents) - before)
                    continue
            elif not matches(shape.method_frame, position):
                # Another routing key, or another exchange: the fate does not depend on it. A method frame that is known
                # is looked up by its bytes; the last byte of its head is its length. `find` takes 0.4 µs more.
                if not contents or position + 7 > len(buffer):
                    break
                other = known.get(buffer[position : position + 8 + buffer[position + 6]])
                if other is None:
                    other = self._shapes.find(buffer, position)
                if other is None or other.channel != channel:
                    break
                if methods is None:
                    methods = [first] * len(contents)
                self._shape = shape = other
                method_size = len(shape.method_frame)
                varied = NO_SHAPE
                continue
            if not shape.varies:
                # A body of another size, or a first message: read the two lengths and compare the rest, 450 ns.
                size = shape.size_at(buffer, position)
                if size >= 0:
                    if key is None:
                        key = shape.key
                    elif key != shape.key:
                        break
                    if shape.expiration != latest:
                        latest = shape.expiration
                        changes.append((before, shape.expiration))
                    end = position + size + (shape.overhead if size else shape.overhead_empty)
                    contents.append(buffer[position + method_size : end])
                    if methods is not None:
                        methods.append(shape.payload)
                    if size == shape.latest_size:
                        shape.expect(buffer[position : end - 1 - size], size)
                    shape.latest_size = size
                    body_bytes += size
                    position = end
                    continue
            # Other properties. The pattern for headers of this length checks them in one go: 900 ns.
            start = position + method_size
            candidate = headers.get(buffer[start + 3 : start + 7])
            if candidate is not None and candidate.pattern is not None:
                pattern = candidate.pattern
                found = pattern.match(buffer, start)
                if found is not None:
                    size = int.from_bytes(found[1], "big")
                    end = found.end() + size + 1
                    if not 0 < size <= size_max or end > len(buffer) or buffer[end - 1] != FRAME_END:
                        break
                    if key is None:
                        key = pattern.key
                    elif key != pattern.key:
                        break
                    its = found[2] if pattern.has_expirations else pattern.expiration
                    if its != latest:
                        latest = its
                        changes.append((before, its))
                    stride = end - position
                    alike = 1
                    if shape is varied and size == shape.latest_size:
                        # The second body of this size in a row, so a third one is likely. What follows is compared with
                        # this message: as much as has been alike lately, so that a message that differs costs little.
                        # Where routing keys alternate, the next message has another one, and comparing costs twice the
                        # match.
                        most = min(limit - len(contents), (len(buffer) - position) // stride, most_alike)
                        if most > 1:
                            alike = pattern.count_alike(buffer, position, method_size, size, most)
                        most_alike = min(2 * most_alike, ALIKE_MOST) if alike == most else ALIKE_FIRST
                    if alike == 1:
                        contents.append(buffer[start:end])
                    else:
                        take_contents(buffer, position, position + alike * stride, method_size, stride, contents)
                    if methods is not None:
                        methods += [shape.payload] * alike
                    body_bytes += alike * size
                    position += alike * stride
                    shape.latest_size = size
                    shape.varies = True
                    varied = shape
                    continue
            # A header of a new shape. It is read value by value, and teaches the shape what to expect.
            if not shape.learn(buffer, position, self._frame_max, self._max_body_size):
                break
            size = shape.size_at(buffer, position)
            if size < 0 or key is not None and key != shape.key:
                break
            key = shape.key
            if shape.expiration != latest:
                latest = shape.expiration
                changes.append((before, shape.expiration))
            self._headers.note(shape, buffer[start + 3 : start + 7])
            end = position + size + (shape.overhead if size else shape.overhead_empty)
            contents.append(buffer[start:end])
            if methods is not None:
                methods.append(shape.payload)
            body_bytes += size
            shape.latest_size = size
            position = end
        if not contents:
            return None
        self._position = position
        self._was_alone = position == len(buffer) and len(contents) == 1
        self._varied, self._most_alike = varied, most_alike
        self.content_started = True
        payloads = first if methods is None or len(set(methods)) == 1 else methods
        expirations = changes[0][1] if len(changes) == 1 else _column(changes, len(contents))
        return RUN, channel, payloads, key, contents, body_bytes, expirations

    def _read_acks(self) -> Event | None:
        """The consecutive basic.ack on one channel; None if the first one is not valid or not complete."""
        buffer = self._buffer
        position = self._position
        kind, channel, _ = HEAD.unpack_from(buffer, position)
        if kind != FRAME_METHOD or channel == 0 or channel in self._assemblies:
            return None
        matches = buffer.startswith
        head = buffer[position : position + 11]
        # Each comparison covers the end of one ack and the beginning of the next. Only bit 0 of the last byte is
        # `multiple`, but struct's `?` is true for any bit; so acks with other bits are left to the frame-by-frame path.
        between = (b"\x00\xce" + head, b"\x01\xce" + head)
        stop = position
        most = min(len(buffer), position + ACKS_MAX * _ACK_FRAME_SIZE)
        for end in range(position + _ACK_FRAME_SIZE, most, _ACK_FRAME_SIZE):
            if not matches(between, end - 2):
                break
            stop = end
        if matches(_ACK_ENDS, stop + _ACK_FRAME_SIZE - 2):
            stop += _ACK_FRAME_SIZE
        if stop == position:
            return None
        self._position = stop
        return ACKS, channel, list(_ACK.iter_unpack(memoryview(buffer)[position:stop]))

    # -- frame by frame ---

    def _read_frame(self) -> Event | None:
        """Consume one frame and return its event, if it has one. An incomplete frame is not consumed."""
        buffer = self._buffer
        position = self._position
        available = len(buffer) - position
        if available < 7:
            self._needed = 7
            return None
        kind, channel, length = HEAD.unpack_from(buffer, position)
        self.frame_size = length
        if length > self._frame_max > 0:
            raise self._out_of_step(kind, b"", f"{{frame_too_large,{length},{self._frame_max - FRAME_OVERHEAD}}}")
        if available < length + FRAME_OVERHEAD:
            self._needed = length + FRAME_OVERHEAD
            if kind == FRAME_BODY and not self._chunks and self._fast and self.phase == RUNNING:
                self._begin_large(channel, length)
            return None
        last = position + 7 + length
        if buffer[last] != FRAME_END:
            payload = buffer[position + 7 : last]
            raise self._out_of_step(kind, payload, f"{{invalid_frame_end_marker,{buffer[last]}}}")
        self._position = last + 1
        phase = self.phase
        if kind == FRAME_BODY and phase == RUNNING:
            assembly = self._assemblies.get(channel)
            if assembly is not None and assembly.has_header:
                return self._body_frame(channel, assembly, position, last)
        event = self._meanings.handle(kind, channel, buffer[position + 7 : last], phase, self._max_body_size)
        if kind == FRAME_HEADER and phase == RUNNING:
            # No other header frame is accepted than that of a content.
            self.content_started = True
            assembly = self._assemblies[channel]
            if not assembly.size:
                return self._complete(channel, assembly)
        return event

    # -- in place ---

    def _begin_large(self, channel: int, length: int) -> None:
        """Receive the rest of a body in place if it is worth it. Its next frame, with a payload of `length` bytes, has
        arrived only in part.
        """
        assembly = self._assemblies.get(channel)
        if assembly is None or assembly.gathered is None or assembly.is_irregular:
            return
        if fits(length, assembly.remaining, len(self._buffer) - self._position - 7):
            if assembly.remaining == assembly.size and len(assembly.gathered) <= SHAPE_SIZE_MAX:
                self._large_start = large_start(
                    channel,
                    assembly.method_payload,
                    assembly.props,
                    bytes(assembly.gathered),
                    assembly.size,
                    length,
                )
            self.large = LargeContent(channel, assembly.gathered, length, assembly.remaining)
            self.large.add(memoryview(self._buffer)[self._position :])
            assembly.gathered = None
            self._buffer = b""
            self._position = 0

    def _is_next(self, start: LargeStart) -> bool:
        """Whether another publish with this start begins in the buffer, and the rest of it is worth receiving
        in place.
        """
        buffer, position = self._buffer, self._position
        return (
            buffer.startswith(start.prefix, position)
            and is_worth_it(start.size, start.total - (len(buffer) - position))
            and start.channel not in self._assemblies
            and not self._chunks
        )

    def _begin_same(self, start: LargeStart) -> None:
        """Receive in place the content of a publish for which `_is_next` is true. Its method and header frames need no
        check, because they are the bytes of `start`, which were checked before.
        """
        self._assemblies[start.channel] = assembly = Assembly(start.method_payload, BasicPublish, None)
        assembly.has_header = True
        assembly.props = start.props
        assembly.size = assembly.remaining = start.size
        self.large = large = LargeContent(start.channel, start.header_frame, start.step, start.size)
        large.add(memoryview(self._buffer)[self._position + len(start.prefix) - 7 :])
        self.content_started = True
        self._buffer = b""
        self._position = 0
        # The body frames that are complete are read now: at the next input they would set `content_started` again.
        self._read_large(large)

    def _read_large(self, large: LargeContent) -> Event | None:
        """The event of a content that has arrived in place. `large` stays set while it is not complete."""
        before = large.checked
        if self.phase != RUNNING or not large.check():
            self.content_started |= large.checked > before
            self._give_up_large(large)
            return None
        self.content_started |= large.checked > before
        if large.remaining:
            return None
        self.large = None
        assembly = self._assemblies[large.channel]
        assembly.gathered = large.take()
        return self._complete(large.channel, assembly)

    def _give_up_large(self, large: LargeContent) -> None:
        """Read on frame by frame, because the frames are not as announced or are not to be read any more."""
        self.large = None
        assembly = self._assemblies[large.channel]
        # Only once for each content, so that a client cannot have the frames so far copied again and again.
        assembly.is_irregular = True
        assembly.remaining = large.remaining
        assembly.gathered, rest = large.give_up()
        self._buffer = rest + self._buffer[self._position :]
        self._position = 0

    def _out_of_step(self, kind: int, payload: bytes, fault: str) -> AmqpError:
        self._dead = True
        self._position = self._chunk_start = self._chunks_size = self._needed = 0
        self._buffer = b""
        self._chunks.clear()
        self.large = None
        self._assemblies.clear()
        self._forget_shapes()
        return AmqpError(FRAME_ERROR, f"{snippet(kind, payload)}: {fault}", fatal=True)

    def _body_frame(self, channel: int, assembly: Assembly, start: int, last: int) -> Event | None:
        """Handle a body frame that lies in the buffer from `start`, with its end octet at `last`."""
        length = last - start - 7
        if length > assembly.remaining:
            # RabbitMQ detects this only at the next frame of another type.
            raise self._meanings.misplaced(
                channel, f"expected content body of {assembly.size} octets, got more instead"
            )
        self.content_started = True
        assembly.remaining -= length
        if assembly.gathered is not None and length:
            # Empty frames are accepted (AB-40) but not kept, because a client may send any number of them.
            part = memoryview(self._buffer)[start : last + 1]
            if assembly.remaining:
                assembly.gathered += part  # a bytearray until it is complete
            else:
                assembly.gathered = b"".join((assembly.gathered, part))
        return None if assembly.remaining else self._complete(channel, assembly)

    def _complete(self, channel: int, assembly: Assembly) -> Event | None:
        del self._assemblies[channel]
        if assembly.method is not None:
            # Only brokers send this method, so the channel refuses it and needs no content (AB-58).
            return METHOD, channel, assembly.method
        if assembly.gathered is None:
            return None
        content = bytes(assembly.gathered)
        key, expiration = fate(assembly.props)
        shape, start = self._shape, self._large_start
        if (
            self._fast
            and shape.channel == channel
            and shape.payload == assembly.method_payload
            and (start is None or not self._is_next(start))
        ):
            if self._position == len(self._buffer) and self._chunks:
                self._next_chunk()
            return self._read_run(shape, [content], assembly.size, key, expiration)
        return RUN, channel, assembly.method_payload, key, [content], assembly.size, expiration


def _column(changes: list[tuple[int, bytes | None]], count: int) -> list[bytes | None]:
    """The expirations of `count` messages, of which each is that of the last change before it."""
    column: list[bytes | None] = []
    ends = [start for start, _ in changes[1:]] + [count]
    for (start, expiration), end in zip(changes, ends):
        column += [expiration] * (end - start)
    return column
