"""`DeliveryReader` reads the same messages as a reader that decodes every frame, however the input is cut."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from warren.amqp import methods
from warren.amqp.decoding import decode_method
from warren.amqp.frames import build_content, heartbeat, method_frame, split_frames
from warren.perf_test.deliveries import BUFFER_BYTES, DeliveryBatch, DeliveryReader

#: Equal deliveries, and how many of them follow each other.
_alike = st.tuples(
    st.sampled_from(["c", "another tag"]),
    st.integers(1, 2),
    st.sampled_from(["", "key", "kex"]),
    st.sampled_from([b"\x00\x00", b"\x10\x00\x02", b"\x10\x00\x01"]),
    st.sampled_from([0, 1, 12, 13, 5000, 9000]),
    st.integers(1, 40),
)


def stream(groups):
    """The frames of the groups; delivery tags count up on each channel."""
    tags = {1: 0, 2: 0}
    found = []
    for consumer, channel, key, props, size, count in groups:
        for _ in range(count):
            tags[channel] += 1
            found.append(method_frame(channel, methods.BasicDeliver(consumer, tags[channel], False, "x", key)))
            found.append(build_content(channel, props, bytes((tags[channel] % 256,)) * size, 4096))
        found.append(heartbeat() if count % 2 else method_frame(channel, methods.BasicConsumeOk(consumer)))
    return b"".join(found)


def slowly(data):
    """Each delivery of the stream as channel, tag, and the part of the body in its first frame."""
    frames, rest = split_frames(data)
    assert not rest
    found: list[list] = []
    for kind, channel, payload in frames:
        method = decode_method(payload) if kind == 1 else None
        if isinstance(method, methods.BasicDeliver):
            found.append([channel, method.delivery_tag, None])
        elif kind == 3 and found[-1][2] is None:
            found[-1][2] = payload
    return [tuple(each) for each in found]


def feed(reader, data):
    """Have the reader receive `data`, each time at most as much as it has room for."""
    rest = memoryview(data)

    def read(room):
        nonlocal rest
        size = min(len(room), len(rest))
        room[:size], rest = rest[:size], rest[size:]
        return size

    while rest:
        reader.receive(read)


def fast(data, cuts):
    found, others = [], []

    def on_batch(batch: DeliveryBatch):
        for index in range(batch.messages):
            body = None
            if batch.body_at is not None:
                at = batch.start + index * batch.length + batch.body_at
                size = int.from_bytes(batch.data[at - 4 : at], "big")
                body = bytes(batch.data[at : at + size])
            found.append((batch.channel, batch.first_tag + index, body))

    reader = DeliveryReader(on_batch, lambda *frame: others.append(frame))
    places = [0, *sorted(cuts), len(data)]
    for start, stop in zip(places, places[1:]):
        feed(reader, data[start:stop])
    return found, len(others)


@given(st.lists(_alike, min_size=1, max_size=6), st.data())
@example([("c", 1, "key", b"\x00\x00", 12, 40), ("c", 1, "kex", b"\x00\x00", 12, 40)], None)
def test_it_finds_what_a_slow_reader_finds(groups, data):
    bytes_in = stream(groups)
    cuts = [] if data is None else data.draw(st.lists(st.integers(0, len(bytes_in)), max_size=5))
    found, others = fast(bytes_in, cuts)
    assert found == slowly(bytes_in)
    assert others == len(groups)


def test_deliveries_that_are_alike_are_one_batch():
    """Equal deliveries are one batch. If each were handled by itself, the load test would be the bottleneck and not the
    broker.
    """
    batches = []
    feed(DeliveryReader(batches.append, lambda *frame: None), stream([("c", 1, "key", b"\x00\x00", 12, 1000)]))
    assert [batch.messages for batch in batches] == [1000]


def test_a_message_may_be_larger_than_the_buffer():
    size = 3 * BUFFER_BYTES
    found, _ = fast(stream([("c", 1, "key", b"\x00\x00", size, 2), ("c", 1, "key", b"\x00\x00", 5, 40)]), [])
    assert [tag for _, tag, _ in found] == list(range(1, 43))
    assert {len(body) for _, _, body in found} == {4096 - 8, 5}
