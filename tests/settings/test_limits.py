"""Limits on memory and disk: sizes with units, shares, and texts that help (queue-and-store section 8)."""

import math
import pickle

import pytest

from warren.settings.limits import (
    LimitError,
    disk_limit,
    memory_limit,
    read_disk_limit,
    read_size,
    read_watermark,
    shown_size,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1073741824", 2**30),
        ("1024MiB", 2**30),
        ("1GB", 10**9),
        ("70MiB", 73_400_320),
        ("50MB", 50_000_000),
        *[(f"3{unit}", 3 * 1024) for unit in ("k", "K", "kiB", "KiB", "kib", "KIB")],
        *[(f"3{unit}", 3 * 1000) for unit in ("kB", "KB", "kb", "Kb")],
        *[(f"3{unit}", 3 * 1024**2) for unit in ("m", "M", "MiB", "MIB")],
        *[(f"3{unit}", 3 * 1000**3) for unit in ("GB", "gb")],
        (" 2 GB ", 2 * 10**9),
        (17, 17),
    ],
)
def test_sizes(text, count):
    """Sizes have RabbitMQ's units, as in the examples of its documents and of disk_monitor_SUITE (QS 8.1)."""
    assert read_size(text) == count


@pytest.mark.parametrize(
    "value", ["1.5GB", "GB", "", "2TB", "-1", -1, 1.0, True, None, "2 G B", "٣MB", 2**63, "9" * 5_000, "9" * 15 + "GB"]
)
def test_what_is_no_size(value):
    """A size is a whole number; fractions are refused (QS 8.1)."""
    with pytest.raises(
        LimitError, match="is not a whole number of bytes, alone or with a unit as in '512MiB' or '2GB'"
    ):
        read_size(value)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (0.4, 0.4),
        (1, 1.0),
        (0, 0.0),
        ({"relative": 0.5}, 0.5),
        ({"relative": 1}, 1.0),
        ({"relative": 0.5, "absolute": "1GB"}, 0.5),
    ],
)
def test_watermarks_that_are_shares(value, read):
    """A share may be written as a whole number, and counts if a size is given as well (CM-184, QS 8.1)."""
    found = read_watermark(value)
    assert (found, type(found)) == (read, float)


@pytest.mark.parametrize(
    ("value", "read"),
    [("2GB", 2 * 10**9), (104_857_600, 104_857_600), ({"absolute": "512MiB"}, 2**29), ({"absolute": 1}, 1)],
)
def test_watermarks_that_are_sizes(value, read):
    found = read_watermark(value)
    assert (found, type(found)) == (read, int)


@pytest.mark.parametrize(
    "value",
    [1.5, -0.1, math.nan, "lots", {}, {"abs": 1}, {"relative": "2GB"}, {"relative": 2}, {"absolute": 0.5}, None, False],
)
def test_what_is_no_watermark(value):
    with pytest.raises(LimitError, match="is not a share of memory from 0.0 to 1.0, or a whole number of bytes"):
        read_watermark(value)


def test_disk_limits():
    """A disk limit is a size or a multiple of the memory, which RabbitMQ's command calls mem_relative and its
    configuration relative (QS 8.6).
    """
    assert read_disk_limit("1GB") == 10**9
    assert read_disk_limit(0) == 0
    assert [read_disk_limit({name: 1}) for name in ("relative", "mem_relative")] == [1.0, 1.0]
    assert [disk_limit(read_disk_limit(value), 1001) for value in (1.5, 1.0, {"absolute": 7}, 5000)] == [
        1502,
        1001,
        7,
        5000,
    ]
    for value in (5e7, -1.0, {"relative": "1"}, {"limit": 1}, True, None):
        with pytest.raises(LimitError, match="is not a multiple of memory such as 1.5, or"):
            read_disk_limit(value)


@pytest.mark.parametrize("value", [0.4, 1.0, 2**29])
def test_what_was_read_reads_as_the_same(value):
    """A value that was read is read as the same again, because settings are read when they are made and again where
    they are used.
    """
    assert read_watermark(read_watermark(value)) == read_disk_limit(read_disk_limit(value)) == value


def test_the_limit_is_never_more_than_there_is():
    """The limit is never more than the memory that there is (set_vm_memory_high_watermark_relative1, _relative2 and
    _absolute: QS 12.5).
    """
    total = 16_000_000_001
    assert memory_limit(read_watermark(1.0), total) == memory_limit(read_watermark({"relative": 1.0}), total) == total
    assert memory_limit(read_watermark(104_857_600), total) == 104_857_600
    assert memory_limit(read_watermark("100GB"), total) == total
    assert memory_limit(0.4, total) == 6_400_000_000


def test_errors_travel_between_processes():
    error = pickle.loads(pickle.dumps(LimitError("much", "a number")))
    assert (str(error), error.wanted) == ("'much' is not a number", "a number")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (2**20, "1 MiB"), (10_110_604_083, "9.4 GiB"), (1536, "1.5 KiB")],
)
def test_sizes_for_people(count, text):
    assert shown_size(count) == text
