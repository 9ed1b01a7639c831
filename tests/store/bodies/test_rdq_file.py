"""Records of the message store's files: written records are found, and damaged ones are never returned."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.bodies.rdq_file import (
    HEAD,
    OVERHEAD,
    DamagedRecord,
    FoundRecord,
    file_name,
    file_number,
    parse_record,
    read_message,
    record,
    scan,
)
from warren.store.bodies.walk_records import walk_records
from warren.store.disk.faulty_disk import FaultyDisk

messages = st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.binary(max_size=60)), max_size=8)


def file_of(data: bytes):
    disk = FaultyDisk()
    file = disk.open("1.rdq", create=True)
    file.append([data])
    return file


def layout(records) -> tuple[bytes, list[FoundRecord]]:
    """The bytes of the records, and the offset of each."""
    data, found = b"", []
    for message_id, message in records:
        found.append(FoundRecord(message_id, len(data), len(message) + OVERHEAD))
        data += b"".join(record(message_id, message))
    return data, found


def test_layout_is_the_documented_one():
    """A record has the documented layout: its size field counts everything between itself and the marker."""
    data = b"".join(record(b"i" * 16, b"message"))
    assert data[:8] == (16 + 1 + 4 + 7).to_bytes(8, "big")
    assert data[8:24] == b"i" * 16
    assert data[24] == 1
    assert data[29:] == b"message\xff"
    assert int.from_bytes(data[:8], "big") + 9 == len(data)


@given(messages, st.integers(1, 200))
def test_scan_finds_every_record(records, block):
    """A scan finds every record, whatever the size of the blocks it reads."""
    data, found = layout(records)
    file = file_of(data)
    assert list(scan(file, block=max(block, HEAD.size))) == found
    assert [read_message(file, f.offset, f.total_size, f.message_id) for f in found] == [
        message for _, message in records
    ]


@given(messages, st.data())
def test_scan_of_a_torn_file_finds_what_is_whole(records, data):
    """A scan of a file with a torn tail, or with zeros at its end, finds the records that are whole."""
    whole, found = layout(records)
    cut = data.draw(st.integers(0, len(whole)))
    expected = [f for f in found if f.offset + f.total_size <= cut]
    assert list(scan(file_of(whole[:cut]))) == expected
    # A record of zeros is not whole either, since its marker is wrong.
    assert list(scan(file_of(whole[:cut] + bytes(200)))) == expected


@given(messages.filter(bool), st.data())
def test_damaged_record_is_passed_over(records, data):
    """D-19: a flipped bit in size, id, checksum, message or marker costs that record, and no other."""
    whole, found = layout(records)
    victim = data.draw(st.integers(0, len(found) - 1))
    at = data.draw(st.integers(found[victim].offset, found[victim].offset + found[victim].total_size - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    file = file_of(bytes(damaged))
    assert [part for part in walk_records(file) if isinstance(part, FoundRecord)] == found[:victim] + found[
        victim + 1 :
    ]
    with pytest.raises(DamagedRecord):
        read_message(file, found[victim].offset, found[victim].total_size, records[victim][0])


@pytest.mark.parametrize("sizes", list(product((0, 4, 34, 64), repeat=3)))
def test_a_damaged_size_may_lead_to_the_end_of_another_record(sizes):
    """If a damaged size leads to the end of another record, the records in between are found all the same (D-19)."""
    whole, found = layout([(bytes([number]) * 16, bytes(size)) for number, size in enumerate(sizes)])
    for bit in range(64):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        walked = list(walk_records(file_of(bytes(damaged))))
        assert [part for part in walked if isinstance(part, FoundRecord)] == found[1:]


def test_records_in_a_damaged_message_are_not_taken_for_those_of_the_store():
    inner, _ = layout([(b"i" * 16, b"inner"), (b"j" * 16, b"inner")])
    whole, found = layout([(b"a" * 16, inner), (b"b" * 16, b"two")])
    damaged = bytearray(whole)
    damaged[9] ^= 1
    assert [part for part in walk_records(file_of(bytes(damaged))) if isinstance(part, FoundRecord)] == found[1:]


@given(st.binary(max_size=300))
def test_scan_of_anything_ends(data):
    """Random bytes give no record and no error."""
    assert list(scan(file_of(data))) == []


def test_wrong_place_is_damage():
    """Reading raises DamagedRecord if another record is at the place, if its size is another, or if the file ends."""
    data, found = layout([(b"a" * 16, b"one"), (b"b" * 16, b"two")])
    file = file_of(data)
    for offset, size, message_id in [
        (0, found[0].total_size, b"b" * 16),
        (0, found[0].total_size + 1, b"a" * 16),
        (found[1].offset, 1000, b"b" * 16),
        (5, found[0].total_size, b"a" * 16),
        (1000, 40, b"a" * 16),
    ]:
        with pytest.raises(DamagedRecord):
            read_message(file, offset, size, message_id)
    assert parse_record(data[: found[0].total_size], b"a" * 16) == b"one"


def test_names():
    """Only names of data files have a number; other names have none."""
    assert file_name(12) == "12.rdq"
    assert [file_number(name) for name in ("12.rdq", "12.rdt", "x.rdq", ".rdq", "07.rdq", "\u0663.rdq", "12")] == [
        12,
        None,
        None,
        None,
        None,
        None,
        None,
    ]
