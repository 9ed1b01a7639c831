"""`store.checksum`: the values of zlib, whichever library computes them and in how many pieces."""

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.store import checksum

SIZES = [0, 1, checksum.KEEPING_BYTES, checksum.KEEPING_BYTES + 1, 3 * checksum.KEEPING_BYTES]
SIZES += [checksum.GIVING_UP_BYTES - 1, checksum.GIVING_UP_BYTES, checksum.GIVING_UP_BYTES + 1]


@given(st.binary(max_size=100), st.integers(0, 2**32 - 1), st.sampled_from([bytes, bytearray, memoryview]))
@example(b"", 7, bytes)
def test_any_bytes_have_the_sum_that_zlib_gives(data, value, kind):
    assert checksum.crc32(kind(data), value) == zlib.crc32(data, value)


@pytest.mark.parametrize("size", SIZES)
def test_a_sum_in_pieces_is_that_of_the_whole(size):
    data = bytes(range(256)) * (size // 256 + 1)
    assert checksum.crc32(data[:size], 5) == zlib.crc32(data[:size], 5)
