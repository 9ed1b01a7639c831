"""`store.checksum`: the values of zlib, whichever library computes them and in how many pieces."""

import subprocess
import sys
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


def test_without_isal_the_sums_are_those_of_zlib():
    """No build of isal exists for some machines."""
    code = """
import sys
sys.modules["isal"] = None
from warren.store.checksum import crc32, crc32_of_all
print(crc32_of_all.__module__, crc32(bytes(20_000), 5))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=60)
    assert done.stdout.split() == ["zlib", str(zlib.crc32(bytes(20_000), 5))], done.stderr
