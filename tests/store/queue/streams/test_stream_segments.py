"""The segments of a stream: when one is begun, and which leave."""

from hypothesis import given
from hypothesis import strategies as st

from warren.store.queue.streams import stream_segments
from warren.store.queue.streams.stream_segments import StreamSegments


def filled(*publishes, most_bytes=100):
    """Segments of publishes, each as (messages, body bytes, time)."""
    segments, at = StreamSegments(), 0
    begun = []
    for messages, body_bytes, time in publishes:
        begun.append(segments.append(range(at, at + messages), body_bytes, time, most_bytes))
        at += messages
    return segments, begun


def test_a_segment_ends_with_the_publish_that_fills_it():
    segments, begun = filled((5, 60, 1), (5, 60, 2), (1, 1, 3), (1, 200, 4), (1, 1, 5))
    assert begun == [False, False, True, False, True]
    assert segments.rows() == [(0, 10, 120, 2), (10, 2, 201, 4), (12, 1, 1, 5)]


def test_the_oldest_segments_leave_while_there_are_too_many_bytes():
    segments, _ = filled(*[(10, 100, 1)] * 5)
    assert [segments.kept_from(most, 0) for most in (None, 500, 499, 300, 299, 0)] == [0, 0, 10, 20, 30, 40]


def test_segments_leave_when_their_youngest_message_is_too_old():
    """A segment leaves when its youngest message is too old, and an older message in it stays as long as that one. The
    last segment never leaves.
    """
    segments, _ = filled((10, 50, 1), (10, 50, 9), (10, 100, 10), (10, 100, 11))
    assert [segments.kept_from(None, oldest) for oldest in (0, 1, 9, 10, 11, 99)] == [0, 0, 0, 20, 30, 30]


def test_dropping():
    segments, _ = filled(*[(10, 100, 1)] * 4)
    assert segments.drop_before(9) == (0, 0)
    assert segments.drop_before(25) == (20, 200)
    assert segments.first(-1) == 20 and segments.kept_from(200, 0) == 20
    assert segments.drop_before(99) == (10, 100), "the last segment stays"
    assert StreamSegments().drop_before(99) == (0, 0)


def test_where_a_time_is():
    segments, _ = filled((10, 100, 5), (10, 100, 7), (10, 100, 9))
    assert [segments.published_from(time) for time in (0, 5, 6, 8, 9)] == [
        range(0, 10),
        range(0, 10),
        range(10, 20),
        range(20, 30),
        range(20, 30),
    ]
    assert not segments.published_from(10) and not StreamSegments().published_from(0)


def test_a_stream_has_only_so_many_segments(monkeypatch):
    """A client may have each publish begin a segment. Then neighbours are joined, so that memory stays bounded, and
    retention keeps what the joined segments allow.
    """
    monkeypatch.setattr(stream_segments, "MOST_SEGMENTS", 7)
    segments, _ = filled(*[(1, 10, time) for time in range(100)], most_bytes=0)
    rows = segments.rows()
    assert len(rows) <= 7
    assert [first for first, *_ in rows] == [sum(messages for _, messages, *_ in rows[:at]) for at in range(len(rows))]
    assert sum(messages for _, messages, *_ in rows) == 100 and sum(size for *_, size, _ in rows) == 1000
    assert [published for *_, published in rows] == [first + messages - 1 for first, messages, *_ in rows]
    first = segments.kept_from(500, 0)
    messages, body_bytes = segments.drop_before(first)
    assert (messages, body_bytes) == (first, 10 * first) and 1000 - body_bytes <= 500


@given(
    publishes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 300), st.integers(0, 3)), min_size=1),
    most_bytes=st.integers(0, 400),
    limit=st.integers(0, 1000),
    oldest=st.integers(0, 3),
)
def test_what_is_kept_is_within_the_limits(publishes, most_bytes, limit, oldest):
    """What is kept is within the limits, and no more is dropped than necessary. The examples make equal segments."""
    times = sorted(time for *_, time in publishes)
    segments, _ = filled(*[(m, b, t) for (m, b, _), t in zip(publishes, times)], most_bytes=most_bytes)
    rows = segments.rows()
    dropped, body_bytes = segments.drop_before(segments.kept_from(limit, oldest))
    kept = segments.rows()
    assert rows[len(rows) - len(kept) :] == kept and kept
    gone = rows[: len(rows) - len(kept)]
    assert (sum(row[1] for row in gone), sum(row[2] for row in gone)) == (dropped, body_bytes)
    assert len(kept) == 1 or sum(row[2] for row in kept) <= limit and kept[0][3] >= oldest
    if gone:
        assert sum(row[2] for row in [gone[-1], *kept]) > limit or gone[-1][3] < oldest
    assert StreamSegments(kept).rows() == kept
