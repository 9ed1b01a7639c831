"""`scan_segment` after an unclean end (queue-and-store section 5.5), compared with a plain count."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.segment_file import Entries, encode
from warren.store.index.segment_scan import scan_segment
from warren.store.journal.replay import Replayed
from warren.store.messages.message import Origin
from warren.store.messages.records import make_stub
from warren.store.messages.run import Run

ENTRIES, BASE = 32, 64
PERSISTENT, TRANSIENT = Origin("x", ("k",), persistent=True), Origin("x", ("k",), persistent=False)
PATH = "q/2.idx"


def size_of(number: int) -> int:
    return number % 3 + 1


def run_of(first: int, count: int, origin: Origin = PERSISTENT, stored: bool = False, expiry: int | None = None) -> Run:
    numbers = range(BASE + first, BASE + first + count)
    contents = [
        make_stub(number.to_bytes(16, "big"), size_of(number))
        if stored
        else bytes(11) + size_of(number).to_bytes(8, "big") + b"x"
        for number in numbers
    ]
    return Run(BASE + first, contents, origin, expiry, False, sum(map(size_of, numbers)))


def write(disk: FaultyDisk, *flushes: tuple[list[Entries], list[range]]) -> None:
    """Write a segment's file, one flush after the other."""
    disk.make_dir("q")
    file = disk.open(PATH, create=True)
    for pieces, acks in flushes:
        buffers, _, _ = encode(pieces, acks, file.size())
        file.append(buffers)
    file.sync()
    file.close()


def scan(disk: FaultyDisk, replayed: Replayed | None = None):
    return scan_segment(disk, PATH, BASE, ENTRIES, replayed or Replayed())


def numbers_in(spans) -> list[int]:
    return [number - BASE for span in spans for number in span]


def test_what_is_there_and_not_acked():
    """The scan counts entries without an ack and their bytes, and finds the bodies in a message store."""
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 8), False), Entries(run_of(8, 4, stored=True), True)], [range(BASE + 1, BASE + 3)]))
    found = scan(disk)
    left = [0, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert (found.unacked, found.body_bytes, found.next_number) == (
        10,
        sum(size_of(BASE + number) for number in left),
        BASE + 12,
    )
    assert numbers_in(span.numbers for span in found.stored) == [8, 9, 10, 11] and found.acks == [] and not found.latest


def test_the_acks_of_the_journal_need_a_flush():
    """C-12: acks that the file has are not written again."""
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 6), False)], [range(BASE, BASE + 1)]))
    replayed = Replayed(acked=[range(BASE, BASE + 3), range(BASE + 20, BASE + 22), range(BASE - 40, BASE - 30)])
    found = scan(disk, replayed)
    assert found.unacked == 3
    assert numbers_in(found.acks) == [1, 2]


def test_entries_of_the_file_need_no_second_flush():
    """Entries that a segment already has are removed from what the journal replayed, so that they need no second flush
    (C-12, QS-25).
    """
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 6), False)], []), ([Entries(run_of(10, 2, stored=True), True)], []))
    replayed = Replayed()
    replayed.embedded.add(run_of(2, 6))
    replayed.stored.add(run_of(10, 4, stored=True))
    assert scan(disk, replayed).unacked == 8
    assert [(run.first - BASE, len(run.contents)) for run in replayed.embedded.runs] == [(6, 2)]
    assert [(run.first - BASE, len(run.contents)) for run in replayed.stored.runs] == [(12, 2)]


def test_transient_messages_are_acked_away():
    """A scan acknowledges transient entries, because none survives a restart (queue-and-store section 4.10)."""
    disk = FaultyDisk()
    write(
        disk,
        (
            [
                Entries(run_of(0, 4, TRANSIENT), False),
                Entries(run_of(4, 2), False),
                Entries(run_of(6, 2, TRANSIENT, stored=True), True),
            ],
            [],
        ),
    )
    found = scan(disk)
    assert (found.unacked, numbers_in(found.acks), found.stored, found.next_number) == (
        2,
        [0, 1, 2, 3, 6, 7],
        [],
        BASE + 8,
    )


def test_a_number_that_stands_there_twice_counts_once():
    """If a crash interrupted a flush and it was repeated, entries stand in the file twice, and count once (C-12)."""
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 4), False)], []), ([Entries(run_of(2, 4), False)], []))
    found = scan(disk)
    assert (found.unacked, found.body_bytes) == (6, sum(size_of(BASE + number) for number in range(6)))


