"""Frames and contents as bytes (AB-41, AB-43 to AB-45).

A frame::

    type u8 | channel u16 | length u32 | payload | 0xCE

A **content** is a header frame and the body frames that follow it, all on one channel, as one `bytes`::

    0   1      3         7     9        11            19            h
    02  chan   length    0060  weight   body size u64 flags, values CE   03 chan length body CE   03 …

So `content[1:3]` is the channel, `content[11:19]` the body size, and `content[19:h]` the properties. The content of an
empty body has no body frame, and no body frame of a content is empty, because the reader drops empty ones.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from .constants import CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_ERROR, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from .errors import AmqpError
from .method import Method

HEAD = struct.Struct(">BHI")
CONTENT_HEAD = struct.Struct(">BHIHHQ")
END = b"\xce"

#: Above this many bytes, frames are cut from a memoryview, whose slices copy nothing; below, slices of `bytes` cost
#: less.
_VIEWED_FROM = 8192

_HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame of any type."""
    return HEAD.pack(kind, channel, len(payload)) + payload + END


def method_frame(channel: int, method: Method) -> bytes:
    """The frame of `method` on `channel`."""
    return frame(FRAME_METHOD, channel, method.encode())


def heartbeat() -> bytes:
    """A heartbeat frame (AB-25)."""
    return _HEARTBEAT


def build_content(channel: int, props: bytes, body: bytes, frame_max: int) -> bytes:
    """The content of `body`, cut into frames of at most `frame_max` bytes; 0 is no limit (AB-44)."""
    head = CONTENT_HEAD.pack(FRAME_HEADER, channel, 12 + len(props), CLASS_BASIC, 0, len(body))
    parts: list[bytes | memoryview] = [head, props, END]
    step = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    view = memoryview(body) if len(body) > _VIEWED_FROM else body
    for start in range(0, len(body), step or 1):
        piece = view[start : start + step]
        parts += (HEAD.pack(FRAME_BODY, channel, len(piece)), piece, END)
    return b"".join(parts)


def build_content_of(channel: int, props: bytes, pieces: Sequence[bytes], frame_max: int) -> bytes:
    """The content whose body is `pieces`, one behind the other, in frames of at most `frame_max` bytes.

    Frames end between two pieces, unless a piece is larger than a frame. So each byte is copied once, which counts for
    a body of a megabyte.
    """
    ends = list(accumulate(map(len, pieces)))
    head = CONTENT_HEAD.pack(FRAME_HEADER, channel, 12 + len(props), CLASS_BASIC, 0, ends[-1] if ends else 0)
    parts: list[bytes | memoryview] = [head, props, END]
    limit = frame_max - FRAME_OVERHEAD
    at = begin = 0
    while at < len(pieces):
        stop = bisect_right(ends, begin + limit, lo=at)
        if stop > at:
            if ends[stop - 1] > begin:
                parts.append(HEAD.pack(FRAME_BODY, channel, ends[stop - 1] - begin))
                parts += pieces[at:stop]
                parts.append(END)
            at = stop
        else:
            view = memoryview(pieces[at])
            for start in range(0, len(view), limit):
                slice_ = view[start : start + limit]
                parts += (HEAD.pack(FRAME_BODY, channel, len(slice_)), slice_, END)
            at += 1
        begin = ends[at - 1]
    return b"".join(parts)


def content_properties(content: bytes) -> bytes:
    """The `props` of a content: its property flags and values, still encoded."""
    return content[19 : 7 + int.from_bytes(content[3:7], "big")]


def content_size(content: bytes) -> int:
    """The size of the body in bytes, without frame heads and ends."""
    return int.from_bytes(content[11:19], "big")


def content_body(content: bytes) -> bytes:
    """The body, joined if it lies in several frames."""
    first = _first_body_frame(content)
    size = content_size(content)
    if len(content) - first == size + FRAME_OVERHEAD:
        return content[first + 7 : -1]
    view = memoryview(content)
    return b"".join([view[start + 7 : stop] for start, stop in _body_frames(content)])


def _first_body_frame(content: bytes) -> int:
    return FRAME_OVERHEAD + int.from_bytes(content[3:7], "big")


def _body_frames(content: bytes) -> Iterable[tuple[int, int]]:
    """The position of each body frame, and the position of its end octet."""
    position = _first_body_frame(content)
    while position < len(content):
        stop = position + 7 + int.from_bytes(content[position + 3 : position + 7], "big")
        yield position, stop
        position = stop + 1


