"""The process of a queue may end while a flush of it waits for a thread, or runs. The flush must not change what the
queue's next process has written to the segments.
"""

from __future__ import annotations

import threading

import pytest

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.job_guards import JobEnded
from warren.store.disk.real_disk import RealDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.log_writer import LogWriter
from warren.store.messages.message import Origin
from warren.store.messages.run import Run

from ..append_waits import AppendWaits

ENTRIES = 16
PERSISTENT = Origin("x", ("k",), persistent=True)


def opened(disk) -> QueueIndex:
    index = QueueIndex(disk, "q", 1, LogWriter(), ENTRIES)
    index.scan(None, None)
    return index


def publish(index: QueueIndex, numbers: range) -> None:
    contents = [bytes(11) + (5).to_bytes(8, "big") + number.to_bytes(8, "big") for number in numbers]
    index.publish(Run(numbers.start, contents, PERSISTENT, None, False, 5 * len(numbers)))


def numbers_in(index: QueueIndex) -> list[int]:
    return [number for run, _ in index.read(0, ENTRIES) for number in range(run.first, run.end)]


@pytest.mark.parametrize("is_real", [False, True], ids=["faulty", "real"])
def test_a_flush_that_had_not_begun_does_nothing(tmp_path, is_real):
    """A flush of the former process that gets a thread only now leaves the entries that the next process has written.

    The next process may belong to a virtual host that has started again, with a disk of its own.
    """

    def disk_of_a_start():
        return RealDisk(f"{tmp_path}") if is_real else faulty

    faulty = FaultyDisk()
    former = opened(disk_of_a_start())
    publish(former, range(4))
    former.flush(True)
    publish(former, range(4, 6))
    late = former.take_flush(True)

    index = opened(disk_of_a_start())
    publish(index, range(6, 10))
    index.flush(True)
    with pytest.raises(JobEnded):
        late.run()
    assert numbers_in(opened(disk_of_a_start())) == [*range(4), *range(6, 10)]


def test_a_scan_waits_for_a_flush_that_runs(monkeypatch):
    """The next process finds everything that the flush of the former one has written."""
    disk = AppendWaits()
    former = opened(disk)
    publish(former, range(4))
    late = threading.Thread(target=former.take_flush(True).run)
    late.start()
    assert disk.is_appending.wait(60)
    end = disk.guards.end

    def end_while_it_runs(name):
        disk.may_append.set()
        end(name)

    monkeypatch.setattr(disk.guards, "end", end_while_it_runs)
    found = numbers_in(opened(disk))
    disk.may_append.set()
    late.join()
    assert found == [0, 1, 2, 3]
