"""`PackedContents` is the list of contents that it would be cut into (CL-13)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.store.messages.packed_contents import AT_A_TIME, PackedContents, cut

#: Contents of one size, as most runs have them, and of several.
CONTENTS = st.tuples(st.integers(1, 3 * AT_A_TIME), st.integers(1, 20)).map(
    lambda drawn: [bytes((number % 256,)) * drawn[1] for number in range(drawn[0])]
) | st.lists(st.binary(max_size=20), min_size=1, max_size=40)

PLACE = st.none() | st.integers(-120, 120)
PIECE = st.builds(slice, PLACE, PLACE, st.none() | st.sampled_from((1, 2, 3, -1)))


def packed(contents):
    """These contents in the middle of other bytes."""
    sizes = list(map(len, contents))
    one_size = sizes[0] and sizes == sizes[:1] * len(sizes)
    return PackedContents(b"before" + b"".join(contents) + b"behind", 6, len(contents), sizes[0] if one_size else sizes)


@given(CONTENTS, PIECE, st.booleans())
def test_a_piece_has_what_the_same_piece_of_a_list_has(contents, piece, is_cut):
    """A queue slices runs for its consumers, before or after it has looked at the contents."""
    run = packed(contents)
    if is_cut:
        assert list(run) == contents
    assert list(run[piece]) == contents[piece]
    assert [run[0], run[-1], len(run), list(run)] == [contents[0], contents[-1], len(contents), contents]


@given(CONTENTS, PIECE)
def test_a_piece_of_neighbours_stays_in_one_piece(contents, piece):
    """What a consumer on another node gets of a run leaves without another copy."""
    found = packed(contents)[piece]
    if (piece.step or 1) == 1 and contents[piece]:
        assert bytes(found.in_one_piece) == b"".join(contents[piece])
        assert cut(bytes(found.in_one_piece), 0, len(found), found.sizes) == contents[piece]
