"""How a channel gathers its output: large contents are not copied, and everything else is joined into few pieces."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from warren.actors.channel.client_output import LARGE_CONTENT, LARGE_RUN, ClientOutput
from warren.actors.connection.output import FIRST_WRITE

SIZES = st.sampled_from([1, 50, LARGE_CONTENT - 1, LARGE_CONTENT, LARGE_CONTENT + 1])
STEPS = st.lists(st.one_of(SIZES, st.lists(SIZES, min_size=1, max_size=4)), max_size=8)


@given(STEPS)
def test_frames_and_deliveries_leave_in_order(steps: list[int | list[int]]) -> None:
    """In the examples a number is a frame of that size, and a list has the contents of a delivered run."""
    output = ClientOutput(1, 131072)
    expected: list[bytes] = []
    large: list[bytes] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            frame = bytes([number]) * step
            output.frames.append(frame)
            expected.append(frame)
            continue
        heads = [b"head %d.%d" % (number, at) for at in range(len(step))]
        contents = [bytes([number + at]) * size for at, size in enumerate(step)]
        output.put_deliveries(heads, contents)
        expected += [piece for pair in zip(heads, contents) for piece in pair]
        large += [content for content in contents if len(content) >= LARGE_CONTENT]
    pieces, _ = output.take()
    assert b"".join(pieces) == b"".join(expected)
    assert [piece for piece in pieces if any(piece is content for content in large)] == large
    assert len(pieces) <= 2 * len(large) + 1
    assert output.take() == ([], [])


@given(st.integers(1, 400), st.sampled_from([10, 1_000, 5_000]), st.booleans())
def test_the_first_deliveries_of_a_large_run_from_another_node_are_a_piece(count: int, size: int, is_far: bool) -> None:
    """Everything before them belongs to that piece too, and it has at least as much as the connection writes first."""
    output = ClientOutput(1, 131072)
    output.frames.append(b"before")
    parts = [(b"head", b"tag", b"tail", b"c" * size) for _ in range(count)]
    output.put_run(chain.from_iterable(parts), size, count if is_far else 0)
    output.frames.append(b"behind")
    pieces, _ = output.take()
    assert b"".join(pieces) == b"before" + b"".join(map(b"".join, parts)) + b"behind"
    assert len(pieces) == 1 + (is_far and count * size > LARGE_RUN)
    assert len(pieces) == 1 or FIRST_WRITE <= len(pieces[0]) <= FIRST_WRITE + 2 * (size + 20) + count * 11
