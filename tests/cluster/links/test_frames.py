"""The reader of frames, with its input cut anywhere, all in one piece, or of any bytes (QP-141, QP-142)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.links.encoding.frames import (
    HEAD,
    MAX_HEADER,
    Header,
    LinkFrameError,
    LinkFrameReader,
    frame,
    frame_head,
    json_frame,
    json_header,
    msgpack_frame,
    msgpack_header,
)

FRAMES = st.lists(
    st.builds(lambda header, body: frame(2, header, body), st.binary(max_size=40), st.binary(max_size=200)), max_size=6
)


def frames_of(reader):
    found = []
    while (one := reader.next()) is not None:
        found.append((one.type, bytes(one.header), bytes(one.body)))
    return found


def test_the_frame_of_the_specification():
    encoded = bytes.fromhex("0000000e 02000008 97 22 03 01 07 00 c0 80 6869")
    reader = LinkFrameReader(1_000)
    reader.feed(encoded)
    found = reader.next()
    assert msgpack_header(found.header) == Header(34, 7, 0, "", {})
    assert bytes(found.body) == b"hi"
    assert msgpack_frame(34, 7) == encoded[:3] + b"\x0c" + encoded[4:-2]


@given(FRAMES, st.lists(st.integers(0, 1_500), max_size=8))
def test_input_may_be_cut_anywhere(frames, cuts):
    stream = b"".join(frames)
    whole = LinkFrameReader(10_000)
    whole.feed(stream)
    expected = frames_of(whole)
    assert len(expected) == len(frames) and whole.waiting == 0
    reader, found, at = LinkFrameReader(10_000), [], 0
    for cut in [*sorted(cut for cut in cuts if cut < len(stream)), len(stream)]:
        reader.feed(stream[at:cut])
        found += frames_of(reader)
        at = cut
    assert found == expected and reader.waiting == 0


def test_byte_by_byte():
    stream = json_frame({"code": 1}) + msgpack_frame(3, 1) + frame(2, b"\x90", b"body")
    reader, found = LinkFrameReader(10_000), []
    for at in range(len(stream)):
        reader.feed(stream[at : at + 1])
        found += frames_of(reader)
    assert [body for _, _, body in found] == [b"", b"", b"body"]


@given(st.binary(max_size=300), st.integers(8, 300))
def test_any_bytes_are_frames_or_an_error(data, max_frame):
    """The reader never keeps more bytes than it got, and never waits for more than the largest frame."""
    reader = LinkFrameReader(max_frame)
    reader.feed(data)
    try:
        while (found := reader.next()) is not None:
            for decode in (json_header, msgpack_header):
                try:
                    decode(found.header)
                except LinkFrameError:
                    pass
    except LinkFrameError:
        return
    assert reader.waiting < max(max_frame, HEAD)


@pytest.mark.parametrize(
    "head",
    [
        frame_head(2, 0, 10_000),
        frame_head(2, MAX_HEADER + 1, 100),
        frame_head(1, 4, 4),
        bytes.fromhex("00000003 02000000"),
        bytes.fromhex("00000008 02000005"),
    ],
    ids=["too large", "header too large", "unknown type", "too short", "header longer than the frame"],
)
def test_a_wrong_head_is_refused_at_once(head):
    """A wrong head is an error before the bytes that it announces have arrived, and the error's text shows the head."""
    reader = LinkFrameReader(10_000)
    reader.feed(head)
    with pytest.raises(LinkFrameError, match=head[:4].hex(" ")):
        reader.next()


@pytest.mark.parametrize("text", [b"[1]", b"{", b'"a"', b"\xff", b"[" * 30_000])
def test_a_json_header_is_an_object(text):
    with pytest.raises(LinkFrameError, match="JSON"):
        json_header(text)


def test_frames_before_a_fault_count():
    reader = LinkFrameReader(1_000)
    reader.feed(msgpack_frame(3, 1) + b"GET / HTTP/1.1\r\n")
    assert reader.next() is not None
    with pytest.raises(LinkFrameError, match="47 45 54"):
        reader.next()