@lru_cache(maxsize=16)
def framing(channel: int, step: int, size: int) -> tuple[struct.Struct, tuple[bytes, ...]]:
    """The heads and ends of body frames that hold `size` bytes, `step` in each frame except perhaps the last.

    Returns a Struct that takes the heads and ends out of the frames with one call, and the value that this call returns
    if the framing is right.
    """
    lengths = [step] * (size // step) + [size % step] * (size % step > 0)
    heads = [HEAD.pack(FRAME_BODY, channel, length) for length in lengths]
    layout = "".join(f"{length}x8s" for length in lengths[:-1])
    return struct.Struct(f">7s{layout}{lengths[-1]}x1s"), (heads[0], *(END + head for head in heads[1:]), END)


def _fits(content: bytes, limit: int) -> bool:
    """Whether no body frame of the content has a payload of more than `limit` bytes."""
    first = _first_body_frame(content)
    channel, size = int.from_bytes(content[1:3], "big"), content_size(content)
    step = int.from_bytes(content[first + 3 : first + 7], "big")
    if size and 0 < step <= limit:
        layout, expected = framing(channel, step, size)
        if layout.size == len(content) - first and layout.unpack_from(content, first) == expected:
            return True
    return all(stop - start - 7 <= limit for start, stop in _body_frames(content))


def rechannel(content: bytes, channel: int) -> bytes:
    """The same content on another channel: two bytes change in each frame."""
    number = channel.to_bytes(2, "big")
    if content[1:3] == number:
        return content
    first = _first_body_frame(content)
    view = memoryview(content) if len(content) > _VIEWED_FROM else content
    parts: list[bytes | memoryview] = [b"\x02", number, view[3:first]]
    for start, stop in _body_frames(content):
        parts += (b"\x03", number, view[start + 3 : stop + 1])
    return b"".join(parts)


def rechannel_run(contents: Sequence[bytes], channel: int) -> list[bytes]:
    """:func:`rechannel` for a run. Contents with the same framing as the first, the usual case, cost 0.13 µs each."""
    if not contents:
        return []
    sample = contents[0]
    if sample[1:3] == channel.to_bytes(2, "big"):
        return list(contents)
    # If the first body frame of `sample` holds the whole body, then so does that of each content with the same head,
    # and only the bytes before the body change with the channel.
    cut = _first_body_frame(sample) + 7
    head = sample[:cut]
    if cut > len(sample) or sample[cut - 4 : cut] != sample[15:19] or sample[11:15] != b"\0\0\0\0":
        return [rechannel(content, channel) for content in contents]
    new_head = rechannel(sample, channel)[:cut]
    return [
        new_head + content[cut:] if content.startswith(head) else rechannel(content, channel) for content in contents
    ]


def fit(content: bytes, channel: int, frame_max: int) -> bytes:
    """The content on `channel`, with the body in smaller frames if one of them exceeds `frame_max` (AB-44)."""
    if frame_max and len(content) > frame_max:
        limit = frame_max - FRAME_OVERHEAD
        if not _fits(content, limit):
            return build_content(channel, content_properties(content), content_body(content), frame_max)
    return rechannel(content, channel)


def split_frames(buffer: bytes) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """Parse the input of a client: the complete frames `(type, channel, payload)` in `buffer`, and the bytes left over.

    Raises AmqpError 501 if a frame does not end in 0xCE.
    """
    found = []
    position = 0
    while position + 7 <= len(buffer):
        kind, channel, length = HEAD.unpack_from(buffer, position)
        stop = position + 7 + length
        if stop >= len(buffer):
            break
        if buffer[stop] != FRAME_END:
            raise AmqpError(FRAME_ERROR, f"frame of type {kind} ends in {buffer[stop]}", fatal=True)
        found.append((kind, channel, bytes(buffer[position + 7 : stop])))
        position = stop + 1
    return found, bytes(buffer[position:])


def with_properties(content: bytes, props: bytes) -> bytes:
    """The content with `props` in place of its properties: a new header frame in front of the same body frames."""
    header = HEAD.pack(FRAME_HEADER, int.from_bytes(content[1:3], "big"), 12 + len(props)) + content[7:19]
    return b"".join([header, props, END, content[_first_body_frame(content) :]])
