"""The window of a stream: which messages it finds, and how much it keeps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.queue.stream.window import CHUNK_BYTES, WINDOW_BYTES, Piece, StreamWindow
from warren.amqp.fields import table_to_dict
from warren.amqp.frames import build_content, content_properties
from warren.amqp.properties import NO_PROPERTIES, decode_properties
from warren.store.messages.message import Origin

ORIGIN = Origin("", ("s",))


def piece(first, count, size=10, published=0):
    return Piece(first, ORIGIN, [build_content(1, NO_PROPERTIES, b"x" * size, 0)] * count, published)


def offsets(chunk):
    """The offsets in the headers of the messages in a chunk."""
    return [
        table_to_dict(decode_properties(content_properties(content)).headers)["x-stream-offset"]
        for each in chunk.pieces
        for content in each.contents
    ]


def test_each_message_has_its_offset():
    """Each message has its own offset, also in a piece of messages that came together, and behind a gap."""
    window = StreamWindow()
    window.add(range(5, 12), [piece(5, 2), piece(7, 1), piece(10, 2)], 0)
    chunk = window.find(5)
    assert offsets(chunk) == [5, 6, 7, 10, 11]
    assert chunk.firsts == [5, 10]
    assert [window.find(at) is chunk for at in (4, 5, 8, 11, 12)] == [False, True, True, True, False]
    assert window.next_after(4) == 5 and window.next_after(5) is None


def test_what_is_published_joins_the_last_chunk_until_that_is_full():
    window = StreamWindow()
    window.append(range(0, 3), [piece(0, 3)], 0)
    window.append(range(3, 5), [piece(3, 2)], 0)
    assert offsets(window.find(0)) == list(range(5))
    window.append(range(5, 6), [piece(5, 1, CHUNK_BYTES)], 0)
    window.append(range(6, 7), [piece(6, 1)], 0)
    assert window.find(5) is window.find(0) and window.find(6) is not window.find(5)
    window.append(range(9, 10), [piece(9, 1)], 0)
    assert window.find(8) is None and offsets(window.find(9)) == [9]


def test_chunks_that_everybody_has_read_are_dropped():
    window = StreamWindow()
    for at in range(0, 50, 10):
        window.add(range(at, at + 10), [piece(at, 10)], max(0, at - 15))
    assert [window.find(at) is not None for at in range(0, 50, 10)] == [False, False, True, True, True]
    window.clear()
    assert window.find(45) is None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([10, 900_000, 3_000_000])), max_size=20))
def test_it_keeps_a_bounded_number_of_bytes(reads):
    """The window keeps a bounded number of bytes, whatever is read in whatever order, and always the chunk that was
    read last.
    """
    window, chunks = StreamWindow(), set()
    for at, size in reads:
        if window.find(at) is None:
            window.add(range(at, at + 1), [piece(at, 1, size)], 0)
            assert window.find(at).size > size
        chunks = {id(chunk): chunk for number in range(31) if (chunk := window.find(number)) is not None}
        largest = max((chunk.size for chunk in chunks.values()), default=0)
        assert sum(chunk.size for chunk in chunks.values()) <= WINDOW_BYTES + largest
