"""A sync of a segment that fails may have lost bytes for good, although the next sync succeeds: the operating system
drops them and reports that once. The entries must be in the segment nevertheless when the journal gives up its records.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.message import Origin
from warren.store.messages.run import Run

ENTRIES = 16
PERSISTENT = Origin("x", ("k",), persistent=True)
BROKEN = OSError(errno.EIO, "injected")


class SyncFails(FaultyDisk):
    """A disk on which those of the next syncs of files fail that have a 0 in `outcomes`."""

    outcomes = ""

    def step(self, kind: str) -> None:
        super().step(kind)
        if kind == "sync" and self.outcomes:
            outcome, self.outcomes = self.outcomes[0], self.outcomes[1:]
            if outcome == "0":
                raise BROKEN


def run_of(numbers: range) -> Run:
    contents = [bytes(11) + (5).to_bytes(8, "big") + number.to_bytes(8, "big") for number in numbers]
    return Run(numbers.start, contents, PERSISTENT, None, False, 5 * len(numbers))


def flush_until_it_succeeds(index: QueueIndex, is_synced: bool) -> None:
    """Run one flush as often as the disk refuses it."""
    flush = index.take_flush(is_synced)
    while True:
        try:
            flush.run()
        except OSError:
            continue
        index.flushed(flush)
        return


@pytest.mark.parametrize("outcomes", ["0", "10", "00", "010", "0010", "01010"])
@pytest.mark.parametrize("second", [range(4, 8), range(16, 20)], ids=["same segment", "another segment"])
def test_a_flush_whose_sync_failed_writes_the_segments_anew(outcomes, second):
    """Entries that an earlier flush wrote without a sync survive a power cut after a synced flush, even if the first
    attempt to sync them has failed.
    """
    for seed in range(10):
        disk = SyncFails()
        index = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
        index.publish(run_of(range(4)))
        flush_until_it_succeeds(index, False)
        index.publish(run_of(second))
        disk.outcomes = outcomes
        flush_until_it_succeeds(index, True)
        disk.outcomes = ""
        disk.crash(Random(seed))

        again = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
        again.scan(None, None)
        found = [
            run.first + at
            for start in (0, 16)
            for run, _ in again.read(start, start + 16)
            for at in range(len(run.contents))
        ]
        assert found == [*range(4), *second]
        again.publish(run_of(range(24, 26)))
        again.flush(True)
        assert sorted(disk.list("q")) == sorted({f"{number // 16}.idx" for number in [0, *second, 24]})


@pytest.mark.parametrize("outcomes", ["0", "00"])
def test_a_scan_whose_sync_failed_writes_the_segment_anew(outcomes):
    """Entries that only a kill left in a segment survive a power cut, even if the scan's attempt to sync them has
    failed.
    """
    for seed in range(10):
        disk = SyncFails()
        index = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
        index.publish(run_of(range(4)))
        flush_until_it_succeeds(index, False)
        disk.kill()
        disk.outcomes = outcomes
        again = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
        try:
            again.scan(None, None)
        except OSError:
            assert outcomes == "00", "the file could be written anew"
            continue
        disk.crash(Random(seed))
        last = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
        assert last.scan(None, None).messages == 4