@pytest.mark.parametrize("tail", [b"\0" * 40, b"WF", bytes(range(30))])
def test_a_torn_tail_is_cut(tail):
    """D-9, C-11, C-15: whole frames count, and the next append follows them."""
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 4), False)], []))
    file = disk.open(PATH)
    whole = file.size()
    file.append([tail])
    found = scan(disk)
    assert (found.unacked, found.size, disk.open(PATH).size()) == (4, whole, whole)


def test_what_was_read_is_synced():
    """A scan syncs what it has read: a killed process leaves bytes that are not synced, and the journal that has the
    same entries may be given up soon.
    """
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 4), False)], []))
    file = disk.open(PATH)
    file.append(encode([Entries(run_of(4, 4), False)], [], file.size())[0])
    scan(disk)
    disk.sync_dir("q")
    for seed in range(20):
        disk.crash(Random(seed))
        assert scan(disk).unacked == 8


def test_whether_anything_may_expire():
    """A scan says whether any entry may expire, and returns the latest expiry; one such entry is enough."""
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 1), False), Entries(run_of(1, 1, expiry=5), False)], []))
    assert scan(disk).latest == 5


pieces = st.tuples(st.integers(0, ENTRIES - 1), st.integers(1, 8), st.booleans(), st.booleans())
spans_of = st.lists(st.tuples(st.integers(0, ENTRIES - 1), st.integers(1, 6)), max_size=4)


@given(flushes=st.lists(st.tuples(st.lists(pieces, max_size=4), spans_of), max_size=4), in_journal=spans_of)
def test_it_is_the_union(flushes, in_journal):
    """A scan returns the union of segment and journal: a message is acked if either of them says so, and of two entries
    with one number the first counts (QS-25).
    """
    kinds: dict[int, tuple[bool, bool]] = {}
    acked_here: set[int] = set()
    disk = FaultyDisk()
    written = []
    for published, acks in flushes:
        entries = []
        for first, count, stored, persistent in published:
            count = min(count, ENTRIES - first)
            fresh = [number for number in range(first, first + count) if number not in kinds]
            for number in fresh:
                kinds[number] = stored, persistent
                entries.append(Entries(run_of(number, 1, PERSISTENT if persistent else TRANSIENT, stored), stored))
        gone = {
            number for first, count in acks for number in range(first, min(first + count, ENTRIES)) if number in kinds
        }
        acked_here |= gone
        if entries or gone:
            written.append(
                (
                    sorted(entries, key=lambda each: each.run.first),
                    [range(BASE + number, BASE + number + 1) for number in sorted(gone)],
                )
            )
    write(disk, *written)
    acked = acked_here | {number for first, count in in_journal for number in range(first, min(first + count, ENTRIES))}
    found = scan(
        disk, Replayed(acked=[range(BASE + first, BASE + min(first + count, ENTRIES)) for first, count in in_journal])
    )
    left = [number for number, (_, persistent) in sorted(kinds.items()) if persistent and number not in acked]
    assert (found.unacked, found.body_bytes) == (len(left), sum(size_of(BASE + number) for number in left))
    assert numbers_in(span.numbers for span in found.stored) == [number for number in left if kinds[number][0]]
    assert set(numbers_in(found.acks)) == {
        number
        for number, (_, persistent) in kinds.items()
        if (number in acked or not persistent) and number not in acked_here
    }


@pytest.mark.parametrize("recorded", [0, -1, None], ids=["its size", "a smaller size", "no size"])
def test_only_what_the_journal_has_not_recorded_as_synced_is_synced(monkeypatch, recorded):
    """A scan syncs only what the journal has not recorded as synced. So a power cut after it takes nothing back, and
    the start of ten thousand small queues waits for no sync.
    """
    disk = FaultyDisk()
    write(disk, ([Entries(run_of(0, 4), False)], []))
    file = disk.open(PATH)
    size = file.size()
    syncs = []
    monkeypatch.setattr(type(file), "sync", lambda file: syncs.append(file))
    replayed = Replayed() if recorded is None else Replayed(sizes={BASE // ENTRIES: size + recorded})
    found = scan(disk, replayed)
    assert found.unacked == 4 and found.was_synced == (recorded == 0)
    assert len(syncs) == (recorded != 0)
